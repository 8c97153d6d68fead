"""Every command in its place. Those that start or open something load the service, the others only a client."""

import os
import sys
from importlib import import_module
from typing import Annotated, Final

import typer

from app.cli import (
    audit,
    call,
    clients,
    grants,
    issuers,
    keys,
    policy,
    resources,
    servers,
    standing,
    tenants,
    token,
    tools,
)
from app.cli.options import AsJson
from app.cli.output import ExitCode, Stop, console

EPILOG: Final = (
    "Commands that talk to a running server take SUBGRANT_URL, SUBGRANT_CLIENT_ID and SUBGRANT_CLIENT_SECRET, or "
    "SUBGRANT_TOKEN, from the environment. Exit codes: 1 refused, 2 wrong usage or settings, 3 no server."
)

app = typer.Typer(
    name="subgrant",
    help="Delegation grants for agents: minted narrow, exchanged narrower, checked at every tool call.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(tenants.group, name="tenants", help="Who shares the installation.")
app.add_typer(clients.group, name="clients", help="Who may authenticate, and the most that each may grant.")
app.add_typer(issuers.group, name="issuers", help="Whose word is taken for who somebody is.")
app.add_typer(servers.group, name="servers", help="The tool servers behind the gateway.")
app.add_typer(tools.group, name="tools", help="What each tool takes, costs and does.")
app.add_typer(policy.group, name="policy", help="What each call must satisfy beside its grant, and the cases for it.")
app.add_typer(resources.group, name="resources", help="What belongs to whom.")
app.add_typer(grants.group, name="grants", help="Mint, derive, read and close grants.")
app.add_typer(standing.group, name="standing", help="What stands behind the tokens that clients ask for by themselves.")
app.add_typer(token.group, name="token", help="Tokens from grants.")
app.add_typer(audit.group, name="audit", help="What happened, and that nothing of it was changed.")
app.add_typer(keys.group, name="keys", help="The keys that sign.")
app.command("call")(call.call)

DatabaseUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="sqlite:///FILE or postgresql://…; SUBGRANT_DATABASE_URL unless given."),
]


@app.command()
def serve(
    *,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where to listen; 127.0.0.1 unless set.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="8700 unless set; 0 takes a free one and says which.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=64, help="Processes that share the work; 1 unless set.")
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Serve the API and the gateway."""
    from app.cli.serve import serve as run  # noqa: PLC0415 (as this file says)

    run(host=host, port=port, workers=workers, database_url=database_url)


@app.command()
def init(
    *,
    tenant: Annotated[str, typer.Option(metavar="ID", help="The tenant to make.")],
    name: Annotated[str | None, typer.Option(help="What people call it; its id unless given.")] = None,
    client_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Its administrator; the tenant's id and `-admin` unless given.")
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make a tenant and its administrator, on the database itself; prints the secret once."""
    from app.cli.database import init as run  # noqa: PLC0415

    client = client_id or f"{tenant}-admin"
    run(tenant_id=tenant, name=name or tenant, client_id=client, database_url=database_url, as_json=as_json)


@app.command()
def migrate(
    *,
    revision: Annotated[str, typer.Option(help="Which schema to come up to.")] = "head",
    database_url: DatabaseUrl = None,
) -> None:
    """Bring the database's schema up to this version's."""
    from app.cli.database import bring_up  # noqa: PLC0415

    bring_up(revision=revision, database_url=database_url)


@app.command()
def openapi() -> None:
    """The API's description: OpenAPI 3.1 on standard output."""
    from app.cli.openapi import openapi as made  # noqa: PLC0415

    sys.stdout.write(made())


@app.command()
def demo() -> None:
    """The whole story on real processes: a delegated task, a planted instruction, every attempt refused."""
    try:
        story = import_module("app.demo.story")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise Stop("the demo needs the extra of its name: pip install 'subgrant[demo]'", ExitCode.USAGE) from error
    raise typer.Exit(story.run(console()))


def main() -> None:
    """The command: whatever ends it early is one line."""
    try:
        app()
    except Stop as stop:
        print(stop, file=sys.stderr)  # noqa: T201 (printing is its job)
        sys.exit(stop.code)
    except BrokenPipeError:
        # Whoever read our output has read enough; and nothing is left to be flushed at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.REFUSED)
