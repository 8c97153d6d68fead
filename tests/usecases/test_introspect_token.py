"""Introspection (RFC 7662): who learns what of a token, and that nobody else learns anything at all."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.grant import ClientId, GrantId, TenantId, render_grant
from app.core.registry import Client, ClientKind, Scope, Tenant
from app.core.strict_json import JsonObject
from app.ports import Transaction
from app.usecases.close_grant import close_grant
from app.usecases.exchange_token import ExchangeRequest, exchange_token
from app.usecases.failures import Denied
from app.usecases.introspect_token import introspect_token
from app.usecases.issue_api_token import ApiToken, issue_api_token
from app.usecases.issued_token import ACCESS_TOKEN, DELEGATION_GRANT, Exchanged
from app.usecases.mint_grant import SignedGrant
from app.usecases.read_wish import NarrowingFields
from tests.samples import ACME, NOW, SUPPORT
from tests.usecases.worlds import PLANNER, Scene, a_scene

pytestmark = pytest.mark.anyio

INACTIVE = {"active": False}
WORKER = ClientId("worker")
ALL = frozenset({Scope.ADMIN, Scope.AUDIT_READ})


@pytest.fixture
async def scene() -> Scene:
    return await a_scene()


async def change(scene: Scene, step: Callable[[Transaction], Awaitable[object]]) -> None:
    async with scene.world.store.write() as tx:
        await step(tx)
        await tx.commit()


async def client(scene: Scene, client_id: ClientId = PLANNER) -> Client:
    async with scene.world.store.read() as tx:
        found = await tx.registry.client(client_id)
    assert found is not None
    return found


async def another(scene: Scene, client_id: str, scopes: frozenset[Scope] = frozenset(), tenant: str = ACME) -> Client:
    made = replace(await client(scene), client_id=ClientId(client_id), scopes=scopes, tenant_id=TenantId(tenant))

    async def add(tx: Transaction) -> None:
        if await tx.registry.tenant(made.tenant_id) is None:
            await tx.registry.add_tenant(Tenant(tenant_id=made.tenant_id, name="Another"))
        await tx.registry.add_client(made)

    await change(scene, add)
    return made


async def api_token(scene: Scene, key_thumbprint: str | None = None) -> str:
    issued = await issue_api_token(
        scene.world, await client(scene), resource=(), scopes=None, key_thumbprint=key_thumbprint
    )
    assert isinstance(issued, ApiToken)
    return issued.token


async def exchanged(scene: Scene, made: SignedGrant, **request: object) -> Exchanged:
    wish = ExchangeRequest(subject_token=made.signed, subject_token_type=DELEGATION_GRANT)
    result = await exchange_token(scene.world, await client(scene), replace(wish, **request))  # type: ignore[arg-type]
    assert not isinstance(result, Denied), result
    return result


async def told(scene: Scene, token: str, asker: Client | None = None) -> JsonObject:
    return await introspect_token(scene.world, asker or await client(scene), token)


# --- what is told -----------------------------------------------------------------------------------------


async def test_of_a_token_for_a_tool_server_everything_is_told_that_it_says_and_allows(scene: Scene) -> None:
    made = await exchanged(scene, await scene.grant())
    claims = scene.world.signer.verify_access_token(made.token, NOW).claims
    answer = await told(scene, made.token)
    assert answer == claims | {
        "active": True,
        "token_type": "Bearer",
        "act": {"sub": PLANNER, "run": made.grant.child_run_id},
        "authorization_details": [made.details],
    }
    assert {"iss", "aud", "sub", "client_id", "scope", "jti", "iat", "nbf", "exp"} <= answer.keys()
    assert answer["aud"] == SUPPORT.uri


async def test_of_a_token_that_is_bound_to_a_key_the_key_is_told(scene: Scene) -> None:
    bound = await exchanged(scene, await scene.grant(), key_thumbprint="thumb", requested_token_type=ACCESS_TOKEN)
    for token in (bound.token, await api_token(scene, "thumb")):
        answer = await told(scene, token)
        assert (answer["token_type"], answer["cnf"]) == ("DPoP", {"jkt": "thumb"})
    assert "cnf" not in await told(scene, await api_token(scene))


async def test_a_grant_itself_is_no_access_token_and_says_what_it_is(scene: Scene) -> None:
    made = await scene.grant()
    grant = made.grant
    assert await told(scene, made.signed) == {
        "active": True,
        "token_type": "N_A",
        "iss": scene.world.rules.issuer,
        "aud": SUPPORT.uri,
        "sub": PLANNER,
        "client_id": PLANNER,
        "jti": grant.grant_id,
        "iat": int(grant.issued_at.timestamp()),
        "nbf": int(grant.not_before.timestamp()),
        "exp": int(grant.expires_at.timestamp()),
        "act": {"sub": PLANNER, "run": grant.child_run_id},
        "authorization_details": [{"type": "delegation", **render_grant(grant)}],
    }


async def test_a_grant_that_is_bound_to_a_key_says_so(scene: Scene) -> None:
    bound = await exchanged(
        scene,
        await scene.grant(may_redelegate=True),
        key_thumbprint="thumb",
        requested_token_type=DELEGATION_GRANT,
    )
    assert (await told(scene, bound.token))["cnf"] == {"jkt": "thumb"}


async def test_a_scope_that_was_taken_from_the_client_is_not_told_any_more(scene: Scene) -> None:
    token = await api_token(scene)
    assert (await told(scene, token))["scope"] == "grants:issue grants:read"
    fewer = replace(await client(scene), scopes=frozenset({Scope.GRANTS_READ}))
    await change(scene, lambda tx: tx.registry.put_client(fewer))
    assert (await told(scene, token))["scope"] == "grants:read"


# --- who is told ------------------------------------------------------------------------------------------


async def test_nobody_else_learns_anything_of_a_token(scene: Scene) -> None:
    made = await scene.grant()
    tokens = [made.signed, (await exchanged(scene, made)).token, await api_token(scene)]
    strangers = [
        await another(scene, "beside"),
        await another(scene, "reader", frozenset({Scope.GRANTS_READ, Scope.GRANTS_ISSUE})),
        await another(scene, "elsewhere", ALL, tenant="globex"),
    ]
    for stranger in strangers:
        assert [await told(scene, token, stranger) for token in tokens] == [INACTIVE] * 3


@pytest.mark.parametrize("scope", sorted(ALL))
async def test_who_sees_the_whole_tenant_is_told_of_every_token_in_it(scene: Scene, scope: Scope) -> None:
    made = await scene.grant()
    auditor = await another(scene, "auditor", frozenset({scope}))
    for token in (made.signed, (await exchanged(scene, made)).token, await api_token(scene)):
        assert await told(scene, token, auditor) == await told(scene, token)


async def test_a_grants_holder_and_its_issuer_are_told_and_the_issuers_of_its_ancestors(scene: Scene) -> None:
    worker = await another(scene, WORKER)
    actor = await issue_api_token(scene.world, worker, resource=(), scopes=None)
    assert isinstance(actor, ApiToken)
    made = await exchanged(
        scene,
        await scene.grant(may_redelegate=True, max_depth=2),
        actor_token=actor.token,
        actor_token_type=ACCESS_TOKEN,
        requested_token_type=DELEGATION_GRANT,
    )
    assert made.grant.holder == WORKER
    for asker in (worker, await client(scene)):
        assert (await told(scene, made.token, asker))["active"] is True
    assert await told(scene, made.token, await another(scene, "beside")) == INACTIVE


async def test_an_application_holds_by_itself_no_scope_that_it_may_ask_people_for(scene: Scene) -> None:
    made = await scene.grant()
    tokens = [made.signed, (await exchanged(scene, made)).token, await api_token(scene)]
    app = replace(await another(scene, "app", ALL), kind=ClientKind.APP)
    assert [await told(scene, token, app) for token in tokens] == [INACTIVE] * 3


# --- what is over -----------------------------------------------------------------------------------------


async def disable_client(scene: Scene) -> None:
    disabled = replace(await client(scene), active=False)
    await change(scene, lambda tx: tx.registry.put_client(disabled))


async def disable_tenant(scene: Scene) -> None:
    await change(scene, lambda tx: tx.registry.put_tenant(Tenant(tenant_id=ACME, name="Acme", active=False)))


async def disable_server(scene: Scene) -> None:
    async def step(tx: Transaction) -> None:
        server = await tx.registry.server(ACME, SUPPORT.server)
        assert server is not None
        await tx.registry.put_server(replace(server, active=False))

    await change(scene, step)


async def expire(scene: Scene) -> None:
    scene.clock.now += timedelta(hours=1)


ENDINGS: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "its client is disabled": disable_client,
    "its tenant is disabled": disable_tenant,
    "its tool server is disabled": disable_server,
    "it has expired": expire,
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_token_whose_ground_is_gone_is_exactly_inactive(scene: Scene, ending: str) -> None:
    auditor = await another(scene, "auditor", ALL)
    made = await scene.grant()
    tokens = [made.signed, (await exchanged(scene, made)).token]
    if ending != "its tool server is disabled":
        tokens.append(await api_token(scene))
    for token in tokens:
        assert (await told(scene, token, auditor))["active"] is True
    await ENDINGS[ending](scene)
    assert [await told(scene, token, auditor) for token in tokens] == [INACTIVE] * len(tokens)


@pytest.mark.parametrize("who", ["its client", "the holder of its grant"])
async def test_a_token_without_the_key_that_it_must_have_is_exactly_inactive(scene: Scene, who: str) -> None:
    worker, auditor = await another(scene, WORKER), await another(scene, "auditor", ALL)
    actor = await issue_api_token(scene.world, worker, resource=(), scopes=None)
    assert isinstance(actor, ApiToken)
    made = await scene.grant(may_redelegate=True)
    handed: dict[str, object] = {"actor_token": actor.token, "actor_token_type": ACCESS_TOKEN}
    free = (await exchanged(scene, made, **handed)).token
    bound = (await exchanged(scene, made, **handed, key_thumbprint="thumb")).token
    assert (await told(scene, free, auditor))["active"] is True
    insisting = replace(await client(scene) if who == "its client" else worker, dpop_required=True)
    await change(scene, lambda tx: tx.registry.put_client(insisting))
    assert await told(scene, free, auditor) == INACTIVE
    for other in (bound, made.signed):
        assert (await told(scene, other, auditor))["active"] is True


async def test_a_token_below_a_closed_grant_is_exactly_inactive(scene: Scene) -> None:
    made = await scene.grant()
    token = (await exchanged(scene, made)).token
    closed = await close_grant(scene.world, scene.planner, GrantId(made.grant.grant_id), "done")
    assert not isinstance(closed, Denied)
    assert [await told(scene, each) for each in (made.signed, token)] == [INACTIVE] * 2


async def test_a_token_that_is_not_valid_yet_is_exactly_inactive(scene: Scene) -> None:
    made = await scene.grant()
    later = NarrowingFields(not_before=NOW + timedelta(minutes=1))
    token = (await exchanged(scene, made, fields=later)).token
    assert await told(scene, token) == INACTIVE
    scene.clock.now += timedelta(minutes=1)
    assert (await told(scene, token))["active"] is True


@pytest.mark.parametrize("token", ["", "a.b.c", "not a token", "é", "x" * 200_000])
async def test_what_is_no_token_is_exactly_inactive(scene: Scene, token: str) -> None:
    assert await told(scene, token) == INACTIVE
