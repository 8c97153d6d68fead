"""The MCP endpoint of one tool server: `POST /mcp/{server}` (Streamable HTTP), in three revisions of the protocol.

Who is asking is settled first, then in which words: `stateless.py` has 2026-07-28, `handshake.py` those before it.
What they ask for is the same in all of them and in `tools.py`; whether they get it, `usecases/forward_call.py`
decides as for every other route. Answers are single JSON objects, but for calls that are watched while they run; there
is nothing to listen to in between, and no session that could be ended, so GET and DELETE are 405.
"""

from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response

from app.api.caller import CallRoute, TheWorld, agent_of
from app.api.challenges import guard_of
from app.api.errors import DenialError, NoCredentials, refusal
from app.api.mcp import handshake, stateless
from app.api.mcp.calls import EVENTS
from app.api.mcp.exchange import Exchange
from app.api.mcp.messages import Code, Fault, Message, accepts_events, read_message, refused
from app.api.mcp.refusals import fault_of
from app.api.well_known import NamedServer
from app.api.wire import BodyRefused
from app.core.grant import ServerName
from app.ports import StoreUnavailable
from app.usecases.admit_caller import admit_caller
from app.usecases.world import Caller, World

router = APIRouter(prefix="/mcp", tags=["gateway"], route_class=CallRoute)

_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}

_ID: Final[dict[str, Any]] = {"type": ["string", "integer"]}
REQUEST: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["jsonrpc", "method"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": _ID,
        "method": {"type": "string"},
        "params": {"type": "object"},
    },
    "additionalProperties": False,
}
RESPONSE: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["jsonrpc"],
    "properties": {"jsonrpc": {"const": "2.0"}, "id": _ID, "result": {"type": "object"}, "error": {"type": "object"}},
}
"""For the OpenAPI document, which leaves the rest to MCP's own schema."""


STREAM: Final[dict[str, Any]] = {
    "type": "string",
    "description": "of a call that asks for it: notifications, each an event, and the response as the last one",
}


def _described(description: str, *streams: str) -> dict[str, Any]:
    content = {"application/json": {"schema": RESPONSE}} | {media: {"schema": STREAM} for media in streams}
    return {"description": description, "content": content}


_REFUSED: Final = _described("A JSON-RPC error; 401 and 403 with a challenge that names the resource's metadata")
_REFUSED["content"] |= refusal("What can't be a tool server's name")["content"]


@router.post(
    "/{server}",
    summary="The MCP endpoint of one tool server",
    response_model=None,
    responses={
        200: _described("A JSON-RPC response; a refused call is a tool result with `isError`", EVENTS),
        202: {"description": "A notification was taken"},
        "4XX": _REFUSED,
        503: _described("The store can't be reached; nothing was decided"),
    },
    openapi_extra={
        "security": [{"bearer": []}],
        "requestBody": {"required": True, "content": {"application/json": {"schema": REQUEST}}},
    },
)
async def endpoint(world: TheWorld, server: NamedServer, request: Request) -> Response:
    """Streamable HTTP of MCP 2026-07-28, 2025-11-25 and 2025-06-18, with `tools/list` and `tools/call`.

    Tools are those of the bearer token's grant, their schemas narrowed to what it allows.
    """
    message = await read_message(request)
    try:
        return await _answer(world, server, request, message)
    except Fault as error:
        fault = error
    except (DenialError, NoCredentials, BodyRefused, StoreUnavailable) as error:
        fault = fault_of(guard_of(request), error)
    fault.id = message.id
    return refused(fault)


async def _answer(world: World, server: ServerName, request: Request, message: Message | Fault) -> Response:
    _check_origin(world, request)
    caller = await agent_of(request, will_call=isinstance(message, Message) and _is_call(message))
    is_admitted = False
    try:
        if isinstance(message, Fault):
            raise message
        if not _is_call(message):
            await _admit(world, caller, server)
            is_admitted = True
        return await _answer_proven(world, server, request, message, caller)
    except Fault:
        # Whoever may not be here at all is told that and nothing else, however wrong the rest may be.
        if not is_admitted:
            await _admit(world, caller, server)
        raise


async def _admit(world: World, caller: Caller, server: ServerName) -> None:
    refusal = await admit_caller(world, caller, server)
    if refusal is not None:
        raise DenialError(refusal)


async def _answer_proven(
    world: World, server: ServerName, request: Request, message: Message, caller: Caller
) -> Response:
    exchange = Exchange(
        world=world,
        caller=caller,
        server=server,
        headers=request.headers,
        message=message,
        receive=request.receive,
        accepts_events=accepts_events(request),
        version=request.app.version,
    )
    answer = stateless.answer if exchange.is_stateless else handshake.answer
    return await answer(exchange)


def _is_call(message: Message) -> bool:
    """Whether a message is decided about as a call, which includes what is asked of everybody else."""
    return message.method == "tools/call" and message.id is not None


def _check_origin(world: World, request: Request) -> None:
    """A browser names the page that sent it: another one than our own has no business here (DNS rebinding)."""
    given = {_plain(origin) for origin in request.headers.getlist("origin")}
    split = urlsplit(world.rules.issuer)
    if not given <= {_plain(f"{split.scheme}://{split.netloc}")}:
        raise Fault(Code.INVALID_REQUEST, "the origin is another one", status=HTTPStatus.FORBIDDEN)


def _plain(origin: str) -> str:
    """An origin as browsers spell it: in small letters, without the default port."""
    lower = origin.lower()
    return lower.removesuffix(_DEFAULT_PORTS.get(lower.partition("://")[0], ""))
