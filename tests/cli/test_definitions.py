"""Changed tools at the terminal: every difference is seen, nothing hides in it, and it is accepted by its digest."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from app.cli.definitions import changes, visible
from app.cli.servers import discovered
from app.core.strict_json import JsonObject
from tests.changing_server import ChangingServer
from tests.cli.command import Ended, subgrant
from tests.server_process import BOOTSTRAP, ServerProcess, sqlite_url

SCHEMA: Final = {"type": "object", "properties": {"to": {"type": "string"}, "old": {}}}
SEND: Final = {"name": "send", "description": "Sends a message.", "inputSchema": SCHEMA}
CHANGED: Final = {
    "name": "send",
    "description": "Sends a message.\u200b And more.",
    "inputSchema": {"type": "object", "properties": {"to": {"type": "string"}, "bcc": {"type": "string"}}},
}
SHOWN: Final = """
/description
  - "Sends a message."
  + "Sends a message.\\u200b And more."
/inputSchema/properties/old
  - {}
/inputSchema/properties/bcc
  + {"type": "string"}
"""


@dataclass(frozen=True)
class Stage:
    server: ServerProcess
    tools: ChangingServer

    def admin(self, *arguments: str) -> Ended:
        client_id, secret = BOOTSTRAP
        env = {"SUBGRANT_URL": self.server.url, "SUBGRANT_CLIENT_ID": client_id, "SUBGRANT_CLIENT_SECRET": secret}
        return subgrant(*arguments, "--tenant", "acme", env=env)

    def show(self) -> dict[str, Any]:
        return self.admin("tools", "show", "desk", "send", "--json").json


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder: Path = tmp_path_factory.mktemp("definitions")
    with ServerProcess(sqlite_url(folder)) as server, ChangingServer() as tools:
        client_id, secret = BOOTSTRAP
        env = {"SUBGRANT_URL": server.url, "SUBGRANT_CLIENT_ID": client_id, "SUBGRANT_CLIENT_SECRET": secret}
        assert subgrant("tenants", "create", "acme", "--name", "Acme", env=env).code == 0
        made = Stage(server, tools)
        where = ("--transport", "mcp", "--endpoint", tools.endpoint, "--definition-max-age-seconds", "0.5")
        assert made.admin("servers", "create", "desk", *where, "--json").json["definitionMaxAgeSeconds"] == 0.5
        yield made


def test_a_change_is_seen_difference_by_difference_and_accepted_by_its_digest(stage: Stage) -> None:
    stage.tools.reset(SEND)
    assert stage.admin("servers", "discover", "desk", "--json").json["added"] == ["send"]
    assert "changed" not in stage.admin("tools", "show", "desk", "send").stdout
    pinned = stage.show()["definitionDigest"]

    stage.tools.reset(CHANGED)
    found = stage.admin("servers", "discover", "desk")
    assert found.code == 0
    pending = stage.show()["pending"]["definitionDigest"]
    shown = stage.admin("tools", "show", "desk", "send")
    for ended in (found, shown):
        assert SHOWN in ended.stdout
        assert f"pinned  {pinned}\npending {pending}\n" in ended.stdout
        assert "\u200b" not in ended.stdout
    (row,) = [line for line in stage.admin("tools", "list", "desk").stdout.splitlines() if line.startswith("send")]
    assert " yes " in row

    refused = stage.admin("tools", "accept", "desk", "send", "--digest", pinned)
    assert refused.code == 1
    assert refused.complaint.startswith("conflict: ")
    assert "pending" in stage.show()

    ended = stage.admin("tools", "accept", "desk", "send", "--digest", pending)
    assert ended.code == 0
    assert "refused until accepted" not in ended.stdout
    now = stage.show()
    assert (now["definitionDigest"], now["description"]) == (pending, CHANGED["description"])
    assert "pending" not in now


def test_what_can_not_be_shown_says_so_and_steers_no_terminal(stage: Stage) -> None:
    stage.tools.reset({"name": "bell", "description": "x", "inputSchema": {"type": "object"}})
    assert stage.admin("servers", "discover", "desk", "--json").json["added"] == ["bell"]
    stage.tools.reset({"name": "bell", "description": "\x1b[2J\x07", "inputSchema": {"type": "object"}})
    for ended in (stage.admin("servers", "discover", "desk"), stage.admin("tools", "show", "desk", "bell")):
        assert "can't be shown: " in ended.stdout
        assert "control characters" in ended.stdout
        assert "\x1b" not in ended.stdout
        assert "\x07" not in ended.stdout


@given(st.text())
def test_nothing_hides_in_a_value(text: str) -> None:
    shown = visible({"said": text})
    assert shown.isprintable()
    assert json.loads(shown) == {"said": text}


def test_a_difference_is_coloured_and_no_markup_is_read() -> None:
    pending: JsonObject = {
        "definitionDigest": "d2",
        "seenAt": "2026-06-01T12:00:00Z",
        "difference": [{"kind": "added", "pointer": "/inputSchema/[red]x[/red]", "after": "[bold]y[/bold]"}],
    }
    tool: JsonObject = {"name": "send", "definitionDigest": "d1", "pending": pending}
    console = Console(force_terminal=True, color_system="standard", width=200, markup=False)
    with console.capture() as captured:
        console.print(changes(tool), discovered({"changed": ["send"], "pending": [tool]}))
    assert captured.get().count("/inputSchema/[red]x[/red]") == 2
    assert captured.get().count('\x1b[32m  + "[bold]y[/bold]"\x1b[0m') == 2
