"""Closing reaches the whole subtree and every call in flight, whichever worker runs it."""

import asyncio

import pytest

from tests.api_client import Api, made, refused
from tests.attacks.stage import Stage, set_stage
from tests.server_process import ServerProcess
from tests.tool_server import ToolServer

pytestmark = pytest.mark.anyio

CASES = {"customerId": "c_42"}


async def test_closing_a_parent_ends_every_descendant_at_once(stage: Stage) -> None:
    grant = await stage.grant()
    child = made(await stage.api.derive(stage.planner, grant["grantId"], mayRedelegate=True))
    grandchild = made(await stage.api.derive(stage.planner, child["grantId"]))
    tokens = [await stage.token(node) for node in (grant, child, grandchild)]
    closed = made(await stage.api.close(stage.planner, child["grantId"]))
    assert {child["grantId"], grandchild["grantId"]} < set(closed["closedGrants"])
    assert len(closed["closedGrants"]) == 4
    made(await stage.api.call(tokens[0], stage.support, "search", CASES))
    for token in tokens[1:]:
        assert refused(await stage.api.call(token, stage.support, "search", CASES), 401) == "grant_closed"
    assert (await stage.api.grant(stage.planner, grandchild["grantId"]))["status"] == "closed"
    records = await stage.records(type="delegation.closed")
    assert {record["grantId"] for record in records} == set(closed["closedGrants"])
    assert len(await stage.records(type="delegation.closed", runId=grandchild["childRunId"])) == 2


async def test_a_revoked_token_and_what_was_made_from_it_is_dead(stage: Stage) -> None:
    grant = await stage.grant()
    token = await stage.token(grant, mayRedelegate=True)
    below = await stage.api.access_token(
        stage.planner, token, subject_token_type="urn:ietf:params:oauth:token-type:access_token"
    )
    made(await stage.api.revoke(stage.planner, token))
    for dead in (token, below):
        assert refused(await stage.api.call(dead, stage.support, "search", CASES), 401) == "grant_revoked"
        assert (await stage.api.introspect(stage.planner, dead)).json() == {"active": False}
    made(await stage.api.call(await stage.token(grant), stage.support, "search", CASES))


async def test_another_clients_token_is_left_untouched_by_revocation(stage: Stage) -> None:
    token = await stage.token(await stage.grant())
    stranger = await stage.api.client(stage.tenant, f"{stage.tenant}-stranger")
    made(await stage.api.revoke(stranger, token))
    made(await stage.api.call(token, stage.support, "search", CASES))


async def test_a_child_can_not_close_its_parent_or_a_sibling(stage: Stage) -> None:
    grant = await stage.grant()
    token = await stage.token(grant)
    sibling = made(await stage.api.derive(stage.planner, grant["grantId"]))
    for other in (grant, sibling):
        response = await stage.api.request("POST", f"/v1/grants/{other['grantId']}/close", token, json={})
        assert response.status_code == 404
    made(await stage.api.call(token, stage.support, "search", CASES))


async def test_a_call_in_flight_is_aborted_charged_and_recorded(stage: Stage) -> None:
    grant = await stage.open_grant("slow")
    calling = asyncio.create_task(
        stage.api.call(await stage.token(grant), stage.support, "slow", {"who": stage.tenant})
    )
    await asyncio.to_thread(stage.tools.wait_for, 1, "slow", who=stage.tenant)
    made(await stage.api.close(stage.planner, grant["grantId"], "cancelled"))
    answer = made(await calling)
    assert answer["outcome"] == "unknown"
    assert answer["costCents"] == 1
    records = await stage.records(callId=answer["callId"])
    assert [record["type"] for record in records] == ["tool.proposed", "tool.authorized", "tool.outcome_unknown"]
    assert records[-1]["abortedByClose"]
    usage = await stage.api.usage(stage.planner, grant["grantId"])
    assert usage["toolCalls"] == {"posted": 1, "pending": 0}


async def test_closing_reaches_calls_in_other_workers(database_url: str, tool_server: ToolServer) -> None:
    """Sixteen slow calls, spread over two workers by the kernel: all are aborted well before their time-out."""
    tool_server.hold()
    with ServerProcess(database_url, workers=2) as server:
        async with Api(server.url) as api:
            stage = await set_stage(api, tool_server)
            path = f"/tool-servers/support?tenant={stage.tenant}"
            made(await api.admin_request("PATCH", path, json={"timeoutSeconds": 60}))
            grant = await stage.open_grant("slow", maxToolCalls=16)
            token = await stage.token(grant)
            calls = [
                asyncio.create_task(api.call(token, stage.support, "slow", {"who": stage.tenant})) for _ in range(16)
            ]
            await asyncio.to_thread(tool_server.wait_for, 16, "slow", who=stage.tenant)
            made(await api.close(stage.planner, grant["grantId"]))
            answers = [made(answer) for answer in await asyncio.wait_for(asyncio.gather(*calls), 10)]
            assert {answer["outcome"] for answer in answers} == {"unknown"}
            usage = await api.usage(stage.planner, grant["grantId"])
            assert usage["toolCalls"] == {"posted": 16, "pending": 0}
            assert await stage.is_whole()


async def test_deriving_while_a_parent_is_closed_leaves_nothing_alive(stage: Stage) -> None:
    grant = await stage.grant()
    derivations = [stage.api.derive(stage.planner, grant["grantId"]) for _ in range(10)]
    responses = await asyncio.gather(*derivations, stage.api.close(stage.planner, grant["grantId"]))
    for response in responses[:-1]:
        if response.is_success:
            token = response.json()["grant"]
            assert refused(await stage.api.call(token, stage.support, "search", CASES), 401) == "grant_closed"
        else:
            assert refused(response, 409) == "grant_closed"
