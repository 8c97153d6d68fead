"""Kinds for strings: by length, by how they begin or end, by a pattern. Compared by code point.

Patterns are regular languages. The automaton that judges a value here is the one that `narrowing.py` proves
inclusion with, so that the two can't differ.
"""

from dataclasses import dataclass, field

from app.core.kinds.base import Constraint, Objection, Site, range_of
from app.core.languages import Language, matches
from app.core.strict_json import MAX_SAFE_INTEGER, JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Str(Constraint):
    """A string whose length in code points is between two inclusive bounds."""

    kind = "str"
    minimum: int = 0
    maximum: int = MAX_SAFE_INTEGER

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if not isinstance(value, str):
            return at.invalid("must be a string")
        within = self.minimum <= len(value) <= self.maximum
        return None if within else at.outside(f"must have {range_of(self.minimum, self.maximum)} characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix(Constraint):
    """A string that starts with this one."""

    kind = "prefix"
    prefix: str

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if not isinstance(value, str):
            return at.invalid("must be a string")
        return None if value.startswith(self.prefix) else at.outside("must start as the grant says")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suffix(Constraint):
    """A string that ends with this one."""

    kind = "suffix"
    suffix: str

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if not isinstance(value, str):
            return at.invalid("must be a string")
        return None if value.endswith(self.suffix) else at.outside("must end as the grant says")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern(Constraint):
    """A string of a regular language; `text` is how the grant spells it."""

    text: str
    language: Language = field(repr=False, compare=False)

    def objection(self, value: JsonValue, at: Site, /) -> Objection | None:
        if not isinstance(value, str):
            return at.invalid("must be a string")
        within = matches(self.language, value, at.steps)
        return None if within else at.outside(f"must match the {self.kind} that the grant names")


@dataclass(frozen=True, slots=True, kw_only=True)
class Glob(Pattern):
    """Characters as they stand, and `*` for any number of them that are neither `/` nor control characters."""

    kind = "glob"


@dataclass(frozen=True, slots=True, kw_only=True)
class Regex(Pattern):
    """A regular expression in RE2's syntax that matches the whole string."""

    kind = "regex"
