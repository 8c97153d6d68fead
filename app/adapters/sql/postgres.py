"""PostgreSQL, through asyncpg.

Writers run under READ COMMITTED and take row locks in one global order, so that no deadlock is possible:

    accounts (by lock_rank: root before child, grants before windows; then by id), runs and idempotency keys,
    calls, and the audit head last, since all of a tenant's writers meet there.

Readers run under REPEATABLE READ, READ ONLY: one consistent state, and no lock anywhere.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.adapters.sql.failures import in_the_ports_words
from app.adapters.sql.unit import Life

P = ParamSpec("P")
T = TypeVar("T")

READ_OPTIONS = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
MILLISECONDS = 1000


class PostgresUnit:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._life = Life()

    async def run(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._life.step():
            return await self._connection.run_sync(work, *args, **kwargs)

    async def commit(self) -> None:
        with self._life.step(is_last=True):
            await self._connection.commit()


class PostgresDatabase:
    def __init__(self, engine: AsyncEngine) -> None:
        self._writers = engine
        self._readers = engine.execution_options(**READ_OPTIONS)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[PostgresUnit]:
        async with self._connection(self._readers) as connection:
            yield PostgresUnit(connection)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[PostgresUnit]:
        async with self._connection(self._writers) as connection:
            yield PostgresUnit(connection)

    @asynccontextmanager
    async def _connection(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        with in_the_ports_words():
            connection = await engine.connect()
        try:
            yield connection
        finally:
            # Rolls back what was not committed, and does so however often the one that leaves is cancelled.
            await asyncio.shield(asyncio.ensure_future(connection.close()))

    async def aclose(self) -> None:
        await self._writers.dispose()


def postgres_engine(
    url: URL,
    *,
    pool_size: int,
    pool_timeout_seconds: float,
    connect_timeout_seconds: float,
    lock_timeout_seconds: float,
    statement_timeout_seconds: float,
) -> AsyncEngine:
    """An engine whose sessions don't wait for ever, and lose their locks when their worker hangs."""
    return create_async_engine(
        _for_asyncpg(url),
        pool_size=pool_size,
        max_overflow=0,
        hide_parameters=True,  # errors are logged, and parameters are tokens and secrets too
        pool_timeout=pool_timeout_seconds,
        pool_use_lifo=True,
        isolation_level="READ COMMITTED",
        connect_args={
            "timeout": connect_timeout_seconds,
            "command_timeout": statement_timeout_seconds,
            "server_settings": {
                "application_name": "subgrant",
                "lock_timeout": str(int(lock_timeout_seconds * MILLISECONDS)),
                "idle_in_transaction_session_timeout": str(int(statement_timeout_seconds * MILLISECONDS)),
            },
        },
    )


def _for_asyncpg(url: URL) -> URL:
    """The URL in the driver's spelling, which calls libpq's `sslmode` just `ssl`."""
    query = {"ssl" if name == "sslmode" else name: value for name, value in url.query.items()}
    return url.set(drivername="postgresql+asyncpg", query=query)
