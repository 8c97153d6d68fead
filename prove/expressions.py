"""Regular expressions, prefixes, globs and lengths as the solver's own: the second reading of each document.

Reads the part of RE2's syntax that `samples.py` and `mutations.py` write, and raises ValueError for the rest. Shares
nothing with `app/core/languages`: that is what makes it a witness.

Two things bound what a solver can say about strings here. Its characters end at U+2FFFF, so that a range which goes
on is cut there: no document tells apart what is beyond. And every string is made of `STEADY` characters, no sequence of
which is ever changed by Unicode normalisation, since a service never sees any other.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from typing import Final, TypeAlias

import z3

Expression: TypeAlias = z3.ReRef
Range: TypeAlias = tuple[int, int]

LAST: Final = 0x2FFFF
ENDLESS: Final = 10_000
"""A length that no counterexample needs to reach."""

_SORT: Final = z3.ReSort(z3.StringSort())
NO_TEXT: Final = z3.Empty(_SORT)
EVERY_TEXT: Final = z3.Full(_SORT)
_ANY: Final = z3.AllChar(_SORT)

STEADY: Final[tuple[Range, ...]] = (
    (0x0000, 0x02FF),
    (0x0410, 0x044F),
    (0x4E00, 0x4FFF),
    (0xFF01, 0xFF5E),
    (0x1F600, 0x1F64F),
)


def text_of(literally: str) -> z3.SeqRef:
    """A string as it stands; escaped throughout, since a solver's literals have escapes of their own."""
    return z3.StringVal("".join(f"\\u{{{ord(char):x}}}" for char in literally))


def exactly(literally: str) -> Expression:
    """This text and no other."""
    return z3.Re(text_of(literally))


def any_of(expressions: Iterable[Expression]) -> Expression:
    """The texts of at least one of these."""
    kept = [expression for expression in expressions if expression is not NO_TEXT]
    return reduce(z3.Union, kept) if kept else NO_TEXT


def all_of(expressions: Iterable[Expression]) -> Expression:
    """The texts of every one of these, of which there is at least one."""
    kept = [*expressions]
    return NO_TEXT if any(expression is NO_TEXT for expression in kept) else reduce(z3.Intersect, kept)


def but(excluded: Iterable[Expression]) -> Expression:
    """Every text but these."""
    return z3.Complement(any_of(excluded))


def chars(ranges: Sequence[Range]) -> Expression:
    """One character out of these."""
    kept = [(low, min(high, LAST)) for low, high in ranges if low <= LAST]
    return any_of(z3.Range(text_of(chr(low)), text_of(chr(high))) for low, high in kept)


STEADY_TEXTS: Final = z3.Star(chars(STEADY))


def in_a_row(expressions: Iterable[Expression]) -> Expression:
    """One after another."""
    return reduce(z3.Concat, expressions, exactly(""))


def times(expression: Expression, least: int, most: int | None) -> Expression:
    """The same again, a number of times; without end where `most` is None."""
    if most is None:
        return z3.Concat(times(expression, least, least), z3.Star(expression)) if least else z3.Star(expression)
    # To the solver an upper bound of 0 is none.
    return exactly("") if most == 0 else z3.Loop(expression, least, most)


# --- kinds ------------------------------------------------------------------------------------------------


def starting_with(prefix: str) -> Expression:
    return z3.Concat(exactly(prefix), EVERY_TEXT)


def ending_with(suffix: str) -> Expression:
    return z3.Concat(EVERY_TEXT, exactly(suffix))


def of_length(least: int, most: int) -> Expression:
    return times(_ANY, least, None if most >= ENDLESS else most)


_NO_CONTROLS_NO_SLASH: Final[list[Range]] = [(0x20, 0x2E), (0x30, 0x7E), (0xA0, LAST)]


def of_glob(glob: str) -> Expression:
    """A star is any number of characters that are neither a slash nor a control character."""
    star = z3.Star(chars(_NO_CONTROLS_NO_SLASH))
    return in_a_row(star if char == "*" else exactly(char) for char in glob)


@lru_cache(maxsize=1024)
def of_regex(pattern: str) -> Expression:
    """The texts that the pattern matches as a whole."""
    reader = _Reader(_TOKEN.findall(pattern))
    expression = reader.choice()
    if reader.tokens:
        raise ValueError(pattern)
    return expression


# --- the reader of regular expressions --------------------------------------------------------------------

_ATOM: Final = r"\\x\{[0-9A-Fa-f]+\}|\\x[0-9A-Fa-f]{2}|\\[^x]"
_TOKEN: Final = re.compile(rf"{_ATOM}|\[\^?(?:{_ATOM}|[^\]\\])+\]|\{{\d+(?:,\d*)?\}}|\(\?:|.", re.DOTALL)
_MEMBER: Final = re.compile(rf"({_ATOM}|.)(?:-({_ATOM}|.))?", re.DOTALL)
_COUNTED: Final = re.compile(r"\{(\d+)(,?)(\d*)\}")

_SETS: Final[dict[str, list[Range]]] = {
    ".": [(0, 0x09), (0x0B, LAST)],
    r"\d": [(0x30, 0x39)],
    r"\w": [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)],
    r"\s": [(0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)],
}
_SIGNS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_CONTROLS: Final = {"n": 0x0A, "t": 0x09}


class _Reader:
    """Reads a pattern token by token; `tokens` are those that are left."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens[::-1]

    def choice(self) -> Expression:
        alternatives = [self._row()]
        while self.tokens and self.tokens[-1] == "|":
            self.tokens.pop()
            alternatives.append(self._row())
        return any_of(alternatives)

    def _row(self) -> Expression:
        parts = []
        while self.tokens and self.tokens[-1] not in {"|", ")"}:
            parts.append(self._repeated(self._single(self.tokens.pop())))
        return in_a_row(parts)

    def _single(self, token: str) -> Expression:
        if token in {"(", "(?:"}:
            inside = self.choice()
            self.tokens.pop()
            return inside
        if token in _SETS:
            return chars(_SETS[token])
        if token.startswith("["):
            return chars(_members(token[1:-1]))
        return exactly(chr(_code(token)))

    def _repeated(self, part: Expression) -> Expression:
        if not self.tokens:
            return part
        counted = _COUNTED.fullmatch(self.tokens[-1])
        if self.tokens[-1] not in _SIGNS and counted is None:
            return part
        sign = self.tokens.pop()
        return times(part, *(_SIGNS[sign] if counted is None else _counts(counted)))


def _counts(counted: re.Match[str]) -> tuple[int, int | None]:
    least = int(counted[1])
    if not counted[2]:
        return least, least
    return least, int(counted[3]) if counted[3] else None


def _members(inside: str) -> list[Range]:
    negated = inside.startswith("^")
    ranges: list[Range] = []
    for first, last in _MEMBER.findall(inside.removeprefix("^")):
        if first in _SETS and first != ".":
            ranges += _SETS[first]
        else:
            ranges.append((_code(first), _code(last or first)))
    return _others(ranges) if negated else ranges


def _others(ranges: list[Range]) -> list[Range]:
    found, start = [], 0
    for low, high in sorted(ranges):
        if start < low:
            found.append((start, low - 1))
        start = max(start, high + 1)
    return [*found, (start, LAST)] if start <= LAST else found


def _code(token: str) -> int:
    if not token.startswith("\\"):
        return ord(token)
    if token[1] == "x":
        return int(token[2:].strip("{}"), 16)
    if token[1].isalnum() and token[1] not in _CONTROLS:
        raise ValueError(token)
    return _CONTROLS.get(token[1], ord(token[1]))
