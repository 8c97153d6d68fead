"""`subgrant tenants`: for administrators of the platform."""

from typing import Annotated, Final

import typer

from app.cli.client import segments
from app.cli.options import After, Body, Limit, Members, given, json_option
from app.cli.session import Session, remote

group = typer.Typer(no_args_is_help=True)

PATH: Final = "/v1/admin/tenants"
COLUMNS: Final = {
    "tenant": "tenantId",
    "name": "name",
    "grant as bearer": "allowGrantBearer",
    "max depth": "maxDepth",
    "status": "status",
}

TenantId = Annotated[str, typer.Argument(metavar="TENANT")]


@group.command()
@remote
async def create(
    session: Session,
    *,
    tenant_id: TenantId,
    name: Annotated[str | None, typer.Option(help="What people call it; its id unless given.")] = None,
    allow_grant_bearer: Annotated[
        bool | None, typer.Option(help="Whether a grant itself may be presented at the gateway.")
    ] = None,
    limits: Annotated[Members | None, json_option("What its grants may use in each window of time.")] = None,
    max_depth: Annotated[int | None, typer.Option(min=0, help="How deep any delegation may go.")] = None,
    body: Body = None,
) -> None:
    """Register a tenant."""
    members = given(
        tenant_id=tenant_id, name=name, allow_grant_bearer=allow_grant_bearer, limits=limits, max_depth=max_depth
    )
    session.show(await session.api.post(PATH, given(name=tenant_id) | (body or {}) | members))


@group.command("list")
@remote
async def list_(session: Session, *, limit: Limit = 100, after: After = None) -> None:
    """List tenants by id."""
    await session.page(PATH, COLUMNS, {"limit": limit, "after": after})


@group.command("show")
@remote
async def show_(session: Session, *, tenant_id: TenantId) -> None:
    """Show a tenant."""
    session.show(await session.api.get(PATH + segments(tenant_id)))


@group.command()
@remote
async def disable(session: Session, *, tenant_id: TenantId) -> None:
    """Disable a tenant: its clients, tokens and grants count for nothing from the next call on."""
    await session.disable(PATH + segments(tenant_id), {})
