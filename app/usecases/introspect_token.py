"""What a token is worth right now (RFC 7662). Whoever may not know learns only `active: false`."""

from app.core.grant import render_grant
from app.core.registry import Client
from app.core.strict_json import JsonObject
from app.ports import AccessToken, TokenRefused
from app.usecases.load_chain import Lineage, load_lineage
from app.usecases.world import Caller, World

INACTIVE: JsonObject = {"active": False}


async def introspect_token(world: World, client: Client, token: str) -> JsonObject:
    """The claims of a live token, with what its grant allows; exactly `{"active": false}` for anything else."""
    try:
        access = world.signer.verify_access_token(token, world.clock())
    except TokenRefused:
        return INACTIVE
    if access.tenant_id != client.tenant_id:
        return INACTIVE
    if access.grant_id is None:
        return _api_token(access) if access.client_id == client.client_id else INACTIVE
    return await _grant_token(world, client, access)


async def _grant_token(world: World, client: Client, access: AccessToken) -> JsonObject:
    assert access.grant_id is not None
    async with world.store.read() as tx:
        lineage = await load_lineage(tx, world, client.tenant_id, access.grant_id, lock=False)
    asker = Caller(client_id=client.client_id, tenant_id=client.tenant_id, scopes=frozenset(client.scopes))
    if not isinstance(lineage, Lineage) or not (lineage.permits(asker) or asker.sees_whole_tenant):
        return INACTIVE
    if lineage.death(world.clock()) is not None:
        return INACTIVE
    details: JsonObject = {"type": "delegation", **render_grant(lineage.chain.leaf)}
    return _api_token(access) | {"act": lineage.chain.actors, "authorization_details": [details]}


def _api_token(access: AccessToken) -> JsonObject:
    return {**access.claims, "active": True, "token_type": "Bearer"}
