"""What a tool server says of a tool, the digest by which that is pinned, and where two definitions differ.

A model acts by what it is told of a tool, so whoever changes that may change what is done though no grant changed.
Knows neither who asked nor when; what a server says beside this (a title, annotations, icons, `_meta`) is shown to
nobody, and so is no part of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from itertools import islice
from typing import Final

from app.core.grant import ToolName
from app.core.strict_json import JsonObject, JsonValue, canonical, point

MAX_DIFFERENCES: Final = 200
"""How many are told: whoever changes more has made another tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A tool as it is described: what it does, what it takes and what it answers."""

    description: str
    input_schema: JsonObject
    output_schema: JsonObject | None

    @property
    def document(self) -> JsonObject:
        """The definition as MCP spells it, without the tool's name."""
        return {
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
        }

    def digest(self, name: ToolName) -> str:
        """SHA-256, in hex, over the RFC 8785 form of `{"name", "description", "inputSchema", "outputSchema"}`.

        A description that is left out is `""`, an output schema that is left out is null. Unkeyed, so that anybody
        can compute it from what the tool server lists.
        """
        return sha256(canonical({"name": name, **self.document})).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDefinition:
    """What a tool server offered otherwise than pinned, until an administrator accepts it.

    One that no call could be made from, or that can't be shown to anybody, has only its digest and its `flaw`.
    """

    digest: str
    seen_at: datetime
    definition: Definition | None
    flaw: str | None = None

    def __post_init__(self) -> None:
        assert (self.definition is None) != (self.flaw is None), "a definition can be shown, or has a flaw"


class DifferenceKind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One place in which two definitions differ (RFC 6901); what is not there on one side is None."""

    kind: DifferenceKind
    pointer: str
    before: JsonValue
    after: JsonValue


def differences(before: Definition, after: Definition) -> tuple[Difference, ...]:
    """Where two definitions differ, in the order of the first, at most `MAX_DIFFERENCES`; none for equal digests."""
    return tuple(islice(_between(before.document, after.document, ""), MAX_DIFFERENCES))


def _between(before: JsonValue, after: JsonValue, pointer: str) -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _between_members(before, after, pointer)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _between_members(_by_index(before), _by_index(after), pointer)
    # To Python `true` equals 1, to a schema it does not.
    elif canonical(before) != canonical(after):
        yield Difference(kind=DifferenceKind.CHANGED, pointer=pointer, before=before, after=after)


def _between_members(before: JsonObject, after: JsonObject, pointer: str) -> Iterator[Difference]:
    for name, value in before.items():
        place = point(pointer, name)
        if name in after:
            yield from _between(value, after[name], place)
        else:
            yield Difference(kind=DifferenceKind.REMOVED, pointer=place, before=value, after=None)
    for name, value in after.items():
        if name not in before:
            yield Difference(kind=DifferenceKind.ADDED, pointer=point(pointer, name), before=None, after=value)


def _by_index(items: list[JsonValue]) -> JsonObject:
    return {str(index): item for index, item in enumerate(items)}
