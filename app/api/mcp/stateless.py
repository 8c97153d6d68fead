"""MCP 2026-07-28: every request says all there is to know about it, in its body and again in its header fields.

Knows which fields repeat which members, since whoever stands between may have believed the fields. There are no
sessions; a request is understood from itself alone.

https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
"""

import base64
import re
from http import HTTPStatus
from typing import Final

from fastapi import Response

from app.api.mcp.exchange import (
    CAPABILITIES,
    INSTRUCTIONS,
    REVISIONS,
    STATELESS_REVISION,
    VERSION_FIELD,
    Exchange,
    Methods,
    unsupported_version,
)
from app.api.mcp.messages import Code, Fault, Message, acknowledged, answered
from app.api.mcp.tools import call_tool, page_of_tools
from app.core.strict_json import JsonObject, JsonValue

METHOD_FIELD: Final = "Mcp-Method"
NAME_FIELD: Final = "Mcp-Name"

VERSION_META: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_META: Final = "io.modelcontextprotocol/clientCapabilities"
SERVER_META: Final = "io.modelcontextprotocol/serverInfo"

FRESH_MILLISECONDS: Final = 60_000
"""How long a list may be shown again without asking. It shows only; each call is decided anew."""

_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods whose target `Mcp-Name` repeats, and the member that holds it."""

_FIELD_TEXT: Final = re.compile(r"[\x20-\x7e\t]*")
_ENCODED: Final = re.compile(r"=\?base64\?(.*)\?=")


def is_stateless(exchange: Exchange) -> bool:
    """Whether a message is of this revision, as its header or its `_meta` says; what is neither is no session's."""
    return STATELESS_REVISION in exchange.headers.getlist(VERSION_FIELD) or VERSION_META in exchange.message.meta


async def answer(exchange: Exchange) -> Response:
    """The answer to one message. Raises Fault."""
    message = exchange.message
    if message.id is None:
        return acknowledged(message)
    _check(exchange)
    result = await METHODS.get(message.method, _no_method)(exchange)
    named: JsonValue = result.get("_meta", {})
    assert isinstance(named, dict), "our own results have a well-formed `_meta`"
    meta: JsonObject = {SERVER_META: exchange.server_info, **named}
    return answered(message.id, {"resultType": "complete", **result, "_meta": meta})


def _check(exchange: Exchange) -> None:
    message = exchange.message
    version = message.meta.get(VERSION_META)
    if not isinstance(version, str) or not isinstance(message.meta.get(CAPABILITIES_META), dict):
        raise Fault(Code.INVALID_PARAMS, f"_meta must have {VERSION_META} and {CAPABILITIES_META}")
    _check_field(exchange, VERSION_FIELD, version)
    _check_field(exchange, METHOD_FIELD, message.method)
    name = _name(message)
    if name is not None:
        _check_field(exchange, NAME_FIELD, name, may_be_encoded=True)
    if version != STATELESS_REVISION:
        raise unsupported_version(version)


def _name(message: Message) -> str | None:
    """What `Mcp-Name` has to repeat. A name that is no string is the method's to refuse."""
    name = message.params.get(_NAMED.get(message.method, ""))
    return name if isinstance(name, str) else None


def _check_field(exchange: Exchange, field: str, expected: str, *, may_be_encoded: bool = False) -> None:
    given = exchange.headers.getlist(field)
    # Given twice, somebody else might have read the other one.
    is_clean = len(given) == 1 and _FIELD_TEXT.fullmatch(given[0]) is not None
    if not is_clean or (decoded(given[0]) if may_be_encoded else given[0]) != expected:
        raise Fault(Code.HEADER_MISMATCH, f"the header field {field} is not what the body says")


def decoded(value: str) -> str | None:
    """A field's value, out of the form `=?base64?…?=` where it has that; None where there is nothing inside."""
    encoded = _ENCODED.fullmatch(value)
    if encoded is None:
        return value
    try:
        return base64.b64decode(encoded[1], validate=True).decode()
    except ValueError:
        return None


# --- methods ----------------------------------------------------------------------------------------------


async def _discover(_: Exchange) -> JsonObject:
    supported: JsonObject = {"supportedVersions": [*REVISIONS], "capabilities": CAPABILITIES}
    return _cached(supported | {"instructions": INSTRUCTIONS})


async def _list_tools(exchange: Exchange) -> JsonObject:
    return _cached(await page_of_tools(exchange))


def _cached(result: JsonObject) -> JsonObject:
    # Never to be shown to the holder of another token: what is listed follows the grant.
    return {**result, "ttlMs": FRESH_MILLISECONDS, "cacheScope": "private"}


async def _no_method(_: Exchange) -> JsonObject:
    raise Fault(Code.METHOD_NOT_FOUND, "there is no such method", status=HTTPStatus.NOT_FOUND)


METHODS: Final[Methods] = {"server/discover": _discover, "tools/list": _list_tools, "tools/call": call_tool}
