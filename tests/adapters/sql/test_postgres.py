"""What only PostgreSQL can show: a server that hangs, fails or comes back, and rows that others hold."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from app.adapters.sql import SqlStore, migrate
from app.core.budget import Amount
from app.ports import StoreUnavailable
from tests.contracts.backends import Database
from tests.contracts.examples import (
    CHILD,
    ONE_CALL,
    ROOT,
    TENANT,
    a_record,
    add_chain,
    an_event,
    append,
    posted_and_pending,
    reserve,
)
from tests.postgres import PostgresServer
from tests.samples import ACME, NOW, a_child

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def somebody_else(database: Database) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """Another session in the middle of a transaction."""
    connection = await asyncpg.connect(database.url.replace("+asyncpg", ""))
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


async def test_a_row_that_others_keep_locked_is_unavailable(postgres_database: Database) -> None:
    store = postgres_database.open(lock_timeout_seconds=0.05)
    await add_chain(store, ROOT)
    async with somebody_else(postgres_database) as other:
        await other.execute("SELECT * FROM accounts FOR UPDATE")
        with pytest.raises(StoreUnavailable):
            await reserve(store, a_record())
        # Whoever only reads waits for nobody.
        assert await posted_and_pending(store, ROOT.grant_id) == (Amount(), Amount())
    await reserve(store, a_record())
    await store.aclose()


async def test_a_pool_that_is_used_up_is_unavailable(postgres_database: Database) -> None:
    store = postgres_database.open(pool_size=1, pool_timeout_seconds=0.05)
    async with store.write() as tx:
        await tx.audit.head(ACME)
        with pytest.raises(StoreUnavailable):
            await append(store, an_event())
    await append(store, an_event())
    await store.aclose()


async def test_a_deadlock_that_others_bring_about_is_unavailable(postgres_database: Database) -> None:
    """The store's own order of locks allows none, but an administrator's session may not keep to it."""
    store = postgres_database.open()
    await add_chain(store, ROOT, CHILD)
    lock = "SELECT * FROM accounts WHERE account_id = $1 FOR UPDATE"
    async with somebody_else(postgres_database) as other:
        # It never finds the deadlock itself, so it is the store that is told.
        await other.execute("SET LOCAL deadlock_timeout = '1h'")
        await other.execute(lock, CHILD.grant_id)
        async with store.write() as tx:
            await tx.ledger.lock(ACME, [ROOT.grant_id])
            crossing = asyncio.ensure_future(other.execute(lock, ROOT.grant_id))
            with pytest.raises(StoreUnavailable):
                await tx.ledger.lock(ACME, [CHILD.grant_id])
        await crossing
    await reserve(store, a_record())
    await store.aclose()


async def test_a_failed_transaction_cannot_be_committed(postgres_database: Database) -> None:
    store = postgres_database.open()
    async with store.write() as tx:
        await tx.registry.add_tenant(TENANT)
        with pytest.raises(AssertionError):
            await tx.grants.add(CHILD, "signed", [ROOT.grant_id, CHILD.grant_id], claims_run=True)
        with pytest.raises(AssertionError, match="failed"):
            await tx.commit()
    async with store.read() as tx:
        assert await tx.registry.tenant(ACME) is None
    await store.aclose()


@pytest.mark.parametrize("spelling", ["postgresql://", "postgresql+psycopg://", "postgresql+asyncpg://"])
async def test_any_spelling_of_the_url_will_do(postgres_database: Database, spelling: str) -> None:
    url = postgres_database.url.replace("postgresql+asyncpg://", spelling)
    store = SqlStore.open(f"{url}?sslmode=disable")
    assert await store.ready() is None
    await store.aclose()


@pytest.mark.parametrize("url", ["postgresql://x:y@127.0.0.1:1/x", "postgresql+asyncpg://x:y@name.invalid/x"])
async def test_a_server_that_is_not_there_is_unavailable(url: str) -> None:
    store = SqlStore.open(url)
    assert await store.ready() is not None
    with pytest.raises(StoreUnavailable):
        await append(store, an_event())
    await store.aclose()


async def test_a_wrong_password_is_unavailable_and_not_told(postgres_database: Database) -> None:
    store = SqlStore.open(postgres_database.url.replace("subgrant:", "subgrant:wrong"))
    with pytest.raises(StoreUnavailable) as refused:
        await append(store, an_event())
    assert "wrong" not in str(refused.value)
    await store.aclose()


async def test_a_database_without_tables_is_unavailable(postgres_url: str) -> None:
    store = SqlStore.open(postgres_url)
    with pytest.raises(StoreUnavailable):
        await append(store, an_event())
    await store.aclose()


async def test_what_was_committed_survives_a_crash_and_the_store_comes_back_by_itself() -> None:
    with PostgresServer() as server:
        url = server.create_database("crash")
        await migrate(url)
        store = SqlStore.open(url, pool_size=2)
        await add_chain(store, ROOT)
        await reserve(store, a_record("call_kept"))
        async with store.write() as tx:
            await tx.ledger.reserve(a_record("call_lost"))
            server.kill()
            with pytest.raises(StoreUnavailable):
                await tx.commit()
        with pytest.raises(StoreUnavailable):
            await append(store, an_event())
        server.start()
        # Each broken connection of the pool may be met once.
        assert await store.ready() is None
        assert await posted_and_pending(store, ROOT.grant_id) == (Amount(), ONE_CALL)
        await append(store, an_event())
        await store.aclose()


async def test_every_word_is_declared_to_be_compared_byte_by_byte(postgres_url: str) -> None:
    await migrate(postgres_url)
    connection = await asyncpg.connect(postgres_url.replace("+asyncpg", ""))
    try:
        otherwise = await connection.fetch(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
            " AND data_type IN ('text', 'character varying') AND collation_name IS DISTINCT FROM 'C'"
            " AND table_name <> 'alembic_version'"
        )
    finally:
        await connection.close()
    assert [tuple(row) for row in otherwise] == []


async def test_ids_are_compared_byte_by_byte_whatever_the_databases_collation(postgres_server: PostgresServer) -> None:
    """Under a language's collation "_" counts for little, and a range of paths would miss some of the subtree."""
    collated = "with_collation"
    options = ("--template=template0", "--locale-provider=icu", "--icu-locale=en-US", "--encoding=UTF8")
    try:
        postgres_server._client("createdb", *options, collated)  # noqa: SLF001 - the harness makes plain databases only
    except subprocess.CalledProcessError as error:
        if "ICU is not supported" in error.stderr:
            pytest.skip("this PostgreSQL was built without collations of its own")
        raise
    url = postgres_server.create_database("beside_it").replace("beside_it", collated)
    await migrate(url)
    store = SqlStore.open(url)
    await add_chain(store, ROOT, CHILD)
    names = ("gr_root_c0", "gr_root_C", "gr_root_b", "gr_rootc")
    others = [a_child(ROOT, grant_id=name, child_run_id=f"run_{name}") for name in names]
    async with store.write() as tx:
        for other in others:
            await tx.grants.add(other, "signed", [ROOT.grant_id, other.grant_id], claims_run=True)
        assert await tx.grants.close(ACME, CHILD.grant_id, reason="cancelled", at=NOW) == (CHILD.grant_id,)
        assert len(await tx.grants.subtree(ACME, ROOT.grant_id, 10)) == 6
    await store.aclose()
