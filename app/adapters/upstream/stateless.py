"""MCP 2026-07-28: each request says all there is to know about it, in its body and in its header fields.

Knows what a request says of itself, and what an answer of this revision may be. There is nothing to open or to end:
who waits no longer lets the connection go, and that is what tells the server.

https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
"""

import asyncio
from itertools import count
from typing import Final

from app.adapters.upstream.client import LostError, NotSentError, UnusableError, UpstreamClient, with_credential
from app.adapters.upstream.handshake import HEADER_MISMATCH, UNAUTHORISED, UNSUPPORTED_VERSION
from app.adapters.upstream.handshake import REVISIONS as HANDSHAKE_REVISIONS
from app.adapters.upstream.header_arguments import UnusableDeclarationError, encoded, header_fields
from app.adapters.upstream.notices import tell
from app.adapters.upstream.streamable_http import (
    CLIENT_INFO,
    HEADERS,
    Asked,
    Bounds,
    OtherEraError,
    RefusedError,
    StreamableHttp,
)
from app.core.strict_json import JsonObject, JsonValue
from app.ports import Listener, UpstreamRequest

REVISION: Final = "2026-07-28"

PROBE_SECONDS: Final = 5.0
PROBE_SHARE: Final = 0.5
"""The part of the time left that finding out may take: some older servers say nothing to what they don't know."""

_MISSING_CAPABILITY: Final = -32021
_ITS_OWN: Final = frozenset({HEADER_MISMATCH, _MISSING_CAPABILITY})
"""Errors that only servers of this revision know, and that are no objection to the revision itself."""

_OLDER_CODES: Final = frozenset({-32600, *range(-32019, -31999)})
"""Errors with which servers of before refuse what belongs to no session. Of this revision they mean nothing."""

_ELSEWHERE: Final = range(300, 400)
"""Redirects, which are not followed: other words would be sent to the same wrong place."""

_PREFIX: Final = "io.modelcontextprotocol/"


class Stateless:
    def __init__(self, client: UpstreamClient, wire: StreamableHttp) -> None:
        self._client = client
        self._wire = wire
        self._numbers = count(1)

    async def ask(self, request: UpstreamRequest, method: str, params: JsonObject, bounds: Bounds) -> JsonObject:
        """The response message to a request.

        Raises OtherEraError, RefusedError, NotSentError, LostError or UnusableError.
        """
        asked, listener = self._asked(request, method, params), request.listener
        try:
            answered = await self._wire.ask(asked, bounds, lambda heard: tell(listener, heard, asked.number))
        except RefusedError as error:
            return _error_in(error)
        return _complete(answered.message)

    async def is_spoken(self, request: UpstreamRequest, bounds: Bounds) -> bool:
        """Whether a tool server speaks this revision, by asking for what it speaks. Raises NotSentError."""
        try:
            answered = await self._wire.ask(self._asked(request, "server/discover", {}), _for_probe(bounds))
        except RefusedError as error:
            return _says_error(error)
        except (LostError, UnusableError):
            return False  # whatever that was, the handshake will tell
        message = answered.message
        return _says_code(message["error"]) if "error" in message else _says(message.get("result"))

    def _asked(self, request: UpstreamRequest, method: str, params: JsonObject) -> Asked:
        number = next(self._numbers)
        fields = {"MCP-Protocol-Version": REVISION, "Mcp-Method": method, **_call_fields(request, method)}
        return Asked(
            url=self._client.endpoint(request.endpoint),
            headers=with_credential(request.headers, {**HEADERS, **fields}),
            number=number,
            method=method,
            params={**params, "_meta": _meta(number, request.listener)},
        )


def _call_fields(request: UpstreamRequest, method: str) -> dict[str, str]:
    if method != "tools/call":
        return {}
    try:
        repeated = header_fields(request.input_schema, request.arguments)
    except UnusableDeclarationError as error:
        raise NotSentError("the tool's arguments can't be repeated in header fields as its schema wants") from error
    return {"Mcp-Name": encoded(request.tool), **repeated}


def _meta(number: int, listener: Listener | None) -> JsonObject:
    """Nothing of the caller's: neither who it is, nor what it can do, nor its tokens."""
    meta: JsonObject = {
        f"{_PREFIX}protocolVersion": REVISION,
        f"{_PREFIX}clientInfo": CLIENT_INFO,
        f"{_PREFIX}clientCapabilities": {},
    }
    if listener is not None and listener.hears_progress:
        meta["progressToken"] = number
    if listener is not None and listener.log_level is not None:
        meta[f"{_PREFIX}logLevel"] = listener.log_level
    return meta


# --- what a server answers --------------------------------------------------------------------------------


def _complete(message: JsonObject) -> JsonObject:
    """A message whose result is final; one of before this revision does not say so."""
    result = message.get("result")
    kind = result.get("resultType", "complete") if isinstance(result, dict) else "complete"
    if kind == "input_required":
        # Its questions are for a person or a model that are not at its disposal, and are not handed on.
        raise UnusableError("the tool asked for input of its caller's, which is not passed on")
    if kind != "complete":
        raise UnusableError("the tool's answer is of a kind that the gateway does not know")
    return message


def _error_in(error: RefusedError) -> JsonObject:
    """The message in a refusal that has one. Raises OtherEraError where the revision itself is refused."""
    if error.code == UNSUPPORTED_VERSION:
        raise OtherEraError(error.status, error.error) from error
    if error.error is None or error.code in _OLDER_CODES:
        raise error
    return {"error": error.error}


# --- which revision it speaks -----------------------------------------------------------------------------


def _for_probe(bounds: Bounds) -> Bounds:
    now = asyncio.get_running_loop().time()
    seconds = min(PROBE_SECONDS, PROBE_SHARE * (bounds.deadline - now))
    return Bounds(deadline=now + seconds, max_bytes=bounds.max_bytes)


def _says_error(error: RefusedError) -> bool:
    if error.status in UNAUTHORISED or error.status in _ELSEWHERE:
        raise NotSentError(f"the tool server did not say what it speaks: {error.detail}") from error
    return error.error is not None and _says_code(error.error)


def _says_code(error: JsonValue) -> bool:
    members = error if isinstance(error, dict) else {}
    if members.get("code") == UNSUPPORTED_VERSION:
        data = members.get("data")
        return _offers(data.get("supported") if isinstance(data, dict) else None)
    return members.get("code") in _ITS_OWN


def _says(result: JsonValue) -> bool:
    versions = result.get("supportedVersions") if isinstance(result, dict) else None
    # Who answers anything at all to a method that it does not know is of before this revision.
    return isinstance(versions, list) and _offers(versions)


def _offers(versions: JsonValue) -> bool:
    offered = versions if isinstance(versions, list) else []
    if REVISION not in offered and not any(revision in offered for revision in HANDSHAKE_REVISIONS):
        raise NotSentError("the tool server speaks no revision of MCP that the gateway knows")
    return REVISION in offered
