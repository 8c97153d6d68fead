"""More from a standing grant than an administrator put into it: by asking often, at once, late, or as somebody else."""

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest

from tests.api_client import ACCESS_TOKEN, DELEGATION_GRANT, GENEROUS, Json, made, refused
from tests.attacks.house import House, a_house
from tests.attacks.stage import Stage, set_stage
from tests.server_process import ServerProcess

pytestmark = pytest.mark.anyio

MANY: Final = 12


@pytest.fixture(scope="module")
def server(database_url: str) -> Iterator[ServerProcess]:
    """Two workers, which know of each other only by the store."""
    with ServerProcess(database_url, workers=2) as running:
        yield running


@pytest.fixture
async def house(stage: Stage) -> House:
    return await a_house(stage)


async def spent(house: House, grant_id: str) -> Json:
    return await house.stage.api.usage(house.agent, grant_id)


# --- its budget ---------------------------------------------------------------------------------------------


async def test_many_tokens_asked_for_at_once_share_one_budget(house: House) -> None:
    grant = await house.standing()
    tokens = await asyncio.gather(*(house.token() for _ in range(MANY)))
    assert len(set(tokens)) == MANY
    answers = await asyncio.gather(*(house.call(token) for token in tokens for _ in range(2)))
    assert [answer.status_code for answer in answers].count(200) == 5
    assert {refused(answer, 403) for answer in answers if answer.status_code != 200} == {"budget_exceeded"}
    usage = await spent(house, grant["grantId"])
    assert usage["toolCalls"] == {"posted": 5, "pending": 0}
    assert usage["spendCents"] == {"posted": 5, "pending": 0}
    assert await house.stage.is_whole()


async def test_asking_again_for_each_call_brings_no_call_more(house: House) -> None:
    await house.standing(maxToolCalls=3)
    outcomes = [(await house.call(await house.token())).status_code for _ in range(6)]
    assert outcomes == [200] * 3 + [403] * 3


async def test_what_is_left_is_all_that_a_late_token_can_ask_for(house: House) -> None:
    grant = await house.standing()
    token = await house.token()
    for _ in range(3):
        assert (await house.call(token)).status_code == 200
    late = await house.ask(authorization_details='[{"type": "delegation", "maxToolCalls": 3}]')
    assert refused(late, 400) == "not_narrower"
    (last,) = made(await house.ask())["authorization_details"]
    assert last["maxToolCalls"] == 2
    assert (await spent(house, grant["grantId"]))["toolCalls"]["posted"] == 3


async def test_subtokens_and_subgrants_spend_the_same_budget(house: House) -> None:
    await house.standing(mayRedelegate=True, maxDepth=4)
    token = await house.token(authorization_details='[{"type": "delegation", "mayRedelegate": true}]')
    api = house.stage.api
    grant = made(
        await api.exchange(house.agent, token, subject_token_type=ACCESS_TOKEN, requested_token_type=DELEGATION_GRANT)
    )["access_token"]
    below = [await api.access_token(house.agent, grant) for _ in range(3)]
    answers = [await house.call(each) for each in (token, *below, await house.token()) for _ in range(2)]
    assert [answer.status_code for answer in answers].count(200) == 5


async def test_a_new_standing_grant_is_within_the_clients_window_as_every_root_is(stage: Stage) -> None:
    limits = GENEROUS | {"windowSeconds": 86_400, "windowMaxToolCalls": 4, "windowMaxSpendCents": 100}
    house = await a_house(stage, limits=limits)
    outcomes = []
    for _ in range(3):
        grant = await house.standing(maxToolCalls=2)
        token = await house.token()
        outcomes += [(await house.call(token)).status_code for _ in range(2)]
        made(await stage.api.close(house.agent, grant["grantId"]))
    assert outcomes == [200] * 4 + [403] * 2


async def test_two_administrators_at_once_make_one(house: House) -> None:
    responses = await asyncio.gather(*(house.try_standing() for _ in range(6)))
    assert sorted(response.status_code for response in responses) == [201, 409, 409, 409, 409, 409]


# --- its end ------------------------------------------------------------------------------------------------


async def test_closing_it_ends_every_token_at_the_next_call(house: House) -> None:
    grant = await house.standing()
    tokens = [await house.token() for _ in range(3)]
    assert (await house.call(tokens[0])).status_code == 200
    made(await house.stage.api.close(house.agent, grant["grantId"]))
    for token in tokens:
        assert refused(await house.call(token), 401) == "grant_closed"
    assert refused(await house.ask(), 400) == "target_refused"


async def test_no_race_leaves_a_token_alive_below_a_closed_one(house: House) -> None:
    for _ in range(5):
        grant = await house.standing()
        asked = [asyncio.create_task(house.ask()) for _ in range(MANY)]
        made(await house.stage.api.close(house.agent, grant["grantId"]))
        for response in await asyncio.gather(*asked):
            if response.status_code != 200:
                assert refused(response, 400) == "target_refused"
                continue
            assert refused(await house.call(response.json()["access_token"]), 401) == "grant_closed"


async def test_a_disabled_clients_tokens_end_and_it_gets_no_other(house: House) -> None:
    await house.standing()
    token = await house.token()
    made(await house.stage.api.admin_request("DELETE", f"/clients/{house.agent.client_id}"))
    assert refused(await house.call(token), 401) == "grant_revoked"
    assert refused(await house.ask(), 401) == "invalid_client"


async def test_a_disabled_tool_server_is_no_target(house: House) -> None:
    await house.standing()
    path, tenant = "/tool-servers/support", {"tenant": house.stage.tenant}
    made(await house.stage.api.admin_request("DELETE", path, params=tenant))
    assert refused(await house.ask(), 400) == "target_refused"


async def test_revoking_one_token_leaves_the_others_and_their_budget(house: House) -> None:
    await house.standing()
    first, second = await house.token(), await house.token()
    assert (await house.stage.api.revoke(house.agent, first)).status_code == 200
    assert refused(await house.call(first), 401) == "grant_revoked"
    assert (await house.call(second)).status_code == 200


# --- others -------------------------------------------------------------------------------------------------


async def test_another_client_gets_nothing_by_any_name(house: House) -> None:
    """Not by asking for the same target, nor with its token, nor by its id, nor with the grant's own audience."""
    grant = await house.standing(mayRedelegate=True)
    thief = await a_house(house.stage, "thief", trusts=False)
    assert refused(await thief.ask(), 400) == "target_refused"
    token = await house.token()
    stolen = await house.stage.api.exchange(thief.agent, token, subject_token_type=ACCESS_TOKEN)
    assert refused(stolen, 400) == "actor_not_permitted"
    assert refused(await house.stage.api.derive(thief.agent, grant["grantId"]), 404) == "not_found"
    assert refused(await house.stage.api.close(thief.agent, grant["grantId"]), 404) == "not_found"
    assert refused(await thief.ask(client_id=house.agent.client_id)) in {"invalid_client", "invalid_request"}


async def test_a_neighbour_has_another_standing_grant_by_the_same_name(house: House) -> None:
    await house.standing()
    neighbour = await a_house(await set_stage(house.stage.api, house.stage.tools))
    assert refused(await neighbour.ask(resource=house.stage.support), 400) == "target_refused"


async def test_its_token_is_for_its_tool_server_and_its_tools_alone(house: House) -> None:
    await house.standing()
    token = await house.token()
    elsewhere = await house.stage.api.call(token, house.stage.billing, "search", {})
    assert refused(elsewhere, 401) == "audience_mismatch"
    assert refused(await house.stage.api.call(token, house.stage.support, "priced", {}), 403) == "tool_not_allowed"
    assert refused(await house.ask(resource=house.stage.billing), 400) == "target_refused"
    for body in ({"allowedTools": ["priced"]}, {"audience": house.stage.billing}):
        assert refused(await house.stage.api.mint(house.agent, **body), 403) == "insufficient_scope"
