"""A case says only what it is about; the rest is one harmless call. What is not understood is refused."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.resources import ResourceRef
from app.core.strict_json import JsonObject, JsonValue
from app.ports import PolicyQuestion
from app.usecases.failures import Malformed
from app.usecases.read_case import DEFAULT_TIME, MAX_SINKS, read_case
from tests.samples import ACME

PAGE: Final = (Path(__file__).parents[2] / "docs" / "policies.md").read_text("utf-8")

EVERYTHING: JsonObject = {
    "subject": "user:ada",
    "actor": "worker-7",
    "clientId": "worker",
    "runId": "run-b",
    "parentRunId": "run-a",
    "depth": 2,
    "server": "support",
    "tool": "case_search",
    "effect": "destructive",
    "trust": "internal",
    "sinks": ["email", "email", "chat"],
    "idempotent": True,
    "maxCostCents": 1.5,
    "now": "2026-05-01T09:30:00+02:00",
    "sourceIp": "2001:DB8::1",
    "resource": {"type": "case", "id": "c_42"},
    "attributes": {"case": {"c_42": {"tier": "gold", "open": True, "weight": 1.5, "owner": None}}},
}


def refusal(call: JsonObject) -> tuple[str, str]:
    with pytest.raises(Malformed) as refused:
        read_case(call, ACME, "/call")
    return refused.value.pointer, refused.value.detail


def test_every_member_reaches_the_question() -> None:
    assert read_case(EVERYTHING, ACME) == PolicyQuestion(
        tenant_id=ACME,
        grant_id="gr_case",
        root_grant_id="gr_case_root",
        depth=2,
        run_id="run-b",
        parent_run_id="run-a",
        subject="user:ada",
        actor="worker-7",
        client_id="worker",
        server="support",
        tool="case_search",
        effect="destructive",
        trust="internal",
        sinks=("chat", "email"),
        idempotent=True,
        max_cost_ucents=15_000,
        now=datetime(2026, 5, 1, 7, 30, tzinfo=UTC),
        source_ip="2001:db8::1",
        resource=ResourceRef("case", "c_42"),
        resource_attributes={"tier": "gold", "open": True, "weight": 1.5, "owner": None},
        attributes={},
    )


def test_a_case_that_says_nothing_is_a_call_of_a_root_that_never_changes() -> None:
    question = read_case({}, ACME)
    assert question == read_case({}, ACME)
    assert (question.depth, question.parent_run_id, question.root_grant_id) == (0, None, question.grant_id)
    assert (question.effect, question.trust, question.now) == ("read", "external_untrusted", DEFAULT_TIME)
    assert (question.resource, question.attributes, question.source_ip) == (None, {}, None)


def test_who_calls_calls_for_itself_unless_the_case_says_otherwise() -> None:
    question = read_case({"clientId": "planner"}, ACME)
    assert (question.subject, question.actor) == ("planner", "planner")
    assert read_case({"clientId": "planner", "subject": "user:ada"}, ACME).actor == "planner"


def test_a_call_below_a_root_has_a_parent() -> None:
    question = read_case({"depth": 1}, ACME)
    assert question.parent_run_id is not None
    assert question.root_grant_id != question.grant_id


def test_whatever_stands_around_a_call_may_be_described() -> None:
    described: JsonObject = {
        "tenant": {ACME: {"plan": "basic"}},
        "subject": {"user:ada": {"team": "support"}},
        "run": {"run-b": {"queue": "night"}},
        "client": {"worker": {}, "worker-7": {"owner": "ops"}},
        "tool-server": {"support": {}},
        "tool": {"support/case_search": {}},
        "case": {"c_42": {}},
    }
    question = read_case(EVERYTHING | {"attributes": described | {"case": {"c_42": {"open": True}}}}, ACME)
    assert len(question.attributes) == 7
    assert question.resource_attributes == {"open": True}


@pytest.mark.parametrize(
    "type_, id_",
    [("tenant", "globex"), ("subject", "user:eve"), ("client", "planner"), ("tool", "case_search"), ("case", "c_41")],
)
def test_what_stands_around_no_call_is_not_described(type_: str, id_: str) -> None:
    call = EVERYTHING | {"attributes": {type_: {id_: {"tier": "gold"}}}}
    assert refusal(call)[1] == "describes nothing that is in this call"


@pytest.mark.parametrize("member", ["tenantId", "tenant_id", "grantId", "max_cost_ucents", "Tool", ""])
def test_a_case_names_no_tenant_and_nothing_unknown(member: str) -> None:
    assert refusal({member: "x"}) == (f"/call/{member}", "is not a member of a call")


def test_the_page_names_every_member_and_what_it_is_unless_said() -> None:
    rows = re.findall(r"^\| (`.+?`) \| (.*?) \|", PAGE.partition("\n## Cases\n")[2], re.MULTILINE)
    members = [name for names, _ in rows for name in re.findall(r"`(\w+)`", names)]
    assert sorted(members) == sorted(EVERYTHING)
    said = {names.strip("`"): default.strip("`") for names, default in rows if default.startswith("`")}
    defaults = {name: json.loads(default) for name, default in said.items()}
    assert len(defaults) == 12
    assert read_case(defaults, ACME) == read_case({}, ACME)


def test_the_pages_examples_are_cases() -> None:
    (cases,) = map(json.loads, re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))
    assert cases
    for case in cases:
        assert case.keys() == {"name", "expect", "call"}
        read_case(case["call"], ACME)


@pytest.mark.parametrize(
    "member, value, pointer",
    [
        ("subject", "", "/call/subject"),
        ("subject", None, "/call/subject"),
        ("subject", "a\nb", "/call/subject"),
        ("actor", "a" * 501, "/call/actor"),
        ("clientId", ["planner"], "/call/clientId"),
        ("depth", True, "/call/depth"),
        ("depth", -1, "/call/depth"),
        ("depth", 1.5, "/call/depth"),
        ("depth", 32, "/call/depth"),
        ("server", "support/case_search", "/call/server"),
        ("tool", "support:case search", "/call/tool"),
        ("effect", "READ", "/call/effect"),
        ("effect", ["read"], "/call/effect"),
        ("trust", "", "/call/trust"),
        ("sinks", "email", "/call/sinks"),
        ("sinks", ["a"] * (MAX_SINKS + 1), "/call/sinks"),
        ("sinks", ["email", 1], "/call/sinks/1"),
        ("idempotent", 1, "/call/idempotent"),
        ("maxCostCents", -1, "/call/maxCostCents"),
        ("maxCostCents", 0.00001, "/call/maxCostCents"),
        ("maxCostCents", "1", "/call/maxCostCents"),
        ("now", "2026-05-01T09:30:00", "/call/now"),
        ("now", 1_777_777_777, "/call/now"),
        ("sourceIp", "10.0.0.0/8", "/call/sourceIp"),
        ("sourceIp", "fe80::1%eth0", "/call/sourceIp"),
        ("sourceIp", 167_772_161, "/call/sourceIp"),
        ("resource", "case/c_42", "/call/resource"),
        ("resource", {"type": "case"}, "/call/resource"),
        ("resource", {"type": "case", "id": "c_42", "tenant": "globex"}, "/call/resource"),
        ("resource", {"type": "Case", "id": "c_42"}, "/call/resource/type"),
        ("resource", {"type": "case", "id": "c\u202e42"}, "/call/resource/id"),
        ("resource", {"type": "case", "id": 42}, "/call/resource/id"),
        ("attributes", [], "/call/attributes"),
        ("attributes", {"Case": {}}, "/call/attributes/Case"),
        ("attributes", {"case": []}, "/call/attributes/case"),
        ("attributes", {"case": {"": {}}}, "/call/attributes/case/"),
        ("attributes", {"case": {"c/42": []}}, "/call/attributes/case/c~142"),
        ("attributes", {"case": {"c_42": {"tags": ["a"]}}}, "/call/attributes/case/c_42/tags"),
        ("attributes", {"case": {"c_42": {"tier": "gold"}}}, "/call/attributes/case/c_42"),
    ],
)
def test_a_member_that_is_none_is_refused_where_it_stands(member: str, value: JsonValue, pointer: str) -> None:
    assert refusal({member: value})[0] == pointer


json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def is_read(call: JsonObject) -> bool:
    """Whether a case is read; whatever else it may do than be refused fails the test."""
    try:
        read_case(call, ACME)
    except Malformed:
        return False
    return True


@given(st.dictionaries(st.sampled_from([*EVERYTHING.keys() - {"attributes"}]), json_values))
def test_a_case_is_read_where_each_of_its_members_is(call: JsonObject) -> None:
    assert is_read(call) is all(is_read({name: value}) for name, value in call.items())
