"""The first schema: registry, grants, ledger, audit log.

A migration is history and imports nothing of the application: types stand here as they were.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# PostgreSQL compares ids byte by byte, whatever collation its database was made with, as SQLite does anyway.
WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "audit_heads",
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("hash", WORD, nullable=False),
        sa.CheckConstraint("seq >= 0", name=op.f("ck_audit_heads_seq")),
        sa.PrimaryKeyConstraint("tenant_id", name=op.f("pk_audit_heads")),
    )
    op.create_table(
        "audit_records",
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("body", WORD, nullable=False),
        sa.Column("prev_hash", WORD, nullable=False),
        sa.Column("hash", WORD, nullable=False),
        sa.Column("type", WORD, nullable=True),
        sa.Column("time", WORD, nullable=True),
        sa.Column("decision", WORD, nullable=True),
        sa.Column("reason", WORD, nullable=True),
        sa.Column("grant_id", WORD, nullable=True),
        sa.Column("root_grant_id", WORD, nullable=True),
        sa.Column("run_id", WORD, nullable=True),
        sa.Column("subject", WORD, nullable=True),
        sa.Column("client_id", WORD, nullable=True),
        sa.Column("tool", WORD, nullable=True),
        sa.Column("tool_server", WORD, nullable=True),
        sa.Column("call_id", WORD, nullable=True),
        sa.CheckConstraint("seq > 0", name=op.f("ck_audit_records_seq")),
        sa.PrimaryKeyConstraint("tenant_id", "seq", name=op.f("pk_audit_records")),
    )
    op.create_index(
        "ix_audit_records_call_id",
        "audit_records",
        ["tenant_id", "call_id", "seq"],
        sqlite_where=sa.text("call_id IS NOT NULL"),
        postgresql_where=sa.text("call_id IS NOT NULL"),
    )
    op.create_index(
        "ix_audit_records_client_id",
        "audit_records",
        ["tenant_id", "client_id", "seq"],
        sqlite_where=sa.text("client_id IS NOT NULL"),
        postgresql_where=sa.text("client_id IS NOT NULL"),
    )
    op.create_index(
        "ix_audit_records_decision",
        "audit_records",
        ["tenant_id", "decision", "seq"],
        sqlite_where=sa.text("decision IS NOT NULL"),
        postgresql_where=sa.text("decision IS NOT NULL"),
    )
    op.create_index(
        "ix_audit_records_grant_id",
        "audit_records",
        ["tenant_id", "grant_id", "seq"],
        sqlite_where=sa.text("grant_id IS NOT NULL"),
        postgresql_where=sa.text("grant_id IS NOT NULL"),
    )
    op.create_index(
        "ix_audit_records_reason",
        "audit_records",
        ["tenant_id", "reason", "seq"],
        sqlite_where=sa.text("reason IS NOT NULL"),
        postgresql_where=sa.text("reason IS NOT NULL"),
    )
    op.create_index(
        "ix_audit_records_root_grant_id",
        "audit_records",
        ["tenant_id", "root_grant_id", "seq"],
        sqlite_where=sa.text("root_grant_id IS NOT NULL"),
        postgresql_where=sa.text("root_grant_id IS NOT NULL"),
    )
    op.create_index(
        "ix_audit_records_run_id",
        "audit_records",
        ["tenant_id", "run_id", "seq"],
        sqlite_where=sa.text("run_id IS NOT NULL"),
        postgresql_where=sa.text("run_id IS NOT NULL"),
    )
    op.create_index(
        "ix_audit_records_subject",
        "audit_records",
        ["tenant_id", "subject", "seq"],
        sqlite_where=sa.text("subject IS NOT NULL"),
        postgresql_where=sa.text("subject IS NOT NULL"),
    )
    op.create_index(
        "ix_audit_records_time",
        "audit_records",
        ["tenant_id", "time", "seq"],
        sqlite_where=sa.text("time IS NOT NULL"),
        postgresql_where=sa.text("time IS NOT NULL"),
    )
    op.create_index(
        "ix_audit_records_tool",
        "audit_records",
        ["tenant_id", "tool", "seq"],
        sqlite_where=sa.text("tool IS NOT NULL"),
        postgresql_where=sa.text("tool IS NOT NULL"),
    )
    op.create_index(
        "ix_audit_records_type",
        "audit_records",
        ["tenant_id", "type", "seq"],
        sqlite_where=sa.text("type IS NOT NULL"),
        postgresql_where=sa.text("type IS NOT NULL"),
    )
    op.create_table(
        "grants",
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("grant_id", WORD, nullable=False),
        sa.Column("parent_grant_id", WORD, nullable=True),
        sa.Column("root_grant_id", WORD, nullable=False),
        sa.Column("path", WORD, nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("holder", WORD, nullable=False),
        sa.Column("issued_by", WORD, nullable=False),
        sa.Column("subject", WORD, nullable=False),
        sa.Column("actor", WORD, nullable=False),
        sa.Column("child_run_id", WORD, nullable=False),
        sa.Column("issued_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("signed", WORD, nullable=False),
        sa.CheckConstraint("(parent_grant_id IS NULL) = (path = grant_id)", name=op.f("ck_grants_path")),
        sa.CheckConstraint("(parent_grant_id IS NULL) = (root_grant_id = grant_id)", name=op.f("ck_grants_root")),
        sa.CheckConstraint("depth >= 0", name=op.f("ck_grants_depth")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "parent_grant_id"],
            ["grants.tenant_id", "grants.grant_id"],
            name=op.f("fk_grants_tenant_id_parent_grant_id"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "root_grant_id"],
            ["grants.tenant_id", "grants.grant_id"],
            name=op.f("fk_grants_tenant_id_root_grant_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "grant_id", name=op.f("pk_grants")),
    )
    op.create_index(
        op.f("ix_grants_tenant_id_child_run_id_grant_id"), "grants", ["tenant_id", "child_run_id", "grant_id"]
    )
    op.create_index(op.f("ix_grants_tenant_id_expires_at"), "grants", ["tenant_id", "expires_at"])
    op.create_index(op.f("ix_grants_tenant_id_holder_grant_id"), "grants", ["tenant_id", "holder", "grant_id"])
    op.create_index(
        op.f("ix_grants_tenant_id_parent_grant_id_grant_id"),
        "grants",
        ["tenant_id", "parent_grant_id", "grant_id"],
    )
    op.create_index(
        op.f("ix_grants_tenant_id_root_grant_id_grant_id"),
        "grants",
        ["tenant_id", "root_grant_id", "grant_id"],
    )
    op.create_index(op.f("ix_grants_tenant_id_root_grant_id_path"), "grants", ["tenant_id", "root_grant_id", "path"])
    op.create_index(op.f("ix_grants_tenant_id_subject_grant_id"), "grants", ["tenant_id", "subject", "grant_id"])
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("run_id", WORD, nullable=False),
        sa.Column("server", WORD, nullable=False),
        sa.Column("key", WORD, nullable=False),
        sa.Column("call_id", WORD, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "run_id", "server", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_table(
        "signing_keys",
        sa.Column("kid", WORD, nullable=False),
        sa.Column("alg", WORD, nullable=False),
        sa.Column("public_jwk", WORD, nullable=False),
        sa.Column("sealed_private", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("retired_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("kid", name=op.f("pk_signing_keys")),
    )
    op.create_table(
        "tenants",
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("document", WORD, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", name=op.f("pk_tenants")),
    )
    op.create_table(
        "accounts",
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("account_id", WORD, nullable=False),
        sa.Column("grant_id", WORD, nullable=True),
        sa.Column("lock_rank", sa.Integer(), nullable=False),
        sa.Column("limit_calls", sa.BigInteger(), nullable=False),
        sa.Column("limit_ucents", sa.BigInteger(), nullable=False),
        sa.Column("posted_calls", sa.BigInteger(), nullable=False),
        sa.Column("posted_ucents", sa.BigInteger(), nullable=False),
        sa.Column("pending_calls", sa.BigInteger(), nullable=False),
        sa.Column("pending_ucents", sa.BigInteger(), nullable=False),
        sa.Column("closed", WORD, nullable=True),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("(closed IS NULL) = (closed_at IS NULL)", name=op.f("ck_accounts_closed")),
        sa.CheckConstraint("(grant_id IS NULL) = (lock_rank = 1000)", name=op.f("ck_accounts_rank")),
        sa.CheckConstraint("grant_id IS NULL OR grant_id = account_id", name=op.f("ck_accounts_owner")),
        sa.CheckConstraint(
            "grant_id IS NULL OR posted_calls + pending_calls <= limit_calls",
            name=op.f("ck_accounts_calls_within_limit"),
        ),
        sa.CheckConstraint(
            "grant_id IS NULL OR posted_ucents + pending_ucents <= limit_ucents",
            name=op.f("ck_accounts_ucents_within_limit"),
        ),
        sa.CheckConstraint("limit_calls >= 0 AND limit_ucents >= 0", name=op.f("ck_accounts_limit")),
        sa.CheckConstraint("pending_calls >= 0 AND pending_ucents >= 0", name=op.f("ck_accounts_pending")),
        sa.CheckConstraint("posted_calls >= 0 AND posted_ucents >= 0", name=op.f("ck_accounts_posted")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "grant_id"],
            ["grants.tenant_id", "grants.grant_id"],
            name=op.f("fk_accounts_tenant_id_grant_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "account_id", name=op.f("pk_accounts")),
    )
    op.create_table(
        "calls",
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("call_id", WORD, nullable=False),
        sa.Column("decision_id", WORD, nullable=False),
        sa.Column("grant_id", WORD, nullable=False),
        sa.Column("run_id", WORD, nullable=False),
        sa.Column("server", WORD, nullable=False),
        sa.Column("tool", WORD, nullable=False),
        sa.Column("request_digest", WORD, nullable=False),
        sa.Column("idempotency_key", WORD, nullable=True),
        sa.Column("hold_calls", sa.BigInteger(), nullable=False),
        sa.Column("hold_ucents", sa.BigInteger(), nullable=False),
        sa.Column("accounts", WORD, nullable=False),
        sa.Column("reserved_at", sa.BigInteger(), nullable=False),
        sa.Column("deadline_at", sa.BigInteger(), nullable=False),
        sa.Column("state", WORD, nullable=False),
        sa.Column("charged_ucents", sa.BigInteger(), nullable=False),
        sa.Column("outcome", WORD, nullable=True),
        sa.Column("result", sa.LargeBinary(), nullable=True),
        sa.Column("result_digest", WORD, nullable=True),
        sa.Column("settled_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("(state = 'pending') = (outcome IS NULL)", name=op.f("ck_calls_outcome")),
        sa.CheckConstraint("(state = 'pending') = (settled_at IS NULL)", name=op.f("ck_calls_settled_at")),
        sa.CheckConstraint(
            "state <> 'expired' OR charged_ucents = hold_ucents", name=op.f("ck_calls_expired_is_charged")
        ),
        sa.CheckConstraint("state <> 'voided' OR charged_ucents = 0", name=op.f("ck_calls_voided_is_free")),
        sa.CheckConstraint("state IN ('pending', 'posted', 'voided', 'expired')", name=op.f("ck_calls_state")),
        sa.CheckConstraint(
            "charged_ucents >= 0 AND charged_ucents <= hold_ucents", name=op.f("ck_calls_charge_within_hold")
        ),
        sa.CheckConstraint("hold_calls >= 0 AND hold_ucents >= 0", name=op.f("ck_calls_hold")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "grant_id"],
            ["grants.tenant_id", "grants.grant_id"],
            name=op.f("fk_calls_tenant_id_grant_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "call_id", name=op.f("pk_calls")),
    )
    op.create_index(
        "ix_calls_overdue",
        "calls",
        ["deadline_at"],
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_table(
        "clients",
        sa.Column("client_id", WORD, nullable=False),
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("document", WORD, nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name=op.f("fk_clients_tenant_id")),
        sa.PrimaryKeyConstraint("client_id", name=op.f("pk_clients")),
    )
    op.create_index(op.f("ix_clients_tenant_id_client_id"), "clients", ["tenant_id", "client_id"])
    op.create_table(
        "grant_viewers",
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("client_id", WORD, nullable=False),
        sa.Column("grant_id", WORD, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "grant_id"],
            ["grants.tenant_id", "grants.grant_id"],
            name=op.f("fk_grant_viewers_tenant_id_grant_id"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "client_id", "grant_id", name=op.f("pk_grant_viewers")),
    )
    op.create_table(
        "runs",
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("run_id", WORD, nullable=False),
        sa.Column("grant_id", WORD, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "grant_id"],
            ["grants.tenant_id", "grants.grant_id"],
            name=op.f("fk_runs_tenant_id_grant_id"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("tenant_id", "run_id", name=op.f("pk_runs")),
    )
    op.create_table(
        "tool_servers",
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("name", WORD, nullable=False),
        sa.Column("audience", WORD, nullable=False),
        sa.Column("endpoint", WORD, nullable=False),
        sa.Column("upstream_audience", WORD, nullable=False),
        sa.Column("document", WORD, nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name=op.f("fk_tool_servers_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "name", name=op.f("pk_tool_servers")),
        sa.UniqueConstraint("tenant_id", "audience", name=op.f("uq_tool_servers_tenant_id_audience")),
    )
    op.create_table(
        "tools",
        sa.Column("tenant_id", WORD, nullable=False),
        sa.Column("server", WORD, nullable=False),
        sa.Column("name", WORD, nullable=False),
        sa.Column("document", WORD, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "server"],
            ["tool_servers.tenant_id", "tool_servers.name"],
            name=op.f("fk_tools_tenant_id_server"),
        ),
        sa.PrimaryKeyConstraint("tenant_id", "server", "name", name=op.f("pk_tools")),
    )


def downgrade() -> None:
    op.drop_table("tools")
    op.drop_table("tool_servers")
    op.drop_table("runs")
    op.drop_table("grant_viewers")
    op.drop_table("clients")
    op.drop_table("calls")
    op.drop_table("accounts")
    op.drop_table("tenants")
    op.drop_table("signing_keys")
    op.drop_table("idempotency_keys")
    op.drop_table("grants")
    op.drop_table("audit_records")
    op.drop_table("audit_heads")
