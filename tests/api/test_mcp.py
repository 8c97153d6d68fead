"""The MCP endpoint on the wire, each revision's rules and every look of a result, over a world of fakes."""

import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from app.api import mcp, well_known
from app.api.errors import TABLE, OverMcp
from app.api.mcp.messages import MAX_ID_CHARS
from app.api.mcp.stateless import decoded
from app.api.mcp.tools import MAX_PAGE_BYTES, MAX_PAGE_TOOLS, without_header_keyword
from app.core.grant import GrantId, ToolName
from app.core.reasons import Reason
from app.core.registry import Client, Tool, Transport
from app.core.strict_json import JsonObject, JsonValue
from app.ports import Outcome, UpstreamAnswer
from app.usecases.exchange_token import ExchangeRequest, exchange_token
from app.usecases.failures import CallInFlight, Denied, IdempotencyConflict
from app.usecases.forward_call import Forwarded
from app.usecases.issued_token import DELEGATION_GRANT, Exchanged
from tests.api.served import served
from tests.mcp_client import (
    DECISION,
    HANDSHAKES,
    IDEMPOTENCY_KEY,
    REVISIONS,
    STATELESS,
    McpClient,
    decision_of,
    error_of,
    meta,
    result_of,
    text_of,
)
from tests.samples import ACME, BILLING, SEARCH, SUPPORT
from tests.usecases.worlds import PLANNER, Scene, a_scene

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

ISSUER = "https://subgrant.example"
PAGE = Path(__file__).parents[2] / "docs" / "mcp.md"
METADATA = f"{ISSUER}/.well-known/oauth-protected-resource/mcp/support"
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
HEADER_MISMATCH, UNSUPPORTED = -32020, -32022


@pytest.fixture
async def scene() -> Scene:
    return await a_scene()


@pytest.fixture
async def http(scene: Scene) -> AsyncIterator[httpx.AsyncClient]:
    async with served(scene.world, mcp, well_known) as client:
        yield client


@pytest.fixture
async def token(scene: Scene) -> str:
    return await token_for(scene)


@pytest.fixture
def client(http: httpx.AsyncClient, token: str) -> McpClient:
    return McpClient(http, token)


@pytest.fixture(params=REVISIONS)
def any_client(request: pytest.FixtureRequest, http: httpx.AsyncClient, token: str) -> McpClient:
    return McpClient(http, token, request.param)


@pytest.fixture(params=HANDSHAKES)
def old_client(request: pytest.FixtureRequest, http: httpx.AsyncClient, token: str) -> McpClient:
    return McpClient(http, token, request.param)


async def token_for(scene: Scene, **fields: object) -> str:
    """An access token for a new root grant."""
    made = await scene.grant(**fields)  # type: ignore[arg-type]  # a test's fields are its own to get right
    request = ExchangeRequest(subject_token=made.signed, subject_token_type=DELEGATION_GRANT)
    exchanged = await exchange_token(scene.world, await planner(scene), request)
    assert isinstance(exchanged, Exchanged), exchanged
    return exchanged.token


async def planner(scene: Scene) -> Client:
    async with scene.world.store.read() as tx:
        found = await tx.registry.client(PLANNER)
    assert found is not None
    return found


async def register(scene: Scene, *tools: Tool) -> None:
    async with scene.world.store.write() as tx:
        for tool in tools:
            await tx.registry.put_tool(tool)
        await tx.commit()


async def search_tool(scene: Scene) -> Tool:
    async with scene.world.store.read() as tx:
        found = await tx.registry.tool(ACME, SEARCH.server, SEARCH.tool)
    assert found is not None
    return found


async def speak_mcp(scene: Scene) -> None:
    """Have the tool server be an MCP server."""
    async with scene.world.store.write() as tx:
        server = await tx.registry.server(ACME, SEARCH.server)
        assert server is not None
        await tx.registry.put_server(replace(server, transport=Transport.MCP))
        await tx.commit()


async def add_billing(scene: Scene) -> None:
    """A second tool server."""
    async with scene.world.store.write() as tx:
        server = await tx.registry.server(ACME, SEARCH.server)
        assert server is not None
        await tx.registry.add_server(replace(server, name=BILLING.server, audience=BILLING.uri))
        await tx.commit()


# --- messages ---------------------------------------------------------------------------------------------

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
WHOLE: dict[str, object] = {
    "a batch": [PING],
    "an empty batch": [],
    "a string": "ping",
    "nothing": None,
    "a number": 5,
}
MEMBERS: dict[str, tuple[Json, int]] = {
    "another JSON-RPC": ({"jsonrpc": "1.0"}, INVALID_REQUEST),
    "no JSON-RPC": ({"jsonrpc": ...}, INVALID_REQUEST),
    "no method": ({"method": ...}, INVALID_REQUEST),
    "a method that is none": ({"method": 5}, INVALID_REQUEST),
    "a response": ({"method": ..., "params": ..., "result": {}}, INVALID_REQUEST),
    "a request that is a response too": ({"result": {}}, INVALID_REQUEST),
    "an unknown member": ({"Method": "tools/call"}, INVALID_REQUEST),
    "null as its id": ({"id": None}, INVALID_REQUEST),
    "true as its id": ({"id": True}, INVALID_REQUEST),
    "a fraction as its id": ({"id": 1.5}, INVALID_REQUEST),
    "a list as its id": ({"id": [1]}, INVALID_REQUEST),
    "an endless id": ({"id": "x" * (MAX_ID_CHARS + 1)}, INVALID_REQUEST),
    "params by position": ({"params": []}, INVALID_PARAMS),
    "null for params": ({"params": None}, INVALID_PARAMS),
    "a _meta that is none": ({"params": {"_meta": "x"}}, INVALID_PARAMS),
}
"""What is changed in a request that is answered otherwise; `...` takes a member out."""


@pytest.mark.parametrize("what", WHOLE)
async def test_what_is_no_object_is_no_message(client: McpClient, what: str) -> None:
    _, headers = client.request("tools/list")
    response = await client.send(WHOLE[what], headers)
    assert (response.status_code, error_of(response)["code"]) == (400, INVALID_REQUEST)


@pytest.mark.parametrize("what", MEMBERS)
async def test_one_member_can_make_a_request_none(client: McpClient, scene: Scene, what: str) -> None:
    changes, code = MEMBERS[what]
    before = await scene.types()
    body, headers = client.request("tools/list")
    changed = {name: value for name, value in (body | changes).items() if value is not ...}
    response = await client.send(changed, headers)
    assert (response.status_code, error_of(response)["code"]) == (400, code)
    assert await scene.types() == before
    assert (await client.send(body, headers)).status_code == 200


@pytest.mark.parametrize("request_id", [0, -5, "", "ä", "x" * MAX_ID_CHARS])
async def test_an_answer_bears_the_id_of_its_request(client: McpClient, request_id: str | int) -> None:
    body, headers = client.request("tools/list")
    answered = await client.send(body | {"id": request_id}, headers)
    assert answered.json()["id"] == request_id
    refused = await client.send(body | {"id": request_id, "method": "nope"}, headers)
    assert refused.json()["id"] == request_id


async def test_an_error_without_an_id_to_name_has_none(client: McpClient) -> None:
    assert "id" not in (await client.send([PING])).json()
    assert "id" not in (await client.send_bytes(b"{")).json()


TEXTS = {
    "a duplicate": b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "method": "tools/call"}',
    "a duplicate spelt otherwise": b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "m\\u0065thod": "tools/call"}',
    "NaN": b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}',
    "a number beyond JSON": b'{"jsonrpc": "2.0", "id": 9007199254740993, "method": "ping"}',
    "a lone surrogate": b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}',
    "no UTF-8": b'{"jsonrpc": "2.0", "id": "\xff", "method": "ping"}',
    "two messages": b'{"jsonrpc": "2.0", "id": 1, "method": "ping"} {}',
    "nothing": b"",
    "a flood of brackets": b"[" * 100_000,
}


@pytest.mark.parametrize("what", TEXTS)
async def test_a_text_with_more_than_one_reading_is_not_parsed(client: McpClient, what: str) -> None:
    response = await client.send_bytes(TEXTS[what])
    assert (response.status_code, error_of(response)["code"]) == (400, PARSE_ERROR)


async def test_a_message_has_a_size(client: McpClient) -> None:
    response = await client.send_bytes(b'{"jsonrpc": "2.0", "id": "' + b"x" * 300_000 + b'"}')
    assert (response.status_code, error_of(response)["code"]) == (413, INVALID_REQUEST)


ACCEPTED = (
    "application/json, text/event-stream",
    "text/event-stream,application/json",
    "*/*",
    "application/*;q=0.1, text/*",
    "Application/JSON; charset=utf-8, TEXT/event-stream;q=1.0",
    "application/json",
    "application/json, text/event-stream;q=0",
)
NOT_ACCEPTED = (
    "text/event-stream",
    "",
    "text/html",
    "application/json;q=0, text/event-stream",
    "application/json; q=0.000, text/html",
)


@pytest.mark.parametrize("accept", ACCEPTED)
async def test_a_client_that_takes_json_is_answered_whether_or_not_it_takes_events(
    client: McpClient, accept: str
) -> None:
    body, headers = client.request("tools/list")
    response = await client.send(body, headers | {"Accept": accept})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize("accept", NOT_ACCEPTED)
async def test_a_client_that_takes_less_is_told(client: McpClient, accept: str) -> None:
    body, headers = client.request("tools/list")
    response = await client.send(body, headers | {"Accept": accept})
    assert (response.status_code, error_of(response)["code"]) == (406, INVALID_REQUEST)


async def test_a_body_of_another_type_is_refused(client: McpClient) -> None:
    body, headers = client.request("tools/list")
    response = await client.send(body, headers | {"Content-Type": "text/plain"})
    assert (response.status_code, error_of(response)["code"]) == (415, INVALID_REQUEST)


async def test_a_notification_is_taken_without_a_word(any_client: McpClient) -> None:
    await any_client.ask("tools/list")
    _, headers = any_client.request("tools/list")
    for method in ("notifications/initialized", "notifications/cancelled", "notifications/of/tomorrow"):
        response = await any_client.send({"jsonrpc": "2.0", "method": method}, headers)
        assert (response.status_code, response.content) == (202, b"")


async def test_a_call_without_an_id_is_refused_and_never_run(any_client: McpClient, scene: Scene) -> None:
    await any_client.ask("tools/list")
    body, headers = any_client.request("tools/call", {"name": SEARCH.tool})
    del body["id"]
    response = await any_client.send(body, headers)
    assert (response.status_code, error_of(response)["code"]) == (400, INVALID_REQUEST)
    assert not scene.tools.requests


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_there_is_nothing_but_post(client: McpClient, method: str) -> None:
    response = await client.http.request(method, "/mcp/support", headers=client.fields({"Mcp-Session-Id": "x"}))
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


ORIGINS: dict[str, int] = {
    ISSUER: 200,
    "https://SUBGRANT.example": 200,
    f"{ISSUER}:443": 200,
    f"{ISSUER}:8443": 403,
    "http://subgrant.example": 403,
    "https://subgrant.example.evil.example": 403,
    "https://evil.example": 403,
    "null": 403,
    "": 403,
}


@pytest.mark.parametrize("origin", ORIGINS)
async def test_only_our_own_pages_may_send_anything(client: McpClient, origin: str) -> None:
    body, headers = client.request("tools/list")
    response = await client.send(body, headers | {"Origin": origin})
    assert response.status_code == ORIGINS[origin], response.text


async def test_a_foreign_page_learns_nothing_of_tokens(http: httpx.AsyncClient) -> None:
    for token in (None, "garbage"):
        response = await McpClient(http, token).send(PING, {"Origin": "https://evil.example"})
        assert response.status_code == 403
        assert "www-authenticate" not in response.headers


# --- 2026-07-28 -------------------------------------------------------------------------------------------


async def test_discovery_names_revisions_capabilities_and_who_answers(client: McpClient) -> None:
    result = result_of(await client.ask("server/discover"))
    assert result["resultType"] == "complete"
    assert result["supportedVersions"] == [*REVISIONS]
    assert result["capabilities"] == {"tools": {}, "logging": {}}
    assert (result["cacheScope"], result["ttlMs"] >= 0) == ("private", True)
    info = result["_meta"]["io.modelcontextprotocol/serverInfo"]
    assert (info["name"], info["version"]) == ("subgrant", "7.8.9")


FIELDS: dict[str, dict[str, str | None]] = {
    "no version": {"MCP-Protocol-Version": None},
    "another version": {"MCP-Protocol-Version": "2025-11-25"},
    "no method": {"Mcp-Method": None},
    "another method": {"Mcp-Method": "tools/list"},
    "a method in capitals": {"Mcp-Method": "Tools/Call"},
    "no name": {"Mcp-Name": None},
    "another name": {"Mcp-Name": "refund"},
    "a name in capitals": {"Mcp-Name": SEARCH.tool.upper()},
    "another name, encoded": {"Mcp-Name": "=?base64?cmVmdW5k?="},
    "an encoding that is none": {"Mcp-Name": "=?base64?***?="},
    "an encoding with something in it": {"Mcp-Name": f"=?base64?!{base64.b64encode(SEARCH.tool.encode()).decode()}?="},
    "an encoding in capitals": {"Mcp-Name": f"=?BASE64?{base64.b64encode(SEARCH.tool.encode()).decode()}?="},
    "an encoded method": {"Mcp-Method": f"=?base64?{base64.b64encode(b'tools/call').decode()}?="},
}


@pytest.mark.parametrize("what", FIELDS)
async def test_fields_that_say_other_than_the_body_are_refused(client: McpClient, scene: Scene, what: str) -> None:
    body, headers = client.request("tools/call", {"name": SEARCH.tool})
    fields = {name: value for name, value in (headers | FIELDS[what]).items() if value is not None}
    response = await client.send(body, fields)
    assert (response.status_code, error_of(response)["code"]) == (400, HEADER_MISMATCH)
    assert response.json()["id"] == body["id"]
    assert not scene.tools.requests


@pytest.mark.parametrize("field", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])
async def test_a_field_given_twice_is_refused(client: McpClient, field: str) -> None:
    body, headers = client.request("tools/call", {"name": SEARCH.tool})
    lines = [*client.fields(headers).items(), (field, headers[field])]
    response = await client.http.post("/mcp/support", json=body, headers=lines)
    assert (response.status_code, error_of(response)["code"]) == (400, HEADER_MISMATCH)


async def test_blanks_around_a_field_are_none_of_it(client: McpClient) -> None:
    body, headers = client.request("tools/call", {"name": SEARCH.tool})
    padded = {name: f" {value} \t" for name, value in headers.items()}
    assert result_of(await client.send(body, padded))["isError"] is False


async def test_an_encoded_name_is_decoded_before_it_is_compared(client: McpClient) -> None:
    body, headers = client.request("tools/call", {"name": SEARCH.tool})
    encoded = f"=?base64?{base64.b64encode(SEARCH.tool.encode()).decode()}?="
    assert result_of(await client.send(body, headers | {"Mcp-Name": encoded}))["isError"] is False


@given(st.text())
def test_whatever_was_encoded_is_decoded(text: str) -> None:
    assert decoded(f"=?base64?{base64.b64encode(text.encode()).decode()}?=") == text


@given(st.text(alphabet=st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_a_plain_value_is_itself_or_encoded(value: str) -> None:
    is_encoded = value.startswith("=?base64?") and value.endswith("?=")
    assert is_encoded or decoded(value) == value


INCOMPLETE: dict[str, Json] = {
    "nothing": {},
    "no version": {"io.modelcontextprotocol/clientCapabilities": {}},
    "no capabilities": {"io.modelcontextprotocol/protocolVersion": STATELESS},
    "a version that is none": meta(**{"io.modelcontextprotocol/protocolVersion": 2026}),
    "capabilities that are none": meta(**{"io.modelcontextprotocol/clientCapabilities": []}),
}


@pytest.mark.parametrize("what", INCOMPLETE)
async def test_a_request_that_does_not_say_all_of_itself_is_refused(client: McpClient, what: str) -> None:
    body, headers = client.request("tools/list")
    body["params"]["_meta"] = INCOMPLETE[what]
    response = await client.send(body, headers)
    assert (response.status_code, error_of(response)["code"]) == (400, INVALID_PARAMS)


@pytest.mark.parametrize("version", ["2027-01-01", "1999-01-01", "2024-11-05", "2025-03-26", "x" * 500])
async def test_a_revision_that_is_not_spoken_is_answered_with_those_that_are(client: McpClient, version: str) -> None:
    body, headers = client.request("tools/list")
    body["params"]["_meta"] = meta(**{"io.modelcontextprotocol/protocolVersion": version})
    for sent in (body, body | {"params": {}}):
        response = await client.send(sent, headers | {"MCP-Protocol-Version": version})
        error = error_of(response)
        assert (response.status_code, error["code"]) == (400, UNSUPPORTED)
        assert error["data"]["supported"] == [*REVISIONS]
        assert error["data"]["requested"] == version[:64]


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "prompts/list", "nope", ""])
async def test_an_unknown_method_is_not_found(client: McpClient, method: str) -> None:
    response = await client.ask(method)
    assert (response.status_code, error_of(response)["code"]) == (404, NO_METHOD)


async def test_no_session_is_given_or_asked_for(client: McpClient) -> None:
    body, headers = client.request("tools/list")
    response = await client.send(body, headers | {"Mcp-Session-Id": "whatever", "Last-Event-ID": "9"})
    assert response.status_code == 200
    assert "mcp-session-id" not in response.headers


# --- 2025-11-25 and 2025-06-18 ----------------------------------------------------------------------------

OFFERS = {
    "2025-11-25": "2025-11-25",
    "2025-06-18": "2025-06-18",
    "2025-03-26": "2025-11-25",
    "2024-11-05": "2025-11-25",
    "2026-07-28": "2025-11-25",
    "tomorrow": "2025-11-25",
}


@pytest.mark.parametrize("offer", OFFERS)
async def test_a_handshake_agrees_on_the_revision_asked_for_or_offers_the_newest(client: McpClient, offer: str) -> None:
    response = await client.initialize(offer)
    result = result_of(response)
    assert result["protocolVersion"] == OFFERS[offer]
    assert result["capabilities"] == {"tools": {}}
    assert result["serverInfo"]["name"] == "subgrant"
    session = response.headers["mcp-session-id"]
    assert session.isascii()
    assert session.isprintable()
    assert " " not in session


@pytest.mark.parametrize("missing", ["protocolVersion", "capabilities", "clientInfo"])
async def test_half_a_handshake_is_none(client: McpClient, missing: str) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    for changed in ({name: value for name, value in params.items() if name != missing}, params | {missing: 5}):
        response = await client.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": changed})
        assert error_of(response)["code"] == INVALID_PARAMS
        assert "mcp-session-id" not in response.headers


async def test_a_session_is_used_without_saying_its_revision_again(old_client: McpClient) -> None:
    await old_client.ask("ping")
    body, headers = old_client.request("ping")
    del headers["MCP-Protocol-Version"]
    assert result_of(await old_client.send(body, headers)) == {}


async def test_a_session_keeps_to_its_revision(old_client: McpClient) -> None:
    await old_client.ask("ping")
    body, headers = old_client.request("ping")
    (other,) = {*HANDSHAKES} - {old_client.revision}
    response = await old_client.send(body, headers | {"MCP-Protocol-Version": other})
    assert (response.status_code, error_of(response)["code"]) == (400, INVALID_REQUEST)
    response = await old_client.send(body, headers | {"MCP-Protocol-Version": "2025-03-26"})
    assert (response.status_code, error_of(response)["code"]) == (400, UNSUPPORTED)


async def test_there_is_nothing_without_a_session(client: McpClient) -> None:
    for method in ("tools/list", "ping", "tools/call", "notifications/initialized"):
        body = {"jsonrpc": "2.0", "id": 1, "method": method}
        response = await client.send(body)
        assert (response.status_code, error_of(response)["code"]) == (400, INVALID_REQUEST), method


async def test_a_session_of_another_grant_is_none(old_client: McpClient, scene: Scene) -> None:
    await old_client.ask("ping")
    other = McpClient(old_client.http, await token_for(scene), old_client.revision, session=old_client.session)
    response = await other.ask("tools/list")
    assert (response.status_code, error_of(response)["code"]) == (404, INVALID_REQUEST)


async def test_a_session_with_another_tool_server_of_the_same_grant_is_none(
    http: httpx.AsyncClient, scene: Scene
) -> None:
    await add_billing(scene)
    made = await scene.grant(("support/case_search",), audience=(SUPPORT.uri, BILLING.uri))
    client = McpClient(http, made.signed, "2025-11-25")
    await client.ask("ping")
    client.server = "billing"
    assert (await client.ask("ping")).status_code == 404


async def test_a_session_that_was_changed_anywhere_is_none(client: McpClient) -> None:
    client.revision = "2025-11-25"
    await client.ask("ping")
    session = client.session
    assert session is not None
    others = [f"{session[:n]}{'1' if char == '0' else '0'}{session[n + 1 :]}" for n, char in enumerate(session)]
    others += [session[:-1], f"{session}0", session.upper(), session.replace("2025-11-25", "2025-06-18")]
    for other in (*others, "x", "...", ""):
        client.session = other
        response = await client.send(*client.request("ping"))
        assert (response.status_code, error_of(response)["code"]) == (404, INVALID_REQUEST), other


async def test_any_worker_takes_up_a_session(client: McpClient, scene: Scene) -> None:
    """Nothing of it is in a process: the same key-encryption key is all that a worker needs."""
    client.revision = "2025-11-25"
    await client.ask("ping")
    app = FastAPI()
    app.include_router(mcp.router)
    app.state.world = replace(scene.world)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ISSUER) as elsewhere:
        client.http = elsewhere
        assert result_of(await client.ask("ping")) == {}


async def test_an_unknown_method_is_an_error_among_answers(old_client: McpClient) -> None:
    for method in ("server/discover", "resources/list", "nope"):
        response = await old_client.ask(method)
        assert (response.status_code, error_of(response)["code"]) == (200, NO_METHOD)


# --- who is asking ----------------------------------------------------------------------------------------


def challenge_in(response: httpx.Response) -> str:
    challenge: str = response.headers["www-authenticate"]
    assert challenge.startswith("Bearer ")
    assert f'resource_metadata="{METADATA}"' in challenge
    assert 'scope="tools:call"' in challenge
    return challenge


@pytest.mark.parametrize("method", ["initialize", "server/discover", "tools/list", "tools/call", "nope"])
async def test_without_a_token_there_is_a_challenge_and_no_error_code(http: httpx.AsyncClient, method: str) -> None:
    stranger = McpClient(http, None)
    response = await stranger.ask(method, {"name": "x"} if method == "tools/call" else None)
    assert response.status_code == 401
    assert "error=" not in challenge_in(response)
    assert response.json()["id"] == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"method": "x"}'])
async def test_without_a_token_there_is_nothing_else_to_learn(http: httpx.AsyncClient, content: bytes) -> None:
    response = await http.post("/mcp/support", content=content)
    assert response.status_code == 401
    assert "error=" not in challenge_in(response)


async def test_a_token_that_proves_nothing_is_invalid(http: httpx.AsyncClient) -> None:
    response = await McpClient(http, "garbage").ask("tools/list")
    assert response.status_code == 401
    assert 'error="invalid_token"' in challenge_in(response)


async def test_there_is_one_way_to_present_a_token(client: McpClient) -> None:
    body, headers = client.request("tools/list")
    in_query = await client.http.post(f"/mcp/support?access_token={client.token}", json=body, headers=headers)
    assert (in_query.status_code, error_of(in_query)["code"]) == (400, INVALID_REQUEST)
    twice = [*client.fields(headers).items(), ("Authorization", f"Bearer {client.token}")]
    assert (await client.http.post("/mcp/support", json=body, headers=twice)).status_code == 400


async def test_a_name_that_nobody_has_answers_like_any_other(client: McpClient, scene: Scene) -> None:
    async def answers(server: str, token: str | None) -> list[tuple[int, str, str]]:
        def named(text: str) -> str:
            return re.sub(rf"\b{server}\b", "NAME", text)

        responses = [
            await McpClient(client.http, token, server=server).ask("tools/list"),
            await McpClient(client.http, token, server=server).call(SEARCH.tool),
            await McpClient(client.http, token, server=server, revision="2025-11-25").initialize(),
            await client.http.get(f"/.well-known/oauth-protected-resource/mcp/{server}"),
        ]
        return [
            (response.status_code, named(without_ids(response)), named(response.headers.get("www-authenticate", "")))
            for response in responses
        ]

    assert await answers("support", None) == await answers("no-such-server", None)
    # The token is for neither of these two; one of them exists.
    await add_billing(scene)
    refused = await answers("no-such-server", client.token)
    assert await answers("billing", client.token) == refused
    assert [status for status, _, _ in refused] == [401, 401, 401, 200]


def without_ids(response: httpx.Response) -> str:
    document = response.json()
    document.pop("id", None)
    data = document.get("error", {}).get("data", {})
    data.get(DECISION, {}).pop("decisionId", None)
    return json.dumps(document)


@pytest.mark.parametrize("server", ["a b", "-x", "x" * 65, "ä", ".hidden", "a%2Fb"])
async def test_what_can_be_no_tool_server_is_not_found(client: McpClient, server: str) -> None:
    for path in ("/mcp/", "/.well-known/oauth-protected-resource/mcp/"):
        method = "POST" if path == "/mcp/" else "GET"
        assert (await client.http.request(method, f"{path}{server}", json={})).status_code == 404


async def test_a_protected_resource_describes_itself(http: httpx.AsyncClient) -> None:
    response = await http.get("/.well-known/oauth-protected-resource/mcp/support")
    assert response.json() == {
        "resource": f"{ISSUER}/mcp/support",
        "resource_name": "support, through Subgrant",
        "authorization_servers": [ISSUER],
        "scopes_supported": ["tools:call"],
        "bearer_methods_supported": ["header"],
        "authorization_details_types_supported": ["delegation"],
        "dpop_signing_alg_values_supported": ["ES256", "ES384", "EdDSA", "Ed25519", "RS256", "PS256"],
        "dpop_bound_access_tokens_required": False,
    }
    api = (await http.get("/.well-known/oauth-protected-resource", headers={"Host": "evil.example"})).json()
    assert (api["resource"], api["authorization_servers"]) == (ISSUER, [ISSUER])


async def test_the_metadata_of_an_issuer_with_a_path_stands_before_the_path(client: McpClient, scene: Scene) -> None:
    """RFC 9728 §3.1: the well-known path comes between the host and the resource's own path."""
    rules = replace(scene.world.rules, issuer="https://acme.example/grants")
    assert well_known.tool_server_metadata_url(rules.issuer, SEARCH.server) == (
        "https://acme.example/.well-known/oauth-protected-resource/grants/mcp/support"
    )


# --- tools/list -------------------------------------------------------------------------------------------


async def test_the_list_shows_what_the_grant_allows(http: httpx.AsyncClient, scene: Scene) -> None:
    await register(scene, replace(await search_tool(scene), description="Search cases."))
    rule = {"customerId": {"eq": "c_42"}, "limit": {"int": {"min": 1, "max": 5}, "optional": True}}
    token = await token_for(scene, resource_constraints={SEARCH.tool: rule})
    for revision in REVISIONS:
        listed = await McpClient(http, token, revision).tools()
        (tool,) = listed["tools"]
        assert set(tool) == {"name", "description", "inputSchema"}
        assert (tool["name"], tool["description"]) == (SEARCH.tool, "Search cases.")
        assert tool["inputSchema"]["type"] == "object"
        assert tool["inputSchema"]["properties"]["customerId"]["const"] == "c_42"
        assert tool["inputSchema"]["required"] == ["customerId"]
        assert "nextCursor" not in listed
        is_cacheable = {"ttlMs", "cacheScope", "resultType"} <= set(listed)
        assert is_cacheable == (revision == STATELESS)
        assert listed.get("cacheScope", "private") == "private"


OUTPUTS: dict[str, tuple[JsonObject | None, bool]] = {
    "none": (None, False),
    "an object": ({"type": "object", "properties": {"a": {"type": "integer"}}}, True),
    "an array": ({"type": "array"}, False),
    "several types": ({"type": ["object", "null"]}, False),
    "no type": ({"properties": {}}, False),
}


@pytest.mark.parametrize("what", OUTPUTS)
async def test_an_output_schema_is_shown_where_every_revision_allows_it(
    any_client: McpClient, scene: Scene, what: str
) -> None:
    schema, is_shown = OUTPUTS[what]
    await register(scene, replace(await search_tool(scene), output_schema=schema))
    (tool,) = (await any_client.tools())["tools"]
    assert tool.get("outputSchema") == (schema if is_shown else None)


async def test_a_long_list_has_pages_that_together_show_each_tool_once(http: httpx.AsyncClient, scene: Scene) -> None:
    one = await search_tool(scene)
    names = [f"tool_{number:03}" for number in range(MAX_PAGE_TOOLS + 30)]
    await register(scene, *(replace(one, name=ToolName(name)) for name in names))
    token = await token_for(scene, tools=names)
    client = McpClient(http, token)
    first = await client.tools()
    second = await client.tools(cursor=first["nextCursor"])
    assert [tool["name"] for tool in first["tools"] + second["tools"]] == names
    assert (len(first["tools"]), "nextCursor" in second) == (MAX_PAGE_TOOLS, False)
    assert second["cacheScope"] == "private"


async def test_a_page_has_a_size_and_always_one_tool(http: httpx.AsyncClient, scene: Scene) -> None:
    one = await search_tool(scene)
    sizes = {"a": MAX_PAGE_BYTES, "b": 10, "c": MAX_PAGE_BYTES // 2, "d": MAX_PAGE_BYTES // 2}
    await register(scene, *(replace(one, name=ToolName(name), description="x" * size) for name, size in sizes.items()))
    client = McpClient(http, await token_for(scene, tools=[*sizes]))
    pages: list[str] = []
    cursor = None
    while len(pages) <= len(sizes):
        page = await client.tools(**({} if cursor is None else {"cursor": cursor}))
        pages.append("".join(tool["name"] for tool in page["tools"]))
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    assert pages == ["a", "bc", "d"]


@pytest.mark.parametrize("cursor", ["", "x", "=", "YQ", "YQ==\n", "!!YQ==", "/w==", 5, ["YQ=="], {}])
async def test_a_cursor_that_was_not_given_out_is_refused(any_client: McpClient, cursor: object) -> None:
    if cursor == "":
        cursor = "\n"
    response = await any_client.ask("tools/list", {"cursor": cursor})
    assert error_of(response)["code"] == INVALID_PARAMS
    assert response.status_code == (400 if any_client.revision == STATELESS else 200)


SCHEMAS: tuple[tuple[JsonValue, JsonValue], ...] = (
    ({"x-mcp-header": "Region"}, {}),
    ({"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}, {"properties": {"a": {"type": "string"}}}),
    ({"properties": {"x-mcp-header": {"type": "string"}}}, {"properties": {"x-mcp-header": {"type": "string"}}}),
    ({"allOf": [{"x-mcp-header": "A"}, True]}, {"allOf": [{}, True]}),
    ({"const": {"x-mcp-header": "A"}}, {"const": {"x-mcp-header": "A"}}),
    ({"$defs": {"d": {"items": {"x-mcp-header": "A"}}}}, {"$defs": {"d": {"items": {}}}}),
)


@pytest.mark.parametrize("schema, shown", SCHEMAS)
def test_no_argument_is_asked_for_in_a_header_field(schema: JsonValue, shown: JsonValue) -> None:
    assert without_header_keyword(schema) == shown


# --- tools/call -------------------------------------------------------------------------------------------


async def test_a_plain_tools_document_is_text_and_structure(any_client: McpClient, scene: Scene) -> None:
    scene.tools.answer = UpstreamAnswer(outcome=Outcome.SUCCESS, result={"b": 1, "a": [True, None]})
    response = await any_client.call(SEARCH.tool, {"q": "x"})
    result = result_of(response)
    assert result["content"] == [{"type": "text", "text": '{"a":[true,null],"b":1}'}]
    assert result["structuredContent"] == {"b": 1, "a": [True, None]}
    assert result["isError"] is False
    assert result.get("resultType") == ("complete" if any_client.revision == STATELESS else None)
    decision = decision_of(response)
    assert (decision["decision"], decision["outcome"], decision["costCents"]) == ("allow", "success", 1)
    assert decision["usage"]["toolCalls"] == {"posted": 1, "pending": 0}
    assert {"decisionId", "callId", "grantId"} <= set(decision)
    assert scene.tools.requests[0].arguments == {"q": "x"}


@pytest.mark.parametrize("value", ["text", 5, 1.5, True, None, [], [{"a": 1}]])
async def test_what_is_no_object_travels_in_one(client: McpClient, scene: Scene, value: JsonValue) -> None:
    scene.tools.answer = UpstreamAnswer(outcome=Outcome.SUCCESS, result=value)
    result = result_of(await client.call(SEARCH.tool))
    assert result["structuredContent"] == {"result": value}
    assert json.loads(text_of(result)) == value


@pytest.mark.parametrize("value", ["text", 5, None, [{"a": 1}]])
async def test_a_structure_of_an_mcp_tool_that_is_no_object_travels_in_one_too(
    any_client: McpClient, scene: Scene, value: JsonValue
) -> None:
    await speak_mcp(scene)
    own: JsonObject = {"content": [{"type": "text", "text": "x"}], "structuredContent": value}
    scene.tools.answer = UpstreamAnswer(outcome=Outcome.SUCCESS, result=own)
    result = result_of(await any_client.call(SEARCH.tool))
    assert (result["content"], result["structuredContent"]) == (own["content"], {"result": value})


LACKING: JsonObject = {"sampling": {"tools": {}}, "elicitation": {"url": "https://evil.example"}, "secret-4111": {}}


def lacking(required: JsonValue) -> UpstreamAnswer:
    error: JsonObject = {"code": -32021, "message": "give me 4111", "data": {"requiredCapabilities": required}}
    return UpstreamAnswer(outcome=Outcome.TOOL_ERROR, result={"error": error}, detail="the tool server refused")


async def test_a_client_that_does_not_offer_what_the_tool_needs_is_told_what_that_is(
    client: McpClient, scene: Scene
) -> None:
    await speak_mcp(scene)
    scene.tools.answer = lacking(LACKING)
    response = await client.call(SEARCH.tool)
    assert (response.status_code, error_of(response)["code"]) == (400, -32021)
    assert error_of(response)["data"]["requiredCapabilities"] == {"elicitation": {}, "sampling": {}}
    assert (decision_of(response)["outcome"], decision_of(response)["costCents"]) == ("tool_error", 1)
    assert "4111" not in response.text
    assert "evil" not in response.text
    declared: Json = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    response = await client.ask("tools/call", {"name": SEARCH.tool, "_meta": declared})
    assert error_of(response)["data"]["requiredCapabilities"] == {"sampling": {}}


@pytest.mark.parametrize("required", [{}, {"other": {}}, ["sampling"], None, "sampling"])
async def test_a_tool_that_needs_nothing_that_a_client_could_offer_has_failed(
    client: McpClient, scene: Scene, required: JsonValue
) -> None:
    await speak_mcp(scene)
    scene.tools.answer = lacking(required)
    assert result_of(await client.call(SEARCH.tool))["isError"] is True


async def test_a_client_that_offers_what_nobody_may_use_sees_the_tool_fail(client: McpClient, scene: Scene) -> None:
    await speak_mcp(scene)
    scene.tools.answer = lacking({"sampling": {}})
    declared: Json = {"io.modelcontextprotocol/clientCapabilities": {"sampling": {}}}
    response = await client.ask("tools/call", {"name": SEARCH.tool, "_meta": declared})
    assert result_of(response)["isError"] is True


async def test_before_there_were_capabilities_of_requests_the_tool_has_just_failed(
    http: httpx.AsyncClient, scene: Scene, token: str
) -> None:
    await speak_mcp(scene)
    scene.tools.answer = lacking(LACKING)
    for revision in HANDSHAKES:
        assert result_of(await McpClient(http, token, revision).call(SEARCH.tool))["isError"] is True


async def test_a_call_needs_no_arguments(client: McpClient, scene: Scene) -> None:
    assert result_of(await client.ask("tools/call", {"name": SEARCH.tool}))["isError"] is False
    assert scene.tools.requests[0].arguments == {}


async def test_a_tool_that_failed_is_an_error_to_read(any_client: McpClient, scene: Scene) -> None:
    scene.tools.answer = UpstreamAnswer(
        outcome=Outcome.TOOL_ERROR, result={"error": "busy"}, detail="the tool answered HTTP 503"
    )
    response = await any_client.call(SEARCH.tool)
    result = result_of(response)
    assert result["isError"] is True
    assert text_of(result) == 'the tool answered HTTP 503\n{"error":"busy"}'
    assert "structuredContent" not in result
    decision = decision_of(response)
    assert (decision["decision"], decision["outcome"]) == ("allow", "tool_error")


async def test_an_unknown_outcome_is_an_error_that_must_not_be_repeated(any_client: McpClient, scene: Scene) -> None:
    scene.tools.answer = UpstreamAnswer(outcome=Outcome.UNKNOWN, detail="the tool did not answer in time")
    response = await any_client.call(SEARCH.tool)
    result = result_of(response)
    assert result["isError"] is True
    assert "may" in text_of(result)
    assert "not simply be repeated" in text_of(result)
    decision = decision_of(response)
    assert (decision["outcome"], decision["costCents"]) == ("unknown", 2)


async def test_a_call_that_never_left_may_be_tried_again(any_client: McpClient, scene: Scene) -> None:
    scene.tools.answer = UpstreamAnswer(outcome=Outcome.UNSENT, detail="the tool server can't be reached")
    response = await any_client.call(SEARCH.tool)
    result, decision = result_of(response), decision_of(response)
    assert result["isError"] is True
    assert "nothing was charged" in text_of(result)
    assert (decision["reason"], decision["outcome"]) == ("tool_server_unavailable", "unsent")
    assert {"callId", "decisionId"} <= set(decision)


OWN: tuple[JsonObject, ...] = (
    {"content": [{"type": "text", "text": "hello"}]},
    {"content": [], "structuredContent": {"a": 1}},
    {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}], "structuredContent": {}},
)


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.TOOL_ERROR])
async def test_an_mcp_tools_own_result_passes_through(
    any_client: McpClient, scene: Scene, own: JsonObject, outcome: Outcome
) -> None:
    await speak_mcp(scene)
    scene.tools.answer = UpstreamAnswer(outcome=outcome, result=own)
    result = result_of(await any_client.call(SEARCH.tool))
    assert {name: result[name] for name in own} == own
    assert result["isError"] is (outcome is Outcome.TOOL_ERROR)


async def test_an_mcp_servers_own_refusal_is_the_tools_error(client: McpClient, scene: Scene) -> None:
    await speak_mcp(scene)
    refusal: JsonObject = {"error": {"code": -32602, "message": "no such city"}}
    scene.tools.answer = UpstreamAnswer(outcome=Outcome.TOOL_ERROR, result=refusal, detail="the tool server refused")
    result = result_of(await client.call(SEARCH.tool))
    assert result["isError"] is True
    assert "no such city" in text_of(result)


@pytest.mark.parametrize("own", OWN)
async def test_a_plain_tools_document_that_looks_like_a_result_is_none(
    client: McpClient, scene: Scene, own: JsonObject
) -> None:
    scene.tools.answer = UpstreamAnswer(outcome=Outcome.SUCCESS, result=own)
    result = result_of(await client.call(SEARCH.tool))
    assert result["structuredContent"] == own
    assert json.loads(text_of(result)) == own


async def test_a_key_is_run_once_in_whatever_revision_it_is_repeated(
    http: httpx.AsyncClient, token: str, scene: Scene
) -> None:
    calls = [decision_of(await McpClient(http, token, revision).call(SEARCH.tool, key="k1")) for revision in REVISIONS]
    assert len({decision["callId"] for decision in calls}) == 1
    assert len(scene.tools.requests) == 1
    other = await McpClient(http, token).call(SEARCH.tool, {"q": "another"}, key="k1")
    assert result_of(other)["isError"] is True
    assert decision_of(other)["reason"] == "idempotency_conflict"
    assert len(scene.tools.requests) == 1


@pytest.mark.parametrize("failure", [CallInFlight("it runs"), IdempotencyConflict("another call")])
async def test_a_key_that_is_taken_is_an_error_to_act_on(
    any_client: McpClient, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    async def forward_call(*_: object) -> None:
        raise failure

    monkeypatch.setattr("app.api.mcp.tools.forward_call", forward_call)
    response = await any_client.call(SEARCH.tool, key="k1")
    assert result_of(response)["isError"] is True
    decision = decision_of(response)
    assert "decision" not in decision
    assert decision["reason"] == getattr(failure, "code", None)
    assert ("retryAfterSeconds" in decision) == isinstance(failure, CallInFlight)


async def test_a_result_that_is_not_kept_is_neither_made_up_nor_made_again(
    any_client: McpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Forwarded(
        transport=Transport.MCP,
        call_id="call_1",
        decision_id="dec_1",
        grant_id=GrantId("gr_1"),
        outcome=Outcome.SUCCESS,
        result=None,
        charged_ucents=10_000,
        result_available=False,
        result_digest="d1",
    )

    async def forward_call(*_: object) -> Forwarded:
        return gone

    monkeypatch.setattr("app.api.mcp.tools.forward_call", forward_call)
    response = await any_client.call(SEARCH.tool, key="k1")
    result = result_of(response)
    assert result["isError"] is True
    assert "not run again" in text_of(result)
    assert "structuredContent" not in result
    decision = decision_of(response)
    assert (decision["resultAvailable"], decision["resultDigest"], decision["outcome"]) == (False, "d1", "success")


CALLS: dict[str, Json] = {
    "no name": {},
    "a name that is none": {"name": 5},
    "an empty name": {"name": ""},
    "a name with a blank": {"name": "case search"},
    "arguments by position": {"name": SEARCH.tool, "arguments": ["x"]},
    "null for arguments": {"name": SEARCH.tool, "arguments": None},
    "a key that is none": {"name": SEARCH.tool, "_meta": {IDEMPOTENCY_KEY: 5}},
    "an empty key": {"name": SEARCH.tool, "_meta": {IDEMPOTENCY_KEY: ""}},
    "a key with a blank": {"name": SEARCH.tool, "_meta": {IDEMPOTENCY_KEY: "a b"}},
    "a key without end": {"name": SEARCH.tool, "_meta": {IDEMPOTENCY_KEY: "x" * 256}},
    "a wish that is not understood": {"name": SEARCH.tool, "_meta": {"dev.subgrant/idempotency_key": "k1"}},
}


@pytest.mark.parametrize("what", CALLS)
async def test_a_malformed_call_is_not_decided(any_client: McpClient, scene: Scene, what: str) -> None:
    await any_client.ask("tools/list")
    before = await scene.types()
    response = await any_client.ask("tools/call", CALLS[what])
    assert error_of(response)["code"] == INVALID_PARAMS
    assert response.status_code == (400 if any_client.revision == STATELESS else 200)
    assert await scene.types() == before


async def test_members_of_others_are_ignored(any_client: McpClient) -> None:
    params = {"name": SEARCH.tool, "task": {"ttl": 5}, "_meta": {"progressToken": 1, "com.example/x": {}}}
    assert result_of(await any_client.ask("tools/call", params))["isError"] is False


async def test_a_store_that_is_away_decides_nothing(any_client: McpClient, scene: Scene) -> None:
    await any_client.ask("tools/list")
    scene.store.fails_after = 0
    response = await any_client.call(SEARCH.tool)
    assert (response.status_code, error_of(response)["code"]) == (503, INTERNAL)
    assert response.headers["retry-after"]
    assert not scene.tools.requests


# --- nothing but tools ------------------------------------------------------------------------------------

NOT_TOOLS = (
    *("resources/list", "resources/read", "resources/templates/list", "resources/subscribe", "resources/unsubscribe"),
    *("prompts/list", "prompts/get", "completion/complete", "logging/setLevel", "subscriptions/listen"),
    *("tasks/get", "tasks/list", "tasks/result", "tasks/cancel", "tasks/update"),
    *("sampling/createMessage", "elicitation/create", "roots/list"),
)


@pytest.mark.parametrize("method", NOT_TOOLS)
async def test_what_no_grant_names_is_an_unknown_method(any_client: McpClient, scene: Scene, method: str) -> None:
    name = {"resources/read": "uri", "prompts/get": "name"}.get(method)
    await any_client.ask("tools/list")
    body, headers = any_client.request(method, {} if name is None else {name: "x"})
    if any_client.revision == STATELESS and name is not None:
        headers["Mcp-Name"] = "x"
    response = await any_client.send(body, headers)
    status = 404 if any_client.revision == STATELESS else 200
    assert (response.status_code, error_of(response)["code"]) == (status, NO_METHOD)
    assert not scene.tools.requests


async def test_no_capability_tells_of_anything_but_tools(client: McpClient, old_client: McpClient) -> None:
    greeted = result_of(await old_client.initialize())["capabilities"]
    assert greeted == {"tools": {}}, "and their list changes without a word"
    # The second is no method's, but what a call may ask for with its own `_meta`.
    assert result_of(await client.ask("server/discover"))["capabilities"] == {"tools": {}, "logging": {}}


# --- who may not be here is told that first ---------------------------------------------------------------


async def dead(scene: Scene) -> None:
    scene.clock.now += timedelta(hours=1)


async def closed(scene: Scene) -> None:
    async with scene.world.store.write() as tx:
        grants = {record["grantId"] for record in await scene.records() if "grantId" in record}
        for grant in grants:
            await tx.grants.close(ACME, GrantId(str(grant)), reason="closed", at=scene.clock.now)
        await tx.commit()


WRONG: dict[str, tuple[object, dict[str, str]]] = {
    "no JSON": (b"{", {}),
    "a batch": ([PING], {}),
    "no message": ({"jsonrpc": "2.0"}, {}),
    "an unknown member": (PING | {"x": 1}, {}),
    "params by position": (PING | {"params": []}, {}),
    "another type": (PING, {"Content-Type": "text/plain"}),
    "nothing acceptable": (PING, {"Accept": "text/html"}),
    "too large": (b'{"jsonrpc": "2.0", "id": "' + b"x" * 300_000 + b'"}', {}),
    "no session": (PING, {}),
    "another session": (PING, {"Mcp-Session-Id": "2025-11-25.a.b.c"}),
    "a revision of nobody": (PING, {"MCP-Protocol-Version": "1999-01-01"}),
    "a call without a session": (PING | {"method": "tools/call", "params": {"name": SEARCH.tool}}, {}),
    "a call in another session": (
        PING | {"method": "tools/call", "params": {"name": SEARCH.tool}},
        {"Mcp-Session-Id": "x", "MCP-Protocol-Version": "2025-06-18"},
    ),
    "a call whose fields are missing": (
        PING | {"method": "tools/call", "params": {"name": SEARCH.tool, "_meta": meta()}},
        {},
    ),
    "a call whose fields are others": (
        PING | {"method": "tools/call", "params": {"name": SEARCH.tool, "_meta": meta()}},
        {"MCP-Protocol-Version": STATELESS, "Mcp-Method": "tools/list"},
    ),
    "a call without a name": (
        PING | {"method": "tools/call", "params": {"_meta": meta()}},
        {"MCP-Protocol-Version": STATELESS, "Mcp-Method": "tools/call"},
    ),
    "a call with a token that is none": (
        PING | {"method": "tools/call", "params": {"name": SEARCH.tool, "_meta": meta(progressToken=[])}},
        {"MCP-Protocol-Version": STATELESS, "Mcp-Method": "tools/call", "Mcp-Name": SEARCH.tool},
    ),
    "a method of nobody": (
        PING | {"method": "nope", "params": {"_meta": meta()}},
        {"MCP-Protocol-Version": STATELESS, "Mcp-Method": "nope"},
    ),
    "a notification without a session": ({"jsonrpc": "2.0", "method": "notifications/cancelled"}, {}),
    "a call without an id": ({"jsonrpc": "2.0", "method": "tools/call", "params": {"_meta": meta()}}, {}),
}


async def send(client: McpClient, what: str) -> httpx.Response:
    body, headers = WRONG[what]
    return await (client.send_bytes(body, headers) if isinstance(body, bytes) else client.send(body, headers))


@pytest.mark.parametrize("what", WRONG)
async def test_a_message_that_is_wrong_is_refused_for_that_while_its_token_is_good(
    client: McpClient, what: str
) -> None:
    response = await send(client, what)
    assert response.status_code in {400, 404, 406, 413, 415}, response.text


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("end", [dead, closed])
async def test_whoever_presents_a_dead_token_is_told_so_whatever_else_is_wrong(
    client: McpClient, scene: Scene, what: str, end: Callable[[Scene], Awaitable[None]]
) -> None:
    await end(scene)
    response = await send(client, what)
    assert response.status_code == 401, response.text
    challenged = challenge_in(response)
    assert 'error="invalid_token"' in challenged
    assert f'resource_metadata="{METADATA}"' in challenged
    assert 'scope="tools:call"' in challenged
    assert not scene.tools.requests


@pytest.mark.parametrize("what", WRONG)
async def test_a_token_for_another_tool_server_is_refused_before_anything_else(
    http: httpx.AsyncClient, token: str, what: str
) -> None:
    response = await send(McpClient(http, token, server="billing"), what)
    assert (response.status_code, decision_of(response)["reason"]) == (401, "audience_mismatch")


@pytest.mark.parametrize("token", [None, "garbage"])
@pytest.mark.parametrize("what", WRONG)
async def test_whoever_proves_nothing_is_told_nothing_else(
    http: httpx.AsyncClient, token: str | None, what: str
) -> None:
    response = await send(McpClient(http, token), what)
    assert response.status_code == 401
    assert f'resource_metadata="{METADATA}"' in challenge_in(response)


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", Reason)
async def test_every_reason_has_its_look(
    any_client: McpClient, monkeypatch: pytest.MonkeyPatch, reason: Reason
) -> None:
    async def forward_call(*_: object) -> Denied:
        return Denied(reason=reason, detail="so it was decided", decision_id="dec_1", pointer="/a")

    await any_client.ask("tools/list")
    monkeypatch.setattr("app.api.mcp.tools.forward_call", forward_call)
    response = await any_client.call(SEARCH.tool)
    decision = decision_of(response)
    assert (decision["decision"], decision["reason"], decision["decisionId"]) == ("deny", reason, "dec_1")
    row = TABLE[reason]
    match row.mcp:
        case OverMcp.STATUS:
            assert (response.status_code, error_of(response)["code"]) == (row.status, INVALID_REQUEST)
            assert f'error="{row.challenge}"' in challenge_in(response)
        case OverMcp.UNKNOWN_TOOL:
            assert error_of(response)["code"] == INVALID_PARAMS
            assert error_of(response)["message"] == "Unknown tool"
        case OverMcp.RESULT:
            result = result_of(response)
            assert result["isError"] is True
            assert text_of(result).startswith(f"Refused ({reason}): so it was decided. ")
            assert "structuredContent" not in result


def test_what_a_model_could_mend_is_a_result_and_what_it_could_not_a_status() -> None:
    by_look = {look: {reason for reason in Reason if TABLE[reason].mcp is look} for look in OverMcp}
    assert by_look[OverMcp.UNKNOWN_TOOL] == {Reason.TOOL_NOT_ALLOWED}
    assert by_look[OverMcp.STATUS] == {
        Reason.TOKEN_INVALID,
        Reason.PROOF_INVALID,
        Reason.PROOF_NONCE_NEEDED,
        Reason.TOKEN_EXPIRED,
        Reason.AUDIENCE_MISMATCH,
        Reason.GRANT_REVOKED,
        Reason.GRANT_CLOSED,
        Reason.GRANT_EXPIRED,
        Reason.GRANT_NOT_YET_VALID,
        Reason.INSUFFICIENT_SCOPE,
    }


def test_the_page_names_every_reason_under_its_look_and_our_members_of_meta() -> None:
    page = PAGE.read_text()
    looks = {
        OverMcp.STATUS: "| HTTP 40",
        OverMcp.UNKNOWN_TOOL: "-32602",
        OverMcp.RESULT: "| a tool result with `isError`",
    }
    rows = [line for line in page.partition("## Denials")[2].splitlines() if line.startswith("| `")]
    for reason in Reason:
        (row,) = [row for row in rows if f"`{reason}`" in row.partition(" | ")[0]]
        assert looks[TABLE[reason].mcp] in row, reason
    for known in (DECISION, IDEMPOTENCY_KEY, *REVISIONS):
        assert known in page
