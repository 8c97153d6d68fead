"""A bounded queue for work that takes a core or a connection: so many at once, so many waiting, no more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Whoever finds it `full` is told to come again; the others take their `turn`. One process's own."""

    def __init__(self, *, at_once: int, waiting: int) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._taken = 0

    @property
    def full(self) -> bool:
        return self._taken >= self._most

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        self._taken += 1
        try:
            async with self._free:
                yield
        finally:
            self._taken -= 1
