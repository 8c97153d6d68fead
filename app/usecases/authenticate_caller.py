"""Who presents this token? An access token for the API or for a grant, or a DelegationGrant itself."""

from dataclasses import replace

from app.core.grant import ClientId
from app.core.reasons import Reason
from app.core.registry import Scope
from app.ports import AccessToken, TokenExpired, TokenRefused
from app.usecases.failures import Denied
from app.usecases.prove_possession import MUST_BE_BOUND, Presented, lacks_key, prove_for
from app.usecases.revoke_token import is_revoked
from app.usecases.world import Caller, World


async def authenticate_caller(world: World, presented: Presented, *, may_be_expired: bool = False) -> Caller | Denied:
    """The caller that a token proves, with the proof of the key that it is bound to, or why it proves none.

    A token for the API counts only while its client is active. For a token that names a grant the use cases
    judge the whole chain, so nothing of it is decided here. With `may_be_expired` an expired token for a grant
    still says whose it was; whoever asks for that refuses it on its own.
    """
    caller = await _bearer(world, presented.token, may_be_expired=may_be_expired)
    if isinstance(caller, Denied):
        return caller
    possession = prove_for(world, presented, caller.key_thumbprint)
    if isinstance(possession, Denied):
        return possession
    return replace(caller, possession=possession, signature=presented.token.rpartition(".")[2])


async def _bearer(world: World, token: str, *, may_be_expired: bool) -> Caller | Denied:
    """Whose token it is, whether or not whoever bears it is the one."""
    try:
        access = world.signer.verify_access_token(token, world.clock())
    except TokenExpired as expired:
        if may_be_expired and expired.token.grant_id is not None:
            return replace(grant_caller(expired.token), is_expired=True)
        return Denied(reason=expired.reason, detail=expired.detail)
    except TokenRefused as refused:
        return _grant_bearer(world, token) or Denied(reason=refused.reason, detail=refused.detail)
    return await api_caller(world, access) if access.grant_id is None else grant_caller(access)


def grant_caller(access: AccessToken) -> Caller:
    """Whom a token for a grant proves, whatever became of the grant."""
    return Caller(
        client_id=access.client_id,
        tenant_id=access.tenant_id,
        scopes=access.scopes,
        grant_id=access.grant_id,
        audience=access.audience,
        key_thumbprint=access.key_thumbprint,
    )


def _grant_bearer(world: World, token: str) -> Caller | None:
    try:
        grant = world.signer.verify_grant(token).grant
    except TokenRefused:
        return None
    return Caller(
        client_id=grant.holder,
        tenant_id=grant.tenant_id,
        grant_id=grant.grant_id,
        key_thumbprint=grant.key_thumbprint,
    )


async def api_caller(world: World, access: AccessToken) -> Caller | Denied:
    """Whom a token for the API proves now, or why it proves nobody any more."""
    if access.audience != world.rules.issuer:
        return Denied(reason=Reason.AUDIENCE_MISMATCH, detail="the token is for another audience")
    async with world.store.read() as tx:
        client = await tx.registry.client(access.client_id)
        # An application's token is the person's that let it act; its own client's otherwise.
        person = await tx.registry.client(ClientId(access.subject))
        tenant = await tx.registry.tenant(access.tenant_id)
        revoked = await is_revoked(tx, world, access)
    if revoked:
        return Denied(reason=Reason.TOKEN_INVALID, detail="the token was revoked")
    if client is None or person is None or {client.tenant_id, person.tenant_id} != {access.tenant_id}:
        return Denied(reason=Reason.TOKEN_INVALID, detail="the token's client is not known")
    if tenant is None or not (client.active and person.active and tenant.active):
        return Denied(reason=Reason.TOKEN_INVALID, detail="the token's client is disabled")
    if lacks_key(access.key_thumbprint, client, person):
        return MUST_BE_BOUND
    # A scope taken from either since is gone at once, though the token still names it.
    scopes = access.scopes & {scope.value for scope in client.scopes & person.scopes}
    return Caller(
        client_id=person.client_id,
        tenant_id=person.tenant_id,
        through=None if client.client_id == person.client_id else client.client_id,
        scopes=frozenset(Scope(s) for s in scopes),
        key_thumbprint=access.key_thumbprint,
    )
