"""Key sets of other issuers, fetched when they are needed and kept for a while.

Knows how old a set may become, and how seldom its server is asked: whoever forges names of keys, or takes the
server down, makes no traffic by it. Refuses to know how bytes travel, and what is verified with the keys.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.adapters.outside_tokens.key_sets import KeyFlawError, KeySet, Wanted, published_keys
from app.ports import FetchKeys, UpstreamFailed

log = logging.getLogger("subgrant")

MAX_SETS: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """How old key sets may become, in seconds."""

    least: float = 10.0
    """How long a server is left alone once it was asked, whatever it answered and whoever asks."""
    usual: float = 300.0
    """How long a set is taken for what its server would say, where that gives no time."""
    most: float = 3600.0
    """The same, whatever time it gives: what it took back counts no longer than this."""
    last_good: float = 14_400.0
    """How long the last set that was had counts while its server gives no other."""


class _Entry:
    """One URL: what was had from it last, and when it may be asked again."""

    def __init__(self) -> None:
        self.keys: KeySet | None = None
        self.fresh_until = float("-inf")
        self.good_until = float("-inf")
        self.ask_from = float("-inf")
        self.asking: asyncio.Task[None] | None = None

    def has(self, wanted: Wanted, now: float) -> bool:
        return self.keys is not None and now < self.fresh_until and self.keys.find(wanted) is not None

    def current(self, now: float) -> KeySet | None:
        return self.keys if now < self.good_until else None


class PublishedKeySets:
    """For one process and one event loop. `seconds` is a clock that only ever goes forward."""

    def __init__(self, *, fetch: FetchKeys, ages: Ages, seconds: Callable[[], float]) -> None:
        self._fetch = fetch
        self._ages = ages
        self._seconds = seconds
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    async def keys(self, uri: str, wanted: Wanted) -> KeySet | None:
        """The set at this URL, asked for again where it has no such key or is old; None where none can be had."""
        entry = self._entry(uri)
        if not entry.has(wanted, self._seconds()):
            await self._asked(uri, entry)
        return entry.current(self._seconds())

    def _entry(self, uri: str) -> _Entry:
        entry = self._entries.setdefault(uri, _Entry())
        self._entries.move_to_end(uri)
        if len(self._entries) > MAX_SETS:
            self._entries.popitem(last=False)
        return entry

    async def _asked(self, uri: str, entry: _Entry) -> None:
        """Wait for the answer that is under way, or ask if it is time."""
        if entry.asking is None:
            if self._seconds() < entry.ask_from:
                return
            entry.ask_from = self._seconds() + self._ages.least
            entry.asking = asyncio.create_task(self._ask(uri, entry))
        # Others wait for the same answer: who gives up must not take it from them.
        await asyncio.shield(entry.asking)

    async def _ask(self, uri: str, entry: _Entry) -> None:
        try:
            published = await self._fetch(uri)
            keys = published_keys(published.body)
        except UpstreamFailed as error:
            log.warning("the keys of a trusted issuer can't be had: %s", error)
        except KeyFlawError as error:
            log.warning("the keys of a trusted issuer can't be used: the set %s", error)
        else:
            now, ages = self._seconds(), self._ages
            age = ages.usual if published.max_age_seconds is None else published.max_age_seconds
            entry.keys = keys
            entry.fresh_until = now + min(max(age, ages.least), ages.most)
            entry.good_until = max(entry.fresh_until, now + ages.last_good)
        finally:
            entry.asking = None
