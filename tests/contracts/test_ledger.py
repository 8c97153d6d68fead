"""The ledger: a hold lies on every account of a call, and each call ends once, with what it cost."""

from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.budget import Amount, Budget, ReservationState, Usage
from app.core.grant import GrantId, RunId, ServerName, TenantId
from app.ports import AlreadyExists, CallRecord, Outcome, Settlement, Store
from tests.contracts.examples import (
    CHILD,
    ONE_CALL,
    ROOT,
    a_record,
    account,
    add_chain,
    an_ending,
    posted_and_pending,
    reserve,
    settle,
)
from tests.samples import ACME, NOW

pytestmark = pytest.mark.anyio

OTHER_TENANT = TenantId("other")
NOTHING = Amount()
BOTH = (ROOT.grant_id, CHILD.grant_id)
WINDOW = "window:tenant:3600:0"
FULL_STATES = (ReservationState.POSTED, ReservationState.VOIDED, ReservationState.EXPIRED)


async def add_both(store: Store) -> None:
    await add_chain(store, ROOT, CHILD)


async def call_of(store: Store, call: CallRecord) -> CallRecord | None:
    """A stored call that has an idempotency key."""
    assert call.idempotency_key is not None
    async with store.read() as tx:
        return await tx.ledger.repeated(call.tenant_id, call.run_id, call.server, call.idempotency_key)


# --- accounts ---------------------------------------------------------------------------------------------


async def test_accounts_are_those_that_exist(store: Store) -> None:
    await add_both(store)
    wanted = [*BOTH, GrantId("gr_unknown")]
    async with store.write() as tx:
        locked = await tx.ledger.lock(ACME, wanted)
        assert locked == await tx.ledger.accounts(ACME, wanted)
        assert set(locked) == set(BOTH)
        assert locked[ROOT.grant_id].budget == Budget(account_id=ROOT.grant_id, limit=ROOT.limit)
        assert await tx.ledger.lock(OTHER_TENANT, wanted) == {}
        assert await tx.ledger.lock(ACME, []) == {}


# --- reserving --------------------------------------------------------------------------------------------


async def test_a_hold_lies_on_every_account_of_the_call(store: Store) -> None:
    await add_both(store)
    await reserve(store, a_record(accounts=BOTH))
    assert await posted_and_pending(store, ROOT.grant_id) == (NOTHING, ONE_CALL)
    assert await posted_and_pending(store, CHILD.grant_id) == (NOTHING, ONE_CALL)


async def test_a_hold_that_is_not_committed_is_no_hold(store: Store) -> None:
    await add_both(store)
    async with store.write() as tx:
        await tx.ledger.reserve(a_record(idempotency_key="k"))
    assert await posted_and_pending(store, ROOT.grant_id) == (NOTHING, NOTHING)
    assert await call_of(store, a_record(idempotency_key="k")) is None


async def test_a_hold_over_the_limit_is_a_callers_bug_and_holds_nothing(store: Store) -> None:
    await add_both(store)
    with pytest.raises(AssertionError):
        await reserve(store, a_record(hold=replace(ONE_CALL, tool_calls=ROOT.limit.tool_calls + 1)))
    assert await posted_and_pending(store, ROOT.grant_id) == (NOTHING, NOTHING)


async def test_a_hold_on_an_unknown_account_is_a_callers_bug(store: Store) -> None:
    await add_both(store)
    with pytest.raises(AssertionError):
        await reserve(store, a_record(accounts=(ROOT.grant_id, "gr_unknown")))


async def test_a_stored_call_comes_back_exactly_as_it_was(store: Store) -> None:
    await add_both(store)
    call = a_record(
        accounts=BOTH,
        idempotency_key="k – 1",
        reserved_at=NOW + timedelta(microseconds=1),
        deadline_at=NOW + timedelta(microseconds=2),
    )
    await reserve(store, call)
    assert await call_of(store, call) == call


async def test_an_idempotency_key_is_taken_once_in_a_run_and_server(store: Store) -> None:
    await add_both(store)
    await reserve(store, a_record("call_1", idempotency_key="k"))
    async with store.write() as tx:
        with pytest.raises(AlreadyExists, match="idempotencyKey"):
            await tx.ledger.reserve(a_record("call_2", idempotency_key="k"))
        await tx.commit()
    assert await posted_and_pending(store, ROOT.grant_id) == (NOTHING, ONE_CALL)
    first = await call_of(store, a_record(idempotency_key="k"))
    assert first is not None
    assert first.call_id == "call_1"


async def test_a_key_of_another_run_server_or_tenant_is_another_key(store: Store) -> None:
    await add_both(store)
    await add_chain(store, replace(ROOT, tenant_id=OTHER_TENANT))
    first = a_record("call_1", idempotency_key="k")
    others = (
        replace(first, call_id="call_2", run_id=RunId("run_2")),
        replace(first, call_id="call_3", server=ServerName("billing")),
        replace(first, call_id="call_4", tenant_id=OTHER_TENANT),
        replace(first, call_id="call_5", idempotency_key="K"),
    )
    for call in (first, *others):
        await reserve(store, call)
    for call in (first, *others):
        assert await call_of(store, call) == call


async def test_a_key_stays_taken_after_its_call_ended(store: Store) -> None:
    await add_both(store)
    await reserve(store, a_record("call_1", idempotency_key="k"))
    await settle(store, "call_1", an_ending())
    with pytest.raises(AlreadyExists, match="idempotencyKey"):
        await reserve(store, a_record("call_2", idempotency_key="k"))


@pytest.mark.parametrize("had_expired", [False, True])
async def test_a_call_that_never_ran_gives_its_key_back(store: Store, had_expired: bool) -> None:
    await add_both(store)
    await reserve(store, a_record("call_1", idempotency_key="k"))
    await reserve(store, a_record("call_2", idempotency_key="other"))
    if had_expired:
        expired = an_ending(ReservationState.EXPIRED, charged_ucents=100, outcome=Outcome.UNKNOWN)
        await settle(store, "call_1", expired)
    await settle(store, "call_1", an_ending(ReservationState.VOIDED, outcome=Outcome.UNSENT))
    assert await call_of(store, a_record(idempotency_key="k")) is None
    again = a_record("call_3", idempotency_key="k")
    await reserve(store, again)
    assert await call_of(store, again) == again
    assert await call_of(store, a_record(idempotency_key="other")) is not None


async def test_calls_without_a_key_never_collide(store: Store) -> None:
    await add_both(store)
    await reserve(store, a_record("call_1"))
    await reserve(store, a_record("call_2"))
    assert await posted_and_pending(store, ROOT.grant_id) == (NOTHING, ONE_CALL + ONE_CALL)


# --- settling ---------------------------------------------------------------------------------------------


async def test_posting_turns_the_hold_into_the_charge(store: Store) -> None:
    await add_both(store)
    await reserve(store, a_record(accounts=BOTH))
    await settle(store, "call_1", an_ending(charged_ucents=40))
    for grant_id in BOTH:
        posted, pending = await posted_and_pending(store, grant_id)
        assert (posted, pending) == (Amount(tool_calls=1, spend_ucents=40), NOTHING)


async def test_voiding_returns_the_hold_and_the_call(store: Store) -> None:
    await add_both(store)
    await reserve(store, a_record(accounts=BOTH))
    await settle(store, "call_1", an_ending(ReservationState.VOIDED, outcome=Outcome.UNSENT))
    assert await posted_and_pending(store, CHILD.grant_id) == (NOTHING, NOTHING)


async def test_expiring_charges_all_that_was_held(store: Store) -> None:
    await add_both(store)
    await reserve(store, a_record())
    expired = an_ending(ReservationState.EXPIRED, charged_ucents=100, outcome=Outcome.UNKNOWN)
    await settle(store, "call_1", expired)
    assert await posted_and_pending(store, ROOT.grant_id) == (ONE_CALL, NOTHING)


async def test_the_settled_call_is_answered_and_stored(store: Store) -> None:
    await add_both(store)
    call = a_record(idempotency_key="k")
    await reserve(store, call)
    ending = an_ending(charged_ucents=7, outcome=Outcome.TOOL_ERROR, result=b"\x00sealed\xff", result_digest="d1")
    settled = await settle(store, "call_1", ending)
    assert settled == replace(
        call,
        state=ReservationState.POSTED,
        charged_ucents=7,
        outcome=Outcome.TOOL_ERROR,
        result=b"\x00sealed\xff",
        result_digest="d1",
        settled_at=NOW,
    )
    assert await call_of(store, call) == settled


@pytest.mark.parametrize("first", [ReservationState.POSTED, ReservationState.VOIDED])
@pytest.mark.parametrize("second", FULL_STATES)
async def test_a_call_ends_only_once(store: Store, first: ReservationState, second: ReservationState) -> None:
    await add_both(store)
    await reserve(store, a_record(idempotency_key="k"))
    settled = await settle(store, "call_1", an_ending(first))
    usage = await posted_and_pending(store, ROOT.grant_id)
    charge = 100 if second is ReservationState.EXPIRED else 0
    assert await settle(store, "call_1", an_ending(second, charged_ucents=charge)) is None
    assert await posted_and_pending(store, ROOT.grant_id) == usage
    kept = settled if first is ReservationState.POSTED else None
    assert await call_of(store, a_record(idempotency_key="k")) == kept


@pytest.mark.parametrize(
    "late, posted",
    [
        (an_ending(charged_ucents=30), Amount(tool_calls=1, spend_ucents=30)),
        (an_ending(charged_ucents=100), ONE_CALL),
        (an_ending(ReservationState.VOIDED, outcome=Outcome.UNSENT), NOTHING),
    ],
)
async def test_a_late_answer_corrects_an_expired_hold_once(store: Store, late: Settlement, posted: Amount) -> None:
    await add_both(store)
    await reserve(store, a_record(accounts=BOTH))
    expired = an_ending(ReservationState.EXPIRED, charged_ucents=100, outcome=Outcome.UNKNOWN)
    await settle(store, "call_1", expired)
    corrected = await settle(store, "call_1", late)
    assert corrected is not None
    assert await posted_and_pending(store, ROOT.grant_id) == (posted, NOTHING)
    assert await posted_and_pending(store, CHILD.grant_id) == (posted, NOTHING)
    assert await settle(store, "call_1", an_ending(charged_ucents=1)) is None
    assert await posted_and_pending(store, ROOT.grant_id) == (posted, NOTHING)


async def test_an_expired_hold_does_not_expire_again(store: Store) -> None:
    await add_both(store)
    await reserve(store, a_record())
    expired = an_ending(ReservationState.EXPIRED, charged_ucents=100, outcome=Outcome.UNKNOWN)
    await settle(store, "call_1", expired)
    assert await settle(store, "call_1", expired) is None


@pytest.mark.parametrize(
    "nonsense",
    [
        an_ending(charged_ucents=101),
        an_ending(charged_ucents=-1),
        an_ending(ReservationState.VOIDED, charged_ucents=1),
        an_ending(ReservationState.EXPIRED, charged_ucents=99),
    ],
)
async def test_an_ending_that_cannot_be_is_a_callers_bug(store: Store, nonsense: Settlement) -> None:
    await add_both(store)
    await reserve(store, a_record())
    with pytest.raises(AssertionError):
        await settle(store, "call_1", nonsense)
    assert await posted_and_pending(store, ROOT.grant_id) == (NOTHING, ONE_CALL)


async def test_a_call_does_not_end_pending(store: Store) -> None:
    await add_both(store)
    await reserve(store, a_record())
    assert await settle(store, "call_1", an_ending(ReservationState.PENDING)) is None
    assert await posted_and_pending(store, ROOT.grant_id) == (NOTHING, ONE_CALL)


async def test_an_unknown_call_settles_to_nothing(store: Store) -> None:
    assert await settle(store, "call_unknown", an_ending()) is None


async def test_a_call_of_another_tenant_settles_to_nothing(store: Store) -> None:
    await add_both(store)
    await reserve(store, a_record())
    async with store.write() as tx:
        assert await tx.ledger.settle(OTHER_TENANT, "call_1", an_ending(), NOW) is None


async def test_a_call_under_a_closed_grant_still_settles(store: Store) -> None:
    await add_both(store)
    await reserve(store, a_record(accounts=BOTH))
    async with store.write() as tx:
        await tx.grants.close(ACME, ROOT.grant_id, reason="cancelled", at=NOW)
        await tx.commit()
    assert await settle(store, "call_1", an_ending(charged_ucents=1)) is not None
    closed = await account(store, CHILD.grant_id)
    assert closed.closed == "cancelled"
    assert closed.budget.usage == Usage(posted=Amount(tool_calls=1, spend_ucents=1))


# --- windows ----------------------------------------------------------------------------------------------


async def test_a_window_is_made_when_it_is_first_needed(store: Store) -> None:
    limits = {WINDOW: ONE_CALL, "window:a": Amount()}
    async with store.write() as tx:
        windows = await tx.ledger.windows(ACME, limits, lock=True)
        assert windows == (
            Budget(account_id="window:a", limit=Amount()),
            Budget(account_id=WINDOW, limit=ONE_CALL),
        )
        await tx.commit()


async def test_looking_at_a_window_makes_nothing(store: Store) -> None:
    async with store.read() as tx:
        unused = (Budget(account_id=WINDOW, limit=ONE_CALL),)
        assert await tx.ledger.windows(ACME, {WINDOW: ONE_CALL}, lock=False) == unused
        assert await tx.ledger.windows(ACME, {}, lock=False) == ()


async def test_a_window_holds_and_posts_like_a_grant(store: Store) -> None:
    await add_both(store)
    async with store.write() as tx:
        await tx.ledger.lock(ACME, [ROOT.grant_id])
        await tx.ledger.windows(ACME, {WINDOW: ONE_CALL}, lock=True)
        await tx.ledger.reserve(a_record(accounts=(ROOT.grant_id, WINDOW)))
        await tx.commit()
    await settle(store, "call_1", an_ending(charged_ucents=60))
    async with store.read() as tx:
        (window,) = await tx.ledger.windows(ACME, {WINDOW: ONE_CALL}, lock=False)
    assert window.usage == Usage(posted=Amount(tool_calls=1, spend_ucents=60))
    assert await posted_and_pending(store, ROOT.grant_id) == (window.usage.posted, NOTHING)


async def test_a_window_takes_todays_limit_even_one_below_its_usage(store: Store) -> None:
    await add_both(store)
    async with store.write() as tx:
        await tx.ledger.windows(ACME, {WINDOW: ONE_CALL}, lock=True)
        await tx.ledger.reserve(a_record(accounts=(WINDOW,)))
        await tx.commit()
    async with store.write() as tx:
        (window,) = await tx.ledger.windows(ACME, {WINDOW: Amount()}, lock=True)
        assert window == Budget(account_id=WINDOW, limit=Amount(), usage=Usage(pending=ONE_CALL))
    assert await settle(store, "call_1", an_ending(charged_ucents=100)) is not None


async def test_windows_of_two_tenants_are_two_windows(store: Store) -> None:
    await add_both(store)
    async with store.write() as tx:
        await tx.ledger.windows(ACME, {WINDOW: ONE_CALL}, lock=True)
        await tx.ledger.reserve(a_record(accounts=(WINDOW,)))
        (other,) = await tx.ledger.windows(OTHER_TENANT, {WINDOW: ONE_CALL}, lock=True)
        assert other.usage == Usage()


# --- calls in flight --------------------------------------------------------------------------------------


async def test_overdue_calls_are_the_pending_ones_past_their_deadline_the_most_overdue_first(store: Store) -> None:
    await add_both(store)
    await add_chain(store, replace(ROOT, tenant_id=OTHER_TENANT))
    for name, seconds, tenant in (
        ("late", 2, ACME),
        ("later", 1, OTHER_TENANT),
        ("in_time", 5, ACME),
        ("done", 1, ACME),
    ):
        deadline = NOW + timedelta(seconds=seconds)
        await reserve(store, a_record(name, deadline_at=deadline, tenant_id=tenant))
    await settle(store, "done", an_ending())
    async with store.read() as tx:
        overdue = await tx.ledger.overdue(NOW + timedelta(seconds=5), 10)
        assert [call.call_id for call in overdue] == ["later", "late"]
        assert await tx.ledger.overdue(NOW + timedelta(seconds=5), 1) == overdue[:1]
        assert await tx.ledger.overdue(NOW, 10) == ()


async def test_a_key_that_nobody_used_has_no_call(store: Store) -> None:
    async with store.read() as tx:
        assert await tx.ledger.repeated(ACME, ROOT.child_run_id, ServerName("support"), "k") is None
