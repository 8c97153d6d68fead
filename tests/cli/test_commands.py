"""Every command against a real server and a real tool server: the way an operator and an agent go."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from app.cli.audit import verify_export
from app.cli.output import Stop
from tests.cli.command import Ended, subgrant
from tests.server_process import BOOTSTRAP, ServerProcess, sqlite_url
from tests.tool_server import ToolServer

SCHEMA: Final = {
    "type": "object",
    "properties": {"customerId": {"type": "string"}},
    "required": ["customerId"],
    "additionalProperties": False,
}
CONSTRAINTS: Final = {"search": {"customerId": {"eq": "c_42"}}}
LIMITS: Final = {
    "audiences": ["*"],
    "allowedTools": ["*"],
    "maxToolCalls": 100,
    "maxSpendCents": 1000,
    "maxLifetimeSeconds": 3600,
}


@dataclass(frozen=True)
class Stage:
    """A server with a tenant, an orchestrator and a tool server, all made by commands."""

    server: ServerProcess
    tools: ToolServer
    audience: str
    secret: str

    def admin(self, *arguments: str, stdin: str = "") -> Ended:
        return _as(self.server, *BOOTSTRAP, arguments, stdin)

    def bot(self, *arguments: str, stdin: str = "") -> Ended:
        return _as(self.server, "bot", self.secret, arguments, stdin)

    def call(self, token: str, *arguments: str) -> Ended:
        """`subgrant call` of the one tool, under a token and nothing else."""
        command = ("call", "search", "--server", self.audience, *arguments)
        return subgrant(*command, env={"SUBGRANT_URL": self.server.url, "SUBGRANT_TOKEN": token})

    def mint(self, *arguments: str) -> dict[str, Any]:
        """A grant for the one tool and customer."""
        wanted = ("--audience", self.audience, "--tool", "search", "--constraints", json.dumps(CONSTRAINTS))
        budget = ("--max-tool-calls", "5", "--max-spend-cents", "50")
        return self.bot("grants", "mint", *wanted, *budget, "--may-redelegate", *arguments, "--json").json

    def token(self, grant: str, *arguments: str) -> str:
        ended = self.bot("token", "exchange", "-", *arguments, stdin=grant)
        assert ended.code == 0, ended
        return ended.stdout.strip()


def _as(server: ServerProcess, client_id: str, secret: str, arguments: tuple[str, ...], stdin: str) -> Ended:
    env = {"SUBGRANT_URL": server.url, "SUBGRANT_CLIENT_ID": client_id, "SUBGRANT_CLIENT_SECRET": secret}
    return subgrant(*arguments, env=env, stdin=stdin)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    with ServerProcess(sqlite_url(folder)) as server, ToolServer() as tools:
        bare = Stage(server, tools, "", "")
        bare.admin("tenants", "create", "acme", "--name", "Acme", "--json").json  # noqa: B018 (it asserts)
        (folder / "limits.json").write_text(json.dumps(LIMITS))
        scopes = ("--scope", "grants:issue", "--scope", "grants:read", "--scope", "audit:read")
        limits = ("--limits", f"@{folder / 'limits.json'}", "--tenant", "acme", "--json")
        client = bare.admin("clients", "create", "bot", "--kind", "orchestrator", *scopes, *limits).json
        where = ("--transport", "http", "--endpoint", tools.endpoint, "--tenant", "acme")
        made = bare.admin("servers", "create", "support", *where, "--json").json
        what = ("--effect", "read", "--cost-cents", "1.5", "--description", "Find cases", "--input-schema", "-")
        put = ("tools", "put", "support", "search", *what, "--tenant", "acme", "--json")
        bare.admin(*put, stdin=json.dumps(SCHEMA)).json  # noqa: B018
        yield Stage(server, tools, made["audience"], client["clientSecret"])


# --- the way through --------------------------------------------------------------------------------------


def test_a_grant_is_minted_exchanged_and_used(stage: Stage) -> None:
    token = stage.token(stage.mint()["grant"])
    ended = stage.call(token, "--args", '{"customerId": "c_42"}')
    assert ended.code == 0
    assert json.loads(ended.stdout)["arguments"] == {"customerId": "c_42"}
    assert ended.stderr.startswith("success · ")
    assert ended.stderr.endswith(" · 1.5 ¢\n")


def test_what_is_refused_is_one_line_and_never_reaches_the_tool(stage: Stage) -> None:
    token = stage.token(stage.mint()["grant"])
    ended = stage.call(token, "--args", '{"customerId": "c_13"}')
    assert ended.code == 1
    assert ended.complaint.startswith("resource_out_of_scope: ")
    assert stage.tools.of("search", customerId="c_13") == []


def test_a_check_decides_and_runs_nothing(stage: Stage) -> None:
    token = stage.token(stage.mint()["grant"])
    before = len(stage.tools.requests)
    allowed = stage.call(token, "--check", "--args", '{"customerId": "c_42"}')
    refused = stage.call(token, "--check", "--args", '{"customerId": "c_13"}')
    assert (allowed.code, allowed.stdout) == (0, "allow\n")
    assert refused.code == 1
    assert refused.complaint.startswith("resource_out_of_scope: ")
    assert len(stage.tools.requests) == before


def test_a_check_as_json_tells_by_its_code_too(stage: Stage) -> None:
    token = stage.token(stage.mint()["grant"])
    ended = stage.call(token, "--check", "--json", "--args", '{"customerId": "c_13"}')
    assert ended.code == 1
    assert json.loads(ended.stdout)["decisions"][0]["reason"] == "resource_out_of_scope"


def test_a_repeat_with_the_same_key_runs_nothing(stage: Stage) -> None:
    token = stage.token(stage.mint()["grant"])
    arguments = ("--args", '{"customerId": "c_42"}', "--idempotency-key", "once", "--json")
    before = len(stage.tools.requests)
    first, second = (stage.call(token, *arguments).json for _ in range(2))
    assert first["callId"] == second["callId"]
    assert len(stage.tools.requests) == before + 1


def test_an_exchange_narrows_by_options_and_by_a_document(stage: Stage) -> None:
    grant = stage.mint()["grant"]
    narrowed = stage.bot(
        *("token", "exchange", grant, "--max-tool-calls", "1", "--body", '{"maxSpendCents": 2}'),
        *("--resource", stage.audience, "--json"),
    ).json
    (details,) = narrowed["authorization_details"]
    assert (details["maxToolCalls"], details["maxSpendCents"]) == (1, 2)


def test_an_exchange_that_would_widen_is_one_line(stage: Stage) -> None:
    ended = stage.bot("token", "exchange", stage.mint()["grant"], "--max-tool-calls", "6")
    assert ended.code == 1
    assert ended.complaint.startswith("not_narrower: ")


def test_a_child_grant_comes_by_derivation_and_by_exchange(stage: Stage) -> None:
    parent = stage.mint()
    derived = stage.bot("grants", "derive", parent["grantId"], "--max-tool-calls", "2", "--json").json
    exchanged = stage.bot("token", "exchange", parent["grant"], "--as", "grant", "--child-run", "run-b", "--json").json
    assert derived["parentGrantId"] == parent["grantId"]
    assert exchanged["authorization_details"][0]["parentGrantId"] == parent["grantId"]
    assert exchanged["token_type"] == "N_A"


def test_a_lineage_is_a_tree_with_budgets(stage: Stage) -> None:
    parent = stage.mint()
    child = stage.bot("grants", "derive", parent["grantId"], "--max-tool-calls", "2", "--json").json
    stage.call(stage.token(child["grant"]), "--args", '{"customerId": "c_42"}')
    shown = stage.bot("grants", "lineage", child["grantId"])
    assert shown.code == 0
    lines = {
        name: line
        for line in shown.stdout.splitlines()
        for name in (parent["grantId"], child["grantId"])
        if name in line
    }
    assert "calls 1/5 · 1.5/50 ¢" in lines[parent["grantId"]]
    assert "calls 1/2 · 1.5/50 ¢" in lines[child["grantId"]]
    assert lines[child["grantId"]].index("gr_") > lines[parent["grantId"]].index("gr_")


def test_a_closed_grant_is_worth_nothing(stage: Stage) -> None:
    grant = stage.mint()
    token = stage.token(grant["grant"])
    assert stage.bot("grants", "close", grant["grantId"], "--reason", "task_complete").code == 0
    assert stage.bot("grants", "show", grant["grantId"], "--json").json["status"] == "closed"
    assert stage.call(token, "--args", '{"customerId": "c_42"}').complaint.startswith("grant_closed: ")


# --- the other verbs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command, member, value",
    [
        (("tenants", "list"), "tenantId", "acme"),
        (("clients", "list", "--tenant", "acme"), "clientId", "bot"),
        (("servers", "list", "--tenant", "acme"), "name", "support"),
        (("tools", "list", "support", "--tenant", "acme"), "name", "search"),
    ],
)
def test_lists_come_as_tables_and_as_documents(stage: Stage, command: tuple[str, ...], member: str, value: str) -> None:
    assert value in [item[member] for item in stage.admin(*command, "--json").json["items"]]
    table = stage.admin(*command)
    assert table.code == 0
    assert value in table.stdout


@pytest.mark.parametrize(
    "command, member, value",
    [
        (("tenants", "show", "acme"), "name", "Acme"),
        (("clients", "show", "bot"), "kind", "orchestrator"),
        (("servers", "show", "support", "--tenant", "acme"), "transport", "http"),
        (("tools", "show", "support", "search", "--tenant", "acme"), "costCents", 1.5),
    ],
)
def test_one_thing_comes_as_facts_and_as_a_document(
    stage: Stage, command: tuple[str, ...], member: str, value: object
) -> None:
    assert stage.admin(*command, "--json").json[member] == value
    shown = stage.admin(*command)
    assert any(line.split() == [member, str(value)] for line in shown.stdout.splitlines())


def test_grants_are_listed_a_page_at_a_time(stage: Stage) -> None:
    newest = [stage.mint()["grantId"] for _ in range(2)][::-1]
    first = stage.bot("grants", "list", "--limit", "1")
    assert newest[0] in first.stdout
    assert first.stderr == f"there is more: --before {newest[0]}\n"
    second = stage.bot("grants", "list", "--limit", "1", "--before", newest[0], "--active", "--json").json
    assert [grant["grantId"] for grant in second["items"]] == newest[1:]


def test_a_client_gets_a_new_secret_and_is_disabled(stage: Stage) -> None:
    made = stage.admin("clients", "create", "ops/2", "--kind", "agent", "--tenant", "acme", "--json").json
    rotated = stage.admin("clients", "rotate-secret", "ops/2", "--json").json
    assert rotated["clientSecret"] != made["clientSecret"]
    assert stage.admin("clients", "disable", "ops/2", "--json").json["status"] == "disabled"


def test_a_tool_server_is_disabled_and_a_tool_removed(stage: Stage) -> None:
    where = ("--endpoint", stage.tools.endpoint, "--transport", "http", "--tenant", "acme")
    secret = ("--credential", "header", "--credential-header", "X-Key", "--credential-value", "-")
    made = stage.admin("servers", "create", "spare", *where, *secret, stdin="a secret\n")
    assert made.code == 0, made
    assert "a secret" not in made.stdout
    definition = '{"description": "d", "inputSchema": {"type": "object"}, "effect": "read"}'
    tool = ("spare", "look", "--tenant", "acme")
    assert stage.admin("tools", "put", *tool, "--body", "-", stdin=definition).code == 0
    assert stage.admin("tools", "remove", *tool).stdout == "look of spare is removed\n"
    assert stage.admin("tools", "show", *tool).complaint.startswith("not_found: ")
    assert stage.admin("servers", "disable", "spare", "--tenant", "acme", "--json").json["status"] == "disabled"


def test_a_plain_tool_server_offers_nothing_to_discover(stage: Stage) -> None:
    ended = stage.admin("servers", "discover", "support", "--tenant", "acme")
    assert ended.code == 1
    assert ended.complaint.startswith("conflict: ")


def test_a_tenant_is_disabled(stage: Stage) -> None:
    assert stage.admin("tenants", "create", "globex").code == 0
    assert stage.admin("tenants", "disable", "globex", "--json").json["status"] == "disabled"


# --- audit ------------------------------------------------------------------------------------------------


def test_records_are_filtered(stage: Stage) -> None:
    grant = stage.mint()
    page = stage.bot("audit", "records", "--grant", grant["grantId"], "--json").json
    assert {record["type"] for record in page["items"]} == {"delegation.created", "delegation.scope"}
    table = stage.bot("audit", "records", "--type", "delegation.created", "--limit", "1")
    assert grant["grantId"] in table.stdout


def test_the_log_is_verified_by_its_server(stage: Stage) -> None:
    assert stage.bot("audit", "verify", "--json").json["ok"] is True


def test_an_export_is_verified_without_a_server(stage: Stage, tmp_path: Path) -> None:
    export = stage.bot("audit", "records", "--all")
    assert export.code == 0
    file = tmp_path / "log.ndjson"
    file.write_text(export.stdout)
    ended = subgrant("audit", "verify", str(file), "--json")
    assert ended.json["records"] == len(export.stdout.splitlines())


def test_a_changed_export_is_found_out(stage: Stage, tmp_path: Path) -> None:
    lines = stage.bot("audit", "records", "--all").stdout.splitlines(keepends=True)
    file = tmp_path / "log.ndjson"
    file.write_text("".join([lines[0], lines[1].replace('"time": "2', '"time": "3'), *lines[2:]]))
    assert verify_export(file)["fault"] == {"seq": 2, "detail": "the record was changed"}
    file.write_text("".join([lines[0], *lines[2:]]))
    assert verify_export(file)["ok"] is False


def test_a_part_of_a_log_says_which_part_it_is_and_nothing_proves_nothing(stage: Stage, tmp_path: Path) -> None:
    lines = stage.bot("audit", "records", "--all").stdout.splitlines(keepends=True)
    file = tmp_path / "part"
    file.write_text("".join(lines[2:]))
    found = verify_export(file)
    assert (found["ok"], found["firstSeq"], found["records"]) == (True, 3, len(lines) - 2)
    file.write_text("")
    with pytest.raises(Stop):
        verify_export(file)
    ended = subgrant("audit", "verify", str(file))
    assert ended.code == 1


def test_what_is_no_export_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "log.ndjson"
    file.write_text("{}\n")
    assert subgrant("audit", "verify", str(file)).complaint == f"{file}:1: this is no audit record: without hashes"


# --- what goes wrong --------------------------------------------------------------------------------------


def test_nobody_there_is_one_line_and_its_own_code(stage: Stage) -> None:
    ended = subgrant("tenants", "list", "--url", "http://127.0.0.1:1", env={"SUBGRANT_TOKEN": "t"})
    assert ended.code == 3
    assert ended.complaint == "can't reach http://127.0.0.1:1: connection refused"


def test_a_wrong_secret_is_one_line_without_the_secret(stage: Stage) -> None:
    ended = _as(stage.server, "bot", "a wrong secret", ("grants", "list"), "")
    assert ended.code == 1
    assert ended.complaint.startswith("invalid_client: ")
    assert "a wrong secret" not in ended.stderr


def test_a_wrong_token_is_one_line_without_the_token(stage: Stage) -> None:
    ended = stage.call("not.a.token")
    assert ended.code == 1
    assert ended.complaint.startswith("token_invalid: ")
    assert "not.a.token" not in ended.stderr


def test_another_service_is_told_apart(stage: Stage) -> None:
    ended = subgrant("tenants", "list", "--url", stage.tools.endpoint, env={"SUBGRANT_TOKEN": "t"})
    assert ended.code == 1
    assert ended.complaint.startswith("http_40")


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (("tenants", "list"), "credentials are needed"),
        (("call", "search", "--server", "x"), "a call needs a token"),
        (("tenants", "list", "--url", "ftp://x"), "--url: must be"),
        (("tenants", "list", "--url", "http://user:secret@x"), "--url: must be"),
        (("tenants", "list", "--url", "http://x:port"), "--url: must be"),
        (("tenants", "list", "--token", "a secret"), "--token: this is no token"),
        (("call", "search", "--server", "x", "--args", '{"a": 1, "a": 2}'), "twice"),
        (("call", "search", "--server", "x", "--args", "[]"), "must be a JSON object"),
        (("call", "search", "--server", "x", "--args", "@/not/there"), "no such file"),
        (("grants", "close"), "Missing argument"),
        (("grants", "list", "--limit", "0"), "greater than or equal to 1"),
        (("frobnicate",), "No such command"),
    ],
)
def test_wrong_usage_says_what_is_wrong(arguments: tuple[str, ...], complaint: str) -> None:
    ended = subgrant(*arguments)
    assert ended.code == 2
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "secret" not in ended.stderr.lower().replace("subgrant_client_secret", "")
