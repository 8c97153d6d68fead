"""Cedar policies: what they are told, what they permit, and everything that must deny instead of being skipped."""

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import cedarpy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.adapters import cedar_policy as module
from app.adapters.cedar_policy import BUSY, FAULT, TIMED_OUT, UNFIT, UNUSABLE, CedarPolicyEngine
from app.core.grant import TenantId
from app.core.registry import Effect, Trust
from app.core.resources import Attributes, ResourceRef
from app.core.strict_json import JsonScalar
from app.ports import PolicyAnswer, PolicyQuestion
from app.usecases.read_case import read_case

ENGINE = CedarPolicyEngine()
PERMIT_ALL = "permit (principal, action, resource);"
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)  # a Wednesday

QUESTION = PolicyQuestion(
    tenant_id="acme",
    grant_id="gr_2",
    root_grant_id="gr_1",
    depth=1,
    run_id="run_2",
    parent_run_id="run_1",
    subject="ann",
    actor="researcher",
    client_id="researcher",
    server="crm",
    tool="refund",
    effect="write",
    trust="internal",
    sinks=("email",),
    idempotent=True,
    max_cost_ucents=500,
    now=NOON,
    source_ip="192.0.2.7",
    resource=ResourceRef("case", "c_42"),
    resource_attributes={},
    attributes={},
)


def when(condition: str) -> str:
    """A text that permits exactly where the condition holds."""
    return f"permit (principal, action, resource) when {{ {condition} }};"


async def permits(text: str, question: PolicyQuestion = QUESTION) -> bool:
    """What the policies say, where nothing goes wrong."""
    assert ENGINE.flaws(text) == ()
    answer = await ENGINE.answer(text, question)
    assert answer.errors == ()
    return answer.permitted


def denied(error: str) -> PolicyAnswer:
    return PolicyAnswer(permitted=False, errors=(error,))


# --- permitting and denying -------------------------------------------------------------------------------


async def test_what_a_policy_permits_is_permitted_and_the_policy_named() -> None:
    answer = await ENGINE.answer(f'@id("all") {PERMIT_ALL}', QUESTION)
    assert answer == PolicyAnswer(permitted=True, determining=("all",))


async def test_what_no_policy_permits_is_denied() -> None:
    answer = await ENGINE.answer('permit (principal == Run::"another", action, resource);', QUESTION)
    assert answer == PolicyAnswer(permitted=False)


async def test_a_forbid_overrides_every_permit_and_is_named() -> None:
    text = f'{PERMIT_ALL}\n@id("no-refunds") forbid (principal, action, resource == Tool::"crm/refund");\n{PERMIT_ALL}'
    assert await ENGINE.answer(text, QUESTION) == PolicyAnswer(permitted=False, determining=("no-refunds",))


async def test_policies_that_only_forbid_are_usable_and_permit_nothing() -> None:
    text = 'forbid (principal == Run::"another", action, resource);'
    assert not await permits(text)


async def test_a_policy_without_a_name_is_named_by_its_place() -> None:
    text = f'permit (principal == Run::"another", action, resource); {PERMIT_ALL} @id("b") {PERMIT_ALL}'
    assert (await ENGINE.answer(text, QUESTION)).determining == ("b", "policy1")


async def test_an_answer_names_only_so_many_policies() -> None:
    answer = await ENGINE.answer(PERMIT_ALL * 100, QUESTION)
    assert answer.permitted
    assert len(answer.determining) == module.MAX_NAMED


async def test_an_answer_lists_only_so_many_failures() -> None:
    answer = await ENGINE.answer(when("principal.depth + 9223372036854775807 > 0") * 100, QUESTION)
    assert not answer.permitted
    assert len(answer.errors) == module.MAX_NAMED


# --- failures deny ----------------------------------------------------------------------------------------

FAILURES = {
    "principal.depth + 9223372036854775807 > 0": "overflow",
    "-9223372036854775808 - principal.depth < 0": "overflow",
    "resource.maxCostUcents * 9223372036854775807 > 0": "overflow",
    'Run::"s3cret".depth == 0': "unknown_entity",
    'Tool::"crm/s3cret".idempotent': "unknown_entity",
    'context.now.offset(duration("9223372036854775807ms")) > datetime("2026-01-01")': "invalid_value",
}


@pytest.mark.parametrize("condition, code", FAILURES.items())
@pytest.mark.parametrize("effect", ["permit", "forbid"])
async def test_a_policy_that_fails_denies_whatever_the_others_say(condition: str, code: str, effect: str) -> None:
    text = f'{PERMIT_ALL} @id("frail") {effect} (principal, action, resource) when {{ {condition} }}; {PERMIT_ALL}'
    assert ENGINE.flaws(text) == ()
    answer = await ENGINE.answer(text, QUESTION)
    assert not answer.permitted
    assert answer.errors == (f"frail: {code}",)


async def test_a_failure_beside_a_forbid_that_denies_anyway_is_still_told() -> None:
    text = f'@id("no") forbid (principal, action, resource); @id("frail") {when(next(iter(FAILURES)))}'
    answer = await ENGINE.answer(text, QUESTION)
    assert answer == PolicyAnswer(permitted=False, errors=("frail: overflow",), determining=("no",))


async def test_a_policy_fails_only_where_it_applies() -> None:
    text = PERMIT_ALL + 'forbid (principal == Run::"another", action, resource) when { Run::"gone".depth == 0 };'
    assert await permits(text)


CEDAR_FAILURES = {
    'when { principal.subject.getTag("region") == "eu" }': "policy1: missing_attribute",
    "when { context.nothing == 1 }": "policy1: missing_attribute",
    'when { ip("300.0.0.1").isIpv4() }': "policy1: invalid_value",
    'when { datetime("2026-02-30") < context.now }': "policy1: invalid_value",
    'when { context.hour == 1 || context.hour like "1" }': "policy1: wrong_type",
    'when { context has resource && context.resource.getTag("owner") == "ann" }': "policy1: missing_attribute",
    'when { unknown("x") }': "policy1: unknown_value",
}


@pytest.mark.parametrize("condition, error", CEDAR_FAILURES.items())
async def test_a_failure_that_the_check_of_texts_would_have_found_denies_all_the_same(
    condition: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if validation had let it through: the answer does not lean on it."""
    text = f"{PERMIT_ALL} forbid (principal, action, resource) {condition};"
    assert ENGINE.flaws(text) != ()
    engine = CedarPolicyEngine()
    monkeypatch.setattr(module, "_compile", lambda text, schema: _unchecked(text))
    answer = await engine.answer(text, QUESTION)
    assert not answer.permitted
    assert answer.errors == (error,)


def _unchecked(text: str) -> Any:  # noqa: ANN401 - the type is nobody's but the module's
    policies = cedarpy.PolicySet.from_str(text)
    return module._Compiled(policies=policies, names=("policy0", "policy1"))  # noqa: SLF001 - as above


async def test_a_failure_of_which_nothing_was_known_denies_too() -> None:
    sentences = ["s3cret", "error while evaluating policy `policy0`: s3cret"]
    said = {"decision": "Allow", "diagnostics": {"reason": ["policy0"], "errors": sentences}}
    engine = CedarPolicyEngine(decide=lambda *_: cedarpy.AuthzResult(said))
    answer = await engine.answer(PERMIT_ALL, QUESTION)
    engine.close()
    assert answer == PolicyAnswer(
        permitted=False, errors=("policy0: failed", "policy_failed"), determining=("policy0",)
    )


async def test_a_flawed_text_denies() -> None:
    for text in ("", "permit", when("context.nothing"), PERMIT_ALL + "forbid (principal, action, resource"):
        assert await ENGINE.answer(text, QUESTION) == denied(UNUSABLE)


# --- flaws ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        PERMIT_ALL,
        f'// a remark with a bracket ( and a quote "\n{PERMIT_ALL} // {{',
        f'@id("a") @why("because") {PERMIT_ALL}\r\n\t@id("b") {PERMIT_ALL}',
        'permit (principal in Client::"c", action == Action::"call", resource in ToolServer::"s");',
        when(r'principal.grantId like "a\*b*" || principal.grantId == "\"({[\u{1F600}" || "é" == "é"'),
        when('if context has sourceIp then context.sourceIp.isInRange(ip("10.0.0.0/8")) else false'),
        when('[Effect::"read", Effect::"write"].contains(resource.effect) && resource.trust != Trust::"trusted"'),
        when('["2026-12-24", "2026-12-25"].contains(context.date)'),
        when("principal has parentRunId && principal.parentRunId != principal.grantId"),
        when('principal.tenant.hasTag("plan") && principal.tenant.getTag("plan") == "pro"'),
        when('resource.server.hasTag("eu") && resource.sinks.containsAny(["email", "web"])'),
        "permit (principal, action, resource)" + "when { context.hour > 1 }" * 5 + ";",
        'permit (principal is Run, action in [Action::"call"], resource is Tool in ToolServer::"a");',
        when('resource in [ToolServer::"b", ToolServer::"c"] || resource == Tool::"a/b"'),
    ],
)
def test_a_usable_text_has_no_flaw(text: str) -> None:
    assert ENGINE.flaws(text) == ()


@pytest.mark.parametrize(
    "text, flaw",
    [
        ("", "no policy"),
        ("  // permit (principal, action, resource);\n", "no policy"),
        ("permit (principal, action, resource)", "line 1: the text ends in the middle"),
        (f"{PERMIT_ALL}\n\npermit (principal, action)\n;", "line 3: "),
        (f"{PERMIT_ALL}\n\n\n{when('1 1')}", "line 4: unexpected token"),
        (when("context.nothing == 1"), "policy0: attribute `nothing`"),
        (f'{PERMIT_ALL} @id("odd") {when("context.nothing == 1")}', "odd: attribute `nothing`"),
        (when("context.hour == context.date"), "not compatible"),
        (when("context.hour"), "policy0: unexpected type: expected Bool"),
        (when('principal == User::"ann"'), "unrecognized entity type `User`"),
        (when('resource.effect == Effect::"destroy"'), '"destroy"'),
        ('permit (principal, action == Action::"read", resource);', "unrecognized action"),
        (when('principal.subject.getTag("region") == "eu"'), "unable to guarantee safety of access to tag"),
        (when("context.sourceIp.isLoopback()"), "unable to guarantee safety of access"),
        (when('context.resource.type == "case"'), "unable to guarantee safety of access"),
        (when('principal.parentRunId == "run_1"'), "unable to guarantee safety of access"),
        (when('ip("10.0.0.0/99").isIpv4()'), "failed to parse as IP address"),
        (when('context.now < datetime("2026-02-30")'), "failed to parse as a datetime"),
        (when('decimal(principal.grantId) == decimal("1.0")'), "non-literal"),
        (when("[] == resource.sinks"), "empty set"),
        ("permit (principal == ?principal, action, resource);", "line 1: templates"),
        (when('unknown("x")'), "unknown() is not supported"),
        (when('context.hour == 1 || unknown ( "x" ) == 1'), "unknown() is not supported"),
        (f'@id("a") {PERMIT_ALL} @id("a") {PERMIT_ALL}', 'two policies have the @id "a"'),
        (f"@id {PERMIT_ALL}", "an @id is"),
        (f'@id("") {PERMIT_ALL}', "an @id is"),
        (f'@id("policy1") {PERMIT_ALL}', "an @id is"),
        (f'@id("s3cret secret") {PERMIT_ALL}', "an @id is"),
        (rf'@id("a\u{{62}}") {PERMIT_ALL}', "an @id is"),
        (f'@id("a") @id("b") {PERMIT_ALL}', "duplicate annotation"),
        (f"{PERMIT_ALL}\n{when('1 == 1 # 2')}", "line 2: here is no token"),
        (when('"a'), "here is no token"),
        (f"{PERMIT_ALL}\u00a0{PERMIT_ALL}", "here is no token"),
        (when('"\ud800" == "x"'), "surrogates"),
        (when("(1 == 1]"), "a bracket is closed that was not opened last"),
        (f"{PERMIT_ALL} }}", "a bracket is closed that was not opened last"),
        ("permit (principal, action, resource) when { (1 == 1;", "ends with a bracket open"),
        (PERMIT_ALL * (module.MAX_POLICIES + 1), "at most 256 policies"),
        ("//" + "x" * module.MAX_TEXT_BYTES, "at most 65536 bytes"),
        ("//" + "é" * (module.MAX_TEXT_BYTES // 2), "at most 65536 bytes"),
        (when("context has " + ".".join("abcdefghij")), "at most 8 dots"),
        (when(" || ".join([f'context.date like "{"a" * 500}*"'] * 9)), "at most 4096 characters"),
    ],
)
def test_a_flaw_is_told_to_the_author(text: str, flaw: str) -> None:
    flaws = ENGINE.flaws(text)
    assert any(flaw in sentence for sentence in flaws), flaws


def test_flaws_are_few_short_lines() -> None:
    wide = when(f"{{a: 1, b: {{{', '.join(f'field{n}: 1' for n in range(200))}}}}} == 1")
    for text in (when("context.nothing") * 100, wide, when('context["a\\n\\u{202e}\\"b"] == 1')):
        flaws = ENGINE.flaws(text)
        assert 1 <= len(flaws) <= module.MAX_FLAWS
        assert all(flaw.isprintable() and len(flaw) <= module.MAX_FLAW_CHARS for flaw in flaws)


def test_as_many_policies_as_are_allowed_are_usable() -> None:
    assert ENGINE.flaws(PERMIT_ALL * module.MAX_POLICIES) == ()


def nested(deep: int, **leaves: str) -> dict[str, str]:
    """Conditions, each of one kind of operator inside itself so many times; `leaves` go in the place of those here."""
    here = {"true": "true", "false": "false", "one": "1", "now": "context.now"}
    true, false, one, now = (here | leaves).values()
    return {
        "brackets": "(" * deep + true + ")" * deep,
        "not": "!(" * deep + true + ")" * deep,
        "sets": "[" * deep + one + "]" * deep + " == [[1]]",
        "records": "{a: " * deep + one + "}" * deep + " == {a: 1}",
        "calls": "resource.sinks.contains(" * deep + one + ")" * deep,
        "or in brackets": f"({false} || " * deep + true + ")" * deep,
        "plus behind brackets": "(" * deep + one + " + 1)" * deep + " > 0",
        "and": " && ".join([true] * deep),
        "or": " || ".join([false] * deep),
        "plus": " + ".join([one] * deep) + " > 0",
        "times": " * ".join([one] * deep) + " > 0",
        "if": f"if {true} then {true} else " * deep + true,
        "if in if": "if " * deep + true + f" then {true} else {true}" * deep,
        "calls in a row": now + ".toDate()" * deep + f" == {now}",
        "sums joined": " && ".join([" + ".join([one] * deep) + " > 0"] * 3),
        "conditions": f"{true} }}" + f" when {{ {true} }}" * deep + f" when {{ {true}",
    }


UNDECLARED = dict.fromkeys(("true", "false", "one", "now"), "context.nothing")


@pytest.mark.parametrize("kind", nested(1))
def test_a_text_that_nests_too_deeply_is_refused_before_the_library_sees_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object, **__: object) -> None:
        pytest.fail("the parser would take the process down")

    monkeypatch.setattr(module, "PolicySet", crash)
    for deep in (102, 1000, 2500):
        assert "inside one another" in str(ENGINE.flaws(when(nested(deep)[kind])))


def test_depth_can_not_be_hidden_from_the_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PolicySet", None)
    deep = "(" * 1000
    for hidden in (f'"\\"" == {deep}', f'"//" == {deep}', f"1 /* == */ {deep}", f'"\\\\" == {deep}', f"1 //\r {deep}"):
        assert "at most 32 brackets" in str(ENGINE.flaws(when(hidden)))
    named = "context" + ".then.f(1)" * 1000
    assert "at most 100 operators" in str(ENGINE.flaws(when(named)))


def deepest(**leaves: str) -> list[str]:
    """Texts at the limits, with these leaves."""
    brackets, height = module.MAX_BRACKETS - 1, module.MAX_HEIGHT
    one = leaves.get("one", "1")
    conditions = [
        *nested(15, **leaves).values(),
        *(nested(height - 2, **leaves)[kind] for kind in ("and", "or", "plus", "times", "if", "if in if")),
        "(" * (brackets - 1) + " + ".join([one] * (height - brackets - 3)) + " > 0" + ")" * (brackets - 1),
    ]
    return [when(condition) for condition in conditions]


def test_the_deepest_texts_that_are_allowed_are_safe_on_a_small_stack() -> None:
    """In a process of its own: what goes wrong here is no exception, it is a crash, or a check that gives up."""
    script = f"""
import threading
from app.adapters.cedar_policy import SCHEMA
from cedarpy import PolicySet, is_authorized, validate_policies
ask = {{"principal": 'Run::"r"', "action": 'Action::"call"', "resource": 'Tool::"s/t"', "context": {{}}}}
def work():
    for text in {deepest()!r}:
        answer = is_authorized(ask, PolicySet.from_str(text), [])
        assert "recursion" not in str(answer.diagnostics.errors), text
    for text in {deepest(**UNDECLARED)!r}:
        assert "`nothing`" in str(validate_policies(text, SCHEMA).errors), text
    print("safe")
threading.stack_size(2**20)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    assert [text for text in deepest() if "inside one another" in str(ENGINE.flaws(text))] == []
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("safe\n", "")


def test_an_ordinary_policy_is_far_from_the_limits() -> None:
    tags = " && ".join(
        f'principal.subject.hasTag("t{n}") && principal.subject.getTag("t{n}") == "x"' for n in range(12)
    )
    clients = ", ".join(f'Client::"client-{n}"' for n in range(500))
    assert ENGINE.flaws(when(f"{tags} && principal.actor in [{clients}]")) == ()


# --- what policies are told -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    [
        'principal == Run::"run_2"',
        'principal in Client::"researcher"',
        'principal.tenant == Tenant::"acme"',
        'principal.subject == Subject::"ann"',
        'principal.actor == Client::"researcher"',
        "principal.depth == 1",
        'principal.grantId == "gr_2"',
        'principal.rootGrantId == "gr_1"',
        'principal has parentRunId && principal.parentRunId == "run_1"',
        'action == Action::"call"',
        'resource == Tool::"crm/refund"',
        'resource in ToolServer::"crm"',
        'resource.server == ToolServer::"crm"',
        'resource.name == "refund"',
        'resource.effect == Effect::"write"',
        'resource.trust == Trust::"internal"',
        'resource.sinks == ["email"]',
        "resource.idempotent",
        "resource.maxCostUcents == 500",
        'context.client == Client::"researcher"',
        'context has sourceIp && context.sourceIp == ip("192.0.2.7")',
        'context has resource && context.resource == Resource::"case/c_42"',
        'context has resource && context.resource.type == "case" && context.resource.id == "c_42"',
    ],
)
async def test_every_fact_of_a_call_is_told(condition: str) -> None:
    assert await permits(when(condition))
    assert not await permits(when(f"!({condition})"))


@pytest.mark.parametrize(
    "question, condition",
    [
        (replace(QUESTION, idempotent=False), "!resource.idempotent"),
        (replace(QUESTION, depth=0), "principal.depth == 0"),
        (replace(QUESTION, sinks=()), '!resource.sinks.contains("email")'),
        (replace(QUESTION, sinks=("b", "a", "b")), 'resource.sinks == ["a", "b"]'),
        (replace(QUESTION, max_cost_ucents=2**53 - 1), "resource.maxCostUcents == 9007199254740991"),
    ],
)
async def test_another_call_is_told_otherwise(question: PolicyQuestion, condition: str) -> None:
    assert await permits(when(condition), question)
    assert not await permits(when(condition))


async def test_what_is_not_known_is_left_out() -> None:
    unknown = replace(QUESTION, parent_run_id=None, source_ip=None, resource=None)
    assert not await permits(when("principal has parentRunId || context has sourceIp || context has resource"), unknown)


async def test_who_presents_the_credential_may_be_another_than_the_actor() -> None:
    question = replace(QUESTION, client_id="gateway", attributes={ResourceRef("client", "gateway"): {"kind": "proxy"}})
    condition = 'context.client != principal.actor && context.client.hasTag("kind") && !principal.actor.hasTag("kind")'
    assert await permits(when(condition), question)


@pytest.mark.parametrize("effect", Effect)
@pytest.mark.parametrize("trust", Trust)
async def test_every_word_of_the_registry_is_known(effect: Effect, trust: Trust) -> None:
    question = replace(QUESTION, effect=effect.value, trust=trust.value)
    text = when(f'resource.effect == Effect::"{effect.value}" && resource.trust == Trust::"{trust.value}"')
    assert await permits(text, question)


KINDS = {
    "tenant": ("acme", "principal.tenant"),
    "subject": ("ann", "principal.subject"),
    "client": ("researcher", "principal.actor"),
    "run": ("run_2", "principal"),
    "tool": ("crm/refund", "resource"),
    "tool-server": ("crm", "resource.server"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_the_directory_s_attributes_are_tags_of_what_they_describe(kind: str) -> None:
    id_, entity = KINDS[kind]
    tagged = replace(QUESTION, attributes={ResourceRef(kind, id_): {"region": "eu"}})
    text = when(f'{entity}.hasTag("region") && {entity}.getTag("region") == "eu"')
    assert await permits(text, tagged)
    assert not await permits(text)
    others = [other for name, (_, other) in KINDS.items() if name != kind]
    assert not await permits(when(" || ".join(f'{other}.hasTag("region")' for other in others)), tagged)


async def test_the_named_resource_has_its_tags_and_no_other_s() -> None:
    named = replace(
        QUESTION,
        resource_attributes={"tier": "top"},
        attributes={ResourceRef("case", "c_42"): {"tier": "low", "other": "x"}},
    )
    text = when('context has resource && context.resource.hasTag("tier") && context.resource.getTag("tier") == "top"')
    assert await permits(text, named)
    assert not await permits(text, replace(named, resource_attributes={"tier": "low"}))
    other = when('context has resource && context.resource.hasTag("other")')
    assert not await permits(other, named)


async def test_what_is_on_record_of_a_named_thing_never_describes_who_calls() -> None:
    subject = ResourceRef("subject", "ann")
    text = when('!principal.subject.hasTag("suspended")')
    suspended = replace(QUESTION, attributes={subject: {"suspended": True}})
    assert not await permits(text, suspended)
    assert not await permits(text, replace(suspended, resource=subject, resource_attributes={}))
    assert await permits(text, replace(QUESTION, resource=subject, resource_attributes={"suspended": True}))


@pytest.mark.parametrize(
    "value, tag",
    [("eu", "eu"), ("", ""), (True, "true"), (False, "false"), (None, "null"), (5, "5"), (5.0, "5"), (-1.5, "-1.5")],
)
async def test_a_tag_is_a_string_whatever_the_attribute_is(value: JsonScalar, tag: str) -> None:
    question = replace(QUESTION, attributes={ResourceRef("subject", "ann"): {"x": value}})
    assert await permits(when(f'principal.subject.hasTag("x") && principal.subject.getTag("x") == "{tag}"'), question)


# --- time and place ---------------------------------------------------------------------------------------

TWO_HOURS_EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    "now, moment, weekday",
    [
        (NOON, "2026-03-04T12:00:00.000Z", 3),
        (datetime(2026, 3, 1, 23, 59, 59, 999_999, tzinfo=UTC), "2026-03-01T23:59:59.999Z", 7),
        (datetime(2026, 3, 2, tzinfo=UTC), "2026-03-02T00:00:00.000Z", 1),
        (datetime(2026, 3, 2, 0, 0, 0, 1, tzinfo=UTC), "2026-03-02T00:00:00.000Z", 1),
        (datetime(2026, 3, 2, 1, 30, tzinfo=TWO_HOURS_EAST), "2026-03-01T23:30:00.000Z", 7),
        (datetime(2026, 2, 28, 22, 30, tzinfo=timezone(timedelta(hours=-2))), "2026-03-01T00:30:00.000Z", 7),
        (datetime(2024, 2, 29, 8, 5, tzinfo=UTC), "2024-02-29T08:05:00.000Z", 4),
        (datetime(2026, 3, 29, 2, 30, tzinfo=UTC), "2026-03-29T02:30:00.000Z", 7),
        (datetime(9998, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "9998-12-31T23:59:59.999Z", 4),
        (datetime(1969, 12, 31, 23, 59, tzinfo=UTC), "1969-12-31T23:59:00.000Z", 3),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000Z", 1),
    ],
)
async def test_the_time_is_told_in_utc_and_cut_not_rounded(now: datetime, moment: str, weekday: int) -> None:
    date, hour, minute = moment[:10], int(moment[11:13]), int(moment[14:16])
    text = when(
        f'context.now == datetime("{moment}") && context.date == "{date}" && context.weekday == {weekday}'
        f" && context.hour == {hour} && context.minute == {minute}"
    )
    assert await permits(text, replace(QUESTION, now=now))


@pytest.mark.parametrize(
    "now, permitted",
    [
        (datetime(2026, 3, 6, 7, 59, 59, 999_999, tzinfo=UTC), False),
        (datetime(2026, 3, 6, 8, tzinfo=UTC), True),
        (datetime(2026, 3, 6, 17, 59, 59, 999_999, tzinfo=UTC), True),
        (datetime(2026, 3, 6, 18, tzinfo=UTC), False),
        (datetime(2026, 3, 7, 12, tzinfo=UTC), False),
        (datetime(2026, 3, 7, 1, tzinfo=timezone(timedelta(hours=9))), True),
    ],
)
async def test_a_time_window_opens_and_closes_on_the_moment(now: datetime, permitted: bool) -> None:
    text = when("context.weekday <= 5 && context.hour >= 8 && context.hour < 18")
    assert await permits(text, replace(QUESTION, now=now)) == permitted


async def test_a_time_without_a_zone_is_no_time() -> None:
    assert await ENGINE.answer(PERMIT_ALL, replace(QUESTION, now=NOON.replace(tzinfo=None))) == denied(UNFIT)


@pytest.mark.parametrize(
    "address, network",
    [
        ("10.1.2.3", "10.0.0.0/8"),
        ("::ffff:10.1.2.3", "10.0.0.0/8"),
        ("::ffff:0a01:0203", "10.0.0.0/8"),
        ("2001:db8::1", "2001:db8::/32"),
        ("2001:0DB8:0:0:0:0:0:1", "2001:db8::/32"),
        ("fe80::1%eth0", "fe80::/10"),
    ],
)
async def test_an_address_is_in_its_network_however_it_is_written(address: str, network: str) -> None:
    text = when(f'context has sourceIp && context.sourceIp.isInRange(ip("{network}"))')
    assert await permits(text, replace(QUESTION, source_ip=address))
    assert not await permits(text, replace(QUESTION, source_ip="192.0.2.7"))


@pytest.mark.parametrize("address", ["", "somewhere", "10.0.0.0/8", "10.1.2.3:80", "010.1.2.3", "[::1]", "::1/0"])
async def test_what_is_no_address_denies(address: str) -> None:
    assert await ENGINE.answer(PERMIT_ALL, replace(QUESTION, source_ip=address)) == denied(UNFIT)


# --- hostile facts ----------------------------------------------------------------------------------------

HOSTILE = [
    'victim" || true || "',
    '"',
    "\\",
    '\\"',
    'Run::"victim"',
    "::",
    "a\nb",
    "\x00",
    "\u2028",
    "\u202evictim",
    "😀",
    "victim ",
    "VICTIM",
    "é",
    "e\u0301",
    "__entity",
    '{"__entity": {"type": "Run", "id": "victim"}}',
    "",
    "?principal",
    "*",
]


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_name_is_nobody_s_but_its_own(name: str) -> None:
    hostile = replace(QUESTION, run_id=name, subject=name, actor=name, client_id=name, tenant_id=name)
    hostile = replace(hostile, tool=name, resource=ResourceRef("case", name), sinks=(name,))
    victims = [
        'principal == Run::"victim"',
        'principal in Client::"victim"',
        'principal.subject == Subject::"victim"',
        'principal.tenant == Tenant::"victim"',
        'resource == Tool::"crm/victim"',
        'resource.sinks.contains("victim")',
        'context has resource && context.resource == Resource::"case/victim"',
    ]
    assert not await permits(when(" || ".join(f"({victim})" for victim in victims)), hostile)


@given(name=st.text(max_size=30), other=st.text(max_size=30))
@example(name='"', other="\\")
@example(name="victim", other="victim\x00")
def test_what_is_said_arrives_whole(name: str, other: str) -> None:
    attributes: dict[ResourceRef, Attributes] = {ResourceRef("subject", name): {"name": other, name: "named"}}
    question = replace(QUESTION, subject=name, grant_id=other, parent_run_id=name, attributes=attributes)
    same = when(
        'principal.subject.hasTag("name") && principal.subject.getTag("name") == principal.grantId'
        " && principal has parentRunId && principal.subject.hasTag(principal.parentRunId)"
        ' && principal.subject.getTag(principal.parentRunId) == "named"'
    )
    equal = when("principal has parentRunId && principal.parentRunId == principal.grantId")

    async def both() -> tuple[bool, bool]:
        return await permits(same, question), await permits(equal, question)

    assert asyncio.run(both()) == (name != "name", name == other)


async def test_a_name_that_is_no_text_denies() -> None:
    for question in (
        replace(QUESTION, run_id="\ud800"),
        replace(QUESTION, grant_id="\ud800"),
        replace(QUESTION, attributes={ResourceRef("subject", "ann"): {"x": "\ud800"}}),
    ):
        answer = await ENGINE.answer(PERMIT_ALL, question)
        assert not answer.permitted
        assert answer.errors


@pytest.mark.parametrize("name", ["__entity", "__extn", "__expr", "", "type", 'a"b', "😀\n"])
async def test_an_attribute_may_be_called_like_anything(name: str) -> None:
    attributes: dict[ResourceRef, Attributes] = {
        ResourceRef("subject", "ann"): {name: "x"},
        ResourceRef("run", "run_2"): {"name": name},
    }
    text = when(
        'principal.hasTag("name") && principal.subject.hasTag(principal.getTag("name"))'
        ' && principal.subject.getTag(principal.getTag("name")) == "x"'
    )
    assert await permits(text, replace(QUESTION, attributes=attributes))


LONG = "x" * (module.MAX_STRING_CHARS + 1)


@pytest.mark.parametrize(
    "question",
    [
        replace(QUESTION, server="crm/x", tool="y"),
        replace(QUESTION, resource=ResourceRef("case/x", "y")),
        replace(QUESTION, effect="s3cret"),
        replace(QUESTION, trust=""),
        replace(QUESTION, depth=2**63),
        replace(QUESTION, max_cost_ucents=-(2**63) - 1),
        replace(QUESTION, grant_id=LONG),
        replace(QUESTION, run_id=LONG),
        replace(QUESTION, sinks=(LONG,)),
        replace(QUESTION, attributes={ResourceRef("subject", "ann"): {"x": LONG}}),
        replace(QUESTION, attributes={ResourceRef("subject", "ann"): {LONG: "x"}}),
        replace(QUESTION, attributes={ResourceRef("subject", "ann"): {f"x{n}": n for n in range(65)}}),
    ],
)
async def test_a_call_that_policies_can_not_be_told_of_is_denied(question: PolicyQuestion) -> None:
    assert await ENGINE.answer(PERMIT_ALL, question) == denied(UNFIT)


async def test_no_error_repeats_a_value() -> None:
    known = replace(
        QUESTION, run_id="s3cret-run", subject="s3cret-subject", tool="s3cret-tool", grant_id="s3cret-grant"
    )
    texts = [PERMIT_ALL, *map(when, FAILURES)]
    unfit = replace(known, effect="s3cret-effect")
    answers = [await ENGINE.answer(text, question) for text in texts for question in (known, unfit)]
    assert "s3cret" not in repr(answers)
    assert [answer.permitted for answer in answers] == [True] + [False] * (len(answers) - 1)


# --- time-outs, load and faults ---------------------------------------------------------------------------


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Gate:
    """Stands where Cedar would decide, and lets nothing through before it is opened."""

    opened: threading.Event = field(default_factory=threading.Event)
    entered: list[str] = field(default_factory=list)
    first: threading.Event = field(default_factory=threading.Event)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.first.wait, 60)

    def __call__(self, request: dict[str, Any], *rest: Any) -> cedarpy.AuthzResult:  # noqa: ANN401 - passed on
        self.entered.append(request["principal"]["id"])
        self.first.set()
        assert self.opened.wait(60)
        return cedarpy.is_authorized(request, *rest)


@contextmanager
def gated(**arguments: Any) -> Iterator[tuple[CedarPolicyEngine, Gate]]:  # noqa: ANN401 - passed on
    gate = Gate()
    engine = CedarPolicyEngine(decide=gate, **arguments)
    try:
        yield engine, gate
    finally:
        gate.opened.set()
        engine.close()


async def settled(engine: CedarPolicyEngine, run_id: str) -> PolicyAnswer:
    """The answer once there is a place for the question."""
    while True:
        answer = await engine.answer(PERMIT_ALL, replace(QUESTION, run_id=run_id))
        if answer.errors != (BUSY,):
            return answer
        await asyncio.sleep(0)


async def test_an_answer_that_does_not_come_in_time_is_a_denial() -> None:
    with gated(timeout_seconds=0.01) as (engine, _):
        assert await engine.answer(PERMIT_ALL, QUESTION) == denied(TIMED_OUT)


async def test_an_answer_that_comes_too_late_is_a_denial_even_if_it_is_there() -> None:
    clock = Clock()

    def dawdle(*facts: Any) -> cedarpy.AuthzResult:  # noqa: ANN401 - passed on
        clock.now += 1.5
        return cedarpy.is_authorized(*facts)

    engine = CedarPolicyEngine(timeout_seconds=1, decide=dawdle, clock=clock)
    assert await engine.answer(PERMIT_ALL, QUESTION) == denied(TIMED_OUT)
    engine.close()


async def test_questions_beyond_those_that_may_wait_are_denied_at_once() -> None:
    with gated(threads=1, waiting=1, timeout_seconds=60) as (engine, gate):
        asked = [asyncio.create_task(engine.answer(PERMIT_ALL, QUESTION)) for _ in range(5)]
        answers = [await task for task in asked[2:]]
        assert answers == [denied(BUSY)] * 3
        gate.opened.set()
        assert [(await task).permitted for task in asked[:2]] == [True, True]
        assert (await settled(engine, "later")).permitted


async def test_what_timed_out_keeps_its_place_until_the_thread_is_free_again() -> None:
    with gated(threads=1, waiting=0, timeout_seconds=0.01, clock=Clock()) as (engine, gate):
        assert await engine.answer(PERMIT_ALL, QUESTION) == denied(TIMED_OUT)
        await gate.reached()
        for _ in range(50):
            assert await engine.answer(PERMIT_ALL, QUESTION) == denied(BUSY)
        assert len(gate.entered) == 1


async def test_nothing_is_evaluated_that_nobody_waits_for_any_more() -> None:
    clock = Clock()
    with gated(threads=1, waiting=1, timeout_seconds=0.01, clock=clock) as (engine, gate):
        asked = [engine.answer(PERMIT_ALL, replace(QUESTION, run_id=name)) for name in ("stuck", "behind")]
        assert await asyncio.gather(*asked) == [denied(TIMED_OUT)] * 2
        clock.now = 1.0
        gate.opened.set()
        while "later" not in gate.entered:
            await settled(engine, "later")
        assert "behind" not in gate.entered


async def test_a_caller_who_is_cancelled_is_cancelled_and_leaves_no_place_taken() -> None:
    with gated(threads=1, waiting=0, timeout_seconds=60) as (engine, gate):
        asked = asyncio.create_task(engine.answer(PERMIT_ALL, QUESTION))
        await gate.reached()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        gate.opened.set()
        assert (await settled(engine, "later")).permitted


class PanicException(BaseException):
    """Called like what a panic in Rust becomes."""


@pytest.mark.parametrize("fault", [ValueError("s3cret"), RecursionError(), MemoryError(), PanicException("s3cret")])
async def test_whatever_the_library_raises_denies(fault: BaseException) -> None:
    def fail(*_: object) -> cedarpy.AuthzResult:
        raise fault

    engine = CedarPolicyEngine(decide=fail, threads=1, waiting=0)
    assert await engine.answer(PERMIT_ALL, QUESTION) == denied(FAULT)
    assert await settled(engine, "again") == denied(FAULT)
    engine.close()


@pytest.mark.parametrize("fault", [RuntimeError("s3cret"), PanicException("s3cret")])
async def test_a_fault_of_the_parser_is_a_flaw_and_denies_and_is_not_remembered(
    fault: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault

    engine = CedarPolicyEngine()
    with monkeypatch.context() as patch:
        patch.setattr(module, "validate_policies", fail)
        assert engine.flaws(PERMIT_ALL) == ("the policies can't be read",)
        assert await engine.answer(PERMIT_ALL, QUESTION) == denied(FAULT)
    assert (await engine.answer(PERMIT_ALL, QUESTION)).permitted
    engine.close()


def test_an_interrupt_is_no_flaw(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "validate_policies", interrupt)
    with pytest.raises(KeyboardInterrupt):
        CedarPolicyEngine().flaws(PERMIT_ALL)


async def test_an_engine_that_was_closed_denies() -> None:
    engine = CedarPolicyEngine(threads=1, waiting=0)
    engine.close()
    for _ in range(3):
        assert await engine.answer(PERMIT_ALL, QUESTION) == denied(FAULT)


async def test_what_waits_when_the_engine_is_closed_is_denied() -> None:
    with gated(threads=1, waiting=1, timeout_seconds=60) as (engine, gate):
        asked = [asyncio.create_task(engine.answer(PERMIT_ALL, QUESTION)) for _ in range(2)]
        await gate.reached()
        engine.close()
        assert await asked[1] == denied(FAULT)
        gate.opened.set()
        assert (await asked[0]).permitted


async def test_many_questions_at_once_get_each_their_own_answer() -> None:
    texts = [when(f"principal.depth == {depth}") for depth in range(4)]
    asked = [(text, depth, number) for number, text in enumerate(texts) for depth in range(4) for _ in range(10)]
    answers = await asyncio.gather(*(ENGINE.answer(text, replace(QUESTION, depth=depth)) for text, depth, _ in asked))
    assert [answer.permitted for answer in answers] == [depth == number for _, depth, number in asked]


# --- what is kept -----------------------------------------------------------------------------------------


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that the library was asked about, each time."""
    asked: list[str] = []
    validate: Callable[..., Any] = cedarpy.validate_policies

    def note(text: str, *rest: object, **options: object) -> Any:  # noqa: ANN401 - passed on
        asked.append(text)
        return validate(text, *rest, **options)

    monkeypatch.setattr(module, "validate_policies", note)
    return asked


async def test_a_text_is_compiled_once(compiled: list[str]) -> None:
    engine = CedarPolicyEngine()
    flawed = when("context.nothing")
    for _ in range(3):
        assert engine.flaws(PERMIT_ALL) == ()
        assert (await engine.answer(PERMIT_ALL, QUESTION)).permitted
        assert await engine.answer(flawed, QUESTION) == denied(UNUSABLE)
    assert compiled == [PERMIT_ALL, flawed]
    engine.close()


async def test_texts_used_least_recently_are_forgotten_and_still_understood(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_CHARS", 2500)  # two texts of this size with what each counts for
    engine = CedarPolicyEngine()
    first, second, third = (when(f"principal.depth == {depth}") for depth in range(3))
    for text in (first, second, first, third, first, second):
        assert (await engine.answer(text, QUESTION)).permitted == (text is second)
    assert compiled == [first, second, third, second]
    engine.close()


# --- the page for authors ---------------------------------------------------------------------------------

PAGE = (Path(__file__).parent.parent.parent / "docs" / "policies.md").read_text()
EXAMPLES = re.findall(r"```cedar\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example_", EXAMPLES)
def test_every_example_of_the_page_is_usable(example_: str) -> None:
    assert ENGINE.flaws(example_) == ()


def test_the_page_shows_its_examples_together_without_a_clash() -> None:
    assert len(EXAMPLES) >= 8
    assert ENGINE.flaws("\n".join(EXAMPLES)) == ()


async def test_the_cases_of_the_page_have_the_answers_that_it_says() -> None:
    text = "\n".join(example_ for example_ in EXAMPLES if '"office-hours"' in example_ or "eu-subjects" in example_)
    (cases,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    for case in json.loads(cases):
        question = read_case(case["call"], TenantId("acme"))
        assert await permits(text, question) == (case["expect"] == "permit"), case["name"]


def test_the_page_names_every_fact_failure_and_limit() -> None:
    declared = re.findall(r'^ +"(\w+)"\??:', module.SCHEMA, re.MULTILINE)
    errors = [BUSY, FAULT, TIMED_OUT, UNFIT, UNUSABLE, *module._FAILURES.values()]  # noqa: SLF001 - the page's table
    assert [name for name in [*declared, *errors] if f"`{name}`" not in PAGE] == []
    assert f"{module.MAX_TEXT_BYTES // 1024} KiB of text, {module.MAX_POLICIES} policies" in PAGE
    assert f"{module.MAX_BRACKETS} brackets and {module.MAX_HEIGHT} operators" in PAGE
    assert f"{module.MAX_PATH} dots in a path, {module.MAX_PATTERN_CHARS} characters" in PAGE
