"""Budgets: siblings, concurrency, minted-anew roots, cost overruns and repeated keys never spend what is not there."""

import asyncio

import pytest

from tests.api_client import Json, made, refused
from tests.attacks.stage import Stage

pytestmark = pytest.mark.anyio

CASES = {"customerId": "c_42"}


async def outcomes(stage: Stage, tokens: list[str], count: int, tool: str = "search") -> list[str]:
    """How so many calls at once end, shared out among the tokens."""
    arguments = CASES if tool == "search" else {"cost": 7}
    responses = await asyncio.gather(
        *(stage.api.call(tokens[index % len(tokens)], stage.support, tool, arguments) for index in range(count))
    )
    return ["passed" if response.is_success else refused(response, 403) for response in responses]


async def test_of_a_hundred_calls_at_once_on_the_last_unit_exactly_one_passes(stage: Stage) -> None:
    grant = await stage.grant(maxToolCalls=1)
    token = await stage.token(grant)
    ended = await outcomes(stage, [token], 100)
    assert ended.count("passed") == 1
    assert ended.count("budget_exceeded") == 99
    assert len(stage.tools.of("search", tenant=stage.tenant)) == 1


async def test_ten_children_with_the_whole_budget_each_spend_it_once(stage: Stage) -> None:
    grant = await stage.grant(maxToolCalls=10)
    children = [made(await stage.api.derive(stage.planner, grant["grantId"])) for _ in range(10)]
    assert {child["maxToolCalls"] for child in children} == {10}
    tokens = [await stage.token(child) for child in children]
    ended = await outcomes(stage, tokens, 50)
    assert ended.count("passed") == 10
    assert len(stage.tools.of("search", tenant=stage.tenant)) == 10
    assert await used(stage, grant) == {"posted": 10, "pending": 0}


async def used(stage: Stage, grant: Json) -> Json:
    calls: Json = (await stage.api.usage(stage.planner, grant["grantId"]))["toolCalls"]
    return calls


async def test_spend_is_held_at_its_maximum_and_posted_as_reported(stage: Stage) -> None:
    grant = await stage.open_grant("priced", maxToolCalls=50, maxSpendCents=20)
    token = await stage.token(grant)
    first = made(await stage.api.call(token, stage.support, "priced", {"cost": 2.5}))
    assert first["costCents"] == 2.5
    assert first["usage"]["spendCents"] == {"posted": 2.5, "pending": 0}
    made(await stage.api.call(token, stage.support, "priced", {"cost": 0}))
    overrun = made(await stage.api.call(token, stage.support, "priced", {"cost": 99}))
    assert overrun["costCents"] == 10
    assert [
        record["costOverrun"] for record in await stage.records(type="tool.executed") if "costOverrun" in record
    ] == [True]
    # 12.5 of 20 cents are gone: what is left is less than the next call could cost.
    assert refused(await stage.api.call(token, stage.support, "priced", {"cost": 0}), 403) == "budget_exceeded"


async def test_concurrent_spend_never_exceeds_its_limit(stage: Stage) -> None:
    grant = await stage.open_grant("priced", maxToolCalls=100, maxSpendCents=60)
    ended = await outcomes(stage, [await stage.token(grant)], 30, "priced")
    spent = (await stage.api.usage(stage.planner, grant["grantId"]))["spendCents"]
    assert spent == {"posted": 7 * ended.count("passed"), "pending": 0}
    assert spent["posted"] <= 60


async def test_a_child_may_not_ask_for_more_than_is_left(stage: Stage) -> None:
    grant = await stage.grant(maxToolCalls=3)
    made(await stage.api.call(await stage.token(grant), stage.support, "search", CASES))
    assert refused(await stage.api.derive(stage.planner, grant["grantId"], maxToolCalls=3), 403) == "not_narrower"
    assert made(await stage.api.derive(stage.planner, grant["grantId"]))["maxToolCalls"] == 2


async def test_minting_new_roots_does_not_evade_a_clients_window(stage: Stage) -> None:
    limits = {
        "limits": {
            "audiences": ["*"],
            "allowedTools": ["*"],
            "maxToolCalls": 5,
            "maxSpendCents": 100,
            "windowSeconds": 86_400,
            "windowMaxToolCalls": 6,
            "windowMaxSpendCents": 1000,
        }
    }
    path = f"/clients/{stage.planner.client_id}"
    made(await stage.api.admin_request("PATCH", path, json=limits))
    tokens = [await stage.token(await stage.grant()) for _ in range(3)]
    ended = await outcomes(stage, tokens, 15)
    assert ended.count("passed") == 6


async def test_a_repeated_key_returns_the_first_answer_and_runs_nothing(stage: Stage) -> None:
    grant = await stage.grant()
    token = await stage.token(grant)
    first = made(await stage.api.call(token, stage.support, "search", CASES, idempotency_key="once"))
    again = made(await stage.api.call(token, stage.support, "search", CASES, idempotency_key="once"))
    assert (again["callId"], again["result"]) == (first["callId"], first["result"])
    assert len(stage.tools.of("search", tenant=stage.tenant)) == 1
    assert await used(stage, grant) == {"posted": 1, "pending": 0}
    other = await stage.api.call(token, stage.support, "search", CASES | {"limit": 2}, idempotency_key="once")
    assert refused(other, 409) == "idempotency_conflict"


async def test_fifty_repeats_at_once_run_once(stage: Stage) -> None:
    token = await stage.token(await stage.grant())
    responses = await asyncio.gather(
        *(stage.api.call(token, stage.support, "search", CASES, idempotency_key="k") for _ in range(50))
    )
    assert len({response.json()["callId"] for response in responses if response.is_success}) == 1
    assert {refused(response, 409) for response in responses if not response.is_success} <= {"call_in_flight"}
    assert len(stage.tools.of("search", tenant=stage.tenant)) == 1


@pytest.mark.parametrize("tool, outcome", [("fail", "tool_error"), ("drop", "unknown"), ("away", "tool_error")])
async def test_a_call_that_may_have_run_is_charged_and_has_one_side_effect(
    stage: Stage, tool: str, outcome: str
) -> None:
    grant = await stage.open_grant(tool)
    token = await stage.token(grant)
    marker = {"who": stage.tenant}
    answer = made(await stage.api.call(token, stage.support, tool, marker, idempotency_key="k"))
    assert (answer["outcome"], answer["costCents"]) == (outcome, 1)
    again = made(await stage.api.call(token, stage.support, tool, marker, idempotency_key="k"))
    assert again["callId"] == answer["callId"]
    assert len(stage.tools.of(tool, **marker)) == 1
    assert await used(stage, grant) == {"posted": 1, "pending": 0}


async def test_a_call_that_times_out_is_charged_its_maximum_and_its_outcome_is_unknown(stage: Stage) -> None:
    grant = await stage.open_grant("slow")
    answer = made(await stage.api.call(await stage.token(grant), stage.support, "slow", {"who": stage.tenant}))
    assert answer["outcome"] == "unknown"
    assert await used(stage, grant) == {"posted": 1, "pending": 0}
    assert [record["callId"] for record in await stage.records(type="tool.outcome_unknown")] == [answer["callId"]]


async def test_a_call_that_never_left_costs_nothing_and_may_be_tried_again(stage: Stage) -> None:
    grant = await stage.grant()
    token = await stage.token(grant)
    path = f"/tool-servers/support?tenant={stage.tenant}"
    made(await stage.api.admin_request("PATCH", path, json={"endpoint": "http://127.0.0.1:1"}))
    response = await stage.api.call(token, stage.support, "search", CASES, idempotency_key="k")
    assert response.status_code == 502
    assert "127.0.0.1" not in response.text
    assert await used(stage, grant) == {"posted": 0, "pending": 0}
    made(await stage.api.admin_request("PATCH", path, json={"endpoint": stage.tools.endpoint}))
    made(await stage.api.call(token, stage.support, "search", CASES, idempotency_key="k"))
    assert await used(stage, grant) == {"posted": 1, "pending": 0}
