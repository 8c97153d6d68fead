"""What holds for all constraints and values: of proofs, meets, spellings and of what a model is shown.

Each by random search; `constraint_strategies.py` says how far. The properties of the prover are those of
docs/constraints.md, those of schemas the ones that `schema.py` promises, its exceptions spelt out here.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.json_schema import RustSchemaValidator
from app.core.constraints import (
    ArgumentRule,
    Constraint,
    Objection,
    ToolRule,
    check_arguments,
    fill_bindings,
    flaw_in,
    parse_tool_rule,
    render_tool_rule,
)
from app.core.kinds import Absent, AllOf, AnyOf, Bind, Decimal, Host, List, Object, Site, Url, judge, spell_decimal
from app.core.meet import meet, meet_all, meet_rules
from app.core.narrowing import Ground, Refusal, narrow_tool_rule, narrows, rule_within, things_to_look_up
from app.core.resources import Resources
from app.core.schema import EXCEPTIONS, narrowed_schema, rule_schema
from app.core.steps import Steps
from app.core.strict_json import JsonObject, JsonValue, canonical
from app.core.urls import read_url
from prove.documents import Document, kind_of
from tests.core.constraint_strategies import (
    BINDINGS,
    IDS,
    POOL,
    chains,
    constraints,
    directories,
    examples,
    members_for,
    names,
    pairs,
    resourceful_pairs,
    simple,
    tool_rule_pairs,
    tool_rules,
    values_for,
)

RECORD: Final[Resources] = {}
SCHEMAS: Final = RustSchemaValidator()


def rule_of(document: Document) -> ToolRule:
    return parse_tool_rule(document, pointer="")


def constraint_of(document: Document) -> Constraint:
    return rule_of({"x": document}).arguments["x"].constraint


def allows(rule: ToolRule, values: JsonObject, resources: Resources = RECORD) -> bool:
    """Whether a call with exactly these arguments is allowed, as a decision asks."""
    return flaw_in(values) is None and check_arguments(rule, values, BINDINGS, resources=resources) is None


def accepts(constraint: Constraint, value: JsonValue, resources: Resources = RECORD) -> bool:
    rule = ToolRule(arguments={"x": ArgumentRule(constraint=constraint)}, open=False)
    return allows(rule, {"x": value}, resources)


def some_values(data: st.DataObject, *documents: Document) -> list[JsonValue]:
    """Values that aim at these constraints, and those that are tried with all."""
    return [*(data.draw(values_for(document)) for document in documents), *POOL]


def calls(data: st.DataObject, *documents: Document) -> list[JsonObject]:
    """Arguments that aim at these rules, all of them and without each."""
    drawn = [data.draw(members_for(document, always=data.draw(st.booleans()))) for document in documents]
    return [*drawn, *({name: call[name] for name in call if name != left_out} for call in drawn for left_out in call)]


# --- proofs -----------------------------------------------------------------------------------------------


@examples(500)
@given(st.data(), pairs)
def test_a_value_that_a_proven_child_allows_its_parent_allows(
    data: st.DataObject, pair: tuple[Document, Document]
) -> None:
    child, parent = map(constraint_of, pair)
    if narrows(child, parent) is None:
        values = some_values(data, *pair)
        assert [value for value in values if accepts(child, value) and not accepts(parent, value)] == []


def test_proofs_and_values_that_count_are_not_rare() -> None:
    """Else the property above would say little: it is of the same constraints and values."""
    proven: list[bool] = []
    allowed: list[bool] = []

    @examples(100)
    @given(st.data(), pairs)
    def look(data: st.DataObject, pair: tuple[Document, Document]) -> None:
        child, parent = map(constraint_of, pair)
        proven.append(narrows(child, parent) is None)
        allowed.extend(accepts(child, data.draw(values_for(pair[0]))) for _ in range(4))

    look()
    assert sum(proven) > len(proven) / 3
    assert sum(allowed) > len(allowed) / 3


@examples(200)
@given(constraints, simple)
def test_a_constraint_is_within_itself_and_whatever_is_around_it(document: Document, other: Document) -> None:
    constraint = constraint_of(document)
    assert narrows(constraint, constraint_of(document)) is None
    assert narrows(constraint_of({"allOf": [other, document]}), constraint) is None
    assert narrows(constraint, constraint_of({"anyOf": [other, document]})) is None


@examples(250)
@given(st.data(), chains)
def test_proofs_chain(data: st.DataObject, chain: tuple[Document, Document, Document]) -> None:
    child, middle, parent = map(constraint_of, chain)
    directly = narrows(child, parent)
    assert directly is None or directly.detail != "the proof failed"
    if narrows(child, middle) is None and narrows(middle, parent) is None:
        values = some_values(data, chain[0], chain[2])
        assert [value for value in values if accepts(child, value) and not accepts(parent, value)] == []


@examples(200)
@given(st.data(), tool_rule_pairs)
def test_a_call_that_a_proven_rule_allows_its_parents_rule_allows(
    data: st.DataObject, pair: tuple[Document, Document]
) -> None:
    child, parent = map(rule_of, pair)
    stored = narrow_tool_rule(child, parent)
    if isinstance(stored, Refusal):
        return
    assert rule_within(stored, parent) is None
    for call in calls(data, *pair):
        filled = fill_bindings(stored, call, BINDINGS)
        assert allows(parent, filled) or not allows(stored, filled)


# --- meets ------------------------------------------------------------------------------------------------


def grounds() -> list[Ground]:
    """With steps to look for short words, and without any."""
    return [Ground(), Ground(steps=Steps(left=0))]


@examples(300)
@given(st.data(), pairs)
def test_the_meet_of_two_constraints_allows_exactly_what_both_allow(
    data: st.DataObject, pair: tuple[Document, Document]
) -> None:
    one, other = map(constraint_of, pair)
    for ground in grounds():
        met = meet(one, other, ground)
        for value in some_values(data, *pair):
            assert accepts(met, value) == (accepts(one, value) and accepts(other, value))


@examples(200)
@given(st.data(), tool_rule_pairs, directories)
def test_the_meet_of_two_rules_allows_exactly_what_both_allow_absent_arguments_included(
    data: st.DataObject, pair: tuple[Document, Document], directory: Resources
) -> None:
    one, other = map(rule_of, pair)
    some_calls = calls(data, *pair)
    for ground in grounds():
        met = meet_rules(one, other, ground)
        for values in (*some_calls, *(fill_bindings(one, call, BINDINGS) for call in some_calls)):
            both = allows(one, values, directory) and allows(other, values, directory)
            assert allows(met, values, directory) == both


# --- spellings --------------------------------------------------------------------------------------------


@examples(200)
@given(tool_rules)
def test_a_rule_is_written_as_what_it_is_read_from(document: Document) -> None:
    rule = rule_of(document)
    written = render_tool_rule(rule)
    assert rule_of(written) == rule
    assert canonical(render_tool_rule(rule_of(written))) == canonical(written)


# --- what is bound ----------------------------------------------------------------------------------------


def without_bound(rule: ToolRule, values: JsonObject) -> JsonObject:
    """The arguments that a model would give: without those that are bound, at any level."""
    given_arguments: JsonObject = {}
    for name, value in values.items():
        constraint = rule.of(name).constraint
        if isinstance(constraint, Object) and isinstance(value, dict):
            given_arguments[name] = without_bound(constraint.fields, value)
        elif not isinstance(constraint, Bind):
            given_arguments[name] = value
    return given_arguments


def assert_hidden(rule: ToolRule, schema: JsonObject) -> None:
    """No level of the schema speaks of what is bound there."""
    properties, required = schema["properties"], schema.get("required", [])
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    for name, argument in rule.arguments.items():
        if isinstance(argument.constraint, Bind):
            assert name not in properties
            assert name not in required
        elif isinstance(argument.constraint, Object):
            inner = properties[name]
            assert isinstance(inner, dict)
            assert_hidden(argument.constraint.fields, inner)


@examples(150)
@given(tool_rule_pairs)
def test_what_either_of_two_rules_binds_is_not_shown_of_what_they_allow_together(
    pair: tuple[Document, Document],
) -> None:
    one, other = map(rule_of, pair)
    met = meet_rules(one, other)
    properties = rule_schema(met)["properties"]
    assert isinstance(properties, dict)
    for name, argument in met.arguments.items():
        said = [rule.of(name).constraint for rule in (one, other)]
        rest = [constraint for constraint in said if not isinstance(constraint, Bind)]
        # What can't be satisfied is shown: by the other's own word where nothing is within that, or as forbidden.
        satisfiable = argument.constraint not in rest and Absent() not in rest
        assert len(rest) == 2 or not satisfiable or name not in properties


@examples(150)
@given(st.data(), tool_rules)
def test_what_is_bound_is_never_shown_and_always_filled_in(data: st.DataObject, document: Document) -> None:
    rule = rule_of(document)
    assert_hidden(rule, rule_schema(rule))
    values = without_bound(rule, data.draw(members_for(document, always=True)))
    filled = fill_bindings(rule, values, BINDINGS)
    assert without_bound(rule, filled) == values
    for name, argument in rule.arguments.items():
        if isinstance(argument.constraint, Bind):
            assert filled.get(name) == BINDINGS[argument.constraint.field]
    assert fill_bindings(rule, filled, BINDINGS) == filled


# --- what a model is shown --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown(Constraint):
    """A constraint, and beside what it allows also what only JSON Schema allows in its place."""

    kind = "shown"
    told: Constraint
    beyond: Callable[[Any, JsonValue], bool]

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        return None if self.beyond(self.told, value) else judge(self.told, value, at)


def _beyond_decimal(decimal: Decimal, value: JsonValue) -> bool:
    low, high = (float(spell_decimal(bound, decimal.scale)) for bound in (decimal.minimum, decimal.maximum))
    if isinstance(value, str):
        digits = rf"(\.[0-9]{{1,{decimal.scale}}})?" if decimal.scale else ""
        return re.fullmatch(f"-?(0|[1-9][0-9]*){digits}", value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _beyond_host(host: Host, value: JsonValue) -> bool:
    below = any(pattern.below for pattern in host.hosts)
    return below and isinstance(value, str) and ("xn--" in value.lower() or len(value) > 253)


def _beyond_url(url: Url, value: JsonValue) -> bool:
    return isinstance(value, str) and (read_url(value) is None or len(url.rule.schemes) > 1)


BEYOND: Final[dict[str, Callable[[Any, JsonValue], bool]]] = {
    "decimal": _beyond_decimal,
    "host": _beyond_host,
    "url": _beyond_url,
    "cidr": lambda _cidr, value: isinstance(value, str),
    "resource": lambda _resource, value: isinstance(value, str),
}
"""The exceptions of each kind, as exactly as they can be said."""

EVERYWHERE: Final = {"strings", "numbers", "bind"}
"""The exceptions that are of no one kind: what no rule may look at, and what is filled in."""


def shown(constraint: Constraint) -> Constraint:
    """What the schema of a constraint promises to allow at most."""
    if isinstance(constraint, List):
        return replace(constraint, items=shown(constraint.items))
    if isinstance(constraint, Object):
        return Object(fields=shown_rule(constraint.fields))
    if isinstance(constraint, AllOf | AnyOf):
        return replace(constraint, clauses=tuple(map(shown, constraint.clauses)))
    beyond = BEYOND.get(constraint.kind)
    return constraint if beyond is None else Shown(told=constraint, beyond=beyond)


def shown_rule(rule: ToolRule) -> ToolRule:
    """The same for a rule, of which nothing that is bound is shown."""
    kept = {name: argument for name, argument in rule.arguments.items() if not isinstance(argument.constraint, Bind)}
    return replace(rule, arguments={name: replace(one, constraint=shown(one.constraint)) for name, one in kept.items()})


def test_every_exception_is_one_that_is_listed() -> None:
    assert EXCEPTIONS.keys() == BEYOND.keys() | EVERYWHERE


@pytest.mark.parametrize(
    "constraint, value",
    [
        ({"decimal": {"scale": 2}}, 0.125),
        ({"decimal": {"scale": 2, "max": "1.00"}}, "1.01"),
        ({"decimal": {"scale": 2}}, "-0.00"),
        ({"host": {"hosts": ["*.example.com"]}}, "xn--a.example.com"),
        ({"host": {"hosts": ["*.example.com"]}}, "a." * 130 + "example.com"),
        ({"url": {"hosts": ["example.com"], "schemes": ["http", "https"]}}, "http://example.com:443/"),
        ({"url": {"hosts": ["example.com"]}}, "https://example.com/%C0%AF"),
        ({"cidr": "10.0.0.0/8"}, "11.0.0.0"),
        ({"resource": "case"}, "unheard of"),
        ({"str": {}}, "e\u0301"),
        ({"int": {}}, 2**53),
    ],
)
def test_the_exceptions_are_real(constraint: Document, value: JsonValue) -> None:
    rule = rule_of({"x": constraint})
    assert SCHEMAS.objection(rule_schema(rule), {"x": value}) is None
    assert not allows(rule, {"x": value})


def assert_shown(rule: ToolRule, some_calls: Iterable[JsonObject], directory: Resources) -> None:
    """The schema allows these arguments if the evaluator does, and else only where it is excused."""
    schema, excused = rule_schema(rule), shown_rule(rule)
    assert SCHEMAS.check_schema(schema) is None
    for call in some_calls:
        values = without_bound(rule, call)
        objection = SCHEMAS.objection(schema, values)
        if allows(rule, fill_bindings(rule, values, BINDINGS), directory):
            assert objection is None
        if objection is None and flaw_in(values) is None:
            assert allows(excused, values, directory)


@examples(450)
@given(st.data(), tool_rules, directories)
def test_the_schema_of_a_rule_allows_what_the_evaluator_allows_and_no_more_than_is_listed(
    data: st.DataObject, document: Document, directory: Resources
) -> None:
    rule = rule_of(document)
    assert_shown(rule, calls(data, document), directory)


@examples(150)
@given(st.data(), tool_rule_pairs, directories)
def test_so_does_the_schema_of_what_a_chain_of_grants_allows(
    data: st.DataObject, pair: tuple[Document, Document], directory: Resources
) -> None:
    child, parent = map(rule_of, pair)
    stored = narrow_tool_rule(child, parent, Ground(resources=directory))
    if not isinstance(stored, Refusal):
        some_calls = calls(data, *pair)
        for ground in grounds():
            assert_shown(meet_all([parent, stored], ground), some_calls, directory)


# --- and with what the tool itself says -------------------------------------------------------------------

WORD: Final[JsonObject] = {"$ref": "#/$defs/word"}
ANYTHING: Final[list[JsonValue]] = [
    *({}, True, False),
    {"title": "A", "description": "whatever it is"},
    {"$ref": "#/$defs/deep"},
    {"$ref": "#/properties/a"},
    {"anyOf": [{"type": "string"}, {"minimum": 2}, {"minItems": 1}]},
    {"allOf": [{"maxLength": 2}]},
    {"not": {"const": "a"}},
    {"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"maximum": 5}},
    {"enum": ["a", 1, None, True, 0.5, "case_1"]},
]
ABOUT: Final[dict[str, list[JsonValue]]] = {
    "list": [
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "prefixItems": [{"type": "integer"}]},
        {"prefixItems": [{}], "items": WORD},
        {"contains": {"const": "a"}, "minContains": 0},
        {"unevaluatedItems": {"type": "string"}},
    ],
    "object": [
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": WORD}, "required": ["a"]},
        {"properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"], "additionalProperties": False},
        {"type": "object", "patternProperties": {"^[ab]": {}}, "additionalProperties": {"type": "integer"}},
        {"patternProperties": {"": {}}},
        {"unevaluatedProperties": False},
        {"propertyNames": {"maxLength": 1}},
    ],
    "text": [
        {"type": "string", "maxLength": 3, "description": "short"},
        {"type": ["string", "null"], "pattern": "a"},
        WORD,
        {"const": "a"},
    ],
}


@st.composite
def tools(draw: st.DrawFn, document: Document) -> JsonObject:
    """What a tool says of its arguments, of which a rule speaks, too."""
    about = {name: ABOUT.get(kind_of(rule), ABOUT["text"]) for name, rule in document.items()}
    properties = {
        name: draw(st.sampled_from([*ANYTHING, *parts, *parts])) for name, parts in about.items() if name != "*"
    }
    more = draw(st.dictionaries(names, st.sampled_from(ANYTHING), max_size=1))
    required = draw(st.lists(st.sampled_from([*properties, *more, "c"]), max_size=2, unique=True))
    definitions: JsonObject = {"word": {"type": "string"}, "deep": {"items": WORD, "properties": {"a": WORD}}}
    tool: JsonObject = {"type": "object", "properties": {**more, **properties}, "required": [*required]}
    together: JsonObject = {"additionalProperties": False, "minProperties": 1, "allOf": [{"required": ["a"]}]}
    said = {name: member for name, member in together.items() if not draw(st.integers(0, 3))}
    return {"$schema": draw(st.sampled_from(DIALECTS)), "$defs": definitions, **tool, **said}


DIALECTS: Final = ("https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#")


@examples(400)
@given(st.data(), tool_rules, directories)
def test_a_tools_schema_is_narrowed_to_what_both_allow(
    data: st.DataObject, document: Document, directory: Resources
) -> None:
    rule, tool = rule_of(document), data.draw(tools(document))
    if SCHEMAS.check_schema(tool) is not None:
        return  # a $ref that leads nowhere: no such tool is ever registered
    schema = narrowed_schema(tool, rule)
    assert SCHEMAS.check_schema(schema) is None
    for values in calls(data, document):
        hidden = without_bound(rule, values)
        filled = fill_bindings(rule, hidden, BINDINGS)
        objection = SCHEMAS.objection(schema, hidden)
        if allows(rule, filled, directory) and SCHEMAS.objection(tool, filled) is None:
            assert objection is None
        if objection is None and flaw_in(hidden) is None:
            assert allows(shown_rule(rule), hidden, directory)


@examples(150)
@given(st.data(), tool_rules)
def test_a_tools_schema_is_narrowed_without_a_word_of_what_is_bound(data: st.DataObject, document: Document) -> None:
    rule = rule_of(document)
    properties = narrowed_schema(data.draw(tools(document)), rule)["properties"]
    assert isinstance(properties, dict)
    for name, argument in rule.arguments.items():
        if isinstance(argument.constraint, Bind):
            assert name not in properties
        elif isinstance(argument.constraint, Object):
            inside = argument.constraint.fields.arguments.items()
            hidden = [field for field, inner in inside if isinstance(inner.constraint, Bind)]
            told = canonical(properties[name]).decode()
            assert not any(f"{canonical(field).decode()}:" in told for field in hidden)


# --- resources --------------------------------------------------------------------------------------------


@examples(250)
@given(st.data(), resourceful_pairs, directories, directories)
def test_proofs_about_things_hold_for_what_is_on_record_and_without_it_for_whatever_is(
    data: st.DataObject, pair: tuple[Document, Document], directory: Resources, another: Resources
) -> None:
    child, parent = map(constraint_of, pair)
    values = [*IDS, *some_values(data, *pair)]
    grounds = [(directory, narrows(child, parent, Ground(resources=directory))), (another, narrows(child, parent))]
    for record in (record for record, refusal in grounds if refusal is None):
        allowed = [value for value in values if accepts(child, value, record)]
        assert [value for value in allowed if not accepts(parent, value, record)] == []


@examples(150)
@given(resourceful_pairs, directories)
def test_a_proof_needs_to_know_of_nothing_but_what_it_asked_for(
    pair: tuple[Document, Document], directory: Resources
) -> None:
    child, parent = (rule_of({"x": document}) for document in pair)
    asked = {ref: directory[ref] for ref in things_to_look_up(child, parent) if ref in directory}
    assert rule_within(child, parent, Ground(resources=asked)) == rule_within(
        child, parent, Ground(resources=directory)
    )


@examples(150)
@given(st.data(), resourceful_pairs, directories)
def test_meets_of_things_allow_exactly_what_both_allow(
    data: st.DataObject, pair: tuple[Document, Document], directory: Resources
) -> None:
    one, other = map(constraint_of, pair)
    met = meet(one, other)
    for value in [*IDS, *some_values(data, *pair)]:
        both = accepts(one, value, directory) and accepts(other, value, directory)
        assert accepts(met, value, directory) == both
