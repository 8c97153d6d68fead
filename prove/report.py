"""The page that is printed: how often the prover was right, and how often it could have been.

*Narrower* are the pairs of which an oracle says that nothing shows them to be wider; *accepted* those of them that
the prover proved. *No row* are refused on purpose: the design's table does not pair them. *Short* are the rest.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from prove.documents import FINITE, GROUP_OF, GROUPS, KINDS, TEXTS
from prove.pairs import RELATED, Case
from prove.verdicts import NARROWER, UNDECIDED, WIDER, Verdict

MAX_SHOWN: Final = 20
GOAL: Final = 90

Labels: TypeAlias = tuple[str, str]


@dataclass(slots=True)
class Tally:
    """What became of some cases."""

    pairs: set[Labels] = field(default_factory=set)
    counted: Counter[str] = field(default_factory=Counter)

    def add(self, verdict: Verdict) -> None:
        self.pairs.add(verdict.case.labels)
        self.counted.update(["cases", verdict.truth, *_remarks(verdict)])

    @property
    def cells(self) -> list[str]:
        narrower, accepted = self.counted[NARROWER], self.counted["accepted"]
        counts = [self.counted[name] for name in ("no row", "short", UNDECIDED)]
        row = [len(self.pairs), self.counted["cases"], self.counted["faults"], narrower, accepted]
        return [*map(str, row), share(accepted, narrower), *map(str, counts)]


def _remarks(verdict: Verdict) -> Iterable[str]:
    if verdict.fault is not None:
        yield "faults"
    if verdict.truth == NARROWER and verdict.proven:
        yield "accepted"
    if verdict.missed:
        yield "short" if verdict.within_reach else "no row"
    if verdict.called_wider:
        yield "called wider"


def share(part: int, whole: int) -> str:
    """A share in percent, rounded down: what is not all is never 100."""
    return f"{1000 * part // whole / 10:.1f}" if whole else "-"


HEAD: Final = ("pairs", "cases", "counterexamples", "narrower", "accepted", "%", "no row", "short", "unknown")


def page(verdicts: Sequence[Verdict], *, every_pair: bool) -> str:
    """All that is printed."""
    parts = [
        _table("Totals", ("of",), [((name,), _tally(verdicts, holds)) for name, holds in TOTALS.items()]),
        _told_by("By groups of kinds", _by(verdicts, _groups)),
        _matrix(verdicts),
    ]
    if every_pair:
        parts.append(_told_by("By pairs of kinds", _by(verdicts, _kinds)))
    return "\n\n".join([*parts, _goals(verdicts), *_shown(verdicts)])


# --- what is counted --------------------------------------------------------------------------------------

Holds: TypeAlias = Callable[[Verdict], bool]


def _labelled(holds: Callable[[str, str], bool]) -> Holds:
    return lambda verdict: holds(*verdict.case.labels)


def _are_numbers(verdict: Verdict) -> bool:
    """Of one kind and, where it has one, of one scale: no others are compared."""
    if verdict.case.labels == ("decimal", "decimal"):
        return bool(verdict.case.child["decimal"]["scale"] == verdict.case.parent["decimal"]["scale"])
    return verdict.case.labels in {("int", "int"), ("int", "notOneOf")}


FINITE_SETS: Final = "finite sets"
NUMBER_RANGES: Final = "numbers"
STRINGS: Final = "strings"
ALL: Final = "all"
PAIRED: Final = (FINITE_SETS, NUMBER_RANGES, STRINGS)

TOTALS: Final[dict[str, Holds]] = {
    FINITE_SETS: _labelled(lambda child, _: child in FINITE),
    NUMBER_RANGES: _are_numbers,
    STRINGS: _labelled(lambda child, parent: child in TEXTS and parent in (*TEXTS, "notOneOf")),
    "related pairs": lambda verdict: verdict.case.family in RELATED,
    "unrelated pairs": lambda verdict: verdict.case.family not in RELATED,
    "by the solver": lambda verdict: verdict.by_solver,
    "by values": lambda verdict: not verdict.by_solver,
    ALL: lambda _: True,
}


def _tally(verdicts: Iterable[Verdict], holds: Holds) -> Tally:
    tally = Tally()
    for verdict in verdicts:
        if holds(verdict):
            tally.add(verdict)
    return tally


def _by(verdicts: Iterable[Verdict], key: Callable[[Verdict], tuple[str, ...]]) -> list[tuple[tuple[str, ...], Tally]]:
    tallies: dict[tuple[str, ...], Tally] = {}
    for verdict in verdicts:
        tallies.setdefault(key(verdict), Tally()).add(verdict)
    return sorted(tallies.items(), key=lambda item: (_ORDER[item[0][0]], _ORDER[item[0][1]], item[0][2]))


_ORDER: Final = {
    **{kind: place for place, kind in enumerate(KINDS)},
    **{group: KINDS.index(kinds[0]) for group, kinds in GROUPS.items()},
}


def _groups(verdict: Verdict) -> tuple[str, ...]:
    child, parent = verdict.case.labels
    return GROUP_OF[child], GROUP_OF[parent], _oracle(verdict)


def _kinds(verdict: Verdict) -> tuple[str, ...]:
    return (*verdict.case.labels, _oracle(verdict))


def _oracle(verdict: Verdict) -> str:
    return "solver" if verdict.by_solver else "values"


# --- how it is shown --------------------------------------------------------------------------------------


def _table(title: str, names: Sequence[str], rows: Sequence[tuple[tuple[str, ...], Tally]]) -> str:
    cells = [[*names, *HEAD], *([*key, *tally.cells] for key, tally in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join([f"# {title}", "", *(_line(row, widths, len(names)) for row in cells)])


def _told_by(title: str, rows: Sequence[tuple[tuple[str, ...], Tally]]) -> str:
    """A table without the rows that say nothing but how many cases there were."""
    told = [row for row in rows if set(row[1].counted) - {"cases", WIDER}]
    others = [tally for _, tally in rows if not set(tally.counted) - {"cases", WIDER}]
    rest = sum(tally.counted["cases"] for tally in others)
    left_out = f"(and {len(others)} more, of {rest} cases, in which nothing is narrower and nothing was accepted)"
    return "\n".join([_table(title, ("child", "parent", "by"), told), left_out])


def _line(row: Sequence[str], widths: Sequence[int], names: int) -> str:
    laid = (
        cell.ljust(width) if place < names else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(laid).rstrip()


def _matrix(verdicts: Iterable[Verdict]) -> str:
    """The share accepted of what is narrower, child by child and parent by parent; a dot where nothing is."""
    tallies = {key[:2]: tally for key, tally in _by(verdicts, lambda verdict: (*verdict.case.labels, ""))}
    lines = ["", *(f"{kind:12}" + "".join(_cell(tallies.get((kind, other))) for other in KINDS) for kind in KINDS)]
    tallest = max(map(len, KINDS))
    heads = [" " * 12 + "".join(f"{kind.rjust(tallest)[row]:>4}" for kind in KINDS) for row in range(tallest)]
    title = "# Accepted of what is narrower, in percent: a child a line, a parent a column"
    return "\n".join([title, "", *heads, *lines])


def _cell(tally: Tally | None) -> str:
    if tally is None:
        return "    "
    if tally.counted["faults"]:
        return "   !"
    narrower = tally.counted[NARROWER]
    return f"{100 * tally.counted['accepted'] // narrower:4}" if narrower else "   ."


def _goals(verdicts: Sequence[Verdict]) -> str:
    tallies = {name: _tally(verdicts, holds).counted for name, holds in TOTALS.items()}
    overall = tallies[ALL]
    goals = {
        f"no counterexample in {overall['cases']} cases": not overall["faults"],
        **{f"of {name} all that the table pairs": not tallies[name]["short"] for name in PAIRED},
        f"more than {GOAL} % of all that is narrower": 100 * overall["accepted"] > GOAL * overall[NARROWER],
    }
    lines = [f"{'met   ' if met else 'MISSED'}  {goal}" for goal, met in goals.items()]
    return "\n".join(["# Goals", "", *lines, "", f"Refused as wider, and narrower: {overall['called wider']}"])


def _shown(verdicts: Iterable[Verdict]) -> Iterable[str]:
    """The cases that somebody must look at."""
    wrong = [verdict for verdict in verdicts if verdict.fault is not None]
    short = [verdict for verdict in verdicts if verdict.missed and verdict.within_reach]
    if wrong:
        yield "\n".join(["# Counterexamples", "", *map(_told, wrong[:MAX_SHOWN])])
    if short:
        yield "\n".join(["# What falls short", "", *(_question(verdict.case) for verdict in short[:MAX_SHOWN])])


def _told(verdict: Verdict) -> str:
    witness = verdict.witness
    assert witness is not None, "a fault is found by a value"
    return (
        f"{_question(verdict.case)}\n    value    {witness.value!r}, bound to {witness.bindings}\n    {verdict.fault}"
    )


def _question(case: Case) -> str:
    return f"{case.family}: child    {case.child}\n    parent   {case.parent}"
