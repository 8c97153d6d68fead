"""`subgrant call`: propose a tool call under a token, and get its result or the reason why not."""

from typing import Annotated

import typer

from app.cli.options import Members, given, json_option
from app.cli.output import ExitCode, Stop, line, show_json, warn, word
from app.cli.session import Session, remote, rows
from app.core.strict_json import JsonObject


@remote
async def call(
    session: Session,
    *,
    tool: Annotated[str, typer.Argument(metavar="TOOL")],
    server: Annotated[str, typer.Option(metavar="AUDIENCE", help="The tool server's audience.")],
    args: Annotated[Members | None, json_option("The arguments.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Only decide: run nothing and take no budget.")] = False,
    idempotency_key: Annotated[str | None, typer.Option(help="A repeat with it runs nothing a second time.")] = None,
) -> None:
    """Call a tool under a token from `subgrant token exchange` (SUBGRANT_TOKEN or --token).

    Succeeds when the call was allowed and the tool succeeded.
    """
    if not session.has_token:
        raise Stop("a call needs a token: SUBGRANT_TOKEN or --token, from `subgrant token exchange`", ExitCode.USAGE)
    proposed: JsonObject = {"toolServerAudience": server, "name": tool, "arguments": args or {}}
    if check:
        _decided(session, await session.api.post("/v1/gateway/checks", proposed))
    else:
        key = given(idempotency_key=idempotency_key)
        _called(session, await session.api.post("/v1/gateway/calls", proposed | key))


def _decided(session: Session, document: JsonObject) -> None:
    decision = (*rows(document, "decisions"), {})[0]
    is_allowed = decision.get("decision") == "allow"
    if session.as_json:
        show_json(document)
    elif is_allowed:
        line("allow")
    else:
        raise Stop(f"{decision.get('reason')}: {decision.get('detail')}")
    raise typer.Exit(0 if is_allowed else ExitCode.REFUSED)


def _called(session: Session, document: JsonObject) -> None:
    outcome = document.get("outcome")
    if session.as_json:
        show_json(document)
    else:
        _show(document)
    raise typer.Exit(0 if outcome == "success" else ExitCode.REFUSED)


def _show(document: JsonObject) -> None:
    """The tool's result on standard output, what came of the call on stderr."""
    if document.get("resultAvailable"):
        show_json(document.get("result"))
    parts = [word(document.get("outcome")), word(document.get("callId")), f"{word(document.get('costCents'))} ¢"]
    if document.get("detail"):
        parts.append(word(document.get("detail")))
    warn(" · ".join(parts))
