"""Server-sent events, as far as MCP uses them (WHATWG HTML §9.2): bytes become the data of events.

Knows lines and fields. Event names, ids and retry times mean nothing to a client that resumes no stream.
"""

import re
from typing import Final

_BOM: Final = b"\xef\xbb\xbf"
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class EventParser:
    """Takes a stream in whatever pieces the network cut it. An event that never ends is never given out."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._after_cr = False
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that this piece completes."""
        # An LF may belong to a CR that ended the piece before.
        text = chunk.removeprefix(b"\n") if self._after_cr else chunk
        self._after_cr = text.endswith(b"\r")
        *ends, rest = _LINE_END.split(text)
        found = [event for end in ends for event in self._end_line(end)]
        self._line.append(rest)
        return found

    def _end_line(self, end: bytes) -> list[bytes]:
        line = b"".join((*self._line, end))
        self._line.clear()
        if line:
            self._data.extend(_data(line))
            return []
        event = b"\n".join(self._data)
        self._data.clear()
        return [event] if event else []


def _data(line: bytes) -> list[bytes]:
    name, _, value = line.removeprefix(_BOM).partition(b":")
    return [value.removeprefix(b" ")] if name == b"data" else []
