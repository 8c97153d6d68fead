"""What may not happen when many want the same at once, in one worker and in two."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import cycle
from typing import TypeVar

import pytest

from app.core import audit
from app.core.budget import Amount, ReservationState
from app.core.grant import GrantId, RunId, ServerName
from app.ports import AlreadyExists, CallRecord, Outcome, Store
from tests.contracts.examples import (
    CHILD,
    ONE_CALL,
    ROOT,
    SERVER,
    a_record,
    account,
    add_chain,
    an_ending,
    an_event,
    lineage_of,
    posted_and_pending,
    register,
    reserve,
    reserve_if_it_fits,
    settle,
)
from tests.samples import ACME, NOW, a_child, a_grant

pytestmark = pytest.mark.anyio

T = TypeVar("T")
NOTHING = Amount()
SMALL_ROOT = replace(ROOT, limit=ONE_CALL)
WINDOW = "window:tenant:3600:0"


@pytest.fixture
def workers(store: Store) -> Sequence[Store]:
    """One worker on each backend."""
    return (store,)


@pytest.fixture
def two_workers(two_stores: tuple[Store, Store]) -> Sequence[Store]:
    return two_stores


async def at_once(stores: Sequence[Store], count: int, work: Callable[[Store, int], Awaitable[T]]) -> list[T]:
    """Do the work many times at once, in turn in each worker."""
    turns = zip(range(count), cycle(stores), strict=False)
    return list(await asyncio.gather(*(work(store, number) for number, store in turns)))


# --- each race, run by the tests below on one worker and on two -------------------------------------------


async def the_last_unit_goes_to_exactly_one(stores: Sequence[Store]) -> None:
    await add_chain(stores[0], SMALL_ROOT)

    async def attempt(store: Store, number: int) -> bool:
        async with store.write() as tx:
            return await reserve_if_it_fits(tx, a_record(f"call_{number}"))

    assert sum(await at_once(stores, 100, attempt)) == 1
    assert await posted_and_pending(stores[-1], ROOT.grant_id) == (NOTHING, ONE_CALL)


async def an_idempotency_key_goes_to_exactly_one(stores: Sequence[Store]) -> None:
    wide = replace(ROOT, limit=Amount(tool_calls=100, spend_ucents=10_000))
    await add_chain(stores[0], wide)

    async def attempt(store: Store, number: int) -> bool:
        try:
            await reserve(store, a_record(f"call_{number}", idempotency_key="k"))
        except AlreadyExists:
            return False
        return True

    assert sum(await at_once(stores, 40, attempt)) == 1
    assert await posted_and_pending(stores[-1], ROOT.grant_id) == (NOTHING, ONE_CALL)


async def a_run_goes_to_exactly_one(stores: Sequence[Store]) -> None:
    async def attempt(store: Store, number: int) -> bool:
        name = GrantId(f"gr_{number}")
        try:
            await add_chain(store, a_grant(grant_id=name, root_grant_id=name))
        except AlreadyExists:
            return False
        return True

    assert sum(await at_once(stores, 20, attempt)) == 1


async def an_audience_goes_to_exactly_one(stores: Sequence[Store]) -> None:
    await register(stores[0])

    async def attempt(store: Store, number: int) -> bool:
        rival = replace(SERVER, name=ServerName(f"server_{number}"), audience="https://tools.example/wanted")
        async with store.write() as tx:
            try:
                await tx.registry.put_server(rival)
            except AlreadyExists:
                # The transaction goes on, without the server that was refused.
                return await tx.registry.server(ACME, rival.name) is not None
            await tx.commit()
            return True

    assert sum(await at_once(stores, 20, attempt)) == 1


async def a_call_ends_exactly_once(stores: Sequence[Store]) -> None:
    await add_chain(stores[0], ROOT, CHILD)
    await reserve(stores[0], a_record(accounts=(ROOT.grant_id, CHILD.grant_id)))
    endings = cycle((an_ending(charged_ucents=40), an_ending(ReservationState.VOIDED, outcome=Outcome.UNSENT)))
    turns = [next(endings) for _ in range(20)]

    async def attempt(store: Store, number: int) -> CallRecord | None:
        return await settle(store, "call_1", turns[number])

    (ended,) = [call for call in await at_once(stores, 20, attempt) if call is not None]
    paid = Amount(tool_calls=1, spend_ucents=40) if ended.state is ReservationState.POSTED else NOTHING
    assert await posted_and_pending(stores[0], ROOT.grant_id) == (paid, NOTHING)
    assert await posted_and_pending(stores[-1], CHILD.grant_id) == (paid, NOTHING)


async def a_window_is_made_exactly_once(stores: Sequence[Store]) -> None:
    await add_chain(stores[0], replace(ROOT, limit=Amount(tool_calls=100, spend_ucents=10_000)))

    async def attempt(store: Store, number: int) -> bool:
        async with store.write() as tx:
            await tx.ledger.lock(ACME, [ROOT.grant_id])
            limit = Amount(tool_calls=7, spend_ucents=10_000)
            (window,) = await tx.ledger.windows(ACME, {WINDOW: limit}, lock=True)
            if not window.admits(ONE_CALL):
                return False
            await tx.ledger.reserve(a_record(f"call_{number}", accounts=(ROOT.grant_id, WINDOW)))
            await tx.commit()
            return True

    assert sum(await at_once(stores, 30, attempt)) == 7


async def nothing_lives_below_a_closed_grant(stores: Sequence[Store]) -> None:
    """Children and calls are added below the child while the root is closed."""
    wide = Amount(tool_calls=1000, spend_ucents=1_000_000)
    root, child = replace(ROOT, limit=wide), replace(CHILD, limit=wide)
    await add_chain(stores[0], root, child)

    async def derive(store: Store, number: int) -> bool:
        node = a_child(child, grant_id=GrantId(f"gr_{number}"), child_run_id=RunId(f"run_{number}"))
        async with store.write() as tx:
            locked = await tx.ledger.lock(ACME, lineage_of(root, child))
            if any(each.closed for each in locked.values()):
                return False
            await tx.grants.add(node, "signed", lineage_of(root, child, node), claims_run=True)
            await tx.commit()
            return True

    async def call(store: Store, number: int) -> bool:
        async with store.write() as tx:
            accounts = (root.grant_id, child.grant_id)
            return await reserve_if_it_fits(tx, a_record(f"call_{number}", accounts=accounts))

    async def close(store: Store, _: int) -> bool:
        async with store.write() as tx:
            closed = await tx.grants.close(ACME, root.grant_id, reason="cancelled", at=NOW)
            await tx.commit()
            return root.grant_id in closed

    async def step(store: Store, number: int) -> bool:
        work = close if number == 20 else (derive, call)[number % 2]
        return await work(store, number)

    await at_once(stores, 41, step)
    async with stores[0].read() as tx:
        subtree = await tx.grants.subtree(ACME, root.grant_id, 100)
    assert {stored.account.closed for stored in subtree} == {"cancelled"}
    assert not await derive(stores[0], 99)
    assert not await call(stores[-1], 99)


async def nobody_waits_for_ever(stores: Sequence[Store]) -> None:
    """Calls on overlapping chains, settlements, closings and derivations in every order: no deadlock."""
    wide = Amount(tool_calls=1000, spend_ucents=1_000_000)
    # Ids whose order is the reverse of the lineage's: the order of locks may not be that of ids alone.
    root = replace(ROOT, grant_id=GrantId("gr_z"), root_grant_id=GrantId("gr_z"), limit=wide)
    child = a_child(root, grant_id=GrantId("gr_m"), child_run_id=RunId("m"))
    leaf = a_child(child, grant_id=GrantId("gr_a"), child_run_id=RunId("a"))
    ids = await add_chain(stores[0], root, child, leaf)

    async def call(store: Store, number: int) -> None:
        chain = ids[: number % 3 + 1][:: -1 if number % 2 else 1]
        record = a_record(f"call_{number}", grant_id=ids[0], accounts=(*chain, WINDOW))
        async with store.write() as tx:
            await tx.ledger.lock(ACME, chain)
            await tx.ledger.windows(ACME, {WINDOW: wide}, lock=True)
            await tx.ledger.reserve(record)
            await tx.audit.append(ACME, [an_event(number)])
            await tx.commit()
        await settle(store, record.call_id, an_ending(charged_ucents=1))

    async def close(store: Store, number: int) -> None:
        async with store.write() as tx:
            await tx.grants.close(ACME, ids[number % 3], reason="cancelled", at=NOW)
            await tx.audit.append(ACME, [an_event(number)])
            await tx.commit()

    async def step(store: Store, number: int) -> None:
        await (close if number % 5 == 4 else call)(store, number)

    await at_once(stores, 60, step)
    posted, pending = await posted_and_pending(stores[-1], root.grant_id)
    assert pending == NOTHING
    assert posted == Amount(tool_calls=48, spend_ucents=48)


async def the_audit_chain_has_no_gap(stores: Sequence[Store]) -> None:
    async def attempt(store: Store, number: int) -> None:
        async with store.write() as tx:
            await tx.audit.append(ACME, [an_event(number)])
            if number % 4:
                await tx.commit()

    await at_once(stores, 60, attempt)
    async with stores[0].read() as tx:
        head = await tx.audit.head(ACME)
        records = [record async for record in tx.audit.read(ACME)]
    assert head.seq == len(records) == 45
    assert audit.verify(records, head) is None


RACES = (
    the_last_unit_goes_to_exactly_one,
    an_idempotency_key_goes_to_exactly_one,
    a_run_goes_to_exactly_one,
    an_audience_goes_to_exactly_one,
    a_call_ends_exactly_once,
    a_window_is_made_exactly_once,
    nothing_lives_below_a_closed_grant,
    nobody_waits_for_ever,
    the_audit_chain_has_no_gap,
)


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
async def test_in_one_worker(workers: Sequence[Store], race: Callable[[Sequence[Store]], Awaitable[None]]) -> None:
    await race(workers)


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
async def test_in_two_workers(two_workers: Sequence[Store], race: Callable[[Sequence[Store]], Awaitable[None]]) -> None:
    await race(two_workers)


async def test_a_closed_account_stays_in_sight(store: Store) -> None:
    await add_chain(store, ROOT)
    async with store.write() as tx:
        await tx.grants.close(ACME, ROOT.grant_id, reason="cancelled", at=NOW)
        assert (await tx.ledger.lock(ACME, [ROOT.grant_id]))[ROOT.grant_id].closed == "cancelled"
        await tx.commit()
    assert (await account(store, ROOT.grant_id)).closed == "cancelled"
