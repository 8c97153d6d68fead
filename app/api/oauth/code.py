"""The authorization code as a grant type (RFC 6749 §4.1.3), with PKCE's proof (RFC 7636 §4.5)."""

import re
from typing import Final

from app.api.oauth.details import narrowing_of
from app.api.oauth.failures import OAuthError, refused_grant
from app.api.oauth.form import Form
from app.api.oauth.issued import TokenResponse, delegated, for_api, issuing, targets_of
from app.api.oauth.possession import key_for, proven_key
from app.core.registry import Client
from app.usecases.failures import Denied
from app.usecases.issue_api_token import ApiToken
from app.usecases.redeem_code import Redemption, redeem_code, redeemable
from app.usecases.world import World

_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")
"""RFC 7636 §4.1."""


async def code(world: World, client: Client, form: Form) -> TokenResponse:
    """The token that a person allowed, for the code that says so."""
    with issuing():
        issued = await redeem_code(world, client, _presented(form))
    if isinstance(issued, Denied):
        raise refused_grant(issued)
    if isinstance(issued, ApiToken):
        return for_api(issued)
    return delegated(issued)


async def refuse_unredeemable(world: World, client: Client, form: Form) -> None:
    """Raises OAuthError where it takes no store to see that the code is of no use to the client."""
    consent = await redeemable(world, client, _presented(form))
    if isinstance(consent, Denied):
        raise refused_grant(consent)
    if consent.request.resource is None and form.one("authorization_details") is not None:
        raise OAuthError("invalid_authorization_details", "a token for the API carries no delegation")


def _presented(form: Form) -> Redemption:
    verifier = form.need("code_verifier")
    if not _VERIFIER.fullmatch(verifier):
        raise OAuthError("invalid_request", "the code_verifier must be 43 to 128 unreserved characters")
    return Redemption(
        code=form.need("code"),
        verifier=verifier,
        redirect_uri=form.one("redirect_uri"),
        resource=targets_of(form),
        fields=narrowing_of(form),
        proven_key=proven_key(form),
        key_thumbprint=key_for(form),
    )
