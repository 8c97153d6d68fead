"""What a thing on record may be called and described with, whoever wrote the record.

Knows spellings and limits. Whose a thing is, and whether there is one, is not known here.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeGuard
from unicodedata import is_normalized

from app.core.resources import ResourceRef
from app.core.strict_json import JsonScalar, JsonValue, point

TYPE_PATTERN: Final = "[a-z][a-z0-9_-]{0,63}"
ATTRIBUTE_PATTERN: Final = "[A-Za-z][A-Za-z0-9_.-]{0,63}"

MAX_ID_CHARS: Final = 200
MAX_ATTRIBUTES: Final = 32
MAX_TEXT_CHARS: Final = 1000

_TYPE: Final = re.compile(TYPE_PATTERN)
_ATTRIBUTE: Final = re.compile(ATTRIBUTE_PATTERN)

_REPLACEMENT: Final = "\ufffd"
"""What decoders leave of bytes that were no text: two ids that differed may have become one."""


def flaws(ref: ResourceRef, attributes: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """Pointers (RFC 6901) to what can't be so in a thing's document, each with why."""
    if (flaw := type_flaw(ref.type)) is not None:
        yield "/type", flaw
    if (flaw := id_flaw(ref.id)) is not None:
        yield "/id", flaw
    if (found := attributes_flaw(attributes)) is not None:
        yield f"/attributes{found[0]}", found[1]


def type_flaw(type_: str) -> str | None:
    """What is wrong with the type of a thing."""
    return None if _TYPE.fullmatch(type_) else "must be 1 to 64 of a-z, 0-9, '_' and '-', a letter first"


def id_flaw(id_: str) -> str | None:
    """What is wrong with the id of a thing. One id has one spelling, and shows whole wherever it is shown."""
    if not 1 <= len(id_) <= MAX_ID_CHARS:
        return f"must have 1 to {MAX_ID_CHARS} characters"
    if not id_.isprintable() or _REPLACEMENT in id_:
        return "must be printable text"
    return None if is_normalized("NFC", id_) else "must be in Unicode's normal form NFC"


def attributes_flaw(attributes: Mapping[str, JsonValue]) -> tuple[str, str] | None:
    """A pointer (RFC 6901) to the attribute that can't be one, and why."""
    if len(attributes) > MAX_ATTRIBUTES:
        return "", f"must be at most {MAX_ATTRIBUTES} attributes"
    for name, value in attributes.items():
        if not _ATTRIBUTE.fullmatch(name):
            return point("", name), "must be named with 1 to 64 letters, digits, '_', '.' and '-', a letter first"
        if (flaw := _value_flaw(value)) is not None:
            return point("", name), flaw
    return None


def is_scalar(value: JsonValue) -> TypeGuard[JsonScalar]:
    """Whether a JSON value is a string, a number, a boolean or null."""
    return value is None or isinstance(value, str | int | float)


def _value_flaw(value: JsonValue) -> str | None:
    if not is_scalar(value):
        return "must be a string, a number, a boolean or null"
    if not isinstance(value, str):
        return None
    if len(value) > MAX_TEXT_CHARS:
        return f"must have at most {MAX_TEXT_CHARS} characters"
    return None if is_normalized("NFC", value) else "must be in Unicode's normal form NFC"
