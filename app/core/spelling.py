"""How a grant spells constraints: one row a kind, with its class and how the two turn into one another.

What a kind allows is in `kinds/`. A document that is not understood to the last member is refused.
"""

from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from app.core.addresses import HostPattern, parse_host_pattern, parse_network, spell_host_pattern
from app.core.kinds import (
    FREE,
    MAX_SCALE,
    SCALAR_TYPES,
    Absent,
    AllOf,
    AnyOf,
    AnyValue,
    ArgumentRule,
    Bind,
    Bool,
    Cidr,
    Clauses,
    Constraint,
    ContainsAll,
    Decimal,
    Eq,
    Glob,
    Host,
    Int,
    List,
    NotOneOf,
    Object,
    OneOf,
    Path,
    Pattern,
    Prefix,
    Regex,
    Resource,
    Scalar,
    Str,
    SubsetOf,
    Suffix,
    ToolRule,
    Url,
    decimal_units,
    is_canonical_path,
    spell_decimal,
    typed,
)
from app.core.languages import Language, PatternInvalid, parse_glob, parse_regex
from app.core.resource_rules import type_flaw
from app.core.strict_json import (
    MAX_SAFE_INTEGER,
    JsonObject,
    JsonValue,
    canonical,
    point,
)
from app.core.urls import DEFAULT_SCHEMES, MAX_PORT, SCHEMES, UrlPath, UrlRule, read_url_path

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


def read_rule(node: Node, *, openable: bool) -> ToolRule:
    """The rule that a node spells; `openable` where `"*"` may stand. Raises ConstraintInvalid."""
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


def spell_rule(rule: ToolRule) -> JsonObject:
    """The document of a rule, the inverse of `read_rule`."""
    star: JsonObject = {"*": _render(FREE.constraint)} if rule.open else {}
    return star | {
        name: _render(argument.constraint) | ({"optional": True} if argument.optional else {})
        for name, argument in rule.arguments.items()
    }


def _render(constraint: Constraint) -> JsonObject:
    return {constraint.kind: KINDS[constraint.kind].body(constraint)}


def said_bounds(bounded: Int | Str | List, least: str, most: str, floor: int = 0) -> JsonObject:
    """The inverse of `Node.bounds`: a bound as wide as it gets is left out."""
    bounds = (least, bounded.minimum, floor), (most, bounded.maximum, MAX_SAFE_INTEGER)
    return {name: bound for name, bound, widest in bounds if bound != widest}


def plainly(scalars: tuple[Scalar, ...]) -> list[JsonValue]:
    """The values alone."""
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

    return Kind(constraint, parse, lambda bounded: said_bounds(bounded, least, most, floor))


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
    return {"items": _render(constraint.items), **said_bounds(constraint, "minLength", "maxLength")}


def _parse_object(body: Node) -> Object:
    fields = body.members("fields")["fields"].inside(bindable=True)
    return Object(fields=read_rule(fields, openable=False))


def _parse_decimal(body: Node) -> Decimal:
    members = body.members("scale", optional=("min", "max"))
    scale = members["scale"].integer(0)
    if scale > MAX_SCALE:
        raise members["scale"].error(f"at most {MAX_SCALE} digits after the point were expected")
    low = _units(members["min"], scale) if "min" in members else -MAX_SAFE_INTEGER
    high = _units(members["max"], scale) if "max" in members else MAX_SAFE_INTEGER
    if low > high:
        raise body.error("min is above max")
    return Decimal(minimum=low, maximum=high, scale=scale)


def _units(node: Node, scale: int) -> int:
    units = decimal_units(node.value, scale)
    if units is None or abs(units) > MAX_SAFE_INTEGER:
        raise node.error(f"a decimal with at most {scale} digits after the point, of ±(2^53-1) units, was expected")
    return units


def _decimal_body(decimal: Decimal) -> JsonValue:
    bounds = (("min", decimal.minimum, -MAX_SAFE_INTEGER), ("max", decimal.maximum, MAX_SAFE_INTEGER))
    spelt = {name: spell_decimal(bound, decimal.scale) for name, bound, widest in bounds if bound != widest}
    return {**spelt, "scale": decimal.scale}


def _pattern(constraint: type[Pattern], read: Callable[[str], Language]) -> Kind:
    """A kind that is spelt as a pattern."""

    def parse(body: Node) -> Constraint:
        try:
            return constraint(text=body.text(), language=read(body.text()))
        except PatternInvalid as error:
            raise body.error(error.detail) from None

    return Kind(constraint, parse, lambda pattern: pattern.text)


def _parse_url(body: Node) -> Url:
    members = body.members("hosts", optional=("schemes", "ports", "path", "query"))
    schemes = frozenset(item.word(SCHEMES) for item in members["schemes"].items()) if "schemes" in members else None
    rule = UrlRule(
        schemes=schemes or DEFAULT_SCHEMES,
        hosts=_parse_hosts(members["hosts"]),
        ports=frozenset(map(_port, members["ports"].items())) if "ports" in members else None,
        path=_parse_url_path(members["path"]) if "path" in members else None,
        query="query" in members and members["query"].word(("none", "any")) == "any",
    )
    return Url(rule=rule)


def _parse_hosts(node: Node) -> tuple[HostPattern, ...]:
    return tuple(_host(item) for item in node.items())


def _host(node: Node) -> HostPattern:
    pattern = parse_host_pattern(node.text())
    if pattern is None:
        raise node.error(
            "a host name such as api.example.com, *.example.com, or an address in canonical form was expected"
        )
    return pattern


def _port(node: Node) -> int:
    port = node.integer(1)
    if port > MAX_PORT:
        raise node.error(f"a port of at most {MAX_PORT} was expected")
    return port


def _parse_url_path(node: Node) -> UrlPath:
    members = node.object()
    if len(members) != 1 or not members.keys() <= {"exact", "under"}:
        raise node.error('either "exact" or "under" was expected')
    ((word, place),) = members.items()
    below = word == "under"
    # As for `path`, a slash at the end of a root says nothing.
    text = place.text() if not below else place.text().removesuffix("/") or "/"
    path = read_url_path(text)
    if path is None:
        raise place.error("a canonical absolute path of a URL was expected")
    return UrlPath(path=path, below=below)


def _url_body(url: Url) -> JsonValue:
    rule = url.rule
    path: JsonObject = {} if rule.path is None else {"path": {"under" if rule.path.below else "exact": rule.path.path}}
    ports: JsonObject = {} if rule.ports is None else {"ports": [*sorted(rule.ports)]}
    query: JsonObject = {"query": "any"} if rule.query else {}
    schemes: JsonObject = {} if rule.schemes == DEFAULT_SCHEMES else {"schemes": [*sorted(rule.schemes)]}
    return {"hosts": _spelt(rule.hosts), **schemes, **ports, **path, **query}


def _spelt(hosts: tuple[HostPattern, ...]) -> list[JsonValue]:
    return [spell_host_pattern(pattern) for pattern in hosts]


def _parse_host_kind(body: Node) -> Host:
    return Host(hosts=_parse_hosts(body.members("hosts")["hosts"]))


def _parse_cidr(body: Node) -> Cidr:
    network = parse_network(body.text())
    if network is None:
        raise body.error("a network in canonical form, such as 10.0.0.0/8, was expected")
    return Cidr(network=network)


def _parse_resource(body: Node) -> Resource:
    if isinstance(body.value, str):
        return Resource(type=_resource_type(body))
    members = body.members("type", "where")
    where = members["where"].object()
    if not 0 < len(where) <= MAX_ARGUMENTS:
        raise members["where"].error(f"1 to {MAX_ARGUMENTS} attributes were expected")
    attributes = {name: attribute.scalar() for name, attribute in where.items()}
    return Resource(type=_resource_type(members["type"]), where=attributes)


def _resource_type(node: Node) -> str:
    if (flaw := type_flaw(node.text())) is not None:
        raise node.error(flaw)
    return node.text()


def _resource_body(resource: Resource) -> JsonValue:
    where: JsonObject = {name: value for name, (_, value) in resource.where.items()}
    return {"type": resource.type, "where": where} if where else resource.type


def _listed(constraint: type[OneOf] | type[ContainsAll] | type[SubsetOf]) -> Kind:
    """A kind that lists scalars."""
    return Kind(constraint, lambda body: constraint(values=body.scalars()), lambda listed: plainly(listed.values))


KINDS: Final[Mapping[str, Kind]] = {
    "any": _plain(AnyValue, spelt=True),
    "absent": _plain(Absent, spelt=True),
    "bind": Kind(Bind, _parse_bind, lambda bind: bind.field),
    "eq": Kind(Eq, lambda body: Eq(value=body.scalar()), lambda eq: eq.value[1]),
    "oneOf": _listed(OneOf),
    "notOneOf": Kind(NotOneOf, _parse_not_one_of, lambda not_: {"type": not_.type, "values": plainly(not_.values)}),
    "bool": _plain(Bool, spelt={}),
    "int": _bounded(Int, "min", "max", floor=-MAX_SAFE_INTEGER),
    "decimal": Kind(Decimal, _parse_decimal, _decimal_body),
    "str": _bounded(Str, "minLength", "maxLength"),
    "prefix": Kind(Prefix, lambda body: Prefix(prefix=body.text()), lambda prefix: prefix.prefix),
    "suffix": Kind(Suffix, lambda body: Suffix(suffix=body.text()), lambda suffix: suffix.suffix),
    "glob": _pattern(Glob, parse_glob),
    "regex": _pattern(Regex, parse_regex),
    "path": Kind(Path, _parse_path, lambda path: {"root": path.root}),
    "url": Kind(Url, _parse_url, _url_body),
    "host": Kind(Host, _parse_host_kind, lambda host: {"hosts": _spelt(host.hosts)}),
    "cidr": Kind(Cidr, _parse_cidr, lambda cidr: str(cidr.network)),
    "list": Kind(List, _parse_list, _list_body),
    "containsAll": _listed(ContainsAll),
    "subsetOf": _listed(SubsetOf),
    "object": Kind(Object, _parse_object, lambda object_: {"fields": spell_rule(object_.fields)}),
    "allOf": _clauses(AllOf),
    "anyOf": _clauses(AnyOf),
    "resource": Kind(Resource, _parse_resource, _resource_body),
}
"""Every kind by its spelling. What has no row is refused as unknown."""
