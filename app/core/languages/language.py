"""What a language is: an expression, known by the portable pattern that it is written as."""

from dataclasses import dataclass, field

from app.core.languages.expression import ANY_TEXT, Node, chain, text
from app.core.languages.portable import portable_pattern


@dataclass(frozen=True, slots=True)
class Language:
    """A set of texts. Two that are written alike are equal; others may yet hold the same texts."""

    pattern: str
    expression: Node = field(repr=False, compare=False)


def language_of(expression: Node) -> Language:
    """The language of the texts that an expression matches as a whole."""
    return Language(portable_pattern(expression), expression)


def starting_with(prefix: str) -> Language:
    """The texts that start with this one."""
    return language_of(chain([text(prefix), ANY_TEXT]))


def ending_with(suffix: str) -> Language:
    """The texts that end with this one."""
    return language_of(chain([ANY_TEXT, text(suffix)]))


def pattern_of(language: Language) -> str:
    """A pattern that is found in the texts of the language and in no others; see `portable`."""
    return language.pattern
