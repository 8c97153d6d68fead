"""Kinds for single values: given one by one, excluded, bound to the grant, or numbers in a range."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal as Exact
from typing import Final

from app.core.kinds.base import STEPS_TO_READ, Constraint, Objection, Scalar, Site, range_of, typed
from app.core.strict_json import MAX_SAFE_INTEGER, JsonValue

MAX_SCALE: Final = 15  # digits after the point: a double holds no more

SCALAR_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"string"}),
    "integer": frozenset({"integer"}),
    "number": frozenset({"integer", "number"}),
    "boolean": frozenset({"boolean"}),
}
"""The types that `notOneOf` may name, with JSON Schema's words, and the scalars of each."""


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
    _held: frozenset[Scalar] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_held", frozenset(self.values))

    def holds(self, values: Iterable[Scalar]) -> bool:
        """Whether all of these are among them."""
        return self._held.issuperset(values)

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if typed(value) in self._held:
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
        return None if within else at.outside(f"must be {range_of(self.minimum, self.maximum)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decimal(Constraint):
    """A number, or a string that spells one, with at most `scale` digits after the point.

    The inclusive bounds count in the last digit's units, so that all is integers: 1.50 of scale 2 is 150.
    """

    kind = "decimal"
    minimum: int = -MAX_SAFE_INTEGER
    maximum: int = MAX_SAFE_INTEGER
    scale: int

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        at.steps.take(STEPS_TO_READ)
        units = decimal_units(value, self.scale)
        if units is None:
            return at.invalid(f"must be a decimal with at most {self.scale} digits after the point")
        if self.minimum <= units <= self.maximum:
            return None
        low, high = spell_decimal(self.minimum, self.scale), spell_decimal(self.maximum, self.scale)
        return at.outside(f"must be from {low} to {high}")


_SPELT: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,15})?")


def decimal_units(value: JsonValue, scale: int) -> int | None:
    """A decimal in units of its last digit; None for what is none, or has more than `scale` digits after the point.

    Numbers count as they are written in canonical form (RFC 8785). No string spells a negative zero.
    """
    sign, digits, exponent = _spelling(value).as_tuple()
    if not isinstance(exponent, int) or exponent + scale < 0 or (sign and not any(digits)):
        return None
    units = int("".join(map(str, digits)) + "0" * (exponent + scale))
    return -units if sign else units


def _spelling(value: JsonValue) -> Exact:
    """The digits that a number has or a string spells; NaN for what is neither."""
    if isinstance(value, str):
        return Exact(value if _SPELT.fullmatch(value) else "NaN")
    return Exact(repr(value)) if type(value) in {int, float} else Exact("NaN")


def spell_decimal(units: int, scale: int) -> str:
    """So many units of the last digit, with exactly `scale` digits after the point."""
    digits = f"{abs(units):0{scale + 1}d}"
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return ("-" if units < 0 else "") + (f"{whole}.{fraction}" if scale else whole)
