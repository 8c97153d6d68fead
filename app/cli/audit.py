"""`subgrant audit`: read the log, and prove it whole: the server's own, or an export without asking anybody."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from app.cli.options import After, Limit, options
from app.cli.output import ExitCode, Stop
from app.cli.session import Session, remote
from app.core.audit import AuditRecord, Fault, Head, Verifier
from app.core.grant import TenantId
from app.core.strict_json import JsonObject, StrictJsonError, parse

group = typer.Typer(no_args_is_help=True)

RECORDS: Final = "/v1/audit/records"
VERIFY: Final = "/v1/audit/verify"
NDJSON: Final = "application/x-ndjson"
MAX_RECORD_BYTES: Final = 1_048_576
MAX_RECORD_DEPTH: Final = 64

COLUMNS: Final = {
    "seq": "seq",
    "time": "time",
    "type": "type",
    "decision": "decision",
    "reason": "reason",
    "tool": "tool",
    "grant": "grantId",
    "run": "runId",
}

Query = Mapping[str, str | int | None]


def filters(
    *,
    tenant: Annotated[str | None, typer.Option(help="Whose log; the caller's own unless given.")] = None,
    type: Annotated[str | None, typer.Option(help="A record type, such as tool.denied.")] = None,  # noqa: A002
    decision: Annotated[str | None, typer.Option(help="allow or deny.")] = None,
    reason: Annotated[str | None, typer.Option(help="A reason code.")] = None,
    grant: Annotated[str | None, typer.Option(help="About this grant.")] = None,
    subtree: Annotated[str | None, typer.Option(metavar="GRANT", help="About this grant and all below it.")] = None,
    root: Annotated[str | None, typer.Option(metavar="GRANT", help="About this root's lineage.")] = None,
    run: Annotated[str | None, typer.Option(help="Of this run.")] = None,
    subject: Annotated[str | None, typer.Option(help="For this subject.")] = None,
    client: Annotated[str | None, typer.Option(help="By this client.")] = None,
    tool: Annotated[str | None, typer.Option(help="About this tool.")] = None,
    call: Annotated[str | None, typer.Option(help="About this call.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="From then on (RFC 3339).")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before then.")] = None,
    text: Annotated[str | None, typer.Option(help="With this text in its references.")] = None,
) -> Query:
    """The filters that the API knows, under its names."""
    return {
        "tenant": tenant,
        "type": type,
        "decision": decision,
        "reason": reason,
        "grantId": grant,
        "subtreeOf": subtree,
        "rootGrantId": root,
        "runId": run,
        "subject": subject,
        "client": client,
        "tool": tool,
        "callId": call,
        "since": since,
        "until": until,
        "text": text,
    }


@group.command()
@remote
@options(where=filters)
async def records(
    session: Session,
    *,
    where: Query,
    stream_all: Annotated[bool, typer.Option("--all", help="Every match as NDJSON, oldest first.")] = False,
    order: Annotated[str | None, typer.Option(help="newest or oldest first.")] = None,
    limit: Limit = 50,
    after: After = None,
) -> None:
    """Read audit records, newest first; with --all every one, as `subgrant audit verify FILE` takes them."""
    if stream_all:
        query = {**where, "order": order or "oldest", "after": after}
        async for chunk in session.api.stream(RECORDS, query, NDJSON):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
    else:
        await session.page(RECORDS, COLUMNS, {**where, "order": order or "newest", "limit": limit, "after": after})


@group.command()
@remote
async def verify(
    session: Session,
    *,
    file: Annotated[
        Path | None,
        typer.Argument(exists=True, dir_okay=False, help="An export from `audit records --all`, instead of a server."),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose log; the caller's own unless given.")] = None,
) -> None:
    """Prove that a log is whole. Fails where it is not."""
    found = await session.api.get(VERIFY, {"tenant": tenant}) if file is None else verify_export(file)
    session.show(found)
    raise typer.Exit(0 if found.get("ok") is True else ExitCode.REFUSED)


# --- without a server -------------------------------------------------------------------------------------


def verify_export(file: Path) -> JsonObject:
    """What the API's verification says, about an export: every record against the one before it.

    That the export reaches the log's end only its server, or a hash noted elsewhere, can tell.
    """
    verifier: Verifier | None = None
    first, last, fault = 0, Head(), None
    for record in _exported(file):
        if verifier is None:
            first = record.seq
            verifier = Verifier(Head(seq=first - 1, hash=record.prev_hash) if first > 1 else None)
        if not verifier.accept(record):
            fault = verifier.fault_against(last)
            break
        last = Head(seq=record.seq, hash=record.hash)
    return _verdict(first, last, fault)


def _verdict(first: int, last: Head, fault: Fault | None) -> JsonObject:
    """Which records an export holds is said beside the verdict: a part of a log may be whole in itself."""
    if first == 0:
        raise Stop("there is no record in this export", ExitCode.REFUSED)
    shown: JsonObject | None = None if fault is None else {"seq": fault.seq, "detail": fault.detail}
    held = last.seq - first + 1
    return {"ok": fault is None, "records": held, "firstSeq": first, "headHash": last.hash, "fault": shown}


def _exported(file: Path) -> Iterator[AuditRecord]:
    with file.open("rb") as lines:
        for number, text in enumerate(lines, start=1):
            try:
                yield _record(parse(text.rstrip(b"\n"), max_bytes=MAX_RECORD_BYTES, max_depth=MAX_RECORD_DEPTH))
            except StrictJsonError as error:
                raise Stop(f"{file}:{number}: this is no audit record: {error}") from error


def _record(document: object) -> AuditRecord:
    if not isinstance(document, dict):
        raise StrictJsonError("not an object")
    prev_hash, hash_ = document.pop("prevHash", None), document.pop("hash", None)
    seq, tenant = document.get("seq"), document.get("tenantId")
    if not isinstance(prev_hash, str) or not isinstance(hash_, str):
        raise StrictJsonError("without hashes")
    if not isinstance(seq, int) or not isinstance(tenant, str):
        raise StrictJsonError("without seq or tenantId")
    return AuditRecord(tenant_id=TenantId(tenant), seq=seq, body=document, prev_hash=prev_hash, hash=hash_)
