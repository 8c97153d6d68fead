"""Abort this process's calls that were stopped anywhere: their grant closed, or they themselves cancelled."""

from app.usecases.cancel_call import cancel_named
from app.usecases.world import World


async def stop_closed_calls(world: World) -> int:
    """How many calls were aborted. Costs nothing while no call is in flight."""
    grants, names = world.in_flight.grants(), world.in_flight.names()
    if not grants and not names:
        return 0
    async with world.store.read() as tx:
        closed = await tx.grants.closed_among(grants) if grants else frozenset()
        cancelled = await cancel_named(world, tx, names)
    return world.in_flight.abort(closed) + cancelled
