"""`subgrant grants`: mint, derive, read and close; a lineage as a tree with its budgets."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import typer
from rich.text import Text
from rich.tree import Tree

from app.cli.client import segments
from app.cli.options import Body, InTenant, Limit, Members, given, json_option, options
from app.cli.output import Cell, line, show, show_json, table, word
from app.cli.session import Session, remote, rows
from app.core.strict_json import JsonObject, JsonValue

group = typer.Typer(no_args_is_help=True)

PATH: Final = "/v1/grants"

GrantId = Annotated[str, typer.Argument(metavar="GRANT")]


# --- what is asked for ------------------------------------------------------------------------------------


def narrowing(
    *,
    audience: Annotated[list[str] | None, typer.Option(metavar="URI", help="A tool server. May be repeated.")] = None,
    tool: Annotated[list[str] | None, typer.Option(metavar="NAME", help="An allowed tool. May be repeated.")] = None,
    constraints: Annotated[Members | None, json_option("Per tool, what each argument may be.")] = None,
    max_tool_calls: Annotated[int | None, typer.Option(help="How many calls.")] = None,
    max_spend_cents: Annotated[float | None, typer.Option(help="How much they may cost.")] = None,
    expires_in: Annotated[int | None, typer.Option(metavar="SECONDS", help="How long it lives.")] = None,
    expires_at: Annotated[str | None, typer.Option(metavar="TIME", help="Or until when (RFC 3339).")] = None,
    not_before: Annotated[str | None, typer.Option(metavar="TIME", help="From when.")] = None,
    may_redelegate: Annotated[bool | None, typer.Option(help="Whether it may be passed on.")] = None,
    max_depth: Annotated[int | None, typer.Option(help="How deep below it.")] = None,
    child_run: Annotated[str | None, typer.Option(metavar="RUN", help="The run that it is for.")] = None,
) -> JsonObject:
    """The narrowing fields, as far as options say them: one list for mint, derive and exchange."""
    return given(
        audience=audience,
        allowed_tools=tool,
        resource_constraints=constraints,
        max_tool_calls=max_tool_calls,
        max_spend_cents=max_spend_cents,
        expires_in_seconds=expires_in,
        expires_at=expires_at,
        not_before=not_before,
        may_redelegate=may_redelegate,
        max_depth=max_depth,
        child_run_id=child_run,
    )


Holder = Annotated[str | None, typer.Option(metavar="CLIENT", help="The client that may exchange it.")]


@group.command()
@remote
@options(fields=narrowing)
async def mint(
    session: Session,
    *,
    fields: JsonObject,
    subject: Annotated[str | None, typer.Option(help="For whom; the client itself unless given.")] = None,
    parent_run: Annotated[str | None, typer.Option(metavar="RUN", help="The run that asks for it.")] = None,
    holder: Holder = None,
    body: Body = None,
) -> None:
    """Mint a root grant. What is left out is nothing: no tools, no calls, no spend."""
    who = given(subject=subject, parent_run_id=parent_run, holder=holder)
    _signed(session, await session.api.post(PATH, (body or {}) | fields | who))


@group.command()
@remote
@options(fields=narrowing)
async def derive(
    session: Session, *, grant_id: GrantId, fields: JsonObject, holder: Holder = None, body: Body = None
) -> None:
    """Derive a child grant: proven narrower than its parent, or refused."""
    wanted = (body or {}) | fields | given(holder=holder)
    _signed(session, await session.api.post(PATH + segments(grant_id, "derive"), wanted))


# --- what there is ----------------------------------------------------------------------------------------


@group.command("list")
@remote
async def list_(
    session: Session,
    *,
    parent: Annotated[str | None, typer.Option(metavar="GRANT", help="Its children.")] = None,
    root: Annotated[str | None, typer.Option(metavar="GRANT", help="All below this root.")] = None,
    run: Annotated[str | None, typer.Option(help="Of this run.")] = None,
    holder: Annotated[str | None, typer.Option(metavar="CLIENT", help="Held by this client.")] = None,
    subject: Annotated[str | None, typer.Option(help="For this subject.")] = None,
    active: Annotated[bool, typer.Option("--active", help="Only what lives.")] = False,
    limit: Limit = 50,
    before: Annotated[str | None, typer.Option(metavar="CURSOR", help="The next page: the last page's `next`.")] = None,
    tenant: InTenant = None,
) -> None:
    """List grants, newest first."""
    query: Mapping[str, str | int | None] = {
        "parentGrantId": parent,
        "rootGrantId": root,
        "runId": run,
        "holder": holder,
        "subject": subject,
        "status": "active" if active else None,
        "limit": limit,
        "before": before,
        "tenant": tenant,
    }
    await session.page(PATH, COLUMNS, query, cursor="--before")


@group.command("show")
@remote
async def show_(session: Session, *, grant_id: GrantId, tenant: InTenant = None) -> None:
    """Show a grant with its usage and status."""
    session.show(await session.api.get(PATH + segments(grant_id), {"tenant": tenant}))


@group.command()
@remote
async def lineage(session: Session, *, grant_id: GrantId, tenant: InTenant = None) -> None:
    """Show a grant's ancestors and all below it, with what each has used."""
    session.show(await session.api.get(PATH + segments(grant_id, "lineage"), {"tenant": tenant}), tree)


@group.command()
@remote
async def tools(session: Session, *, grant_id: GrantId, tenant: InTenant = None) -> None:
    """List a living grant's tools, as a model may be shown them."""
    document = await session.api.get(PATH + segments(grant_id, "tools"), {"tenant": tenant})
    session.show(document, lambda found: table(TOOL_COLUMNS, rows(found, "tools")))


@group.command()
@remote
async def close(
    session: Session,
    *,
    grant_id: GrantId,
    reason: Annotated[str, typer.Option(help="Why, as one word: task_complete, cancelled, …")] = "closed",
    tenant: InTenant = None,
) -> None:
    """Close a grant and all below it."""
    path = PATH + segments(grant_id, "close")
    session.show(await session.api.post(path, {"reason": reason}, {"tenant": tenant}))


# --- how it looks -----------------------------------------------------------------------------------------


def calls(grant: JsonObject) -> str:
    """`calls 2/10`, with what is held for calls in flight."""
    return f"{_used(grant, 'toolCalls')}/{word(grant.get('maxToolCalls'))}"


def spend(grant: JsonObject) -> str:
    """`3.5/50 ¢`, likewise."""
    return f"{_used(grant, 'spendCents')}/{word(grant.get('maxSpendCents'))} ¢"


def _used(grant: JsonObject, what: str) -> str:
    amounts = _member(_member(grant, "usage"), what)
    pending = amounts.get("pending")
    return f"{word(amounts.get('posted', 0))}" + (f"+{word(pending)} pending" if pending else "")


def _member(document: JsonObject, name: str) -> JsonObject:
    value: JsonValue = document.get(name)
    return value if isinstance(value, dict) else {}


COLUMNS: Final[Mapping[str, Cell]] = {
    "grant": "grantId",
    "status": "status",
    "depth": "depth",
    "holder": "holder",
    "run": "childRunId",
    "calls": calls,
    "spend": spend,
    "tools": "allowedTools",
    "expires": "expiresAt",
}


TOOL_COLUMNS: Final[Mapping[str, Cell]] = {
    "tool": "name",
    "server": "toolServer",
    "description": "description",
    "arguments": "inputSchema",
}


def tree(document: JsonObject) -> Tree:
    """A lineage, root first; the grant that was asked for stands out."""
    ancestors, subtree = rows(document, "ancestors"), rows(document, "subtree")
    asked_for = subtree[0].get("grantId") if subtree else None
    made = Tree(Text("lineage" + (", cut off: there is more below" if document.get("truncated") else "")))
    nodes: dict[object, Tree] = {}
    for grant in (*ancestors, *subtree):
        above = nodes.get(grant.get("parentGrantId"), made)
        nodes[grant.get("grantId")] = above.add(_label(grant, is_asked_for=grant.get("grantId") == asked_for))
    return made


def _label(grant: JsonObject, *, is_asked_for: bool) -> Text:
    parts: Iterable[str] = (
        f"{word(grant.get('grantId'))}  {word(grant.get('childRunId'))}",
        f"calls {calls(grant)}",
        spend(grant),
        word(grant.get("allowedTools")),
        word(grant.get("status")),
    )
    return Text(" · ".join(parts), style="bold" if is_asked_for else "")


def _signed(session: Session, document: JsonObject) -> None:
    """A new grant: what it is, and last its signed form on a line of its own."""
    if session.as_json:
        show_json(document)
        return
    signed = document.pop("grant", None)
    session.show(document)
    show("")
    line(str(signed))
