"""Grants: stored once and unchanged, found by lineage, and closed with everything below them."""

import traceback
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.budget import Amount, Budget
from app.core.decision import Account
from app.core.grant import ClientId, Grant, GrantId, RunId, TenantId
from app.ports import NO_CALL_LEFT, AlreadyExists, GrantFilter, Store, StoredGrant
from tests.contracts.examples import (
    CHILD,
    GRANDCHILD,
    ROOT,
    account,
    add_below,
    add_chain,
    lineage_of,
    posted_and_pending,
)
from tests.samples import ACME, NOW, a_child, a_grant

pytestmark = pytest.mark.anyio

OTHER_TENANT = TenantId("other")
SIBLING = a_child(ROOT, grant_id=GrantId("gr_root_d"), child_run_id=RunId("run_d"))
OTHER_ROOT = a_grant(grant_id=GrantId("gr_b"), root_grant_id=GrantId("gr_b"), child_run_id=RunId("run_b"))
# Its id continues the child's, but it is not below it.
NAMESAKE = a_child(ROOT, grant_id=GrantId("gr_root_c0"), child_run_id=RunId("run_c0"))


async def ids_of_page(
    store: Store, where: GrantFilter, before: GrantId | None = None, limit: int = 10
) -> list[GrantId]:
    async with store.read() as tx:
        page = await tx.grants.page(ACME, where, before=before, limit=limit)
    return [stored.grant_id for stored in page]


async def subtree_of(store: Store, grant: Grant, limit: int = 10) -> list[GrantId]:
    async with store.read() as tx:
        return [stored.grant_id for stored in await tx.grants.subtree(ACME, grant.grant_id, limit)]


async def close(store: Store, grant_id: GrantId, reason: str = "task_complete") -> tuple[GrantId, ...]:
    async with store.write() as tx:
        closed = await tx.grants.close(ACME, grant_id, reason=reason, at=NOW)
        await tx.commit()
    return closed


# --- storing ----------------------------------------------------------------------------------------------


async def test_a_grant_comes_back_with_its_document_and_an_unused_account(store: Store) -> None:
    await add_chain(store, ROOT)
    async with store.read() as tx:
        (stored,) = await tx.grants.chain(ACME, ROOT.grant_id)
    assert stored == StoredGrant(
        tenant_id=ACME,
        grant_id=ROOT.grant_id,
        signed=f"signed {ROOT.grant_id}",
        lineage=(ROOT.grant_id,),
        issued_at=ROOT.issued_at,
        expires_at=ROOT.expires_at,
        account=Account(budget=Budget(account_id=ROOT.grant_id, limit=ROOT.limit)),
    )


async def test_a_chain_comes_root_first_with_each_links_own_lineage(store: Store) -> None:
    ids = await add_chain(store, ROOT, CHILD, GRANDCHILD)
    async with store.read() as tx:
        chain = await tx.grants.chain(ACME, GRANDCHILD.grant_id)
        assert [stored.lineage for stored in chain] == [(*ids[:1],), (*ids[:2],), (*ids[:3],)]
        assert await tx.grants.chain(ACME, CHILD.grant_id) == chain[:2]


async def test_a_grant_of_another_tenant_is_not_there(store: Store) -> None:
    await add_chain(store, ROOT, CHILD)
    async with store.write() as tx:
        assert await tx.grants.chain(OTHER_TENANT, CHILD.grant_id) == ()
        assert await tx.grants.subtree(OTHER_TENANT, ROOT.grant_id, 10) == ()
        assert await tx.grants.page(OTHER_TENANT, GrantFilter(), before=None, limit=10) == ()
        assert await tx.grants.children(OTHER_TENANT, ROOT.grant_id) == 0
        assert await tx.grants.tree_size(OTHER_TENANT, ROOT.grant_id) == 0
        assert await tx.grants.close(OTHER_TENANT, ROOT.grant_id, reason="cancelled", at=NOW) == ()
        assert await tx.grants.closed_among([(OTHER_TENANT, ROOT.grant_id)]) == frozenset()


async def test_two_tenants_may_use_the_same_ids(store: Store) -> None:
    other = replace(ROOT, tenant_id=OTHER_TENANT, limit=Amount())
    await add_chain(store, ROOT)
    await add_chain(store, other)
    async with store.read() as tx:
        (stored,) = await tx.grants.chain(OTHER_TENANT, ROOT.grant_id)
    assert stored.account.budget.limit == Amount()
    assert (await account(store, ROOT.grant_id)).budget.limit == ROOT.limit


async def test_a_claimed_run_is_refused_to_the_next_grant_and_leaves_no_trace_of_it(store: Store) -> None:
    await add_chain(store, ROOT)
    rival = a_grant(grant_id=GrantId("gr_rival"), root_grant_id=GrantId("gr_rival"))
    async with store.write() as tx:
        with pytest.raises(AlreadyExists, match="childRunId"):
            await tx.grants.add(rival, "signed", lineage_of(rival), claims_run=True)
        await tx.commit()
    async with store.read() as tx:
        assert await tx.grants.chain(ACME, rival.grant_id) == ()


async def test_a_node_of_the_same_run_needs_no_claim(store: Store) -> None:
    await add_chain(store, ROOT)
    node = replace(CHILD, child_run_id=ROOT.child_run_id)
    async with store.write() as tx:
        await tx.grants.add(node, "signed", lineage_of(ROOT, node), claims_run=False)
        await tx.commit()
    async with store.read() as tx:
        assert len(await tx.grants.chain(ACME, node.grant_id)) == 2


async def test_a_child_without_its_parent_is_a_callers_bug(store: Store) -> None:
    async with store.write() as tx:
        with pytest.raises(AssertionError):
            await tx.grants.add(CHILD, "signed", lineage_of(ROOT, CHILD), claims_run=True)


async def test_an_error_repeats_no_value(store: Store) -> None:
    await add_chain(store, ROOT)
    token = "x" * 9
    with pytest.raises(AssertionError) as refused:
        async with store.write() as tx:
            await tx.grants.add(ROOT, token, lineage_of(ROOT), claims_run=False)
    assert token not in "".join(traceback.format_exception(refused.value))


async def test_a_lineage_that_is_not_the_grants_own_is_a_callers_bug(store: Store) -> None:
    await add_chain(store, ROOT)
    async with store.write() as tx:
        with pytest.raises(AssertionError, match="lineage"):
            await tx.grants.add(CHILD, "signed", lineage_of(ROOT), claims_run=True)


# --- finding ----------------------------------------------------------------------------------------------


async def test_a_subtree_is_the_grant_and_all_below_it_parents_first(store: Store) -> None:
    await add_chain(store, ROOT, CHILD, GRANDCHILD)
    await add_below(store, (ROOT,), SIBLING, NAMESAKE)
    assert await subtree_of(store, CHILD) == lineage_of(CHILD, GRANDCHILD)
    whole = await subtree_of(store, ROOT)
    assert set(whole) == set(lineage_of(ROOT, CHILD, GRANDCHILD, SIBLING, NAMESAKE))
    assert whole[0] == ROOT.grant_id
    assert whole.index(CHILD.grant_id) < whole.index(GRANDCHILD.grant_id)


async def test_a_subtree_is_bounded(store: Store) -> None:
    await add_chain(store, ROOT, CHILD, GRANDCHILD)
    assert await subtree_of(store, ROOT, limit=2) == lineage_of(ROOT, CHILD)


async def test_children_are_counted_directly_below_and_closed_ones_too(store: Store) -> None:
    await add_chain(store, ROOT, CHILD, GRANDCHILD)
    await add_below(store, (ROOT,), SIBLING)
    await close(store, SIBLING.grant_id)
    async with store.read() as tx:
        assert await tx.grants.children(ACME, ROOT.grant_id) == 2
        assert await tx.grants.children(ACME, GRANDCHILD.grant_id) == 0


async def test_a_tree_is_counted_whole_and_closed_grants_too(store: Store) -> None:
    await add_chain(store, ROOT, CHILD, GRANDCHILD)
    await add_below(store, (ROOT,), SIBLING)
    await add_chain(store, OTHER_ROOT)
    await add_chain(store, replace(ROOT, tenant_id=OTHER_TENANT))
    await close(store, CHILD.grant_id)
    async with store.write() as tx:
        assert await tx.grants.tree_size(ACME, ROOT.grant_id) == 4
        assert await tx.grants.tree_size(ACME, OTHER_ROOT.grant_id) == 1
        assert await tx.grants.tree_size(ACME, CHILD.grant_id) == 0
        new = a_child(CHILD, grant_id=GrantId("gr_new"), child_run_id=RunId("run_new"))
        await tx.grants.add(new, "signed", lineage_of(ROOT, CHILD, new), claims_run=True)
        assert await tx.grants.tree_size(ACME, ROOT.grant_id) == 5


async def test_only_those_that_live_at_a_time_are_counted_where_one_is_given(store: Store) -> None:
    brief = a_child(ROOT, grant_id=GrantId("gr_z"), child_run_id=RunId("run_z"), expires_at=NOW + timedelta(minutes=1))
    await add_chain(store, ROOT, CHILD, GRANDCHILD)
    await add_below(store, (ROOT,), SIBLING, brief)
    await close(store, SIBLING.grant_id)
    at = NOW + timedelta(minutes=1)
    async with store.read() as tx:
        for moment, children, size in (
            (None, 3, 5),
            (at - timedelta(microseconds=1), 2, 4),
            (at, 1, 3),
            (ROOT.expires_at, 0, 0),
        ):
            assert await tx.grants.children(ACME, ROOT.grant_id, moment) == children
            assert await tx.grants.tree_size(ACME, ROOT.grant_id, moment) == size
        assert await tx.grants.children(OTHER_TENANT, ROOT.grant_id, NOW) == 0


async def test_closing_leaves_what_has_long_been_dead_as_it_is(store: Store) -> None:
    """Not what has just expired, since a call that began before may still run."""
    just = a_child(ROOT, grant_id=GrantId("gr_just"), child_run_id=RunId("run_just"))
    just = replace(just, expires_at=NOW - NO_CALL_LEFT + timedelta(microseconds=1))
    long_ago = a_child(ROOT, grant_id=GrantId("gr_long"), child_run_id=RunId("run_long"), expires_at=NOW - NO_CALL_LEFT)
    below = a_child(long_ago, grant_id=GrantId("gr_long_b"))
    await add_chain(store, ROOT, CHILD)
    await add_below(store, (ROOT,), just, long_ago)
    await add_below(store, (ROOT, long_ago), below)
    closed = await close(store, ROOT.grant_id)
    assert closed[0] == ROOT.grant_id
    assert sorted(closed) == sorted([ROOT.grant_id, CHILD.grant_id, just.grant_id])
    assert (await account(store, long_ago.grant_id)).closed is None
    assert await close(store, long_ago.grant_id) == (long_ago.grant_id,)


async def test_pages_go_from_the_newest_to_the_oldest(store: Store) -> None:
    ids = await add_chain(store, ROOT, CHILD, GRANDCHILD)
    first = await ids_of_page(store, GrantFilter(), limit=2)
    assert first == ids[:0:-1]
    assert await ids_of_page(store, GrantFilter(), before=first[-1], limit=2) == ids[:1]
    assert await ids_of_page(store, GrantFilter(), before=ids[0]) == []


@pytest.mark.parametrize(
    "where, found",
    [
        (GrantFilter(), (GRANDCHILD, CHILD, ROOT)),
        (GrantFilter(parent_grant_id=ROOT.grant_id), (CHILD,)),
        (GrantFilter(root_grant_id=ROOT.grant_id), (GRANDCHILD, CHILD, ROOT)),
        (GrantFilter(root_grant_id=CHILD.grant_id), ()),
        (GrantFilter(run_id=CHILD.child_run_id), (CHILD,)),
        (GrantFilter(holder=ClientId("worker")), (CHILD,)),
        (GrantFilter(subject="user:ada"), (GRANDCHILD, CHILD, ROOT)),
        (GrantFilter(subject="user:ad_"), ()),
        (GrantFilter(subject="user:ada", parent_grant_id=CHILD.grant_id), (GRANDCHILD,)),
    ],
)
async def test_pages_hold_what_every_filter_admits(store: Store, where: GrantFilter, found: tuple[Grant, ...]) -> None:
    await add_chain(store, ROOT, replace(CHILD, holder=ClientId("worker")), GRANDCHILD)
    assert await ids_of_page(store, where) == lineage_of(*found)


async def test_a_grant_lives_until_it_expires_or_is_closed(store: Store) -> None:
    short = replace(CHILD, expires_at=NOW + timedelta(seconds=1))
    await add_chain(store, ROOT, short)
    assert await ids_of_page(store, GrantFilter(live_at=NOW)) == lineage_of(short, ROOT)
    assert await ids_of_page(store, GrantFilter(live_at=short.expires_at)) == lineage_of(ROOT)
    await close(store, ROOT.grant_id)
    assert await ids_of_page(store, GrantFilter(live_at=NOW)) == []


@pytest.mark.parametrize(
    "client, seen",
    [
        ("planner", (GRANDCHILD, CHILD, ROOT)),
        ("worker", (GRANDCHILD, CHILD)),
        ("issuer", (GRANDCHILD,)),
        ("stranger", ()),
    ],
)
async def test_a_client_sees_what_it_holds_or_issued_and_all_below(
    store: Store, client: str, seen: tuple[Grant, ...]
) -> None:
    child = replace(CHILD, holder=ClientId("worker"))
    await add_chain(store, ROOT, child, replace(GRANDCHILD, issued_by=ClientId("issuer")))
    await add_chain(store, replace(ROOT, tenant_id=OTHER_TENANT))
    assert await ids_of_page(store, GrantFilter(visible_to=ClientId(client))) == lineage_of(*seen)


async def test_visibility_narrows_with_the_other_filters_and_pages(store: Store) -> None:
    await add_chain(store, ROOT, replace(CHILD, holder=ClientId("worker")), GRANDCHILD)
    where = GrantFilter(visible_to=ClientId("worker"), live_at=NOW)
    assert await ids_of_page(store, where, limit=1) == lineage_of(GRANDCHILD)
    assert await ids_of_page(store, where, before=GRANDCHILD.grant_id) == lineage_of(CHILD)


# --- closing ----------------------------------------------------------------------------------------------


async def test_closing_a_grant_closes_all_below_and_nothing_beside_or_above(store: Store) -> None:
    await add_chain(store, ROOT, CHILD, GRANDCHILD)
    await add_below(store, (ROOT,), SIBLING, NAMESAKE)
    assert await close(store, CHILD.grant_id, reason="revoked") == (CHILD.grant_id, GRANDCHILD.grant_id)
    async with store.read() as tx:
        subtree = await tx.grants.subtree(ACME, ROOT.grant_id, 10)
    assert {stored.grant_id: (stored.account.closed, stored.closed_at) for stored in subtree} == {
        ROOT.grant_id: (None, None),
        CHILD.grant_id: ("revoked", NOW),
        GRANDCHILD.grant_id: ("revoked", NOW),
        SIBLING.grant_id: (None, None),
        NAMESAKE.grant_id: (None, None),
    }


async def test_what_is_closed_already_keeps_its_first_reason(store: Store) -> None:
    await add_chain(store, ROOT, CHILD, GRANDCHILD)
    await close(store, CHILD.grant_id, reason="cancelled")
    assert await close(store, ROOT.grant_id, reason="revoked") == (ROOT.grant_id,)
    assert (await account(store, GRANDCHILD.grant_id)).closed == "cancelled"


async def test_closing_twice_closes_nothing_more(store: Store) -> None:
    await add_chain(store, ROOT)
    await close(store, ROOT.grant_id)
    assert await close(store, ROOT.grant_id) == ()


async def test_closing_what_does_not_exist_closes_nothing(store: Store) -> None:
    assert await close(store, GrantId("gr_unknown")) == ()


async def test_closing_leaves_the_money_alone(store: Store) -> None:
    await add_chain(store, ROOT)
    before = await posted_and_pending(store, ROOT.grant_id)
    await close(store, ROOT.grant_id)
    assert await posted_and_pending(store, ROOT.grant_id) == before


async def test_the_closed_ones_among_many_are_found(store: Store) -> None:
    await add_chain(store, ROOT, CHILD)
    await add_below(store, (ROOT,), SIBLING)
    await close(store, CHILD.grant_id)
    unknown = [(ACME, GrantId(f"gr_{number}")) for number in range(2500)]
    wanted = [(ACME, grant.grant_id) for grant in (ROOT, CHILD, SIBLING)]
    async with store.read() as tx:
        assert await tx.grants.closed_among([*unknown, *wanted]) == {CHILD.grant_id}
        assert await tx.grants.closed_among([(OTHER_TENANT, CHILD.grant_id)]) == frozenset()
        assert await tx.grants.closed_among([]) == frozenset()


async def test_the_runs_of_grants_are_known_and_of_nothing_else(store: Store) -> None:
    await add_chain(store, ROOT, CHILD)
    async with store.read() as tx:
        found = await tx.grants.runs_of(ACME, [CHILD.grant_id, ROOT.grant_id, GrantId("gr_unknown")])
        assert found == {grant.grant_id: grant.child_run_id for grant in (ROOT, CHILD)}
        assert await tx.grants.runs_of(OTHER_TENANT, [ROOT.grant_id]) == {}
        assert await tx.grants.runs_of(ACME, []) == {}
