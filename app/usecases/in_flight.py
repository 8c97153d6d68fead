"""The calls that this process is forwarding right now, so that closing a grant or cancelling a call can abort them."""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.core.grant import GrantId, TenantId
from app.usecases.watch import Watch

CLOSED_DETAIL = "the grant was closed while the call was running"
CANCELLED_DETAIL = "the call was cancelled while it was running"


@dataclass(eq=False, slots=True)
class Flight:
    """One forwarded call: the lineage it runs under, and the request that can be cancelled.

    `aborted` says why it was, in a sentence.
    """

    tenant_id: TenantId
    lineage: frozenset[GrantId]
    request: asyncio.Task[object]
    aborted: str | None = None

    def abort(self, why: str) -> None:
        if self.aborted is None:
            self.aborted = why
            self.request.cancel()


class InFlight:
    """A register of flights. Never shared between processes: each looks for closings and cancellations itself."""

    def __init__(self) -> None:
        self._flights: set[Flight] = set()
        self._watches: dict[tuple[TenantId, str], set[Watch]] = {}
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
        hit = [flight for flight in self._flights if flight.aborted is None and flight.lineage & set(closed)]
        for flight in hit:
            flight.abort(CLOSED_DETAIL)
        return len(hit)

    # --- by name

    @contextmanager
    def watched(self, tenant_id: TenantId, watch: Watch) -> Iterator[None]:
        """Let a call be cancelled by its watch's name, from before it is decided about until it has ended."""
        if watch.name is None:
            yield
            return
        watches = self._watches.setdefault((tenant_id, watch.name), set())
        watches.add(watch)
        try:
            yield
        finally:
            watches.discard(watch)
            if not watches:
                self._watches.pop((tenant_id, watch.name), None)

    def names(self) -> dict[TenantId, set[str]]:
        """By tenant, what may be cancelled and was not yet."""
        found: dict[TenantId, set[str]] = {}
        for (tenant_id, name), watches in self._watches.items():
            if not all(watch.cancelled for watch in watches):
                found.setdefault(tenant_id, set()).add(name)
        return found

    def cancel(self, tenant_id: TenantId, names: Collection[str]) -> int:
        """Cancel the calls of these names; how many there were."""
        hit = [watch for name in names for watch in self._watches.get((tenant_id, name), ()) if not watch.cancelled]
        for watch in hit:
            watch.cancel()
        return len(hit)
