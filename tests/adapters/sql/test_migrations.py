"""The migrations build what the tables say, go down and up again, and run once however many workers start."""

import asyncio
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint, Connection, create_engine, inspect
from sqlalchemy.ext.asyncio import create_async_engine

import app
from app.adapters.sql import MigrationState, SqlStore, downgrade, migrate, migration_state
from app.adapters.sql.migrations import alembic_config
from app.adapters.sql.tables import SCHEMA_REVISION, metadata
from app.core.grant import POLICY_V0, TenantId
from app.core.registry import Tenant
from app.ports import StoreUnavailable
from tests.contracts.backends import Database
from tests.contracts.examples import POLICY, RESOURCE, SERVER, TENANT, describe, publish
from tests.samples import ACME

pytestmark = [pytest.mark.gate, pytest.mark.anyio]

OTHER = Tenant(tenant_id=TenantId("other"), name="Other")
DONE = MigrationState(current=SCHEMA_REVISION, head=SCHEMA_REVISION)


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that was never migrated."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/new.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


async def look(url: str, see: "type[Seen]") -> "Seen":
    """What is in a database, seen by other eyes than the store's."""
    if url.startswith("sqlite"):
        engine = create_engine(url.replace("+aiosqlite", ""))
        with engine.connect() as connection:
            seen = see(connection)
        engine.dispose()
        return seen
    other = create_async_engine(url)
    async with other.connect() as their_connection:
        seen = await their_connection.run_sync(see)
    await other.dispose()
    return seen


class Seen:
    """The tables of a database, and how they differ from what the code says."""

    def __init__(self, connection: Connection) -> None:
        self.tables = set(inspect(connection).get_table_names())
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        self.differences = compare_metadata(context, metadata)
        self.checks = {
            (table.name, str(check["name"]))
            for table in metadata.sorted_tables
            if table.name in self.tables
            for check in inspect(connection).get_check_constraints(table.name)
        }


def test_there_is_one_head_and_the_code_knows_it() -> None:
    assert ScriptDirectory.from_config(alembic_config()).get_heads() == [SCHEMA_REVISION]


async def test_a_database_is_ready_once_it_is_migrated(empty_url: str) -> None:
    store = SqlStore.open(empty_url)
    assert "run `subgrant migrate`" in (await store.ready() or "")
    assert await migration_state(empty_url) == MigrationState(current=None, head=SCHEMA_REVISION)
    assert await migrate(empty_url) == DONE
    assert await store.ready() is None
    assert (await migration_state(empty_url)).is_current
    await store.aclose()


async def test_migrating_again_changes_nothing(empty_url: str) -> None:
    assert await migrate(empty_url) == await migrate(empty_url) == DONE


async def test_the_migrations_build_what_the_tables_say(empty_url: str) -> None:
    await migrate(empty_url)
    seen = await look(empty_url, Seen)
    assert seen.differences == []
    assert seen.tables == {table.name for table in metadata.sorted_tables} | {"alembic_version"}


async def test_the_migrations_build_every_check(empty_url: str) -> None:
    await migrate(empty_url)
    seen = await look(empty_url, Seen)
    assert seen.checks == {
        (table.name, str(constraint.name))
        for table in metadata.sorted_tables
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint)
    }


async def test_the_migrations_go_down_and_up_again(empty_url: str) -> None:
    await migrate(empty_url)
    assert await downgrade(empty_url, "base") == MigrationState(current=None, head=SCHEMA_REVISION)
    assert (await look(empty_url, Seen)).tables == {"alembic_version"}
    assert await migrate(empty_url) == DONE
    assert (await look(empty_url, Seen)).differences == []


async def test_going_down_takes_what_restricts_nothing_out_of_the_documents_and_keeps_the_rest(empty_url: str) -> None:
    """An older version refuses a document that it does not know all of: for a tenant with policies it should."""
    await migrate(empty_url)
    free, bound = replace(TENANT, policy_version=POLICY_V0), replace(OTHER, policy_version="v3")
    plain, resolving = replace(SERVER, resolver=None), replace(SERVER, tenant_id=OTHER.tenant_id)
    async with opened(empty_url) as store:
        async with store.write() as tx:
            for tenant in (free, bound):
                await tx.registry.put_tenant(tenant)
            for server in (plain, resolving):
                await tx.registry.put_server(server)
            await tx.commit()
        await describe(store, RESOURCE)
        await publish(store, POLICY)

    await downgrade(empty_url, "0001")
    tenants = await Database(empty_url).sql("SELECT document FROM tenants ORDER BY tenant_id")
    servers = await Database(empty_url).sql("SELECT document FROM tool_servers ORDER BY tenant_id")
    assert ["policy_version" in document for (document,) in tenants] == [False, True]
    assert ["resolver" in document for (document,) in servers] == [False, True]

    assert await migrate(empty_url) == DONE
    async with opened(empty_url) as store, store.read() as tx:
        assert await tx.registry.tenants(after=None, limit=5) == (free, bound)
        assert await tx.registry.server(ACME, SERVER.name) == plain
        assert await tx.registry.server(OTHER.tenant_id, SERVER.name) == resolving
        # Down and up again loses the tables themselves.
        assert await tx.policies.count(ACME) == 0
        assert await tx.directory.resource(ACME, RESOURCE.ref) is None


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[SqlStore]:
    store = SqlStore.open(url)
    try:
        yield store
    finally:
        await store.aclose()


async def test_a_database_of_another_version_is_not_ready(empty_url: str) -> None:
    await migrate(empty_url)
    await Database(empty_url).sql("UPDATE alembic_version SET version_num = 'future'")
    store = SqlStore.open(empty_url)
    assert "revision future" in (await store.ready() or "")
    await store.aclose()


async def test_workers_that_start_at_once_migrate_once(empty_url: str) -> None:
    assert await asyncio.gather(*(migrate(empty_url) for _ in range(4))) == [DONE] * 4


async def test_processes_that_start_at_once_migrate_once(empty_url: str) -> None:
    program = "import asyncio, sys; from app.adapters.sql import migrate; print(asyncio.run(migrate(sys.argv[1])))"
    command = [sys.executable, "-c", program, empty_url]
    repository, pipe = Path(app.__file__).parent.parent, subprocess.PIPE
    workers = [
        await asyncio.create_subprocess_exec(*command, cwd=repository, stdout=pipe, stderr=pipe) for _ in range(3)
    ]
    answers = await asyncio.gather(*(worker.communicate() for worker in workers))
    assert answers == [(f"{DONE}\n".encode(), b"")] * 3


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    asyncio.run(migrate(f"sqlite:///{tmp_path}/new.db"))
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


async def test_a_database_that_cannot_be_reached_is_unavailable(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path}/missing/new.db", "postgresql+asyncpg://x:y@127.0.0.1:1/x"):
        with pytest.raises(StoreUnavailable):
            await migrate(url)


def test_the_migrations_are_found_in_an_installed_package_too(tmp_path: Path) -> None:
    """A wheel carries them inside the package."""
    package = Path(app.__file__).parent
    shutil.copytree(package, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(package.parent / "migrations", tmp_path / "app" / "migrations")
    program = "import asyncio; from app.adapters.sql import migrate; print(asyncio.run(migrate('sqlite:///new.db')))"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert ended.stdout.strip() == str(DONE)
