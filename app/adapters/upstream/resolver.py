"""Tool servers' names become those of their addresses that may be connected to. Connections go to just these.

Knows threads and a queue of its own: a look-up can't be interrupted, and one that hangs, long after its call
has timed out, must hold up nothing else in this process. Refuses to know why a name is asked for.
"""

import asyncio
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

from app.adapters.upstream.addresses import AddressPolicy, may_connect

THREADS: Final = 32
MAX_WAITING: Final = 256


class AddressRefusedError(OSError):
    """A name that resolves to nothing that may be connected to."""


class ResolverBusyError(OSError):
    """Too many look-ups wait for a thread already."""


class CheckedResolver(AbstractResolver):
    def __init__(self, addresses: AddressPolicy) -> None:
        self._addresses = addresses
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="resolver")
        self._look_ups: set[Future[list[ResolveResult]]] = set()
        self._limit = THREADS + MAX_WAITING

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        try:
            found = await asyncio.wrap_future(self._begin(host, port, family))
        except UnicodeError as error:
            raise OSError("no valid host name") from error
        allowed = [one for one in found if may_connect(one["host"], self._addresses)]
        if not allowed:
            raise AddressRefusedError
        return allowed

    async def close(self) -> None:
        """Look-ups that wait are dropped, those that run are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, host: str, port: int, family: socket.AddressFamily) -> Future[list[ResolveResult]]:
        # Counted until the thread is done, not only until nobody waits any more.
        self._look_ups = {look_up for look_up in self._look_ups if not look_up.done()}
        if len(self._look_ups) >= self._limit:
            raise ResolverBusyError
        try:
            look_up = self._threads.submit(_look_up, host, port, family)
        except RuntimeError as error:  # closed, or the machine has no thread left
            raise ResolverBusyError from error
        self._look_ups.add(look_up)
        return look_up


def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [
        ResolveResult(
            hostname=host,
            host=address[0],
            port=port,
            family=family,
            proto=protocol,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for family, _type, protocol, _name, address in found
        if isinstance(address[0], str)  # else a family that this Python was built without
    ]
