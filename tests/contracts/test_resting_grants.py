"""Which living grants rest on what was signed so: what begins like it, and everything below."""

from datetime import timedelta

import pytest

from app.core.grant import Grant, GrantId, RunId
from app.ports import Store
from tests.contracts.examples import CHILD, GRANDCHILD, ROOT, lineage_of
from tests.samples import ACME, NOW, a_child, a_grant

pytestmark = pytest.mark.anyio

SIBLING = a_child(ROOT, grant_id=GrantId("gr_root_d"), child_run_id=RunId("run_d"))
# Its id continues the child's, but it is not below it.
NAMESAKE = a_child(ROOT, grant_id=GrantId("gr_root_c0"), child_run_id=RunId("run_c0"))
OTHER_ROOT = a_grant(grant_id=GrantId("gr_b"), root_grant_id=GrantId("gr_b"), child_run_id=RunId("run_b"))
OLD, NEW = "old.", "new."


async def signed(store: Store, signatures: dict[str, list[tuple[Grant, ...]]]) -> None:
    """Store lineages' last links, each signed so."""
    async with store.write() as tx:
        for start, lineages in signatures.items():
            for lineage in lineages:
                leaf = lineage[-1]
                await tx.grants.add(leaf, f"{start}{leaf.grant_id}", lineage_of(*lineage), claims_run=True)
        await tx.commit()


async def resting(store: Store, start: str, *, seconds: int = 0, limit: int = 100) -> int:
    async with store.read() as tx:
        return await tx.grants.resting_on(start, live_at=NOW + timedelta(seconds=seconds), limit=limit)


async def test_what_is_below_a_grant_rests_on_what_signed_it(store: Store) -> None:
    await signed(store, {OLD: [(ROOT,), (OTHER_ROOT,)], NEW: [(ROOT, CHILD), (ROOT, CHILD, GRANDCHILD)]})
    assert (await resting(store, OLD), await resting(store, NEW)) == (4, 2)
    assert await resting(store, "ne") == 2
    assert await resting(store, "NEW.") == 0
    assert await resting(store, "w.") == 0
    assert await resting(store, OLD, limit=3) == 3


async def test_what_is_beside_a_grant_does_not_rest_on_it(store: Store) -> None:
    await signed(store, {OLD: [(ROOT,), (ROOT, SIBLING), (ROOT, NAMESAKE)], NEW: [(ROOT, CHILD)]})
    assert await resting(store, NEW) == 1


async def test_only_what_lives_is_counted(store: Store) -> None:
    await signed(store, {OLD: [(ROOT,), (ROOT, SIBLING), (ROOT, CHILD), (ROOT, CHILD, GRANDCHILD)]})
    async with store.write() as tx:
        await tx.grants.close(ACME, CHILD.grant_id, reason="done", at=NOW)
        await tx.commit()
    assert await resting(store, OLD) == 2
    lifetime = int((ROOT.expires_at - NOW).total_seconds())
    assert await resting(store, OLD, seconds=lifetime - 1) == 2
    assert await resting(store, OLD, seconds=lifetime) == 0
