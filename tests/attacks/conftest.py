"""The stage on which attacks are played: real servers on both stores, and a tenant of its own for each test."""

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.api_client import Api
from tests.attacks.stage import Stage, set_stage
from tests.postgres import PostgresServer
from tests.server_process import ServerProcess, sqlite_url
from tests.tool_server import ToolServer


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        yield sqlite_url(Path(tmp_path_factory.mktemp("attack")))
        return
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    name = f"attack_{secrets.token_hex(8)}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


@pytest.fixture(scope="module")
def server(database_url: str) -> Iterator[ServerProcess]:
    """One server for a file of attacks, with short waits where the tests would wait."""
    env = {"SUBGRANT_SETTLE_GRACE_SECONDS": "1", "SUBGRANT_RECONCILE_EVERY_SECONDS": "0.2"}
    with ServerProcess(database_url, env=env) as running:
        yield running


@pytest.fixture(scope="module")
def tool_server() -> Iterator[ToolServer]:
    with ToolServer() as running:
        yield running


@pytest.fixture
async def stage(server: ServerProcess, tool_server: ToolServer) -> AsyncIterator[Stage]:
    """A tenant with an orchestrator, an auditor and two tool servers that nobody else uses."""
    tool_server.hold()
    async with Api(server.url) as api:
        yield await set_stage(api, tool_server)
    tool_server.release()
