"""Every backend that holds the ports, each empty and migrated, for the suite that holds them all to the same.

Migrating, and on PostgreSQL even making a database, takes far longer than a test. So a SQLite file is a copy of
one that was migrated before, and the tests of a session share a PostgreSQL database that is emptied for each.
"""

import asyncio
import secrets
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import make_url

from app.adapters.memory import MemoryStore
from app.adapters.sql import SqlStore, migrate
from app.adapters.sql.tables import metadata
from app.ports import Store
from tests.postgres import PostgresServer


@dataclass(frozen=True)
class Database:
    """A database of its own for one test."""

    url: str

    @property
    def kind(self) -> str:
        return make_url(self.url).get_backend_name()

    @property
    def path(self) -> Path:
        return Path(make_url(self.url).database or "")

    def open(self, **options: float) -> SqlStore:
        return SqlStore.open(self.url, **options)  # type: ignore[arg-type]  # pool_size is an int

    def connect(self) -> sqlite3.Connection:
        """SQLite itself."""
        return sqlite3.connect(self.path)

    async def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Do something behind the store's back; the rows of the last statement."""
        if self.kind == "sqlite":
            return _on_sqlite(self.path, statements)
        return await _on_postgres(self.url, statements)


def _on_sqlite(path: Path, statements: tuple[str, ...]) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        with connection:
            return [connection.execute(statement).fetchall() for statement in statements][-1]
    finally:
        connection.close()


async def _on_postgres(url: str, statements: tuple[str, ...]) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        return [[tuple(row) for row in await connection.fetch(statement)] for statement in statements][-1]
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    asyncio.run(migrate(f"sqlite:///{path}"))
    return path


@pytest.fixture(scope="session")
def shared_postgres(postgres_server: PostgresServer) -> Database:
    # Two folders import these fixtures, so one process may come here twice.
    shared = Database(postgres_server.create_database(f"shared_{secrets.token_hex(4)}"))
    asyncio.run(migrate(shared.url))
    return shared


@pytest.fixture
def sqlite_database(sqlite_template: Path, tmp_path: Path) -> Database:
    path = tmp_path / "subgrant.db"
    shutil.copy(sqlite_template, path)
    return Database(f"sqlite:///{path}")


DISCONNECT_OTHERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture
def postgres_database(shared_postgres: Database) -> Database:
    emptying = (f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables))  # noqa: S608
    asyncio.run(shared_postgres.sql(DISCONNECT_OTHERS, *emptying))
    return shared_postgres


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(f"{request.param}_database")
    return found


@pytest.fixture
async def two_stores(database: Database) -> AsyncIterator[tuple[Store, Store]]:
    """Two workers on the same database."""
    stores = database.open(), database.open()
    yield stores
    for store in stores:
        await store.aclose()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def unopened(request: pytest.FixtureRequest) -> Callable[[], Store]:
    """How to open the store of each backend."""
    if request.param == "memory":
        return MemoryStore
    database: Database = request.getfixturevalue(f"{request.param}_database")
    return database.open


@pytest.fixture
async def store(unopened: Callable[[], Store]) -> AsyncIterator[Store]:
    opened = unopened()
    yield opened
    await opened.aclose()
