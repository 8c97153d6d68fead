"""The design's table of what is proven, as a rule of its own: which pairs the prover is expected to prove.

What is truly narrower and refused is either a pair that the table has no row for, and is refused on purpose, or one
that it has: then the prover falls short.
"""

from collections.abc import Callable
from itertools import product
from typing import Final, TypeAlias

from prove.documents import FINITE, SAFE_INTEGER, TEXTS, Document, allows_absence, constraint_of, kind_of

Truth: TypeAlias = Callable[[Document, Document], bool]
"""Whether a child is truly within a parent, as an oracle says."""

ROWS: Final = frozenset(
    {
        *((kind, kind) for kind in ("int", "notOneOf", "path", "url", "host", "cidr", "containsAll", "subsetOf")),
        *((kind, kind) for kind in ("bind", "resource", "decimal")),
        *product(TEXTS, TEXTS),
        *product(("int", *TEXTS), ("notOneOf",)),
    }
)
"""Pairs of simple kinds that can be proven, beside finite sets, which are within whatever allows their values."""


def within_reach(child: Document, parent: Document, truly: Truth) -> bool:
    """Whether the table proves a child, which is truly within the parent, to be so."""
    if {"optional", "absent"} & {*child, *parent}:
        return _rules(child, parent, truly)
    one, other = kind_of(child), kind_of(parent)
    if other == "any" or child == parent:
        return True
    if one == "anyOf":
        return all(within_reach(clause, parent, truly) for clause in child[one])
    if other == "allOf":
        return all(within_reach(child, clause, truly) for clause in parent[other])
    return _one_within(child, parent, truly)


def _one_within(child: Document, parent: Document, truly: Truth) -> bool:
    one, other = kind_of(child), kind_of(parent)
    if one in FINITE:
        return other != "bind" and truly(child, parent)
    if other == "anyOf":
        return any(within_reach(child, clause, truly) for clause in parent[other])
    if one == "allOf":
        return any(within_reach(clause, parent, truly) for clause in child[one])
    return _simple(child, parent, truly)


def _rules(child: Document, parent: Document, truly: Truth) -> bool:
    if allows_absence(child) and not allows_absence(parent):
        return False
    if "absent" in child:
        return True
    return "absent" not in parent and within_reach(constraint_of(child), constraint_of(parent), truly)


def _simple(child: Document, parent: Document, truly: Truth) -> bool:
    kind = kind_of(child)
    if kind == kind_of(parent) == "list":
        return _lists(child["list"], parent["list"], truly)
    if kind == kind_of(parent) == "object":
        return _objects(child["object"]["fields"], parent["object"]["fields"], truly)
    if (kind, kind_of(parent)) not in ROWS or not truly(child, parent):
        return False
    if kind == kind_of(parent) == "notOneOf":
        return bool(child[kind]["type"] == parent[kind]["type"])
    return kind != "decimal" or child[kind]["scale"] == parent[kind]["scale"]


def _lists(child: Document, parent: Document, truly: Truth) -> bool:
    inside = parent.get("minLength", 0) <= child.get("minLength", 0) and child.get(
        "maxLength", SAFE_INTEGER
    ) <= parent.get("maxLength", SAFE_INTEGER)
    return inside and within_reach(child["items"], parent["items"], truly)


def _objects(child: Document, parent: Document, truly: Truth) -> bool:
    closed: Document = {"absent": True}
    return all(within_reach(child.get(name, closed), parent.get(name, closed), truly) for name in {*child, *parent})
