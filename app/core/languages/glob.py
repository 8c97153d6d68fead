"""Globs: characters as they stand, and `*` for any number of them that are neither `/` nor control characters."""

from typing import Final

from app.core.languages.alphabet import CONTROLS, char_set, chars_of, complement
from app.core.languages.expression import PatternInvalid, chain, literal, one_char, repeat
from app.core.languages.language import Language, language_of
from app.core.languages.regex import refuse_unreadable

_STAR: Final = repeat(one_char(complement(char_set([*CONTROLS, *chars_of("/")]))), 0, None)


def parse_glob(glob: str) -> Language:
    """The language of a glob; raises PatternInvalid."""
    refuse_unreadable(glob)
    if "**" in glob:
        raise PatternInvalid("** is not supported: a * never crosses a slash")
    return language_of(chain(_STAR if char == "*" else literal(char) for char in glob))
