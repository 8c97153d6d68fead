"""`subgrant token`: exchange a grant, or a token for one, for something narrower (RFC 8693)."""

import json
from enum import StrEnum
from typing import Annotated, Final

import typer

from app.cli.grants import narrowing
from app.cli.options import TEXT_METAVAR, Body, options, read_text
from app.cli.output import line, show_json, warn, word
from app.cli.session import Session, remote
from app.core.strict_json import JsonObject

group = typer.Typer(no_args_is_help=True)

TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
DELEGATION_GRANT: Final = "urn:subgrant:params:oauth:token-type:delegation-grant"


class Kind(StrEnum):
    """The two kinds of token, by short names."""

    GRANT = "grant"
    ACCESS_TOKEN = "access-token"

    @property
    def uri(self) -> str:
        return {Kind.GRANT: DELEGATION_GRANT, Kind.ACCESS_TOKEN: ACCESS_TOKEN}[self]


@group.callback()
def token_group() -> None:
    """Make `exchange` a command of its own, though it is the only one."""


@group.command()
@remote
@options(fields=narrowing)
async def exchange(
    session: Session,
    *,
    subject_token: Annotated[
        str, typer.Argument(parser=read_text, metavar=TEXT_METAVAR, help="The grant or token to start from.")
    ],
    fields: JsonObject,
    subject_kind: Annotated[Kind, typer.Option(help="What it is.")] = Kind.GRANT,
    wanted: Annotated[Kind, typer.Option("--as", help="What is wanted.")] = Kind.ACCESS_TOKEN,
    resource: Annotated[str | None, typer.Option(metavar="URI", help="The tool server that it is for.")] = None,
    actor_token: Annotated[
        str | None, typer.Option(parser=read_text, metavar=TEXT_METAVAR, help="The token of who will act.")
    ] = None,
    narrow: Body = None,
) -> None:
    """Exchange a grant for a narrower token. Prints the token alone on standard output."""
    details: JsonObject = (narrow or {}) | fields
    parameters = {
        "grant_type": TOKEN_EXCHANGE,
        "subject_token": subject_token,
        "subject_token_type": subject_kind.uri,
        "requested_token_type": wanted.uri,
        "resource": resource,
        "actor_token": actor_token,
        "actor_token_type": actor_token and ACCESS_TOKEN,
        "authorization_details": json.dumps([{"type": "delegation", **details}]) if details else None,
    }
    document = await session.api.token([(name, value) for name, value in parameters.items() if value])
    if session.as_json:
        show_json(document)
        return
    line(str(document.get("access_token")))
    warn(f"expires in {word(document.get('expires_in'))} seconds")
