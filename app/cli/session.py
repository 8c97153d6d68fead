"""A command that talks to a running server: its options for that, and its output in either form."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Annotated

import typer
from rich.console import RenderableType

from app.cli.client import DEFAULT_URL, Access, ApiClient, Query
from app.cli.options import TEXT_METAVAR, AsJson, options, read_text
from app.cli.output import Cell, facts, show, show_json, table, warn
from app.core.strict_json import JsonObject


@dataclass(frozen=True, slots=True)
class Session:
    """The server's API, and how the command's result is wanted."""

    api: ApiClient
    as_json: bool

    @property
    def has_token(self) -> bool:
        """Whether a token was given, rather than the means to fetch one."""
        return self.api.access.token is not None

    def show(self, document: JsonObject, view: Callable[[JsonObject], RenderableType] = facts) -> None:
        """Print a document: as it came, or as the view shows it to people."""
        if self.as_json:
            show_json(document)
        else:
            show(view(document))

    async def disable(self, path: str, query: Query) -> None:
        """Disable a thing, and print what it is now."""
        await self.api.request("DELETE", path, query=query)
        self.show(await self.api.get(path, query))

    async def page(self, path: str, columns: Mapping[str, Cell], query: Query, cursor: str = "--after") -> None:
        """Print one page of a list."""
        document = await self.api.get(path, query)
        self.show(document, lambda page: table(columns, rows(page, "items")))
        if document.get("next") and not self.as_json:
            warn(f"there is more: {cursor} {document['next']}")


def rows(document: JsonObject, member: str) -> list[JsonObject]:
    """The objects of a member that is a list of them."""
    items = document.get(member)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


@dataclass(frozen=True, slots=True)
class Connection:
    """What `connection` collects."""

    access: Access
    as_json: bool


def connection(
    *,
    url: Annotated[str, typer.Option(envvar="SUBGRANT_URL", metavar="URL", help="Where the server is.")] = DEFAULT_URL,
    client_id: Annotated[
        str | None,
        typer.Option(envvar="SUBGRANT_CLIENT_ID", metavar="ID", help="Who is asking."),
    ] = None,
    client_secret: Annotated[
        str | None,
        typer.Option(
            envvar="SUBGRANT_CLIENT_SECRET",
            parser=read_text,
            metavar=TEXT_METAVAR,
            help="Better in the environment or a file: others may see command lines.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="SUBGRANT_TOKEN",
            parser=read_text,
            metavar=TEXT_METAVAR,
            help="A token to use instead of fetching one.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> Connection:
    """Where, as whom, and in which form."""
    return Connection(Access(url=url, client_id=client_id, client_secret=client_secret, token=token), as_json)


def remote(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a command of an asynchronous function: it gets a `session` where the command line has a connection."""

    @wraps(command)
    def run(*, session: Connection, **given: object) -> None:
        asyncio.run(_within(session, command, given))

    return options(session=connection)(run)


async def _within(wanted: Connection, command: Callable[..., Awaitable[None]], given: Mapping[str, object]) -> None:
    async with ApiClient(wanted.access) as api:
        await command(session=Session(api, wanted.as_json), **given)
