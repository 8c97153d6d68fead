"""What a token is worth right now (RFC 7662). Whoever may not know learns only `active: false`.

Who may know: of a token for the API the client that it was issued to, of one for a grant the grant's holder and the
clients that issued it or an ancestor; and in either case who sees the whole tenant.
"""

from app.core.grant import Grant, GrantId, render_grant
from app.core.registry import Client, ClientKind
from app.core.strict_json import JsonObject, JsonValue
from app.ports import AccessToken, TokenRefused, Transaction
from app.usecases.authenticate_caller import api_caller, grant_caller
from app.usecases.failures import Denied
from app.usecases.issued_token import confirmation
from app.usecases.load_chain import Lineage, death, load_lineage
from app.usecases.prove_possession import unbound
from app.usecases.world import Caller, World

INACTIVE: JsonObject = {"active": False}


async def introspect_token(world: World, client: Client, token: str) -> JsonObject:
    """The claims of a live token or grant, with what it allows; exactly `{"active": false}` for anything else."""
    # An application's scopes are what it may ask people for: by itself it holds none.
    scopes = frozenset() if client.kind is ClientKind.APP else client.scopes
    asker = Caller(client_id=client.client_id, tenant_id=client.tenant_id, scopes=frozenset(scopes))
    try:
        access = world.signer.verify_access_token(token, world.clock())
    except TokenRefused:
        return await _delegation_grant(world, asker, token)
    if access.tenant_id != asker.tenant_id:
        return INACTIVE
    if access.grant_id is None:
        return await _api_token(world, asker, access)
    node = await _living(world, asker, access.grant_id, grant_caller(access))
    return INACTIVE if node is None else _claims(access) | node


async def _api_token(world: World, asker: Caller, access: AccessToken) -> JsonObject:
    if not (access.client_id == asker.client_id or asker.sees_whole_tenant):
        return INACTIVE
    proven = await api_caller(world, access)
    if isinstance(proven, Denied):
        return INACTIVE
    return _claims(access) | {"scope": " ".join(sorted(proven.scopes))}


def _claims(access: AccessToken) -> JsonObject:
    kind = "Bearer" if access.key_thumbprint is None else "DPoP"
    return {**access.claims, "active": True, "token_type": kind}


async def _delegation_grant(world: World, asker: Caller, token: str) -> JsonObject:
    try:
        grant = world.signer.verify_grant(token).grant
    except TokenRefused:
        return INACTIVE
    node = await _living(world, asker, grant.grant_id) if grant.tenant_id == asker.tenant_id else None
    if node is None:
        return INACTIVE
    uris: list[JsonValue] = [audience.uri for audience in grant.audience]
    return node | {
        "active": True,
        "token_type": "N_A",
        "iss": world.rules.issuer,
        "aud": uris[0] if len(uris) == 1 else uris,
        "sub": grant.subject,
        "client_id": grant.holder,
        "jti": grant.grant_id,
        "iat": int(grant.issued_at.timestamp()),
        "nbf": int(grant.not_before.timestamp()),
        "exp": int(grant.expires_at.timestamp()),
        **confirmation(grant.key_thumbprint),
    }


async def _living(world: World, asker: Caller, grant_id: GrantId, bearer: Caller | None = None) -> JsonObject | None:
    """What a grant allows that lives and reaches a tool server, for whoever may know; else None.

    `bearer` is whom a token for it proves, which is worth nothing without the key that it must have. A grant itself
    is worth something without: its holder proves a key where it exchanges it.
    """
    async with world.store.read() as tx:
        lineage = await load_lineage(tx, world, asker.tenant_id, grant_id, lock=False)
        if not isinstance(lineage, Lineage) or not (lineage.permits(asker) or asker.sees_whole_tenant):
            return None
        if bearer is not None and await unbound(tx, bearer, lineage.chain) is not None:
            return None
        if await death(tx, world, lineage) is not None or not await _reaches_any(tx, lineage.chain.leaf):
            return None
    details: JsonObject = {"type": "delegation", **render_grant(lineage.chain.leaf)}
    return {"act": lineage.chain.actors, "authorization_details": [details]}


async def _reaches_any(tx: Transaction, grant: Grant) -> bool:
    """Whether a tool server of the grant is in service: the calls of others are refused, whatever the grant says."""
    servers = [await tx.registry.server(grant.tenant_id, name) for name in grant.servers]
    return any(server is not None and server.active for server in servers)
