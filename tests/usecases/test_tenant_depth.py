"""A tenant's depth holds where delegations are made, by whichever door, and at every call."""

from dataclasses import replace

import pytest

from app.core.reasons import Reason
from app.ports import Outcome
from app.usecases.authorize_call import ProposedCall
from app.usecases.derive_grant import derive_grant
from app.usecases.exchange_token import ExchangeRequest, exchange_token
from app.usecases.failures import Denied
from app.usecases.forward_call import Forwarded, forward_call
from app.usecases.issued_token import ACCESS_TOKEN, DELEGATION_GRANT, Exchanged
from app.usecases.mint_grant import MintRequest, SignedGrant, mint_grant
from app.usecases.read_wish import NarrowingFields
from tests.samples import ACME, SEARCH, SUPPORT
from tests.usecases.worlds import PLANNER, Scene, a_scene, caller_for

pytestmark = pytest.mark.anyio


async def bounded(scene: Scene, max_depth: int | None) -> None:
    async with scene.world.store.write() as tx:
        tenant = await tx.registry.tenant(ACME)
        assert tenant is not None
        await tx.registry.put_tenant(replace(tenant, max_depth=max_depth))
        await tx.commit()


async def derived(scene: Scene, parent: SignedGrant) -> SignedGrant | Denied:
    wish = NarrowingFields(may_redelegate=True)
    return await derive_grant(scene.world, scene.planner, parent.grant.grant_id, wish, None)


async def exchanged(scene: Scene, parent: SignedGrant, requested: str) -> Exchanged | Denied:
    async with scene.world.store.read() as tx:
        client = await tx.registry.client(PLANNER)
    assert client is not None
    request = ExchangeRequest(
        subject_token=parent.signed, subject_token_type=DELEGATION_GRANT, requested_token_type=requested
    )
    return await exchange_token(scene.world, client, request)


async def a_chain(scene: Scene, depth: int) -> SignedGrant:
    made = await scene.grant(may_redelegate=True)
    for _ in range(depth):
        child = await derived(scene, made)
        assert isinstance(child, SignedGrant), child
        made = child
    return made


async def call(scene: Scene, made: SignedGrant) -> Forwarded | Denied:
    proposed = ProposedCall(tool_server_audience=SUPPORT.uri, name=SEARCH.tool, arguments={})
    result = await forward_call(scene.world, caller_for(made), proposed)
    assert isinstance(result, Forwarded | Denied)
    return result


async def test_a_grant_left_to_its_default_is_as_deep_as_the_tenant_allows() -> None:
    scene = await a_scene()
    await bounded(scene, 1)
    assert (await scene.grant()).grant.max_depth == 1
    await bounded(scene, None)
    assert (await scene.grant()).grant.max_depth == 4


async def test_a_grant_that_asks_for_more_depth_than_the_tenant_allows_is_refused() -> None:
    scene = await a_scene()
    await bounded(scene, 1)
    wish = NarrowingFields(audience=(SUPPORT.uri,), max_depth=2)
    refused = await mint_grant(scene.world, scene.planner, MintRequest(fields=wish))
    assert isinstance(refused, Denied)
    assert (refused.reason, refused.pointer) == (Reason.NOT_NARROWER, "/maxDepth")


async def test_a_grant_from_before_the_bound_is_derived_from_no_deeper() -> None:
    scene = await a_scene()
    child = await a_chain(scene, 1)
    assert child.grant.max_depth == 4
    await bounded(scene, 1)
    for refused in (await derived(scene, child), await exchanged(scene, child, DELEGATION_GRANT)):
        assert isinstance(refused, Denied)
        assert (refused.reason, refused.pointer) == (Reason.DEPTH_EXCEEDED, "/maxDepth")
    assert isinstance(await exchanged(scene, child, ACCESS_TOKEN), Exchanged)
    await bounded(scene, 2)
    assert isinstance(await derived(scene, child), SignedGrant)


async def test_lowering_the_bound_stops_what_is_deeper_at_its_next_call_and_raising_it_lets_go() -> None:
    scene = await a_scene()
    child = await a_chain(scene, 1)
    deep = await a_chain(scene, 2)
    await bounded(scene, 1)
    refused = await call(scene, deep)
    assert isinstance(refused, Denied)
    assert refused.reason is Reason.DEPTH_EXCEEDED
    assert scene.tools.requests == []
    answer = await call(scene, child)
    assert isinstance(answer, Forwarded)
    assert answer.outcome is Outcome.SUCCESS
    await bounded(scene, 2)
    assert isinstance(await call(scene, deep), Forwarded)


async def test_a_token_from_before_the_bound_makes_no_further_token() -> None:
    scene = await a_scene()
    deep = await a_chain(scene, 2)
    await bounded(scene, 1)
    refused = await exchanged(scene, deep, ACCESS_TOKEN)
    assert isinstance(refused, Denied)
    assert refused.reason is Reason.DEPTH_EXCEEDED
