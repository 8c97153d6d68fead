"""Starting the service: what it says on its terminal, and what it refuses to start with."""

import base64
import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import httpx
import pytest

from app.cli.configuration import unknown
from app.cli.http_protocol import MAX_HEAD_BYTES
from tests.cli.command import Ended, subgrant
from tests.server_process import BOOTSTRAP, ROOT, ServerProcess, sqlite_url

SECRET: Final = re.compile(r"client secret +(sgs_\S+)")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for the tests that only ask it something."""
    with ServerProcess(sqlite_url(tmp_path_factory.mktemp("server"))) as running:
        yield running


def test_the_first_start_prints_an_administrator_once(tmp_path: Path) -> None:
    with ServerProcess(sqlite_url(tmp_path), bootstrap=None) as server:
        found = SECRET.findall(server.stdout)
        assert len(found) == 1
        token_url = f"{server.url}/oauth/token"
        assert f"curl -s -u admin:{found[0]} -d grant_type=client_credentials {token_url}\n" in server.stdout
        assert _token(server, "admin", found[0]).is_success
    with ServerProcess(sqlite_url(tmp_path), bootstrap=None) as server:
        assert server.stdout == f"Subgrant is listening on {server.url}\n"
    assert found[0] not in server.stderr


def test_an_administrator_from_settings_is_not_printed(server: ServerProcess) -> None:
    assert server.stdout == f"Subgrant is listening on {server.url}\n"
    assert _token(server, *BOOTSTRAP).is_success


def test_the_issuer_is_the_address_with_the_port_that_the_system_chose(tmp_path: Path) -> None:
    with ServerProcess(sqlite_url(tmp_path), workers=2) as server:
        metadata = httpx.get(f"{server.url}/.well-known/oauth-authorization-server").json()
        assert metadata["issuer"] == server.url == server.issuer


def test_several_workers_serve_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    with ServerProcess(sqlite_url(tmp_path), workers=2) as server:
        before = server.worker_pids()
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        assert httpx.get(f"{server.url}/readyz").json() == {"status": "ready"}
        server.wait_for_log("Application startup complete", count=3)
        after = server.worker_pids()
        assert len(after) == 2
        assert set(before) & set(after) == {before[1]}


@pytest.mark.parametrize("workers", [1, 2])
def test_being_told_to_end_is_no_failure(tmp_path: Path, workers: int) -> None:
    server = ServerProcess(sqlite_url(tmp_path), workers=workers)
    server.start()
    assert server.stop() == 0
    assert "Traceback" not in server.stderr


def test_a_server_whose_terminal_is_gone_before_it_listens_leaves_no_worker_behind(tmp_path: Path) -> None:
    """Saying that it listens fails, and what it started must not outlive it."""
    server = ServerProcess(sqlite_url(tmp_path), workers=2)
    with subprocess.Popen(
        server.command, cwd=ROOT, env=server.environment, start_new_session=True, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        running.stdout.close()
        try:
            assert running.wait(60) != 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


def test_workers_end_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    with ServerProcess(sqlite_url(tmp_path), workers=2) as server:
        workers = server.worker_pids()
        os.kill(server.pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while alive := [pid for pid in workers if Path(f"/proc/{pid}").exists()]:
            assert time.monotonic() < deadline, alive
            time.sleep(0.1)


def test_a_server_that_crashed_starts_again_on_its_port(tmp_path: Path) -> None:
    with ServerProcess(sqlite_url(tmp_path), workers=2) as server:
        before = server.url
        server.kill()
        server.start()
        assert server.url == before
        assert httpx.get(f"{server.url}/readyz").is_success


def test_answers_do_not_name_the_server_software(server: ServerProcess) -> None:
    assert "server" not in httpx.get(f"{server.url}/healthz").headers


def test_a_header_without_end_is_cut_off(server: ServerProcess) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as attacker:
        answer = _flood(attacker)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert httpx.get(f"{server.url}/healthz").is_success


def test_many_small_requests_on_one_connection_are_not_taken_for_one_long_header(server: ServerProcess) -> None:
    padding = {"x-padding": "a" * 8000}
    with httpx.Client(base_url=server.url) as client:
        answers = [client.get("/healthz", headers=padding) for _ in range(2 * MAX_HEAD_BYTES // 8000)]
        assert all(answer.is_success for answer in answers)


# --- what keeps it from starting --------------------------------------------------------------------------


FAULTS: Final[Mapping[str, tuple[Mapping[str, str], str]]] = {
    "a word that is none of the known": ({"LOG_LEVEL": "loud"}, "SUBGRANT_LOG_LEVEL: "),
    "a number that is none": ({"PORT": "many"}, "SUBGRANT_PORT: "),
    "an issuer that is no URL": ({"ISSUER": "subgrant"}, "SUBGRANT_ISSUER: must be an absolute http(s) URL"),
    "an unknown database": ({"DATABASE_URL": "mysql://x"}, "SUBGRANT_DATABASE_URL: must start with sqlite://"),
    "a key that is too short": ({"KEY_ENCRYPTION_KEY": "c2hvcnQ="}, "SUBGRANT_KEY_ENCRYPTION_KEY: "),
    "PostgreSQL without a key": ({"DATABASE_URL": "postgresql://u@127.0.0.1:1/d"}, "SUBGRANT_KEY_ENCRYPTION_KEY: "),
    "a database that is not there": (
        {
            "DATABASE_URL": "postgresql://u@127.0.0.1:1/d",
            "KEY_ENCRYPTION_KEY": base64.b64encode(b"k" * 32).decode(),
        },
        "SUBGRANT_DATABASE_URL: the database was not reached",
    ),
    "a folder that is not there": ({"DATABASE_URL": "sqlite:////not/there/subgrant.db"}, "/not/there/"),
}


@pytest.mark.parametrize("settings, complaint", FAULTS.values(), ids=FAULTS.keys())
def test_what_keeps_it_from_starting_is_one_line(tmp_path: Path, settings: Mapping[str, str], complaint: str) -> None:
    ended = _serve(tmp_path, settings)
    assert ended.code == 2
    assert ended.complaint.startswith(complaint)


def test_a_taken_port_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        ended = _serve(tmp_path, {"PORT": port})
    assert ended.code == 2
    assert ended.complaint == f"can't listen on 127.0.0.1:{port}: address already in use"
    assert not any(tmp_path.iterdir())


def test_another_key_than_the_stored_keys_were_sealed_with_is_one_line(tmp_path: Path) -> None:
    assert subgrant("init", "--tenant", "acme", env=_settings(tmp_path, {})).code == 0
    ended = _serve(tmp_path, {"KEY_ENCRYPTION_KEY": base64.b64encode(b"k" * 32).decode()})
    assert ended.code == 2
    assert ended.complaint.startswith("SUBGRANT_KEY_ENCRYPTION_KEY: is not the key")


def test_flags_win_over_the_environment(tmp_path: Path) -> None:
    ended = subgrant("serve", "--port", "0", "--database-url", "mysql://x", env=_settings(tmp_path, {"PORT": "1"}))
    assert ended.complaint.startswith("SUBGRANT_DATABASE_URL: ")


@pytest.mark.parametrize(
    "content, complaint",
    [
        (None, "there is no file "),
        ("port = \n", "Invalid value"),
        ("prot = 1\n", "SUBGRANT_PROT: "),
        ("port = 70000\n", "SUBGRANT_PORT: "),
    ],
)
def test_a_wrong_configuration_file_is_one_line(tmp_path: Path, content: str | None, complaint: str) -> None:
    file = tmp_path / "subgrant.toml"
    if content is not None:
        file.write_text(content)
    ended = subgrant("serve", env={"SUBGRANT_CONFIG_FILE": str(file)})
    assert ended.code == 2
    assert complaint in ended.complaint


def test_a_variable_that_is_no_setting_is_warned_of_once() -> None:
    ended = subgrant("serve", env={"SUBGRANT_PROT": "1", "SUBGRANT_TOKEN": "t", "SUBGRANT_LOG_LEVEL": "loud"})
    warnings = [line for line in ended.stderr.splitlines() if line.startswith("warning: ")]
    assert warnings == ["warning: SUBGRANT_PROT is no setting, so it is ignored; is SUBGRANT_PORT meant?"]


def test_what_the_command_itself_and_the_tests_read_is_not_warned_of() -> None:
    ours = ("SUBGRANT_URL", "SUBGRANT_CLIENT_ID", "SUBGRANT_CLIENT_SECRET", "SUBGRANT_TOKEN", "SUBGRANT_CONFIG_FILE")
    assert unknown(dict.fromkeys((*ours, "SUBGRANT_TEST_PG_BIN", "SUBGRANT_PORT", "PATH"), "x")) == []


def _serve(folder: Path, settings: Mapping[str, str]) -> Ended:
    return subgrant("serve", env=_settings(folder, settings))


def _settings(folder: Path, settings: Mapping[str, str]) -> dict[str, str]:
    given = {"DATABASE_URL": sqlite_url(folder), "PORT": "0", **settings}
    return {f"SUBGRANT_{name}": value for name, value in given.items()}


def _token(server: ServerProcess, client_id: str, secret: str) -> httpx.Response:
    form = {"grant_type": "client_credentials"}
    return httpx.post(f"{server.url}/oauth/token", data=form, auth=(client_id, secret))


def _flood(attacker: socket.socket) -> bytes:
    """What a server answers to a header that goes on for much longer than it may."""
    attacker.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: ")
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(100 * MAX_HEAD_BYTES // 8192):
            attacker.sendall(b"a" * 8192)
    return attacker.recv(1000)
