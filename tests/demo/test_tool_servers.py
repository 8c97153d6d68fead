"""The demo's tool servers as they run: processes of their own, called through the gateway's upstream."""

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.adapters.upstream import ToolUpstream
from app.core.grant import ToolName
from app.core.registry import HttpBinding, Transport
from app.core.strict_json import JsonObject
from app.demo.stage import CASES_FILE
from app.ports import Outcome, UpstreamAnswer, UpstreamRequest

pytestmark = pytest.mark.anyio

ISSUER = "https://subgrant.example"
AUDIENCE = "https://tools.example/support/upstream"
KEY = Ed25519PrivateKey.generate()
JWKS = {"keys": [{**json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(KEY.public_key())), "kid": "k1", "alg": "EdDSA"}]}


@pytest.fixture
async def upstream() -> AsyncIterator[ToolUpstream]:
    upstream = ToolUpstream(addresses="loopback")
    yield upstream
    await upstream.aclose()


@asynccontextmanager
async def running(module: str, *options: str, env: Mapping[str, str] | None = None) -> AsyncIterator[str]:
    """A demo server's address; it has to announce itself, and to end well when it is told to."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, "--port", "0", *options, stdout=PIPE, env={**os.environ, **(env or {})}
    )
    try:
        yield f"http://127.0.0.1:{await announced_port(process)}"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def announced_port(process: Process) -> int:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 60)
    ready = re.fullmatch(rb"ready (\d+)\n", line)
    assert ready, line
    return int(ready[1])


def a_request(
    transport: Transport,
    endpoint: str,
    tool: str,
    arguments: JsonObject,
    headers: Mapping[str, str] | None = None,
    http: HttpBinding = HttpBinding(),  # noqa: B008 - frozen
) -> UpstreamRequest:
    return UpstreamRequest(
        transport=transport,
        endpoint=endpoint,
        tool=ToolName(tool),
        http=http,
        arguments=arguments,
        headers=headers or {},
        timeout_seconds=20,
        max_response_bytes=1_000_000,
        session_key="acme/demo/run_1",
    )


# --- support ----------------------------------------------------------------------------------------------


async def search(
    upstream: ToolUpstream, server: str, arguments: JsonObject, headers: Mapping[str, str] | None = None
) -> UpstreamAnswer:
    return await upstream.call(a_request(Transport.MCP, f"{server}/mcp", "case_search", arguments, headers))


def cases(answer: UpstreamAnswer) -> list[dict[str, str]]:
    assert answer.outcome is Outcome.SUCCESS, answer
    assert isinstance(answer.result, dict)
    structured = answer.result["structuredContent"]
    assert isinstance(structured, dict)
    found = structured["cases"]
    assert isinstance(found, list)
    return [{str(name): str(value) for name, value in case.items()} for case in found if isinstance(case, dict)]


async def test_the_support_server_finds_a_customers_cases_newest_first(upstream: ToolUpstream) -> None:
    async with running("app.demo.support_server") as server:
        mine = cases(await search(upstream, server, {"tenant": "acme", "customerId": "c_42"}))
        other = cases(await search(upstream, server, {"tenant": "globex", "customerId": "g_7"}))
        none = cases(await search(upstream, server, {"tenant": "globex", "customerId": "c_42"}))
        queried: JsonObject = {"tenant": "acme", "customerId": "c_42", "query": "EXPORT", "limit": 1}
        found = cases(await search(upstream, server, queried))
        wrong = await search(upstream, server, {"tenant": "acme"})
    assert [case["openedOn"] for case in mine] == sorted((case["openedOn"] for case in mine), reverse=True)
    assert {case["customerId"] for case in mine} == {"c_42"}
    assert {case["tenant"] for case in other} == {"globex"}
    assert (none, [case["caseId"] for case in found]) == ([], ["case_1093"])
    assert wrong.outcome is Outcome.TOOL_ERROR


async def test_the_support_server_lists_its_tools_and_sends_messages(upstream: ToolUpstream) -> None:
    async with running("app.demo.support_server") as server:
        tools = await upstream.discover(a_request(Transport.MCP, f"{server}/mcp", "", {}))
        message: JsonObject = {"to": "c_42", "text": "We are on it."}
        sent = await upstream.call(a_request(Transport.MCP, f"{server}/mcp", "send_message", message))
    assert [tool.name for tool in tools] == ["case_search", "send_message"]
    assert all(tool.output_schema for tool in tools)
    properties = tools[0].input_schema["properties"]
    assert isinstance(properties, dict)
    assert list(properties) == ["tenant", "customerId", "query", "limit"]
    assert isinstance(sent.result, dict)
    assert sent.result["structuredContent"] == {"messageId": "msg_1", "to": "c_42"}


def signed(key: object = KEY, algorithm: str = "EdDSA", kid: str = "k1", **changes: object) -> dict[str, str]:
    now = datetime.now(UTC)
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "u_1", "iat": now, "exp": now + timedelta(minutes=1)}
    members = {name: value for name, value in {**claims, **changes}.items() if value is not None}
    token = jwt.encode(members, key, algorithm=algorithm, headers={"kid": kid})  # type: ignore[arg-type]
    return {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def serving_keys() -> AsyncIterator[str]:
    async def keys(_request: web.Request) -> web.Response:
        return web.json_response(JWKS)

    app = web.Application()
    app.router.add_get("/oauth/jwks", keys)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/oauth/jwks"
    finally:
        await runner.cleanup()


async def test_the_support_server_trusts_the_gateways_credential_alone(upstream: ToolUpstream) -> None:
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    refused = [
        {},
        {"Authorization": "Bearer nonsense"},
        signed(aud="https://subgrant.example/mcp/support"),  # an agent's own token
        signed(aud=None),
        signed(iss="https://evil.example"),
        signed(exp=an_hour_ago),
        signed(exp=None),
        signed(kid="k2"),
        signed(key=Ed25519PrivateKey.generate()),
        signed(key=ec.generate_private_key(ec.SECP256R1()), algorithm="ES256"),
        signed(key="x" * 32, algorithm="HS256"),
        signed(key=None, algorithm="none"),
    ]
    arguments: JsonObject = {"tenant": "acme", "customerId": "c_42"}
    async with serving_keys() as keys:
        options = ("--audience", AUDIENCE, "--issuer", ISSUER, "--jwks-url", keys)
        async with running("app.demo.support_server", *options) as server:
            for headers in refused:
                answer = await search(upstream, server, arguments, headers)
                assert answer == UpstreamAnswer(
                    outcome=Outcome.UNSENT,
                    detail="the tool server did not say what it speaks: the tool answered HTTP 401",
                ), headers
            assert len(cases(await search(upstream, server, arguments, signed()))) == 4


def test_the_cases_are_a_dozen_with_one_planted_instruction() -> None:
    stored = json.loads(CASES_FILE.read_text("utf-8"))["cases"]
    by_customer = dict.fromkeys(("c_42", "c_43", "g_7"), 0)
    for case in stored:
        by_customer[case["customerId"]] = by_customer.get(case["customerId"], 0) + 1
        assert case["openedOn"].startswith("2026-")
        assert case["customer"]["name"]
        assert case["payment"]["billingAddress"]
    assert by_customer["c_42"] in {3, 4}
    assert len(stored) in range(10, 15)
    planted = [case for case in stored if "close the account" in json.dumps(case)]
    assert [case["customerId"] for case in planted] == ["c_42"]


# --- billing ----------------------------------------------------------------------------------------------

BILLING = ("app.demo.billing_server", "--secret-header", "X-Billing-Key", "--secret-env", "DEMO_BILLING_KEY")
SECRET = {"DEMO_BILLING_KEY": "s3cret"}
REFUND: JsonObject = {"caseId": "case_1041", "customerId": "c_42", "amountCents": 2400}


async def bill(
    upstream: ToolUpstream,
    server: str,
    path: str,
    arguments: JsonObject,
    *,
    method: str = "POST",
    key: str = "s3cret",
) -> UpstreamAnswer:
    binding = HttpBinding(method=method, path=path)
    return await upstream.call(a_request(Transport.HTTP, server, "bill", arguments, {"X-Billing-Key": key}, binding))


async def test_the_billing_server_keeps_a_ledger_of_what_it_did(upstream: ToolUpstream) -> None:
    async with running(*BILLING, env=SECRET) as server:
        refund = await bill(upstream, server, "/refunds", REFUND)
        closed = await bill(upstream, server, "/accounts/{customerId}/close", {"customerId": "c_43"})
        ledger = await bill(upstream, server, "/ledger", {}, method="GET")
    assert refund.result == {"refundId": "rf_1", "amountCents": 2400, "costCents": 12}
    assert closed.result == {"customerId": "c_43", "status": "closed"}
    assert ledger.result == {"refunds": [{"refundId": "rf_1", **REFUND}], "closedAccounts": ["c_43"]}


async def test_the_billing_server_does_nothing_without_its_key_or_a_valid_wish(upstream: ToolUpstream) -> None:
    wishes: list[JsonObject] = [
        {},
        {**REFUND, "amountCents": 0},
        {**REFUND, "amountCents": True},
        {**REFUND, "amountCents": "2400"},
        {**REFUND, "caseId": 1},
    ]
    async with running(*BILLING, env=SECRET) as server:
        without = await bill(upstream, server, "/refunds", REFUND, key="wrong")
        answers = [await bill(upstream, server, "/refunds", wish) for wish in wishes]
        ledger = await bill(upstream, server, "/ledger", {}, method="GET")
    assert (without.outcome, without.detail) == (Outcome.TOOL_ERROR, "the tool answered HTTP 401")
    assert {answer.detail for answer in answers} == {"the tool answered HTTP 400"}
    assert ledger.result == {"refunds": [], "closedAccounts": []}


async def test_the_billing_server_does_not_start_without_the_key_that_it_is_to_ask_for() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", *BILLING, stderr=PIPE, stdout=PIPE)
    output, complaint = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, output) == (1, b"")
    assert complaint == b"billing_server: the environment variable DEMO_BILLING_KEY is not set\n"
