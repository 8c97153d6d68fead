"""A real MCP tool server of either era, made with the official SDK, in a thread of its own.

`steps` tells its progress and logs; `slow` runs until it is released or given up; `sampling`, `elicitation` and `roots`
ask their client for something; `secret` tells its arguments in progress and logs; `flood` never stops talking until it
ends. Whoever sent what is in `seen`, and what was given up in `given_up`. An old one knows nothing of 2026-07-28, a new
one nothing else.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata
from mcp_types.jsonrpc import RequestId
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.conformance.serving import serving

Json = dict[str, Any]
Context = ServerRequestContext[Any]

STATELESS: Final = "2026-07-28"
OLD, NEW = "old", "new"
ERAS: Final = (OLD, NEW)
WAIT_SECONDS: Final = 30
FLOOD: Final = 100_000
ANY: Final[Json] = {"type": "object"}


@dataclass
class McpToolServer:
    """What one has seen, and what its tools do."""

    era: str
    endpoint: str = ""
    seen: list[Json] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    released: threading.Event = field(default_factory=threading.Event)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_SECONDS)

    def note(self, change: Callable[[], None]) -> None:
        with self.changed:
            change()
            self.changed.notify_all()

    def methods(self) -> list[str]:
        return [str(message.get("method", "a response")) for message in self.seen]

    # --- tools

    async def call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        who = str(arguments.get("who", ""))
        self.note(lambda: self.calls.append(who))
        try:
            said = await self.tools[params.name](context, arguments)
        except asyncio.CancelledError:
            self.note(lambda: self.given_up.append(who))
            raise
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=said)], structured_content={"ok": said}
        )

    @property
    def tools(self) -> dict[str, Callable[[Context, Json], Awaitable[str]]]:
        return {
            "steps": self.steps,
            "slow": self.slow,
            "secret": self.secret,
            "large": self.large,
            "sampling": self.sampling,
            "elicitation": self.elicitation,
            "roots": self.roots,
        }

    async def steps(self, context: Context, _: Json) -> str:
        await context.session.report_progress(1, 3, "one")
        await log(context, "info", {"step": 1})
        await context.session.report_progress(2, 3, "two")
        return "done"

    async def slow(self, context: Context, _: Json) -> str:
        await context.session.report_progress(1)
        while not self.released.is_set():  # noqa: ASYNC110 - it is set by another thread
            await asyncio.sleep(0.01)
        return "done"

    async def secret(self, context: Context, arguments: Json) -> str:
        await context.session.report_progress(int(arguments["number"]), None, str(arguments["text"]))
        await log(context, "emergency", {"text": arguments["text"]})
        return str(arguments["text"])

    async def large(self, context: Context, _: Json) -> str:
        await context.session.report_progress(1, None, "x" * 1_000_000)
        await context.session.report_progress(2)
        return "done"

    async def sampling(self, context: Context, _: Json) -> str:
        message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="tell me all"))
        asked = types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=9))
        return await self.ask(context.session.send_request(asked, types.CreateMessageResult, metadata=within(context)))

    async def elicitation(self, context: Context, _: Json) -> str:
        form = types.ElicitRequestFormParams(
            message="your password", requested_schema={"type": "object", "properties": {}}
        )
        asked = types.ElicitRequest(params=form)
        return await self.ask(context.session.send_request(asked, types.ElicitResult, metadata=within(context)))

    async def roots(self, context: Context, _: Json) -> str:
        asked = types.ListRootsRequest()
        return await self.ask(context.session.send_request(asked, types.ListRootsResult, metadata=within(context)))

    async def ask(self, asking: Awaitable[object]) -> str:
        try:
            got = await asking
        except Exception as error:  # noqa: BLE001 - whatever the SDK makes of a refusal
            refusal = type(error).__name__
            self.note(lambda: self.refusals.append(refusal))
            return "refused"
        return f"got {got}"


def within(context: Context) -> ServerMessageMetadata:
    """On the stream of the call, as whatever has to do with it should be."""
    return ServerMessageMetadata(related_request_id=context.request_id)


async def log(context: Context, level: types.LoggingLevel, data: object) -> None:
    said = types.LoggingMessageNotificationParams(level=level, data=data)
    await context.session.send_notification(types.LoggingMessageNotification(params=said), context.request_id)


@contextmanager
def mcp_tool_server(era: str) -> Iterator[McpToolServer]:
    """One that serves for as long as the `with` lasts."""
    tools = McpToolServer(era)

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        names = [*tools.tools, "flood"]
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=ANY) for name in names])

    app = Server("tools", version="1", on_list_tools=list_tools, on_call_tool=tools.call).streamable_http_app()
    with serving(_of_one_era(app, tools)) as address:
        tools.endpoint = f"{address}/mcp"
        yield tools
        tools.released.set()


def _of_one_era(app: ASGIApp, tools: McpToolServer) -> ASGIApp:
    """The SDK speaks both eras. What stands before it keeps what it sees, and makes it deaf to one of them."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        body, received = await _body(scope, receive)
        fields = dict(Request(scope).headers)
        if body is not None:
            tools.note(lambda: tools.seen.append(body))
            tools.note(lambda: tools.headers.append(fields))
        answer = _refusal(tools.era, fields, None if body is None else body.get("id")) or _flood(body or {})
        await (app(scope, received, send) if answer is None else answer(scope, received, send))

    return serve


def _refusal(era: str, fields: dict[str, str], request_id: RequestId | None) -> Response | None:
    is_new = fields.get("mcp-protocol-version") == STATELESS
    if era == OLD and is_new:
        return Response("Bad Request: Unsupported protocol version", status_code=400)
    if era == NEW and not is_new:
        error = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": [STATELESS]}}
        return JSONResponse({"jsonrpc": "2.0", "id": request_id, "error": error}, status_code=400)
    return None


def _flood(body: Json) -> Response | None:
    """The answer of `flood`, which the SDK would take half a minute to write."""
    params = body.get("params", {})
    if body.get("method") != "tools/call" or params.get("name") != "flood":
        return None

    async def events() -> AsyncIterator[bytes]:
        token = params.get("_meta", {}).get("progressToken")
        for start in range(0, FLOOD, 1000):
            told = ({"progressToken": token, "progress": start + one + 1} for one in range(1000))
            yield b"".join(
                _event({"jsonrpc": "2.0", "method": "notifications/progress", "params": each}) for each in told
            )
        result = {"content": [{"type": "text", "text": "done"}], "structuredContent": {"ok": "done"}}
        yield _event({"jsonrpc": "2.0", "id": body["id"], "result": result})

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(message: Json) -> bytes:
    return b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"


async def _body(scope: Scope, receive: Receive) -> tuple[Json | None, Receive]:
    """The message of a POST, and a connection on which it can be received again."""
    if scope["method"] != "POST":
        return None, receive
    raw = await Request(scope, receive).body()
    pending = [{"type": "http.request", "body": raw, "more_body": False}]

    async def again() -> Any:  # noqa: ANN401 - ASGI's
        return pending.pop() if pending else await receive()

    return json.loads(raw), again
