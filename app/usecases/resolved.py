"""What tool servers said of their things a moment ago, so that one is not asked again and again. Bounded."""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from app.core.grant import TenantId
from app.core.resources import Attributes, ResourceRef

MAX_REMEMBERED = 10_000

Key = tuple[TenantId, str, ResourceRef]
"""Whose thing, as which resolver (its URL) has it."""


class Entry(NamedTuple):
    """An answer and when it was given; `attributes` is None for a thing that is not on record there."""

    attributes: Attributes | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Resolved:
    """The last answers, the oldest forgotten first."""

    _entries: OrderedDict[Key, Entry]

    @classmethod
    def nothing(cls) -> "Resolved":
        return cls(OrderedDict())

    def get(self, key: Key, now: datetime, seconds: float) -> Entry | None:
        """The answer, if it is no older than that."""
        entry = self._entries.get(key)
        return entry if entry is not None and now < entry.at + timedelta(seconds=seconds) else None

    def put(self, key: Key, attributes: Attributes | None, now: datetime) -> None:
        """Keep an answer for a while."""
        self._entries.pop(key, None)
        self._entries[key] = Entry(attributes, now)
        if len(self._entries) > MAX_REMEMBERED:
            self._entries.popitem(last=False)
