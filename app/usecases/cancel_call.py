"""Cancel a call that somebody waits for, in whatever worker it runs.

A call is named by who made it and how it was numbered, so that nobody can name another's. What is cancelled here has
ended at once; other workers find the name among what may not be used again, and look while they have calls that can
be cancelled.
"""

from datetime import timedelta
from typing import Final

from app.core.grant import TenantId
from app.ports import Transaction
from app.usecases.world import Caller, World

CANCELLED: Final = "cancelled calls"
"""Whose the names are, among what was spent."""

KEPT_FOR: Final = timedelta(minutes=15)
"""Longer than any call runs, so that no worker is too late."""


async def cancel_call(world: World, caller: Caller, name: str) -> None:
    """Cancel the caller's own call of this name, if it still runs anywhere."""
    if world.in_flight.cancel(caller.tenant_id, [name]):
        return
    now = world.clock()
    async with world.store.write() as tx:
        await tx.spent.spend(caller.tenant_id, CANCELLED, name, expires_at=now + KEPT_FOR, now=now)
        await tx.commit()


async def cancel_named(world: World, tx: Transaction, names: dict[TenantId, set[str]]) -> int:
    """Cancel those of this process's calls that were cancelled in another; how many there were."""
    cancelled = 0
    for tenant_id, ours in names.items():
        spent = await tx.spent.spent_among(tenant_id, CANCELLED, sorted(ours))
        cancelled += world.in_flight.cancel(tenant_id, spent)
    return cancelled
