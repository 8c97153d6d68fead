"""The corpus of the constraint language, run through the real code. Its verdicts come from the specification.

Each test is a topic of the corpus and names every case of it that went otherwise.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest
from urllib3.util import parse_url
from yarl import URL

from app.core.constraints import (
    ConstraintInvalid,
    ToolRule,
    check_arguments,
    fill_bindings,
    flaw_in,
    parse_tool_rule,
    render_tool_rule,
)
from app.core.narrowing import Ground, Refusal, narrow_tool_rule, narrows, rule_within
from app.core.spelling import KINDS
from app.core.strict_json import JsonObject, JsonValue, StrictJsonError, canonical, parse
from app.core.urls import SCHEMES, read_url
from tests.vectors.corpus import BINDINGS, RESOURCES, Case, cases, sections

ACCEPT: Final = ("accept", None)
NO_JSON: Final = ("refuse", None)
PROVEN: Final = "proven"


def rule_of(document: JsonValue) -> ToolRule:
    return parse_tool_rule(document, pointer="")


def about_one(constraint: JsonObject) -> ToolRule:
    return rule_of({"x": constraint})


def strictly(text: str) -> JsonValue:
    """A text as a request's body is read."""
    return parse(text.encode(), max_bytes=2**16, max_depth=32)


def decided(rule: ToolRule, arguments: JsonObject) -> tuple[str, str | None]:
    """As a decision does: bound arguments filled in, then that no rule may look at, then the rule."""
    filled = fill_bindings(rule, arguments, BINDINGS)
    objection = flaw_in(filled) or check_arguments(rule, filled, BINDINGS, resources=RESOURCES)
    return ACCEPT if objection is None else ("refuse", objection.reason.value)


def expected(case: Case) -> tuple[str, str | None]:
    return case["verdict"], case.get("reason")


def ground() -> Ground:
    return Ground(resources=RESOURCES)


def topics(part: str) -> pytest.MarkDecorator:
    found = sections(part)
    return pytest.mark.parametrize("section", found.values(), ids=found)


# --- values and calls -------------------------------------------------------------------------------------


def verdict_on_value(case: Case) -> tuple[str, str | None]:
    rule = about_one(case["constraint"])
    if "absent" in case:
        return decided(rule, {})
    try:
        return decided(rule, {"x": strictly(case["text"]) if "text" in case else case["value"]})
    except StrictJsonError:
        return NO_JSON


def verdict_on_call(case: Case) -> tuple[str, str | None]:
    try:
        arguments = strictly(case["text"]) if "text" in case else case["arguments"]
    except StrictJsonError:
        return NO_JSON
    assert isinstance(arguments, dict), case
    return decided(rule_of(case["rule"]), arguments)


@topics("evaluation")
def test_a_value_is_judged_as_specified(section: list[Case]) -> None:
    assert [(verdict, case) for case in section if (verdict := verdict_on_value(case)) != expected(case)] == []


@topics("calls")
def test_a_call_is_judged_as_specified(section: list[Case]) -> None:
    assert [(verdict, case) for case in section if (verdict := verdict_on_call(case)) != expected(case)] == []


# --- narrowing --------------------------------------------------------------------------------------------


def verdict_of(refusal: Refusal | None) -> str:
    return PROVEN if refusal is None else refusal.reason.value


def verdict_on_pair(case: Case) -> str:
    return verdict_of(rule_within(about_one(case["child"]), about_one(case["parent"]), ground()))


@topics("narrowing")
def test_a_child_is_proven_narrower_or_refused_as_specified(section: list[Case]) -> None:
    assert [(verdict, case) for case in section if (verdict := verdict_on_pair(case)) != case["verdict"]] == []


def is_about_the_value_alone(case: Case) -> bool:
    """Whether nothing depends on it being an argument's constraint: that may be optional, absent or bound."""
    return not {"optional", "absent", "bind"} & {*case["child"], *case["parent"]}


@topics("narrowing")
def test_a_constraint_is_proven_as_the_argument_that_has_it(section: list[Case]) -> None:
    for case in filter(is_about_the_value_alone, section):
        child, parent = (about_one(case[side]).arguments["x"].constraint for side in ("child", "parent"))
        assert verdict_of(narrows(child, parent, ground())) == case["verdict"], case


def witness_in(case: Case) -> JsonObject | None:
    """The arguments that show a child to be wider."""
    if "witnessAbsent" in case:
        return {}
    return {"x": case["witness"]} if "witness" in case else None


@topics("narrowing")
def test_a_witness_is_allowed_by_the_child_and_refused_by_the_parent(section: list[Case]) -> None:
    for case in section:
        arguments = witness_in(case)
        if arguments is not None:
            assert case["verdict"] != PROVEN, case
            assert decided(about_one(case["child"]), arguments) == ACCEPT, case
            assert decided(about_one(case["parent"]), arguments) != ACCEPT, case


@topics("narrowing")
def test_no_witness_of_one_case_refutes_what_is_proven_of_another(section: list[Case]) -> None:
    pool = {canonical(arguments): arguments for case in section if (arguments := witness_in(case)) is not None}
    sound = [arguments for arguments in pool.values() if flaw_in(arguments) is None]
    for case in section:
        if case["verdict"] == PROVEN:
            allowed = allowed_by(case["child"], sound)
            assert allowed_by(case["parent"], allowed) == allowed, case


def allowed_by(constraint: JsonObject, calls: list[JsonObject]) -> list[JsonObject]:
    """Those calls that are allowed as they stand: what one rule fills in the other may not."""
    rule = about_one(constraint)
    return [call for call in calls if check_arguments(rule, call, BINDINGS, resources=RESOURCES) is None]


@topics("toolNarrowing")
def test_a_childs_rule_for_a_tool_is_met_with_its_parents_as_specified(section: list[Case]) -> None:
    for case in section:
        child = None if case["childRule"] is None else rule_of(case["childRule"])
        stored = narrow_tool_rule(child, rule_of(case["parentRule"]), ground())
        if isinstance(stored, Refusal):
            assert stored.reason.value == case["verdict"], case
        else:
            assert (PROVEN, canonical(render_tool_rule(stored))) == (case["verdict"], canonical(case["stored"])), case


@topics("toolNarrowing")
def test_a_witness_is_allowed_by_the_childs_rule_and_refused_by_its_parents(section: list[Case]) -> None:
    for case in section:
        if "witness" in case:
            inherited = {name: rule for name, rule in case["parentRule"].items() if name != "*"}
            assert decided(rule_of(inherited | case["childRule"]), case["witness"]) == ACCEPT, case
            assert decided(rule_of(case["parentRule"]), case["witness"]) != ACCEPT, case


# --- documents --------------------------------------------------------------------------------------------


def where_refused(case: Case) -> str | None:
    """Where the document goes wrong; None where its text is no strict JSON, so that there is no document."""
    try:
        rule_of(strictly(case["text"]) if "text" in case else case["document"])
    except ConstraintInvalid as error:
        return error.pointer
    except StrictJsonError:
        return None
    return "nowhere"


@topics("invalid")
def test_a_document_is_refused_where_it_goes_wrong(section: list[Case]) -> None:
    assert [(place, case) for case in section if (place := where_refused(case)) != case.get("pointer")] == []


def test_a_rule_that_the_corpus_uses_is_read_back_from_how_it_is_rendered() -> None:
    documents = [{"x": case["constraint"]} for case in cases("evaluation")] + [case["rule"] for case in cases("calls")]
    for document in {canonical(document): document for document in documents}.values():
        rule = rule_of(document)
        assert rule_of(render_tool_rule(rule)) == rule, document


# --- URLs, as others read them ----------------------------------------------------------------------------


class Reading(NamedTuple):
    """What a parser makes of a URL: an absent port is its scheme's, an absent path `/`."""

    scheme: str
    host: str
    port: int | None
    path: str


def by_urllib(text: str) -> Reading:
    parts = urlsplit(text)
    return Reading(parts.scheme, parts.hostname or "", parts.port or SCHEMES.get(parts.scheme), parts.path or "/")


def by_urllib3(text: str) -> Reading:
    parts = parse_url(text)
    scheme, host = parts.scheme or "", (parts.host or "").strip("[]").lower()
    return Reading(scheme, host, parts.port or SCHEMES.get(scheme), parts.path or "/")


def by_httpx(text: str) -> Reading:
    url = httpx.URL(text)
    path = url.raw_path.decode().partition("?")[0]
    return Reading(url.scheme, url.raw_host.decode(), url.port or SCHEMES.get(url.scheme), path)


def by_yarl(text: str) -> Reading:
    url = URL(text)
    return Reading(url.scheme, url.raw_host or "", url.port or SCHEMES.get(url.scheme), url.raw_path or "/")


READERS: Final[list[Callable[[str], Reading]]] = [by_urllib, by_urllib3, by_httpx, by_yarl]


def readings(text: str) -> list[Reading | None]:
    """What each parser makes of it; None where it makes nothing."""
    return [_reading(reader, text) for reader in READERS]


def _reading(reader: Callable[[str], Reading], text: str) -> Reading | None:
    try:
        return reader(text)
    except (ValueError, httpx.InvalidURL):
        return None


def urls(verdict: str) -> Iterator[Case]:
    return (case for case in cases("evaluation") if "url" in case["constraint"] and case["verdict"] == verdict)


def test_a_url_that_is_accepted_is_read_alike_by_everybody() -> None:
    for case in urls("accept"):
        url = read_url(case["value"])
        assert url is not None, case
        ours = Reading(url.scheme, url.host.strip("[]"), url.port, url.path)
        assert readings(case["value"]) == [ours] * len(READERS), case


def test_a_url_that_is_said_to_differ_is_read_differently_by_two_parsers_at_least() -> None:
    differing = [case for case in urls("refuse") if "differs" in case]
    assert len(differing) >= 25
    for case in differing:
        assert len(set(readings(case["value"]))) > 1, case
        assert read_url(case["value"]) is None, case


# --- the corpus itself ------------------------------------------------------------------------------------

MEMBERS: Final[dict[str, tuple[set[str], set[str], list[set[str]]]]] = {
    "evaluation": ({"constraint", "verdict", "why"}, {"reason", "differs"}, [{"value"}, {"text"}, {"absent"}]),
    "calls": ({"rule", "verdict", "why"}, {"reason"}, [{"arguments"}, {"text"}]),
    "narrowing": ({"child", "parent", "verdict", "why"}, set(), [set(), {"witness"}, {"witnessAbsent"}]),
    "toolNarrowing": ({"childRule", "parentRule", "verdict", "why"}, set(), [set(), {"witness"}, {"stored"}]),
    "invalid": ({"why"}, set(), [{"document", "pointer"}, {"text"}, {"text", "pointer"}]),
}
"""By part: the members of every case, those that it may have, and the ways to say the rest."""

ANSWERS: Final = {"verdict", "reason", "why", "witness", "witnessAbsent", "differs", "stored", "pointer"}


@pytest.mark.parametrize("part", MEMBERS)
def test_every_case_is_shaped_as_its_part_says_and_has_a_reason(part: str) -> None:
    required, optional, ways = MEMBERS[part]
    for case in cases(part):
        assert case.keys() >= required, case
        assert case.keys() - required - optional in ways, case
        assert case["why"], case


@pytest.mark.parametrize("part", MEMBERS)
def test_no_question_is_asked_twice(part: str) -> None:
    questions = [canonical({name: case[name] for name in case.keys() - ANSWERS}) for case in cases(part)]
    assert len(questions) == len(set(questions))


def test_every_kind_allows_something_and_refuses_something() -> None:
    kinds = {
        verdict: {kind for case in cases("evaluation") if case["verdict"] == verdict for kind in case["constraint"]}
        for verdict in ("accept", "refuse")
    }
    assert kinds["accept"] - {"optional"} == KINDS.keys()
    assert kinds["refuse"] - {"optional"} == KINDS.keys()


def test_every_kind_is_compared_with_every_kind() -> None:
    compared = {pair for case in cases("narrowing") for pair in product(case["child"], case["parent"])}
    assert compared >= {*product(KINDS, repeat=2)}
