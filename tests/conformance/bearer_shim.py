"""A forwarder that adds a bearer token to each request: the conformance suite cannot send one.

All else passes byte by byte, in both directions and as it comes, since odd header fields are among what the suite
tries. It knows one port and one token, and nothing of MCP; of HTTP it knows where a request's header fields end.
"""

import asyncio
import re
import threading
from contextlib import suppress
from typing import Final, Self

START_SECONDS: Final = 30
HEAD_END: Final = b"\r\n\r\n"
PIECE: Final = 65_536


class BearerShim:
    """Listens on a free loopback port, in a thread of its own, for as long as a `with` lasts.

    Where it leads, and with which token, may be told later: a server that is to call itself by the shim's address
    starts after it.
    """

    def __init__(self) -> None:
        self.target = 0
        self.token = ""
        self._port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._done = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(START_SECONDS), "the shim did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(START_SECONDS)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with await asyncio.start_server(self._forward, "127.0.0.1", 0) as server:
            self._port = server.sockets[0].getsockname()[1]
            self._ready.set()
            await self._done.wait()

    async def _forward(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        """One connection, which carries one request: the next would come without its token."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await client.readuntil(HEAD_END)
            answers, onward = await asyncio.open_connection("127.0.0.1", self.target)
            onward.write(self._with_token(head))
            pipes = [asyncio.create_task(_pipe(client, onward)), asyncio.create_task(_pipe(answers, back))]
            # Whichever side hangs up ends both: a client that goes away cancels its call.
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
            for pipe in pipes:
                pipe.cancel()
            onward.close()
        back.close()

    def _with_token(self, head: bytes) -> bytes:
        fields = re.sub(rb"(?im)^connection:.*\r\n", b"", head.removesuffix(b"\r\n"))
        return fields + b"Connection: close\r\nAuthorization: Bearer " + self.token.encode() + HEAD_END


async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await source.read(PIECE):
            sink.write(piece)
            await sink.drain()
