"""`subgrant issuers`: whose word a tenant takes for who somebody is."""

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from app.cli.client import segments
from app.cli.options import After, Body, InTenant, Limit, Members, given, json_option, options
from app.cli.output import Cell
from app.cli.session import Session, remote
from app.core.strict_json import JsonObject

group = typer.Typer(no_args_is_help=True)

PATH: Final = "/v1/admin/issuers"
COLUMNS: Final[Mapping[str, Cell]] = {
    "name": "name",
    "issuer": "issuer",
    "uses": "uses",
    "algorithms": "algorithms",
    "keys": lambda row: row.get("jwksUri") or "inline",
    "status": "status",
}

IssuerName = Annotated[str, typer.Argument(metavar="NAME")]


def members(
    *,
    use: Annotated[
        list[str] | None, typer.Option(help="What it is trusted for: client, subject or grant. May be repeated.")
    ] = None,
    algorithm: Annotated[
        list[str] | None, typer.Option(metavar="ALG", help="By what it may sign. May be repeated.")
    ] = None,
    jwks_uri: Annotated[str | None, typer.Option(metavar="URL", help="Where it publishes its keys.")] = None,
    jwks: Annotated[Members | None, json_option("Its public keys, instead of a URL.")] = None,
    audience: Annotated[
        str | None,
        typer.Option(metavar="AUD", help="The only audience of its tokens; this server unless set."),
    ] = None,
    max_lifetime_seconds: Annotated[int | None, typer.Option(help="How long its tokens may live.")] = None,
    single_use: Annotated[
        bool | None, typer.Option(help="Whether each of its tokens proves a client once only.")
    ] = None,
) -> JsonObject:
    """What is said of an issuer, as the API takes it."""
    return given(
        uses=use,
        algorithms=algorithm,
        jwks_uri=jwks_uri,
        jwks=jwks,
        audience=audience,
        max_lifetime_seconds=max_lifetime_seconds,
        single_use=single_use,
    )


@group.command()
@remote
@options(said=members)
async def create(
    session: Session,
    *,
    name: IssuerName,
    said: JsonObject,
    issuer: Annotated[str | None, typer.Option(metavar="ISS", help="The exact `iss` of its tokens.")] = None,
    tenant: InTenant = None,
    body: Body = None,
) -> None:
    """Trust an issuer."""
    wish = given(name=name, tenant_id=tenant, issuer=issuer)
    session.show(await session.api.post(PATH, (body or {}) | said | wish))


@group.command()
@remote
@options(said=members)
async def change(
    session: Session, *, name: IssuerName, said: JsonObject, tenant: InTenant = None, body: Body = None
) -> None:
    """Change what is said of an issuer; the rest stays. In the body, null takes the default."""
    path, patch = PATH + segments(name), (body or {}) | said
    session.show(await session.api.request("PATCH", path, query={"tenant": tenant}, body=patch))


@group.command("list")
@remote
async def list_(session: Session, *, tenant: InTenant = None, limit: Limit = 100, after: After = None) -> None:
    """List a tenant's trusted issuers by name."""
    await session.page(PATH, COLUMNS, {"tenant": tenant, "limit": limit, "after": after})


@group.command("show")
@remote
async def show_(session: Session, *, name: IssuerName, tenant: InTenant = None) -> None:
    """Show a trusted issuer."""
    session.show(await session.api.get(PATH + segments(name), {"tenant": tenant}))


@group.command()
@remote
async def disable(session: Session, *, name: IssuerName, tenant: InTenant = None) -> None:
    """No longer trust an issuer: nothing that it signs proves anything from the next token on."""
    await session.disable(PATH + segments(name), {"tenant": tenant})
