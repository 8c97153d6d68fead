"""Constraints as grants spell them: which kinds there are, and what stands inside a document.

Knows spellings alone. What a document allows is said twice and independently: in `encoding.py` for the solver, and
in `app/` for everybody else.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final, TypeAlias

Document: TypeAlias = dict[str, Any]
"""A constraint, or the rule of an argument: a constraint that may be optional."""

SAFE_INTEGER: Final = 2**53 - 1

FINITE: Final = ("eq", "oneOf", "bool")
NUMBERS: Final = ("int", "decimal")
TEXTS: Final = ("str", "prefix", "suffix", "glob", "regex")
ARRAYS: Final = ("list", "containsAll", "subsetOf")
CLAUSES: Final = ("allOf", "anyOf")
GIVEN: Final = ("bind", "absent", "optional")
PLACES: Final = ("path", "url", "host", "cidr", "resource")
"""What no solver knows: held against a designed universe of values instead."""

GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "any": ("any",),
    "finite": FINITE,
    "notOneOf": ("notOneOf",),
    "numbers": NUMBERS,
    "strings": TEXTS,
    "places": PLACES,
    "arrays": ARRAYS,
    "object": ("object",),
    "clauses": CLAUSES,
    "given": GIVEN,
}
KINDS: Final = tuple(kind for kinds in GROUPS.values() for kind in kinds)
"""Every kind, and `optional`, which is none but stands in the table like one."""

GROUP_OF: Final = {kind: group for group, kinds in GROUPS.items() for kind in kinds}


def kind_of(rule: Document) -> str:
    """The kind of a constraint, whether or not it is optional."""
    return next(name for name in rule if name != "optional")


def label_of(rule: Document) -> str:
    """Under which name a rule stands in the table."""
    return "optional" if "optional" in rule else kind_of(rule)


def constraint_of(rule: Document) -> Document:
    """The rule without what says whether its argument may be left out."""
    return {name: body for name, body in rule.items() if name != "optional"}


def allows_absence(rule: Document) -> bool:
    """Whether the argument may be left out."""
    return "optional" in rule or "absent" in rule


def parts_of(rule: Document) -> list[Document]:
    """The rules that stand directly inside this one."""
    kind = kind_of(rule)
    body = rule[kind]
    if kind in CLAUSES:
        return list(body)
    if kind == "list":
        return [body["items"]]
    return list(body["fields"].values()) if kind == "object" else []


def everything_in(rule: Document) -> Iterator[Document]:
    """A rule and all that stands inside it."""
    yield rule
    for part in parts_of(rule):
        yield from everything_in(part)


def kinds_in(*rules: Document) -> set[str]:
    """The kinds that are used anywhere in these."""
    return {kind_of(part) for rule in rules for part in everything_in(rule)}


def scalars_in(rule: Document) -> Iterator[Any]:
    """The values that a rule names."""
    for part in everything_in(rule):
        kind = kind_of(part)
        body = part[kind]
        if kind == "eq":
            yield body
        elif kind in {"oneOf", "containsAll", "subsetOf"}:
            yield from body
        elif kind == "notOneOf":
            yield from body["values"]


def fraction_digits(number: float) -> int:
    """How many digits a number has after its point when written out."""
    rest, digits = exactly(number), 0
    while rest.denominator != 1:
        rest, digits = rest * 10, digits + 1
    return digits


def exactly(number: float | str) -> Fraction:
    """What a number is as it is written, rather than the double next to it."""
    return Fraction(str(number))
