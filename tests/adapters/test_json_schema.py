"""JSON Schema: what it says of values, what it never says, and the schemas that would hurt."""

import json
import re
import socket
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters import json_schema
from app.adapters.json_schema import RustSchemaValidator
from app.core.strict_json import JsonObject, JsonValue


@pytest.fixture
def validator() -> RustSchemaValidator:
    return RustSchemaValidator()


# --- objections -------------------------------------------------------------------------------------------

SEARCH: JsonObject = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "maxLength": 5},
        "limit": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        "a/b~c": {"type": "string"},
        "type": False,
        "id": {"pattern": "^c_[0-9]+$"},
    },
    "required": ["query"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "value, objection",
    [
        ({"query": "cats"}, None),
        ({"query": "cats", "limit": 1, "tags": ["a", "b"]}, None),
        ({"query": "secret"}, ("/query", "maxLength")),
        ({"query": "cats", "limit": 0}, ("/limit", "minimum")),
        ({"query": "cats", "limit": True}, ("/limit", "type")),
        ({"query": "cats", "limit": "1"}, ("/limit", "type")),
        ({"query": "cats", "tags": ["a", "secret"]}, ("/tags/1", "enum")),
        ({"query": "cats", "a/b~c": 1}, ("/a~1b~0c", "type")),
        ({"query": "cats", "type": 1}, ("/type", "properties")),
        ({"query": "cats", "id": "secret"}, ("/id", "pattern")),
        ({"query": "cats", "other": 1}, ("", "additionalProperties")),
        ({}, ("", "required")),
        ([], ("", "type")),
        (None, ("", "type")),
    ],
)
def test_an_objection_says_where_and_which_keyword(
    validator: RustSchemaValidator, value: JsonValue, objection: tuple[str, str] | None
) -> None:
    assert validator.objection(SEARCH, value) == objection


@pytest.mark.parametrize(
    "schema, value, keyword",
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "anyOf"),
        ({"oneOf": [{}, {}]}, 1, "oneOf"),
        ({"not": {}}, 1, "not"),
        ({"const": 5}, 1, "const"),
        ({"$ref": "#/$defs/type", "$defs": {"type": {"maximum": 0}}}, 1, "maximum"),
        ({"if": {}, "then": {"type": "string"}}, 1, "type"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "maxLength"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "dependentRequired"),
        ({"dependentSchemas": {"type": {"required": ["b"]}}}, {"type": 1}, "required"),
        ({"patternProperties": {"^type$": False}}, {"type": 1}, "patternProperties"),
        ({"prefixItems": [False]}, [1], "prefixItems"),
        ({"contains": {"type": "string"}}, [1], "contains"),
        ({"uniqueItems": True}, [1, 1], "uniqueItems"),
        ({"unevaluatedProperties": False}, {"a": 1}, "unevaluatedProperties"),
        ({"multipleOf": 3}, 1, "multipleOf"),
    ],
)
def test_the_keyword_is_the_schemas_and_never_a_propertys_name(
    validator: RustSchemaValidator, schema: JsonObject, value: JsonValue, keyword: str
) -> None:
    objection = validator.objection(schema, value)
    assert objection is not None
    assert objection[1] == keyword


@given(secret=st.text(alphabet="sekrit", min_size=6))
def test_no_objection_holds_a_value(secret: str) -> None:
    values: list[JsonValue] = [
        secret,
        {"query": secret},
        {"query": "x", "tags": [secret]},
        {"query": "x", "id": secret},
    ]
    objections = [RustSchemaValidator().objection(SEARCH, value) for value in values]
    assert all(objection is not None for objection in objections)
    assert secret not in repr(objections)


def test_a_name_that_is_an_attack_is_not_repeated(validator: RustSchemaValidator) -> None:
    schema: JsonObject = {"additionalProperties": {"type": "string"}}
    assert validator.objection(schema, {"x\n\x1b[31m": 1}) == ("", "type")
    assert validator.objection(schema, {"x" * 1000: 1}) == ("", "type")


def test_a_format_is_an_annotation_in_every_dialect(validator: RustSchemaValidator) -> None:
    for dialect in json_schema._DIALECTS:  # noqa: SLF001
        schema: JsonObject = {"$schema": dialect, "format": "email"}
        assert validator.check_schema(schema) is None
        assert validator.objection(schema, "nobody") is None


def test_the_dialect_is_the_one_that_the_schema_names(validator: RustSchemaValidator) -> None:
    pair: JsonObject = {"items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False}
    draft7 = {"$schema": "http://json-schema.org/draft-07/schema#"} | pair
    assert validator.check_schema(draft7) is None
    assert validator.objection(draft7, ["a", 1]) is None
    assert validator.objection(draft7, ["a", 1, 2]) is not None
    assert validator.check_schema(pair) == "/items is not what JSON Schema allows there (type)"


SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"])}
    )
    | st.builds(lambda low, span: {"minimum": low, "maximum": low + span}, st.integers(-3, 3), st.integers(0, 3))
    | st.builds(lambda values: {"enum": values}, st.lists(st.sampled_from([1, "a", True, None, 0]), min_size=1)),
    lambda inner: (
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner)
        | st.builds(lambda a, b: {"allOf": [a, b]}, inner, inner)
        | st.builds(lambda a: {"not": a}, inner)
        | st.builds(lambda a, b: {"properties": {"a": a, "b": b}, "additionalProperties": False}, inner, inner)
        | st.builds(lambda a: {"items": a, "maxItems": 2}, inner)
    ),
    max_leaves=5,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-4, 4) | st.sampled_from(["", "a", 0.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=4,
)


@given(schema=SCHEMAS, value=VALUES)
def test_it_agrees_with_another_validator(schema: dict[str, Any], value: JsonValue) -> None:
    validator = RustSchemaValidator()
    assert validator.check_schema(schema) is None
    accepted = validator.objection(schema, value) is None
    assert accepted == jsonschema.Draft202012Validator(schema).is_valid(value)


# --- schemas that are refused -----------------------------------------------------------------------------


def bomb(doublings: int) -> JsonObject:
    """Each definition holds the value against the next one, twice."""
    steps: JsonObject = {f"a{step}": {"allOf": [{"$ref": f"#/$defs/a{step + 1}"}] * 2} for step in range(doublings)}
    return {"$ref": "#/$defs/a0", "$defs": steps | {f"a{doublings}": {"type": "string"}}}


def nested(levels: int) -> JsonObject:
    schema: JsonObject = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


REFUSED: dict[str, list[JsonObject]] = {
    r"a \$ref is # or a JSON pointer": [
        {"$ref": "http://127.0.0.1:1/schema"},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "other.json"},
        {"$ref": ""},
        {"$ref": "#anchor", "$defs": {"a": {"$anchor": "anchor"}}},
        {"items": {"not": {"$ref": "http://127.0.0.1:1/schema"}}},
        {"$ref": "#/default", "default": {"$ref": "http://127.0.0.1:1/schema"}},
    ],
    r"a \$ref leads to nothing": [
        {"$ref": "#/$defs/missing"},
        {"$defs": {"unused": {"$ref": "http://127.0.0.1:1/schema"}}},
    ],
    r"\$schema names no dialect known here": [
        {"$schema": "http://127.0.0.1:1/schema"},
        {"$schema": "http://json-schema.org/draft-04/schema#"},
        {"$schema": 7},
    ],
    "is not supported": [
        {"$dynamicRef": "#x"},
        {"$recursiveRef": "#"},
        {"items": {"$id": "https://else.example/", "type": "string"}},
        {"$ref": "#/$defs/a/$defs/b", "$defs": {"a": {"$id": "https://else.example/", "$defs": {"b": {}}}}},
    ],
    "leads back to itself": [
        {"$ref": "#"},
        {"not": {"$ref": "#"}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}},
        {"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}},
    ],
    "too large a pattern, or none that runs in linear time": [
        {"pattern": "(?=a)b"},
        {"pattern": r"(a)\1"},
        {"pattern": "("},
        {"pattern": "(a{1000}){1000}"},
        {"patternProperties": {"(?!a)": {}}},
    ],
    "is not what JSON Schema allows there": [
        {"type": "text"},
        {"properties": []},
        {"properties": {"a": {"minLength": -1}}},
        {"$ref": 5},
        {"required": "a"},
        {"multipleOf": 0},
    ],
    "more than 2048 subschemas": [bomb(11), bomb(30), {"anyOf": [{"minimum": n} for n in range(2048)]}],
    "unevaluated… more than 8 times": [{"allOf": [{"unevaluatedProperties": False}] * 9}],
    "more than 64 patterns": [
        {"anyOf": [{"pattern": f"a{n}"} for n in range(65)]},
        {"patternProperties": {f"a{n}": {} for n in range(65)}},
    ],
    "longer than 65536 bytes": [{"description": "x" * 65536}],
    "nested deeper than 64 levels": [nested(64)],
    "nested deeper than 200 levels": [nested(500)],
    "not finite": [{"maximum": float("nan")}],
    "beyond": [{"maximum": 2**53}],
}


@pytest.mark.parametrize("why, schema", [(why, schema) for why, schemas in REFUSED.items() for schema in schemas])
def test_a_schema_that_would_hurt_is_refused_and_accepts_nothing(
    validator: RustSchemaValidator, why: str, schema: JsonObject
) -> None:
    refusal = validator.check_schema(schema)
    assert refusal is not None
    assert re.search(why, refusal)
    values: list[JsonValue] = ["", {}, [], 0, None]
    for value in values:
        assert validator.objection(schema, value) is not None


def test_nothing_is_read_from_the_disk(validator: RustSchemaValidator, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text("{}")
    schema: JsonObject = {"$defs": {"unused": {"$ref": (tmp_path / "schema.json").as_uri()}}}
    assert validator.check_schema(schema) == "a $ref leads to nothing in the schema"


def test_nothing_is_asked_of_the_network(validator: RustSchemaValidator) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        schema: JsonObject = {"$defs": {"unused": {"$ref": f"http://127.0.0.1:{server.getsockname()[1]}/"}}}
        assert validator.check_schema(schema) == "a $ref leads to nothing in the schema"
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    "schema",
    [
        {},
        SEARCH,
        bomb(9),
        nested(60),
        {"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}, "pattern": {"type": "string"}}},
        {"const": {"$ref": "http://127.0.0.1:1/schema"}},
        {"$id": "https://tools.example/schema", "$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "string"}}},
        {"anyOf": [{"$ref": "#/$defs/id"}] * 200, "$defs": {"id": {"pattern": "^[a-z]+$"}}},
        {"properties": {"left": {"$ref": "#"}, "right": {"items": {"$ref": "#"}}}},
        {"$ref": "#/$defs/node", "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}},
    ],
)
def test_an_ordinary_schema_is_taken(validator: RustSchemaValidator, schema: JsonObject) -> None:
    assert validator.check_schema(schema) is None


# --- values that would hurt -------------------------------------------------------------------------------


@pytest.mark.timeout(10)
def test_a_pattern_takes_linear_time(validator: RustSchemaValidator) -> None:
    assert validator.objection({"pattern": "^(a|a)*$"}, "a" * 100_000 + "b") == ("", "pattern")


@pytest.mark.timeout(10)
def test_a_recursive_schema_does_not_judge_a_value_again_for_each_way_to_it(
    validator: RustSchemaValidator,
) -> None:
    branch: JsonObject = {"properties": {"a": {"$ref": "#"}}, "required": ["z"]}
    schema: JsonObject = {"anyOf": [branch, branch]}
    value: JsonValue = 1
    for _ in range(60):
        value = {"a": value}
    assert validator.check_schema(schema) is None
    assert validator.objection(schema, value) == ("", "$ref")


def test_a_schema_changed_in_place_is_another(validator: RustSchemaValidator) -> None:
    schema: JsonObject = {"type": "string"}
    assert validator.objection(schema, 1) is not None
    schema["type"] = "integer"
    assert validator.objection(schema, 1) is None


def test_a_schema_is_compiled_once(validator: RustSchemaValidator, monkeypatch: pytest.MonkeyPatch) -> None:
    validator.objection(SEARCH, {})
    monkeypatch.setattr(json_schema, "_compile", None)
    copy = json.loads(json.dumps(SEARCH))
    assert validator.objection(copy, {"query": "cats"}) is None
