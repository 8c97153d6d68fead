"""The meet: what two constraints, or two rules, allow together, in the fewest words that say it."""

from itertools import permutations
from typing import Any, Final, TypeAlias

import pytest

from app.core.constraints import ToolRule, check_arguments, parse_tool_rule, render_tool_rule
from app.core.kinds import AllOf, ArgumentRule, Constraint
from app.core.meet import NOTHING, meet, meet_all, meet_rules
from app.core.narrowing import Ground
from app.core.steps import Steps
from app.core.strict_json import JsonObject, JsonValue

Document: TypeAlias = dict[str, Any]


def rule_of(document: JsonObject) -> ToolRule:
    return parse_tool_rule(document, pointer="")


def constraint_of(document: Document) -> Constraint:
    return rule_of({"x": document}).arguments["x"].constraint


def spelt(constraint: Constraint) -> JsonValue:
    return render_tool_rule(ToolRule(arguments={"x": ArgumentRule(constraint=constraint)}, open=False))["x"]


def accepts(rule: ToolRule, arguments: JsonObject) -> bool:
    return check_arguments(rule, arguments, {}) is None


def integers(low: int, high: int) -> Document:
    return {"int": {"min": low, "max": high}}


def lengths(low: int, high: int) -> Document:
    return {"str": {"minLength": low, "maxLength": high}}


def decimals(low: str, high: str, scale: int = 1) -> Document:
    return {"decimal": {"min": low, "max": high, "scale": scale}}


def not_one_of(scalar_type: str, *values: JsonValue) -> Document:
    return {"notOneOf": {"type": scalar_type, "values": [*values]}}


def list_of(items: Document, low: int, high: int) -> Document:
    return {"list": {"items": items, "minLength": low, "maxLength": high}}


def fields(**rules: JsonValue) -> Document:
    return {"object": {"fields": {**rules}}}


def both(one: Document, other: Document) -> Document:
    return {"allOf": [one, other]}


OVERLAPS: Final[list[tuple[Document, Document, Document]]] = [
    # one is within the other
    (integers(1, 9), integers(2, 5), integers(2, 5)),
    ({"prefix": "a"}, {"prefix": "ab"}, {"prefix": "ab"}),
    ({"any": True}, {"str": {}}, {"str": {}}),
    # one constraint of their kind says both
    (integers(1, 5), integers(3, 9), integers(3, 5)),
    (integers(1, 5), integers(5, 9), integers(5, 5)),
    (lengths(1, 5), lengths(3, 9), lengths(3, 5)),
    (decimals("0.1", "0.5"), decimals("0.3", "0.9"), decimals("0.3", "0.5")),
    (list_of({"any": True}, 0, 3), list_of({"bool": {}}, 2, 5), list_of({"bool": {}}, 2, 3)),
    (list_of(integers(1, 5), 1, 2), list_of(integers(3, 9), 2, 3), list_of(integers(3, 5), 2, 2)),
    (fields(a=integers(1, 5)), fields(a=integers(3, 9)), fields(a=integers(3, 5))),
    # no constraint of their kind does, and they stand side by side
    (integers(1, 2), integers(4, 5), both(integers(1, 2), integers(4, 5))),
    (decimals("0.1", "9.0", 1), decimals("0.30", "0.90", 2), both(decimals("0.1", "9.0"), decimals("0.30", "0.90", 2))),
    (
        list_of({"any": True}, 0, 1),
        list_of({"any": True}, 2, 3),
        both(list_of({"any": True}, 0, 1), list_of({"any": True}, 2, 3)),
    ),
    (not_one_of("integer", 1), not_one_of("string", "a"), both(not_one_of("integer", 1), not_one_of("string", "a"))),
    ({"prefix": "a"}, {"suffix": "b"}, both({"prefix": "a"}, {"suffix": "b"})),
    ({"glob": "a*"}, {"glob": "*b"}, both({"glob": "a*"}, {"glob": "*b"})),
]


@pytest.mark.parametrize("one, other, together", OVERLAPS)
def test_what_two_constraints_allow_together_is_said_in_the_fewest_words(
    one: Document, other: Document, together: Document
) -> None:
    assert spelt(meet(constraint_of(one), constraint_of(other))) == spelt(constraint_of(together))


SETS: Final[list[tuple[Document, Document, str, list[JsonValue]]]] = [
    (not_one_of("string", "a", "b"), not_one_of("string", "b", "c"), "notOneOf", ["a", "b", "c"]),
    ({"containsAll": ["a", "b"]}, {"containsAll": ["b", "c"]}, "containsAll", ["a", "b", "c"]),
    ({"subsetOf": ["a", "b"]}, {"subsetOf": ["b", "c"]}, "subsetOf", ["b"]),
]


@pytest.mark.parametrize("one, other, kind, values", SETS)
def test_sets_of_a_kind_are_joined_without_repeating_a_value(
    one: Document, other: Document, kind: str, values: list[JsonValue]
) -> None:
    met: Any = spelt(meet(constraint_of(one), constraint_of(other)))
    assert list(met) == [kind]
    held = met[kind] if isinstance(met[kind], list) else met[kind]["values"]
    assert sorted(held) == values


def test_without_steps_constraints_that_differ_stand_side_by_side() -> None:
    one, other = constraint_of({"regex": "[a-z]{3}"}), constraint_of({"regex": "[a-c]{3}"})
    assert meet(one, other) == other
    beside = AllOf(clauses=(one, other))
    assert meet(one, other, Ground(steps=Steps(left=0))) == beside
    some, more = (
        ToolRule(arguments={"x": ArgumentRule(constraint=constraint)}, open=False) for constraint in (one, other)
    )
    assert meet_rules(some, more, Ground(steps=Steps(left=0))).arguments["x"].constraint == beside
    assert meet_all([some, more], Ground(steps=Steps(left=0))).arguments["x"].constraint == beside


ARGUMENTS: Final[list[tuple[JsonObject, JsonObject, JsonObject]]] = [
    # what only one of two closed rules names neither allows
    ({"a": {"int": {}, "optional": True}}, {}, {"a": {"absent": True}}),
    # an open rule allows what it does not name
    ({"*": {"any": True}}, {"a": {"int": {}}}, {"a": {"int": {}}}),
    ({"*": {"any": True}}, {"a": {"int": {}, "optional": True}}, {"a": {"int": {}, "optional": True}}),
    ({"*": {"any": True}}, {"*": {"any": True}, "a": {"int": {}}}, {"*": {"any": True}, "a": {"int": {}}}),
    # required wins over optional
    ({"a": {"int": {}, "optional": True}}, {"a": {"int": {}}}, {"a": {"int": {}}}),
    ({"a": {"int": {}, "optional": True}}, {"a": {"int": {}, "optional": True}}, {"a": {"int": {}, "optional": True}}),
    ({"a": {"absent": True}}, {"a": {"int": {}, "optional": True}}, {"a": {"absent": True}}),
]


@pytest.mark.parametrize("one, other, together", ARGUMENTS)
def test_what_two_rules_allow_together_is_said_argument_by_argument(
    one: JsonObject, other: JsonObject, together: JsonObject
) -> None:
    for some, more in permutations((one, other)):
        assert render_tool_rule(meet_rules(rule_of(some), rule_of(more))) == together


def test_an_argument_that_one_rule_requires_and_the_other_forbids_lets_no_call_through() -> None:
    rules = rule_of({"a": {"int": {}}}), rule_of({"a": {"absent": True}})
    for some, more in permutations(rules):
        met = meet_rules(some, more)
        assert met.arguments["a"] == NOTHING
        assert not NOTHING.allows_absence
        assert not accepts(met, {})
        assert not accepts(met, {"a": 1})


def test_the_rules_of_a_whole_chain_are_met_one_after_the_other() -> None:
    rules = [rule_of({"a": {"int": {"min": low, "max": low + 5}}}) for low in (1, 2, 3)]
    assert render_tool_rule(meet_all(iter(rules))) == {"a": integers(3, 6)}
    assert meet_all([rules[0]]) == rules[0]


SAMPLES: Final[list[Document]] = [one for pair in OVERLAPS for one in pair[:2]] + [
    one for row in SETS for one in row[:2]
]
ARRAYS: Final[list[JsonValue]] = [
    [],
    ["a"],
    ["b"],
    ["a", "b"],
    ["a", "b", "c"],
    [1],
    [3],
    [3, 4],
    [True, False],
    [True, False, True],
]
OBJECTS: Final[list[JsonValue]] = [{}, {"a": 1}, {"a": 4}]
VALUES: Final[list[JsonValue]] = [
    *range(7),
    *("", "a", "ab", "b", "c", "aab", "aaaa", "aaaaaa"),
    *(0.1, 0.25, 0.3, 0.31, 0.5, True, None),
    *ARRAYS,
    *OBJECTS,
]


@pytest.mark.parametrize("one", SAMPLES, ids=str)
def test_the_meet_allows_exactly_what_both_allow(one: Document) -> None:
    for other in SAMPLES:
        rules = [rule_of({"x": document}) for document in (one, other)]
        met = meet_all(rules)
        for value in VALUES:
            assert accepts(met, {"x": value}) == all(accepts(rule, {"x": value}) for rule in rules), (other, value)
