"""Close a grant and everything below it, at once; calls in flight under it are aborted."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.audit import RecordType
from app.core.decision import REVOKED
from app.core.grant import ClientId, Grant, GrantId, RunId, TenantId
from app.core.registry import Scope
from app.core.strict_json import JsonObject
from app.ports import Transaction
from app.usecases.delegation_evidence import grant_refs
from app.usecases.derive_grant import NOT_PERMITTED, sees
from app.usecases.failures import Denied, NotFound
from app.usecases.load_chain import Lineage, load_lineage
from app.usecases.world import Caller, World, evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """What a closing ended. Closing what is closed already ends nothing and is no error."""

    grant: Grant
    closed: tuple[GrantId, ...]
    aborted_calls: int


async def close_grant(world: World, caller: Caller, grant_id: GrantId, reason: str) -> Closed | Denied:
    """Close a grant's subtree. Raises NotFound. The next call under any of it is refused."""
    async with world.store.write() as tx:
        lineage = await load_lineage(tx, world, caller.tenant_id, grant_id, lock=True)
        if lineage is None or not sees(caller, lineage):
            raise NotFound("no such grant")
        if isinstance(lineage, Denied):
            return lineage
        refused = _refused(world, caller, lineage)
        if refused is not None:
            return refused
        closed = await close_subtree(tx, world, caller.client_id, lineage.chain.leaf, reason)
        await tx.commit()
    return Closed(grant=lineage.chain.leaf, closed=closed, aborted_calls=world.in_flight.abort(closed))


def _refused(world: World, caller: Caller, lineage: Lineage) -> Denied | None:
    if not (lineage.permits(caller) or caller.has(Scope.ADMIN)):
        return NOT_PERMITTED
    # A dead credential closes nothing; a live caller may close a grant that is dead already.
    return lineage.death(world.clock()) if caller.grant_id is not None else None


async def close_subtree(
    tx: Transaction, world: World, client_id: ClientId, grant: Grant, reason: str
) -> tuple[GrantId, ...]:
    """Close a locked grant and its descendants, with a record for each; the caller commits and aborts flights."""
    closed = await tx.grants.close(grant.tenant_id, grant.grant_id, reason=reason, at=world.clock())
    runs = await tx.grants.runs_of(grant.tenant_id, closed)
    await tx.audit.append(grant.tenant_id, _events(world, client_id, grant, reason, runs))
    return closed


def _events(
    world: World, client_id: ClientId, grant: Grant, reason: str, runs: Mapping[GrantId, RunId]
) -> list[JsonObject]:
    """A record for each grant that was open, found by its own id and run."""
    now = world.clock()
    common: JsonObject = {"clientId": client_id, "closeReason": reason}
    events: list[JsonObject] = []
    for grant_id, run_id in runs.items():
        below: JsonObject = {
            "grantId": grant_id,
            "rootGrantId": grant.root_grant_id,
            "runId": run_id,
            "subject": grant.subject,
            "closedWith": grant.grant_id,
        }
        refs = grant_refs(grant) if grant_id == grant.grant_id else below
        events.append(evidence(RecordType.DELEGATION_CLOSED, now, refs | common))
    return events


async def revoke(world: World, client_id: ClientId, tenant_id: TenantId, grant_id: GrantId) -> None:
    """Close a token's node as revoked (RFC 7009); another client's token is left untouched, without a word."""
    async with world.store.write() as tx:
        lineage = await load_lineage(tx, world, tenant_id, grant_id, lock=True)
        if not isinstance(lineage, Lineage):
            return
        if not lineage.permits(Caller(client_id=client_id, tenant_id=tenant_id)):
            return
        closed = await close_subtree(tx, world, client_id, lineage.chain.leaf, REVOKED)
        await tx.commit()
    world.in_flight.abort(closed)
