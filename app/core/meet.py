"""What two constraints, or two rules, allow together: exactly what both of them accept.

The narrower of two where that is proven, else one kind that says both where there is one, else both side by
side. Used to show a model what a whole chain of grants allows; never to decide about a call.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, Final

from app.core.kinds import (
    Absent,
    AllOf,
    ArgumentRule,
    Constraint,
    ContainsAll,
    Decimal,
    Int,
    List,
    NotOneOf,
    Object,
    Scalar,
    Str,
    SubsetOf,
    ToolRule,
)
from app.core.narrowing import Ground, narrows

NOTHING: Final = ArgumentRule(constraint=AllOf(clauses=(Absent(),)))
"""The rule that no call satisfies: not with the argument, nor without it."""


def meet_all(rules: Iterable[ToolRule], ground: Ground | None = None) -> ToolRule:
    """The calls that every one of these rules allows, of which there is at least one, from the root's on.

    The ground's steps are what may be spent on finding shorter words for it, beside whatever else they are for:
    without any left, constraints that differ stand side by side.
    """
    return reduce(lambda one, other: meet_rules(one, other, ground), rules)


def meet_rules(one: ToolRule, other: ToolRule, ground: Ground | None = None) -> ToolRule:
    """The calls that both rules allow."""
    names = [*one.arguments, *(name for name in other.arguments if name not in one.arguments)]
    arguments = {name: _meet_arguments(one.of(name), other.of(name), ground) for name in names}
    return ToolRule(arguments=arguments, open=one.open and other.open)


def _meet_arguments(one: ArgumentRule, other: ArgumentRule, ground: Ground | None) -> ArgumentRule:
    for absent, present in ((one, other), (other, one)):
        if isinstance(absent.constraint, Absent):
            return absent if present.allows_absence else NOTHING
    return ArgumentRule(
        constraint=meet(one.constraint, other.constraint, ground),
        optional=one.allows_absence and other.allows_absence,
    )


def meet(one: Constraint, other: Constraint, ground: Ground | None = None) -> Constraint:
    """The values that both constraints allow."""
    # A link is within the one above it, so this is what is nearly always so.
    if narrows(other, one, ground) is None:
        return other
    if narrows(one, other, ground) is None:
        return one
    join = _MEETS.get(type(one)) if type(one) is type(other) else None
    joined = None if join is None else join(one, other, ground)
    return AllOf(clauses=(one, other)) if joined is None else joined


def _ranges(one: Int | Decimal | Str, other: Int | Decimal | Str, _ground: Ground | None) -> Constraint | None:
    low, high = max(one.minimum, other.minimum), min(one.maximum, other.maximum)
    return replace(one, minimum=low, maximum=high) if low <= high else None


def _decimals(one: Decimal, other: Decimal, ground: Ground | None) -> Constraint | None:
    return _ranges(one, other, ground) if one.scale == other.scale else None


def _lists(one: List, other: List, ground: Ground | None) -> Constraint | None:
    low, high = max(one.minimum, other.minimum), min(one.maximum, other.maximum)
    return List(items=meet(one.items, other.items, ground), minimum=low, maximum=high) if low <= high else None


def _exclusions(one: NotOneOf, other: NotOneOf, _ground: Ground | None) -> Constraint | None:
    return replace(one, values=_union(one.values, other.values)) if one.type == other.type else None


def _required(one: ContainsAll, other: ContainsAll, _ground: Ground | None) -> Constraint:
    return ContainsAll(values=_union(one.values, other.values))


def _permitted(one: SubsetOf, other: SubsetOf, _ground: Ground | None) -> Constraint:
    return SubsetOf(values=tuple(value for value in one.values if value in other.values))


def _union(some: tuple[Scalar, ...], more: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    return (*some, *(value for value in more if value not in some))


_MEETS: Final[Mapping[type[Constraint], Callable[[Any, Any, Ground | None], Constraint | None]]] = {
    Int: _ranges,
    Decimal: _decimals,
    Str: _ranges,
    NotOneOf: _exclusions,
    List: _lists,
    ContainsAll: _required,
    SubsetOf: _permitted,
    Object: lambda one, other, ground: Object(fields=meet_rules(one.fields, other.fields, ground)),
}
