"""Projection: how it is spelt, what is left of a result, and that nothing more is left, in value, text or schema."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Final, TypeAlias

import jsonschema_rs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.core.projection import (
    EACH,
    ERROR_WITHHELD,
    MAX_PATH_CHARS,
    MAX_PATH_STEPS,
    MAX_PATHS,
    MAX_SCHEMA_DEPTH,
    NO_STRUCTURE,
    Path,
    Projection,
    ProjectionInvalid,
    parse_projection,
    project,
    project_result,
    project_schema,
    projection_within,
    render_projection,
)
from app.core.strict_json import JsonObject, JsonValue, canonical

E_NFC, E_NFD = "\u00e9", "e\u0301"


def of(*paths: JsonValue) -> Projection:
    return parse_projection([*paths], pointer="")


# --- spelling ---------------------------------------------------------------------------------------------

SPELLINGS: Final[list[tuple[str, str, Path]]] = [
    ("$", "$", ()),
    ("$.a", "$.a", ("a",)),
    ("$._a1_Z", "$._a1_Z", ("_a1_Z",)),
    ("$.cases[*].caseId", "$.cases[*].caseId", ("cases", EACH, "caseId")),
    ("$[*]", "$[*]", (EACH,)),
    ("$.*", "$[*]", (EACH,)),
    ("$.*.*[*]", "$[*][*][*]", (EACH, EACH, EACH)),
    ("$['a']", "$.a", ("a",)),
    ('$["a"]', "$.a", ("a",)),
    ("$['a'][\"b\"].c", "$.a.b.c", ("a", "b", "c")),
    ("$['']", "$['']", ("",)),
    ('$[""]', "$['']", ("",)),
    ("$['*']", "$['*']", ("*",)),
    ("$['[*]']", "$['[*]']", ("[*]",)),
    ("$['$']", "$['$']", ("$",)),
    ("$['a.b']", "$['a.b']", ("a.b",)),
    ("$['a b']", "$['a b']", ("a b",)),
    ("$['a-b']", "$['a-b']", ("a-b",)),
    ("$['0']", "$['0']", ("0",)),
    ("$['1a']", "$['1a']", ("1a",)),
    ("$['a~1b/c']", "$['a~1b/c']", ("a~1b/c",)),
    ("$.__proto__", "$.__proto__", ("__proto__",)),
    ("$.length", "$.length", ("length",)),
    ("$.true.null", "$.true.null", ("true", "null")),
    # Quotes: the one that encloses is escaped, the other stands as it is.
    (r"$['it\'s']", r"$['it\'s']", ("it's",)),
    ('$["it\'s"]', r"$['it\'s']", ("it's",)),
    ("$['\"']", "$['\"']", ('"',)),
    (r'$["\""]', "$['\"']", ('"',)),
    (r"$['\']\'][\'']", r"$['\']\'][\'']", ("']']['",)),
    # Escapes are those of JSON, and end up as RFC 9535 §2.7 spells them.
    (r"$['\\']", r"$['\\']", ("\\",)),
    (r"$['\\u0041']", r"$['\\u0041']", ("\\u0041",)),
    (r"$['\/']", "$['/']", ("/",)),
    (r"$['\b\f\n\r\t']", r"$['\b\f\n\r\t']", ("\b\f\n\r\t",)),
    (r"$['\u0008\u000C\u000a\u000D\u0009']", r"$['\b\f\n\r\t']", ("\b\f\n\r\t",)),
    (r"$['\u0000\u001F']", r"$['\u0000\u001f']", ("\0\x1f",)),
    (r"$['\u0061']", "$.a", ("a",)),
    (r"$['\u002e\u0027']", r"$['.\'']", (".'",)),
    ("$['\x7f']", "$['\x7f']", ("\x7f",)),
    (rf"$['\u00e9{E_NFC}']", f"$['{E_NFC}{E_NFC}']", (E_NFC * 2,)),
    (r"$['\ud83d\uDE00']", "$['\U0001f600']", ("\U0001f600",)),
    ("$['\U0001f600']", "$['\U0001f600']", ("\U0001f600",)),
    (r"$['\ud7ff\ue000\uDBFF\uDFFF']", "$['\ud7ff\ue000\U0010ffff']", ("\ud7ff\ue000\U0010ffff",)),
    ("$['\u0338']", "$['\u0338']", ("\u0338",)),  # a mark that has nothing before it
]


@pytest.mark.parametrize("spelt, canonical_spelling, path", SPELLINGS)
def test_a_path_has_one_meaning_and_one_canonical_spelling(spelt: str, canonical_spelling: str, path: Path) -> None:
    projection = of(spelt)
    assert projection.paths == (path,)
    assert render_projection(projection) == [canonical_spelling]
    assert of(canonical_spelling) == projection


@pytest.mark.parametrize(
    "spelt",
    [
        "",
        " ",
        "a",
        ".a",
        "@",
        "@.a",
        "$$",
        "$a",
        " $",
        "$ ",
        "$\n",
        "$.",
        "$.a.",
        "$..a",
        "$.a..b",
        "$..*",
        "$...",
        "$. a",
        "$ .a",
        "$.a .b",
        "$[ 'a' ]",
        "$['a' ]",
        "$[* ]",
        "$.1a",
        "$.a-b",
        "$.a b",
        "$.a'b",
        "$.a\n",
        f"$.{E_NFC}",
        "$.['a']",
        "$.[*]",
        "$*",
        "$.**",
        "$.a*",
        "$.*a",
        "$[**]",
        # Indexes, slices, filters, unions, functions
        "$[0]",
        "$[-1]",
        "$[0:1]",
        "$[:]",
        "$[?@.a]",
        "$[?(@.a)]",
        "$['a','b']",
        "$[*,*]",
        "$['a',*]",
        "$.length()",
        "$[(@.length)]",
        "$^",
        "$~",
        "$.a^",
        "$.a | $.b",
        # Brackets and quotes that do not close, or not where they should
        "$[",
        "$[]",
        "$]",
        "$[a]",
        "$['a'",
        "$['a]",
        "$['a\"]",
        "$[\"a']",
        "$['a']]",
        "$['it's']",
        "$[''']",
        "$[`a`]",
        # Strings: no control characters, no escapes but JSON's, none for the other quote
        "$['\n']",
        "$['\0']",
        "$['\x1f']",
        "$['\\']",
        r"$['\a']",
        r"$['\x41']",
        r"$['\0']",
        r"$['\U0041']",
        r"$['\u41']",
        r"$['\u00g1']",
        r"$['\u{41}']",
        r"$['\"']",
        r'$["\'"]',
        r"$['\ud800']",
        r"$['\udc00']",
        r"$['\udc00\ud800']",
        r"$['\ud800\ud800']",
        r"$['\ud83d']['\ude00']",
        r"$['\ud83dx\ude00']",
        *(f"$['{half}']" for half in ("\ud800", "\udbff", "\udc00", "\udfff", "\ud83d\ude00")),
        # Not in form C, however it is written
        f"$['{E_NFD}']",
        r"$['e\u0301']",
        r"$['\u0065\u0301']",
        "$['\\u0065\u0301']",
        "$['\u212a']",
        r"$['\u212a']",
        "$['\\n\u0301']",  # the mark would stand on the n
    ],
)
def test_what_is_not_such_a_path_is_refused(spelt: str) -> None:
    with pytest.raises(ProjectionInvalid) as caught:
        parse_projection(["$.a", spelt], pointer="/resultProjection/t")
    assert caught.value.pointer == "/resultProjection/t/1"
    assert str(caught.value) == f"/resultProjection/t/1: {caught.value.detail}"
    assert caught.value.detail.isascii()


@pytest.mark.parametrize("document", [None, True, 1, "$", "$.a", {}, {"$.a": True}, {"0": "$"}])
def test_a_projection_is_spelt_as_a_list(document: JsonValue) -> None:
    with pytest.raises(ProjectionInvalid) as caught:
        parse_projection(document, pointer="/here")
    assert caught.value.pointer == "/here"


@pytest.mark.parametrize("item", [None, True, 0, 1.5, [], ["$"], {}, {"path": "$"}])
def test_a_path_is_spelt_as_a_string(item: JsonValue) -> None:
    with pytest.raises(ProjectionInvalid) as caught:
        parse_projection([item], pointer="")
    assert caught.value.pointer == "/0"


def test_a_refusal_does_not_repeat_the_path_but_says_how_far_it_was_understood() -> None:
    with pytest.raises(ProjectionInvalid, match=r"character 10$") as caught:
        of("$.hunter2[0]")
    assert "hunter" not in str(caught.value)


def test_a_projection_has_limits_of_paths_steps_and_characters() -> None:
    names = [f"$.a{number}" for number in range(MAX_PATHS + 1)]
    assert len(of(*names[1:]).paths) == MAX_PATHS
    with pytest.raises(ProjectionInvalid):
        of(*names)
    assert of("$" + MAX_PATH_STEPS * ".a").paths == (MAX_PATH_STEPS * ("a",),)
    with pytest.raises(ProjectionInvalid):
        of("$" + (MAX_PATH_STEPS + 1) * "[*]")
    assert of("$." + (MAX_PATH_CHARS - 2) * "a").paths
    with pytest.raises(ProjectionInvalid):
        of("$." + (MAX_PATH_CHARS - 1) * "a")


def test_a_path_that_would_be_too_long_in_canonical_spelling_is_refused() -> None:
    longest = (MAX_PATH_CHARS - len("$['']")) // 2
    assert render_projection(of('$["' + longest * "'" + '"]')) == ["$['" + longest * r"\'" + "']"]
    with pytest.raises(ProjectionInvalid):
        of('$["' + (longest + 1) * "'" + '"]')


def test_a_hostile_path_is_refused_in_one_pass() -> None:
    for piece in ("\\", "\\u", "'", "['", '["', "[*", ".a.", "$['\\'"):
        with pytest.raises(ProjectionInvalid):
            of(("$['" + MAX_PATH_CHARS * piece)[:MAX_PATH_CHARS])


@pytest.mark.parametrize(
    "document, left",
    [
        ([], []),
        (["$.b", "$.a", "$.b"], ["$.a", "$.b"]),
        (["$.a", "$['a']", '$["\\u0061"]'], ["$.a"]),
        (["$.a.b", "$.a", "$.a.c[*]"], ["$.a"]),
        (["$", "$.a", "$[*]"], ["$"]),
        (["$[*]", "$.a"], ["$[*]"]),
        (["$.a[*].x", "$.a.b.x", "$.a.b"], ["$.a.b", "$.a[*].x"]),
        (["$[*].b", "$.a[*]"], ["$.a[*]", "$[*].b"]),
        (["$[*].b", "$.a.b"], ["$[*].b"]),
        (["$.ab", "$.a"], ["$.a", "$.ab"]),
        (["$['*']", "$.a"], ["$.a", "$['*']"]),
    ],
)
def test_a_projection_holds_no_path_twice_and_none_that_another_covers(document: JsonValue, left: JsonValue) -> None:
    assert render_projection(parse_projection(document, pointer="")) == left


def test_a_projection_that_is_not_normal_can_not_be_built() -> None:
    for paths in ((("b",), ("a",)), (("a",), ("a",)), (("a",), ("a", "b")), ((EACH,), ("a",))):
        with pytest.raises(AssertionError):
            Projection(paths=paths)


# --- values -----------------------------------------------------------------------------------------------

CASES: Final[JsonObject] = {
    "total": 2,
    "cases": [
        {"caseId": "c_1", "issueCode": 7, "customer": {"name": "Ada"}, "updatedOn": None},
        {"customer": {"name": "Bob"}},
        {"updatedOn": "today", "caseId": "c_2"},
    ],
}


@pytest.mark.parametrize(
    "paths, value, left",
    [
        (
            ["$.cases[*].caseId", "$.cases[*].issueCode", "$.cases[*].updatedOn"],
            CASES,
            {"cases": [{"caseId": "c_1", "issueCode": 7, "updatedOn": None}, {"updatedOn": "today", "caseId": "c_2"}]},
        ),
        (["$.cases[*].customer.name"], CASES, {"cases": [{"customer": {"name": n}} for n in ("Ada", "Bob")]}),
        (["$.total"], CASES, {"total": 2}),
        (["$"], CASES, CASES),
        (["$[*]"], CASES, CASES),
        ([], CASES, {}),
        (["$.missing", "$.total.missing", "$.cases.caseId", "$.cases[*][*][*][*]"], CASES, {}),
        # The root's own type is left where nothing else is.
        ([], [1], []),
        (["$.a"], [{"a": 1}], []),
        (["$[*].a"], [{"b": 1}, [2], 3], []),
        (["$.a"], "text", None),
        (["$[*]"], "text", None),
        (["$"], "text", "text"),
        (["$"], None, None),
        (["$[*]"], False, None),
        # Null is a value; missing is not null.
        (["$.a", "$.b"], {"a": None, "c": 1}, {"a": None}),
        (["$.a.b"], {"a": None}, {}),
        (["$[*]"], [None, 0, "", False], [None, 0, "", False]),
        # Of what is empty `[*]` selects all; a name does not.
        (["$.a[*].b"], {"a": []}, {"a": []}),
        (["$.a[*].b"], {"a": {}}, {"a": {}}),
        (["$.a[*].b"], {"a": [1]}, {}),
        (["$.a[*][*]"], {"a": [[], [], 1, [2]]}, {"a": [[], [], [2]]}),
        (["$.a.b"], {"a": {}}, {}),
        (["$.a.b"], {"a": []}, {}),
        # Arrays of arrays, and arrays that are no objects
        (["$[*][*].a"], [[{"a": 1, "b": 2}, {"b": 3}], [], [4], {"x": {"a": 5}}], [[{"a": 1}], [], {"x": {"a": 5}}]),
        (["$[*][*]"], [[1, 2], [3], 4], [[1, 2], [3]]),
        (["$['0']"], ["a"], []),
        (["$['0']"], {"0": "a"}, {"0": "a"}),
        (["$.length"], [1, 2], []),
        # `[*]` of an object, alone and beside names
        (["$[*].a"], {"x": {"a": 1, "b": 2}, "y": {"b": 3}, "z": 4}, {"x": {"a": 1}}),
        (
            ["$[*].a", "$.x.b"],
            {"x": {"a": 1, "b": 2, "c": 3}, "y": {"a": 4, "b": 5}},
            {"x": {"a": 1, "b": 2}, "y": {"a": 4}},
        ),
        (["$[*].a", "$.x"], {"x": {"b": 2}, "y": {"a": 4, "b": 5}}, {"x": {"b": 2}, "y": {"a": 4}}),
        (["$.x[*].a", "$[*].q.b"], {"x": {"q": {"a": 1, "b": 2, "c": 3}}}, {"x": {"q": {"a": 1, "b": 2}}}),
        # Names are compared as they are.
        (["$['*']"], {"*": 1, "a": 2}, {"*": 1}),
        (["$['a.b']"], {"a.b": 1, "a": {"b": 2}}, {"a.b": 1}),
        (["$.a.b"], {"a.b": 1, "a": {"b": 2}}, {"a": {"b": 2}}),
        (["$['']"], {"": 1, " ": 2}, {"": 1}),
        (["$['a/b~c']"], {"a/b~c": 1, "a": {"b~c": 2}, "a~1b~0c": 3}, {"a/b~c": 1}),
        ([r"$['it\'s']"], {"it's": 1, r"it\'s": 2}, {"it's": 1}),
        (["$.__proto__"], {"__proto__": 1, "constructor": 2}, {"__proto__": 1}),
        (["$.__class__", "$.keys", "$.items"], {"a": 1}, {}),
        ([f"$['{E_NFC}']"], {E_NFC: 1, E_NFD: 2}, {E_NFC: 1}),
        (["$.K"], {"k": 1, "\u212a": 2, "K": 3}, {"K": 3}),
        (["$.a"], {"A": 1, "a ": 2, "\u0430": 3}, {}),
    ],
)
def test_only_what_is_selected_is_left(paths: list[JsonValue], value: JsonValue, left: JsonValue) -> None:
    assert canonical(project(of(*paths), value)) == canonical(left)


def test_members_keep_their_order_and_are_not_renumbered() -> None:
    left = project(of("$.a", "$.c", "$.b"), {"c": 1, "x": 2, "b": 3, "a": 4})
    assert json.dumps(left) == '{"c": 1, "b": 3, "a": 4}'


def test_the_value_itself_is_not_changed() -> None:
    before = canonical(CASES)
    project(of("$.cases[*].caseId"), CASES)
    assert canonical(CASES) == before


def test_neither_a_deep_value_nor_a_deep_path_exhausts_the_stack() -> None:
    deep: JsonValue = 1
    for _ in range(100_000):
        deep = [deep]
    assert project(of("$[*][*].a"), deep) == []
    kept = project(of("$" + MAX_PATH_STEPS * "[*]"), deep)
    assert isinstance(kept, list)
    assert len(kept) == 1
    while isinstance(deep, list):  # taken apart by hand, since letting go of it would recurse as well
        deep = deep.pop()


# --- narrowing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "child, parent, within",
    [
        ([], [], True),
        ([], ["$.a"], True),
        (["$.a"], [], False),
        (["$"], ["$"], True),
        (["$.a"], ["$"], True),
        (["$[*]"], ["$"], True),
        (["$"], ["$[*]"], False),
        (["$"], ["$.a"], False),
        (["$.a"], ["$.a"], True),
        (["$.a.b"], ["$.a"], True),
        (["$.a"], ["$.a.b"], False),
        (["$.ab"], ["$.a"], False),
        (["$.b"], ["$.a"], False),
        (["$.a"], ["$[*]"], True),
        (["$[*]"], ["$.a"], False),
        (["$['*']"], ["$[*]"], True),
        (["$[*]"], ["$['*']"], False),
        (["$.a[*].c"], ["$[*][*].c"], True),
        (["$.a.b.c"], ["$[*][*].c"], True),
        (["$[*].b"], ["$.a.b"], False),
        (["$[*].b"], ["$.a.b", "$.b.b"], False),
        (["$.a[*]"], ["$[*].b"], False),
        (["$.a.b"], ["$[*].b"], True),
        (["$.a", "$.b"], ["$.b", "$.a", "$.c"], True),
        (["$.a", "$.d"], ["$.b", "$.a", "$.c"], False),
        (["$.a.x", "$.a.y"], ["$.a"], True),
        (["$.a"], ["$.a.x", "$.a.y"], False),
    ],
)
def test_a_projection_is_within_another_if_each_path_is_at_or_below_one(
    child: list[JsonValue], parent: list[JsonValue], within: bool
) -> None:
    assert projection_within(of(*child), of(*parent)) is within


# --- what hypothesis attacks ------------------------------------------------------------------------------

NAMES: Final = ["a", "b", "c", "", "*", "0", "a.b", "it's", '"', "\\", "~1", "\n", "__proto__", E_NFC, "\U0001f600"]
Steps: TypeAlias = list[str | None]
"""A path as these tests write it: None for each."""

names = st.sampled_from([*3 * NAMES[:2], *NAMES])
steps: st.SearchStrategy[Steps] = st.lists(names | st.none(), max_size=4)
paths: st.SearchStrategy[list[Steps]] = st.lists(steps, max_size=4)


def spelt(path: Steps) -> str:
    """In the other spelling than the canonical one."""
    quoted = (f"[{json.dumps(name)}]" if name is not None else ".*" for name in path)
    return "$" + "".join(quoted)


def projected(paths: list[Steps]) -> Projection:
    return of(*map(spelt, paths))


def children(parent: list[Steps]) -> st.SearchStrategy[list[Steps]]:
    """Paths at or below those of the parent, and now and then another."""
    below = st.sampled_from(parent).flatmap(
        lambda path: st.tuples(*[names | st.none() if step is None else st.just(step) for step in path], steps).map(
            lambda parts: [*parts[:-1], *parts[-1]]
        )
    )
    return st.lists(below, max_size=4) if parent else st.just([])


families = paths.flatmap(lambda parent: st.tuples(children(parent) | paths, st.just(parent)))

shapes: st.SearchStrategy[JsonValue] = st.recursive(
    st.just("leaf"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)


def marked(shape: JsonValue, numbers: Iterator[int]) -> JsonValue:
    """The shape with leaves that occur nowhere else."""
    if isinstance(shape, list):
        return [marked(item, numbers) for item in shape]
    if isinstance(shape, dict):
        return {name: marked(member, numbers) for name, member in shape.items()}
    return f"mark-{next(numbers)}-"


values = shapes.map(lambda shape: marked(shape, count()))
objects = values.map(lambda value: value if isinstance(value, dict) else {"a": value})


def leaves(value: JsonValue, place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], JsonValue]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inner is None:
        yield place, value
    for step, part in inner or ():
        yield from leaves(part, (*place, step))


def selects(path: Steps, place: tuple[str | int, ...]) -> bool:
    """The definition, once more and otherwise: every step is each, or the very name."""
    return len(path) <= len(place) and all(step in {None, here} for step, here in zip(path, place, strict=False))


def contained(part: JsonValue, whole: JsonValue) -> bool:
    """Whether a value is another with members and items left out."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(name in whole and contained(member, whole[name]) for name, member in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        candidates = iter(whole)
        return all(any(contained(item, candidate) for candidate in candidates) for item in part)
    return type(part) is type(whole) and part == whole


@given(paths, values)
def test_exactly_the_selected_leaves_are_left(paths: list[Steps], value: JsonValue) -> None:
    left = {leaf for _, leaf in leaves(project(projected(paths), value))} - {None}
    assert left == {leaf for place, leaf in leaves(value) if any(selects(path, place) for path in paths)}


@given(paths, values)
def test_what_is_left_was_there_and_is_left_again(paths: list[Steps], value: JsonValue) -> None:
    projection = projected(paths)
    left = project(projection, value)
    assert contained(left, value) or (left is None and not isinstance(value, dict | list))
    assert project(projection, left) == left


@given(paths.flatmap(lambda parent: st.tuples(children(parent), st.just(parent))), values)
def test_of_a_child_within_its_parent_the_same_is_left_with_and_without_the_parent(
    family: tuple[list[Steps], list[Steps]], value: JsonValue
) -> None:
    child, parent = map(projected, family)
    assert projection_within(child, parent)
    left, left_of_parent = project(child, value), project(parent, value)
    assert canonical(project(child, left_of_parent)) == canonical(left)
    assert contained(left, left_of_parent) or left is None


@given(families)
def test_a_child_that_is_not_within_its_parent_shows_more_of_some_value(
    family: tuple[list[Steps], list[Steps]],
) -> None:
    child, parent = map(projected, family)
    shows_more = False
    for path in child.paths:
        value: JsonValue = "mark"
        for step in reversed(path):
            value = {"a name of its own" if step is EACH else step: value}
        assert "mark" in str(project(child, value))
        shows_more = shows_more or "mark" not in str(project(parent, value))
    assert projection_within(child, parent) is not shows_more


@given(paths.flatmap(children), families)
def test_within_is_reflexive_and_transitive(grandchild: list[Steps], family: tuple[list[Steps], list[Steps]]) -> None:
    child, parent = map(projected, family)
    lowest = projected([[*path, *below] for path in family[0] for below in grandchild])
    assert projection_within(child, child)
    assert projection_within(lowest, child)
    assert not projection_within(child, parent) or projection_within(lowest, parent)


@given(st.lists(st.lists(st.text(max_size=4) | st.none(), max_size=4), max_size=4))
def test_a_projection_is_read_back_from_its_document(paths: list[Steps]) -> None:
    try:
        projection = projected(paths)
    except ProjectionInvalid as refusal:
        assume("form C" not in refusal.detail)
        raise
    document = render_projection(projection)
    assert parse_projection(document, pointer="") == projection
    assert render_projection(parse_projection(document, pointer="")) == document


@given(st.text(alphabet="$.*[]'\"\\ua0d8e\u0301\ud800 "))
def test_what_is_read_at_all_is_spelt_in_one_way(text: str) -> None:
    try:
        projection = of(f"$['{text}']")
    except ProjectionInvalid:
        return
    assert of(*_texts(render_projection(projection))) == projection


def _texts(document: JsonValue) -> list[JsonValue]:
    assert isinstance(document, list)
    return document


# --- results ----------------------------------------------------------------------------------------------

TOTAL: Final = of("$.total")


def shown(text: str, **beside: JsonValue) -> JsonObject:
    return {"content": [{"type": "text", "text": text}], **beside}


@pytest.mark.parametrize(
    "result, left",
    [
        (
            {"content": [{"type": "text", "text": "secret"}], "structuredContent": CASES, "isError": False},
            shown('{"total":2}', structuredContent={"total": 2}, isError=False),
        ),
        (
            {
                "content": [{"type": "image", "data": "secret"}, {"type": "resource_link", "uri": "secret"}],
                "structuredContent": {"total": "\u00e9\n", "secret": 1},
                "_meta": {"secret": 1},
                "secret": 1,
            },
            shown('{"total":"\u00e9\\n"}', structuredContent={"total": "\u00e9\n"}),
        ),
        ({"content": [], "structuredContent": {"secret": 1}}, shown("{}", structuredContent={})),
        ({"content": [{"type": "text", "text": '{"total": "secret"}'}]}, shown(NO_STRUCTURE)),
        ({"content": [], "structuredContent": None, "isError": False}, shown(NO_STRUCTURE, isError=False)),
        ({"content": [], "structuredContent": ["secret"]}, shown(NO_STRUCTURE)),
        ("secret", shown(NO_STRUCTURE)),
        (None, shown(NO_STRUCTURE)),
        ({"content": [], "structuredContent": CASES, "isError": True}, shown(ERROR_WITHHELD, isError=True)),
        # What is not plainly no error is one.
        ({"content": [], "structuredContent": CASES, "isError": "secret"}, shown(ERROR_WITHHELD, isError=True)),
        ({"content": [], "structuredContent": CASES, "isError": 0}, shown(ERROR_WITHHELD, isError=True)),
        ({"content": [], "structuredContent": CASES, "isError": None}, shown(ERROR_WITHHELD, isError=True)),
    ],
)
def test_of_an_mcp_result_only_the_structured_content_is_left_and_a_text_that_repeats_it(
    result: JsonValue, left: JsonObject
) -> None:
    assert canonical(project_result(TOTAL, result, is_mcp=True, is_error=False)) == canonical(left)


@pytest.mark.parametrize(
    "result", [None, {"error": {"code": 1, "message": "secret"}}, {"content": [], "structuredContent": CASES}]
)
def test_of_an_error_only_that_there_was_one_is_left(result: JsonValue) -> None:
    assert project_result(TOTAL, result, is_mcp=True, is_error=True) == shown(ERROR_WITHHELD, isError=True)
    assert project_result(TOTAL, result, is_mcp=False, is_error=True) == {"withheld": ERROR_WITHHELD}


def test_of_an_http_result_the_body_is_projected() -> None:
    body: JsonObject = {"total": 1, "isError": True, "structuredContent": {"total": 2}}
    assert project_result(TOTAL, body, is_mcp=False, is_error=False) == {"total": 1}
    assert project_result(TOTAL, "secret", is_mcp=False, is_error=False) is None
    assert project_result(of("$.isError"), body, is_mcp=False, is_error=False) == {"isError": True}


def test_the_whole_of_an_mcp_result_is_its_structured_content() -> None:
    result: JsonObject = {"content": [{"type": "text", "text": "more"}], "structuredContent": {"b": 1, "a": [None]}}
    left = project_result(of("$"), result, is_mcp=True, is_error=False)
    assert left == shown('{"a":[null],"b":1}', structuredContent={"b": 1, "a": [None]})


@given(families, objects, values, st.booleans(), st.booleans())
def test_no_mark_of_what_is_not_selected_is_left_anywhere(
    family: tuple[list[Steps], list[Steps]], structure: JsonObject, other: JsonValue, is_mcp: bool, is_error: bool
) -> None:
    child, parent = map(projected, family)
    text = canonical(structure).decode()
    content: JsonValue = [{"type": "text", "text": text}, {"type": "text", "text": "mark-", "_meta": other}]
    tool_result: JsonObject = {"content": content, "structuredContent": structure, "_meta": structure, "more": other}
    result = tool_result if is_mcp else structure
    left = project_result(child, result, is_mcp=is_mcp, is_error=is_error)
    selected = {leaf for place, leaf in leaves(structure) if any(selects(path, place) for path in family[0])}
    copies = canonical(left).count(b"mark-")
    assert copies == (0 if is_error else len(selected) * (2 if is_mcp else 1))
    assert all(str(leaf).encode() in canonical(left) for leaf in ([] if is_error else selected))
    if projection_within(child, parent):
        left_of_parent = project_result(parent, result, is_mcp=is_mcp, is_error=is_error)
        assert project_result(child, left_of_parent, is_mcp=is_mcp, is_error=is_error) == left


# --- schemas ----------------------------------------------------------------------------------------------

TEXT: Final[JsonObject] = {"type": "string"}
OPEN: Final[JsonObject] = {"type": "object"}
DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"


def an_object(properties: JsonObject, *required: str, defs: JsonObject | None = None, **more: JsonValue) -> JsonObject:
    schema: JsonObject = {"type": "object", "properties": properties, **more}
    return schema | ({"required": [*required]} if required else {}) | ({"$defs": defs} if defs else {})


def an_array(items: JsonValue, **more: JsonValue) -> JsonObject:
    return {"type": "array", "items": items, **more}


SEARCH: Final[JsonObject] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://secret.example/",
    "$comment": "secret",
    "title": "Cases",
    "description": "What was found.",
    "examples": [{"secret": 1}],
    "default": {"secret": 1},
    "type": "object",
    "properties": {
        "cases": {"type": "array", "items": {"$ref": "#/$defs/secretCase"}, "minItems": 1, "maxItems": 50},
        "secret": {"type": "integer", "description": "secret"},
    },
    "required": ["secret", "cases"],
    "minProperties": 2,
    "additionalProperties": False,
    "$defs": {
        "secretCase": {
            "description": "One case.",
            "type": "object",
            "properties": {
                "caseId": {"type": "string", "pattern": "^c_", "examples": ["c_1"], "default": "c_0"},
                "owner": {"anyOf": [{"$ref": "#/$defs/person"}, {"type": "null"}], "description": "Whose it is."},
                "secret": {"$ref": "#/$defs/secretThing"},
            },
            "required": ["caseId", "owner", "secret"],
            "additionalProperties": {"description": "secret"},
            "const": {"secret": 1},
            "dependentRequired": {"caseId": ["secret"]},
        },
        "person": {"type": "object", "properties": {"name": {"type": "string"}, "secret": {}}, "required": ["name"]},
        "secretThing": {"description": "secret"},
    },
}


def test_of_a_schema_the_structure_on_the_way_to_what_is_selected_is_left() -> None:
    left = project_schema(of("$.cases[*].caseId", "$.cases[*].owner.name"), SEARCH)
    assert left == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Cases",
        "description": "What was found.",
        "type": "object",
        "properties": {"cases": {"type": "array", "items": {"$ref": "#/$defs/1"}, "maxItems": 50}},
        "required": ["cases"],
        "additionalProperties": False,
        "$defs": {
            "1": {
                "description": "One case.",
                "type": "object",
                "properties": {
                    "caseId": {"type": "string", "pattern": "^c_", "examples": ["c_1"], "default": "c_0"},
                    "owner": {"anyOf": [{"$ref": "#/$defs/2"}, {"type": "null"}], "description": "Whose it is."},
                },
                "required": ["caseId"],  # of no owner no name is selected
            },
            "2": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        },
    }
    assert "secret" not in str(left)


ONLY_A: Final = an_object({"a": TEXT}, "a")
A_B: Final = an_object({"a": TEXT, "b": TEXT}, "a", "b")
ONLY_X: Final = an_object({"x": TEXT}, "x")
ENUM: Final[JsonObject] = {"type": "string", "enum": ["x"], "default": "x"}


@pytest.mark.parametrize(
    "paths, schema, left",
    [
        (["$"], SEARCH, SEARCH),
        ([], A_B, OPEN),
        ([], an_array(TEXT), {"type": "array"}),
        ([], TEXT, {"type": "null"}),
        ([], {"type": ["string", "object", "integer"]}, {"type": ["object", "null"]}),
        ([], {}, {}),
        (["$.a"], A_B, ONLY_A),
        (["$.a"], an_object({"a": ENUM}), an_object({"a": ENUM})),
        (["$.a.x"], A_B, OPEN),  # a string has no members, so that nothing is ever left there
        (["$.a.x"], an_object({"a": an_array(OPEN)}, "a"), OPEN),
        (["$.a.x"], an_object({"a": an_object({"x": False})}), OPEN),
        (["$.a.x"], an_object({"a": True}, "a"), an_object({"a": True})),
        (["$.a.x"], an_object({"a": False}), OPEN),
        (["$.a"], {"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"a": TEXT}, "required": ["a"]}),
        # Required is what is certain to be left.
        (["$.a.x"], an_object({"a": ONLY_X}, "a"), an_object({"a": ONLY_X}, "a")),
        (["$.a.x"], an_object({"a": an_object({"x": TEXT})}, "a"), an_object({"a": an_object({"x": TEXT})})),
        (
            ["$.a.x"],
            an_object({"a": {"type": ["object", "null"], "required": ["x"]}}, "a"),
            an_object({"a": {"type": ["object", "null"], "required": ["x"]}}),
        ),
        (
            ["$.a[*]"],
            an_object({"a": {"type": ["object", "array"]}}, "a"),
            an_object({"a": {"type": ["object", "array"]}}, "a"),
        ),
        (["$.a[*]"], an_object({"a": {"items": TEXT}}, "a"), an_object({"a": {"items": TEXT}})),
        # Items
        (["$[*].x"], an_array(TEXT, minItems=1), an_array(False)),
        (["$[*].x"], {"type": "array"}, {"type": "array"}),
        (["$[*].a"], an_array(A_B, minItems=2, maxItems=3, uniqueItems=True), an_array(ONLY_A, maxItems=3)),
        (["$[*][*].a"], an_array(an_array(A_B)), an_array(an_array(ONLY_A))),
        (["$[*].a"], an_array(A_B, prefixItems=[TEXT]), {"type": "array"}),
        (
            ["$.x[*].a"],
            an_object({"x": an_array(A_B, prefixItems=[TEXT])}, "x"),
            an_object({"x": {"type": "array"}}),
        ),
        (["$[*]"], an_array(A_B), an_array(A_B)),
        (["$.a"], an_array(A_B, maxItems=3), {"type": "array"}),
        # Members that are known by no name
        (["$.a"], an_object({}, additionalProperties=A_B), an_object({"a": A_B})),
        (["$.a"], an_object({"b": TEXT}, additionalProperties=False), OPEN),
        (
            ["$.a", "$.b"],
            an_object({"b": TEXT}, additionalProperties=False),
            an_object({"b": TEXT}, additionalProperties=False),
        ),
        (["$[*].a"], an_object({}, additionalProperties=A_B), {**OPEN, "additionalProperties": ONLY_A}),
        (["$[*].a"], an_object({}, additionalProperties=TEXT), {**OPEN, "additionalProperties": False}),
        (
            ["$[*].a", "$.x"],
            an_object({}, additionalProperties=A_B),
            an_object({"x": A_B}, additionalProperties=ONLY_A),
        ),
        (["$[*].a"], an_object({"x": A_B}, "x"), an_object({"x": ONLY_A}, "x")),
        (["$.a"], {**OPEN, "patternProperties": {"secret": False}, "additionalProperties": False}, OPEN),
        # Combinations
        (["$.a"], {"allOf": [A_B, OPEN]}, {"allOf": [ONLY_A, OPEN]}),
        (["$.a"], {"oneOf": [A_B, TEXT]}, {"anyOf": [ONLY_A, {"type": "null"}]}),
        (
            ["$.a"],
            {"anyOf": [A_B, {"type": "integer", "description": "secret"}]},
            {"anyOf": [ONLY_A, {"type": "null"}]},
        ),
        (
            ["$.x.a"],
            an_object({"x": {"oneOf": [A_B, an_object({"a": OPEN}, "a")]}}, "x"),
            an_object({"x": {"anyOf": [ONLY_A, an_object({"a": OPEN}, "a")]}}, "x"),
        ),
        (["$.x.a"], an_object({"x": {"anyOf": [TEXT, {"type": "null"}]}}, "x"), OPEN),
        (["$.x.a"], an_object({"x": {"allOf": [OPEN, A_B]}}, "x"), an_object({"x": {"allOf": [OPEN, ONLY_A]}}, "x")),
        (["$.a"], {**A_B, "if": A_B, "then": A_B, "else": A_B, "not": TEXT, "dependentSchemas": {"b": A_B}}, ONLY_A),
        (["$.a"], {**A_B, "unevaluatedProperties": False, "propertyNames": {"minLength": 1}}, ONLY_A),
        (["$.a"], an_object({"a": {"not": A_B}}), an_object({"a": {"not": A_B}})),
        # A member may be called like a keyword.
        (
            ["$.properties"],
            an_object({"properties": TEXT, "required": TEXT}, "properties"),
            an_object({"properties": TEXT}, "properties"),
        ),
        (
            ["$.a"],
            an_object({"a": an_object({"$ref": TEXT, "$id": TEXT})}),
            an_object({"a": an_object({"$ref": TEXT, "$id": TEXT})}),
        ),
        (["$.a"], an_object({"a": {"const": {"$ref": "#/no"}}}), an_object({"a": {"const": {"$ref": "#/no"}}})),
        # What is no schema says nothing.
        (["$.a"], {"type": "thing", "properties": [], "required": "a", "allOf": {}}, {}),
        (
            ["$.a"],
            {"type": [1, "object"], "properties": {"a": 1, "b": 1}, "required": [1, "a"]},
            {"properties": {"a": True}, "required": ["a"]},
        ),
    ],
)
def test_the_schema_of_what_is_left(paths: list[JsonValue], schema: JsonObject, left: JsonObject) -> None:
    assert canonical(project_schema(of(*paths), schema)) == canonical(left)


TREE: Final = an_object(
    {"name": TEXT, "secret": TEXT, "children": an_array({"$ref": "#"}), "twin": {"$ref": "#/properties/secret"}},
    "name",
    "children",
)


def test_a_reference_is_followed_to_a_definition_of_its_own() -> None:
    assert project_schema(of("$.children[*].children[*].name"), TREE) == an_object(
        {"children": an_array({"$ref": "#/$defs/1"})},
        "children",
        defs={
            "1": an_object({"children": an_array({"$ref": "#/$defs/2"})}, "children"),
            "2": an_object({"name": TEXT}, "name"),
        },
    )
    assert project_schema(of("$.twin"), TREE) == an_object({"twin": {"$ref": "#/$defs/1"}}, defs={"1": TEXT})
    encoded = an_object({"a": {"$ref": "#/%24defs/x~1%20y"}}, defs={"x/ y": TEXT})
    assert project_schema(of("$.a"), encoded) == an_object({"a": {"$ref": "#/$defs/1"}}, defs={"1": TEXT})


def test_what_is_selected_as_a_whole_takes_along_what_it_refers_to() -> None:
    left = project_schema(of("$.children"), {**TREE, "$id": "https://x.example/", "$defs": {"secret": {}}})
    whole = an_object(
        {
            "name": TEXT,
            "secret": TEXT,
            "children": an_array({"$ref": "#/$defs/1"}),
            "twin": {"$ref": "#/$defs/2"},
        },
        "name",
        "children",
    )
    assert left == an_object({"children": an_array({"$ref": "#/$defs/1"})}, "children", defs={"1": whole, "2": TEXT})


def test_where_nothing_beside_a_reference_counts_nothing_is_taken_from_there() -> None:
    schema: JsonObject = {
        "$schema": DRAFT_7,
        "definitions": {"open": OPEN},
        "properties": {"x": {"$ref": "#/definitions/open", "type": "object", "required": ["a"], "title": "X"}},
        "required": ["x"],
    }
    assert project_schema(of("$.x.a"), schema) == {
        "$schema": DRAFT_7,
        "properties": {"x": {"title": "X", "$ref": "#/$defs/1"}},
        "$defs": {"1": OPEN},
    }
    newer = project_schema(of("$.x.a"), {**schema, "$schema": "https://json-schema.org/draft/2019-09/schema"})
    assert newer["required"] == ["x"]


@pytest.mark.parametrize(
    "reference", ["other.json", "https://x.example/#", "#anchor", "#/$defs/missing", "#/required", "#/required/0", 1]
)
def test_a_reference_that_leads_nowhere_says_nothing_and_under_a_whole_takes_all_structure_with_it(
    reference: JsonValue,
) -> None:
    schema = an_object({"a": {"$ref": reference}, "b": TEXT}, "a")
    assert project_schema(of("$.a.x", "$.b"), schema) == an_object({"a": {}, "b": TEXT})
    assert project_schema(of("$.a"), schema) == OPEN
    assert project_schema(of("$.b"), schema) == an_object({"b": TEXT})


@pytest.mark.parametrize("keyword", ["$id", "$dynamicRef", "$recursiveRef"])
def test_a_schema_that_changes_what_a_reference_means_is_not_copied(keyword: str) -> None:
    assert project_schema(of("$.a"), an_object({"a": {"not": {keyword: "#"}}})) == OPEN


def test_references_in_circles_end_and_promise_nothing() -> None:
    circle: JsonObject = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}
    drawn: JsonObject = {"1": {"$ref": "#/$defs/2"}, "2": {"$ref": "#/$defs/1"}}
    schema = an_object({"x": {"$ref": "#/$defs/a"}}, "x", defs=circle)
    assert project_schema(of("$.x.y"), schema) == an_object({"x": {"$ref": "#/$defs/1"}}, defs=drawn)
    assert project_schema(of("$.x"), schema) == an_object({"x": {"$ref": "#/$defs/1"}}, "x", defs=drawn)


def test_a_schema_beyond_the_limits_becomes_its_type() -> None:
    wide = an_object({f"m{number}": {"$ref": "#"} for number in range(300)})
    left = project_schema(of("$" + MAX_PATH_STEPS * "[*]"), wide)
    assert isinstance(left["$defs"], dict)
    assert len(left["$defs"]) == MAX_PATH_STEPS
    bits = range(6)
    ways = [
        "$" + "".join("[*]" if number >> bit & 1 else f".m{bit}" for bit in bits) + f".x{number}"
        for number in range(2 ** len(bits))
    ]
    assert project_schema(of(*ways), wide) == OPEN
    deep: JsonObject = TEXT
    for _ in range(MAX_SCHEMA_DEPTH - 1):
        deep = an_array(deep)
    assert project_schema(of("$.a"), an_object({"a": deep})) == OPEN
    assert project_schema(of("$.a"), an_object({"a": deep["items"]})) != OPEN


def test_long_chains_of_references_do_not_exhaust_the_stack() -> None:
    links: JsonObject = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(5000)}
    schema: JsonObject = {"type": "object", "$ref": "#/$defs/d0", "$defs": links}
    assert project_schema(of("$.a"), schema) == OPEN
    assert project_schema(of("$.a"), an_object({"a": {"$ref": "#/$defs/d0"}}, defs=links)) == OPEN


# Schemas, and values that try to be valid under them. Names are few, so that paths meet them; and they are drawn from
# a generator of their own, since what hypothesis draws by itself gets emptier the deeper it lies.

DIALECTS: Final = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    DRAFT_7,
]
REFERENCES: Final = ["#", "#/$defs/p", "#/$defs/q", "#/$defs/q/properties/a", "#/definitions/r"]
FEW: Final = ["a", "b", "c"]
FLAT: Final[list[JsonValue]] = [
    True,
    {},
    TEXT,
    OPEN,
    {"type": "array"},
    {"type": ["integer", "null"]},
    {"type": ["object", "array", "string"]},
    {"enum": [1, "x", {"a": 1}, []]},
    {"const": {"a": [], "b": {"c": 1}}},
    {"type": "object", "required": ["a"]},
    {"not": {"required": ["a"]}},
]


ANYTHING: Final[list[JsonValue]] = [1, "x", None, {"a": {"b": 1}, "c": [2]}, [1, {"b": 1}], [], {}]


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is drawn at random of a schema that is drawn at random."""

    random: Random

    def once_in(self, times: int) -> bool:
        return self.random.randrange(times) == 0

    def some(self, names: list[str]) -> list[str]:
        return [name for name in names if not self.once_in(3)]

    def document(self) -> JsonObject:
        defs: JsonObject = {"p": self.schema(2), "q": {"type": "object", "properties": {"a": self.schema(2)}}}
        root = self.larger(4)
        return {"$schema": self.random.choice(DIALECTS), **root, "$defs": defs, "definitions": {"r": self.schema(2)}}

    def schema(self, depth: int) -> JsonValue:
        if self.once_in(8):
            return {"$ref": self.random.choice(REFERENCES)}
        return self.random.choice(FLAT) if depth == 0 or self.once_in(5) else self.larger(depth - 1)

    def larger(self, depth: int) -> JsonObject:
        plain = self.object(depth) if self.random.randrange(3) else an_array(self.schema(depth))
        return plain | self.one_more(depth) if self.once_in(3) else plain

    def object(self, depth: int) -> JsonObject:
        members: JsonObject = {name: self.schema(depth) for name in self.some(FEW)}
        rest: dict[str, Any] = {} if self.random.randrange(3) else {"additionalProperties": self.schema(depth)}
        closed: dict[str, Any] = {"additionalProperties": False} if self.once_in(3) else rest
        return an_object(members, *self.some([*members]), **closed)

    def one_more(self, depth: int) -> JsonObject:
        """A keyword or two that may change everything."""
        keywords: list[Callable[[], JsonObject]] = [
            lambda: {"type": ["object", "null"]},
            lambda: {"type": ["array", "object"]},
            lambda: {"items": self.schema(depth)},
            lambda: {"prefixItems": [self.schema(depth)]},
            lambda: {self.random.choice(["allOf", "anyOf", "oneOf"]): [self.schema(depth), self.schema(depth)]},
            lambda: {self.random.choice(["if", "then", "else", "not", "contains"]): self.schema(depth)},
            lambda: {"patternProperties": {self.random.choice(["^a", "[bc]"]): self.schema(depth)}},
            lambda: {"$ref": self.random.choice(REFERENCES)},
            lambda: {"minItems": 1, "maxItems": 2, "uniqueItems": True, "minProperties": 1},
            lambda: {"unevaluatedProperties": False, "dependentRequired": {"a": ["b"]}},
            lambda: {"required": [self.random.choice(FEW)]},
        ]
        return self.random.choice(keywords)()

    def value(self, document: JsonObject, schema: JsonValue, fuel: int = 6) -> JsonValue:
        """A value that has a fair chance to be valid."""
        if not isinstance(schema, dict) or fuel == 0:
            return self.random.choice(ANYTHING)
        keyword = self.random.choice([word for word in (*VALUES_BY_KEYWORD, "") if word == "" or word in schema])
        if keyword == "":
            return self.value_of_type(document, schema, fuel)
        part = VALUES_BY_KEYWORD[keyword](document, self.random, schema[keyword])
        if keyword in {"const", "enum"}:
            return part
        value, other = self.value_of_type(document, schema, fuel), self.value(document, part, fuel - 1)
        return {**value, **other} if isinstance(value, dict) and isinstance(other, dict) else other

    def value_of_type(self, document: JsonObject, schema: JsonObject, fuel: int) -> JsonValue:
        types = schema.get("type", "array" if "items" in schema else "object")
        match self.random.choice(types) if isinstance(types, list) else types:
            case "object":
                properties: Any = schema.get("properties", {})
                required: Any = schema.get("required", [])
                rest = schema.get("additionalProperties", True)
                wanted = {*required, *self.some([*properties] if rest is False else FEW)}
                return {name: self.value(document, properties.get(name, rest), fuel - 1) for name in sorted(wanted)}
            case "array":
                items = schema.get("items", True)
                return [self.value(document, items, fuel - 1) for _ in range(self.random.randrange(4))]
            case name:
                scalars: JsonObject = {"string": "x", "integer": 1, "null": None}
                return scalars[str(name)]

    def paths(self, value: JsonValue) -> list[Steps]:
        """Some paths, most of which lead to something."""
        places = [place for place, _ in leaves(value)] or [()]
        drawn = [self.path(self.random.choice(places)) for _ in range(self.random.randrange(1, 4))]
        return [path for path in drawn if path]

    def path(self, place: tuple[str | int, ...]) -> Steps:
        path = [None if isinstance(step, int) or self.once_in(3) else step for step in place]
        beyond: list[Steps] = [[], [], ["a"], ["b", None], [None]]
        return [*path[: self.random.randrange(1, 5)], *self.random.choice(beyond)]


def resolved(document: JsonObject, _random: Random, reference: str) -> JsonValue:
    value: JsonValue = document
    for token in reference.split("/")[1:]:
        value = value.get(token, {}) if isinstance(value, dict) else {}
    return value


VALUES_BY_KEYWORD: Final[dict[str, Callable[[JsonObject, Random, Any], JsonValue]]] = {
    "const": lambda _document, _random, value: value,
    "enum": lambda _document, random, values: random.choice(values),
    "$ref": resolved,
    "allOf": lambda _document, random, parts: random.choice(parts),
    "anyOf": lambda _document, random, parts: random.choice(parts),
    "oneOf": lambda _document, random, parts: random.choice(parts),
}


def valid(schema: JsonObject, value: JsonValue) -> bool:
    return jsonschema_rs.validator_for(schema, offline=True).is_valid(value)


@given(st.randoms(use_true_random=True))
def test_what_is_left_of_a_valid_value_is_valid_under_what_is_left_of_the_schema(random: Random) -> None:
    drawn = Drawn(random)
    schema = drawn.document()
    for value in (drawn.value(schema, schema) for _ in range(5)):
        projection = projected(drawn.paths(value))
        left = project_schema(projection, schema)
        assert not valid(schema, value) or valid(left, project(projection, value))


def a_tree(random: Random, depth: int, place: Steps, places: dict[str, Steps]) -> JsonObject:
    """A schema whose members have names that occur nowhere else; where each stands is written down."""
    if depth == 0:
        return TEXT
    if random.randrange(3) == 0:
        return an_array(a_tree(random, depth - 1, [*place, None], places))
    members: JsonObject = {}
    for name in [f"member-{len(places) + number}-" for number in range(3)]:
        places[name] = [*place, name]
    for name in [*places][-3:]:
        members[name] = {"description": f"About {name}", **a_tree(random, depth - 1, places[name], places)}
    told: JsonValue = dict.fromkeys(members, "told")
    return an_object(members, *members, examples=[told], default=told, enum=[told], propertyNames={"enum": [*members]})


def leads_to(path: Steps, place: Steps) -> bool:
    """Whether what a path selects is on the way to a place in a schema, or lies at it or below."""
    return all(step is None or step == here for step, here in zip(path, place, strict=False))


@given(st.randoms(use_true_random=True))
def test_a_schema_tells_nothing_of_members_that_are_not_selected(random: Random) -> None:
    places: dict[str, Steps] = {}
    schema = an_object({"all": a_tree(random, 3, ["all"], places)}, "all")
    ways: list[Steps] = [*places.values()] or [["all"]]
    paths = [
        [step if random.randrange(4) else None for step in way[: random.randrange(1, 6)]]
        for way in random.choices(ways, k=2)
    ]
    left = str(project_schema(projected(paths), schema))
    for name, place in places.items():
        selected = any(leads_to(path, place) and len(path) <= len(place) for path in paths)
        assert name in left if selected else name not in left or any(leads_to(path, place) for path in paths)
