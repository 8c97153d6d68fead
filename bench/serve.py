"""A bare ASGI application in a process of its own, under the same server settings as Subgrant itself.

Knows uvicorn, the few messages of ASGI, and that the end of standard input is the end. Refuses to know what
the application answers.
"""

import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import Receive, Scope, Send
from uvicorn import Config, Server

from bench.child import say_ready

BACKLOG: Final = 2048
KEEP_ALIVE_SECONDS: Final = 65

Hook = Callable[[], Awaitable[None]]


def serve(app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
    """Serve on a free loopback port, said first, until the input ends."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    config = Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    server = Server(config)
    threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
    say_ready(listener.getsockname()[1])
    server.run(sockets=[listener])


def _end_with_input(server: Server) -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    server.should_exit = True


async def live(receive: Receive, send: Send, started: Hook | None = None, ending: Hook | None = None) -> None:
    """ASGI's lifespan, with something to do at either end."""
    await receive()
    if started is not None:
        await started()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    if ending is not None:
        await ending()
    await send({"type": "lifespan.shutdown.complete"})


async def read_body(receive: Receive) -> bytes:
    """A request's whole body."""
    chunks = []
    more = True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(chunks)


async def answer(send: Send, status: int, body: bytes) -> None:
    """One JSON answer."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
