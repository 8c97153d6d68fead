"""The calls that this process is forwarding right now, so that closing a grant can abort them."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.core.grant import GrantId, TenantId


@dataclass(eq=False, slots=True)
class Flight:
    """One forwarded call: the lineage it runs under, and the request that can be cancelled."""

    tenant_id: TenantId
    lineage: frozenset[GrantId]
    request: asyncio.Task[object]
    aborted: bool = False


class InFlight:
    """A register of flights. Never shared between processes: each watches for closings itself."""

    def __init__(self) -> None:
        self._flights: set[Flight] = set()
        self.endings: set[asyncio.Task[object]] = set()
        """Calls until they are settled: a graceful stop waits for them."""

    @contextmanager
    def track(
        self, tenant_id: TenantId, lineage: Collection[GrantId], request: "asyncio.Task[object]"
    ) -> Iterator[Flight]:
        flight = Flight(tenant_id, frozenset(lineage), request)
        self._flights.add(flight)
        try:
            yield flight
        finally:
            self._flights.discard(flight)

    def grants(self) -> tuple[tuple[TenantId, GrantId], ...]:
        """Every grant that a flight depends on."""
        return tuple({(flight.tenant_id, grant) for flight in self._flights for grant in flight.lineage})

    def abort(self, closed: Collection[GrantId]) -> int:
        """Cancel the flights under any of these grants; how many there were."""
        hit = [flight for flight in self._flights if not flight.aborted and flight.lineage & set(closed)]
        for flight in hit:
            flight.aborted = True
            flight.request.cancel()
        return len(hit)
