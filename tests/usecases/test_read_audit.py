"""Reads of a whole log are bounded, and a page of it is not held up by them."""

from dataclasses import replace

import pytest

from app.core.reasons import Reason
from app.core.registry import Scope
from app.ports import RecordFilter
from app.usecases.failures import Denied
from app.usecases.read_audit import AuditPage, read_audit
from app.usecases.turns import Turns
from app.usecases.verify_audit import Verification, verify_audit
from app.usecases.world import Caller, World
from tests.samples import ACME
from tests.usecases.worlds import PLANNER, a_scene

pytestmark = pytest.mark.anyio

AUDITOR = Caller(client_id=PLANNER, tenant_id=ACME, scopes=frozenset({Scope.AUDIT_READ}))


async def read(world: World, where: RecordFilter) -> AuditPage | Denied:
    return await read_audit(world, AUDITOR, where, tenant_id=None, after_seq=None, newest_first=True, limit=10)


async def test_a_read_of_the_whole_log_is_refused_when_as_many_run_as_may() -> None:
    world = replace((await a_scene()).world, long_reads=Turns(at_once=0, waiting=0))
    for refused in (await verify_audit(world, AUDITOR, None), await read(world, RecordFilter(text="x"))):
        assert isinstance(refused, Denied)
        assert refused.reason is Reason.RATE_LIMITED
    assert isinstance(await read(world, RecordFilter()), AuditPage)


async def test_a_read_of_the_whole_log_gives_its_turn_back() -> None:
    world = replace((await a_scene()).world, long_reads=Turns(at_once=1, waiting=0))
    for _ in range(2):
        assert isinstance(await verify_audit(world, AUDITOR, None), Verification)
        assert isinstance(await read(world, RecordFilter(text="x")), AuditPage)
