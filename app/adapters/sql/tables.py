"""The tables: one schema for SQLite and PostgreSQL.

Every key of every table is led by `tenant_id`, so that no statement can meet another tenant's row by its id
alone; the exceptions are the routing tables, which say what tenant somebody belongs to. Constraints make
nonsense impossible even for a faulty caller. Nothing here knows a statement; `migrations/` builds the same.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    text,
)

from app.adapters.sql.columns import Moment, Word

SCHEMA_REVISION = "0003"
"""The migration that builds these tables: what a worker needs to find."""

ROUTING_TABLES = frozenset({"tenants", "clients", "signing_keys"})
"""The only tables whose keys may do without a leading tenant."""

WINDOW_RANK = 1000
"""A window's `lock_rank`, behind every grant's: many calls share a window, so it is held shortest."""

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _required(name: str) -> Column[str]:
    return Column(name, Word, nullable=False)


def _optional(name: str) -> Column[str]:
    return Column(name, Word, nullable=True)


def _count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


# --- what administrators register: the members that are looked up, the rest as a document -----------------

tenants = Table(
    "tenants",
    metadata,
    _required("tenant_id"),
    _required("document"),
    PrimaryKeyConstraint("tenant_id"),
)

clients = Table(
    "clients",
    metadata,
    _required("client_id"),
    _required("tenant_id"),
    _required("document"),
    PrimaryKeyConstraint("client_id"),
    ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"]),
    Index(None, "tenant_id", "client_id"),
)

signing_keys = Table(
    "signing_keys",
    metadata,
    _required("kid"),
    _required("alg"),
    _required("public_jwk"),
    Column("sealed_private", LargeBinary, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("signs_from", Moment, nullable=False),
    Column("retired_at", Moment, nullable=True),
    PrimaryKeyConstraint("kid"),
)

trusted_issuers = Table(
    "trusted_issuers",
    metadata,
    _required("tenant_id"),
    _required("name"),
    _required("issuer"),
    _required("document"),
    PrimaryKeyConstraint("tenant_id", "name"),
    UniqueConstraint("tenant_id", "issuer"),
    ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"]),
)

# What may not be used again, until it would be refused for its age anyway.
spent_tokens = Table(
    "spent_tokens",
    metadata,
    _required("tenant_id"),
    _required("issuer"),
    _required("jti"),
    _optional("spent_on"),
    Column("expires_at", Moment, nullable=False),
    PrimaryKeyConstraint("tenant_id", "issuer", "jti"),
    ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"]),
    Index(None, "tenant_id", "expires_at"),
)

tool_servers = Table(
    "tool_servers",
    metadata,
    _required("tenant_id"),
    _required("name"),
    _required("audience"),
    _required("endpoint"),
    _required("upstream_audience"),
    _required("document"),
    PrimaryKeyConstraint("tenant_id", "name"),
    UniqueConstraint("tenant_id", "audience"),
    ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"]),
)

tools = Table(
    "tools",
    metadata,
    _required("tenant_id"),
    _required("server"),
    _required("name"),
    _required("document"),
    PrimaryKeyConstraint("tenant_id", "server", "name"),
    ForeignKeyConstraint(["tenant_id", "server"], ["tool_servers.tenant_id", "tool_servers.name"]),
)

resources = Table(
    "resources",
    metadata,
    _required("tenant_id"),
    _required("type"),
    _required("id"),
    _required("document"),
    PrimaryKeyConstraint("tenant_id", "type", "id"),
    ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"]),
)

# Rows that never change. `seq` counts a tenant's versions in the order in which they were made, which neither
# their names tell (v10 is made after v9) nor the clocks of several workers.
policies = Table(
    "policies",
    metadata,
    _required("tenant_id"),
    _required("version"),
    Column("seq", BigInteger, nullable=False, autoincrement=False),
    _required("text"),
    _required("document"),
    Column("created_at", Moment, nullable=False),
    PrimaryKeyConstraint("tenant_id", "version"),
    UniqueConstraint("tenant_id", "seq"),
    ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"]),
    CheckConstraint("seq > 0", name="seq"),
)

# --- grants: rows that never change -----------------------------------------------------------------------

# `path` is the lineage, "/"-joined, root first: below a grant are the paths that continue its own with a "/".
grants = Table(
    "grants",
    metadata,
    _required("tenant_id"),
    _required("grant_id"),
    _optional("parent_grant_id"),
    _required("root_grant_id"),
    _required("path"),
    Column("depth", Integer, nullable=False),
    _required("holder"),
    _required("issued_by"),
    _required("subject"),
    _required("actor"),
    _required("child_run_id"),
    Column("issued_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False),
    _required("signed"),
    PrimaryKeyConstraint("tenant_id", "grant_id"),
    ForeignKeyConstraint(["tenant_id", "parent_grant_id"], ["grants.tenant_id", "grants.grant_id"]),
    ForeignKeyConstraint(["tenant_id", "root_grant_id"], ["grants.tenant_id", "grants.grant_id"]),
    CheckConstraint("depth >= 0", name="depth"),
    CheckConstraint("(parent_grant_id IS NULL) = (root_grant_id = grant_id)", name="root"),
    CheckConstraint("(parent_grant_id IS NULL) = (path = grant_id)", name="path"),
    Index(None, "tenant_id", "parent_grant_id", "grant_id"),
    Index(None, "tenant_id", "root_grant_id", "path"),
    Index(None, "tenant_id", "root_grant_id", "grant_id"),
    Index(None, "tenant_id", "root_grant_id", "expires_at"),
    Index(None, "tenant_id", "child_run_id", "grant_id"),
    Index(None, "tenant_id", "holder", "grant_id"),
    Index(None, "tenant_id", "subject", "grant_id"),
    Index(None, "tenant_id", "expires_at"),
)

# Which clients see a grant: holder and issuer of it and of every ancestor. Lineages never change, so neither
# do these rows, and a client's page is one range of the primary key however many grants there are.
grant_viewers = Table(
    "grant_viewers",
    metadata,
    _required("tenant_id"),
    _required("client_id"),
    _required("grant_id"),
    PrimaryKeyConstraint("tenant_id", "client_id", "grant_id"),
    ForeignKeyConstraint(["tenant_id", "grant_id"], ["grants.tenant_id", "grants.grant_id"]),
)

# The run is claimed before its grant is written, so that a run that is taken leaves nothing behind.
runs = Table(
    "runs",
    metadata,
    _required("tenant_id"),
    _required("run_id"),
    _required("grant_id"),
    PrimaryKeyConstraint("tenant_id", "run_id"),
    ForeignKeyConstraint(
        ["tenant_id", "grant_id"],
        ["grants.tenant_id", "grants.grant_id"],
        deferrable=True,
        initially="DEFERRED",
    ),
)

# --- the ledger -------------------------------------------------------------------------------------------

# Everything about a grant that changes, and the windows' usage. A window's limit is today's word of an
# administrator and may be lowered below what is already spent: only grants are held to their limit here.
accounts = Table(
    "accounts",
    metadata,
    _required("tenant_id"),
    _required("account_id"),
    _optional("grant_id"),
    Column("lock_rank", Integer, nullable=False),
    _count("limit_calls"),
    _count("limit_ucents"),
    _count("posted_calls"),
    _count("posted_ucents"),
    _count("pending_calls"),
    _count("pending_ucents"),
    _optional("closed"),
    Column("closed_at", Moment, nullable=True),
    PrimaryKeyConstraint("tenant_id", "account_id"),
    ForeignKeyConstraint(["tenant_id", "grant_id"], ["grants.tenant_id", "grants.grant_id"]),
    CheckConstraint("grant_id IS NULL OR grant_id = account_id", name="owner"),
    CheckConstraint(f"(grant_id IS NULL) = (lock_rank = {WINDOW_RANK})", name="rank"),
    CheckConstraint("limit_calls >= 0 AND limit_ucents >= 0", name="limit"),
    CheckConstraint("posted_calls >= 0 AND posted_ucents >= 0", name="posted"),
    CheckConstraint("pending_calls >= 0 AND pending_ucents >= 0", name="pending"),
    CheckConstraint("grant_id IS NULL OR posted_calls + pending_calls <= limit_calls", name="calls_within_limit"),
    CheckConstraint("grant_id IS NULL OR posted_ucents + pending_ucents <= limit_ucents", name="ucents_within_limit"),
    CheckConstraint("(closed IS NULL) = (closed_at IS NULL)", name="closed"),
)

# `accounts` is a JSON array of the accounts that the hold lies on. A charge never exceeds the hold, and what
# the reconciler expires is charged all of it, so that a late correction can only give back.
calls = Table(
    "calls",
    metadata,
    _required("tenant_id"),
    _required("call_id"),
    _required("decision_id"),
    _required("grant_id"),
    _required("run_id"),
    _required("server"),
    _required("tool"),
    _required("request_digest"),
    _optional("idempotency_key"),
    _count("hold_calls"),
    _count("hold_ucents"),
    _required("accounts"),
    Column("reserved_at", Moment, nullable=False),
    Column("deadline_at", Moment, nullable=False),
    _required("state"),
    _count("charged_ucents"),
    _optional("outcome"),
    Column("result", LargeBinary, nullable=True),
    _optional("result_digest"),
    Column("settled_at", Moment, nullable=True),
    PrimaryKeyConstraint("tenant_id", "call_id"),
    ForeignKeyConstraint(["tenant_id", "grant_id"], ["grants.tenant_id", "grants.grant_id"]),
    CheckConstraint("hold_calls >= 0 AND hold_ucents >= 0", name="hold"),
    CheckConstraint("charged_ucents >= 0 AND charged_ucents <= hold_ucents", name="charge_within_hold"),
    CheckConstraint("state IN ('pending', 'posted', 'voided', 'expired')", name="state"),
    CheckConstraint("state <> 'voided' OR charged_ucents = 0", name="voided_is_free"),
    CheckConstraint("state <> 'expired' OR charged_ucents = hold_ucents", name="expired_is_charged"),
    CheckConstraint("(state = 'pending') = (settled_at IS NULL)", name="settled_at"),
    CheckConstraint("(state = 'pending') = (outcome IS NULL)", name="outcome"),
)
# Few calls are pending at any moment, so these stay small however many calls there were.
_is_pending = text("state = 'pending'")
Index("ix_calls_overdue", calls.c.deadline_at, sqlite_where=_is_pending, postgresql_where=_is_pending)

# No foreign key on purpose: a key stays taken after its grant and call are gone. Never partitioned by time.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    _required("tenant_id"),
    _required("run_id"),
    _required("server"),
    _required("key"),
    _required("call_id"),
    PrimaryKeyConstraint("tenant_id", "run_id", "server", "key"),
)

# --- the audit log ----------------------------------------------------------------------------------------

AUDIT_MEMBERS = {
    "type": "type",
    "time": "time",
    "decision": "decision",
    "reason": "reason",
    "grant_id": "grantId",
    "root_grant_id": "rootGrantId",
    "run_id": "runId",
    "subject": "subject",
    "client_id": "clientId",
    "tool": "tool",
    "tool_server": "toolServer",
    "call_id": "callId",
}
"""The columns that repeat members of the record, and those members' names."""

UNFILTERED = frozenset({"tool_server"})
"""Columns without an index, since no filter uses them."""

# The body is the record; the columns beside it only find it, and reading checks them against it. `time` is
# text: RFC 3339 with six digits and Z sorts as time does.
audit_records = Table(
    "audit_records",
    metadata,
    _required("tenant_id"),
    Column("seq", BigInteger, nullable=False, autoincrement=False),
    _required("body"),
    _required("prev_hash"),
    _required("hash"),
    *(_optional(column) for column in AUDIT_MEMBERS),
    PrimaryKeyConstraint("tenant_id", "seq"),
    CheckConstraint("seq > 0", name="seq"),
)
for _column in AUDIT_MEMBERS.keys() - UNFILTERED:
    _is_there = text(f"{_column} IS NOT NULL")
    Index(
        f"ix_audit_records_{_column}",
        audit_records.c.tenant_id,
        audit_records.c[_column],
        audit_records.c.seq,
        sqlite_where=_is_there,
        postgresql_where=_is_there,
    )

audit_heads = Table(
    "audit_heads",
    metadata,
    _required("tenant_id"),
    Column("seq", BigInteger, nullable=False, autoincrement=False),
    _required("hash"),
    PrimaryKeyConstraint("tenant_id"),
    CheckConstraint("seq >= 0", name="seq"),
)
