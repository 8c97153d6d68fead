"""The catalogue: the tools that a grant allows, as a model may be shown them.

Each input schema is narrowed to what every link of the chain allows, each output schema to what comes back.
Nothing of an endpoint or a credential is in it, nor any tool that the grant lacks. What policies and budgets say is
known at the call only.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.core.decision import projections
from app.core.grant import GrantChain, GrantId, ServerName, ToolRef, spell_tool
from app.core.meet import meet_all
from app.core.narrowing import Ground
from app.core.projection import project_schema
from app.core.reasons import Reason
from app.core.registry import Tool
from app.core.schema import narrowed_schema
from app.core.steps import Steps
from app.core.strict_json import JsonObject
from app.ports import Transaction
from app.usecases.failures import DeadGrant, Denied
from app.usecases.load_chain import Lineage, death
from app.usecases.read_grants import seen_lineage
from app.usecases.world import Caller, World

MAX_CATALOGUE_STEPS: Final = 100_000
"""What finding short words for all rules of a catalogue may take; beyond, those of each link stand side by side."""


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
    """The tools of a living grant, by name; those of one tool server where it is named. Raises NotFound, Conflict."""
    if world.catalogues.full:
        return TOO_MANY_CATALOGUES
    async with world.store.read() as tx:
        lineage = await seen_lineage(tx, world, caller, grant_id)
        if isinstance(lineage, Denied):
            return lineage
        # A credential for a dead grant was refused there already.
        if caller.grant_id is None and (dead := await death(tx, world, lineage)) is not None:
            raise DeadGrant(dead.reason, dead.detail)
        tools = await _callable(tx, lineage, server)
    # Rules may be many: meeting them keeps neither the store nor anybody else waiting.
    async with world.catalogues.turn():
        return await asyncio.to_thread(_listed, lineage.chain, tools)


TOO_MANY_CATALOGUES: Final = Denied(
    reason=Reason.RATE_LIMITED, detail="too many catalogues are being read at this moment; try again shortly"
)


async def _callable(tx: Transaction, lineage: Lineage, only: ServerName | None) -> list[Tool]:
    """The tools that every link of the chain names, unchanged, of tool servers that are there and enabled."""
    chain = lineage.chain
    found: list[Tool] = []
    for audience in chain.leaf.audience:
        registered = await tx.registry.server(chain.leaf.tenant_id, audience.server)
        if registered is not None and registered.active and only in (None, audience.server):
            tools = await tx.registry.tools(chain.leaf.tenant_id, audience.server)
            found += [tool for tool in tools if _may_be_called(tool, chain)]
    return found


def _may_be_called(tool: Tool, chain: GrantChain) -> bool:
    # A change that nobody has seen yet is found out at the call; a tool that is known to be changed is refused there.
    return tool.pending is None and all(_ref(tool) in grant.tools for grant in chain.grants)


def _listed(chain: GrantChain, tools: Sequence[Tool]) -> tuple[ListedTool, ...]:
    ground = Ground(steps=Steps(left=MAX_CATALOGUE_STEPS))
    return tuple(sorted((_shown(chain, tool, ground) for tool in tools), key=lambda tool: tool.name))


def _ref(tool: Tool) -> ToolRef:
    return ToolRef(tool.server, tool.name)


def _shown(chain: GrantChain, tool: Tool, ground: Ground) -> ListedTool:
    ref = _ref(tool)
    rule = meet_all((grant.tools[ref] for grant in chain.grants), ground)
    output = tool.output_schema
    for projection in dict.fromkeys(projections(chain, ref)):
        output = None if output is None else project_schema(projection, output)
    return ListedTool(
        name=spell_tool(chain.leaf.audience, ref),
        ref=ref,
        description=tool.description,
        input_schema=narrowed_schema(tool.input_schema, rule),
        output_schema=output,
    )
