"""What every kind of constraint has in common: a value is judged at a site, for a bounded number of steps.

Knows neither documents nor grants, and no kind but the two that a rule of arguments can't do without: `any`
and `absent`. The world is closed at every level: what no rule names may not be given.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias

from app.core.reasons import Reason
from app.core.resources import ResourceRef, Resources
from app.core.steps import Steps
from app.core.strict_json import MAX_SAFE_INTEGER, JsonObject, JsonScalar, JsonValue, point

CHARS_A_STEP: Final = 64
"""How many characters of a string are judged for one step."""

STEPS_TO_READ: Final = 4
"""What reading a value costs that is more than compared: a number with its digits, an address, a URL."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where in the arguments a value stands, and what it is judged with."""

    pointer: str = ""
    bindings: Bindings
    resources: Resources = field(default_factory=dict)
    steps: Steps

    def under(self, name: str) -> "Site":
        """The place of a member or item."""
        pointer = point(self.pointer, name)
        return Site(pointer=pointer, bindings=self.bindings, resources=self.resources, steps=self.steps)

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
    """What a value may be. A kind is a frozen class with `objection` and a row in `spelling.KINDS`."""

    __slots__ = ()
    kind: ClassVar[str]

    @abstractmethod
    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        """None if the value is allowed. Called through `judge`, which counts; raises OutOfSteps."""

    def objection_to_absence(self, at: Site, /) -> Objection | None:
        """What there is to say when an argument that is not optional was left out."""
        return at.invalid("is required")

    def parts(self) -> Iterable["Constraint"]:
        """The constraints that this one is made of."""
        return ()

    def resources(self, _value: JsonValue, _steps: Steps, /) -> Iterator[ResourceRef]:
        """The things that a value names, where it stands for one; raises OutOfSteps."""
        return iter(())


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


# --- rules ------------------------------------------------------------------------------------------------


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


FREE: Final = ArgumentRule(constraint=AnyValue(), optional=True)
"""The rule of an argument that an open rule does not name."""

CLOSED: Final = ArgumentRule(constraint=Absent())
"""The rule of an argument that a closed rule does not name."""


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

    def resources(self, values: JsonObject, steps: Steps) -> Iterator[ResourceRef]:
        """The things that these members name; raises OutOfSteps."""
        for name, rule in self.arguments.items():
            if name in values:
                steps.take()
                yield from rule.constraint.resources(values[name], steps)


def judge(constraint: Constraint, value: JsonValue, at: Site) -> Objection | None:
    """What a constraint has against a value, None if it allows it; raises OutOfSteps."""
    at.steps.take(1 + len(value) // CHARS_A_STEP if isinstance(value, str) else 1)
    return constraint.objection(value, at)


def foremost(objections: Iterable[Objection | None]) -> Objection | None:
    """The objection whose reason has precedence; among equals the first."""
    found = [objection for objection in objections if objection is not None]
    return min(found, key=lambda objection: objection.reason.precedence, default=None)


def everything_in(constraint: Constraint) -> Iterator[Constraint]:
    """A constraint and all that it is made of."""
    yield constraint
    for part in constraint.parts():
        yield from everything_in(part)


# --- values -----------------------------------------------------------------------------------------------

_TYPE_NAMES: Final[Mapping[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


def typed(value: JsonValue) -> Scalar | None:
    """A canonical scalar with its type, None for an array or object. 1.0 is 1 by now; true is never 1."""
    name = _TYPE_NAMES.get(type(value))
    return None if name is None or isinstance(value, list | dict) else (name, value)


def range_of(low: int, high: int) -> str:
    """An inclusive range in words, where the upper bound may be as wide as integers go."""
    return f"at least {low}" if high == MAX_SAFE_INTEGER else f"from {low} to {high}"
