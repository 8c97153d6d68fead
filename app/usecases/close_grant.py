"""Close a grant and everything below it, at once; calls in flight under it are aborted."""

from dataclasses import dataclass

from app.core.audit import RecordType
from app.core.decision import REVOKED
from app.core.grant import GrantId
from app.core.registry import Client, Scope
from app.core.strict_json import JsonObject
from app.ports import Transaction
from app.usecases.delegation_evidence import grant_refs
from app.usecases.derive_grant import objection_to, sees
from app.usecases.failures import Denied, NotFound
from app.usecases.load_chain import Lineage, death, load_lineage
from app.usecases.world import Caller, World, evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """What a closing ended. Closing what is closed already ends nothing and is no error."""

    grant_id: GrantId
    closed: tuple[GrantId, ...]
    aborted_calls: int


async def close_grant(world: World, caller: Caller, grant_id: GrantId, reason: str) -> Closed | Denied:
    """Close a grant's subtree. Raises NotFound. The next call under any of it is refused."""
    async with world.store.write() as tx:
        lineage = await load_lineage(tx, world, caller.tenant_id, grant_id, lock=True)
        if lineage is None or not sees(caller, lineage):
            raise NotFound("no such grant")
        refused = await _refused(tx, world, caller, lineage)
        if refused is not None:
            return refused
        refs: JsonObject = grant_refs(lineage.chain.leaf) if isinstance(lineage, Lineage) else {"grantId": grant_id}
        closed = await _close_subtree(tx, world, caller, refs, grant_id, reason)
        await tx.commit()
    return Closed(grant_id=grant_id, closed=closed, aborted_calls=world.in_flight.abort(closed))


async def _refused(tx: Transaction, world: World, caller: Caller, lineage: Lineage | Denied) -> Denied | None:
    if isinstance(lineage, Denied):
        # A record that was tampered with can't say who may close it; an administrator must be able to.
        return None if caller.has(Scope.ADMIN) and caller.grant_id is None else lineage
    objection = await objection_to(tx, caller, lineage)
    if objection is not None:
        return objection
    # A dead credential closes nothing; a live caller may close a grant that is dead already.
    return await death(tx, world, lineage) if caller.grant_id is not None else None


async def _close_subtree(
    tx: Transaction, world: World, caller: Caller, refs: JsonObject, grant_id: GrantId, reason: str
) -> tuple[GrantId, ...]:
    """Close a locked grant and its descendants, with a record for each, found by its own id and run."""
    now = world.clock()
    closed = await tx.grants.close(caller.tenant_id, grant_id, reason=reason, at=now)
    common: JsonObject = {"clientId": caller.client_id, "through": caller.through, "closeReason": reason}
    events: list[JsonObject] = []
    for each, run_id in (await tx.grants.runs_of(caller.tenant_id, closed)).items():
        below: JsonObject = {
            "grantId": each,
            "rootGrantId": refs.get("rootGrantId"),
            "runId": run_id,
            "subject": refs.get("subject"),
            "closedWith": grant_id,
        }
        events.append(evidence(RecordType.DELEGATION_CLOSED, now, (refs if each == grant_id else below) | common))
    await tx.audit.append(caller.tenant_id, events)
    return closed


async def revoke(world: World, client: Client, grant_id: GrantId) -> None:
    """Close a token's node as revoked (RFC 7009); another client's token is left untouched, without a word."""
    caller = Caller(client_id=client.client_id, tenant_id=client.tenant_id)
    async with world.store.write() as tx:
        lineage = await load_lineage(tx, world, caller.tenant_id, grant_id, lock=True)
        if not isinstance(lineage, Lineage) or not lineage.permits(caller):
            return
        closed = await _close_subtree(tx, world, caller, grant_refs(lineage.chain.leaf), grant_id, REVOKED)
        await tx.commit()
    world.in_flight.abort(closed)
