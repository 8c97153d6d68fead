"""A tool's definition: what its digest covers, and that a difference is shown exactly where there is one."""

from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.definition import (
    MAX_DIFFERENCES,
    Definition,
    Difference,
    DifferenceKind,
    PendingDefinition,
    differences,
)
from app.core.grant import ToolName
from app.core.strict_json import JsonObject, JsonValue
from tests.samples import NOW

NAME = ToolName("case_search")
BEFORE = Definition(
    description="Finds cases – quickly.",
    input_schema={"type": "object", "properties": {"id": {"type": "string"}, "old": {}}, "required": ["id"]},
    output_schema=None,
)

json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
schemas: st.SearchStrategy[JsonObject] = st.dictionaries(st.text(max_size=3), json_values, max_size=4)
definitions = st.builds(Definition, description=st.text(), input_schema=schemas, output_schema=st.none() | schemas)


def test_a_digest_is_of_the_canonical_name_description_and_schemas() -> None:
    text = (
        '{"description":"Finds cases – quickly.","inputSchema":{"properties":{"id":{"type":"string"},"old":{}},'
        '"required":["id"],"type":"object"},"name":"case_search","outputSchema":null}'
    )
    assert BEFORE.digest(NAME) == sha256(text.encode()).hexdigest()
    assert BEFORE.digest(NAME) == "56d896751d72403698525b0cf897e47a7eac399b45930ab6008cc4ff6afa6de9"


@pytest.mark.parametrize(
    "changes",
    [
        {"description": "Finds cases – quickly"},
        {"description": "Finds cases \u2013\u200b quickly."},
        {"input_schema": {}},
        {"output_schema": {}},
    ],
    ids=["description", "invisible", "input", "output"],
)
def test_each_member_counts(changes: dict[str, object]) -> None:
    after = replace(BEFORE, **changes)  # type: ignore[arg-type]  # a test's changes are its own to get right
    assert after.digest(NAME) != BEFORE.digest(NAME)
    assert differences(BEFORE, after)


def test_another_name_is_another_digest() -> None:
    assert BEFORE.digest(ToolName("case_searcher")) != BEFORE.digest(NAME)


def test_an_order_of_members_is_no_difference_and_an_order_of_items_is_one() -> None:
    schema = dict(reversed(BEFORE.input_schema.items()))
    assert replace(BEFORE, input_schema=schema).digest(NAME) == BEFORE.digest(NAME)
    orders: list[list[JsonValue]] = [["a", "b"], ["b", "a"]]
    one, other = (replace(BEFORE, input_schema={"required": names}) for names in orders)
    assert one.digest(NAME) != other.digest(NAME)
    assert [difference.pointer for difference in differences(one, other)] == [
        "/inputSchema/required/0",
        "/inputSchema/required/1",
    ]


def test_true_is_not_one_and_one_is_one_point_zero() -> None:
    flag, number, decimal = (replace(BEFORE, input_schema={"const": value}) for value in (True, 1, 1.0))
    assert [difference.kind for difference in differences(flag, number)] == [DifferenceKind.CHANGED]
    assert differences(number, decimal) == ()
    assert number.digest(NAME) == decimal.digest(NAME)


def test_what_was_added_removed_and_changed_is_told_at_its_place() -> None:
    after = Definition(
        description="Finds cases.",
        input_schema={
            "type": "object",
            "properties": {"id": {"type": "string", "a/b~": 1}, "bcc": {"type": "string"}},
            "required": ["id", "bcc"],
        },
        output_schema={"type": "object"},
    )
    assert differences(BEFORE, after) == (
        Difference(
            kind=DifferenceKind.CHANGED, pointer="/description", before="Finds cases – quickly.", after="Finds cases."
        ),
        Difference(kind=DifferenceKind.ADDED, pointer="/inputSchema/properties/id/a~1b~0", before=None, after=1),
        Difference(kind=DifferenceKind.REMOVED, pointer="/inputSchema/properties/old", before={}, after=None),
        Difference(
            kind=DifferenceKind.ADDED, pointer="/inputSchema/properties/bcc", before=None, after={"type": "string"}
        ),
        Difference(kind=DifferenceKind.ADDED, pointer="/inputSchema/required/1", before=None, after="bcc"),
        Difference(kind=DifferenceKind.CHANGED, pointer="/outputSchema", before=None, after={"type": "object"}),
    )


@given(definitions, definitions)
def test_there_is_a_difference_exactly_where_digests_differ(before: Definition, after: Definition) -> None:
    assert bool(differences(before, after)) == (before.digest(NAME) != after.digest(NAME))
    assert differences(before, before) == ()


def test_no_definition_makes_more_differences_than_anybody_reads() -> None:
    many = replace(BEFORE, input_schema={str(number): number for number in range(5000)})
    assert len(differences(BEFORE, many)) == MAX_DIFFERENCES
    deep: JsonValue = 1
    for _ in range(150):
        deep = [deep]
    assert len(differences(BEFORE, replace(BEFORE, input_schema={"type": deep}))) <= MAX_DIFFERENCES


@pytest.mark.parametrize("definition, flaw", [(None, None), (BEFORE, "too long")])
def test_what_is_pending_can_be_shown_or_has_a_flaw(definition: Definition | None, flaw: str | None) -> None:
    with pytest.raises(AssertionError):
        PendingDefinition(digest="d", seen_at=NOW, definition=definition, flaw=flaw)
