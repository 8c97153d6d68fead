"""The catalogue: the tools that a grant allows, as a model may be shown them.

Each input schema is narrowed to what every link of the chain allows, each output schema to what comes back.
Nothing of an endpoint or a credential is in it, nor any tool that a call would be refused for anyway.
"""

from dataclasses import dataclass

from app.core.decision import projections
from app.core.grant import GrantChain, GrantId, ServerName, ToolRef, spell_tool
from app.core.meet import meet_all
from app.core.projection import project_schema
from app.core.registry import Tool
from app.core.schema import narrowed_schema
from app.core.strict_json import JsonObject
from app.ports import Transaction
from app.usecases.derive_grant import sees
from app.usecases.failures import DeadGrant, Denied, NotFound
from app.usecases.load_chain import Lineage, death, load_lineage
from app.usecases.world import Caller, World


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """A tool as the grant's holder may see it. `name` is spelt as in the grant, `ref` as the registry knows it."""

    name: str
    ref: ToolRef
    description: str
    input_schema: JsonObject
    output_schema: JsonObject | None


async def list_tools(
    world: World, caller: Caller, grant_id: GrantId, *, server: ServerName | None = None
) -> tuple[ListedTool, ...] | Denied:
    """The tools of a living grant, by name; those of one tool server where it is named. Raises NotFound, DeadGrant."""
    async with world.store.read() as tx:
        lineage = await load_lineage(tx, world, caller.tenant_id, grant_id, lock=False)
        if lineage is None or not sees(caller, lineage):
            raise NotFound("no such grant")
        if isinstance(lineage, Denied):
            return lineage
        dead = await death(tx, world, lineage)
        if dead is not None and caller.grant_id is None:
            raise DeadGrant(dead.reason, dead.detail)
        return dead or await _listed(tx, lineage, server)


async def _listed(tx: Transaction, lineage: Lineage, only: ServerName | None) -> tuple[ListedTool, ...]:
    chain = lineage.chain
    listed: list[ListedTool] = []
    for audience in chain.leaf.audience:
        registered = await tx.registry.server(chain.leaf.tenant_id, audience.server)
        if registered is None or not registered.active or only not in (None, audience.server):
            continue
        for tool in await tx.registry.tools(chain.leaf.tenant_id, audience.server):
            ref = ToolRef(tool.server, tool.name)
            if all(ref in grant.tools for grant in chain.grants):
                listed.append(_shown(chain, ref, tool))
    return tuple(sorted(listed, key=lambda tool: tool.name))


def _shown(chain: GrantChain, ref: ToolRef, tool: Tool) -> ListedTool:
    rule = meet_all(grant.tools[ref] for grant in chain.grants)
    output = tool.output_schema
    for projection in projections(chain, ref):
        output = None if output is None else project_schema(projection, output)
    return ListedTool(
        name=spell_tool(chain.leaf.audience, ref),
        ref=ref,
        description=tool.description,
        input_schema=narrowed_schema(tool.input_schema, rule),
        output_schema=output,
    )
