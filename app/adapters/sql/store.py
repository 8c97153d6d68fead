"""The store: transactions with a port for each kind of thing, over SQLite or PostgreSQL.

Knows how to put them together. What a transaction is, the databases' files say; what is asked, the ports'.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Self

from sqlalchemy import URL, Connection, inspect, make_url, text
from sqlalchemy.exc import ArgumentError

from app.adapters.sql.audit import SqlAuditLog
from app.adapters.sql.directory import SqlDirectory
from app.adapters.sql.grants import SqlGrants
from app.adapters.sql.keys import SqlKeys
from app.adapters.sql.ledger import SqlLedger
from app.adapters.sql.policies import SqlPolicies
from app.adapters.sql.postgres import PostgresDatabase, postgres_engine
from app.adapters.sql.registry import SqlRegistry
from app.adapters.sql.spent import SqlSpentTokens
from app.adapters.sql.sqlite import SqliteDatabase, sqlite_path
from app.adapters.sql.tables import SCHEMA_REVISION
from app.adapters.sql.unit import Database, Unit
from app.ports import (
    AuditLog,
    Directory,
    GrantStore,
    KeyStore,
    Ledger,
    PolicyStore,
    Registry,
    SpentTokens,
    StoreUnavailable,
    Transaction,
)

SQLITE, POSTGRESQL = "sqlite", "postgresql"


class SqlTransaction:
    """One transaction, seen through the ports."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self.grants: GrantStore = SqlGrants(unit)
        self.ledger: Ledger = SqlLedger(unit)
        self.audit: AuditLog = SqlAuditLog(unit)
        self.registry: Registry = SqlRegistry(unit)
        self.directory: Directory = SqlDirectory(unit)
        self.policies: PolicyStore = SqlPolicies(unit)
        self.spent: SpentTokens = SqlSpentTokens(unit)
        self.keys: KeyStore = SqlKeys(unit)

    async def commit(self) -> None:
        await self._unit.commit()


class SqlStore:
    """Open one with `SqlStore.open`, once the database is migrated; close it with `aclose`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(
        cls,
        url: str,
        *,
        pool_size: int = 16,
        pool_timeout_seconds: float = 5,
        connect_timeout_seconds: float = 5,
        lock_timeout_seconds: float = 5,
        statement_timeout_seconds: float = 30,
    ) -> Self:
        """A store for `sqlite…` or `postgresql…`, whatever driver the URL names. Nothing is connected yet.

        `pool_size` bounds connections: on SQLite the readers', beside the one writer. `lock_timeout_seconds`
        bounds the wait for somebody else's lock: a row on PostgreSQL, the whole file on SQLite. Raises
        ValueError for another database.
        """
        parsed = parse_url(url)
        kind = parsed.get_backend_name()
        if kind == SQLITE:
            return cls(
                SqliteDatabase(sqlite_path(parsed), readers=pool_size, busy_timeout_seconds=lock_timeout_seconds)
            )
        if kind == POSTGRESQL:
            engine = postgres_engine(
                parsed,
                pool_size=pool_size,
                pool_timeout_seconds=pool_timeout_seconds,
                connect_timeout_seconds=connect_timeout_seconds,
                lock_timeout_seconds=lock_timeout_seconds,
                statement_timeout_seconds=statement_timeout_seconds,
            )
            return cls(PostgresDatabase(engine))
        raise ValueError("the database must be SQLite or PostgreSQL")

    def read(self) -> AbstractAsyncContextManager[Transaction]:
        return _transaction(self._database.read())

    def write(self) -> AbstractAsyncContextManager[Transaction]:
        return _transaction(self._database.write())

    async def ready(self) -> str | None:
        try:
            async with self._database.read() as unit:
                revision = await unit.run(schema_revision)
        except StoreUnavailable as error:
            return f"{error}; if it was never set up, run `subgrant migrate`"
        if revision is None:
            return "the database has no tables yet: run `subgrant migrate`"
        if revision != SCHEMA_REVISION:
            expected = f"revision {SCHEMA_REVISION}, which this version needs"
            return f"the database is at revision {revision}, not at {expected}: run `subgrant migrate`"
        return None

    async def aclose(self) -> None:
        await self._database.aclose()


def parse_url(url: str) -> URL:
    """Raises ValueError, without repeating the URL, which may hold a password."""
    try:
        return make_url(url)
    except ArgumentError:
        raise ValueError("the database URL can't be read") from None


@asynccontextmanager
async def _transaction(unit: AbstractAsyncContextManager[Unit]) -> AsyncIterator[Transaction]:
    async with unit as opened:
        yield SqlTransaction(opened)


def schema_revision(connection: Connection) -> str | None:
    """The migration that the database is at; None when it was never migrated."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision
