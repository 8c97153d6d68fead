"""Revoke a token or a grant (RFC 7009): by whom it was issued to, at once, in whatever spelling it comes.

What is not the client's to revoke is left untouched, without a word. A token for a grant ends with its node and all
below it; one for the API has no node, so its `jti` is kept as spent for as long as it could be used.
"""

from datetime import datetime

from app.core.audit import RecordType
from app.core.grant import GrantId
from app.core.registry import Client
from app.ports import AccessToken, TokenRefused, Transaction
from app.usecases.close_grant import revoke
from app.usecases.world import CLOCK_MARGIN, World, evidence


async def revoke_token(world: World, client: Client, token: str) -> None:
    """End what the token is good for, if it is the client's. What is no token, or none any more, has ended already."""
    try:
        access = world.signer.verify_access_token(token, world.clock())
    except TokenRefused:
        grant_id = _grant_itself(world, client, token)
    else:
        grant_id = access.grant_id if access.tenant_id == client.tenant_id else None
        if access.grant_id is None and access.client_id == client.client_id:
            await revoke_api_token(world, client, access.subject, access.jti, access.expires_at)
    if grant_id is not None:
        await revoke(world, client, grant_id)


async def is_revoked(tx: Transaction, world: World, access: AccessToken) -> bool:
    """Whether a token for the API was revoked. Those for grants are judged by their grants."""
    return await tx.spent.is_spent(access.tenant_id, world.rules.issuer, access.jti)


def _grant_itself(world: World, client: Client, token: str) -> GrantId | None:
    try:
        grant = world.signer.verify_grant(token).grant
    except TokenRefused:
        return None
    return grant.grant_id if grant.tenant_id == client.tenant_id else None


async def revoke_api_token(world: World, client: Client, subject: str, token_id: str, expires_at: datetime) -> None:
    """End a token for the API that a client got for this subject. Only what ends something is on record."""
    now, until = world.clock(), expires_at + CLOCK_MARGIN
    async with world.store.write() as tx:
        if await tx.spent.spend(client.tenant_id, world.rules.issuer, token_id, expires_at=until, now=now):
            members = {"clientId": client.client_id, "subject": subject, "tokenId": token_id}
            await tx.audit.append(client.tenant_id, [evidence(RecordType.TOKEN_REVOKED, now, members)])
            await tx.commit()
