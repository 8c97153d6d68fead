"""The MCP SDKs for Python: the last of the first generation, as a program of its own, and the newest."""

import json
import subprocess
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from tests.api_client import Json
from tests.clients.browser import allow
from tests.clients.conftest import REDIRECT_URI, TENANT, Desk, Key
from tests.clients.journey import CALLS, check_tools
from tests.server_process import ROOT, plain_environment

pytestmark = pytest.mark.anyio

APART: Final = ROOT / ".venv" / "apart" / "bin" / "python"
FIRST_GENERATION: Final = Path(__file__).parent / "mcp1.py"


def run_first_generation(**given: object) -> Json:
    assert APART.exists(), "the SDK is not there: run `make .venv/apart.stamp`"
    ran = subprocess.run(
        [APART, FIRST_GENERATION],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        env=plain_environment(),
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    document: Json = json.loads(ran.stdout)
    return document


async def test_the_first_generation_lists_and_calls_what_the_grant_names(desk: Desk) -> None:
    grant = await desk.grant()
    token = await desk.api.access_token(desk.planner, grant["grant"])
    told = run_first_generation(resource=desk.support, token=token, calls=CALLS)
    assert told["protocol"] == "2025-11-25"
    await check_tools(desk, told, grant)


async def test_the_first_generation_finds_its_way_to_a_token_with_its_secret(desk: Desk) -> None:
    client = await desk.api.client(TENANT, "secret-mcp1")
    standing = await desk.standing_grant(client.client_id)
    who = {"issuer": desk.api.url, "clientId": client.client_id, "clientSecret": client.client_secret}
    told = run_first_generation(resource=desk.support, calls=CALLS, **who)
    assert told["scope"] == "tools:call"
    await check_tools(desk, told, standing)


async def test_the_first_generation_finds_its_way_to_a_token_with_its_own_key(desk: Desk) -> None:
    key = Key.generate("ES256")
    client_id = await desk.keyed_client("key-mcp1", key)
    standing = await desk.standing_grant(client_id)
    who = {"issuer": desk.api.url, "clientId": client_id, "pem": key.pem, "algorithm": "ES256"}
    await check_tools(desk, run_first_generation(resource=desk.support, calls=CALLS, **who), standing)


class Storage:
    """Where a provider of the newest SDK keeps its token, and finds the client that it is: here."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self.tokens: OAuthToken | None = None
        self.client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError("nobody is registered dynamically")


async def newest_journey(desk: Desk, auth: httpx2.Auth, mode: str) -> Json:
    """What the JavaScript SDKs' journey tells, told by the newest SDK for Python."""
    async with (
        httpx2.AsyncClient(auth=auth, trust_env=False) as http,
        Client(streamable_http_client(desk.support, http_client=http), mode=mode) as client,
    ):
        tools = (await client.list_tools()).tools
        answers = [await answer(client, call) for call in CALLS]
    return {"tools": [tool.model_dump(by_alias=True, exclude_none=True) for tool in tools], "answers": answers}


async def answer(client: Client, call: Json) -> Json:
    try:
        result = await client.call_tool(call["name"], call["arguments"])
    except MCPError as error:
        return {"error": {"code": error.code, "message": error.message}}
    return result.model_dump(by_alias=True, exclude_none=True)


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy", "auto"])
async def test_the_newest_finds_its_way_to_a_token_with_its_secret(desk: Desk, mode: str) -> None:
    client = await desk.api.client(TENANT, f"secret-mcp-{mode}")
    standing = await desk.standing_grant(client.client_id)
    storage = Storage()
    provider = ClientCredentialsOAuthProvider(
        desk.support, storage, client.client_id, client.client_secret, issuer=desk.api.url
    )
    await check_tools(desk, await newest_journey(desk, provider, mode), standing)
    assert storage.tokens is not None
    assert storage.tokens.scope == "tools:call"


async def test_the_newest_finds_its_way_to_a_token_with_its_own_key(desk: Desk) -> None:
    key = Key.generate("ES256")
    client_id = await desk.keyed_client("key-mcp", key)
    standing = await desk.standing_grant(client_id)
    signed = SignedJWTParameters(
        issuer=client_id, subject=client_id, signing_key=key.pem, signing_algorithm=key.algorithm
    )
    assertions = signed.create_assertion_provider()
    provider = PrivateKeyJWTOAuthProvider(desk.support, Storage(), client_id, assertions, issuer=desk.api.url)
    await check_tools(desk, await newest_journey(desk, provider, "auto"), standing)


async def test_the_newest_finds_its_way_to_a_token_that_a_person_allows(desk: Desk) -> None:
    app, person = await desk.app("app-mcp"), await desk.person("alice-mcp")
    standing = await desk.standing_grant(person.client_id)
    answers: list[dict[str, str]] = []

    async def redirect(url: str) -> None:
        answers.append(dict(parse_qsl(urlsplit(await allow(url, person)).query)))

    async def callback() -> AuthorizationCodeResult:
        answer = answers.pop()
        return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer["iss"])

    uris: Json = {"redirect_uris": [REDIRECT_URI], "token_endpoint_auth_method": "none"}
    storage = Storage(OAuthClientInformationFull(client_id=app, **uris))
    provider = OAuthClientProvider(desk.support, OAuthClientMetadata(**uris), storage, redirect, callback)
    await check_tools(desk, await newest_journey(desk, provider, "auto"), standing)


async def test_the_newest_gets_a_token_for_what_a_company_s_identity_provider_says(desk: Desk) -> None:
    client = await desk.api.client(TENANT, "enterprise-mcp", authMethod="client_secret_post")
    standing = await desk.standing_grant(client.client_id)
    assertion = await desk.identity_assertion(client.client_id, "mcp-python")

    async def from_the_provider(audience: str, resource: str) -> str:
        assert (audience, resource) == (desk.api.url, desk.support)
        return assertion

    provider = IdentityAssertionOAuthProvider(
        desk.support, Storage(), *client, issuer=desk.api.url, assertion_provider=from_the_provider
    )
    await check_tools(desk, await newest_journey(desk, provider, "auto"), standing)
