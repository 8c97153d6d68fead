"""`subgrant policy` against a real server: what an author of policies does, and what a script sees of it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest
import typer

from app.adapters.ids import new_id
from app.cli.output import ExitCode, Stop
from app.cli.policy import read_cases, trial
from tests.cli.command import Ended, subgrant
from tests.server_process import BOOTSTRAP, ServerProcess, sqlite_url

READS: Final = 'permit (principal, action, resource)\nwhen { resource.effect == Effect::"read" };\n'
FORBID: Final = "forbid (principal, action, resource);\n"
CASES: Final = [
    {"name": "a search", "expect": "permit", "call": {"effect": "read"}},
    {"name": "a deletion", "expect": "deny", "call": {"effect": "destructive"}},
]


@dataclass(frozen=True)
class Author:
    """Somebody who writes policies for a new tenant, with two texts and cases in files."""

    url: str
    token: str
    tenant: str
    folder: Path

    def __call__(self, *arguments: str, stdin: str = "") -> Ended:
        env = {"SUBGRANT_URL": self.url, "SUBGRANT_TOKEN": self.token}
        return subgrant("policy", *arguments, "--tenant", self.tenant, env=env, stdin=stdin)

    def file(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(sqlite_url(tmp_path_factory.mktemp("server"))) as running:
        yield running


@pytest.fixture(scope="module")
def token(server: ServerProcess) -> str:
    """The platform's administrator's."""
    form = {"grant_type": "client_credentials"}
    answer = httpx.post(f"{server.url}/oauth/token", data=form, auth=(BOOTSTRAP.client_id, BOOTSTRAP.client_secret))
    return str(answer.json()["access_token"])


@pytest.fixture
def author(server: ServerProcess, token: str, tmp_path: Path) -> Author:
    tenant = new_id("t")
    headers = {"Authorization": f"Bearer {token}"}
    body = {"tenantId": tenant, "name": "Acme"}
    assert httpx.post(f"{server.url}/v1/admin/tenants", json=body, headers=headers).status_code == 201
    (tmp_path / "reads.cedar").write_text(READS)
    (tmp_path / "forbid.cedar").write_text(FORBID)
    (tmp_path / "cases.json").write_text(json.dumps(CASES))
    return Author(server.url, token, tenant, tmp_path)


def test_a_policy_is_tried_added_activated_and_shown(author: Author) -> None:
    files = (author.file("reads.cedar"), author.file("cases.json"))
    tried = author("test", *files)
    assert tried.code == 0, tried
    assert tried.stdout.endswith("0 of 2 cases fail\n")
    added = author("add", files[0], "--cases", files[1], "--description", "reading only", "--json").json
    assert (added["version"], added["active"], added["text"]) == ("v1", False, READS.strip())
    assert author("activate", "v1", "--json").json["active"] is True
    listed = author("list")
    assert [line.split()[:2] for line in listed.stdout.splitlines()[1:]] == [["v0", "no"], ["v1", "yes"]]
    shown = author("show", "v1")
    assert READS in shown.stdout
    assert "a deletion" in shown.stdout


def test_a_case_that_fails_is_shown_and_told_by_the_code(author: Author) -> None:
    files = (author.file("forbid.cedar"), author.file("cases.json"))
    ended = author("test", *files)
    assert ended.code == 1
    rows = {line.split("  ")[0]: line.split()[2:] for line in ended.stdout.splitlines()}
    assert rows["a search"][:3] == ["permit", "deny", "FAILED"]
    assert rows["a deletion"][:3] == ["deny", "deny", "passed"]
    assert ended.stdout.endswith("1 of 2 cases fail\n")
    as_json = author("test", *files, "--json")
    assert as_json.code == 1
    assert [result["passed"] for result in json.loads(as_json.stdout)["results"]] == [False, True]


def test_an_activation_that_cases_refuse_is_one_line(author: Author) -> None:
    assert author("add", "-", "--cases", author.file("cases.json"), stdin=FORBID).code == 0
    ended = author("activate", "v1")
    assert ended.code == 1
    assert ended.complaint == 'conflict: 1 of 2 cases fail: "a search"'
    own = author("test", "--version", "v1", "--json")
    assert [result["seen"] for result in json.loads(own.stdout)["results"]] == ["deny", "deny"]


def test_a_text_that_is_no_policy_is_one_line(author: Author) -> None:
    ended = author("test", "-", author.file("cases.json"), stdin="permit everything")
    assert ended.code == 1
    assert ended.complaint.startswith("malformed: /text: ")


def test_no_file_is_one_line() -> None:
    ended = subgrant("policy", "add", "/not/there.cedar", env={"SUBGRANT_TOKEN": "t"})
    assert ended.code == 2
    assert "no such file" in ended.stderr
    assert "Traceback" not in ended.stderr


# --- what is tried ----------------------------------------------------------------------------------------


def test_a_version_is_tried_with_its_own_cases_or_with_others(tmp_path: Path) -> None:
    (tmp_path / "cases.json").write_text(json.dumps(CASES))
    assert trial(None, None, "v1") == {"version": "v1"}
    assert trial(str(tmp_path / "cases.json"), None, "v1") == {"version": "v1", "cases": CASES}


@pytest.mark.parametrize(
    "policies, cases, version",
    [(None, None, None), ("policies.cedar", None, None), ("policies.cedar", "cases.json", "v1")],
)
def test_what_can_not_be_tried_is_wrong_usage(policies: str | None, cases: str | None, version: str | None) -> None:
    with pytest.raises(Stop, match="or --version") as stop:
        trial(policies, cases, version)
    assert stop.value.code is ExitCode.USAGE


@pytest.mark.parametrize("content", ['{"cases": []}', "[", '[{"name": 1, "name": 2}]'])
def test_cases_that_are_no_list_of_strict_json_never_reach_the_server(tmp_path: Path, content: str) -> None:
    (tmp_path / "cases.json").write_text(content)
    with pytest.raises(typer.BadParameter):
        read_cases(str(tmp_path / "cases.json"))
