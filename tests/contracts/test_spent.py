"""What may be used once is used once: by whom it was issued and its id, in each tenant, in whatever worker."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import cycle

import pytest

from app.core.grant import TenantId
from app.core.registry import Tenant
from app.ports import Store
from tests.contracts.examples import register
from tests.samples import ACME, NOW

pytestmark = pytest.mark.anyio

ISSUER = "https://idp.example"
OTHER = TenantId("other")
LATER = NOW + timedelta(minutes=6)


async def spend(
    store: Store,
    jti: str = "j",
    *,
    tenant: TenantId = ACME,
    issuer: str = ISSUER,
    until: datetime = LATER,
    now: datetime = NOW,
    on: str | None = None,
) -> bool:
    async with store.write() as tx:
        is_first = await tx.spent.spend(tenant, issuer, jti, expires_at=until, now=now, on=on)
        await tx.commit()
    return is_first


async def is_spent(store: Store, jti: str = "j", *, tenant: TenantId = ACME, issuer: str = ISSUER) -> bool:
    async with store.read() as tx:
        return await tx.spent.is_spent(tenant, issuer, jti)


@pytest.fixture
async def peopled(store: Store) -> Store:
    """A store with two tenants."""
    await people(store)
    return store


async def people(store: Store) -> None:
    await register(store)
    async with store.write() as tx:
        await tx.registry.add_tenant(Tenant(tenant_id=OTHER, name="Other"))
        await tx.commit()


async def test_a_token_is_spent_once(peopled: Store) -> None:
    assert not await is_spent(peopled)
    assert await spend(peopled)
    assert not await spend(peopled)
    assert await is_spent(peopled)


async def test_what_the_token_was_spent_on_is_what_the_first_one_said(peopled: Store) -> None:
    await spend(peopled, on="gr_1")
    await spend(peopled, on="gr_2")
    await spend(peopled, "k")
    async with peopled.read() as tx:
        assert await tx.spent.spent_on(ACME, ISSUER, "j") == "gr_1"
        assert await tx.spent.spent_on(ACME, ISSUER, "k") is None
        assert await tx.spent.spent_on(ACME, ISSUER, "never") is None


async def test_within_the_transaction_it_is_spent_already(peopled: Store) -> None:
    async with peopled.write() as tx:
        assert await tx.spent.spend(ACME, ISSUER, "j", expires_at=LATER, now=NOW, on="use_1")
        assert not await tx.spent.spend(ACME, ISSUER, "j", expires_at=LATER, now=NOW, on="use_2")
        assert await tx.spent.spent_on(ACME, ISSUER, "j") == "use_1"
        await tx.commit()


async def test_what_is_not_committed_is_not_spent(peopled: Store) -> None:
    async with peopled.write() as tx:
        assert await tx.spent.spend(ACME, ISSUER, "j", expires_at=LATER, now=NOW)
    assert not await is_spent(peopled)
    assert await spend(peopled)


async def test_a_transaction_that_meets_a_spent_token_goes_on(peopled: Store) -> None:
    await spend(peopled)
    async with peopled.write() as tx:
        assert not await tx.spent.spend(ACME, ISSUER, "j", expires_at=LATER, now=NOW)
        assert await tx.spent.spend(ACME, ISSUER, "k", expires_at=LATER, now=NOW)
        await tx.commit()
    assert await is_spent(peopled, "k")


async def test_another_tenants_and_another_issuers_token_of_the_same_id_is_another(peopled: Store) -> None:
    assert await spend(peopled)
    assert await spend(peopled, tenant=OTHER)
    assert await spend(peopled, issuer="https://idp.example/")
    assert await spend(peopled, "J")


async def test_of_many_tokens_those_that_are_spent_are_told_in_one_round(peopled: Store) -> None:
    many = [f"j{number}" for number in range(1500)]
    for jti in many[::500]:
        await spend(peopled, jti)
    await spend(peopled, many[1], tenant=OTHER)
    await spend(peopled, many[2], issuer="https://idp.example/")
    async with peopled.read() as tx:
        assert await tx.spent.spent_among(ACME, ISSUER, many) == {"j0", "j500", "j1000"}
        assert await tx.spent.spent_among(ACME, ISSUER, []) == set()


async def test_the_longest_names_are_kept_whole(peopled: Store) -> None:
    issuer, jti = "i" * 255, "\U0001f511" * 255
    assert await spend(peopled, jti, issuer=issuer)
    assert not await spend(peopled, jti, issuer=issuer)
    assert await spend(peopled, jti[:-1] + "x", issuer=issuer)


async def test_a_token_is_remembered_until_it_has_expired(peopled: Store) -> None:
    await spend(peopled)
    assert await spend(peopled, "next", now=LATER, until=LATER + timedelta(minutes=6))
    assert not await spend(peopled, now=LATER)
    assert await spend(peopled, "after", now=LATER + timedelta(seconds=1), until=LATER + timedelta(minutes=6))
    assert not await is_spent(peopled)


async def test_what_has_expired_is_forgotten_faster_than_it_comes(peopled: Store) -> None:
    for number in range(40):
        await spend(peopled, f"old_{number}", until=NOW + timedelta(seconds=number))
    for number in range(10):
        await spend(peopled, f"new_{number}", now=LATER, until=LATER + timedelta(hours=1))
    assert [number for number in range(40) if await is_spent(peopled, f"old_{number}")] == []
    assert all([await is_spent(peopled, f"new_{number}") for number in range(10)])


async def test_one_tenant_forgets_nothing_of_another(peopled: Store) -> None:
    await spend(peopled, tenant=OTHER)
    await spend(peopled, "k", now=LATER + timedelta(days=1), until=LATER + timedelta(days=2))
    assert await is_spent(peopled, tenant=OTHER)


# --- at once ----------------------------------------------------------------------------------------------


async def exactly_one_of_many(stores: Sequence[Store]) -> None:
    await people(stores[0])
    turns = zip(range(40), cycle(stores), strict=False)
    firsts = await asyncio.gather(*(spend(store, on=f"use_{number}") for number, store in turns))
    assert firsts.count(True) == 1
    async with stores[-1].read() as tx:
        assert await tx.spent.spent_on(ACME, ISSUER, "j") == f"use_{firsts.index(True)}"


async def whoever_comes_second_waits_for_the_first(stores: Sequence[Store]) -> None:
    """A transaction that ends without a trace leaves the token to the next, which was waiting for it."""
    await people(stores[0])
    holds, may_end = asyncio.Event(), asyncio.Event()

    async def gives_up() -> None:
        async with stores[0].write() as tx:
            assert await tx.spent.spend(ACME, ISSUER, "j", expires_at=LATER, now=NOW)
            holds.set()
            await may_end.wait()

    first = asyncio.create_task(gives_up())
    await holds.wait()
    second = asyncio.create_task(spend(stores[-1]))
    done, _ = await asyncio.wait({second}, timeout=0.2)
    assert not done
    may_end.set()
    await first
    assert await second


async def many_forget_at_once(stores: Sequence[Store]) -> None:
    """Nobody waits for another's forgetting, and nobody fails by it."""
    await people(stores[0])
    for number in range(30):
        await spend(stores[0], f"old_{number}")
    turns = zip(range(30), cycle(stores), strict=False)
    now = LATER + timedelta(seconds=1)
    firsts = await asyncio.gather(
        *(spend(store, f"new_{number}", now=now, until=now + timedelta(hours=1)) for number, store in turns)
    )
    assert all(firsts)
    assert not any([await is_spent(stores[-1], f"old_{number}") for number in range(30)])


async def test_of_many_at_once_exactly_one_spends_a_token(store: Store) -> None:
    await exactly_one_of_many((store,))


async def test_of_many_in_two_workers_exactly_one_spends_a_token(two_stores: tuple[Store, Store]) -> None:
    await exactly_one_of_many(two_stores)


async def test_a_token_is_nobodys_while_it_is_not_settled_who_spent_it(two_stores: tuple[Store, Store]) -> None:
    await whoever_comes_second_waits_for_the_first(two_stores)


async def test_two_workers_forget_side_by_side(two_stores: tuple[Store, Store]) -> None:
    await many_forget_at_once(two_stores)
