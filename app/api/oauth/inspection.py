"""What a token is worth, and its end: introspection (RFC 7662) and revocation (RFC 7009)."""

from typing import Final

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from app.api.caller import TheWorld
from app.api.description import form
from app.api.oauth.client import TheClient, TheConfidentialClient
from app.api.oauth.failures import ERRORS, NO_STORE, OAuthError
from app.api.oauth.form import TheForm
from app.core.registry import AuthMethod
from app.usecases.introspect_token import introspect_token
from app.usecases.revoke_token import revoke_token

router = APIRouter()

TOKEN_FORM: Final = form("token", token_type_hint="ignored: every kind is tried")


@router.post(
    "/introspect",
    summary="What a token is worth now",
    response_model=None,
    responses=ERRORS,
    openapi_extra=TOKEN_FORM,
)
async def introspect(world: TheWorld, form: TheForm, client: TheConfidentialClient) -> Response:
    """RFC 7662. For anything that the caller may not know: exactly `{"active": false}`."""
    if client.auth_method is AuthMethod.NONE:
        # Whoever knows its name could be it, and would try tokens here (RFC 7662 §2.1).
        raise OAuthError("invalid_client", "introspection is for clients that authenticate", status=401)
    return JSONResponse(await introspect_token(world, client, form.need("token")), headers=NO_STORE)


@router.post(
    "/revoke",
    summary="Revoke a token or a grant, and all below it",
    response_model=None,
    response_class=Response,  # an empty body has no type
    responses=ERRORS,
    openapi_extra=TOKEN_FORM,
)
async def revoke_endpoint(world: TheWorld, form: TheForm, client: TheClient) -> Response:
    """RFC 7009. 200 for an unknown token, and for another client's, too."""
    await revoke_token(world, client, form.need("token"))
    return Response(status_code=200, headers=NO_STORE)
