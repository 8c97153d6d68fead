"""A real HTTP tool server for tests, in a thread of its own: it counts what it was really asked to do.

What a tool does is in its path: `/search` answers, `/slow` waits until it is released, `/fail` answers 503,
`/drop` hangs up after it has read the request, `/priced` reports a cost, `/away` redirects.

`/resources` is its resolver: it answers from `owners`, whatever tenant is asked for, with `resolver_status`.
"""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from aiohttp import web

WAIT_SECONDS: Final = 60
TOOLS: Final = ("search", "slow", "fail", "drop", "priced", "away")
RESOLVER: Final = "/resources"


@dataclass(frozen=True)
class Request:
    """What reached the tool."""

    tool: str
    headers: dict[str, str]
    arguments: dict[str, Any]


class Owned(NamedTuple):
    """What the tool server's own record has of a thing."""

    tenant: str
    attributes: Mapping[str, object] = MappingProxyType({})


class ToolServer:
    """Serves on a free loopback port between `with`s; what reached its tools is in `requests`.

    What its resolver was asked is in `questions`.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.questions: list[Request] = []
        self.owners: dict[tuple[str, str], Owned] = {}
        self.resolver_status = 200
        self.port = 0
        self._arrived = threading.Condition()
        self._released = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._done = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(WAIT_SECONDS), "the tool server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(WAIT_SECONDS)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def of(self, tool: str, **arguments: object) -> list[Request]:
        """What reached one tool, with at least these arguments."""
        return [
            request
            for request in self.requests
            if request.tool == tool and arguments.items() <= request.arguments.items()
        ]

    def wait_for(self, count: int, tool: str, **arguments: object) -> None:
        """Until so many such requests have arrived."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.of(tool, **arguments)) >= count, WAIT_SECONDS)

    def release(self) -> None:
        """Let every slow call answer, now and from now on."""
        self._released.set()

    def hold(self) -> None:
        """Let slow calls wait again."""
        self._released.clear()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_post(RESOLVER, self._resolve)
        app.router.add_post("/{tool}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._done.wait()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        tool = request.match_info["tool"]
        arguments = await request.json()
        with self._arrived:
            self.requests.append(Request(tool, dict(request.headers), arguments))
            self._arrived.notify_all()
        if tool == "drop":
            assert request.transport is not None
            request.transport.abort()
        if tool == "slow":
            await self._loop.run_in_executor(None, self._released.wait, WAIT_SECONDS)
        if tool == "away":
            raise web.HTTPTemporaryRedirect("http://169.254.169.254/latest/meta-data")
        if tool == "fail":
            return web.json_response({"error": "busy"}, status=503)
        return web.json_response({"tool": tool, "arguments": arguments, "costCents": arguments.get("cost", 0)})

    async def _resolve(self, request: web.Request) -> web.StreamResponse:
        question = await request.json()
        self.questions.append(Request(RESOLVER, dict(request.headers), question))
        refs = [(asked["type"], asked["id"]) for asked in question["resources"]]
        found = [_entry(*ref, self.owners[ref]) for ref in refs if ref in self.owners]
        return web.json_response({"resources": found}, status=self.resolver_status)


def _entry(type_: str, id_: str, owned: Owned) -> dict[str, object]:
    return {"type": type_, "id": id_, "tenantId": owned.tenant, "attributes": {**owned.attributes}}
