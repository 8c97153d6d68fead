"""What administrators registered. Each row is the members that are looked up and a document with the rest."""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Table, delete, literal, null, select, union, union_all
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.elements import ColumnElement

from app.adapters.sql.columns import position_of
from app.adapters.sql.documents import dump, load
from app.adapters.sql.statements import AnyRow, AnySelect, Values, insert_new, insert_or_replace, word, words
from app.adapters.sql.tables import clients, tenants, tool_servers, tools, trusted_issuers
from app.adapters.sql.unit import Unit
from app.core.grant import ClientId, ServerName, TenantId, ToolName
from app.core.registry import Client, Registration, Tenant, Tool, ToolServer, TrustedIssuer, Workload
from app.ports import AlreadyExists


class SqlRegistry:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    async def add_tenant(self, tenant: Tenant) -> None:
        await self._unit.run(_add_tenant, tenant)

    async def put_tenant(self, tenant: Tenant) -> None:
        await self._unit.run(insert_or_replace, tenants, _tenant_row(tenant))

    async def tenant(self, tenant_id: TenantId) -> Tenant | None:
        return await self._unit.run(_tenant, tenant_id)

    async def tenants(self, *, after: str | None, limit: int) -> tuple[Tenant, ...]:
        return await self._unit.run(_tenants, after, limit)

    async def add_client(self, client: Client) -> None:
        await self._unit.run(_add_client, client)

    async def put_client(self, client: Client) -> None:
        await self._unit.run(insert_or_replace, clients, _client_row(client))

    async def client(self, client_id: ClientId) -> Client | None:
        return await self._unit.run(_client, client_id)

    async def clients(self, tenant_id: TenantId, *, after: str | None, limit: int) -> tuple[Client, ...]:
        return await self._unit.run(_clients, tenant_id, after, limit)

    async def clients_of(self, tenant_id: TenantId, workload: Workload) -> tuple[Client, ...]:
        return await self._unit.run(_clients_of, tenant_id, workload)

    async def add_server(self, server: ToolServer) -> None:
        await self._unit.run(_add_server, server)

    async def put_server(self, server: ToolServer) -> None:
        await self._unit.run(_put_server, server)

    async def server(self, tenant_id: TenantId, name: ServerName) -> ToolServer | None:
        return await self._unit.run(_server, tenant_id, name)

    async def server_for(self, tenant_id: TenantId, audience: str) -> ToolServer | None:
        return await self._unit.run(_server_for, tenant_id, audience)

    async def addresses(self) -> frozenset[str]:
        return await self._unit.run(_addresses)

    async def audiences(self) -> frozenset[str]:
        return await self._unit.run(_audiences)

    async def servers(self, tenant_id: TenantId, *, after: str | None, limit: int) -> tuple[ToolServer, ...]:
        return await self._unit.run(_servers, tenant_id, after, limit)

    async def put_tool(self, tool: Tool) -> None:
        await self._unit.run(insert_or_replace, tools, _tool_row(tool))

    async def remove_tool(self, tenant_id: TenantId, server: ServerName, name: ToolName) -> bool:
        return await self._unit.run(_remove_tool, tenant_id, server, name)

    async def tool(self, tenant_id: TenantId, server: ServerName, name: ToolName) -> Tool | None:
        return await self._unit.run(_tool, tenant_id, server, name)

    async def tools(self, tenant_id: TenantId, server: ServerName) -> tuple[Tool, ...]:
        return await self._unit.run(_tools, tenant_id, server)

    async def put_issuer(self, issuer: TrustedIssuer) -> None:
        await self._unit.run(_put_issuer, issuer)

    async def issuer(self, tenant_id: TenantId, name: str) -> TrustedIssuer | None:
        return await self._unit.run(_issuer, tenant_id, trusted_issuers.c.name, name)

    async def issuer_of(self, tenant_id: TenantId, issuer: str) -> TrustedIssuer | None:
        return await self._unit.run(_issuer, tenant_id, trusted_issuers.c.issuer, issuer)

    async def issuers(self, tenant_id: TenantId, *, after: str | None, limit: int) -> tuple[TrustedIssuer, ...]:
        return await self._unit.run(_issuers, tenant_id, after, limit)

    async def registration(
        self, tenant_id: TenantId, clients: Sequence[ClientId], server: ServerName, tool: ToolName
    ) -> Registration:
        return await self._unit.run(_registration, tenant_id, tuple(clients), server, tool)


# --- tenants ----------------------------------------------------------------------------------------------

_TENANT_COLUMNS = ("tenant_id",)


def _tenant_row(tenant: Tenant) -> Values:
    return {"tenant_id": tenant.tenant_id, "document": dump(tenant, without=_TENANT_COLUMNS)}


def _tenant_of(row: AnyRow) -> Tenant:
    return load(Tenant, row.document, tenant_id=row.tenant_id)


def _add_tenant(connection: Connection, tenant: Tenant) -> None:
    if not insert_new(connection, tenants, _tenant_row(tenant)):
        raise AlreadyExists("tenantId")


def _tenant(connection: Connection, tenant_id: TenantId) -> Tenant | None:
    row = connection.execute(select(tenants).where(tenants.c.tenant_id == tenant_id)).first()
    return None if row is None else _tenant_of(row)


def _tenants(connection: Connection, after: str | None, limit: int) -> tuple[Tenant, ...]:
    query = select(tenants).order_by(tenants.c.tenant_id).limit(limit)
    if after is not None:
        query = query.where(tenants.c.tenant_id > after)
    return tuple(_tenant_of(row) for row in connection.execute(query))


# --- clients ----------------------------------------------------------------------------------------------

_CLIENT_COLUMNS = ("client_id", "tenant_id")


def _client_row(client: Client) -> Values:
    document = dump(client, without=_CLIENT_COLUMNS)
    return {"client_id": client.client_id, "tenant_id": client.tenant_id, "document": document}


def _client_of(row: AnyRow) -> Client:
    return load(Client, row.document, client_id=row.client_id, tenant_id=row.tenant_id)


def _add_client(connection: Connection, client: Client) -> None:
    if not insert_new(connection, clients, _client_row(client)):
        raise AlreadyExists("clientId")


def _client(connection: Connection, client_id: ClientId) -> Client | None:
    row = connection.execute(select(clients).where(clients.c.client_id == client_id)).first()
    return None if row is None else _client_of(row)


def _clients(connection: Connection, tenant_id: TenantId, after: str | None, limit: int) -> tuple[Client, ...]:
    query = select(clients).where(clients.c.tenant_id == tenant_id).order_by(clients.c.client_id).limit(limit)
    if after is not None:
        query = query.where(clients.c.client_id > after)
    return tuple(_client_of(row) for row in connection.execute(query))


def _clients_of(connection: Connection, tenant_id: TenantId, workload: Workload) -> tuple[Client, ...]:
    # As documents spell it: few rows have that anywhere, and of those a client's own member decides.
    spelled = f'"workload":{dump(workload)}'
    query = select(clients).where(clients.c.tenant_id == tenant_id, position_of(clients.c.document, spelled) > 0)
    found = map(_client_of, connection.execute(query.order_by(clients.c.client_id)))
    return tuple(client for client in found if client.workload == workload)


# --- tool servers -----------------------------------------------------------------------------------------

_SERVER_COLUMNS = ("tenant_id", "name", "audience", "endpoint", "upstream_audience")


def _server_row(server: ToolServer) -> Values:
    columns = {column: getattr(server, column) for column in _SERVER_COLUMNS}
    return {**columns, "document": dump(server, without=_SERVER_COLUMNS)}


def _server_of(row: AnyRow) -> ToolServer:
    columns = {column: getattr(row, column) for column in _SERVER_COLUMNS}
    return load(ToolServer, row.document, **columns)


def _add_server(connection: Connection, server: ToolServer) -> None:
    if not insert_new(connection, tool_servers, _server_row(server)):
        is_named = _server(connection, server.tenant_id, server.name) is not None
        raise AlreadyExists("name" if is_named else "audience")


def _put_server(connection: Connection, server: ToolServer) -> None:
    _refuse_taken_audience(connection, server)
    try:
        with connection.begin_nested():
            insert_or_replace(connection, tool_servers, _server_row(server))
    except IntegrityError:
        # Perhaps somebody else took it a moment ago: what they committed is in sight now.
        _refuse_taken_audience(connection, server)
        raise


def _refuse_taken_audience(connection: Connection, server: ToolServer) -> None:
    other = _server_for(connection, server.tenant_id, server.audience)
    if other is not None and other.name != server.name:
        raise AlreadyExists("audience")


def _server(connection: Connection, tenant_id: TenantId, name: ServerName) -> ToolServer | None:
    own = (tool_servers.c.tenant_id == tenant_id, tool_servers.c.name == name)
    row = connection.execute(select(tool_servers).where(*own)).first()
    return None if row is None else _server_of(row)


def _server_for(connection: Connection, tenant_id: TenantId, audience: str) -> ToolServer | None:
    own = (tool_servers.c.tenant_id == tenant_id, tool_servers.c.audience == audience)
    row = connection.execute(select(tool_servers).where(*own)).first()
    return None if row is None else _server_of(row)


def _addresses(connection: Connection) -> frozenset[str]:
    query = union(select(tool_servers.c.endpoint), select(tool_servers.c.upstream_audience))
    return frozenset(connection.execute(query).scalars())


def _audiences(connection: Connection) -> frozenset[str]:
    return frozenset(connection.execute(select(tool_servers.c.audience)).scalars())


def _servers(connection: Connection, tenant_id: TenantId, after: str | None, limit: int) -> tuple[ToolServer, ...]:
    query = select(tool_servers).where(tool_servers.c.tenant_id == tenant_id)
    if after is not None:
        query = query.where(tool_servers.c.name > after)
    rows = connection.execute(query.order_by(tool_servers.c.name).limit(limit))
    return tuple(_server_of(row) for row in rows)


# --- tools ------------------------------------------------------------------------------------------------

_TOOL_COLUMNS = ("tenant_id", "server", "name")


def _tool_row(tool: Tool) -> Values:
    columns = {column: getattr(tool, column) for column in _TOOL_COLUMNS}
    return {**columns, "document": dump(tool, without=_TOOL_COLUMNS)}


def _tool_of(row: AnyRow) -> Tool:
    return load(Tool, row.document, tenant_id=row.tenant_id, server=row.server, name=row.name)


def _remove_tool(connection: Connection, tenant_id: TenantId, server: ServerName, name: ToolName) -> bool:
    own = (tools.c.tenant_id == tenant_id, tools.c.server == server, tools.c.name == name)
    return connection.execute(delete(tools).where(*own)).rowcount == 1


def _tool(connection: Connection, tenant_id: TenantId, server: ServerName, name: ToolName) -> Tool | None:
    own = (tools.c.tenant_id == tenant_id, tools.c.server == server, tools.c.name == name)
    row = connection.execute(select(tools).where(*own)).first()
    return None if row is None else _tool_of(row)


def _tools(connection: Connection, tenant_id: TenantId, server: ServerName) -> tuple[Tool, ...]:
    own = (tools.c.tenant_id == tenant_id, tools.c.server == server)
    rows = connection.execute(select(tools).where(*own).order_by(tools.c.name))
    return tuple(_tool_of(row) for row in rows)


# --- all that bears on one call ---------------------------------------------------------------------------


def _registration(
    connection: Connection,
    tenant_id: TenantId,
    client_ids: tuple[ClientId, ...],
    server: ServerName,
    tool: ToolName,
) -> Registration:
    values = {"tenant": tenant_id, "server": server, "tool": tool, "clients": client_ids}
    found: dict[str, dict[Any, Any]] = {kind: {} for kind in _READERS}
    for row in connection.execute(_REGISTRATION, values):
        found[row.kind][row.name] = _READERS[row.kind](row)
    return Registration(
        tenant=found["tenant"].get(tenant_id),
        clients=found["client"],
        server=found["server"].get(server),
        tool=found["tool"].get(tool),
    )


_READERS: dict[str, Callable[[Any], Any]] = {
    "server": _server_of,
    "tool": _tool_of,
    "tenant": _tenant_of,
    "client": lambda row: load(Client, row.document, client_id=row.name, tenant_id=row.tenant_id),
}


def _one_kind(kind: str, table: Table, name: str, *where: ColumnElement[bool]) -> AnySelect:
    """The rows of one table in the columns of all: what a table lacks is NULL."""
    others = ("tenant_id", "server", "audience", "endpoint", "upstream_audience", "document")
    columns = (table.c[other] if other in table.c else null().label(other) for other in others)
    return select(literal(kind).label("kind"), table.c[name].label("name"), *columns).where(*where)


# One round trip. The servers come first, since the types of a union are those of its first part.
_REGISTRATION = union_all(
    _one_kind(
        "server",
        tool_servers,
        "name",
        tool_servers.c.tenant_id == word("tenant"),
        tool_servers.c.name == word("server"),
    ),
    _one_kind(
        "tool",
        tools,
        "name",
        tools.c.tenant_id == word("tenant"),
        tools.c.server == word("server"),
        tools.c.name == word("tool"),
    ),
    _one_kind("tenant", tenants, "tenant_id", tenants.c.tenant_id == word("tenant")),
    _one_kind("client", clients, "client_id", clients.c.client_id.in_(words("clients"))),
)


# --- trusted issuers --------------------------------------------------------------------------------------

_ISSUER_COLUMNS = ("tenant_id", "name", "issuer")


def _issuer_of(row: AnyRow) -> TrustedIssuer:
    columns = {column: getattr(row, column) for column in _ISSUER_COLUMNS}
    return load(TrustedIssuer, row.document, **columns)


def _put_issuer(connection: Connection, issuer: TrustedIssuer) -> None:
    columns = {column: getattr(issuer, column) for column in _ISSUER_COLUMNS}
    row = {**columns, "document": dump(issuer, without=_ISSUER_COLUMNS)}
    try:
        with connection.begin_nested():
            insert_or_replace(connection, trusted_issuers, row)
    except IntegrityError:
        other = _issuer(connection, issuer.tenant_id, trusted_issuers.c.issuer, issuer.issuer)
        if other is None:
            raise
        raise AlreadyExists("issuer") from None


def _issuer(connection: Connection, tenant_id: TenantId, column: Column[str], value: str) -> TrustedIssuer | None:
    own = (trusted_issuers.c.tenant_id == tenant_id, column == value)
    row = connection.execute(select(trusted_issuers).where(*own)).first()
    return None if row is None else _issuer_of(row)


def _issuers(connection: Connection, tenant_id: TenantId, after: str | None, limit: int) -> tuple[TrustedIssuer, ...]:
    query = select(trusted_issuers).where(trusted_issuers.c.tenant_id == tenant_id).order_by(trusted_issuers.c.name)
    if after is not None:
        query = query.where(trusted_issuers.c.name > after)
    return tuple(_issuer_of(row) for row in connection.execute(query.limit(limit)))
