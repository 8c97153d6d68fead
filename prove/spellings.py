"""The strings that spell a decimal within bounds, as a regular expression.

What a number is worth is nothing to a solver of strings; which digits may stand where is. Written so that one digit
leaves one way to go on, which keeps the solver quick.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from prove.expressions import NO_TEXT, Expression, any_of, chars, exactly, in_a_row, times

_DIGIT: Final = chars([(0x30, 0x39)])
_MINUS: Final = exactly("-")
_POINT: Final = exactly(".")


@lru_cache(maxsize=1024)
def spelling(low: int, high: int, scale: int) -> Expression:
    """Strings for decimals from `low` to `high` units of 10^-scale, with at most `scale` digits after the point."""
    finer = [(places, 10 ** (scale - places)) for places in range(scale + 1)]
    return any_of(_with_places(-(-low // unit), high // unit, places) for places, unit in finer)


def _with_places(low: int, high: int, places: int) -> Expression:
    """Those with exactly so many digits after the point, where the bounds count in units of the last of them."""
    # A negative zero is no decimal.
    negative = _unsigned(max(-high, 1), -low, places)
    return any_of(
        [_unsigned(max(low, 0), high, places), NO_TEXT if negative is NO_TEXT else in_a_row([_MINUS, negative])]
    )


def _unsigned(low: int, high: int, places: int) -> Expression:
    if low > high:
        return NO_TEXT
    return any_of(_of_widths(low, high, places))


def _of_widths(low: int, high: int, places: int) -> Iterator[Expression]:
    """By the number of digits; only a single digit before the point may be a zero."""
    least, most = places + 1, max(places + 1, len(str(high)))
    full = [width for width in range(least + 1, most + 1) if low <= 10 ** (width - 1) and high >= 10**width - 1]
    if full:
        rest = times(_DIGIT, full[0] - 1 - places, full[-1] - 1 - places)
        yield in_a_row([chars([(0x31, 0x39)]), rest, *([_POINT, times(_DIGIT, places, places)] if places else [])])
    for width in sorted({*range(least, most + 1)}.difference(full)):
        start = max(low, 0 if width == least else 10 ** (width - 1))
        end = min(high, 10**width - 1)
        if start <= end:
            yield _between(f"{start:0{width}d}", f"{end:0{width}d}", places)


def _between(low: str, high: str, places: int) -> Expression:
    """The digits from one number to another of the same width; the point is put where it belongs."""
    if len(low) == places and places:
        return in_a_row([_POINT, _between(low, high, -places)])
    if set(low) <= {"0"} and set(high) <= {"9"}:
        return _free(len(low), places)
    first, last, width = int(low[0]), int(high[0]), len(low) - 1
    if first == last:
        return in_a_row([_digits(first, last), _between(low[1:], high[1:], places)])
    ways = [
        in_a_row([_digits(first, first), _between(low[1:], "9" * width, places)]),
        in_a_row([_digits(last, last), _between("0" * width, high[1:], places)]),
    ]
    if last - first > 1:
        ways.append(in_a_row([_digits(first + 1, last - 1), _between("0" * width, "9" * width, places)]))
    return any_of(ways)


def _free(width: int, places: int) -> Expression:
    """Any digits; `places` is negative where the point stands before them already."""
    if places <= 0 or width < places:
        return times(_DIGIT, width, width)
    return in_a_row([times(_DIGIT, width - places, width - places), _POINT, times(_DIGIT, places, places)])


def _digits(first: int, last: int) -> Expression:
    return chars([(0x30 + first, 0x30 + last)])
