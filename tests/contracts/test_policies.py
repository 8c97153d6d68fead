"""Versions of policies: each comes back as it was made, for good, in the order in which they were made."""

import asyncio
from dataclasses import replace
from datetime import UTC, timedelta

import pytest

from app.core.grant import TenantId
from app.core.registry import Policy, PolicyCase, Tenant
from app.core.strict_json import JsonObject
from app.ports import AlreadyExists, Store
from tests.contracts.examples import POLICY, TENANT, publish, register
from tests.samples import ACME

pytestmark = pytest.mark.anyio

OTHER = Tenant(tenant_id=TenantId("other"), name="Other")
THEIRS = replace(POLICY, tenant_id=OTHER.tenant_id, text="forbid (principal, action, resource);")


async def two_tenants(store: Store) -> None:
    await register(store)
    async with store.write() as tx:
        await tx.registry.add_tenant(OTHER)
        await tx.commit()


async def stored(store: Store, version: str = POLICY.version, tenant_id: TenantId = ACME) -> Policy | None:
    async with store.read() as tx:
        return await tx.policies.policy(tenant_id, version)


async def count(store: Store, tenant_id: TenantId = ACME) -> int:
    async with store.read() as tx:
        return await tx.policies.count(tenant_id)


async def versions(store: Store, *, after: str | None = None, limit: int = 100) -> list[str]:
    async with store.read() as tx:
        return [policy.version for policy in await tx.policies.page(ACME, after=after, limit=limit)]


async def test_a_policy_comes_back_exactly_as_it_was(store: Store) -> None:
    await register(store)
    await publish(store, POLICY)
    policy = await stored(store)
    assert policy == POLICY
    async with store.read() as tx:
        assert await tx.policies.page(ACME, after=None, limit=5) == (POLICY,)


async def test_the_time_of_a_policy_is_in_utc(store: Store) -> None:
    await register(store)
    await publish(store, POLICY)
    policy = await stored(store)
    assert policy is not None
    assert policy.created_at.tzinfo is UTC


async def test_the_kinds_of_values_in_a_case_are_kept_apart(store: Store) -> None:
    call: JsonObject = {
        "yes": True,
        "one": 1,
        "half": 0.5,
        "none": None,
        "list": [False, 0, "", {}, []],
        "": {"ü\x00": "\x1a"},
    }
    await register(store)
    await publish(store, replace(POLICY, cases=(PolicyCase(name="odd", permitted=False, call=call),)))
    policy = await stored(store)
    assert policy is not None
    assert repr(sorted(policy.cases[0].call.items())) == repr(sorted(call.items()))


@pytest.mark.parametrize("text", ["", "\x00\x1a\r\n", "ü𝄞" * 10_000, "x" * 65_536], ids=len)
async def test_any_text_comes_back_to_the_letter(store: Store, text: str) -> None:
    policy = replace(POLICY, text=text, description=text[:1000], cases=())
    await register(store)
    await publish(store, policy)
    assert await stored(store) == policy


async def test_what_was_never_made_is_not_there(store: Store) -> None:
    await register(store)
    assert await stored(store) is None
    assert await count(store) == 0
    assert await versions(store) == []


async def test_a_version_is_made_once_and_never_changed(store: Store) -> None:
    await register(store)
    await publish(store, POLICY)
    async with store.write() as tx:
        with pytest.raises(AlreadyExists, match="version"):
            await tx.policies.add(replace(POLICY, text="other", created_at=POLICY.created_at + timedelta(days=1)))
        # The transaction goes on.
        await tx.policies.add(replace(POLICY, version="v2"))
        await tx.commit()
    assert await stored(store) == POLICY
    assert await versions(store) == ["v1", "v2"]
    assert await count(store) == 2


async def test_versions_are_each_tenants_own(store: Store) -> None:
    await two_tenants(store)
    await publish(store, replace(THEIRS, version="v2"), POLICY, THEIRS, replace(POLICY, version="v3"))
    assert await stored(store) == POLICY
    assert await stored(store, tenant_id=OTHER.tenant_id) == THEIRS
    assert await stored(store, "v2") is None
    assert (await count(store), await count(store, OTHER.tenant_id)) == (2, 2)
    assert await versions(store) == ["v1", "v3"]
    # Nothing is behind another tenant's version, wherever it stands there.
    assert await versions(store, after="v2") == []


async def test_a_policy_of_no_tenant_is_a_callers_bug(store: Store) -> None:
    with pytest.raises(AssertionError):
        await publish(store, POLICY)
    async with store.write() as tx:
        await tx.registry.add_tenant(TENANT)
        await tx.commit()
    assert await count(store) == 0


# Neither by name nor by their time.
MADE = ("v9", "v10", "v11", "a", "Z", "v1")


async def test_versions_are_listed_in_the_order_in_which_they_were_made(store: Store) -> None:
    await register(store)
    made = [
        replace(POLICY, version=version, created_at=POLICY.created_at - timedelta(days=place))
        for place, version in enumerate(MADE)
    ]
    await publish(store, *made[:2])
    await publish(store, *made[2:])
    assert await versions(store) == list(MADE)
    assert await versions(store, limit=4) == list(MADE[:4])
    assert await versions(store, after="a", limit=4) == ["Z", "v1"]
    assert await versions(store, after="v9", limit=2) == ["v10", "v11"]
    assert await versions(store, after="v1") == []


async def test_nothing_is_behind_a_version_that_is_none(store: Store) -> None:
    await register(store)
    await publish(store, POLICY)
    assert await versions(store, after="v0") == []


async def test_what_is_not_committed_takes_no_place(store: Store) -> None:
    await register(store)
    async with store.write() as tx:
        await tx.policies.add(POLICY)
        assert await tx.policies.count(ACME) == 1
    await publish(store, replace(POLICY, version="v2"))
    assert await versions(store) == ["v2"]
    assert await count(store) == 1


async def test_a_version_goes_to_exactly_one(two_stores: tuple[Store, Store]) -> None:
    await register(two_stores[0])

    async def attempt(number: int) -> bool:
        try:
            await publish(two_stores[number % 2], replace(POLICY, description=str(number)))
        except AlreadyExists:
            return False
        return True

    made = await asyncio.gather(*map(attempt, range(20)))
    assert sum(made) == 1
    policy = await stored(two_stores[0])
    assert policy is not None
    assert policy.description == str(made.index(True))


async def test_versions_that_are_made_at_once_each_get_their_place(two_stores: tuple[Store, Store]) -> None:
    await register(two_stores[0])
    names = [f"v{number}" for number in range(20)]

    async def make(number: int) -> None:
        await publish(two_stores[number % 2], replace(POLICY, version=names[number]))

    await asyncio.gather(*map(make, range(20)))
    assert sorted(await versions(two_stores[0])) == sorted(names)
    assert await count(two_stores[1]) == len(names)
