"""SQLite in a file: one writer at a time, readers beside it, several processes on the same file.

Write transactions of a process queue on an asyncio lock, so that they wait in order and cost nothing while
they wait; between processes `BEGIN IMMEDIATE` and the busy time-out decide. Readers see a snapshot (WAL) and
may not write. All of it runs in threads, since SQLite blocks: a commit waits for the disk.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError

from app.adapters.sql.unit import Life
from app.ports import StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")

READER_PRAGMAS = ("PRAGMA query_only=ON",)
# FULL: a commit that was acknowledged is on the disk.
WRITER_PRAGMAS = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA foreign_keys=ON")


class SqliteUnit:
    """A transaction in a thread, begun with its first work."""

    def __init__(self, engine: Engine, executor: ThreadPoolExecutor) -> None:
        self._engine = engine
        self._executor = executor
        self._connection: Connection | None = None
        self._step: asyncio.Future[Any] | None = None
        self._life = Life()

    async def run(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._life.step():
            return await self._in_thread(partial(self._work, work, *args, **kwargs))

    async def commit(self) -> None:
        with self._life.step(is_last=True):
            await self._in_thread(self._commit)

    async def finish(self) -> None:
        """Roll back what was not committed, once the thread is done with what it may still be doing."""
        if self._step is not None:
            await asyncio.wait([self._step])
        if self._connection is not None:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._close, self._connection)

    async def _in_thread(self, step: Callable[[], T]) -> T:
        future = asyncio.get_running_loop().run_in_executor(self._executor, step)
        self._step = future
        # A thread can't be cancelled: whoever waits may go, the step is waited for in `finish`.
        return await asyncio.shield(future)

    def _work(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._connection is None:
            self._connection = self._engine.connect()
            self._connection.begin()
        return work(self._connection, *args, **kwargs)

    def _commit(self) -> None:
        if self._connection is not None:
            self._connection.commit()
            # In the same step, since each is a change of threads and a commit is the last thing a unit does.
            self._close(self._connection)

    def _close(self, connection: Connection) -> None:
        self._connection = None
        try:
            connection.close()
        except DBAPIError:
            # What was committed is committed; what was not is gone with the connection.
            connection.invalidate()
            connection.close()


class SqliteDatabase:
    def __init__(self, path: Path, *, readers: int, busy_timeout_seconds: float) -> None:
        self._writer = sqlite_engine(path, 1, busy_timeout_seconds, "BEGIN IMMEDIATE", WRITER_PRAGMAS)
        self._reader = sqlite_engine(path, readers, busy_timeout_seconds, "BEGIN", READER_PRAGMAS)
        self._writer_thread = ThreadPoolExecutor(1, "sqlite-writer")
        self._reader_threads = ThreadPoolExecutor(readers, "sqlite-reader")
        self._writer_turn = asyncio.Lock()
        self._reader_turn = asyncio.Semaphore(readers)
        self._timeout_seconds = busy_timeout_seconds
        self._finishing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[SqliteUnit]:
        await self._wait_for(self._reader_turn)
        async with self._unit(self._reader, self._reader_threads, self._reader_turn) as unit:
            yield unit

    @asynccontextmanager
    async def write(self) -> AsyncIterator[SqliteUnit]:
        await self._wait_for(self._writer_turn)
        async with self._unit(self._writer, self._writer_thread, self._writer_turn) as unit:
            yield unit

    async def aclose(self) -> None:
        if self._finishing:
            await asyncio.wait(self._finishing)
        for engine, executor in ((self._writer, self._writer_thread), (self._reader, self._reader_threads)):
            await asyncio.get_running_loop().run_in_executor(None, engine.dispose)
            executor.shutdown(wait=False)

    async def _wait_for(self, turn: asyncio.Lock | asyncio.Semaphore) -> None:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await turn.acquire()
        except TimeoutError as error:
            raise StoreUnavailable("the database was busy for too long") from error

    @asynccontextmanager
    async def _unit(
        self, engine: Engine, executor: ThreadPoolExecutor, turn: asyncio.Lock | asyncio.Semaphore
    ) -> AsyncIterator[SqliteUnit]:
        unit = SqliteUnit(engine, executor)
        try:
            yield unit
        finally:
            # A task of its own, since the one that leaves may be cancelled, again and again; nobody gets the
            # turn before the thread is done.
            finishing = asyncio.ensure_future(_finish(unit, turn))
            self._finishing.add(finishing)
            finishing.add_done_callback(self._finishing.discard)
            await asyncio.shield(finishing)


async def _finish(unit: SqliteUnit, turn: asyncio.Lock | asyncio.Semaphore) -> None:
    try:
        await unit.finish()
    finally:
        turn.release()


def sqlite_path(url: URL) -> Path:
    """The file of a SQLite URL, whatever driver it names. Raises ValueError for a database in memory."""
    if not url.database or url.database == ":memory:" or url.query:
        raise ValueError("SQLite needs a file, as in sqlite:///subgrant.db")
    return Path(url.database)


def sqlite_engine(
    path: Path, connections: int, busy_timeout_seconds: float, begin: str, pragmas: tuple[str, ...]
) -> Engine:
    """An engine whose transactions begin as said, not when the driver thinks fit."""
    engine = create_engine(
        # Only a migration makes the file: a mistyped path is no new, empty database.
        URL.create("sqlite+pysqlite", database=f"file:{quote(str(path))}", query={"mode": "rw", "uri": "true"}),
        pool_size=connections,
        max_overflow=0,
        hide_parameters=True,  # errors are logged, and parameters are tokens and secrets too
        connect_args={
            "timeout": busy_timeout_seconds,
            "isolation_level": None,  # the driver begins nothing by itself
            "check_same_thread": False,  # a connection serves one transaction at a time, in whatever thread
        },
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:  # noqa: ANN401 - a DBAPI connection has no type
        for pragma in pragmas:
            connection.execute(pragma).close()

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine
