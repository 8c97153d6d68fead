r"""Expressions as patterns for JSON Schema, which are searched for, so that they are anchored.

Written is what means the same to ECMA-262 (with the flag `u`), to Rust's `regex` and to Python's `re`: sets,
groups, choices and repeats; neither look-around nor shorthands such as `\w` or `.`, which differ. Python alone has
an exception: its `$` matches before a newline at the end, too.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from app.core.languages.alphabet import ALL, Range, complement
from app.core.languages.expression import Chain, Choice, Node, OneChar, Repeat

_PLAIN: Final = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz _,:;@%=")
_PLAIN_OUTSIDE_SETS: Final = _PLAIN | frozenset("-/!#&~\"'`<>")
_SYNTAX: Final = frozenset("^$\\.*+?()[]{}|")
"""What ECMA-262 allows a backslash before."""

_TWO_DIGITS: Final = 0xFF
_FOUR_DIGITS: Final = 0xFFFF
_TIMES: Final[Mapping[tuple[int, int | None], str]] = {(0, 1): "?", (0, None): "*", (1, None): "+"}


def portable_pattern(expression: Node) -> str:
    """A pattern that is found in the texts that the expression matches as a whole, and in no others."""
    parts = expression.parts if isinstance(expression, Chain) else (expression,)
    start, end = int(_is_any_text(parts[:1])), len(parts) - _is_any_text(parts[-1:])
    if start and start >= end:
        return "^"
    opening, closing = "" if start else "^", "" if end < len(parts) else "$"
    return f"{opening}{''.join(map(_part, parts[start:end]))}{closing}"


def _is_any_text(parts: Sequence[Node]) -> bool:
    return any(
        isinstance(part, Repeat)
        and (part.least, part.most) == (0, None)
        and isinstance(part.part, OneChar)
        and part.part.members == ALL
        for part in parts
    )


def _written(node: Node) -> str:
    return _WRITERS[type(node)](node)


def _part(node: Node) -> str:
    """An expression where others stand beside it."""
    return f"(?:{_written(node)})" if isinstance(node, Choice) else _written(node)


def _repeat(node: Repeat) -> str:
    repeated = _written(node.part) if isinstance(node.part, OneChar) else f"(?:{_written(node.part)})"
    return repeated + (_TIMES.get((node.least, node.most)) or _counted(node.least, node.most))


def _counted(least: int, most: int | None) -> str:
    return f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"


def _one_char(node: OneChar) -> str:
    ((low, high), *others) = node.members
    if low == high and not others:
        return _outside_sets(low)
    if node.members == ALL:
        return r"[\s\S]"
    outside = complement(node.members)
    sign, ranges = ("^", outside) if len(outside) < len(node.members) else ("", node.members)
    return f"[{sign}{''.join(map(_range, ranges))}]"


def _range(bounds: Range) -> str:
    low, high = bounds
    return _in_set(low) if low == high else f"{_in_set(low)}{'-' if high > low + 1 else ''}{_in_set(high)}"


def _outside_sets(code: int) -> str:
    char = chr(code)
    return f"\\{char}" if char in _SYNTAX else _escaped(code, _PLAIN_OUTSIDE_SETS)


def _in_set(code: int) -> str:
    return _escaped(code, _PLAIN)


def _escaped(code: int, plain: frozenset[str]) -> str:
    # There is no one escape for what is beyond U+FFFF: ECMA-262 and Rust have braces, Python has none.
    if chr(code) in plain or code > _FOUR_DIGITS:
        return chr(code)
    return f"\\x{code:02x}" if code <= _TWO_DIGITS else f"\\u{code:04x}"


_WRITERS: Final[Mapping[type[Node], Callable[[Any], str]]] = {
    OneChar: _one_char,
    Chain: lambda node: "".join(map(_part, node.parts)),
    Choice: lambda node: "|".join(map(_written, node.parts)),
    Repeat: _repeat,
}
