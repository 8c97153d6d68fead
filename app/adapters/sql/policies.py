"""The versions of tenants' policies at rest: rows that are written once, numbered in the order they were made.

Refuses to know what a policy says, and which version is active: that is the tenant's record.
"""

from sqlalchemy import Connection, select

from app.adapters.sql.documents import dump, load, load_once
from app.adapters.sql.statements import AnyRow, Values, insert_new, word
from app.adapters.sql.tables import policies, tenants
from app.adapters.sql.unit import Unit
from app.core.grant import TenantId
from app.core.registry import Policy
from app.ports import AlreadyExists


class SqlPolicies:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    async def add(self, policy: Policy) -> None:
        await self._unit.run(_add, policy)

    async def policy(self, tenant_id: TenantId, version: str) -> Policy | None:
        return await self._unit.run(_policy, tenant_id, version)

    async def count(self, tenant_id: TenantId) -> int:
        return await self._unit.run(_count, tenant_id)

    async def page(self, tenant_id: TenantId, *, after: str | None, limit: int) -> tuple[Policy, ...]:
        return await self._unit.run(_page, tenant_id, after, limit)


_COLUMNS = ("tenant_id", "version", "text", "created_at")


def _row_of(policy: Policy) -> Values:
    columns = {column: getattr(policy, column) for column in _COLUMNS}
    return {**columns, "document": dump(policy, without=_COLUMNS)}


def _columns_of(row: AnyRow) -> Values:
    return {column: getattr(row, column) for column in _COLUMNS}


# --- adding -----------------------------------------------------------------------------------------------

# Two workers that add at once take turns, so that each finds the number of the other. The row is locked no
# further than a change of the tenant would lock it: whoever only refers to the tenant does not wait.
_LOCK_TENANT = select(tenants.c.tenant_id).where(tenants.c.tenant_id == word("tenant")).with_for_update(key_share=True)


def _add(connection: Connection, policy: Policy) -> None:
    connection.execute(_LOCK_TENANT, {"tenant": policy.tenant_id})
    seq = _count(connection, policy.tenant_id) + 1
    if not insert_new(connection, policies, {**_row_of(policy), "seq": seq}):
        raise AlreadyExists("version")


# Numbers start at 1 and leave none out, since no row ever goes: the last is how many there are.
_LAST = (
    select(policies.c.seq)
    .where(policies.c.tenant_id == word("tenant"), policies.c.seq > 0)
    .order_by(policies.c.seq.desc())
    .limit(1)
)


def _count(connection: Connection, tenant_id: TenantId) -> int:
    return connection.execute(_LAST, {"tenant": tenant_id}).scalar() or 0


# --- reading ----------------------------------------------------------------------------------------------

_ONE = select(policies).where(policies.c.tenant_id == word("tenant"), policies.c.version == word("version"))
_EARLIER = policies.alias()
_SEQ_OF_VERSION = (
    select(_EARLIER.c.seq)
    .where(_EARLIER.c.tenant_id == word("tenant"), _EARLIER.c.version == word("version"))
    .scalar_subquery()
)


def _policy(connection: Connection, tenant_id: TenantId, version: str) -> Policy | None:
    row = connection.execute(_ONE, {"tenant": tenant_id, "version": version}).first()
    return None if row is None else load(Policy, row.document, **_columns_of(row))


def _page(connection: Connection, tenant_id: TenantId, after: str | None, limit: int) -> tuple[Policy, ...]:
    query = select(policies).where(policies.c.tenant_id == word("tenant")).order_by(policies.c.seq).limit(limit)
    if after is not None:
        query = query.where(policies.c.seq > _SEQ_OF_VERSION)
    rows = connection.execute(query, {"tenant": tenant_id, "version": after})
    return tuple(load_once(Policy, row.document, **_columns_of(row)) for row in rows)
