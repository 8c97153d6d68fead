"""Any sequence of reservations, endings and closings leaves memory and SQLite with the same books, and right ones."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from app.adapters.memory import MemoryStore
from app.adapters.sql import SqlStore
from app.core.budget import Amount, Budget, ReservationState
from app.core.grant import GrantId, RunId
from app.ports import AlreadyExists, CallRecord, Outcome, Settlement, Store
from tests.contracts.examples import (
    CHILD,
    GRANDCHILD,
    ROOT,
    a_record,
    add_below,
    add_chain,
    lineage_of,
    reserve_if_it_fits,
)
from tests.samples import ACME, NOW, a_child

T = TypeVar("T")

LIMIT = Amount(tool_calls=4, spend_ucents=300)
SIBLING = a_child(ROOT, grant_id=GrantId("gr_root_d"), child_run_id=RunId("run_d"))
CHAIN = tuple(replace(grant, limit=LIMIT) for grant in (ROOT, CHILD, GRANDCHILD))
LINEAGES = {
    lineage[-1].grant_id: lineage_of(*lineage) for lineage in (CHAIN[:1], CHAIN[:2], CHAIN, (CHAIN[0], SIBLING))
}
WINDOW = "window:tenant:3600:0"
MEMORY_DISK = Path("/dev/shm")  # noqa: S108 - what is made there is ours alone, and no commit waits for a disk
POSTED = (ReservationState.POSTED, ReservationState.EXPIRED)


class Books(RuleBasedStateMachine):
    """The same steps on both stores; after each, both say the same, and it adds up."""

    template: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY_DISK if MEMORY_DISK.exists() else None))
        shutil.copy(self.template, self.folder / "books.db")
        self.loop = asyncio.new_event_loop()
        self.stores: tuple[Store, Store] = MemoryStore(), SqlStore.open(f"sqlite:///{self.folder}/books.db")
        self.calls: dict[str, CallRecord] = {}
        for store in self.stores:
            self.wait(add_chain(store, *CHAIN))
            self.wait(add_below(store, CHAIN[:1], SIBLING))

    def teardown(self) -> None:
        self.wait(self.stores[1].aclose())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.folder)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def both(self, one: Coroutine[Any, Any, T], other: Coroutine[Any, Any, T]) -> T:
        """Do the same in both stores, which answer the same."""
        first, second = self.wait(one), self.wait(other)
        assert first == second
        return first

    @rule(
        node=st.sampled_from(sorted(LINEAGES)),
        ucents=st.integers(0, 150),
        key=st.none() | st.sampled_from("ab"),
        window=st.booleans(),
        seconds=st.integers(1, 9),
    )
    def reserve(self, node: GrantId, ucents: int, key: str | None, window: bool, seconds: int) -> None:
        call = a_record(
            f"call_{len(self.calls)}",
            grant_id=node,
            hold=Amount(tool_calls=1, spend_ucents=ucents),
            accounts=(*LINEAGES[node], *((WINDOW,) if window else ())),
            idempotency_key=key,
            deadline_at=NOW + timedelta(seconds=seconds),
        )
        if self.both(*(_reserve(store, call) for store in self.stores)) is True:
            self.calls[call.call_id] = call

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), state=st.sampled_from([*POSTED, ReservationState.VOIDED]))
    def settle(self, data: st.DataObject, state: ReservationState) -> None:
        call = self.calls[data.draw(st.sampled_from(sorted(self.calls)))]
        most = call.hold.spend_ucents
        charges = {ReservationState.VOIDED: 0, ReservationState.EXPIRED: most}
        charge = charges[state] if state in charges else data.draw(st.integers(0, most))
        ending = Settlement(state=state, charged_ucents=charge, outcome=Outcome.SUCCESS)
        settled = self.both(*(_settle(store, call.call_id, ending) for store in self.stores))
        if settled is not None:
            self.calls[call.call_id] = settled

    @rule(node=st.sampled_from(sorted(LINEAGES)[1:]))
    def close(self, node: GrantId) -> None:
        self.both(*(_close(store, node) for store in self.stores))

    @rule(seconds=st.integers(0, 10), limit=st.integers(0, 3))
    def look_for_overdue(self, seconds: int, limit: int) -> None:
        self.both(*(_overdue(store, NOW + timedelta(seconds=seconds), limit) for store in self.stores))

    @invariant()
    def books_agree_and_add_up(self) -> None:
        budgets = self.both(*(_budgets(store) for store in self.stores))
        for budget in budgets:
            on_it = [call for call in self.calls.values() if budget.account_id in call.accounts]
            held = [call.hold for call in on_it if call.state is ReservationState.PENDING]
            spent = [replace(call.hold, spend_ucents=call.charged_ucents) for call in on_it if call.state in POSTED]
            assert budget.usage.pending == sum(held, Amount())
            assert budget.usage.posted == sum(spent, Amount())
            assert budget.account_id == WINDOW or budget.admits(Amount())


async def _reserve(store: Store, call: CallRecord) -> bool | str:
    try:
        async with store.write() as tx:
            if WINDOW in call.accounts:
                await tx.ledger.windows(ACME, {WINDOW: LIMIT}, lock=True)
            return await reserve_if_it_fits(tx, call)
    except AlreadyExists as taken:
        return taken.what


async def _settle(store: Store, call_id: str, ending: Settlement) -> CallRecord | None:
    async with store.write() as tx:
        settled = await tx.ledger.settle(ACME, call_id, ending, NOW)
        await tx.commit()
        return settled


async def _close(store: Store, grant_id: GrantId) -> tuple[GrantId, ...]:
    async with store.write() as tx:
        closed = await tx.grants.close(ACME, grant_id, reason="cancelled", at=NOW)
        await tx.commit()
        return closed


async def _overdue(store: Store, now: Any, limit: int) -> tuple[CallRecord, ...]:  # noqa: ANN401
    async with store.read() as tx:
        return await tx.ledger.overdue(now, limit)


async def _budgets(store: Store) -> tuple[Budget, ...]:
    async with store.read() as tx:
        accounts = await tx.ledger.accounts(ACME, lineage_of(*CHAIN, SIBLING))
        windows = await tx.ledger.windows(ACME, {WINDOW: LIMIT}, lock=False)
    return (*(accounts[grant].budget for grant in sorted(accounts)), *windows)


@pytest.fixture(autouse=True)
def template(sqlite_template: Path) -> None:
    Books.template = sqlite_template


def test_any_sequence_of_steps_keeps_both_books_right() -> None:
    run_state_machine_as_test(Books, settings=settings(max_examples=15, stateful_step_count=20))
