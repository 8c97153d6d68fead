"""The authorization code as a grant type (RFC 6749 §4.1.3), with PKCE's proof (RFC 7636 §4.5)."""

import re
from typing import Final

from app.api.oauth.failures import OAuthError, refused_grant
from app.api.oauth.form import Form
from app.api.oauth.issued import TokenResponse, delegated, for_api, issuing, targets_of
from app.api.oauth.possession import proven_key
from app.core.registry import Client
from app.usecases.failures import Denied
from app.usecases.issue_api_token import ApiToken
from app.usecases.redeem_code import Redemption, redeem_code
from app.usecases.world import World

_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")
"""RFC 7636 §4.1."""


async def code(world: World, client: Client, form: Form) -> TokenResponse:
    """The token that a person allowed, for the code that says so."""
    verifier = form.need("code_verifier")
    if not _VERIFIER.fullmatch(verifier):
        raise OAuthError("invalid_request", "the code_verifier must be 43 to 128 unreserved characters")
    presented = Redemption(
        code=form.need("code"),
        verifier=verifier,
        redirect_uri=form.one("redirect_uri"),
        resource=targets_of(form),
        key_thumbprint=proven_key(form),
    )
    with issuing():
        issued = await redeem_code(world, client, presented)
    if isinstance(issued, Denied):
        raise refused_grant(issued)
    return for_api(issued) if isinstance(issued, ApiToken) else delegated(issued)
