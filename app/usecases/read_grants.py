"""What a caller may know of grants: one, a page of them, and a lineage. Others' grants do not exist for it.

A grant whose record can't be verified, since its key was retired or somebody changed it, is shown as such: that the
store has it, and never what it would allow.
"""

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from app.core.decision import Account, lifeless
from app.core.grant import ChainBroken, Grant, GrantId
from app.core.reasons import Reason
from app.core.registry import Scope
from app.ports import GrantFilter, StoredGrant, TokenRefused, Transaction
from app.usecases.derive_grant import sees
from app.usecases.failures import Denied, NotFound, UnverifiableGrant
from app.usecases.load_chain import Lineage, death, load_lineage, verified_grant
from app.usecases.prove_possession import unbound
from app.usecases.world import Caller, World

ACTIVE = "active"
UNVERIFIABLE = "unverifiable"
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
class UnverifiableView:
    """What the store has of a grant whose record can't be verified. Nobody's signature stands behind any of it."""

    stored: StoredGrant


View: TypeAlias = GrantView | UnverifiableView


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPage:
    """Grants, and where the next page starts."""

    views: Sequence[View]
    next: GrantId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageView:
    """A grant's ancestors, root first, and its subtree, parents first and itself the first."""

    ancestors: tuple[View, ...]
    subtree: tuple[View, ...]
    truncated: bool


async def read_grant(world: World, caller: Caller, grant_id: GrantId) -> View | Denied:
    """One grant. Raises NotFound for what the caller may not see."""
    async with world.store.read() as tx:
        above = await _seen(tx, world, caller, grant_id)
    return above if isinstance(above, Denied) else above[-1]


async def read_lineage(world: World, caller: Caller, grant_id: GrantId) -> LineageView | Denied:
    """A grant's ancestors, as far as the caller may see them, and the first of its subtree, with usage."""
    limit = world.rules.max_lineage_rows
    async with world.store.read() as tx:
        above = await _seen(tx, world, caller, grant_id)
        if isinstance(above, Denied):
            return above
        subtree = await tx.grants.subtree(caller.tenant_id, grant_id, limit + 1)
    broken = {view.stored.grant_id for view in above if isinstance(view, UnverifiableView)}
    return LineageView(
        ancestors=tuple(above[:-1]),
        subtree=tuple(await _views(world, subtree[:limit], broken)),
        truncated=len(subtree) > limit,
    )


async def _seen(tx: Transaction, world: World, caller: Caller, grant_id: GrantId) -> list[View] | Denied:
    """The grant, behind those of its ancestors that the caller may see.

    What can't be verified doesn't say whose it is either, so only those see it who see the whole tenant.
    """
    try:
        lineage = await seen_lineage(tx, world, caller, grant_id)
    except UnverifiableGrant:
        if not caller.sees_whole_tenant:
            raise
        return await _views(world, await tx.grants.chain(caller.tenant_id, grant_id))
    if isinstance(lineage, Denied):
        return lineage
    return await _views(world, [*_visible(caller, lineage), lineage.stored[-1]])


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
        above = await _above(tx, stored[:limit])
    following = stored[limit - 1].grant_id if len(stored) > limit else None
    broken = {view.stored.grant_id for view in await _views(world, above) if isinstance(view, UnverifiableView)}
    views = await _views(world, stored[:limit], broken)
    if where.live_at is not None:
        # The store takes for alive what is neither closed nor expired.
        views = [view for view in views if isinstance(view, GrantView)]
    return GrantPage(views=views, next=following)


async def _above(tx: Transaction, stored: Sequence[StoredGrant]) -> list[StoredGrant]:
    """The ancestors of these grants that are not among them: a grant is worth no more than they are."""
    known = {link.grant_id: link for link in stored}
    for link in stored:
        if not known.keys() >= {*link.lineage}:
            known |= {each.grant_id: each for each in await tx.grants.chain(link.tenant_id, link.lineage[-2])}
    return [*known.values()][len(stored) :]


async def seen_lineage(tx: Transaction, world: World, caller: Caller, grant_id: GrantId) -> Lineage | Denied:
    """The lineage of a grant that the caller may see, unless what it is called with is dead.

    Raises NotFound, and UnverifiableGrant where a live caller names a grant whose record, or one above, isn't ours.
    """
    lineage = await load_lineage(tx, world, caller.tenant_id, grant_id, lock=False)
    if lineage is None or not sees(caller, lineage):
        raise NotFound("no such grant")
    if isinstance(lineage, Lineage) and caller.grant_id is not None:
        return await unbound(tx, caller, lineage.chain) or await death(tx, world, lineage) or lineage
    if isinstance(lineage, Denied) and caller.grant_id is None:
        raise UnverifiableGrant
    return lineage


async def _views(world: World, stored: Sequence[StoredGrant], broken: AbstractSet[GrantId] = frozenset()) -> list[View]:
    """Each for its readers. What is below one that can't be verified, be it among them or `broken`, can't be either."""
    views: list[View] = []
    for link in stored:
        views.append(view_of(world, link))
        # Verifying takes a while where documents are large; others are served in between.
        await asyncio.sleep(0)
    bad = broken | {view.stored.grant_id for view in views if isinstance(view, UnverifiableView)}
    pairs = zip(stored, views, strict=True)
    return [view if bad.isdisjoint(link.lineage) else UnverifiableView(stored=link) for link, view in pairs]


def view_of(world: World, stored: StoredGrant) -> View:
    """A stored grant for its readers, its own signature verified."""
    try:
        grant = verified_grant(world, stored).grant
    except (TokenRefused, ChainBroken):
        return UnverifiableView(stored=stored)
    dead = lifeless(grant, stored.account, world.clock())
    return GrantView(
        grant=grant,
        account=stored.account,
        status=ACTIVE if dead is None else STATUS[dead.reason],
        closed_at=stored.closed_at,
    )
