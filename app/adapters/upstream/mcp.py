"""Tools behind MCP servers: calling one, and reading which there are.

Knows what a tool result and a list of tools look like, and which session a call belongs in. Refuses to know
how messages travel; and believes nothing that a server says of its tools beyond name, description and schema.
"""

import asyncio
from http import HTTPStatus
from typing import Final

from app.adapters.upstream.client import NotSentError, UnusableError, UpstreamClient
from app.adapters.upstream.sessions import Sessions, Slot, credential_identity
from app.adapters.upstream.streamable_http import (
    Bounds,
    RefusedError,
    Session,
    SessionEndedError,
    StreamableHttp,
)
from app.core.grant import ToolName
from app.core.strict_json import JsonObject, JsonValue
from app.ports import DiscoveredTool, Outcome, UpstreamAnswer, UpstreamRequest

MAX_PAGES: Final = 100
MAX_TOOLS: Final = 1000


class McpTools:
    def __init__(self, client: UpstreamClient, *, max_sessions: int) -> None:
        self._client = client
        self._wire = StreamableHttp(client)
        self._sessions: Sessions[Session] = Sessions(limit=max_sessions)

    async def call(self, request: UpstreamRequest, deadline: float) -> UpstreamAnswer:
        """Run one tool; raises NotSentError, LostError or UnusableError."""
        params: JsonObject = {"name": request.tool, "arguments": request.arguments}
        return _tool_answer(await self._ask(request, "tools/call", params, deadline))

    async def tools(self, request: UpstreamRequest, deadline: float) -> tuple[DiscoveredTool, ...]:
        """Every tool of every page; raises NotSentError, LostError or UnusableError."""
        tools: dict[ToolName, DiscoveredTool] = {}
        params: JsonObject = {}
        for _ in range(MAX_PAGES):
            page, cursor = _page(await self._ask(request, "tools/list", params, deadline))
            _add(tools, page)
            if cursor is None:
                return tuple(tools.values())
            params = {"cursor": cursor}
        raise UnusableError(f"the tool server lists its tools on more than {MAX_PAGES} pages")

    def end_sessions(self) -> None:
        for session in self._sessions.take_all():
            self._wire.end(session)

    async def _ask(self, request: UpstreamRequest, method: str, params: JsonObject, deadline: float) -> JsonObject:
        bounds = Bounds(deadline=deadline, max_bytes=request.max_response_bytes)
        key = (request.session_key, request.endpoint, credential_identity(request.headers))
        with self._sessions.use(key) as slot:
            try:
                return await self._ask_in(slot, request, method, params, bounds)
            except SessionEndedError:
                # Nothing was run, so the same request may be sent again: once, in a new session.
                pass
            try:
                return await self._ask_in(slot, request, method, params, bounds)
            except SessionEndedError as error:
                raise RefusedError(HTTPStatus.NOT_FOUND) from error

    async def _ask_in(
        self,
        slot: Slot[Session],
        request: UpstreamRequest,
        method: str,
        params: JsonObject,
        bounds: Bounds,
    ) -> JsonObject:
        session = await self._opened(slot, request, bounds)
        session.credential = request.headers
        try:
            return await self._wire.ask(session, method, params, bounds)
        except (SessionEndedError, RefusedError):
            # Not every server refuses a session with the 404 that it should: never stay in one.
            slot.forget(session)
            raise

    async def _opened(self, slot: Slot[Session], request: UpstreamRequest, bounds: Bounds) -> Session:
        if slot.session is not None:
            return slot.session
        try:
            async with asyncio.timeout_at(bounds.deadline), slot.lock:
                if slot.session is None:
                    url = self._client.endpoint(request.endpoint)
                    slot.session = await self._wire.open(url, request.headers, bounds)
        except TimeoutError as error:
            raise NotSentError("the tool server opened no session in time", timed_out=True) from error
        for surplus in self._sessions.take_surplus():
            self._wire.end(surplus)
        return slot.session


# --- results ----------------------------------------------------------------------------------------------


def _tool_answer(message: JsonObject) -> UpstreamAnswer:
    if "error" in message:
        return _refusal(message["error"])
    result = _result(message)
    is_error = result.get("isError", False)
    if not isinstance(result.get("content"), list) or not isinstance(is_error, bool):
        raise UnusableError("the tool's answer is no tool result")
    if not isinstance(result.get("structuredContent", {}), dict):
        raise UnusableError("the tool's structured content is no object")
    return UpstreamAnswer(
        outcome=Outcome.TOOL_ERROR if is_error else Outcome.SUCCESS,
        result={name: result[name] for name in ("content", "structuredContent") if name in result},
        detail="the tool reported an error" if is_error else None,
    )


def _refusal(error: JsonValue) -> UpstreamAnswer:
    code = error.get("code") if isinstance(error, dict) else None
    if not isinstance(code, int):
        raise UnusableError("the tool's answer is no MCP message")
    return UpstreamAnswer(
        outcome=Outcome.TOOL_ERROR,
        result={"error": error},
        detail=f"the tool server refused the call with JSON-RPC error {code}",
    )


def _result(message: JsonObject) -> JsonObject:
    result = message.get("result")
    if not isinstance(result, dict):
        raise UnusableError("the tool's answer is no MCP message")
    return result


# --- lists of tools ---------------------------------------------------------------------------------------


def _page(message: JsonObject) -> tuple[list[DiscoveredTool], str | None]:
    result = _result(message)
    tools, cursor = result.get("tools"), result.get("nextCursor")
    if not isinstance(tools, list) or not isinstance(cursor, str | None):
        raise UnusableError("the tool server's list of tools is malformed")
    return [_discovered(tool) for tool in tools], cursor


def _discovered(tool: JsonValue) -> DiscoveredTool:
    tool = tool if isinstance(tool, dict) else {}
    name, schema = tool.get("name"), tool.get("inputSchema")
    if not isinstance(name, str) or not isinstance(schema, dict):
        raise UnusableError("the tool server lists a tool without a name or an input schema")
    description, output = tool.get("description", ""), tool.get("outputSchema")
    if not isinstance(description, str) or not isinstance(output, dict | None):
        raise UnusableError("the tool server's list of tools is malformed")
    return DiscoveredTool(name=ToolName(name), description=description, input_schema=schema, output_schema=output)


def _add(tools: dict[ToolName, DiscoveredTool], page: list[DiscoveredTool]) -> None:
    for tool in page:
        if tool.name in tools:
            raise UnusableError("the tool server lists a tool twice")
        tools[tool.name] = tool
    if len(tools) > MAX_TOOLS:
        raise UnusableError(f"the tool server lists more than {MAX_TOOLS} tools")
