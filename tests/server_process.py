"""A real Subgrant server: `subgrant serve` in processes of its own, on a free loopback port.

Knows how to start one, how to tell when it listens, how to end it gracefully or by a crash, and what it
printed. Only ever signals processes that it started. Refuses to know the API; `tests/api_client.py` does.
"""

import atexit
import base64
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Final, NamedTuple, Self

ROOT: Final = Path(__file__).parent.parent
START_SECONDS: Final = 60
STOP_SECONDS: Final = 60
LISTENING: Final = "Subgrant is listening on "

# PostgreSQL has no folder to keep a key in, and a server that is started again needs the same one.
KEY_ENCRYPTION_KEY: Final = base64.b64encode(b"a key for the tests, 32 bytes...").decode()


class Bootstrap(NamedTuple):
    """The platform administrator that a server makes at its first start."""

    client_id: str
    client_secret: str


BOOTSTRAP: Final = Bootstrap("platform-admin", "a secret that only the tests know, of any length")


class ServerProcess:
    """`start()` after `stop()` or `kill()` serves the same database on the same port, so the issuer stays.

    `env` adds to `SUBGRANT_*` settings and wins over what is set here; nothing of that kind is inherited.
    With `bootstrap=None` the server makes up its first administrator, and prints it. `module` is what is run in
    the place of the command itself.
    """

    def __init__(
        self,
        database_url: str,
        *,
        workers: int = 1,
        env: Mapping[str, str] | None = None,
        bootstrap: Bootstrap | None = BOOTSTRAP,
        port: int = 0,
        flags: tuple[str, ...] = (),
        module: str = "app.cli",
    ) -> None:
        self.database_url = database_url
        self.workers = workers
        self.bootstrap = bootstrap
        self.port = port
        self._env = dict(env or {})
        self._flags = flags
        self._module = module
        self._process: subprocess.Popen[str] | None = None
        self._stdout, self._stderr = _Lines(), _Lines()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        assert self.port, "the server was never started"
        return f"http://127.0.0.1:{self.port}"

    @property
    def issuer(self) -> str:
        """What the server's tokens name: its address, unless the environment says otherwise."""
        return self._env.get("SUBGRANT_ISSUER", self.url)

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def stdout(self) -> str:
        """What it printed since it was last started, until now."""
        return self._stdout.text

    @property
    def stderr(self) -> str:
        return self._stderr.text

    def worker_pids(self) -> list[int]:
        """The processes that serve: with several workers the supervisor's children, else the process itself."""
        if self.workers == 1:
            return [self.pid]
        return worker_pids_of(self.pid)

    def wait_for_log(self, text: str, count: int = 1) -> None:
        """Until its log has held this text so many times since it was started."""
        assert self._stderr.wait_until(lambda log: log.count(text) >= count, START_SECONDS), self.stderr

    def start(self) -> None:
        """Start it and return once it listens. Raises RuntimeError with what it printed when it does not."""
        assert self._process is None, "the server runs already"
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=self.environment,
            # An interrupt typed at the terminal is ours to handle; and a crash takes the whole group.
            start_new_session=True,
        )
        atexit.register(self.kill)
        self._stdout, self._stderr = _Lines(self._process.stdout), _Lines(self._process.stderr)
        line = self._stdout.wait_for(LISTENING, START_SECONDS)
        if line is None:
            self.kill()
            raise RuntimeError(f"the server did not start:\n{self.stdout}{self.stderr}")
        self.port = int(line.rpartition(":")[2])

    def stop(self) -> int | None:
        """End it as an operator would; its exit code, None if it does not run."""
        if self._process is None:
            return None
        self._process.terminate()
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._forget()
        return code

    def kill(self) -> None:
        """Crash: all its processes end in the middle of whatever they do."""
        if self._process is None:
            return
        # Its group is its session's, so nobody else is in it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._forget()

    @property
    def command(self) -> list[str]:
        """What is run: the source tree that the tests run from, whatever is installed."""
        return [
            *[sys.executable, "-m", self._module, "serve", "--host", "127.0.0.1", "--port", str(self.port)],
            *["--workers", str(self.workers), "--database-url", self.database_url, *self._flags],
        ]

    @property
    def environment(self) -> dict[str, str]:
        """The machine's own, without its `SUBGRANT_*`, and what this server is given."""
        given = {"SUBGRANT_KEY_ENCRYPTION_KEY": KEY_ENCRYPTION_KEY} if "postgres" in self.database_url else {}
        if self.bootstrap is not None:
            given["SUBGRANT_BOOTSTRAP_CLIENT_ID"] = self.bootstrap.client_id
            given["SUBGRANT_BOOTSTRAP_CLIENT_SECRET"] = self.bootstrap.client_secret
        return plain_environment() | {"PYTHONUNBUFFERED": "1"} | given | self._env

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the server does not run"
        return self._process

    def _forget(self) -> None:
        atexit.unregister(self.kill)
        self._stdout.join()
        self._stderr.join()
        self._process = None


def worker_pids_of(supervisor: int) -> list[int]:
    """The worker processes that a supervisor has started, whether or not they serve yet."""
    return sorted(pid for pid in _children(supervisor) if b"spawn_main" in _command_line(pid))


def plain_environment() -> dict[str, str]:
    """The environment without any of Subgrant's variables, so that no developer's setting reaches a test."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SUBGRANT_")}


def sqlite_url(folder: Path) -> str:
    """The URL of a database file in a folder."""
    return f"sqlite:///{folder / 'subgrant.db'}"


class _Lines:
    """A stream read to its end in a thread of its own, so that its writer never blocks on a full pipe."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = stream is None
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        if stream is not None:
            self._thread.start()

    @property
    def text(self) -> str:
        with self._changed:
            return "".join(self._lines)

    def wait_for(self, start: str, timeout_seconds: float) -> str | None:
        """The first line that starts so, or None if the stream ends or the time is over without one."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._find(start) is not None, timeout_seconds)
            return self._find(start)

    def wait_until(self, is_enough: Callable[[str], bool], timeout_seconds: float) -> bool:
        """Whether what was read became enough before the stream ended or the time was over."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or is_enough("".join(self._lines)), timeout_seconds)
            return is_enough("".join(self._lines))

    def join(self) -> None:
        """Wait for the end of what its writer wrote."""
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS)

    def _find(self, start: str) -> str | None:
        return next((line.rstrip("\n") for line in self._lines if line.startswith(start)), None)

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def _children(parent: int) -> list[int]:
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if _parent(process) == parent]


def _parent(process: Path) -> int:
    try:
        # The command's name, in parentheses, may itself hold spaces and parentheses.
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
