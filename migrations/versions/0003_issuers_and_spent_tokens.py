"""Trusted issuers, tokens that may not be used again, and keys that are published before they sign.

A migration is history and imports nothing of the application: types stand here as they were.
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

# PostgreSQL compares ids byte by byte, whatever collation its database was made with, as SQLite does anyway.
WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

DEFAULT_GRANT_TYPES = [
    "client_credentials",
    "urn:ietf:params:oauth:grant-type:jwt-bearer",
    "urn:ietf:params:oauth:grant-type:token-exchange",
]

# Members that documents have since this revision, and the value of each that 0002 does without.
NEW_MEMBERS: tuple[tuple[tuple[str, ...], str, str, object], ...] = (
    (("tenant_id",), "tenants", "max_depth", None),
    (("client_id",), "clients", "grant_types", DEFAULT_GRANT_TYPES),
    (("client_id",), "clients", "jwks", None),
    (("client_id",), "clients", "workload", None),
    (("client_id",), "clients", "dpop_required", False),
    (("client_id",), "clients", "redirect_uris", []),
    (("client_id",), "clients", "standing_grants", {}),
    (("tenant_id", "name"), "tool_servers", "definition_max_age_seconds", 0),
    (("tenant_id", "server", "name"), "tools", "pinned", None),
    (("tenant_id", "server", "name"), "tools", "pending", None),
)


def upgrade() -> None:
    op.create_table(
        "trusted_issuers",
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("name", WORD, nullable=False),
        sa.Column("issuer", WORD, nullable=False),
        sa.Column("document", WORD, nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name=op.f("fk_trusted_issuers_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "name", name=op.f("pk_trusted_issuers")),
        sa.UniqueConstraint("tenant_id", "issuer", name=op.f("uq_trusted_issuers_tenant_id_issuer")),
    )
    op.create_table(
        "spent_tokens",
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("issuer", WORD, nullable=False),
        sa.Column("jti", WORD, nullable=False),
        sa.Column("spent_on", WORD, nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name=op.f("fk_spent_tokens_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "issuer", "jti", name=op.f("pk_spent_tokens")),
    )
    op.create_index("ix_spent_tokens_tenant_id_expires_at", "spent_tokens", ["tenant_id", "expires_at"])
    # How many live in a tree that stands for months.
    columns = ["tenant_id", "root_grant_id", "expires_at"]
    op.create_index("ix_grants_tenant_id_root_grant_id_expires_at", "grants", columns)
    # Keys that are there have signed since they were made.
    op.add_column("signing_keys", sa.Column("signs_from", sa.BigInteger(), nullable=True))
    op.execute(sa.text("UPDATE signing_keys SET signs_from = created_at"))
    with op.batch_alter_table("signing_keys") as keys:
        keys.alter_column("signs_from", nullable=False)


def downgrade() -> None:
    op.drop_index("ix_grants_tenant_id_root_grant_id_expires_at", table_name="grants")
    with op.batch_alter_table("signing_keys") as keys:
        keys.drop_column("signs_from")
    for keys_of, table, member, neutral in NEW_MEMBERS:
        _forget(sa.table(table, *map(sa.column, keys_of), sa.column("document")), keys_of, member, neutral)
    op.drop_index("ix_spent_tokens_tenant_id_expires_at", table_name="spent_tokens")
    op.drop_table("spent_tokens")
    op.drop_table("trusted_issuers")


def _forget(table: sa.TableClause, keys: tuple[str, ...], member: str, neutral: object) -> None:
    """Take a member out of documents where it restricts nothing.

    The others keep it: 0002 refuses to read them, rather than take a client without what it must prove. Grants are
    signed and stay as they are: 0002 reads them without the keys that they are bound to, so those are to be closed
    before anybody goes down.
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
