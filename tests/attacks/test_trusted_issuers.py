"""Whoever tries to be somebody by another issuer's word, or to make its server of keys lie, hang or be flooded."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import pytest
from aiohttp import web

from tests.api_client import Api, Json, made
from tests.api_client import refused as refused_because
from tests.attacks.stage import Stage, set_stage
from tests.members import DROP
from tests.outsiders import ASSERTION_TYPE, Answer, IdentityProvider, OutsideKey, a_key, claims_of, jwks
from tests.server_process import ServerProcess
from tests.tool_server import ToolServer

ASK_EVERY_SECONDS: Final = 1.0
KEY: Final = a_key("ES256", "cluster-1")
STRANGER: Final = a_key("ES256", "stranger", 7)
POD: Final = "system:serviceaccount:agents:planner"


@pytest.fixture(scope="module")
def server(database_url: str) -> Iterator[ServerProcess]:
    """A server that leaves servers of keys alone no longer than a test can wait."""
    env = {"SUBGRANT_OUTSIDE_KEYS_ASK_EVERY_SECONDS": str(ASK_EVERY_SECONDS)}
    with ServerProcess(database_url, env=env) as running:
        yield running


@pytest.fixture(scope="module")
async def stage(server: ServerProcess, tool_server: ToolServer) -> AsyncIterator[Stage]:
    async with Api(server.url) as api:
        yield await set_stage(api, tool_server)


@dataclass(frozen=True)
class Cluster:
    """A tenant's trusted issuer, and a client that rests on it."""

    stage: Stage
    tenant: str
    name: str
    issuer: str
    client_id: str

    def token(self, key: OutsideKey = KEY, header: dict[str, Any] | None = None, **changes: object) -> str:
        fresh = {"jti": secrets.token_hex(8)} | changes
        claims = claims_of(self.issuer, self.stage.api.url, POD, datetime.now(UTC), **fresh)  # type: ignore[arg-type]  # any claim
        return key.sign(claims, **(header or {}))

    async def ask(self, assertion: str, client_id: str | None = None) -> httpx.Response:
        form = {
            "grant_type": "client_credentials",
            "client_id": client_id or self.client_id,
            "client_assertion_type": ASSERTION_TYPE,
            "client_assertion": assertion,
        }
        return await self.stage.api.http.post("/oauth/token", data=form)

    async def patch(self, **members: object) -> Json:
        path, query = f"/issuers/{self.name}", {"tenant": self.tenant}
        return made(await self.stage.api.admin_request("PATCH", path, json=members, params=query))

    async def is_served(self, assertion: str | None = None) -> bool:
        response = await self.ask(assertion or self.token())
        assert response.status_code in (200, 401), response.text
        if response.status_code == 401:
            assert response.json()["error"] == "invalid_client"
        return response.status_code == 200


async def a_cluster(stage: Stage, *, tenant: str | None = None, subject: str = POD, **members: object) -> Cluster:
    tenant, mark = tenant or stage.tenant, secrets.token_hex(4)
    issuer: Json = {
        "name": f"cluster-{mark}",
        "tenantId": tenant,
        "issuer": f"https://{mark}.example",
        "uses": ["client"],
        **members,
    }
    made(await stage.api.admin_request("POST", "/issuers", json=issuer))
    client: Json = {
        "clientId": f"{tenant}-pod-{mark}",
        "tenantId": tenant,
        "kind": "orchestrator",
        "scopes": ["grants:read"],
        "authMethod": "private_key_jwt",
        "workload": {"issuer": issuer["name"], "subject": subject},
    }
    made(await stage.api.admin_request("POST", "/clients", json=client))
    return Cluster(stage, tenant, issuer["name"], issuer["issuer"], client["clientId"])


@pytest.fixture
async def provider() -> AsyncIterator[IdentityProvider]:
    async with IdentityProvider(KEY) as provider:
        yield provider


# --- whom it names ----------------------------------------------------------------------------------------


async def test_a_workload_is_served_by_the_keys_that_its_issuer_publishes(
    stage: Stage, provider: IdentityProvider
) -> None:
    cluster = await a_cluster(stage, jwksUri=provider.jwks_uri)
    token = made(await cluster.ask(cluster.token()))["access_token"]
    assert (await stage.api.request("GET", "/v1/grants", token)).status_code == 200
    assert provider.asked == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"sub": "platform-admin"},
        {"sub": f"{POD}2"},
        {"sub": f"{POD} "},
        {"sub": POD.upper()},
        {"iss": "https://another.example"},
        {"aud": ["{issuer}", "https://another.example"]},
        {"aud": "{issuer}/oauth/token"},
        {"exp": DROP},
        {"seconds": 90_000},
        {"seconds": -1, "iat": DROP},
        {"jti": DROP},
    ],
    ids=str,
)
async def test_a_truly_signed_token_is_refused_with(stage: Stage, changes: dict[str, Any]) -> None:
    cluster = await a_cluster(stage, jwks=jwks(KEY))

    def filled(value: object) -> object:
        if isinstance(value, list):
            return [filled(item) for item in value]
        return value.replace("{issuer}", stage.api.url) if isinstance(value, str) else value

    claims: dict[str, Any] = {name: filled(value) for name, value in changes.items()}
    assert not await cluster.is_served(cluster.token(**claims))
    assert await cluster.is_served()


async def test_an_issuer_with_a_slash_more_is_another(stage: Stage) -> None:
    cluster = await a_cluster(stage, jwks=jwks(KEY))
    assert not await cluster.is_served(cluster.token(iss=f"{cluster.issuer}/"))
    slashed = {
        "name": f"{cluster.name}-slash",
        "tenantId": cluster.tenant,
        "issuer": f"{cluster.issuer}/",
        "uses": ["client"],
        "jwks": jwks(STRANGER),
    }
    made(await stage.api.admin_request("POST", "/issuers", json=slashed))
    assert not await cluster.is_served(cluster.token(STRANGER, iss=f"{cluster.issuer}/"))
    assert not await cluster.is_served(cluster.token(STRANGER))


async def test_a_subject_that_is_called_like_a_client_is_not_that_client(stage: Stage) -> None:
    """An issuer that may name anybody names "platform-admin": that is a subject of its own, and no client of ours."""
    cluster = await a_cluster(stage, jwks=jwks(KEY), subject="platform-admin")
    for client_id in ("platform-admin", stage.planner.client_id):
        response = await cluster.ask(cluster.token(sub=client_id), client_id)
        assert (response.status_code, response.json()["error"]) == (401, "invalid_client")
    token = made(await cluster.ask(cluster.token(sub="platform-admin")))["access_token"]
    response = await stage.api.request("GET", "/v1/admin/tenants", token)
    assert refused_because(response, 403) == "insufficient_scope"


async def test_one_tenants_issuer_proves_nobody_in_another(stage: Stage) -> None:
    other = f"{stage.tenant}-other"
    await stage.api.tenant(other)
    theirs = await a_cluster(stage, tenant=other, jwks=jwks(STRANGER))
    ours = await a_cluster(stage, jwks=jwks(KEY))
    assert await theirs.is_served(theirs.token(STRANGER))
    for token in (theirs.token(STRANGER), theirs.token(STRANGER, iss=ours.issuer)):
        assert (await ours.ask(token)).status_code == 401
        assert (await theirs.ask(token, ours.client_id)).status_code == 401
    same = {"name": ours.name, "tenantId": other, "issuer": ours.issuer, "uses": ["client"], "jwks": jwks(STRANGER)}
    made(await stage.api.admin_request("POST", "/issuers", json=same))
    assert not await ours.is_served(ours.token(STRANGER)), "each tenant has its own idea of one issuer"
    assert await ours.is_served()


async def test_an_issuer_speaks_for_its_uses_alone(stage: Stage) -> None:
    cluster = await a_cluster(stage, jwks=jwks(KEY))
    await cluster.patch(uses=["subject", "grant"])
    assert not await cluster.is_served()
    await cluster.patch(uses=["client"])
    assert await cluster.is_served()


async def test_an_issuer_that_is_disabled_proves_nobody_from_the_next_token_on(stage: Stage) -> None:
    cluster = await a_cluster(stage, jwks=jwks(KEY))
    assert await cluster.is_served()
    path, query = f"/issuers/{cluster.name}", {"tenant": cluster.tenant}
    assert (await stage.api.admin_request("DELETE", path, params=query)).status_code == 204
    assert not await cluster.is_served()
    await cluster.patch(status="active")
    assert await cluster.is_served()


async def test_this_service_is_no_issuer_to_trust(stage: Stage) -> None:
    own = jwks(KEY)
    for issuer in (stage.api.url, f"{stage.api.url}/", stage.api.url.upper(), f"{stage.api.url}/mcp/support"):
        body = {"name": "self", "tenantId": stage.tenant, "issuer": issuer, "uses": ["client"], "jwks": own}
        response = await stage.api.admin_request("POST", "/issuers", json=body)
        assert refused_because(response, 422) == "malformed"


async def test_a_used_token_is_used_and_a_platforms_file_is_not(stage: Stage) -> None:
    cluster = await a_cluster(stage, jwks=jwks(KEY))
    token, bare = cluster.token(), cluster.token(jti=DROP)
    assert [await cluster.is_served(each) for each in (token, token, bare)] == [True, False, False]
    await cluster.patch(singleUse=False)
    file = cluster.token()
    assert [await cluster.is_served(each) for each in (file, file, bare, bare)] == [True] * 4
    assert not await cluster.is_served(token.replace(".", "..", 1))


# --- its keys ---------------------------------------------------------------------------------------------


async def test_forged_names_of_keys_flood_nobody(stage: Stage, provider: IdentityProvider) -> None:
    cluster = await a_cluster(stage, jwksUri=provider.jwks_uri)
    assert await cluster.is_served()
    begin = time.monotonic()
    forged = [cluster.token(header={"kid": f"forged-{number}"}) for number in range(200)]
    responses = await asyncio.gather(*map(cluster.ask, forged))
    assert {response.status_code for response in responses} == {401}
    assert provider.asked <= 2 + (time.monotonic() - begin) / ASK_EVERY_SECONDS
    assert await cluster.is_served()


async def test_tokens_for_others_make_no_traffic(stage: Stage, provider: IdentityProvider) -> None:
    cluster = await a_cluster(stage, jwksUri=provider.jwks_uri)
    others: tuple[dict[str, Any], ...] = (
        {"aud": "https://other.example"},
        {"iss": "https://other.example"},
        {"exp": 1},
    )
    for changes in others:
        assert not await cluster.is_served(cluster.token(**changes))
    assert (await cluster.ask(cluster.token(), stage.planner.client_id)).status_code == 401
    assert provider.asked == 0


async def test_the_last_good_keys_count_while_the_server_is_down_and_no_others(
    stage: Stage, provider: IdentityProvider
) -> None:
    provider.headers = {"Cache-Control": "no-store"}
    cluster = await a_cluster(stage, jwksUri=provider.jwks_uri)
    assert await cluster.is_served()
    provider.answer = an_error
    await asyncio.sleep(ASK_EVERY_SECONDS + 0.1)
    assert await cluster.is_served()
    assert provider.asked == 2
    assert not await cluster.is_served(cluster.token(STRANGER))


async def test_a_key_that_is_taken_back_stops_and_a_new_one_begins(stage: Stage, provider: IdentityProvider) -> None:
    provider.headers = {"Cache-Control": "max-age=0"}
    cluster = await a_cluster(stage, jwksUri=provider.jwks_uri)
    assert await cluster.is_served()
    provider.keys = [STRANGER]
    await asyncio.sleep(ASK_EVERY_SECONDS + 0.1)
    assert not await cluster.is_served()
    assert await cluster.is_served(cluster.token(STRANGER))


async def a_redirect(_: web.Request) -> web.Response:
    return web.Response(status=302, headers={"Location": "http://169.254.169.254/latest/meta-data"})


async def a_redirect_to_itself(request: web.Request) -> web.Response:
    if request.path == "/elsewhere":
        return web.json_response(jwks(KEY))
    return web.Response(status=307, headers={"Location": "/elsewhere"})


async def ten_megabytes(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "application/json"})
    await stream.prepare(request)
    for _ in range(160):
        await stream.write(b" " * 65_536)
    return stream


async def a_page(_: web.Request) -> web.Response:
    return web.Response(text=str(jwks(KEY)), content_type="text/html")


async def an_error(_: web.Request) -> web.Response:
    return web.json_response(jwks(KEY), status=500)


async def one_name_twice(_: web.Request) -> web.Response:
    return web.json_response({"keys": [STRANGER.named("cluster-1").jwk, KEY.jwk]})


async def a_member_twice(_: web.Request) -> web.Response:
    text = '{"keys":[],' + str(web.json_response(jwks(KEY)).text)[1:]
    return web.Response(text=text, content_type="application/json")


async def a_private_key(_: web.Request) -> web.Response:
    return web.json_response({"keys": [KEY.private_jwk]})


BAD_ANSWERS: Final[Mapping[str, Answer]] = {
    "sends to where clouds keep credentials": a_redirect,
    "sends elsewhere on itself": a_redirect_to_itself,
    "answers ten megabytes": ten_megabytes,
    "answers a page for people": a_page,
    "answers an error": an_error,
    "gives one name to two keys": one_name_twice,
    "says a member twice": a_member_twice,
    "gives its private key away": a_private_key,
}


@pytest.mark.parametrize("answer", BAD_ANSWERS.values(), ids=list(BAD_ANSWERS))
async def test_nobody_is_proven_by_a_server_of_keys_that(
    stage: Stage, provider: IdentityProvider, answer: Answer
) -> None:
    provider.answer = answer
    cluster = await a_cluster(stage, jwksUri=provider.jwks_uri)
    for _ in range(3):
        assert not await cluster.is_served()
    assert provider.asked <= 3


async def test_a_server_of_keys_that_hangs_holds_up_nobody_else(stage: Stage, provider: IdentityProvider) -> None:
    """No transaction is open while it is waited for, and the waiting ends."""
    asked = asyncio.Event()

    async def nothing_for_long(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.sleep(60)
        raise AssertionError("whoever asked has gone")

    provider.answer = nothing_for_long
    cluster = await a_cluster(stage, jwksUri=provider.jwks_uri)
    begin = time.monotonic()
    waiting = [asyncio.create_task(cluster.is_served()) for _ in range(40)]
    await asked.wait()
    for _ in range(3):
        grant = await stage.grant()
        made(await stage.api.close(stage.planner, grant["grantId"]))
    assert not any(task.done() for task in waiting), "meanwhile, the others were served"
    assert await asyncio.gather(*waiting) == [False] * 40
    assert time.monotonic() - begin < 30
    assert provider.asked == 1


@pytest.mark.parametrize(
    "uri",
    ["http://idp.example/jwks", "http://10.0.0.1/jwks", "http://169.254.169.254/jwks", "file:///etc/passwd", "jwks"],
)
async def test_keys_are_not_even_registered_at(stage: Stage, uri: str) -> None:
    body = {"name": "bad", "tenantId": stage.tenant, "issuer": "https://i.example", "uses": ["client"], "jwksUri": uri}
    assert refused_because(await stage.api.admin_request("POST", "/issuers", json=body), 422) == "malformed"


async def test_keys_at_an_address_of_no_concern_are_not_fetched(stage: Stage) -> None:
    for uri in ("https://169.254.169.254/jwks", "https://10.255.255.1/jwks", "https://[fe80::1]/jwks"):
        cluster = await a_cluster(stage, jwksUri=uri)
        begin = time.monotonic()
        assert not await cluster.is_served()
        assert time.monotonic() - begin < 3, "nobody tried to connect"
