"""JSON-RPC 2.0 as MCP narrows it: one message in a body, ids that are strings or integers, no batches.

Knows what a message is, and how it is answered. Refuses to know what any method does.

https://modelcontextprotocol.io/specification/2026-07-28/basic
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from http import HTTPStatus
from typing import Final, TypeAlias, TypeGuard

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from app.api.wire import BodyRefused, media_type
from app.core.strict_json import JsonObject, JsonValue, canonical

MAX_ID_CHARS: Final = 256

RequestId: TypeAlias = str | int

_MEMBERS: Final = frozenset({"jsonrpc", "id", "method", "params"})
_UNWANTED: Final = re.compile(r";\s*q=0(?:\.0{0,3})?\s*(?:;|$)")
"""A weight of zero: what is not acceptable (RFC 9110 §12.4.2)."""


class Code(IntEnum):
    """The errors of JSON-RPC, and those that MCP defines."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    HEADER_MISMATCH = -32020
    MISSING_CAPABILITY = -32021
    UNSUPPORTED_PROTOCOL_VERSION = -32022


class Fault(Exception):
    """Why a message gets an error instead of a result. `id` is the message's, where it has one that can be read."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        status: int = HTTPStatus.BAD_REQUEST,
        data: JsonValue = None,
        headers: Mapping[str, str] | None = None,
        id: RequestId | None = None,  # noqa: A002  # JSON-RPC's word
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.data = data
        self.headers = dict(headers or {})
        self.id = id


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A request, or without an id a notification."""

    method: str
    params: JsonObject
    id: RequestId | None = None

    @property
    def meta(self) -> JsonObject:
        meta = self.params.get("_meta", {})
        assert isinstance(meta, dict), "a message whose `_meta` is no object is not read"
        return meta


async def read_message(request: Request) -> Message | Fault:
    """The one message of a request, or what is wrong with it; whoever sent it is not known yet."""
    try:
        _check_media(request)
        return parse_message(await request.json())
    except BodyRefused as refused:
        is_text = refused.status_code == HTTPStatus.BAD_REQUEST
        code = Code.PARSE_ERROR if is_text else Code.INVALID_REQUEST
        return Fault(code, refused.detail, status=refused.status_code)
    except Fault as fault:
        return fault


def parse_message(body: JsonValue) -> Message:
    """A message, understood to its last member. Raises Fault."""
    if isinstance(body, list):
        raise Fault(Code.INVALID_REQUEST, "batches are not answered: send one message in a body")
    if not isinstance(body, dict):
        raise Fault(Code.INVALID_REQUEST, "a JSON-RPC message is an object")
    request_id = _id(body) if "id" in body else None
    method, params = body.get("method"), body.get("params", {})
    if body.get("jsonrpc") != "2.0" or not isinstance(method, str) or not body.keys() <= _MEMBERS:
        raise Fault(Code.INVALID_REQUEST, "a JSON-RPC 2.0 request or notification was expected", id=request_id)
    if not isinstance(params, dict) or not isinstance(params.get("_meta", {}), dict):
        raise Fault(Code.INVALID_PARAMS, "params, and _meta in it, are objects", id=request_id)
    return Message(method=method, params=params, id=request_id)


def _id(body: JsonObject) -> RequestId:
    found = body["id"]
    if not is_request_id(found):
        raise Fault(Code.INVALID_REQUEST, f"an id is an integer or a string of at most {MAX_ID_CHARS} characters")
    return found


def is_request_id(value: JsonValue) -> TypeGuard[RequestId]:
    """Whether a value may number a request, or name one; `progressToken` is of the same form."""
    return not isinstance(value, bool) and isinstance(value, str | int) and len(str(value)) <= MAX_ID_CHARS


def _check_media(request: Request) -> None:
    """Any answer may be one JSON object. Events come only where they are taken, though clients have to take them."""
    if not _accepts(request, "application/json"):
        detail = "Accept must list application/json"
        raise Fault(Code.INVALID_REQUEST, detail, status=HTTPStatus.NOT_ACCEPTABLE)
    if media_type(request) != "application/json":
        detail = "the body must be sent as Content-Type: application/json"
        raise Fault(Code.INVALID_REQUEST, detail, status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE)


def accepts_events(request: Request) -> bool:
    return _accepts(request, "text/event-stream")


def _accepts(request: Request, media: str) -> bool:
    wanted = {media, f"{media.partition('/')[0]}/*", "*/*"}
    listed = ",".join(request.headers.getlist("accept")).lower().split(",")
    return any(item.partition(";")[0].strip() in wanted and not _UNWANTED.search(item) for item in listed)


# --- answers ----------------------------------------------------------------------------------------------


def answered(request_id: RequestId, result: JsonObject, headers: Mapping[str, str] | None = None) -> Response:
    """A request's result."""
    return JSONResponse(answer_of(request_id, result), headers=dict(headers or {}))


def answer_of(request_id: RequestId, result: JsonObject) -> JsonObject:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def acknowledged(message: Message) -> Response:
    """A notification is taken and asks for nothing. Whatever else comes without an id is not run unseen."""
    if not message.method.startswith("notifications/"):
        raise Fault(Code.INVALID_REQUEST, "a request needs an id")
    return Response(status_code=HTTPStatus.ACCEPTED)


def refused(fault: Fault) -> Response:
    """A fault, under its message's id; without one where that could not be read."""
    return JSONResponse(refusal_of(fault), status_code=fault.status, headers=fault.headers)


def refusal_of(fault: Fault) -> JsonObject:
    error: JsonObject = {"code": fault.code.value, "message": fault.message}
    error |= {} if fault.data is None else {"data": fault.data}
    named: JsonObject = {} if fault.id is None else {"id": fault.id}
    return {"jsonrpc": "2.0", **named, "error": error}


def event_of(message: JsonObject) -> bytes:
    """A message as one event of a stream. JSON keeps line ends inside strings, so that it is one line."""
    return b"event: message\ndata: " + canonical(message) + b"\n\n"
