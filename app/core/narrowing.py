"""Whether one constraint is narrower than another: PROVEN or REFUSED, never a guess.

PROVEN is None, REFUSED a `Refusal`. A child is taken apart into a union of conjunctions of simple kinds; each
is proven to be within the parent, in the end by a row of `_ROWS`. A pair without a row, a limit or a fault in
here refuses: what is wrongly proven widens authority, what is wrongly refused costs a rewording.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from math import prod
from typing import Any, Final, TypeAlias

from app.core.addresses import hosts_within, network_within
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
    Cidr,
    Constraint,
    ContainsAll,
    Decimal,
    Eq,
    Glob,
    Host,
    Int,
    List,
    NotOneOf,
    Object,
    OneOf,
    Path,
    Prefix,
    Regex,
    Resource,
    Scalar,
    Site,
    Str,
    SubsetOf,
    Suffix,
    ToolRule,
    Url,
    everything_in,
    judge,
)
from app.core.languages import Language, Lengths, ending_with, included, is_empty, starting_with
from app.core.reasons import Reason
from app.core.resource_rules import id_flaw
from app.core.resources import ResourceRef, Resources
from app.core.steps import OutOfSteps, Steps
from app.core.strict_json import MAX_SAFE_INTEGER, point
from app.core.urls import url_within

VALUES_A_STEP: Final = 16
"""How many values of a set are compared for one step."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a proof may rest on: the steps that it may take, and what is on record of things that are named."""

    steps: Steps = field(default_factory=Steps)
    resources: Resources = field(default_factory=dict)


def narrows(child: Constraint, parent: Constraint, ground: Ground | None = None) -> Refusal | None:
    """None if every value that the child allows is proven to be allowed by the parent."""
    return _proven(lambda own: _within(child, parent, own), ground)


def rule_within(child: ToolRule, parent: ToolRule, ground: Ground | None = None) -> Refusal | None:
    """None if every call that the child's stored rule allows is proven to be allowed by the parent's.

    The ground's steps are what may be spent on it and on what else is asked with them.
    """
    return None if child == parent else _proven(lambda own: _rule_within(child, parent, own), ground)


def things_to_look_up(child: ToolRule, parent: ToolRule) -> Iterator[ResourceRef]:
    """The things that a proof must know about: those that the child lists where the parent asks whose they are.

    There may be very many: whoever asks stops where it is enough.
    """
    for name in {*child.arguments, *parent.arguments}:
        if child.of(name) == parent.of(name):
            continue  # nothing to prove
        asked, listed = everything_in(parent.of(name).constraint), everything_in(child.of(name).constraint)
        types = {constraint.type for constraint in asked if isinstance(constraint, Resource)}
        lists = [_LISTS[type(constraint)](constraint) for constraint in listed if types and type(constraint) in _LISTS]
        ids = {str(value) for values in lists for kind, value in values if kind == "string"}
        yield from (ResourceRef(kind, id_) for kind, id_ in product(types, ids) if id_flaw(id_) is None)


def narrow_tool_rule(child: ToolRule | None, parent: ToolRule, ground: Ground | None = None) -> ToolRule | Refusal:
    """The rule to store for a child: what it asks for, met with the parent's. None asks for the parent's own.

    Arguments that the child leaves out keep the parent's rule. `"*"` does not: a child that names arguments
    and is to stay open says so again, since closing is always narrower and openness is never silent.
    """
    if child is None:
        return parent
    stored = ToolRule(arguments={**parent.arguments, **child.arguments}, open=child.open)
    if len(stored.arguments) > MAX_ARGUMENTS:
        return _unprovable(f"the child and its parent together name more than {MAX_ARGUMENTS} arguments")
    return rule_within(stored, parent, ground) or stored


def _proven(proof: Callable[[Ground], Refusal | None], ground: Ground | None) -> Refusal | None:
    try:
        return proof(ground or Ground())
    except OutOfSteps:
        return _unprovable("the proof would take too many steps")
    except Exception:  # noqa: BLE001 - a fault in the prover must never prove anything
        return _unprovable("the proof failed")


# --- rules ------------------------------------------------------------------------------------------------


def _rule_within(child: ToolRule, parent: ToolRule, ground: Ground) -> Refusal | None:
    if child.open and not parent.open:
        return _wider("only the child is open to arguments without a rule", "/*")
    names = sorted({*child.arguments, *parent.arguments})
    return _first(_under(name, _argument_within(child.of(name), parent.of(name), ground)) for name in names)


def _argument_within(child: ArgumentRule, parent: ArgumentRule, ground: Ground) -> Refusal | None:
    if child == parent:
        return None
    if isinstance(parent.constraint, Bind) and child.constraint != parent.constraint:
        return _wider("the parent binds it, so the child may only repeat the same bind")
    if child.allows_absence and not parent.allows_absence:
        return _wider("the parent requires it")
    if isinstance(child.constraint, Absent):
        return None
    if isinstance(parent.constraint, Absent):
        return _wider("the parent does not allow it")
    return _within(child.constraint, parent.constraint, ground)


# --- constraints ------------------------------------------------------------------------------------------


def _within(child: Constraint, parent: Constraint, ground: Ground) -> Refusal | None:
    if isinstance(parent, AnyValue) or child == parent:
        return None
    alternatives = (_tightened(atoms) for atoms in _alternatives(child, ground))
    return _first(_conjunction_within(atoms, parent, ground) for atoms in alternatives if atoms is not None)


def _alternatives(constraint: Constraint, ground: Ground) -> list[Conjunction]:
    """The constraint as a union of conjunctions, each of which costs a step."""
    if isinstance(constraint, AnyOf):
        return [atoms for clause in constraint.clauses for atoms in _alternatives(clause, ground)]
    if not isinstance(constraint, AllOf):
        ground.steps.take()
        return [(constraint,)]
    clauses = [_alternatives(clause, ground) for clause in constraint.clauses]
    # Before they are built: a few clauses multiply to more than memory holds.
    ground.steps.take(prod(map(len, clauses)))
    return [tuple(chain.from_iterable(choice)) for choice in product(*clauses)]


def _conjunction_within(atoms: Conjunction, parent: Constraint, ground: Ground) -> Refusal | None:
    ground.steps.take(len(atoms))
    if isinstance(parent, AnyValue) or parent in atoms:
        return None
    if (values := _finite(atoms, ground)) is None:
        return _taken_apart(atoms, parent, ground)
    refusal = _values_within(values, parent, ground)
    # An atom that rests on a record says more than the values do: it may stand in the parent, too.
    if refusal is None or _timeless(atoms) == atoms or _taken_apart(atoms, parent, ground) is not None:
        return refusal
    return None


def _taken_apart(atoms: Conjunction, parent: Constraint, ground: Ground) -> Refusal | None:
    """The proof by the parent's clauses, by what texts have in common, or by a row of the table."""
    if isinstance(parent, AllOf):
        return _first(_conjunction_within(atoms, clause, ground) for clause in parent.clauses)
    if isinstance(parent, AnyOf):
        return _some_proof(_conjunction_within(atoms, clause, ground) for clause in parent.clauses)
    if type(parent) in _TEXTS and any(type(atom) in _TEXTS for atom in atoms):
        return _texts_within(atoms, parent, ground)
    if isinstance(parent, NotOneOf):
        parent = _still_to_exclude(atoms, parent, ground)
    refusal = _some_proof(_atom_within(atom, parent, ground) for atom in atoms)
    return None if refusal is None or _no_text_is_left(atoms, ground) else refusal


def _atom_within(child: Constraint, parent: Constraint, ground: Ground) -> Refusal | None:
    if isinstance(child, AnyValue):
        return _wider(f"any is wider than the parent's {parent.kind}")
    row = _ROWS.get((type(child), type(parent)))
    if row is None:
        return _unprovable(f"no rule proves {child.kind} to be within the parent's {parent.kind}")
    return row(child, parent, ground)


# --- finite sets: decided value by value, by the parent's own evaluator ------------------------------------


def _finite(atoms: Conjunction, ground: Ground) -> list[Scalar] | None:
    """The values that satisfy all atoms where one atom lists its values, else None."""
    listed = next((atom for atom in atoms if type(atom) in _LISTS), None)
    if listed is None:
        return None
    others = tuple(atom for atom in _timeless(atoms) if atom is not listed)
    return [value for value in _LISTS[type(listed)](listed) if _allowed(value, others, ground)]


def _timeless(atoms: Conjunction) -> Conjunction:
    """Those that judge a value alike at any time: what a record has today, it may not have at the call."""
    return tuple(atom for atom in atoms if not isinstance(atom, Resource | Bind))


_LISTS: Final[Mapping[type[Constraint], Callable[[Any], tuple[Scalar, ...]]]] = {
    Eq: lambda eq: (eq.value,),
    OneOf: lambda one_of: one_of.values,
    Bool: lambda _: (("boolean", False), ("boolean", True)),
}


def _values_within(values: Sequence[Scalar], parent: Constraint, ground: Ground) -> Refusal | None:
    if isinstance(parent, OneOf):
        ground.steps.take(len(values) // VALUES_A_STEP)
        return None if parent.holds(values) else _wider("a value is outside the parent's oneOf")
    if all(_allowed(value, (parent,), ground) for value in values):
        return None
    return _wider(f"a value is outside the parent's {parent.kind}")


def _allowed(value: Scalar, atoms: Conjunction, ground: Ground) -> bool:
    # Without bindings: no value is known to be the bound one before the call.
    at = Site(bindings={}, resources=ground.resources, steps=ground.steps)
    return all(judge(atom, value[1], at) is None for atom in atoms)


def _still_to_exclude(atoms: Conjunction, parent: NotOneOf, ground: Ground) -> NotOneOf:
    """The parent without those of its values that the child excludes already, by whichever atom."""
    atoms = _timeless(atoms)
    return replace(parent, values=tuple(value for value in parent.values if _allowed(value, atoms, ground)))


# --- texts: decided exactly, by inclusion of regular languages ---------------------------------------------


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts of a regular language, where there is one, whose length is within bounds."""

    language: Language | None
    lengths: Lengths


_EVERY_LENGTH: Final = Lengths(0, MAX_SAFE_INTEGER)

_TEXTS: Final[Mapping[type[Constraint], Callable[[Any], _Texts]]] = {
    Str: lambda text: _Texts(None, Lengths(text.minimum, text.maximum)),
    Prefix: lambda text: _Texts(starting_with(text.prefix), _EVERY_LENGTH),
    Suffix: lambda text: _Texts(ending_with(text.suffix), _EVERY_LENGTH),
    Glob: lambda text: _Texts(text.language, _EVERY_LENGTH),
    Regex: lambda text: _Texts(text.language, _EVERY_LENGTH),
}


def _texts_of(atoms: Iterable[Constraint]) -> tuple[list[Language], Lengths]:
    """What all the atoms that are about texts allow together; there is at least one."""
    texts = [_TEXTS[type(atom)](atom) for atom in atoms if type(atom) in _TEXTS]
    languages = [text.language for text in texts if text.language is not None]
    least, most = max(text.lengths.least for text in texts), min(text.lengths.most for text in texts)
    return languages, Lengths(least, most)


def _texts_within(atoms: Conjunction, parent: Constraint, ground: Ground) -> Refusal | None:
    languages, lengths = _texts_of(atoms)
    asked = _TEXTS[type(parent)](parent)
    if included(languages, lengths, asked.language, asked.lengths, ground.steps):
        return None
    if all(type(atom) in _TEXTS for atom in atoms):
        return _wider(f"{' and '.join(atom.kind for atom in atoms)} allows more than the parent's {parent.kind}")
    return _unprovable(f"no rule proves it to be within the parent's {parent.kind}")


def _no_text_is_left(atoms: Conjunction, ground: Ground) -> bool:
    """Whether the atoms exclude one another: then there is nothing that a parent would have to allow."""
    texts = [atom for atom in atoms if type(atom) in _TEXTS]
    return len(texts) > 1 and is_empty(*_texts_of(texts), ground.steps)


# --- conjunctions -----------------------------------------------------------------------------------------


def _tightened(atoms: Conjunction) -> Conjunction | None:
    """The same conjunction with the ranges that can be met made one; None if no value is left."""
    kept = [atom for atom in atoms if not isinstance(atom, AnyValue | Int | Decimal)]
    ranges: dict[int | None, list[Int | Decimal]] = {}
    for atom in atoms:
        if isinstance(atom, Int | Decimal):
            ranges.setdefault(atom.scale if isinstance(atom, Decimal) else None, []).append(atom)
    met = [_meet(same) for same in ranges.values()]
    return None if None in met else (*kept, *filter(None, met)) or (AnyValue(),)


def _meet(ranges: Sequence[Int | Decimal]) -> Int | Decimal | None:
    """The range that is in all of these, which are of one kind and scale."""
    low, high = max(item.minimum for item in ranges), min(item.maximum for item in ranges)
    return replace(ranges[0], minimum=low, maximum=high) if low <= high else None


# --- the table --------------------------------------------------------------------------------------------

Row: TypeAlias = Callable[[Any, Any, Ground], "Refusal | None"]
"""The proof for one pair of kinds: the child, the parent, what may still be spent."""


def _iff(holds: Callable[[Any, Any], bool]) -> Row:
    """A row that is decided by a predicate, exactly."""

    def row(child: Constraint, parent: Constraint, _ground: Ground) -> Refusal | None:
        return None if holds(child, parent) else _wider(f"{child.kind} is wider than the parent's {parent.kind}")

    return row


def _range_inside(child: Int | Decimal | List, parent: Int | Decimal | List) -> bool:
    return parent.minimum <= child.minimum and child.maximum <= parent.maximum


def _all_excluded(scalar_type: str) -> Row:
    """For a child whose values are all of one type; `_still_to_exclude` has dropped what it excludes."""
    return _iff(lambda _, parent: scalar_type in SCALAR_TYPES[parent.type] and not parent.values)


def _exclusion_within(child: NotOneOf, parent: NotOneOf, _ground: Ground) -> Refusal | None:
    if child.type != parent.type:
        return _unprovable("notOneOf is only compared with a notOneOf of the same type")
    return _wider("the parent excludes more values") if parent.values else None


def _list_within(child: List, parent: List, ground: Ground) -> Refusal | None:
    if not _range_inside(child, parent):
        return _wider("the length of the list is wider than the parent's")
    return _under("list", _under("items", _within(child.items, parent.items, ground)))


def _object_within(child: Object, parent: Object, ground: Ground) -> Refusal | None:
    return _under("object", _under("fields", _rule_within(child.fields, parent.fields, ground)))


def _decimal_within(child: Decimal, parent: Decimal, _ground: Ground) -> Refusal | None:
    if child.scale != parent.scale:
        return _unprovable("decimal is only compared with a decimal of the same scale")
    return None if _range_inside(child, parent) else _wider("decimal is wider than the parent's decimal")


def _has_parents_attributes(child: Resource, parent: Resource) -> bool:
    return child.type == parent.type and parent.where.items() <= child.where.items()


_ROWS: Final[Mapping[tuple[type[Constraint], type[Constraint]], Row]] = {
    (Int, Int): _iff(_range_inside),
    (Decimal, Decimal): _decimal_within,
    (Path, Path): _iff(lambda child, parent: parent.holds(child.root)),
    (Url, Url): _iff(lambda child, parent: url_within(child.rule, parent.rule)),
    (Host, Host): _iff(lambda child, parent: hosts_within(child.hosts, parent.hosts)),
    (Cidr, Cidr): _iff(lambda child, parent: network_within(child.network, parent.network)),
    (Int, NotOneOf): _all_excluded("integer"),
    **dict.fromkeys(product(_TEXTS, [NotOneOf]), _all_excluded("string")),
    (NotOneOf, NotOneOf): _exclusion_within,
    (Bind, Bind): _iff(lambda child, parent: child.field == parent.field),
    (Resource, Resource): _iff(_has_parents_attributes),
    (List, List): _list_within,
    (ContainsAll, ContainsAll): _iff(lambda child, parent: set(child.values) >= set(parent.values)),
    (SubsetOf, SubsetOf): _iff(lambda child, parent: set(child.values) <= set(parent.values)),
    (Object, Object): _object_within,
}
"""Every pair of kinds that can be proven, beside texts and what `_conjunction_within` takes apart."""


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
