"""The MCP endpoint of one tool server: `POST /mcp/{server}` (Streamable HTTP), in three revisions of the protocol.

Who is asking is settled first, then in which words: `stateless.py` has 2026-07-28, `handshake.py` those before it.
What they ask for is the same in all of them and in `tools.py`; whether they get it, `usecases/forward_call.py`
decides as for every other route. Answers are single JSON objects: there is no stream, so GET and DELETE are 405.
"""

from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response

from app.api.caller import TheWorld, agent_of
from app.api.errors import DenialError, NoCredentials
from app.api.mcp import handshake, stateless
from app.api.mcp.exchange import Exchange
from app.api.mcp.messages import Code, Fault, Message, read_message, refused
from app.api.mcp.refusals import fault_of
from app.api.well_known import NamedServer
from app.api.wire import BodyRefused, StrictRoute
from app.core.grant import ServerName
from app.ports import StoreUnavailable
from app.usecases.admit_caller import admit_caller
from app.usecases.world import World

router = APIRouter(prefix="/mcp", tags=["gateway"], route_class=StrictRoute)

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


def _described(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": RESPONSE}}}


@router.post(
    "/{server}",
    summary="The MCP endpoint of one tool server",
    response_model=None,
    responses={
        200: _described("A JSON-RPC response; a refused call is a tool result with `isError`"),
        202: {"description": "A notification was taken"},
        "4XX": _described("A JSON-RPC error; 401 and 403 with a challenge that names the resource's metadata"),
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
        fault = fault_of(world, server, error)
    fault.id = message.id
    return refused(fault)


async def _answer(world: World, server: ServerName, request: Request, message: Message | Fault) -> Response:
    _check_origin(world, request)
    caller = await agent_of(request)
    if isinstance(message, Fault):
        # Only now: whoever proves nothing is told nothing but that.
        raise message
    exchange = Exchange(
        world=world,
        caller=caller,
        server=server,
        headers=request.headers,
        message=message,
        version=request.app.version,
    )
    if not _is_call(message):
        refusal = await admit_caller(world, caller, server)
        if refusal is not None:
            raise DenialError(refusal)
    answer = stateless.answer if stateless.is_stateless(exchange) else handshake.answer
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
