"""Ask an MCP server which tools it has, with the gateway's own credential and in a session that no run shares."""

from typing import Final

from app.core.grant import ToolName
from app.core.registry import HttpBinding, ToolServer
from app.core.strict_json import JsonObject
from app.ports import DiscoveredTool, UpstreamRequest
from app.usecases.tool_credential import credential_headers
from app.usecases.world import World

CHECK_SESSION: Final = "check"
"""One session for all questions about pins: no run calls in it, and no administrator asks in it."""

MAX_CHECK_SECONDS: Final = 10.0
"""A call waits for the answer: less than the slowest of tools may take."""


async def ask_tool_server(
    world: World, server: ToolServer, *, session: str, at_most_seconds: float | None = None
) -> tuple[DiscoveredTool, ...]:
    """The tools that it lists, every page of them. Raises UpstreamFailed."""
    claims: JsonObject = {"tenant_id": server.tenant_id}
    request = UpstreamRequest(
        transport=server.transport,
        endpoint=server.endpoint,
        tool=ToolName(""),
        http=HttpBinding(),
        arguments={},
        headers=credential_headers(world, server, claims),
        timeout_seconds=min(server.timeout_seconds, at_most_seconds or server.timeout_seconds),
        max_response_bytes=server.max_response_bytes,
        session_key=f"{server.tenant_id}/{server.name}/{session}",
    )
    return await world.upstream.discover(request)
