"""A transaction is all or nothing, sees one consistent state, and leaves the store usable however it ends."""

import asyncio

import anyio
import pytest

from app.ports import AlreadyExists, Store, StoreUnavailable
from tests.contracts.examples import ROOT, TENANT, account, add_chain, lineage_of
from tests.samples import ACME

pytestmark = pytest.mark.anyio


async def test_a_new_store_is_ready(store: Store) -> None:
    assert await store.ready() is None


async def test_what_is_committed_is_seen_by_the_next_transaction(store: Store) -> None:
    await add_chain(store, ROOT)
    async with store.read() as tx:
        assert [link.grant_id for link in await tx.grants.chain(ACME, ROOT.grant_id)] == [ROOT.grant_id]


async def test_what_is_not_committed_never_happened(store: Store) -> None:
    async with store.write() as tx:
        await tx.grants.add(ROOT, "signed", lineage_of(ROOT), claims_run=True)
        await tx.audit.append(ACME, [{"type": "x"}])
        assert await tx.grants.chain(ACME, ROOT.grant_id)
    async with store.read() as tx:
        assert await tx.grants.chain(ACME, ROOT.grant_id) == ()
        assert (await tx.audit.head(ACME)).seq == 0


async def test_an_exception_undoes_the_transaction(store: Store) -> None:
    async def fail_halfway() -> None:
        async with store.write() as tx:
            await tx.registry.add_tenant(TENANT)
            raise LookupError

    with pytest.raises(LookupError):
        await fail_halfway()
    async with store.write() as tx:
        assert await tx.registry.tenant(ACME) is None


async def test_a_reader_keeps_the_state_that_it_began_with(store: Store) -> None:
    async with store.read() as tx:
        assert await tx.registry.tenant(ACME) is None
        async with store.write() as other:
            await other.registry.add_tenant(TENANT)
            await other.commit()
        assert await tx.registry.tenant(ACME) is None
    async with store.read() as tx:
        assert await tx.registry.tenant(ACME) == TENANT


async def test_a_reader_that_writes_fails_and_changes_nothing(store: Store) -> None:
    with pytest.raises((StoreUnavailable, TypeError)):
        async with store.read() as tx:
            await tx.registry.add_tenant(TENANT)
    async with store.write() as tx:
        assert await tx.registry.tenant(ACME) is None


async def test_a_refused_insert_leaves_the_transaction_usable(store: Store) -> None:
    await add_chain(store, ROOT)
    async with store.write() as tx:
        with pytest.raises(AlreadyExists, match="childRunId"):
            await tx.grants.add(ROOT, "signed", lineage_of(ROOT), claims_run=True)
        await tx.registry.add_tenant(TENANT)
        await tx.commit()
    async with store.read() as tx:
        assert await tx.registry.tenant(ACME) == TENANT
        assert len(await tx.grants.subtree(ACME, ROOT.grant_id, 10)) == 1


async def test_many_readers_at_once_are_all_answered(store: Store) -> None:
    await add_chain(store, ROOT)
    answers = await asyncio.gather(*(account(store, ROOT.grant_id) for _ in range(100)))
    assert {answer.closed for answer in answers} == {None}


@pytest.mark.parametrize("steps", range(3))
async def test_a_cancelled_writer_changes_nothing_and_blocks_nobody(store: Store, steps: int) -> None:
    so_far = asyncio.Event()

    async def write_without_end() -> None:
        async with store.write() as tx:
            for step in range(9):
                if step == steps:
                    so_far.set()
                await tx.audit.append(ACME, [{"type": "x"}])
            await asyncio.Event().wait()

    writer = asyncio.ensure_future(write_without_end())
    await so_far.wait()
    writer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writer
    async with store.write() as tx:
        assert (await tx.audit.head(ACME)).seq == 0
        await tx.registry.add_tenant(TENANT)
        await tx.commit()


async def test_a_writer_in_a_cancelled_scope_blocks_nobody(store: Store) -> None:
    with anyio.CancelScope() as scope:
        async with store.write() as tx:
            await tx.registry.add_tenant(TENANT)
            scope.cancel()
            await tx.commit()
    async with store.write() as tx:
        await tx.audit.append(ACME, [{"type": "x"}])
        await tx.commit()
