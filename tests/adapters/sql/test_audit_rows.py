"""Whoever changes the audit log behind the store's back is found, at the place where it was changed."""

import pytest

from app.core import audit
from app.core.audit import Fault
from app.ports import RecordFilter
from tests.contracts.backends import Database
from tests.contracts.examples import an_event, append
from tests.samples import ACME

pytestmark = pytest.mark.anyio

LENGTH = 5
CHANGED = "the record was changed"
MISSING = "a record is missing, inserted or out of order"
UNLINKED = "the record does not follow the one before it"
ENDS = "the log ends before its head"
GOES_ON = "the log goes on beyond its head, or its head was moved or removed"
OTHER_HEAD = "the head names another record than the last"
MISPLACED = "the record stands at another's place"
BODY_3 = "UPDATE audit_records SET body = {} WHERE seq = 3"
COLUMN_3 = "UPDATE audit_records SET {} = {} WHERE seq = 3"
FILTERED = ("type", "time", "decision", "reason", "grant_id", "root_grant_id", "run_id", "subject", "client_id", "tool")


async def fault_after(database: Database, *statements: str) -> Fault | None:
    store = database.open()
    try:
        await append(store, *(an_event(number, tool="case_search") for number in range(1, LENGTH + 1)))
        await database.sql(*statements)
        async with store.read() as tx:
            head = await tx.audit.head(ACME)
            records = [record async for record in tx.audit.read(ACME)]
            await tx.audit.page(ACME, RecordFilter(), after_seq=None, newest_first=True, limit=LENGTH)
        return audit.verify(records, head)
    finally:
        await store.aclose()


async def test_an_untouched_log_is_whole(database: Database) -> None:
    assert await fault_after(database, "SELECT 1") is None


@pytest.mark.parametrize(
    "statement, seq, detail",
    [
        (BODY_3.format("replace(body, 'case_search', 'case_delete')"), 3, CHANGED),
        (BODY_3.format("replace(body, '{', '{ ')"), 3, CHANGED),
        (BODY_3.format("""replace(body, '"number":3', '"number":0,"number":3')"""), 3, CHANGED),
        (BODY_3.format("'not json'"), 3, CHANGED),
        (BODY_3.format("'[1]'"), 3, CHANGED),
        (BODY_3.format("'NaN'"), 3, CHANGED),
        (BODY_3.format("'{}'"), 3, MISPLACED),
        ("UPDATE audit_records SET hash = prev_hash WHERE seq = 3", 3, CHANGED),
        ("UPDATE audit_records SET prev_hash = hash WHERE seq = 3", 3, UNLINKED),
        ("DELETE FROM audit_records WHERE seq = 1", 1, MISSING),
        ("DELETE FROM audit_records WHERE seq = 3", 3, MISSING),
        ("DELETE FROM audit_records WHERE seq = 5", 5, ENDS),
        ("DELETE FROM audit_records", 1, ENDS),
        ("UPDATE audit_records SET seq = 9 WHERE seq = 3", 3, MISSING),
        (BODY_3.format("""replace(body, '"number":3', '"number":3.0')"""), 3, CHANGED),
        (BODY_3.format("""replace(body, '"number":3', '"number":3,"prevHash":"x"')"""), 3, CHANGED),
        ("UPDATE audit_heads SET seq = 6", 6, ENDS),
        ("UPDATE audit_heads SET seq = 4", 5, GOES_ON),
        ("UPDATE audit_heads SET (seq, hash) = (SELECT seq, hash FROM audit_records WHERE seq = 2)", 3, GOES_ON),
        ("UPDATE audit_heads SET seq = 0", 1, GOES_ON),
        ("DELETE FROM audit_heads", 1, GOES_ON),
        ("UPDATE audit_heads SET hash = 'x'", 5, OTHER_HEAD),
    ],
)
async def test_a_changed_or_removed_row_is_found(database: Database, statement: str, seq: int, detail: str) -> None:
    assert await fault_after(database, statement) == Fault(seq=seq, detail=detail)


async def test_reordered_rows_are_found(database: Database) -> None:
    move = "UPDATE audit_records SET seq = {1} WHERE seq = {0}"
    swap = (move.format(2, 99), move.format(3, 2), move.format(99, 3))
    assert await fault_after(database, *swap) == Fault(seq=2, detail=UNLINKED)


async def test_a_record_put_in_the_place_of_another_is_found(database: Database) -> None:
    copy = "UPDATE audit_records SET {0} = (SELECT {0} FROM audit_records AS o WHERE o.seq = 2) WHERE seq = 3"
    statements = [copy.format(column) for column in ("body", "hash", "prev_hash", "time")]
    fault = await fault_after(database, *statements)
    assert fault is not None
    assert fault.seq == 3


@pytest.mark.parametrize("column", FILTERED)
async def test_a_column_that_says_something_else_than_its_record_is_found(database: Database, column: str) -> None:
    assert await fault_after(database, COLUMN_3.format(column, "'elsewhere'")) == Fault(seq=3, detail=CHANGED)


@pytest.mark.parametrize("column", ["type", "time", "tool"])
async def test_a_record_that_its_column_hides_from_every_filter_is_found(database: Database, column: str) -> None:
    assert await fault_after(database, COLUMN_3.format(column, "NULL")) == Fault(seq=3, detail=CHANGED)
