"""The story's three processes: a Subgrant server and two tool servers, each on a free loopback port.

Knows how each is started, how it says that it listens, and how it is ended: by its own process id, whatever
happens meanwhile. Refuses to know what they are used for.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

import app

START_SECONDS: Final = 30
STOP_SECONDS: Final = 10
POLL_SECONDS: Final = 0.02
SHOWN_LINES: Final = 5

SERVE: Final = ("-m", "app.cli", "serve", "--port", "0")
LISTENING: Final = "Subgrant is listening on "
READY: Final = "ready "

BILLING_HEADER: Final = "X-Billing-Key"
SUPPORT_AUDIENCE: Final = "https://support.acme.example"
"""Whom the gateway's credential at the support server is for. An agent's token never has this audience."""


class StartFailed(Exception):
    """A process did not come up; the message has its last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A process that can be called."""

    pid: int
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """All of them, with the secrets that they were started with."""

    subgrant: Server
    support: Server
    billing: Server
    admin_id: str
    admin_secret: str = field(repr=False)
    billing_key: str = field(repr=False)


@contextlib.contextmanager
def running() -> Iterator[Servers]:
    """The three servers, while the block runs. Afterwards there is no process and no file of theirs."""
    with (
        _termination_as_interrupt(),
        TemporaryDirectory(prefix="subgrant-demo-") as folder,
        Processes(Path(folder)) as processes,
    ):
        yield _started(processes)


def _started(processes: "Processes") -> Servers:
    admin_id, admin_secret, billing_key = "demo-admin", secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    subgrant = processes.start("subgrant", SERVE, _settings(processes.folder, admin_id, admin_secret))
    billing = processes.start(
        "billing", ("-m", "app.demo.billing_server", "--secret-header", BILLING_HEADER), {"BILLING_KEY": billing_key}
    )
    issuer = subgrant.wait_for(LISTENING)
    support = processes.start("support", _support_command(issuer), {})
    return Servers(
        subgrant=Server(pid=subgrant.pid, url=issuer),
        support=Server(pid=support.pid, url=f"http://127.0.0.1:{support.wait_for(READY)}"),
        billing=Server(pid=billing.pid, url=f"http://127.0.0.1:{billing.wait_for(READY)}"),
        admin_id=admin_id,
        admin_secret=admin_secret,
        billing_key=billing_key,
    )


def _settings(folder: Path, admin_id: str, admin_secret: str) -> Mapping[str, str]:
    return {
        "SUBGRANT_DATABASE_URL": f"sqlite:///{folder / 'subgrant.db'}",
        "SUBGRANT_BOOTSTRAP_CLIENT_ID": admin_id,
        "SUBGRANT_BOOTSTRAP_CLIENT_SECRET": admin_secret,
    }


def _support_command(issuer: str) -> Sequence[str]:
    trust = ("--issuer", issuer, "--jwks-url", f"{issuer}/oauth/jwks", "--audience", SUPPORT_AUDIENCE)
    return ("-m", "app.demo.support_server", *trust)


class Processes:
    """Processes that end with the block, in the order in which they were started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for process in self._started:
                process.terminate()
            for process in self._started:
                process.wait()
        finally:
            # Also where somebody who could not wait interrupted the waiting.
            for process in self._started:
                process.kill()

    def start(self, name: str, arguments: Sequence[str], variables: Mapping[str, str]) -> "Process":
        process = Process(name, arguments, self.folder, _environment(variables))
        self._started.append(process)
        return process


class Process:
    """A Python process that writes what it says to a file of its own."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        self._name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._popen = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=env,
                # An interrupt typed at the terminal is for us, who then end all of them in order.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def wait_for(self, start: str) -> str:
        """The rest of the first line that starts so."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            has_ended = self._popen.poll() is not None
            for line in self._lines():
                if line.startswith(start) and line.endswith("\n"):
                    return line.removeprefix(start).rstrip()
            if has_ended:
                break
            time.sleep(POLL_SECONDS)
        last_words = "".join(self._lines()[-SHOWN_LINES:]).strip()
        raise StartFailed(f"the {self._name} server did not start:\n{last_words or 'it said nothing'}")

    def terminate(self) -> None:
        self._popen.terminate()

    def wait(self) -> None:
        """Until it has ended, or should have."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(STOP_SECONDS)

    def kill(self) -> None:
        """For one that would not end. Its group is its session's, so nobody else is in it."""
        if self._popen.poll() is None:
            os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()

    def _lines(self) -> list[str]:
        return self._log.read_text("utf-8", errors="replace").splitlines(keepends=True)


def _environment(variables: Mapping[str, str]) -> Mapping[str, str]:
    """The machine's own without anybody's Subgrant settings, and with the code that runs here."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SUBGRANT_")}
    here = str(Path(app.__file__).parents[1])
    path = os.pathsep.join(filter(None, (here, inherited.get("PYTHONPATH"))))
    return {**inherited, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **variables}


@contextlib.contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Being told to end, or losing the terminal, is taken like Ctrl-C: everything is put away first."""
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
