"""`@modelcontextprotocol/conformance`, run as it was published: what it checked, and how each check ended.

Knows the suite's command line and the files that it leaves. What is expected to fail is a table of the repository's,
`expected_failures.toml`, and not the suite's own kind of baseline: each entry there stands with its reason.
"""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.clients.node import MODULES, NODE, environment, run_node

SUITE: Final = MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
EXPECTED: Final = Path(__file__).parent / "expected_failures.toml"
WAIT_SECONDS: Final = 30
COUNTED: Final = ("SUCCESS", "FAILURE")
"""The rest are remarks: a recommendation not followed, or something that does not apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of one scenario; a scenario may make the same one several times."""

    scenario: str
    id: str
    status: str
    message: str

    @property
    def name(self) -> str:
        return f"{self.scenario}:{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run of the suite found."""

    checks: tuple[Check, ...]

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if check.status == "FAILURE"]

    def surprises(self, run: str) -> dict[str, str]:
        """What failed and is not expected to in this run, and what is expected to and did not."""
        expected = expected_failures(run)
        found = {check.name for check in self.failed} | {check.scenario for check in self.failed}
        failed = {check.name: check.message for check in self.failed if not {check.name, check.scenario} & expected}
        return failed | dict.fromkeys(expected - found, "passes, and is in expected_failures.toml")

    @property
    def scenarios(self) -> set[str]:
        return {check.scenario for check in self.checks}

    def __str__(self) -> str:
        counted = [check for check in self.checks if check.status in COUNTED]
        passed = sum(check.status == "SUCCESS" for check in counted)
        whole = len(self.scenarios) - len({check.scenario for check in self.failed})
        return f"{passed}/{len(counted)} checks, {whole}/{len(self.scenarios)} scenarios without a failure"


def run_suite(side: str, *arguments: str, folder: Path) -> Report:
    """One run of the suite against one side of MCP, `server` or `client`."""
    folder.mkdir(exist_ok=True)
    ran = run_node(SUITE, side, *arguments, "--output-dir", str(folder / "results"), cwd=folder)
    report = report_of(folder, side)
    assert report.checks, f"{ran.stdout}{ran.stderr}"
    return report


@contextmanager
def authorization_suite(*arguments: str, folder: Path) -> Iterator[str]:
    """A run against an authorization server: where a browser has to go, which the suite then waits for."""
    command = [str(NODE), str(SUITE), "authorization", *arguments, "--output-dir", str(folder / "results")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment(str(folder))
    ) as suite:
        assert suite.stdout is not None
        try:
            yield next(line.strip() for line in suite.stdout if "code_challenge=" in line)
            suite.communicate(timeout=WAIT_SECONDS)
        finally:
            suite.kill()


def report_of(folder: Path, side: str) -> Report:
    """What a run left in a folder."""
    return Report(checks=tuple(_checks(folder / "results", side)))


def expected_failures(run: str) -> set[str]:
    """The scenarios, and the checks of scenarios, that fail in a run; why that is right stands beside them."""
    groups: list[dict[str, Any]] = tomllib.loads(EXPECTED.read_text("utf-8"))["expected"]
    return {entry for group in groups for entry in group.get(run, ())}


def _checks(results: Path, side: str) -> Iterator[Check]:
    for file in sorted(results.rglob("checks.json")):
        scenario = _scenario(file.parent.relative_to(results).as_posix(), side)
        entries: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))
        for entry in entries:
            message = entry.get("errorMessage", "")
            yield Check(scenario=scenario, id=entry["id"], status=entry["status"], message=message)


def _scenario(folder: str, side: str) -> str:
    """Its folder is called after it, the side and the time."""
    return re.sub(r"-\d{4}-\d\d-\d\dT[\dZ-]+$", "", folder).removeprefix(f"{side}-")
