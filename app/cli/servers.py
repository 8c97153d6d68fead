"""`subgrant servers`: the tool servers behind the gateway, and what it presents to them."""

from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from app.cli.client import segments
from app.cli.definitions import changes
from app.cli.options import TEXT_METAVAR, After, Body, InTenant, Limit, given, options, read_text
from app.cli.output import facts, word
from app.cli.session import Session, remote, rows
from app.core.strict_json import JsonObject

group = typer.Typer(no_args_is_help=True)

PATH: Final = "/v1/admin/tool-servers"
COLUMNS: Final = {
    "server": "name",
    "audience": "audience",
    "transport": "transport",
    "endpoint": "endpoint",
    "status": "status",
}

ServerName = Annotated[str, typer.Argument(metavar="SERVER")]


def credential(
    *,
    credential: Annotated[
        str | None, typer.Option(metavar="TYPE", help="What the gateway presents: none, header or jwt.")
    ] = None,
    credential_header: Annotated[str | None, typer.Option(metavar="NAME", help="The header field.")] = None,
    credential_value: Annotated[
        str | None, typer.Option(parser=read_text, metavar=TEXT_METAVAR, help="Its value; better from a file.")
    ] = None,
) -> JsonObject | None:
    """The credential as the API takes it."""
    return given(type=credential, header=credential_header, value=credential_value) or None


def resolver(
    *,
    resolver_path: Annotated[
        str | None, typer.Option(metavar="PATH", help="Where it says whose things are, on the endpoint's origin.")
    ] = None,
    resolver_type: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="Of which things. May be repeated.")
    ] = None,
    resolver_cache_seconds: Annotated[float | None, typer.Option(help="How long an answer may be used again.")] = None,
) -> JsonObject | None:
    """The resolver as the API takes it."""
    return given(path=resolver_path, types=resolver_type, cache_seconds=resolver_cache_seconds) or None


@group.command()
@remote
@options(presented=credential, resolving=resolver)
async def create(
    session: Session,
    *,
    name: ServerName,
    presented: JsonObject | None,
    resolving: JsonObject | None,
    transport: Annotated[str | None, typer.Option(help="http or mcp.")] = None,
    endpoint: Annotated[str | None, typer.Option(metavar="URL", help="Where the gateway forwards to.")] = None,
    audience: Annotated[str | None, typer.Option(metavar="URI", help="What tokens are for.")] = None,
    upstream_audience: Annotated[str | None, typer.Option(metavar="URI", help="Whom the gateway's JWT is for.")] = None,
    timeout_seconds: Annotated[float | None, typer.Option(help="How long a call may take.")] = None,
    max_response_bytes: Annotated[int | None, typer.Option(help="How much an answer may hold.")] = None,
    definition_max_age_seconds: Annotated[
        float | None, typer.Option(help="How long its word that a tool is as it was pinned may be used again.")
    ] = None,
    tenant: InTenant = None,
    body: Body = None,
) -> None:
    """Register a tool server."""
    members = given(
        name=name,
        tenant_id=tenant,
        transport=transport,
        endpoint=endpoint,
        audience=audience,
        upstream_audience=upstream_audience,
        credential=presented,
        resolver=resolving,
        timeout_seconds=timeout_seconds,
        max_response_bytes=max_response_bytes,
        definition_max_age_seconds=definition_max_age_seconds,
    )
    session.show(await session.api.post(PATH, (body or {}) | members))


@group.command("list")
@remote
async def list_(session: Session, *, tenant: InTenant = None, limit: Limit = 100, after: After = None) -> None:
    """List a tenant's tool servers by name."""
    await session.page(PATH, COLUMNS, {"tenant": tenant, "limit": limit, "after": after})


@group.command("show")
@remote
async def show_(session: Session, *, name: ServerName, tenant: InTenant = None) -> None:
    """Show a tool server; never its credential's value."""
    session.show(await session.api.get(PATH + segments(name), {"tenant": tenant}))


@group.command()
@remote
async def disable(session: Session, *, name: ServerName, tenant: InTenant = None) -> None:
    """Disable a tool server: no call reaches it from the next one on."""
    await session.disable(PATH + segments(name), {"tenant": tenant})


@group.command()
@remote
async def discover(session: Session, *, name: ServerName, tenant: InTenant = None) -> None:
    """Read an MCP server's tools, pin those that are new, and see which have changed."""
    path = PATH + segments(name, "discover")
    session.show(await session.api.request("POST", path, query={"tenant": tenant}), discovered)


def discovered(discovery: JsonObject) -> RenderableType:
    """What an MCP server offers: names, and how each changed tool differs from what is pinned."""
    names = {name: value for name, value in discovery.items() if name != "pending"}
    each = ((Text(f"\n{word(tool.get('name'))}"), changes(tool)) for tool in rows(discovery, "pending"))
    return Group(facts(names), *(part for parts in each for part in parts))
