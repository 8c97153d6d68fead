"""`subgrant clients`: OAuth clients and their ceilings."""

from typing import Annotated, Final

import typer

from app.cli.client import segments
from app.cli.options import After, Body, InTenant, Limit, Members, given, json_option
from app.cli.session import Session, remote

group = typer.Typer(no_args_is_help=True)

PATH: Final = "/v1/admin/clients"
COLUMNS: Final = {
    "client": "clientId",
    "tenant": "tenantId",
    "kind": "kind",
    "scopes": "scopes",
    "method": "authMethod",
    "status": "status",
}

ClientName = Annotated[str, typer.Argument(metavar="CLIENT")]


@group.command()
@remote
async def create(
    session: Session,
    *,
    name: ClientName,
    kind: Annotated[str | None, typer.Option(help="orchestrator, agent, auditor or admin.")] = None,
    scope: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="What it may do with the API. May be repeated.")
    ] = None,
    auth_method: Annotated[str | None, typer.Option(help="client_secret_basic or client_secret_post.")] = None,
    limits: Annotated[Members | None, json_option("The most that it may ever grant.")] = None,
    tenant: InTenant = None,
    body: Body = None,
) -> None:
    """Register a client; prints its secret once."""
    members = given(client_id=name, tenant_id=tenant, kind=kind, scopes=scope, auth_method=auth_method, limits=limits)
    session.show(await session.api.post(PATH, (body or {}) | members))


@group.command("list")
@remote
async def list_(session: Session, *, tenant: InTenant = None, limit: Limit = 100, after: After = None) -> None:
    """List a tenant's clients by id."""
    await session.page(PATH, COLUMNS, {"tenant": tenant, "limit": limit, "after": after})


@group.command("show")
@remote
async def show_(session: Session, *, name: ClientName, tenant: InTenant = None) -> None:
    """Show a client with its limits."""
    session.show(await session.api.get(PATH + segments(name), {"tenant": tenant}))


@group.command()
@remote
async def disable(session: Session, *, name: ClientName, tenant: InTenant = None) -> None:
    """Disable a client: its tokens and the grants that rest on it count for nothing from the next call on."""
    await session.disable(PATH + segments(name), {"tenant": tenant})


@group.command()
@remote
async def rotate_secret(session: Session, *, name: ClientName, tenant: InTenant = None) -> None:
    """Give a client a new secret; the old one is worth nothing from now on."""
    session.show(await session.api.request("POST", PATH + segments(name, "secret"), query={"tenant": tenant}))
