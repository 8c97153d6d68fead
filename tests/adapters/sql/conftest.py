"""The databases that the contract suite uses, for what only they can show."""

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
