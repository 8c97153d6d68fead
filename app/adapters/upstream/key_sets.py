"""Fetches key sets that others publish (RFC 7517 §5), under the rules that tool servers are reached by.

Knows which URL may be asked, and how much of an answer is waited for and believed. No redirect is followed and no
credential is sent, and addresses are checked as those of tool servers are. Connections are its own, so that calls
in flight keep no token from being proven. Refuses to know what keys are.
"""

import asyncio
import re
from http import HTTPStatus
from typing import Final

from app.adapters.upstream.addresses import AddressPolicy
from app.adapters.upstream.client import LostError, NotSentError, Reply, UnusableError, UpstreamClient
from app.ports import PublishedKeys, UpstreamFailed

FETCH_SECONDS: Final = 5.0
MAX_BYTES: Final = 262_144
MAX_CONNECTIONS: Final = 64
MAX_CONNECTIONS_PER_SERVER: Final = 2

_HEADERS: Final = {"Accept": "application/jwk-set+json, application/json"}
_MEDIA_TYPES: Final = frozenset({"application/jwk-set+json", "application/json"})
_MAX_AGE: Final = re.compile(r"max-age=(?:([0-9]{1,10})|\"([0-9]{1,10})\")", re.IGNORECASE)
_NOT_KEPT: Final = frozenset({"no-store", "no-cache"})


class KeySetFetcher:
    """`ports.FetchKeys`, for one process and one event loop."""

    def __init__(self, *, addresses: AddressPolicy = "public", seconds: float = FETCH_SECONDS) -> None:
        self._seconds = seconds
        self._client = UpstreamClient(
            addresses=addresses,
            max_connections=MAX_CONNECTIONS,
            max_connections_per_server=MAX_CONNECTIONS_PER_SERVER,
        )

    async def fetch(self, uri: str) -> PublishedKeys:
        try:
            return await self._fetched(uri)
        except (NotSentError, LostError, UnusableError) as error:
            raise UpstreamFailed(error.detail) from error

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _fetched(self, uri: str) -> PublishedKeys:
        url = self._client.endpoint(uri)
        deadline = asyncio.get_running_loop().time() + self._seconds
        async with self._client.exchange(
            "GET", url, headers=_HEADERS, body=None, deadline=deadline, max_bytes=MAX_BYTES
        ) as reply:
            if reply.status != HTTPStatus.OK:
                raise UnusableError(f"the server of the keys answered HTTP {reply.status}")
            if reply.media_type not in _MEDIA_TYPES:
                raise UnusableError("the server of the keys answered with something else")
            return PublishedKeys(body=await reply.read(), max_age_seconds=_max_age(reply))


def _max_age(reply: Reply) -> float | None:
    """How long the answer may be kept (RFC 9111 §5.2.2); None where it doesn't say."""
    directives = [directive.strip() for directive in (reply.field("Cache-Control") or "").split(",")]
    if _NOT_KEPT & {directive.lower() for directive in directives}:
        return 0.0
    ages = [found[1] or found[2] for directive in directives if (found := _MAX_AGE.fullmatch(directive))]
    return float(min(map(int, ages))) if ages else None
