"""Find out whether a tool server still offers a tool as it was pinned, and note where it does not.

What is noted stands on the tool, where every worker's next decision reads it: from then on the tool is refused
without asking, and nothing that the tool server does changes that. Only an administrator does, by accepting what
is pending (`accept_definition.py`) or by looking anew and finding the pinned one (`discover_tools.py`).
"""

from dataclasses import replace

from app.core.definition import Definition, PendingDefinition
from app.core.grant import ToolName
from app.core.registry import Tool, ToolServer
from app.core.strict_json import JsonObject
from app.ports import DiscoveredTool, Transaction, UpstreamFailed
from app.usecases.administration import admin_event, administering
from app.usecases.ask_tool_server import CHECK_SESSION, MAX_CHECK_SECONDS, ask_tool_server
from app.usecases.offers import Offered
from app.usecases.register_tool import definition_of, flaw_of, tool_resource
from app.usecases.world import Caller, World


class Unanswered(Exception):
    """The tool server did not say what it offers, or said it in two ways."""


async def check_definition(world: World, server: ToolServer, name: ToolName) -> str | None:
    """The digest of what the tool server offers under this name now; None where it offers no such tool.

    What differs from the pinned definition is noted as pending. Raises Unanswered.
    """
    at = world.clock()
    found = await world.offers.ask(server, lambda: _asked(world, server))
    named = [tool for tool in found or () if tool.name == name]
    if found is None or len(named) > 1:
        raise Unanswered
    if not named:
        return None
    digest = definition_of(named[0]).digest(name)
    world.offers.confirm(server, name, digest, at)
    await _note_change(world, server, named[0], digest)
    return digest


async def _asked(world: World, server: ToolServer) -> Offered:
    try:
        return await ask_tool_server(world, server, session=CHECK_SESSION, at_most_seconds=MAX_CHECK_SECONDS)
    except UpstreamFailed:
        return None


async def _note_change(world: World, server: ToolServer, offered: DiscoveredTool, digest: str) -> None:
    """Where nobody has yet, and unless the tool or its server is another by now."""
    async with world.store.read() as tx:
        tool = await tx.registry.tool(server.tenant_id, server.name, offered.name)
    if tool is None or not _is_news(tool, digest):
        return
    async with administering(world) as tx:
        tool = await tx.registry.tool(server.tenant_id, server.name, offered.name)
        is_there = await tx.registry.server(server.tenant_id, server.name) == server
        if tool is not None and is_there and _is_news(tool, digest):
            await note_pending(tx, world, None, tool, pending_of(world, server, offered))
            await tx.commit()


def _is_news(tool: Tool, digest: str) -> bool:
    return tool.pending is None and tool.pin_digest != digest


def pending_of(world: World, server: ToolServer, offered: DiscoveredTool) -> PendingDefinition:
    """What is kept of an offer: all of it, or why it can't be used."""
    definition, flaw = definition_of(offered), flaw_of(world.schemas, server, offered)
    shown: Definition | None = definition if flaw is None else None
    digest = definition.digest(offered.name)
    return PendingDefinition(digest=digest, seen_at=world.clock(), definition=shown, flaw=flaw)


async def note_pending(
    tx: Transaction, world: World, caller: Caller | None, tool: Tool, pending: PendingDefinition
) -> Tool:
    """The tool with what is pending, stored and on record: as seen by an administrator, or by the service itself."""
    changed = replace(tool, pending=pending)
    await tx.registry.put_tool(changed)
    await record_definition(tx, world, caller, tool, "tool.definition_changed", pending.digest)
    return changed


async def record_definition(
    tx: Transaction, world: World, caller: Caller | None, tool: Tool, action: str, digest: str
) -> None:
    """Append what became of a tool's definition: `digest` is the one that it is about, beside the one pinned then."""
    event = admin_event(world.clock(), action, tool_resource(tool), caller=caller)
    digests: JsonObject = {"definitionDigest": digest, "pinnedDigest": tool.pin_digest}
    await tx.audit.append(tool.tenant_id, [event | digests])
