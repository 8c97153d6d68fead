"""What reaches the terminal: nothing that steers it, nothing read as markup, nothing changed in a document."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cli.grants import calls, spend, tree
from app.cli.output import Stop, facts, plain, show, show_json, table, word
from app.core.strict_json import JsonObject, JsonValue

CONTROLS = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0))))

json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.text())
def test_no_control_character_passes(text: str) -> None:
    assert not CONTROLS & set(plain(text))
    assert not CONTROLS & set(str(Stop(text)))
    assert not CONTROLS & set(word({"said": text}))


@given(json_values)
def test_a_document_keeps_its_value_and_steers_no_terminal(value: JsonValue) -> None:
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", printed.append)
        show_json(value)
    assert json.loads(printed[0]) == value
    assert not (CONTROLS - {"\n"}) & set(printed[0])


def test_markup_of_a_stranger_is_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    row: JsonObject = {"name": "[red]x[/red]", "url": "[link=http://evil]y[/link]"}
    show(table({"name": "name", "url": "url"}, [row]), facts(row))
    printed = capsys.readouterr().out
    assert printed.count("[red]x[/red]") == 2
    assert printed.count("[link=http://evil]y[/link]") == 2


@pytest.mark.parametrize(
    "value, shown",
    [
        (None, "–"),
        ([], "–"),
        ({}, "–"),
        (False, "no"),
        (0, "0"),
        (1.5, "1.5"),
        (["a", "b"], "a, b"),
        ({"a": 1}, '{"a": 1}'),
        ([{"a": 1}], '[{"a": 1}]'),
    ],
)
def test_values_are_words(value: object, shown: str) -> None:
    assert word(value) == shown


def test_what_is_held_for_calls_in_flight_is_shown() -> None:
    usage: JsonObject = {"toolCalls": {"posted": 2, "pending": 1}, "spendCents": {"posted": 3.5, "pending": 0}}
    grant: JsonObject = {"maxToolCalls": 10, "maxSpendCents": 50, "usage": usage}
    assert calls(grant) == "2+1 pending/10"
    assert spend(grant) == "3.5/50 ¢"


def test_a_lineage_hangs_each_grant_below_its_parent() -> None:
    parents = {"a": None, "b": "a", "c": "b", "d": "b"}
    grants: list[JsonObject] = [{"grantId": grant, "parentGrantId": parent} for grant, parent in parents.items()]
    made = tree({"ancestors": [*grants[:1]], "subtree": [*grants[1:]], "truncated": True})
    (root,) = made.children
    (asked_for,) = root.children
    assert str(asked_for.label).startswith("b  ")
    assert [str(child.label)[0] for child in asked_for.children] == ["c", "d"]
    assert "cut off" in str(made.label)
