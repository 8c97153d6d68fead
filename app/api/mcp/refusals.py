"""What a caller is answered that gets no further: who must prove itself, and where it learns how (RFC 6750, 9728)."""

from http import HTTPStatus

from app.api.challenges import Guard
from app.api.errors import RETRY_SECONDS, TABLE, DenialError, NoCredentials, challenge
from app.api.mcp.messages import Code, Fault
from app.api.mcp.results import DECISION, decision_of
from app.api.wire import BodyRefused
from app.ports import StoreUnavailable
from app.usecases.failures import Denied


def fault_of(guard: Guard, error: DenialError | NoCredentials | BodyRefused | StoreUnavailable) -> Fault:
    """The fault that stands for whatever else may keep a message from its answer."""
    match error:
        case NoCredentials():
            headers = {"WWW-Authenticate": guard.asks()}
            return Fault(Code.INVALID_REQUEST, "a token is needed", status=HTTPStatus.UNAUTHORIZED, headers=headers)
        case DenialError():
            return _denied(guard, error.denied)
        case BodyRefused():
            return Fault(Code.INVALID_REQUEST, error.detail, status=error.status_code)
        case StoreUnavailable():
            # Closed, never open: without the store nothing is decided.
            detail = "the store can't be reached; nothing was decided"
            wait = {"Retry-After": RETRY_SECONDS}
            return Fault(Code.INTERNAL_ERROR, detail, status=HTTPStatus.SERVICE_UNAVAILABLE, headers=wait)


def _denied(guard: Guard, denied: Denied) -> Fault:
    row = TABLE[denied.reason]
    return Fault(
        Code.INVALID_REQUEST,
        denied.detail,
        status=row.status,
        data={DECISION: decision_of(denied)},
        headers=challenge(denied, row, guard),
    )
