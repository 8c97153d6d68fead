"""Commands on the database itself, for whoever runs the service: no server is asked, and none need run."""

import asyncio
from typing import Final
from urllib.parse import urlsplit

from pydantic import ValidationError

from app.adapters.sql import MigrationState, migrate
from app.api.admin.documents import Line
from app.api.wire import Document, Identifier
from app.cli.composition import composition
from app.cli.configuration import configure, one_line
from app.cli.output import ExitCode, Stop, line, show_json
from app.core.grant import ClientId, TenantId
from app.core.strict_json import JsonObject
from app.settings import Settings
from app.usecases.bootstrap import init_tenant


class TenantToMake(Document):
    """What the API would take as a tenant's id and name, and as a client's id."""

    tenant_id: Identifier
    name: Line
    client_id: Identifier


FLAGS: Final = {"tenant_id": "--tenant", "name": "--name", "client_id": "--client-id"}


def init(*, tenant_id: str, name: str, client_id: str, database_url: str | None, as_json: bool) -> None:
    """Make a tenant and its administrator, and whatever a first start makes."""
    wanted = _checked(tenant_id, name, client_id)
    settings = configure(database_url=database_url)
    made: JsonObject = {}
    try:
        with one_line():
            asyncio.run(_init(settings, wanted, made))
    finally:
        # Also where the tenant could not be made: what a first start made up is never shown again.
        if made:
            _show_made({"database": place_of(settings), **made}, as_json=as_json)


def _checked(tenant_id: str, name: str, client_id: str) -> TenantToMake:
    try:
        return TenantToMake(tenant_id=tenant_id, name=name, client_id=client_id)
    except ValidationError as error:
        fault = error.errors()[0]
        raise Stop(f"{FLAGS[str(fault['loc'][0])]}: {fault['msg']}", ExitCode.USAGE) from error


async def _init(settings: Settings, wanted: TenantToMake, made: JsonObject) -> None:
    root = composition()
    first = await root.prepare(settings)
    if first is not None:
        made |= {"platformClientId": first.client_id, "platformClientSecret": first.secret}
    store = root.open_store(settings)
    try:
        secret = await init_tenant(
            store,
            root.open_vault(settings),
            root.now,
            settings.rules,
            tenant_id=TenantId(wanted.tenant_id),
            name=wanted.name,
            client_id=ClientId(wanted.client_id),
        )
    finally:
        await store.aclose()
    made |= {"tenantId": wanted.tenant_id, "clientId": wanted.client_id, "clientSecret": secret}


def _show_made(made: JsonObject, *, as_json: bool) -> None:
    if as_json:
        show_json(made)
        return
    for member, value in made.items():
        line(f"{member:22}{value}")
    line("Secrets are not shown again.")


def place_of(settings: Settings) -> str:
    """Which database it is: a file's whole path, or a server's host and name without who signs in there."""
    file = settings.sqlite_file
    if file is not None:
        return str(file.resolve())
    parts = urlsplit(settings.database_url)
    return f"{parts.scheme.partition('+')[0]}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def bring_up(*, revision: str, database_url: str | None) -> None:
    """Migrate, and say where the database stands."""
    settings = configure(database_url=database_url)
    with one_line():
        state = asyncio.run(_migrate(settings, revision))
    line(f"the database is at {state.current}" + ("" if state.is_current else f", the newest is {state.head}"))


async def _migrate(settings: Settings, revision: str) -> MigrationState:
    return await migrate(settings.database_url, revision)
