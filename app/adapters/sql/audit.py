"""The audit log at rest: each record's canonical text is what counts, the columns beside it only find it.

The rules of the chain are `core/audit.py`'s. A row whose text is not what was written, or whose columns say
something else than its text, comes out with a hash that no record has, so that verifying names its place.
"""

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import BigInteger, Connection, bindparam, select, update

from app.adapters.sql.columns import position_of
from app.adapters.sql.grants import lineage_of, within
from app.adapters.sql.statements import AnyRow, AnySelect, insert_missing, insert_rows, word
from app.adapters.sql.tables import AUDIT_MEMBERS, audit_heads, audit_records, grants
from app.adapters.sql.unit import Unit
from app.core import audit
from app.core.audit import GENESIS, AuditRecord, Head
from app.core.grant import TenantId
from app.core.strict_json import JsonObject, StrictJsonError, canonical
from app.ports import RecordFilter

READ_ROWS = 500
"""Rows in memory at once while a log is read from end to end."""

MAX_SEQ = 2**63 - 1
"""The largest that a column can be compared with; a cursor comes from a caller."""

MAX_COLUMN_CHARS = 200
"""Longer members are cut in their column and told apart by a digest: PostgreSQL bounds the entries of an index."""

ALTERED = "altered"
"""In place of the hash of a row that was changed."""


class SqlAuditLog:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    async def append(self, tenant_id: TenantId, events: Sequence[JsonObject]) -> tuple[AuditRecord, ...]:
        if not events:
            return ()
        return await self._unit.run(_append, tenant_id, tuple(events))

    async def head(self, tenant_id: TenantId) -> Head:
        return await self._unit.run(_head, tenant_id)

    async def page(
        self,
        tenant_id: TenantId,
        where: RecordFilter,
        *,
        after_seq: int | None,
        newest_first: bool,
        limit: int,
    ) -> tuple[AuditRecord, ...]:
        return await self._unit.run(_page, tenant_id, where, after_seq, newest_first, limit)

    async def read(self, tenant_id: TenantId) -> AsyncIterator[AuditRecord]:
        records = await self._unit.run(_slice, tenant_id, -MAX_SEQ)
        while records:
            for record in records:
                yield record
            records = await self._unit.run(_slice, tenant_id, records[-1].seq)


# --- appending --------------------------------------------------------------------------------------------

_HEAD = select(audit_heads.c.seq, audit_heads.c.hash).where(audit_heads.c.tenant_id == word("tenant"))
_LOCK_HEAD = _HEAD.with_for_update()
_MOVE_HEAD = (
    update(audit_heads)
    .where(audit_heads.c.tenant_id == word("tenant"))
    .values(seq=bindparam("new_seq"), hash=word("new_hash"))
)


def _append(connection: Connection, tenant_id: TenantId, events: tuple[JsonObject, ...]) -> tuple[AuditRecord, ...]:
    head = _locked_head(connection, tenant_id)
    records, rows = [], []
    for event in events:
        record, text = audit.append_written(head, tenant_id, event)
        head = Head(seq=record.seq, hash=record.hash)
        records.append(record)
        rows.append(_row_of(record, text))
    insert_rows(connection, audit_records, rows)
    connection.execute(_MOVE_HEAD, {"tenant": tenant_id, "new_seq": head.seq, "new_hash": head.hash})
    return tuple(records)


def _locked_head(connection: Connection, tenant_id: TenantId) -> Head:
    row = connection.execute(_LOCK_HEAD, {"tenant": tenant_id}).first()
    if row is None:
        first = {"tenant_id": tenant_id, "seq": 0, "hash": GENESIS}
        insert_missing(connection, audit_heads, [first])
        row = connection.execute(_LOCK_HEAD, {"tenant": tenant_id}).one()
    return Head(seq=row.seq, hash=row.hash)


def _row_of(record: AuditRecord, text: str) -> dict[str, Any]:
    return {
        "tenant_id": record.tenant_id,
        "seq": record.seq,
        "body": text,
        "prev_hash": record.prev_hash,
        "hash": record.hash,
        **_columns_of(record.body),
    }


def _columns_of(body: JsonObject) -> dict[str, str | None]:
    return {column: _column_text(body.get(member)) for column, member in AUDIT_MEMBERS.items()}


def _column_text(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    if len(value) <= MAX_COLUMN_CHARS:
        return value
    return f"{value[:MAX_COLUMN_CHARS]}…{sha256(value.encode()).hexdigest()}"


# --- reading ----------------------------------------------------------------------------------------------


def _record_of(row: AnyRow) -> AuditRecord:
    body = _body_of(row.body)
    is_whole = body is not None and all(getattr(row, column) == text for column, text in _columns_of(body).items())
    return AuditRecord(
        tenant_id=row.tenant_id,
        seq=row.seq,
        body={"seq": row.seq, "tenantId": row.tenant_id} if body is None else body,
        prev_hash=row.prev_hash,
        hash=row.hash if is_whole else ALTERED,
    )


def _body_of(text: str) -> JsonObject | None:
    """The record in its canonical text; None when the text is anything else."""
    try:
        body = json.loads(text)
        is_canonical = isinstance(body, dict) and canonical(body).decode() == text
    except (ValueError, RecursionError, StrictJsonError):
        return None
    return body if is_canonical else None


def _head(connection: Connection, tenant_id: TenantId) -> Head:
    row = connection.execute(_HEAD, {"tenant": tenant_id}).first()
    return Head() if row is None else Head(seq=row.seq, hash=row.hash)


_RECORDS = select(audit_records)
_SLICE = (
    _RECORDS.where(
        audit_records.c.tenant_id == word("tenant"),
        audit_records.c.seq > bindparam("after_seq", type_=BigInteger()),
    )
    .order_by(audit_records.c.seq)
    .limit(READ_ROWS)
)


def _slice(connection: Connection, tenant_id: TenantId, after_seq: int) -> list[AuditRecord]:
    return [_record_of(row) for row in connection.execute(_SLICE, {"tenant": tenant_id, "after_seq": after_seq})]


def _page(
    connection: Connection,
    tenant_id: TenantId,
    where: RecordFilter,
    after_seq: int | None,
    newest_first: bool,  # noqa: FBT001
    limit: int,
) -> tuple[AuditRecord, ...]:
    seq = audit_records.c.seq
    query = _filtered(_RECORDS.where(audit_records.c.tenant_id == tenant_id), where)
    query = query.order_by(seq.desc() if newest_first else seq).limit(limit)
    if after_seq is not None:
        after_seq = max(-MAX_SEQ, min(after_seq, MAX_SEQ))
        query = query.where(seq < after_seq if newest_first else seq > after_seq)
    if where.subtree_of is not None:
        own = lineage_of(connection, tenant_id, where.subtree_of)
        if own is None:
            return ()
        query = query.where(audit_records.c.grant_id.in_(select(grants.c.grant_id).where(within(tenant_id, own))))
    return tuple(_record_of(row) for row in connection.execute(query))


def _filtered(query: AnySelect, where: RecordFilter) -> AnySelect:
    for column in _EQUAL:
        value = getattr(where, column)
        if value is not None:
            query = query.where(audit_records.c[column] == _column_text(value))
    if where.since is not None:
        query = query.where(audit_records.c.time >= _rendered(where.since))
    if where.until is not None:
        query = query.where(audit_records.c.time < _rendered(where.until))
    if where.text is not None:
        query = query.where(position_of(audit_records.c.body, _as_written(where.text)) > 0)
    return query


_EQUAL = (
    "type",
    "decision",
    "reason",
    "grant_id",
    "root_grant_id",
    "run_id",
    "subject",
    "client_id",
    "tool",
    "call_id",
)


def _rendered(moment: datetime) -> str:
    """A time as events write it, so that text compares as time does."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _as_written(text: str) -> str:
    """How a string stands inside a canonical text, without its quotes."""
    return canonical(text).decode()[1:-1]
