"""Tool servers for the tests: real ones, on loopback, whose misbehaviour each test decides."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from app.core.grant import ToolName
from app.core.registry import HttpBinding, Transport
from app.core.strict_json import JsonObject
from app.ports import Listener, UpstreamRequest

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RawHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def a_request(
    endpoint: str,
    *,
    transport: Transport = Transport.HTTP,
    method: str = "POST",
    path: str = "",
    arguments: JsonObject | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = 20,
    max_response_bytes: int = 1_000_000,
    run: str = "run_1",
    input_schema: JsonObject | None = None,
    listener: Listener | None = None,
) -> UpstreamRequest:
    return UpstreamRequest(
        transport=transport,
        endpoint=endpoint,
        tool=ToolName("refund"),
        http=HttpBinding(method=method, path=path),
        arguments={} if arguments is None else arguments,
        headers=headers or {},
        timeout_seconds=timeout_seconds,
        max_response_bytes=max_response_bytes,
        session_key=f"acme/billing/{run}",
        input_schema=input_schema or {},
        listener=listener,
    )


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """A server that gives every request to `handler`; its address."""
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", handler)
    # A request whose client has gone is cancelled, so that the server can end at once.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serving_raw(handler: RawHandler) -> AsyncIterator[str]:
    """A server below HTTP: `handler` has each connection, which ends when it returns."""
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the test is over
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """One whole HTTP request; raises IncompleteReadError where the connection ends instead."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().splitlines():
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return head + await reader.readexactly(int(value))
    return head


@dataclass
class McpServer:
    """An MCP server with sessions as a script: `answer` answers calls, and what was heard is kept.

    What is of no session it refuses with 404, or as `unknown` says.
    """

    sse: bool = False
    revision: str = "2025-11-25"
    answer: Callable[[web.Request, JsonObject], Awaitable[web.StreamResponse | JsonObject]] | None = None
    open: dict[str, str] = field(default_factory=dict)
    opened: int = 0
    heard: list[tuple[str | None, JsonObject]] = field(default_factory=list)
    unknown: Callable[[], web.Response] | None = None
    requests: list[web.Request] = field(default_factory=list)
    probes: list[web.Request] = field(default_factory=list)
    peers: set[object] = field(default_factory=set)
    ended: list[str] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        session = request.headers.get("Mcp-Session-Id")
        if request.method == "DELETE":
            await self._note(lambda: self.ended.append(session or ""))
            return web.Response(status=204)
        message: JsonObject = json.loads(await request.read())
        if message.get("method") == "server/discover":
            # It knows no request outside a session but the greeting.
            self.probes.append(self.requests.pop())
            return self.unknown() if self.unknown else web.Response(status=404)
        await self._note(lambda: self.heard.append((session, message)))
        if message.get("method") == "initialize":
            return self._initialised(message)
        if session not in self.open:
            return self.unknown() if self.unknown and session is None else web.Response(status=404)
        if "id" not in message:
            return web.Response(status=202)
        return await self._answered(request, message)

    def calls(self, method: str = "tools/call") -> list[JsonObject]:
        return [message for _session, message in self.heard if message.get("method") == method]

    def sessions(self, method: str = "tools/call") -> list[str | None]:
        return [session for session, message in self.heard if message.get("method") == method]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(condition)

    async def _note(self, change: Callable[[], None]) -> None:
        async with self.changed:
            change()
            self.changed.notify_all()

    def _initialised(self, message: JsonObject) -> web.Response:
        self.opened += 1
        session = f"session-{self.opened}"
        self.open[session] = session
        result = {
            "protocolVersion": self.revision,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "scripted", "version": "1"},
        }
        return web.json_response(response(message, result), headers={"Mcp-Session-Id": session})

    async def _answered(self, request: web.Request, message: JsonObject) -> web.StreamResponse:
        answer = await self.answer(request, message) if self.answer else response(message, A_RESULT)
        if isinstance(answer, web.StreamResponse):
            return answer
        if not self.sse:
            return web.json_response(answer)
        return await streamed(request, event(answer))


REQUIRED_META = {
    "io.modelcontextprotocol/protocolVersion": str,
    "io.modelcontextprotocol/clientCapabilities": dict,
}


@dataclass
class StatelessServer:
    """A tool server of 2026-07-28 as a script that holds its clients to the letter: `answer` answers calls."""

    sse: bool = False
    supported: tuple[str, ...] = ("2026-07-28",)
    answer: Callable[[web.Request, JsonObject], Awaitable[web.StreamResponse | JsonObject]] | None = None
    heard: list[JsonObject] = field(default_factory=list)
    requests: list[web.Request] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a client has let a connection go whose request was not answered."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        message: JsonObject = json.loads(await request.read())
        self.requests.append(request)
        self.heard.append(message)
        fault = self._fault(request, message)
        if fault is not None:
            code, data = fault
            error = {"code": code, "message": "no", **({} if data is None else {"data": data})}
            return web.json_response({"jsonrpc": "2.0", "id": message.get("id"), "error": error}, status=400)
        if message["method"] == "server/discover":
            found = {"supportedVersions": [*self.supported], "capabilities": {"tools": {}}, "ttlMs": 0}
            return web.json_response(response(message, {"resultType": "complete", "cacheScope": "private", **found}))
        try:
            return await self._answered(request, message)
        except asyncio.CancelledError:
            self.gone.set()
            raise

    def calls(self, method: str = "tools/call") -> list[JsonObject]:
        return [message for message in self.heard if message.get("method") == method]

    def _fault(self, request: web.Request, message: JsonObject) -> tuple[int, object] | None:
        params = message.get("params", {})
        meta = params.get("_meta", {}) if isinstance(params, dict) else {}
        assert isinstance(params, dict)
        assert isinstance(meta, dict)
        header = request.headers.get("MCP-Protocol-Version", self.supported[0])
        if header not in self.supported:
            return -32022, {"supported": [*self.supported], "requested": header}
        if any(not isinstance(meta.get(name), kind) for name, kind in REQUIRED_META.items()):
            return -32602, None
        version = meta["io.modelcontextprotocol/protocolVersion"]
        repeated = {"MCP-Protocol-Version": version, "Mcp-Method": message["method"]}
        if message["method"] == "tools/call":
            repeated["Mcp-Name"] = params["name"]
        if any(request.headers.getall(name, []) != [value] for name, value in repeated.items()):
            return -32020, None
        return None

    async def _answered(self, request: web.Request, message: JsonObject) -> web.StreamResponse:
        answer = await self.answer(request, message) if self.answer else response(message, FINAL)
        if isinstance(answer, web.StreamResponse):
            return answer
        return await streamed(request, event(answer)) if self.sse else web.json_response(answer)


A_RESULT: JsonObject = {"content": [{"type": "text", "text": "done"}], "isError": False}

FINAL: JsonObject = {"resultType": "complete", **A_RESULT}


def response(message: JsonObject, result: Any) -> JsonObject:  # noqa: ANN401 - whatever a server might say
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def event(message: JsonObject) -> bytes:
    return b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"


async def streamed(request: web.Request, *chunks: bytes) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await stream.prepare(request)
    for chunk in chunks:
        await stream.write(chunk)
    await stream.write_eof()
    return stream
