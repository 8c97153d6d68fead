"""The client that the conformance suite tests: Subgrant's own, towards tool servers, driven by an agent's calls.

    python -m tests.conformance.gateway_client SUBGRANT_URL SUITE_SERVER_URL

It registers the suite's server as a tool server, pins what it offers, and calls each tool through the gateway. Run by
the suite, which names the scenario in the environment. A tool call that fails is the suite's to judge, not ours.
"""

import asyncio
import json
import os
import sys
from typing import Final

from tests.api_client import Api, Credentials, Json, made
from tests.mcp_client import McpClient

SCENARIO: Final = "MCP_CONFORMANCE_SCENARIO"
CONTEXT: Final = "MCP_CONFORMANCE_CONTEXT"
REVISION: Final = "MCP_CONFORMANCE_PROTOCOL_VERSION"
OPEN: Final[Json] = {"*": {"any": True}}
ARGUMENTS: Final[dict[str, Json]] = {"add_numbers": {"a": 2, "b": 3}, "valid_tool": {"region": "us-west1"}}


async def drive(subgrant: str, suite_server: str) -> None:
    """Set up a tenant of its own, then list and call."""
    tenant = f"{os.environ[SCENARIO]}-{os.environ[REVISION]}"
    async with Api(subgrant, timeout_seconds=20) as api:
        await api.tenant(tenant)
        audience = await api.tool_server(tenant, "suite", suite_server, transport="mcp", timeoutSeconds=4)
        offered = (await api.discover(tenant, "suite"))["added"]
        agent = McpClient(api.http, await _token(api, tenant, audience, offered), server="suite")
        tools = {tool["name"]: tool for tool in (await agent.tools())["tools"]}
        for name, arguments in _calls(tools):
            await agent.call(name, arguments)


async def _token(api: Api, tenant: str, audience: str, tools: list[str]) -> str:
    planner: Credentials = await api.client(tenant, f"{tenant}-planner")
    rules = dict.fromkeys(tools, OPEN)
    wish: Json = {"audience": audience, "allowedTools": tools, "resourceConstraints": rules, "maxToolCalls": 100}
    return await api.access_token(planner, made(await api.mint(planner, **wish))["grant"])


def _calls(tools: dict[str, Json]) -> list[tuple[str, Json]]:
    """What the scenario says to call; else each tool, the one that echoes schemas with the one that was listed."""
    context: Json = json.loads(os.environ.get(CONTEXT, "{}"))
    if "toolCalls" in context:
        return [(call["name"], call["arguments"]) for call in context["toolCalls"]]
    if "json_schema_echo" in tools:
        return [("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"]["inputSchema"]})]
    return [(name, ARGUMENTS.get(name, {})) for name in tools]


if __name__ == "__main__":
    asyncio.run(drive(*sys.argv[1:]))
