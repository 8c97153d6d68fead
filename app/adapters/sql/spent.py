"""Tokens that may not be used again. The primary key is what refuses the second use, in whatever worker it comes.

Refuses to know what a token was for.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, select
from sqlalchemy.sql.elements import ColumnElement

from app.adapters.sql.statements import insert_new, slices
from app.adapters.sql.tables import spent_tokens
from app.adapters.sql.unit import Unit
from app.core.grant import TenantId

MAX_FORGOTTEN = 16
"""Expired rows that go with each new one, so that there are never many more than still count."""


class SqlSpentTokens:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    async def spend(
        self, tenant_id: TenantId, issuer: str, jti: str, *, expires_at: datetime, now: datetime, on: str | None = None
    ) -> bool:
        return await self._unit.run(_spend, tenant_id, issuer, jti, expires_at, now, on)

    async def is_spent(self, tenant_id: TenantId, issuer: str, jti: str) -> bool:
        return await self._unit.run(_row, tenant_id, issuer, jti) is not None

    async def spent_on(self, tenant_id: TenantId, issuer: str, jti: str) -> str | None:
        row = await self._unit.run(_row, tenant_id, issuer, jti)
        return None if row is None else row[0]

    async def spent_among(self, tenant_id: TenantId, issuer: str, jtis: Sequence[str]) -> frozenset[str]:
        return await self._unit.run(_among, tenant_id, issuer, tuple(jtis))


def _spend(
    connection: Connection,
    tenant_id: TenantId,
    issuer: str,
    jti: str,
    expires_at: datetime,
    now: datetime,
    on: str | None,
) -> bool:
    _forget(connection, tenant_id, now)
    row = {"tenant_id": tenant_id, "issuer": issuer, "jti": jti, "expires_at": expires_at, "spent_on": on}
    return insert_new(connection, spent_tokens, row)


def _forget(connection: Connection, tenant_id: TenantId, now: datetime) -> None:
    """Remove a few that have expired, skipping what another writer holds, so that nobody waits for it."""
    columns = spent_tokens.c
    expired = (
        select(columns.issuer, columns.jti)
        .where(columns.tenant_id == tenant_id, columns.expires_at < now)
        .order_by(columns.expires_at)
        .limit(MAX_FORGOTTEN)
        .with_for_update(skip_locked=True)
    )
    for row in connection.execute(expired).all():
        connection.execute(delete(spent_tokens).where(*_is(tenant_id, row.issuer, row.jti)))


def _row(connection: Connection, tenant_id: TenantId, issuer: str, jti: str) -> tuple[str | None] | None:
    row = connection.execute(select(spent_tokens.c.spent_on).where(*_is(tenant_id, issuer, jti))).first()
    return None if row is None else (row.spent_on,)


def _among(connection: Connection, tenant_id: TenantId, issuer: str, jtis: tuple[str, ...]) -> frozenset[str]:
    columns = spent_tokens.c
    own = select(columns.jti).where(columns.tenant_id == tenant_id, columns.issuer == issuer)
    found = (connection.execute(own.where(columns.jti.in_(some))).scalars() for some in slices(jtis))
    return frozenset(jti for some in found for jti in some)


def _is(tenant_id: TenantId, issuer: str, jti: str) -> tuple[ColumnElement[bool], ...]:
    columns = spent_tokens.c
    return columns.tenant_id == tenant_id, columns.issuer == issuer, columns.jti == jti
