"""The audit log's rules: what a record is, how records are chained, and how a broken chain is found.

Each tenant has one log. A record's hash covers its canonical bytes (RFC 8785) together with the hash of the
record before it, so that a changed, removed, inserted or reordered record breaks the chain at its place.
Records hold references, reason codes, digests and sizes; never a token, a prompt or an argument's value
unless the tool's registration marks that argument as a loggable reference.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from app.core.grant import TenantId
from app.core.strict_json import JsonObject, canonical

GENESIS = "0" * 64

PREV_HASH = "prevHash"

OWN_MEMBERS = frozenset({"seq", "tenantId", PREV_HASH, "hash"})
"""What the log itself says of a record."""


class RecordType(StrEnum):
    """What happened."""

    DELEGATION_CREATED = "delegation.created"
    DELEGATION_SCOPE = "delegation.scope"
    DELEGATION_EXCHANGED = "delegation.exchanged"
    DELEGATION_REFUSED = "delegation.refused"
    DELEGATION_CLOSED = "delegation.closed"
    TOOL_PROPOSED = "tool.proposed"
    TOOL_AUTHORIZED = "tool.authorized"
    TOOL_DENIED = "tool.denied"
    TOOL_EXECUTED = "tool.executed"
    TOOL_OUTCOME_UNKNOWN = "tool.outcome_unknown"
    TOOL_REPEATED = "tool.repeated"
    TOOL_UNSENT = "tool.unsent"
    TOKEN_REVOKED = "token.revoked"
    ACCESS_GRANTED = "access.granted"
    ACCESS_REFUSED = "access.refused"
    ADMIN_CHANGED = "admin.changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The newest record of a tenant's log."""

    seq: int = 0
    hash: str = GENESIS


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One link of a tenant's log. `body` is everything but `prevHash` and `hash`, `seq` and `tenantId` included."""

    tenant_id: TenantId
    seq: int
    body: JsonObject
    prev_hash: str
    hash: str


def append(head: Head, tenant_id: TenantId, event: JsonObject) -> AuditRecord:
    """The record that follows `head`."""
    return append_written(head, tenant_id, event)[0]


def append_written(head: Head, tenant_id: TenantId, event: JsonObject) -> tuple[AuditRecord, str]:
    """The record that follows `head`, and the canonical text of its body for whoever stores it."""
    assert event.keys().isdisjoint(OWN_MEMBERS), "an event leaves its place in the log to the log"
    seq = head.seq + 1
    body: JsonObject = {"seq": seq, "tenantId": tenant_id, **event}
    # Canonical members are sorted by name, so `prevHash` stands between those before and those after it, and both
    # texts are made of the same halves. (Against ASCII, UTF-16 and code points sort alike.)
    before = canonical({name: member for name, member in body.items() if name < PREV_HASH})[1:-1]
    after = canonical({name: member for name, member in body.items() if name > PREV_HASH})[1:-1]
    own = canonical({PREV_HASH: head.hash})[1:-1]
    hashed = sha256(_object(before, own, after)).hexdigest()
    record = AuditRecord(tenant_id=tenant_id, seq=seq, body=body, prev_hash=head.hash, hash=hashed)
    return record, _object(before, after).decode()


def _object(*members: bytes) -> bytes:
    return b"{" + b",".join(filter(None, members)) + b"}"


def record_hash(body: JsonObject, prev_hash: str) -> str:
    """SHA-256, in hex, over the canonical record with the hash of the one before it."""
    return sha256(canonical({**body, PREV_HASH: prev_hash})).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Where a log stops being whole, and how it shows."""

    seq: int
    detail: str


class Verifier:
    """Checks a log record by record, in order of `seq`, without holding more than the last one."""

    def __init__(self, start: Head | None = None) -> None:
        self._at = start or Head()
        self._fault: Fault | None = None

    def accept(self, record: AuditRecord) -> bool:
        """Whether the log is whole up to and with this record; after the first fault nothing is accepted."""
        detail = _link_fault(record, self._at)
        if self._fault is None and detail is not None:
            self._fault = Fault(seq=self._at.seq + 1, detail=detail)
        if self._fault is None:
            self._at = Head(seq=record.seq, hash=record.hash)
        return self._fault is None

    def fault_against(self, head: Head) -> Fault | None:
        """The first fault, or that the log does not end at the head that the store names; None when whole.

        That holds only once every stored record was accepted: what stands beyond the head is a fault, too.
        """
        return self._fault or _head_fault(self._at, head)


def verify(records: Iterable[AuditRecord], head: Head, start: Head | None = None) -> Fault | None:
    """The first fault of a log read in order of `seq`, or None when it is whole up to `head`."""
    verifier = Verifier(start)
    for record in records:
        if not verifier.accept(record):
            break
    return verifier.fault_against(head)


def _link_fault(record: AuditRecord, before: Head) -> str | None:
    if record.seq != before.seq + 1:
        return "a record is missing, inserted or out of order"
    if record.prev_hash != before.hash:
        return "the record does not follow the one before it"
    if record.body.get("seq") != record.seq or record.body.get("tenantId") != record.tenant_id:
        return "the record stands at another's place"
    if PREV_HASH in record.body or record_hash(record.body, record.prev_hash) != record.hash:
        return "the record was changed"
    return None


def _head_fault(last: Head, head: Head) -> Fault | None:
    if last.seq < head.seq:
        return Fault(seq=last.seq + 1, detail="the log ends before its head")
    if last.seq > head.seq:
        return Fault(seq=head.seq + 1, detail="the log goes on beyond its head, or its head was moved or removed")
    return None if last == head else Fault(seq=head.seq, detail="the head names another record than the last")
