"""Arguments that a tool wants repeated in header fields, as its input schema says with `x-mcp-header`.

Knows which declarations are valid, and how a value is written in a field. Only arguments that were checked get here,
and what would not be plain text in a field is encoded: no value can add a field, or end one.

https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#custom-headers-from-tool-parameters
"""

import base64
import re
from collections.abc import Iterator
from itertools import chain
from typing import Final

from app.core.strict_json import JsonObject, JsonValue

KEYWORD: Final = "x-mcp-header"
PREFIX: Final = "Mcp-Param-"

MAX_FIELD_CHARS: Final = 4096
"""How long a value may be, as it stands in a field: many servers take no more than 8 KiB of fields together."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_PLAIN: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_SENTINEL: Final = re.compile(r"=\?base64\?.*\?=", re.DOTALL)
_TYPES: Final = frozenset({"string", "integer", "boolean"})
_SAFE_INTEGER: Final = 2**53 - 1

Place = tuple[str, ...]
"""The names of the members that lead to an argument."""


class UnusableDeclarationError(Exception):
    """The schema declares what no client may follow, so that its tool must not be used."""


def declared(schema: JsonObject) -> dict[Place, str]:
    """The field of each argument that has one. Raises UnusableDeclarationError."""
    fields = dict(_declarations(schema, ()))
    lower = [name.lower() for name in fields.values()]
    # One that can't be reached by members alone is read by some clients and not by others.
    if len(set(lower)) != len(lower) or len(fields) != _count(schema):
        raise UnusableDeclarationError
    return fields


def header_fields(schema: JsonObject, arguments: JsonObject) -> dict[str, str]:
    """The header fields that go with a call. Raises UnusableDeclarationError."""
    given = ((name, _at(arguments, place)) for place, name in declared(schema).items())
    return {f"{PREFIX}{name}": _written(value) for name, value in given if value is not None}


def encoded(text: str) -> str:
    """A text as it may stand in a field, in base64 where it could be read otherwise."""
    if _PLAIN.fullmatch(text) and not _SENTINEL.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def _declarations(schema: JsonObject, place: Place) -> Iterator[tuple[Place, str]]:
    properties = schema.get("properties")
    for member, part in (properties if isinstance(properties, dict) else {}).items():
        if not isinstance(part, dict):
            continue
        if KEYWORD in part:
            yield (*place, member), _name(part)
        yield from _declarations(part, (*place, member))


def _name(part: JsonObject) -> str:
    name = part[KEYWORD]
    if not isinstance(name, str) or not _TOKEN.fullmatch(name) or part.get("type") not in _TYPES:
        raise UnusableDeclarationError
    return name


def _count(schema: JsonValue, *, names_members: bool = False) -> int:
    """How often the keyword stands anywhere in a schema, but as the name of a member or in a value."""
    if isinstance(schema, list):
        return sum(map(_count, schema))
    if not isinstance(schema, dict):
        return 0
    own = KEYWORD in schema and not names_members
    below = (
        _count(part, names_members=keyword == "properties" and not names_members)
        for keyword, part in schema.items()
        if names_members or keyword not in {"const", "enum", "default", "examples"}
    )
    return sum(chain([int(own)], below))


def _at(arguments: JsonObject, place: Place) -> JsonValue:
    value: JsonValue = arguments
    for member in place:
        value = value.get(member) if isinstance(value, dict) else None
    return value


def _written(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, str | int) or (isinstance(value, int) and abs(value) > _SAFE_INTEGER):
        raise UnusableDeclarationError
    written = encoded(str(value))
    if len(written) > MAX_FIELD_CHARS:
        raise UnusableDeclarationError
    return written
