"""Arguments in header fields: what a schema may want there, and that no value is anything but a value."""

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.upstream.header_arguments import UnusableDeclarationError, declared, encoded, header_fields
from app.core.strict_json import JsonObject, JsonValue

STRING: JsonObject = {"type": "string", "x-mcp-header": "Region"}


def of(**properties: JsonValue) -> JsonObject:
    return {"type": "object", "properties": {**properties}}


def test_arguments_are_found_where_their_declaration_stands() -> None:
    schema = of(
        region=STRING,
        deep=of(er={"type": "integer", "x-mcp-header": "Depth"}),
        flag={"type": "boolean", "x-mcp-header": "Flag"},
        absent={"type": "string", "x-mcp-header": "Absent"},
        null={"type": "string", "x-mcp-header": "Null"},
        plain={"type": "string"},
    )
    arguments: JsonObject = {"region": "us-west1", "deep": {"er": -7}, "flag": False, "null": None, "plain": "x"}
    assert header_fields(schema, arguments) == {
        "Mcp-Param-Region": "us-west1",
        "Mcp-Param-Depth": "-7",
        "Mcp-Param-Flag": "false",
    }
    assert header_fields(schema, {"deep": "no object"}) == {}


def test_a_whole_number_is_written_as_one() -> None:
    assert header_fields(of(n={"type": "integer", "x-mcp-header": "N"}), {"n": 42.0}) == {"Mcp-Param-N": "42"}


INVALID: dict[str, JsonObject] = {
    "empty": of(a={"type": "string", "x-mcp-header": ""}),
    "no token": of(a={"type": "string", "x-mcp-header": "a b"}),
    "a line end": of(a={"type": "string", "x-mcp-header": "a\r\nX-Evil: 1"}),
    "no string": of(a={"type": "string", "x-mcp-header": 1}),
    "a fraction": of(a={"type": "number", "x-mcp-header": "A"}),
    "an object": of(a={"type": "object", "x-mcp-header": "A"}),
    "no type": of(a={"x-mcp-header": "A"}),
    "the same twice": of(a={"type": "string", "x-mcp-header": "A"}, b={"type": "string", "x-mcp-header": "a"}),
    "in items": of(a={"type": "array", "items": STRING}),
    "in an alternative": {"anyOf": [of(a=STRING)]},
    "in a condition": {"then": of(a=STRING)},
    "behind a reference": {"$defs": {"a": of(a=STRING)}},
    "at the root": {"type": "object", "x-mcp-header": "A"},
}


@pytest.mark.parametrize("what", INVALID)
def test_a_declaration_that_clients_could_read_differently_is_not_followed(what: str) -> None:
    with pytest.raises(UnusableDeclarationError):
        declared(INVALID[what])


def test_a_member_of_that_name_and_values_that_look_like_it_declare_nothing() -> None:
    named: JsonObject = {"type": "object", "properties": {"x-mcp-header": {"type": "string"}}}
    assert declared({**named, "default": {"x-mcp-header": "A"}, "enum": [STRING]}) == {}


@pytest.mark.parametrize(
    "text, field",
    [
        ("us-west1", "us-west1"),
        ("a b", "a b"),
        ("", "=?base64??="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_what_is_no_plain_text_is_encoded(text: str, field: str) -> None:
    assert encoded(text) == field


@given(st.text())
def test_any_text_comes_back_out_of_a_field_that_holds_no_line_end(text: str) -> None:
    field = encoded(text)
    assert re.fullmatch(r"[\x20-\x7e]*", field)
    inner = re.fullmatch(r"=\?base64\?(.*)\?=", field)
    assert (base64.b64decode(inner[1]).decode() if inner else field) == text


@pytest.mark.parametrize("value", [2**53, 1.5, ["a"], {"a": 1}, "x" * 5000])
def test_a_value_that_does_not_belong_in_a_field_stops_the_call(value: JsonValue) -> None:
    with pytest.raises(UnusableDeclarationError):
        header_fields(of(region=STRING), {"region": value})
