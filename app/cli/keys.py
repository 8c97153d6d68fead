"""`subgrant keys`: the service's signing keys, for administrators of the platform."""

from typing import Annotated, Final

import typer
from rich.table import Table

from app.cli.client import segments
from app.cli.options import After, Limit, given
from app.cli.output import facts, warn
from app.cli.session import Session, remote
from app.core.strict_json import JsonObject

group = typer.Typer(no_args_is_help=True)

PATH: Final = "/v1/admin/keys"
COLUMNS: Final = {
    "kid": "kid",
    "alg": "alg",
    "created": "createdAt",
    "signs from": "signsFrom",
    "status": "status",
    "retired": "retiredAt",
}

Kid = Annotated[str, typer.Argument(metavar="KID")]


@group.command("list")
@remote
async def list_(session: Session, *, limit: Limit = 100, after: After = None) -> None:
    """List keys in the order in which they were made, retired ones too."""
    await session.page(PATH, COLUMNS, {"limit": limit, "after": after})


@group.command()
@remote
async def rotate(
    session: Session,
    *,
    lead_seconds: Annotated[
        int | None, typer.Option(min=0, help="How long it is published before it signs; 60 unless set otherwise.")
    ] = None,
) -> None:
    """Make a new key, which takes over once whoever verifies tokens had time to fetch it. Ends nothing."""
    session.show(await session.api.post(f"{PATH}/rotate", given(lead_seconds=lead_seconds)))


@group.command()
@remote
async def retire(
    session: Session,
    *,
    kid: Kid,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would end with it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Without asking.")] = False,
) -> None:
    """Retire a key: what it signed, live grants among it, is worth nothing once this returns."""
    path = PATH + segments(kid, "retire")
    if dry_run or not yes:
        would_end = await session.api.post(path, {"dryRun": True})
        if dry_run:
            session.show(would_end, _view)
            return
        warn(f"{would_end.get('liveGrants')} live grants rest on it, and end with it")
        typer.confirm("Retire it?", abort=True, err=True)
    session.show(await session.api.post(path, {}), _view)


def _view(document: JsonObject) -> Table:
    key = document.get("key")
    return facts((key if isinstance(key, dict) else {}) | {"liveGrants": document.get("liveGrants")})
