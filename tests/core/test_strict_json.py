"""Strict JSON: every text that two parsers could read differently is refused, the rest has one form."""

import json
import struct
from enum import IntEnum, StrEnum
from math import isfinite

import pytest
import rfc8785
from hypothesis import assume, example, given, reject, settings
from hypothesis import strategies as st

from app.core.strict_json import (
    MAX_DEPTH,
    JsonValue,
    StrictJsonError,
    canonical,
    normalise,
    parse,
    point,
    walk,
)

MEGABYTE = 1 << 20
EXAMPLES = settings.default.max_examples if settings.default else 100


def read(raw: bytes) -> JsonValue:
    return parse(raw, max_bytes=MEGABYTE, max_depth=16)


def typed(value: object) -> object:
    """The value with its types: to Python, True == 1 == 1.0."""
    if isinstance(value, dict):
        return {name: typed(member) for name, member in value.items()}
    return [typed(item) for item in value] if isinstance(value, list) else (type(value).__name__, value)


@pytest.mark.parametrize(
    "raw, value",
    [
        (b"1.0", 1),
        (b"1e2", 100),
        (b"-0", 0),
        (b"-0.0", 0),
        (b"-0e9", 0),
        (b"9007199254740991.0", 2**53 - 1),
        (b"-9007199254740991", 1 - 2**53),
        (b"1.50", 1.5),
        (b"1e-7", 1e-7),
        (b"1e-400", 0),
        (b"true", True),
        (b'"1"', "1"),
        (b" [1 , null]\n", [1, None]),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'{"\u0061": {"a": 1}, "b": {"a": 2}}', {"a": {"a": 1}, "b": {"a": 2}}),
    ],
)
def test_a_text_is_read_with_its_numbers_canonical(raw: bytes, value: JsonValue) -> None:
    assert typed(read(raw)) == typed(value)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"{}{}",
        b"1 2",
        b"[1,]",
        b"{'a':1}",
        b"01",
        b"+1",
        b".5",
        b"1.",
        b"0x1",
        b"nul",
        b"[1",
        b'"a',
        b'"\\',
        b'"a\nb"',
        b'"\x00"',
        rb'"\x41"',
        rb'"\u12g4"',
        b"\xc2\xa01",
        b"NaN",
        b"-Infinity",
        b"[Infinity]",
        b"1e400",
        b"-1e400",
        b"1e999999999999999999999",
        b"9007199254740992",
        b"-9007199254740992",
        b"9007199254740992.0",
        b"1e16",
        b"\xef\xbb\xbf1",
        b"\xff\xfe1\x00",
        b'"\xff"',
        b'"\xc0\xaf"',
        b'"\xed\xa0\x80"',
        rb'"\ud800"',
        rb'"\udc00\ud800"',
        rb'"a\uD83Dz"',
        rb'"\uDABC"',
        rb'{"\udfff": 1}',
        b'{"a":1,"a":1}',
        rb'{"a":1,"\u0061":2}',
        rb'[{"b":[{"x":{"a":1,"\u0061":2}}]}]',
    ],
)
def test_a_text_that_could_be_read_in_two_ways_is_refused(raw: bytes) -> None:
    with pytest.raises(StrictJsonError):
        read(raw)


@pytest.mark.parametrize(
    "raw, pointer",
    [
        (rb'{"a/b": ["x", "\ud800"]}', "/a~1b/1"),
        (rb'{"a": {"\ud800": 1}}', "/a"),
        (rb'["\ud800"]', "/0"),
    ],
)
def test_a_lone_surrogate_is_pointed_at(raw: bytes, pointer: str) -> None:
    with pytest.raises(StrictJsonError) as caught:
        read(raw)
    assert caught.value.pointer == pointer


def test_a_refusal_names_members_and_no_values() -> None:
    with pytest.raises(StrictJsonError) as caught:
        read(rb'{"\u001b[31m": "hunter2", "\u001b[31m": "hunter3"}')
    assert caught.value.detail == r'a member is given twice: "\u001b[31m"'
    assert "hunter" not in str(caught.value)


def test_a_byte_order_mark_is_refused_as_what_it_is() -> None:
    with pytest.raises(StrictJsonError, match="byte order mark"):
        read(b"\xef\xbb\xbf{}")


def test_the_limits_are_exact() -> None:
    assert parse(b"[[1]]", max_bytes=5, max_depth=2) == [[1]]
    assert parse(b'"[[["', max_bytes=5, max_depth=0) == "[[["
    assert parse(rb'["\"[[", []]', max_bytes=12, max_depth=2) == ['"[[', []]
    with pytest.raises(StrictJsonError, match="bytes"):
        parse(b"[[1]]", max_bytes=4, max_depth=2)
    with pytest.raises(StrictJsonError, match="levels"):
        parse(b"[[1]]", max_bytes=5, max_depth=1)
    with pytest.raises(StrictJsonError, match="levels"):
        parse(b'{"a":{}}', max_bytes=9, max_depth=1)
    with pytest.raises(StrictJsonError, match=f"{MAX_DEPTH} levels"):
        parse(b"[" * 999 + b"]" * 999, max_bytes=MEGABYTE, max_depth=100_000)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b"9" * MEGABYTE,
        b"1e" + b"9" * (MEGABYTE - 2),
        b'"' * MEGABYTE,
        b'"\\"' * (MEGABYTE // 3),
        b"\\" * MEGABYTE,
        b'{"a":1,' * (MEGABYTE // 7),
        b"{" + b'"a":1,' * (MEGABYTE // 6 - 1) + b'"a":1}',
    ],
    ids=lambda raw: f"{raw[:8]!r}",
)
def test_a_hostile_text_costs_no_stack_and_little_time(raw: bytes) -> None:
    with pytest.raises(StrictJsonError):
        read(raw)


def test_a_large_honest_text_is_read() -> None:
    value = [{"name": "x" * 100, "n": 1.5}] * 8000
    assert parse(json.dumps(value).encode(), max_bytes=MEGABYTE, max_depth=2) == value
    assert typed(read(b"1." + b"9" * (MEGABYTE - 2))) == typed(2)


scalars = (
    st.none()
    | st.booleans()
    | st.integers(1 - 2**53, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"))
)
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=5 * EXAMPLES)
@given(documents)
@example([333333333.33333329, 1e30, 4.5, 2e-3, 1e-27, -0.0, 5e-324, 1e21, 1e20, 123456789012345680000.0])
@example({"\U0001f600": 1, "\ufb33": 2, "\u20ac": 3, "\r": 4, "1": 5, "\u0080": 6, "\u00f6": 7})
@example('\x00\x1f\x7f\u2028"\\/\b\t\n\f\r€')
def test_the_canonical_form_is_that_of_rfc_8785(value: JsonValue) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@settings(max_examples=3 * EXAMPLES)
@given(st.binary(min_size=8, max_size=8))
def test_every_double_is_written_as_ecmascript_does(bits: bytes) -> None:
    (value,) = struct.unpack("<d", bits)
    assume(isfinite(value))
    assert canonical(value) == rfc8785.dumps(value)


@settings(max_examples=3 * EXAMPLES)
@given(documents)
def test_what_is_canonical_is_read_back_and_written_the_same(value: JsonValue) -> None:
    try:
        normal = normalise(value)
    except StrictJsonError:
        reject()  # a float of 2^53 or more
    written = canonical(value)
    assert typed(parse(written, max_bytes=MEGABYTE, max_depth=MAX_DEPTH)) == typed(normal)
    assert canonical(normal) == written
    assert typed(normalise(normal)) == typed(normal)


def test_names_sort_by_utf_16_and_not_by_code_point() -> None:
    assert canonical({"\ufb33": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufb33":1}'.encode()
    assert canonical({"\ufb33": 1, "a": 3, "\U0001f600": 2}) == '{"a":3,"\U0001f600":2,"\ufb33":1}'.encode()


class Colour(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


def test_an_enum_is_written_as_its_value() -> None:
    assert canonical([Colour.RED, Number.ONE, {Colour.RED: True}]) == b'["red",1,{"red":true}]'


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 2**53, -(2**53), "\ud800", {"\udc00": 1}, {1: 2}, (1,), {1}, b"x", object()],
)
def test_what_has_no_canonical_form_is_refused_by_both_writers(value: JsonValue) -> None:
    with pytest.raises(StrictJsonError):
        canonical([value])
    with pytest.raises(StrictJsonError) as caught:
        normalise({"a": [value]})
    assert caught.value.pointer == "/a/0"


def test_a_parsed_value_is_normalised_without_being_touched() -> None:
    value = {"a": [1.0, -0.0, 2.5, True, None, "é"]}
    assert typed(normalise(value)) == typed({"a": [1, 0, 2.5, True, None, "é"]})
    assert typed(value["a"][0]) == ("float", 1.0)


@pytest.mark.parametrize("number", [2.0**53, 1e300, -1e16, 2**53])
def test_an_integer_beyond_the_safe_range_is_not_normal(number: float) -> None:
    with pytest.raises(StrictJsonError):
        normalise(number)


def nested(depth: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(depth):
        value = [value]
    return value


def test_depth_is_bounded_for_values_too() -> None:
    assert normalise(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    assert canonical(nested(MAX_DEPTH)) == b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH
    for write in (normalise, canonical):
        with pytest.raises(StrictJsonError, match="levels"):
            write(nested(MAX_DEPTH + 1))
        with pytest.raises(StrictJsonError, match="levels"):
            write(nested(100_000))


def test_a_walk_visits_every_scalar_and_name_in_order() -> None:
    value: JsonValue = {"a": [1, {"b/c": None}], "": "x"}
    assert list(walk(value, "/at")) == [
        ("/at", "a"),
        ("/at", ""),
        ("/at/a/0", 1),
        ("/at/a/1", "b/c"),
        ("/at/a/1/b~1c", None),
        ("/at/", "x"),
    ]


def test_a_walk_goes_as_deep_as_the_value() -> None:
    ((pointer, leaf),) = walk(nested(100_000))
    assert leaf == 1
    assert len(pointer) < 2000


@pytest.mark.parametrize("name", ["x" * 129, "\x1b[0m", "\ud800", "a\u202eb"])
def test_a_pointer_does_not_repeat_a_name_that_is_not_fit_to_be_shown(name: str) -> None:
    assert point("/a", name) == "/a"
    assert point("/a", "x" * 128) == "/a/" + "x" * 128
