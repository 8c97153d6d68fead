"""Revocation (RFC 7009): whose token it is, what ends with it, and that every spelling of a token is the same one."""

import base64
from dataclasses import replace
from datetime import timedelta

import pytest

from app.adapters.jose import JoseSigner, KeyRing, make_key
from app.core.grant import ClientId, TenantId
from app.core.reasons import Reason
from app.core.registry import Client, Tenant
from app.ports import AccessToken
from app.usecases.authenticate_caller import api_caller
from app.usecases.failures import Denied
from app.usecases.introspect_token import introspect_token
from app.usecases.issue_api_token import ApiToken, issue_api_token
from app.usecases.load_chain import Lineage, death, load_lineage
from app.usecases.mint_grant import SignedGrant
from app.usecases.revoke_token import revoke_token
from app.usecases.world import CLOCK_MARGIN, Caller
from tests.samples import ACME, NOW
from tests.usecases.worlds import PLANNER, Scene, a_scene

pytestmark = pytest.mark.anyio

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


async def planner(scene: Scene) -> Client:
    async with scene.world.store.read() as tx:
        client = await tx.registry.client(PLANNER)
    assert client is not None
    return client


async def another(scene: Scene, client_id: str, tenant_id: TenantId = ACME) -> Client:
    """A client that has nothing to do with the planner's tokens."""
    client = replace(await planner(scene), client_id=ClientId(client_id), tenant_id=tenant_id)
    async with scene.world.store.write() as tx:
        if await tx.registry.tenant(tenant_id) is None:
            await tx.registry.add_tenant(Tenant(tenant_id=tenant_id, name="Another"))
        await tx.registry.add_client(client)
        await tx.commit()
    return client


async def api_token(scene: Scene, client: Client) -> str:
    issued = await issue_api_token(scene.world, client, resource=(), scopes=None)
    assert isinstance(issued, ApiToken)
    return issued.token


async def is_accepted(scene: Scene, token: str) -> bool:
    """Whether the API takes the token, which introspection says as well."""
    caller = await api_caller(scene.world, scene.world.signer.verify_access_token(token, scene.clock()))
    told = await introspect_token(scene.world, await planner(scene), token)
    assert told["active"] is isinstance(caller, Caller)
    if isinstance(caller, Denied):
        assert told == {"active": False}
        assert caller.reason is Reason.TOKEN_INVALID
    return isinstance(caller, Caller)


async def cause_of_death(scene: Scene, made: SignedGrant) -> Reason | None:
    async with scene.world.store.read() as tx:
        lineage = await load_lineage(tx, scene.world, ACME, made.grant.grant_id, lock=False)
        assert isinstance(lineage, Lineage)
        dead = await death(tx, scene.world, lineage)
    return None if dead is None else dead.reason


async def test_a_revoked_token_for_the_api_is_refused_and_others_of_its_client_are_not() -> None:
    scene = await a_scene()
    client = await planner(scene)
    token, other = await api_token(scene, client), await api_token(scene, client)
    assert await is_accepted(scene, token)
    await revoke_token(scene.world, client, token)
    assert not await is_accepted(scene, token)
    assert await is_accepted(scene, other)


async def test_a_revocation_is_on_record_once_without_the_token() -> None:
    scene = await a_scene()
    client = await planner(scene)
    token = await api_token(scene, client)
    for _ in range(2):
        await revoke_token(scene.world, client, token)
    access: AccessToken = scene.world.signer.verify_access_token(token, NOW)
    (record,) = [body for body in await scene.records() if body["type"] == "token.revoked"]
    assert (record["clientId"], record["tokenId"], record["subject"]) == (PLANNER, access.jti, PLANNER)
    assert token.rpartition(".")[2] not in str(record)


@pytest.mark.parametrize("tenant_id", [ACME, TenantId("globex")])
async def test_another_clients_token_is_left_untouched(tenant_id: TenantId) -> None:
    scene = await a_scene()
    token, made = await api_token(scene, await planner(scene)), await scene.grant()
    stranger = await another(scene, "stranger", tenant_id)
    for foreign in (token, made.signed):
        await revoke_token(scene.world, stranger, foreign)
    assert await is_accepted(scene, token)
    assert await cause_of_death(scene, made) is None
    assert "delegation.closed" not in await scene.types()


async def test_a_revoked_grant_is_revoked_by_its_own_signed_form() -> None:
    scene = await a_scene()
    made, beside = await scene.grant(), await scene.grant()
    await revoke_token(scene.world, await planner(scene), made.signed)
    assert await cause_of_death(scene, made) is Reason.GRANT_REVOKED
    assert await cause_of_death(scene, beside) is None


@pytest.mark.parametrize("token", ["", "a.b.c", "not a token", "x" * 200_000, "é"])
async def test_what_is_no_token_is_revoked_without_a_word(token: str) -> None:
    scene = await a_scene()
    before = await scene.records()
    await revoke_token(scene.world, await planner(scene), token)
    assert await scene.records() == before


async def test_an_expired_token_needs_no_revocation_and_leaves_nothing_behind() -> None:
    scene = await a_scene()
    client = await planner(scene)
    token = await api_token(scene, client)
    scene.clock.now += timedelta(hours=1)
    await revoke_token(scene.world, client, token)
    assert "token.revoked" not in await scene.types()


async def test_a_revocation_is_remembered_for_as_long_as_the_token_lives() -> None:
    scene = await a_scene()
    client = await planner(scene)
    token = await api_token(scene, client)
    await revoke_token(scene.world, client, token)
    scene.clock.now = scene.world.signer.verify_access_token(token, NOW).expires_at - timedelta(seconds=1)
    # Another revocation takes the chance to forget what has expired, and this has not.
    await revoke_token(scene.world, client, await api_token(scene, client))
    assert not await is_accepted(scene, token)


async def test_a_revocation_is_remembered_where_a_clock_is_behind() -> None:
    scene = await a_scene()
    client = await planner(scene)
    token = await api_token(scene, client)
    expires_at = scene.world.signer.verify_access_token(token, NOW).expires_at
    await revoke_token(scene.world, client, token)
    scene.clock.now = expires_at + CLOCK_MARGIN - timedelta(seconds=1)
    await revoke_token(scene.world, client, await api_token(scene, client))
    scene.clock.now = expires_at - timedelta(seconds=1)
    assert not await is_accepted(scene, token)


async def test_another_spelling_of_a_revoked_token_is_the_same_token() -> None:
    """ECDSA has a second valid signature for every one (s and n - s): whoever has a token can make it."""
    scene = await a_scene()
    vault = scene.world.vault
    ring = KeyRing.load((make_key("ES256", NOW, vault.seal),), vault.open)
    signer = JoseSigner(issuer=scene.world.rules.issuer, keys=ring, clock=scene.clock, alg="ES256")
    scene.world = replace(scene.world, signer=signer)
    client = await planner(scene)
    for revoked_by_twin in (False, True):
        token = await api_token(scene, client)
        twin = respelt(token)
        assert twin != token
        assert await is_accepted(scene, twin)
        await revoke_token(scene.world, client, twin if revoked_by_twin else token)
        assert not await is_accepted(scene, twin)
        assert not await is_accepted(scene, token)


def respelt(token: str) -> str:
    head, _, signature = token.rpartition(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    r, s = raw[:32], int.from_bytes(raw[32:])
    other = r + (P256_ORDER - s).to_bytes(32)
    return f"{head}.{base64.urlsafe_b64encode(other).rstrip(b'=').decode()}"
