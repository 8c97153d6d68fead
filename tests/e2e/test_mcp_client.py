"""The official MCP client, unmodified, through the endpoint: to an MCP tool server and to one of plain HTTP.

It negotiates as it likes, checks results against the schemas that it was shown, and knows nothing of grants.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import ProtectedResourceMetadata
from mcp_types import CallToolResult, TextContent

from app.demo.processes import BILLING_HEADER, SUPPORT_AUDIENCE, Servers, running
from tests.api_client import Api, Credentials, Json, made
from tests.mcp_client import DECISION, IDEMPOTENCY_KEY

pytestmark = pytest.mark.anyio

TENANT: Final = "acme"
MODES: Final = {"auto": "2026-07-28", "legacy": "2025-11-25", "2026-07-28": "2026-07-28"}
"""How the client is told to negotiate, and what it and Subgrant agree on."""

SEARCH_RULE: Final[Json] = {
    "tenant": {"bind": "tenantId"},
    "customerId": {"eq": "c_42"},
    "query": {"str": {"maxLength": 50}, "optional": True},
    "limit": {"int": {"min": 1, "max": 5}, "optional": True},
}
REFUND_RULE: Final[Json] = {
    "caseId": {"prefix": "case_"},
    "customerId": {"eq": "c_42"},
    "amountCents": {"int": {"min": 1, "max": 500}},
}
TEXT: Final[Json] = {"type": "string"}
REFUND: Final[Json] = {
    "type": "object",
    "properties": {"caseId": TEXT, "customerId": TEXT, "amountCents": {"type": "integer"}},
    "required": ["caseId", "customerId", "amountCents"],
}
REFUNDED: Final[Json] = {
    "type": "object",
    "properties": {"refundId": TEXT, "amountCents": {"type": "integer"}},
    "required": ["refundId"],
}


@dataclass(frozen=True)
class Desk:
    """Two tool servers behind Subgrant, and an orchestrator that may have grants for them."""

    api: Api
    planner: Credentials

    async def token(self, server: str, tool: str, rule: Json, **members: object) -> str:
        grant = made(
            await self.api.mint(
                self.planner,
                audience=f"{self.api.url}/mcp/{server}",
                allowedTools=[tool],
                resourceConstraints={tool: rule},
                maxToolCalls=5,
                maxSpendCents=100,
                **members,
            )
        )
        return await self.api.access_token(self.planner, grant["grant"])

    @asynccontextmanager
    async def connected(self, server: str, token: str, mode: str) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, trust_env=False) as http:
            transport = streamable_http_client(f"{self.api.url}/mcp/{server}", http_client=http)
            async with Client(transport, mode=mode) as client:
                yield client


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with running() as started:
        yield started


@pytest.fixture(scope="module")
async def desk(servers: Servers) -> AsyncIterator[Desk]:
    async with Api(servers.subgrant.url, Credentials(servers.admin_id, servers.admin_secret)) as api:
        await api.tenant(TENANT)
        await api.tool_server(
            TENANT,
            "support",
            f"{servers.support.url}/mcp",
            transport="mcp",
            upstreamAudience=SUPPORT_AUDIENCE,
            credential={"type": "jwt"},
        )
        assert "case_search" in (await api.discover(TENANT, "support"))["added"]
        credential = {"type": "header", "header": BILLING_HEADER, "value": servers.billing_key}
        await api.tool_server(TENANT, "billing", servers.billing.url, credential=credential)
        http = {"method": "POST", "path": "/refunds"}
        await api.tool(TENANT, "billing", "refund", schema=REFUND, outputSchema=REFUNDED, http=http, effect="write")
        yield Desk(api, await api.client(TENANT, "planner"))


def text(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def decision(result: CallToolResult) -> Json:
    assert result.meta is not None
    found: Json = result.meta[DECISION]
    return found


@pytest.mark.parametrize("mode", MODES)
async def test_it_lists_and_calls_the_tools_of_an_mcp_server(desk: Desk, mode: str) -> None:
    token = await desk.token("support", "case_search", SEARCH_RULE)
    async with desk.connected("support", token, mode) as client:
        assert client.session.protocol_version == MODES[mode]
        (tool,) = (await client.list_tools()).tools
        assert tool.name == "case_search"
        assert "tenant" not in tool.input_schema["properties"], "what the grant binds is not the model's to fill in"
        assert tool.input_schema["properties"]["customerId"]["const"] == "c_42"
        assert tool.output_schema is not None
        found = await client.call_tool("case_search", {"customerId": "c_42", "limit": 2})
        assert found.is_error is False
        assert found.structured_content is not None
        assert {case["customerId"] for case in found.structured_content["cases"]} == {"c_42"}
        assert decision(found)["decision"] == "allow"


@pytest.mark.parametrize("mode", MODES)
async def test_it_calls_a_plain_http_tool_once_for_a_key(desk: Desk, mode: str) -> None:
    token = await desk.token("billing", "refund", REFUND_RULE)
    arguments = {"caseId": "case_1", "customerId": "c_42", "amountCents": 100}
    meta: Json = {IDEMPOTENCY_KEY: "k1"}
    async with desk.connected("billing", token, mode) as client:
        answers = [
            await client.call_tool("refund", arguments, meta=meta)  # type: ignore[arg-type]  # it names MCP's own alone
            for _ in range(2)
        ]
    for answer in answers:
        assert answer.is_error is False, text(answer)
        assert answer.structured_content is not None
    assert answers[0].structured_content == answers[1].structured_content
    assert len({decision(answer)["callId"] for answer in answers}) == 1


@pytest.mark.parametrize("mode", MODES)
async def test_a_denial_is_a_result_that_it_reads_on_with(desk: Desk, mode: str) -> None:
    token = await desk.token("support", "case_search", SEARCH_RULE)
    async with desk.connected("support", token, mode) as client:
        await client.list_tools()
        denied = await client.call_tool("case_search", {"customerId": "c_43"})
        assert denied.is_error is True
        assert "resource_out_of_scope" in text(denied)
        assert (decision(denied)["decision"], decision(denied)["reason"]) == ("deny", "resource_out_of_scope")
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("send_message", {"to": "c_42", "text": "hello"})
        assert unknown.value.error.code == -32602
        allowed = await client.call_tool("case_search", {"customerId": "c_42"})
        assert allowed.is_error is False


@pytest.mark.parametrize("mode", MODES)
async def test_what_a_grant_withholds_is_missing_from_schema_and_result_alike(desk: Desk, mode: str) -> None:
    """The client itself checks the one against the other."""
    fields = {"case_search": ["$.cases[*].caseId", "$.cases[*].status"]}
    token = await desk.token("support", "case_search", SEARCH_RULE, resultProjection=fields)
    async with desk.connected("support", token, mode) as client:
        await client.list_tools()
        found = await client.call_tool("case_search", {"customerId": "c_42"})
    assert found.structured_content is not None
    assert {name for case in found.structured_content["cases"] for name in case} == {"caseId", "status"}
    assert "email" not in text(found)


@pytest.mark.parametrize("mode", MODES)
async def test_a_token_that_proves_nothing_opens_no_connection(desk: Desk, mode: str) -> None:
    with pytest.raises((MCPError, ExceptionGroup)) as refused:
        async with desk.connected("support", "garbage", mode) as client:
            await client.list_tools()
    assert "token_invalid" in repr(refused.value)


async def test_the_challenge_leads_to_metadata_that_the_client_understands(desk: Desk) -> None:
    response = await desk.api.http.post("/mcp/support", json={})
    challenge = response.headers["www-authenticate"]
    url = challenge.partition('resource_metadata="')[2].partition('"')[0]
    metadata = ProtectedResourceMetadata.model_validate((await desk.api.http.get(url)).json())
    assert str(metadata.resource) == f"{desk.api.url}/mcp/support"
    assert [str(issuer).rstrip("/") for issuer in metadata.authorization_servers] == [desk.api.url]
    assert metadata.scopes_supported == ["tools:call"]
