"""Check a call, hold its budget, forward it, settle it, and leave evidence of each step.

Two transactions with the network between them and neither open across it. The first decides and reserves;
the second settles, and is shielded from a caller that goes away. If the process dies between them, the
reconciler finds the reservation past its deadline and charges its maximum.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeAlias
from urllib.parse import urlsplit

from app.core.audit import RecordType
from app.core.budget import Charge, ReservationState, charge_for, ucents_to_cents
from app.core.decision import Account, Allow, Deny, projections
from app.core.grant import GrantId
from app.core.projection import project_result
from app.core.reasons import Reason
from app.core.redaction import redact
from app.core.registry import Transport
from app.core.strict_json import JsonObject, JsonValue, canonical
from app.ports import (
    AlreadyExists,
    CallRecord,
    Outcome,
    Settlement,
    StoreUnavailable,
    Transaction,
    UpstreamAnswer,
    UpstreamRequest,
)
from app.usecases.authorize_call import ProposedCall, Weighed, denied, record_unweighed, weigh_call
from app.usecases.failures import CallInFlight, Denied, Failure, IdempotencyConflict, ToolServerFailed
from app.usecases.find_facts import Known, with_facts
from app.usecases.in_flight import CANCELLED_DETAIL, CLOSED_DETAIL
from app.usecases.prove_possession import spend, spent_with
from app.usecases.tool_credential import credential_headers
from app.usecases.watch import Watch
from app.usecases.world import Caller, World, digest, evidence

UNSENT_CANCELLED_DETAIL = "the call was cancelled before it was sent"
STILL_RUNNING = "the first call with this idempotency key has not ended yet"
UNRECORDED_DETAIL = "the call ended, but how could not be recorded; it is charged its maximum"
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.1, 2.0


Cost: TypeAlias = tuple[ReservationState, Charge]
"""What becomes of a call's hold, and what is charged of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """An allowed call whose budget is held, and the request that is about to be sent."""

    weighed: Weighed
    allow: Allow
    record: CallRecord
    request: UpstreamRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """What came of an allowed call. `account` is the grant's, after settling; None on a repeated answer.

    `transport` says whether the result is MCP's.
    """

    transport: Transport
    call_id: str
    decision_id: str
    grant_id: GrantId
    outcome: Outcome
    result: JsonValue
    charged_ucents: int
    detail: str | None = None
    result_available: bool = True
    result_digest: str | None = None
    account: Account | None = None


async def forward_call(
    world: World, caller: Caller, proposed: ProposedCall, watch: Watch | None = None
) -> Forwarded | Denied:
    """Run one call, or say why not; whoever watches it hears of it meanwhile, and may cancel it.

    Raises CallInFlight, IdempotencyConflict, ToolServerFailed.
    """
    reserved = await with_facts(world, lambda known: _reserve(world, caller, proposed, known))
    spent_with(caller)
    if not isinstance(reserved, Reserved):
        return reserved
    # A task of its own: whoever asked may hang up, the call is still settled and recorded.
    ending = asyncio.create_task(_run(world, caller, reserved, watch or Watch()))
    world.in_flight.endings.add(ending)
    ending.add_done_callback(world.in_flight.endings.discard)
    return await asyncio.shield(ending)


# --- before: one transaction -------------------------------------------------------------------------------


async def _reserve(world: World, caller: Caller, proposed: ProposedCall, known: Known) -> Reserved | Forwarded | Denied:
    async with world.store.write() as tx:
        replayed = await spend(tx, world, caller.tenant_id, caller.possession)
        weighed = replayed or await weigh_call(tx, world, caller, proposed, known, lock=True)
        if isinstance(weighed, Denied):
            refused = await record_unweighed(tx, world, caller, weighed)
            await tx.commit()
            return refused
        first = await _first(tx, weighed)
        if first is not None:
            repeated = await _repeated(tx, world, caller, weighed, first)
            await tx.commit()
            return _answer_to(repeated)
        if weighed.wanting is not None:
            raise weighed.wanting
        call_id = world.new_id("call")
        if isinstance(weighed.verdict, Deny):
            await tx.audit.append(caller.tenant_id, weighed.events(world, caller, call_id))
            await tx.commit()
            return denied(weighed, weighed.verdict)
        record = _record(world, weighed, weighed.verdict, call_id)
        # Before anything is held: what can't be sent costs nothing.
        request = _upstream_request(world, weighed, weighed.verdict, call_id)
        await _hold(tx, record)
        await tx.audit.append(caller.tenant_id, weighed.events(world, caller, call_id))
        await tx.commit()
    return Reserved(weighed=weighed, allow=weighed.verdict, record=record, request=request)


async def _hold(tx: Transaction, record: CallRecord) -> None:
    try:
        await tx.ledger.reserve(record)
    except AlreadyExists as error:
        # Another grant of the same run took the key a moment ago, so its call has just begun.
        raise CallInFlight(STILL_RUNNING) from error


_ONLY_FOR_NEW_CALLS = {Reason.BUDGET_EXCEEDED, Reason.TOOL_SERVER_UNAVAILABLE}


async def _first(tx: Transaction, weighed: Weighed) -> CallRecord | None:
    """The call that took this idempotency key.

    A call that is refused anyway is no repeat, but for its budget or a tool server that does not answer.
    """
    key = weighed.proposed.idempotency_key
    if key is None:
        return None
    if isinstance(weighed.verdict, Deny) and weighed.verdict.reason not in _ONLY_FOR_NEW_CALLS:
        return None
    leaf = weighed.chain.leaf
    return await tx.ledger.repeated(leaf.tenant_id, leaf.child_run_id, weighed.call.ref.server, key)


async def _repeated(
    tx: Transaction, world: World, caller: Caller, weighed: Weighed, first: CallRecord
) -> Forwarded | Failure:
    """The first answer again, or why there is none; either is on record."""
    answer: Forwarded | Failure
    if first.request_digest != _request_digest(world, weighed):
        answer = IdempotencyConflict("the idempotency key was used for another call")
    elif first.outcome is None:
        answer = CallInFlight(STILL_RUNNING)
    else:
        answer = _remembered(world, weighed, first, first.outcome)
    refusal = answer.code if isinstance(answer, Failure) else None
    members = weighed.refs(caller, first.call_id) | {"refusal": refusal}
    await tx.audit.append(caller.tenant_id, [evidence(RecordType.TOOL_REPEATED, world.clock(), members)])
    return answer


def _answer_to(repeated: Forwarded | Failure) -> Forwarded:
    if isinstance(repeated, Failure):
        raise repeated
    return repeated


def _remembered(world: World, weighed: Weighed, first: CallRecord, outcome: Outcome) -> Forwarded:
    stored = None if first.result is None else json.loads(world.vault.open(first.result, _result_purpose(first)))
    answer = UpstreamAnswer(outcome=outcome)
    if stored is not None:
        # Another grant of the run may have made the first call, and may see more than this one.
        answer = _projected(weighed, replace(answer, result=stored["result"], detail=stored["detail"]))
    server = weighed.registration.server
    assert server is not None, "a call that is no repeat would have been refused without one"
    return Forwarded(
        transport=server.transport,
        call_id=first.call_id,
        decision_id=first.decision_id,
        grant_id=first.grant_id,
        outcome=outcome,
        result=answer.result,
        charged_ucents=first.charged_ucents,
        detail=answer.detail,
        result_available=stored is not None,
        result_digest=first.result_digest,
    )


def _record(world: World, weighed: Weighed, allow: Allow, call_id: str) -> CallRecord:
    leaf, server = weighed.chain.leaf, weighed.registration.server
    assert server is not None, "an allowed call has a tool server"
    now = world.clock()
    return CallRecord(
        tenant_id=leaf.tenant_id,
        call_id=call_id,
        decision_id=weighed.decision_id,
        grant_id=leaf.grant_id,
        run_id=leaf.child_run_id,
        server=weighed.call.ref.server,
        tool=weighed.call.ref.tool,
        request_digest=_request_digest(world, weighed),
        idempotency_key=weighed.proposed.idempotency_key,
        hold=allow.hold,
        accounts=(
            *(window.account_id for window in weighed.accounts.windows),
            *(grant.grant_id for grant in weighed.chain.grants),
        ),
        reserved_at=now,
        deadline_at=now + timedelta(seconds=server.timeout_seconds) + world.rules.settle_grace,
    )


def _request_digest(world: World, weighed: Weighed) -> str:
    ref = weighed.call.ref
    return digest(world, weighed.chain.leaf.tenant_id, canonical([ref.server, ref.tool, weighed.proposed.arguments]))


# --- between: the network ----------------------------------------------------------------------------------


async def _run(world: World, caller: Caller, reserved: Reserved, watch: Watch) -> Forwarded:
    answer = await _forward(world, reserved, watch)
    # What the tool says of its cost counts, whether or not the agent may see it.
    cost = _cost(reserved, answer)
    shown = _projected(reserved.weighed, _redacted(answer, reserved.request))
    return await _settle_durably(world, caller, reserved, shown, cost)


async def _forward(world: World, reserved: Reserved, watch: Watch) -> UpstreamAnswer:
    if watch.cancelled:
        return UpstreamAnswer(outcome=Outcome.UNSENT, detail=UNSENT_CANCELLED_DETAIL)
    chain = reserved.weighed.chain
    request = asyncio.create_task(world.upstream.call(_heard(reserved, watch)))
    lineage = [grant.grant_id for grant in chain.grants]
    with world.in_flight.track(chain.leaf.tenant_id, lineage, request) as flight:
        watch.begin(lambda: flight.abort(CANCELLED_DETAIL))
        try:
            return await request
        except asyncio.CancelledError:
            if flight.aborted is None:
                raise
            return UpstreamAnswer(outcome=Outcome.UNKNOWN, detail=flight.aborted)


def _heard(reserved: Reserved, watch: Watch) -> UpstreamRequest:
    """The request with the ears of its watcher, which hear no more than the result may show."""
    is_projected = bool(projections(reserved.weighed.chain, reserved.weighed.call.ref))
    listener = watch.listener(_secrets(reserved.request), is_projected=is_projected)
    return replace(reserved.request, listener=listener)


def _upstream_request(world: World, weighed: Weighed, allow: Allow, call_id: str) -> UpstreamRequest:
    server, tool, leaf = weighed.registration.server, weighed.registration.tool, weighed.chain.leaf
    assert server is not None, "an allowed call has a tool server"
    assert tool is not None, "an allowed call has a tool"
    claims: JsonObject = {
        "subject": leaf.subject,
        "act": weighed.chain.actors,
        "tenant_id": leaf.tenant_id,
        "grant_id": leaf.grant_id,
        "call_id": call_id,
        "tool": tool.name,
    }
    return UpstreamRequest(
        transport=server.transport,
        endpoint=server.endpoint,
        tool=tool.name,
        http=tool.http,
        arguments=allow.arguments,
        headers=credential_headers(world, server, claims),
        timeout_seconds=server.timeout_seconds,
        max_response_bytes=server.max_response_bytes,
        session_key=f"{leaf.tenant_id}\0{server.name}\0{leaf.child_run_id}",
        input_schema=tool.input_schema,
    )


def _projected(weighed: Weighed, answer: UpstreamAnswer) -> UpstreamAnswer:
    """What the chain lets the agent see of an answer: from here on nobody has the rest."""
    limits = projections(weighed.chain, weighed.call.ref)
    if not limits or answer.outcome not in {Outcome.SUCCESS, Outcome.TOOL_ERROR}:
        return answer
    server = weighed.registration.server
    assert server is not None, "a call that was forwarded has a tool server"
    is_mcp, is_error = server.transport is Transport.MCP, answer.outcome is Outcome.TOOL_ERROR
    result = answer.result
    for projection in limits:
        result = project_result(projection, result, is_mcp=is_mcp, is_error=is_error)
    # Of an error, the detail too may repeat what the tool said.
    return replace(answer, result=result, detail=None if is_error else answer.detail)


def _redacted(answer: UpstreamAnswer, request: UpstreamRequest) -> UpstreamAnswer:
    """The answer without what the gateway alone may know, should a tool repeat it."""
    return replace(answer, result=redact(answer.result, _secrets(request)))


def _secrets(request: UpstreamRequest) -> frozenset[str]:
    """The gateway's credential, and the tool server's endpoint."""
    credential = {part for value in request.headers.values() for part in (value, value.removeprefix("Bearer "))}
    return frozenset(credential | {request.endpoint, urlsplit(request.endpoint).netloc})


# --- after: one transaction --------------------------------------------------------------------------------


async def _settle_durably(
    world: World, caller: Caller, reserved: Reserved, answer: UpstreamAnswer, cost: Cost
) -> Forwarded:
    """Settle, however often it takes while the hold lasts. What then is not recorded is not known."""
    wait = FIRST_RETRY_SECONDS
    while True:
        try:
            return await _settle(world, caller, reserved, answer, cost)
        except StoreUnavailable:
            if world.clock() >= reserved.record.deadline_at:
                return _unrecorded(reserved)
        await asyncio.sleep(wait)
        wait = min(2 * wait, LAST_RETRY_SECONDS)


def _unrecorded(reserved: Reserved) -> Forwarded:
    record = reserved.record
    return Forwarded(
        transport=reserved.request.transport,
        call_id=record.call_id,
        decision_id=record.decision_id,
        grant_id=record.grant_id,
        outcome=Outcome.UNKNOWN,
        result=None,
        charged_ucents=record.hold.spend_ucents,
        detail=UNRECORDED_DETAIL,
        result_available=False,
    )


async def _settle(world: World, caller: Caller, reserved: Reserved, answer: UpstreamAnswer, cost: Cost) -> Forwarded:
    record, leaf = reserved.record, reserved.weighed.chain.leaf
    raw = canonical(answer.result)
    state, charge = cost
    ending = Settlement(
        state=state,
        charged_ucents=charge.ucents,
        outcome=answer.outcome,
        result=_sealed(world, reserved, answer),
        result_digest=digest(world, leaf.tenant_id, raw),
    )
    async with world.store.write() as tx:
        settled = await tx.ledger.settle(leaf.tenant_id, record.call_id, ending, world.clock())
        if settled is not None:
            event = _ending_event(world, caller, reserved, answer, charge, len(raw))
            await tx.audit.append(leaf.tenant_id, [event | {"resultDigest": ending.result_digest}])
        accounts = await tx.ledger.accounts(leaf.tenant_id, [leaf.grant_id])
        await tx.commit()
    if answer.outcome is Outcome.UNSENT:
        detail = answer.detail or "the tool server can't be reached"
        raise ToolServerFailed(detail, record.call_id, record.decision_id, timed_out=answer.timed_out)
    return _forwarded(reserved, answer, ending, accounts)


def _cost(reserved: Reserved, answer: UpstreamAnswer) -> Cost:
    """What an outcome costs: nothing if provably unsent, the maximum if nobody knows, else what it cost."""
    if answer.outcome is Outcome.UNSENT:
        return ReservationState.VOIDED, Charge(ucents=0)
    if answer.outcome is Outcome.UNKNOWN:
        return ReservationState.POSTED, Charge(ucents=reserved.allow.price.max_ucents)
    return ReservationState.POSTED, charge_for(reserved.allow.price, _reported(reserved, answer))


def _reported(reserved: Reserved, answer: UpstreamAnswer) -> JsonValue:
    """The document in which a tool reports its cost: an MCP tool's structured content, else the JSON body."""
    server = reserved.weighed.registration.server
    assert server is not None, "an allowed call has a tool server"
    if server.transport is Transport.MCP and isinstance(answer.result, dict):
        return answer.result.get("structuredContent")
    return answer.result


def _sealed(world: World, reserved: Reserved, answer: UpstreamAnswer) -> bytes | None:
    """The answer that a repeat will get; kept only where a key allows a repeat, and encrypted."""
    if reserved.record.idempotency_key is None:
        return None
    kept: JsonObject = {"result": answer.result, "detail": answer.detail}
    return world.vault.seal(canonical(kept), _result_purpose(reserved.record))


def _result_purpose(record: CallRecord) -> str:
    # Sealed for its own call: results can't be swapped in the store.
    return f"call-result:{record.tenant_id}/{record.call_id}"


_ENDINGS: Mapping[Outcome, RecordType] = {
    Outcome.SUCCESS: RecordType.TOOL_EXECUTED,
    Outcome.TOOL_ERROR: RecordType.TOOL_EXECUTED,
    Outcome.UNKNOWN: RecordType.TOOL_OUTCOME_UNKNOWN,
    Outcome.UNSENT: RecordType.TOOL_UNSENT,
}


def _ending_event(
    world: World, caller: Caller, reserved: Reserved, answer: UpstreamAnswer, charge: Charge, result_bytes: int
) -> JsonObject:
    members = reserved.weighed.refs(caller, reserved.record.call_id) | {
        "outcome": answer.outcome.value,
        "costCents": ucents_to_cents(charge.ucents),
        "costOverrun": True if charge.overrun else None,
        "resultBytes": result_bytes,
        "abortedByClose": True if answer.detail == CLOSED_DETAIL else None,
        "cancelled": True if answer.detail in {CANCELLED_DETAIL, UNSENT_CANCELLED_DETAIL} else None,
    }
    return evidence(_ENDINGS[answer.outcome], world.clock(), members)


def _forwarded(
    reserved: Reserved, answer: UpstreamAnswer, ending: Settlement, accounts: Mapping[GrantId, Account]
) -> Forwarded:
    record = reserved.record
    return Forwarded(
        transport=reserved.request.transport,
        call_id=record.call_id,
        decision_id=record.decision_id,
        grant_id=record.grant_id,
        outcome=answer.outcome,
        result=answer.result,
        charged_ucents=ending.charged_ucents,
        detail=answer.detail,
        result_digest=ending.result_digest,
        account=accounts.get(record.grant_id),
    )
