"""The constraint language: what a grant may spell, and which arguments a spelling lets through."""

from typing import Any, Final

import pytest

from app.core.constraints import (
    Bindings,
    ConstraintInvalid,
    Objection,
    ToolRule,
    check_arguments,
    fill_bindings,
    flaw_in,
    parse_tool_rule,
    render_tool_rule,
)
from app.core.kinds import MAX_PATH_CHARS, Constraint, Decimal, Int, List, Site, Str, judge, spell_decimal
from app.core.kinds.base import CHARS_A_STEP, STEPS_TO_READ
from app.core.reasons import Reason
from app.core.resources import ResourceRef, Resources
from app.core.spelling import KINDS
from app.core.steps import MAX_STEPS, OutOfSteps, Steps
from app.core.strict_json import JsonObject, JsonValue, canonical, parse

SAFE: Final = 2**53 - 1
BINDINGS: Final = {"tenantId": "t_1", "subject": "user:7", "childRunId": None}
INVALID, OUTSIDE = Reason.ARGUMENT_INVALID, Reason.RESOURCE_OUT_OF_SCOPE
E_NFC, E_NFD = "\u00e9", "e\u0301"


def rule_of(document: JsonValue) -> ToolRule:
    return parse_tool_rule(document, pointer="")


def checked(rule: ToolRule, arguments: JsonObject, bindings: Bindings) -> Objection | None:
    """As a decision does: first that nothing is in there that no rule may look at, then the rule."""
    return flaw_in(arguments) or check_arguments(rule, arguments, bindings, resources=RECORD)


def check(document: JsonValue, arguments: JsonObject) -> Objection | None:
    return checked(rule_of(document), arguments, BINDINGS)


def verdict(constraint: JsonValue, value: JsonValue) -> Reason | None:
    """How a call with one argument under one constraint is answered: None is allowed."""
    objection = check({"x": constraint}, {"x": value})
    return None if objection is None else objection.reason


# --- what each kind allows --------------------------------------------------------------------------------

ONE: Final[JsonObject] = {"eq": 1}
DATA: Final[JsonObject] = {"path": {"root": "/data"}}
AB_LIST: Final[JsonObject] = {"list": {"items": {"oneOf": ["a", "b"]}, "minLength": 1, "maxLength": 2}}
FIELDS: Final[JsonObject] = {
    "object": {"fields": {"a": {"int": {}}, "b": {"bool": {}, "optional": True}, "c": {"absent": True}}}
}
SHORT_OR_INT: Final[JsonObject] = {"anyOf": [{"str": {"maxLength": 1}}, {"int": {"min": 5}}]}

MONEY: Final[JsonObject] = {"decimal": {"min": "0.00", "max": "99.99", "scale": 2}}
REPORTS: Final[JsonObject] = {"glob": "reports/*.pdf"}
SITE: Final[JsonObject] = {"url": {"hosts": ["*.example.com"], "path": {"under": "/v1"}}}
RECORD: Final[Resources] = {ResourceRef("case", "c_1"): {"open": True}}

CASES: Final[list[tuple[JsonObject, JsonValue, Reason | None]]] = [
    (MONEY, 12.5, None),
    (MONEY, "12.50", None),
    (MONEY, 12, None),
    (MONEY, "12", None),
    (MONEY, "0.00", None),
    (MONEY, 99.99, None),
    (MONEY, "100.00", OUTSIDE),
    (MONEY, -0.01, OUTSIDE),
    (MONEY, "12.500", INVALID),
    (MONEY, 12.505, INVALID),
    (MONEY, "-0.00", INVALID),
    (MONEY, "012.5", INVALID),
    (MONEY, "1e1", INVALID),
    (MONEY, " 12.5", INVALID),
    (MONEY, True, INVALID),
    (MONEY, None, INVALID),
    ({"decimal": {"scale": 15}}, 0.1 + 0.2, INVALID),
    ({"suffix": ".pdf"}, "a.pdf", None),
    ({"suffix": ".pdf"}, "a.pdf ", OUTSIDE),
    ({"suffix": ".pdf"}, 1, INVALID),
    (REPORTS, "reports/2026.pdf", None),
    (REPORTS, "reports/.pdf", None),
    (REPORTS, "reports/a/b.pdf", OUTSIDE),
    (REPORTS, "reports/a\nb.pdf", OUTSIDE),
    (REPORTS, ["reports/a.pdf"], INVALID),
    ({"glob": "a?[b]"}, "a?[b]", None),
    ({"glob": "a?[b]"}, "axb", OUTSIDE),
    ({"regex": "[a-z]+"}, "abc", None),
    ({"regex": "[a-z]+"}, "abc\n", OUTSIDE),
    ({"regex": "[a-z]+"}, "ABC", OUTSIDE),
    ({"regex": "[a-z]+"}, 5, INVALID),
    (SITE, "https://api.example.com/v1/x", None),
    (SITE, "https://API.example.com:443/v1", None),
    (SITE, "https://example.com/v1", OUTSIDE),
    (SITE, "http://api.example.com/v1", OUTSIDE),
    (SITE, "https://api.example.com/v10", OUTSIDE),
    (SITE, "https://api.example.com/v1?x", OUTSIDE),
    (SITE, "https://api.example.com/v1/%2e%2e/x", INVALID),
    (SITE, "https://a@api.example.com/v1", INVALID),
    (SITE, 1, INVALID),
    ({"host": {"hosts": ["*.example.com"]}}, "a.example.com", None),
    ({"host": {"hosts": ["*.example.com"]}}, "example.com", OUTSIDE),
    ({"host": {"hosts": ["*.example.com"]}}, "a.example.com.", INVALID),
    ({"cidr": "10.0.0.0/8"}, "10.255.0.1", None),
    ({"cidr": "10.0.0.0/8"}, "11.0.0.1", OUTSIDE),
    ({"cidr": "10.0.0.0/8"}, "::1", OUTSIDE),
    ({"cidr": "10.0.0.0/8"}, "010.0.0.1", INVALID),
    ({"cidr": "::/0"}, "::ffff:10.0.0.1", INVALID),
    ({"containsAll": ["a", 1]}, [1, "b", "a"], None),
    ({"containsAll": ["a", 1]}, ["a", True], OUTSIDE),
    ({"containsAll": ["a", 1]}, "a", INVALID),
    ({"subsetOf": ["a", 1]}, ["a", "a"], None),
    ({"subsetOf": ["a", 1]}, [], None),
    ({"subsetOf": ["a", 1]}, [True], OUTSIDE),
    ({"subsetOf": ["a", 1]}, [["a"]], OUTSIDE),
    ({"subsetOf": ["a", 1]}, "a", INVALID),
    ({"resource": "case"}, "c_1", None),
    ({"resource": "case"}, "c_2", OUTSIDE),
    ({"resource": "account"}, "c_1", OUTSIDE),
    ({"resource": {"type": "case", "where": {"open": True}}}, "c_1", None),
    ({"resource": {"type": "case", "where": {"open": 1}}}, "c_1", OUTSIDE),
    ({"resource": {"type": "case", "where": {"closed": None}}}, "c_1", OUTSIDE),
    ({"resource": "case"}, 1, INVALID),
    ({"any": True}, None, None),
    ({"any": True}, {"a": [1, "x", {"b": 1.5}]}, None),
    ({"absent": True}, None, INVALID),
    # Scalars compare by type and value.
    (ONE, 1, None),
    (ONE, True, OUTSIDE),
    (ONE, "1", OUTSIDE),
    (ONE, [1], OUTSIDE),
    (ONE, 1.5, OUTSIDE),
    ({"eq": True}, True, None),
    ({"eq": True}, 1, OUTSIDE),
    ({"eq": False}, 0, OUTSIDE),
    ({"eq": 0}, False, OUTSIDE),
    ({"eq": None}, None, None),
    ({"eq": None}, "null", OUTSIDE),
    ({"eq": None}, {}, OUTSIDE),
    ({"eq": 1.5}, 1.5, None),
    ({"eq": ""}, "", None),
    ({"eq": "K"}, "k", OUTSIDE),
    ({"eq": "a"}, "a ", OUTSIDE),
    ({"eq": "a"}, "\u0430", OUTSIDE),  # Cyrillic
    ({"oneOf": [1, "a"]}, 1, None),
    ({"oneOf": [1, "a"]}, "a", None),
    ({"oneOf": [1, "a"]}, True, OUTSIDE),
    ({"oneOf": [1, "a"]}, "1", OUTSIDE),
    ({"oneOf": ["a,b"]}, "a", OUTSIDE),
    ({"notOneOf": {"type": "string", "values": ["a"]}}, "b", None),
    ({"notOneOf": {"type": "string", "values": ["a"]}}, "", None),
    ({"notOneOf": {"type": "string", "values": ["a"]}}, "a", OUTSIDE),
    ({"notOneOf": {"type": "string", "values": ["a"]}}, 1, INVALID),
    ({"notOneOf": {"type": "string", "values": ["a"]}}, ["a"], INVALID),
    ({"notOneOf": {"type": "string", "values": ["a"]}}, None, INVALID),
    ({"notOneOf": {"type": "integer", "values": [1]}}, 2, None),
    ({"notOneOf": {"type": "integer", "values": [1]}}, 1, OUTSIDE),
    ({"notOneOf": {"type": "integer", "values": [1]}}, True, INVALID),
    ({"notOneOf": {"type": "integer", "values": [1]}}, 1.5, INVALID),
    ({"notOneOf": {"type": "number", "values": [1, 1.5]}}, 2, None),
    ({"notOneOf": {"type": "number", "values": [1, 1.5]}}, 2.5, None),
    ({"notOneOf": {"type": "number", "values": [1, 1.5]}}, 1.5, OUTSIDE),
    ({"notOneOf": {"type": "number", "values": [1, 1.5]}}, 1, OUTSIDE),
    ({"notOneOf": {"type": "boolean", "values": [True]}}, False, None),
    ({"notOneOf": {"type": "boolean", "values": [True]}}, True, OUTSIDE),
    ({"notOneOf": {"type": "boolean", "values": [True]}}, 0, INVALID),
    ({"bool": {}}, False, None),
    ({"bool": {}}, 0, INVALID),
    ({"bool": {}}, "true", INVALID),
    ({"int": {"min": 1, "max": 50}}, 1, None),
    ({"int": {"min": 1, "max": 50}}, 50, None),
    ({"int": {"min": 1, "max": 50}}, 0, OUTSIDE),
    ({"int": {"min": 1, "max": 50}}, 51, OUTSIDE),
    ({"int": {"min": 1, "max": 50}}, True, INVALID),
    ({"int": {"min": 1, "max": 50}}, 1.5, INVALID),
    ({"int": {"min": 1, "max": 50}}, "1", INVALID),
    ({"int": {}}, SAFE, None),
    ({"int": {}}, -SAFE, None),
    ({"int": {}}, SAFE + 1, INVALID),
    # Lengths count code points.
    ({"str": {}}, "", None),
    ({"str": {"minLength": 2, "maxLength": 3}}, "ab", None),
    ({"str": {"minLength": 2, "maxLength": 3}}, "abc", None),
    ({"str": {"minLength": 2, "maxLength": 3}}, "a", OUTSIDE),
    ({"str": {"minLength": 2, "maxLength": 3}}, "abcd", OUTSIDE),
    ({"str": {"maxLength": 1}}, "\U0001f600", None),
    ({"str": {}}, 1, INVALID),
    ({"str": {}}, None, INVALID),
    ({"prefix": "a*"}, "a*b", None),
    ({"prefix": "a*"}, "a*", None),
    ({"prefix": "a*"}, "ab", OUTSIDE),
    ({"prefix": "a"}, "A", OUTSIDE),
    ({"prefix": "a"}, " a", OUTSIDE),
    ({"prefix": "a"}, ["a"], INVALID),
    (DATA, "/data", None),
    (DATA, "/data/x/y.txt", None),
    (DATA, "/data/.x", None),
    (DATA, "/data/..x", None),
    (DATA, "/data/x..", None),
    (DATA, "/data/...", None),
    (DATA, "/data/\uff0e\uff0e", None),  # full-width dots are a name like any other
    (DATA, "/", OUTSIDE),
    (DATA, "/dat", OUTSIDE),
    (DATA, "/DATA/x", OUTSIDE),
    (DATA, "/x/data", OUTSIDE),
    (DATA, "", INVALID),
    (DATA, "data/x", INVALID),
    (DATA, "/data/", INVALID),
    (DATA, "/data/..", INVALID),
    (DATA, "/data/../etc", INVALID),
    (DATA, "/../data", INVALID),
    (DATA, "/data/.", INVALID),
    (DATA, "/data/./x", INVALID),
    (DATA, "/data//x", INVALID),
    (DATA, "//data", INVALID),
    (DATA, "/data/%2e%2e/x", INVALID),
    (DATA, "/data/%252e", INVALID),
    (DATA, "/data\\x", INVALID),
    (DATA, "/data/x\x00", INVALID),
    (DATA, "/data/x\n", INVALID),
    (DATA, "/data\n", INVALID),
    (DATA, "/data/\x7f", INVALID),
    (DATA, "/data/\x85", INVALID),
    (DATA, "/data/" + "x" * (MAX_PATH_CHARS - 6), None),
    (DATA, "/data/" + "x" * (MAX_PATH_CHARS - 5), INVALID),
    (DATA, 1, INVALID),
    ({"path": {"root": "/"}}, "/", None),
    ({"path": {"root": "/"}}, "/etc/passwd", None),
    ({"path": {"root": "/"}}, "//", INVALID),
    ({"path": {"root": "/data/"}}, "/data", None),
    (AB_LIST, ["a"], None),
    (AB_LIST, ["b", "b"], None),
    (AB_LIST, [], OUTSIDE),
    (AB_LIST, ["a", "b", "a"], OUTSIDE),
    (AB_LIST, ["a", "c"], OUTSIDE),
    (AB_LIST, "a", INVALID),
    (AB_LIST, {"0": "a"}, INVALID),
    ({"list": {"items": {"int": {}}}}, ["a"], INVALID),
    (FIELDS, {"a": 1}, None),
    (FIELDS, {"a": 1, "b": True}, None),
    (FIELDS, {"b": True}, INVALID),
    (FIELDS, {"a": 1, "c": None}, INVALID),
    (FIELDS, {"a": 1, "z": None}, INVALID),
    (FIELDS, {"a": 1, "*": None}, INVALID),
    (FIELDS, [], INVALID),
    ({"object": {"fields": {}}}, {}, None),
    ({"object": {"fields": {}}}, {"a": 1}, INVALID),
    ({"allOf": [{"prefix": "a"}, {"str": {"maxLength": 2}}]}, "ab", None),
    ({"allOf": [{"prefix": "a"}, {"str": {"maxLength": 2}}]}, "abc", OUTSIDE),
    ({"allOf": [{"prefix": "a"}, {"str": {"maxLength": 2}}]}, "b", OUTSIDE),
    ({"allOf": [{"prefix": "a"}, {"str": {"maxLength": 2}}]}, 1, INVALID),
    (SHORT_OR_INT, "a", None),
    (SHORT_OR_INT, 5, None),
    (SHORT_OR_INT, "ab", OUTSIDE),
    (SHORT_OR_INT, 4, OUTSIDE),
    (SHORT_OR_INT, True, INVALID),
    ({"bind": "tenantId"}, "t_1", None),
    ({"bind": "tenantId"}, "t_2", OUTSIDE),
    ({"bind": "tenantId"}, None, OUTSIDE),
    ({"bind": "tenantId"}, ["t_1"], OUTSIDE),
    ({"bind": "subject"}, "user:7", None),
    ({"bind": "childRunId"}, "r_1", OUTSIDE),
    ({"bind": "childRunId"}, None, OUTSIDE),
]


@pytest.mark.parametrize("constraint, value, expected", CASES)
def test_a_kind_allows_what_it_says(constraint: JsonObject, value: JsonValue, expected: Reason | None) -> None:
    assert verdict(constraint, value) == expected


def test_every_kind_allows_something_and_refuses_something() -> None:
    allowed = {next(iter(constraint)) for constraint, _, reason in CASES if reason is None}
    refused = {next(iter(constraint)) for constraint, _, reason in CASES if reason is not None}
    assert allowed == KINDS.keys() - {"absent"}
    assert refused == KINDS.keys() - {"any"}


@pytest.mark.parametrize("value", [167_772_161, 1.5, True, None, [], ["10.0.0.1"], {}])
@pytest.mark.parametrize(
    "constraint",
    [
        {"str": {}},
        {"prefix": "1"},
        {"suffix": "1"},
        {"glob": "*"},
        {"regex": ".*"},
        {"path": {"root": "/"}},
        {"url": {"hosts": ["example.com"]}},
        {"host": {"hosts": ["10.0.0.1"]}},
        {"cidr": "10.0.0.0/8"},
        {"resource": "case"},
    ],
)
def test_what_is_no_string_has_the_wrong_shape_for_every_kind_of_text(constraint: JsonObject, value: JsonValue) -> None:
    assert verdict(constraint, value) == INVALID


def test_a_sibling_prefix_is_not_under_the_root() -> None:
    assert verdict(DATA, "/database") == OUTSIDE
    assert verdict(DATA, "/database/x") == OUTSIDE
    assert verdict(DATA, "/data-old/x") == OUTSIDE


@pytest.mark.parametrize("raw, value", [(b"1.0", 1), (b"1e0", 1), (b"-0.0", 0)])
def test_a_number_is_what_its_canonical_form_says(raw: bytes, value: int) -> None:
    argument = parse(raw, max_bytes=9, max_depth=0)
    assert verdict({"eq": value}, argument) is None
    assert verdict({"int": {"min": value, "max": value}}, argument) is None


@pytest.mark.parametrize("number", [1.0, -0.0, float("nan"), float("inf"), 2**53])
def test_a_number_that_is_not_canonical_slips_past_no_kind(number: float) -> None:
    assert verdict({"notOneOf": {"type": "number", "values": [1, 0]}}, number) == INVALID
    assert verdict({"any": True}, {"deep": [number]}) == INVALID


@pytest.mark.parametrize("text", [E_NFD, "\u212a", "\u2126", "\ud800", "a\udfffb"])
@pytest.mark.parametrize(
    "constraint",
    [
        {"any": True},
        {"eq": "x"},
        {"str": {}},
        {"prefix": "x"},
        {"path": {"root": "/"}},
        {"list": {"items": {"any": True}}},
        {"bind": "tenantId"},
    ],
)
def test_a_string_that_is_not_nfc_text_is_refused_before_any_kind_looks(constraint: JsonObject, text: str) -> None:
    assert verdict(constraint, text) == INVALID
    assert verdict(constraint, [{"a": [text]}]) == INVALID
    assert verdict(constraint, [{text: 1}]) == INVALID


def test_an_open_rule_refuses_malformed_names_and_values_too() -> None:
    assert check({"*": {"any": True}}, {E_NFD: 1}) is not None
    assert check({"*": {"any": True}}, {"a": {"b": E_NFD}}) is not None
    assert check({"*": {"any": True}}, {E_NFC: 1, "a": {"b": E_NFC}}) is None


@pytest.mark.parametrize("value", [(1,), {1}, b"x", object(), [(1,)]])
def test_what_is_no_json_is_refused(value: Any) -> None:  # noqa: ANN401 - that is the point
    assert verdict({"any": True}, value) == INVALID


# --- arguments --------------------------------------------------------------------------------------------


def test_an_empty_rule_allows_no_arguments() -> None:
    assert check({}, {}) is None
    objection = check({}, {"a": 1})
    assert objection is not None
    assert (objection.pointer, objection.reason) == ("/a", INVALID)


def test_an_optional_argument_may_be_left_out_and_a_required_one_may_not() -> None:
    assert check({"a": {"int": {}, "optional": True}}, {}) is None
    assert check({"a": {"int": {}, "optional": True}}, {"a": "x"}) is not None
    objection = check({"a": {"int": {}}}, {})
    assert objection is not None
    assert (objection.pointer, objection.reason) == ("/a", INVALID)


def test_an_open_rule_still_holds_the_arguments_it_names() -> None:
    document: JsonObject = {"*": {"any": True}, "a": {"eq": 1}, "b": {"absent": True}}
    assert check(document, {"a": 1, "other": [{}], "*": 1}) is None
    assert check(document, {"a": 2}) is not None
    assert check(document, {"other": 1}) is not None
    assert check(document, {"a": 1, "b": 1}) is not None


def test_of_several_objections_the_one_with_precedence_and_then_the_first_name_is_answered() -> None:
    document: JsonObject = {name: {"int": {"max": 1}} for name in ("a", "b", "c", "d")}
    calls: list[tuple[JsonObject, str]] = [
        ({"d": 2, "c": 2, "b": "x", "a": "x"}, "/c"),
        ({"d": 1, "c": 1, "b": "x", "a": "x"}, "/a"),
        ({"d": 1, "c": E_NFD, "b": 1, "a": 1, "zz": 1}, "/c"),
    ]
    for arguments, pointer in calls:
        objection = check(document, arguments)
        assert objection is not None
        assert objection.pointer == pointer


def test_an_objection_points_at_the_value_inside_the_argument() -> None:
    document: JsonObject = {
        "a/b": {"list": {"items": {"object": {"fields": {"n": {"int": {"max": 1}, "optional": True}}}}}}
    }
    objection = check(document, {"a/b": [{}, {"n": 1}, {"n": 2}]})
    assert objection == Objection("/a~1b/2/n", OUTSIDE, 'argument "a~1b/2/n" must be from -9007199254740991 to 1')


@pytest.mark.parametrize("constraint, value, expected", [case for case in CASES if case[2] is not None])
def test_an_objection_names_the_argument_and_never_the_value(
    constraint: JsonObject, value: JsonValue, expected: Reason
) -> None:
    secret = "s3cret"
    shown: list[JsonValue] = [secret, [secret], {secret * 30: secret}, secret * 1000]
    for given in (value, *shown):
        objection = check({"x": constraint}, {"x": given})
        if objection is not None:
            assert 'argument "x' in objection.detail
            assert secret not in objection.detail


def test_a_name_unfit_to_be_shown_is_not_repeated() -> None:
    objection = check({}, {"\x1b[31m" + "x" * 500: 1})
    assert objection == Objection("", INVALID, "an argument is not among the arguments that the grant allows")


def test_no_depth_or_size_of_arguments_exhausts_the_evaluator() -> None:
    deep: JsonValue = 1
    for _ in range(100_000):
        deep = [deep]
    assert check({"*": {"any": True}}, {"x": deep}) is None
    assert verdict({"list": {"items": {"list": {"items": {"any": True}}}}}, deep) is None
    assert verdict(AB_LIST, deep) == OUTSIDE
    assert verdict({"any": True}, {f"n{index}": "x" for index in range(50_000)}) is None


def test_steps_are_counted_exactly() -> None:
    steps = Steps(left=3)
    steps.take(2)
    steps.take()
    with pytest.raises(OutOfSteps):
        steps.take()


def test_an_evaluation_that_takes_too_many_steps_denies() -> None:
    rule: JsonObject = {"list": {"items": {"anyOf": [{"eq": index} for index in range(256)]}}}
    assert verdict(rule, [0] * (MAX_STEPS // 257 - 1)) is None
    assert verdict(rule, [0] * (MAX_STEPS // 257 + 1)) == INVALID


@pytest.mark.parametrize(
    "constraint, value, words",
    [
        ({"int": {"min": 1}}, 0, 'argument "x" must be at least 1'),
        ({"int": {"min": 1, "max": 5}}, 6, 'argument "x" must be from 1 to 5'),
        ({"list": {"items": {"any": True}, "minLength": 1}}, [], 'argument "x" must have at least 1 items'),
        ({"str": {"maxLength": 2}}, "abc", 'argument "x" must have from 0 to 2 characters'),
        ({"decimal": {"min": "0.5", "max": "1", "scale": 2}}, 7, 'argument "x" must be from 0.50 to 1.00'),
    ],
)
def test_who_is_beyond_a_limit_is_told_the_limit(constraint: JsonObject, value: JsonValue, words: str) -> None:
    assert check({"x": constraint}, {"x": value}) == Objection("/x", OUTSIDE, words)


A_CASE: Final[JsonObject] = {"resource": "case"}


@pytest.mark.parametrize(
    "constraint, value, cost",
    [
        ({"any": True}, [[[1]]], 1),
        ({"eq": 1}, 1, 1),
        ({"any": True}, "x" * (CHARS_A_STEP - 1), 1),
        ({"any": True}, "x" * CHARS_A_STEP, 2),
        ({"any": True}, "x" * CHARS_A_STEP * 5, 6),
        ({"any": True}, ["x"] * CHARS_A_STEP, 1),
        ({"list": {"items": {"bool": {}}}}, [True] * 3, 4),
        ({"containsAll": ["a", "b"]}, ["a", "b", "c"], 6),
        ({"subsetOf": ["a", "b"]}, ["a", "a", "b"], 6),
        ({"object": {"fields": {"a": {"int": {}}, "b": {"int": {}, "optional": True}}}}, {"a": 1}, 2),
        ({"allOf": [{"int": {}}, {"int": {}}]}, 1, 3),
        ({"anyOf": [{"int": {}}, {"bool": {}}]}, 1, 3),
        ({"decimal": {"scale": 2}}, 1, 1 + STEPS_TO_READ),
        ({"host": {"hosts": ["example.com"]}}, "example.com", 1 + STEPS_TO_READ),
        ({"cidr": "10.0.0.0/8"}, "10.0.0.1", 1 + STEPS_TO_READ),
        ({"url": {"hosts": ["example.com"]}}, "https://example.com/", 1 + STEPS_TO_READ),
    ],
)
def test_a_judgement_takes_its_steps_of_those_that_it_was_given(
    constraint: JsonObject, value: JsonValue, cost: int
) -> None:
    rule, steps = rule_of({"x": constraint}), Steps(left=100)
    assert check_arguments(rule, {"x": value}, BINDINGS, steps) is None
    assert 100 - steps.left == cost
    assert check_arguments(rule, {"x": value}, BINDINGS, Steps(left=cost)) is None
    objection = check_arguments(rule, {"x": value}, BINDINGS, Steps(left=cost - 1))
    assert objection is not None
    assert (objection.pointer, objection.reason) == ("", INVALID)


@pytest.mark.parametrize(
    "constraint, value, ids, cost",
    [
        (A_CASE, "c_1", ["c_1"], 1),
        (A_CASE, "", [], 1),
        (A_CASE, 7, [], 1),
        ({"list": {"items": A_CASE}}, ["c_1", "c_2"], ["c_1", "c_2"], 3),
        ({"list": {"items": A_CASE}}, "c_1", [], 1),
        ({"object": {"fields": {"a": A_CASE, "b": A_CASE}}}, {"a": "c_1"}, ["c_1"], 2),
        ({"object": {"fields": {"a": A_CASE}}}, ["c_1"], [], 1),
        ({"allOf": [A_CASE, {"prefix": "c"}]}, "c_1", ["c_1"], 3),
        ({"anyOf": [{"int": {}}, A_CASE]}, "c_1", ["c_1"], 3),
        ({"str": {}}, "c_1", [], 1),
    ],
)
def test_the_things_that_a_value_names_are_found_wherever_it_stands_for_one(
    constraint: JsonObject, value: JsonValue, ids: list[str], cost: int
) -> None:
    steps = Steps(left=100)
    found = [*rule_of({"x": constraint, "y": A_CASE}).resources({"x": value}, steps)]
    assert found == [ResourceRef("case", id_) for id_ in ids]
    assert 100 - steps.left == cost


def test_a_bound_that_is_left_out_is_as_wide_as_integers_go() -> None:
    assert Int() == Int(minimum=-SAFE, maximum=SAFE)
    assert Decimal(scale=2) == Decimal(minimum=-SAFE, maximum=SAFE, scale=2)
    assert Str() == Str(minimum=0, maximum=SAFE)
    assert List(items=Int()) == List(items=Int(), minimum=0, maximum=SAFE)


@pytest.mark.parametrize("units, scale, spelt", [(-1, 2, "-0.01"), (0, 2, "0.00"), (150, 2, "1.50"), (-7, 0, "-7")])
def test_units_are_spelt_with_all_their_digits(units: int, scale: int, spelt: str) -> None:
    assert spell_decimal(units, scale) == spelt


def test_a_path_has_at_most_as_many_characters_as_linux_takes() -> None:
    assert verdict({"path": {"root": "/"}}, "/" + "x" * 4095) is None
    assert verdict({"path": {"root": "/"}}, "/" + "x" * 4096) == INVALID


def test_a_constraint_is_shown_as_it_was_spelt_and_not_as_what_was_made_of_it() -> None:
    constraints: list[JsonObject] = [{"regex": "a|b"}, {"glob": "a*"}, {"oneOf": [1, 2]}]
    for constraint in constraints:
        shown = repr(rule_of({"x": constraint}))
        assert "language" not in shown
        assert "held" not in shown


def test_a_site_without_records_reaches_nothing() -> None:
    constraint = rule_of({"x": {"resource": "case"}}).arguments["x"].constraint
    objection = judge(constraint, "c_1", Site(bindings={}, steps=Steps()))
    assert objection is not None
    assert objection.reason == OUTSIDE


def test_what_is_not_known_to_be_on_record_is_out_of_reach() -> None:
    objection = check_arguments(rule_of({"x": {"resource": "case"}}), {"x": "c_1"}, BINDINGS)
    assert objection is not None
    assert objection.reason == OUTSIDE


# --- bindings ---------------------------------------------------------------------------------------------

BOUND: Final[JsonObject] = {
    "tenant": {"bind": "tenantId"},
    "q": {"str": {}},
    "f": {"object": {"fields": {"by": {"bind": "subject"}}}, "optional": True},
}


def test_a_bound_argument_is_filled_in_at_every_level_where_it_was_left_out() -> None:
    arguments: JsonObject = {"q": "x", "f": {}}
    filled = fill_bindings(rule_of(BOUND), arguments, BINDINGS)
    assert filled == {"q": "x", "f": {"by": "user:7"}, "tenant": "t_1"}
    assert arguments == {"q": "x", "f": {}}
    assert check(BOUND, filled) is None


def test_filling_in_invents_no_object_and_overwrites_nothing() -> None:
    rule = rule_of(BOUND)
    assert fill_bindings(rule, {"q": "x"}, BINDINGS) == {"q": "x", "tenant": "t_1"}
    calls: list[JsonObject] = [
        {"tenant": "t_2", "q": "x"},
        {"tenant": None, "q": "x"},
        {"tenant": "t_1", "q": "x", "f": []},
    ]
    for given in calls:
        assert fill_bindings(rule, given, BINDINGS) == given
        assert checked(rule, given, BINDINGS) is not None


def test_a_bound_argument_may_be_restated_if_equal() -> None:
    assert check(BOUND, {"tenant": "t_1", "q": "x"}) is None


def test_a_bound_argument_that_was_not_filled_in_is_refused() -> None:
    objection = check(BOUND, {"q": "x"})
    assert objection is not None
    assert (objection.pointer, objection.reason) == ("/tenant", OUTSIDE)


@pytest.mark.parametrize("bindings", [{}, {"childRunId": None}])
def test_binding_to_a_field_that_the_grant_lacks_refuses_every_call(bindings: dict[str, str | None]) -> None:
    rule = rule_of({"run": {"bind": "childRunId"}})
    calls: list[JsonObject] = [{}, {"run": None}, {"run": "r_1"}, {"run": ""}]
    for arguments in calls:
        filled = fill_bindings(rule, arguments, bindings)
        assert filled == arguments
        objection = checked(rule, filled, bindings)
        assert objection is not None
        assert objection.reason == OUTSIDE


# --- the document -----------------------------------------------------------------------------------------


def nest(depth: int) -> JsonObject:
    constraint: JsonObject = {"int": {}}
    for _ in range(depth - 1):
        constraint = {"list": {"items": constraint}}
    return constraint


REFUSED: Final[list[tuple[JsonValue, str]]] = [
    ({"a": {"decimal": {"scale": 16}}}, "/a/decimal/scale"),
    ({"a": {"decimal": {"scale": 2, "min": "1.005"}}}, "/a/decimal/min"),
    ({"a": {"decimal": {"scale": 2, "min": "2.00", "max": "1.00"}}}, "/a/decimal"),
    ({"a": {"decimal": {"scale": 0, "max": "90071992547409920"}}}, "/a/decimal/max"),
    ({"a": {"decimal": {"min": "1.00"}}}, "/a/decimal"),
    ({"a": {"suffix": ""}}, "/a/suffix"),
    ({"a": {"glob": "a**"}}, "/a/glob"),
    ({"a": {"glob": ""}}, "/a/glob"),
    ({"a": {"regex": "(?i)a"}}, "/a/regex"),
    ({"a": {"regex": "(a"}}, "/a/regex"),
    ({"a": {"regex": "(a)\\1"}}, "/a/regex"),
    ({"a": {"url": {}}}, "/a/url"),
    ({"a": {"url": {"hosts": []}}}, "/a/url/hosts"),
    ({"a": {"url": {"hosts": ["*"]}}}, "/a/url/hosts/0"),
    ({"a": {"url": {"hosts": ["a.example"], "schemes": ["file"]}}}, "/a/url/schemes/0"),
    ({"a": {"url": {"hosts": ["a.example"], "ports": [0]}}}, "/a/url/ports/0"),
    ({"a": {"url": {"hosts": ["a.example"], "ports": [65536]}}}, "/a/url/ports/0"),
    ({"a": {"url": {"hosts": ["a.example"], "path": {"exact": "/a", "under": "/a"}}}}, "/a/url/path"),
    ({"a": {"url": {"hosts": ["a.example"], "path": {"under": "/a/../b"}}}}, "/a/url/path/under"),
    ({"a": {"url": {"hosts": ["a.example"], "path": {"under": "a"}}}}, "/a/url/path/under"),
    ({"a": {"url": {"hosts": ["a.example"], "query": True}}}, "/a/url/query"),
    ({"a": {"host": {"hosts": ["a.example."]}}}, "/a/host/hosts/0"),
    ({"a": {"host": ["a.example"]}}, "/a/host"),
    ({"a": {"cidr": "10.0.0.1/8"}}, "/a/cidr"),
    ({"a": {"cidr": "::ffff:10.0.0.0/104"}}, "/a/cidr"),
    ({"a": {"containsAll": []}}, "/a/containsAll"),
    ({"a": {"subsetOf": [["x"]]}}, "/a/subsetOf/0"),
    ({"a": {"resource": "Case"}}, "/a/resource"),
    ({"a": {"resource": {"type": "case"}}}, "/a/resource"),
    ({"a": {"resource": {"type": "case", "where": {}}}}, "/a/resource/where"),
    ({"a": {"resource": {"type": "case", "where": {"tags": ["x"]}}}}, "/a/resource/where/tags"),
    ([], ""),
    (None, ""),
    ({"a": []}, "/a"),
    ({"a": {}}, "/a"),
    ({"a": {"optional": True}}, "/a"),
    ({"a": {"regexp": "x"}}, "/a/regexp"),
    ({"a": {"any": True, "note": "x"}}, "/a/note"),
    ({"a": {"any": True, "bool": {}}}, "/a"),
    ({"a": {"any": True, "optional": False}}, "/a/optional"),
    ({"a": {"any": True, "optional": 1}}, "/a/optional"),
    ({"a": {"any": False}}, "/a/any"),
    ({"a": {"any": 1}}, "/a/any"),
    ({"a": {"any": {}}}, "/a/any"),
    ({"a": {"absent": {}}}, "/a/absent"),
    ({"a": {"absent": True, "optional": True}}, "/a/optional"),
    ({"a": {"bind": "tenantId", "optional": True}}, "/a/optional"),
    ({"a": {"bind": "grantId"}}, "/a/bind"),
    ({"a": {"bind": ["tenantId"]}}, "/a/bind"),
    ({"*": {"any": 1}}, "/*"),
    ({"*": {"str": {}}}, "/*"),
    ({"*": {"any": True, "optional": True}}, "/*"),
    ({"a": {"object": {"fields": {"*": {"any": True}}}}}, "/a/object/fields/*"),
    ({"a": {"eq": []}}, "/a/eq"),
    ({"a": {"eq": {}}}, "/a/eq"),
    ({"a": {"eq": SAFE + 1}}, "/a/eq"),
    ({"a": {"eq": float("nan")}}, "/a/eq"),
    ({"a": {"eq": E_NFD}}, "/a/eq"),
    ({"a": {"eq": "\ud800"}}, "/a/eq"),
    ({E_NFD: {"any": True}}, ""),
    ({"a": {"oneOf": []}}, "/a/oneOf"),
    ({"a": {"oneOf": "ab"}}, "/a/oneOf"),
    ({"a": {"oneOf": [1, [2]]}}, "/a/oneOf/1"),
    ({"a": {"oneOf": ["x", E_NFD]}}, "/a/oneOf/1"),
    ({"a": {"oneOf": [*range(257)]}}, "/a/oneOf"),
    ({"a": {"notOneOf": ["x"]}}, "/a/notOneOf"),
    ({"a": {"notOneOf": {"type": "string", "values": []}}}, "/a/notOneOf/values"),
    ({"a": {"notOneOf": {"type": "string", "values": [1]}}}, "/a/notOneOf/values"),
    ({"a": {"notOneOf": {"type": "integer", "values": [True]}}}, "/a/notOneOf/values"),
    ({"a": {"notOneOf": {"type": "integer", "values": [1.5]}}}, "/a/notOneOf/values"),
    ({"a": {"notOneOf": {"type": "text", "values": ["x"]}}}, "/a/notOneOf/type"),
    ({"a": {"notOneOf": {"type": ["string"], "values": ["x"]}}}, "/a/notOneOf/type"),
    ({"a": {"notOneOf": {"values": ["x"]}}}, "/a/notOneOf"),
    ({"a": {"bool": True}}, "/a/bool"),
    ({"a": {"bool": {"eq": True}}}, "/a/bool"),
    ({"a": {"int": True}}, "/a/int"),
    ({"a": {"int": {"min": 2, "max": 1}}}, "/a/int"),
    ({"a": {"int": {"min": True}}}, "/a/int/min"),
    ({"a": {"int": {"max": 1.5}}}, "/a/int/max"),
    ({"a": {"int": {"max": "1"}}}, "/a/int/max"),
    ({"a": {"int": {"max": None}}}, "/a/int/max"),
    ({"a": {"int": {"max": SAFE + 1}}}, "/a/int/max"),
    ({"a": {"int": {"min": -SAFE - 1}}}, "/a/int/min"),
    ({"a": {"int": {"minimum": 1}}}, "/a/int/minimum"),
    ({"a": {"str": {"minLength": -1}}}, "/a/str/minLength"),
    ({"a": {"str": {"minLength": 2, "maxLength": 1}}}, "/a/str"),
    ({"a": {"str": {"pattern": "x"}}}, "/a/str/pattern"),
    ({"a": {"prefix": ""}}, "/a/prefix"),
    ({"a": {"prefix": 1}}, "/a/prefix"),
    ({"a": {"path": "/data"}}, "/a/path"),
    ({"a": {"path": {}}}, "/a/path"),
    ({"a": {"path": {"root": ""}}}, "/a/path/root"),
    ({"a": {"path": {"root": "data"}}}, "/a/path/root"),
    ({"a": {"path": {"root": "//"}}}, "/a/path/root"),
    ({"a": {"path": {"root": "/data//"}}}, "/a/path/root"),
    ({"a": {"path": {"root": "/data/.."}}}, "/a/path/root"),
    ({"a": {"path": {"root": "/data/%2e"}}}, "/a/path/root"),
    ({"a": {"path": {"root": "/data", "x": 1}}}, "/a/path/x"),
    ({"a": {"list": {}}}, "/a/list"),
    ({"a": {"list": {"items": {"str": {}, "optional": True}}}}, "/a/list/items/optional"),
    ({"a": {"list": {"items": {"str": {}}, "minLength": 3, "maxLength": 2}}}, "/a/list"),
    ({"a": {"list": {"items": {"absent": True}}}}, "/a/list/items"),
    ({"a": {"list": {"items": {"bind": "tenantId"}}}}, "/a/list/items/bind"),
    ({"a": {"object": {}}}, "/a/object"),
    ({"a": {"object": {"fields": []}}}, "/a/object/fields"),
    ({"a": {"object": {"fields": {"b": {"wildcard": "*"}}}}}, "/a/object/fields/b/wildcard"),
    ({"a": {"object": {"fields": {str(n): {"bool": {}} for n in range(65)}}}}, "/a/object/fields"),
    ({"a": {"allOf": []}}, "/a/allOf"),
    ({"a": {"anyOf": []}}, "/a/anyOf"),
    ({"a": {"anyOf": {"str": {}}}}, "/a/anyOf"),
    ({"a": {"anyOf": [{"str": {}, "optional": True}]}}, "/a/anyOf/0/optional"),
    ({"a": {"anyOf": [{"absent": True}]}}, "/a/anyOf/0"),
    ({"a": {"allOf": [{"bind": "tenantId"}]}}, "/a/allOf/0/bind"),
    ({"a": {"anyOf": [{"bool": {}}] * 257}}, "/a/anyOf"),
    (
        {"a": {"anyOf": [{"object": {"fields": {"b": {"bind": "tenantId"}}}}]}},
        "/a/anyOf/0/object/fields/b/bind",
    ),
    ({str(n): {"bool": {}} for n in range(65)}, ""),
    ({"a": nest(9)}, "/a" + "/list/items" * 8),
]


@pytest.mark.parametrize("document, pointer", REFUSED)
def test_a_rule_that_is_not_understood_is_refused_where_it_goes_wrong(document: JsonValue, pointer: str) -> None:
    with pytest.raises(ConstraintInvalid) as caught:
        parse_tool_rule(document, pointer="/resourceConstraints/t")
    assert caught.value.pointer == "/resourceConstraints/t" + pointer


def test_a_rule_nested_without_end_is_refused() -> None:
    for depth in (100, 100_000):
        with pytest.raises(ConstraintInvalid):
            rule_of({"a": nest(depth)})


def test_a_refusal_repeats_no_values() -> None:
    with pytest.raises(ConstraintInvalid) as caught:
        rule_of({"a": {"bind": "s3cret"}, "b": {"oneOf": ["s3cret", []]}})
    assert "s3cret" not in str(caught.value)


def refusal_of(document: JsonValue) -> ConstraintInvalid | None:
    try:
        rule_of(document)
    except ConstraintInvalid as invalid:
        return invalid
    return None


def names(count: int) -> dict[str, JsonValue]:
    return {f"n{index}": {"bool": {}} for index in range(count)}


def numbers(count: int) -> list[JsonValue]:
    return [*range(count)]


@pytest.mark.parametrize(
    "document, understood",
    [
        (names(64), True),
        (names(65), False),
        ({"x": {"object": {"fields": names(64)}}}, True),
        ({"x": {"object": {"fields": names(65)}}}, False),
        ({"x": {"oneOf": numbers(256)}}, True),
        ({"x": {"oneOf": numbers(257)}}, False),
        ({"x": {"resource": {"type": "case", "where": dict.fromkeys(names(64), 1)}}}, True),
        ({"x": {"resource": {"type": "case", "where": dict.fromkeys(names(65), 1)}}}, False),
        ({"x": {"resource": {"type": "case", "where": {}}}}, False),
        ({"x": {"notOneOf": {"type": "string", "values": ["a", "b"]}}}, True),
        ({"x": {"notOneOf": {"type": "string", "values": ["a", 1]}}}, False),
        ({"x": {"int": {"min": -SAFE, "max": SAFE}}}, True),
        ({"x": {"int": {"min": 2, "max": 2}}}, True),
        ({"x": {"int": {"min": 2, "max": 1}}}, False),
        ({"x": {"decimal": {"max": "90071992547409.91", "scale": 2}}}, True),
        ({"x": {"decimal": {"max": "90071992547409.92", "scale": 2}}}, False),
        ({"x": {"decimal": {"min": "-90071992547409.91", "scale": 2}}}, True),
        ({"x": {"decimal": {"min": "-90071992547409.92", "scale": 2}}}, False),
        ({"x": {"decimal": {"min": "1", "max": "1", "scale": 0}}}, True),
        ({"x": {"decimal": {"min": "2", "max": "1", "scale": 0}}}, False),
        ({"x": {"decimal": {"scale": 15}}}, True),
        ({"x": {"decimal": {"scale": 16}}}, False),
        ({"x": {"decimal": {"scale": -1}}}, False),
        *(({"x": {"url": {"hosts": ["a.example"], "ports": [port]}}}, True) for port in (1, 65_535)),
        *(({"x": {"url": {"hosts": ["a.example"], "ports": [port]}}}, False) for port in (0, 65_536)),
        ({"x": {"url": {"hosts": ["a.example"], "path": {"exact": "/a", "under": "/a"}}}}, False),
        ({"x": {"url": {"hosts": ["a.example"], "path": {}}}}, False),
        ({"x": {"url": {"hosts": ["a.example"], "path": {"below": "/a"}}}}, False),
        ({"x": {"url": {"hosts": ["a.example"], "query": "none"}}}, True),
        ({"x": {"url": {"hosts": ["a.example"], "query": "some"}}}, False),
        ({"x": {"str": {"minLength": 0}}}, True),
        ({"x": {"str": {"minLength": -1}}}, False),
    ],
)
def test_each_limit_of_a_rule_is_kept_to_the_last_unit(document: JsonValue, understood: bool) -> None:
    refusal = refusal_of(document)
    assert (refusal is None) is understood
    assert refusal is None or refusal.detail


def test_the_limits_themselves_are_allowed() -> None:
    document: JsonObject = {
        **{f"n{index}": {"bool": {}} for index in range(62)},
        "deep": nest(8),
        "many": {"oneOf": [*range(256)]},
        "*": {"any": True},
    }
    assert len(rule_of(document).arguments) == 64


@pytest.mark.parametrize(
    "document",
    [
        {"x": constraint} | extra
        for constraint in {canonical(case[0]): case[0] for case in CASES}.values()
        for extra in ({}, {"*": {"any": True}}, {"optional": {"int": {"min": 1}, "optional": True}})
    ],
)
def test_a_rule_is_rendered_as_it_was_spelt(document: JsonObject) -> None:
    spelt = canonical(document).replace(b'"/data/"', b'"/data"')
    assert canonical(render_tool_rule(rule_of(document))) == spelt


def test_numbers_and_widest_bounds_are_rendered_canonically() -> None:
    rule = rule_of({"a": {"eq": 1.0}, "b": {"int": {"min": -SAFE, "max": SAFE}}, "c": {"str": {"minLength": 0}}})
    assert canonical(render_tool_rule(rule)) == b'{"a":{"eq":1},"b":{"int":{}},"c":{"str":{}}}'


def test_rendered_documents_share_nothing() -> None:
    rule = rule_of({"a": {"bool": {}}})
    first = render_tool_rule(rule)
    assert isinstance(first["a"], dict)
    assert isinstance(first["a"]["bool"], dict)
    first["a"]["bool"]["x"] = 1
    assert render_tool_rule(rule) == {"a": {"bool": {}}}


def test_rules_differ_where_only_the_types_of_their_scalars_do() -> None:
    assert rule_of({"a": {"eq": True}}) != rule_of({"a": {"eq": 1}})
    assert rule_of({"a": {"oneOf": [0, 1]}}) != rule_of({"a": {"oneOf": [False, True]}})


def test_every_kind_is_spelt_as_its_row_says() -> None:
    assert {kind.constraint.kind: kind.constraint for kind in KINDS.values()} == {
        spelling: kind.constraint for spelling, kind in KINDS.items()
    }
    assert all(issubclass(kind.constraint, Constraint) for kind in KINDS.values())
