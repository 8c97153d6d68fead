"""`python -m bench.proxy URL`: the reference, a pass-through proxy that does nothing but forward.

A raw ASGI application that sends each body as it came to one address, through the same HTTP client as the
gateway with the same settings, and the answer back. Refuses to know what passes through.
"""

import sys

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from starlette.types import Receive, Scope, Send

from app.adapters.upstream import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_SERVER
from app.adapters.upstream.client import KEEP_ALIVE_SECONDS
from bench.serve import answer, live, read_body, serve

TIMEOUT = ClientTimeout(total=60)
HEADERS = {
    "User-Agent": "proxy",
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
}


class Proxy:
    def __init__(self, target: str) -> None:
        self._target = target
        self._session: ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await live(receive, send, self._open, self._close)
            return
        assert self._session is not None, "the lifespan comes first"
        body = await read_body(receive)
        async with self._session.post(self._target, data=body, allow_redirects=False) as response:
            status, result = response.status, await response.read()
        await answer(send, status, result)

    async def _open(self) -> None:
        connector = TCPConnector(
            limit=MAX_CONNECTIONS, limit_per_host=MAX_CONNECTIONS_PER_SERVER, keepalive_timeout=KEEP_ALIVE_SECONDS
        )
        self._session = ClientSession(
            connector=connector,
            headers=HEADERS,
            timeout=TIMEOUT,
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def _close(self) -> None:
        if self._session is not None:
            await self._session.close()


if __name__ == "__main__":
    serve(Proxy(sys.argv[1]))
