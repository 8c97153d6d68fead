"""A process dies at the worst moment: nothing acknowledged is lost, nothing is overspent, every call ends once."""

import asyncio
import os
import secrets
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api_client import Api, Json, made
from tests.attacks.stage import Stage, set_stage
from tests.postgres import PostgresServer
from tests.server_process import ServerProcess, sqlite_url
from tests.tool_server import ToolServer

pytestmark = pytest.mark.anyio

CALLS = 12
ENDINGS = {"tool.executed", "tool.outcome_unknown", "tool.unsent"}
ENV = {
    "SUBGRANT_SETTLE_GRACE_SECONDS": "0.5",
    "SUBGRANT_RECONCILE_EVERY_SECONDS": "0.2",
}


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield sqlite_url(tmp_path)
        return
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    name = f"crash_{secrets.token_hex(8)}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


@pytest.fixture
def tool_server() -> Iterator[ToolServer]:
    with ToolServer() as running:
        yield running


async def settled(stage: Stage, grant: Json) -> Json:
    """The grant's calls once none of them is pending; bounded by the test's time-out."""
    while True:
        calls: Json = (await stage.api.usage(stage.planner, grant["grantId"]))["toolCalls"]
        if calls["pending"] == 0:
            return calls
        await asyncio.sleep(0.05)


async def endings(stage: Stage) -> dict[str, Counter[str]]:
    """For each call that was authorized, how often it ended in which way."""
    records = await stage.records()
    authorized = {record["callId"] for record in records if record["type"] == "tool.authorized"}
    ended: dict[str, Counter[str]] = {call: Counter() for call in authorized}
    for record in records:
        if record["type"] in ENDINGS:
            ended[record["callId"]][record["type"]] += 1
    return ended


async def answers(calls: list[asyncio.Task[httpx.Response]]) -> list[Json]:
    """What was acknowledged; calls whose worker died got no answer."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    return [made(result) for result in results if isinstance(result, httpx.Response)]


async def test_a_worker_killed_between_reserve_and_settle(database_url: str, tool_server: ToolServer) -> None:
    with ServerProcess(database_url, workers=2, env=ENV) as server:
        async with Api(server.url) as api:
            stage = await set_stage(api, tool_server)
            grant = await stage.open_grant("slow", maxToolCalls=CALLS)
            token = await stage.token(grant)
            calls = [
                asyncio.create_task(api.call(token, stage.support, "slow", {"who": stage.tenant})) for _ in range(CALLS)
            ]
            await asyncio.to_thread(tool_server.wait_for, CALLS, "slow", who=stage.tenant)
            os.kill(server.worker_pids()[0], signal.SIGKILL)
            tool_server.release()
            acknowledged = await answers(calls)
        # The supervisor's new worker and the one that lives serve on; the reconciler finds what was left.
        async with Api(server.url) as api:
            await check_books(stage_again(stage, api), grant, acknowledged)


async def test_the_whole_service_killed_and_started_again(database_url: str, tool_server: ToolServer) -> None:
    server = ServerProcess(database_url, workers=2, env=ENV)
    server.start()
    try:
        async with Api(server.url) as api:
            stage = await set_stage(api, tool_server)
            grant = await stage.open_grant("slow", maxToolCalls=CALLS)
            token = await stage.token(grant)
            calls = [
                asyncio.create_task(api.call(token, stage.support, "slow", {"who": stage.tenant})) for _ in range(CALLS)
            ]
            await asyncio.to_thread(tool_server.wait_for, CALLS, "slow", who=stage.tenant)
            server.kill()
            acknowledged = await answers(calls)
        assert acknowledged == []
        server.start()
        async with Api(server.url) as api:
            await check_books(stage_again(stage, api), grant, acknowledged)
    finally:
        server.stop()


def stage_again(stage: Stage, api: Api) -> Stage:
    return Stage(api, stage.tools, stage.tenant, stage.planner, stage.auditor, stage.support, stage.billing)


async def check_books(stage: Stage, grant: Json, acknowledged: list[Json]) -> None:
    assert await settled(stage, grant) == {"posted": CALLS, "pending": 0}
    ended = await endings(stage)
    assert len(ended) == CALLS
    assert {sum(ways.values()) for ways in ended.values()} == {1}
    for answer in acknowledged:
        assert ended[answer["callId"]]["tool.executed"] == 1
    assert len(stage.tools.of("slow", who=stage.tenant)) == CALLS
    assert await stage.is_whole()
    spend = (await stage.api.usage(stage.planner, grant["grantId"]))["spendCents"]
    assert spend == {"posted": CALLS, "pending": 0}


async def test_two_workers_share_one_budget(database_url: str, tool_server: ToolServer) -> None:
    with ServerProcess(database_url, workers=2) as server:
        async with Api(server.url) as api:
            stage = await set_stage(api, tool_server)
            grant = await stage.open_grant("search", maxToolCalls=20)
            token = await stage.token(grant)
            marker = {"who": stage.tenant}
            responses = await asyncio.gather(*(api.call(token, stage.support, "search", marker) for _ in range(60)))
            assert sum(response.is_success for response in responses) == 20
            assert len(tool_server.of("search", **marker)) == 20
            assert await settled(stage, grant) == {"posted": 20, "pending": 0}
            assert await stage.is_whole()


async def test_a_graceful_stop_finishes_what_is_in_flight(database_url: str, tool_server: ToolServer) -> None:
    server = ServerProcess(database_url, env=ENV)
    server.start()
    try:
        async with Api(server.url) as api:
            stage = await set_stage(api, tool_server)
            grant = await stage.open_grant("slow")
            token = await stage.token(grant)
            call = asyncio.create_task(api.call(token, stage.support, "slow", {"who": stage.tenant}))
            await asyncio.to_thread(tool_server.wait_for, 1, "slow", who=stage.tenant)
            stopping = asyncio.create_task(asyncio.to_thread(server.stop))
            tool_server.release()
            assert made(await call)["outcome"] == "success"
            assert await stopping == 0
    finally:
        server.stop()
