"""What a thing on record may be called and described with."""

from unicodedata import is_normalized

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.resource_rules import (
    MAX_ATTRIBUTES,
    MAX_ID_CHARS,
    MAX_TEXT_CHARS,
    attributes_flaw,
    flaws,
    id_flaw,
    is_scalar,
    type_flaw,
)
from app.core.resources import ResourceRef
from app.core.strict_json import JsonValue


@pytest.mark.parametrize("type_", ["case", "c", "tool-server", "a_b-9", "a" * 64])
def test_a_type_is_a_plain_word(type_: str) -> None:
    assert type_flaw(type_) is None


@pytest.mark.parametrize(
    "type_", ["", "Case", "9a", "-a", "_a", "a b", "a/b", "a.b", "case\n", "\ncase", "fäll", "a" * 65, "..", "%2f"]
)
def test_anything_else_is_no_type(type_: str) -> None:
    assert type_flaw(type_) is not None


@pytest.mark.parametrize(
    "id_",
    ["c_42", "../x", "%2f", "a/b", "/", "..", "a b", '"', "'", "\\", "Ærø", "é", "案件", "🧾", "x" * MAX_ID_CHARS],
)
def test_an_id_is_printable_text(id_: str) -> None:
    assert id_flaw(id_) is None


@pytest.mark.parametrize(
    "id_",
    [
        "", "x" * (MAX_ID_CHARS + 1), "a\n", "a\tb", "a\x00", "\x7f", "\x85", "\u2028", "a\u200bb", "\u202e", "\ufeff",
        "\ufffd", "\ufffe", "\xa0", "e\u0301", "\u212b", "\u1112\u1161",
    ],
    ids=ascii,
)  # fmt: skip
def test_what_hides_breaks_or_has_two_spellings_is_no_id(id_: str) -> None:
    assert id_flaw(id_) is not None


@given(st.text(max_size=20))
def test_an_id_that_is_one_shows_whole_and_is_its_own_normal_form(id_: str) -> None:
    if id_flaw(id_) is None:
        assert id_
        assert id_.isprintable()
        assert is_normalized("NFC", id_)


@given(st.text(st.characters(categories=["Lu", "Ll", "Nd", "Po", "So"], max_codepoint=0x24F), min_size=1, max_size=9))
def test_common_text_is_an_id(id_: str) -> None:
    assert id_flaw(id_) is None


@pytest.mark.parametrize("value", ["", "two\nlines", "x" * MAX_TEXT_CHARS, 0, -1, 1.5, True, False, None])
def test_an_attribute_is_a_scalar(value: JsonValue) -> None:
    assert is_scalar(value)
    assert attributes_flaw({"a.b-C_9": value}) is None


@pytest.mark.parametrize("value", [[], {}, ["a"], {"a": 1}, "x" * (MAX_TEXT_CHARS + 1), "e\u0301"], ids=ascii)
def test_anything_else_is_no_attribute(value: JsonValue) -> None:
    found = attributes_flaw({"fine": 1, "bad": value})
    assert found is not None
    assert found[0] == "/bad"


@pytest.mark.parametrize("name", ["", "1a", "_a", "a b", "a/b", "ä", "a\n", "a" * 65])
def test_an_attribute_has_a_plain_name(name: str) -> None:
    assert attributes_flaw({name: 1}) is not None


def test_a_name_that_steers_a_terminal_is_not_repeated() -> None:
    found = attributes_flaw({"\x1b[2J": 1})
    assert found is not None
    assert "\x1b" not in "".join(found)


def test_every_flaw_of_a_thing_is_found_at_its_place() -> None:
    found = [*flaws(ResourceRef("Case", ""), {"a": []})]
    assert [pointer for pointer, _detail in found] == ["/type", "/id", "/attributes/a"]
    assert [*flaws(ResourceRef("case", "c_42"), {"a": 1})] == []


def test_attributes_are_counted() -> None:
    attributes: dict[str, JsonValue] = {f"a{number}": number for number in range(MAX_ATTRIBUTES)}
    assert attributes_flaw(attributes) is None
    assert attributes_flaw(attributes | {"more": 1}) is not None
