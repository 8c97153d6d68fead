"""The audit log: pages of records, a stream of them, and the proof that the log is whole."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from app.api.caller import AuthenticatedCaller, TheWorld
from app.api.errors import REFUSALS, allowed
from app.api.wire import Document, Members, StrictRoute, Time
from app.core.audit import AuditRecord
from app.core.grant import TenantId
from app.core.strict_json import JsonObject
from app.ports import RecordFilter
from app.usecases.failures import Denied
from app.usecases.read_audit import AuditPage, read_audit
from app.usecases.verify_audit import verify_audit

router = APIRouter(prefix="/v1/audit", tags=["audit"], route_class=StrictRoute, responses=REFUSALS)

NDJSON = "application/x-ndjson"
STREAM_PAGE_ROWS = 500

Word = Annotated[str | None, Query(max_length=200)]


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


@router.get("/records", summary="Audit records", response_model=RecordPage)
async def records(
    request: Request,
    world: TheWorld,
    caller: AuthenticatedCaller,
    tenant: Word = None,
    type_: Annotated[str | None, Query(alias="type", max_length=64)] = None,
    decision: Annotated[Literal["allow", "deny"] | None, Query()] = None,
    reason: Word = None,
    grant_id: Annotated[str | None, Query(alias="grantId", max_length=64)] = None,
    subtree_of: Annotated[str | None, Query(alias="subtreeOf", max_length=64)] = None,
    root_grant_id: Annotated[str | None, Query(alias="rootGrantId", max_length=64)] = None,
    run_id: Annotated[str | None, Query(alias="runId", max_length=200)] = None,
    subject: Annotated[str | None, Query(max_length=500)] = None,
    client: Word = None,
    tool: Word = None,
    call_id: Annotated[str | None, Query(alias="callId", max_length=64)] = None,
    since: Annotated[Time | None, Query()] = None,
    until: Annotated[Time | None, Query()] = None,
    text: Word = None,
    order: Annotated[Literal["newest", "oldest"], Query()] = "newest",
    after: Annotated[str | None, Query(pattern=r"^\d{1,15}$")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> RecordPage | StreamingResponse:
    """Filters combine; pages by cursor. `Accept: application/x-ndjson` streams every match instead."""
    where = RecordFilter(
        type=type_,
        decision=decision,
        reason=reason,
        grant_id=grant_id,
        subtree_of=subtree_of,
        root_grant_id=root_grant_id,
        run_id=run_id,
        subject=subject,
        client_id=client,
        tool=tool,
        call_id=call_id,
        since=since,
        until=until,
        text=text,
    )
    named = None if tenant is None else TenantId(tenant)
    is_newest_first = order == "newest"
    start = None if after is None else int(after)

    async def read(after_seq: int | None, rows: int = STREAM_PAGE_ROWS) -> AuditPage | Denied:
        return await read_audit(
            world, caller, where, tenant_id=named, after_seq=after_seq, newest_first=is_newest_first, limit=rows
        )

    if NDJSON in request.headers.get("accept", ""):
        return StreamingResponse(_lines(allowed(await read(start)), read), media_type=NDJSON)
    page = allowed(await read(start, limit))
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
async def verify(world: TheWorld, caller: AuthenticatedCaller, tenant: Word = None) -> VerificationDocument:
    """Reads the whole log and checks each record against the one before it, up to the head."""
    named = None if tenant is None else TenantId(tenant)
    found = allowed(await verify_audit(world, caller, named))
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
