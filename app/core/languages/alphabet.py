"""Sets of characters: ranges of code points.

Characters are all code points but the surrogates, which are no characters. Unicode is numbers here: neither case
nor categories are known, since their meaning moves with the version of Unicode.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

Range: TypeAlias = tuple[int, int]
"""Inclusive bounds."""

CharSet: TypeAlias = tuple[Range, ...]
"""Ranges in order, with a gap between any two. None holds a surrogate."""

FIRST_SURROGATE: Final = 0xD800
AFTER_SURROGATES: Final = 0xE000
LAST: Final = 0x10FFFF


def char_set(ranges: Iterable[Range]) -> CharSet:
    """The characters that are in one of the ranges, surrogates left out."""
    merged: list[Range] = []
    for low, high in sorted(piece for whole in ranges for piece in _around_surrogates(whole)):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(chars: CharSet) -> CharSet:
    """Every character that is not among these."""
    starts = [0, *(high + 1 for _low, high in chars)]
    ends = [*(low - 1 for low, _high in chars), LAST]
    return char_set(zip(starts, ends, strict=True))


def chars_of(text: str) -> CharSet:
    """The characters that stand in a text."""
    return char_set((ord(char), ord(char)) for char in text)


def is_surrogate(code: int) -> bool:
    """Whether a code point is no character."""
    return FIRST_SURROGATE <= code < AFTER_SURROGATES


def _around_surrogates(whole: Range) -> list[Range]:
    low, high = whole
    pieces = (low, min(high, FIRST_SURROGATE - 1)), (max(low, AFTER_SURROGATES), high)
    return [(start, end) for start, end in pieces if start <= end]


ALL: Final = char_set([(0, LAST)])
CONTROLS: Final = char_set([(0x00, 0x1F), (0x7F, 0x9F)])
"""C0, DEL and C1: Unicode's category Cc, which never changes."""
