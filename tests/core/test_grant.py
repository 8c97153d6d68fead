"""The grant's document and the chain: one spelling, nothing guessed, no link that is not its parent's child."""

from dataclasses import replace

import pytest

from app.core.grant import (
    MAX_LINEAGE,
    ChainBroken,
    Grant,
    GrantId,
    GrantInvalid,
    RunId,
    TenantId,
    ToolName,
    ToolRef,
    parse_grant,
    parse_time,
    parse_tool,
    render_grant,
)
from app.core.strict_json import canonical, parse
from tests.samples import BILLING, REFUND, SEARCH, SUPPORT, a_chain, a_child, a_grant, rule

SAMPLES = [
    a_grant(),
    a_child(a_grant()),
    a_grant(audience=(SUPPORT, BILLING), tools={SEARCH: rule({}), REFUND: rule({"*": {"any": True}})}),
    a_grant(audience=(), tools={}, may_redelegate=False),
    a_grant(standing=True),
    a_child(a_grant(standing=True), key_thumbprint="k" * 43),
]


@pytest.mark.parametrize("grant", SAMPLES)
def test_a_grant_survives_its_document(grant: Grant) -> None:
    document = parse(canonical(render_grant(grant)), max_bytes=65_536, max_depth=32)
    assert isinstance(document, dict)
    assert parse_grant(document) == grant


@pytest.mark.parametrize("member", sorted(render_grant(a_grant())))
def test_a_document_without_any_one_of_its_members_is_no_grant(member: str) -> None:
    document = render_grant(a_grant())
    del document[member]
    with pytest.raises(GrantInvalid):
        parse_grant(document)


@pytest.mark.parametrize("member", sorted(set(render_grant(a_grant())) - {"mayRedelegate"}))
@pytest.mark.parametrize("value", [True, [[]], {"x": 1}])
def test_a_member_of_another_type_is_no_grant(member: str, value: object) -> None:
    document = {**render_grant(a_grant()), member: value}
    with pytest.raises(GrantInvalid):
        parse_grant(document)  # type: ignore[arg-type]  # wrong on purpose


def test_only_true_may_redelegate() -> None:
    assert not parse_grant({**render_grant(a_grant()), "mayRedelegate": 1}).may_redelegate


def test_only_true_is_standing_and_what_is_neither_standing_nor_bound_does_not_say_so() -> None:
    document = render_grant(a_grant())
    assert not document.keys() & {"standing", "cnf"}
    assert render_grant(a_grant(standing=True, key_thumbprint="k" * 43)) == {
        **document,
        "standing": True,
        "cnf": {"jkt": "k" * 43},
    }
    for value in (1, "true", None, [True]):
        assert not parse_grant({**document, "standing": value}).standing  # type: ignore[dict-item]  # wrong on purpose


@pytest.mark.parametrize("cnf", [None, "k", {}, {"jkt": None}, {"jkt": 7}, ["jkt"]])
def test_a_grant_that_seems_bound_to_a_key_is_never_read_as_one_that_is_not(cnf: object) -> None:
    with pytest.raises(GrantInvalid):
        parse_grant({**render_grant(a_grant()), "cnf": cnf})  # type: ignore[dict-item]  # likewise


@pytest.mark.parametrize(
    "standing, actor, run, is_redelegation",
    [
        (False, "planner", "run_root", False),
        (False, "planner", "run_new", True),
        (False, "other", "run_root", True),
        (True, "planner", "run_root", False),
        (True, "planner", "run_new", False),
        (True, "other", "run_root", True),
        (True, "other", "run_new", True),
    ],
)
def test_a_grant_is_handed_on_to_another_actor_and_unless_it_is_standing_to_another_run(
    standing: bool, actor: str, run: str, is_redelegation: bool
) -> None:
    grant = a_grant(standing=standing, actor="planner", child_run_id=RunId("run_root"))
    assert grant.hands_on_to(actor, RunId(run)) is is_redelegation


def test_several_tool_servers_need_their_names_before_the_tools() -> None:
    assert parse_tool((SUPPORT, BILLING), "billing/refund") == REFUND
    for bare in ("refund", "other/refund", "/refund"):
        with pytest.raises(ValueError, match="server/tool"):
            parse_tool((SUPPORT, BILLING), bare)


def test_a_sole_tool_server_takes_names_as_they_are() -> None:
    assert parse_tool((SUPPORT,), "a/b") == ToolRef(SUPPORT.server, ToolName("a/b"))


def test_a_time_needs_its_offset() -> None:
    with pytest.raises(ValueError, match="offset"):
        parse_time("2026-01-31T12:00:00")


@pytest.mark.parametrize(
    "changes",
    [
        {"parent_grant_id": GrantId("gr_other")},
        {"parent_grant_id": None},
        {"root_grant_id": GrantId("gr_other")},
        {"tenant_id": TenantId("globex")},
        {"depth": 2},
        {"depth": -1},
    ],
)
def test_a_link_that_is_not_its_parents_child_breaks_the_chain(changes: dict[str, object]) -> None:
    root = a_grant()
    with pytest.raises(ChainBroken):
        a_chain(root, a_child(root, **changes))


def test_a_chain_starts_at_a_root_and_has_a_bounded_length() -> None:
    root = a_grant()
    with pytest.raises(ChainBroken):
        a_chain(a_child(root))
    with pytest.raises(ChainBroken):
        a_chain()
    grants = [root]
    while len(grants) <= MAX_LINEAGE:
        grants.append(a_child(grants[-1], grant_id=GrantId(f"gr_{len(grants)}")))
    with pytest.raises(ChainBroken):
        a_chain(*grants)


def test_act_says_every_link_of_a_long_chain_the_standing_grants_run_first() -> None:
    """Complete and nested: of each link who acted, in which run, and for whom (RFC 8693 §4.1)."""
    links = [a_grant(actor="owner", standing=True)]
    for number in range(5):
        grant_id = GrantId(f"gr_{number}")
        links.append(a_child(links[-1], grant_id=grant_id, actor=f"agent{number}", subject="okta#alice"))
    found, act = [], a_chain(*links).actors
    while act:
        assert act.keys() <= {"sub", "run", "act"}
        found.append((act["sub"], act["run"]))
        act = act.get("act", {})  # type: ignore[assignment]  # an object, as every link of it
    assert found == [(link.actor, link.child_run_id) for link in reversed(links)]


def test_act_nests_the_history_and_joins_an_actor_that_stays() -> None:
    root = a_grant(actor="planner")
    token = a_child(root, depth=0, child_run_id=root.child_run_id)
    child = replace(a_child(token), actor="researcher")
    assert a_chain(root, token, child).actors == {
        "sub": "researcher",
        "run": child.child_run_id,
        "act": {"sub": "planner", "run": root.child_run_id},
    }
