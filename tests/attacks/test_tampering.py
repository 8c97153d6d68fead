"""Whoever can write to the database: records and grants altered at rest are found, and widen nothing."""

import asyncio
import sqlite3
from collections.abc import Callable

import asyncpg
import pytest
from sqlalchemy import make_url

from app.core.audit import Head, append
from app.core.grant import TenantId
from app.core.strict_json import canonical
from tests.api_client import made, refused
from tests.attacks.stage import Stage

pytestmark = pytest.mark.anyio

CASES = {"customerId": "c_42"}

Execute = Callable[..., None]


@pytest.fixture
def execute(database_url: str) -> Execute:
    """Run one statement on the server's database, past Subgrant; `:name` parameters."""

    def run(statement: str, **values: object) -> None:
        url = make_url(database_url)
        if url.get_backend_name() == "sqlite":
            with sqlite3.connect(str(url.database), timeout=30) as connection:
                connection.execute(statement, values)
            connection.close()
        else:
            asyncio.run(_on_postgres(database_url, statement, values))

    return run


async def _on_postgres(url: str, statement: str, values: dict[str, object]) -> None:
    for index, name in enumerate(values, start=1):
        statement = statement.replace(f":{name}", f"${index}")
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        await connection.execute(statement, *values.values())
    finally:
        await connection.close()


async def a_history(stage: Stage) -> list[int]:
    """A few records; the seqs of the calls' own."""
    token = await stage.token(await stage.grant())
    for _ in range(3):
        made(await stage.api.call(token, stage.support, "search", CASES))
    return [record["seq"] for record in await stage.records(type="tool.executed")]


TAMPERINGS = {
    "changed in its text": "UPDATE audit_records SET body = REPLACE(body, 'tool.executed', 'tool.unsent')"
    " WHERE tenant_id = :tenant AND seq = :seq",
    "changed in what it is searched by": "UPDATE audit_records SET type = 'tool.unsent'"
    " WHERE tenant_id = :tenant AND seq = :seq",
    "removed": "DELETE FROM audit_records WHERE tenant_id = :tenant AND seq = :seq",
    "moved to the end": "UPDATE audit_records SET seq = 1000000 WHERE tenant_id = :tenant AND seq = :seq",
}


@pytest.mark.parametrize("what", TAMPERINGS)
async def test_one_record_altered_is_found_at_its_place(stage: Stage, execute: Execute, what: str) -> None:
    seq = (await a_history(stage))[1]
    assert await stage.is_whole()
    await asyncio.to_thread(execute, TAMPERINGS[what], tenant=stage.tenant, seq=seq)
    verified = await stage.api.verify(stage.tenant, stage.auditor)
    assert not verified["ok"]
    assert verified["fault"]["seq"] == seq


async def test_two_records_swapped_are_found(stage: Stage, execute: Execute) -> None:
    first, second, _ = await a_history(stage)
    move = "UPDATE audit_records SET seq = :to WHERE tenant_id = :tenant AND seq = :seq"
    for source, target in ((first, 10**6), (second, first), (10**6, second)):
        await asyncio.to_thread(execute, move, to=target, tenant=stage.tenant, seq=source)
    verified = await stage.api.verify(stage.tenant, stage.auditor)
    assert verified["fault"]["seq"] == first


async def test_a_tail_cut_off_is_found(stage: Stage, execute: Execute) -> None:
    last = (await a_history(stage))[-1]
    cut = "DELETE FROM audit_records WHERE tenant_id = :tenant AND seq >= :seq"
    await asyncio.to_thread(execute, cut, tenant=stage.tenant, seq=last)
    assert (await stage.api.verify(stage.tenant, stage.auditor))["fault"]["seq"] == last


HEADS = {
    "removed": "DELETE FROM audit_heads WHERE tenant_id = :tenant AND :seq > 0",
    "moved back": "UPDATE audit_heads SET seq = :seq - 1, hash = (SELECT prev_hash FROM audit_records"
    " WHERE tenant_id = :tenant AND seq = :seq) WHERE tenant_id = :tenant",
    "moved back before the first": "UPDATE audit_heads SET seq = 0, hash = (SELECT prev_hash FROM audit_records"
    " WHERE tenant_id = :tenant AND seq = 1) WHERE tenant_id = :tenant AND :seq > 0",
}


@pytest.mark.parametrize("what", HEADS)
async def test_a_log_that_goes_on_beyond_its_head_is_found(stage: Stage, execute: Execute, what: str) -> None:
    """Whoever hides the newest records leaves them where they are, and only the head says that there are fewer."""
    last = (await a_history(stage))[-1]
    await asyncio.to_thread(execute, HEADS[what], tenant=stage.tenant, seq=last)
    verified = await stage.api.verify(stage.tenant, stage.auditor)
    assert not verified["ok"]
    assert verified["fault"]["seq"] == (last if what == "moved back" else 1)
    assert "beyond its head" in verified["fault"]["detail"]


async def test_a_record_forged_beyond_the_head_is_found(stage: Stage, execute: Execute) -> None:
    """Even one that follows the last record as it should: pages would show it."""
    await a_history(stage)
    newest = (await stage.records())[-1]
    forged = append(Head(seq=newest["seq"], hash=newest["hash"]), TenantId(stage.tenant), {"type": "tool.executed"})
    add = (
        "INSERT INTO audit_records (tenant_id, seq, body, prev_hash, hash, type)"
        " VALUES (:tenant, :seq, :body, :prev, :hash, 'tool.executed')"
    )
    text = canonical(forged.body).decode()
    row = {"tenant": stage.tenant, "seq": forged.seq, "body": text, "prev": forged.prev_hash, "hash": forged.hash}
    await asyncio.to_thread(execute, add, **row)
    verified = await stage.api.verify(stage.tenant, stage.auditor)
    assert not verified["ok"]
    assert verified["fault"]["seq"] == forged.seq


async def test_a_record_forged_far_beyond_the_head_is_found(stage: Stage, execute: Execute) -> None:
    last = (await stage.records())[-1]["seq"]
    copy = (
        "INSERT INTO audit_records (tenant_id, seq, body, prev_hash, hash, type)"
        " SELECT tenant_id, seq + 1000, body, prev_hash, hash, type FROM audit_records"
        " WHERE tenant_id = :tenant AND seq = :seq"
    )
    await asyncio.to_thread(execute, copy, tenant=stage.tenant, seq=last)
    verified = await stage.api.verify(stage.tenant, stage.auditor)
    assert not verified["ok"]
    assert verified["fault"]["seq"] == last + 1


async def test_another_tenants_log_is_not_touched_by_a_fault(stage: Stage, execute: Execute) -> None:
    seq = (await a_history(stage))[0]
    await asyncio.to_thread(execute, TAMPERINGS["removed"], tenant=stage.tenant, seq=seq)
    assert (await stage.api.verify("platform"))["ok"]


async def test_a_budget_raised_in_the_database_is_not_a_wider_grant(stage: Stage, execute: Execute) -> None:
    """The limit is in the signed document; the account's copy only guards the ledger."""
    grant = await stage.grant(maxToolCalls=1)
    token = await stage.token(grant)
    made(await stage.api.call(token, stage.support, "search", CASES))
    raise_it = "UPDATE accounts SET limit_calls = 1000000 WHERE tenant_id = :tenant"
    await asyncio.to_thread(execute, raise_it, tenant=stage.tenant)
    assert refused(await stage.api.call(token, stage.support, "search", CASES), 403) == "budget_exceeded"


async def test_a_grant_swapped_for_another_in_the_database_permits_nothing(stage: Stage, execute: Execute) -> None:
    """A wide grant's genuine signature does not make a narrow one wide."""
    narrow, wide = await stage.grant(), await stage.open_grant("search")
    token = await stage.token(narrow)
    swap = "UPDATE grants SET signed = :signed WHERE tenant_id = :tenant AND grant_id = :grant"
    await asyncio.to_thread(execute, swap, signed=wide["grant"], tenant=stage.tenant, grant=narrow["grantId"])
    assert refused(await stage.api.call(token, stage.support, "search", CASES), 401) == "token_invalid"


async def test_a_grant_altered_in_the_database_permits_nothing(stage: Stage, execute: Execute) -> None:
    grant = await stage.grant()
    token = await stage.token(grant)
    alter = "UPDATE grants SET signed = :signed WHERE tenant_id = :tenant AND grant_id = :grant"
    forged = grant["grant"][:-6] + "AAAAAA"
    await asyncio.to_thread(execute, alter, signed=forged, tenant=stage.tenant, grant=grant["grantId"])
    assert refused(await stage.api.call(token, stage.support, "search", CASES), 401) == "token_invalid"
