"""Processes of the benchmark's own: a module of this package, run apart, and what it prints.

Knows how to start one, how it says that it is ready, and how to end it: its standard input closes, which
also happens when we die in whatever way. Refuses to know what it is for.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final, Self

from tests.server_process import plain_environment

ROOT: Final = Path(__file__).parent.parent
READY: Final = "ready "
STOP_SECONDS: Final = 10


class Child:
    """One process, between `with`s. `port` is what it said when it was ready."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._module, self._arguments = module, arguments
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=plain_environment(),
            # An interrupt typed at the terminal is ours to handle.
            start_new_session=True,
        )
        try:
            self.port = int(self.read_line().removeprefix(READY))
        except (RuntimeError, ValueError):
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        process = self._running
        try:
            process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        self._process = None

    @property
    def pid(self) -> int:
        return self._running.pid

    def write_line(self, line: str) -> None:
        stdin = self._running.stdin
        assert stdin is not None, "it was started with a pipe"
        stdin.write(line + "\n")
        stdin.flush()

    def read_line(self) -> str:
        """Its next line. Raises RuntimeError when it has ended; why is on standard error, which it shares with us."""
        stdout = self._running.stdout
        assert stdout is not None, "it was started with a pipe"
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"{self._module} has ended")
        return line

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the process does not run"
        return self._process


def say_ready(port: int = 0) -> None:
    """The first line of every child."""
    print(f"{READY}{port}", flush=True)
