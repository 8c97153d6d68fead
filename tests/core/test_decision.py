"""The decision: each rule of a link alone, their precedence, and that a longer chain never permits more."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.budget import Amount, Budget, Price, Usage
from app.core.constraints import Objection
from app.core.decision import (
    MAX_DECISION_STEPS,
    MAX_THINGS,
    Account,
    Allow,
    Deny,
    Facts,
    Offer,
    at_most,
    budget_of,
    dead_link,
    decide,
    effective_arguments,
    projections,
    things_named,
    things_to_ask_about,
    widenings,
)
from app.core.grant import MAX_LINEAGE, GrantId, RunId, ServerName, TenantId, ToolName, ToolRef
from app.core.narrowing import Ground
from app.core.projection import Projection, parse_projection
from app.core.reasons import Reason
from app.core.resources import ResourceRef, Resources
from app.core.strict_json import JsonObject, JsonValue
from tests.samples import (
    BILLING,
    NOW,
    REFUND,
    SEARCH,
    SUPPORT,
    a_call,
    a_chain,
    a_child,
    a_grant,
    accounts_of,
    facts,
    rule,
)


def reason_of(verdict: Allow | Deny) -> Reason | None:
    return verdict.reason if isinstance(verdict, Deny) else None


def test_a_call_within_its_grant_is_allowed_with_its_hold() -> None:
    chain = a_chain(a_grant())
    verdict = decide(chain, a_call(), accounts_of(chain), facts(), NOW)
    assert verdict == Allow(
        arguments={"customerId": "c_42"},
        hold=Amount(tool_calls=1, spend_ucents=10_000),
        price=Price(fixed_ucents=10_000, max_ucents=10_000),
    )


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"expires_at": NOW}, Reason.GRANT_EXPIRED),
        ({"not_before": NOW + timedelta(seconds=1)}, Reason.GRANT_NOT_YET_VALID),
        ({"tenant_id": TenantId("globex")}, Reason.TENANT_MISMATCH),
        ({"audience": (BILLING,), "tools": {}}, Reason.AUDIENCE_MISMATCH),
        ({"tools": {}}, Reason.TOOL_NOT_ALLOWED),
        ({"tools": {SEARCH: rule({})}}, Reason.ARGUMENT_INVALID),
        ({"tools": {SEARCH: rule({"customerId": {"eq": "c_7"}})}}, Reason.RESOURCE_OUT_OF_SCOPE),
        ({"limit": Amount(tool_calls=0, spend_ucents=1_000_000)}, Reason.BUDGET_EXCEEDED),
        ({"limit": Amount(tool_calls=1, spend_ucents=9_999)}, Reason.BUDGET_EXCEEDED),
    ],
)
def test_each_rule_of_a_grant_refuses_alone(changes: dict[str, object], reason: Reason) -> None:
    chain = a_chain(a_grant(**changes))
    verdict = decide(chain, a_call(), accounts_of(chain), facts(), NOW)
    assert reason_of(verdict) is reason


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"price": None}, Reason.TOOL_NOT_ALLOWED),
        ({"disabled": True}, Reason.GRANT_REVOKED),
        ({"credential_expired": True}, Reason.TOKEN_EXPIRED),
        ({"credential_server": BILLING.server}, Reason.AUDIENCE_MISMATCH),
        ({"argument_objection": Objection("/x", Reason.ARGUMENT_INVALID, "no")}, Reason.ARGUMENT_INVALID),
        ({"offer": Offer.CHANGED}, Reason.TOOL_CHANGED),
        ({"offer": Offer.UNKNOWN}, Reason.TOOL_SERVER_UNAVAILABLE),
    ],
)
def test_each_fact_refuses_alone(changes: dict[str, object], reason: Reason) -> None:
    chain = a_chain(a_grant())
    verdict = decide(chain, a_call(), accounts_of(chain), facts(**changes), NOW)
    assert reason_of(verdict) is reason


@pytest.mark.parametrize("link", [0, 1, 2])
@pytest.mark.parametrize("word, reason", [("revoked", Reason.GRANT_REVOKED), ("done", Reason.GRANT_CLOSED)])
def test_a_closed_link_anywhere_refuses_and_is_named(link: int, word: str, reason: Reason) -> None:
    root = a_grant()
    child = a_child(root)
    chain = a_chain(root, child, a_child(child))
    dead = chain.grants[link].grant_id
    verdict = decide(chain, a_call(), accounts_of(chain, closed={dead: word}), facts(), NOW)
    assert reason_of(verdict) is reason
    assert isinstance(verdict, Deny)
    assert verdict.grant_id == dead


def test_a_grant_without_an_account_is_revoked() -> None:
    chain = a_chain(a_grant())
    verdict = decide(chain, a_call(), replace(accounts_of(chain), grants={}), facts(), NOW)
    assert reason_of(verdict) is Reason.GRANT_REVOKED


def test_a_parents_rule_refuses_though_the_childs_is_wider() -> None:
    """The prover failed and a wider child was stored: the parent's link still stands in the way."""
    parent = a_grant()
    child = a_child(parent, tools={SEARCH: rule({"*": {"any": True}})})
    chain = a_chain(parent, child)
    call = a_call({"customerId": "c_7"})
    assert isinstance(
        decide(
            a_chain(replace(child, parent_grant_id=None, root_grant_id=child.grant_id)),
            call,
            accounts_of(chain),
            facts(),
            NOW,
        ),
        Allow,
    )
    assert reason_of(decide(chain, call, accounts_of(chain), facts(), NOW)) is Reason.RESOURCE_OUT_OF_SCOPE


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"expires_at": NOW + timedelta(days=1)}, Reason.NOT_NARROWER),
        ({"limit": Amount(tool_calls=11, spend_ucents=1)}, Reason.BUDGET_EXCEEDED),
        ({"subject": "user:eve"}, Reason.NOT_NARROWER),
        ({"policy_version": "v9"}, Reason.NOT_NARROWER),
        ({"max_depth": 9}, Reason.DEPTH_EXCEEDED),
        (
            {"tools": {SEARCH: rule({"customerId": {"eq": "c_42"}, "x": {"any": True, "optional": True}})}},
            Reason.NOT_NARROWER,
        ),
    ],
)
def test_a_stored_child_wider_than_its_parent_permits_nothing(changes: dict[str, object], reason: Reason) -> None:
    parent = a_grant()
    chain = a_chain(parent, a_child(parent, **changes))
    known = facts(permitting=frozenset({"v9"}))
    assert reason_of(decide(chain, a_call(), accounts_of(chain), known, NOW)) is reason


@pytest.mark.parametrize("changes", [{"actor": "somebody else"}, {"child_run_id": RunId("another run")}])
def test_a_stored_child_for_another_actor_or_run_that_used_no_depth_permits_nothing(changes: dict[str, object]) -> None:
    parent = a_grant(may_redelegate=False, max_depth=0)
    same = {"actor": parent.actor, "child_run_id": parent.child_run_id, "depth": 0}
    chain = a_chain(parent, a_child(parent, **(same | {"may_redelegate": False} | changes)))
    assert reason_of(decide(chain, a_call(), accounts_of(chain), facts(), NOW)) is Reason.REDELEGATION_DENIED


def test_a_chain_that_takes_too_many_steps_is_refused_and_soon() -> None:
    """Two orders of the same alternatives prove each other, but no faster than their number squared."""
    clauses: list[JsonValue] = [{"allOf": [{"prefix": f"{n:03}"}, {"str": {"maxLength": 9}}]} for n in range(250)]
    orders = [clauses, clauses[::-1]]
    grants = [a_grant(tools={SEARCH: rule({"q": {"anyOf": orders[0]}})})]
    for index in range(1, MAX_LINEAGE):
        grants.append(
            a_child(
                grants[-1],
                grant_id=GrantId(f"gr_{index}"),
                depth=0,
                child_run_id=grants[0].child_run_id,
                tools={SEARCH: rule({"q": {"anyOf": orders[index % 2]}})},
            )
        )
    chain = a_chain(*grants)
    verdict = decide(chain, a_call({"q": "249"}), accounts_of(chain), facts(), NOW)
    assert reason_of(verdict) in {Reason.ARGUMENT_INVALID, Reason.NARROWING_UNPROVABLE}


def test_a_flaw_is_found_under_any_and_before_any_rule_looks() -> None:
    chain = a_chain(a_grant(tools={SEARCH: rule({"*": {"any": True}})}))
    verdict = decide(chain, a_call({"q": [{"deep": "e\u0301"}]}), accounts_of(chain), facts(), NOW)
    assert reason_of(verdict) is Reason.ARGUMENT_INVALID


def test_a_child_of_a_parent_that_may_not_redelegate_permits_nothing() -> None:
    parent = a_grant(may_redelegate=False)
    chain = a_chain(parent, a_child(parent, may_redelegate=False))
    assert reason_of(decide(chain, a_call(), accounts_of(chain), facts(), NOW)) is Reason.REDELEGATION_DENIED


def test_an_ancestors_budget_counts_for_the_leaf() -> None:
    parent = a_grant()
    chain = a_chain(parent, a_child(parent))
    full = accounts_of(chain)
    spent = Account(budget=Budget(account_id=parent.grant_id, limit=parent.limit, usage=Usage(pending=parent.limit)))
    verdict = decide(chain, a_call(), replace(full, grants={**full.grants, parent.grant_id: spent}), facts(), NOW)
    assert reason_of(verdict) is Reason.BUDGET_EXCEEDED
    assert isinstance(verdict, Deny)
    assert verdict.grant_id == parent.grant_id


def test_the_signed_limit_counts_and_not_what_an_account_says_of_it() -> None:
    grant = a_grant(limit=Amount(tool_calls=1, spend_ucents=10**6))
    chain = a_chain(grant)
    raised = Account(
        budget=Budget(
            account_id=grant.grant_id,
            limit=Amount(tool_calls=10**6, spend_ucents=10**9),
            usage=Usage(posted=Amount(tool_calls=1)),
        )
    )
    verdict = decide(chain, a_call(), replace(accounts_of(chain), grants={grant.grant_id: raised}), facts(), NOW)
    assert reason_of(verdict) is Reason.BUDGET_EXCEEDED


def test_a_window_that_is_used_up_refuses() -> None:
    chain = a_chain(a_grant())
    window = Budget(account_id="window:tenant", limit=Amount(tool_calls=0, spend_ucents=10**9))
    verdict = decide(chain, a_call(), replace(accounts_of(chain), windows=(window,)), facts(), NOW)
    assert reason_of(verdict) is Reason.BUDGET_EXCEEDED


def test_the_reason_of_highest_precedence_is_answered() -> None:
    """Everything is wrong at once: the caller learns that its grant is dead, and nothing about tools."""
    chain = a_chain(a_grant(expires_at=NOW, tools={}, limit=Amount()))
    verdict = decide(chain, a_call(), accounts_of(chain), facts(price=None), NOW)
    assert reason_of(verdict) is Reason.GRANT_EXPIRED


def test_a_changed_tool_is_told_before_what_is_wrong_with_the_call_and_an_unasked_tool_server_after() -> None:
    chain = a_chain(a_grant(limit=Amount()))
    call, accounts = a_call({"customerId": "c_43"}), accounts_of(chain)
    assert reason_of(decide(chain, call, accounts, facts(offer=Offer.CHANGED), NOW)) is Reason.TOOL_CHANGED
    assert reason_of(decide(chain, call, accounts, facts(offer=Offer.UNKNOWN), NOW)) is Reason.RESOURCE_OUT_OF_SCOPE
    verdict = decide(chain, a_call(), accounts, facts(offer=Offer.UNKNOWN, active_policy="v1"), NOW)
    assert reason_of(verdict) is Reason.BUDGET_EXCEEDED
    unknown = decide(a_chain(a_grant()), a_call(), accounts_of(chain), facts(offer=Offer.UNKNOWN, price=None), NOW)
    assert reason_of(unknown) is Reason.TOOL_NOT_ALLOWED


def test_no_reason_of_a_call_comes_after_that_of_a_tool_server_that_was_not_asked() -> None:
    assert max(Reason, key=lambda reason: reason.precedence) is Reason.TOOL_SERVER_UNAVAILABLE


def test_what_a_tool_server_offers_is_unknown_unless_it_was_looked_up() -> None:
    assert Facts(price=None).offer is Offer.UNKNOWN


def test_a_tool_that_does_not_exist_is_refused_in_the_words_of_one_not_granted() -> None:
    chain = a_chain(a_grant())
    missing = decide(
        chain, a_call(ref=ToolRef(SUPPORT.server, ToolName("nope"))), accounts_of(chain), facts(price=None), NOW
    )
    unregistered = decide(chain, a_call(), accounts_of(chain), facts(price=None), NOW)
    assert isinstance(missing, Deny)
    assert isinstance(unregistered, Deny)
    assert (missing.reason, missing.detail) == (unregistered.reason, unregistered.detail)


def test_a_bound_argument_is_filled_in_and_may_not_be_another() -> None:
    chain = a_chain(a_grant(tools={SEARCH: rule({"tenant": {"bind": "tenantId"}, "q": {"str": {}}})}))
    verdict = decide(chain, a_call({"q": "x"}), accounts_of(chain), facts(), NOW)
    assert isinstance(verdict, Allow)
    assert verdict.arguments == {"q": "x", "tenant": "acme"}
    other = decide(chain, a_call({"q": "x", "tenant": "globex"}), accounts_of(chain), facts(), NOW)
    assert reason_of(other) is Reason.RESOURCE_OUT_OF_SCOPE


limits = st.builds(Amount, tool_calls=st.integers(0, 3), spend_ucents=st.integers(0, 30_000))
rules = st.sampled_from(
    [
        rule({}),
        rule({"customerId": {"eq": "c_42"}}),
        rule({"customerId": {"oneOf": ["c_42", "c_43"]}}),
        rule({"customerId": {"prefix": "c_"}}),
        rule({"*": {"any": True}}),
    ]
)
changes = st.fixed_dictionaries(
    {},
    optional={
        "limit": limits,
        "tools": st.dictionaries(st.sampled_from([SEARCH, REFUND]), rules),
        "expires_at": st.sampled_from([NOW, NOW + timedelta(seconds=1), NOW + timedelta(days=1)]),
        "not_before": st.sampled_from([NOW - timedelta(1), NOW, NOW + timedelta(1)]),
        "audience": st.sampled_from([(SUPPORT,), (SUPPORT, BILLING), (BILLING,)]),
        "may_redelegate": st.booleans(),
    },
)


@given(st.lists(changes, min_size=1, max_size=4), st.sampled_from(["c_42", "c_43", "x", 1, None]), limits)
def test_a_longer_chain_never_permits_more(
    links: list[dict[str, object]], customer: str | int | None, posted: Amount
) -> None:
    grants = [a_grant(**links[0])]
    for index, link in enumerate(links[1:]):
        grants.append(a_child(grants[-1], grant_id=GrantId(f"gr_{index}"), **link))
    call = a_call({"customerId": customer})
    for length in range(1, len(grants)):
        shorter, longer = a_chain(*grants[:length]), a_chain(*grants[: length + 1])
        if isinstance(decide(longer, call, accounts_of(longer, posted=posted), facts(), NOW), Allow):
            assert isinstance(decide(shorter, call, accounts_of(shorter, posted=posted), facts(), NOW), Allow)


# --- which link objects, and to what ----------------------------------------------------------------------


def is_refused(verdict: Allow | Deny | None) -> tuple[Reason, str | None, str | None]:
    assert isinstance(verdict, Deny), "a refusal was expected"
    assert verdict.detail, "a refusal says why"
    return verdict.reason, verdict.grant_id, verdict.pointer


LINK_FAULTS: Final[list[tuple[dict[str, object], Reason, str | None]]] = [
    ({"expires_at": NOW}, Reason.GRANT_EXPIRED, None),
    ({"not_before": NOW + timedelta(seconds=1)}, Reason.GRANT_NOT_YET_VALID, None),
    ({"tenant_id": TenantId("globex")}, Reason.TENANT_MISMATCH, None),
    ({"audience": (BILLING,), "tools": {}}, Reason.AUDIENCE_MISMATCH, None),
    ({"tools": {}}, Reason.TOOL_NOT_ALLOWED, None),
    ({"tools": {SEARCH: rule({"customerId": {"eq": "c_7"}})}}, Reason.RESOURCE_OUT_OF_SCOPE, "/customerId"),
    ({"tools": {SEARCH: rule({})}}, Reason.ARGUMENT_INVALID, "/customerId"),
    ({"limit": Amount(tool_calls=0, spend_ucents=1_000_000)}, Reason.BUDGET_EXCEEDED, None),
]


@pytest.mark.parametrize("changes, reason, pointer", LINK_FAULTS)
def test_a_refusal_names_the_link_that_objects_and_the_argument(
    changes: dict[str, object], reason: Reason, pointer: str | None
) -> None:
    grant = a_grant(**changes)
    chain = a_chain(grant)
    verdict = decide(chain, a_call(), accounts_of(chain), facts(), NOW)
    assert is_refused(verdict) == (reason, grant.grant_id, pointer)


def test_a_single_thing_is_asked_about_only_where_one_is_not_too_many() -> None:
    ref = ResourceRef("case", "c_1")
    assert at_most(1, [ref]) == {ref}
    assert at_most(0, [ref]) == frozenset()
    assert at_most(0, []) == frozenset()


def test_of_two_links_with_the_same_objection_the_one_nearer_to_the_root_is_named() -> None:
    parent = a_grant(limit=Amount())
    chain = a_chain(parent, a_child(parent))
    assert is_refused(decide(chain, a_call(), accounts_of(chain), facts(), NOW))[1] == parent.grant_id


@pytest.mark.parametrize(
    "changes, refusal",
    [
        ({"price": None}, (Reason.TOOL_NOT_ALLOWED, None, None)),
        ({"disabled": True}, (Reason.GRANT_REVOKED, None, None)),
        ({"argument_objection": Objection("/x", Reason.ARGUMENT_INVALID, "no")}, (Reason.ARGUMENT_INVALID, None, "/x")),
        ({"active_policy": "v1"}, (Reason.POLICY_DENIED, None, None)),
    ],
)
def test_what_no_link_objects_to_names_none(changes: dict[str, object], refusal: tuple[Reason, None, str]) -> None:
    chain = a_chain(a_grant())
    assert is_refused(decide(chain, a_call(), accounts_of(chain), facts(**changes), NOW)) == refusal


def test_a_window_that_is_used_up_names_no_link_and_a_flaw_its_place_alone() -> None:
    chain = a_chain(a_grant(tools={SEARCH: rule({"*": {"any": True}})}))
    window = Budget(account_id="window:tenant", limit=Amount())
    accounts = replace(accounts_of(chain), windows=(window,))
    assert is_refused(decide(chain, a_call(), accounts, facts(), NOW)) == (Reason.BUDGET_EXCEEDED, None, None)
    flawed = decide(chain, a_call({"q": ["e\u0301"]}), accounts_of(chain), facts(), NOW)
    assert is_refused(flawed) == (Reason.ARGUMENT_INVALID, None, "/q/0")


def test_a_credential_for_the_tool_server_itself_or_for_none_in_particular_is_no_objection() -> None:
    chain = a_chain(a_grant())
    for server in (None, SUPPORT.server):
        assert isinstance(decide(chain, a_call(), accounts_of(chain), facts(credential_server=server), NOW), Allow)


SOME, FEWER = (parse_projection([*paths], pointer="") for paths in (("$.a", "$.b"), ("$.a.c",)))
BOTH: Final = (SUPPORT, BILLING)
SAME_RUN: Final[dict[str, object]] = {"child_run_id": RunId("run_root")}
NO_REDELEGATION: Final = (Reason.REDELEGATION_DENIED, "/mayRedelegate")
WIDE_SEARCH: Final[JsonObject] = {
    "customerId": {"eq": "c_42"},
    "limit": {"int": {"min": 1, "max": 51}, "optional": True},
}
WIDER: Final[list[tuple[dict[str, object], dict[str, object], Reason, str]]] = [
    ({}, {"tenant_id": TenantId("globex")}, Reason.TENANT_MISMATCH, "/tenantId"),
    ({}, {"subject": "user:eve"}, Reason.NOT_NARROWER, "/subject"),
    ({}, {"audience": (SUPPORT, BILLING)}, Reason.NOT_NARROWER, "/audience"),
    ({}, {"expires_at": NOW + timedelta(minutes=10, seconds=1)}, Reason.NOT_NARROWER, "/expiresAt"),
    ({}, {"limit": Amount(tool_calls=11, spend_ucents=1_000_000)}, Reason.NOT_NARROWER, "/maxToolCalls"),
    ({}, {"limit": Amount(tool_calls=10, spend_ucents=1_000_001)}, Reason.NOT_NARROWER, "/maxSpendCents"),
    ({"may_redelegate": False}, {"depth": 0, **SAME_RUN, "may_redelegate": True}, *NO_REDELEGATION),
    ({"may_redelegate": False}, {"may_redelegate": False}, *NO_REDELEGATION),
    ({}, {"depth": 0}, Reason.REDELEGATION_DENIED, "/depth"),
    ({}, {"depth": 0, **SAME_RUN, "actor": "somebody else"}, Reason.REDELEGATION_DENIED, "/depth"),
    ({"max_depth": 0}, {}, Reason.DEPTH_EXCEEDED, "/depth"),
    ({}, {"max_depth": 5}, Reason.DEPTH_EXCEEDED, "/maxDepth"),
    ({}, {"policy_version": "v9"}, Reason.NOT_NARROWER, "/policyVersion"),
    ({}, {"tools": {SEARCH: rule(WIDE_SEARCH)}}, Reason.NOT_NARROWER, "/limit"),
    ({"audience": BOTH}, {"tools": {REFUND: rule({})}}, Reason.NOT_NARROWER, "/allowedTools"),
    ({"projections": {SEARCH: FEWER}}, {"projections": {SEARCH: SOME}}, Reason.NOT_NARROWER, "/resultProjection"),
    ({}, {"standing": True}, Reason.NOT_NARROWER, "/standing"),
    ({"standing": True}, {"standing": True}, Reason.NOT_NARROWER, "/standing"),
    ({"key_thumbprint": "k"}, {"key_thumbprint": None}, Reason.NOT_NARROWER, "/cnf"),
    ({"standing": True}, {"standing": False, "depth": 0, "actor": "x"}, Reason.REDELEGATION_DENIED, "/depth"),
]


@pytest.mark.parametrize("of_parent, of_child, reason, pointer", WIDER)
def test_each_way_to_be_wider_is_told_alone_and_at_its_place(
    of_parent: dict[str, object], of_child: dict[str, object], reason: Reason, pointer: str
) -> None:
    parent = a_grant(**of_parent)
    child = a_child(parent, **of_child)
    found = [is_refused(fault) for fault in widenings(child, parent, ground_of=lambda _: Ground())]
    assert found == [(reason, child.grant_id, pointer)]


def test_a_child_exactly_as_wide_as_its_parent_is_within_it() -> None:
    parent = a_grant(projections={SEARCH: SOME}, max_depth=1)
    for child in (a_child(parent), a_child(parent, depth=0, **SAME_RUN), a_child(parent, may_redelegate=False)):
        assert [*widenings(child, parent, ground_of=lambda _: Ground())] == []


def test_the_child_of_a_standing_grant_is_for_whomever_was_proven_in_a_run_of_its_own() -> None:
    parent = a_grant(standing=True, may_redelegate=False, max_depth=0)
    same = {"standing": False, "may_redelegate": False, "depth": 0}
    for changes in ({}, {"subject": "okta#alice"}, {"key_thumbprint": "k"}, SAME_RUN):
        child = a_child(parent, **{**same, **changes})
        assert [*widenings(child, parent, ground_of=lambda _: Ground())] == []
        below = a_child(child, depth=0, child_run_id=child.child_run_id)
        assert [*widenings(below, child, ground_of=lambda _: Ground())] == []
        (fault,) = widenings(replace(below, subject="okta#eve"), child, ground_of=lambda _: Ground())
        assert is_refused(fault) == (Reason.NOT_NARROWER, below.grant_id, "/subject")


def test_what_is_bound_to_a_key_may_be_bound_to_another_one_below() -> None:
    parent = a_grant(key_thumbprint="k")
    assert [*widenings(a_child(parent, key_thumbprint="child's"), parent, ground_of=lambda _: Ground())] == []


def test_only_the_tool_that_is_called_is_proven_again_at_a_call() -> None:
    parent = a_grant(audience=BOTH, tools={SEARCH: rule({}), REFUND: rule({})})
    child = a_child(parent, tools={SEARCH: rule({}), REFUND: rule({"*": {"any": True}})})
    for only, count in ((None, 1), (REFUND, 1), (SEARCH, 0), (ToolRef(BILLING.server, ToolName("no tool")), 0)):
        assert len([*widenings(child, parent, only=only, ground_of=lambda _: Ground())]) == count


def test_a_link_that_is_proven_narrower_passes_whatever_else_was_stored_beside_the_tool() -> None:
    parent = a_grant(audience=BOTH, tools={SEARCH: rule({"q": {"str": {}}}), REFUND: rule({})})
    child = a_child(parent, tools={SEARCH: rule({"q": {"prefix": "a"}}), REFUND: rule({"*": {"any": True}})})
    chain = a_chain(parent, child)
    assert isinstance(decide(chain, a_call({"q": "ab"}), accounts_of(chain), facts(), NOW), Allow)


def test_a_link_that_lacks_the_tool_asks_about_nothing() -> None:
    root = a_grant(tools={})
    chain = a_chain(root, a_child(root, tools={SEARCH: rule({"caseId": {"resource": "case"}})}))
    assert things_to_ask_about(chain, a_call({"caseId": "c_1"})) == {ResourceRef("case", "c_1")}
    assert things_to_ask_about(chain, a_call({"caseId": "c_1"}, ref=REFUND)) == frozenset()


def test_each_tool_is_proven_on_what_is_known_of_its_own_server() -> None:
    parent = a_grant(audience=BOTH, tools={SEARCH: rule({}), REFUND: rule({})})
    asked = []

    def ground_of(server: ServerName) -> Ground:
        asked.append(server)
        return Ground()

    assert [*widenings(a_child(parent), parent, ground_of=ground_of)] == []
    assert sorted(asked) == [BILLING.server, SUPPORT.server]


def test_the_dead_link_of_a_chain_is_the_one_of_highest_precedence() -> None:
    root = a_grant(expires_at=NOW)
    child = a_child(root)
    chain = a_chain(root, child)
    assert is_refused(dead_link(chain, accounts_of(chain), NOW)) == (Reason.GRANT_EXPIRED, root.grant_id, None)
    closed = accounts_of(chain, closed={child.grant_id: "revoked"})
    assert is_refused(dead_link(chain, closed, NOW)) == (Reason.GRANT_REVOKED, child.grant_id, None)
    assert dead_link(chain, accounts_of(chain), NOW - timedelta(seconds=1)) is not None, "it has not begun"
    living = a_chain(a_grant())
    assert dead_link(living, accounts_of(living), NOW) is None
    assert dead_link(living, replace(accounts_of(living), grants={}), NOW) is not None


def test_a_grants_budget_is_its_accounts_usage_under_the_signed_limit() -> None:
    grant, usage = a_grant(), Usage(posted=Amount(tool_calls=1), pending=Amount(spend_ucents=5))
    account = Account(budget=Budget(account_id="gr_root", limit=Amount(), usage=usage))
    assert budget_of(grant, account) == Budget(account_id="gr_root", limit=grant.limit, usage=usage)


def test_a_bound_argument_follows_the_run_that_calls_whichever_link_binds_it() -> None:
    bound = {SEARCH: rule({"run": {"bind": "childRunId"}})}
    root = a_grant(tools=bound)
    chain = a_chain(root, a_child(root))
    verdict = decide(chain, a_call({}), accounts_of(chain), facts(), NOW)
    assert isinstance(verdict, Allow)
    assert verdict.arguments == {"run": chain.leaf.child_run_id}
    assert effective_arguments(chain, a_call({"x": 1}, ref=REFUND)) == {"x": 1}


def test_what_takes_too_long_to_tell_names_nothing() -> None:
    chain = a_chain(a_grant(tools={SEARCH: rule({"cases": {"list": {"items": {"resource": "case"}}}})}))
    nameless: list[JsonValue] = [""] * (MAX_DECISION_STEPS // 2)
    assert things_named(chain, a_call({"cases": ["c_1", *nameless]})) == {ResourceRef("case", "c_1")}
    assert things_named(chain, a_call({"cases": ["c_1", *nameless, *nameless]})) == frozenset()


def test_things_of_all_links_together_are_few_or_none() -> None:
    named: JsonObject = {"list": {"items": {"resource": "case"}}}
    more: list[JsonValue] = [f"d_{number}" for number in range(256)]
    parent = a_grant(tools={SEARCH: rule({"cases": named, "caseId": {"resource": "case"}})})
    child = a_child(parent, tools={SEARCH: rule({"cases": named, "caseId": {"oneOf": more}})})
    cases: list[JsonValue] = [f"c_{number}" for number in range(MAX_THINGS - len(more))]
    chain = a_chain(parent, child)
    assert len(things_to_ask_about(chain, a_call({"cases": cases}))) == MAX_THINGS
    asked = things_to_ask_about(chain, a_call({"cases": [*cases, "one more"]}))
    assert len(asked) < MAX_THINGS
    assert ResourceRef("case", "d_0") not in asked


# --- policies, things, projections ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pinned, active, permitting, reason",
    [
        ("v0", "v0", set(), None),
        ("v0", "v1", {"v1"}, None),
        ("v1", "v0", {"v1"}, None),
        ("v1", "v2", {"v1", "v2"}, None),
        ("v0", "v1", set(), Reason.POLICY_DENIED),
        ("v1", "v0", set(), Reason.POLICY_DENIED),
        ("v1", "v2", {"v1"}, Reason.POLICY_DENIED),
        ("v1", "v2", {"v2"}, Reason.POLICY_DENIED),
        ("v1", "v2", {"v3"}, Reason.POLICY_DENIED),
        ("v0", None, {"v0"}, Reason.POLICY_DENIED),
    ],
)
def test_the_pinned_and_the_active_version_must_both_permit(
    pinned: str, active: str | None, permitting: set[str], reason: Reason | None
) -> None:
    chain = a_chain(a_grant(policy_version=pinned))
    known = facts(active_policy=active, permitting=frozenset(permitting))
    assert reason_of(decide(chain, a_call(), accounts_of(chain), known, NOW)) is reason


CASES: Final[JsonObject] = {"caseId": {"resource": {"type": "case", "where": {"open": True}}}}


@pytest.mark.parametrize(
    "record, reason",
    [
        ({ResourceRef("case", "c_1"): {"open": True, "more": 1}}, None),
        ({ResourceRef("case", "c_1"): {"open": 1}}, Reason.RESOURCE_OUT_OF_SCOPE),
        ({ResourceRef("case", "c_1"): {}}, Reason.RESOURCE_OUT_OF_SCOPE),
        ({ResourceRef("case", "c_2"): {"open": True}}, Reason.RESOURCE_OUT_OF_SCOPE),
        ({ResourceRef("invoice", "c_1"): {"open": True}}, Reason.RESOURCE_OUT_OF_SCOPE),
        ({}, Reason.RESOURCE_OUT_OF_SCOPE),
    ],
)
def test_a_thing_is_in_reach_as_it_is_on_record(record: Resources, reason: Reason | None) -> None:
    chain = a_chain(a_grant(tools={SEARCH: rule(CASES)}))
    call = a_call({"caseId": "c_1"})
    assert things_to_ask_about(chain, call) == {ResourceRef("case", "c_1")}
    assert reason_of(decide(chain, call, accounts_of(chain), facts(resources=record), NOW)) is reason


def test_a_thing_of_which_nothing_was_looked_up_is_out_of_reach() -> None:
    chain = a_chain(a_grant(tools={SEARCH: rule(CASES)}))
    verdict = decide(chain, a_call({"caseId": "c_1"}), accounts_of(chain), facts(), NOW)
    assert reason_of(verdict) is Reason.RESOURCE_OUT_OF_SCOPE


def test_what_a_child_lists_is_asked_about_where_its_parent_asks_whose_it_is() -> None:
    parent = a_grant(tools={SEARCH: rule(CASES)})
    chain = a_chain(parent, a_child(parent, tools={SEARCH: rule({"caseId": {"oneOf": ["c_1", "c_2", 3]}})}))
    call = a_call({"caseId": "c_1"})
    assert things_to_ask_about(chain, call) == {ResourceRef("case", "c_1"), ResourceRef("case", "c_2")}
    assert things_named(chain, call) == {ResourceRef("case", "c_1")}


def test_what_can_not_be_on_record_is_not_asked_about() -> None:
    chain = a_chain(a_grant(tools={SEARCH: rule(CASES)}))
    for case in ("", "x" * 201, "a\nb", "\u202e"):
        assert things_to_ask_about(chain, a_call({"caseId": case})) == frozenset()


def test_too_many_things_are_not_asked_about_at_all() -> None:
    chain = a_chain(a_grant(tools={SEARCH: rule({"cases": {"list": {"items": {"resource": "case"}}}})}))
    ids: list[JsonValue] = [f"c_{number}" for number in range(MAX_THINGS)]
    assert len(things_to_ask_about(chain, a_call({"cases": ids}))) == MAX_THINGS
    assert things_to_ask_about(chain, a_call({"cases": [*ids, "one more"]})) == frozenset()


@pytest.mark.parametrize(
    "of_parent, of_child, reason",
    [
        (None, None, None),
        (None, SOME, None),
        (SOME, SOME, None),
        (SOME, FEWER, None),
        (FEWER, SOME, Reason.NOT_NARROWER),
        (SOME, None, Reason.NOT_NARROWER),
    ],
)
def test_a_stored_child_that_would_see_more_permits_nothing(
    of_parent: Projection | None, of_child: Projection | None, reason: Reason | None
) -> None:
    parent = a_grant(projections={} if of_parent is None else {SEARCH: of_parent})
    chain = a_chain(parent, a_child(parent, projections={} if of_child is None else {SEARCH: of_child}))
    assert reason_of(decide(chain, a_call(), accounts_of(chain), facts(), NOW)) is reason
    passed = [projection for projection in (of_parent, of_child) if projection is not None]
    assert [*projections(chain, SEARCH)] == passed
