"""How the token endpoint answers (RFC 6749 §5, RFC 8693 §2.2.1, RFC 9396 §7), whatever is issued or refused."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from app.api import oauth
from app.usecases.issued_token import ACCESS_TOKEN, DELEGATION_GRANT
from tests.api.served import served
from tests.samples import ACME, SUPPORT
from tests.usecases.worlds import PLANNER, Scene, a_scene

pytestmark = pytest.mark.anyio

SECRET = "the planner's own secret"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


@dataclass
class Endpoint:
    http: httpx.AsyncClient
    scene: Scene

    async def post(self, path: str = "/oauth/token", secret: str = SECRET, **form: str) -> httpx.Response:
        return await self.http.post(path, data=form, auth=(PLANNER, secret))

    async def exchange(self, **form: str) -> dict[str, Any]:
        made = await self.scene.grant(may_redelegate=True)
        subject = {"subject_token": made.signed, "subject_token_type": DELEGATION_GRANT}
        response = await self.post(grant_type=EXCHANGE, **subject, **form)
        assert response.status_code == 200, response.text
        document: dict[str, Any] = response.json()
        return document


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    scene = await a_scene()
    async with scene.world.store.write() as tx:
        planner = await tx.registry.client(PLANNER)
        assert planner is not None
        await tx.registry.put_client(replace(planner, secret_hash=scene.world.vault.hash_secret(SECRET)))
        await tx.commit()
    async with served(scene.world, oauth) as client:
        yield Endpoint(client, scene)


async def test_no_answer_is_kept_by_anybody(endpoint: Endpoint) -> None:
    answers = [
        await endpoint.post(grant_type="client_credentials"),
        await endpoint.post(grant_type="another"),
        await endpoint.post(grant_type="client_credentials", secret="wrong"),
        await endpoint.post(),
        await endpoint.post("/oauth/introspect", token="x"),
        await endpoint.post("/oauth/introspect", secret="wrong", token="x"),
        await endpoint.post("/oauth/revoke", token="x"),
    ]
    assert [answer.status_code for answer in answers] == [200, 400, 401, 400, 200, 401, 200]
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}


async def test_an_access_token_says_what_it_is(endpoint: Endpoint) -> None:
    for form in ({}, {"requested_token_type": ACCESS_TOKEN}):
        document = await endpoint.exchange(**form)
        assert document["issued_token_type"] == ACCESS_TOKEN
        assert (document["token_type"], document["scope"]) == ("Bearer", "tools:call")
        assert 0 < document["expires_in"] <= 600


async def test_a_delegation_grant_is_no_access_token_and_says_so(endpoint: Endpoint) -> None:
    document = await endpoint.exchange(requested_token_type=DELEGATION_GRANT)
    assert (document["issued_token_type"], document["token_type"]) == (DELEGATION_GRANT, "N_A")
    assert "scope" not in document
    assert endpoint.scene.world.signer.verify_grant(document["access_token"]).grant.tenant_id == ACME


async def test_what_was_granted_is_echoed_as_it_was_granted(endpoint: Endpoint) -> None:
    details = json.dumps([{"type": "delegation", "maxToolCalls": 2, "maxSpendCents": 0.5}])
    (echoed,) = (await endpoint.exchange(authorization_details=details))["authorization_details"]
    assert echoed["type"] == "delegation"
    assert (echoed["maxToolCalls"], echoed["maxSpendCents"], echoed["audience"]) == (2, 0.5, SUPPORT.uri)
    assert echoed["parentGrantId"]
