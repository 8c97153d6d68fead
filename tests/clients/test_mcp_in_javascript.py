"""The MCP SDKs for JavaScript, both generations, and the inspector's command line: unmodified, and told an address."""

import json
from typing import Final

import pytest

from tests.api_client import Json
from tests.clients.conftest import REDIRECT_URI, TENANT, Desk, Key
from tests.clients.journey import CALLS, check_tools
from tests.clients.node import MODULES, run_node, run_script

pytestmark = pytest.mark.anyio

SDKS: Final = ["mcp-client.mjs", "mcp-sdk.mjs"]
INSPECTOR: Final = MODULES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"


@pytest.mark.parametrize("sdk", SDKS)
async def test_with_a_token_it_lists_and_calls_what_the_grant_names(desk: Desk, sdk: str) -> None:
    grant = await desk.grant()
    token = await desk.api.access_token(desk.planner, grant["grant"])
    told = run_script(sdk, resource=desk.support, token=token, calls=CALLS)
    await check_tools(desk, told, grant)


@pytest.mark.parametrize("sdk", SDKS)
async def test_without_a_token_that_proves_anything_it_does_not_connect(desk: Desk, sdk: str) -> None:
    told = run_script(sdk, resource=desk.support, token="garbage", calls=[])
    assert told.keys() == {"refused"}
    assert "401" in json.dumps(told["refused"]) or "token_invalid" in told["refused"]["message"]


def inspect(desk: Desk, token: str, *arguments: str) -> Json:
    """What the inspector prints of one method's result."""
    where = ["--cli", desk.support, "--transport", "http", "--header", f"Authorization: Bearer {token}"]
    ran = run_node(INSPECTOR, *where, *arguments)
    assert ran.returncode in (0, 5), ran.stderr
    document: Json = json.loads(ran.stdout)
    return document


async def test_the_inspector_lists_and_calls(desk: Desk) -> None:
    grant = await desk.grant()
    token = await desk.api.access_token(desk.planner, grant["grant"])
    (tool,) = inspect(desk, token, "--method", "tools/list")["tools"]
    assert tool["inputSchema"]["properties"]["customerId"]["const"] == "c_42"
    call = ["--method", "tools/call", "--tool-name", "search", "--tool-arg"]
    found = inspect(desk, token, *call, "customerId=c_42", "limit=2")
    assert json.loads(found["content"][0]["text"])["arguments"] == {"customerId": "c_42", "limit": 2}
    denied = inspect(desk, token, *call, "customerId=c_43")
    assert denied["isError"] is True
    assert await desk.decisions(grant) == [("allow", None), ("deny", "resource_out_of_scope")]


@pytest.mark.parametrize("sdk", SDKS)
async def test_it_finds_its_way_from_a_refusal_to_a_token_with_its_secret(desk: Desk, sdk: str) -> None:
    """RFC 9728 from the challenge, RFC 8414 from there, `client_credentials` for the tool server (RFC 8707)."""
    client = await desk.api.client(TENANT, f"secret-{sdk}")
    standing = await desk.standing_grant(client.client_id)
    who = {"issuer": desk.api.url, "clientId": client.client_id, "clientSecret": client.client_secret}
    told = run_script(sdk, resource=desk.support, calls=CALLS, **who)
    assert told["scope"] == "tools:call"
    await check_tools(desk, told, standing)


@pytest.mark.parametrize("sdk", SDKS)
async def test_it_finds_its_way_from_a_refusal_to_a_token_with_its_own_key(desk: Desk, sdk: str) -> None:
    key = Key.generate("ES256")
    client_id = await desk.keyed_client(f"key-{sdk}", key)
    standing = await desk.standing_grant(client_id)
    who = {"issuer": desk.api.url, "clientId": client_id, "key": key.jwk, "algorithm": "ES256"}
    await check_tools(desk, run_script(sdk, resource=desk.support, calls=CALLS, **who), standing)


@pytest.mark.parametrize("sdk", SDKS)
async def test_a_client_that_may_do_nothing_there_gets_no_token(desk: Desk, sdk: str) -> None:
    client = await desk.api.client(TENANT, f"nothing-{sdk}")
    who = {"issuer": desk.api.url, "clientId": client.client_id, "clientSecret": client.client_secret}
    told = run_script(sdk, resource=desk.support, calls=CALLS, **who)
    assert told.keys() == {"refused"}
    assert "invalid_target" in json.dumps(told["refused"]) or "standing" in told["refused"]["message"]


@pytest.mark.parametrize("sdk", SDKS)
async def test_it_finds_its_way_from_a_refusal_to_a_token_that_a_person_allows(desk: Desk, sdk: str) -> None:
    app, person = await desk.app(f"app-{sdk}"), await desk.person(f"alice-{sdk}")
    standing = await desk.standing_grant(person.client_id)
    who = {"clientId": app, "redirectUri": REDIRECT_URI, "person": {"id": person.client_id, "secret": person.secret}}
    await check_tools(desk, run_script(sdk, resource=desk.support, calls=CALLS, **who), standing)


async def test_the_newest_gets_a_token_for_what_a_company_s_identity_provider_says(desk: Desk) -> None:
    """What MCP calls enterprise-managed authorization: an ID-JAG as a grant (RFC 7523 §2.1). The older SDK has none."""
    client = await desk.api.client(TENANT, "enterprise-mcp-client")
    standing = await desk.standing_grant(client.client_id)
    assertion = await desk.identity_assertion(client.client_id, "mcp-javascript")
    who = {"issuer": desk.api.url, "clientId": client.client_id, "clientSecret": client.client_secret}
    told = run_script("mcp-client.mjs", resource=desk.support, calls=CALLS, assertion=assertion, **who)
    await check_tools(desk, told, standing)
