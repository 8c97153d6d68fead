"""THE table: how each reason looks on each wire, and how failures that are no denials look.

REST answers are RFC 9457 problem documents; OAuth endpoints keep RFC 6749 §5.2 errors; both carry the same
`reason`. Nothing here ever holds a token, a secret, an address or a value from the request.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.routing import Match

from app.api.challenges import Guard, guard_of
from app.api.wire import TAGS, BodyRefused, Document
from app.core.reasons import Reason
from app.core.strict_json import JsonObject, JsonValue
from app.ports import AlreadyExists, StoreUnavailable
from app.usecases.discover_tools import DiscoveryFailed
from app.usecases.failures import (
    CallInFlight,
    Conflict,
    Denied,
    Malformed,
    NotFound,
    ToolServerFailed,
)

T = TypeVar("T")


TOO_MANY = 429
NOT_ALLOWED = 405
METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


class OverMcp(Enum):
    """How a refused tool call is answered over MCP."""

    STATUS = "with the HTTP status and its challenge: the credential is at fault, and the model can't mend it"
    UNKNOWN_TOOL = "as an unknown tool: JSON-RPC error -32602"
    RESULT = "with a tool result that is an error, so that the model learns why and goes on"


class Row(NamedTuple):
    """One reason's looks: REST status, error of a challenge, RFC 6749 error of the token endpoint, MCP's.

    The errors of challenges are RFC 6750's and RFC 9449's.
    """

    status: int
    challenge: str | None
    oauth: str
    mcp: OverMcp


_DEAD = Row(401, "invalid_token", "invalid_request", OverMcp.STATUS)
_REFUSED = Row(403, None, "invalid_request", OverMcp.RESULT)
_WIDER = Row(403, None, "invalid_authorization_details", OverMcp.RESULT)

TABLE: Mapping[Reason, Row] = {
    Reason.TOKEN_INVALID: _DEAD,
    Reason.PROOF_INVALID: Row(401, "invalid_dpop_proof", "invalid_dpop_proof", OverMcp.STATUS),
    Reason.PROOF_NONCE_NEEDED: Row(401, "use_dpop_nonce", "use_dpop_nonce", OverMcp.STATUS),
    Reason.TOKEN_EXPIRED: _DEAD,
    Reason.AUDIENCE_MISMATCH: _DEAD,
    Reason.GRANT_REVOKED: _DEAD,
    Reason.GRANT_CLOSED: _DEAD,
    Reason.GRANT_EXPIRED: _DEAD,
    Reason.GRANT_NOT_YET_VALID: _DEAD,
    Reason.TENANT_MISMATCH: _REFUSED,
    Reason.INSUFFICIENT_SCOPE: Row(403, "insufficient_scope", "invalid_scope", OverMcp.STATUS),
    Reason.ACTOR_NOT_PERMITTED: _REFUSED,
    Reason.TOOL_NOT_ALLOWED: Row(403, None, "invalid_authorization_details", OverMcp.UNKNOWN_TOOL),
    Reason.TOOL_CHANGED: _REFUSED,
    Reason.RESOURCE_OUT_OF_SCOPE: _REFUSED,
    Reason.ARGUMENT_INVALID: Row(422, None, "invalid_request", OverMcp.RESULT),
    Reason.BUDGET_EXCEEDED: _REFUSED,
    Reason.POLICY_DENIED: _REFUSED,
    Reason.APPROVAL_REQUIRED: _REFUSED,
    Reason.REDELEGATION_DENIED: _REFUSED,
    Reason.DEPTH_EXCEEDED: _REFUSED,
    Reason.NOT_NARROWER: _WIDER,
    Reason.NARROWING_UNPROVABLE: _WIDER,
    Reason.TARGET_REFUSED: Row(403, None, "invalid_target", OverMcp.RESULT),
    Reason.RATE_LIMITED: Row(TOO_MANY, None, "invalid_request", OverMcp.RESULT),
    Reason.TOOL_SERVER_UNAVAILABLE: Row(502, None, "invalid_request", OverMcp.RESULT),
}

PROBLEM = "application/problem+json"
RETRY_SECONDS = "1"
MAX_SHOWN_NAME: Final = 40


class Problem(Document):
    """An RFC 9457 problem document."""

    type: str
    title: str
    status: int
    reason: str
    detail: str
    decision_id: str | None = Field(default=None, description="finds the refusal in the audit log")
    pointer: str | None = Field(default=None, description="the member of the request, RFC 6901")
    errors: list[dict[str, str]] | None = Field(default=None, description="every fault of a malformed request")


def refusal(description: str) -> dict[str, Any]:
    """How an OpenAPI response documents a problem."""
    return {"description": description, "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": refusal("Refused; nothing was changed"),
    503: refusal("The store can't be reached; nothing was decided"),
}


class DenialError(Exception):
    """A denial on its way to its wire."""

    def __init__(self, denied: Denied) -> None:
        super().__init__(denied.reason)
        self.denied = denied


class NoCredentials(Exception):
    """Nothing was presented: a challenge without an error code (RFC 6750 §3.1)."""


def allowed(result: T | Denied) -> T:
    """The result, or the denial raised for the handlers below."""
    if isinstance(result, Denied):
        raise DenialError(result)
    return result


def problem(
    status: int,
    reason: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    **members: JsonValue,
) -> JSONResponse:
    """An RFC 9457 problem document; members that are None are left out."""
    body: JsonObject = {
        "type": f"urn:subgrant:problem:{reason}",
        "title": reason.replace("_", " "),
        "status": status,
        "reason": reason,
        "detail": detail,
    }
    body |= {name: value for name, value in members.items() if value is not None}
    return JSONResponse(body, status_code=status, media_type=PROBLEM, headers=dict(headers or {}))


def challenge(denied: Denied, row: Row, guard: Guard) -> Mapping[str, str]:
    """The WWW-Authenticate header (RFC 6750 §3, RFC 9449 §7.1) that goes with a denial, if any does."""
    if row.challenge is None:
        return {"Retry-After": RETRY_SECONDS} if row.status == TOO_MANY else {}
    return {"WWW-Authenticate": guard.refuses(row.challenge, denied.detail, denied.scope)}


def denial(denied: Denied, guard: Guard) -> JSONResponse:
    """A denial as a problem document."""
    row = TABLE[denied.reason]
    return problem(
        row.status,
        denied.reason,
        denied.detail,
        headers=challenge(denied, row, guard),
        decisionId=denied.decision_id,
        pointer=denied.pointer,
    )


def install(app: FastAPI) -> None:
    """Give every exception that may leave a route its one answer."""
    app.exception_handler(DenialError)(_denial)
    app.exception_handler(NoCredentials)(_no_credentials)
    app.exception_handler(BodyRefused)(_body_refused)
    app.exception_handler(RequestValidationError)(_validation)
    app.exception_handler(Malformed)(_malformed)
    app.exception_handler(NotFound)(_not_found)
    app.exception_handler(AlreadyExists)(_already_exists)
    app.exception_handler(Conflict)(_conflict)
    app.exception_handler(ToolServerFailed)(_tool_server_failed)
    app.exception_handler(DiscoveryFailed)(_discovery_failed)
    app.exception_handler(StoreUnavailable)(_store_unavailable)
    app.exception_handler(HTTPException)(_http)
    app.exception_handler(Exception)(_internal)


async def _denial(request: Request, error: DenialError) -> JSONResponse:
    return denial(error.denied, guard_of(request))


async def _no_credentials(request: Request, __: NoCredentials) -> JSONResponse:
    headers = {"WWW-Authenticate": guard_of(request).asks()}
    return problem(401, Reason.TOKEN_INVALID, "a token is needed", headers=headers)


async def _body_refused(_: Request, error: BodyRefused) -> JSONResponse:
    return problem(error.status_code, Malformed.code, error.detail, pointer=error.pointer)


async def _validation(_: Request, error: RequestValidationError) -> JSONResponse:
    faults: list[JsonValue] = [
        {"pointer": pointer_to(fault["loc"]), "in": str(fault["loc"][0]), "detail": sentence_on(fault)}
        for fault in error.errors()[:20]
    ]
    first = faults[0]
    assert isinstance(first, dict)
    where = first["pointer"] or "the body"
    return problem(422, Malformed.code, f"{where}: {first['detail']}", pointer=first["pointer"], errors=faults)


def pointer_to(location: tuple[int | str, ...]) -> str:
    """Which member a fault is in (RFC 6901); the first part of a location is what was read."""
    parts = (_shown(str(part)).replace("~", "~0").replace("/", "~1") for part in location[1:] if part not in TAGS)
    return "".join(f"/{part}" for part in parts)


def _shown(name: str) -> str:
    # No member of ours is so long; what is might be a credential that went astray.
    return name if len(name) <= MAX_SHOWN_NAME else "…"


def sentence_on(fault: Mapping[str, object]) -> str:
    """What is wrong there."""
    # Pydantic's messages name types and limits, never the value; its "Value error, " prefix says nothing.
    return str(fault["msg"]).removeprefix("Value error, ")


async def _malformed(_: Request, error: Malformed) -> JSONResponse:
    fault: JsonObject = {"pointer": error.pointer, "in": "body", "detail": error.detail}
    return problem(422, error.code, f"{error.pointer}: {error.detail}", pointer=error.pointer, errors=[fault])


async def _not_found(_: Request, error: NotFound) -> JSONResponse:
    return problem(404, error.code, error.detail)


async def _already_exists(_: Request, error: AlreadyExists) -> JSONResponse:
    return problem(409, Conflict.code, str(error))


async def _conflict(_: Request, error: Conflict) -> JSONResponse:
    headers = {"Retry-After": RETRY_SECONDS} if isinstance(error, CallInFlight) else {}
    return problem(409, error.code, error.detail, headers=headers)


async def _tool_server_failed(_: Request, error: ToolServerFailed) -> JSONResponse:
    status = 504 if error.timed_out else 502
    return problem(status, error.code, error.detail, callId=error.call_id, decisionId=error.decision_id)


async def _discovery_failed(_: Request, error: DiscoveryFailed) -> JSONResponse:
    return problem(502, error.code, error.detail)


async def _store_unavailable(_: Request, __: StoreUnavailable) -> JSONResponse:
    # Closed, never open: without the store nothing is decided.
    detail = "the store can't be reached; nothing was decided"
    return problem(503, "store_unavailable", detail, headers={"Retry-After": RETRY_SECONDS})


async def _http(request: Request, error: HTTPException) -> JSONResponse:
    reason = {404: NotFound.code, 405: "method_not_allowed"}.get(error.status_code, Malformed.code)
    headers = dict(error.headers or {}) | ({"Allow": _allowed(request)} if error.status_code == NOT_ALLOWED else {})
    return problem(error.status_code, reason, str(error.detail), headers=headers)


def _allowed(request: Request) -> str:
    """Every method of the target (RFC 9110 §10.2.1); each has a route of its own, and Starlette names one route's."""

    def fits(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return ", ".join(method for method in METHODS if fits(method))


async def _internal(_: Request, __: Exception) -> JSONResponse:
    # The log has the traceback; the caller learns nothing of the inside.
    return problem(500, "internal_error", "the request failed; nothing is known to have changed")
