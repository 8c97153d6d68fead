"""What only SQLite can show: durability as it is set, several processes on one file, and a disk that gives out."""

import asyncio
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

import app
from app.adapters.sql import SqlStore
from app.adapters.sql.sqlite import SqliteDatabase
from app.core import audit
from app.core.budget import Amount
from app.ports import StoreUnavailable
from tests.contracts.backends import Database
from tests.contracts.examples import (
    ONE_CALL,
    ROOT,
    TENANT,
    a_record,
    add_chain,
    an_event,
    append,
    posted_and_pending,
    register,
    reserve,
)
from tests.samples import ACME, a_grant

pytestmark = pytest.mark.anyio

REPOSITORY = Path(app.__file__).parent.parent
CALLS, LIMIT = 40, 60


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Somebody else's process in the middle of a long write."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


@pytest.mark.parametrize("pragma, kept", [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)])
async def test_a_writer_keeps_every_promise(sqlite_database: Database, pragma: str, kept: object) -> None:
    database = SqliteDatabase(sqlite_database.path, readers=1, busy_timeout_seconds=1)
    async with database.write() as unit:
        assert await unit.run(lambda connection: connection.execute(text(f"PRAGMA {pragma}")).scalar()) == kept
    await database.aclose()


async def test_a_file_that_others_keep_locked_is_unavailable(sqlite_database: Database) -> None:
    store = sqlite_database.open(lock_timeout_seconds=0.05)
    await add_chain(store, ROOT)
    with locked(sqlite_database.path):
        with pytest.raises(StoreUnavailable):
            await append(store, an_event())
        # Whoever only reads waits for nobody.
        assert await posted_and_pending(store, ROOT.grant_id) == (Amount(), Amount())
    await append(store, an_event())
    await store.aclose()


async def test_a_writer_that_waits_too_long_for_another_gives_up(sqlite_database: Database) -> None:
    store = sqlite_database.open(lock_timeout_seconds=0.05)
    async with store.write() as tx:
        with pytest.raises(StoreUnavailable):
            await append(store, an_event())
        await tx.audit.append(ACME, [an_event()])
        await tx.commit()
    await append(store, an_event())
    await store.aclose()


async def test_readers_beyond_the_pool_wait_their_turn(sqlite_database: Database) -> None:
    store = sqlite_database.open(pool_size=1, lock_timeout_seconds=0.05)
    async with store.read():
        with pytest.raises(StoreUnavailable):
            await posted_and_pending(store, ROOT.grant_id)
    assert await store.ready() is None
    await store.aclose()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"no database " * 400),
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
    ],
    ids=["another file", "no file", "an empty file"],
)
async def test_a_file_that_is_no_database_of_ours_is_unavailable(
    sqlite_database: Database, spoil: Callable[[Path], object]
) -> None:
    spoil(sqlite_database.path)
    store = sqlite_database.open()
    assert await store.ready() is not None
    with pytest.raises(StoreUnavailable):
        await append(store, an_event())
    await store.aclose()


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "sqlite+aiosqlite:///x.db?mode=ro", "mysql://x", "", "no url:secret"]
)
async def test_a_database_that_could_not_hold_the_promises_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"SQLite|PostgreSQL|can't be read") as refused:
        SqlStore.open(url)
    assert "secret" not in str(refused.value)


# --- other processes --------------------------------------------------------------------------------------


async def take_what_fits(url: str, name: str) -> None:
    """A worker: many calls at once, each reserved and recorded if it still fits."""
    store = SqlStore.open(url, lock_timeout_seconds=60)

    async def call(number: int) -> None:
        async with store.write() as tx:
            accounts = await tx.ledger.lock(ACME, [ROOT.grant_id])
            if accounts[ROOT.grant_id].budget.admits(ONE_CALL):
                await tx.ledger.reserve(a_record(f"call_{name}_{number}"))
                await tx.audit.append(ACME, [an_event(number)])
                await tx.commit()

    await asyncio.gather(*(call(number) for number in range(CALLS)))
    await store.aclose()


async def fill_the_disk(url: str) -> None:
    """A worker that may not let any file grow: the next write fails, as on a full disk."""
    store = SqlStore.open(url)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    try:
        await append(store, *(an_event(number, filler="x" * 1000) for number in range(1000)))
    except StoreUnavailable:
        sys.stdout.write("unavailable\n")
    await store.aclose()


def worker(task: str, *args: str) -> "subprocess.Popen[str]":
    program = f"import asyncio, sys; from tests.adapters.sql.test_sqlite import *; asyncio.run({task}(*sys.argv[1:]))"
    command = [sys.executable, "-c", program, *args]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def in_processes(*workers: "subprocess.Popen[str]") -> list[str]:
    answers = await asyncio.gather(*(asyncio.to_thread(each.communicate) for each in workers))
    assert [errors for _, errors in answers] == [""] * len(workers)
    return [output for output, _ in answers]


async def test_processes_on_one_file_share_one_budget_and_one_log(sqlite_database: Database) -> None:
    store = sqlite_database.open()
    await add_chain(store, a_grant(limit=Amount(tool_calls=LIMIT, spend_ucents=LIMIT * ONE_CALL.spend_ucents)))
    await in_processes(*(worker("take_what_fits", sqlite_database.url, name) for name in ("one", "two")))
    held = Amount(tool_calls=LIMIT, spend_ucents=LIMIT * ONE_CALL.spend_ucents)
    assert await posted_and_pending(store, ROOT.grant_id) == (Amount(), held)
    async with store.read() as tx:
        head = await tx.audit.head(ACME)
        records = [record async for record in tx.audit.read(ACME)]
    assert head.seq == LIMIT
    assert audit.verify(records, head) is None
    await store.aclose()


async def test_a_full_disk_is_unavailable_and_loses_nothing(sqlite_database: Database) -> None:
    store = sqlite_database.open()
    await register(store)
    assert await in_processes(worker("fill_the_disk", sqlite_database.url)) == ["unavailable\n"]
    async with store.write() as tx:
        assert (await tx.audit.head(ACME)).seq == 0
        assert await tx.registry.tenant(ACME) == TENANT
    await store.aclose()


async def test_what_a_killed_process_did_not_commit_is_gone_and_blocks_nobody(sqlite_database: Database) -> None:
    store = sqlite_database.open()
    await add_chain(store, ROOT)
    program = (
        "import asyncio, os\n"
        "from tests.adapters.sql.test_sqlite import *\n"
        "async def die_halfway(url):\n"
        "    store = SqlStore.open(url)\n"
        "    await append(store, an_event(1))\n"
        "    async with store.write() as tx:\n"
        "        await tx.ledger.reserve(a_record('call_lost'))\n"
        "        await tx.audit.append(ACME, [an_event(2)])\n"
        "        os._exit(9)\n"
        f"asyncio.run(die_halfway({sqlite_database.url!r}))\n"
    )
    ended = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], cwd=REPOSITORY, check=False)
    assert ended.returncode == 9
    await reserve(store, a_record("call_after"))
    assert await posted_and_pending(store, ROOT.grant_id) == (Amount(), ONE_CALL)
    async with store.read() as tx:
        assert (await tx.audit.head(ACME)).seq == 1
    await store.aclose()
