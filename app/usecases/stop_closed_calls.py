"""Abort this process's calls under grants that were closed anywhere: by another worker, or just now here."""

from app.usecases.world import World


async def stop_closed_calls(world: World) -> int:
    """How many calls were aborted. Costs nothing while no call is in flight."""
    grants = world.in_flight.grants()
    if not grants:
        return 0
    async with world.store.read() as tx:
        closed = await tx.grants.closed_among(grants)
    return world.in_flight.abort(closed)
