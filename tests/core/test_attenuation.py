"""Mint within a ceiling, derive within a parent: what is more is refused, what is left out is least."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.attenuation import Birth, Ceiling, Wish, attenuate, mint, things_to_ask_about
from app.core.budget import Amount
from app.core.decision import widenings
from app.core.grant import MAX_LINEAGE, ClientId, Grant, GrantChain, GrantId, RunId, ToolName, ToolRef
from app.core.narrowing import Ground, Refusal
from app.core.projection import parse_projection
from app.core.reasons import Reason
from app.core.resources import ResourceRef, Resources
from app.core.strict_json import JsonObject
from tests.samples import (
    ACME,
    BILLING,
    MESSAGE,
    NOW,
    REFUND,
    SEARCH,
    SUPPORT,
    a_birth,
    a_ceiling,
    a_chain,
    a_child,
    a_grant,
    a_wish,
    rule,
)

PLENTY = Amount(tool_calls=10, spend_ucents=1_000_000)


def minted(wish: Wish, ceiling: Ceiling | None = None, subject: str = "planner") -> Grant | Refusal:
    return mint(
        wish,
        ceiling or a_ceiling(),
        a_birth(),
        tenant_id=ACME,
        subject=subject,
        parent_run_id=None,
        policy_version="v0",
        lifetime=timedelta(minutes=10),
    )


def derived(
    chain: GrantChain,
    wish: Wish,
    *,
    left: Amount = PLENTY,
    ceiling: Amount | None = None,
    as_grant: bool = True,
    birth: Birth | None = None,
) -> Grant | Refusal:
    return attenuate(
        chain,
        wish,
        birth or a_birth(),
        left=left,
        ceiling=ceiling,
        lifetime=timedelta(hours=1),
        as_grant=as_grant,
    )


def same(chain: GrantChain) -> Birth:
    """The birth of a node for the actor and run that the chain's leaf has: no redelegation."""
    return a_birth(actor=chain.leaf.actor, child_run_id=chain.leaf.child_run_id)


def refused(result: Grant | Refusal) -> tuple[str, Reason]:
    assert isinstance(result, Refusal), "the derivation was expected to be refused"
    return result.pointer, result.reason


def test_a_wish_for_nothing_mints_a_grant_of_nothing_for_ten_minutes() -> None:
    grant = minted(Wish())
    assert isinstance(grant, Grant)
    assert (grant.audience, grant.tools, grant.limit) == ((), {}, Amount())
    assert (grant.may_redelegate, grant.expires_at) == (False, NOW + timedelta(minutes=10))


def test_a_tool_without_constraints_takes_no_arguments() -> None:
    grant = minted(a_wish(tools={SEARCH: None}))
    assert isinstance(grant, Grant)
    assert grant.tools[SEARCH] == rule({})


@pytest.mark.parametrize(
    "changes, pointer",
    [
        ({"audience": (BILLING,), "tools": {}}, "/audience"),
        ({"tools": {MESSAGE: None}}, "/allowedTools"),
        ({"tool_calls": 101}, "/maxToolCalls"),
        ({"spend_ucents": 10_000_001}, "/maxSpendCents"),
        ({"expires_at": NOW + timedelta(hours=1, seconds=1)}, "/expiresAt"),
        ({"max_depth": 5}, "/maxDepth"),
    ],
)
def test_a_root_above_its_clients_ceiling_is_refused(changes: dict[str, object], pointer: str) -> None:
    assert refused(minted(a_wish(**changes))) == (pointer, Reason.NOT_NARROWER)


@pytest.mark.parametrize(
    "changes, excess",
    [
        ({"audience": (BILLING,), "tools": {}}, "this audience"),
        ({"tools": {MESSAGE: None}}, "these tools"),
        ({"tool_calls": 101}, "so many calls"),
        ({"spend_ucents": 10_000_001}, "so much spend"),
        ({"expires_at": NOW + timedelta(days=1)}, "so long a lifetime"),
        ({"max_depth": 5}, "so much depth"),
    ],
)
def test_who_asks_above_a_ceiling_is_told_of_what_it_is_too_much(changes: dict[str, object], excess: str) -> None:
    refusal = minted(a_wish(**changes))
    assert isinstance(refusal, Refusal)
    assert refusal.detail == f"the client's limits do not allow {excess}"


def test_a_root_for_another_subject_needs_the_ceilings_word() -> None:
    assert refused(minted(a_wish(), subject="user:ada")) == ("/subject", Reason.NOT_NARROWER)
    assert isinstance(minted(a_wish(), a_ceiling(subjects=frozenset({"user:ada"})), subject="user:ada"), Grant)


def test_a_beginning_in_the_past_is_no_earlier_than_now() -> None:
    grant = minted(a_wish(not_before=NOW - timedelta(days=400)))
    assert isinstance(grant, Grant)
    assert grant.not_before == NOW


def test_a_tool_with_a_slash_does_not_pass_for_another_servers_tool() -> None:
    disguised = ToolRef(SUPPORT.server, ToolName("billing/refund"))
    ceiling = a_ceiling(allowed_tools=frozenset({"billing/refund"}))
    assert refused(minted(a_wish(tools={disguised: None}), ceiling))[0] == "/allowedTools"


def test_a_ceiling_of_nothing_lets_nothing_be_granted() -> None:
    assert refused(minted(a_wish(), Ceiling())) == ("/audience", Reason.NOT_NARROWER)


def test_the_default_lifetime_is_shortened_to_the_ceilings() -> None:
    grant = minted(a_wish(), a_ceiling(max_lifetime=timedelta(seconds=30)))
    assert isinstance(grant, Grant)
    assert grant.expires_at == NOW + timedelta(seconds=30)


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_grant_without_a_lifetime_is_refused(seconds: int) -> None:
    assert refused(minted(a_wish(expires_at=NOW + timedelta(seconds=seconds))))[0] == "/expiresAt"


def test_a_child_that_says_nothing_inherits_what_is_left() -> None:
    parent = a_grant()
    child = derived(a_chain(parent), Wish(), left=Amount(tool_calls=3, spend_ucents=7))
    assert isinstance(child, Grant)
    assert child.tools == parent.tools
    assert child.limit == Amount(tool_calls=3, spend_ucents=7)
    assert child.expires_at == parent.expires_at
    assert not child.may_redelegate
    assert child.parent_run_id == parent.child_run_id


def test_a_budget_left_out_is_at_most_the_clients_ceiling() -> None:
    child = derived(a_chain(a_grant()), Wish(), ceiling=Amount(tool_calls=2, spend_ucents=10**9))
    assert isinstance(child, Grant)
    assert child.limit == Amount(tool_calls=2, spend_ucents=1_000_000)


@pytest.mark.parametrize(
    "changes, pointer, reason",
    [
        ({"tool_calls": 4}, "/maxToolCalls", Reason.NOT_NARROWER),
        ({"spend_ucents": 8}, "/maxSpendCents", Reason.NOT_NARROWER),
        ({"expires_at": NOW + timedelta(minutes=11)}, "/expiresAt", Reason.NOT_NARROWER),
        ({"tools": {MESSAGE: None}}, "/allowedTools", Reason.NOT_NARROWER),
        ({"max_depth": 5}, "/maxDepth", Reason.DEPTH_EXCEEDED),
        ({"audience": (BILLING,), "tools": {}}, "/audience", Reason.NOT_NARROWER),
        ({"audience": (BILLING,), "tools": {REFUND: None}}, "/allowedTools", Reason.NOT_NARROWER),
    ],
)
def test_a_child_asking_for_more_is_refused_and_never_clamped(
    changes: dict[str, object], pointer: str, reason: Reason
) -> None:
    left = Amount(tool_calls=3, spend_ucents=7)
    wish = Wish(**changes)  # type: ignore[arg-type]  # a table of fields
    assert refused(derived(a_chain(a_grant()), wish, left=left)) == (pointer, reason)


def test_a_widened_argument_is_refused_at_its_place() -> None:
    wish = Wish(tools={SEARCH: rule({"customerId": {"eq": "c_43"}})})
    pointer, reason = refused(derived(a_chain(a_grant()), wish))
    assert pointer.startswith("/resourceConstraints/case_search")
    assert reason is Reason.NOT_NARROWER


def test_redelegation_needs_the_parents_word() -> None:
    chain = a_chain(a_grant(may_redelegate=False))
    assert refused(derived(chain, Wish()))[1] is Reason.REDELEGATION_DENIED
    assert refused(derived(chain, Wish(), as_grant=False))[1] is Reason.REDELEGATION_DENIED
    assert isinstance(derived(chain, Wish(), as_grant=False, birth=same(chain)), Grant)


def test_redelegation_can_not_be_turned_on_again() -> None:
    chain = a_chain(a_grant(may_redelegate=False))
    result = derived(chain, Wish(may_redelegate=True), as_grant=False, birth=same(chain))
    assert refused(result)[1] is Reason.REDELEGATION_DENIED


def test_depth_is_used_by_redelegation_and_bounded() -> None:
    parent = a_grant(max_depth=1)
    child = a_child(parent)
    assert refused(derived(a_chain(parent, child), Wish()))[1] is Reason.DEPTH_EXCEEDED
    chain = a_chain(parent, child)
    token = derived(chain, Wish(), as_grant=False, birth=same(chain))
    assert isinstance(token, Grant)
    assert token.depth == child.depth


def test_a_lineage_has_a_bounded_length_without_redelegation_too() -> None:
    grants = [a_grant()]
    while len(grants) < MAX_LINEAGE:
        grants.append(a_child(grants[-1], grant_id=GrantId(f"gr_{len(grants)}"), depth=0))
    chain = a_chain(*grants)
    assert refused(derived(chain, Wish(), as_grant=False, birth=same(chain)))[1] is Reason.DEPTH_EXCEEDED


def test_a_child_never_starts_before_its_parent() -> None:
    parent = a_grant(not_before=NOW + timedelta(minutes=5))
    child = derived(a_chain(parent), Wish(not_before=NOW))
    assert isinstance(child, Grant)
    assert child.not_before == parent.not_before


wishes = st.builds(
    Wish,
    audience=st.sampled_from([None, (SUPPORT,), (BILLING,), (SUPPORT, BILLING)]),
    tools=st.none()
    | st.dictionaries(
        st.sampled_from([SEARCH, MESSAGE, REFUND]),
        st.none()
        | st.sampled_from(
            [rule({}), rule({"customerId": {"eq": "c_42"}}), rule({"*": {"any": True}}), rule({"x": {"any": True}})]
        ),
    ),
    tool_calls=st.none() | st.integers(0, 12),
    spend_ucents=st.none() | st.integers(0, 1_100_000),
    not_before=st.none() | st.sampled_from([NOW, NOW + timedelta(seconds=5)]),
    expires_at=st.none() | st.integers(-5, 700).map(lambda seconds: NOW + timedelta(seconds=seconds)),
    may_redelegate=st.none() | st.booleans(),
    max_depth=st.none() | st.integers(0, 6),
)
parents = st.sampled_from(
    [
        a_grant(),
        a_grant(may_redelegate=False),
        a_grant(audience=(SUPPORT, BILLING), tools={SEARCH: rule({"*": {"any": True}}), REFUND: rule({})}),
        a_grant(tools={SEARCH: rule({"customerId": {"oneOf": ["c_42", "c_43"]}, "n": {"int": {}, "optional": True}})}),
    ]
)


@given(parents, wishes, st.booleans(), st.integers(0, 10))
def test_whatever_is_derived_is_within_its_parent(parent: Grant, wish: Wish, as_grant: bool, calls: int) -> None:
    left = Amount(tool_calls=calls, spend_ucents=1_000_000)
    birth = a_birth() if as_grant else same(a_chain(parent))
    child = derived(a_chain(parent), wish, left=left, as_grant=as_grant, birth=birth)
    if isinstance(child, Grant):
        assert not list(widenings(child, parent, ground_of=lambda _: Ground()))
        assert child.limit.within(left)
        assert child.not_before < child.expires_at <= parent.expires_at


HARD: Final[JsonObject] = {"regex": "(a|b)*a(a|b){14}"}


def test_a_proof_that_no_call_could_make_again_makes_no_grant() -> None:
    parent = a_grant(tools={SEARCH: rule({"q": {"regex": "(a|b)*(a|b){9}"}})})
    refusal = derived(a_chain(parent), Wish(tools={SEARCH: rule({"q": HARD})}))
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.NARROWING_UNPROVABLE


def test_many_tools_together_take_no_longer_than_a_derivation_may() -> None:
    refs = [ToolRef(SUPPORT.server, ToolName(f"t{number}")) for number in range(200)]
    within: JsonObject = {f"a{number}": {"prefix": "v"} for number in range(20)}
    narrower: JsonObject = {f"a{number}": {"oneOf": [f"v{value}" for value in range(99)]} for number in range(20)}
    of_parent, of_child = rule(within), rule(narrower)
    parent = a_grant(tools=dict.fromkeys(refs, of_parent))
    few, many = (Wish(tools=dict.fromkeys(some, of_child)) for some in (refs[:20], refs))
    assert isinstance(derived(a_chain(parent), few), Grant)
    refusal = derived(a_chain(parent), many)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.NARROWING_UNPROVABLE


# --- a node, member by member -----------------------------------------------------------------------------

LATER: Final = NOW + timedelta(microseconds=999_999)
SOON: Final = NOW + timedelta(minutes=1)
SOMEBODY: Final = a_birth(actor="worker", issued_by=ClientId("issuer"), holder=ClientId("holder"), now=LATER)
FEW: Final = parse_projection(["$.a"], pointer="")
LESS: Final = parse_projection(["$.a.b"], pointer="")


def test_a_root_is_what_was_wished_and_born_to_the_last_member() -> None:
    wish = Wish(
        audience=(SUPPORT,),
        tools={SEARCH: rule({"customerId": {"eq": "c_42"}})},
        tool_calls=5,
        spend_ucents=7,
        not_before=SOON,
        expires_at=NOW + timedelta(minutes=2),
        may_redelegate=True,
        max_depth=2,
        projections={SEARCH: FEW},
    )
    grant = mint(
        wish,
        a_ceiling(subjects=frozenset({"*"})),
        SOMEBODY,
        tenant_id=ACME,
        subject="user:ada",
        parent_run_id=RunId("run_above"),
        policy_version="v3",
        lifetime=timedelta(minutes=10),
    )
    assert grant == Grant(
        grant_id=GrantId("gr_new"),
        parent_grant_id=None,
        root_grant_id=GrantId("gr_new"),
        depth=0,
        tenant_id=ACME,
        subject="user:ada",
        actor="worker",
        issued_by=ClientId("issuer"),
        holder=ClientId("holder"),
        parent_run_id=RunId("run_above"),
        child_run_id=RunId("run_new"),
        audience=(SUPPORT,),
        tools={SEARCH: rule({"customerId": {"eq": "c_42"}})},
        limit=Amount(tool_calls=5, spend_ucents=7),
        issued_at=NOW,
        not_before=SOON,
        expires_at=NOW + timedelta(minutes=2),
        may_redelegate=True,
        max_depth=2,
        policy_version="v3",
        projections={SEARCH: FEW},
    )


def test_a_root_that_begins_later_lives_as_long_from_there() -> None:
    grant = minted(a_wish(not_before=SOON))
    assert isinstance(grant, Grant)
    assert (grant.not_before, grant.expires_at) == (SOON, SOON + timedelta(minutes=10))
    assert grant.max_depth == a_ceiling().max_depth


def test_a_child_is_what_was_wished_and_born_to_the_last_member() -> None:
    parent = a_grant(projections={SEARCH: FEW}, tools={SEARCH: rule({}), MESSAGE: rule({})})
    wish = Wish(
        audience=(SUPPORT,),
        tools={SEARCH: None},
        tool_calls=3,
        spend_ucents=7,
        not_before=SOON,
        expires_at=NOW + timedelta(minutes=2),
        may_redelegate=True,
        max_depth=2,
        projections={SEARCH: LESS, MESSAGE: LESS},
    )
    left = Amount(tool_calls=3, spend_ucents=7)
    assert derived(a_chain(parent), wish, birth=SOMEBODY, left=left) == Grant(
        grant_id=GrantId("gr_new"),
        parent_grant_id=parent.grant_id,
        root_grant_id=parent.root_grant_id,
        depth=1,
        tenant_id=parent.tenant_id,
        subject=parent.subject,
        actor="worker",
        issued_by=ClientId("issuer"),
        holder=ClientId("holder"),
        parent_run_id=parent.child_run_id,
        child_run_id=RunId("run_new"),
        audience=(SUPPORT,),
        tools={SEARCH: rule({})},
        limit=left,
        issued_at=NOW,
        not_before=SOON,
        expires_at=NOW + timedelta(minutes=2),
        may_redelegate=True,
        max_depth=2,
        policy_version=parent.policy_version,
        projections={SEARCH: LESS},
    )


def test_a_node_of_the_same_run_keeps_the_run_above_it_and_uses_no_depth() -> None:
    chain = a_chain(a_grant(parent_run_id=RunId("run_above")))
    for as_grant, depth in ((False, 0), (True, 1)):
        node = derived(chain, Wish(), as_grant=as_grant, birth=same(chain))
        assert isinstance(node, Grant)
        assert (node.parent_run_id, node.child_run_id, node.depth) == ("run_above", "run_root", depth)


@pytest.mark.parametrize("changes", [{"actor": "worker"}, {"child_run_id": RunId("run_new")}])
def test_a_node_for_another_actor_or_run_is_redelegation_though_it_is_no_grant(changes: dict[str, object]) -> None:
    chain = a_chain(a_grant())
    node = derived(chain, Wish(), as_grant=False, birth=replace(same(chain), **changes))  # type: ignore[arg-type]
    assert isinstance(node, Grant)
    assert node.depth == 1


def test_what_is_left_out_is_the_parents() -> None:
    parent = a_grant(projections={SEARCH: FEW}, max_depth=3)
    child = derived(a_chain(parent), Wish())
    assert isinstance(child, Grant)
    assert (child.projections, child.max_depth, child.audience) == ({SEARCH: FEW}, 3, parent.audience)


def test_a_childs_default_lifetime_ends_before_its_parents_where_it_is_shorter() -> None:
    child = derived(a_chain(a_grant(expires_at=NOW + timedelta(hours=9))), Wish(), birth=SOMEBODY)
    assert isinstance(child, Grant)
    assert child.expires_at == NOW + timedelta(hours=1)


def test_a_narrower_audience_takes_the_tools_of_the_other_servers_away() -> None:
    parent = a_grant(audience=(SUPPORT, BILLING), tools={SEARCH: rule({}), REFUND: rule({})})
    child = derived(a_chain(parent), Wish(audience=(BILLING,)))
    assert isinstance(child, Grant)
    assert child.tools == {REFUND: rule({})}


@pytest.mark.parametrize(
    "changes, wish, refusal",
    [
        ({"may_redelegate": False}, {}, ("/mayRedelegate", Reason.REDELEGATION_DENIED)),
        ({"max_depth": 0}, {}, ("/maxDepth", Reason.DEPTH_EXCEEDED)),
        (
            {},
            {"tools": {SEARCH: rule({"customerId": {"eq": "c_43"}})}},
            ("/resourceConstraints/case_search/customerId", Reason.NOT_NARROWER),
        ),
        ({"projections": {SEARCH: LESS}}, {"projections": {SEARCH: FEW}}, ("/resultProjection", Reason.NOT_NARROWER)),
        ({}, {"not_before": SOON, "expires_at": SOON}, ("/expiresAt", Reason.NOT_NARROWER)),
    ],
)
def test_a_refused_derivation_points_at_what_was_wished(
    changes: dict[str, object], wish: dict[str, object], refusal: tuple[str, Reason]
) -> None:
    asked = Wish(**wish)  # type: ignore[arg-type]  # a table of fields
    assert refused(derived(a_chain(a_grant(**changes)), asked)) == refusal


def test_a_lineage_may_be_as_long_as_it_may_be_stored() -> None:
    grants = [a_grant()]
    while len(grants) < MAX_LINEAGE - 1:
        grants.append(a_child(grants[-1], grant_id=GrantId(f"gr_{len(grants)}"), depth=0))
    chain = a_chain(*grants)
    assert isinstance(derived(chain, Wish(), as_grant=False, birth=same(chain)), Grant)


def test_that_a_grant_may_not_be_redelegated_is_said_before_that_it_would_be_too_deep() -> None:
    chain = a_chain(a_grant(may_redelegate=False, max_depth=0))
    assert refused(derived(chain, Wish())) == ("/mayRedelegate", Reason.REDELEGATION_DENIED)


def costly(tools: int, arguments: int) -> Grant | Refusal:
    """A derivation whose proofs take 258 steps an argument, once as it is made and once as it will be checked."""
    refs = [ToolRef(SUPPORT.server, ToolName(f"t{number}")) for number in range(tools)]
    names = [f"a{number}" for number in range(arguments)]
    values: JsonObject = {"oneOf": [*range(256)]}
    within, narrower = rule({name: {"int": {"min": 0}} for name in names}), rule(dict.fromkeys(names, values))
    parent = a_grant(tools=dict.fromkeys(refs, within))
    return derived(a_chain(parent), Wish(tools=dict.fromkeys(refs, narrower)))


@pytest.mark.parametrize("tools, arguments, made", [(1, 64, True), (3, 64, True), (4, 64, False)])
def test_all_proofs_of_a_derivation_share_its_steps(tools: int, arguments: int, made: bool) -> None:
    result = costly(tools, arguments)
    assert isinstance(result, Grant) is made
    if isinstance(result, Refusal):
        assert result.reason is Reason.NARROWING_UNPROVABLE


def test_no_tool_takes_more_steps_than_a_call_of_it_has() -> None:
    both: JsonObject = {"allOf": [{"oneOf": [*range(256)]}, {"int": {"min": 0}}, {"int": {"min": -1}}]}
    parent = a_grant(tools={SEARCH: rule({f"a{number}": {"int": {"min": -2}} for number in range(64)})})
    refusal = derived(a_chain(parent), Wish(tools={SEARCH: rule({f"a{number}": both for number in range(64)})}))
    assert refused(refusal)[1] is Reason.NARROWING_UNPROVABLE


# --- a ceiling, to the last unit --------------------------------------------------------------------------

CEILING: Final = a_ceiling(limit=Amount(tool_calls=5, spend_ucents=7), max_depth=2)


def test_a_root_may_be_as_wide_as_its_clients_ceiling() -> None:
    wish = a_wish(tool_calls=5, spend_ucents=7, max_depth=2, expires_at=NOW + timedelta(hours=1))
    assert isinstance(minted(wish, CEILING), Grant)


def test_a_ceiling_of_anything_lets_anything_be_granted() -> None:
    anything = frozenset({"*"})
    ceiling = a_ceiling(audiences=anything, allowed_tools=anything, subjects=anything)
    assert isinstance(minted(a_wish(), ceiling, subject="user:ada"), Grant)


def test_a_subject_is_nobody_else_because_another_is_allowed() -> None:
    ceiling = a_ceiling(subjects=frozenset({"user:eve"}))
    assert minted(a_wish(), ceiling, subject="user:ada") == Refusal(
        "/subject", Reason.NOT_NARROWER, "the client's limits do not allow this subject"
    )


@pytest.mark.parametrize("audiences, pointer", [({SUPPORT.uri}, None), ({SUPPORT.server}, None), ({"x"}, "/audience")])
def test_a_ceiling_names_an_audience_by_its_address_or_its_server(audiences: set[str], pointer: str | None) -> None:
    result = minted(a_wish(), a_ceiling(audiences=frozenset(audiences)))
    assert (result.pointer if isinstance(result, Refusal) else None) == pointer


def test_every_audience_and_every_tool_must_be_allowed() -> None:
    two = a_wish(audience=(SUPPORT, BILLING))
    assert refused(minted(two))[0] == "/audience"
    assert refused(minted(a_wish(tools={SEARCH: None, MESSAGE: None})))[0] == "/allowedTools"


@pytest.mark.parametrize("tools, allowed", [({"case_search"}, True), ({"support/case_search"}, True), ({"x"}, False)])
def test_a_ceiling_names_a_tool_alone_or_with_its_server(tools: set[str], allowed: bool) -> None:
    result = minted(a_wish(), a_ceiling(allowed_tools=frozenset(tools)))
    assert isinstance(result, Grant) is allowed


def test_a_client_of_which_nothing_is_said_may_grant_four_deep_for_ten_minutes() -> None:
    assert (Ceiling().max_depth, Ceiling().max_lifetime, Ceiling().limit) == (4, timedelta(minutes=10), Amount())


# --- what a derivation must know of things ----------------------------------------------------------------

A_CASE: Final = rule({"caseId": {"resource": "case"}})
ITS_CASE: Final = rule({"caseId": {"eq": "c_1"}})


def test_things_are_asked_about_where_a_wish_lists_what_its_parent_asks_about() -> None:
    parent = a_grant(audience=(SUPPORT, BILLING), tools={SEARCH: A_CASE, MESSAGE: A_CASE, REFUND: rule({})})
    more = rule({"caseId": {"oneOf": ["c_1", "c_2"]}})
    wish = Wish(tools={SEARCH: ITS_CASE, MESSAGE: more, REFUND: ITS_CASE})
    assert things_to_ask_about(wish, parent) == {
        SUPPORT.server: {ResourceRef("case", "c_1"), ResourceRef("case", "c_2")}
    }
    for nothing in (Wish(), Wish(tools={SEARCH: None}), Wish(tools={ToolRef(SUPPORT.server, ToolName("x")): ITS_CASE})):
        assert things_to_ask_about(nothing, parent) == {}


def test_a_thing_is_within_reach_as_it_is_on_record_at_its_own_server() -> None:
    parent = a_grant(audience=(SUPPORT, BILLING), tools={SEARCH: A_CASE, REFUND: rule({})})
    record: Resources = {ResourceRef("case", "c_1"): {}}
    for server, pointer in (
        (SUPPORT.server, None),
        (BILLING.server, "/resourceConstraints/case_search/caseId"),
    ):
        result = attenuate(
            a_chain(parent),
            Wish(tools={SEARCH: ITS_CASE}),
            a_birth(),
            left=PLENTY,
            ceiling=None,
            lifetime=timedelta(hours=1),
            as_grant=True,
            resources={server: record},
        )
        assert (result.pointer if isinstance(result, Refusal) else None) == pointer


# --- standing grants, proven subjects, keys -----------------------------------------------------------------


STANDING: Final = a_grant(standing=True, may_redelegate=False, max_depth=0)


def test_a_standing_grants_client_opens_runs_without_redelegating() -> None:
    child = derived(a_chain(STANDING), Wish(), as_grant=False)
    assert isinstance(child, Grant)
    assert (child.depth, child.child_run_id, child.parent_run_id) == (0, "run_new", STANDING.child_run_id)
    assert not child.standing


def test_to_hand_a_standing_grant_on_is_redelegation_as_ever() -> None:
    chain = a_chain(STANDING)
    assert refused(derived(chain, Wish(), as_grant=True)) == ("/mayRedelegate", Reason.REDELEGATION_DENIED)
    other = derived(chain, Wish(), as_grant=False, birth=a_birth(actor="other"))
    assert refused(other) == ("/mayRedelegate", Reason.REDELEGATION_DENIED)


def test_below_a_standing_grants_child_a_new_run_is_redelegation_again() -> None:
    child = derived(a_chain(STANDING), Wish(), as_grant=False)
    assert isinstance(child, Grant)
    again = derived(a_chain(STANDING, child), Wish(), as_grant=False, birth=a_birth(child_run_id=RunId("run_2")))
    assert refused(again) == ("/mayRedelegate", Reason.REDELEGATION_DENIED)


def test_a_proven_subject_is_the_childs_of_a_standing_grant_and_of_no_other() -> None:
    proven = a_birth(subject="okta#alice")
    child = derived(a_chain(STANDING), Wish(), as_grant=False, birth=proven)
    assert isinstance(child, Grant)
    assert child.subject == "okta#alice"
    below = derived(a_chain(STANDING, child), Wish(), as_grant=False, birth=replace(proven, subject="okta#eve"))
    assert refused(below) == ("/subject", Reason.NOT_NARROWER)
    ordinary = a_chain(a_grant())
    assert refused(derived(ordinary, Wish(), birth=proven)) == ("/subject", Reason.NOT_NARROWER)
    inherited = derived(a_chain(STANDING, child), Wish(), as_grant=False, birth=same(a_chain(STANDING, child)))
    assert isinstance(inherited, Grant)
    assert inherited.subject == "okta#alice"


def test_a_childs_budget_is_what_is_left_of_the_standing_grants() -> None:
    left = Amount(tool_calls=2, spend_ucents=20)
    child = derived(a_chain(STANDING), Wish(), left=left, as_grant=False)
    assert isinstance(child, Grant)
    assert child.limit == left
    more = derived(a_chain(STANDING), Wish(tool_calls=3), left=left, as_grant=False)
    assert refused(more) == ("/maxToolCalls", Reason.NOT_NARROWER)


def test_what_is_bound_to_a_key_never_comes_loose() -> None:
    bound = a_chain(a_grant(key_thumbprint="parent's"))
    for given_key, found in ((None, "parent's"), ("child's", "child's")):
        child = derived(bound, Wish(), birth=a_birth(key_thumbprint=given_key))
        assert isinstance(child, Grant)
        assert child.key_thumbprint == found
    free = derived(a_chain(a_grant()), Wish(), birth=a_birth(key_thumbprint="child's"))
    assert isinstance(free, Grant)
    assert free.key_thumbprint == "child's"


@pytest.mark.parametrize("standing", [False, True])
def test_a_root_is_standing_only_where_that_is_said(standing: bool) -> None:
    root = mint(
        a_wish(),
        a_ceiling(),
        a_birth(key_thumbprint="k"),
        tenant_id=ACME,
        subject="planner",
        parent_run_id=None,
        policy_version="v0",
        lifetime=timedelta(minutes=10),
        standing=standing,
    )
    assert isinstance(root, Grant)
    assert (root.standing, root.key_thumbprint) == (standing, "k")
    assert not minted_without_saying().standing


def minted_without_saying() -> Grant:
    root = minted(a_wish())
    assert isinstance(root, Grant)
    return root


def test_a_proven_subject_needs_no_place_in_the_ceiling_and_excuses_nothing_else() -> None:
    def proven(wish: Wish) -> Grant | Refusal:
        return mint(
            wish,
            a_ceiling(),
            a_birth(subject="okta#alice"),
            tenant_id=ACME,
            subject="planner",
            parent_run_id=None,
            policy_version="v0",
            lifetime=timedelta(minutes=10),
        )

    root = proven(a_wish())
    assert isinstance(root, Grant)
    assert root.subject == "okta#alice"
    assert refused(minted(a_wish(), subject="okta#alice")) == ("/subject", Reason.NOT_NARROWER)
    assert refused(proven(a_wish(tool_calls=101))) == ("/maxToolCalls", Reason.NOT_NARROWER)
