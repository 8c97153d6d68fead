"""Accept the changed definition of a tool: what the tool server offered becomes what it is held to.

Accepted is exactly what was looked at, by its digest. Whoever rejects a change leaves it pending: the tool stays
refused.
"""

from dataclasses import replace

from app.core.definition import Definition
from app.core.grant import ServerName, TenantId, ToolName
from app.core.registry import Tool
from app.core.strict_json import JsonValue, canonical
from app.usecases.administration import administering, out_of_reach
from app.usecases.check_definition import record_definition
from app.usecases.failures import Conflict, Denied
from app.usecases.register_tool import checked, held_to, known_tool
from app.usecases.register_tool_server import known_server
from app.usecases.world import Caller, World


async def accept_definition(
    world: World, caller: Caller, tenant_id: TenantId, server: ServerName, name: ToolName, digest: str
) -> Tool | Denied:
    """The tool under the pending definition. Raises NotFound, Malformed, and Conflict where another is pending or none.

    What an administrator says of the tool in words of its own stays; where it says what was pinned, it follows.
    """
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    async with administering(world) as tx:
        registered, before = await known_server(tx, tenant_id, server), await known_tool(tx, tenant_id, server, name)
        accepted = _pending(before, digest)
        wish = replace(_following(before, accepted), pending=None)
        after = held_to(accepted, checked(world.schemas, registered, wish))
        await tx.registry.put_tool(after)
        await record_definition(tx, world, caller, before, "tool.definition_accepted", digest)
        await tx.commit()
    return after


def _pending(tool: Tool, digest: str) -> Definition:
    if tool.pending is None:
        raise Conflict("no changed definition of this tool is pending")
    if tool.pending.digest != digest:
        raise Conflict("another definition is pending by now: look at that one first")
    if tool.pending.definition is None:
        raise Conflict(f"the pending definition can't be used: {tool.pending.flaw}")
    return tool.pending.definition


def _following(tool: Tool, accepted: Definition) -> Tool:
    own, pinned = tool.definition, tool.pin
    return replace(
        tool,
        description=accepted.description if own.description == pinned.description else own.description,
        input_schema=accepted.input_schema if _same(own.input_schema, pinned.input_schema) else own.input_schema,
        output_schema=accepted.output_schema if _same(own.output_schema, pinned.output_schema) else own.output_schema,
    )


def _same(one: JsonValue, other: JsonValue) -> bool:
    return canonical(one) == canonical(other)
