"""The official MCP client and server, of either era each: what is heard through the endpoint, and calls given up."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.api_client import Api, Credentials, Json, made
from tests.mcp_tool_server import ERAS, McpToolServer, mcp_tool_server
from tests.server_process import ServerProcess, sqlite_url

pytestmark = pytest.mark.anyio

MODES: Final = {"2026-07-28": "2026-07-28", "legacy": "2025-11-25"}
TOOLS: Final = ("steps", "slow")


@dataclass(frozen=True)
class Desk:
    api: Api
    tools: McpToolServer
    tenant: str
    token: str
    auditor: Credentials

    @asynccontextmanager
    async def connected(self, mode: str) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx2.AsyncClient(headers=headers, trust_env=False) as http:
            transport = streamable_http_client(f"{self.api.url}/mcp/desk", http_client=http)
            async with Client(transport, mode=mode) as client:
                assert client.session.protocol_version == MODES[mode]
                yield client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(sqlite_url(Path(tmp_path_factory.mktemp("progress")))) as running:
        yield running


@pytest.fixture(scope="module", params=ERAS)
def tools(request: pytest.FixtureRequest) -> Iterator[McpToolServer]:
    with mcp_tool_server(request.param) as running:
        yield running


@pytest.fixture
async def desk(server: ServerProcess, tools: McpToolServer) -> AsyncIterator[Desk]:
    tenant = f"t{secrets.token_hex(6)}"
    async with Api(server.url) as api:
        await api.tenant(tenant)
        planner = await api.client(tenant, f"{tenant}-planner")
        scopes = ("audit:read", "grants:read")
        auditor = await api.client(tenant, f"{tenant}-auditor", kind="auditor", scopes=scopes, limits={})
        audience = await api.tool_server(tenant, "desk", tools.endpoint, transport="mcp", timeoutSeconds=60)
        await api.discover(tenant, "desk")
        rules = {tool: {"*": {"any": True}} for tool in TOOLS}
        wish = {"audience": audience, "allowedTools": [*TOOLS], "resourceConstraints": rules, "maxToolCalls": 5}
        grant = made(await api.mint(planner, **wish))
        yield Desk(api, tools, tenant, await api.access_token(planner, grant["grant"]), auditor)


@pytest.mark.parametrize("mode", MODES)
async def test_progress_comes_through(desk: Desk, mode: str) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with desk.connected(mode) as client:
        result = await client.call_tool("steps", {}, progress_callback=hear)
    assert result.structured_content == {"ok": "done"}
    assert heard == [(1, 3, "one"), (2, 3, "two")]


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_that_the_client_gives_up_is_given_up_by_the_tool(desk: Desk, mode: str) -> None:
    begun = anyio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    async with desk.connected(mode) as client, anyio.create_task_group() as group:

        async def call() -> None:
            await client.call_tool("slow", {"who": desk.tenant}, progress_callback=hear)

        group.start_soon(call)
        await begun.wait()
        group.cancel_scope.cancel()
    await asyncio.to_thread(desk.tools.wait_for, lambda: desk.tenant in desk.tools.given_up)
    records: list[Json] = []
    async with asyncio.timeout(20):
        while not records:
            records = await desk.api.audit(desk.auditor, type="tool.outcome_unknown")
    assert [record["cancelled"] for record in records] == [True]
