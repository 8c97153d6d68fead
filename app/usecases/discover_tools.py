"""Read an MCP server's tools and pin those that are new.

A tool server's word is taken once, for a tool's name and shape, and never about what the tool does: the effect
of a discovered tool is unknown and so read as the worst. A definition that differs from the pinned one is
reported and not taken; an administrator accepts it by registering it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.core.budget import Price
from app.core.grant import ServerName, TenantId, ToolName
from app.core.registry import Effect, HttpBinding, Tool, ToolServer, ToolSource, Transport, Trust
from app.core.strict_json import JsonObject, canonical
from app.ports import DiscoveredTool, SchemaValidator, Transaction, UpstreamFailed, UpstreamRequest
from app.usecases.administration import administering, out_of_reach
from app.usecases.failures import Conflict, Denied, Failure, Malformed
from app.usecases.register_tool import TOOL_NAME, add_tool, checked
from app.usecases.register_tool_server import known_server
from app.usecases.tool_credential import credential_headers
from app.usecases.world import Caller, World

UNUSABLE_NAME = "?"
"""Stands for a name that is none; the tool server's own text is not repeated."""


class DiscoveryFailed(Failure):
    """The tool server could not be asked for its tools. Nothing was changed."""

    code = "tool_server_unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedTool:
    """A tool that the server offers and that can't be used, and why."""

    name: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What came of it, by name. Only the `added` are new; nothing about the others was changed."""

    added: list[ToolName] = field(default_factory=list)
    unchanged: list[ToolName] = field(default_factory=list)
    changed: list[ToolName] = field(default_factory=list)
    missing: list[ToolName] = field(default_factory=list)
    refused: list[RefusedTool] = field(default_factory=list)


async def discover_tools(world: World, caller: Caller, tenant_id: TenantId, name: ServerName) -> Discovery | Denied:
    """Pin the new tools of an MCP server. Raises NotFound, Conflict and DiscoveryFailed."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    async with world.store.read() as tx:
        server = _askable(await known_server(tx, tenant_id, name))
    try:
        found = await world.upstream.discover(_request(world, server))
    except UpstreamFailed as error:
        raise DiscoveryFailed(str(error)) from error
    async with administering(world) as tx:
        if await known_server(tx, tenant_id, name) != server:
            raise Conflict("the tool server was changed meanwhile")
        discovery = await _pin(tx, world, caller, server, found)
        await tx.commit()
    return discovery


def _askable(server: ToolServer) -> ToolServer:
    if server.transport is not Transport.MCP:
        raise Conflict("only a tool server with the transport mcp can be asked for its tools")
    if not server.active:
        raise Conflict("the tool server is disabled")
    return server


def _request(world: World, server: ToolServer) -> UpstreamRequest:
    claims: JsonObject = {"tenant_id": server.tenant_id}
    return UpstreamRequest(
        transport=server.transport,
        endpoint=server.endpoint,
        tool=ToolName(""),
        http=HttpBinding(),
        arguments={},
        headers=credential_headers(world, server, claims),
        timeout_seconds=server.timeout_seconds,
        max_response_bytes=server.max_response_bytes,
        # No run shares a session with an administrator.
        session_key=f"{server.tenant_id}/{server.name}/{world.new_id('discover')}",
    )


async def _pin(
    tx: Transaction, world: World, caller: Caller, server: ToolServer, found: Sequence[DiscoveredTool]
) -> Discovery:
    pinned = {tool.name: tool for tool in await tx.registry.tools(server.tenant_id, server.name)}
    discovery = Discovery(missing=sorted(pinned.keys() - {tool.name for tool in found}))
    for offered in found:
        before = pinned.get(offered.name)
        if before is not None:
            (discovery.unchanged if _is_as_pinned(before, offered) else discovery.changed).append(before.name)
            continue
        tool = _usable(world.schemas, server, offered)
        if isinstance(tool, RefusedTool):
            discovery.refused.append(tool)
        else:
            await add_tool(tx, world, caller, tool, beside=len(pinned))
            pinned[tool.name] = tool
            discovery.added.append(tool.name)
    return discovery


def _is_as_pinned(pinned: Tool, offered: DiscoveredTool) -> bool:
    return canonical([pinned.description, pinned.input_schema, pinned.output_schema]) == canonical(
        [offered.description, offered.input_schema, offered.output_schema]
    )


def _usable(schemas: SchemaValidator, server: ToolServer, offered: DiscoveredTool) -> Tool | RefusedTool:
    try:
        return checked(schemas, server, _closed_reading(server, offered))
    except Malformed as fault:
        name = offered.name if TOOL_NAME.fullmatch(offered.name) else UNUSABLE_NAME
        return RefusedTool(name=name, detail=f"{fault.pointer}: {fault.detail}")


def _closed_reading(server: ToolServer, offered: DiscoveredTool) -> Tool:
    return Tool(
        tenant_id=server.tenant_id,
        server=server.name,
        name=offered.name,
        description=offered.description,
        input_schema=offered.input_schema,
        output_schema=offered.output_schema,
        price=Price(fixed_ucents=0, max_ucents=0),
        effect=Effect.EXTERNAL,
        trust=Trust.EXTERNAL_UNTRUSTED,
        sinks=(),
        idempotent=False,
        loggable_arguments=(),
        http=HttpBinding(),
        source=ToolSource.DISCOVERED,
    )
