"""Identity assertions as grants (RFC 7523 §2.1): what MCP calls enterprise-managed authorization."""

from app.api.oauth.details import narrowing_of
from app.api.oauth.failures import refused_grant
from app.api.oauth.form import Form
from app.api.oauth.issued import TokenResponse, delegated, issuing, scopes_of, targets_of
from app.api.oauth.possession import key_for, proven_key
from app.core.registry import Client
from app.usecases.accept_identity_assertion import AssertionRequest, accept_identity_assertion
from app.usecases.failures import Denied
from app.usecases.world import World


async def assertion(world: World, client: Client, form: Form) -> TokenResponse:
    request = AssertionRequest(
        assertion=form.need("assertion"),
        resource=targets_of(form),
        scopes=scopes_of(form),
        fields=narrowing_of(form),
        key_thumbprint=key_for(form),
        proven_key=proven_key(form),
    )
    with issuing():
        issued = await accept_identity_assertion(world, client, request)
    if isinstance(issued, Denied):
        raise refused_grant(issued)
    return delegated(issued)
