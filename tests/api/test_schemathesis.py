"""The whole API against its own description, by a fuzzer that knows nothing else of it.

Schemathesis is a program of its own (it needs another version of what Subgrant runs on). It reads the description
that a real server serves, breaks every rule of it and keeps every rule of it, and follows what one operation makes
to the next. Three callers go round: each gets somewhere else. The same seed makes the same requests.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote_plus

import pytest

from tests.api_client import Api, Credentials, Json
from tests.attacks.stage import Stage, set_stage
from tests.server_process import ServerProcess, sqlite_url
from tests.tool_server import ToolServer

pytestmark = pytest.mark.anyio

PROGRAM: Final = Path(sys.prefix) / "apart" / "bin" / "st"
CONFIGURATION: Final = Path(__file__).with_name("schemathesis.toml")
ALONE: Final = frozenset({"examples", "coverage", "fuzzing"})
IN_TURN: Final = ALONE | {"stateful"}
"""Each operation alone, and what one of them makes handed to the next."""

EXAMPLES: Final = 3
"""For each operation and phase, beside the cases that its schema names by itself."""


class Round(NamedTuple):
    """Who goes round, and where."""

    caller: str
    flag: str
    paths: str
    at_least: int
    phases: frozenset[str]


ROUNDS: Final = (
    Round("administrator", "--include-path-regex", "^/v1/admin", 30, IN_TURN),
    Round("orchestrator", "--exclude-path-regex", "^/v1/admin", 15, IN_TURN),
    Round("agent", "--include-path-regex", "^/(v1/gateway|mcp)", 3, ALONE),
)


async def bearer_of(stage: Stage, caller: str) -> tuple[Credentials, str]:
    """Who authenticates as a client, and with which token everywhere else."""
    if caller == "administrator":
        return stage.api.admin, await stage.api.token(stage.api.admin)
    if caller == "orchestrator":
        return stage.planner, await stage.api.token(stage.planner)
    return stage.planner, await stage.token(await stage.grant(maxToolCalls=1000, maxSpendCents=1000))


def run(server: ServerProcess, where: Round, client: Credentials, token: str, folder: Path) -> Json:
    """The fuzzer's report, after it ended well or not; what it printed is shown if it did not."""
    report = folder / "report.json"
    environment = os.environ | {
        "SUBGRANT_TOKEN": token,
        "SUBGRANT_CLIENT_ID": quote_plus(client.client_id),
        "SUBGRANT_CLIENT_SECRET": quote_plus(client.client_secret),
    }
    command = [str(PROGRAM), "--no-color", "--config-file", str(CONFIGURATION), "run", f"{server.url}/openapi.json"]
    command += ["--max-examples", str(EXAMPLES), "--no-shrink", where.flag, where.paths]
    command += ["--report", "json", "--report-json-path", str(report)]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr + server.stderr
    document: Json = json.loads(report.read_text())
    return document


@pytest.mark.timeout(300)
@pytest.mark.parametrize("where", ROUNDS, ids=lambda where: where.caller)
async def test_every_operation_is_what_its_description_says(where: Round, tmp_path: Path) -> None:
    with ToolServer() as tools, ServerProcess(sqlite_url(tmp_path)) as server:
        tools.release()
        async with Api(server.url) as api:
            client, token = await bearer_of(await set_stage(api, tools), where.caller)
        report = run(server, where, client, token, tmp_path)
        assert not report["failures"]
        assert not report["errors"]
        operations = report["operations"]
        assert operations["tested"] == operations["selected"] >= where.at_least
        assert {name for name, phase in report["phases"].items() if phase["status"] == "success"} == where.phases
        assert "Traceback" not in server.stderr
