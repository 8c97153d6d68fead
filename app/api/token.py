"""The OAuth endpoints: token (RFC 6749, 8693), introspection (RFC 7662) and revocation (RFC 7009).

They speak OAuth's documents and errors; the reason of a refusal stands beside `error` as it does everywhere.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal
from urllib.parse import parse_qsl, unquote_plus

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field, TypeAdapter, ValidationError

from app.api.caller import TheWorld
from app.api.description import form
from app.api.errors import RETRY_SECONDS, TABLE, TOO_MANY
from app.api.grants import NarrowingDocument
from app.api.wire import MAX_BODY_BYTES, MAX_BODY_DEPTH, Members, OAuthDocument, StrictRequest, media_type
from app.core.grant import ClientId, GrantId, TenantId
from app.core.reasons import Reason
from app.core.registry import AuthMethod, Client
from app.core.strict_json import JsonValue, StrictJsonError, parse
from app.ports import AlreadyExists, TokenRefused
from app.usecases.authenticate_client import ClientCredentials, authenticate_client
from app.usecases.close_grant import revoke
from app.usecases.exchange_token import ACCESS_TOKEN, DELEGATION_GRANT, DETAIL_TYPE, ExchangeRequest, exchange_token
from app.usecases.failures import Conflict, Denied, Malformed
from app.usecases.introspect_token import introspect_token
from app.usecases.issue_api_token import issue_api_token
from app.usecases.read_wish import NarrowingFields
from app.usecases.record_stranger import record_stranger
from app.usecases.world import World

router = APIRouter(prefix="/oauth", tags=["oauth"])

CLIENT_CREDENTIALS = "client_credentials"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
GRANT_TYPES = (CLIENT_CREDENTIALS, TOKEN_EXCHANGE)
REPEATABLE = frozenset({"resource", "audience"})
MAX_PARAMETERS = 64
TOKEN_FORM = form("token", token_type_hint="ignored: every kind is tried")
NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}


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


class TokenResponse(OAuthDocument):
    """RFC 6749 §5.1 with the members of RFC 8693 §2.2.1 and RFC 9396 §7."""

    access_token: str
    issued_token_type: str
    token_type: Literal["Bearer", "N_A"]
    expires_in: int = Field(description="seconds")
    scope: str | None = None
    authorization_details: list[Members] | None = None


class DelegationDetail(NarrowingDocument):
    """One member of `authorization_details` (RFC 9396): the narrowing."""

    type: Literal["delegation"]


_DETAILS = TypeAdapter(list[DelegationDetail])


@dataclass(frozen=True)
class Form:
    """A parsed form: each parameter once, but for those that may repeat. An empty one counts as left out."""

    values: Mapping[str, tuple[str, ...]]

    def one(self, name: str) -> str | None:
        values = self.values.get(name)
        return None if values is None else values[0]

    def need(self, name: str) -> str:
        value = self.one(name)
        if value is None:
            raise OAuthError("invalid_request", f"the parameter {name} is missing")
        return value

    def all(self, name: str) -> tuple[str, ...]:
        return self.values.get(name, ())


async def form_of(request: Request) -> Form:
    """The request's form, read strictly (RFC 6749 §3.2: a parameter occurs once)."""
    if media_type(request) != "application/x-www-form-urlencoded":
        raise OAuthError("invalid_request", "the body must be application/x-www-form-urlencoded")
    body = await StrictRequest(request.scope, request.receive).body()
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            max_num_fields=MAX_PARAMETERS,
            errors="strict",
        )
    except ValueError as error:
        raise OAuthError("invalid_request", "the body is no well-formed form") from error
    values: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    for name, value in pairs:
        if name in seen and name not in REPEATABLE:
            raise OAuthError("invalid_request", "a parameter is repeated")
        seen.add(name)
        if value:
            values[name] = (*values.get(name, ()), value)
    return Form(values)


TheForm = Annotated[Form, Depends(form_of)]


async def client_of(request: Request, world: TheWorld, form: TheForm) -> Client:
    """The authenticated client (RFC 6749 §2.3.1), by Basic or by body, never both."""
    basic = _basic(request)
    if basic is not None and form.one("client_secret") is not None:
        raise OAuthError("invalid_request", "more than one way to authenticate the client")
    presented = basic or _posted(form)
    client = None if presented is None else await authenticate_client(world, presented)
    if isinstance(client, Denied):
        raise _refused(client)
    if client is None or form.one("client_id") not in (None, client.client_id):
        await record_stranger(world, Reason.TOKEN_INVALID, "a client could not be authenticated")
        error = OAuthError("invalid_client", "the client could not be authenticated", status=401)
        error.basic_challenge = "authorization" in request.headers
        raise error
    return client


TheClient = Annotated[Client, Depends(client_of)]


def _basic(request: Request) -> ClientCredentials | None:
    header = request.headers.get("authorization")
    if header is None:
        return None
    scheme, _, encoded = header.partition(" ")
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode() if scheme.lower() == "basic" else ""
    except (binascii.Error, UnicodeDecodeError):
        decoded = ""
    client_id, colon, secret = decoded.partition(":")
    if not colon:
        error = OAuthError("invalid_client", "the client could not be authenticated", status=401)
        error.basic_challenge = True
        raise error
    return ClientCredentials(
        client_id=ClientId(unquote_plus(client_id)),
        secret=unquote_plus(secret),
        method=AuthMethod.CLIENT_SECRET_BASIC,
    )


def _posted(form: Form) -> ClientCredentials | None:
    client_id, secret = form.one("client_id"), form.one("client_secret")
    if client_id is None or secret is None:
        return None
    return ClientCredentials(client_id=ClientId(client_id), secret=secret, method=AuthMethod.CLIENT_SECRET_POST)


@router.post(
    "/token",
    summary="Issue or exchange a token",
    response_model=TokenResponse,
    response_model_exclude_none=True,
    responses=ERRORS,
    openapi_extra=form(
        "grant_type",
        subject_token="a DelegationGrant or an access token (RFC 8693 §2.1)",
        subject_token_type=f"`{DELEGATION_GRANT}` or `{ACCESS_TOKEN}`",
        actor_token="an access token of the client that will act",
        actor_token_type=f"`{ACCESS_TOKEN}`",
        resource="the tool server's audience; may repeat (RFC 8707)",
        audience="the same, by RFC 8693's name",
        requested_token_type=f"`{ACCESS_TOKEN}` unless it is `{DELEGATION_GRANT}`",
        scope="space-delimited",
        authorization_details='a JSON array of one `{"type": "delegation", …}` with the narrowing (RFC 9396)',
        client_id="with client_secret_post",
        client_secret="with client_secret_post",
    ),
)
async def token(world: TheWorld, form: TheForm, client: TheClient) -> Response:
    """`client_credentials` (RFC 6749 §4.4) or token exchange (RFC 8693)."""
    issue = {CLIENT_CREDENTIALS: _client_credentials, TOKEN_EXCHANGE: _token_exchange}.get(form.need("grant_type"))
    if issue is None:
        raise OAuthError("unsupported_grant_type", "the grant type is not supported")
    body = await issue(world, client, form)
    return JSONResponse(body.model_dump(exclude_none=True), headers=NO_STORE)


async def _client_credentials(world: World, client: Client, form: Form) -> TokenResponse:
    targets = (*form.all("resource"), *form.all("audience"))
    issued = await issue_api_token(world, client, resource=targets, scopes=_scopes(form))
    if isinstance(issued, Denied):
        raise _refused(issued)
    return TokenResponse(
        access_token=issued.token,
        issued_token_type=ACCESS_TOKEN,
        token_type="Bearer",
        expires_in=issued.expires_in_seconds,
        scope=" ".join(issued.scopes),
    )


async def _token_exchange(world: World, client: Client, form: Form) -> TokenResponse:
    try:
        exchanged = await exchange_token(world, client, _exchange_request(form))
    except Malformed as error:
        raise OAuthError(
            "invalid_authorization_details", f"{error.pointer}: {error.detail}", reason=error.code
        ) from error
    except (Conflict, AlreadyExists) as error:
        raise OAuthError("invalid_request", str(error), reason=Conflict.code) from error
    if isinstance(exchanged, Denied):
        raise _refused(exchanged)
    is_access = exchanged.issued_token_type == ACCESS_TOKEN
    return TokenResponse(
        access_token=exchanged.token,
        issued_token_type=exchanged.issued_token_type,
        token_type="Bearer" if is_access else "N_A",
        expires_in=exchanged.expires_in_seconds,
        scope="tools:call" if is_access else None,
        authorization_details=[exchanged.details],
    )


def _exchange_request(form: Form) -> ExchangeRequest:
    actor_token, actor_type = form.one("actor_token"), form.one("actor_token_type")
    if (actor_token is None) != (actor_type is None):
        raise OAuthError("invalid_request", "actor_token and actor_token_type go together")
    if actor_type not in (None, ACCESS_TOKEN):
        raise OAuthError("invalid_request", "the actor_token_type is not supported")
    if form.one("dpop_jkt") is not None:
        raise OAuthError("invalid_request", "tokens bound to a key are not supported")
    subject_type = form.need("subject_token_type")
    if subject_type not in (ACCESS_TOKEN, DELEGATION_GRANT):
        raise OAuthError("invalid_request", "the subject_token_type is not supported")
    requested = form.one("requested_token_type") or ACCESS_TOKEN
    if requested not in (ACCESS_TOKEN, DELEGATION_GRANT):
        raise OAuthError("invalid_request", "the requested_token_type is not supported")
    return ExchangeRequest(
        subject_token=form.need("subject_token"),
        subject_token_type=subject_type,
        actor_token=actor_token,
        resource=(*form.all("resource"), *form.all("audience")),
        scopes=_scopes(form),
        requested_token_type=requested,
        fields=_narrowing(form.one("authorization_details")),
    )


def _narrowing(text: str | None) -> NarrowingFields:
    """The one narrowing that `authorization_details` holds, parsed as strictly as any body."""
    if text is None:
        return NarrowingFields()
    try:
        details = _DETAILS.validate_python(parse(text.encode(), max_bytes=MAX_BODY_BYTES, max_depth=MAX_BODY_DEPTH))
    except StrictJsonError as error:
        raise OAuthError("invalid_authorization_details", error.detail) from error
    except ValidationError as error:
        fault = error.errors()[0]
        where = "".join(f"/{part}" for part in fault["loc"])
        raise OAuthError("invalid_authorization_details", f"{where}: {fault['msg']}") from error
    if len(details) != 1:
        raise OAuthError("invalid_authorization_details", f"exactly one detail of type {DETAIL_TYPE} is needed")
    return details[0].fields()


def _scopes(form: Form) -> frozenset[str] | None:
    text = form.one("scope")
    return None if text is None else frozenset(text.split(" "))


def _refused(denied: Denied) -> OAuthError:
    row = TABLE[denied.reason]
    status = TOO_MANY if denied.reason is Reason.RATE_LIMITED else 400
    where = f"{denied.pointer}: " if denied.pointer else ""
    error = OAuthError(row.oauth, f"{where}{denied.detail}", status=status, reason=denied.reason)
    error.decision_id = denied.decision_id
    return error


@router.post(
    "/introspect",
    summary="What a token is worth now",
    response_model=None,
    responses=ERRORS,
    openapi_extra=TOKEN_FORM,
)
async def introspect(world: TheWorld, form: TheForm, client: TheClient) -> Response:
    """RFC 7662. For anything that the caller may not know: exactly `{"active": false}`."""
    return JSONResponse(await introspect_token(world, client, form.need("token")), headers=NO_STORE)


@router.post(
    "/revoke",
    summary="Revoke a token or a grant, and all below it",
    response_model=None,
    responses=ERRORS,
    openapi_extra=TOKEN_FORM,
)
async def revoke_endpoint(world: TheWorld, form: TheForm, client: TheClient) -> Response:
    """RFC 7009. 200 for an unknown token too."""
    named = _named_grant(world, client, form.need("token"))
    if named is not None and named[0] == client.tenant_id:
        await revoke(world, client, named[1])
    return Response(status_code=200, headers=NO_STORE)


def _named_grant(world: World, client: Client, text: str) -> tuple[TenantId, GrantId] | None:
    try:
        access = world.signer.verify_access_token(text, world.clock())
    except TokenRefused:
        return _grant_itself(world, text)
    if access.grant_id is None and access.client_id == client.client_id:
        # Nothing is stored of these; to say 200 would be to say that it is dead (RFC 7009 §2.2.1).
        raise OAuthError("unsupported_token_type", "a token for the API itself ends with its short lifetime")
    return None if access.grant_id is None else (access.tenant_id, access.grant_id)


def _grant_itself(world: World, text: str) -> tuple[TenantId, GrantId] | None:
    try:
        grant = world.signer.verify_grant(text).grant
    except TokenRefused:
        return None
    return grant.tenant_id, grant.grant_id


async def oauth_error(_: Request, error: Exception) -> JSONResponse:
    """Render an OAuthError; 401 challenges where Basic was used (RFC 6749 §5.2)."""
    assert isinstance(error, OAuthError)
    body: dict[str, JsonValue] = {"error": error.error, "error_description": error.description}
    extra = {"reason": error.reason, "decision_id": error.decision_id}
    body |= {name: value for name, value in extra.items() if value is not None}
    headers = NO_STORE | ({"WWW-Authenticate": 'Basic realm="subgrant"'} if error.basic_challenge else {})
    headers |= {"Retry-After": RETRY_SECONDS} if error.status == TOO_MANY else {}
    return JSONResponse(body, status_code=error.status, headers=headers)
