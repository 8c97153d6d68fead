"""Tools behind MCP servers: calling one, and reading which there are.

Knows what a tool result and a list of tools look like, and that servers of two eras are spoken to in two ways, each
as it said itself. Refuses to know how messages travel; and believes nothing that a server says of its tools beyond
name, description and schema.

https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning
"""

import logging
from typing import Final

from app.adapters.upstream.client import NotSentError, UnusableError, UpstreamClient
from app.adapters.upstream.eras import Era, Eras
from app.adapters.upstream.handshake import Handshake, NoSessionError
from app.adapters.upstream.header_arguments import UnusableDeclarationError, declared
from app.adapters.upstream.stateless import Stateless
from app.adapters.upstream.streamable_http import Bounds, OtherEraError, RefusedError, StreamableHttp
from app.core.grant import ToolName
from app.core.strict_json import JsonObject, JsonValue
from app.ports import DiscoveredTool, Outcome, UpstreamAnswer, UpstreamRequest

log = logging.getLogger("subgrant")

MAX_PAGES: Final = 100
MAX_TOOLS: Final = 1000


class McpTools:
    def __init__(self, client: UpstreamClient, *, max_sessions: int, max_eras: int) -> None:
        wire = StreamableHttp(client)
        self._stateless = Stateless(client, wire)
        self._handshake = Handshake(client, wire, max_sessions=max_sessions)
        self._eras = Eras(limit=max_eras)

    async def call(self, request: UpstreamRequest, deadline: float) -> UpstreamAnswer:
        """Run one tool; raises NotSentError, LostError or UnusableError."""
        params: JsonObject = {"name": request.tool, "arguments": request.arguments}
        era, message = await self._ask(request, "tools/call", params, deadline)
        return _tool_answer(message, era)

    async def tools(self, request: UpstreamRequest, deadline: float) -> tuple[DiscoveredTool, ...]:
        """Every tool of every page; raises NotSentError, LostError or UnusableError."""
        tools: dict[ToolName, DiscoveredTool] = {}
        params: JsonObject = {}
        for _ in range(MAX_PAGES):
            era, message = await self._ask(request, "tools/list", params, deadline)
            page, cursor = _page(message)
            _add(tools, page)
            if cursor is None:
                return tuple(tool for tool in tools.values() if era is not Era.STATELESS or _may_be_used(tool))
            params = {"cursor": cursor}
        raise UnusableError(f"the tool server lists its tools on more than {MAX_PAGES} pages")

    def end_sessions(self) -> None:
        self._handshake.end_sessions()

    # --- in which words

    async def _ask(
        self, request: UpstreamRequest, method: str, params: JsonObject, deadline: float
    ) -> tuple[Era, JsonObject]:
        """The answer, and in which era it was given: the one that the server is known for, or else says now."""
        bounds = Bounds(deadline=deadline, max_bytes=request.max_response_bytes)
        known = self._eras.known(request.endpoint)
        if known is None:
            return await self._ask_anew(request, method, params, bounds)
        try:
            return known, await self._ask_in(known, request, method, params, bounds)
        except NoSessionError:
            return await self._ask_anew(request, method, params, bounds)
        except OtherEraError as refusal:
            # It has changed, and by its own word has run nothing: so it may be asked once more.
            refused = refusal
        try:
            return await self._ask_anew(request, method, params, bounds)
        except NotSentError as error:
            # But it was sent something, and only what was not is free.
            raise refused from error

    async def _ask_anew(
        self, request: UpstreamRequest, method: str, params: JsonObject, bounds: Bounds
    ) -> tuple[Era, JsonObject]:
        era = Era.STATELESS if await self._stateless.is_spoken(request, bounds) else Era.HANDSHAKE
        self._eras.learn(request.endpoint, era)
        return era, await self._ask_in(era, request, method, params, bounds)

    async def _ask_in(
        self, era: Era, request: UpstreamRequest, method: str, params: JsonObject, bounds: Bounds
    ) -> JsonObject:
        ask = self._stateless.ask if era is Era.STATELESS else self._handshake.ask
        try:
            return await ask(request, method, params, bounds)
        except (NoSessionError, RefusedError):
            # Perhaps it was replaced by a server of another era: the next request finds out.
            self._eras.forget(request.endpoint)
            raise


# --- results ----------------------------------------------------------------------------------------------


def _tool_answer(message: JsonObject, era: Era) -> UpstreamAnswer:
    if "error" in message:
        return _refusal(message["error"])
    result = _result(message)
    is_error = result.get("isError", False)
    if not isinstance(result.get("content"), list) or not isinstance(is_error, bool):
        raise UnusableError("the tool's answer is no tool result")
    if era is Era.HANDSHAKE and not isinstance(result.get("structuredContent", {}), dict):
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


def _may_be_used(tool: DiscoveredTool) -> bool:
    """Whether clients may offer a tool at all: not one whose arguments belong in fields that can't be."""
    try:
        declared(tool.input_schema)
    except UnusableDeclarationError:
        log.warning("a discovered tool is left out: its input schema declares header fields that can't be sent")
        return False
    return True


def _add(tools: dict[ToolName, DiscoveredTool], page: list[DiscoveredTool]) -> None:
    for tool in page:
        if tool.name in tools:
            raise UnusableError("the tool server lists a tool twice")
        tools[tool.name] = tool
    if len(tools) > MAX_TOOLS:
        raise UnusableError(f"the tool server lists more than {MAX_TOOLS} tools")
