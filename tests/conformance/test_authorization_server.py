"""The conformance suite's scenarios for authorization servers: metadata, and a code that a person allows."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.api_client import Api, Json, made
from tests.clients.browser import Person, allow
from tests.conformance.suite import authorization_suite, report_of
from tests.server_process import ServerProcess, sqlite_url

pytestmark = pytest.mark.anyio

TENANT: Final = "acme"
LOOPBACK: Final = "http://127.0.0.1/callback"
"""Any port will do (RFC 8252 §7.3)."""


@pytest.fixture(scope="module")
def subgrant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """With no shim before it: here the client authenticates itself."""
    with ServerProcess(sqlite_url(tmp_path_factory.mktemp("authorization"))) as server:
        yield server


@pytest.fixture
async def person(api: Api) -> Person:
    app: Json = {
        "clientId": "suite",
        "tenantId": TENANT,
        "kind": "app",
        "authMethod": "none",
        "scopes": ["grants:read"],
    }
    made(await api.admin_request("POST", "/clients", json={**app, "redirectUris": [LOOPBACK]}))
    credentials = await api.client(TENANT, "alice", kind="person", scopes=["grants:read"])
    return Person(*credentials)


async def test_it_finds_the_metadata_and_gets_a_token_for_a_code(
    subgrant: ServerProcess, person: Person, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    arguments = ["--url", subgrant.url, "--client-id", "suite", "--port", str(port)]
    with authorization_suite(*arguments, folder=tmp_path) as address:
        where = await allow(address, person)
        assert where.startswith(f"http://127.0.0.1:{port}/callback?code=")
        async with httpx.AsyncClient(trust_env=False) as browser:
            assert (await browser.get(where)).is_success
    report = report_of(tmp_path, "authorization-server")
    print(f"authorization server: {report}")  # noqa: T201 - read with `pytest -rP`
    assert {check.id: check.status for check in report.checks} == {
        "authorization-server-metadata": "SUCCESS",
        # A recommendation: here administrators register clients, and a client's id is no address to fetch.
        "authorization-server-metadata-cimd": "WARNING",
        "authorization-code-grant": "SUCCESS",
    }
