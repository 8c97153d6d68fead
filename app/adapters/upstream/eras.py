"""How each tool server is to be spoken to, as it said itself, for as long as that is believed.

Knows endpoints and a limit. An era is a property of a server, not of who asks it; what is believed wrongly turns out
at the next request, which is then not run.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from typing import Final

BELIEVED_SECONDS: Final = 3600.0
"""A server that has learnt a newer revision is spoken to in that within an hour."""


class Era(Enum):
    STATELESS = "each request stands for itself"
    HANDSHAKE = "requests belong to a session"


class Eras:
    """The least recently learnt go first."""

    def __init__(self, *, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._known: OrderedDict[str, tuple[Era, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def known(self, endpoint: str) -> Era | None:
        era, since = self._known.get(endpoint, (None, 0.0))
        return era if self._clock() - since < BELIEVED_SECONDS else None

    def learn(self, endpoint: str, era: Era) -> None:
        self._known[endpoint] = (era, self._clock())
        self._known.move_to_end(endpoint)
        while len(self._known) > self._limit:
            self._known.popitem(last=False)

    def forget(self, endpoint: str) -> None:
        self._known.pop(endpoint, None)
