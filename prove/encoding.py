"""What each kind of constraint allows, said to the solver: the second reading of docs/constraints.md.

From the grant's document, and with nothing of `app/`: two readings that agree by accident are few. A meaning is
given type by type, since a value is of one type and most documents allow only one.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, Final, TypeAlias

import z3

from prove.documents import SAFE_INTEGER, Document, allows_absence, constraint_of, exactly, kind_of
from prove.expressions import (
    EVERY_TEXT,
    NO_TEXT,
    Expression,
    all_of,
    any_of,
    but,
    ending_with,
    of_glob,
    of_length,
    of_regex,
    starting_with,
)
from prove.expressions import exactly as only
from prove.spellings import spelling
from prove.values import TYPES, Value, equal

Formula: TypeAlias = Any
"""A term of the solver's, or a bool where there is nothing left to ask."""

_NOT_ONE_OF_TYPES: Final = {
    "string": {"string"},
    "integer": {"integer"},
    "number": {"integer", "number"},
    "boolean": {"boolean"},
}


def every(formulas: Iterable[Formula]) -> Formula:
    """All of these."""
    kept = [formula for formula in formulas if formula is not True]
    if any(formula is False for formula in kept):
        return False
    return z3.And(*kept) if kept else True


def some(formulas: Iterable[Formula]) -> Formula:
    """At least one of these."""
    kept = [formula for formula in formulas if formula is not False]
    if any(formula is True for formula in kept):
        return True
    return z3.Or(*kept) if kept else False


def none_of(formulas: Iterable[Formula]) -> Formula:
    """Not one of these."""
    one = some(formulas)
    return not one if isinstance(one, bool) else z3.Not(one)


# --- values -----------------------------------------------------------------------------------------------


def allowed(constraint: Document, value: Value) -> Formula:
    """Whether the constraint allows the value, whatever its type."""
    return some(
        every([value.type == number, allowed_as(constraint, value, of_type)]) for number, of_type in enumerate(TYPES)
    )


def allowed_as(constraint: Document, value: Value, of_type: str) -> Formula:
    """Whether the constraint allows the value, which is of this type."""
    kind = kind_of(constraint)
    if kind == "bind":
        return of_type == "string" and value.text.is_bound_to(constraint[kind])
    if of_type == "string":
        texts = texts_of(constraint)
        if texts is NO_TEXT or texts is EVERY_TEXT:
            return texts is EVERY_TEXT
        return value.text.is_in(texts)
    meaning = _MEANINGS.get(kind)
    return False if meaning is None else meaning(constraint[kind], value, of_type)


def allowed_member(rule: Document, given: z3.BoolRef, value: Value) -> Formula:
    """Whether a rule allows a member that may be given or not."""
    present = False if kind_of(rule) == "absent" else allowed(constraint_of(rule), value)
    return some([every([given, present]), z3.Not(given) if allows_absence(rule) else False])


def _integers(body: Document, value: Value, of_type: str) -> Formula:
    if of_type != "integer":
        return False
    low, high = body.get("min", -SAFE_INTEGER), body.get("max", SAFE_INTEGER)
    return every([value.integer >= low, value.integer <= high])


def _decimals(body: Document, value: Value, of_type: str) -> Formula:
    low, high = decimal_bounds(body)
    if of_type == "integer":
        return every([value.integer * 10 ** body["scale"] >= low, value.integer * 10 ** body["scale"] <= high])
    if of_type != "number":
        return False
    finer = 10 ** (value.world.places - body["scale"])
    return every([value.units % finer == 0, value.units >= low * finer, value.units <= high * finer])


def decimal_bounds(body: Document) -> tuple[int, int]:
    """The bounds in units of the last digit."""

    def units(bound: str, widest: int) -> int:
        spelt = body.get(bound)
        return widest if spelt is None else int(Fraction(exactly(spelt)) * 10 ** body["scale"])

    return units("min", -SAFE_INTEGER), units("max", SAFE_INTEGER)


def _others(body: Document, value: Value, of_type: str) -> Formula:
    if of_type not in _NOT_ONE_OF_TYPES[body["type"]]:
        return False
    return none_of(equal(value, scalar, of_type) for scalar in body["values"])


def _one_of(scalars: list[Any], value: Value, of_type: str) -> Formula:
    return some(equal(value, scalar, of_type) for scalar in scalars)


# --- arrays and objects -----------------------------------------------------------------------------------


def _each(value: Value, holds: Callable[[Value], Formula]) -> Formula:
    return every(some([value.length <= index, holds(item)]) for index, item in enumerate(value.items))


def _lists(body: Document, value: Value, of_type: str) -> Formula:
    if of_type != "array":
        return False
    bounds = [value.length >= body.get("minLength", 0), value.length <= body.get("maxLength", SAFE_INTEGER)]
    return every([*bounds, _each(value, lambda item: allowed(body["items"], item))])


def _subset_of(scalars: list[Any], value: Value, of_type: str) -> Formula:
    return of_type == "array" and _each(value, lambda item: allowed({"oneOf": scalars}, item))


def _contains_all(scalars: list[Any], value: Value, of_type: str) -> Formula:
    if of_type != "array":
        return False
    return every(
        some(every([value.length > index, allowed({"eq": scalar}, item)]) for index, item in enumerate(value.items))
        for scalar in scalars
    )


def _objects(body: Document, value: Value, of_type: str) -> Formula:
    if of_type != "object":
        return False
    fields = body["fields"]
    return every(
        allowed_member(fields.get(name, {"absent": True}), given, member)
        for name, (given, member) in value.members.items()
    )


_MEANINGS: Final[dict[str, Callable[[Any, Value, str], Formula]]] = {
    "any": lambda *_: True,
    "eq": lambda scalar, value, of_type: _one_of([scalar], value, of_type),
    "oneOf": _one_of,
    "notOneOf": _others,
    "bool": lambda _body, _value, of_type: of_type == "boolean",
    "int": _integers,
    "decimal": _decimals,
    "list": _lists,
    "subsetOf": _subset_of,
    "containsAll": _contains_all,
    "object": _objects,
    "allOf": lambda clauses, value, of_type: every(allowed_as(clause, value, of_type) for clause in clauses),
    "anyOf": lambda clauses, value, of_type: some(allowed_as(clause, value, of_type) for clause in clauses),
}
"""What a kind allows of each type but strings; a kind that isn't here allows nothing of them."""


# --- strings ----------------------------------------------------------------------------------------------


def texts_of(constraint: Document) -> Expression:
    """The strings that a constraint allows, as one expression: a solver is quickest with a single one."""
    kind = kind_of(constraint)
    meaning = _TEXTS.get(kind)
    return NO_TEXT if meaning is None else meaning(constraint[kind])


def _listed(scalars: Iterable[Any]) -> Expression:
    return any_of(only(scalar) for scalar in scalars if isinstance(scalar, str))


def _other_texts(body: Document) -> Expression:
    return but([_listed(body["values"])]) if body["type"] == "string" else NO_TEXT


_TEXTS: Final[dict[str, Callable[[Any], Expression]]] = {
    "any": lambda _: EVERY_TEXT,
    "eq": lambda scalar: _listed([scalar]),
    "oneOf": _listed,
    "notOneOf": _other_texts,
    "decimal": lambda body: spelling(*decimal_bounds(body), body["scale"]),
    "str": lambda body: of_length(body.get("minLength", 0), body.get("maxLength", SAFE_INTEGER)),
    "prefix": starting_with,
    "suffix": ending_with,
    "glob": of_glob,
    "regex": of_regex,
    "allOf": lambda clauses: all_of(map(texts_of, clauses)),
    "anyOf": lambda clauses: any_of(map(texts_of, clauses)),
}
