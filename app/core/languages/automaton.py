"""The automaton of an expression, and how it reads a text.

A state is the set of positions that the last character may stand at, as bits of an integer. Bit 0 is the start,
where no character stands; among the positions that may come next it says that the text may end instead. There is
a single way to step, which the evaluator and the prover share: they can't differ.

States are made as they are needed and remembered within bounds. What is charged is what the work would cost
without memory, so that one question always has one answer.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import accumulate
from operator import or_, xor
from typing import Final, TypeVar

from app.core.languages.alphabet import ALL
from app.core.languages.expression import Node, OneChar
from app.core.languages.language import Language
from app.core.steps import Steps

START: Final = 1
"""The state before the first character."""

END: Final = 1
"""Among what may come next: that the text may end. No character stands there, so that no step leads to it."""

MAX_AUTOMATA: Final = 512
MAX_LARGE_AUTOMATA: Final = 16
LARGE: Final = 256
"""Positions above which an automaton may take a megabyte, where a usual one takes a few kilobytes."""

MAX_REMEMBERED: Final = 256
"""States of an automaton, and characters."""

OPERATIONS_PER_STEP: Final = 16
WORD: Final = 1024
"""Bits up to which an operation on an integer takes about as long as on a small one."""

K = TypeVar("K")


class Memo(dict[K, int]):
    """What a function gave, remembered until there is too much of it."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[K], int]) -> None:
        super().__init__()
        self.function = function

    def __missing__(self, key: K) -> int:
        if len(self) >= MAX_REMEMBERED:
            self.clear()
        value = self[key] = self.function(key)
        return value


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Automaton:
    """A text is in the language if END is among what is reached after its last character.

    To step is `reached[state] & holding[char]`.
    """

    reached: Memo[int]
    """Positions that may come after a state."""
    holding: Memo[str]
    """Positions that a character may stand at; none for a surrogate."""
    cuts: Sequence[int]
    """Code points, 0 among them, from each of which on `holding` is the same up to the next."""
    held_from: Sequence[int]
    """What `holding` is from each cut on."""
    sinks: int
    """Positions of any character, after which the text may end or another follow at the same position."""
    width: int
    """How many times as long an operation on its states takes as one on small integers."""
    operations: int
    """Operations on small integers that one step takes the time of."""

    def held(self, code: int) -> int:
        """What `holding` is for the character of a code point."""
        return self.held_from[bisect_right(self.cuts, code) - 1]


def automaton_of(language: Language, steps: Steps) -> Automaton:
    """The automaton of a language; raises OutOfSteps."""
    size = language.expression.size
    steps.take(1 + size * (1 + size // WORD) // 2)
    return _large_automaton(language) if size > LARGE else _automaton(language)


def matches(language: Language, text: str, steps: Steps) -> bool:
    """Whether a text is in the language, in time linear in its length; raises OutOfSteps."""
    automaton = automaton_of(language, steps)
    steps.take(1 + len(text) * automaton.operations // OPERATIONS_PER_STEP)
    reached, holding = automaton.reached, automaton.holding
    state = START
    for char in text:
        state = reached[state] & holding[char]
        if not state:
            return False
    return bool(reached[state] & END)


def _compiled(language: Language) -> Automaton:
    after, holders = _placed(language.expression)
    cuts, held_from = _held(holders)
    reach, operations = _reach(after)
    width = 1 + len(after) // WORD
    return Automaton(
        reached=Memo(reach),
        holding=Memo(lambda char: held_from[bisect_right(cuts, ord(char)) - 1]),
        cuts=cuts,
        held_from=held_from,
        sinks=_sinks(after, holders),
        width=width,
        operations=operations * width,
    )


_automaton: Final = lru_cache(MAX_AUTOMATA)(_compiled)
_large_automaton: Final = lru_cache(MAX_LARGE_AUTOMATA)(_compiled)


def _placed(expression: Node) -> tuple[list[int], dict[OneChar, int]]:
    """What may come after each position, the start being the first; the positions of each set of characters."""
    after = [0] * (1 + expression.size)
    holders: defaultdict[OneChar, int] = defaultdict(int)

    def place(char: OneChar, at: int, following: int) -> None:
        after[at] = following
        holders[char] |= 1 << at

    after[0] = expression.wire(1, END, place)
    return after, holders


def _held(holders: dict[OneChar, int]) -> tuple[list[int], list[int]]:
    """The cuts, and what is held from each of them on."""
    toggled: defaultdict[int, int] = defaultdict(int, {0: 0})
    for char, positions in holders.items():
        for low, high in char.members:
            toggled[low] ^= positions
            toggled[high + 1] ^= positions
    cuts = sorted(toggled)
    return cuts, [*accumulate((toggled[cut] for cut in cuts), xor)]


def _reach(after: list[int]) -> tuple[Callable[[int], int], int]:
    """The function from a state to what may come after it, and how many operations it takes.

    Most positions are followed by the next one, which is a shift for all of them together. What else follows is
    often the same for many (the beginning of what repeats, the end), and is looked at once for them all.
    """
    straight = 0
    others: defaultdict[int, int] = defaultdict(int)
    for position, following in enumerate(after):
        straight |= following & 2 << position
        others[following & ~(2 << position)] |= 1 << position
    straight >>= 1
    branches = [(positions, following) for following, positions in others.items() if following]

    def reach(state: int) -> int:
        found = (state & straight) << 1
        for positions, following in branches:
            if state & positions:
                found |= following
        return found

    return reach, 3 + len(branches)


def _sinks(after: list[int], holders: dict[OneChar, int]) -> int:
    anywhere = reduce(or_, (positions for char, positions in holders.items() if char.members == ALL), 0)
    looping = (1 << at for at, following in enumerate(after) if following & END and following >> at & 1)
    return anywhere & reduce(or_, looping, 0)
