"""MCP 2025-11-25 and 2025-06-18: a client says hello, is given a session, and names it in whatever follows.

A session needs no memory here, and so any worker takes up where another left off: its id says which revision was
agreed on and for which grant, and bears a keyed digest of both. What it may do is its token's to say, each time.

https://modelcontextprotocol.io/specification/2025-11-25/basic/transports
"""

from hmac import compare_digest
from http import HTTPStatus
from typing import Final

from fastapi import Response

from app.api.mcp.calls import answer_call
from app.api.mcp.exchange import (
    CAPABILITIES,
    HANDSHAKE_REVISIONS,
    INSTRUCTIONS,
    VERSION_FIELD,
    Exchange,
    Methods,
    unsupported_version,
)
from app.api.mcp.messages import Code, Fault, acknowledged, answered, is_request_id
from app.api.mcp.tools import CALL, page_of_tools
from app.core.strict_json import JsonObject, JsonValue, canonical
from app.usecases.cancel_call import cancel_call

SESSION_FIELD: Final = "Mcp-Session-Id"
INITIALIZE: Final = "initialize"
CANCELLED: Final = "notifications/cancelled"


async def answer(exchange: Exchange) -> Response:
    """The answer to one message. Raises Fault."""
    message = exchange.message
    if message.method == INITIALIZE and message.id is not None:
        revision = _agreed(exchange)
        session = {SESSION_FIELD: _session_id(exchange, revision, exchange.world.new_id("mcp"))}
        return answered(message.id, _greeting(exchange, revision), session)
    named = _check_session(exchange)
    if message.id is None:
        await _heed(exchange, named)
        return acknowledged(message)
    try:
        if message.method == CALL:
            name = _call_name(exchange, named, message.id)
            return await answer_call(exchange, _as_it_is, name=name, is_tied=False)
        return answered(message.id, await METHODS.get(message.method, _no_method)(exchange))
    except Fault as fault:
        # These revisions answer what they could read with 200, an error as any other response.
        fault.status = HTTPStatus.OK
        raise


def _as_it_is(result: JsonObject) -> JsonObject:
    return result


def _agreed(exchange: Exchange) -> str:
    """The revision that the client asks for, or else our newest, which it may take or leave."""
    params = exchange.message.params
    asked = params.get("protocolVersion")
    shaped = isinstance(params.get("capabilities"), dict) and isinstance(params.get("clientInfo"), dict)
    if not isinstance(asked, str) or not shaped:
        detail = "initialize needs protocolVersion, capabilities and clientInfo"
        raise Fault(Code.INVALID_PARAMS, detail, status=HTTPStatus.OK)
    return asked if asked in HANDSHAKE_REVISIONS else HANDSHAKE_REVISIONS[0]


def _greeting(exchange: Exchange, revision: str) -> JsonObject:
    return {
        "protocolVersion": revision,
        "capabilities": CAPABILITIES,
        "serverInfo": exchange.server_info,
        "instructions": INSTRUCTIONS,
    }


# --- sessions ---------------------------------------------------------------------------------------------


def _check_session(exchange: Exchange) -> str:
    """The id of the session that a message belongs in. Raises Fault."""
    asked = exchange.headers.getlist(VERSION_FIELD)
    for version in asked:
        if version not in HANDSHAKE_REVISIONS:
            raise unsupported_version(version)
    session, revision = _session_of(exchange)
    # Left out, the session says it.
    if not {*asked} <= {revision}:
        raise Fault(Code.INVALID_REQUEST, f"the header field {VERSION_FIELD} is not what the session agreed on")
    return session


def _session_of(exchange: Exchange) -> tuple[str, str]:
    presented = exchange.headers.getlist(SESSION_FIELD)
    if len(presented) != 1:
        raise Fault(Code.INVALID_REQUEST, f"the header field {SESSION_FIELD} is needed once: send initialize first")
    revision, _, rest = presented[0].partition(".")
    nonce = rest.partition(".")[0]
    # Made again for this very caller and tool server: anybody else's, or one that was changed, is another one.
    expected = _session_id(exchange, revision, nonce)
    if revision not in HANDSHAKE_REVISIONS or not compare_digest(presented[0].encode(), expected.encode()):
        detail = "there is no such session: send initialize again"
        raise Fault(Code.INVALID_REQUEST, detail, status=HTTPStatus.NOT_FOUND)
    return expected, revision


def _session_id(exchange: Exchange, revision: str, nonce: str) -> str:
    caller = exchange.caller
    bound = (caller.tenant_id, str(caller.grant_id), exchange.server, revision, nonce)
    # No tenant's digest begins so: a tenant's name has no blank in it.
    mac = exchange.world.vault.digest("\0".join(("mcp session", *bound)).encode())
    return f"{revision}.{nonce}.{caller.grant_id}.{mac}"


# --- taking a call back -----------------------------------------------------------------------------------


async def _heed(exchange: Exchange, session: str) -> None:
    """Cancel the call that a notification names, if it is one of the same session; any other is to be ignored."""
    params = exchange.message.params
    if exchange.message.method == CANCELLED and is_request_id(params.get("requestId")):
        await cancel_call(exchange.world, exchange.caller, _call_name(exchange, session, params["requestId"]))


def _call_name(exchange: Exchange, session: str, request_id: JsonValue) -> str:
    """What a call is cancelled by. The session is the caller's own, so that nobody else's call has this name."""
    named: JsonValue = ["mcp call", exchange.caller.tenant_id, session, request_id]
    return exchange.world.vault.digest(canonical(named))


# --- methods ----------------------------------------------------------------------------------------------


async def _pong(_: Exchange) -> JsonObject:
    return {}


async def _no_method(_: Exchange) -> JsonObject:
    raise Fault(Code.METHOD_NOT_FOUND, "there is no such method")


METHODS: Final[Methods] = {"ping": _pong, "tools/list": page_of_tools}
"""Beside `tools/call`, which alone takes its time."""
