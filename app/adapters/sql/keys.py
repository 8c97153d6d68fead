"""Signing keys at rest. The private half is sealed before it comes here; nothing here could open it."""

import json
from datetime import datetime

from sqlalchemy import Connection, literal, select, tuple_, update

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

    async def key(self, kid: str) -> SigningKey | None:
        return await self._unit.run(_key, kid)

    async def page(self, *, after: str | None, limit: int) -> tuple[SigningKey, ...]:
        return await self._unit.run(_page, after, limit)

    async def retire(self, kid: str, at: datetime) -> None:
        await self._unit.run(_retire, kid, at)


def _add(connection: Connection, key: SigningKey) -> None:
    if not insert_new(connection, signing_keys, _row_of(key)):
        raise AlreadyExists("kid")


def _all(connection: Connection) -> tuple[SigningKey, ...]:
    return tuple(_key_of(row) for row in connection.execute(_IN_USE))


def _key(connection: Connection, kid: str) -> SigningKey | None:
    row = connection.execute(select(signing_keys).where(signing_keys.c.kid == kid)).first()
    return None if row is None else _key_of(row)


def _page(connection: Connection, after: str | None, limit: int) -> tuple[SigningKey, ...]:
    query = select(signing_keys).order_by(*_AS_MADE).limit(limit)
    if after is not None:
        cursor = _key(connection, after)
        if cursor is None:
            return ()
        query = query.where(tuple_(*_AS_MADE) > tuple_(*map(literal, (cursor.created_at, cursor.kid), _TYPES)))
    return tuple(_key_of(row) for row in connection.execute(query))


def _retire(connection: Connection, kid: str, at: datetime) -> None:
    in_use = (signing_keys.c.kid == kid, signing_keys.c.retired_at.is_(None))
    connection.execute(update(signing_keys).where(*in_use).values(retired_at=at))


_AS_MADE = (signing_keys.c.created_at, signing_keys.c.kid)
_TYPES = tuple(column.type for column in _AS_MADE)
_IN_USE = select(signing_keys).where(signing_keys.c.retired_at.is_(None)).order_by(*_AS_MADE)


def _row_of(key: SigningKey) -> Values:
    return {
        "kid": key.kid,
        "alg": key.alg,
        "public_jwk": json.dumps(key.public_jwk, sort_keys=True),
        "sealed_private": key.sealed_private,
        "created_at": key.created_at,
        "signs_from": key.signs_from,
        "retired_at": key.retired_at,
    }


def _key_of(row: AnyRow) -> SigningKey:
    return SigningKey(
        kid=row.kid,
        alg=row.alg,
        public_jwk=json.loads(row.public_jwk),
        sealed_private=row.sealed_private,
        created_at=row.created_at,
        signs_from=row.signs_from,
        retired_at=row.retired_at,
    )
