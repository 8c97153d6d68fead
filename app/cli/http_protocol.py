"""HTTP/1.1 with a bound on what a request may say before its body.

uvicorn's fast parser keeps reading a header for as long as somebody sends one; its slow one has a limit. Refuses
to know what a request is about.
"""

from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 65_536
"""A head may be this long, and a read longer. A token and its proof take a few thousand bytes."""

TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class BoundedHttpProtocol(HttpToolsProtocol):
    """Counts the bytes that arrived since the last head was complete, as long as no body is expected."""

    _head_bytes = 0
    _expects_head = True
    _had_head = False

    def data_received(self, data: bytes) -> None:
        expected_head, self._had_head = self._expects_head, False
        super().data_received(data)
        # A read in which a head was completed, or a body went on, is as long as a read can be and counts for nothing.
        self._head_bytes = self._head_bytes + len(data) if expected_head and not self._had_head else 0
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._expects_head, self._had_head = False, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._expects_head = True
        super().on_message_complete()
