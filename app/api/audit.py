"""The audit log: pages of records, a stream of them, and the proof that the log is whole."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from app.api.caller import AuthenticatedCaller, TenantQuery, TheWorld
from app.api.errors import REFUSALS, allowed
from app.api.wire import Document, Members, StrictRoute, Text, Time
from app.core.audit import AuditRecord
from app.core.strict_json import JsonObject
from app.ports import RecordFilter
from app.usecases.failures import Denied
from app.usecases.read_audit import AuditPage, read_audit
from app.usecases.verify_audit import verify_audit

router = APIRouter(prefix="/v1/audit", tags=["audit"], route_class=StrictRoute, responses=REFUSALS)

NDJSON = "application/x-ndjson"
STREAM_PAGE_ROWS = 500

Word = Annotated[str, Field(min_length=1, max_length=200)]


class RecordPage(Document):
    """Records as they were written: `seq`, `tenantId`, `type`, `time`, references, `prevHash` and `hash`."""

    items: list[Members]
    next: str | None = Field(description="give it as `after` for the next page")


class VerificationDocument(Document):
    """Whether the log is whole, up to which record, and else where it first is not."""

    tenant_id: str
    ok: bool
    records: int
    head_hash: str
    fault: Members | None = None


def record_document(record: AuditRecord) -> JsonObject:
    """A record as the API and exports show it."""
    return {**record.body, "prevHash": record.prev_hash, "hash": record.hash}


class RecordQuery(TenantQuery):
    """Which records to show. Filters combine; an unknown one is refused, since ignored it would show too much."""

    type: Word | None = None
    decision: Literal["allow", "deny"] | None = None
    reason: Word | None = None
    grant_id: Word | None = None
    subtree_of: Word | None = Field(default=None, description="a grant and all below it")
    root_grant_id: Word | None = None
    run_id: Word | None = None
    subject: Text | None = None
    client: Word | None = None
    tool: Word | None = None
    call_id: Word | None = None
    since: Time | None = None
    until: Time | None = None
    text: Word | None = Field(default=None, description="stands anywhere in the record")
    order: Literal["newest", "oldest"] | None = Field(
        default=None, description="pages start at the newest, a stream at the oldest, unless told otherwise"
    )
    after: Annotated[str, Field(pattern=r"^\d{1,15}$")] | None = Field(default=None, description="a page's `next`")
    limit: Annotated[int, Field(ge=1, le=500)] = 100

    def where(self) -> RecordFilter:
        """The same, for the use cases."""
        return RecordFilter(
            type=self.type,
            decision=self.decision,
            reason=self.reason,
            grant_id=self.grant_id,
            subtree_of=self.subtree_of,
            root_grant_id=self.root_grant_id,
            run_id=self.run_id,
            subject=self.subject,
            client_id=self.client,
            tool=self.tool,
            call_id=self.call_id,
            since=self.since,
            until=self.until,
            text=self.text,
        )


@router.get("/records", summary="Audit records", response_model=RecordPage)
async def records(
    request: Request, world: TheWorld, caller: AuthenticatedCaller, asked: Annotated[RecordQuery, Query()]
) -> RecordPage | StreamingResponse:
    """Pages by cursor; `Accept: application/x-ndjson` streams every match instead, fit for `subgrant audit verify`."""
    tenant = asked.named
    is_stream = NDJSON in request.headers.get("accept", "")
    is_newest_first = (asked.order or ("oldest" if is_stream else "newest")) == "newest"
    where = asked.where()

    async def read(after_seq: int | None, rows: int = STREAM_PAGE_ROWS) -> AuditPage | Denied:
        return await read_audit(
            world, caller, where, tenant_id=tenant, after_seq=after_seq, newest_first=is_newest_first, limit=rows
        )

    start = None if asked.after is None else int(asked.after)
    if is_stream:
        return StreamingResponse(_lines(allowed(await read(start)), read), media_type=NDJSON)
    page = allowed(await read(start, asked.limit))
    following = None if page.next_seq is None else str(page.next_seq)
    return RecordPage(items=[record_document(record) for record in page.records], next=following)


async def _lines(page: AuditPage, following: Callable[[int], Awaitable[AuditPage | Denied]]) -> AsyncIterator[str]:
    """Every record from this page on, one JSON document a line, a page in memory at a time."""
    while True:
        for record in page.records:
            yield json.dumps(record_document(record), ensure_ascii=False) + "\n"
        if page.next_seq is None:
            return
        page = allowed(await following(page.next_seq))


@router.get("/verify", summary="Prove that the log is whole")
async def verify(
    world: TheWorld, caller: AuthenticatedCaller, asked: Annotated[TenantQuery, Query()]
) -> VerificationDocument:
    """Reads all that is stored; checks each record against the one before it, and the end against the head."""
    found = allowed(await verify_audit(world, caller, asked.named))
    fault: JsonObject | None = None
    if found.fault is not None:
        fault = {"seq": found.fault.seq, "detail": found.fault.detail}
    return VerificationDocument(
        tenant_id=found.tenant_id,
        ok=found.fault is None,
        records=found.head.seq,
        head_hash=found.head.hash,
        fault=fault,
    )
