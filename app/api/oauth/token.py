"""The token endpoint (RFC 6749 §3.2): one table from grant type to what issues."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from app.api.caller import TheWorld
from app.api.description import form
from app.api.oauth.assertion import assertion
from app.api.oauth.client import JWT_BEARER, TheClient
from app.api.oauth.code import code, refuse_unredeemable
from app.api.oauth.details import narrowing_of
from app.api.oauth.exchange import exchange
from app.api.oauth.failures import ERRORS, NO_STORE, OAuthError, refused
from app.api.oauth.form import Form
from app.api.oauth.issued import TokenResponse, delegated, for_api, issuing, scopes_of, targets_of
from app.api.oauth.possession import ProvenForm, key_for, take_proof
from app.core.registry import Client, GrantType
from app.usecases.failures import Denied
from app.usecases.issue_api_token import issue_api_token
from app.usecases.issue_under_standing_grant import StandingRequest, issue_under_standing_grant
from app.usecases.issued_token import ACCESS_TOKEN, DELEGATION_GRANT
from app.usecases.prove_parties import ID_TOKEN, JWT
from app.usecases.world import World

router = APIRouter()


@router.post(
    "/token",
    summary="Issue or exchange a token",
    response_model=TokenResponse,
    response_model_exclude_none=True,
    responses=ERRORS,
    openapi_extra=form(
        "grant_type",
        code="an authorization code, with the grant type authorization_code (RFC 6749 §4.1.3)",
        code_verifier="PKCE's proof (RFC 7636 §4.5)",
        redirect_uri="where the code was sent, if the request for it said so",
        assertion="an identity assertion, with the grant type jwt-bearer (RFC 7523 §2.1)",
        subject_token="a DelegationGrant, an access token, or a trusted issuer's token (RFC 8693 §2.1)",
        subject_token_type=f"`{DELEGATION_GRANT}`, `{ACCESS_TOKEN}`, `{JWT}` or `{ID_TOKEN}`",
        actor_token="an access token of the client that will act, or its workload's token",
        actor_token_type=f"`{ACCESS_TOKEN}` or `{JWT}`",
        resource="the tool server's audience; may repeat (RFC 8707)",
        audience="the same, by RFC 8693's name",
        requested_token_type=f"`{ACCESS_TOKEN}` unless it is `{DELEGATION_GRANT}`",
        scope="space-delimited",
        authorization_details='a JSON array of one `{"type": "delegation", …}` with the narrowing (RFC 9396)',
        dpop_jkt="the thumbprint of the key that what is issued is bound to, where another than the proven one is",
        client_id="with client_secret_post, with a workload's assertion, and of a client that proves nothing",
        client_secret="with client_secret_post",
        client_assertion="a JWT that proves the client (RFC 7523 §2.2)",
        client_assertion_type=f"`{JWT_BEARER}`",
    ),
)
async def token(world: TheWorld, form: ProvenForm, client: TheClient) -> Response:
    """Each grant type (RFC 6749 §4.1, §4.4, RFC 8693, RFC 7523 §2.1) has its row in `ISSUERS`."""
    grant_type = form.need("grant_type")
    issue = ISSUERS.get(grant_type)
    if issue is None:
        raise OAuthError("unsupported_grant_type", "the grant type is not supported")
    if grant_type not in client.grant_types:
        raise OAuthError("unauthorized_client", "the client may not use this grant type")
    if grant_type == GrantType.AUTHORIZATION_CODE:
        # An application without a secret may be anybody: no proof is kept for whoever only knows its name.
        await refuse_unredeemable(world, client, form)
    await take_proof(world, client, form)
    body = await issue(world, client, form)
    return JSONResponse(body.model_dump(exclude_none=True), headers=NO_STORE)


async def _client_credentials(world: World, client: Client, form: Form) -> TokenResponse:
    """For Subgrant's own API where no tool server is named, else under the client's standing grant for it."""
    resource, scopes = targets_of(form), scopes_of(form)
    if set(resource) <= {world.rules.issuer}:
        if form.one("authorization_details") is not None:
            raise OAuthError("invalid_authorization_details", "a token for the API carries no delegation")
        issued = await issue_api_token(world, client, resource=resource, scopes=scopes, key_thumbprint=key_for(form))
        if isinstance(issued, Denied):
            raise refused(issued)
        return for_api(issued)
    wanted = StandingRequest(
        owner=client,
        client=client,
        resource=resource,
        scopes=scopes,
        fields=narrowing_of(form),
        key_thumbprint=key_for(form),
    )
    with issuing():
        delegation = await issue_under_standing_grant(world, wanted)
    if isinstance(delegation, Denied):
        raise refused(delegation)
    return delegated(delegation)


ISSUERS: Final[Mapping[str, Callable[[World, Client, Form], Awaitable[TokenResponse]]]] = {
    GrantType.CLIENT_CREDENTIALS: _client_credentials,
    GrantType.TOKEN_EXCHANGE: exchange,
    GrantType.JWT_BEARER: assertion,
    GrantType.AUTHORIZATION_CODE: code,
}
