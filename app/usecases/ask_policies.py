"""Ask a tenant's policies about a call: the version that is active, and every one that a link of the chain pinned.

Knows what of a call policies may see. What they make of it is the engine's matter, and whether the call may be
made without it is the core's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.decision import Call, things_named
from app.core.grant import POLICY_V0, GrantChain
from app.core.registry import Registration
from app.core.resources import ResourceRef, Resources
from app.core.strict_json import JsonObject, JsonValue
from app.ports import PolicyQuestion, Transaction
from app.usecases.find_facts import Known, Verdict, verdicts_on
from app.usecases.world import Caller, World

MAX_QUESTIONS = 16
"""How many things one call may name where policies are asked about each: beyond, none of them permits it."""

MAX_EVIDENCE = 16
"""How many errors, and how many determining policies, a record repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What the versions that bear on a call say of it. `asked` has the built-in one too, which is never asked."""

    active: str | None
    asked: frozenset[str]
    verdicts: Sequence[Verdict] = ()

    @property
    def permitting(self) -> frozenset[str]:
        """The versions that permit whatever they were asked about."""
        refusing = {verdict.version for verdict in self.verdicts if not verdict.answer.permitted}
        return frozenset({verdict.version for verdict in self.verdicts} - refusing)

    def evidence(self) -> JsonObject:
        """For the audit log: which versions were asked, which decided, and what went wrong."""
        errors = [f"{one.version}: {error}" for one in self.verdicts for error in one.answer.errors]
        decided = [f"{one.version}: {policy}" for one in self.verdicts for policy in one.answer.determining]
        return {
            "policyVersions": [*sorted(self.asked)],
            **_some("policyErrors", errors),
            **_some("policies", decided),
        }


def _some(name: str, texts: Sequence[str]) -> JsonObject:
    shown: list[JsonValue] = [*sorted(set(texts))[:MAX_EVIDENCE]]
    return {name: shown} if shown else {}


async def ask_policies(
    tx: Transaction,
    world: World,
    known: Known,
    caller: Caller,
    chain: GrantChain,
    call: Call,
    registration: Registration,
    registered: frozenset[ResourceRef],
    resources: Resources,
) -> Opinion:
    """What policies say of a call, and of each thing that it names: by a rule, or by its registration (`registered`).

    Raises Wanting where they have not been asked about it yet.
    """
    tenant = registration.tenant
    active = None if tenant is None else tenant.policy_version
    asked = frozenset(filter(None, {active, *(grant.policy_version for grant in chain.grants)}))
    opinion = Opinion(active=active, asked=asked)
    if asked <= {POLICY_V0} or registration.tool is None:
        return opinion
    named = sorted(things_named(chain, call) | registered)
    if len(named) > MAX_QUESTIONS:
        return opinion
    about = await tx.directory.look_up(chain.leaf.tenant_id, _around(chain, call, caller))
    questions = [
        _question(world, caller, chain, call, registration, thing, resources, about) for thing in (*named,) or (None,)
    ]
    verdicts = verdicts_on(known, chain.leaf.tenant_id, asked, questions)
    return Opinion(active=active, asked=asked, verdicts=verdicts)


def _around(chain: GrantChain, call: Call, caller: Caller) -> frozenset[ResourceRef]:
    """What stands around every call, as the directory names it: an administrator may describe any of it there."""
    leaf, ref = chain.leaf, call.ref
    named = (
        ("tenant", leaf.tenant_id),
        ("subject", leaf.subject),
        ("run", leaf.child_run_id),
        ("client", leaf.actor),
        ("client", caller.client_id),
        ("tool-server", ref.server),
        ("tool", f"{ref.server}/{ref.tool}"),
    )
    return frozenset(ResourceRef(*one) for one in named)


def _question(
    world: World,
    caller: Caller,
    chain: GrantChain,
    call: Call,
    registration: Registration,
    thing: ResourceRef | None,
    resources: Resources,
    about: Resources,
) -> PolicyQuestion:
    leaf, tool = chain.leaf, registration.tool
    assert tool is not None, "policies are asked about tools that there are"
    return PolicyQuestion(
        tenant_id=leaf.tenant_id,
        grant_id=leaf.grant_id,
        root_grant_id=leaf.root_grant_id,
        depth=leaf.depth,
        run_id=leaf.child_run_id,
        parent_run_id=leaf.parent_run_id,
        subject=leaf.subject,
        actor=leaf.actor,
        client_id=caller.client_id,
        server=call.ref.server,
        tool=call.ref.tool,
        effect=tool.effect.value,
        trust=tool.trust.value,
        sinks=tool.sinks,
        idempotent=tool.idempotent,
        max_cost_ucents=tool.price.max_ucents,
        now=world.clock(),
        source_ip=caller.address,
        resource=thing,
        resource_attributes={} if thing is None else resources.get(thing, {}),
        attributes=about,
    )
