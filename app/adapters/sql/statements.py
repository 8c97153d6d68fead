"""The few statements that SQLAlchemy spells differently for each database, though both mean the same."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, Table, bindparam
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.elements import BindParameter

from app.adapters.sql.columns import Word

T = TypeVar("T")
Values = Mapping[str, Any]
AnyRow = Row[*tuple[Any, ...]]
AnySelect = Select[*tuple[Any, ...]]

POSTGRESQL = "postgresql"

MAX_IDS = 1000
"""Ids in one statement, since both databases bound the number of its parameters."""


def word(name: str) -> BindParameter[str]:
    """A parameter that is compared with a text column. The statements that use it are built once."""
    return bindparam(name, type_=Word())


def words(name: str) -> BindParameter[Sequence[str]]:
    """A parameter for IN."""
    return bindparam(name, type_=Word(), expanding=True)


def slices(items: Sequence[T], size: int = MAX_IDS) -> Iterator[Sequence[T]]:
    """The items in pieces of at most that size."""
    return (items[start : start + size] for start in range(0, len(items), size))


def has_row_locks(connection: Connection) -> bool:
    """Whether writers lock rows; SQLite lets one write at a time, so that `FOR UPDATE` would only read."""
    return connection.dialect.name == POSTGRESQL


def insert_rows(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    """Insert all rows, of which there is at least one, in one round trip."""
    connection.execute(_insert(connection.dialect.name, table), rows)


def insert_new(connection: Connection, table: Table, row: Values) -> bool:
    """Insert a row unless one of its keys is taken; waits for a concurrent insert of the same key."""
    return connection.execute(_insert_free(connection.dialect.name, table), row).rowcount == 1


def insert_missing(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    """Insert those rows whose keys are not taken."""
    connection.execute(_insert_free(connection.dialect.name, table), rows)


def insert_or_replace(connection: Connection, table: Table, *rows: Values) -> None:
    """Insert rows, of which there is at least one, or replace everything but the primary key of those that are there.

    One round trip; where a key comes twice, the last row stays.
    """
    keys = table.primary_key.columns.keys()
    statement = _insert(connection.dialect.name, table)
    others = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=others), rows)


# A statement carries the key of its compiled text with it, so each is built once.
@cache
def _insert(dialect: str, table: Table) -> "postgresql.Insert | sqlite.Insert":
    return postgresql.insert(table) if dialect == POSTGRESQL else sqlite.insert(table)


@cache
def _insert_free(dialect: str, table: Table) -> "postgresql.Insert | sqlite.Insert":
    return _insert(dialect, table).on_conflict_do_nothing()
