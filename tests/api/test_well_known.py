"""What clients discover (RFC 8414, RFC 9728): found wherever they look, and never with a URL from their own request."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from app.api import oauth, well_known
from app.core.registry import AuthMethod, Scope
from tests.api.served import served
from tests.usecases.worlds import a_scene

pytestmark = pytest.mark.anyio

PLAIN, WITH_PATH = "https://subgrant.example", "https://proxy.example/agents/subgrant"
SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
RESOURCE = "/.well-known/oauth-protected-resource"
INSERTED = "/agents/subgrant"


@asynccontextmanager
async def at(issuer: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the server of this issuer, by another name than the issuer's."""
    scene = await a_scene(issuer=issuer)
    async with served(scene.world, well_known, oauth, base_url="http://127.0.0.1:1") as client:
        yield client


async def document(issuer: str, path: str, **headers: str) -> dict[str, Any]:
    async with at(issuer) as client:
        response = await client.get(path, headers=headers)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    found: dict[str, Any] = response.json()
    return found


async def status(issuer: str, path: str) -> int:
    async with at(issuer) as client:
        return (await client.get(path)).status_code


# --- the authorization server -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", [SERVER, OPENID])
async def test_the_metadata_is_where_clients_look_first(path: str) -> None:
    assert (await document(PLAIN, path))["issuer"] == PLAIN


@pytest.mark.parametrize("path", [f"{SERVER}{INSERTED}", f"{OPENID}{INSERTED}", f"{INSERTED}{OPENID}"])
async def test_an_issuer_with_a_path_is_found_by_insertion_and_as_openid_clients_append_it(path: str) -> None:
    found = await document(WITH_PATH, path)
    assert found["issuer"] == WITH_PATH
    assert found["token_endpoint"] == f"{WITH_PATH}/oauth/token"


@pytest.mark.parametrize("path", [f"{SERVER}/another", f"{OPENID}/agents", f"/agents{OPENID}", f"{SERVER}{INSERTED}/x"])
async def test_another_path_has_no_authorization_server(path: str) -> None:
    assert await status(WITH_PATH, path) == 404
    assert await status(PLAIN, path) == 404


async def test_every_url_of_the_metadata_is_the_issuers_whatever_the_request_names() -> None:
    spoofed = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "ftp"}
    found = await document(PLAIN, SERVER, **spoofed)
    urls = [value for name, value in found.items() if name.endswith(("_endpoint", "_uri")) or name == "issuer"]
    assert len(urls) == 6
    assert all(url.startswith(PLAIN) for url in urls)
    assert "evil" not in str(found)


async def test_the_metadata_says_what_the_official_mcp_clients_insist_on() -> None:
    found = await document(PLAIN, SERVER)
    assert found["authorization_endpoint"] == f"{PLAIN}/oauth/authorize"
    assert found["response_types_supported"] == ["code"]
    assert found["code_challenge_methods_supported"] == ["S256"]
    assert found["authorization_response_iss_parameter_supported"] is True


async def test_nothing_in_the_metadata_is_empty_and_nothing_is_proven_by_nothing() -> None:
    found = await document(PLAIN, SERVER)
    lists = {name: value for name, value in found.items() if isinstance(value, list)}
    assert all(lists.values())
    assert all("none" not in value for value in lists.values())


async def test_the_metadata_names_every_way_in_which_a_client_proves_itself() -> None:
    found = await document(PLAIN, SERVER)
    methods = {method.value for method in AuthMethod} - {"none"}
    for endpoint in ("token", "introspection", "revocation"):
        assert {*found[f"{endpoint}_endpoint_auth_methods_supported"]} == methods
        assert "EdDSA" in found[f"{endpoint}_endpoint_auth_signing_alg_values_supported"]
    assert {*found["scopes_supported"]} == {scope.value for scope in Scope}
    assert found["authorization_details_types_supported"] == ["delegation"]


# --- protected resources ----------------------------------------------------------------------------------

PLACES = [
    (PLAIN, RESOURCE, PLAIN),
    (PLAIN, f"{RESOURCE}/mcp/support", f"{PLAIN}/mcp/support"),
    (WITH_PATH, f"{RESOURCE}{INSERTED}", WITH_PATH),
    (WITH_PATH, f"{RESOURCE}{INSERTED}/mcp/support", f"{WITH_PATH}/mcp/support"),
]


@pytest.mark.parametrize("issuer, path, resource", PLACES)
async def test_a_resource_is_described_at_its_inserted_path_to_the_letter(
    issuer: str, path: str, resource: str
) -> None:
    found = await document(issuer, path)
    assert found["resource"] == resource
    assert found["authorization_servers"] == [issuer]
    assert found["bearer_methods_supported"] == ["header"]


async def test_the_url_that_challenges_name_is_where_the_resource_is_described() -> None:
    for issuer in (PLAIN, WITH_PATH):
        url = well_known.tool_server_metadata_url(issuer, "support")  # type: ignore[arg-type]  # a name, as any string
        assert (await document(issuer, httpx.URL(url).path))["resource"] == f"{issuer}/mcp/support"


async def test_a_tool_server_that_does_not_exist_is_described_alike() -> None:
    real, unreal = [await document(PLAIN, f"{RESOURCE}/mcp/{name}") for name in ("support", "no-such")]
    assert str(unreal).replace("no-such", "support") == str(real)


@pytest.mark.parametrize(
    "path", [f"{RESOURCE}/mcp/a%2Fb", f"{RESOURCE}/mcp/", f"{RESOURCE}/other", f"{RESOURCE}/mcp/support/x"]
)
async def test_what_can_be_no_resource_is_not_described(path: str) -> None:
    assert await status(PLAIN, path) == 404


@pytest.mark.parametrize(
    "path", [f"{RESOURCE}/agents/subgrantx/mcp/support", f"{RESOURCE}/agents", f"{RESOURCE}{INSERTED}/mcpx/support"]
)
async def test_what_lies_beside_the_issuers_path_is_not_described(path: str) -> None:
    assert await status(WITH_PATH, path) == 404
