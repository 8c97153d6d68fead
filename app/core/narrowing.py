"""Whether one constraint is narrower than another: PROVEN or REFUSED, never a guess.

PROVEN is None, REFUSED a `Refusal`. A child is taken apart into a union of conjunctions of simple kinds; each
is proven to be within the parent, in the end by a row of `_ROWS`. A pair without a row, a limit or a fault in
here refuses: what is wrongly proven widens authority, what is wrongly refused costs a rewording.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, product
from math import prod
from typing import Any, Final, TypeAlias

from app.core.constraints import MAX_ARGUMENTS
from app.core.kinds import (
    SCALAR_TYPES,
    Absent,
    AllOf,
    AnyOf,
    AnyValue,
    ArgumentRule,
    Bind,
    Bool,
    Constraint,
    Eq,
    Int,
    List,
    NotOneOf,
    Object,
    OneOf,
    OutOfSteps,
    Path,
    Prefix,
    Scalar,
    Site,
    Steps,
    Str,
    ToolRule,
    judge,
)
from app.core.reasons import Reason
from app.core.strict_json import point

Conjunction: TypeAlias = tuple[Constraint, ...]
"""Simple constraints that a value must all be within. Never empty."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a child is refused: where (RFC 6901, in the child), the code, a sentence that repeats no values.

    NOT_NARROWER for what is wider, NARROWING_UNPROVABLE for what may be narrower and can't be shown to be.
    """

    pointer: str
    reason: Reason
    detail: str


def narrows(child: Constraint, parent: Constraint) -> Refusal | None:
    """None if every value that the child allows is proven to be allowed by the parent."""
    return _proven(lambda steps: _within(child, parent, steps))


def rule_within(child: ToolRule, parent: ToolRule, steps: Steps | None = None) -> Refusal | None:
    """None if every call that the child's stored rule allows is proven to be allowed by the parent's.

    `steps` are what may be spent on it and on what else is asked with them.
    """
    return None if child == parent else _proven(lambda own: _rule_within(child, parent, own), steps)


def narrow_tool_rule(child: ToolRule | None, parent: ToolRule) -> ToolRule | Refusal:
    """The rule to store for a child: what it asks for, met with the parent's. None asks for the parent's own.

    Arguments that the child leaves out keep the parent's rule. `"*"` does not: a child that names arguments
    and is to stay open says so again, since closing is always narrower and openness is never silent.
    """
    if child is None:
        return parent
    stored = ToolRule(arguments={**parent.arguments, **child.arguments}, open=child.open)
    if len(stored.arguments) > MAX_ARGUMENTS:
        return _unprovable(f"the child and its parent together name more than {MAX_ARGUMENTS} arguments")
    return rule_within(stored, parent) or stored


def _proven(proof: Callable[[Steps], Refusal | None], steps: Steps | None = None) -> Refusal | None:
    try:
        return proof(steps or Steps())
    except OutOfSteps:
        return _unprovable("the proof would take too many steps")
    except Exception:  # noqa: BLE001 - a fault in the prover must never prove anything
        return _unprovable("the proof failed")


# --- rules ------------------------------------------------------------------------------------------------


def _rule_within(child: ToolRule, parent: ToolRule, steps: Steps) -> Refusal | None:
    if child.open and not parent.open:
        return _wider("only the child is open to arguments without a rule", "/*")
    names = sorted({*child.arguments, *parent.arguments})
    return _first(_under(name, _argument_within(child.of(name), parent.of(name), steps)) for name in names)


def _argument_within(child: ArgumentRule, parent: ArgumentRule, steps: Steps) -> Refusal | None:
    if isinstance(parent.constraint, Bind) and child.constraint != parent.constraint:
        return _wider("the parent binds it, so the child may only repeat the same bind")
    if child.allows_absence and not parent.allows_absence:
        return _wider("the parent requires it")
    if isinstance(child.constraint, Absent):
        return None
    if isinstance(parent.constraint, Absent):
        return _wider("the parent does not allow it")
    return _within(child.constraint, parent.constraint, steps)


# --- constraints ------------------------------------------------------------------------------------------


def _within(child: Constraint, parent: Constraint, steps: Steps) -> Refusal | None:
    if isinstance(parent, AnyValue) or child == parent:
        return None
    alternatives = (_tightened(atoms) for atoms in _alternatives(child, steps))
    return _first(_conjunction_within(atoms, parent, steps) for atoms in alternatives if atoms is not None)


def _alternatives(constraint: Constraint, steps: Steps) -> list[Conjunction]:
    """The constraint as a union of conjunctions, each of which costs a step."""
    if isinstance(constraint, AnyOf):
        return [atoms for clause in constraint.clauses for atoms in _alternatives(clause, steps)]
    if not isinstance(constraint, AllOf):
        steps.take()
        return [(constraint,)]
    clauses = [_alternatives(clause, steps) for clause in constraint.clauses]
    # Before they are built: a few clauses multiply to more than memory holds.
    steps.take(prod(map(len, clauses)))
    return [tuple(chain.from_iterable(choice)) for choice in product(*clauses)]


def _conjunction_within(atoms: Conjunction, parent: Constraint, steps: Steps) -> Refusal | None:
    steps.take(len(atoms))
    if isinstance(parent, AnyValue):
        return None
    if (values := _finite(atoms, steps)) is not None:
        return _values_within(values, parent, steps)
    if isinstance(parent, AllOf):
        return _first(_conjunction_within(atoms, clause, steps) for clause in parent.clauses)
    if isinstance(parent, AnyOf):
        return _some_proof(_conjunction_within(atoms, clause, steps) for clause in parent.clauses)
    if isinstance(parent, NotOneOf):
        parent = _still_to_exclude(atoms, parent, steps)
    return _some_proof(_atom_within(atom, parent, steps) for atom in atoms)


def _atom_within(child: Constraint, parent: Constraint, steps: Steps) -> Refusal | None:
    if isinstance(child, AnyValue):
        return _wider(f"any is wider than the parent's {parent.kind}")
    row = _ROWS.get((type(child), type(parent)))
    if row is None:
        return _unprovable(f"no rule proves {child.kind} to be within the parent's {parent.kind}")
    return row(child, parent, steps)


# --- finite sets: decided value by value, by the parent's own evaluator ------------------------------------


def _finite(atoms: Conjunction, steps: Steps) -> list[Scalar] | None:
    """The values that satisfy all atoms where one atom lists its values, else None."""
    listed = next((_LISTS[type(atom)](atom) for atom in atoms if type(atom) in _LISTS), None)
    return None if listed is None else [value for value in listed if _allowed(value, atoms, steps)]


_LISTS: Final[Mapping[type[Constraint], Callable[[Any], tuple[Scalar, ...]]]] = {
    Eq: lambda eq: (eq.value,),
    OneOf: lambda one_of: one_of.values,
    Bool: lambda _: (("boolean", False), ("boolean", True)),
}


def _values_within(values: Iterable[Scalar], parent: Constraint, steps: Steps) -> Refusal | None:
    if all(_allowed(value, (parent,), steps) for value in values):
        return None
    return _wider(f"a value is outside the parent's {parent.kind}")


def _allowed(value: Scalar, atoms: Conjunction, steps: Steps) -> bool:
    # Without bindings: no value is known to be the bound one before the call.
    at = Site(bindings={}, steps=steps)
    return all(judge(atom, value[1], at) is None for atom in atoms)


def _still_to_exclude(atoms: Conjunction, parent: NotOneOf, steps: Steps) -> NotOneOf:
    """The parent without those of its values that the child excludes already, by whichever atom."""
    return replace(parent, values=tuple(value for value in parent.values if _allowed(value, atoms, steps)))


# --- conjunctions -----------------------------------------------------------------------------------------


def _tightened(atoms: Conjunction) -> Conjunction | None:
    """The same conjunction with the atoms of each kind that can be met made one; None if no value is left."""
    if any(isinstance(atom, Str) for atom in atoms):
        atoms += tuple(Str(minimum=len(atom.prefix)) for atom in atoms if isinstance(atom, Prefix))
    tightened = [atom for atom in atoms if type(atom) not in {AnyValue, *_MEETS}]
    for kind, meet in _MEETS.items():
        if same := [atom for atom in atoms if type(atom) is kind]:
            if (met := meet(same)) is None:
                return None
            tightened.append(met)
    return tuple(tightened) or (AnyValue(),)


def _meet_ranges(ranges: list[Int] | list[Str]) -> Int | Str | None:
    low, high = max(item.minimum for item in ranges), min(item.maximum for item in ranges)
    return replace(ranges[0], minimum=low, maximum=high) if low <= high else None


def _meet_prefixes(prefixes: list[Prefix]) -> Prefix | None:
    longest = max(prefixes, key=lambda item: len(item.prefix))
    return longest if all(longest.prefix.startswith(item.prefix) for item in prefixes) else None


_MEETS: Final[Mapping[type[Constraint], Callable[[Any], Constraint | None]]] = {
    Int: _meet_ranges,
    Str: _meet_ranges,
    Prefix: _meet_prefixes,
}


# --- the table --------------------------------------------------------------------------------------------

Row: TypeAlias = Callable[[Any, Any, Steps], "Refusal | None"]
"""The proof for one pair of kinds: the child, the parent, what may still be spent."""


def _iff(holds: Callable[[Any, Any], bool]) -> Row:
    """A row that is decided by a predicate, exactly."""

    def row(child: Constraint, parent: Constraint, _steps: Steps) -> Refusal | None:
        return None if holds(child, parent) else _wider(f"{child.kind} is wider than the parent's {parent.kind}")

    return row


def _range_inside(child: Int | Str | List, parent: Int | Str | List) -> bool:
    return parent.minimum <= child.minimum and child.maximum <= parent.maximum


def _all_excluded(scalar_type: str) -> Row:
    """For a child whose values are all of one type; `_still_to_exclude` has dropped what it excludes."""
    return _iff(lambda _, parent: scalar_type in SCALAR_TYPES[parent.type] and not parent.values)


def _exclusion_within(child: NotOneOf, parent: NotOneOf, _steps: Steps) -> Refusal | None:
    if child.type != parent.type:
        return _unprovable("notOneOf is only compared with a notOneOf of the same type")
    return _wider("the parent excludes more values") if parent.values else None


def _list_within(child: List, parent: List, steps: Steps) -> Refusal | None:
    if not _range_inside(child, parent):
        return _wider("the length of the list is wider than the parent's")
    return _under("list", _under("items", _within(child.items, parent.items, steps)))


def _object_within(child: Object, parent: Object, steps: Steps) -> Refusal | None:
    return _under("object", _under("fields", _rule_within(child.fields, parent.fields, steps)))


_ROWS: Final[Mapping[tuple[type[Constraint], type[Constraint]], Row]] = {
    (Int, Int): _iff(_range_inside),
    (Str, Str): _iff(_range_inside),
    # Strings with a prefix have every length from its own upwards; strings of some length have any prefix.
    (Prefix, Str): _iff(lambda child, parent: _range_inside(Str(minimum=len(child.prefix)), parent)),
    (Str, Prefix): _iff(lambda _child, _parent: False),
    (Prefix, Prefix): _iff(lambda child, parent: child.prefix.startswith(parent.prefix)),
    (Path, Path): _iff(lambda child, parent: parent.holds(child.root)),
    (Int, NotOneOf): _all_excluded("integer"),
    (Str, NotOneOf): _all_excluded("string"),
    (Prefix, NotOneOf): _all_excluded("string"),
    (NotOneOf, NotOneOf): _exclusion_within,
    (Bind, Bind): _iff(lambda child, parent: child.field == parent.field),
    (List, List): _list_within,
    (Object, Object): _object_within,
}
"""Every pair of kinds that can be proven, beside those that `_conjunction_within` takes apart."""


# --- verdicts ---------------------------------------------------------------------------------------------


def _wider(detail: str, pointer: str = "") -> Refusal:
    return Refusal(pointer, Reason.NOT_NARROWER, detail)


def _unprovable(detail: str) -> Refusal:
    return Refusal("", Reason.NARROWING_UNPROVABLE, detail)


def _under(name: str, refusal: Refusal | None) -> Refusal | None:
    return refusal and replace(refusal, pointer=point("", name) + refusal.pointer)


def _first(verdicts: Iterable[Refusal | None]) -> Refusal | None:
    """Proven if all are: the first refusal, or None."""
    return next((refusal for refusal in verdicts if refusal is not None), None)


def _some_proof(verdicts: Iterable[Refusal | None]) -> Refusal | None:
    """Proven if one is. A single refusal stands; of several none is definite, since they may add up."""
    refusals: list[Refusal] = []
    for verdict in verdicts:
        if verdict is None:
            return None
        refusals.append(verdict)
    return refusals[0] if len(refusals) == 1 else _unprovable("no single alternative or clause proves it")
