"""The one decision: may this call be made under this chain of grants, now.

Pure: everything that had to be looked up stands in the arguments. Every link of the chain is evaluated
again, and so is the relation of each link to its parent, so that a fault at mint can never widen a call.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, auto
from itertools import islice, pairwise
from typing import Final

from app.core.budget import Amount, Budget, Price
from app.core.constraints import Objection, ToolRule, check_arguments, fill_bindings, flaw_in
from app.core.grant import POLICY_V0, Grant, GrantChain, GrantId, ServerName, TenantId, ToolRef
from app.core.narrowing import Ground, rule_within, things_to_look_up
from app.core.projection import Projection, projection_within
from app.core.reasons import Reason
from app.core.resources import ResourceRef, Resources
from app.core.steps import OutOfSteps, Steps
from app.core.strict_json import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A proposed tool call: whose, at which tool server, with which arguments (parsed strictly)."""

    tenant_id: TenantId
    ref: ToolRef
    arguments: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The changing side of a grant: its budget and whether it was closed, with the word it was closed with."""

    budget: Budget
    closed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The ledger's view of one call: an account for every grant of the chain, and the windows around them."""

    grants: Mapping[GrantId, Account]
    windows: tuple[Budget, ...] = ()


class Offer(Enum):
    """What a tool server offers today of a tool that is pinned. A plain HTTP server offers what was declared."""

    AS_PINNED = auto()
    CHANGED = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was looked up beforehand. An absent fact denies.

    `credential_server` is the tool server that the presented credential is for, None where it is for every
    server of its grant; `credential_expired` says that its own time is over. `price` is None for a tool that is
    not registered or whose server is disabled. `disabled` says that the tenant, or a client that a grant of the
    chain rests on, is disabled. `resources` is what is on record of `things_to_ask_about`. `active_policy` is the
    version of the tenant's policy, `permitting` are the versions that were asked and permit this very call.
    `offer` is what the tool server said of the tool. `max_depth` is how deep the tenant lets any delegation go
    today, None for as deep as its grants say.
    """

    price: Price | None
    offer: Offer = Offer.UNKNOWN
    credential_server: ServerName | None = None
    credential_expired: bool = False
    disabled: bool = False
    max_depth: int | None = None
    argument_objection: Objection | None = None
    resources: Resources = field(default_factory=dict)
    active_policy: str | None = None
    permitting: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """The call may be made with exactly these arguments, after this much was held on every account."""

    arguments: JsonObject
    hold: Amount
    price: Price


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """The call is refused. `grant_id` names the link that objected: for the audit, not for the caller."""

    reason: Reason
    detail: str
    grant_id: GrantId | None = None
    pointer: str | None = None


REVOKED = "revoked"

MAX_DECISION_STEPS = 30_000
"""What all links together may take to judge one call: well under a second, however a grant was built."""


def decide(chain: GrantChain, call: Call, accounts: Accounts, facts: Facts, now: datetime) -> Allow | Deny:
    """Allow, or the objection of highest precedence; among equals the one nearest to the root."""
    arguments = effective_arguments(chain, call)
    ground = Ground(steps=Steps(left=MAX_DECISION_STEPS), resources=facts.resources)
    objections = [
        *_credential_objections(call, facts),
        *_argument_objections(chain, call.ref, arguments, ground),
        *(objection for grant in chain.grants for objection in _link_objections(grant, call, accounts, now)),
        *(
            objection
            for parent, child in pairwise(chain.grants)
            for objection in widenings(child, parent, only=call.ref, ground_of=lambda _: ground)
        ),
        *_depth_objections(chain, facts),
        *_tool_objections(chain, accounts, facts),
        *_policy_objections(chain, facts),
    ]
    if objections:
        return min(objections, key=lambda objection: objection.reason.precedence)
    assert facts.price is not None, "a tool without a price was objected to above"
    return Allow(arguments=arguments, hold=facts.price.hold, price=facts.price)


MAX_THINGS = 1000
"""How many things one call, with the proof of its chain, may ask about."""


def things_named(chain: GrantChain, call: Call) -> frozenset[ResourceRef]:
    """The things that the call's arguments name, by any link's rule; nothing where that takes too long to tell."""
    arguments, steps = effective_arguments(chain, call), Steps(left=MAX_DECISION_STEPS)
    try:
        return at_most(
            MAX_THINGS, (ref for rule in _rules(chain, call.ref) for ref in rule.resources(arguments, steps))
        )
    except OutOfSteps:
        return frozenset()


def things_to_ask_about(chain: GrantChain, call: Call) -> frozenset[ResourceRef]:
    """Whose record the decision needs: what the arguments name, and what the proof of each link rests on.

    What would be too much is not looked up, and so out of scope.
    """
    rules, named = _rules(chain, call.ref), things_named(chain, call)
    listed = (ref for parent, child in pairwise(rules) for ref in things_to_look_up(child, parent))
    return named | at_most(MAX_THINGS - len(named), listed)


def at_most(limit: int, refs: Iterable[ResourceRef]) -> frozenset[ResourceRef]:
    """These things if they are so few, else none of them."""
    few = frozenset(islice(refs, limit + 1))
    return few if len(few) <= limit else frozenset()


def _rules(chain: GrantChain, ref: ToolRef) -> list[ToolRule]:
    return [grant.tools[ref] for grant in chain.grants if ref in grant.tools]


def effective_arguments(chain: GrantChain, call: Call) -> JsonObject:
    """The call's arguments with those that the grant binds filled in: what is checked, sent and recorded."""
    rule = chain.leaf.tools.get(call.ref)
    return call.arguments if rule is None else fill_bindings(rule, call.arguments, chain.leaf.bindings)


def projections(chain: GrantChain, ref: ToolRef) -> tuple[Projection, ...]:
    """What a tool's result must pass, one after another, before the agent sees what is left of it."""
    return tuple(grant.projections[ref] for grant in chain.grants if ref in grant.projections)


def budget_of(grant: Grant, account: Account) -> Budget:
    """What a grant may still spend: its account's usage under the limit that was signed, whatever the account says."""
    return replace(account.budget, limit=grant.limit)


def lifeless(grant: Grant, account: Account | None, now: datetime) -> Deny | None:
    """Why a grant is dead at this moment, or None. A grant without an account is treated as revoked."""
    if account is None or account.closed == REVOKED:
        return Deny(reason=Reason.GRANT_REVOKED, detail="the grant was revoked", grant_id=grant.grant_id)
    if account.closed is not None:
        return Deny(reason=Reason.GRANT_CLOSED, detail="the grant was closed", grant_id=grant.grant_id)
    if now >= grant.expires_at:
        return Deny(reason=Reason.GRANT_EXPIRED, detail="the grant has expired", grant_id=grant.grant_id)
    if now < grant.not_before:
        return Deny(reason=Reason.GRANT_NOT_YET_VALID, detail="the grant is not valid yet", grant_id=grant.grant_id)
    return None


def dead_link(chain: GrantChain, accounts: Accounts, now: datetime) -> Deny | None:
    """The first dead link of a chain by precedence, or None when all of it lives."""
    dead = [
        objection
        for grant in chain.grants
        if (objection := lifeless(grant, accounts.grants.get(grant.grant_id), now)) is not None
    ]
    return min(dead, key=lambda objection: objection.reason.precedence, default=None)


def _credential_objections(call: Call, facts: Facts) -> Iterator[Deny]:
    if facts.credential_expired:
        yield Deny(reason=Reason.TOKEN_EXPIRED, detail="the token has expired")
    if facts.disabled:
        yield Deny(reason=Reason.GRANT_REVOKED, detail="the grant was revoked")
    if facts.credential_server not in (None, call.ref.server):
        yield Deny(reason=Reason.AUDIENCE_MISMATCH, detail="the token is for another audience")


def _link_objections(grant: Grant, call: Call, accounts: Accounts, now: datetime) -> Iterator[Deny]:
    dead = lifeless(grant, accounts.grants.get(grant.grant_id), now)
    if dead is not None:
        yield dead
    if grant.tenant_id != call.tenant_id:
        yield Deny(reason=Reason.TENANT_MISMATCH, detail="the grant is of another tenant", grant_id=grant.grant_id)
    if call.ref.server not in grant.servers:
        detail = "the grant is for another audience"
        yield Deny(reason=Reason.AUDIENCE_MISMATCH, detail=detail, grant_id=grant.grant_id)
    elif call.ref not in grant.tools:
        yield _tool_not_allowed(grant.grant_id)


def _argument_objections(chain: GrantChain, ref: ToolRef, arguments: JsonObject, ground: Ground) -> Iterator[Deny]:
    """What any link has against the arguments. A bound one follows the run that calls, so the leaf's fields count."""
    flaw = flaw_in(arguments)
    if flaw is not None:
        yield Deny(reason=flaw.reason, detail=flaw.detail, pointer=flaw.pointer)
        return
    bindings = chain.leaf.bindings
    for grant in chain.grants:
        rule = grant.tools.get(ref)
        found = None if rule is None else check_arguments(rule, arguments, bindings, ground.steps, ground.resources)
        if found is not None:
            yield Deny(reason=found.reason, detail=found.detail, grant_id=grant.grant_id, pointer=found.pointer)


def widenings(
    child: Grant, parent: Grant, *, only: ToolRef | None = None, ground_of: Callable[[ServerName], Ground]
) -> Iterator[Deny]:
    """Every way in which a child is not within its parent; nothing for a sound pair.

    `ground_of` a tool server is what proofs about its tools may rest on, asked once a tool. At a call only the
    tool that is called is proven again (`only`).
    """
    is_handed_on = parent.hands_on_to(child.actor, child.child_run_id)
    faults = (
        (child.tenant_id != parent.tenant_id, Reason.TENANT_MISMATCH, "tenantId"),
        # A standing grant is for whomever its client acts for; which of them a trusted issuer proved.
        (child.subject != parent.subject and not parent.standing, Reason.NOT_NARROWER, "subject"),
        (child.standing, Reason.NOT_NARROWER, "standing"),
        (parent.key_thumbprint is not None and child.key_thumbprint is None, Reason.NOT_NARROWER, "cnf"),
        (not child.servers <= parent.servers, Reason.NOT_NARROWER, "audience"),
        (child.expires_at > parent.expires_at, Reason.NOT_NARROWER, "expiresAt"),
        (child.limit.tool_calls > parent.limit.tool_calls, Reason.NOT_NARROWER, "maxToolCalls"),
        (child.limit.spend_ucents > parent.limit.spend_ucents, Reason.NOT_NARROWER, "maxSpendCents"),
        (child.may_redelegate and not parent.may_redelegate, Reason.REDELEGATION_DENIED, "mayRedelegate"),
        (child.depth > parent.depth and not parent.may_redelegate, Reason.REDELEGATION_DENIED, "mayRedelegate"),
        (is_handed_on and child.depth == parent.depth, Reason.REDELEGATION_DENIED, "depth"),
        (child.depth > parent.max_depth, Reason.DEPTH_EXCEEDED, "depth"),
        (child.max_depth > parent.max_depth, Reason.DEPTH_EXCEEDED, "maxDepth"),
        (child.policy_version != parent.policy_version, Reason.NOT_NARROWER, "policyVersion"),
    )
    for is_wider, reason, member in faults:
        if is_wider:
            detail = f"{member} is wider than the parent's"
            yield Deny(reason=reason, detail=detail, grant_id=child.grant_id, pointer=f"/{member}")
    for ref in child.tools if only is None else child.tools.keys() & {only}:
        yield from _tool_widenings(child, parent, ref, ground_of(ref.server))


def _depth_objections(chain: GrantChain, facts: Facts) -> Iterator[Deny]:
    """Like a window's, the tenant's limit counts as it is today: who lowers it means what is deeper already, too."""
    leaf = chain.leaf
    if facts.max_depth is not None and leaf.depth > facts.max_depth:
        detail = "the delegation is deeper than the tenant allows"
        yield Deny(reason=Reason.DEPTH_EXCEEDED, detail=detail, grant_id=leaf.grant_id)


def _tool_widenings(child: Grant, parent: Grant, ref: ToolRef, ground: Ground) -> Iterator[Deny]:
    parent_rule = parent.tools.get(ref)
    if parent_rule is None:
        detail, pointer = "a tool that the parent does not have", "/allowedTools"
        yield Deny(reason=Reason.NOT_NARROWER, detail=detail, grant_id=child.grant_id, pointer=pointer)
        return
    refusal = rule_within(child.tools[ref], parent_rule, ground)
    if refusal is not None:
        yield Deny(reason=refusal.reason, detail=refusal.detail, grant_id=child.grant_id, pointer=refusal.pointer)
    if not _shows_no_more(child.projections.get(ref), parent.projections.get(ref)):
        detail, pointer = "more of a result than the parent may see", "/resultProjection"
        yield Deny(reason=Reason.NOT_NARROWER, detail=detail, grant_id=child.grant_id, pointer=pointer)


def _shows_no_more(child: Projection | None, parent: Projection | None) -> bool:
    return parent is None or (child is not None and projection_within(child, parent))


_OFFERED_OTHERWISE: Final[Mapping[Offer, tuple[Reason, str]]] = {
    Offer.CHANGED: (
        Reason.TOOL_CHANGED,
        "the tool server offers this tool otherwise than it was accepted",
    ),
    Offer.UNKNOWN: (
        Reason.TOOL_SERVER_UNAVAILABLE,
        "the tool server did not say whether the tool is as it was accepted",
    ),
}


def _tool_objections(chain: GrantChain, accounts: Accounts, facts: Facts) -> Iterator[Deny]:
    if facts.price is None:
        yield _tool_not_allowed(None)
        return
    if facts.offer in _OFFERED_OTHERWISE:
        reason, detail = _OFFERED_OTHERWISE[facts.offer]
        yield Deny(reason=reason, detail=detail)
    if facts.argument_objection is not None:
        objection = facts.argument_objection
        yield Deny(reason=objection.reason, detail=objection.detail, pointer=objection.pointer)
    budgets = [
        (grant.grant_id, budget_of(grant, accounts.grants[grant.grant_id]))
        for grant in chain.grants
        if grant.grant_id in accounts.grants
    ]
    for grant_id, budget in [*((None, window) for window in accounts.windows), *budgets]:
        if not budget.admits(facts.price.hold):
            yield Deny(reason=Reason.BUDGET_EXCEEDED, detail="the budget is used up", grant_id=grant_id)


def _policy_objections(chain: GrantChain, facts: Facts) -> Iterator[Deny]:
    """The version that is active, and every one that a link pinned, must permit the call."""
    versions = {facts.active_policy, *(grant.policy_version for grant in chain.grants)}
    if not versions <= {POLICY_V0, *facts.permitting}:
        yield Deny(reason=Reason.POLICY_DENIED, detail="the tenant's policy does not permit this call")


def _tool_not_allowed(grant_id: GrantId | None) -> Deny:
    # One sentence for a tool that the grant lacks and for one that does not exist: nothing to tell apart.
    return Deny(reason=Reason.TOOL_NOT_ALLOWED, detail="the grant does not allow this tool", grant_id=grant_id)
