"""The kinds of constraint: what each of them allows.

One frozen class a kind; how a grant spells them is `constraints.py`'s table, which of two is the narrower is
`narrowing.py`'s. Nothing here knows of documents, grants or tools.

The world is closed at every level: what no rule names may not be given, and `any` is always explicit.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from app.core.reasons import Reason
from app.core.strict_json import MAX_SAFE_INTEGER, JsonObject, JsonScalar, JsonValue, point

MAX_PATH_CHARS: Final = 4096  # PATH_MAX of Linux
MAX_STEPS: Final = 100_000  # constraints evaluated for one call or one proof

Bindings: TypeAlias = Mapping[str, str | None]
"""The grant's bindable fields; None where the grant has no such field."""

Scalar: TypeAlias = tuple[str, JsonScalar]
"""A canonical JSON scalar beside the name of its type, since Python holds True equal to 1."""


@dataclass(frozen=True, slots=True)
class Objection:
    """Why arguments are refused: where (RFC 6901, in the arguments), the code, a sentence for the caller.

    The sentence names the argument and, where that is harmless, the limit; never the value that was given.
    """

    pointer: str
    reason: Reason
    detail: str


class OutOfSteps(Exception):
    """An evaluation or a proof would take more steps than it may."""


@dataclass(slots=True, kw_only=True)
class Steps:
    """What is left to spend. Counted rather than timed, so that one question always has one answer."""

    left: int = MAX_STEPS

    def take(self, steps: int = 1) -> None:
        """Spend; raises OutOfSteps."""
        self.left -= steps
        if self.left < 0:
            raise OutOfSteps


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where in the arguments a value stands, and what it is judged with."""

    pointer: str = ""
    bindings: Bindings
    steps: Steps

    def under(self, name: str) -> "Site":
        """The place of a member or item."""
        return Site(pointer=point(self.pointer, name), bindings=self.bindings, steps=self.steps)

    def invalid(self, flaw: str) -> Objection:
        """The value does not even have the right shape."""
        return self.refuse(Reason.ARGUMENT_INVALID, flaw)

    def outside(self, flaw: str) -> Objection:
        """The value is well shaped, and beyond what the grant allows."""
        return self.refuse(Reason.RESOURCE_OUT_OF_SCOPE, flaw)

    def refuse(self, reason: Reason, flaw: str) -> Objection:
        """An objection to the value here; `flaw` follows the argument's name in the sentence."""
        argument = f'argument "{self.pointer[1:]}"' if self.pointer else "an argument"
        return Objection(self.pointer, reason, f"{argument} {flaw}")


class Constraint(ABC):
    """What a value may be. A kind is a frozen class with `objection` and a row in `constraints.KINDS`."""

    __slots__ = ()
    kind: ClassVar[str]

    @abstractmethod
    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        """None if the value is allowed. Called through `judge`, which counts; raises OutOfSteps."""

    def objection_to_absence(self, at: Site, /) -> Objection | None:
        """What there is to say when an argument that is not optional was left out."""
        return at.invalid("is required")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentRule:
    """What an argument, or a field of an object, may be, and whether it may be left out."""

    constraint: Constraint
    optional: bool = False

    @property
    def allows_absence(self) -> bool:
        """Whether a call without the argument may pass."""
        return self.optional or isinstance(self.constraint, Absent)

    def objection(self, name: str, values: JsonObject, at: Site) -> Objection | None:
        """What is wrong with the member of that name, given or not; raises OutOfSteps."""
        if name in values:
            return judge(self.constraint, values[name], at)
        return None if self.optional else self.constraint.objection_to_absence(at)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRule:
    """What a tool may be called with. `open` (`{"*": {"any": true}}`) admits arguments without a rule."""

    arguments: Mapping[str, ArgumentRule]
    open: bool

    def of(self, name: str) -> ArgumentRule:
        """The rule for the argument of this name, whether or not the grant speaks of it."""
        return self.arguments.get(name, FREE if self.open else CLOSED)

    def objection(self, values: JsonObject, at: Site) -> Objection | None:
        """The foremost objection to these members, by reason and then by name; raises OutOfSteps."""
        names = sorted({*self.arguments, *values})
        return foremost(self.of(name).objection(name, values, at.under(name)) for name in names)


def judge(constraint: Constraint, value: JsonValue, at: Site) -> Objection | None:
    """What a constraint has against a value, None if it allows it; raises OutOfSteps."""
    at.steps.take()
    return constraint.objection(value, at)


def foremost(objections: Iterable[Objection | None]) -> Objection | None:
    """The objection whose reason has precedence; among equals the first."""
    found = [objection for objection in objections if objection is not None]
    return min(found, key=lambda objection: objection.reason.precedence, default=None)


# --- the kinds --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyValue(Constraint):
    """Any JSON value: the only open kind."""

    kind = "any"

    def objection(self, _value: JsonValue, _at: Site, /) -> Objection | None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent(Constraint):
    """Nothing: the argument must not be given."""

    kind = "absent"

    def objection(self, _value: JsonValue, at: Site, /) -> Objection | None:
        return at.invalid("is not among the arguments that the grant allows")

    def objection_to_absence(self, _at: Site, /) -> Objection | None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bool(Constraint):
    """true or false."""

    kind = "bool"

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        return None if isinstance(value, bool) else at.invalid("must be true or false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind(Constraint):
    """Equal to a field of the grant. `fill_bindings` fills it in, so that a caller may leave it out."""

    kind = "bind"
    field: str

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        bound = at.bindings.get(self.field)
        if bound is None:
            return at.outside(f"is bound to {self.field}, which the grant does not have")
        return None if typed(value) == typed(bound) else at.outside(f"must equal the grant's {self.field}")

    def objection_to_absence(self, at: Site, /) -> Objection | None:
        return self.objection(None, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Eq(Constraint):
    """One scalar, by type and value."""

    kind = "eq"
    value: Scalar

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        return None if typed(value) == self.value else at.outside("must equal the value that the grant names")


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOf(Constraint):
    """One of several scalars, by type and value."""

    kind = "oneOf"
    values: tuple[Scalar, ...]

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if typed(value) in self.values:
            return None
        return at.outside(f"must be one of the {len(self.values)} values that the grant names")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotOneOf(Constraint):
    """Any scalar of one type but these, which are of that type."""

    kind = "notOneOf"
    type: str
    values: tuple[Scalar, ...]

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        scalar = typed(value)
        if scalar is None or scalar[0] not in SCALAR_TYPES[self.type]:
            return at.invalid(f"must be of JSON type {self.type}")
        return at.outside("is a value that the grant excludes") if scalar in self.values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Int(Constraint):
    """An integer between two inclusive bounds."""

    kind = "int"
    minimum: int = -MAX_SAFE_INTEGER
    maximum: int = MAX_SAFE_INTEGER

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if type(value) is not int:
            return at.invalid("must be an integer")
        within = self.minimum <= value <= self.maximum
        return None if within else at.outside(f"must be {_range(self)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Str(Constraint):
    """A string whose length in code points is between two inclusive bounds."""

    kind = "str"
    minimum: int = 0
    maximum: int = MAX_SAFE_INTEGER

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if not isinstance(value, str):
            return at.invalid("must be a string")
        within = self.minimum <= len(value) <= self.maximum
        return None if within else at.outside(f"must have {_range(self)} characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix(Constraint):
    """A string that starts with this one, by code point."""

    kind = "prefix"
    prefix: str

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if not isinstance(value, str):
            return at.invalid("must be a string")
        return None if value.startswith(self.prefix) else at.outside("must start as the grant says")


@dataclass(frozen=True, slots=True, kw_only=True)
class Path(Constraint):
    """A canonical absolute POSIX path at or under a root, by whole segments."""

    kind = "path"
    root: str

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if not isinstance(value, str) or not is_canonical_path(value):
            return at.invalid(_PATH_SHAPE)
        return None if self.holds(value) else at.outside(f"must be at or under {self.root}")

    def holds(self, path: str) -> bool:
        """Whether a canonical path is the root or below it; `/database` is not below `/data`."""
        return path == self.root or path.startswith(self.root.removesuffix("/") + "/")


@dataclass(frozen=True, slots=True, kw_only=True)
class List(Constraint):
    """An array of items that are each within one constraint, its length between two inclusive bounds."""

    kind = "list"
    items: Constraint
    minimum: int = 0
    maximum: int = MAX_SAFE_INTEGER

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if not isinstance(value, list):
            return at.invalid("must be an array")
        if not self.minimum <= len(value) <= self.maximum:
            return at.outside(f"must have {_range(self)} items")
        return foremost(judge(self.items, item, at.under(str(index))) for index, item in enumerate(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Object(Constraint):
    """An object whose members are within their rules, closed like the top level and never open."""

    kind = "object"
    fields: ToolRule

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if not isinstance(value, dict):
            return at.invalid("must be an object")
        return self.fields.objection(value, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clauses(Constraint):
    """A kind made of other constraints on the same value."""

    clauses: tuple[Constraint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf(Clauses):
    """A value within every clause."""

    kind = "allOf"

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        return foremost(judge(clause, value, at) for clause in self.clauses)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf(Clauses):
    """A value within at least one clause."""

    kind = "anyOf"

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        objections = [judge(clause, value, at) for clause in self.clauses]
        chief = foremost(objections)
        # Where one alternative found the shape right, the value is what is wrong: that reason has precedence.
        return None if chief is None or None in objections else at.refuse(chief.reason, "fits no alternative")


FREE: Final = ArgumentRule(constraint=AnyValue(), optional=True)
"""The rule of an argument that an open rule does not name."""

CLOSED: Final = ArgumentRule(constraint=Absent())
"""The rule of an argument that a closed rule does not name."""


# --- values -----------------------------------------------------------------------------------------------

_TYPE_NAMES: Final[Mapping[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}

SCALAR_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"string"}),
    "integer": frozenset({"integer"}),
    "number": frozenset({"integer", "number"}),
    "boolean": frozenset({"boolean"}),
}
"""The types that `notOneOf` may name, with JSON Schema's words, and the scalars of each."""

_SEGMENT: Final = re.compile(r"[^/\\%\x00-\x1f\x7f-\x9f]+")
_PATH_SHAPE: Final = (
    "must be a canonical absolute path: no '.' or '..', no empty segment, no slash at the end, no control"
    f" character, backslash or percent sign, at most {MAX_PATH_CHARS} characters"
)


def typed(value: JsonValue) -> Scalar | None:
    """A canonical scalar with its type, None for an array or object. 1.0 is 1 by now; true is never 1."""
    name = _TYPE_NAMES.get(type(value))
    return None if name is None or isinstance(value, list | dict) else (name, value)


def is_canonical_path(path: str) -> bool:
    """Whether a path can be read in one way only, by whatever may stand behind us."""
    if len(path) > MAX_PATH_CHARS or not path.startswith("/"):
        return False
    return path == "/" or all(map(_is_segment, path[1:].split("/")))


def _is_segment(text: str) -> bool:
    # Segment by segment: one expression for the whole would need possessive repeats, which Python 3.11.2 gets wrong.
    return text not in {".", ".."} and _SEGMENT.fullmatch(text) is not None


def _range(bounded: Int | Str | List) -> str:
    if bounded.maximum == MAX_SAFE_INTEGER:
        return f"at least {bounded.minimum}"
    return f"from {bounded.minimum} to {bounded.maximum}"
