"""Everything has a limit: trees, lineages, lives, waiting strangers; and what is dead or ignored is said so."""

import asyncio

import httpx
import pytest

from tests.api_client import ACCESS_TOKEN, Api, made, refused
from tests.attacks.stage import Stage, set_stage
from tests.server_process import BOOTSTRAP, ServerProcess
from tests.tool_server import ToolServer

pytestmark = pytest.mark.anyio

CASES = {"customerId": "c_42"}


async def test_a_tree_of_grants_has_a_bounded_size(database_url: str, tool_server: ToolServer) -> None:
    with ServerProcess(database_url, env={"SUBGRANT_MAX_GRANTS_PER_TREE": "4"}) as server:
        async with Api(server.url) as api:
            stage = await set_stage(api, tool_server)
            grant = await stage.grant()
            for _ in range(3):
                made(await stage.api.exchange(stage.planner, grant["grant"]))
            response = await stage.api.exchange(stage.planner, grant["grant"])
            assert refused(response, 400) == "conflict"
            assert refused(await stage.api.derive(stage.planner, grant["grantId"]), 409) == "conflict"
            assert len(made(await stage.api.close(stage.planner, grant["grantId"]))["closedGrants"]) == 4


async def test_a_grant_has_a_bounded_number_of_children(database_url: str, tool_server: ToolServer) -> None:
    with ServerProcess(database_url, env={"SUBGRANT_MAX_CHILDREN_PER_GRANT": "1"}) as server:
        async with Api(server.url) as api:
            stage = await set_stage(api, tool_server)
            grant = await stage.grant()
            made(await stage.api.derive(stage.planner, grant["grantId"]))
            assert refused(await stage.api.derive(stage.planner, grant["grantId"]), 409) == "conflict"


async def test_an_access_token_lives_no_longer_than_its_cap(stage: Stage) -> None:
    grant = await stage.grant(expiresInSeconds=80_000)
    response = await stage.api.exchange(stage.planner, grant["grant"], narrowing={"expiresInSeconds": 70_000})
    assert refused(response, 400) == "not_narrower"
    default = made(await stage.api.exchange(stage.planner, grant["grant"]))
    assert default["expires_in"] <= 600
    assert len((await stage.api.lineage(stage.planner, grant["grantId"]))["subtree"]) == 2


async def test_a_grant_that_began_long_ago_can_be_read_and_closed(stage: Stage) -> None:
    grant = await stage.grant(notBefore="1971-01-01T00:00:00Z")
    assert grant["notBefore"] == grant["issuedAt"]
    assert (await stage.api.grant(stage.planner, grant["grantId"]))["status"] == "active"
    made(await stage.api.close(stage.planner, grant["grantId"]))


async def test_strangers_guessing_a_slow_secret_keep_no_client_from_its_token(stage: Stage) -> None:
    wrong = httpx.BasicAuth(BOOTSTRAP.client_id, "a guess")
    form = {"grant_type": "client_credentials"}
    guesses = [asyncio.create_task(stage.api.http.post("/oauth/token", data=form, auth=wrong)) for _ in range(60)]
    token = await asyncio.wait_for(stage.api.token(stage.planner), 10)
    assert token
    answers = [await guess for guess in guesses]
    assert {answer.status_code for answer in answers} == {401, 429}
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 429)


async def test_a_disabled_clients_token_and_grant_act_nowhere(stage: Stage) -> None:
    other = await stage.api.client(stage.tenant, f"{stage.tenant}-other")
    grant = made(await stage.api.mint(other, audience=stage.support, allowedTools=["search"], maxToolCalls=1))
    token = await stage.api.access_token(other, grant["grant"])
    assert (await stage.api.introspect(stage.auditor, token)).json()["active"]
    made(await stage.api.admin_request("PATCH", f"/clients/{other.client_id}", json={"status": "disabled"}))
    assert (await stage.api.introspect(stage.auditor, token)).json() == {"active": False}
    path = f"/v1/grants/{grant['grantId']}"
    assert refused(await stage.api.request("GET", path, grant["grant"]), 401) == "grant_revoked"
    assert refused(await stage.api.request("POST", f"{path}/close", grant["grant"]), 401) == "grant_revoked"
    assert refused(await stage.api.request("POST", f"{path}/derive", grant["grant"], json={}), 401) == "grant_revoked"


async def test_a_live_grant_is_introspected_as_what_it_is(stage: Stage) -> None:
    grant = await stage.grant()
    seen = (await stage.api.introspect(stage.planner, grant["grant"])).json()
    assert (seen["active"], seen["jti"], seen["token_type"]) == (True, grant["grantId"], "N_A")
    made(await stage.api.close(stage.planner, grant["grantId"]))
    assert (await stage.api.introspect(stage.planner, grant["grant"])).json() == {"active": False}


async def test_the_platform_acts_in_a_tenant_by_naming_it_and_nobody_else_does(stage: Stage) -> None:
    grant = await stage.grant()
    path, inside = f"/v1/grants/{grant['grantId']}", {"tenant": stage.tenant}
    platform = await stage.api.token_of(stage.api.admin)
    assert (await stage.api.request("GET", path, platform)).status_code == 404
    assert made(await stage.api.request("GET", path, platform, params=inside))["grantId"] == grant["grantId"]
    other = await set_stage(stage.api, stage.tools)
    stranger = await stage.api.token_of(other.auditor)
    assert refused(await stage.api.request("GET", path, stranger, params=inside), 403) == "tenant_mismatch"
    closed = await stage.api.request("POST", f"{path}/close", platform, params=inside, json={"reason": "incident"})
    assert made(closed)["closedGrants"] == [grant["grantId"]]


@pytest.mark.parametrize(
    "path", ["/v1/grants?grant=x", "/v1/grants?before=garbage", "/v1/audit/records?from=x", "/v1/audit/verify?x=1"]
)
async def test_a_filter_that_is_not_known_is_refused_rather_than_ignored(stage: Stage, path: str) -> None:
    response = await stage.api.request("GET", path, await stage.api.token_of(stage.auditor))
    assert refused(response, 422) == "malformed"


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
async def test_a_time_that_no_clock_shows_is_refused(stage: Stage, moment: str) -> None:
    token = await stage.api.token_of(stage.auditor)
    response = await stage.api.request("GET", "/v1/audit/records", token, params={"since": moment})
    assert refused(response, 422) == "malformed"
    assert refused(await stage.api.mint(stage.planner, expiresAt=moment), 422) == "malformed"


async def test_lowering_one_limit_lifts_no_other(stage: Stage) -> None:
    path = f"/clients/{stage.planner.client_id}"
    window = {"windowSeconds": 86_400, "windowMaxToolCalls": 1, "windowMaxSpendCents": 100}
    made(await stage.api.admin_request("PATCH", path, json={"limits": window}))
    token = await stage.token(await stage.grant())
    made(await stage.api.call(token, stage.support, "search", CASES))
    made(await stage.api.admin_request("PATCH", path, json={"limits": {"maxToolCalls": 0}}))
    assert refused(await stage.api.call(token, stage.support, "search", CASES), 403) == "budget_exceeded"


async def test_two_idempotency_keys_at_once_are_refused(stage: Stage) -> None:
    token = await stage.token(await stage.grant())
    body = {"toolServerAudience": stage.support, "name": "search", "arguments": CASES}
    headers = [("Authorization", f"Bearer {token}"), ("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    assert (await stage.api.http.post("/v1/gateway/calls", json=body, headers=headers)).status_code == 422


async def test_a_redirect_never_repeats_the_host_that_was_sent(stage: Stage) -> None:
    response = await stage.api.http.post("/v1/grants/", headers={"Host": "evil.example"}, json={})
    assert response.status_code == 404
    assert "location" not in response.headers


async def test_a_token_is_exchanged_for_the_same_tool_server_under_either_of_its_names(stage: Stage) -> None:
    alias = await stage.api.tool_server(stage.tenant, "named", stage.tools.endpoint, audience="https://tools.example/x")
    await stage.api.tool(stage.tenant, "named", "search")
    grant = await stage.grant(audience=alias, resourceConstraints={})
    other_name = stage.support.replace("/support", "/named")
    token = await stage.api.access_token(stage.planner, grant["grant"], resource=other_name)
    assert (await stage.api.introspect(stage.planner, token)).json()["aud"] == other_name
    for name in (alias, other_name):
        made(await stage.api.call(token, name, "search"))
    again = await stage.api.exchange(stage.planner, token, subject_token_type=ACCESS_TOKEN, resource=alias)
    assert made(again)
