"""What becomes of a call when something fails around it: never a lie, never a second run, never a leak."""

from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.budget import Amount
from app.core.grant import GrantId, ToolName
from app.core.reasons import Reason
from app.core.redaction import REDACTED
from app.core.registry import Credential, CredentialType
from app.core.strict_json import JsonObject
from app.ports import Outcome, StoreUnavailable, UpstreamAnswer
from app.usecases.authorize_call import ProposedCall
from app.usecases.failures import Denied, IdempotencyConflict
from app.usecases.forward_call import UNRECORDED_DETAIL, Forwarded, forward_call
from app.usecases.reconcile_calls import reconcile_calls
from app.usecases.world import Caller
from tests.samples import ACME, SEARCH, SUPPORT
from tests.usecases.worlds import ENDPOINT, PLANNER, SECRET, Scene, a_scene, caller_for

pytestmark = pytest.mark.anyio


@pytest.fixture
async def scene() -> Scene:
    return await a_scene()


def a_call(key: str | None = None, **arguments: str) -> ProposedCall:
    return ProposedCall(
        tool_server_audience=SUPPORT.uri, name=ToolName(SEARCH.tool), arguments={**arguments}, idempotency_key=key
    )


async def usage(scene: Scene, grant_id: GrantId) -> tuple[Amount, Amount]:
    async with scene.world.store.read() as tx:
        used = (await tx.ledger.accounts(ACME, [grant_id]))[grant_id].budget.usage
    return used.posted, used.pending


async def test_a_store_that_is_away_before_the_call_decides_and_sends_nothing(scene: Scene) -> None:
    made = await scene.grant()
    scene.store.fails_after = 0
    with pytest.raises(StoreUnavailable):
        await forward_call(scene.world, caller_for(made), a_call())
    assert scene.tools.requests == []


async def test_a_store_that_is_away_for_a_while_after_the_call_only_delays_the_answer(scene: Scene) -> None:
    made = await scene.grant()
    scene.store.fails_after, scene.store.fails_for = 1, 2
    answer = await forward_call(scene.world, caller_for(made), a_call())
    assert isinstance(answer, Forwarded)
    assert (answer.outcome, answer.result) == (Outcome.SUCCESS, {"ok": 1})
    assert len(scene.tools.requests) == 1
    assert await usage(scene, made.grant.grant_id) == (Amount(tool_calls=1, spend_ucents=10_000), Amount())


async def test_a_store_that_stays_away_after_the_call_makes_its_outcome_unknown_and_never_denied(scene: Scene) -> None:
    made = await scene.grant()
    scene.store.fails_after = 1

    def past_the_deadline() -> None:
        scene.clock.now += timedelta(seconds=60)

    scene.store.on_failure = past_the_deadline
    answer = await forward_call(scene.world, caller_for(made), a_call("k"))
    assert isinstance(answer, Forwarded)
    assert (answer.outcome, answer.detail, answer.charged_ucents) == (Outcome.UNKNOWN, UNRECORDED_DETAIL, 20_000)
    scene.store.fails_after = None
    assert await reconcile_calls(scene.world) == 1
    assert await usage(scene, made.grant.grant_id) == (Amount(tool_calls=1, spend_ucents=20_000), Amount())
    last = (await scene.records())[-1]
    assert (last["type"], last["callId"], last["runId"]) == (
        "tool.outcome_unknown",
        answer.call_id,
        made.grant.child_run_id,
    )
    assert len(scene.tools.requests) == 1


async def test_a_credential_that_can_not_be_opened_holds_and_sends_nothing(scene: Scene) -> None:
    made = await scene.grant()
    async with scene.world.store.write() as tx:
        server = await tx.registry.server(ACME, SUPPORT.server)
        assert server is not None
        broken = Credential(type=CredentialType.HEADER, header="X-Key", sealed=b"sealed under another key")
        await tx.registry.put_server(replace(server, credential=broken))
        await tx.commit()
    with pytest.raises(ValueError, match="seal"):
        await forward_call(scene.world, caller_for(made), a_call())
    assert scene.tools.requests == []
    assert await usage(scene, made.grant.grant_id) == (Amount(), Amount())


async def test_a_tool_that_repeats_what_only_the_gateway_may_know_is_not_repeated(scene: Scene) -> None:
    made = await scene.grant()
    echo: JsonObject = {"headers": {"X-Key": SECRET}, "at": [f"{ENDPOINT}/search"], SECRET: "tools.internal:9000"}
    scene.tools.answer = UpstreamAnswer(outcome=Outcome.TOOL_ERROR, result=echo)
    for _ in range(2):  # the answer, and its repeat from the store
        answer = await forward_call(scene.world, caller_for(made), a_call("k"))
        assert isinstance(answer, Forwarded)
        assert answer.result == {"headers": {"X-Key": REDACTED}, "at": [f"{REDACTED}/search"], REDACTED: REDACTED}


async def test_the_gateways_own_token_is_not_repeated(scene: Scene) -> None:
    made = await scene.grant()
    async with scene.world.store.write() as tx:
        server = await tx.registry.server(ACME, SUPPORT.server)
        assert server is not None
        await tx.registry.put_server(replace(server, credential=Credential(type=CredentialType.JWT)))
        await tx.commit()

    original = scene.tools.call

    async def echoing(request: object) -> UpstreamAnswer:
        await original(request)  # type: ignore[arg-type]  # as it came
        token = scene.tools.requests[-1].headers["Authorization"].removeprefix("Bearer ")
        return UpstreamAnswer(outcome=Outcome.SUCCESS, result={"you sent": token})

    scene.tools.call = echoing  # type: ignore[method-assign]  # a tool server that answers what it was sent
    answer = await forward_call(scene.world, caller_for(made), a_call())
    assert isinstance(answer, Forwarded)
    assert answer.result == {"you sent": REDACTED}


async def test_a_repeat_and_a_conflict_of_a_key_are_on_record(scene: Scene) -> None:
    made = await scene.grant()
    await forward_call(scene.world, caller_for(made), a_call("k"))
    await forward_call(scene.world, caller_for(made), a_call("k"))
    with pytest.raises(IdempotencyConflict):
        await forward_call(scene.world, caller_for(made), a_call("k", q="other"))
    repeats = [body for body in await scene.records() if body["type"] == "tool.repeated"]
    assert [body.get("refusal") for body in repeats] == [None, "idempotency_conflict"]
    assert len(scene.tools.requests) == 1


@pytest.mark.parametrize("grant_id", [None, GrantId("gr_unknown")])
async def test_a_call_without_a_chain_to_decide_about_is_on_record_all_the_same(
    scene: Scene, grant_id: GrantId | None
) -> None:
    stray = Caller(client_id=PLANNER, tenant_id=ACME, grant_id=grant_id)
    refused = await forward_call(scene.world, stray, a_call())
    assert isinstance(refused, Denied)
    assert refused.reason is Reason.TOKEN_INVALID
    last = (await scene.records())[-1]
    assert (last["type"], last["decisionId"]) == ("tool.denied", refused.decision_id)


async def test_a_service_that_takes_no_grants_as_bearers_takes_none_of_any_tenant() -> None:
    scene = await a_scene(allow_grant_bearer=False)
    refused = await forward_call(scene.world, caller_for(await scene.grant()), a_call())
    assert isinstance(refused, Denied)
    assert refused.reason is Reason.TOKEN_INVALID


async def test_equal_content_of_two_tenants_does_not_look_equal(scene: Scene) -> None:
    made = await scene.grant()
    await forward_call(scene.world, caller_for(made), a_call(q="same"))
    await forward_call(scene.world, caller_for(made), a_call(q="same"))
    digests = {body["argumentsDigest"] for body in await scene.records() if body["type"] == "tool.proposed"}
    assert len(digests) == 1
    assert digests != {scene.world.vault.digest(b'{"q":"same"}')}
