"""Pairs of a child and a parent: what people derive, the same the wrong way round, and what has nothing in common."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice, product
from random import Random
from typing import Final

from prove.documents import GROUP_OF, GROUPS, Document, label_of
from prove.mutations import Narrowing
from prove.samples import LABELS, Sampler

NARROWED: Final = "narrowed"
SWAPPED: Final = "swapped"
ALIKE: Final = "alike"
UNRELATED: Final = "unrelated"
RELATED: Final = frozenset({NARROWED, SWAPPED})

ROUND: Final = (NARROWED, ALIKE, NARROWED, UNRELATED, SWAPPED) * 2
"""What ten cases in a row are: derived, the same the wrong way round, of like kinds, of any two kinds."""


@dataclass(frozen=True, slots=True)
class Case:
    """A question: whether the child is within the parent."""

    family: str
    child: Document
    parent: Document

    @property
    def labels(self) -> tuple[str, str]:
        return label_of(self.child), label_of(self.parent)


def cases(seed: int, number: int) -> Iterator[Case]:
    """So many cases; the same ones for the same seed, and more of them for a larger number."""
    return islice(_endless(Random(seed)), number)


def _endless(chance: Random) -> Iterator[Case]:
    draw = Sampler(chance)
    narrowing = Narrowing(draw)
    every_pair = [*product(LABELS, repeat=2)]
    parents = cycle(chance.sample(LABELS, len(LABELS)))
    pairs = cycle(chance.sample(every_pair, len(every_pair)))
    for family in cycle(ROUND):
        if family == UNRELATED:
            child, parent = map(draw.rule, next(pairs))
        elif family == ALIKE:
            label = next(parents)
            parent, child = draw.rule(label), draw.rule(draw.pick(GROUPS[GROUP_OF[label]]))
        else:
            parent = draw.rule(next(parents))
            child = narrowing.narrower(parent)
        yield Case(family, parent, child) if family == SWAPPED else Case(family, child, parent)
