"""Regular expressions as trees: a character of a set, one after another, a choice, a repeat.

However a language was spelt, this is what it is read into. A tree knows how large its automaton is (one position
for each character, repeats written out) and how its positions follow one another (Glushkov's construction). It
knows neither spellings nor how texts are read.

Sets of positions are bits of an integer. Trees are made by the functions below, which keep them plain: nothing
but `EMPTY` is without positions, so that whatever is bounded in positions is bounded in everything.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain as joined
from typing import Final, TypeAlias

from app.core.languages.alphabet import ALL, CharSet, char_set, chars_of

MAX_POSITIONS: Final = 2000
"""Characters of a pattern when its repeats are written out: `[ab]{1000}x` has 1001."""


class PatternInvalid(ValueError):
    """A pattern that is refused. `detail` is a sentence for its author, which may name a construct, never more."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


# Identity is enough to tell trees apart, and costs nothing to hash.
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Node(ABC):
    """A set of texts."""

    size: int
    """How many positions it takes."""
    first: int
    """Positions where a text may begin, counted from the first of its own: enough of them for any text."""
    shortest: int
    longest: int | None
    """Lengths of its texts; None where there is no longest."""

    @abstractmethod
    def wire(self, at: int, after: int, place: "Place", /) -> int:
        """Place every character from position `at` on; the positions to begin at if `after` may come after it."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OneChar(Node):
    """One character out of a set, which is not empty."""

    members: CharSet

    def wire(self, at: int, after: int, place: "Place", /) -> int:
        place(self, at, after)
        return 1 << at


Place: TypeAlias = Callable[[OneChar, int, int], None]
"""What is told of every position: its character, its number, the positions that may come after it."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Chain(Node):
    """One after another."""

    parts: tuple[Node, ...]

    def wire(self, at: int, after: int, place: Place, /) -> int:
        end = at + self.size
        for part in reversed(self.parts):
            end -= part.size
            after = part.wire(end, after, place)
        return after


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Choice(Node):
    """One of several."""

    parts: tuple[Node, ...]

    def wire(self, at: int, after: int, place: Place, /) -> int:
        entry = 0
        for part in self.parts:
            entry |= part.wire(at, after, place)
            at += part.size
        return entry


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Repeat(Node):
    """The same again, a number of times; without end where `most` is None."""

    part: Node
    least: int
    most: int | None

    def wire(self, at: int, after: int, place: Place, /) -> int:
        # From the last copy to the first: each is followed by the next and, if there were enough, by what is after.
        # Without end, the last is followed by itself as well.
        copies = self.size // self.part.size
        last = at + self.size - self.part.size
        entry = after if self.most is not None else after | self.part.first << last
        for copy in reversed(range(copies)):
            entry = self.part.wire(at + copy * self.part.size, entry, place) | (after if copy >= self.least else 0)
        return entry


EMPTY: Final = Chain(parts=(), size=0, first=0, shortest=0, longest=0)
"""The empty text."""


def one_char(members: CharSet) -> OneChar:
    """One character out of a set."""
    assert members, "an expression without texts is never built"
    return OneChar(members=members, size=1, first=1, shortest=1, longest=1)


@lru_cache(maxsize=1024)
def literal(char: str) -> OneChar:
    """One character."""
    return one_char(chars_of(char))


def chain(parts: Iterable[Node]) -> Node:
    """One after another."""
    kept = tuple(part for part in parts if part is not EMPTY)
    if len(kept) <= 1:
        return kept[0] if kept else EMPTY
    size, first, shortest = 0, 0, 0
    longest: int | None = 0
    for part in kept:
        first |= 0 if shortest else part.first << size
        size += part.size
        shortest += part.shortest
        longest = None if longest is None or part.longest is None else longest + part.longest
    return Chain(parts=kept, size=size, first=first, shortest=shortest, longest=longest)


def text(literally: str) -> Node:
    """This text and no other."""
    return chain(map(literal, literally))


def choice(parts: Iterable[Node]) -> Node:
    """One of several, of which there is at least one."""
    every = [*parts]
    kept = _one_set(part for part in every if part is not EMPTY)
    if not kept:
        return EMPTY
    chosen = kept[0] if len(kept) == 1 else _choice(kept)
    return repeat(chosen, 0, 1) if EMPTY in every else chosen


def _one_set(parts: Iterable[Node]) -> tuple[Node, ...]:
    """The same alternatives, those of one character made one."""
    every = [*parts]
    chars = [part for part in every if isinstance(part, OneChar)]
    if len(chars) <= 1:
        return tuple(every)
    united = one_char(char_set(joined.from_iterable(char.members for char in chars)))
    return (united, *(part for part in every if not isinstance(part, OneChar)))


def _choice(parts: tuple[Node, ...]) -> Choice:
    size, first = 0, 0
    for part in parts:
        first |= part.first << size
        size += part.size
    shortest = min(part.shortest for part in parts)
    lengths = [part.longest for part in parts if part.longest is not None]
    longest = max(lengths) if len(lengths) == len(parts) else None
    return Choice(parts=parts, size=size, first=first, shortest=shortest, longest=longest)


def repeat(part: Node, least: int, most: int | None) -> Node:
    """The same again, a number of times; raises PatternInvalid for what is too large when written out."""
    least = least if part.shortest else 0
    if part is EMPTY or most == 0:
        return EMPTY
    if most == 1 and (least == 1 or not part.shortest):
        return part
    if isinstance(part, Repeat) and (part.least, part.most) in {(0, 1), (0, None), (1, None)}:
        return repeat(part.part, least, None if part.most is None else most)
    return _repeat(part, least, most)


def _repeat(part: Node, least: int, most: int | None) -> Repeat:
    copies = max(least, 1) if most is None else most
    within_limit(copies * part.size)
    return Repeat(
        part=part,
        least=least,
        most=most,
        size=copies * part.size,
        first=part.first,
        shortest=least * part.shortest,
        longest=None if most is None or part.longest is None else most * part.longest,
    )


def within_limit(positions: int) -> None:
    """Raises PatternInvalid for an expression that is too large."""
    if positions > MAX_POSITIONS:
        raise PatternInvalid(f"at most {MAX_POSITIONS} characters are allowed when repeats are written out")


ANY_CHAR: Final = one_char(ALL)
ANY_TEXT: Final = repeat(ANY_CHAR, 0, None)
