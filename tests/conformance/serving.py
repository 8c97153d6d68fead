"""An ASGI application on a free loopback port, in a thread of its own, for as long as a `with` lasts."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp

START_SECONDS: Final = 30


@contextmanager
def serving(application: ASGIApp) -> Iterator[str]:
    """The address that it is served at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(application, log_level="error", lifespan="on", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            _wait_until_started(server)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(START_SECONDS)


def _wait_until_started(server: uvicorn.Server) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not server.started:
        assert time.monotonic() < deadline, "the application did not start"
        time.sleep(0.01)
