"""The backends under contract."""

from tests.contracts.backends import (
    database,
    postgres_database,
    shared_postgres,
    sqlite_database,
    sqlite_template,
    store,
    two_stores,
    unopened,
)

__all__ = [
    "database",
    "postgres_database",
    "shared_postgres",
    "sqlite_database",
    "sqlite_template",
    "store",
    "two_stores",
    "unopened",
]
