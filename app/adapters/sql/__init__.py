"""Storage in SQLite or PostgreSQL. `await migrate(url)` first, then `SqlStore.open(url)`."""

from app.adapters.sql.migrations import MigrationState, downgrade, migrate, migration_state
from app.adapters.sql.store import SqlStore

__all__ = ["MigrationState", "SqlStore", "downgrade", "migrate", "migration_state"]
