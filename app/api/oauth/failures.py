"""OAuth's errors (RFC 6749 §5.2), and how a denial looks as one."""

from typing import Any, Final

from fastapi import Request
from fastapi.responses import JSONResponse

from app.api.errors import RETRY_SECONDS, TABLE, TOO_MANY
from app.api.wire import OAuthDocument
from app.core.reasons import Reason
from app.core.strict_json import JsonValue
from app.usecases.failures import Denied

NO_STORE: Final = {"Cache-Control": "no-store", "Pragma": "no-cache"}


class OAuthError(Exception):
    """An error of RFC 6749 §5.2."""

    def __init__(self, error: str, description: str, *, status: int = 400, reason: str | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.description = description
        self.status = status
        self.reason = reason
        self.decision_id: str | None = None
        self.basic_challenge = False


class OAuthErrorDocument(OAuthDocument):
    error: str
    error_description: str
    reason: str | None = None
    decision_id: str | None = None


ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": OAuthErrorDocument},
    401: {"model": OAuthErrorDocument},
}


def refused(denied: Denied) -> OAuthError:
    """A denial, as the token endpoint says it."""
    row = TABLE[denied.reason]
    status = TOO_MANY if denied.reason is Reason.RATE_LIMITED else 400
    where = f"{denied.pointer}: " if denied.pointer else ""
    error = OAuthError(row.oauth, f"{where}{denied.detail}", status=status, reason=denied.reason)
    error.decision_id = denied.decision_id
    return error


_GRANT_AT_FAULT: Final = frozenset({Reason.TENANT_MISMATCH, Reason.ACTOR_NOT_PERMITTED})
"""Reasons that are the code's or assertion's fault where one is presented, beside those of a dead credential."""


def refused_grant(denied: Denied) -> OAuthError:
    """The same where what was presented is itself a grant: a code (RFC 6749 §5.2) or an assertion (RFC 7521 §4.1.1)."""
    error = refused(denied)
    if denied.reason in _GRANT_AT_FAULT or TABLE[denied.reason].challenge == "invalid_token":
        error.error = "invalid_grant"
    return error


async def oauth_error(_: Request, error: Exception) -> JSONResponse:
    """Render an OAuthError; 401 challenges where Basic was used (RFC 6749 §5.2)."""
    assert isinstance(error, OAuthError)
    body: dict[str, JsonValue] = {"error": error.error, "error_description": error.description}
    extra = {"reason": error.reason, "decision_id": error.decision_id}
    body |= {name: value for name, value in extra.items() if value is not None}
    headers = NO_STORE | ({"WWW-Authenticate": 'Basic realm="subgrant"'} if error.basic_challenge else {})
    headers |= {"Retry-After": RETRY_SECONDS} if error.status == TOO_MANY else {}
    return JSONResponse(body, status_code=error.status, headers=headers)
