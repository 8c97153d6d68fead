"""What the tables promise: every key is led by the tenant, and nonsense can't be written, whoever writes it."""

from collections.abc import Iterator

import pytest
import sqlalchemy
from sqlalchemy import CheckConstraint, Column, ForeignKeyConstraint, PrimaryKeyConstraint, Table, UniqueConstraint

from app.adapters.sql.tables import AUDIT_MEMBERS, ROUTING_TABLES, UNFILTERED, audit_records, grants, metadata
from tests.contracts.backends import Database
from tests.contracts.examples import (
    POLICY,
    RESOURCE,
    ROOT,
    a_record,
    add_chain,
    an_event,
    append,
    describe,
    publish,
    register,
    reserve,
)

TABLES = metadata.sorted_tables


def keys_of(table: Table) -> Iterator[tuple[str, list[str]]]:
    """Primary key, unique constraints and unique indexes, and foreign keys, with their columns in order."""
    for constraint in table.constraints:
        if isinstance(constraint, PrimaryKeyConstraint | UniqueConstraint | ForeignKeyConstraint):
            yield str(constraint.name), [column.name for column in constraint.columns]
    for index in table.indexes:
        if index.unique:
            yield str(index.name), [column.name for column in index.columns]


@pytest.mark.gate
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_key_is_led_by_the_tenant(table: Table) -> None:
    if table.name in ROUTING_TABLES:
        return
    for name, columns in keys_of(table):
        assert columns[0] == "tenant_id", name


@pytest.mark.gate
def test_the_routing_tables_are_few_and_exist() -> None:
    assert {table.name for table in TABLES} >= ROUTING_TABLES == {"tenants", "clients", "signing_keys"}


@pytest.mark.gate
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_has_a_primary_key(table: Table) -> None:
    assert table.primary_key.columns


@pytest.mark.gate
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_foreign_key_stays_in_its_tenant(table: Table) -> None:
    for key in table.foreign_key_constraints:
        assert key.elements[0].column.name == "tenant_id"


@pytest.mark.gate
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_money_and_counters_have_64_bits(table: Table) -> None:
    for column in table.columns:
        if column.name.endswith(("_ucents", "_calls")) or column.name == "seq":
            assert isinstance(column.type, sqlalchemy.BigInteger), column.name


def leading(table: Table) -> set[tuple[str, ...]]:
    """The columns that lead an index of the table, two of them."""
    indexes: list[list[Column[object]]] = [list(index.columns) for index in table.indexes]
    return {tuple(column.name for column in columns[:2]) for columns in (*indexes, list(table.primary_key.columns))}


@pytest.mark.gate
@pytest.mark.parametrize("column", sorted(AUDIT_MEMBERS.keys() - UNFILTERED))
def test_every_audit_filter_has_an_index(column: str) -> None:
    assert ("tenant_id", column) in leading(audit_records)


@pytest.mark.gate
@pytest.mark.parametrize(
    "column", ["parent_grant_id", "root_grant_id", "child_run_id", "holder", "subject", "expires_at"]
)
def test_every_grant_filter_has_an_index(column: str) -> None:
    assert ("tenant_id", column) in leading(grants)


@pytest.mark.gate
def test_every_constraint_has_a_name_that_both_databases_take() -> None:
    names = [str(constraint.name) for table in TABLES for constraint in table.constraints]
    assert all(0 < len(name) <= 63 for name in names)
    assert any(isinstance(constraint, CheckConstraint) for constraint in metadata.tables["accounts"].constraints)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "nonsense",
    [
        "UPDATE accounts SET pending_calls = -1",
        "UPDATE accounts SET pending_ucents = -1",
        "UPDATE accounts SET posted_calls = -1",
        "UPDATE accounts SET posted_ucents = -1",
        "UPDATE accounts SET posted_calls = limit_calls",
        "UPDATE accounts SET posted_ucents = limit_ucents",
        "UPDATE accounts SET limit_calls = 0",
        "UPDATE accounts SET closed = 'revoked'",
        "UPDATE accounts SET closed_at = 1",
        "UPDATE accounts SET grant_id = NULL",
        "UPDATE accounts SET lock_rank = 1000",
        "UPDATE calls SET charged_ucents = hold_ucents + 1",
        "UPDATE calls SET charged_ucents = -1",
        "UPDATE calls SET state = 'posted'",
        "UPDATE calls SET state = 'lost', settled_at = 1, outcome = 'success'",
        "UPDATE calls SET state = 'voided', settled_at = 1, outcome = 'unsent', charged_ucents = 1",
        "UPDATE calls SET state = 'expired', settled_at = 1, outcome = 'unknown', charged_ucents = 1",
        "UPDATE calls SET tenant_id = 'other'",
        "UPDATE grants SET parent_grant_id = grant_id",
        "UPDATE grants SET path = 'elsewhere'",
        "DELETE FROM grants",
        "UPDATE audit_records SET seq = 0",
        "UPDATE audit_heads SET seq = -1",
        "UPDATE tools SET server = 'elsewhere'",
        "UPDATE resources SET tenant_id = 'other'",
        "UPDATE policies SET tenant_id = 'other'",
        "UPDATE policies SET seq = 0",
        "INSERT INTO policies SELECT tenant_id, 'v2', seq, text, document, created_at FROM policies",
        "DELETE FROM tenants",
    ],
)
async def test_nonsense_cannot_be_written(database: Database, nonsense: str) -> None:
    store = database.open()
    await register(store)
    await add_chain(store, ROOT)
    await reserve(store, a_record())
    await append(store, an_event())
    await describe(store, RESOURCE)
    await publish(store, POLICY)
    await store.aclose()
    with pytest.raises(Exception, match=r"(?i)constraint"):
        await database.sql("PRAGMA foreign_keys=ON" if database.kind == "sqlite" else "SELECT 1", nonsense)
