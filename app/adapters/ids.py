"""Identifiers that sort by the time they were made and that nobody can guess.

One of the few places that read the clock and chance themselves: an identifier is nothing but the two. Nothing
here knows what an identifier names; that an identifier is unguessable is never anybody's only protection.
"""

import re
import secrets
import time
from typing import Final

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base32 in lower case: no i, l, o, u; in ASCII's order, so that texts sort as numbers do."""

_PREFIX: Final = re.compile("[a-z][a-z0-9]*")
_CHARS: Final = 26
_RANDOM_BITS: Final = 80
_NANOSECONDS_PER_MILLISECOND: Final = 1_000_000


def new_id(prefix: str) -> str:
    """`gr_01j…`: the prefix, then 48 bits of Unix milliseconds and 80 random bits, as in a ULID.

    Later milliseconds sort later; within one millisecond the order is chance.
    """
    assert _PREFIX.fullmatch(prefix), "a prefix is one lower-case word"
    milliseconds = time.time_ns() // _NANOSECONDS_PER_MILLISECOND
    return f"{prefix}_{_base32(milliseconds << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS))}"


def _base32(number: int) -> str:
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(5 * (_CHARS - 1), -1, -5))
