"""A running Subgrant whose one agent may call every tool of the suite's tool server, with any arguments."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.api_client import Api, Json, made
from tests.conformance.bearer_shim import BearerShim
from tests.conformance.serving import serving
from tests.conformance.tool_server import TOOLS, tool_server
from tests.server_process import ServerProcess, sqlite_url

TENANT = "acme"
OPEN: Json = {"*": {"any": True}}


@pytest.fixture(scope="module")
def shim() -> Iterator[BearerShim]:
    with BearerShim() as started:
        yield started


@pytest.fixture(scope="module")
def subgrant(tmp_path_factory: pytest.TempPathFactory, shim: BearerShim) -> Iterator[ServerProcess]:
    """The shim stands before it as a reverse proxy would, and so gives it its address."""
    env = {"SUBGRANT_ISSUER": shim.url}
    with ServerProcess(sqlite_url(tmp_path_factory.mktemp("conformance")), env=env) as server:
        shim.target = server.port
        yield server


@pytest.fixture(scope="module")
async def api(subgrant: ServerProcess) -> AsyncIterator[Api]:
    async with Api(subgrant.url) as client:
        await client.tenant(TENANT)
        yield client


@pytest.fixture(scope="module")
def suite_tools() -> Iterator[str]:
    with serving(tool_server()) as url:
        yield f"{url}/mcp"


@pytest.fixture(scope="module")
async def gateway(shim: BearerShim, api: Api, suite_tools: str) -> str:
    """Where the suite finds the tools: the gateway's endpoint, behind the token that the suite cannot send."""
    planner = await api.client(TENANT, "planner")
    audience = await api.tool_server(TENANT, "suite", suite_tools, transport="mcp", timeoutSeconds=5)
    await api.discover(TENANT, "suite")
    wish: Json = {
        "audience": audience,
        "allowedTools": [*TOOLS],
        "resourceConstraints": dict.fromkeys(TOOLS, OPEN),
        "maxToolCalls": 1000,
    }
    shim.token = await api.access_token(planner, made(await api.mint(planner, **wish))["grant"])
    return audience
