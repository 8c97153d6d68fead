r"""Regular expressions in RE2's syntax (https://github.com/google/re2/wiki/Syntax), read into expressions.

A match is of the whole text, always. What RE2 refuses is refused here; so is what it takes and what would have
another meaning elsewhere or none with a whole match: flags, anchors and boundaries inside, properties of Unicode,
a repeat without its lower bound. Refusals name the construct and where it stands.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from app.core.languages.alphabet import LAST, CharSet, Range, char_set, chars_of, complement, is_surrogate
from app.core.languages.expression import Node, PatternInvalid, chain, choice, literal, one_char, repeat, within_limit
from app.core.languages.language import Language, language_of
from app.core.strict_json import has_lone_surrogate

MAX_PATTERN_CHARS: Final = 1000
MAX_NESTING: Final = 32
"""Parentheses inside one another: it bounds recursion."""

MAX_PARSED: Final = 256
"""Patterns that are kept as read, the most recently used ones."""

MAX_REPEAT: Final = 1000
"""As in RE2."""


@lru_cache(maxsize=MAX_PARSED)
def parse_regex(pattern: str) -> Language:
    """The language of the texts that the pattern matches as a whole; raises PatternInvalid."""
    refuse_unreadable(pattern)
    expression = _Reader(pattern).whole()
    within_limit(expression.size)
    return language_of(expression)


def refuse_unreadable(pattern: str) -> None:
    """Raises PatternInvalid for what is no pattern of any kind."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise PatternInvalid(f"at most {MAX_PATTERN_CHARS} characters are allowed")
    if has_lone_surrogate(pattern):
        raise PatternInvalid("surrogates are no characters")


# --- what stands for sets of characters -------------------------------------------------------------------

_DIGIT: Final = char_set([(0x30, 0x39)])
_UPPER: Final = char_set([(0x41, 0x5A)])
_LOWER: Final = char_set([(0x61, 0x7A)])
_ALPHA: Final = char_set([*_UPPER, *_LOWER])
_ALNUM: Final = char_set([*_ALPHA, *_DIGIT])
_WORD: Final = char_set([*_ALNUM, *chars_of("_")])
_GRAPH: Final = char_set([(0x21, 0x7E)])

_SHORTHANDS: Final[Mapping[str, CharSet]] = {
    "d": _DIGIT,
    "w": _WORD,
    "s": chars_of("\t\n\f\r "),
    "D": complement(_DIGIT),
    "W": complement(_WORD),
    "S": complement(chars_of("\t\n\f\r ")),
}

_NAMED: Final[Mapping[str, CharSet]] = {
    "alnum": _ALNUM,
    "alpha": _ALPHA,
    "ascii": char_set([(0x00, 0x7F)]),
    "blank": chars_of("\t "),
    "cntrl": char_set([(0x00, 0x1F), (0x7F, 0x7F)]),
    "digit": _DIGIT,
    "graph": _GRAPH,
    "lower": _LOWER,
    "print": char_set([(0x20, 0x7E)]),
    "punct": char_set([(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)]),
    "space": chars_of("\t\n\v\f\r "),
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": char_set([*_DIGIT, (0x41, 0x46), (0x61, 0x66)]),
}

_NOT_NEWLINE: Final = one_char(complement(chars_of("\n")))

# --- what stands for one character, and what is refused ----------------------------------------------------

_CONTROL_CODES: Final = {"a": 0x07, "f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09, "v": 0x0B}

_ESCAPES: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], int]], ...]] = (
    (re.compile(r"\\x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))"), lambda found: int(found[1] or found[2], 16)),
    (re.compile(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})"), lambda found: int(found[1], 8)),
    (re.compile(r"\\([afnrtv])"), lambda found: _CONTROL_CODES[found[1]]),
    (re.compile(r"\\([^0-9A-Za-z\x80-\U0010ffff])"), lambda found: ord(found[1])),
)

_Refusals: TypeAlias = tuple[tuple[re.Pattern[str], str], ...]


def _refusals(*rows: tuple[str, str]) -> _Refusals:
    return tuple((re.compile(construct), flaw) for construct, flaw in rows)


_REFUSED_ESCAPES: Final = _refusals(
    (r"\\[AzZ]", "anchors are not supported: the whole text must match as it is"),
    (r"\\[bB]", "word boundaries are not supported"),
    (r"\\(?:[1-9]|[gk][<{'])", "back-references are not supported"),
    (r"\\[pP]", "properties of Unicode are not supported: what they mean moves with its version"),
    (r"\\C", "single bytes are not supported"),
    (r"\\x", "two hexadecimal digits were expected, or several in braces"),
    (r"\\\Z", "the pattern ends after a backslash"),
    (r"\\", "the escape is unknown"),
)

_REFUSED_IN_SETS: Final = _refusals(
    (r"\[:", "[: must begin the name of a set of characters, such as [:alpha:], which ends no range"),
)

_REFUSED: Final = _refusals(
    (r"[*+?]|\{(?:0|[1-9][0-9]*)(?:,(?:0|[1-9][0-9]*)?)?\}", "there is nothing to repeat"),
    (r"\{,[0-9]+\}", "a repeat without a lower bound means different things in different places; {0,n} is clear"),
    (r"[\^$]", "^ may stand only as the very first character and $ only as the very last: the whole text must match"),
    (r"\(\?<?[=!]", "look-around is not supported"),
    (r"\(\?>", "atomic groups are not supported"),
    (r"\(\?#", "comments are not supported"),
    (r"\(\?P=", "back-references are not supported"),
    (r"\(\?(?:R|[0-9]|&|P>)", "recursion is not supported"),
    (r"\(\?P?<", "a group's name must be made of letters, digits and _"),
    (r"\(\?[A-Za-z-]+[:)]", "flags are not supported"),
    (r"\(\?", "this kind of group is not supported"),
)
"""What can't stand where something to match is expected; of each table the first row that is found says why."""

# --- the reader -------------------------------------------------------------------------------------------

_BACKSLASH: Final = re.compile(r"\\")
_PLAIN: Final = re.compile(r"([^\\\[(){.*+?^$|]+)")
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_GROUP: Final = re.compile(r"\((?:\?:|\?P?<([A-Za-z_][0-9A-Za-z_]*)>|(?!\?))")
_SHORTHAND: Final = re.compile(r"\\([dwsDWS])")
_NAME: Final = re.compile(r"\[:(\^?)([a-z]+):\]")
_PLAIN_IN_SETS: Final = re.compile(r"([^\\\[\]-]+)(?!-)")
_TO: Final = re.compile(r"-(?!\])")
_REPEAT: Final = re.compile(r"([*+?])|\{(0|[1-9][0-9]*)(?:(,)(0|[1-9][0-9]*)?)?\}")
_END: Final = re.compile(r"[|)]|\Z")
_END_OUTSIDE_GROUPS: Final = re.compile(r"[|)]|\$?\Z|\$(?=\|)")

_TIMES: Final[Mapping[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@dataclass(slots=True)
class _Reader:
    pattern: str
    at: int = 0
    depth: int = 0
    names: set[str] = field(default_factory=set)

    def whole(self) -> Node:
        expression = self._choice()
        if self.at < len(self.pattern):
            raise self._invalid("a parenthesis closes nothing")
        return expression

    def _choice(self) -> Node:
        alternatives = [self._alternative()]
        while self._take("|"):
            alternatives.append(self._alternative())
        return choice(alternatives)

    def _alternative(self) -> Node:
        if self.depth:
            return chain(self._parts_until(_END))
        # Outside of groups an anchor at either end says what holds anyway.
        self._take("^")
        parts = self._parts_until(_END_OUTSIDE_GROUPS)
        self._take("$")
        return chain(parts)

    def _parts_until(self, end: re.Pattern[str]) -> list[Node]:
        parts: list[Node] = []
        while not self._sees(end):
            parts += self._parts()
        return parts

    def _parts(self) -> list[Node]:
        """What stands next, with its repeat; of several characters a repeat concerns the last alone."""
        run = self._match(_PLAIN) or self._match(_QUOTED)
        parts = [self._atom()] if run is None else [literal(char) for char in run[1]]
        return [*parts[:-1], *map(self._repeated, parts[-1:])]

    def _atom(self) -> Node:
        if self._take("["):
            return one_char(self._set())
        if self._take("."):
            return _NOT_NEWLINE
        if (group := self._match(_GROUP)) is not None:
            return self._group(group[1])
        if (shorthand := self._match(_SHORTHAND)) is not None:
            return one_char(_SHORTHANDS[shorthand[1]])
        return literal(chr(self._escaped() if self._sees(_BACKSLASH) else self._plain(_REFUSED)))

    def _group(self, name: str | None) -> Node:
        if name in self.names:
            raise self._invalid("two groups have the same name")
        if self.depth == MAX_NESTING:
            raise self._invalid(f"at most {MAX_NESTING} parentheses inside one another are allowed")
        self.names.update(filter(None, [name]))
        self.depth += 1
        inner = self._choice()
        self.depth -= 1
        if not self._take(")"):
            raise self._invalid("a parenthesis is not closed")
        return inner

    # repeats

    def _repeated(self, part: Node) -> Node:
        times = self._match(_REPEAT)
        if times is None:
            return part
        least, most = self._times(*times.groups())
        self._take("?")  # as few as possible, which are the same texts
        if self._sees(_REPEAT):
            raise self._invalid("a repeat can't be repeated, and possessive repeats are not supported")
        return repeat(part, least, most)

    def _times(self, sign: str | None, least: str, comma: str | None, most: str | None) -> tuple[int, int | None]:
        if sign is not None:
            return _TIMES[sign]
        low = int(least)
        high = low if comma is None else None if most is None else int(most)
        if max(low, high or 0) > MAX_REPEAT:
            raise self._invalid(f"at most {MAX_REPEAT} repeats are allowed")
        if high is not None and low > high:
            raise self._invalid("a repeat has its lower bound above its upper bound")
        return low, high

    # sets of characters

    def _set(self) -> CharSet:
        negated = self._take("^")
        ranges = [*self._members()]  # where it comes first, "]" is a member
        while not self._take("]"):
            ranges += self._members()
        members = complement(char_set(ranges)) if negated else char_set(ranges)
        if not members:
            raise self._invalid("a set of characters is empty")
        return members

    def _members(self) -> Iterable[Range]:
        if (name := self._match(_NAME)) is not None:
            return self._named(*name.groups())
        if (shorthand := self._match(_SHORTHAND)) is not None:
            return _SHORTHANDS[shorthand[1]]
        if (run := self._match(_PLAIN_IN_SETS)) is not None:
            return chars_of(run[1])
        low = high = self._member()
        if self._sees(_TO):
            self.at += 1
            high = self._member()
        if low > high:
            raise self._invalid("a range of characters runs backwards")
        return [(low, high)]

    def _named(self, sign: str, name: str) -> CharSet:
        if name not in _NAMED:
            raise self._invalid("no set of characters has this name")
        return complement(_NAMED[name]) if sign else _NAMED[name]

    def _member(self) -> int:
        if self.at == len(self.pattern):
            raise self._invalid("a set of characters is not closed")
        return self._escaped() if self._sees(_BACKSLASH) else self._plain(_REFUSED_IN_SETS)

    # characters

    def _escaped(self) -> int:
        for form, code_of in _ESCAPES:
            if (found := self._match(form)) is not None:
                return self._character(code_of(found))
        raise self._invalid(next(flaw for construct, flaw in _REFUSED_ESCAPES if self._sees(construct)))

    def _plain(self, refused: _Refusals) -> int:
        for construct, flaw in refused:
            if self._sees(construct):
                raise self._invalid(flaw)
        self.at += 1
        return ord(self.pattern[self.at - 1])

    def _character(self, code: int) -> int:
        if code > LAST:
            raise self._invalid("characters end at U+10FFFF")
        if is_surrogate(code):
            raise self._invalid("surrogates are no characters")
        return code

    def _sees(self, expected: re.Pattern[str]) -> bool:
        return expected.match(self.pattern, self.at) is not None

    def _match(self, expected: re.Pattern[str]) -> re.Match[str] | None:
        found = expected.match(self.pattern, self.at)
        self.at = self.at if found is None else found.end()
        return found

    def _take(self, char: str) -> bool:
        found = self.pattern.startswith(char, self.at)
        self.at += found
        return found

    def _invalid(self, flaw: str) -> PatternInvalid:
        return PatternInvalid(f"{flaw} (at character {self.at + 1})")
