"""Who acts for whom, through chains of delegation: told by the server's own record, whatever anybody claims.

RFC 8693 §4.1: `act` is the current actor, with the former ones nested inside, of their identity alone.
"""

import json
from collections.abc import Iterator
from typing import Final

import pytest

from tests.api_client import ACCESS_TOKEN, DELEGATION_GRANT, Credentials, Json, made, refused
from tests.attacks.forger import unb64
from tests.attacks.stage import Stage

pytestmark = pytest.mark.anyio

CASES: Final[Json] = {"customerId": "c_42"}
AGENTS: Final = 6


def claims_of(token: str) -> Json:
    decoded: Json = json.loads(unb64(token.split(".")[1]))
    return decoded


def links_of(act: Json) -> Iterator[Json]:
    """The actors of a chain, the current one first, each without those before it."""
    while True:
        yield {name: value for name, value in act.items() if name != "act"}
        if "act" not in act:
            return
        act = act["act"]


async def agents_of(stage: Stage, count: int) -> list[Credentials]:
    return [
        await stage.api.client(stage.tenant, f"{stage.tenant}-agent-{n}", kind="agent", scopes=["grants:read"])
        for n in range(count)
    ]


async def handed_on(stage: Stage, giver: Credentials, subject: str, taker: Credentials, run: str) -> Json:
    """A grant exchanged for another actor's, in a run of its own."""
    return made(
        await stage.api.exchange(
            giver,
            subject,
            requested_token_type=DELEGATION_GRANT,
            narrowing={"mayRedelegate": True, "childRunId": run},
            actor_token=await stage.api.token(taker),
            actor_token_type=ACCESS_TOKEN,
        )
    )


async def test_a_chain_of_actors_is_the_lineage_link_by_link(stage: Stage) -> None:
    agents = await agents_of(stage, AGENTS)
    grant = await stage.grant(maxDepth=AGENTS, childRunId="run_root")
    subject, giver = grant["grant"], stage.planner
    expected = [{"sub": stage.planner.client_id, "run": "run_root"}]
    for number, agent in enumerate(agents):
        subject = (await handed_on(stage, giver, subject, agent, f"run_{number}"))["access_token"]
        giver = agent
        expected.insert(0, {"sub": agent.client_id, "run": f"run_{number}"})
        assert list(links_of(claims_of(subject)["act"])) == expected
    token = await stage.api.access_token(giver, subject)
    assert list(links_of(claims_of(token)["act"])) == expected
    seen = (await stage.api.introspect(stage.planner, token)).json()
    assert list(links_of(seen["act"])) == expected
    assert seen["sub"] == stage.planner.client_id
    made(await stage.api.call(token, stage.support, "search", CASES))
    # The chain is as deep as the root allowed.
    deeper = await stage.api.exchange(
        giver, subject, requested_token_type=DELEGATION_GRANT, narrowing={"childRunId": "run_too_deep"}
    )
    assert refused(deeper, 400) == "depth_exceeded"


async def test_an_actor_says_who_it_is_and_nothing_that_a_token_says_of_itself(stage: Stage) -> None:
    """§4.1: exp, nbf and aud inside `act` are not meaningful, so that nobody must wonder which of them hold."""
    (agent,) = await agents_of(stage, 1)
    grant = await stage.grant()
    subject = await handed_on(stage, stage.planner, grant["grant"], agent, "run_of_agent")
    token = await stage.api.access_token(agent, subject["access_token"])
    for act in (claims_of(token)["act"], claims_of(subject["access_token"])["act"]):
        assert all(link.keys() == {"sub", "run"} for link in links_of(act))


async def test_no_parameter_and_no_field_writes_history(stage: Stage) -> None:
    grant = await stage.grant()
    forged = {"sub": "mallory", "act": {"sub": "root"}}
    for field in ("act", "may_act", "actor", "subject", "sub", "holder", "issuedBy", "parentRunId", "parentGrantId"):
        response = await stage.api.exchange(stage.planner, grant["grant"], narrowing={field: forged})
        assert (refused(response, 400), response.json()["error"]) == (
            "invalid_authorization_details",
            "invalid_authorization_details",
        )
        body = {"audience": stage.support, field: forged}
        token = await stage.api.token_of(stage.planner)
        derived = await stage.api.request("POST", f"/v1/grants/{grant['grantId']}/derive", token, json=body)
        assert refused(derived, 422) == "malformed"
    response = await stage.api.exchange(stage.planner, grant["grant"], act=json.dumps(forged), may_act="mallory")
    act = claims_of(made(response)["access_token"])["act"]
    assert [link["sub"] for link in links_of(act)] == [stage.planner.client_id]


async def test_the_history_of_an_actors_own_token_is_not_mixed_in(stage: Stage) -> None:
    """The agent's token stands under another chain; what it says of that chain is not this one's."""
    agent, stranger = await agents_of(stage, 2)
    elsewhere = await stage.grant(childRunId="run_elsewhere")
    other = await handed_on(stage, stage.planner, elsewhere["grant"], stranger, "run_of_stranger")
    for_agent = await handed_on(stage, stranger, other["access_token"], agent, "run_of_agent")
    agents_token = await stage.api.access_token(agent, for_agent["access_token"])
    assert len(list(links_of(claims_of(agents_token)["act"]))) == 3
    grant = await stage.grant(childRunId="run_here")
    token = await stage.api.access_token(
        stage.planner, grant["grant"], actor_token=agents_token, actor_token_type=ACCESS_TOKEN
    )
    assert list(links_of(claims_of(token)["act"])) == [
        {"sub": agent.client_id, "run": "run_here"},
        {"sub": stage.planner.client_id, "run": "run_here"},
    ]


async def test_a_chain_can_not_be_cut_by_presenting_an_earlier_link(stage: Stage) -> None:
    """The parent's own token gives the parent's authority and history: the child is never left out of its own."""
    agent, other = await agents_of(stage, 2)
    grant = await stage.grant()
    child = await handed_on(stage, stage.planner, grant["grant"], agent, "run_of_agent")
    assert refused(await stage.api.exchange(agent, grant["grant"]), 400) == "actor_not_permitted"
    grandchild = await handed_on(stage, agent, child["access_token"], other, "run_of_other")
    assert refused(await stage.api.exchange(other, child["access_token"]), 400) == "actor_not_permitted"
    subs = [link["sub"] for link in links_of(claims_of(grandchild["access_token"])["act"])]
    assert subs == [other.client_id, agent.client_id, stage.planner.client_id]


async def test_every_call_is_on_record_under_its_place_in_the_chain(stage: Stage) -> None:
    (agent,) = await agents_of(stage, 1)
    grant = await stage.grant(childRunId="run_root")
    child = await handed_on(stage, stage.planner, grant["grant"], agent, "run_of_agent")
    token = await stage.api.access_token(agent, child["access_token"])
    answer = made(await stage.api.call(token, stage.support, "search", CASES))
    records = await stage.records(callId=answer["callId"])
    assert {record["actor"] for record in records} == {agent.client_id}
    assert {record["runId"] for record in records} == {"run_of_agent"}
    assert {record["rootGrantId"] for record in records} == {grant["grantId"]}
    assert {record["subject"] for record in records} == {stage.planner.client_id}
