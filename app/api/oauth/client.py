"""Which client is asking (RFC 6749 §2.3, RFC 7521 §4.2): in exactly one way, and one answer to all that fails."""

import base64
import binascii
from typing import Annotated, Final
from urllib.parse import unquote_plus

from fastapi import Depends, Request

from app.api.caller import TheWorld
from app.api.oauth.failures import OAuthError, refused
from app.api.oauth.form import Form, TheForm
from app.core.grant import ClientId
from app.core.reasons import Reason
from app.core.registry import AuthMethod, Client
from app.usecases.authenticate_client import ClientCredentials
from app.usecases.failures import Denied
from app.usecases.prove_client import (
    ClientAssertion,
    ClientName,
    Presented,
    ProvenClient,
    Unproven,
    prove_client,
    spend_assertion,
)
from app.usecases.record_stranger import record_stranger
from app.usecases.world import World

JWT_BEARER: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


async def proven_client(request: Request, world: TheWorld, form: TheForm) -> ProvenClient:
    """The client as it has proven itself. Its assertion, if it sent one, is still to be spent."""
    presented = _presented(request, form)
    proven = Unproven() if presented is None else await prove_client(world, presented)
    if isinstance(proven, Denied):
        raise refused(proven)
    if isinstance(proven, ProvenClient) and form.one("client_id") not in (None, proven.client.client_id):
        proven = Unproven(cause="client_id names another client", client_id=proven.client.client_id)
    if isinstance(proven, Unproven):
        raise await _unproven(request, world, proven)
    return proven


async def client_of(
    request: Request, world: TheWorld, proven: Annotated[ProvenClient, Depends(proven_client)]
) -> Client:
    """The client, its assertion spent. Whatever a request lacks beside is said before, by what this depends on."""
    if not await spend_assertion(world, proven):
        used = "a client assertion was refused: it was used before"
        raise await _unproven(request, world, Unproven(cause=used, client_id=proven.client.client_id))
    return proven.client


TheClient = Annotated[Client, Depends(client_of)]


async def confidential_client_of(request: Request, world: TheWorld, client: TheClient) -> Client:
    """A client that has proven itself by more than its name (RFC 7662 §2.1)."""
    if client.auth_method is AuthMethod.NONE:
        named = Unproven(cause="a client proved no more than its name", client_id=client.client_id)
        raise await _unproven(request, world, named)
    return client


TheConfidentialClient = Annotated[Client, Depends(confidential_client_of)]


async def _unproven(request: Request, world: World, unproven: Unproven) -> OAuthError:
    await record_stranger(world, Reason.TOKEN_INVALID, unproven.cause, unproven.client_id)
    return _invalid_client(request)


def _invalid_client(request: Request) -> OAuthError:
    error = OAuthError("invalid_client", "the client could not be authenticated", status=401)
    error.basic_challenge = "authorization" in request.headers
    return error


# --- the ways ---------------------------------------------------------------------------------------------


def _presented(request: Request, form: Form) -> Presented | None:
    """What the request proves its client by. Raises OAuthError where that is more than one thing (§2.3)."""
    ways = [way for way in (_basic(request), _posted(form), _asserted(request, form)) if way is not None]
    if len(ways) > 1 or len(request.headers.getlist("authorization")) > 1:
        raise OAuthError("invalid_request", "more than one way to authenticate the client")
    return ways[0] if ways else _named(form)


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
        raise _invalid_client(request)
    return ClientCredentials(
        client_id=ClientId(unquote_plus(client_id)),
        secret=unquote_plus(secret),
        method=AuthMethod.CLIENT_SECRET_BASIC,
    )


def _posted(form: Form) -> ClientCredentials | None:
    secret = form.one("client_secret")
    if secret is None:
        return None
    # Nobody's id is empty.
    client_id = ClientId(form.one("client_id") or "")
    return ClientCredentials(client_id=client_id, secret=secret, method=AuthMethod.CLIENT_SECRET_POST)


def _asserted(request: Request, form: Form) -> ClientAssertion | None:
    assertion, kind = form.one("client_assertion"), form.one("client_assertion_type")
    if (assertion is None) != (kind is None):
        raise OAuthError("invalid_request", "client_assertion and client_assertion_type go together")
    if assertion is None:
        return None
    if kind != JWT_BEARER:
        raise _invalid_client(request)
    client_id = form.one("client_id")
    return ClientAssertion(client_id=None if client_id is None else ClientId(client_id), assertion=assertion)


def _named(form: Form) -> ClientName | None:
    client_id = form.one("client_id")
    return None if client_id is None else ClientName(client_id=ClientId(client_id))
