"""Whoever a call would be refused to for its credential is not let in to look around either, for the same reason."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.grant import ClientId, GrantId, ServerName, TenantId, ToolName
from app.core.reasons import Reason
from app.usecases.admit_caller import admit_caller
from app.usecases.authorize_call import ProposedCall
from app.usecases.close_grant import close_grant
from app.usecases.failures import Denied
from app.usecases.forward_call import forward_call
from app.usecases.mint_grant import SignedGrant
from app.usecases.world import Caller
from tests.samples import ACME, SEARCH, SUPPORT
from tests.usecases.worlds import PLANNER, Scene, a_scene, caller_for

pytestmark = pytest.mark.anyio

OTHER = "https://tools.example/another"


@pytest.fixture
async def scene() -> Scene:
    return await a_scene()


def with_token(made: SignedGrant, audience: str = SUPPORT.uri) -> Caller:
    """Whoever presents an access token for a grant."""
    return replace(caller_for(made), audience=audience)


async def at_the_call(scene: Scene, caller: Caller, server: ServerName = SUPPORT.server) -> Denied | None:
    """What the decision on a call says to the same caller."""
    audience = f"{scene.world.rules.mcp_prefix}{server}"
    proposed = ProposedCall(tool_server_audience=audience, name=ToolName(SEARCH.tool), arguments={})
    came = await forward_call(scene.world, caller, proposed)
    return came if isinstance(came, Denied) else None


async def closed(scene: Scene, made: SignedGrant) -> Caller:
    await close_grant(scene.world, scene.planner, made.grant.grant_id, "task_complete")
    return with_token(made)


async def revoked(scene: Scene, made: SignedGrant) -> Caller:
    await close_grant(scene.world, scene.planner, made.grant.grant_id, "revoked")
    return with_token(made)


async def too_late(scene: Scene, made: SignedGrant) -> Caller:
    scene.clock.now += timedelta(hours=1)
    return with_token(made)


async def too_early(scene: Scene, made: SignedGrant) -> Caller:
    scene.clock.now -= timedelta(hours=1)
    return with_token(made)


async def of_a_disabled_client(scene: Scene, made: SignedGrant) -> Caller:
    await change_client(scene, active=False)
    return with_token(made)


async def without_the_key_of_its_client(scene: Scene, made: SignedGrant) -> Caller:
    await change_client(scene, dpop_required=True)
    return with_token(made)


async def without_the_key_of_its_holder(scene: Scene, made: SignedGrant) -> Caller:
    return replace(await without_the_key_of_its_client(scene, made), client_id=ClientId("who asked for it"))


async def of_a_disabled_tenant(scene: Scene, made: SignedGrant) -> Caller:
    await change_tenant(scene, active=False)
    return with_token(made)


async def a_grant_where_none_is_taken(scene: Scene, made: SignedGrant) -> Caller:
    await change_tenant(scene, allow_grant_bearer=False)
    return caller_for(made)


async def change_client(scene: Scene, **members: bool) -> None:
    async with scene.world.store.write() as tx:
        client = await tx.registry.client(PLANNER)
        assert client is not None
        await tx.registry.put_client(replace(client, **members))  # type: ignore[arg-type]  # a test's own to get right
        await tx.commit()


async def change_tenant(scene: Scene, **members: bool) -> None:
    async with scene.world.store.write() as tx:
        tenant = await tx.registry.tenant(ACME)
        assert tenant is not None
        await tx.registry.put_tenant(replace(tenant, **members))  # type: ignore[arg-type]  # a test's own to get right
        await tx.commit()


async def expired(_: Scene, made: SignedGrant) -> Caller:
    return replace(with_token(made), is_expired=True)


async def for_another(_: Scene, made: SignedGrant) -> Caller:
    return with_token(made, OTHER)


async def for_the_api(scene: Scene, _: SignedGrant) -> Caller:
    return scene.planner


async def for_no_grant(_: Scene, made: SignedGrant) -> Caller:
    return replace(with_token(made), grant_id=GrantId("gr_none"))


async def of_another_tenant(_: Scene, made: SignedGrant) -> Caller:
    return replace(with_token(made), tenant_id=TenantId("globex"))


async def expired_and_for_another(_: Scene, made: SignedGrant) -> Caller:
    return replace(with_token(made, OTHER), is_expired=True)


async def closed_and_for_another(scene: Scene, made: SignedGrant) -> Caller:
    return replace(await closed(scene, made), audience=OTHER)


Spoiling = Callable[[Scene, SignedGrant], Awaitable[Caller]]

CREDENTIALS: dict[Spoiling, Reason] = {
    for_the_api: Reason.TOKEN_INVALID,
    for_no_grant: Reason.TOKEN_INVALID,
    of_another_tenant: Reason.TOKEN_INVALID,
    a_grant_where_none_is_taken: Reason.TOKEN_INVALID,
    without_the_key_of_its_client: Reason.TOKEN_INVALID,
    without_the_key_of_its_holder: Reason.TOKEN_INVALID,
    expired: Reason.TOKEN_EXPIRED,
    expired_and_for_another: Reason.TOKEN_EXPIRED,
    for_another: Reason.AUDIENCE_MISMATCH,
    closed_and_for_another: Reason.AUDIENCE_MISMATCH,
    of_a_disabled_client: Reason.GRANT_REVOKED,
    of_a_disabled_tenant: Reason.GRANT_REVOKED,
    revoked: Reason.GRANT_REVOKED,
    closed: Reason.GRANT_CLOSED,
    too_late: Reason.GRANT_EXPIRED,
    too_early: Reason.GRANT_NOT_YET_VALID,
}


@pytest.mark.parametrize("spoil", CREDENTIALS, ids=lambda spoil: spoil.__name__)
async def test_a_credential_that_no_call_is_allowed_to_is_not_admitted_and_that_is_on_record(
    scene: Scene, spoil: Spoiling
) -> None:
    caller = await spoil(scene, await scene.grant())
    denied = await admit_caller(scene.world, caller, SUPPORT.server)
    assert denied is not None
    assert denied.reason is CREDENTIALS[spoil]
    record = (await scene.records(caller.tenant_id))[-1]
    assert (record["type"], record["reason"]) == ("access.refused", denied.reason)
    assert (record["decisionId"], record["clientId"]) == (denied.decision_id, caller.client_id)
    decided = await at_the_call(scene, caller)
    assert decided is not None
    assert decided.reason is denied.reason


async def test_a_living_credential_for_the_tool_server_is_admitted_and_leaves_no_record(scene: Scene) -> None:
    made = await scene.grant()
    before = await scene.types()
    assert await admit_caller(scene.world, with_token(made), SUPPORT.server) is None
    assert await admit_caller(scene.world, caller_for(made), SUPPORT.server) is None
    assert await scene.types() == before


@pytest.mark.parametrize("name", ["billing", "no-such-server", ""])
async def test_a_tool_server_that_the_grant_does_not_reach_is_another_audience(scene: Scene, name: str) -> None:
    caller = caller_for(await scene.grant())
    denied = await admit_caller(scene.world, caller, ServerName(name))
    decided = await at_the_call(scene, caller, ServerName(name))
    assert denied is not None
    assert decided is not None
    assert denied.reason is decided.reason is Reason.AUDIENCE_MISMATCH
