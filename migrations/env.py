"""Alembic's entry: runs the migrations on the connection that `app.adapters.sql.migrations` holds and locks.

A new revision is a new file in `versions/`, and its number goes to `SCHEMA_REVISION` in `tables.py`; tests
compare what the migrations build with the tables, and take them down and up again.
"""

from alembic import context

from app.adapters.sql.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    compare_type=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
