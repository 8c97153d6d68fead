"""Values that a solver may choose: JSON, as a handful of unknowns.

An array or object is as large as a counterexample ever needs to be and no larger. If some array is allowed by a child
and refused by a parent, so is one whose items are only those that the parent objects to or that somebody requires,
the rest of its length being repetitions: `World.slots` counts them. If some object is, so is one whose members are
those that the documents name, with one that they don't.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import z3

from prove.documents import (
    SAFE_INTEGER,
    Document,
    everything_in,
    exactly,
    fraction_digits,
    kind_of,
    scalars_in,
)
from prove.expressions import Expression

TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
"""JSON's types with integers apart: a `number` is none of them, as canonical JSON has it."""

MAX_ITEMS: Final = 64
"""Longer than any length that is asked for, and short enough to be replayed."""

MAX_DIGITS: Final = 15
"""Digits of a number that is no integer: as many as a double is sure to keep."""


@dataclass(slots=True)
class World:
    """What all unknowns of one question have in common; `facts` hold for whichever of them were asked about."""

    slots: int
    names: tuple[str, ...]
    places: int
    """Digits after the point, of a number that is no integer."""
    facts: list[z3.BoolRef] = field(default_factory=list)

    def integer(self, name: str, low: int, high: int) -> z3.ArithRef:
        integer = z3.Int(name)
        self.facts.append(z3.And(integer >= low, integer <= high))
        return integer


def world_of(child: Document, parent: Document) -> World:
    """The unknowns that are enough for a question about these two."""
    parts = [*everything_in(child), *everything_in(parent)]
    numbers = [value for rule in (child, parent) for value in scalars_in(rule) if type(value) is float]
    scales = [part["decimal"]["scale"] for part in parts if kind_of(part) == "decimal"]
    names = {name for part in parts if kind_of(part) == "object" for name in part["object"]["fields"]}
    return World(
        slots=1 + sum(map(_items_needed, parts)),
        names=(*sorted(names), "another name"),
        places=1 + max([0, *scales, *map(fraction_digits, numbers)]),
    )


def _items_needed(part: Document) -> int:
    kind = kind_of(part)
    return len(part[kind]) if kind == "containsAll" else int(kind in {"list", "subsetOf"})


class Text:
    """A string, known by what is asked of it: which expressions it is in, which fields of the grant it equals.

    The solver settles which answers would make a counterexample, and then whether a string can give them, each string
    by itself: told all at once, it takes far longer.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: dict[int, tuple[z3.BoolRef, Expression]] = {}
        self.bound: dict[str, z3.BoolRef] = {}

    def is_in(self, expression: Expression) -> z3.BoolRef:
        number = expression.get_id()
        if number not in self.asked:
            self.asked[number] = (z3.Bool(f"{self.name} in {len(self.asked)}"), expression)
        return self.asked[number][0]

    def is_bound_to(self, binding: str) -> z3.BoolRef:
        return self.bound.setdefault(binding, z3.Bool(f"{self.name} is {binding}"))


class Value:
    """One value; of its unknowns those that were asked for, by its type."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.text = Text(f"{name}:text")
        self._known: dict[str, Any] = {}

    def _once(self, what: str, make: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever a solver's terms are
        if what not in self._known:
            self._known[what] = make()
        return self._known[what]

    def asked(self, what: str) -> Any:  # noqa: ANN401 - likewise
        """An unknown of the value if it was asked for."""
        return self._known.get(what)

    @property
    def type(self) -> z3.ArithRef:
        """Which of `TYPES` it is, by its place there."""
        return self._once("type", lambda: self.world.integer(f"{self.name}:type", 0, len(TYPES) - 1))

    @property
    def truth(self) -> z3.BoolRef:
        return self._once("truth", lambda: z3.Bool(f"{self.name}:truth"))

    @property
    def integer(self) -> z3.ArithRef:
        return self._once("integer", lambda: self.world.integer(f"{self.name}:integer", -SAFE_INTEGER, SAFE_INTEGER))

    @property
    def units(self) -> z3.ArithRef:
        """A number that is no integer, in units of the last digit that matters."""
        return self._once("units", self._units)

    def _units(self) -> z3.ArithRef:
        units = self.world.integer(f"{self.name}:units", 1 - 10**MAX_DIGITS, 10**MAX_DIGITS - 1)
        self.world.facts.append(units % 10**self.world.places != 0)
        return units

    @property
    def length(self) -> z3.ArithRef:
        return self._once("length", lambda: self.world.integer(f"{self.name}:length", 0, MAX_ITEMS))

    @property
    def items(self) -> "list[Value]":
        """What stands in an array: the first of them, and then the first again."""
        items: list[Value] = self._once("items", lambda: [*self._items()])
        return items

    def _items(self) -> "Iterator[Value]":
        return (Value(f"{self.name}[{index}]", self.world) for index in range(self.world.slots))

    @property
    def members(self) -> "dict[str, tuple[z3.BoolRef, Value]]":
        """By name, whether an object has the member, and the member."""
        members: dict[str, tuple[z3.BoolRef, Value]] = self._once(
            "members", lambda: {name: self._member(name) for name in self.world.names}
        )
        return members

    def _member(self, name: str) -> "tuple[z3.BoolRef, Value]":
        place = f"{self.name}.{name}"
        return z3.Bool(f"{place}:given"), Value(place, self.world)


def equal(value: Value, scalar: Any, of_type: str) -> Any:  # noqa: ANN401 - any JSON scalar; a term or a bool
    """Whether a value of this type, which is no string, is this scalar, by type and value."""
    if of_type != type_of(scalar):
        return False
    return _EQUAL[of_type](value, scalar)


_EQUAL: Final[dict[str, Callable[[Value, Any], Any]]] = {
    "null": lambda *_: True,
    "boolean": lambda value, scalar: value.truth == scalar,
    "integer": lambda value, scalar: value.integer == int(scalar),
    "number": lambda value, scalar: value.units == int(exactly(scalar) * 10**value.world.places),
}


def type_of(scalar: Any) -> str:  # noqa: ANN401 - any JSON scalar
    """The type of a scalar; 1.0 is the integer 1."""
    if isinstance(scalar, float):
        return "integer" if scalar.is_integer() else "number"
    return {str: "string", int: "integer", bool: "boolean"}.get(type(scalar), "null")
