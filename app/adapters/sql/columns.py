"""How values lie in columns, so that SQLite and PostgreSQL hold, compare and give back exactly the same.

Knows types and dialects. Refuses to know tables.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Dialect, Text, TypeDecorator
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction
from sqlalchemy.types import Integer, TypeEngine

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

# PostgreSQL's text can't hold NUL, and names come from outside. Both are control characters that no sensible
# name has, so the escape costs a search and keeps every string apart from every other.
NUL, ESCAPE = "\x00", "\x1a"


def to_microseconds(moment: datetime) -> int:
    """Microseconds since 1970. A time without its offset is a caller's bug."""
    assert moment.tzinfo is not None, "a stored time needs its offset"
    return (moment - EPOCH) // MICROSECOND


def from_microseconds(count: int) -> datetime:
    """The aware UTC time."""
    return EPOCH + count * MICROSECOND


class Moment(TypeDecorator[datetime]):
    """An aware UTC time as integer microseconds since 1970.

    SQLite has no time type: as text it would drop the offset, as a float the last digits. An integer is
    exact, compares and indexes alike on both, and needs no session's time zone.
    """

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:  # noqa: ARG002 - its signature
        return None if value is None else to_microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else from_microseconds(value)


class Word(TypeDecorator[str]):
    """Text that is compared byte by byte: ids, names, paths and documents.

    PostgreSQL gets the collation "C", whatever its database was made with, so that order, ranges and prefixes
    are those of SQLite and of Python.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return Text(collation="C") if dialect.name == "postgresql" else Text()

    # The processors are overridden rather than `process_…`, since SQLite needs none at all.
    def bind_processor(self, dialect: Dialect) -> Callable[[str | None], str | None] | None:
        return _escape if dialect.name == "postgresql" else None

    def result_processor(
        self,
        dialect: Dialect,
        coltype: object,  # noqa: ARG002
    ) -> Callable[[str | None], str | None] | None:
        return _unescape if dialect.name == "postgresql" else None


def _escape(value: str | None) -> str | None:
    if value is None or (NUL not in value and ESCAPE not in value):
        return value
    return value.replace(ESCAPE, f"{ESCAPE}1").replace(NUL, f"{ESCAPE}0")


def _unescape(value: str | None) -> str | None:
    if value is None or ESCAPE not in value:
        return value
    return value.replace(f"{ESCAPE}0", NUL).replace(f"{ESCAPE}1", ESCAPE)


class position_of(GenericFunction[int]):  # noqa: N801 - spelled like what it is in SQL
    """Where a text first stands in another, from 1, or 0. Unlike LIKE it knows no wildcards."""

    type = Integer()
    inherit_cache = True


@compiles(position_of, "sqlite")
def _instr(element: position_of, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401
    return f"instr({compiler.process(element.clauses, **options)})"


@compiles(position_of, "postgresql")
def _strpos(element: position_of, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401
    return f"strpos({compiler.process(element.clauses, **options)})"
