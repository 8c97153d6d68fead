"""Which MCP sessions are open, so that a run's next call needs no new one.

Knows keys, ages and a limit; what a session is, and how it is opened and ended, is its user's affair. A key
holds the run and the credential's identity: no two runs and no two credentials ever share a session.
"""

import asyncio
import time
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Final, Generic, TypeVar

from app.core.strict_json import JsonObject, canonical, parse

IDLE_SECONDS: Final = 600.0
"""A run that has not called for so long has ended, or can afford a new session."""

_LOOKED_AT: Final = 8
"""How many of the oldest are looked at when a new one comes: more than one, so that idle ones die out."""

_MAX_TOKEN_BYTES: Final = 16_384
_MAX_TOKEN_DEPTH: Final = 64
_TOKEN_SEGMENTS: Final = 3
_PRINCIPAL: Final = ("iss", "aud", "sub", "client_id")
"""The claims by which MCP servers tell whose a session is; the others are one call's, or one signature's."""

T = TypeVar("T")


class Slot(Generic[T]):
    """The place of one session. `lock` is held while it is opened; `users` are the calls that count on it."""

    def __init__(self) -> None:
        self.session: T | None = None
        self.lock = asyncio.Lock()
        self.users = 0
        self.used_at = time.monotonic()

    def forget(self, session: T) -> None:
        """Drop a session that turned out to be useless, unless another call has replaced it already."""
        if self.session is session:
            self.session = None


class Sessions(Generic[T]):
    """The least recently used go first, and none while it is in use."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._slots: OrderedDict[Hashable, Slot[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slots)

    @contextmanager
    def use(self, key: Hashable) -> Iterator[Slot[T]]:
        slot = self._slots.get(key) or self._slots.setdefault(key, Slot())
        self._slots.move_to_end(key)
        slot.users += 1
        try:
            yield slot
        finally:
            slot.users -= 1
            slot.used_at = time.monotonic()
            # Without a session it is worth nothing. After `take_all` the place may be another's.
            if slot.users == 0 and slot.session is None and self._slots.get(key) is slot:
                del self._slots[key]

    def take_surplus(self) -> list[T]:
        """Remove what is beyond the limit or was idle for too long; the sessions that are now to be ended."""
        oldest = list(islice(self._slots.items(), _LOOKED_AT))
        return [session for key, slot in oldest if self._is_surplus(slot) for session in self._remove(key)]

    def take_all(self) -> list[T]:
        return [session for key in list(self._slots) for session in self._remove(key)]

    def _is_surplus(self, slot: Slot[T]) -> bool:
        is_idle = slot.used_at < time.monotonic() - IDLE_SECONDS
        return slot.users == 0 and (is_idle or len(self._slots) > self._limit)

    def _remove(self, key: Hashable) -> list[T]:
        session = self._slots.pop(key).session
        return [] if session is None else [session]


def credential_identity(headers: Mapping[str, str]) -> Hashable:
    """What tells one credential from another: its fields; of a JWT, made anew for each call, the principal."""
    return frozenset((name.lower(), _principal(value) or value) for name, value in headers.items())


def _principal(value: str) -> bytes | None:
    scheme, _, token = value.partition(" ")
    segments = token.split(".")
    if scheme.lower() != "bearer" or len(segments) != _TOKEN_SEGMENTS:
        return None
    try:
        raw = urlsafe_b64decode(segments[1] + "===")
        claims = parse(raw, max_bytes=_MAX_TOKEN_BYTES, max_depth=_MAX_TOKEN_DEPTH)
    except ValueError:  # neither base64 nor JSON: whatever it is, it is no JWT
        return None
    members = claims if isinstance(claims, dict) else {}
    named: JsonObject = {name: members[name] for name in _PRINCIPAL if name in members}
    return canonical(named) if named else None
