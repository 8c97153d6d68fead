"""How deep a tenant lets delegation go: a bound on ceilings, and on every call as it is today."""

import pytest

from app.core.decision import Allow, Deny, decide
from app.core.reasons import Reason
from app.core.registry import Tenant
from tests.samples import ACME, NOW, a_call, a_ceiling, a_chain, a_child, a_grant, accounts_of, facts

CHAIN = a_chain(a_grant(), a_child(a_grant()), a_child(a_child(a_grant())))


@pytest.mark.parametrize("max_depth, ceiling, bounded", [(None, 4, 4), (0, 4, 0), (3, 4, 3), (4, 4, 4), (5, 4, 4)])
def test_a_ceiling_is_no_deeper_than_the_tenant_and_else_as_it_was(
    max_depth: int | None, ceiling: int, bounded: int
) -> None:
    tenant = Tenant(tenant_id=ACME, name="Acme", max_depth=max_depth)
    assert tenant.bounded(a_ceiling(max_depth=ceiling)) == a_ceiling(max_depth=bounded)


@pytest.mark.parametrize("max_depth", [None, 2, 3])
def test_a_chain_as_deep_as_the_tenant_allows_may_call(max_depth: int | None) -> None:
    assert CHAIN.leaf.depth == 2
    assert isinstance(decide(CHAIN, a_call(), accounts_of(CHAIN), facts(max_depth=max_depth), NOW), Allow)


@pytest.mark.parametrize("max_depth", [0, 1])
def test_a_chain_that_is_deeper_than_the_tenant_allows_today_may_not(max_depth: int) -> None:
    verdict = decide(CHAIN, a_call(), accounts_of(CHAIN), facts(max_depth=max_depth), NOW)
    assert isinstance(verdict, Deny)
    assert (verdict.reason, verdict.grant_id) == (Reason.DEPTH_EXCEEDED, CHAIN.leaf.grant_id)
