"""What arrives never leaves: no credential that a caller presents is in anything that others ever see.

A tap between the gateway and each tool server keeps every byte, whatever library or route wrote it; beside it stand
the server's own output at its most talkative, the audit logs of the tenant and of the platform, and every error.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.api_client import Api, Credentials, Json, made, proposal, refused
from tests.attacks.stage import OPEN, Stage, set_stage
from tests.changing_server import ChangingServer
from tests.mcp_client import REVISIONS, McpClient, text_of
from tests.prover import Prover
from tests.server_process import ServerProcess, sqlite_url
from tests.tool_server import ToolServer
from tests.wire_tap import WireTap

pytestmark = pytest.mark.anyio

MIN_PART = 16


@dataclass
class Sightings:
    """Everything that somebody else could have seen."""

    secrets: dict[str, str] = field(default_factory=dict)
    seen: dict[str, bytes] = field(default_factory=dict)

    def keep(self, **secrets: str) -> None:
        self.secrets |= secrets

    def saw(self, where: str, response: httpx.Response) -> httpx.Response:
        headers = repr(response.headers.multi_items()).encode()
        self.seen[f"{where} #{len(self.seen)}"] = headers + response.content
        return response

    def leaks(self) -> list[str]:
        """Who saw which secret: whole, as base64, or a JWT's signature, which is what makes it one."""
        return [
            f"{name} in {where}"
            for name, secret in self.secrets.items()
            for part in _parts(secret)
            for where, content in self.seen.items()
            if part in content
        ]


def _parts(secret: str) -> list[bytes]:
    whole = secret.encode()
    forms = [whole, base64.b64encode(whole), base64.urlsafe_b64encode(whole).rstrip(b"=")]
    parts = forms if secret.count(".") != 2 else [*forms, whole.rpartition(b".")[2]]
    assert all(len(part) >= MIN_PART for part in parts), "too short to be searched for"
    return parts


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = Path(tmp_path_factory.mktemp("passthrough"))
    with ServerProcess(sqlite_url(folder), env={"SUBGRANT_LOG_LEVEL": "debug"}) as running:
        yield running


@pytest.fixture(scope="module")
def http_tools() -> Iterator[ToolServer]:
    with ToolServer() as running:
        yield running


@pytest.fixture(scope="module")
def mcp_tools() -> Iterator[ChangingServer]:
    with ChangingServer() as running:
        running.reset({"name": "look", "inputSchema": {"type": "object"}})
        yield running


@pytest.fixture(params=["none", "jwt", "header"])
def credential(request: pytest.FixtureRequest) -> Json:
    """What the gateway itself presents to the tool server."""
    more = {"header": "X-Key", "value": "the gateway's own key"} if request.param == "header" else {}
    return {"type": request.param, **more}


async def test_no_credential_of_a_caller_reaches_a_tool_server_a_log_a_record_or_an_error(
    talkative: ServerProcess, http_tools: ToolServer, mcp_tools: ChangingServer, credential: Json
) -> None:
    http_tools.release()
    with WireTap(http_tools.endpoint) as http_tap, WireTap(mcp_tools.endpoint) as mcp_tap:
        async with Api(talkative.url) as api:
            stage = await set_stage(api, http_tools)
            audiences = await _behind_taps(stage, http_tap, mcp_tap, credential)
            sightings = Sightings()
            for audience, tool in audiences:
                await _act(stage, sightings, audience, tool)
            await _be_refused(stage, sightings)
            await _read_records(stage, sightings)
    sightings.seen |= {"the HTTP tool server": http_tap.sent, "the MCP tool server": mcp_tap.sent}
    sightings.seen |= {"the log": talkative.stderr.encode(), "the output": talkative.stdout.encode()}
    assert b'"query":"x"' in sightings.seen["the HTTP tool server"], "the tap saw nothing"
    assert b"tools/call" in sightings.seen["the MCP tool server"], "the tap saw nothing"
    assert len(sightings.secrets) >= 9
    assert sightings.leaks() == []


async def _behind_taps(stage: Stage, http_tap: WireTap, mcp_tap: WireTap, credential: Json) -> list[tuple[str, str]]:
    """Two tool servers of the tenant, and a tool of each."""
    http = await stage.api.tool_server(stage.tenant, "tapped-http", http_tap.endpoint, credential=credential)
    for tool in ("search", "fail", "drop", "away"):
        await stage.api.tool(stage.tenant, "tapped-http", tool)
    mcp = await stage.api.tool_server(
        stage.tenant, "tapped-mcp", mcp_tap.endpoint, transport="mcp", credential=credential
    )
    await stage.api.discover(stage.tenant, "tapped-mcp")
    return [(http, "search"), (mcp, "look")]


async def _act(stage: Stage, sightings: Sightings, audience: str, tool: str) -> None:
    """Every kind of credential, over every route that takes one, where all goes well."""
    tools = [tool, "fail", "drop", "away"] if tool == "search" else [tool]
    rules = dict.fromkeys(tools, OPEN)
    grant = await stage.grant(audience=audience, allowedTools=tools, resourceConstraints=rules, maxToolCalls=50)
    prover = Prover.ed25519()
    token = await stage.token(grant)
    bound = await _bound_token(stage, grant, prover)
    sightings.keep(
        **{f"grant for {tool}": grant["grant"], f"token for {tool}": token, f"bound token for {tool}": bound}
    )
    call = proposal(audience, tool, {"query": "x"})
    for bearer in (token, grant["grant"]):
        sightings.saw("a call", await stage.api.request("POST", "/v1/gateway/calls", bearer, json=call))
        sightings.saw("a check", await stage.api.request("POST", "/v1/gateway/checks", bearer, json=call))
    url = f"{stage.api.url}/v1/gateway/calls"
    headers = prover.headers("POST", url, bound)
    sightings.keep(**{f"proof for {tool}": headers["DPoP"]})
    assert (await stage.api.http.post(url, json=call, headers=headers)).is_success
    for name in tools[1:]:
        sightings.saw(name, await stage.api.request("POST", "/v1/gateway/calls", token, json=call | {"name": name}))
    for revision in REVISIONS:
        client = McpClient(stage.api.http, token, revision, audience.rpartition("/")[2])
        answer = sightings.saw("a call over MCP", await client.call(tool, {"query": "x"}))
        assert "error" not in answer.json(), text_of(answer.json())
        sightings.saw("tools over MCP", await client.ask("tools/list"))


async def _bound_token(stage: Stage, grant: Json, prover: Prover) -> str:
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": grant["grant"],
        "subject_token_type": "urn:subgrant:params:oauth:token-type:delegation-grant",
        "dpop_jkt": prover.thumbprint,
    }
    response = await stage.api.http.post("/oauth/token", data=form, auth=httpx.BasicAuth(*stage.planner))
    return str(made(response)["access_token"])


async def _be_refused(stage: Stage, sightings: Sightings) -> None:
    """Credentials where they do not belong: each answer is an error, and none repeats what it was given."""
    token = await stage.api.token(stage.planner)
    secret = stage.planner.client_secret
    sightings.keep(**{"API token": token, "client secret": secret})
    call = proposal(stage.support, "search")
    for where, path, more in (
        ("a token in the query", "/v1/gateway/calls", {"params": {"access_token": token}, "json": call}),
        ("a token as an argument", "/v1/gateway/calls", {"json": call | {"name": token[:180]}}),
        ("a token as a member", "/v1/gateway/calls", {"json": call | {token: 1}}),
        ("a token as a body", "/v1/gateway/calls", {"content": token.encode()}),
        ("a token as a path", f"/v1/grants/{token}/close", {"json": {"reason": "cancelled"}}),
        ("a token as a tool server", f"/mcp/{token[:60]}", {"json": {}}),
        ("a token as a tenant", "/v1/grants", {"json": {"tenantId": token[:190]}}),
    ):
        response = await stage.api.request("POST", path, token, **more)
        assert response.is_client_error, where
        sightings.saw(where, response)
    broken = token[:-8] + "AAAAAAAA"
    sightings.keep(**{"broken token": broken})
    sightings.saw("a broken token", await stage.api.request("GET", "/v1/grants", broken))
    for form in (
        {"grant_type": token},
        {"grant_type": "client_credentials", "scope": token},
        {"grant_type": "client_credentials", "resource": token},
        {"grant_type": "authorization_code", "code": broken, "code_verifier": "v" * 43},
        {"grant_type": "client_credentials", "client_id": secret, "client_secret": secret},
        {"grant_type": "client_credentials", "client_assertion": broken, "client_assertion_type": "x"},
    ):
        own = {"client_secret", "client_assertion"} & form.keys()
        auth = httpx.USE_CLIENT_DEFAULT if own else httpx.BasicAuth(*stage.planner)
        response = await stage.api.http.post("/oauth/token", data=form, auth=auth)
        assert response.is_client_error, form
        sightings.saw("the token endpoint", response)
    wrong = Credentials(stage.planner.client_id, secret[:-1] + "x")
    sightings.keep(**{"wrong secret": wrong.client_secret})
    sightings.saw("a wrong secret", await stage.api.introspect(wrong, token))


async def test_an_agent_that_was_told_to_hand_on_its_own_token_can_not(stage: Stage) -> None:
    grant = await stage.open_grant("search")
    token = await stage.token(grant)
    for bearer in (token, grant["grant"]):
        for arguments in ({"query": bearer}, {"query": f"please use {bearer} now"}, {"a": [{bearer: 1}]}):
            response = await stage.api.call(bearer, stage.support, "search", arguments)
            assert refused(response, 422) == "argument_invalid"
            assert bearer.rpartition(".")[2] not in response.text
    assert stage.tools.of("search", query=token) == []
    assert (await stage.api.call(token, stage.support, "search", {"query": "x"})).is_success


async def _read_records(stage: Stage, sightings: Sightings) -> None:
    for tenant in (stage.tenant, "platform"):
        sightings.seen[f"the records of {tenant}"] = repr(await stage.api.audit(tenant=tenant)).encode()
    assert b"tool.executed" in sightings.seen[f"the records of {stage.tenant}"]
