"""Bringing a database to the schema of this version, by Alembic, from the repository or from a wheel.

Several workers may start at once: only one migrates, the others wait and find it done. Refuses to know what a
migration does; `migrations/` says that.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, text

import app
from app.adapters.sql.failures import in_the_ports_words
from app.adapters.sql.postgres import postgres_engine
from app.adapters.sql.sqlite import WRITER_PRAGMAS, sqlite_engine, sqlite_path
from app.adapters.sql.store import SQLITE, parse_url, schema_revision

TIMEOUT_SECONDS = 60
ADVISORY_LOCK = 0x5355_4247
"""PostgreSQL's advisory locks are numbers that an application makes up; this is ours ("SUBG")."""

# A table that SQLite can't alter is copied and dropped, which must not count as a violation.
MIGRATION_PRAGMAS = (*WRITER_PRAGMAS, "PRAGMA foreign_keys=OFF")


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationState:
    """`current` is None for a database without tables."""

    current: str | None
    head: str

    @property
    def is_current(self) -> bool:
        return self.current == self.head


async def migrate(url: str, revision: str = "head") -> MigrationState:
    """Upgrade a database, making SQLite's file where it is missing. Raises StoreUnavailable."""
    return await _locked(url, lambda connection: _upgrade(connection, revision))


async def downgrade(url: str, revision: str) -> MigrationState:
    """Take migrations back down to a revision, `base` for all of them. Loses data."""
    return await _locked(url, lambda connection: _downgrade(connection, revision))


async def migration_state(url: str) -> MigrationState:
    """Where a database stands. Raises StoreUnavailable."""
    return await _locked(url, _state)


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic's settings without a file: where the migrations are, and the connection to run them on."""
    config = Config()
    config.set_main_option("script_location", str(_migrations_folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _migrations_folder() -> Path:
    """Inside the package in a wheel, beside it in the repository."""
    package = Path(app.__file__).parent
    inside = package / "migrations"
    return inside if inside.exists() else package.parent / "migrations"


def _upgrade(connection: Connection, revision: str) -> MigrationState:
    command.upgrade(alembic_config(connection), revision)
    return _state(connection)


def _downgrade(connection: Connection, revision: str) -> MigrationState:
    command.downgrade(alembic_config(connection), revision)
    return _state(connection)


def _state(connection: Connection) -> MigrationState:
    head = ScriptDirectory.from_config(alembic_config()).get_current_head()
    assert head is not None, "there is at least one migration"
    return MigrationState(current=schema_revision(connection), head=head)


async def _locked(url: str, work: Callable[[Connection], MigrationState]) -> MigrationState:
    """Do the work in one transaction that no other worker's work overlaps."""
    parsed = parse_url(url)
    with in_the_ports_words():
        if parsed.get_backend_name() == SQLITE:
            return await asyncio.to_thread(_on_sqlite, sqlite_path(parsed), work)
        return await _on_postgres(parsed, work)


def _on_sqlite(path: Path, work: Callable[[Connection], MigrationState]) -> MigrationState:
    with _file_lock(path.with_name(f"{path.name}-lock")):
        # Only its owner reads the file: it holds grants and sealed keys. SQLite's other files get its mode.
        if not path.exists():
            path.touch(mode=0o600)
        engine = sqlite_engine(path, 1, TIMEOUT_SECONDS, "BEGIN IMMEDIATE", MIGRATION_PRAGMAS)
        try:
            with engine.begin() as connection:
                return work(connection)
        finally:
            engine.dispose()


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    """A lock between processes that vanishes with its holder. The database file itself may not be opened for
    it: closing it again would drop the locks that SQLite holds in this process."""  # noqa: D205, D209
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


async def _on_postgres(url: URL, work: Callable[[Connection], MigrationState]) -> MigrationState:
    engine = postgres_engine(
        url,
        pool_size=1,
        pool_timeout_seconds=TIMEOUT_SECONDS,
        connect_timeout_seconds=TIMEOUT_SECONDS,
        lock_timeout_seconds=TIMEOUT_SECONDS,
        statement_timeout_seconds=TIMEOUT_SECONDS,
    )
    try:
        async with engine.begin() as connection:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
            return await connection.run_sync(work)
    finally:
        await engine.dispose()
