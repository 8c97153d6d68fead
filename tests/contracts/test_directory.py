"""The directory: things come back exactly as they were, and nobody but their own tenant finds them."""

import asyncio
from dataclasses import replace

import pytest

from app.core.grant import TenantId
from app.core.registry import Resource, Tenant
from app.core.resources import Attributes, ResourceRef
from app.ports import Store
from tests.contracts.examples import RESOURCE, describe, register
from tests.samples import ACME

pytestmark = pytest.mark.anyio

OTHER = Tenant(tenant_id=TenantId("other"), name="Other")
THEIRS = replace(RESOURCE, tenant_id=OTHER.tenant_id, attributes={"owner": "user:eve"})
REF = RESOURCE.ref


async def two_tenants(store: Store) -> None:
    await register(store)
    async with store.write() as tx:
        await tx.registry.add_tenant(OTHER)
        await tx.commit()


async def found(store: Store, ref: ResourceRef = REF, tenant_id: TenantId = ACME) -> Resource | None:
    async with store.read() as tx:
        return await tx.directory.resource(tenant_id, ref)


def a_thing(ref: ResourceRef, **attributes: str | float | None) -> Resource:
    return Resource(tenant_id=ACME, type=ref.type, id=ref.id, attributes=attributes)


def to_the_letter(attributes: Attributes) -> dict[str, str]:
    """To Python `True` equals 1 and 1.0; to a policy it does not."""
    return {name: repr(value) for name, value in attributes.items()}


# --- one thing --------------------------------------------------------------------------------------------


async def test_a_thing_comes_back_exactly_as_it_was(store: Store) -> None:
    await register(store)
    await describe(store, RESOURCE)
    assert await found(store) == RESOURCE


async def test_the_kinds_of_scalars_are_kept_apart(store: Store) -> None:
    attributes: Attributes = {
        "yes": True, "one": 1, "no": False, "zero": 0, "nothing": None, "empty": "", "text": "1", "word": "true",
        "half": 0.5, "huge": 1e300, "most": 2**53 - 1, "least": -(2**53) + 1, "Ümläut": 'ü𝄞\x00\x1a\n\\"', "": "none",
    }  # fmt: skip
    await register(store)
    await describe(store, replace(RESOURCE, attributes=attributes))
    thing = await found(store)
    assert thing is not None
    assert to_the_letter(thing.attributes) == to_the_letter(attributes)
    async with store.read() as tx:
        looked_up = await tx.directory.look_up(ACME, [REF])
    assert to_the_letter(looked_up[REF]) == to_the_letter(attributes)


async def test_a_thing_without_attributes_is_still_on_record(store: Store) -> None:
    await register(store)
    await describe(store, a_thing(REF))
    async with store.read() as tx:
        assert await tx.directory.look_up(ACME, [REF]) == {REF: {}}


async def test_what_was_never_put_is_not_there(store: Store) -> None:
    await register(store)
    assert await found(store) is None
    async with store.read() as tx:
        assert await tx.directory.look_up(ACME, [REF]) == {}
        assert await tx.directory.page(ACME, kind=None, after=None, limit=5) == ()


async def test_putting_a_thing_again_replaces_all_of_it(store: Store) -> None:
    await register(store)
    await describe(store, RESOURCE)
    changed = replace(RESOURCE, attributes={"colour": "red"})
    await describe(store, changed)
    assert await found(store) == changed


async def test_of_a_thing_that_is_put_twice_at_once_the_last_stays(store: Store) -> None:
    await register(store)
    things = [a_thing(REF, number=number) for number in (3, 1, 2)]
    await describe(store, *things, a_thing(ResourceRef("a", "a")))
    assert await found(store) == things[-1]


async def test_a_removed_thing_is_gone_and_removed_once(store: Store) -> None:
    await two_tenants(store)
    await describe(store, RESOURCE, THEIRS)
    async with store.write() as tx:
        assert await tx.directory.remove(ACME, REF)
        assert not await tx.directory.remove(ACME, REF)
        await tx.commit()
    assert await found(store) is None
    assert await found(store, tenant_id=OTHER.tenant_id) == THEIRS


@pytest.mark.parametrize("odd", ["", "a\x00b", "a\x1a0b", "a", "%", "_", "'; --", "ü𝄞", "Case_7", "a" * 1000])
async def test_any_type_and_id_stands_for_itself_and_no_other(store: Store, odd: str) -> None:
    refs = [ResourceRef(odd, "id"), ResourceRef("type", odd)]
    others = [ResourceRef(odd + "\x00", "id"), ResourceRef("type", odd + "\x00"), ResourceRef("id", odd), REF]
    await register(store)
    await describe(store, *(a_thing(ref, name=ref.id) for ref in refs))
    async with store.read() as tx:
        assert await tx.directory.look_up(ACME, refs + others) == {ref: {"name": ref.id} for ref in refs}
        assert [await tx.directory.resource(ACME, ref) for ref in others] == [None] * len(others)


# --- whose it is ------------------------------------------------------------------------------------------


async def test_another_tenants_thing_of_the_same_name_is_another_thing(store: Store) -> None:
    await two_tenants(store)
    await describe(store, RESOURCE, THEIRS)
    assert await found(store) == RESOURCE
    assert await found(store, tenant_id=OTHER.tenant_id) == THEIRS
    async with store.read() as tx:
        assert await tx.directory.look_up(OTHER.tenant_id, [REF]) == {REF: THEIRS.attributes}
        assert await tx.directory.page(ACME, kind=None, after=None, limit=5) == (RESOURCE,)


async def test_another_tenants_thing_is_not_found_in_any_way(store: Store) -> None:
    await two_tenants(store)
    await describe(store, THEIRS)
    assert await found(store) is None
    async with store.write() as tx:
        assert await tx.directory.look_up(ACME, [REF]) == {}
        assert await tx.directory.page(ACME, kind=REF.type, after=None, limit=5) == ()
        assert not await tx.directory.remove(ACME, REF)


async def test_a_thing_of_no_tenant_is_a_callers_bug_and_nothing_is_put(store: Store) -> None:
    await register(store)
    with pytest.raises(AssertionError):
        await describe(store, RESOURCE, THEIRS)
    assert await found(store) is None


# --- many things ------------------------------------------------------------------------------------------


async def test_things_of_many_types_are_looked_up_together(store: Store) -> None:
    """More types and more things than one statement takes."""
    things = [a_thing(ResourceRef(f"type_{number % 250}", f"id_{number}"), number=number) for number in range(1500)]
    await register(store)
    await describe(store, *things)
    wanted = [thing.ref for thing in things if thing.attributes["number"] != 7]
    strangers = [ResourceRef("type_0", "id_1"), ResourceRef("type_1", "id_0"), ResourceRef("type_999", "id_7")]
    async with store.read() as tx:
        looked_up = await tx.directory.look_up(ACME, frozenset(wanted + strangers))
        again = await tx.directory.look_up(ACME, [wanted[0], strangers[0], wanted[0]])
    assert looked_up == {thing.ref: thing.attributes for thing in things if thing.ref in wanted}
    assert again == {wanted[0]: things[0].attributes}


async def test_putting_and_looking_up_nothing_does_nothing(store: Store) -> None:
    await describe(store)
    async with store.read() as tx:
        assert await tx.directory.look_up(ACME, ()) == {}


async def test_writers_of_the_same_things_wait_for_each_other_and_all_succeed(
    two_stores: tuple[Store, Store],
) -> None:
    await register(two_stores[0])
    refs = [ResourceRef("case", f"id_{number}") for number in range(300)]

    async def write(number: int) -> None:
        things = [a_thing(ref, writer=number) for ref in refs]
        await describe(two_stores[number % 2], *(things if number % 4 < 2 else things[::-1]))

    await asyncio.gather(*map(write, range(8)))
    async with two_stores[0].read() as tx:
        looked_up = await tx.directory.look_up(ACME, refs)
    assert len(looked_up) == len(refs)
    assert len({attributes["writer"] for attributes in looked_up.values()}) == 1


# --- pages ------------------------------------------------------------------------------------------------

# In the order of their code points, which is no language's order and not the order of UTF-16.
NAMES = ("", "-", "A", "Z", "a", "a-b", "a_b", "ab", "b", "ä", "\uffee", "𝄞")
PLACES = tuple(ResourceRef(kind, name) for kind in ("Z", "case", "case_b", "ä") for name in NAMES)


async def pages(store: Store, *, kind: str | None, limit: int) -> list[list[ResourceRef]]:
    """Every page, each starting behind the last thing of the one before."""
    after, read = None, []
    async with store.read() as tx:
        while page := await tx.directory.page(ACME, kind=kind, after=after, limit=limit):
            assert after is None or page[0].ref > after
            read.append([thing.ref for thing in page])
            after = page[-1].ref
    return read


async def listed(store: Store) -> None:
    await two_tenants(store)
    await describe(store, *(a_thing(ref) for ref in reversed(PLACES)), THEIRS)


async def test_a_listing_is_by_type_and_id_in_code_point_order(store: Store) -> None:
    await listed(store)
    assert sorted(PLACES) == list(PLACES)
    read = await pages(store, kind=None, limit=7)
    assert [len(page) for page in read] == [7] * 6 + [6]
    assert [ref for page in read for ref in page] == list(PLACES)


async def test_a_listing_of_one_type_holds_no_other(store: Store) -> None:
    await listed(store)
    read = await pages(store, kind="case", limit=5)
    assert [len(page) for page in read] == [5, 5, 2]
    assert [ref.id for page in read for ref in page] == list(NAMES)
    assert await pages(store, kind="cas", limit=5) == []


@pytest.mark.parametrize("kind", ["Z", "case", "case_b", None])
@pytest.mark.parametrize(
    "after",
    [ResourceRef("", ""), ResourceRef("case", "aa"), ResourceRef("case", "\U0010ffff"), ResourceRef("dog", "a")],
    ids=str,
)
async def test_a_listing_continues_behind_a_place_where_nothing_is(
    store: Store, kind: str | None, after: ResourceRef
) -> None:
    await listed(store)
    async with store.read() as tx:
        page = await tx.directory.page(ACME, kind=kind, after=after, limit=100)
    assert [thing.ref for thing in page] == [ref for ref in PLACES if ref > after and kind in (None, ref.type)]


async def test_a_listing_tells_the_attributes(store: Store) -> None:
    await register(store)
    await describe(store, RESOURCE)
    async with store.read() as tx:
        assert await tx.directory.page(ACME, kind="case", after=None, limit=1) == (RESOURCE,)
