"""The directory of tenants' resources, and the versions of their policies.

A migration is history and imports nothing of the application: types stand here as they were.
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

# PostgreSQL compares ids byte by byte, whatever collation its database was made with, as SQLite does anyway.
WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

# Members that documents have since this revision: what restricts nothing, as 0001 knows it.
NEW_MEMBERS: tuple[tuple[tuple[str, ...], str, str, object], ...] = (
    (("tenant_id",), "tenants", "policy_version", "v0"),
    (("tenant_id", "name"), "tool_servers", "resolver", None),
    (("tenant_id", "server", "name"), "tools", "resource_arguments", {}),
)


def upgrade() -> None:
    op.create_table(
        "resources",
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("type", WORD, nullable=False),
        sa.Column("id", WORD, nullable=False),
        sa.Column("document", WORD, nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name=op.f("fk_resources_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "type", "id", name=op.f("pk_resources")),
    )
    op.create_table(
        "policies",
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("version", WORD, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("text", WORD, nullable=False),
        sa.Column("document", WORD, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("seq > 0", name=op.f("ck_policies_seq")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name=op.f("fk_policies_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "version", name=op.f("pk_policies")),
        sa.UniqueConstraint("tenant_id", "seq", name=op.f("uq_policies_tenant_id_seq")),
    )


def downgrade() -> None:
    for keys, table, member, neutral in NEW_MEMBERS:
        _forget(sa.table(table, *map(sa.column, keys), sa.column("document")), keys, member, neutral)
    op.drop_table("policies")
    op.drop_table("resources")


def _forget(table: sa.TableClause, keys: tuple[str, ...], member: str, neutral: object) -> None:
    """Take a member out of documents where it restricts nothing.

    The others keep it: 0001 refuses to read them, rather than let through what a policy forbade. Grants are signed
    and stay as they are: 0001 reads them without their projections and pins, so those that have any are to be
    closed before anybody goes down.
    """
    connection = op.get_bind()
    for row in connection.execute(sa.select(table)).all():
        document = json.loads(row.document)
        if document.get(member, neutral) != neutral:
            continue
        document.pop(member, None)
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        own = (table.c[key] == getattr(row, key) for key in keys)
        connection.execute(sa.update(table).where(*own).values(document=text))
