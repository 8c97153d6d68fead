"""Stands between the gateway and a server on loopback, and keeps every byte that the server was sent."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

WAIT_SECONDS: Final = 10


class WireTap:
    """Listens on a free port between `with`s. `endpoint` is the server's URL through the tap."""

    def __init__(self, url: str) -> None:
        split = urlsplit(url)
        self._target = (split.hostname or "", split.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.endpoint = split._replace(netloc=f"127.0.0.1:{port}").geturl()
        self._sent = bytearray()
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []

    @property
    def sent(self) -> bytes:
        """What reached the server until now."""
        with self._lock:
            return bytes(self._sent)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed: the test is over
            while True:
                inward, _ = self._listener.accept()
                outward = socket.create_connection(self._target, WAIT_SECONDS)
                outward.settimeout(None)
                self._open += [inward, outward]
                threading.Thread(target=self._relay, args=(inward, outward, True), daemon=True).start()
                threading.Thread(target=self._relay, args=(outward, inward, False), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket, keep: bool) -> None:
        with suppress(OSError):
            while chunk := source.recv(65_536):
                if keep:
                    with self._lock:
                        self._sent += chunk
                sink.sendall(chunk)
            sink.shutdown(socket.SHUT_WR)
