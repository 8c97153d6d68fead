"""Server-sent events, as far as MCP uses them (WHATWG HTML §9.2): bytes become the data of events.

Knows lines and fields, and where a stream could be taken up again. Event names mean nothing here.
"""

import re
from typing import Final

_BOM: Final = b"\xef\xbb\xbf"
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_MILLISECONDS: Final = re.compile(rb"[0-9]{1,9}")


class EventTooLargeError(Exception):
    """An event is larger than anybody here waits for."""


class EventParser:
    """Takes a stream in whatever pieces the network cut it. An event that never ends is never given out.

    After each event `last_id` is where the stream can be taken up again, if its server said so, and
    `retry_milliseconds` how long it wants to be left alone before.
    """

    def __init__(self, *, max_event_bytes: int) -> None:
        self.last_id: bytes | None = None
        self.retry_milliseconds: int | None = None
        self._max_bytes = max_event_bytes
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._after_cr = False
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._id: bytes | None = None

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that this piece completes. Raises EventTooLargeError."""
        # An LF may belong to a CR that ended the piece before.
        text = chunk.removeprefix(b"\n") if self._after_cr else chunk
        self._after_cr = text.endswith(b"\r")
        *ends, rest = _LINE_END.split(text)
        found = [event for end in ends for event in self._end_line(end)]
        self._line.append(rest)
        self._line_bytes += len(rest)
        self._refuse_large()
        return found

    def _end_line(self, end: bytes) -> list[bytes]:
        line = b"".join((*self._line, end))
        self._line.clear()
        self._line_bytes = 0
        if not line:
            return self._end_event()
        self._take(*_field(line))
        return []

    def _end_event(self) -> list[bytes]:
        event = b"\n".join(self._data)
        self._data.clear()
        self._data_bytes = 0
        self.last_id = self._id
        return [event] if event else []

    def _take(self, name: bytes, value: bytes) -> None:
        match name:
            case b"data":
                self._data.append(value)
                self._data_bytes += len(value) + 1
                self._refuse_large()
            case b"id" if b"\0" not in value:
                self._id = value
            case b"retry" if _MILLISECONDS.fullmatch(value):
                self.retry_milliseconds = int(value)

    def _refuse_large(self) -> None:
        if self._line_bytes + self._data_bytes > self._max_bytes:
            raise EventTooLargeError


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.removeprefix(_BOM).partition(b":")
    return name, value.removeprefix(b" ")
