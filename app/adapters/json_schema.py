"""Whether a tool's arguments fit the tool's own JSON Schema.

Knows JSON Schema 2020-12, and the earlier dialects that tool servers write. Refuses to know anything outside
the one document (no reference leaves it, nothing is ever fetched) and what a schema is for.

A schema comes from a tool server and a value from an agent, so neither may make a check expensive: patterns
run in linear time, and a schema whose cost would multiply is refused before it is used. No message repeats
a value.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind as Violation

from app.core.budget import resolve_pointer
from app.core.strict_json import JsonObject, JsonValue, StrictJsonError, canonical, parse, point

MAX_SCHEMA_BYTES: Final = 64 * 1024
MAX_SCHEMA_DEPTH: Final = 64
MAX_SUBSCHEMAS: Final = 2048
"""Subschemas that one value may be held against, a `$ref` counted as what it leads to, each time anew."""

MAX_UNEVALUATED: Final = 8
"""`unevaluated…` keywords among them: the library's work doubles with each one inside another."""

MAX_PATTERNS: Final = 64
"""Different patterns among them: one may take a megabyte and ten milliseconds to compile."""

MAX_COMPILED: Final = 256
_PATTERNS: Final = jsonschema_rs.RegexOptions(size_limit=2**20, dfa_size_limit=2**20)
"""The engine without look-around and back-references, which is the one that runs in linear time.

A limit on backtracking would not do: where it is exceeded, the pattern counts as not matched, and under `not`
that is a way in.
"""

_DIALECTS: Final = frozenset(
    {
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-06/schema",
    }
)

Objection: TypeAlias = tuple[str, str]

_UNUSABLE: Final[Objection] = ("", "$schema")
"""The objection of a schema that can't be used: it accepts nothing."""


class RustSchemaValidator:
    """`ports.SchemaValidator` on jsonschema-rs. What it has compiled it keeps, the most recently used ones."""

    def __init__(self) -> None:
        self._compiled = lru_cache(MAX_COMPILED)(_compile_or_none)

    def check_schema(self, schema: JsonObject) -> str | None:
        try:
            _compile(schema)
        except SchemaRefused as refusal:
            return str(refusal)
        return None

    def objection(self, schema: JsonObject, value: JsonValue) -> Objection | None:
        # The text is a faithful name of the schema and, other than its canonical form, costs next to nothing.
        compiled = self._compiled(json.dumps(schema))
        return _UNUSABLE if compiled is None else compiled.objection(value)


class SchemaRefused(ValueError):
    """Why a schema can't be used: a sentence for whoever registers the tool."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    validator: jsonschema_rs.Validator
    recursive: bool

    def objection(self, value: JsonValue) -> Objection | None:
        if self.validator.is_valid(value):
            return None
        if self.recursive:
            # Only `is_valid` remembers what it has judged; explaining would judge it again for each way there.
            return "", "$ref"
        try:
            self.validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return _pointer(error.instance_path), _keyword(error)
        return _UNUSABLE


def _compile_or_none(text: str) -> _Compiled | None:
    try:
        return _compile(json.loads(text))
    except SchemaRefused:
        return None


def _compile(schema: JsonObject) -> _Compiled:
    document = _within_limits(schema)
    recursive = _Survey(document).recursive()
    try:
        validator = jsonschema_rs.validator_for(
            document,
            offline=True,
            pattern_options=_PATTERNS,
            validate_formats=False,  # an annotation, as in 2020-12 by default; here in every dialect
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise SchemaRefused(_flaw(error)) from None
    return _Compiled(validator, recursive)


def _within_limits(schema: JsonObject) -> JsonObject:
    try:
        document = parse(canonical(schema), max_bytes=MAX_SCHEMA_BYTES, max_depth=MAX_SCHEMA_DEPTH)
    except StrictJsonError as error:
        raise SchemaRefused(f"the schema can't be used: {error.detail}") from None
    assert isinstance(document, dict), "an object was written"
    return document


# --- what is said of a refusal ----------------------------------------------------------------------------


def _flaw(error: jsonschema_rs.ValidationError | jsonschema_rs.ReferencingError) -> str:
    if isinstance(error, jsonschema_rs.ReferencingError) or isinstance(error.kind, Violation.Referencing):
        return "a $ref leads to nothing in the schema"
    place = _pointer(error.instance_path) or "the schema"
    if isinstance(error.kind, Violation.Format):
        return f"{place} is too large a pattern, or none that runs in linear time, as look-around does not"
    return f"{place} is not what JSON Schema allows there ({_keyword(error)})"


def _pointer(path: list[str | int]) -> str:
    pointer = ""
    for step in path:
        pointer = f"{pointer}/{step}" if isinstance(step, int) else point(pointer, step)
    return pointer


def _keyword(error: jsonschema_rs.ValidationError) -> str:
    """The last keyword on the way to what was violated; a property may be called like a keyword and is none."""
    keyword = "false"
    steps = (step for step in error.schema_path if isinstance(step, str))
    for keyword in steps:
        if keyword in _NAMING:
            next(steps, None)
    return keyword


# --- what a schema may cost -------------------------------------------------------------------------------

_NAMING: Final = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)
"""Keywords that hold subschemas by names of the author's choice."""

_APPLIES_HERE: Final[Mapping[str, bool]] = {
    "allOf": True,
    "anyOf": True,
    "oneOf": True,
    "not": True,
    "if": True,
    "then": True,
    "else": True,
    "dependentSchemas": True,
    "dependencies": True,
    "properties": False,
    "patternProperties": False,
    "additionalProperties": False,
    "unevaluatedProperties": False,
    "propertyNames": False,
    "prefixItems": False,
    "items": False,
    "additionalItems": False,
    "unevaluatedItems": False,
    "contains": False,
}
"""Keywords that hold subschemas: whether these are for the same value, or for a part of it."""

_NOT_SUPPORTED: Final = ("$dynamicRef", "$recursiveRef")


class _Place(NamedTuple):
    """A subschema, and the references that led to it: all of them, and those since the value last changed."""

    schema: JsonObject
    led_here: frozenset[str]
    on_this_value: frozenset[str]


class _Survey:
    """A walk through a schema as a value would be led through it, once down every way, within limits."""

    def __init__(self, document: JsonObject) -> None:
        self._document = document
        self._recursive = False
        self._seen = 0
        self._unevaluated = 0
        self._patterns: set[str] = set()

    def recursive(self) -> bool:
        """Whether some `$ref` leads back to where it stands; raises SchemaRefused for a schema beyond the limits."""
        _refuse_other_dialect(self._document)
        root = frozenset({"#"})
        pending = [_Place(self._document, root, root)]
        while pending:
            place = pending.pop()
            self._count(place.schema)
            pending.extend(self._parts(place))
            pending.extend(self._target(place))
        return self._recursive

    def _count(self, schema: JsonObject) -> None:
        self._seen += 1
        self._unevaluated += ("unevaluatedProperties" in schema) + ("unevaluatedItems" in schema)
        self._patterns.update(_patterns(schema))
        if self._seen > MAX_SUBSCHEMAS:
            raise SchemaRefused(f"the schema holds a value against more than {MAX_SUBSCHEMAS} subschemas")
        if self._unevaluated > MAX_UNEVALUATED:
            raise SchemaRefused(f"the schema uses unevaluated… more than {MAX_UNEVALUATED} times")
        if len(self._patterns) > MAX_PATTERNS:
            raise SchemaRefused(f"the schema has more than {MAX_PATTERNS} patterns")
        for keyword in _NOT_SUPPORTED:
            if keyword in schema:
                raise SchemaRefused(f"{keyword} is not supported")
        if schema is not self._document:
            _refuse_identifier(schema)

    def _parts(self, place: _Place) -> Iterator[_Place]:
        for keyword, value in place.schema.items():
            same_value = _APPLIES_HERE.get(keyword)
            parts = [] if same_value is None else _subschemas(keyword, value)
            for part in parts:
                yield _Place(part, place.led_here, place.on_this_value if same_value else frozenset())

    def _target(self, place: _Place) -> Iterator[_Place]:
        reference = place.schema.get("$ref")
        if not isinstance(reference, str):
            return  # none, or nonsense, about which the meta-schema has its say
        if reference != "#" and not reference.startswith("#/"):
            raise SchemaRefused("a $ref is # or a JSON pointer in the schema, such as #/$defs/name")
        if reference in place.on_this_value:
            raise SchemaRefused("a $ref leads back to itself without going into the value")
        if reference in place.led_here:
            self._recursive = True
            return
        target = self._follow(unquote(reference[1:]))
        if isinstance(target, dict):
            yield _Place(target, place.led_here | {reference}, place.on_this_value | {reference})

    def _follow(self, pointer: str) -> JsonValue:
        value: JsonValue = self._document
        for token in pointer.split("/")[1:]:
            value = resolve_pointer(value, f"/{token}")
            if isinstance(value, dict):
                _refuse_identifier(value)
        return value


def _refuse_identifier(schema: JsonObject) -> None:
    # Under an $id of its own, # would mean another document than the one that is surveyed here.
    if isinstance(schema.get("$id"), str):
        raise SchemaRefused("a schema inside the schema has an $id of its own, which is not supported")


def _refuse_other_dialect(document: JsonObject) -> None:
    dialect = document.get("$schema", "https://json-schema.org/draft/2020-12/schema")
    if not isinstance(dialect, str) or dialect.removesuffix("#") not in _DIALECTS:
        raise SchemaRefused("$schema names no dialect known here; the usual one is 2020-12")


def _patterns(schema: JsonObject) -> Iterator[str]:
    pattern, by_pattern = schema.get("pattern"), schema.get("patternProperties")
    if isinstance(pattern, str):
        yield pattern
    if isinstance(by_pattern, dict):
        yield from by_pattern


def _subschemas(keyword: str, value: JsonValue) -> list[JsonObject]:
    """The subschemas under a keyword; true and false are left out, since they cost nothing."""
    if keyword in _NAMING and isinstance(value, dict):
        value = [*value.values()]
    parts = value if isinstance(value, list) else [value]
    return [part for part in parts if isinstance(part, dict)]
