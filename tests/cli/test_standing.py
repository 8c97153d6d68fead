"""`subgrant standing`: what an administrator gives a client is what a token of that client can do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Ended, subgrant
from tests.server_process import BOOTSTRAP, ServerProcess, sqlite_url


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(sqlite_url(Path(tmp_path_factory.mktemp("standing")))) as running:
        yield running


def _run(server: ServerProcess, *arguments: str) -> Ended:
    client_id, secret = BOOTSTRAP
    env = {"SUBGRANT_URL": server.url, "SUBGRANT_CLIENT_ID": client_id, "SUBGRANT_CLIENT_SECRET": secret}
    return subgrant(*arguments, env=env)


def test_a_standing_grant_is_made_listed_and_closed_by_commands(server: ServerProcess) -> None:
    tool = '{"description": "Search.", "inputSchema": {"type": "object"}, "effect": "read"}'
    endpoint = ("--endpoint", "http://127.0.0.1:9/crm", "--transport", "http")
    limits = '{"audiences": ["*"], "allowedTools": ["*"], "maxToolCalls": 10}'
    assert _run(server, "tenants", "create", "acme", "--name", "Acme").code == 0
    assert _run(server, "servers", "create", "crm", "--tenant", "acme", *endpoint).code == 0
    assert _run(server, "tools", "put", "crm", "search", "--tenant", "acme", "--body", tool).code == 0
    created = _run(server, "clients", "create", "team/agent", "--tenant", "acme", "--kind", "agent", "--limits", limits)
    assert created.code == 0, created

    audience = f"{server.url}/mcp/crm"
    wish = ("--audience", audience, "--tool", "search", "--max-tool-calls", "7")
    made = _run(server, "standing", "create", "team/agent", *wish, "--json").json
    assert (made["standing"], made["maxToolCalls"], made["subject"]) == (True, 7, "team/agent")
    again = _run(server, "standing", "create", "team/agent", *wish)
    assert again.complaint == f"conflict: the client has a standing grant for this tool server: {made['grantId']}"
    table = _run(server, "standing", "list", "team/agent").stdout
    assert all(word in table for word in (made["grantId"], "active", "0/7", "search"))
    assert _run(server, "standing", "list", "team/agent", "--tenant", "acme", "--json").json["items"][0] == made
    wrong = _run(server, "standing", "create", "team/agent", "--audience", "x")
    assert wrong.complaint == "malformed: /audience: must be an absolute URI without a fragment, or a list of such"
    nobody = _run(server, "standing", "list", "nobody")
    assert nobody.complaint == "not_found: there is no such client"
    a_tenants_grants_are_reached_from_the_platform(server, made["grantId"])


def a_tenants_grants_are_reached_from_the_platform(server: ServerProcess, grant: str) -> None:
    """Whoever administers the platform reads and closes what it had made in a tenant, by naming the tenant."""
    assert _run(server, "grants", "close", grant).complaint == "not_found: no such grant"
    of_acme = ("--tenant", "acme", "--json")
    assert [each["grantId"] for each in _run(server, "grants", "list", *of_acme).json["items"]] == [grant]
    assert _run(server, "grants", "show", grant, *of_acme).json["grantId"] == grant
    assert _run(server, "grants", "lineage", grant, *of_acme).json["subtree"][0]["grantId"] == grant
    assert [each["name"] for each in _run(server, "grants", "tools", grant, *of_acme).json["tools"]] == ["search"]
    assert "search" in _run(server, "grants", "tools", grant, "--tenant", "acme").stdout
    assert _run(server, "grants", "close", grant, *of_acme).json["closedGrants"] == [grant]
