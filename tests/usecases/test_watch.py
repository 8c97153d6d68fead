"""Who watches a call hears no more than its result may show, and can take the call back, in whatever worker it runs."""

import asyncio
from dataclasses import replace

import pytest

from app.core.grant import ToolName
from app.core.redaction import REDACTED
from app.core.strict_json import JsonValue
from app.ports import LogMessage, Notice, Outcome, Progress, UpstreamRequest
from app.usecases.authorize_call import ProposedCall
from app.usecases.cancel_call import KEPT_FOR, cancel_call
from app.usecases.failures import ToolServerFailed
from app.usecases.forward_call import Forwarded, forward_call
from app.usecases.in_flight import InFlight
from app.usecases.mint_grant import SignedGrant
from app.usecases.stop_closed_calls import stop_closed_calls
from app.usecases.watch import MAX_NOTICE_BYTES, MAX_NOTICES, Watch
from app.usecases.world import World
from tests.samples import ACME, SEARCH, SUPPORT
from tests.usecases.worlds import ENDPOINT, SECRET, Scene, a_scene, caller_for

pytestmark = pytest.mark.anyio

PROJECTION = {SEARCH.tool: ["$.cases[*].caseId"]}


@pytest.fixture
async def scene() -> Scene:
    return await a_scene()


def a_call(key: str | None = None) -> ProposedCall:
    return ProposedCall(tool_server_audience=SUPPORT.uri, name=ToolName(SEARCH.tool), arguments={}, idempotency_key=key)


def saying(scene: Scene, *notices: Notice) -> None:
    async def say(request: UpstreamRequest) -> None:
        for notice in notices:
            if request.listener is not None:
                request.listener.tell(notice)

    scene.tools.meanwhile = say


async def heard(scene: Scene, made: SignedGrant, watch: Watch) -> list[Notice]:
    came = await forward_call(scene.world, caller_for(made), a_call(), watch)
    assert isinstance(came, Forwarded)
    return watch.take()


def everything() -> Watch:
    return Watch(hears_progress=True, log_level="debug")


# --- what is heard ----------------------------------------------------------------------------------------


async def test_a_watcher_hears_what_the_tool_says_without_what_the_gateway_alone_may_know(scene: Scene) -> None:
    data: JsonValue = {"why": f"{ENDPOINT} refused {SECRET}", SECRET: 1}
    saying(
        scene,
        Progress(progress=1, total=3, message=f"asking {ENDPOINT} with {SECRET}"),
        LogMessage(level="info", data=data, logger=SECRET),
    )
    notices = await heard(scene, await scene.grant(), everything())
    assert notices == [
        Progress(progress=1, total=3, message=f"asking {REDACTED} with {REDACTED}"),
        LogMessage(level="info", data={"why": f"{REDACTED} refused {REDACTED}", REDACTED: 1}, logger=REDACTED),
    ]


async def test_under_a_projection_nothing_is_heard_but_that_the_tool_still_runs(scene: Scene) -> None:
    saying(
        scene,
        Progress(progress=4_111_111, total=5_555_555, message="the customer's card ends in 1111"),
        LogMessage(level="emergency", data={"card": "1111"}),
        Progress(progress=3_222_222, message="it does not even go forward"),
    )
    watch = everything()
    assert await heard(scene, await scene.grant(result_projection=PROJECTION), watch) == [
        Progress(progress=1),
        Progress(progress=2),
    ]
    (request,) = scene.tools.requests
    assert request.listener is not None
    assert request.listener.log_level is None, "messages that nobody may hear are not even asked for"


async def test_who_asked_for_messages_alone_hears_nothing_under_a_projection(scene: Scene) -> None:
    saying(scene, Progress(progress=7, message="leak"), LogMessage(level="error", data="leak"))
    made = await scene.grant(result_projection=PROJECTION)
    assert await heard(scene, made, Watch(log_level="debug")) == []


async def test_each_kind_of_notice_is_told_to_who_asked_for_it(scene: Scene) -> None:
    progress, message = Progress(progress=7), LogMessage(level="error", data="x")
    saying(scene, progress, message)
    made = await scene.grant()
    assert await heard(scene, made, Watch(log_level="debug")) == [message]
    assert await heard(scene, made, Watch(hears_progress=True)) == [progress]


@pytest.mark.parametrize("watch", [Watch(), Watch(name="n")])
async def test_who_asked_to_hear_nothing_has_no_ears_at_the_tool(scene: Scene, watch: Watch) -> None:
    saying(scene, Progress(progress=1))
    assert await heard(scene, await scene.grant(), watch) == []
    assert scene.tools.requests[0].listener is None


async def test_progress_that_does_not_go_forward_is_none(scene: Scene) -> None:
    saying(scene, *(Progress(progress=number) for number in (1, 1, 0.5, 2, -3, 2.5, 2.5)))
    notices = await heard(scene, await scene.grant(), everything())
    assert [notice.progress for notice in notices if isinstance(notice, Progress)] == [1, 2, 2.5]


async def test_a_flood_is_kept_up_to_a_number_and_up_to_a_size(scene: Scene) -> None:
    made = await scene.grant()
    saying(scene, *(Progress(progress=number) for number in range(100_000)))
    assert len(await heard(scene, made, everything())) == MAX_NOTICES
    large = LogMessage(level="info", data="x" * 50_000)
    saying(scene, *(large for _ in range(1000)))
    watch = everything()
    assert len(await heard(scene, made, watch)) == MAX_NOTICE_BYTES // 50_000
    assert watch.take() == [], "what was taken is not told again"


async def test_a_repeat_of_a_call_says_nothing_meanwhile(scene: Scene) -> None:
    made = await scene.grant()
    saying(scene, Progress(progress=1))
    await forward_call(scene.world, caller_for(made), a_call("k1"), everything())
    watch = everything()
    await forward_call(scene.world, caller_for(made), a_call("k1"), watch)
    assert watch.take() == []
    assert not watch.began.is_set()


# --- taking a call back -----------------------------------------------------------------------------------


def hanging(scene: Scene) -> asyncio.Event:
    started = asyncio.Event()

    async def hang(_: UpstreamRequest) -> None:
        started.set()
        await asyncio.Event().wait()

    scene.tools.meanwhile = hang
    return started


async def usage(scene: Scene, made: SignedGrant) -> tuple[int, int, int]:
    async with scene.world.store.read() as tx:
        budget = (await tx.ledger.accounts(ACME, [made.grant.grant_id]))[made.grant.grant_id].budget
    return budget.usage.posted.tool_calls, budget.usage.pending.tool_calls, budget.usage.posted.spend_ucents


async def test_a_call_that_was_cancelled_may_have_happened_and_is_charged_its_maximum(scene: Scene) -> None:
    made, started, watch = await scene.grant(), hanging(scene), Watch()
    call = asyncio.create_task(forward_call(scene.world, caller_for(made), a_call(), watch))
    await started.wait()
    watch.cancel()
    watch.cancel()
    came = await call
    assert isinstance(came, Forwarded)
    assert (came.outcome, came.charged_ucents) == (Outcome.UNKNOWN, 20_000)
    assert came.detail == "the call was cancelled while it was running"
    assert await usage(scene, made) == (1, 0, 20_000)
    record = (await scene.records())[-1]
    assert (record["type"], record["cancelled"], "abortedByClose" in record) == ("tool.outcome_unknown", True, False)


async def test_a_call_that_is_cancelled_before_it_is_sent_is_not_sent_and_costs_nothing(scene: Scene) -> None:
    made, watch = await scene.grant(), Watch()
    watch.cancel()
    with pytest.raises(ToolServerFailed, match="cancelled before it was sent"):
        await forward_call(scene.world, caller_for(made), a_call(), watch)
    assert scene.tools.requests == []
    assert await usage(scene, made) == (0, 0, 0)
    record = (await scene.records())[-1]
    assert (record["type"], record["cancelled"]) == ("tool.unsent", True)


async def test_a_cancellation_after_the_end_changes_nothing(scene: Scene) -> None:
    made, watch = await scene.grant(), Watch()
    came = await forward_call(scene.world, caller_for(made), a_call(), watch)
    watch.cancel()
    assert isinstance(came, Forwarded)
    assert came.outcome is Outcome.SUCCESS
    assert "cancelled" not in (await scene.records())[-1]


def another_worker(scene: Scene) -> World:
    """The same store, in a process of its own."""
    return replace(scene.world, in_flight=InFlight())


async def test_a_cancellation_that_another_worker_takes_reaches_the_call(scene: Scene) -> None:
    made, started, watch = await scene.grant(), hanging(scene), Watch(name="n1")
    with scene.world.in_flight.watched(ACME, watch):
        call = asyncio.create_task(forward_call(scene.world, caller_for(made), a_call(), watch))
        await started.wait()
        await cancel_call(another_worker(scene), caller_for(made), "another name")
        assert await stop_closed_calls(scene.world) == 0
        await cancel_call(another_worker(scene), caller_for(made), "n1")
        assert await stop_closed_calls(scene.world) == 1
        came = await call
        assert await stop_closed_calls(scene.world) == 0
    assert isinstance(came, Forwarded)
    assert came.outcome is Outcome.UNKNOWN


async def test_a_cancellation_that_comes_before_its_call_is_not_lost(scene: Scene) -> None:
    made, watch = await scene.grant(), Watch(name="n1")
    await cancel_call(scene.world, caller_for(made), "n1")
    with scene.world.in_flight.watched(ACME, watch):
        assert await stop_closed_calls(scene.world) == 1
        with pytest.raises(ToolServerFailed):
            await forward_call(scene.world, caller_for(made), a_call(), watch)


async def test_a_call_of_this_worker_is_cancelled_without_asking_the_store(scene: Scene) -> None:
    made, watch = await scene.grant(), Watch(name="n1")
    scene.store.fails_after = 0
    with scene.world.in_flight.watched(ACME, watch):
        await cancel_call(scene.world, caller_for(made), "n1")
    assert watch.cancelled


async def test_a_name_is_a_tenants_own(scene: Scene) -> None:
    made, watch = await scene.grant(), Watch(name="n1")
    with scene.world.in_flight.watched(type(ACME)("globex"), watch):
        await cancel_call(scene.world, caller_for(made), "n1")
        assert await stop_closed_calls(scene.world) == 0
    assert not watch.cancelled


async def test_a_cancellation_is_forgotten_once_no_call_can_wait_for_it(scene: Scene) -> None:
    made = await scene.grant()
    await cancel_call(scene.world, caller_for(made), "n1")
    scene.clock.now += KEPT_FOR * 2
    await cancel_call(scene.world, caller_for(made), "n2")
    async with scene.world.store.read() as tx:
        assert await tx.spent.spent_among(ACME, "cancelled calls", ["n1", "n2", "n3"]) == {"n2"}


async def test_nothing_is_asked_of_the_store_while_nothing_can_be_stopped(scene: Scene) -> None:
    scene.world.in_flight.names()
    with scene.world.in_flight.watched(ACME, Watch()):
        assert scene.world.in_flight.names() == {}
        assert await stop_closed_calls(scene.world) == 0
