"""Revocation (RFC 7009) and introspection (RFC 7662) by whoever may and whoever may not, over two workers."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from tests.api_client import ACCESS_TOKEN, DELEGATION_GRANT, Api, Credentials, Json, made, refused
from tests.attacks.stage import Stage
from tests.server_process import ServerProcess

pytestmark = pytest.mark.anyio

CASES = {"customerId": "c_42"}
MANY = 16
INACTIVE: Json = {"active": False}


@pytest.fixture(scope="module")
def server(database_url: str) -> Iterator[ServerProcess]:
    with ServerProcess(database_url, workers=2) as running:
        yield running


async def everywhere(stage: Stage, method: str, path: str, token: str, body: Json | None = None) -> set[int]:
    """The statuses of many requests over new connections, which reach both workers."""
    async with Api(stage.api.url) as api:
        api.http.headers["Connection"] = "close"
        answers = await asyncio.gather(*(api.request(method, path, token, json=body) for _ in range(MANY)))
    return {answer.status_code for answer in answers}


async def post(stage: Stage, path: str, client: Credentials, **form: str) -> httpx.Response:
    return await stage.api.http.post(path, data=form, auth=httpx.BasicAuth(*client))


async def test_a_revoked_token_for_the_api_is_refused_by_every_worker_at_once(stage: Stage) -> None:
    token, other = await stage.api.token(stage.planner), await stage.api.token(stage.planner)
    assert await everywhere(stage, "GET", "/v1/grants", token) == {200}
    assert (await stage.api.revoke(stage.planner, token)).status_code == 200
    assert await everywhere(stage, "GET", "/v1/grants", token) == {401}
    assert (await stage.api.introspect(stage.planner, token)).json() == INACTIVE
    made(await stage.api.request("GET", "/v1/grants", other))


async def test_a_revoked_token_proves_no_actor(stage: Stage) -> None:
    agent = await stage.api.client(stage.tenant, f"{stage.tenant}-agent", kind="agent", scopes=["grants:read"])
    token = await stage.api.token(agent)
    grant = await stage.grant()

    async def for_the_agent() -> httpx.Response:
        return await stage.api.exchange(stage.planner, grant["grant"], actor_token=token, actor_token_type=ACCESS_TOKEN)

    made(await for_the_agent())
    made(await stage.api.revoke(agent, token))
    assert refused(await for_the_agent(), 400) == "token_invalid"


async def test_a_revoked_token_and_all_below_it_is_refused_by_every_worker_at_once(stage: Stage) -> None:
    token = await stage.token(await stage.grant(maxToolCalls=100), mayRedelegate=True)
    below = await stage.api.access_token(stage.planner, token, subject_token_type=ACCESS_TOKEN)
    body = {"toolServerAudience": stage.support, "name": "search", "arguments": CASES}
    assert await everywhere(stage, "POST", "/v1/gateway/calls", below, body) == {200}
    made(await stage.api.revoke(stage.planner, token))
    for dead in (token, below):
        assert await everywhere(stage, "POST", "/v1/gateway/calls", dead, body) == {401}


@pytest.mark.parametrize("hint", ["refresh_token", "access_token", DELEGATION_GRANT, "no such type"])
async def test_a_hint_however_wrong_hides_no_token(stage: Stage, hint: str) -> None:
    grant = await stage.grant()
    for token in (await stage.api.token(stage.planner), await stage.token(grant), grant["grant"]):
        asked = {"token": token, "token_type_hint": hint}
        assert (await post(stage, "/oauth/introspect", stage.planner, **asked)).json()["active"] is True
        assert (await post(stage, "/oauth/revoke", stage.planner, **asked)).status_code == 200
        assert (await stage.api.introspect(stage.planner, token)).json() == INACTIVE


async def test_whoever_is_no_party_to_a_token_neither_ends_it_nor_learns_of_it(stage: Stage) -> None:
    grant = await stage.grant()
    tokens = [await stage.api.token(stage.planner), await stage.token(grant), grant["grant"]]
    beside = await stage.api.client(stage.tenant, f"{stage.tenant}-beside")
    await stage.api.tenant(f"{stage.tenant}-other")
    scopes = ["admin", "audit:read", "grants:read"]
    elsewhere = await stage.api.client(f"{stage.tenant}-other", f"{stage.tenant}-else", kind="admin", scopes=scopes)
    for stranger in (beside, elsewhere):
        for token in tokens:
            answer = await stage.api.revoke(stranger, token)
            assert (answer.status_code, answer.content) == (200, b"")
            assert (await stage.api.introspect(stranger, token)).json() == INACTIVE
    for token in tokens:
        assert (await stage.api.introspect(stage.planner, token)).json()["active"] is True
    made(await stage.api.call(tokens[1], stage.support, "search", CASES))


@pytest.mark.parametrize("path", ["/oauth/introspect", "/oauth/revoke"])
async def test_nobody_is_told_anything_without_proving_who_it_is(stage: Stage, path: str) -> None:
    token = await stage.api.token(stage.planner)
    http = stage.api.http
    wrong = Credentials(stage.planner.client_id, "wrong")
    for answer in (
        await http.post(path, data={"token": token}),
        await http.post(path, data={"token": token, "client_id": stage.planner.client_id}),
        await http.post(path, data={"token": token}, headers={"Authorization": f"Bearer {token}"}),
        await post(stage, path, wrong, token=token),
    ):
        assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
    for method in ("GET", "PUT"):
        assert (await http.request(method, f"{path}?token={token}")).status_code == 405
    assert refused(await post(stage, path, stage.planner), 400) == "invalid_request"
    made(await stage.api.request("GET", "/v1/grants", token))


async def test_an_unknown_token_is_revoked_without_a_word(stage: Stage) -> None:
    for token in ("a.b.c", "x" * 10_000, "at_00000000000000000000000000"):
        answer = await stage.api.revoke(stage.planner, token)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["Cache-Control"] == "no-store"
