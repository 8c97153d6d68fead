"""Who waits for a call: hears what it says while it runs, as far as the grant lets it, and may cancel it.

Knows how much is kept for a reader who is slow, or of a tool that never stops talking: the rest is dropped, and the
call is never kept waiting. Refuses to know how anything travels.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from app.core.redaction import redact
from app.core.strict_json import JsonValue, canonical
from app.ports import Listener, LogMessage, Notice, Progress

MAX_NOTICES: Final = 1000
"""How much is told of one call altogether."""

MAX_NOTICE_BYTES: Final = 262_144
"""How much of it is text and data."""


class Watch:
    """One watcher of one call. `name` is what a cancellation from elsewhere may call it by."""

    def __init__(self, *, name: str | None = None, hears_progress: bool = False, log_level: str | None = None) -> None:
        self.name = name
        self.hears_progress = hears_progress
        self.log_level = log_level
        self.began = asyncio.Event()
        """Set once the call is on its way: allowed, held, and about to be sent."""
        self.news = asyncio.Event()
        """Set while there is something to take."""
        self.cancelled = False
        self._abort: Callable[[], None] | None = None
        self._kept: list[Notice] = []
        self._notices_left = MAX_NOTICES
        self._bytes_left = MAX_NOTICE_BYTES
        self._progress: float | None = None

    def cancel(self) -> None:
        """Stop the call: at once where it runs, else before it is sent."""
        self.cancelled = True
        if self._abort is not None:
            self._abort()

    def begin(self, abort: Callable[[], None]) -> None:
        self._abort = abort
        self.began.set()
        if self.cancelled:
            abort()

    def take(self) -> list[Notice]:
        """What was told since the last time."""
        taken, self._kept = self._kept, []
        self.news.clear()
        return taken

    def listener(self, secrets: Collection[str], *, is_projected: bool) -> Listener | None:
        """The ears of this watcher at a tool whose results it may see as said; None where it wants to hear nothing."""
        if not self.hears_progress and self.log_level is None:
            return None
        tell = self._tell_that_it_runs if is_projected else lambda notice: self._tell(_without(notice, secrets))
        # A log message has no fields that a projection could name, so that none of it is selected.
        log_level = None if is_projected else self.log_level
        return Listener(tell=tell, hears_progress=self.hears_progress, log_level=log_level)

    def _tell_that_it_runs(self, notice: Notice) -> None:
        """Nothing that the tool says, numbers included: how often it has spoken of progress is all that is told."""
        if isinstance(notice, Progress):
            self._tell(Progress(progress=1 if self._progress is None else self._progress + 1))

    def _tell(self, notice: Notice) -> None:
        size = len(canonical(_content(notice)))
        if not self._is_wanted(notice) or self._notices_left == 0 or size > self._bytes_left:
            return
        self._notices_left -= 1
        self._bytes_left -= size
        self._kept.append(notice)
        self.news.set()

    def _is_wanted(self, notice: Notice) -> bool:
        """Progress that stands still, or goes back, is none that a client may be sent."""
        if isinstance(notice, LogMessage):
            return self.log_level is not None
        is_forward = self._progress is None or notice.progress > self._progress
        self._progress = notice.progress if is_forward else self._progress
        return self.hears_progress and is_forward


def _content(notice: Notice) -> JsonValue:
    return notice.message if isinstance(notice, Progress) else [notice.logger, notice.data]


def _without(notice: Notice, secrets: Collection[str]) -> Notice:
    """What the gateway alone may know is taken out, as it is of results."""
    if isinstance(notice, Progress):
        message = redact(notice.message, secrets)
        assert isinstance(message, str | None), "of a text, a text is left"
        return replace(notice, message=message)
    logger = redact(notice.logger, secrets)
    assert isinstance(logger, str | None), "of a text, a text is left"
    return LogMessage(level=notice.level, data=redact(notice.data, secrets), logger=logger)
