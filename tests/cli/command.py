"""`subgrant` as a process: what a test runs it with, and what came of it."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.server_process import ROOT, plain_environment

SECONDS: Final = 60


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """Its output, of a command that succeeded with `--json`."""
        assert self.code == 0, self
        document: dict[str, Any] = json.loads(self.stdout)
        return document

    @property
    def complaint(self) -> str:
        """The one line on stderr of a command that said nothing else."""
        assert self.stdout == "", self
        (line,) = self.stderr.splitlines()
        return line


def subgrant(*arguments: str, env: Mapping[str, str] | None = None, stdin: str = "") -> Ended:
    """Run the command to its end, with none of the machine's own settings."""
    ended = subprocess.run(
        [sys.executable, "-m", "app.cli", *arguments],
        check=False,
        capture_output=True,
        text=True,
        input=stdin,
        timeout=SECONDS,
        cwd=ROOT,
        env=plain_environment() | {"COLUMNS": "200", "NO_COLOR": "1", "PYTHONWARNINGS": "error"} | dict(env or {}),
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)
