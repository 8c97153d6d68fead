"""Bounds on work that takes a core or a connection, in one process: how much at once, and how much for whom."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


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


class Shares:
    """So much at once for each owner, however much each of them wants: what one waits for keeps nobody else waiting."""

    def __init__(self, *, at_once: int) -> None:
        self._at_once = at_once
        # Known as long as somebody works or waits under it.
        self._owners: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def share(self, owner: str) -> AsyncIterator[None]:
        free = self._owners.get(owner)
        if free is None:
            free = self._owners[owner] = asyncio.Semaphore(self._at_once)
        async with free:
            yield
