"""`subgrant keys`: a rotation and a retirement the way an operator goes, who is asked before anything ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Ended, subgrant
from tests.server_process import BOOTSTRAP, ServerProcess, sqlite_url

ENV = {"SUBGRANT_KEYS_GOOD_FOR_SECONDS": "0.5"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(sqlite_url(Path(tmp_path_factory.mktemp("keys"))), env=ENV) as running:
        yield running


def _keys(server: ServerProcess, *arguments: str, stdin: str = "") -> Ended:
    client_id, secret = BOOTSTRAP
    env = {"SUBGRANT_URL": server.url, "SUBGRANT_CLIENT_ID": client_id, "SUBGRANT_CLIENT_SECRET": secret}
    return subgrant("keys", *arguments, env=env, stdin=stdin)


def _statuses(server: ServerProcess) -> dict[str, str]:
    return {key["kid"]: key["status"] for key in _keys(server, "list", "--json").json["items"]}


def test_a_key_is_replaced_and_retired_by_commands(server: ServerProcess) -> None:
    new = _keys(server, "rotate", "--json").json
    statuses = _statuses(server)
    assert (new["status"], statuses.pop(new["kid"])) == ("published", "published")
    (old,) = [kid for kid, status in statuses.items() if status == "signing"]
    only = _keys(server, "retire", old, "--yes")
    assert only.code == 1
    assert only.complaint == "conflict: it is the only key that signs: make another and wait until that one does"
    would_end = _keys(server, "retire", new["kid"], "--dry-run", "--json").json
    assert (would_end["liveGrants"], would_end["key"]["status"]) == (0, "published")
    assert _statuses(server)[new["kid"]] == "published"
    retired = _keys(server, "retire", new["kid"], "--yes", "--json").json["key"]
    assert (retired["status"], retired["kid"]) == ("retired", new["kid"])
    table = _keys(server, "list").stdout
    assert all(word in table for word in (old, new["kid"], "signing", "retired"))


def test_nothing_is_retired_by_whoever_does_not_say_yes(server: ServerProcess) -> None:
    new = _keys(server, "rotate", "--lead-seconds", "0", "--json").json["kid"]
    for answer in ("n\n", ""):
        ended = _keys(server, "retire", new, stdin=answer)
        assert (ended.code, ended.stdout.strip()) == (1, "")
        assert ended.stderr.startswith("0 live grants rest on it")
    assert _statuses(server)[new] != "retired"
    assert _keys(server, "retire", new, stdin="y\n").code == 0
    assert _statuses(server)[new] == "retired"


def test_an_unknown_key_is_one_line(server: ServerProcess) -> None:
    assert _keys(server, "retire", "none", "--yes").complaint == "not_found: there is no such key"
