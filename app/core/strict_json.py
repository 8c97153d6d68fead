"""Strict JSON: one text has one meaning, for us, for what we sign, and for whoever is behind us.

Two parsers that read one text differently are two authorities. So what I-JSON (RFC 7493) calls unsafe is
refused, never repaired, numbers are canonicalised before anybody looks at them, and what goes out is the
canonical form (RFC 8785). Nothing here knows what a document means.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import accumulate
from json.encoder import encode_basestring
from math import isfinite
from typing import Final, NoReturn, TypeAlias

JsonScalar: TypeAlias = str | int | float | bool | None
JsonValue: TypeAlias = "JsonScalar | list[JsonValue] | dict[str, JsonValue]"
JsonObject: TypeAlias = dict[str, JsonValue]

MAX_SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON reader holds exactly (RFC 7493 §2.2)."""

MAX_DEPTH: Final = 200
"""Levels of nesting that are ever read or written, whatever a caller allows: it bounds recursion."""

MAX_SHOWN_NAME: Final = 128
"""Characters of a member name that a pointer or a sentence repeats."""

MAX_POINTER_CHARS: Final = 1024
"""Characters beyond which a pointer grows no more."""

_BOM: Final = b"\xef\xbb\xbf"
_MAX_INTEGER_CHARS: Final = len(str(-MAX_SAFE_INTEGER))
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
# A string is eaten whole, so that brackets inside it don't count; each character in one way only, so that a
# text which never closes its strings costs one pass, too.
_STRING_OR_BRACKET: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
_STEP: Final = {"[": 1, "{": 1, "]": -1, "}": -1}


class StrictJsonError(ValueError):
    """A text or value that is not strict JSON.

    `pointer` (RFC 6901) says where, "" where that is unknown or the root. `detail` is a sentence for whoever
    sent it; it repeats member names at most, never values.
    """

    def __init__(self, detail: str, *, pointer: str = "") -> None:
        super().__init__(f"{pointer}: {detail}" if pointer else detail)
        self.pointer = pointer
        self.detail = detail


def parse(raw: bytes, *, max_bytes: int, max_depth: int) -> JsonValue:
    """The value of a JSON text (RFC 8259, RFC 7493), numbers canonical; raises StrictJsonError.

    Limits are `max_bytes` of text and `max_depth` levels of arrays and objects (a scalar has none, `[]` one).
    Refused: what is not UTF-8 or starts with a byte order mark, a member given twice (however it is spelt),
    NaN and infinities, numbers beyond a double, integers beyond ±(2^53-1), lone surrogates.
    """
    if len(raw) > max_bytes:
        raise StrictJsonError(f"the text is longer than {max_bytes} bytes")
    text = _decode(raw)
    _refuse_depth(text, min(max_depth, MAX_DEPTH))
    value = _scan(text)
    if _SURROGATE_ESCAPE.search(text):
        _refuse_lone_surrogates(value)
    return value


def normalise(value: object) -> JsonValue:
    """A copy of an already parsed value under the rules of `parse`; raises StrictJsonError with a pointer.

    For values that another reader parsed, such as the payload of a signed document.
    """
    return _normalised(value, "", MAX_DEPTH)


def canonical(value: JsonValue) -> bytes:
    """The JSON Canonicalization Scheme, RFC 8785, in UTF-8; raises StrictJsonError.

    Refuses what has no such form: integers beyond ±(2^53-1), NaN and infinities, lone surrogates, and values
    that are no JSON. Floats of any size are written, as the RFC does.
    """
    return _written(value, MAX_DEPTH).encode()


def walk(value: JsonValue, pointer: str = "") -> Iterator[tuple[str, JsonScalar]]:
    """Every scalar and every member name in `value`, each with its pointer (a name has its object's).

    In document order, and iterative: no depth of nesting can exhaust the stack.
    """
    pending: list[Iterator[tuple[str, JsonValue]]] = [iter([(pointer, value)])]
    while pending:
        place, node = next(pending[-1], (None, None))
        if place is None:
            pending.pop()
        elif isinstance(node, list):
            pending.append(_items(node, place))
        elif isinstance(node, dict):
            pending.append(_members(node, place))
            yield from ((place, name) for name in node)
        else:
            yield place, node


def _items(array: list[JsonValue], pointer: str) -> Iterator[tuple[str, JsonValue]]:
    return ((point(pointer, str(index)), item) for index, item in enumerate(array))


def _members(members: JsonObject, pointer: str) -> Iterator[tuple[str, JsonValue]]:
    return ((point(pointer, name), member) for name, member in members.items())


def point(pointer: str, name: str) -> str:
    """The pointer of a member: one reference token more (RFC 6901 §3).

    A name too long or not printable is not repeated: the pointer stays at the object that holds it. So does a
    pointer that is too long, and no input can make us build longer and longer ones.
    """
    if len(name) > MAX_SHOWN_NAME or len(pointer) > MAX_POINTER_CHARS or not name.isprintable():
        return pointer
    return f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"


def has_lone_surrogate(text: str) -> bool:
    """Whether a string is no Unicode text, since it holds half of a surrogate pair (RFC 7493 §2.1)."""
    return not text.isascii() and _LONE_SURROGATE.search(text) is not None


# --- reading ----------------------------------------------------------------------------------------------


def _decode(raw: bytes) -> str:
    if raw.startswith(_BOM):
        raise StrictJsonError("the text starts with a byte order mark")
    try:
        return raw.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        raise StrictJsonError(f"the text is not UTF-8 at byte {error.start}") from None


def _refuse_depth(text: str, max_depth: int) -> None:
    # Before the parser, which recurses, sees the text.
    steps = (_STEP.get(match[0], 0) for match in _STRING_OR_BRACKET.finditer(text))
    if any(depth > max_depth for depth in accumulate(steps)):
        raise StrictJsonError(f"the text is nested deeper than {max_depth} levels")


def _scan(text: str) -> JsonValue:
    try:
        value: JsonValue = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        # Its message names what was expected, never what was found.
        raise StrictJsonError(f"the text is not JSON: {error.msg} at character {error.pos}") from None
    return value


def _read_object(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    members = dict(pairs)
    if len(members) < len(pairs):
        ((name, _times),) = Counter(name for name, _ in pairs).most_common(1)
        raise StrictJsonError(f"a member is given twice: {_quoted(name)}")
    return members


def _read_integer(digits: str) -> int:
    # The length first: converting a million digits would take seconds.
    if len(digits) > _MAX_INTEGER_CHARS:
        raise StrictJsonError("an integer is beyond ±(2^53-1)")
    return _safe_integer(int(digits), "")


def _read_float(digits: str) -> float:
    return _canonical_number(float(digits), "")


def _read_constant(_name: str) -> NoReturn:
    raise StrictJsonError("a number is not finite")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_read_object,
    parse_int=_read_integer,
    parse_float=_read_float,
    parse_constant=_read_constant,
)


def _refuse_lone_surrogates(value: JsonValue) -> None:
    for pointer, leaf in walk(value):
        if isinstance(leaf, str):
            _unicode(leaf, pointer)


# --- one scalar -------------------------------------------------------------------------------------------


def _safe_integer(value: int, pointer: str) -> int:
    if abs(value) > MAX_SAFE_INTEGER:
        raise StrictJsonError("an integer is beyond ±(2^53-1)", pointer=pointer)
    return value


def _canonical_number(value: float, pointer: str) -> float:
    """1.0 is 1 and -0.0 is 0, as RFC 8785 §3.2.2.3 writes them."""
    if not isfinite(value):
        raise StrictJsonError("a number is not finite", pointer=pointer)
    return _safe_integer(int(value), pointer) if value.is_integer() else value


def _unicode(value: str, pointer: str) -> str:
    if has_lone_surrogate(value):
        raise StrictJsonError("a string holds a lone surrogate", pointer=pointer)
    return value


def _quoted(name: str) -> str:
    # json escapes whatever is not ASCII, so that a hostile name is harmless wherever the sentence goes.
    return json.dumps(name[:MAX_SHOWN_NAME])


# --- normalising ------------------------------------------------------------------------------------------


def _normalised(value: object, pointer: str, levels: int) -> JsonValue:
    normalise_type = _NORMALISERS.get(type(value))
    if normalise_type is None:
        raise StrictJsonError(f"{type(value).__name__} is not a JSON type", pointer=pointer)
    if levels == 0 and isinstance(value, list | dict):
        raise StrictJsonError(f"the value is nested deeper than {MAX_DEPTH} levels", pointer=pointer)
    return normalise_type(value, pointer, levels)


def _normalised_array(value: list[object], pointer: str, levels: int) -> JsonValue:
    return [_normalised(item, f"{pointer}/{index}", levels - 1) for index, item in enumerate(value)]


def _normalised_object(value: dict[object, object], pointer: str, levels: int) -> JsonValue:
    return {
        _name(name, pointer): _normalised(member, point(pointer, _name(name, pointer)), levels - 1)
        for name, member in value.items()
    }


def _name(name: object, pointer: str) -> str:
    if not isinstance(name, str):
        raise StrictJsonError("a member's name is not a string", pointer=pointer)
    return _unicode(name, pointer)


# Exact types: a subclass may compare or print as it likes.
_NORMALISERS: Final[dict[type, Callable[..., JsonValue]]] = {
    type(None): lambda value, _pointer, _levels: value,
    bool: lambda value, _pointer, _levels: value,
    int: lambda value, pointer, _levels: _safe_integer(value, pointer),
    float: lambda value, pointer, _levels: _canonical_number(value, pointer),
    str: lambda value, pointer, _levels: _unicode(value, pointer),
    list: _normalised_array,
    dict: _normalised_object,
}


# --- writing ----------------------------------------------------------------------------------------------


def _written(value: object, levels: int) -> str:
    # The usual types first, by one look; a subclass of them (an enum, say) is written as what it is underneath.
    write = _WRITERS.get(type(value)) or next(
        (write for kind, write in _WRITERS.items() if isinstance(value, kind)), None
    )
    if write is None:
        raise StrictJsonError(f"{type(value).__name__} is not a JSON type")
    return write(value, levels)


def _written_array(value: list[object], levels: int) -> str:
    _refuse_bottom(levels)
    return f"[{','.join([_written(item, levels - 1) for item in value])}]"


def _written_object(value: dict[object, object], levels: int) -> str:
    _refuse_bottom(levels)
    members = [f"{encode_basestring(name)}:{_written(value[name], levels - 1)}" for name in _sorted_names(value)]
    return f"{{{','.join(members)}}}"


def _refuse_bottom(levels: int) -> None:
    if levels == 0:
        raise StrictJsonError(f"the value is nested deeper than {MAX_DEPTH} levels")


def _sorted_names(members: dict[object, object]) -> list[str]:
    names = [_name(name, "") for name in members]
    # ASCII sorts by code point as it does by UTF-16.
    return sorted(names, key=None if all(map(str.isascii, names)) else _utf16)


def _utf16(name: str) -> bytes:
    """Sort key of RFC 8785 §3.2.3: UTF-16 code units, which differs from code points beyond U+FFFF."""
    return name.encode("utf-16-be")


def _written_string(value: str, _levels: int) -> str:
    # Python escapes exactly what ECMA-262 QuoteJSONString does, in the same spelling (RFC 8785 §3.2.2.2).
    return encode_basestring(_unicode(value, ""))


def _written_float(value: float, _levels: int) -> str:
    """Number::toString of ECMA-262 (RFC 8785 §3.2.2.3); raises StrictJsonError for NaN and infinities."""
    if not isfinite(value):
        raise StrictJsonError("a number is not finite")
    sign, digits, zeros = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(zeros, int), "a finite number has an exponent"
    return ("-" if sign and value else "") + _laid_out("".join(map(str, digits)), len(digits) + zeros)


# Between 1e-6 and 1e21 a number has no exponent, says ECMA-262.
_MIN_POINT: Final = -5
_MAX_POINT: Final = 21


def _laid_out(digits: str, point_at: int) -> str:
    """The shortest digits, written out where the decimal point is near them, else with an exponent."""
    if len(digits) <= point_at <= _MAX_POINT:
        return digits.ljust(point_at, "0")
    if 0 < point_at <= _MAX_POINT:
        return f"{digits[:point_at]}.{digits[point_at:]}"
    if _MIN_POINT <= point_at <= 0:
        return f"0.{'0' * -point_at}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point_at - 1:+d}"


_WRITERS: Final[dict[type, Callable[..., str]]] = {
    type(None): lambda _value, _levels: "null",
    str: _written_string,
    bool: lambda value, _levels: "true" if value else "false",
    int: lambda value, _levels: str(_safe_integer(int(value), "")),
    float: _written_float,
    list: _written_array,
    dict: _written_object,
}
