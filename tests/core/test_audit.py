"""The log's chain: whatever is changed, removed, inserted, moved or cut off is found where it happened."""

from dataclasses import replace

import pytest

from app.core.audit import AuditRecord, Head, append, record_hash, verify
from app.core.grant import TenantId

ACME = TenantId("acme")


def a_log(length: int) -> tuple[list[AuditRecord], Head]:
    records: list[AuditRecord] = []
    head = Head()
    for index in range(length):
        record = append(head, ACME, {"type": "tool.denied", "callId": f"call_{index}"})
        head = Head(seq=record.seq, hash=record.hash)
        records.append(record)
    return records, head


def test_a_whole_log_verifies_and_so_does_an_empty_one() -> None:
    assert verify(*a_log(5)) is None
    assert verify([], Head()) is None


@pytest.mark.parametrize("index", range(4))
def test_a_changed_body_is_found_at_its_place(index: int) -> None:
    records, head = a_log(4)
    records[index] = replace(records[index], body={**records[index].body, "type": "tool.executed"})
    fault = verify(records, head)
    assert fault is not None
    assert (fault.seq, fault.detail) == (index + 1, "the record was changed")


@pytest.mark.parametrize("index", range(3))
def test_a_change_with_its_hash_recomputed_is_found_at_the_next_record(index: int) -> None:
    records, head = a_log(4)
    body = {**records[index].body, "type": "tool.executed"}
    records[index] = replace(records[index], body=body, hash=record_hash(body, records[index].prev_hash))
    fault = verify(records, head)
    assert fault is not None
    assert fault.seq == index + 2


def test_a_changed_last_record_with_its_hash_recomputed_differs_from_the_head() -> None:
    records, head = a_log(2)
    body = {**records[-1].body, "type": "tool.executed"}
    records[-1] = replace(records[-1], body=body, hash=record_hash(body, records[-1].prev_hash))
    assert verify(records, head) is not None


@pytest.mark.parametrize("index", range(4))
def test_a_removed_record_is_found(index: int) -> None:
    records, head = a_log(4)
    del records[index]
    assert verify(records, head) is not None


def test_reordered_duplicated_and_foreign_records_are_found() -> None:
    records, head = a_log(4)
    assert verify([records[1], records[0], *records[2:]], head) is not None
    assert verify([records[0], records[0], *records[1:]], head) is not None
    foreign = [replace(record, tenant_id=TenantId("globex")) for record in records]
    assert verify(foreign, head) is not None


def test_a_log_beyond_its_head_is_found() -> None:
    records, _ = a_log(4)
    assert verify(records, Head(seq=3, hash=records[2].hash)) is not None
