"""Making grants: a root within its client's ceiling, a child within its parent. Proven, or refused.

Nothing is ever clamped: who asks for more than there is learns that it is more. What is left out takes the
closed default (root) or what the parent has (child).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain as chained

from app.core.budget import Amount, least
from app.core.constraints import ToolRule
from app.core.decision import MAX_DECISION_STEPS, MAX_THINGS, at_most, widenings
from app.core.grant import (
    MAX_LINEAGE,
    Audience,
    ClientId,
    Grant,
    GrantChain,
    GrantId,
    RunId,
    ServerName,
    TenantId,
    ToolRef,
)
from app.core.narrowing import Ground, Refusal, narrow_tool_rule, things_to_look_up
from app.core.projection import Projection
from app.core.reasons import Reason
from app.core.resources import ResourceRef, Resources
from app.core.steps import Steps

NO_ARGUMENTS = ToolRule(arguments={}, open=False)
ANY = "*"
MAX_DERIVATION_STEPS = 100_000
"""What all proofs of one derivation may take together: half a second of the slowest, while an orchestrator waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The most that a client may ever grant: an administrator's word. Empty means nothing, `*` anything."""

    audiences: frozenset[str] = frozenset()
    allowed_tools: frozenset[str] = frozenset()
    subjects: frozenset[str] = frozenset()
    limit: Amount = Amount()
    max_lifetime: timedelta = timedelta(minutes=10)
    max_depth: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a caller asks for: the narrowing fields, one list for mint, derive and exchange. None: left out.

    A tool whose rule is None has no entry in `resourceConstraints`.
    """

    audience: tuple[Audience, ...] | None = None
    tools: Mapping[ToolRef, ToolRule | None] | None = None
    tool_calls: int | None = None
    spend_ucents: int | None = None
    not_before: datetime | None = None
    expires_at: datetime | None = None
    may_redelegate: bool | None = None
    max_depth: int | None = None
    projections: Mapping[ToolRef, Projection] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """Who and what a new node is: everything about it that is not authority.

    `subject` is whom a trusted issuer proved, for a root or the child of a standing grant; None takes the parent's. So
    does `key_thumbprint`, since what is bound to a key never comes loose.
    """

    grant_id: GrantId
    actor: str
    issued_by: ClientId
    holder: ClientId
    child_run_id: RunId
    now: datetime
    subject: str | None = None
    key_thumbprint: str | None = None


def mint(
    wish: Wish,
    ceiling: Ceiling,
    birth: Birth,
    *,
    tenant_id: TenantId,
    subject: str,
    parent_run_id: RunId | None,
    policy_version: str,
    lifetime: timedelta,
    standing: bool = False,
) -> Grant | Refusal:
    """A root grant. What the wish leaves out is nothing: no tools, no calls, no spend, no redelegation.

    `lifetime` is the default where the wish has no expiry, shortened to the ceiling's. Only an administrator's act
    makes a `standing` one. `subject` must be within the ceiling, unless the birth has a proven one.
    """
    issued_at = birth.now.replace(microsecond=0)
    # A beginning in the past is no more than now.
    not_before = issued_at if wish.not_before is None else max(issued_at, wish.not_before)
    grant = Grant(
        grant_id=birth.grant_id,
        parent_grant_id=None,
        root_grant_id=birth.grant_id,
        depth=0,
        tenant_id=tenant_id,
        subject=birth.subject or subject,
        actor=birth.actor,
        issued_by=birth.issued_by,
        holder=birth.holder,
        parent_run_id=parent_run_id,
        child_run_id=birth.child_run_id,
        audience=wish.audience or (),
        tools={ref: rule or NO_ARGUMENTS for ref, rule in (wish.tools or {}).items()},
        limit=Amount(tool_calls=wish.tool_calls or 0, spend_ucents=wish.spend_ucents or 0),
        issued_at=issued_at,
        not_before=not_before,
        expires_at=wish.expires_at or not_before + min(lifetime, ceiling.max_lifetime),
        may_redelegate=wish.may_redelegate is True,
        max_depth=ceiling.max_depth if wish.max_depth is None else wish.max_depth,
        policy_version=policy_version,
        projections=wish.projections or {},
        standing=standing,
        key_thumbprint=birth.key_thumbprint,
    )
    return _above_ceiling(grant, ceiling, birth) or _without_life(grant) or grant


def things_to_ask_about(wish: Wish, parent: Grant) -> Mapping[ServerName, frozenset[ResourceRef]]:
    """Whose record the proof of a child needs: what the wish lists where the parent asks whose it is."""
    listed: dict[ServerName, list[Iterator[ResourceRef]]] = {}
    for ref, rule in (wish.tools or {}).items():
        if rule is not None and ref in parent.tools:
            listed.setdefault(ref.server, []).append(things_to_look_up(rule, parent.tools[ref]))
    asked = {server: at_most(MAX_THINGS, chained.from_iterable(refs)) for server, refs in listed.items()}
    return {server: refs for server, refs in asked.items() if refs}


def attenuate(
    chain: GrantChain,
    wish: Wish,
    birth: Birth,
    *,
    left: Amount,
    ceiling: Amount | None,
    lifetime: timedelta,
    as_grant: bool,
    resources: Mapping[ServerName, Resources] | None = None,
) -> Grant | Refusal:
    """A child of the chain's leaf.

    `resources` is what is on record of `things_to_ask_about`, by tool server.

    `left` is the least that any account of the chain still has; a budget left out is that, at most the
    `ceiling` of the client that asks; an expiry left out is the parent's, at most `lifetime` away.
    A node for another actor or run, or that is itself a delegation grant (`as_grant`), is redelegation: the
    parent must allow it, and it uses depth.
    """
    parent = chain.leaf
    redelegates = as_grant or parent.hands_on_to(birth.actor, birth.child_run_id)
    if redelegates and not parent.may_redelegate:
        return Refusal("/mayRedelegate", Reason.REDELEGATION_DENIED, "the parent grant may not be redelegated")
    depth = parent.depth + 1 if redelegates else parent.depth
    if depth > parent.max_depth or len(chain.grants) >= MAX_LINEAGE:
        return Refusal("/maxDepth", Reason.DEPTH_EXCEEDED, "the delegation would be deeper than the parent allows")
    whole = Steps(left=MAX_DERIVATION_STEPS)

    def ground_of(server: ServerName) -> Ground:
        # A tool whose proof took more than a call has for its decision could be granted and never used.
        steps = Steps(left=MAX_DECISION_STEPS, whole=whole)
        return Ground(steps=steps, resources=(resources or {}).get(server, {}))

    tools = _narrow_tools(wish, parent, ground_of)
    if isinstance(tools, Refusal):
        return tools
    available = left if ceiling is None else least((left, ceiling))
    issued_at = birth.now.replace(microsecond=0)
    child = Grant(
        grant_id=birth.grant_id,
        parent_grant_id=parent.grant_id,
        root_grant_id=parent.root_grant_id,
        depth=depth,
        tenant_id=parent.tenant_id,
        subject=birth.subject or parent.subject,
        actor=birth.actor,
        issued_by=birth.issued_by,
        holder=birth.holder,
        parent_run_id=parent.child_run_id if birth.child_run_id != parent.child_run_id else parent.parent_run_id,
        child_run_id=birth.child_run_id,
        audience=wish.audience or parent.audience,
        tools=tools,
        limit=Amount(
            tool_calls=available.tool_calls if wish.tool_calls is None else wish.tool_calls,
            spend_ucents=available.spend_ucents if wish.spend_ucents is None else wish.spend_ucents,
        ),
        issued_at=issued_at,
        not_before=max(issued_at, wish.not_before or issued_at, parent.not_before),
        expires_at=wish.expires_at or min(parent.expires_at, issued_at + lifetime),
        may_redelegate=wish.may_redelegate is True,
        max_depth=parent.max_depth if wish.max_depth is None else wish.max_depth,
        policy_version=parent.policy_version,
        projections=_narrow_projections(wish, parent, tools),
        key_thumbprint=birth.key_thumbprint or parent.key_thumbprint,
    )
    return _more_than_left(child, left) or _wider(child, parent, ground_of) or _without_life(child) or child


def _narrow_projections(wish: Wish, parent: Grant, tools: Collection[ToolRef]) -> Mapping[ToolRef, Projection]:
    """What the wish says of each tool, else what the parent does. Whether it is narrower `widenings` tells."""
    return {
        ref: projection
        for ref, projection in {**parent.projections, **(wish.projections or {})}.items()
        if ref in tools
    }


def _narrow_tools(
    wish: Wish, parent: Grant, ground_of: Callable[[ServerName], Ground]
) -> Mapping[ToolRef, ToolRule] | Refusal:
    servers = {audience.server for audience in wish.audience or parent.audience}
    inherited: Mapping[ToolRef, ToolRule | None] = {ref: None for ref in parent.tools if ref.server in servers}
    narrowed: dict[ToolRef, ToolRule] = {}
    for ref, rule in (inherited if wish.tools is None else wish.tools).items():
        if ref not in parent.tools:
            return Refusal("/allowedTools", Reason.NOT_NARROWER, f"the parent grant does not allow {ref.tool}")
        effective = narrow_tool_rule(rule, parent.tools[ref], ground_of(ref.server))
        if isinstance(effective, Refusal):
            pointer = f"/resourceConstraints/{ref.tool}{effective.pointer}"
            return Refusal(pointer, effective.reason, effective.detail)
        narrowed[ref] = effective
    return narrowed


def _more_than_left(child: Grant, left: Amount) -> Refusal | None:
    if child.limit.tool_calls > left.tool_calls:
        return Refusal("/maxToolCalls", Reason.NOT_NARROWER, "more calls than the parent grant has left")
    if child.limit.spend_ucents > left.spend_ucents:
        return Refusal("/maxSpendCents", Reason.NOT_NARROWER, "more spend than the parent grant has left")
    return None


def _wider(child: Grant, parent: Grant, ground_of: Callable[[ServerName], Ground]) -> Refusal | None:
    for fault in widenings(child, parent, ground_of=ground_of):
        return Refusal(fault.pointer or "", fault.reason, fault.detail)
    return None


def _without_life(grant: Grant) -> Refusal | None:
    if grant.expires_at <= max(grant.not_before, grant.issued_at):
        return Refusal("/expiresAt", Reason.NOT_NARROWER, "the grant would have no lifetime")
    return None


def _above_ceiling(grant: Grant, ceiling: Ceiling, birth: Birth) -> Refusal | None:
    """A ceiling is the parent of every root, so what exceeds it is not narrower."""
    faults = (
        (not _allows_audience(grant, ceiling), "/audience", "this audience"),
        (not _allows_tools(grant, ceiling), "/allowedTools", "these tools"),
        (grant.limit.tool_calls > ceiling.limit.tool_calls, "/maxToolCalls", "so many calls"),
        (grant.limit.spend_ucents > ceiling.limit.spend_ucents, "/maxSpendCents", "so much spend"),
        (grant.expires_at - grant.issued_at > ceiling.max_lifetime, "/expiresAt", "so long a lifetime"),
        (grant.max_depth > ceiling.max_depth, "/maxDepth", "so much depth"),
        (birth.subject is None and not _allows_subject(grant, ceiling), "/subject", "this subject"),
    )
    for exceeds, pointer, excess in faults:
        if exceeds:
            return Refusal(pointer, Reason.NOT_NARROWER, f"the client's limits do not allow {excess}")
    return None


def _allows_audience(grant: Grant, ceiling: Ceiling) -> bool:
    return ANY in ceiling.audiences or all(
        {audience.uri, audience.server} & ceiling.audiences for audience in grant.audience
    )


def _allows_tools(grant: Grant, ceiling: Ceiling) -> bool:
    return ANY in ceiling.allowed_tools or all(_spellings(ref) & ceiling.allowed_tools for ref in grant.tools)


def _spellings(ref: ToolRef) -> set[str]:
    # A tool whose own name has a slash could pass for another server's tool, so its bare name counts for nothing.
    return {f"{ref.server}/{ref.tool}"} | ({ref.tool} if "/" not in ref.tool else set())


def _allows_subject(grant: Grant, ceiling: Ceiling) -> bool:
    return grant.subject == grant.issued_by or bool({ANY, grant.subject} & ceiling.subjects)
