"""Tokens for Subgrant's own API: for a client, or for the person that an application acts for."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.grant import ClientId
from app.core.reasons import Reason
from app.core.registry import Scope
from app.core.strict_json import JsonObject
from app.usecases.failures import Denied
from app.usecases.issue_api_token import ApiToken, issue_api_token
from app.usecases.issue_under_standing_grant import USED, Spending
from tests.samples import ACME, SUPPORT
from tests.usecases.standing import ISSUER, another_client, client
from tests.usecases.worlds import PLANNER, Scene, a_scene

pytestmark = pytest.mark.anyio


@pytest.fixture
async def scene() -> Scene:
    return await a_scene()


def claims_of(scene: Scene, issued: ApiToken | Denied) -> JsonObject:
    assert isinstance(issued, ApiToken), issued
    return scene.world.signer.verify_access_token(issued.token, scene.clock.now).claims


async def test_a_client_gets_the_scopes_that_it_asks_for_or_all_of_its_own(scene: Scene) -> None:
    planner = await client(scene)
    for asked, granted in ((None, "grants:issue grants:read"), (frozenset({"grants:read"}), "grants:read")):
        claims = claims_of(scene, await issue_api_token(scene.world, planner, resource=(), scopes=asked))
        assert (claims["scope"], claims["aud"]) == (granted, ISSUER)
        assert (claims["sub"], claims["client_id"]) == (PLANNER, PLANNER)
        assert not claims.keys() & {"grant_id", "act", "cnf"}


async def test_a_scope_that_the_client_lacks_is_refused(scene: Scene) -> None:
    asked = frozenset({"grants:read", "admin"})
    refused = await issue_api_token(scene.world, await client(scene), resource=(), scopes=asked)
    assert isinstance(refused, Denied)
    assert refused.reason is Reason.INSUFFICIENT_SCOPE


async def test_it_is_for_the_api_alone(scene: Scene) -> None:
    planner = await client(scene)
    assert isinstance(await issue_api_token(scene.world, planner, resource=(ISSUER,), scopes=None), ApiToken)
    both = await issue_api_token(scene.world, planner, resource=(ISSUER, SUPPORT.uri), scopes=None)
    assert isinstance(both, Denied)
    assert both.reason is Reason.TARGET_REFUSED


async def test_an_application_has_the_persons_scopes_and_the_person_as_its_subject(scene: Scene) -> None:
    app, person = await another_client(scene, "app"), await client(scene)
    issued = await issue_api_token(scene.world, app, resource=(), scopes=None, person=person, key_thumbprint="k" * 43)
    claims = claims_of(scene, issued)
    assert (claims["sub"], claims["client_id"], claims["scope"]) == (PLANNER, "app", "grants:issue grants:read")
    assert claims["cnf"] == {"jkt": "k" * 43}
    assert isinstance(issued, ApiToken)
    assert issued.key_thumbprint == "k" * 43
    admin = replace(app, client_id=ClientId("app"), scopes=frozenset({Scope.ADMIN}))
    wider = await issue_api_token(scene.world, admin, resource=(), scopes=frozenset({"admin"}), person=person)
    assert isinstance(wider, Denied)


async def test_what_is_spent_for_it_is_spent_once_and_on_the_token(scene: Scene) -> None:
    planner = await client(scene)
    spending = Spending(issuer=ISSUER, jti="code-1", expires_at=scene.clock.now + timedelta(minutes=1))

    async def ask(scopes: frozenset[str] | None = None) -> ApiToken | Denied:
        return await issue_api_token(scene.world, planner, resource=(), scopes=scopes, spending=spending)

    assert isinstance(await ask(frozenset({"admin"})), Denied)
    results = await asyncio.gather(*(ask() for _ in range(6)))
    (issued,) = (result for result in results if isinstance(result, ApiToken))
    assert [result for result in results if result != issued] == [USED] * 5
    async with scene.world.store.read() as tx:
        assert await tx.spent.spent_on(ACME, ISSUER, "code-1") == claims_of(scene, issued)["jti"]
