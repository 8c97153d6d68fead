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

from app.api.mcp.calls import answer_call, log_level_of
from app.api.mcp.exchange import (
    CAPABILITIES,
    CAPABILITIES_META,
    INSTRUCTIONS,
    REVISIONS,
    STATELESS_REVISION,
    VERSION_FIELD,
    VERSION_META,
    Exchange,
    Methods,
    unsupported_version,
)
from app.api.mcp.messages import Code, Fault, Message, acknowledged, answered
from app.api.mcp.tools import CALL, page_of_tools
from app.core.strict_json import JsonObject, JsonValue

METHOD_FIELD: Final = "Mcp-Method"
NAME_FIELD: Final = "Mcp-Name"

LOG_LEVEL_META: Final = "io.modelcontextprotocol/logLevel"
SERVER_META: Final = "io.modelcontextprotocol/serverInfo"

FRESH_MILLISECONDS: Final = 60_000
"""How long a list may be shown again without asking. It shows only; each call is decided anew."""

_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods whose target `Mcp-Name` repeats, and the member that holds it."""

_FIELD_TEXT: Final = re.compile(r"[\x20-\x7e\t]*")
_ENCODED: Final = re.compile(r"=\?base64\?(.*)\?=")


async def answer(exchange: Exchange) -> Response:
    """The answer to one message. Raises Fault."""
    message = exchange.message
    if message.id is None:
        # Not even one that cancels: in this revision a client lets its connection go.
        return acknowledged(message)
    _check(exchange)

    def complete(result: JsonObject) -> JsonObject:
        named: JsonValue = result.get("_meta", {})
        assert isinstance(named, dict), "our own results have a well-formed `_meta`"
        meta: JsonObject = {SERVER_META: exchange.server_info, **named}
        return {"resultType": "complete", **result, "_meta": meta}

    if message.method == CALL:
        log_level = log_level_of(message.meta.get(LOG_LEVEL_META))
        return await answer_call(exchange, complete, log_level=log_level, is_tied=True)
    return answered(message.id, complete(await METHODS.get(message.method, _no_method)(exchange)))


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
    # What stands around a value is none of it (RFC 9110 §5.5), and not every server takes it away.
    given = [value.strip(" \t") for value in exchange.headers.getlist(field)]
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
    # Messages of tools are handed on to whoever asks for them with a call.
    capabilities: JsonObject = {**CAPABILITIES, "logging": {}}
    supported: JsonObject = {"supportedVersions": [*REVISIONS], "capabilities": capabilities}
    return _cached(supported | {"instructions": INSTRUCTIONS})


async def _list_tools(exchange: Exchange) -> JsonObject:
    return _cached(await page_of_tools(exchange))


def _cached(result: JsonObject) -> JsonObject:
    # Never to be shown to the holder of another token: what is listed follows the grant.
    return {**result, "ttlMs": FRESH_MILLISECONDS, "cacheScope": "private"}


async def _no_method(_: Exchange) -> JsonObject:
    raise Fault(Code.METHOD_NOT_FOUND, "there is no such method", status=HTTPStatus.NOT_FOUND)


METHODS: Final[Methods] = {"server/discover": _discover, "tools/list": _list_tools}
"""Beside `tools/call`, which alone takes its time."""
