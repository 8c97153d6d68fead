"""Mint within a ceiling, derive within a parent: what is more is refused, what is left out is least."""

from datetime import timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.attenuation import Birth, Ceiling, Wish, attenuate, mint
from app.core.budget import Amount
from app.core.decision import widenings
from app.core.grant import MAX_LINEAGE, Grant, GrantChain, GrantId, ToolName, ToolRef
from app.core.narrowing import Ground, Refusal
from app.core.reasons import Reason
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
