"""Read an MCP server's tools and pin those that are new.

A tool server's word is taken once, for a tool's name and shape, and never about what the tool does: the effect
of a discovered tool is unknown and so read as the worst. A definition that differs from the pinned one is
reported and becomes pending, which refuses the tool until an administrator accepts it; one that was pending, and is
offered as it was pinned again, is pending no more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from app.core.grant import ServerName, TenantId, ToolName
from app.core.registry import Tool, ToolServer, Transport
from app.ports import DiscoveredTool, Transaction, UpstreamFailed
from app.usecases.administration import administering, out_of_reach
from app.usecases.ask_tool_server import ask_tool_server
from app.usecases.check_definition import note_pending, pending_of, record_definition
from app.usecases.failures import Conflict, Denied, Failure
from app.usecases.register_tool import TOOL_NAME, add_tool, as_offered, definition_of, flaw_of
from app.usecases.register_tool_server import known_server
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
    """What came of it, by name. Only the `added` can be called that could not be before.

    `pending` are the `changed` with what they were pinned as and what is offered instead.
    """

    added: list[ToolName] = field(default_factory=list)
    unchanged: list[ToolName] = field(default_factory=list)
    changed: list[ToolName] = field(default_factory=list)
    missing: list[ToolName] = field(default_factory=list)
    refused: list[RefusedTool] = field(default_factory=list)
    pending: list[Tool] = field(default_factory=list)


async def discover_tools(world: World, caller: Caller, tenant_id: TenantId, name: ServerName) -> Discovery | Denied:
    """Pin the new tools of an MCP server. Raises NotFound, Conflict and DiscoveryFailed."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    async with world.store.read() as tx:
        server = _askable(await known_server(tx, tenant_id, name))
    try:
        # No run shares a session with an administrator.
        found = await ask_tool_server(world, server, session=world.new_id("discover"))
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


async def _pin(
    tx: Transaction, world: World, caller: Caller, server: ToolServer, found: Sequence[DiscoveredTool]
) -> Discovery:
    pinned = {tool.name: tool for tool in await tx.registry.tools(server.tenant_id, server.name)}
    discovery = Discovery(missing=sorted(pinned.keys() - {tool.name for tool in found}))
    for offered in found:
        before = pinned.get(offered.name)
        if before is not None:
            pinned[before.name] = await _compared(tx, world, caller, server, before, offered, discovery)
        elif (flaw := flaw_of(world.schemas, server, offered)) is not None:
            name = offered.name if TOOL_NAME.fullmatch(offered.name) else UNUSABLE_NAME
            discovery.refused.append(RefusedTool(name=name, detail=flaw))
        else:
            tool = as_offered(server, offered)
            await add_tool(tx, world, caller, tool, beside=len(pinned))
            pinned[tool.name] = tool
            discovery.added.append(tool.name)
    return discovery


async def _compared(
    tx: Transaction,
    world: World,
    caller: Caller,
    server: ToolServer,
    tool: Tool,
    offered: DiscoveredTool,
    discovery: Discovery,
) -> Tool:
    """The tool with what is pending of it now: what is offered otherwise than pinned, or nothing."""
    digest, pending = definition_of(offered).digest(tool.name), tool.pending
    if digest == tool.pin_digest:
        discovery.unchanged.append(tool.name)
        if pending is not None:
            tool = replace(tool, pending=None)
            await tx.registry.put_tool(tool)
            await record_definition(tx, world, caller, tool, "tool.definition_restored", digest)
        return tool
    if pending is None or pending.digest != digest:
        tool = await note_pending(tx, world, caller, tool, pending_of(world, server, offered))
    discovery.changed.append(tool.name)
    discovery.pending.append(tool)
    return tool
