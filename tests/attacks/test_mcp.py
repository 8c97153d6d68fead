"""The MCP endpoint under attack, on real servers: another wire is no other authority, and nothing is remembered."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import httpx
import pytest

from tests.api_client import Json, made, proposal
from tests.attacks.stage import OPEN, SEARCH_RULE, Stage, set_stage
from tests.mcp_client import (
    HANDSHAKES,
    REVISIONS,
    STATELESS,
    McpClient,
    decision_of,
    error_of,
    result_of,
    text_of,
)

pytestmark = pytest.mark.anyio

CASES: Final[Json] = {"customerId": "c_42"}


def over_mcp(stage: Stage, token: str | None, revision: str = STATELESS, server: str = "support") -> McpClient:
    return McpClient(stage.api.http, token, revision, server)


# --- one decision behind every route ----------------------------------------------------------------------


class Agent(NamedTuple):
    """A token, and the sessions that were agreed on with it while it lived: a dead one gets none."""

    token: str
    sessions: Mapping[str, str] = {}


async def greeted(stage: Stage, token: str) -> Agent:
    """An agent with a session in each revision that has them."""
    answers = {revision: await over_mcp(stage, token, revision).initialize() for revision in HANDSHAKES}
    return Agent(token, {revision: answer.headers["mcp-session-id"] for revision, answer in answers.items()})


Route = Callable[[Stage, Agent, str, Json], Awaitable[Json]]
"""Proposes a call to `support` in its own way: what was decided."""


async def by_calls(stage: Stage, agent: Agent, tool: str, arguments: Json) -> Json:
    document: Json = (await stage.api.call(agent.token, stage.support, tool, arguments)).json()
    return document


async def by_checks(stage: Stage, agent: Agent, tool: str, arguments: Json) -> Json:
    document: Json = (await stage.api.check(agent.token, stage.support, tool, arguments)).json()
    decided: Json = document.get("decisions", [document])[0]
    return decided


def by_mcp(revision: str) -> Route:
    async def propose(stage: Stage, agent: Agent, tool: str, arguments: Json) -> Json:
        client = over_mcp(stage, agent.token, revision)
        client.session = agent.sessions.get(revision)
        return decision_of(await client.call(tool, arguments))

    return propose


ROUTES: Final[dict[str, Route]] = {"calls": by_calls, "checks": by_checks} | {name: by_mcp(name) for name in REVISIONS}

Setting = Callable[[Stage], Awaitable[Agent]]
"""Prepares an agent, and then whatever is wrong with its credential."""


async def plain(stage: Stage) -> Agent:
    return await greeted(stage, await stage.token(await stage.grant()))


async def spent(stage: Stage) -> Agent:
    return await greeted(stage, await stage.token(await stage.grant(), maxToolCalls=0))


async def closed(stage: Stage) -> Agent:
    grant = await stage.grant()
    agent = await greeted(stage, await stage.token(grant))
    made(await stage.api.close(stage.planner, grant["grantId"]))
    return agent


async def revoked(stage: Stage) -> Agent:
    agent = await plain(stage)
    made(await stage.api.revoke(stage.planner, agent.token))
    return agent


DENIED: Final[dict[str, tuple[Setting, str, Json, str]]] = {
    "a tool that was not granted": (plain, "fail", {}, "tool_not_allowed"),
    "a tool that does not exist": (plain, "no_such_tool", {}, "tool_not_allowed"),
    "another customer": (plain, "search", {"customerId": "c_43"}, "resource_out_of_scope"),
    "another tenant": (plain, "search", CASES | {"tenant": "globex"}, "resource_out_of_scope"),
    "too much": (plain, "search", CASES | {"limit": 6}, "resource_out_of_scope"),
    "an unknown argument": (plain, "search", CASES | {"x": 1}, "argument_invalid"),
    "a missing argument": (plain, "search", {}, "argument_invalid"),
    "no budget": (spent, "search", CASES, "budget_exceeded"),
    "a closed grant": (closed, "search", CASES, "grant_closed"),
    "a revoked token": (revoked, "search", CASES, "grant_revoked"),
}

VOLATILE: Final = {"seq", "time", "hash", "prevHash", "callId", "decisionId", "checkOnly"}


@pytest.mark.parametrize("what", DENIED)
async def test_a_call_is_denied_for_the_same_reason_and_with_the_same_evidence_on_every_route(
    stage: Stage, what: str
) -> None:
    setting, tool, arguments, reason = DENIED[what]
    agent = await setting(stage)
    evidence: dict[str, list[Json]] = {}
    seen = len(await stage.records())
    for name, propose in ROUTES.items():
        decided = await propose(stage, agent, tool, arguments)
        assert decided["reason"] == reason, name
        records = (await stage.records())[seen:]
        seen += len(records)
        assert {record["decisionId"] for record in records} == {decided["decisionId"]}, name
        evidence[name] = [{key: record[key] for key in record.keys() - VOLATILE} for record in records]
    assert [record["type"] for record in evidence["calls"]] == ["tool.proposed", "tool.denied"]
    assert all(records == evidence["calls"] for records in evidence.values()), evidence
    assert not stage.tools.of(tool, tenant=stage.tenant)
    assert await stage.is_whole()


async def test_a_token_for_another_tool_server_is_refused_on_every_route(stage: Stage) -> None:
    grant = await stage.grant(
        audience=[stage.support, stage.billing],
        allowedTools=["support/search", "billing/search"],
        resourceConstraints={"support/search": SEARCH_RULE, "billing/search": OPEN},
    )
    token = await stage.token(grant, audience=[stage.billing])
    for name, propose in ROUTES.items():
        # Where there is a handshake, that is refused already.
        assert (await propose(stage, Agent(token), "search", CASES))["reason"] == "audience_mismatch", name
    ours = over_mcp(stage, token, server="billing")
    assert [tool["name"] for tool in (await ours.tools())["tools"]] == ["search"]
    assert result_of(await ours.call("search", CASES))["isError"] is False


# --- tokens -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_closed_grant_has_no_refuge_in_a_session_or_a_list(stage: Stage, revision: str) -> None:
    grant = await stage.grant()
    client = over_mcp(stage, await stage.token(grant), revision)
    assert (await client.tools())["tools"]
    made(await stage.api.close(stage.planner, grant["grantId"]))
    for response in (await client.ask("tools/list"), await client.call("search", CASES), await client.initialize()):
        assert response.status_code == 401
        assert decision_of(response)["reason"] == "grant_closed"
        assert "resource_metadata=" in response.headers["www-authenticate"]


async def test_a_session_is_worth_nothing_to_anybody_else(stage: Stage) -> None:
    owner = over_mcp(stage, await stage.token(await stage.grant()), "2025-11-25")
    await owner.ask("ping")
    neighbour = over_mcp(stage, await stage.token(await stage.grant()), "2025-11-25")
    other = await set_stage(stage.api, stage.tools)
    foreigner = over_mcp(stage, await other.token(await other.grant()), "2025-11-25")
    for thief in (neighbour, foreigner):
        thief.session = owner.session
        assert (await thief.call("search", CASES)).status_code == 404
    nobody = over_mcp(stage, None, "2025-11-25")
    nobody.session = owner.session
    assert (await nobody.call("search", CASES)).status_code == 401
    assert not stage.tools.of("search", tenant=stage.tenant)


async def test_a_token_for_the_api_calls_no_tool(stage: Stage) -> None:
    client = over_mcp(stage, await stage.api.token_of(stage.planner))
    for response in (await client.ask("tools/list"), await client.call("search", CASES)):
        assert (response.status_code, decision_of(response)["reason"]) == (401, "token_invalid")


async def test_what_came_in_does_not_go_on(stage: Stage) -> None:
    token = await stage.token(await stage.grant())
    client = over_mcp(stage, token)
    body, headers = client.request("tools/call", {"name": "search", "arguments": CASES})
    extra = {"X-Forwarded-For": "1.2.3.4", "Cookie": "a=b", "Mcp-Param-CustomerId": "c_43"}
    assert result_of(await client.send(body, headers | extra))["isError"] is False
    sent = stage.tools.of("search", tenant=stage.tenant)[-1]
    assert token not in json.dumps(sent.headers)
    assert not {"authorization", "cookie", "x-forwarded-for"} & {name.lower() for name in sent.headers}
    assert not [name for name in sent.headers if name.lower().startswith("mcp-")]
    assert sent.arguments == CASES | {"tenant": stage.tenant}


async def test_a_refusal_to_look_around_is_on_record(stage: Stage) -> None:
    grant = await stage.grant()
    token = await stage.token(grant)
    made(await stage.api.close(stage.planner, grant["grantId"]))
    response = await over_mcp(stage, token).ask("tools/list")
    (record,) = await stage.records(type="access.refused")
    assert record["decisionId"] == decision_of(response)["decisionId"]
    assert record["reason"] == "grant_closed"


# --- messages ---------------------------------------------------------------------------------------------


async def test_header_fields_that_name_a_granted_tool_smuggle_no_other_one_in(stage: Stage) -> None:
    client = over_mcp(stage, await stage.token(await stage.grant()))
    body, headers = client.request("tools/call", {"name": "fail", "arguments": {"tenant": stage.tenant}})
    response = await client.send(body, headers | {"Mcp-Name": "search"})
    assert (response.status_code, error_of(response)["code"]) == (400, -32020)
    body, headers = client.request("tools/list")
    response = await client.send(body | {"method": "tools/call"}, headers)
    assert (response.status_code, error_of(response)["code"]) == (400, -32020)


async def test_a_batch_runs_none_of_its_calls(stage: Stage) -> None:
    token = await stage.token(await stage.grant())
    for revision in REVISIONS:
        client = over_mcp(stage, token, revision)
        await client.ask("tools/list")
        body, headers = client.request("tools/call", {"name": "search", "arguments": CASES})
        for batch in ([body], [body, body], [{"jsonrpc": "2.0", "method": "notifications/initialized"}, body]):
            response = await client.send(batch, headers)
            assert (response.status_code, error_of(response)["code"]) == (400, -32600)
    assert not stage.tools.of("search", tenant=stage.tenant)


LINE_ENDS: Final = (
    "search\r\nMcp-Name: fail",
    "search\nMcp-Name: fail",
    "search\r\n\tfail",
    "search\rfail",
    "search\x00",
)


@pytest.mark.parametrize("value", LINE_ENDS)
async def test_a_line_end_in_a_field_starts_no_other_field(stage: Stage, value: str) -> None:
    client = over_mcp(stage, await stage.token(await stage.grant()))
    body, headers = client.request("tools/call", {"name": "search", "arguments": CASES})
    answer = await raw_answer(stage, client, body, headers | {"Mcp-Name": value})
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert not stage.tools.of("search", tenant=stage.tenant)


@pytest.mark.parametrize("name", [*LINE_ENDS, "search\u2028", "../search", "search "])
async def test_a_name_with_more_than_a_name_in_it_is_none_however_it_is_encoded(stage: Stage, name: str) -> None:
    client = over_mcp(stage, await stage.token(await stage.grant()))
    body, headers = client.request("tools/call", {"name": name, "arguments": CASES})
    headers["Mcp-Name"] = f"=?base64?{base64.b64encode(name.encode()).decode()}?="
    response = await client.send(body, headers)
    assert error_of(response)["code"] == -32602
    assert not stage.tools.of("search", tenant=stage.tenant)


async def raw_answer(stage: Stage, client: McpClient, body: Json, headers: Json) -> bytes:
    """What is answered to a request whose header fields no HTTP client would write."""
    reader, writer = await raw_request(stage, client, body, headers | {"Connection": "close"})
    answer = await reader.read()
    writer.close()
    return answer


async def raw_request(
    stage: Stage, client: McpClient, body: Json, headers: Json
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = stage.api.url.removeprefix("http://").partition(":")
    content = json.dumps(body).encode()
    fields = client.fields(headers | {"Host": f"{host}:{port}", "Content-Length": str(len(content))})
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST /mcp/support HTTP/1.1\r\n{head}\r\n".encode() + content)
    await writer.drain()
    return reader, writer


async def test_a_member_given_twice_names_no_tool(stage: Stage) -> None:
    client = over_mcp(stage, await stage.token(await stage.grant()))
    body, headers = client.request("tools/call", {"name": "search", "arguments": CASES})
    content = json.dumps(body).replace('"name": "search"', '"name": "fail", "n\\u0061me": "search"')
    response = await client.send_bytes(content.encode(), headers)
    assert (response.status_code, error_of(response)["code"]) == (400, -32700)


async def test_a_page_of_somebody_else_calls_nothing(stage: Stage) -> None:
    client = over_mcp(stage, await stage.token(await stage.grant()))
    body, headers = client.request("tools/call", {"name": "search", "arguments": CASES})
    for origin in ("https://evil.example", "null", "http://localhost:1"):
        assert (await client.send(body, headers | {"Origin": origin})).status_code == 403
    assert not stage.tools.of("search", tenant=stage.tenant)
    ours = await client.send(body, headers | {"Origin": stage.api.url})
    assert result_of(ours)["isError"] is False


async def test_no_error_repeats_what_was_sent(stage: Stage) -> None:
    secret = "sesame-open-7741"
    client = over_mcp(stage, await stage.token(await stage.grant()))
    responses: list[httpx.Response] = [
        await client.call(secret),
        await client.call("search", {secret.replace("-", "_"): secret}),
        await client.call("search", {"customerId": secret}),
        await client.ask(secret),
        await client.ask("tools/list", {"cursor": secret}),
        await client.send({"jsonrpc": "2.0", "id": 1, "method": "ping", secret: secret}),
    ]
    for response in responses:
        assert secret not in response.text.replace(secret.replace("-", "_"), "")


# --- calls ------------------------------------------------------------------------------------------------


async def test_a_key_is_one_call_whichever_wire_it_comes_by(stage: Stage) -> None:
    token = await stage.token(await stage.grant())
    first = made(await stage.api.call(token, stage.support, "search", CASES, idempotency_key="k1"))
    for revision in REVISIONS:
        repeated = await over_mcp(stage, token, revision).call("search", CASES, key="k1")
        assert decision_of(repeated)["callId"] == first["callId"]
        assert result_of(repeated)["structuredContent"] == first["result"]
    assert len(stage.tools.of("search", tenant=stage.tenant)) == 1


async def test_many_calls_at_once_by_every_wire_spend_a_budget_once(stage: Stage) -> None:
    grant = await stage.grant(maxToolCalls=5)
    agent = await greeted(stage, await stage.token(grant))
    wires = [propose for name, propose in ROUTES.items() if name != "checks"] * 6

    decided = await asyncio.gather(*(propose(stage, agent, "search", CASES) for propose in wires))
    reasons = sorted(decision.get("reason", "") for decision in decided)
    assert reasons == [""] * 5 + ["budget_exceeded"] * (len(wires) - 5)
    assert len(stage.tools.of("search", tenant=stage.tenant)) == 5


@pytest.mark.parametrize("revision", HANDSHAKES)
async def test_a_call_whose_client_has_gone_is_settled_all_the_same(stage: Stage, revision: str) -> None:
    grant = await stage.open_grant("slow")
    token = await stage.token(grant)
    client = over_mcp(stage, token, revision)
    await client.ask("tools/list")
    params = {"name": "slow", "arguments": {"tenant": stage.tenant}, "_meta": {"dev.subgrant/idempotencyKey": "k1"}}
    body, headers = client.request("tools/call", params)
    await hang_up_during(stage, client, body, headers)
    stage.tools.release()
    # The first call's key answers 409 until that call has ended.
    again = proposal(stage.support, "slow", {"tenant": stage.tenant}) | {"idempotencyKey": "k1"}
    while (response := await stage.api.request("POST", "/v1/gateway/calls", token, json=again)).status_code == 409:
        pass
    assert made(response)["outcome"] == "success"
    assert len(stage.tools.of("slow", tenant=stage.tenant)) == 1
    assert (await stage.api.usage(stage.planner, grant["grantId"]))["toolCalls"] == {"posted": 1, "pending": 0}


async def test_a_client_of_today_that_has_gone_has_taken_its_call_back_and_pays_for_it(stage: Stage) -> None:
    grant = await stage.open_grant("slow")
    client = over_mcp(stage, await stage.token(grant))
    params = {"name": "slow", "arguments": {"tenant": stage.tenant}, "_meta": {"dev.subgrant/idempotencyKey": "k1"}}
    await hang_up_during(stage, client, *client.request("tools/call", params))
    records: list[Json] = []
    while not records:
        records = await stage.records(type="tool.outcome_unknown")
    (record,) = records
    assert (record["cancelled"], record["costCents"]) == (True, 1)
    again = await client.ask("tools/call", params)
    assert (decision_of(again)["outcome"], result_of(again)["isError"]) == ("unknown", True)
    assert len(stage.tools.of("slow", tenant=stage.tenant)) == 1, "what may have happened is not run again"
    assert (await stage.api.usage(stage.planner, grant["grantId"]))["toolCalls"] == {"posted": 1, "pending": 0}


async def hang_up_during(stage: Stage, client: McpClient, body: Json, headers: Json) -> None:
    """Send a request, and be gone once it has reached the tool."""
    _, writer = await raw_request(stage, client, body, headers)
    await asyncio.to_thread(stage.tools.wait_for, 1, "slow", tenant=stage.tenant)
    writer.transport.abort()


async def test_a_tool_server_that_is_away_is_not_shown(stage: Stage) -> None:
    audience = await stage.api.tool_server(stage.tenant, "away", "http://127.0.0.1:1/hidden-place")
    await stage.api.tool(stage.tenant, "away", "search")
    grant = await stage.grant(
        audience=audience, allowedTools=["search"], resourceConstraints={"search": {"*": {"any": True}}}
    )
    response = await over_mcp(stage, await stage.token(grant), server="away").call("search")
    result = result_of(response)
    assert (result["isError"], decision_of(response)["outcome"]) == (True, "unsent")
    assert "nothing was charged" in text_of(result)
    assert "127.0.0.1:1" not in response.text
    assert "hidden-place" not in response.text
