"""Kinds made of others: arrays, objects, and several constraints on one value."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app.core.kinds.base import Constraint, Objection, Scalar, Site, ToolRule, foremost, judge, range_of, typed
from app.core.resources import ResourceRef
from app.core.steps import Steps
from app.core.strict_json import MAX_SAFE_INTEGER, JsonValue


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
            return at.outside(f"must have {range_of(self.minimum, self.maximum)} items")
        return foremost(judge(self.items, item, at.under(str(index))) for index, item in enumerate(value))

    def parts(self) -> Iterable[Constraint]:
        return (self.items,)

    def resources(self, value: JsonValue, steps: Steps, /) -> Iterator[ResourceRef]:
        for item in value if isinstance(value, list) else ():
            steps.take()
            yield from self.items.resources(item, steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainsAll(Constraint):
    """An array that holds every one of these scalars, whatever else it holds."""

    kind = "containsAll"
    values: tuple[Scalar, ...]

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if not isinstance(value, list):
            return at.invalid("must be an array")
        at.steps.take(len(value) + len(self.values))
        held = {typed(item) for item in value}
        return None if held.issuperset(self.values) else at.outside("lacks an item that the grant requires")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetOf(Constraint):
    """An array of nothing but these scalars, each as often as one likes."""

    kind = "subsetOf"
    values: tuple[Scalar, ...]

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if not isinstance(value, list):
            return at.invalid("must be an array")
        at.steps.take(len(value) + len(self.values))
        held = {typed(item) for item in value}
        return None if held.issubset(self.values) else at.outside("holds an item beyond those that the grant names")


@dataclass(frozen=True, slots=True, kw_only=True)
class Object(Constraint):
    """An object whose members are within their rules, closed like the top level and never open."""

    kind = "object"
    fields: ToolRule

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if not isinstance(value, dict):
            return at.invalid("must be an object")
        return self.fields.objection(value, at)

    def parts(self) -> Iterable[Constraint]:
        return [rule.constraint for rule in self.fields.arguments.values()]

    def resources(self, value: JsonValue, steps: Steps, /) -> Iterator[ResourceRef]:
        return self.fields.resources(value, steps) if isinstance(value, dict) else iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Clauses(Constraint):
    """A kind made of other constraints on the same value."""

    clauses: tuple[Constraint, ...]

    def parts(self) -> Iterable[Constraint]:
        return self.clauses

    def resources(self, value: JsonValue, steps: Steps, /) -> Iterator[ResourceRef]:
        for clause in self.clauses:
            steps.take()
            yield from clause.resources(value, steps)


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
