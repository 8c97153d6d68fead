"""Who presents this token? An access token for the API or for a grant, or a DelegationGrant itself."""

from dataclasses import replace

from app.core.reasons import Reason
from app.core.registry import Scope
from app.ports import AccessToken, TokenExpired, TokenRefused
from app.usecases.failures import Denied
from app.usecases.world import Caller, World


async def authenticate_caller(world: World, token: str, *, may_be_expired: bool = False) -> Caller | Denied:
    """The caller that a bearer token proves, or why it proves none.

    A token for the API counts only while its client is active. For a token that names a grant the use cases
    judge the whole chain, so nothing of it is decided here. With `may_be_expired` an expired token for a grant
    still says whose it was; whoever asks for that refuses it on its own.
    """
    try:
        access = world.signer.verify_access_token(token, world.clock())
    except TokenExpired as expired:
        if may_be_expired and expired.token.grant_id is not None:
            return replace(_grant_caller(expired.token), is_expired=True)
        return Denied(reason=expired.reason, detail=expired.detail)
    except TokenRefused as refused:
        return _grant_bearer(world, token) or Denied(reason=refused.reason, detail=refused.detail)
    return await _api_caller(world, access) if access.grant_id is None else _grant_caller(access)


def _grant_caller(access: AccessToken) -> Caller:
    return Caller(
        client_id=access.client_id,
        tenant_id=access.tenant_id,
        scopes=access.scopes,
        grant_id=access.grant_id,
        audience=access.audience,
    )


def _grant_bearer(world: World, token: str) -> Caller | None:
    try:
        grant = world.signer.verify_grant(token).grant
    except TokenRefused:
        return None
    return Caller(client_id=grant.holder, tenant_id=grant.tenant_id, grant_id=grant.grant_id)


async def _api_caller(world: World, access: AccessToken) -> Caller | Denied:
    if access.audience != world.rules.issuer:
        return Denied(reason=Reason.AUDIENCE_MISMATCH, detail="the token is for another audience")
    async with world.store.read() as tx:
        client = await tx.registry.client(access.client_id)
        tenant = await tx.registry.tenant(access.tenant_id)
    if client is None or tenant is None or not (client.active and tenant.active):
        return Denied(reason=Reason.TOKEN_INVALID, detail="the token's client is disabled")
    # A scope taken from the client since is gone at once, though the token still names it.
    scopes = access.scopes & {scope.value for scope in client.scopes}
    return Caller(client_id=client.client_id, tenant_id=client.tenant_id, scopes=frozenset(Scope(s) for s in scopes))
