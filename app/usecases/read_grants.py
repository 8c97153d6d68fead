"""What a caller may know of grants: one, a page of them, and a lineage. Others' grants do not exist for it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from app.core.decision import Account, lifeless
from app.core.grant import ChainBroken, Grant, GrantId
from app.core.reasons import Reason
from app.core.registry import Scope
from app.ports import GrantFilter, StoredGrant, TokenRefused, Transaction
from app.usecases.derive_grant import sees
from app.usecases.failures import Denied, NotFound
from app.usecases.load_chain import Lineage, death, load_lineage, verified_grant
from app.usecases.world import Caller, World

ACTIVE = "active"
STATUS = {
    Reason.GRANT_REVOKED: "revoked",
    Reason.GRANT_CLOSED: "closed",
    Reason.GRANT_EXPIRED: "expired",
    Reason.GRANT_NOT_YET_VALID: "not_yet_valid",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantView:
    """A grant with what became of it."""

    grant: Grant
    account: Account
    status: str
    closed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPage:
    """Grants, and where the next page starts."""

    views: Sequence[GrantView]
    next: GrantId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageView:
    """A grant's ancestors, root first, and its subtree, parents first and itself the first."""

    ancestors: tuple[GrantView, ...]
    subtree: tuple[GrantView, ...]
    truncated: bool


async def read_grant(world: World, caller: Caller, grant_id: GrantId) -> GrantView | Denied:
    """One grant. Raises NotFound for what the caller may not see."""
    async with world.store.read() as tx:
        lineage = await seen_lineage(tx, world, caller, grant_id)
    return lineage if isinstance(lineage, Denied) else view_of(world, lineage.stored[-1])


async def read_lineage(world: World, caller: Caller, grant_id: GrantId) -> LineageView | Denied:
    """A grant's ancestors, as far as the caller may see them, and the first of its subtree, with usage."""
    limit = world.rules.max_lineage_rows
    async with world.store.read() as tx:
        lineage = await seen_lineage(tx, world, caller, grant_id)
        if isinstance(lineage, Denied):
            return lineage
        subtree = await tx.grants.subtree(caller.tenant_id, grant_id, limit + 1)
    return LineageView(
        ancestors=tuple([view_of(world, link) for link in _visible(caller, lineage)]),
        subtree=tuple(await _views(world, subtree[:limit])),
        truncated=len(subtree) > limit,
    )


def _visible(caller: Caller, lineage: Lineage) -> list[StoredGrant]:
    """The ancestors that the caller could read by themselves: what a parent may do is no child's to know."""
    above = [lineage.up_to(length) for length in range(1, len(lineage.stored))]
    return [one.stored[-1] for one in above if sees(caller, one)]


async def list_grants(
    world: World, caller: Caller, where: GrantFilter, *, before: GrantId | None, limit: int
) -> GrantPage | Denied:
    """A page, newest first: every grant of the tenant for those who may see it whole, else the caller's own."""
    if caller.grant_id is not None or not (caller.has(Scope.GRANTS_READ) or caller.sees_whole_tenant):
        detail = "listing grants needs the scope grants:read"
        return Denied(reason=Reason.INSUFFICIENT_SCOPE, detail=detail, scope=Scope.GRANTS_READ)
    scoped = where if caller.sees_whole_tenant else replace(where, visible_to=caller.client_id)
    async with world.store.read() as tx:
        stored = await tx.grants.page(caller.tenant_id, scoped, before=before, limit=limit + 1)
    following = stored[limit - 1].grant_id if len(stored) > limit else None
    return GrantPage(views=await _views(world, stored[:limit]), next=following)


async def seen_lineage(tx: Transaction, world: World, caller: Caller, grant_id: GrantId) -> Lineage | Denied:
    """The lineage of a grant that the caller may see, unless what it is called with is dead. Raises NotFound."""
    lineage = await load_lineage(tx, world, caller.tenant_id, grant_id, lock=False)
    if lineage is None or not sees(caller, lineage):
        raise NotFound("no such grant")
    if isinstance(lineage, Lineage) and caller.grant_id is not None:
        return await death(tx, world, lineage) or lineage
    return lineage


async def _views(world: World, stored: Sequence[StoredGrant]) -> list[GrantView]:
    """Those whose record can be verified: one that was tampered with must not hide the others."""
    views: list[GrantView] = []
    for link in stored:
        with suppress(NotFound):
            views.append(view_of(world, link))
        # Verifying takes a while where documents are large; others are served in between.
        await asyncio.sleep(0)
    return views


def view_of(world: World, stored: StoredGrant) -> GrantView:
    """A stored grant for its readers, its own signature verified. Raises NotFound where it does not hold."""
    try:
        grant = verified_grant(world, stored).grant
    except (TokenRefused, ChainBroken) as refused:
        raise NotFound("the grant's record can't be verified") from refused
    dead = lifeless(grant, stored.account, world.clock())
    return GrantView(
        grant=grant,
        account=stored.account,
        status=ACTIVE if dead is None else STATUS[dead.reason],
        closed_at=stored.closed_at,
    )
