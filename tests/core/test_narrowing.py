"""Narrowing: every row of the table both ways, and the promise behind it: PROVEN and child allows, so parent does."""

from itertools import product
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import narrowing
from app.core.constraints import (
    Constraint,
    ToolRule,
    check_arguments,
    fill_bindings,
    parse_tool_rule,
    render_tool_rule,
)
from app.core.kinds import FREE, AllOf, Int
from app.core.narrowing import Ground, Refusal, narrow_tool_rule, narrows, rule_within, things_to_look_up
from app.core.reasons import Reason
from app.core.spelling import KINDS
from app.core.steps import MAX_STEPS, Steps
from app.core.strict_json import JsonValue, canonical

Document: TypeAlias = dict[str, Any]

SAFE: Final = 2**53 - 1
EXAMPLES: Final = settings.default.max_examples if settings.default else 100
BINDINGS: Final = {"tenantId": "a", "subject": "/data", "childRunId": None}
WIDER, UNPROVABLE = Reason.NOT_NARROWER, Reason.NARROWING_UNPROVABLE


def rule_of(document: JsonValue) -> ToolRule:
    return parse_tool_rule(document, pointer="")


def constraint_of(document: Document) -> Constraint:
    return rule_of({"x": document}).arguments["x"].constraint


def accepts(constraint: Document, value: JsonValue) -> bool:
    return check_arguments(rule_of({"x": constraint}), {"x": value}, BINDINGS) is None


# --- the table --------------------------------------------------------------------------------------------

ANY: Final[Document] = {"any": True}
NUMERALS: Final[Document] = {"int": {"min": 1, "max": 9}}
ONE_OR_TWO: Final[Document] = {"oneOf": ["c_1", "c_2"]}
DIGITS: Final[Document] = {"anyOf": [{"int": {"min": 1, "max": 5}}, {"int": {"min": 6, "max": 9}}]}


def not_one_of(scalar_type: str, *values: JsonValue) -> Document:
    return {"notOneOf": {"type": scalar_type, "values": [*values]}}


def integers(low: int, high: int) -> Document:
    return {"int": {"min": low, "max": high}}


def lengths(low: int, high: int) -> Document:
    return {"str": {"minLength": low, "maxLength": high}}


def list_of(items: Document, low: int = 0, high: int = 9) -> Document:
    return {"list": {"items": items, "minLength": low, "maxLength": high}}


def decimals(low: str, high: str, scale: int = 2) -> Document:
    return {"decimal": {"min": low, "max": high, "scale": scale}}


def url(**members: JsonValue) -> Document:
    return {"url": {"hosts": ["api.example.com"], **members}}


def fields(**rules: JsonValue) -> Document:
    return {"object": {"fields": {**rules}}}


TABLE: Final[list[tuple[Document, Document, Reason | None]]] = [
    # anything ⊆ any; any ⊆ nothing else
    (NUMERALS, ANY, None),
    (fields(a=ANY), ANY, None),
    ({"bind": "tenantId"}, ANY, None),
    (DIGITS, ANY, None),
    (ANY, ANY, None),
    (ANY, NUMERALS, WIDER),
    (ANY, {"str": {}}, WIDER),
    (ANY, not_one_of("string", "a"), WIDER),
    (ANY, {"allOf": [ANY, ANY]}, None),
    (ANY, {"allOf": [ANY, {"str": {}}]}, WIDER),
    (ANY, {"anyOf": [{"str": {}}, ANY]}, None),
    (ANY, {"anyOf": [{"str": {}}, {"int": {}}]}, UNPROVABLE),
    ({"allOf": [ANY, NUMERALS]}, NUMERALS, None),
    ({"allOf": [ANY, ANY]}, NUMERALS, WIDER),
    (NUMERALS, {"anyOf": [{"str": {}}, ANY]}, None),
    ({"glob": "*"}, {"str": {"minLength": 1}}, WIDER),
    ({"regex": "a*"}, {"str": {"minLength": 1}}, WIDER),
    ({"suffix": "a"}, {"str": {"minLength": 1}}, None),
    (NUMERALS, {"allOf": [{"int": {}}, ANY]}, None),
    # whatever is on record of it
    ({"allOf": [{"eq": "c_1"}, {"resource": "case"}]}, {"allOf": [ONE_OR_TWO, {"resource": "case"}]}, None),
    ({"allOf": [{"eq": "c_3"}, {"resource": "case"}]}, {"allOf": [ONE_OR_TWO, {"resource": "case"}]}, WIDER),
    ({"allOf": [{"eq": "c_1"}, {"resource": "case"}]}, {"resource": "case"}, None),
    # eq, oneOf, bool ⊆ P: value by value
    ({"eq": 1}, {"oneOf": [1, 2]}, None),
    ({"eq": 1}, {"eq": 1}, None),
    ({"eq": True}, {"eq": 1}, WIDER),
    ({"eq": 1}, {"oneOf": [True, "1", 1.5]}, WIDER),
    ({"oneOf": [1, 2]}, {"oneOf": [2, 1, 3]}, None),
    ({"oneOf": [1, 4]}, {"oneOf": [1, 2, 3]}, WIDER),
    ({"oneOf": [1]}, {"eq": 1}, None),
    ({"oneOf": [1, 2]}, {"eq": 1}, WIDER),
    ({"oneOf": [1, 9]}, NUMERALS, None),
    ({"oneOf": [1, 10]}, NUMERALS, WIDER),
    (NUMERALS, {"oneOf": [1, 2, 3, 4, 5, 6, 7, 8, 9]}, UNPROVABLE),
    ({"oneOf": [1, True]}, NUMERALS, WIDER),
    ({"eq": "/data/x"}, {"path": {"root": "/data"}}, None),
    ({"eq": "/database"}, {"path": {"root": "/data"}}, WIDER),
    ({"eq": "/data/../x"}, {"path": {"root": "/data"}}, WIDER),
    ({"oneOf": ["b", "c"]}, not_one_of("string", "a"), None),
    ({"oneOf": ["b", "a"]}, not_one_of("string", "a"), WIDER),
    ({"oneOf": ["b", 1]}, not_one_of("string", "a"), WIDER),
    ({"eq": "a"}, {"bind": "tenantId"}, WIDER),
    ({"oneOf": ["a"]}, {"bind": "tenantId"}, WIDER),
    ({"eq": "a"}, list_of({"eq": "a"}), WIDER),
    ({"bool": {}}, {"oneOf": [False, True]}, None),
    ({"bool": {}}, {"oneOf": [0, 1]}, WIDER),
    ({"bool": {}}, {"eq": True}, WIDER),
    ({"bool": {}}, {"bool": {}}, None),
    ({"eq": True}, {"bool": {}}, None),
    ({"eq": 1}, {"bool": {}}, WIDER),
    ({"bool": {}}, not_one_of("boolean", True), WIDER),
    ({"eq": False}, not_one_of("boolean", True), None),
    # C ⊆ allOf: within every clause; allOf ⊆ P: some clause, ranges and prefixes met
    (integers(2, 3), {"allOf": [integers(1, 5), integers(2, 9)]}, None),
    (integers(1, 3), {"allOf": [integers(1, 5), integers(2, 9)]}, WIDER),
    ({"allOf": [{"prefix": "a"}, {"str": {}}]}, {"prefix": "a"}, None),
    ({"allOf": [{"prefix": "a"}, {"str": {}}]}, {"prefix": "b"}, WIDER),
    ({"allOf": [integers(1, 5), integers(3, 9)]}, integers(3, 5), None),
    ({"allOf": [integers(1, 5), integers(3, 9)]}, integers(4, 5), WIDER),
    ({"allOf": [lengths(1, 5), lengths(3, 9)]}, lengths(3, 5), None),
    ({"allOf": [{"prefix": "ab"}, lengths(0, 5)]}, lengths(2, 5), None),
    ({"allOf": [{"prefix": "ab"}, lengths(0, 5)]}, lengths(3, 5), WIDER),
    ({"allOf": [{"prefix": "a"}, {"prefix": "ab"}]}, {"prefix": "ab"}, None),
    ({"allOf": [integers(1, 2), integers(5, 6)]}, {"eq": "nothing is allowed, so all of it is"}, None),
    ({"allOf": [{"prefix": "a"}, {"prefix": "b"}]}, lengths(0, 0), None),
    ({"allOf": [{"prefix": "abc"}, lengths(0, 2)]}, integers(1, 1), None),
    ({"allOf": [{"oneOf": [1, 2, "a"]}, integers(2, 9)]}, {"eq": 2}, None),
    ({"allOf": [{"bool": {}}, {"oneOf": [True, 0]}]}, {"eq": True}, None),
    ({"allOf": [integers(1, 9), not_one_of("integer", 5)]}, not_one_of("integer", 5, 20), None),
    ({"allOf": [integers(1, 9), not_one_of("integer", 5)]}, not_one_of("integer", 6), UNPROVABLE),
    # anyOf ⊆ P: every branch; C ⊆ anyOf: one branch, a finite set over several
    (DIGITS, NUMERALS, None),
    (DIGITS, integers(1, 8), WIDER),
    (integers(2, 4), DIGITS, None),
    (NUMERALS, DIGITS, UNPROVABLE),
    (integers(0, 9), {"anyOf": [NUMERALS]}, WIDER),
    ({"oneOf": [1, 9]}, DIGITS, None),
    ({"oneOf": [1, "a"]}, {"anyOf": [{"str": {}}, {"int": {}}]}, None),
    ({"oneOf": [1, None]}, {"anyOf": [{"str": {}}, {"int": {}}]}, WIDER),
    ({"bool": {}}, {"anyOf": [{"eq": True}, {"eq": False}]}, None),
    (DIGITS, {"anyOf": [integers(6, 9), integers(0, 5)]}, None),
    ({"allOf": [DIGITS, integers(0, 5)]}, integers(1, 6), None),
    ({"allOf": [DIGITS, DIGITS]}, DIGITS, None),
    ({"anyOf": [{"allOf": [DIGITS, integers(2, 7)]}, {"eq": "a"}]}, {"anyOf": [{"str": {}}, integers(2, 7)]}, None),
    # int ⊆ int
    (integers(2, 8), NUMERALS, None),
    (integers(0, 9), NUMERALS, WIDER),
    (integers(1, 10), NUMERALS, WIDER),
    ({"int": {"min": 1}}, NUMERALS, WIDER),
    ({"int": {"max": 9}}, NUMERALS, WIDER),
    (NUMERALS, {"int": {}}, None),
    (integers(-SAFE, SAFE), {"int": {}}, None),
    (NUMERALS, {"str": {}}, UNPROVABLE),
    ({"str": {}}, NUMERALS, UNPROVABLE),
    (NUMERALS, {"bool": {}}, UNPROVABLE),
    # notOneOf ⊆ notOneOf: at least as much, of the same type
    (not_one_of("string", "a", "b"), not_one_of("string", "a"), None),
    (not_one_of("string", "b", "a"), not_one_of("string", "a", "b"), None),
    (not_one_of("string", "a"), not_one_of("string", "a", "b"), WIDER),
    (not_one_of("integer", 1), not_one_of("number", 1), UNPROVABLE),
    (not_one_of("number", 1), not_one_of("integer", 1), UNPROVABLE),
    (not_one_of("string", "a"), {"str": {}}, UNPROVABLE),
    # int, str, prefix ⊆ notOneOf: no excluded value satisfies the child
    (integers(1, 9), not_one_of("integer", 0, 10), None),
    (integers(1, 9), not_one_of("number", 0.5, 5.5, 10), None),
    (integers(1, 9), not_one_of("integer", 0, 9), WIDER),
    (integers(1, 9), not_one_of("string", "a"), WIDER),
    (integers(1, 9), not_one_of("boolean", True), WIDER),
    (lengths(2, 3), not_one_of("string", "a", "abcd"), None),
    (lengths(2, 3), not_one_of("string", "ab"), WIDER),
    (lengths(2, 3), not_one_of("integer", 1), WIDER),
    ({"prefix": "ab"}, not_one_of("string", "a", "b"), None),
    ({"prefix": "ab"}, not_one_of("string", "ab"), WIDER),
    ({"prefix": "ab"}, not_one_of("number", 1), WIDER),
    (not_one_of("integer", 0), integers(1, 9), UNPROVABLE),
    # str and prefix among themselves, exactly
    (lengths(1, 2), lengths(1, 2), None),
    (lengths(1, 2), lengths(0, 3), None),
    (lengths(0, 3), lengths(1, 3), WIDER),
    (lengths(0, 3), lengths(0, 2), WIDER),
    ({"str": {}}, lengths(0, 2), WIDER),
    ({"prefix": "abc"}, {"prefix": "ab"}, None),
    ({"prefix": "ab"}, {"prefix": "ab"}, None),
    ({"prefix": "a"}, {"prefix": "ab"}, WIDER),
    ({"prefix": "b"}, {"prefix": "a"}, WIDER),
    ({"prefix": "ab"}, {"str": {"minLength": 2}}, None),
    ({"prefix": "ab"}, {"str": {"minLength": 3}}, WIDER),
    ({"prefix": "ab"}, lengths(0, 99), WIDER),
    (lengths(1, 2), {"prefix": "a"}, WIDER),
    # suffix, glob, regex: every string of the child is one of the parent's
    ({"suffix": ".tar.gz"}, {"suffix": ".gz"}, None),
    ({"suffix": ".gz"}, {"suffix": ".tar.gz"}, WIDER),
    ({"glob": "reports/*.pdf"}, {"prefix": "reports/"}, None),
    ({"glob": "reports/*.pdf"}, {"suffix": ".pdf"}, None),
    ({"glob": "reports/a*.pdf"}, {"glob": "reports/*"}, None),
    ({"glob": "*/a"}, {"glob": "*"}, WIDER),
    ({"prefix": "reports/"}, {"glob": "reports/*"}, WIDER),
    ({"regex": "c_[0-9]{1,3}"}, {"regex": "c_[0-9]+"}, None),
    ({"regex": "c_[0-9]{1,3}"}, lengths(3, 5), None),
    ({"regex": "c_[0-9]{1,3}"}, lengths(3, 4), WIDER),
    ({"regex": "(ab|a)*"}, {"regex": "(a|ab)*"}, None),
    ({"regex": "(a|b)*"}, {"regex": "(ab|a)*"}, WIDER),
    ({"regex": "[^\\x00-\\x1f]*"}, {"regex": ".*"}, None),
    ({"allOf": [{"prefix": "a"}, {"suffix": "b"}]}, {"regex": "a[\\x00-\\x{10FFFF}]*b"}, None),
    ({"allOf": [{"prefix": "a"}, {"suffix": "a"}]}, lengths(2, SAFE), WIDER),
    ({"allOf": [{"prefix": "ab"}, {"suffix": "ba"}, lengths(0, 3)]}, {"eq": "aba"}, UNPROVABLE),
    ({"allOf": [{"regex": "a*"}, {"regex": "b*"}, lengths(1, 9)]}, NUMERALS, None),
    ({"regex": "[a-y]{3}"}, not_one_of("string", "xyz"), None),
    ({"regex": "[a-z]{3}"}, not_one_of("string", "xyz"), WIDER),
    ({"glob": "*"}, not_one_of("string", "a/b"), None),
    ({"suffix": "t"}, not_one_of("string", "root"), WIDER),
    ({"regex": "/data/[a-z]+"}, {"path": {"root": "/data"}}, UNPROVABLE),
    ({"allOf": [{"path": {"root": "/data/x"}}, {"suffix": ".txt"}]}, {"path": {"root": "/data"}}, None),
    # decimal ⊆ decimal of the same scale
    (decimals("1.00", "2.00"), decimals("0.00", "2.00"), None),
    (decimals("1.00", "2.01"), decimals("0.00", "2.00"), WIDER),
    (decimals("1.0", "2.0", 1), decimals("0.00", "3.00"), UNPROVABLE),
    ({"eq": "1.50"}, decimals("0.00", "2.00"), None),
    ({"eq": 1.5}, decimals("0.00", "2.00"), None),
    ({"eq": 1.505}, decimals("0.00", "2.00"), WIDER),
    (integers(1, 2), decimals("0.00", "3.00"), UNPROVABLE),
    ({"allOf": [decimals("0.00", "5.00"), decimals("3.00", "9.00")]}, decimals("3.00", "5.00"), None),
    ({"allOf": [decimals("0.00", "1.00"), decimals("3.00", "9.00")]}, NUMERALS, None),
    ({"allOf": [decimals("0.00", "1.00"), decimals("3.0", "9.0", 1)]}, decimals("3.00", "9.00"), UNPROVABLE),
    # url, host, cidr
    (url(path={"exact": "/v1/a"}), url(path={"under": "/v1"}), None),
    (url(path={"exact": "/v1"}), url(path={"under": "/v1"}), None),
    (url(path={"under": "/v1"}), url(path={"exact": "/v1"}), WIDER),
    (url(path={"under": "/v10"}), url(path={"under": "/v1"}), WIDER),
    (url(), url(path={"under": "/"}), None),
    (url(ports=[443]), url(), None),
    (url(), url(ports=[443]), None),
    (url(ports=[443, 8443]), url(), WIDER),
    (url(schemes=["http", "https"], ports=[443]), url(schemes=["http", "https"]), WIDER),
    (url(hosts=["a.example.com"]), url(hosts=["*.example.com"]), None),
    (url(hosts=["*.a.example.com"]), url(hosts=["*.example.com"]), None),
    (url(hosts=["example.com"]), url(hosts=["*.example.com"]), WIDER),
    (url(hosts=["a.example.com.evil.com"]), url(hosts=["*.example.com"]), WIDER),
    (url(query="any"), url(), WIDER),
    (url(), url(query="any"), None),
    ({"eq": "https://api.example.com/v1?x=1"}, url(), WIDER),
    ({"eq": "https://API.example.com:443/v1"}, url(), None),
    ({"prefix": "https://api.example.com/"}, url(), UNPROVABLE),
    (url(), {"prefix": "https://"}, UNPROVABLE),
    ({"host": {"hosts": ["a.example.com"]}}, {"host": {"hosts": ["*.example.com"]}}, None),
    ({"host": {"hosts": ["*.example.com"]}}, {"host": {"hosts": ["a.example.com"]}}, WIDER),
    ({"eq": "a.example.com"}, {"host": {"hosts": ["*.example.com"]}}, None),
    ({"suffix": ".example.com"}, {"host": {"hosts": ["*.example.com"]}}, UNPROVABLE),
    ({"cidr": "10.1.0.0/16"}, {"cidr": "10.0.0.0/8"}, None),
    ({"cidr": "10.0.0.0/8"}, {"cidr": "10.1.0.0/16"}, WIDER),
    ({"cidr": "fd00::/8"}, {"cidr": "10.0.0.0/8"}, WIDER),
    ({"eq": "10.1.2.3"}, {"cidr": "10.0.0.0/8"}, None),
    ({"eq": "::ffff:10.1.2.3"}, {"cidr": "::/0"}, WIDER),
    # containsAll, subsetOf
    ({"containsAll": ["a", "b"]}, {"containsAll": ["a"]}, None),
    ({"containsAll": ["a"]}, {"containsAll": ["a", "b"]}, WIDER),
    ({"containsAll": [1]}, {"containsAll": [True]}, WIDER),
    ({"subsetOf": ["a"]}, {"subsetOf": ["a", "b"]}, None),
    ({"subsetOf": ["a", "c"]}, {"subsetOf": ["a", "b"]}, WIDER),
    ({"subsetOf": ["a"]}, list_of({"eq": "a"}), UNPROVABLE),
    # resource ⊆ resource: the same type and at least the parent's attributes; a listed one as it is on record
    ({"resource": "case"}, {"resource": "case"}, None),
    ({"resource": {"type": "case", "where": {"open": True}}}, {"resource": "case"}, None),
    ({"resource": "case"}, {"resource": {"type": "case", "where": {"open": True}}}, WIDER),
    (
        {"resource": {"type": "case", "where": {"open": 1}}},
        {"resource": {"type": "case", "where": {"open": True}}},
        WIDER,
    ),
    ({"resource": "case"}, {"resource": "account"}, WIDER),
    ({"eq": "unheard of"}, {"resource": "case"}, WIDER),
    ({"resource": "case"}, {"str": {}}, UNPROVABLE),
    # What is on record today may not be at the call, so a record never empties what a child lists.
    ({"allOf": [{"eq": "b"}, {"resource": "case"}]}, {"eq": "a"}, WIDER),
    ({"allOf": [{"oneOf": ["a", "b"]}, {"resource": "case"}]}, {"eq": "a"}, WIDER),
    ({"allOf": [{"eq": "a"}, {"resource": "case"}]}, {"eq": "a"}, None),
    ({"allOf": [{"eq": "b"}, {"resource": "case"}]}, {"int": {}}, WIDER),
    (list_of({"allOf": [{"eq": "b"}, {"resource": "case"}]}), list_of({"eq": "a"}), WIDER),
    ({"allOf": [{"str": {}}, {"resource": "case"}]}, not_one_of("string", "x"), UNPROVABLE),
    ({"str": {}}, {"resource": "case"}, UNPROVABLE),
    # path ⊆ path, by segments; strings against paths never
    ({"path": {"root": "/data/x"}}, {"path": {"root": "/data"}}, None),
    ({"path": {"root": "/data"}}, {"path": {"root": "/data/"}}, None),
    ({"path": {"root": "/data"}}, {"path": {"root": "/"}}, None),
    ({"path": {"root": "/"}}, {"path": {"root": "/data"}}, WIDER),
    ({"path": {"root": "/data"}}, {"path": {"root": "/data/x"}}, WIDER),
    ({"path": {"root": "/database"}}, {"path": {"root": "/data"}}, WIDER),
    ({"path": {"root": "/data/x"}}, {"prefix": "/data"}, UNPROVABLE),
    ({"prefix": "/data/x"}, {"path": {"root": "/data"}}, UNPROVABLE),
    ({"path": {"root": "/data"}}, {"str": {}}, UNPROVABLE),
    ({"str": {}}, {"path": {"root": "/"}}, UNPROVABLE),
    ({"path": {"root": "/data"}}, not_one_of("string", "x"), UNPROVABLE),
    # lists, by items and lengths
    (list_of(integers(2, 3), 1, 2), list_of(NUMERALS, 0, 3), None),
    (list_of(integers(2, 3), 0, 2), list_of(NUMERALS, 1, 3), WIDER),
    (list_of(integers(2, 3), 1, 4), list_of(NUMERALS, 1, 3), WIDER),
    (list_of(integers(0, 3)), list_of(NUMERALS), WIDER),
    (list_of({"str": {}}), list_of(NUMERALS), UNPROVABLE),
    (list_of({"eq": 1}), {"eq": 1}, UNPROVABLE),
    (list_of(NUMERALS), list_of(ANY), None),
    # objects: field by field
    (fields(a=integers(2, 3)), fields(a=NUMERALS), None),
    (fields(a=integers(0, 3)), fields(a=NUMERALS), WIDER),
    (fields(a=NUMERALS, b=ANY), fields(a=NUMERALS), WIDER),
    (fields(a=NUMERALS, b={"absent": True}), fields(a=NUMERALS), None),
    (fields(a=NUMERALS), fields(a=NUMERALS, b=ANY), WIDER),
    (fields(a=NUMERALS), fields(a=NUMERALS, b={"any": True, "optional": True}), None),
    (fields(a=NUMERALS), fields(a=NUMERALS, b={"absent": True}), None),
    (fields(a=NUMERALS | {"optional": True}), fields(a=NUMERALS), WIDER),
    (fields(a=NUMERALS), fields(a=NUMERALS | {"optional": True}), None),
    (fields(a={"absent": True}), fields(a=NUMERALS), WIDER),
    (fields(a=ANY), fields(a={"absent": True}), WIDER),
    (fields(a={"bind": "tenantId"}), fields(a={"bind": "tenantId"}, b={"absent": True}), None),
    (fields(), fields(a={"bind": "tenantId"}), WIDER),
    (fields(a={"eq": "a"}), fields(a={"bind": "tenantId"}), WIDER),
    (fields(), fields(), None),
    (fields(), list_of(ANY), UNPROVABLE),
    # bind ⊆ the same bind
    ({"bind": "tenantId"}, {"bind": "tenantId"}, None),
    ({"bind": "tenantId"}, {"bind": "subject"}, WIDER),
    ({"bind": "tenantId"}, {"str": {}}, UNPROVABLE),
    ({"bind": "tenantId"}, {"eq": "a"}, UNPROVABLE),
    ({"str": {}}, {"bind": "tenantId"}, UNPROVABLE),
]


@pytest.mark.parametrize("child, parent, reason", TABLE)
def test_the_table_is_followed(child: Document, parent: Document, reason: Reason | None) -> None:
    refusal = narrows(constraint_of(child), constraint_of(parent))
    assert (None if refusal is None else refusal.reason) == reason


# One constraint or two of each kind, none of which allows what another kind does.
SAMPLES: Final[dict[str, Document]] = {
    "eq": {"eq": None},
    "oneOf": {"oneOf": [0.5, 2.5]},
    "notOneOf": not_one_of("number", 1.5),
    "bool": {"bool": {}},
    "int": integers(3, 4),
    "str": lengths(3, 5),
    "prefix": {"prefix": "x"},
    "suffix": {"suffix": "yyyyyy"},
    "glob": {"glob": "z*zzzzzz"},
    "regex": {"regex": "w[0-9]{6}"},
    "decimal": decimals("0.25", "0.75"),
    "url": url(),
    "host": {"host": {"hosts": ["example.com"]}},
    "cidr": {"cidr": "10.0.0.0/8"},
    "containsAll": {"containsAll": ["a"]},
    "subsetOf": {"subsetOf": [5]},
    "resource": {"resource": "case"},
    "path": {"path": {"root": "/p"}},
    "list": list_of({"str": {}}),
    "object": fields(a={"str": {}}),
    "bind": {"bind": "subject"},
    "absent": {"absent": True},
}
PROVEN_PAIRS: Final = {("int", "notOneOf"), ("oneOf", "notOneOf")}


@pytest.mark.parametrize("child, parent", [*product(SAMPLES, repeat=2)])
def test_a_pair_of_kinds_that_the_table_does_not_prove_is_refused(child: str, parent: str) -> None:
    refusal = narrows(constraint_of(SAMPLES[child]), constraint_of(SAMPLES[parent]))
    assert (refusal is None) == (child == parent or (child, parent) in PROVEN_PAIRS)


def test_every_kind_is_sampled() -> None:
    assert SAMPLES.keys() | {"any", "allOf", "anyOf"} == KINDS.keys()


def test_a_refusal_points_into_the_child_and_repeats_no_values() -> None:
    child = rule_of({"q": fields(tags=list_of({"oneOf": ["ok", "s3cret"]}))})
    parent = rule_of({"q": fields(tags=list_of({"oneOf": ["ok"]}))})
    assert narrow_tool_rule(child, parent) == Refusal(
        "/q/object/fields/tags/list/items", WIDER, "a value is outside the parent's oneOf"
    )


def test_a_proof_that_takes_too_many_steps_is_refused() -> None:
    assert narrows(constraint_of(MANY), constraint_of({"int": {}})) == Refusal(
        "", UNPROVABLE, "the proof would take too many steps"
    )
    wide = AllOf(clauses=(AllOf(clauses=(Int(),) * 400),) * (MAX_STEPS // 400))
    for child in (constraint_of(NUMERALS), constraint_of({"eq": 1})):
        assert narrows(child, AllOf(clauses=wide.clauses[:-2])) is None
        refusal = narrows(child, wide)
        assert refusal is not None
        assert refusal.reason == UNPROVABLE


def test_a_fault_in_the_prover_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(narrowing, "_ROWS", {(Int, Int): broken})
    refusal = narrows(constraint_of(integers(2, 3)), constraint_of(NUMERALS))
    assert refusal == Refusal("", UNPROVABLE, "the proof failed")


# --- rules of a tool --------------------------------------------------------------------------------------

PARENT: Final[Document] = {
    "tenant": {"bind": "tenantId"},
    "id": {"str": {"maxLength": 9}},
    "limit": integers(1, 50) | {"optional": True},
}
OPEN: Final[Document] = {"*": {"any": True}}


def narrowed(child: Document | None, parent: Document) -> Document | tuple[str, Reason]:
    """The document that is stored, or where and why not."""
    stored = narrow_tool_rule(None if child is None else rule_of(child), rule_of(parent))
    return (stored.pointer, stored.reason) if isinstance(stored, Refusal) else render_tool_rule(stored)


@pytest.mark.parametrize(
    "child, parent, stored",
    [
        (None, PARENT, PARENT),
        ({}, PARENT, PARENT),
        (None, PARENT | OPEN, PARENT | OPEN),
        ({"id": {"eq": "c_42"}}, PARENT, PARENT | {"id": {"eq": "c_42"}}),
        ({"limit": integers(1, 50)}, PARENT, PARENT | {"limit": integers(1, 50)}),
        ({"limit": {"absent": True}}, PARENT, PARENT | {"limit": {"absent": True}}),
        ({"tenant": {"bind": "tenantId"}}, PARENT, PARENT),
        ({"other": {"absent": True}}, PARENT, PARENT | {"other": {"absent": True}}),
        ({"other": {"bind": "subject"}}, OPEN, {"other": {"bind": "subject"}}),
        ({"other": {"bool": {}}}, PARENT | OPEN, PARENT | {"other": {"bool": {}}}),
        ({}, PARENT | OPEN, PARENT),
        (OPEN, PARENT | OPEN, PARENT | OPEN),
        ({"id": {"eq": "x"}} | OPEN, PARENT | OPEN, PARENT | OPEN | {"id": {"eq": "x"}}),
        ({"a": {"any": True}}, {"a": {"any": True}}, {"a": {"any": True}}),
    ],
)
def test_the_stored_rule_is_the_meet_of_child_and_parent(
    child: Document | None, parent: Document, stored: Document
) -> None:
    assert narrowed(child, parent) == stored


@pytest.mark.parametrize(
    "child, parent, pointer, reason",
    [
        ({"id": {"str": {"maxLength": 10}}}, PARENT, "/id", WIDER),
        ({"id": {"prefix": "c_"}}, PARENT, "/id", WIDER),
        ({"id": {"path": {"root": "/"}}}, PARENT, "/id", UNPROVABLE),
        ({"id": {"eq": "c_42", "optional": True}}, PARENT, "/id", WIDER),
        ({"id": {"absent": True}}, PARENT, "/id", WIDER),
        ({"limit": integers(1, 51) | {"optional": True}}, PARENT, "/limit", WIDER),
        ({"tenant": {"absent": True}}, PARENT, "/tenant", WIDER),
        ({"tenant": {"eq": "a"}}, PARENT, "/tenant", WIDER),
        ({"tenant": {"str": {}}}, PARENT, "/tenant", WIDER),
        ({"tenant": {"bind": "subject"}}, PARENT, "/tenant", WIDER),
        ({"tenant": {"anyOf": [{"eq": "a"}]}}, PARENT, "/tenant", WIDER),
        ({"other": {"bool": {}}}, PARENT, "/other", WIDER),
        ({"other": {"any": True, "optional": True}}, PARENT, "/other", WIDER),
        ({"b": {"any": True}}, {"b": {"absent": True}} | OPEN, "/b", WIDER),
        ({"id": {"any": True}}, PARENT | OPEN, "/id", WIDER),
        (OPEN, PARENT, "/*", WIDER),
        (OPEN, {}, "/*", WIDER),
        ({"z": {"bool": {}}, "id": {"str": {}}}, PARENT, "/id", WIDER),
    ],
)
def test_a_child_that_would_widen_is_refused_at_the_argument(
    child: Document, parent: Document, pointer: str, reason: Reason
) -> None:
    assert narrowed(child, parent) == (pointer, reason)


def test_an_open_child_says_nothing_about_an_argument_that_its_parent_limits() -> None:
    """A stored rule always holds its parent's limits; one that does not was tampered with."""
    refusal = rule_within(rule_of(OPEN), rule_of(OPEN | {"a": {"eq": 1, "optional": True}}))
    assert refusal == Refusal("/a", WIDER, "any is wider than the parent's eq")


def test_an_open_child_may_leave_out_what_its_parent_requires_and_so_is_wider() -> None:
    refusal = rule_within(rule_of(OPEN), rule_of(OPEN | {"a": ANY}))
    assert refusal == Refusal("/a", WIDER, "the parent requires it")


def test_a_stored_rule_never_outgrows_what_can_be_stored() -> None:
    parent: Document = {f"p{index}": ANY | {"optional": True} for index in range(40)} | OPEN
    child: Document = {f"c{index}": ANY | {"optional": True} for index in range(25)}
    assert narrowed(child, parent) == ("", UNPROVABLE)
    assert narrowed({**child, "c0": {"bool": {}}}, OPEN) == {**child, "c0": {"bool": {}}}


THING: Final[Document] = {"resource": "case"}
OR_BILL: Final[Document] = {"anyOf": [THING, {"resource": "bill"}]}


@pytest.mark.parametrize(
    "child, parent, found",
    [
        ({"eq": "c_1"}, THING, {("case", "c_1")}),
        ({"oneOf": ["c_1", 2, None, "c_3"]}, THING, {("case", "c_1"), ("case", "c_3")}),
        ({"eq": "c_1"}, {"resource": {"type": "case", "where": {"open": True}}}, {("case", "c_1")}),
        ({"eq": "c_1"}, OR_BILL, {("case", "c_1"), ("bill", "c_1")}),
        (list_of({"allOf": [{"eq": "c_1"}, {"str": {}}]}), list_of(THING), {("case", "c_1")}),
        (fields(a={"eq": "c_1"}), fields(a=OR_BILL), {("case", "c_1"), ("bill", "c_1")}),
        ({"eq": ""}, THING, set()),
        ({"bool": {}}, THING, set()),
        ({"eq": "c_1"}, {"str": {}}, set()),
        (THING, THING, set()),
        ({"allOf": [THING, {"eq": "c_1"}]}, {"allOf": [THING, {"eq": "c_1"}]}, set()),
    ],
)
def test_a_proof_asks_about_what_the_child_lists_where_the_parent_asks_whose_it_is(
    child: Document, parent: Document, found: set[tuple[str, str]]
) -> None:
    rules = rule_of({"x": child, "y": {"any": True}}), rule_of({"x": parent, "y": {"any": True}})
    assert {(ref.type, ref.id) for ref in things_to_look_up(*rules)} == found


MANY: Final[Document] = {"allOf": [{"anyOf": [integers(0, n), integers(1, n)]} for n in range(2, 60)]}


def test_what_would_take_too_many_steps_is_still_within_itself_and_within_anything() -> None:
    for parent in (constraint_of(MANY), constraint_of(ANY)):
        assert narrows(constraint_of(MANY), parent, Ground(steps=Steps(left=0))) is None


@pytest.mark.parametrize(
    "child, parent, cost",
    [
        # a step for each alternative, one for each atom of it that is compared
        (integers(2, 3), NUMERALS, 2),
        (DIGITS, NUMERALS, 4),
        ({"allOf": [NUMERALS, integers(2, 3)]}, integers(1, 7), 4),
        ({"allOf": [DIGITS, DIGITS]}, NUMERALS, 10),
        ({"allOf": [{"path": {"root": "/a"}}, {"path": {"root": "/a/b"}}]}, {"path": {"root": "/"}}, 5),
        (NUMERALS, {"allOf": [integers(0, 10), integers(0, 11)]}, 4),
        # a step for each value that is judged, and one for many that are compared
        ({"oneOf": [1, 2, 3]}, NUMERALS, 5),
        ({"allOf": [{"oneOf": [1, 2, 3]}, {"int": {}}]}, NUMERALS, 11),
        ({"oneOf": [*range(31)]}, {"oneOf": [*range(32)]}, 3),
        ({"oneOf": [*range(32)]}, {"oneOf": [*range(33)]}, 4),
    ],
)
def test_a_proof_takes_its_steps_of_those_that_it_was_given(child: Document, parent: Document, cost: int) -> None:
    pair, steps = (constraint_of(child), constraint_of(parent)), Steps(left=100)
    assert narrows(*pair, Ground(steps=steps)) is None
    assert 100 - steps.left == cost
    assert narrows(*pair, Ground(steps=Steps(left=cost))) is None
    refusal = narrows(*pair, Ground(steps=Steps(left=cost - 1)))
    assert refusal == Refusal("", UNPROVABLE, "the proof would take too many steps")


def test_a_rule_that_stays_the_same_needs_no_proof() -> None:
    rules = rule_of({"x": NUMERALS}), rule_of({"x": integers(2, 3)})
    assert rule_within(rules[0], rules[0], Ground(steps=Steps(left=0))) is None
    assert rule_within(rules[1], rules[0], Ground(steps=Steps(left=0))) is not None


def test_what_a_child_lists_for_an_argument_of_its_own_is_no_thing_of_its_parents() -> None:
    assert [*things_to_look_up(rule_of({"x": {"eq": "c_1"}}), rule_of(OPEN | {"y": THING}))] == []


# --- an oracle for the simple kinds: all of a small world --------------------------------------------------

WORLD: Final[list[JsonValue]] = [
    *("".join(letters) for size in range(5) for letters in product("ab", repeat=size)),
    *("/", "/d", "/d/x", "/d/x/y", "/dx", "/d/..", "/d/", "1"),
    *(-SAFE, -1, 0, 1, 2, 3, 4, SAFE),
    *(True, False, None, 0.5, 1.5),
]
ATOMS: Final[list[Document]] = [
    *({"eq": value} for value in WORLD),
    *({"oneOf": [*values]} for values in ([1, 2], ["a", "ab"], [0, False], [1, True], [0.5, 1, "1"])),
    *(not_one_of("string", *texts) for texts in (["a"], ["a", "ab"], ["", "b"], ["/d"])),
    *(not_one_of("integer", *numbers) for numbers in ([1], [1, 2], [0])),
    *(not_one_of("number", *numbers) for numbers in ([1], [0.5], [2, 1.5])),
    *(not_one_of("boolean", truth) for truth in (True, False)),
    {"bool": {}},
    *(integers(low, high) for low, high in product([-SAFE, 0, 1, 2], [1, 2, 3, SAFE]) if low <= high),
    *(lengths(low, high) for low, high in product([0, 1, 2], [0, 1, 2, SAFE]) if low <= high),
    *({"prefix": prefix} for prefix in ("a", "ab", "b", "abb", "/d")),
    *({"path": {"root": root}} for root in ("/", "/d", "/d/x", "/dx")),
]
ALLOWED: Final = [{index for index, value in enumerate(WORLD) if accepts(atom, value)} for atom in ATOMS]


@pytest.mark.parametrize("index", range(len(ATOMS)))
def test_among_simple_kinds_proofs_and_definite_refusals_are_both_right(index: int) -> None:
    child, allowed = constraint_of(ATOMS[index]), ALLOWED[index]
    for atom, allowed_by_parent in zip(ATOMS, ALLOWED, strict=True):
        refusal = narrows(child, constraint_of(atom))
        is_within = allowed <= allowed_by_parent
        assert refusal is None or refusal.reason == UNPROVABLE or not is_within, atom
        assert is_within or refusal is not None, atom


# --- properties -------------------------------------------------------------------------------------------

TEXTS: Final = ["", "a", "ab", "abc", "b", "1", "true", "/", "/data", "/data/x", "/database", "/data/..", "é"]
NUMBERS: Final = [-SAFE, -1, 0, 1, 2, 3, 5, 6, SAFE - 1, SAFE]
SCALARS: Final[list[JsonValue]] = [*TEXTS, *NUMBERS, True, False, None, 0.5, 1.5]
ARRAYS: Final[list[JsonValue]] = [[], [[]], [1, 2], [2, 1, "a"], ["a", "a", "a"], [[1]], ["a", True], [{"a": 1}]]
OBJECTS: Final[list[Document]] = [
    *({}, {"a": 1}, {"a": "a"}, {"a": True}, {"a": [1]}, {"a": {"a": 1}}, {"b": 1}, {"b": "a"}),
    *({"a": 1, "b": 1}, {"a": "a", "b": "/data"}, {"a": None, "b": "b"}, {"a": "b", "b": "a", "c": 0}),
]
VALUES: Final[list[JsonValue]] = [*SCALARS, *([scalar] for scalar in SCALARS), *ARRAYS, *OBJECTS]

Documents: TypeAlias = st.SearchStrategy[Document]


@st.composite
def ranges(draw: st.DrawFn, least: str, most: str, bounds: list[int]) -> Document:
    low, high = sorted((draw(st.sampled_from(bounds)), draw(st.sampled_from(bounds))))
    return {name: bound for name, bound in ((least, low), (most, high)) if draw(st.booleans())}


def of_kind(kind: str, bodies: st.SearchStrategy[Any]) -> Documents:
    return bodies.map(lambda body: {kind: body})


def exclusions(scalar_type: str, values: list[Any]) -> Documents:
    return st.lists(st.sampled_from(values), min_size=1, max_size=3).map(
        lambda excluded: not_one_of(scalar_type, *excluded)
    )


sizes = ranges("minLength", "maxLength", [0, 1, 2, 3])
simple: Documents = st.one_of(
    [
        st.just(ANY),
        st.just({"bool": {}}),
        of_kind("eq", st.sampled_from(SCALARS)),
        of_kind("oneOf", st.lists(st.sampled_from(SCALARS), min_size=1, max_size=4)),
        exclusions("string", TEXTS),
        exclusions("integer", NUMBERS),
        exclusions("number", [*NUMBERS, 0.5, 1.5]),
        exclusions("boolean", [True, False]),
        of_kind("int", ranges("min", "max", NUMBERS)),
        of_kind("str", sizes),
        of_kind("prefix", st.sampled_from(["a", "ab", "abc", "b", "/data", "é"])),
        of_kind("path", st.sampled_from([{"root": root} for root in ("/", "/data", "/data/x", "/database")])),
    ]
)


def argument(inner: Documents) -> Documents:
    """The rule of an argument or field."""
    return st.one_of(inner, inner.map(lambda rule: rule | {"optional": True}), st.just({"absent": True}))


def members(rules: Documents) -> Documents:
    return st.dictionaries(st.sampled_from(["a", "b", "c"]), rules, max_size=3).map(lambda rules: {**rules})


def combined(inner: Documents) -> Documents:
    clauses = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda items, size: {"list": {"items": items, **size}}, inner, sizes),
        of_kind("object", members(argument(inner)).map(lambda rules: {"fields": rules})),
        of_kind("allOf", clauses),
        of_kind("anyOf", clauses),
    )


constraints: Documents = st.recursive(simple, combined, max_leaves=5)


def near(parent: Document) -> Documents:
    """Constraints that have something to do with the parent, so that proofs are not rare."""
    return st.one_of(
        constraints,
        simple,
        st.just(parent),
        simple.map(lambda other: {"allOf": [other, parent]}),
        simple.map(lambda other: {"anyOf": [parent, other]}),
        simple.map(lambda other: {"allOf": [{"anyOf": [parent, other]}, other]}),
    )


pairs = constraints.flatmap(lambda parent: st.tuples(near(parent), st.just(parent)))
chains = pairs.flatmap(lambda pair: st.tuples(near(pair[0]), st.just(pair[0]), st.just(pair[1])))


def allowed(document: Document) -> list[JsonValue]:
    rule = rule_of({"x": document})
    return [value for value in VALUES if check_arguments(rule, {"x": value}, BINDINGS) is None]


@settings(max_examples=5 * EXAMPLES)
@given(pairs)
def test_a_value_that_a_proven_child_allows_its_parent_allows(pair: tuple[Document, Document]) -> None:
    child, parent = pair
    if narrows(constraint_of(child), constraint_of(parent)) is None:
        assert [value for value in allowed(child) if not accepts(parent, value)] == []


@settings(max_examples=3 * EXAMPLES)
@given(constraints, simple)
def test_a_constraint_is_within_itself_and_a_conjunction_and_an_alternative_around_it(
    document: Document, other: Document
) -> None:
    constraint = constraint_of(document)
    assert narrows(constraint, constraint) is None
    assert narrows(constraint_of({"allOf": [other, document]}), constraint) is None
    assert narrows(constraint, constraint_of({"anyOf": [other, document]})) is None


@settings(max_examples=3 * EXAMPLES)
@given(chains)
def test_proofs_chain(chain: tuple[Document, Document, Document]) -> None:
    child, middle, parent = map(constraint_of, chain)
    if narrows(child, middle) is None and narrows(middle, parent) is None:
        assert narrows(child, parent) is None


bound: Documents = st.sampled_from([{"bind": "tenantId"}, {"bind": "subject"}])
rules: Documents = st.builds(
    lambda arguments, star: arguments | star,
    members(
        argument(constraints)
        | bound
        | of_kind("object", members(argument(simple) | bound).map(lambda rules: {"fields": rules}))
    ),
    st.sampled_from([{}, OPEN]),
)


def stands_anywhere(rule: Document) -> bool:
    """Whether a rule is a constraint that may also stand inside others."""
    return not {"optional", "absent"} & rule.keys() and b'"bind"' not in canonical(rule)


@st.composite
def rule_pairs(draw: st.DrawFn) -> tuple[ToolRule, ToolRule]:
    """A parent, and a child that for most arguments says something near to it."""
    parent = draw(rules)
    child = draw(rules)
    for name, rule in parent.items():
        if draw(st.integers(0, 3)):
            child.pop(name, None)
        if draw(st.booleans()) and name != "*" and stands_anywhere(rule):
            child[name] = draw(near(rule))
    return rule_of(child), rule_of(parent)


@settings(max_examples=3 * EXAMPLES)
@given(rule_pairs())
def test_the_stored_rule_allows_exactly_what_child_and_parent_both_allow(pair: tuple[ToolRule, ToolRule]) -> None:
    child, parent = pair
    stored = narrow_tool_rule(child, parent)
    if isinstance(stored, Refusal):
        return
    assert rule_within(stored, parent) is None
    said = ToolRule(arguments=dict.fromkeys(parent.arguments, FREE) | {**child.arguments}, open=child.open)
    for given_arguments in OBJECTS:
        filled = fill_bindings(stored, given_arguments, BINDINGS)
        verdicts = [check_arguments(rule, filled, BINDINGS) is None for rule in (stored, said, parent)]
        assert verdicts[0] == (verdicts[1] and verdicts[2])


@settings(max_examples=3 * EXAMPLES)
@given(rules)
def test_a_rule_is_read_back_from_its_document_and_is_within_itself(document: Document) -> None:
    rule = rule_of(document)
    assert rule_of(render_tool_rule(rule)) == rule
    assert rule_within(rule, rule) is None
    assert narrow_tool_rule(None, rule) == rule
    assert narrow_tool_rule(rule, rule) == rule
