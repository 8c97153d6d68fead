"""Find reservations that a crash left behind: charge their maximum, and record that nobody knows how they ended."""

from app.core.audit import RecordType
from app.core.budget import ReservationState, ucents_to_cents
from app.core.strict_json import JsonObject
from app.ports import CallRecord, Outcome, Settlement
from app.usecases.delegation_evidence import grant_refs
from app.usecases.load_chain import verified_chain
from app.usecases.world import World, evidence

BATCH = 100


async def reconcile_calls(world: World) -> int:
    """Expire every pending call whose deadline has passed; how many there were.

    A call that still runs somewhere is never past its deadline, which lies after its time-out. Each is settled
    in a transaction of its own, so two processes that find the same one charge it once.
    """
    async with world.store.read() as tx:
        overdue = await tx.ledger.overdue(world.clock(), BATCH)
    expired, failure = 0, None
    for call in overdue:
        try:
            expired += await _expire(world, call)
        except Exception as error:  # noqa: BLE001  # one that can't be settled must not keep the others
            failure = error
    if failure is not None:
        raise failure
    return expired


async def _expire(world: World, call: CallRecord) -> bool:
    ending = Settlement(state=ReservationState.EXPIRED, charged_ucents=call.hold.spend_ucents, outcome=Outcome.UNKNOWN)
    async with world.store.write() as tx:
        settled = await tx.ledger.settle(call.tenant_id, call.call_id, ending, world.clock())
        if settled is None:
            return False
        chain = verified_chain(world, await tx.grants.chain(call.tenant_id, call.grant_id))
        refs: JsonObject = {"grantId": call.grant_id} if chain is None else grant_refs(chain.leaf)
        await tx.audit.append(call.tenant_id, [_event(world, call, refs)])
        await tx.commit()
    return True


def _event(world: World, call: CallRecord, refs: JsonObject) -> JsonObject:
    members: JsonObject = {
        "toolServer": call.server,
        "tool": call.tool,
        "callId": call.call_id,
        "decisionId": call.decision_id,
        "outcome": Outcome.UNKNOWN.value,
        "costCents": ucents_to_cents(call.hold.spend_ucents),
        "cause": "reservation_deadline",
    }
    return evidence(RecordType.TOOL_OUTCOME_UNKNOWN, world.clock(), refs | members)
