"""`subgrant standing`: what stands behind the tokens that a client asks for by itself."""

from typing import Final

import typer

from app.cli.client import segments
from app.cli.clients import PATH, ClientName
from app.cli.grants import COLUMNS, narrowing
from app.cli.options import Body, InTenant, options
from app.cli.output import table
from app.cli.session import Session, remote, rows
from app.core.strict_json import JsonObject

group = typer.Typer(no_args_is_help=True)

PART: Final = "standing-grants"


@group.command()
@remote
@options(fields=narrowing)
async def create(
    session: Session, *, name: ClientName, fields: JsonObject, tenant: InTenant = None, body: Body = None
) -> None:
    """Give a client a standing grant for one tool server. It is closed as every grant is."""
    path = PATH + segments(name, PART)
    session.show(await session.api.post(path, (body or {}) | fields, {"tenant": tenant}))


@group.command("list")
@remote
async def list_(session: Session, *, name: ClientName, tenant: InTenant = None) -> None:
    """List a client's standing grants, dead ones too."""
    document = await session.api.get(PATH + segments(name, PART), {"tenant": tenant})
    session.show(document, lambda found: table(COLUMNS, rows(found, "items")))
