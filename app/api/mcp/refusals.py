"""What a caller is answered that gets no further: who must prove itself, and where it learns how (RFC 6750, 9728)."""

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus

from app.api.errors import REALM, RETRY_SECONDS, TABLE, DenialError, NoCredentials, challenge
from app.api.mcp.messages import Code, Fault
from app.api.mcp.results import DECISION, decision_of
from app.api.well_known import tool_server_metadata_url
from app.api.wire import BodyRefused
from app.core.grant import ServerName
from app.core.registry import Scope
from app.ports import StoreUnavailable
from app.usecases.failures import Denied
from app.usecases.world import World

SCOPE = Scope.TOOLS_CALL.value


def fault_of(
    world: World, server: ServerName, error: DenialError | NoCredentials | BodyRefused | StoreUnavailable
) -> Fault:
    """The fault that stands for whatever else may keep a message from its answer."""
    match error:
        case NoCredentials():
            headers = _with_metadata(world, server, f'{REALM}, scope="{SCOPE}"')
            detail = "a bearer token is needed"
            return Fault(Code.INVALID_REQUEST, detail, status=HTTPStatus.UNAUTHORIZED, headers=headers)
        case DenialError():
            return _denied(world, server, error.denied)
        case BodyRefused():
            return Fault(Code.INVALID_REQUEST, error.detail, status=error.status_code)
        case StoreUnavailable():
            # Closed, never open: without the store nothing is decided.
            detail = "the store can't be reached; nothing was decided"
            wait = {"Retry-After": RETRY_SECONDS}
            return Fault(Code.INTERNAL_ERROR, detail, status=HTTPStatus.SERVICE_UNAVAILABLE, headers=wait)


def _denied(world: World, server: ServerName, denied: Denied) -> Fault:
    row = TABLE[denied.reason]
    fields = challenge(replace(denied, scope=denied.scope or SCOPE), row)
    challenged = fields.get("WWW-Authenticate")
    return Fault(
        Code.INVALID_REQUEST,
        denied.detail,
        status=row.status,
        data={DECISION: decision_of(denied)},
        headers=fields if challenged is None else _with_metadata(world, server, challenged),
    )


def _with_metadata(world: World, server: ServerName, challenged: str) -> Mapping[str, str]:
    url = tool_server_metadata_url(world.rules.issuer, server)
    return {"WWW-Authenticate": f'{challenged}, resource_metadata="{url}"'}
