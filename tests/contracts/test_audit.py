"""The audit log: one unbroken chain a tenant, found by filters, read whole in order."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from app.core import audit
from app.core.audit import AuditRecord, Head
from app.core.grant import TenantId
from app.ports import RecordFilter, Store
from app.usecases.world import stamp
from tests.contracts.examples import CHILD, GRANDCHILD, ROOT, add_chain, an_event, append
from tests.samples import ACME, NOW

pytestmark = pytest.mark.anyio

OTHER_TENANT = TenantId("other")


async def whole_log(store: Store, tenant_id: TenantId = ACME) -> tuple[list[AuditRecord], Head]:
    async with store.read() as tx:
        head = await tx.audit.head(tenant_id)
        return [record async for record in tx.audit.read(tenant_id)], head


async def numbers_of_page(
    store: Store, where: RecordFilter, *, after_seq: int | None = None, newest_first: bool = False, limit: int = 10
) -> list[object]:
    async with store.read() as tx:
        page = await tx.audit.page(ACME, where, after_seq=after_seq, newest_first=newest_first, limit=limit)
    return [record.body["number"] for record in page]


# --- the chain --------------------------------------------------------------------------------------------


async def test_an_empty_log_has_the_first_head(store: Store) -> None:
    records, head = await whole_log(store)
    assert (records, head) == ([], Head())


async def test_appended_events_form_one_chain(store: Store) -> None:
    async with store.write() as tx:
        first = await tx.audit.append(ACME, [an_event(1), an_event(2)])
        second = await tx.audit.append(ACME, [an_event(3)])
        await tx.commit()
    records, head = await whole_log(store)
    assert records == [*first, *second]
    assert [record.seq for record in records] == [1, 2, 3]
    assert head == Head(seq=3, hash=records[-1].hash)
    assert audit.verify(records, head) is None


async def test_a_record_comes_back_with_any_json_in_it(store: Store) -> None:
    event = an_event(1, odd=['ü𝄞\x00\x1a"\\\n', 1e21, 0.1, -0.0, None, True, {"b": {}, "a": []}], tool="a\x00b")
    await append(store, event)
    (record,), head = await whole_log(store)
    assert record.body == {"seq": 1, "tenantId": ACME, **event}
    assert audit.verify([record], head) is None


async def test_appending_nothing_changes_nothing(store: Store) -> None:
    async with store.write() as tx:
        assert await tx.audit.append(ACME, []) == ()
        await tx.commit()
    assert (await whole_log(store))[1] == Head()


async def test_each_tenant_has_a_log_of_its_own(store: Store) -> None:
    async with store.write() as tx:
        await tx.audit.append(ACME, [an_event(1)])
        await tx.audit.append(OTHER_TENANT, [an_event(2), an_event(3)])
        await tx.commit()
    for tenant_id, length in ((ACME, 1), (OTHER_TENANT, 2)):
        records, head = await whole_log(store, tenant_id)
        assert len(records) == length
        assert audit.verify(records, head) is None


async def test_a_record_that_is_not_committed_leaves_no_gap(store: Store) -> None:
    await append(store, an_event(1))
    async with store.write() as tx:
        await tx.audit.append(ACME, [an_event(2)])
    await append(store, an_event(3))
    records, head = await whole_log(store)
    assert [record.body["number"] for record in records] == [1, 3]
    assert audit.verify(records, head) is None


async def test_a_chain_stays_whole_however_many_append_at_once(store: Store) -> None:
    async def append_some(number: int) -> None:
        await append(store, *(an_event(number * 10 + step) for step in range(number % 3 + 1)))

    await asyncio.gather(*(append_some(number) for number in range(60)))
    records, head = await whole_log(store)
    assert head.seq == len(records) == 120
    assert audit.verify(records, head) is None
    # What was appended together stays together.
    numbers = [record.body["number"] for record in records]
    for number in range(60):
        at = numbers.index(number * 10)
        assert numbers[at : at + number % 3 + 1] == [number * 10 + step for step in range(number % 3 + 1)]


async def test_a_long_log_is_read_whole(store: Store) -> None:
    for start in range(0, 1000, 500):
        await append(store, *(an_event(number) for number in range(start + 1, start + 501)))
    records, head = await whole_log(store)
    assert [record.seq for record in records] == list(range(1, 1001))
    assert audit.verify(records, head) is None
    assert audit.verify(records[499:], head, Head(seq=499, hash=records[498].hash)) is None


async def test_a_reader_sees_the_head_and_the_records_of_one_moment(store: Store) -> None:
    await append(store, an_event(1))
    async with store.read() as tx:
        head = await tx.audit.head(ACME)
        await append(store, an_event(2))
        assert audit.verify([record async for record in tx.audit.read(ACME)], head) is None


# --- filters ----------------------------------------------------------------------------------------------

FULL = {
    "type": "tool.denied",
    "decision": "deny",
    "reason": "budget_exceeded",
    "grantId": CHILD.grant_id,
    "rootGrantId": ROOT.grant_id,
    "runId": "run_1",
    "subject": "user:ada",
    "clientId": "planner",
    "tool": "case_search",
    "callId": "call_1",
    "refs": ["case-77_%"],
}
EVENTS = [an_event(1, **FULL), an_event(2, type="delegation.created", grantId=ROOT.grant_id), an_event(3)]


@pytest.mark.parametrize(
    "where",
    [
        RecordFilter(type="tool.denied"),
        RecordFilter(decision="deny"),
        RecordFilter(reason="budget_exceeded"),
        RecordFilter(grant_id=CHILD.grant_id),
        RecordFilter(root_grant_id=ROOT.grant_id),
        RecordFilter(run_id="run_1"),
        RecordFilter(subject="user:ada"),
        RecordFilter(client_id="planner"),
        RecordFilter(tool="case_search"),
        RecordFilter(call_id="call_1"),
        RecordFilter(text="case-77_%"),
        RecordFilter(text="case_search", decision="deny", until=NOW + timedelta(seconds=2)),
        RecordFilter(until=NOW + timedelta(seconds=2)),
    ],
)
async def test_each_filter_finds_the_record_that_fits(store: Store, where: RecordFilter) -> None:
    await append(store, *EVENTS)
    assert await numbers_of_page(store, where) == [1]


@pytest.mark.parametrize(
    "where",
    [
        RecordFilter(type="tool.%"),
        RecordFilter(decision="DENY"),
        RecordFilter(tool="case_search", decision="allow"),
        RecordFilter(text="CASE-77"),
        RecordFilter(text="case-77%%"),
        RecordFilter(text="case-7__"),
        RecordFilter(since=NOW + timedelta(seconds=3, microseconds=1)),
        RecordFilter(until=NOW),
        RecordFilter(subtree_of="gr_unknown"),
        RecordFilter(tool="x" * 1000),
    ],
)
async def test_a_filter_takes_nothing_for_a_wildcard_and_finds_nothing_else(store: Store, where: RecordFilter) -> None:
    await append(store, *EVENTS)
    assert await numbers_of_page(store, where) == []


async def test_a_time_range_takes_its_start_and_leaves_its_end(store: Store) -> None:
    await append(store, *EVENTS)
    where = RecordFilter(since=NOW + timedelta(seconds=2), until=NOW + timedelta(seconds=3))
    assert await numbers_of_page(store, where) == [2]


async def test_times_compare_to_the_microsecond(store: Store) -> None:
    moments = [NOW + timedelta(microseconds=count) for count in (999_999, 1_000_000, 1_000_001)]
    await append(store, *(an_event(index, time=stamp(moment)) for index, moment in enumerate(moments)))
    assert await numbers_of_page(store, RecordFilter(since=moments[1])) == [1, 2]
    assert await numbers_of_page(store, RecordFilter(until=moments[1])) == [0]


@pytest.mark.parametrize("text", ['say "hi"', "back\\slash", "line\nbreak", "nul\x00", "ümlaut𝄞", "%", "_"])
async def test_any_text_is_found_as_it_stands(store: Store, text: str) -> None:
    await append(store, an_event(1, note=f"…{text}…"), an_event(2, note="nothing"))
    assert await numbers_of_page(store, RecordFilter(text=text)) == [1]


@pytest.mark.parametrize("tool", ["a\x00b", "t" * 5000, "ü" * 3000])
async def test_a_name_that_no_index_could_hold_is_still_found(store: Store, tool: str) -> None:
    await append(store, an_event(1, tool=tool), an_event(2, tool="t"))
    assert await numbers_of_page(store, RecordFilter(tool=tool)) == [1]
    records, head = await whole_log(store)
    assert audit.verify(records, head) is None


async def test_long_names_that_begin_alike_are_told_apart(store: Store) -> None:
    one, other = "t" * 5000, "t" * 4999 + "u"
    await append(store, an_event(1, tool=one), an_event(2, tool=other))
    assert await numbers_of_page(store, RecordFilter(tool=other)) == [2]


async def test_a_subtree_filter_takes_a_grant_and_all_below_it(store: Store) -> None:
    await add_chain(store, ROOT, CHILD, GRANDCHILD)
    grants: Sequence[str] = (ROOT.grant_id, CHILD.grant_id, GRANDCHILD.grant_id, "gr_unknown")
    await append(store, *(an_event(index, grantId=grant) for index, grant in enumerate(grants)), an_event(9))
    assert await numbers_of_page(store, RecordFilter(subtree_of=CHILD.grant_id)) == [1, 2]
    assert await numbers_of_page(store, RecordFilter(subtree_of=ROOT.grant_id, grant_id=GRANDCHILD.grant_id)) == [2]


async def test_pages_continue_after_a_record_in_either_direction(store: Store) -> None:
    await append(store, *(an_event(number, tool="even" if number % 2 == 0 else "odd") for number in range(1, 8)))
    even = RecordFilter(tool="even")
    assert await numbers_of_page(store, even, limit=2) == [2, 4]
    assert await numbers_of_page(store, even, after_seq=4, limit=2) == [6]
    assert await numbers_of_page(store, even, newest_first=True, limit=2) == [6, 4]
    assert await numbers_of_page(store, even, newest_first=True, after_seq=4, limit=2) == [2]


async def test_a_cursor_from_nowhere_is_no_failure(store: Store) -> None:
    await append(store, an_event(1))
    far = 10**30
    assert await numbers_of_page(store, RecordFilter(), after_seq=far) == []
    assert await numbers_of_page(store, RecordFilter(), after_seq=-far) == [1]
    assert await numbers_of_page(store, RecordFilter(), after_seq=far, newest_first=True) == [1]
    assert await numbers_of_page(store, RecordFilter(), after_seq=-far, newest_first=True) == []


async def test_a_page_holds_only_the_tenants_own_records(store: Store) -> None:
    async with store.write() as tx:
        await tx.audit.append(OTHER_TENANT, EVENTS)
        await tx.commit()
    assert await numbers_of_page(store, RecordFilter()) == []


async def test_records_of_a_page_verify_like_those_of_the_whole_log(store: Store) -> None:
    await append(store, *EVENTS)
    async with store.read() as tx:
        page = await tx.audit.page(ACME, RecordFilter(), after_seq=None, newest_first=False, limit=10)
    assert list(page) == (await whole_log(store))[0]
