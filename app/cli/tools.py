"""`subgrant tools`: the tools of a tool server, by an administrator's word."""

from collections.abc import Mapping
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType

from app.cli import servers
from app.cli.client import segments
from app.cli.definitions import changes
from app.cli.options import After, Body, InTenant, Limit, Members, given, json_option, options
from app.cli.output import Cell, facts, line
from app.cli.servers import ServerName
from app.cli.session import Session, remote
from app.core.strict_json import JsonObject

group = typer.Typer(no_args_is_help=True)

COLUMNS: Final[Mapping[str, Cell]] = {
    "tool": "name",
    "effect": "effect",
    "trust": "trust",
    "cost ¢": "costCents",
    "at most ¢": "maxCostCents",
    "source": "source",
    "changed": lambda tool: "pending" in tool,
    "description": "description",
}

ToolName = Annotated[str, typer.Argument(metavar="TOOL")]


def tool_path(server: str, *tool: str) -> str:
    """Where a server's tools are, or one of them."""
    return servers.PATH + segments(server, "tools", *tool)


def definition(
    *,
    description: Annotated[str | None, typer.Option(help="What it does, for people.")] = None,
    input_schema: Annotated[Members | None, json_option("What it takes, a JSON Schema.")] = None,
    output_schema: Annotated[Members | None, json_option("What it answers.")] = None,
    cost_cents: Annotated[float | None, typer.Option(metavar="CENTS", help="What a call costs.")] = None,
    max_cost_cents: Annotated[float | None, typer.Option(metavar="CENTS", help="What a call holds at most.")] = None,
    cost_from: Annotated[
        str | None, typer.Option(metavar="POINTER", help="Where in its result the tool reports the cents.")
    ] = None,
    effect: Annotated[str | None, typer.Option(help="read, write, destructive or external.")] = None,
    trust: Annotated[str | None, typer.Option(help="trusted, internal or external_untrusted.")] = None,
    sink: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="An argument with consequences. May be repeated.")
    ] = None,
    idempotent: Annotated[bool | None, typer.Option(help="Whether a repeat changes nothing.")] = None,
    loggable: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="An argument whose value may be recorded. May be repeated.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="For the transport http.")] = None,
    path: Annotated[str | None, typer.Option(help="For the transport http: `/cases/{id}`.")] = None,
) -> JsonObject:
    """What a tool is, as far as options say it."""
    return given(
        description=description,
        input_schema=input_schema,
        output_schema=output_schema,
        cost_cents=cost_cents,
        max_cost_cents=max_cost_cents,
        cost_from=cost_from,
        effect=effect,
        trust=trust,
        sinks=sink,
        idempotent=idempotent,
        loggable_arguments=loggable,
        http=given(method=method, path=path) or None,
    )


@group.command()
@remote
@options(members=definition)
async def put(
    session: Session,
    *,
    server: ServerName,
    tool: ToolName,
    members: JsonObject,
    tenant: InTenant = None,
    body: Body = None,
) -> None:
    """Register a tool, or replace it."""
    path, wanted = tool_path(server, tool), (body or {}) | members
    session.show(await session.api.request("PUT", path, body=wanted, query={"tenant": tenant}))


@group.command("list")
@remote
async def list_(
    session: Session, *, server: ServerName, tenant: InTenant = None, limit: Limit = 100, after: After = None
) -> None:
    """List a tool server's tools by name."""
    await session.page(tool_path(server), COLUMNS, {"tenant": tenant, "limit": limit, "after": after})


@group.command("show")
@remote
async def show_(session: Session, *, server: ServerName, tool: ToolName, tenant: InTenant = None) -> None:
    """Show a tool, and how it changed where it did."""
    session.show(await session.api.get(tool_path(server, tool), {"tenant": tenant}), shown)


@group.command()
@remote
async def accept(
    session: Session,
    *,
    server: ServerName,
    tool: ToolName,
    digest: Annotated[str, typer.Option(metavar="HEX", help="The pending definition's, as `tools show` tells it.")],
    tenant: InTenant = None,
) -> None:
    """Accept a tool's changed definition: the one that you looked at."""
    path = tool_path(server, tool) + "/accept"
    session.show(await session.api.post(path, given(definition_digest=digest), {"tenant": tenant}), shown)


def shown(tool: JsonObject) -> RenderableType:
    """A tool, and how what is pending differs from what is pinned."""
    members = facts({name: value for name, value in tool.items() if name != "pending"})
    return Group(members, changes(tool)) if "pending" in tool else members


@group.command()
@remote
async def remove(session: Session, *, server: ServerName, tool: ToolName, tenant: InTenant = None) -> None:
    """Remove a tool: grants that name it permit nothing any more."""
    answer = await session.api.request("DELETE", tool_path(server, tool), query={"tenant": tenant})
    session.show(answer) if session.as_json else line(f"{tool} of {server} is removed")
