"""Signing keys at rest. The private half is sealed before it comes here; nothing here could open it."""

import json

from sqlalchemy import Connection, select

from app.adapters.sql.statements import AnyRow, Values, insert_new
from app.adapters.sql.tables import signing_keys
from app.adapters.sql.unit import Unit
from app.ports import AlreadyExists, SigningKey


class SqlKeys:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    async def add(self, key: SigningKey) -> None:
        await self._unit.run(_add, key)

    async def all(self) -> tuple[SigningKey, ...]:
        return await self._unit.run(_all)


def _add(connection: Connection, key: SigningKey) -> None:
    if not insert_new(connection, signing_keys, _row_of(key)):
        raise AlreadyExists("kid")


def _all(connection: Connection) -> tuple[SigningKey, ...]:
    return tuple(_key_of(row) for row in connection.execute(_IN_USE))


_IN_USE = (
    select(signing_keys)
    .where(signing_keys.c.retired_at.is_(None))
    .order_by(signing_keys.c.created_at, signing_keys.c.kid)
)


def _row_of(key: SigningKey) -> Values:
    return {
        "kid": key.kid,
        "alg": key.alg,
        "public_jwk": json.dumps(key.public_jwk, sort_keys=True),
        "sealed_private": key.sealed_private,
        "created_at": key.created_at,
        "retired_at": key.retired_at,
    }


def _key_of(row: AnyRow) -> SigningKey:
    return SigningKey(
        kid=row.kid,
        alg=row.alg,
        public_jwk=json.loads(row.public_jwk),
        sealed_private=row.sealed_private,
        created_at=row.created_at,
        retired_at=row.retired_at,
    )
