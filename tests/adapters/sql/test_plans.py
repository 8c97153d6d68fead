"""Every statement finds its rows by an index, however many grants, calls and records there are."""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from app.core.budget import Amount
from app.core.grant import ClientId, GrantId
from app.core.resources import ResourceRef
from app.ports import GrantFilter, RecordFilter
from tests.contracts.backends import Database
from tests.contracts.examples import (
    CHILD,
    CLIENT,
    POLICY,
    RESOURCE,
    ROOT,
    SERVER,
    TOOL,
    a_record,
    add_chain,
    an_ending,
    an_event,
    append,
    describe,
    publish,
    register,
    reserve,
    settle,
)
from tests.samples import ACME, NOW

pytestmark = pytest.mark.anyio

# Few rows, and all of them are wanted: the tool servers' addresses, the keys, a page of tenants; one row a tenant;
# and a query's own lineage.
READ_WHOLE = {"tool_servers", "signing_keys", "tenants", "audit_heads", "lineage"}
WANTED: dict[str, Any] = {"live_at": NOW, "since": NOW, "until": NOW, "subtree_of": ROOT.grant_id}
THINGS = [ResourceRef(f"type_{number % 10}", f"id_{number}") for number in range(1000)]

Statement = tuple[str, tuple[Any, ...]]


@pytest.fixture
def statements() -> Iterator[list[Statement]]:
    """Whatever is asked of a database, with its parameters."""
    seen: list[Statement] = []

    def note(_connection: Connection, _cursor: object, statement: str, parameters: Any, *_: object) -> None:  # noqa: ANN401
        seen.append((statement, parameters[0] if isinstance(parameters, list) else parameters))

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)


async def use_everything(database: Database) -> None:
    store = database.open()
    await register(store)
    ids = await add_chain(store, ROOT, CHILD)
    await reserve(store, a_record(idempotency_key="k"))
    await settle(store, "call_1", an_ending())
    await append(store, an_event())
    await describe(store, RESOURCE)
    await publish(store, POLICY)
    async with store.write() as tx:
        await tx.ledger.windows(ACME, {"window:1": Amount()}, lock=True)
        await tx.grants.close(ACME, CHILD.grant_id, reason="cancelled", at=NOW)
        await tx.directory.remove(ACME, RESOURCE.ref)
    async with store.read() as tx:
        await tx.grants.subtree(ACME, ROOT.grant_id, 10)
        await tx.grants.chain(ACME, CHILD.grant_id)
        await tx.grants.children(ACME, ROOT.grant_id)
        await tx.grants.tree_size(ACME, ROOT.grant_id)
        await tx.grants.closed_among([(ACME, grant) for grant in ids])
        for member in fields(GrantFilter):
            where = GrantFilter(**{member.name: WANTED.get(member.name, "x")})
            await tx.grants.page(ACME, where, before=GrantId("x"), limit=10)
        await tx.ledger.accounts(ACME, ids)
        await tx.ledger.repeated(ACME, ROOT.child_run_id, SERVER.name, "k")
        await tx.ledger.overdue(NOW, 10)
        for member in fields(RecordFilter):
            which = RecordFilter(**{member.name: WANTED.get(member.name, "x")})
            await tx.audit.page(ACME, which, after_seq=1, newest_first=True, limit=10)
        assert [record async for record in tx.audit.read(ACME)]
        await tx.registry.registration(ACME, [CLIENT.client_id], SERVER.name, TOOL.name)
        await tx.registry.clients(ACME, after=ClientId("a"), limit=10)
        await tx.registry.servers(ACME, after="a", limit=10)
        await tx.registry.server_for(ACME, SERVER.audience)
        await tx.registry.tools(ACME, SERVER.name)
        await tx.directory.resource(ACME, RESOURCE.ref)
        await tx.directory.look_up(ACME, THINGS)
        for kind in (None, "case", "document"):
            await tx.directory.page(ACME, kind=kind, after=RESOURCE.ref, limit=10)
        await tx.policies.policy(ACME, POLICY.version)
        await tx.policies.count(ACME)
        await tx.policies.page(ACME, after=POLICY.version, limit=10)
    await store.aclose()


async def test_no_statement_reads_all_of_a_table_or_of_a_tenant(
    sqlite_database: Database, statements: list[Statement]
) -> None:
    await use_everything(sqlite_database)
    database = sqlite_database.connect()
    asked = [(sql, values) for sql, values in statements if sql.startswith(("SELECT", "WITH", "UPDATE", "DELETE"))]
    assert len(asked) > 40
    for sql, values in asked:
        plan = [step[3] for step in database.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        unbounded = {step.split()[1] for step in plan if step.startswith("SCAN") or step.endswith("(tenant_id=?)")}
        assert unbounded <= READ_WHOLE, (sql, plan)
    database.close()


async def test_a_thousand_things_are_put_and_looked_up_in_one_statement(
    database: Database, statements: list[Statement]
) -> None:
    store = database.open()
    await register(store)
    async with store.write() as tx:
        await tx.directory.resource(ACME, RESOURCE.ref)
        statements.clear()
        await tx.directory.put([replace(RESOURCE, type=ref.type, id=ref.id) for ref in THINGS])
        assert len(statements) == 1
        await tx.commit()
    async with store.read() as tx:
        await tx.directory.resource(ACME, RESOURCE.ref)
        statements.clear()
        assert len(await tx.directory.look_up(ACME, THINGS)) == len(THINGS)
        assert len(statements) == 1
    await store.aclose()
