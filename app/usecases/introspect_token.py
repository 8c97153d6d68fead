"""What a token is worth right now (RFC 7662). Whoever may not know learns only `active: false`."""

from app.core.grant import GrantId, render_grant
from app.core.registry import Client
from app.core.strict_json import JsonObject
from app.ports import TokenRefused
from app.usecases.load_chain import Lineage, death, load_lineage
from app.usecases.world import Caller, World

INACTIVE: JsonObject = {"active": False}


async def introspect_token(world: World, client: Client, token: str) -> JsonObject:
    """The claims of a live token or grant, with what it allows; exactly `{"active": false}` for anything else."""
    try:
        access = world.signer.verify_access_token(token, world.clock())
    except TokenRefused:
        return await _delegation_grant(world, client, token)
    if access.tenant_id != client.tenant_id:
        return INACTIVE
    claims = {**access.claims, "active": True, "token_type": "Bearer"}
    if access.grant_id is None:
        return claims if access.client_id == client.client_id else INACTIVE
    node = await _living(world, client, access.grant_id)
    return INACTIVE if node is None else claims | node


async def _delegation_grant(world: World, client: Client, token: str) -> JsonObject:
    try:
        grant = world.signer.verify_grant(token).grant
    except TokenRefused:
        return INACTIVE
    node = await _living(world, client, grant.grant_id) if grant.tenant_id == client.tenant_id else None
    if node is None:
        return INACTIVE
    return node | {
        "active": True,
        "token_type": "N_A",
        "sub": grant.subject,
        "client_id": grant.holder,
        "iss": world.rules.issuer,
        "jti": grant.grant_id,
        "exp": int(grant.expires_at.timestamp()),
    }


async def _living(world: World, client: Client, grant_id: GrantId) -> JsonObject | None:
    """What a living grant allows, for a client that may know: its holder, its issuers, who sees the tenant whole."""
    asker = Caller(client_id=client.client_id, tenant_id=client.tenant_id, scopes=frozenset(client.scopes))
    async with world.store.read() as tx:
        lineage = await load_lineage(tx, world, client.tenant_id, grant_id, lock=False)
        if not isinstance(lineage, Lineage) or not (lineage.permits(asker) or asker.sees_whole_tenant):
            return None
        if await death(tx, world, lineage) is not None:
            return None
    details: JsonObject = {"type": "delegation", **render_grant(lineage.chain.leaf)}
    return {"act": lineage.chain.actors, "authorization_details": [details]}
