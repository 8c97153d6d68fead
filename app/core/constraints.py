"""The constraint language: how a grant spells what a tool's arguments may be, and how a call is held to it.

`KINDS` has one row a kind: spelling, class, and how the two turn into one another. What a kind allows is in
`kinds.py`; whether one constraint is narrower than another, in `narrowing.py`. A rule that is not understood
to the last member is refused.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from unicodedata import is_normalized

from app.core.kinds import (
    FREE,
    SCALAR_TYPES,
    Absent,
    AllOf,
    AnyOf,
    AnyValue,
    ArgumentRule,
    Bind,
    Bindings,
    Bool,
    Clauses,
    Constraint,
    Eq,
    Int,
    List,
    NotOneOf,
    Object,
    Objection,
    OneOf,
    OutOfSteps,
    Path,
    Prefix,
    Scalar,
    Site,
    Steps,
    Str,
    ToolRule,
    is_canonical_path,
    typed,
)
from app.core.strict_json import (
    MAX_SAFE_INTEGER,
    JsonObject,
    JsonValue,
    StrictJsonError,
    canonical,
    normalise,
    point,
    walk,
)

__all__ = [
    "ArgumentRule",
    "Bindings",
    "Constraint",
    "ConstraintInvalid",
    "Objection",
    "Steps",
    "ToolRule",
    "check_arguments",
    "fill_bindings",
    "flaw_in",
    "parse_tool_rule",
    "render_tool_rule",
]

MAX_ARGUMENTS: Final = 64  # a tool, and fields an object
MAX_VALUES: Final = 256  # a set, and clauses an allOf or anyOf
MAX_CONSTRAINT_DEPTH: Final = 8  # constraints inside one another, an argument's own being the first

BINDABLE: Final = ("tenantId", "subject", "childRunId")
"""The fields of a grant that an argument may be bound to."""


class ConstraintInvalid(ValueError):
    """A document is no tool rule. `pointer` (RFC 6901) names the member; `detail` repeats no values."""

    def __init__(self, pointer: str, detail: str) -> None:
        super().__init__(f"{pointer}: {detail}")
        self.pointer = pointer
        self.detail = detail


def parse_tool_rule(document: JsonValue, *, pointer: str) -> ToolRule:
    """The rule that a member of `resourceConstraints` spells; `pointer` is the member's own.

    Raises ConstraintInvalid at the first member that is not understood, or is beyond a limit.
    """
    try:
        document = normalise(document)
    except StrictJsonError as error:
        raise ConstraintInvalid(pointer + error.pointer, error.detail) from None
    if (flaw := next(_flaws(document, pointer), None)) is not None:
        raise ConstraintInvalid(*flaw)
    return _parse_rules(Node(value=document, pointer=pointer), openable=True)


def render_tool_rule(rule: ToolRule) -> JsonObject:
    """The document of a rule, the inverse of `parse_tool_rule`."""
    star: JsonObject = {"*": _render(FREE.constraint)} if rule.open else {}
    return star | {
        name: _render(argument.constraint) | ({"optional": True} if argument.optional else {})
        for name, argument in rule.arguments.items()
    }


def fill_bindings(rule: ToolRule, arguments: JsonObject, bindings: Bindings) -> JsonObject:
    """The arguments, with each bound one that was left out set to the field of the grant that it is bound to.

    A field that the grant does not have fills nothing in: `check_arguments` objects to that.
    """
    filled = dict(arguments)
    for name, argument in rule.arguments.items():
        constraint, given = argument.constraint, arguments.get(name)
        if isinstance(constraint, Bind) and (bound := bindings.get(constraint.field)) is not None:
            filled.setdefault(name, bound)
        elif isinstance(constraint, Object) and isinstance(given, dict):
            filled[name] = fill_bindings(constraint.fields, given, bindings)
    return filled


def check_arguments(
    rule: ToolRule, arguments: JsonObject, bindings: Bindings, steps: Steps | None = None
) -> Objection | None:
    """None if a call with these arguments is within the rule, else the foremost objection.

    `arguments` are canonical (`strict_json.parse`), filled in (`fill_bindings`) and without a flaw
    (`flaw_in`). Recursion goes as deep as the rule, never as deep as the arguments. `steps` are what may be
    spent on it and on what else is asked with them.
    """
    at = Site(bindings=bindings, steps=steps or Steps())
    try:
        return rule.objection(arguments, at)
    except OutOfSteps:
        return at.invalid("takes too many steps to check")


def flaw_in(arguments: JsonObject) -> Objection | None:
    """What no rule may look at, wherever it stands, under `any` as well; None if there is nothing of it."""
    for place, flaw in _flaws(arguments, ""):
        return Site(pointer=place, bindings={}, steps=Steps()).invalid(flaw)
    return None


def _flaws(value: JsonValue, pointer: str) -> Iterator[tuple[str, str]]:
    """Where and how scalars and names are such that no kind may look at them."""
    for place, leaf in walk(value, pointer):
        if isinstance(leaf, str) and leaf.isascii():
            continue  # in form C as it is, and by far the most
        try:
            same_type = type(normalise(leaf)) is type(leaf)
        except StrictJsonError as error:
            yield place, f"is not strict JSON: {error.detail}"
            continue
        if not same_type:
            yield place, "is not strict JSON: a number is not in canonical form"
        elif isinstance(leaf, str) and not is_normalized("NFC", leaf):
            yield place, "holds a string that is not in Unicode normalisation form C"


# --- the document -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value in a grant's document, and where it stands.

    What a method returns was checked; else it raises ConstraintInvalid. `depth` counts the constraints around
    the value, `bindable` is False where no `bind` may stand.
    """

    value: JsonValue
    pointer: str
    depth: int = 0
    bindable: bool = True

    def error(self, detail: str) -> ConstraintInvalid:
        return ConstraintInvalid(self.pointer, detail)

    def inside(self, *, bindable: bool) -> "Node":
        """The same value, one constraint further in; `bindable` can only be lost."""
        return replace(self, depth=self.depth + 1, bindable=self.bindable and bindable)

    def object(self) -> dict[str, "Node"]:
        if not isinstance(self.value, dict):
            raise self.error("an object was expected")
        return {name: self._child(name, member) for name, member in self.value.items()}

    def members(self, *required: str, optional: Collection[str] = ()) -> dict[str, "Node"]:
        """The members of an object that has these and no others."""
        members = self.object()
        for name in sorted(members.keys() - {*required, *optional}):
            raise members[name].error("unknown member")
        for name in sorted({*required} - members.keys()):
            raise self.error(f'member "{name}" is missing')
        return members

    def items(self) -> list["Node"]:
        """The items of an array that is neither empty nor longer than a set may be."""
        if not isinstance(self.value, list) or not 0 < len(self.value) <= MAX_VALUES:
            raise self.error(f"an array of 1 to {MAX_VALUES} items was expected")
        return [self._child(str(index), item) for index, item in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value:
            raise self.error("a string that is not empty was expected")
        return self.value

    def word(self, among: Collection[str]) -> str:
        if not isinstance(self.value, str) or self.value not in among:
            raise self.error(f"one of {', '.join(among)} was expected")
        return self.value

    def scalar(self) -> Scalar:
        scalar = typed(self.value)
        if scalar is None:
            raise self.error("a string, number, boolean or null was expected")
        return scalar

    def scalars(self) -> tuple[Scalar, ...]:
        return tuple(item.scalar() for item in self.items())

    def integer(self, floor: int) -> int:
        # Not isinstance: a bool is an int to Python.
        if type(self.value) is not int or self.value < floor:
            raise self.error(f"an integer not below {floor} was expected")
        return self.value

    def bounds(self, least: str, most: str, *, floor: int = 0, beside: Collection[str] = ()) -> tuple[int, int]:
        """Two inclusive bounds; where one is left out it is as wide as integers go."""
        members = self.members(*beside, optional=(least, most))
        low = members[least].integer(floor) if least in members else floor
        high = members[most].integer(floor) if most in members else MAX_SAFE_INTEGER
        if low > high:
            raise self.error(f"{least} is above {most}")
        return low, high

    def exactly(self, expected: JsonValue) -> None:
        if canonical(self.value) != canonical(expected):
            raise self.error(f"{canonical(expected).decode()} was expected")

    def _child(self, name: str, value: JsonValue) -> "Node":
        place = point(self.pointer, name)
        return Node(value=value, pointer=place, depth=self.depth, bindable=self.bindable)


def _parse_rules(node: Node, *, openable: bool) -> ToolRule:
    members = node.object()
    star = members.pop("*", None)
    if star is not None and not openable:
        raise star.error("only the arguments of a tool can be open")
    if star is not None:
        star.exactly({"any": True})
    if len(members) > MAX_ARGUMENTS:
        raise node.error(f"at most {MAX_ARGUMENTS} names were expected")
    arguments = {name: _parse_argument(member) for name, member in members.items()}
    return ToolRule(arguments=arguments, open=star is not None)


def _parse_argument(node: Node) -> ArgumentRule:
    members = node.object()
    optional = members.pop("optional", None)
    constraint = _parse_kind(node, members)
    if optional is None:
        return ArgumentRule(constraint=constraint)
    if isinstance(constraint, Absent | Bind):
        raise optional.error(f"{constraint.kind} settles by itself whether the argument may be left out")
    optional.exactly(expected=True)
    return ArgumentRule(constraint=constraint, optional=True)


def _parse_constraint(node: Node) -> Constraint:
    """A constraint that is no argument's own: there is nothing here to leave out."""
    constraint = _parse_kind(node, node.object())
    if isinstance(constraint, Absent):
        raise node.error("absent stands only as the rule of an argument, or of a field of an object")
    return constraint


def _parse_kind(node: Node, members: dict[str, Node]) -> Constraint:
    for name in sorted(members.keys() - KINDS):
        raise members[name].error("unknown kind")
    if len(members) != 1:
        raise node.error("exactly one kind was expected")
    if node.depth >= MAX_CONSTRAINT_DEPTH:
        raise node.error(f"at most {MAX_CONSTRAINT_DEPTH} constraints inside one another were expected")
    ((spelling, body),) = members.items()
    return KINDS[spelling].parse(body)


def _render(constraint: Constraint) -> JsonObject:
    return {constraint.kind: KINDS[constraint.kind].body(constraint)}


def _bounds(bounded: Int | Str | List, least: str, most: str, floor: int = 0) -> JsonObject:
    """The inverse of `Node.bounds`: a bound as wide as it gets is left out."""
    bounds = (least, bounded.minimum, floor), (most, bounded.maximum, MAX_SAFE_INTEGER)
    return {name: bound for name, bound, widest in bounds if bound != widest}


def _plainly(scalars: tuple[Scalar, ...]) -> list[JsonValue]:
    return [value for _type, value in scalars]


# --- the kinds --------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """A kind's class, and how its body is read and written."""

    constraint: type[Constraint]
    parse: Callable[[Node], Constraint]
    body: Callable[[Any], JsonValue]


def _plain(constraint: type[Constraint], spelt: JsonValue) -> Kind:
    """A kind that says nothing but its name."""

    def parse(body: Node) -> Constraint:
        body.exactly(spelt)
        return constraint()

    return Kind(constraint, parse, lambda _: copy(spelt))


def _bounded(constraint: type[Int] | type[Str], least: str, most: str, floor: int = 0) -> Kind:
    """A kind between two bounds, either of which may be left out."""

    def parse(body: Node) -> Constraint:
        low, high = body.bounds(least, most, floor=floor)
        return constraint(minimum=low, maximum=high)

    return Kind(constraint, parse, lambda bounded: _bounds(bounded, least, most, floor))


def _clauses(constraint: type[Clauses]) -> Kind:
    """A kind made of other constraints on the same value."""

    def parse(body: Node) -> Constraint:
        return constraint(clauses=tuple(_parse_constraint(item.inside(bindable=False)) for item in body.items()))

    return Kind(constraint, parse, lambda clauses: [_render(clause) for clause in clauses.clauses])


def _parse_bind(body: Node) -> Bind:
    # Inside a list or an alternative there is no one place to fill in.
    if not body.bindable:
        raise body.error("bind stands only as the rule of an argument, or of a field of an object")
    return Bind(field=body.word(BINDABLE))


def _parse_not_one_of(body: Node) -> NotOneOf:
    members = body.members("type", "values")
    name, values = members["type"].word(SCALAR_TYPES), members["values"].scalars()
    if any(value[0] not in SCALAR_TYPES[name] for value in values):
        raise members["values"].error(f"values of type {name} were expected")
    return NotOneOf(type=name, values=values)


def _parse_path(body: Node) -> Path:
    place = body.members("root")["root"]
    stem = place.text().removesuffix("/")
    # Something must be able to stand under it: `//` is no way to spell `/`.
    if not is_canonical_path(f"{stem}/x"):
        raise place.error("a canonical absolute path was expected")
    return Path(root=stem or "/")


def _parse_list(body: Node) -> List:
    low, high = body.bounds("minLength", "maxLength", beside=("items",))
    items = body.object()["items"].inside(bindable=False)
    return List(items=_parse_constraint(items), minimum=low, maximum=high)


def _list_body(constraint: List) -> JsonValue:
    return {"items": _render(constraint.items), **_bounds(constraint, "minLength", "maxLength")}


def _parse_object(body: Node) -> Object:
    fields = body.members("fields")["fields"].inside(bindable=True)
    return Object(fields=_parse_rules(fields, openable=False))


KINDS: Final[Mapping[str, Kind]] = {
    "any": _plain(AnyValue, spelt=True),
    "absent": _plain(Absent, spelt=True),
    "bind": Kind(Bind, _parse_bind, lambda bind: bind.field),
    "eq": Kind(Eq, lambda body: Eq(value=body.scalar()), lambda eq: eq.value[1]),
    "oneOf": Kind(OneOf, lambda body: OneOf(values=body.scalars()), lambda one_of: _plainly(one_of.values)),
    "notOneOf": Kind(NotOneOf, _parse_not_one_of, lambda not_: {"type": not_.type, "values": _plainly(not_.values)}),
    "bool": _plain(Bool, spelt={}),
    "int": _bounded(Int, "min", "max", floor=-MAX_SAFE_INTEGER),
    "str": _bounded(Str, "minLength", "maxLength"),
    "prefix": Kind(Prefix, lambda body: Prefix(prefix=body.text()), lambda prefix: prefix.prefix),
    "path": Kind(Path, _parse_path, lambda path: {"root": path.root}),
    "list": Kind(List, _parse_list, _list_body),
    "object": Kind(Object, _parse_object, lambda object_: {"fields": render_tool_rule(object_.fields)}),
    "allOf": _clauses(AllOf),
    "anyOf": _clauses(AnyOf),
}
"""Every kind by its spelling. What has no row is refused as unknown."""
