"""Calls over MCP that are watched and taken back, on real servers on both sides: agents and tools of either era.

A tool's words are the tool's, and get no further than its result would; a call is its caller's, and nobody else's.
"""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx
import pytest

from app.usecases.watch import MAX_NOTICES
from tests.api_client import Api, Json, made
from tests.attacks.stage import OPEN, Stage, set_stage
from tests.mcp_client import REVISIONS, STATELESS, McpClient, decision_of, in_event, messages_of, result_of
from tests.mcp_tool_server import ERAS, FLOOD, NEW, McpToolServer, mcp_tool_server
from tests.server_process import ServerProcess
from tests.tool_server import ToolServer

pytestmark = pytest.mark.anyio

TOOLS: Final = "steps", "slow", "secret", "flood", "large", "sampling", "elicitation", "roots"
LEVEL: Final = "io.modelcontextprotocol/logLevel"
PROGRESS: Final = "notifications/progress"


@pytest.fixture(scope="module", params=ERAS)
def tools(request: pytest.FixtureRequest) -> Iterator[McpToolServer]:
    with mcp_tool_server(request.param) as server:
        yield server


@dataclass(frozen=True)
class Desk:
    """A stage with an MCP tool server on it, all of whose tools were discovered."""

    stage: Stage
    tools: McpToolServer
    audience: str

    async def grant(self, **members: object) -> Json:
        wish: Json = {
            "audience": self.audience,
            "allowedTools": [*TOOLS],
            "resourceConstraints": dict.fromkeys(TOOLS, OPEN),
            "maxToolCalls": 50,
        }
        return await self.stage.grant(**(wish | members))

    async def client(self, revision: str, **members: object) -> McpClient:
        """An agent with a grant of its own, and its session where there are any."""
        client = McpClient(self.stage.api.http, await self.stage.token(await self.grant(**members)), revision, "desk")
        await client.ask("tools/list")
        return client


@pytest.fixture
async def desk(server: ServerProcess, tool_server: ToolServer, tools: McpToolServer) -> AsyncIterator[Desk]:
    tools.released.clear()
    async with Api(server.url) as api:
        yield await set_desk(await set_stage(api, tool_server), tools)
    tools.released.set()


async def set_desk(stage: Stage, tools: McpToolServer) -> Desk:
    audience = await stage.api.tool_server(stage.tenant, "desk", tools.endpoint, transport="mcp", timeoutSeconds=60)
    assert set((await stage.api.discover(stage.tenant, "desk"))["added"]) == {*TOOLS}
    return Desk(stage, tools, audience)


def call(tool: str, arguments: Json | None = None, token: object = "mine", **meta: object) -> Json:
    return {"name": tool, "arguments": arguments or {}, "_meta": {"progressToken": token, **meta}}


def progress_in(messages: list[Json]) -> list[Json]:
    return [message["params"] for message in messages if message.get("method") == PROGRESS]


@asynccontextmanager
async def streaming(client: McpClient, params: Json) -> AsyncIterator[tuple[Json, AsyncIterator[Json]]]:
    """A call that has begun: its request, and the messages of its stream one by one."""
    body, headers = client.request("tools/call", params)
    path = f"/mcp/{client.server}"
    async with client.http.stream("POST", path, json=body, headers=client.fields(headers)) as response:
        assert response.headers["content-type"].startswith("text/event-stream"), await response.aread()
        yield body, _messages(response)


async def _messages(response: httpx.Response) -> AsyncIterator[Json]:
    held = ""
    async for text in response.aiter_text():
        *events, held = (held + text).split("\n\n")
        for event in events:
            for message in in_event(event):
                yield message


# --- either agent, either tool server ---------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
async def test_an_agent_of_any_revision_hears_a_tool_server_of_any_era(desk: Desk, revision: str) -> None:
    client = await desk.client(revision)
    given, debug = f"token-{secrets.token_hex(4)}", {LEVEL: "debug"}
    seen = len(desk.tools.seen)
    response = await client.ask("tools/call", call("steps", {}, given, **debug))
    *notices, answer = messages_of(response)
    assert progress_in(notices) == [
        {"progressToken": given, "progress": 1, "total": 3, "message": "one"},
        {"progressToken": given, "progress": 2, "total": 3, "message": "two"},
    ]
    logged = [message["params"] for message in notices if message["method"] == "notifications/message"]
    assert logged == ([{"level": "info", "data": {"step": 1}}] if revision == STATELESS else [])
    assert answer["result"]["structuredContent"] == {"ok": "done"}
    assert (decision_of(response)["decision"], answer["result"]["isError"]) == ("allow", False)
    sent, fields = json.dumps(desk.tools.seen[seen:]), json.dumps(desk.tools.headers[seen:])
    assert given not in sent, "an agent's token is no tool server's business"
    for secret in (str(client.token), client.session or "no session at all", "tests"):
        assert secret not in sent + fields
    spoken = {fields.get("mcp-protocol-version") for fields in desk.tools.headers[seen:]} - {None}
    assert spoken - {STATELESS} == (set() if desk.tools.era == NEW else {"2025-11-25"})


@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_a_tool_wants_of_its_client_never_reaches_the_agent(desk: Desk, revision: str) -> None:
    client = await desk.client(revision)
    for tool in ("sampling", "elicitation", "roots"):
        started, refused = time.monotonic(), len(desk.tools.refusals)
        response = await client.ask("tools/call", call(tool))
        assert time.monotonic() - started < 20, "refused at once, not by a time-out"
        for message in messages_of(response):
            assert message.get("method") in {None, PROGRESS}
            assert "id" not in message or message["id"] is not None
        assert len(desk.tools.refusals) == refused + 1
        assert result_of(response)["structuredContent"] == {"ok": "refused"}
        assert "password" not in response.text


# --- what a tool says -------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_projection_is_not_got_round_by_talking(desk: Desk, revision: str) -> None:
    text = f"card-{secrets.token_hex(6)}"
    client = await desk.client(revision, resultProjection={"secret": ["$.other"]})
    arguments = {"number": 41_111_111, "text": text}
    response = await client.ask("tools/call", call("secret", arguments, **{LEVEL: "debug"}))
    assert progress_in(messages_of(response)) == [{"progressToken": "mine", "progress": 1}]
    assert text not in response.text
    assert "41111111" not in response.text
    assert "notifications/message" not in response.text


@pytest.mark.parametrize("revision", [STATELESS, "2025-11-25"])
async def test_a_tool_that_repeats_what_the_gateway_alone_may_know_is_not_heard(desk: Desk, revision: str) -> None:
    client = await desk.client(revision)
    arguments = {"number": 1, "text": f"I am at {desk.tools.endpoint}"}
    response = await client.ask("tools/call", call("secret", arguments, **{LEVEL: "debug"}))
    assert desk.tools.endpoint not in response.text
    assert "[redacted]" in response.text


@pytest.mark.parametrize("revision", [STATELESS, "2025-06-18"])
async def test_a_flood_of_progress_drowns_nobody(desk: Desk, revision: str) -> None:
    client = await desk.client(revision)
    response = await client.ask("tools/call", call("flood"))
    heard = [params["progress"] for params in progress_in(messages_of(response))]
    assert heard == [*range(1, MAX_NOTICES + 1)], f"of {FLOOD}"
    assert result_of(response)["structuredContent"] == {"ok": "done"}
    assert decision_of(response)["usage"]["toolCalls"]["posted"] == 1


async def test_a_word_of_a_megabyte_is_dropped_and_what_follows_is_heard(desk: Desk) -> None:
    client = await desk.client(STATELESS)
    response = await client.ask("tools/call", call("large"))
    assert [params["progress"] for params in progress_in(messages_of(response))] == [2]
    assert result_of(response)["structuredContent"] == {"ok": "done"}


# --- taking a call back -----------------------------------------------------------------------------------


async def ended(desk: Desk, grant_client: McpClient, count: int = 1) -> list[Json]:
    """How the calls of a desk ended, once so many have."""
    assert grant_client.server == "desk"
    async with asyncio.timeout(20):
        while True:
            records = await desk.stage.records(type="tool.outcome_unknown")
            if len(records) >= count:
                return records
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("watched", [True, False])
async def test_an_agent_of_today_that_goes_takes_its_call_back_at_the_tool_too(desk: Desk, *, watched: bool) -> None:
    client = await desk.client(STATELESS)
    params = call("slow", {"who": desk.stage.tenant}, token="mine" if watched else None)
    body, headers = client.request("tools/call", params)
    asking = asyncio.create_task(client.send(body, headers))
    await asyncio.to_thread(desk.tools.wait_for, lambda: desk.stage.tenant in desk.tools.calls)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await asyncio.to_thread(desk.tools.wait_for, lambda: desk.stage.tenant in desk.tools.given_up)
    (record,) = await ended(desk, client)
    assert record["cancelled"] is True
    assert await desk.stage.is_whole()


async def cancel(client: McpClient, request_id: object) -> int:
    _, headers = client.request("ping")
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
    return (await client.send(body, headers)).status_code


@pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18"])
async def test_an_agent_of_before_takes_its_call_back_and_nobody_else_can(desk: Desk, revision: str) -> None:
    owner, neighbour = await desk.client(revision), await desk.client(revision)
    sibling = McpClient(owner.http, owner.token, revision, "desk")
    await sibling.ask("ping")
    foreign = await set_desk(await set_stage(desk.stage.api, desk.stage.tools), desk.tools)
    foreigner = await foreign.client(revision)
    thief = McpClient(owner.http, neighbour.token, revision, "desk", session=owner.session)
    async with streaming(owner, call("slow", {"who": desk.stage.tenant})) as (body, messages):
        assert (await anext(messages))["method"] == PROGRESS
        for other in (neighbour, sibling, foreigner):
            assert await cancel(other, body["id"]) == 202
        assert await cancel(thief, body["id"]) == 404
        nobody = McpClient(owner.http, None, revision, "desk", session=owner.session)
        assert await cancel(nobody, body["id"]) == 401
        # More than what it takes for a cancellation to reach another worker.
        await asyncio.sleep(1)
        assert desk.stage.tenant not in desk.tools.given_up
        assert await desk.stage.records(type="tool.outcome_unknown") == []
        assert await cancel(owner, body["id"]) == 202
        assert [message async for message in messages] == [], "no response to what was taken back"
    await asyncio.to_thread(desk.tools.wait_for, lambda: desk.stage.tenant in desk.tools.given_up)
    (record,) = await ended(desk, owner)
    assert record["cancelled"] is True
    assert await desk.stage.is_whole()


async def test_a_cancelled_key_is_never_run_again(desk: Desk) -> None:
    client = await desk.client("2025-11-25")
    who = {"who": desk.stage.tenant}
    key: Json = {"dev.subgrant/idempotencyKey": "k1"}
    async with streaming(client, call("slow", who, **key)) as (body, messages):
        await anext(messages)
        await cancel(client, body["id"])
        assert [message async for message in messages] == []
    again = await client.ask("tools/call", call("slow", who, **key))
    assert (decision_of(again)["outcome"], result_of(again)["isError"]) == ("unknown", True)
    assert desk.tools.calls.count(desk.stage.tenant) == 1


async def test_a_cancellation_reaches_calls_in_other_workers_within_a_second(
    database_url: str, tool_server: ToolServer, tools: McpToolServer
) -> None:
    """Twelve slow calls, spread over two workers by the kernel, and as many cancellations, spread anew."""
    tools.released.clear()
    with ServerProcess(database_url, workers=2) as server:
        async with Api(server.url) as api:
            desk = await set_desk(await set_stage(api, tool_server), tools)
            client = await desk.client("2025-11-25")
            requests = [client.request("tools/call", call("slow", {"who": desk.stage.tenant})) for _ in range(12)]
            calls = [asyncio.create_task(_alone(server.url, client, *request)) for request in requests]
            await asyncio.to_thread(tools.wait_for, lambda: tools.calls.count(desk.stage.tenant) == 12)
            started = time.monotonic()
            await asyncio.gather(*(_alone(server.url, client, *_cancellation(client, body)) for body, _ in requests))
            answers = await asyncio.wait_for(asyncio.gather(*calls), 20)
            assert time.monotonic() - started < 5, "a second, on a busy machine"
            assert {answer.text.partition("event")[0] for answer in answers} == {""}
            assert not any('"result"' in answer.text for answer in answers)
            records = await ended(desk, client, 12)
            assert [record["cancelled"] for record in records] == [True] * 12
            assert await desk.stage.is_whole()
    tools.released.set()


def _cancellation(client: McpClient, body: Json) -> tuple[Json, dict[str, str]]:
    _, headers = client.request("ping")
    params = {"requestId": body["id"]}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}, headers


async def _alone(url: str, client: McpClient, body: Json, headers: Json) -> httpx.Response:
    """Over a connection of its own, which any worker may get."""
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
        return await McpClient(http, client.token, client.revision, "desk", client.session).send(body, headers)


async def test_closing_a_grant_ends_its_streams(desk: Desk) -> None:
    grant = await desk.grant()
    client = McpClient(desk.stage.api.http, await desk.stage.token(grant), STATELESS, "desk")
    async with streaming(client, call("slow", {"who": desk.stage.tenant})) as (_, messages):
        await anext(messages)
        made(await desk.stage.api.close(desk.stage.planner, grant["grantId"]))
        (answer,) = [message async for message in messages]
    assert answer["result"]["isError"] is True
    await asyncio.to_thread(desk.tools.wait_for, lambda: desk.stage.tenant in desk.tools.given_up)
    (record,) = await ended(desk, client)
    assert record["abortedByClose"] is True
