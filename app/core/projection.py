"""Which fields of a tool's result come back: how a grant spells it, and what is left of a result and its schema.

A path is a strict subset of JSONPath (RFC 9535): names, and `[*]` for every item or member. What no path selects
is withheld. Nothing here knows grants or tool servers, nor how a result travels; of MCP it knows one thing, which
member of a tool result may be selected from.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeAlias
from unicodedata import is_normalized
from urllib.parse import unquote

from app.core.budget import resolve_pointer
from app.core.steps import OutOfSteps, Steps
from app.core.strict_json import JsonObject, JsonValue, canonical, point

MAX_PATHS: Final = 64  # a tool
MAX_PATH_STEPS: Final = 16
MAX_PATH_CHARS: Final = 500  # as it was given, and in canonical spelling
MAX_SUBSCHEMAS: Final = 10_000  # looked at for one projected schema
MAX_SCHEMA_DEPTH: Final = 64  # of them inside one another, a `$ref` counted as what it leads to

NO_STRUCTURE: Final = (
    "The result is withheld: it has no structured content, and the grant limits which fields come back."
)
"""The text of an MCP result that no path can select from."""

ERROR_WITHHELD: Final = "The tool reported an error. What it said is withheld: the grant limits which fields come back."
"""All that is said of an error: a tool's own words may tell what the projection withholds."""


class ProjectionInvalid(ValueError):
    """A document is no projection. `pointer` (RFC 6901) names the path; `detail` repeats no values."""

    def __init__(self, pointer: str, detail: str) -> None:
        super().__init__(f"{pointer}: {detail}")
        self.pointer = pointer
        self.detail = detail


class Each(Enum):
    EACH = "each"


EACH: Final = Each.EACH
"""The step to every item of an array and to every member of an object."""

Step: TypeAlias = str | Literal[Each.EACH]
"""To a member of an object by its name, or to each."""

Path: TypeAlias = tuple[Step, ...]
"""The steps from a value to what is selected of it, and selected as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What comes back of a result. No path selects nothing, the path without steps all of it.

    Two projections that select the same of every value are equal.
    """

    paths: tuple[Path, ...]

    def __post_init__(self) -> None:
        assert self.paths == _normal(self.paths), "a projection is made by parse_projection"


def parse_projection(document: JsonValue, *, pointer: str) -> Projection:
    """The projection that a list of paths spells; `pointer` is the list's own.

    Raises ProjectionInvalid at the first path that is not understood, or is beyond a limit.
    """
    if not isinstance(document, list) or len(document) > MAX_PATHS:
        raise ProjectionInvalid(pointer, f"an array of at most {MAX_PATHS} paths was expected")
    paths = [_parse_path(item, point(pointer, str(index))) for index, item in enumerate(document)]
    return Projection(paths=_normal(paths))


def render_projection(projection: Projection) -> JsonValue:
    """The document of a projection in canonical spelling, the inverse of `parse_projection`."""
    return [_spell(path) for path in projection.paths]


def projection_within(child: Projection, parent: Projection) -> bool:
    """Whether of every value the parent selects all that the child selects: each path at or below one of the parent's.

    Exact: a path under no single one of the parent's selects, of some value, what none of them does, since for
    each `[*]` there is a name that the parent does not spell.
    """
    return all(any(_covers(outer, path) for outer in parent.paths) for path in child.paths)


def _normal(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Sorted, each once, and none that another covers."""
    different = {*paths}
    kept = [path for path in different if not any(_covers(other, path) for other in different - {path})]
    return tuple(sorted(kept, key=_spell))


def _covers(outer: Path, inner: Path) -> bool:
    pairs = zip(outer, inner, strict=False)
    return len(outer) <= len(inner) and all(wide in {EACH, narrow} for wide, narrow in pairs)


# --- spelling ---------------------------------------------------------------------------------------------

_IDENTIFIER: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_PLAIN: Final = r"[ !#-&(-\[\]-\ud7ff\ue000-\U0010ffff]"  # neither quotes, nor a backslash, a control or a surrogate
_ESCAPE: Final = (
    r"\\(?:[bfnrt/\\]|u(?:[0-9A-CEFa-cef][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f]{2}"
    r"|[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}))"
)
_STEP: Final = re.compile(
    rf"""(?P<each>\.\*|\[\*\])|\.(?P<identifier>{_IDENTIFIER})"""
    rf"""|\['(?P<single>(?:{_PLAIN}|"|\\'|{_ESCAPE})*)'\]"""
    rf"""|\["(?P<double>(?:{_PLAIN}|'|\\"|{_ESCAPE})*)"\]"""
)
"""A segment of RFC 9535 §2.5.1 with a single selector: a wildcard or a name, with the escapes of §2.3.1.1."""

_ANY_ESCAPE: Final = re.compile(r"(?:\\u[0-9A-Fa-f]{4})+|\\[^u]")
_MEANINGS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPED: Final = str.maketrans(
    {chr(code): f"\\u{code:04x}" for code in range(0x20)}
    | {meaning: f"\\{letter}" for letter, meaning in _MEANINGS.items()}
    | {"'": "\\'", "\\": "\\\\"}
)
"""The escapes of a normalized path (RFC 9535 §2.7)."""


def _parse_path(text: JsonValue, pointer: str) -> Path:
    if not isinstance(text, str) or len(text) > MAX_PATH_CHARS:
        raise ProjectionInvalid(pointer, f"a string of at most {MAX_PATH_CHARS} characters was expected")
    path = tuple(_parse_steps(text, pointer))
    if len(path) > MAX_PATH_STEPS:
        raise ProjectionInvalid(pointer, f"at most {MAX_PATH_STEPS} steps were expected")
    spelling = _spell(path)
    if len(spelling) > MAX_PATH_CHARS:
        raise ProjectionInvalid(pointer, f"a path of at most {MAX_PATH_CHARS} characters was expected")
    # The whole of it, and so each name: a mark after an escape would be taken for one on the escape's last letter.
    if not is_normalized("NFC", spelling):
        raise ProjectionInvalid(pointer, "a path is not in Unicode normalisation form C")
    return path


def _parse_steps(text: str, pointer: str) -> Iterator[Step]:
    if not text.startswith("$"):
        raise ProjectionInvalid(pointer, "a path that begins with $ was expected")
    end = len("$")
    while end < len(text):
        match = _STEP.match(text, end)
        if match is None:
            raise ProjectionInvalid(pointer, f"only .name, ['name'] or [*] may stand at character {end + 1}")
        end = match.end()
        yield EACH if match["each"] else _name(match)


def _name(match: re.Match[str]) -> str:
    spelt = match["identifier"] or match["single"] or match["double"] or ""
    return _ANY_ESCAPE.sub(lambda escape: _meaning(escape[0]), spelt)


def _meaning(escape: str) -> str:
    if escape.startswith("\\u"):
        # UTF-16, so that the two halves of a pair become one character.
        return bytes.fromhex(escape.replace("\\u", "")).decode("utf-16-be")
    return _MEANINGS.get(escape[1], escape[1])


def _spell(path: Path) -> str:
    """A path as RFC 9535 §2.7 normalizes it, but for names that are ASCII identifiers, which stand behind a dot."""
    return "".join(["$", *map(_spell_step, path)])


def _spell_step(step: Step) -> str:
    if step is EACH:
        return "[*]"
    return f".{step}" if re.fullmatch(_IDENTIFIER, step) else f"['{step.translate(_ESCAPED)}']"


# --- values -----------------------------------------------------------------------------------------------


class _Nothing(Enum):
    NOTHING = "nothing"


_NOTHING: Final = _Nothing.NOTHING
"""What is selected of a value where nothing is, since null is a value."""


class _Walk:
    """What is selected of one value: the rest of each path that led to it."""

    __slots__ = ("_below", "names", "rests", "whole")

    def __init__(self, rests: frozenset[Path]) -> None:
        self.whole = () in rests
        self.rests: frozenset[Path] = frozenset([()]) if self.whole else rests
        self.names = frozenset(rest[0] for rest in self.rests if rest and isinstance(rest[0], str))
        self._below: dict[Step, _Walk] = {}

    def below(self, step: Step) -> "_Walk":
        """What is selected of the member of that name; with EACH, of every item, and of any other member."""
        if self.whole:
            return self
        known = step if step in self.names else EACH
        if known not in self._below:
            # Kept, since a thousand items are all walked alike.
            self._below[known] = _Walk(frozenset(rest[1:] for rest in self.rests if rest[0] in {known, EACH}))
        return self._below[known]


_WHOLE: Final = _Walk(frozenset([()]))


def project(projection: Projection, value: JsonValue) -> JsonValue:
    """What is selected of a value, in the shape and order that it has there.

    Members and items of which nothing is selected are left out, so that an item may move up. Of an empty array
    or object `[*]` selects all there is: it stays, empty. Where nothing at all is selected, the empty array or
    object is left of an array or object, and null of anything else.

    Recursion goes as deep as the paths, never as deep as the value.
    """
    selected = _selected(value, _Walk(frozenset(projection.paths)))
    if selected is not _NOTHING:
        return selected
    return type(value)() if isinstance(value, dict | list) else None


def _selected(value: JsonValue, walk: _Walk) -> "JsonValue | _Nothing":
    if walk.whole:
        return value
    if walk.rests and isinstance(value, dict):
        return _selected_members(value, walk)
    if walk.rests and isinstance(value, list):
        return _selected_items(value, walk.below(EACH))
    return _NOTHING


def _selected_members(members: JsonObject, walk: _Walk) -> JsonObject | _Nothing:
    parts = ((name, _selected(member, walk.below(name))) for name, member in members.items())
    kept = {name: part for name, part in parts if part is not _NOTHING}
    return kept if kept or _is_all(members, walk.below(EACH)) else _NOTHING


def _selected_items(items: list[JsonValue], each: _Walk) -> list[JsonValue] | _Nothing:
    if not each.rests:
        return _NOTHING
    kept = [part for part in (_selected(item, each) for item in items) if part is not _NOTHING]
    return kept if kept or _is_all(items, each) else _NOTHING


def _is_all(container: JsonObject | list[JsonValue], each: _Walk) -> bool:
    return not container and bool(each.rests)


# --- results ----------------------------------------------------------------------------------------------


def project_result(projection: Projection, result: JsonValue, *, is_mcp: bool, is_error: bool) -> JsonValue:
    """What an agent may see of a tool's result; of an error it sees that there was one.

    Of plain HTTP the result is the JSON body, and `{"withheld": ...}` stands for an error. Of MCP it is a
    CallToolResult: paths lead into its `structuredContent`, a text repeats what is left of that, and everything
    else is withheld. That it is an error may then also be said by the result itself.
    """
    if is_mcp:
        return _project_tool_result(projection, result if isinstance(result, dict) else {}, is_error=is_error)
    return {"withheld": ERROR_WITHHELD} if is_error else project(projection, result)


def _project_tool_result(projection: Projection, result: JsonObject, *, is_error: bool) -> JsonObject:
    # Whatever is not plainly no error is one.
    if is_error or result.get("isError", False) is not False:
        return {"content": _text(ERROR_WITHHELD), "isError": True}
    kept: JsonObject = {"isError": False} if "isError" in result else {}
    structure = result.get("structuredContent")
    if not isinstance(structure, dict):
        return {"content": _text(NO_STRUCTURE), **kept}
    selected = project(projection, structure)
    return {"content": _text(canonical(selected).decode()), "structuredContent": selected, **kept}


def _text(text: str) -> JsonValue:
    return [{"type": "text", "text": text}]


# --- schemas ----------------------------------------------------------------------------------------------


def project_schema(projection: Projection, schema: JsonObject) -> JsonObject:
    """The JSON Schema of what is left of the values of a schema: never tighter than that, though it may be looser.

    What is selected as a whole keeps its schema. On the way there titles, descriptions and structure stay, and
    what is not selected leaves no trace. References are followed inside the document and named anew. A schema
    that can't be followed, or not within the limits, becomes its mere type.
    """
    walk = _Walk(frozenset(projection.paths))
    outline = _Outline(schema)
    try:
        return schema if walk.whole else outline.drawn(walk)
    except (OutOfSteps, _NotFollowed):
        return outline.mere_type(schema)


class _NotFollowed(Exception):
    """What is selected as a whole has a reference that leads out of the document, or to nothing in it."""


class _Fate(Enum):
    """How much of the values of a schema is selected from. Of a schema without values, all of it is true."""

    NEVER = "of none"
    MAYBE = "of some"
    ALWAYS = "of all"


_NEVER: Final = frozenset({_Fate.NEVER})
_ALWAYS: Final = frozenset({_Fate.ALWAYS})

_SCALARS: Final = frozenset({"null", "boolean", "number", "integer", "string"})
_CONTAINERS: Final = frozenset({"array", "object"})

_NOTES: Final = ("title", "description")
_STAYS: Final = (*_NOTES, "maxItems")
"""What is as true of what is left of a value as of the value itself. The notes are the tool's own words."""

_ALTERNATIVES: Final = ("oneOf", "anyOf")
"""Of different values the same may be left, so that of either anyOf is left; of both, the second's."""

_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_HOLDS_SCHEMAS: Final = frozenset(
    {
        "additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "else", "if",
        "items", "not", "oneOf", "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
_FOR_REFERENCES: Final = frozenset(
    {
        "$anchor", "$comment", "$defs", "$dynamicAnchor", "$id", "$recursiveAnchor", "$schema", "$vocabulary",
        "definitions",
    }
)  # fmt: skip
"""What a copy of a schema is without: it is named anew, and so is what it refers to."""

_ONLY_LOCALLY: Final = frozenset({"$dynamicRef", "$recursiveRef"})

_LONE_REFERENCES: Final = "http://json-schema.org/draft-0"
"""How the names of those dialects begin in which nothing beside a `$ref` counts."""


class _Outline:
    """What is drawn of a schema while it is walked through as its values would be.

    Two ways: `_fate` finds out whether anything of a value is selected, `_left` draws what is left of it.
    """

    def __init__(self, document: JsonObject) -> None:
        self._document = document
        self._lone_references = str(document.get("$schema")).startswith(_LONE_REFERENCES)
        self._steps = Steps(left=MAX_SUBSCHEMAS)
        self._depth = 0
        self._fates: dict[tuple[int, frozenset[Path]], _Fate] = {}
        self._names: dict[tuple[str, frozenset[Path]], str] = {}
        self._pending: list[tuple[str, JsonValue, _Walk]] = []

    def drawn(self, walk: _Walk) -> JsonObject:
        dialect = {keyword: self._document[keyword] for keyword in ("$schema",) if keyword in self._document}
        drawn = self._partly(self._document, walk)
        # Drawing one may add others at the end of the list.
        definitions = {name: self._left(target, walk_there) for name, target, walk_there in self._pending}
        return dialect | drawn | ({"$defs": definitions} if definitions else {})

    def mere_type(self, schema: JsonObject) -> JsonObject:
        """What is left of arrays and objects is one, and of anything else, if it is anything, null."""
        types = _types(self._effective(schema))
        left = [name for name in types if name in _CONTAINERS] + ["null"] * any(name in _SCALARS for name in types)
        return {"type": left[0] if len(left) == 1 else [*left]} if left else {}

    def _effective(self, schema: JsonObject) -> JsonObject:
        if self._lone_references and "$ref" in schema:
            return {keyword: schema[keyword] for keyword in ("$ref", *_NOTES) if keyword in schema}
        return schema

    def _target(self, schema: JsonObject) -> JsonValue:
        """What a reference leads to: true, false or an object, or None."""
        reference = schema.get("$ref")
        if not isinstance(reference, str) or reference[:2] not in {"#", "#/"}:
            return None
        target = resolve_pointer(self._document, unquote(reference[1:]))
        return target if isinstance(target, bool | dict) else None

    @contextmanager
    def _inside(self) -> Iterator[None]:
        self._steps.take()
        self._depth += 1
        if self._depth > MAX_SCHEMA_DEPTH:
            raise OutOfSteps
        yield
        self._depth -= 1

    # --- whether anything is selected

    def _fate(self, schema: JsonValue, walk: _Walk) -> _Fate:
        if walk.whole or not walk.rests:
            return _Fate.ALWAYS if walk.whole else _Fate.NEVER
        if not isinstance(schema, dict):
            return _Fate.MAYBE
        place = id(schema), walk.rests
        if place not in self._fates:
            # While it is being found out, whatever leads back here is told what is always true.
            self._fates[place] = _Fate.MAYBE
            with self._inside():
                self._fates[place] = self._fate_of_all(self._effective(schema), walk)
        return self._fates[place]

    def _fate_of_all(self, schema: JsonObject, walk: _Walk) -> _Fate:
        """The fate of what is valid under every keyword: what one of them rules out is out."""
        fates = {self._fate_by_type(schema, walk), self._fate(self._target(schema), walk)}
        fates.update(self._fate(part, walk) for part in _listed(schema, "allOf"))
        fates.update(
            _of_either(self._fate(part, walk) for part in _listed(schema, keyword)) for keyword in _ALTERNATIVES
        )
        return next((fate for fate in (_Fate.NEVER, _Fate.ALWAYS) if fate in fates), _Fate.MAYBE)

    def _fate_by_type(self, schema: JsonObject, walk: _Walk) -> _Fate:
        by_type = {"object": self._fate_of_object, "array": self._fate_of_array}
        return _of_either(by_type[name](schema, walk) if name in by_type else _Fate.NEVER for name in _types(schema))

    def _fate_of_object(self, schema: JsonObject, walk: _Walk) -> _Fate:
        if any(self._is_certain(schema, name, walk) for name in _required(schema)):
            return _Fate.ALWAYS
        each, rest = walk.below(EACH), _rest(schema)
        parts = [
            (_member(schema, name), walk.below(name))
            for name in {**_properties(schema), **dict.fromkeys(sorted(walk.names))}
        ]
        fates = {self._fate(part, below) for part, below in [*parts, (rest, each)] if part is not False}
        if each.rests:
            return _Fate.ALWAYS if fates <= _ALWAYS else _Fate.MAYBE
        return _Fate.NEVER if fates <= _NEVER else _Fate.MAYBE

    def _is_certain(self, schema: JsonObject, name: str, walk: _Walk) -> bool:
        return self._fate(_member(schema, name), walk.below(name)) is _Fate.ALWAYS

    def _fate_of_array(self, schema: JsonObject, walk: _Walk) -> _Fate:
        each = walk.below(EACH)
        if not each.rests:
            return _Fate.NEVER
        items = True if "prefixItems" in schema else schema.get("items")
        return _Fate.ALWAYS if self._fate(items, each) is _Fate.ALWAYS else _Fate.MAYBE

    # --- what is left

    def _left(self, schema: JsonValue, walk: _Walk) -> JsonValue:
        if not isinstance(schema, dict):
            return schema is not False
        return self._copied(schema) if walk.whole else self._partly(schema, walk)

    def _left_if_any(self, schema: JsonValue, walk: _Walk) -> JsonValue:
        return self._fate(schema, walk) is not _Fate.NEVER and self._left(schema, walk)

    def _partly(self, schema: JsonObject, walk: _Walk) -> JsonObject:
        if self._fate(schema, walk) is _Fate.NEVER:
            return self.mere_type(schema)
        effective = self._effective(schema)
        with self._inside():
            return {
                **{keyword: effective[keyword] for keyword in _STAYS if keyword in effective},
                **self.mere_type(effective),
                **self._members_left(effective, walk),
                **self._items_left(effective, walk.below(EACH)),
                **self._combined(effective, walk),
                **self._referred(effective, walk),
            }

    def _members_left(self, schema: JsonObject, walk: _Walk) -> JsonObject:
        each, rest = walk.below(EACH), _rest(schema)
        # The schema of the rest is drawn for what `[*]` selects; of a name in a path more may be left.
        undeclared = sorted(walk.names - _properties(schema).keys()) if isinstance(rest, dict) else []
        left = {
            name: self._left_if_any(_member(schema, name), walk.below(name))
            for name in [*_properties(schema), *undeclared]
        }
        left = {name: part for name, part in left.items() if part is not False}
        required = [name for name in _required(schema) if self._is_certain(schema, name, walk)]
        members: JsonObject = {"properties": left, "required": [*required]}
        if rest is False or (isinstance(rest, dict) and each.rests):
            members["additionalProperties"] = self._left_if_any(rest, each)
        return {keyword: value for keyword, value in members.items() if value not in ({}, [])}

    def _items_left(self, schema: JsonObject, each: _Walk) -> JsonObject:
        items = schema.get("items")
        # Behind a prefix items are known by their places, and these change when one is left out.
        if not isinstance(items, dict) or "prefixItems" in schema or not each.rests:
            return {}
        return {"items": self._left_if_any(items, each)}

    def _combined(self, schema: JsonObject, walk: _Walk) -> JsonObject:
        left = {
            keyword: [self._left(part, walk) for part in _listed(schema, keyword)]
            for keyword in ("allOf", *_ALTERNATIVES)
        }
        combined: JsonObject = {"allOf": left["allOf"], "anyOf": left["anyOf"] or left["oneOf"]}
        return {keyword: parts for keyword, parts in combined.items() if parts}

    def _referred(self, schema: JsonObject, walk: _Walk) -> JsonObject:
        target = self._target(schema)
        return {} if target is None else {"$ref": self._reference(schema, target, walk)}

    # --- what is selected as a whole

    def _copied(self, schema: JsonValue) -> JsonValue:
        if not isinstance(schema, dict):
            return schema
        if _ONLY_LOCALLY & schema.keys() or ("$id" in schema and schema is not self._document):
            raise _NotFollowed
        with self._inside():
            return {
                keyword: self._copied_value(keyword, value, schema)
                for keyword, value in schema.items()
                if keyword not in _FOR_REFERENCES
            }

    def _copied_value(self, keyword: str, value: JsonValue, schema: JsonObject) -> JsonValue:
        if keyword == "$ref":
            target = self._target(schema)
            if target is None:
                raise _NotFollowed  # it can't be left out: under a `not`, say, that would be tighter
            return self._reference(schema, target, _WHOLE)
        if keyword in _BY_NAME and isinstance(value, dict):
            return {name: self._copied(part) for name, part in value.items()}
        if keyword in _HOLDS_SCHEMAS:
            return [self._copied(part) for part in value] if isinstance(value, list) else self._copied(value)
        return value

    def _reference(self, schema: JsonObject, target: JsonValue, walk: _Walk) -> str:
        """The new name of what is left of a reference's target, which is drawn later, once."""
        place = str(schema["$ref"]), walk.rests
        if place not in self._names:
            # Numbered: the old name may be that of a member which is not selected.
            self._names[place] = str(len(self._names) + 1)
            self._pending.append((self._names[place], target, walk))
        return f"#/$defs/{self._names[place]}"


def _of_either(fates: Iterable[_Fate]) -> _Fate:
    """The fate of what is valid in one way or another: what they agree on."""
    different = {*fates}
    return different.pop() if len(different) == 1 else _Fate.MAYBE


def _types(schema: JsonObject) -> list[str]:
    """The types that `type` allows; none where it allows all, or is not understood."""
    spelt = schema.get("type")
    names = spelt if isinstance(spelt, list) else [spelt]
    known = [name for name in names if isinstance(name, str) and name in _SCALARS | _CONTAINERS]
    return known if len(known) == len(names) else []


def _properties(schema: JsonObject) -> JsonObject:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _rest(schema: JsonObject) -> JsonValue:
    """The schema of members that `properties` does not name: true where nothing, or nothing certain, is said."""
    return True if schema.get("patternProperties") else schema.get("additionalProperties", True)


def _member(schema: JsonObject, name: str) -> JsonValue:
    properties = _properties(schema)
    return properties[name] if name in properties else _rest(schema)


def _required(schema: JsonObject) -> list[str]:
    return [name for name in _listed(schema, "required") if isinstance(name, str)]


def _listed(schema: JsonObject, keyword: str) -> list[JsonValue]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []
