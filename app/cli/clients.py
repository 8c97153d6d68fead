"""`subgrant clients`: OAuth clients, what they prove themselves by, and their ceilings."""

from typing import Annotated, Final

import typer

from app.cli.client import segments
from app.cli.options import After, Body, InTenant, Limit, Members, given, json_option, options
from app.cli.session import Session, remote
from app.core.strict_json import JsonObject

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


def workload(
    *,
    workload_issuer: Annotated[
        str | None, typer.Option(metavar="ISSUER", help="The trusted issuer whose tokens prove it, by name.")
    ] = None,
    workload_subject: Annotated[
        str | None, typer.Option(metavar="SUB", help="Whom those tokens must name, exactly.")
    ] = None,
) -> JsonObject | None:
    """The workload as the API takes it."""
    return given(issuer=workload_issuer, subject=workload_subject) or None


def members(
    *,
    kind: Annotated[str | None, typer.Option(help="orchestrator, agent, auditor, admin, person or app.")] = None,
    scope: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="What it may do with the API. May be repeated.")
    ] = None,
    auth_method: Annotated[
        str | None, typer.Option(help="client_secret_basic, client_secret_post, private_key_jwt or none.")
    ] = None,
    grant_type: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="What it may present for a token. May be repeated.")
    ] = None,
    jwks: Annotated[Members | None, json_option("Its public keys, for private_key_jwt.")] = None,
    redirect_uri: Annotated[
        list[str] | None, typer.Option(metavar="URI", help="Where an app's answers may go. May be repeated.")
    ] = None,
    dpop_required: Annotated[bool | None, typer.Option(help="Whether its tokens must be bound to a key.")] = None,
    limits: Annotated[Members | None, json_option("The most that it may ever grant.")] = None,
) -> JsonObject:
    """What is said of a client, as the API takes it."""
    return given(
        kind=kind,
        scopes=scope,
        auth_method=auth_method,
        grant_types=grant_type,
        jwks=jwks,
        redirect_uris=redirect_uri,
        dpop_required=dpop_required,
        limits=limits,
    )


@group.command()
@remote
@options(said=members, proven_by=workload)
async def create(
    session: Session,
    *,
    name: ClientName,
    said: JsonObject,
    proven_by: JsonObject | None,
    tenant: InTenant = None,
    body: Body = None,
) -> None:
    """Register a client; prints its secret once, where it has one."""
    wish = given(client_id=name, tenant_id=tenant, workload=proven_by)
    session.show(await session.api.post(PATH, (body or {}) | said | wish))


@group.command()
@remote
@options(said=members, proven_by=workload)
async def change(
    session: Session,
    *,
    name: ClientName,
    said: JsonObject,
    proven_by: JsonObject | None,
    tenant: InTenant = None,
    body: Body = None,
) -> None:
    """Change what is said of a client; the rest stays. In the body, null takes the default."""
    patch = (body or {}) | said | given(workload=proven_by)
    session.show(await session.api.request("PATCH", PATH + segments(name), query={"tenant": tenant}, body=patch))


@group.command("list")
@remote
async def list_(session: Session, *, tenant: InTenant = None, limit: Limit = 100, after: After = None) -> None:
    """List a tenant's clients by id."""
    await session.page(PATH, COLUMNS, {"tenant": tenant, "limit": limit, "after": after})


@group.command("show")
@remote
async def show_(session: Session, *, name: ClientName, tenant: InTenant = None) -> None:
    """Show a client with its limits and what it proves itself by; never its secret."""
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
