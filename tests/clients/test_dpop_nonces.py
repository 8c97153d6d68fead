"""The journeys where every proof needs a nonce of the server's (RFC 9449 §8), which libraries learn by themselves."""

from collections.abc import Iterator

import pytest
from requests_oauth2client import ClientSecretBasic

from tests.clients.conftest import Desk, Key
from tests.clients.journey import check_exchange
from tests.clients.node import run_script
from tests.clients.test_oauth_in_javascript import LIBRARIES
from tests.clients.test_oauth_in_python import requests_journey
from tests.server_process import ServerProcess, sqlite_url

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def subgrant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Two workers, since a nonce of the one is good in the other."""
    env = {"SUBGRANT_DPOP_NONCES": "required"}
    with ServerProcess(sqlite_url(tmp_path_factory.mktemp("nonces")), workers=2, env=env) as server:
        yield server


@pytest.mark.parametrize("library", LIBRARIES)
async def test_javascript_learns_the_nonce(desk: Desk, library: str) -> None:
    grant = await desk.grant()
    secret = desk.planner.client_secret
    told = run_script(library, **desk.journey(desk.planner.client_id, grant, clientSecret=secret, dpop="ES256"))
    await check_exchange(desk, told, desk.planner.client_id, grant)
    assert told["before"]["token_type"] == "DPoP"


@pytest.mark.parametrize("library", LIBRARIES)
async def test_javascript_learns_it_with_an_assertion_that_is_good_once(desk: Desk, library: str) -> None:
    key = Key.generate("ES256")
    client_id = await desk.keyed_client(f"nonce-{library}", key)
    grant = await desk.grant(holder=client_id)
    told = run_script(library, **desk.journey(client_id, grant, key=key.jwk, dpop="ES256"))
    await check_exchange(desk, told, client_id, grant)


async def test_python_learns_the_nonce(desk: Desk) -> None:
    grant = await desk.grant()
    journey = desk.journey(desk.planner.client_id, grant)
    told = requests_journey(journey, dpop=True, auth=ClientSecretBasic(*desk.planner))
    await check_exchange(desk, told, desk.planner.client_id, grant)
    assert told["before"]["token_type"] == "DPoP"
