"""Token exchange as an attack: others' tokens, dropped actors, regained authority, dead chains, races, neighbours.

RFC 8693 §2.1, §2.2.2, §4.1 and §4.4; RFC 7009 §2. Each test is one who has something genuine and wants more of it.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import httpx
import pytest

from tests.api_client import ACCESS_TOKEN, DELEGATION_GRANT, Credentials, Json, made, refused
from tests.attacks.stage import OPEN, SEARCH_RULE, Stage, set_stage

pytestmark = pytest.mark.anyio

CASES: Final[Json] = {"customerId": "c_42"}
ROUNDS: Final = 20


async def agent_of(stage: Stage, name: str) -> Credentials:
    return await stage.api.client(stage.tenant, f"{stage.tenant}-{name}", kind="agent", scopes=["grants:read"])


async def acting(stage: Stage, agent: Credentials) -> Json:
    """The parameters that say this agent will act."""
    return {"actor_token": await stage.api.token(agent), "actor_token_type": ACCESS_TOKEN}


async def is_dead(stage: Stage, token: str) -> bool:
    """Whether a token works nowhere: not at a tool, not to whoever looks, not for another."""
    call = await stage.api.call(token, stage.support, "search", CASES)
    seen = (await stage.api.introspect(stage.planner, token)).json()
    again = await stage.api.exchange(stage.planner, token, subject_token_type=ACCESS_TOKEN)
    return call.status_code == 401 and seen == {"active": False} and again.status_code == 400


# --- whose token is it? -------------------------------------------------------------------------------------


async def test_nobody_exchanges_what_somebody_else_holds(stage: Stage) -> None:
    """Neither as himself, nor with his own token as the actor's, nor with the holder's: who asks must be permitted."""
    thief, victim = await agent_of(stage, "thief"), await agent_of(stage, "victim")
    grant = await stage.grant(holder=victim.client_id)
    token = await stage.api.access_token(victim, grant["grant"])
    for actor in ({}, await acting(stage, thief), await acting(stage, victim)):
        for subject, kind in ((grant["grant"], DELEGATION_GRANT), (token, ACCESS_TOKEN)):
            response = await stage.api.exchange(thief, subject, subject_token_type=kind, **actor)
            assert refused(response, 400) == "actor_not_permitted"
            assert response.json()["error"] == "invalid_request"
    assert len((await stage.api.lineage(stage.planner, grant["grantId"]))["subtree"]) == 2


async def test_being_the_subject_or_a_former_actor_permits_nothing(stage: Stage) -> None:
    """`act` is history (RFC 8693 §4.1): whoever stands in it and neither issued nor holds may not exchange."""
    former, holder = await agent_of(stage, "former"), await agent_of(stage, "holder")
    grant = await stage.grant(maxDepth=3)
    first = await stage.api.access_token(
        stage.planner, grant["grant"], narrowing={"mayRedelegate": True}, **await acting(stage, former)
    )
    second = await stage.api.access_token(
        stage.planner, first, subject_token_type=ACCESS_TOKEN, **await acting(stage, holder)
    )
    act = (await stage.api.introspect(stage.planner, second)).json()["act"]
    assert (act["sub"], act["act"]["sub"]) == (holder.client_id, former.client_id)
    response = await stage.api.exchange(former, second, subject_token_type=ACCESS_TOKEN)
    assert refused(response, 400) == "actor_not_permitted"
    made(await stage.api.exchange(former, first, subject_token_type=ACCESS_TOKEN))


async def test_an_actor_that_is_left_out_is_not_forgotten(stage: Stage) -> None:
    """§4.4: what somebody acts under does not become a token without him by dropping `actor_token`."""
    agent = await agent_of(stage, "agent")
    grant = await stage.grant()
    token = await stage.api.access_token(
        stage.planner, grant["grant"], narrowing={"mayRedelegate": True}, **await acting(stage, agent)
    )
    dropped = await stage.api.access_token(stage.planner, token, subject_token_type=ACCESS_TOKEN)
    act = (await stage.api.introspect(stage.planner, dropped)).json()["act"]
    assert (act["sub"], act["act"]["sub"]) == (stage.planner.client_id, agent.client_id)


async def test_without_redelegation_no_other_actor_takes_over_and_none_is_dropped(stage: Stage) -> None:
    agent, other = await agent_of(stage, "agent"), await agent_of(stage, "other")
    grant = await stage.grant()
    token = await stage.api.access_token(stage.planner, grant["grant"], **await acting(stage, agent))
    for actor in ({}, await acting(stage, other)):
        response = await stage.api.exchange(stage.planner, token, subject_token_type=ACCESS_TOKEN, **actor)
        assert refused(response, 400) == "redelegation_denied"
    made(await stage.api.exchange(agent, token, subject_token_type=ACCESS_TOKEN))


# --- whose word is the actor's token? -------------------------------------------------------------------------


async def test_the_actor_of_a_tool_servers_token_is_who_holds_it_and_not_who_asked_for_it(stage: Stage) -> None:
    """`client_id` names who requested a token (RFC 9068 §2.2). An agent must not act in its planner's name by it."""
    agent = await agent_of(stage, "agent")
    grant = await stage.grant(maxDepth=3)
    handed_over = await stage.api.access_token(
        stage.planner, grant["grant"], narrowing={"mayRedelegate": True}, **await acting(stage, agent)
    )
    assert (await stage.api.introspect(stage.planner, handed_over)).json()["client_id"] == stage.planner.client_id
    own = await stage.api.access_token(
        agent, handed_over, subject_token_type=ACCESS_TOKEN, actor_token=handed_over, actor_token_type=ACCESS_TOKEN
    )
    assert (await stage.api.introspect(stage.planner, own)).json()["act"]["sub"] == agent.client_id


async def test_a_dead_token_speaks_for_no_actor(stage: Stage) -> None:
    """§2.2.2: an actor's token that is revoked, closed or its client's no longer is as invalid as a subject's."""
    agent = await agent_of(stage, "agent")
    grant = await stage.grant()
    revoked = await stage.api.access_token(stage.planner, grant["grant"], **await acting(stage, agent))
    made(await stage.api.revoke(stage.planner, revoked))
    closed_grant = await stage.grant(holder=agent.client_id)
    closed = await stage.api.access_token(agent, closed_grant["grant"])
    made(await stage.api.close(stage.planner, closed_grant["grantId"]))
    for dead in (revoked, closed, closed_grant["grant"], grant["grant"], "nonsense"):
        response = await stage.api.exchange(
            stage.planner, grant["grant"], actor_token=dead, actor_token_type=ACCESS_TOKEN
        )
        assert refused(response, 400) in {"grant_revoked", "grant_closed", "token_invalid"}
        assert response.json()["error"] == "invalid_request"


async def test_an_actor_of_another_tenant_acts_nowhere(stage: Stage) -> None:
    other = await set_stage(stage.api, stage.tools)
    grant = await stage.grant()
    for token in (await stage.api.token(other.planner), await other.token(await other.grant())):
        response = await stage.api.exchange(
            stage.planner, grant["grant"], actor_token=token, actor_token_type=ACCESS_TOKEN
        )
        assert refused(response, 400) == "tenant_mismatch"


# --- regaining what was given up ------------------------------------------------------------------------------

GIVEN_UP: Final[Mapping[str, tuple[Json, Json]]] = {
    "calls": ({"maxToolCalls": 2}, {"maxToolCalls": 3}),
    "spend": ({"maxSpendCents": 5}, {"maxSpendCents": 5.0001}),
    "life": ({"expiresInSeconds": 60}, {"expiresInSeconds": 300}),
    "tools": ({"allowedTools": ["search"]}, {"allowedTools": ["search", "priced"]}),
    "a tool for another": ({"allowedTools": ["search"]}, {"allowedTools": ["priced"]}),
    "a customer": (
        {"resourceConstraints": {"search": SEARCH_RULE | {"customerId": {"eq": "c_42"}}}},
        {"resourceConstraints": {"search": SEARCH_RULE | {"customerId": {"oneOf": ["c_42", "c_43"]}}}},
    ),
    "a limit": (
        {"resourceConstraints": {"search": SEARCH_RULE | {"limit": {"int": {"min": 1, "max": 2}}}}},
        {"resourceConstraints": {"search": SEARCH_RULE | {"limit": {"int": {"min": 1, "max": 3}}}}},
    ),
    "redelegation": ({"mayRedelegate": False}, {"mayRedelegate": True}),
    "depth": ({"maxDepth": 3}, {"maxDepth": 4}),
    "a tool server": ({"audience": ["{support}"]}, {"audience": ["{support}", "{billing}"]}),
    "another tool server": ({"audience": ["{support}"]}, {"audience": ["{billing}"]}),
}


def filled(stage: Stage, members: Json) -> Json:
    """With this stage's audiences."""
    if "audience" not in members:
        return members
    names = {"support": stage.support, "billing": stage.billing}
    return {"audience": [spelling.format(**names) for spelling in members["audience"]]}


async def wide_grant(stage: Stage, what: str) -> Json:
    """As wide as the second of the two wishes, or wider."""
    rule = SEARCH_RULE | {"customerId": {"oneOf": ["c_42", "c_43"]}}
    tools: Json = {"allowedTools": ["search", "priced"], "resourceConstraints": {"search": rule, "priced": OPEN}}
    if "tool server" in what:
        tools = {
            "audience": [stage.support, stage.billing],
            "allowedTools": ["support/search", "billing/search"],
            "resourceConstraints": {"support/search": rule, "billing/search": rule},
        }
    return await stage.grant(**tools, maxDepth=5, expiresInSeconds=600)


@pytest.mark.parametrize("what", GIVEN_UP)
@pytest.mark.parametrize("steps", [1, 2])
async def test_what_one_exchange_gave_up_no_later_one_regains(stage: Stage, what: str, steps: int) -> None:
    narrow, wide = (filled(stage, members) for members in GIVEN_UP[what])
    grant = await wide_grant(stage, what)
    control = await stage.api.exchange(
        stage.planner, grant["grant"], requested_token_type=DELEGATION_GRANT, narrowing=wide
    )
    assert control.is_success, control.text
    given_up = {"mayRedelegate": True} | narrow
    subject = made(
        await stage.api.exchange(
            stage.planner, grant["grant"], requested_token_type=DELEGATION_GRANT, narrowing=given_up
        )
    )["access_token"]
    if steps == 2:
        between = await stage.api.exchange(
            stage.planner, subject, requested_token_type=DELEGATION_GRANT, narrowing={"mayRedelegate": True}
        )
        if what == "redelegation":
            assert refused(between, 400) == "redelegation_denied"
            return
        subject = made(between)["access_token"]
    for kind in (DELEGATION_GRANT, ACCESS_TOKEN):
        response = await stage.api.exchange(stage.planner, subject, requested_token_type=kind, narrowing=wide)
        assert refused(response, 400) in {"not_narrower", "redelegation_denied", "target_refused", "depth_exceeded"}


async def test_what_is_left_out_is_inherited_from_the_subject_and_not_from_the_root(stage: Stage) -> None:
    grant = await stage.grant(maxDepth=5)
    narrow = {"maxToolCalls": 2, "maxSpendCents": 7, "mayRedelegate": True, "expiresInSeconds": 60, "maxDepth": 4}
    first = made(
        await stage.api.exchange(stage.planner, grant["grant"], requested_token_type=DELEGATION_GRANT, narrowing=narrow)
    )
    second = made(await stage.api.exchange(stage.planner, first["access_token"]))["authorization_details"][0]
    assert (second["maxToolCalls"], second["maxSpendCents"], second["maxDepth"]) == (2, 7, 4)
    assert second["expiresAt"] <= first["authorization_details"][0]["expiresAt"]
    assert second["resourceConstraints"] == grant["resourceConstraints"]


async def test_a_target_is_regained_by_neither_of_its_names(stage: Stage) -> None:
    grant = await wide_grant(stage, "a tool server")
    narrow = made(
        await stage.api.exchange(
            stage.planner,
            grant["grant"],
            requested_token_type=DELEGATION_GRANT,
            narrowing={"audience": [stage.support], "mayRedelegate": True},
        )
    )["access_token"]
    for parameters in ({"resource": stage.billing}, {"audience": stage.billing}):
        response = await stage.api.exchange(stage.planner, narrow, **parameters)  # type: ignore[arg-type]  # one of two
        assert (refused(response, 400), response.json()["error"]) == ("target_refused", "invalid_target")


# --- dead chains ---------------------------------------------------------------------------------------------


async def test_a_revoked_chain_is_not_extended_from_any_of_its_links(stage: Stage) -> None:
    grant = await stage.grant(maxDepth=5)
    child = made(await stage.api.derive(stage.planner, grant["grantId"], mayRedelegate=True))
    grandchild = made(await stage.api.derive(stage.planner, child["grantId"], mayRedelegate=True))
    token = await stage.token(grandchild, mayRedelegate=True)
    sibling = made(await stage.api.derive(stage.planner, grant["grantId"], mayRedelegate=True))
    assert (await stage.api.revoke(stage.planner, child["grant"])).status_code == 200
    for dead in (child, grandchild):
        for kind in (DELEGATION_GRANT, ACCESS_TOKEN):
            response = await stage.api.exchange(stage.planner, dead["grant"], requested_token_type=kind)
            assert refused(response, 400) == "grant_revoked"
        assert refused(await stage.api.derive(stage.planner, dead["grantId"]), 409) == "grant_revoked"
        itself = await stage.api.request("POST", f"/v1/grants/{dead['grantId']}/derive", dead["grant"], json={})
        assert refused(itself, 401) == "grant_revoked"
    assert await is_dead(stage, token)
    made(await stage.api.exchange(stage.planner, sibling["grant"]))
    made(await stage.api.exchange(stage.planner, grant["grant"]))


async def test_revoking_a_token_takes_what_was_exchanged_from_it_along(stage: Stage) -> None:
    grant = await stage.grant(maxDepth=5)
    tokens = [await stage.token(grant, mayRedelegate=True)]
    for _ in range(3):
        tokens.append(
            await stage.api.access_token(
                stage.planner, tokens[-1], subject_token_type=ACCESS_TOKEN, narrowing={"mayRedelegate": True}
            )
        )
    made(await stage.api.revoke(stage.planner, tokens[1]))
    assert [await is_dead(stage, token) for token in tokens] == [False, True, True, True]


@pytest.mark.parametrize("by", ["revoke", "close"])
async def test_no_race_leaves_a_token_alive_below_what_was_ended(stage: Stage, by: str) -> None:
    """Twenty times: exchanges in flight while the subject is ended. Whoever wins, after the answer nothing works."""
    for _ in range(ROUNDS):
        grant = await stage.grant(maxDepth=5)
        child = made(await stage.api.derive(stage.planner, grant["grantId"], mayRedelegate=True))
        token = await stage.token(child, mayRedelegate=True)
        exchanges = [
            asyncio.create_task(stage.api.exchange(stage.planner, subject, subject_token_type=kind))
            for subject, kind in ((child["grant"], DELEGATION_GRANT), (token, ACCESS_TOKEN)) * 3
        ]
        await end(stage, by, child)
        late = await stage.api.exchange(stage.planner, token, subject_token_type=ACCESS_TOKEN)
        assert refused(late, 400) in {"grant_revoked", "grant_closed"}
        answers = await asyncio.gather(*exchanges)
        issued = [token, *(answer.json()["access_token"] for answer in answers if answer.is_success)]
        calls = await asyncio.gather(*(stage.api.call(one, stage.support, "search", CASES) for one in issued))
        assert {call.status_code for call in calls} == {401}
        seen = await asyncio.gather(*(stage.api.introspect(stage.planner, one) for one in issued))
        assert all(one.json() == {"active": False} for one in seen)
    assert await stage.is_whole()
    assert not stage.tools.of("search", tenant=stage.tenant)


async def end(stage: Stage, by: str, grant: Json) -> httpx.Response:
    """Has it ended, in one of two ways; returns once that is answered."""
    if by == "revoke":
        response = await stage.api.revoke(stage.planner, grant["grant"])
    else:
        response = await stage.api.close(stage.planner, grant["grantId"])
    assert response.is_success
    return response


async def test_a_disabled_client_takes_part_in_no_exchange(stage: Stage) -> None:
    """Not as the client, nor as the actor, nor through what it holds or issued; and its neighbours go on."""
    agent = await agent_of(stage, "agent")
    held = await stage.grant(holder=agent.client_id, maxDepth=3)
    token = await stage.api.access_token(agent, held["grant"])
    parameters = await acting(stage, agent)
    below = made(await stage.api.derive(agent, held["grantId"], holder=stage.planner.client_id))
    own = await stage.grant()
    made(await stage.api.admin_request("PATCH", f"/clients/{agent.client_id}", json={"status": "disabled"}))
    as_client = await stage.api.exchange(agent, held["grant"])
    assert (as_client.status_code, as_client.json()["error"]) == (401, "invalid_client")
    assert refused(await stage.api.exchange(stage.planner, own["grant"], **parameters), 400)
    for subject, kind in ((held["grant"], DELEGATION_GRANT), (below["grant"], DELEGATION_GRANT), (token, ACCESS_TOKEN)):
        response = await stage.api.exchange(stage.planner, subject, subject_token_type=kind)
        assert refused(response, 400) == "grant_revoked"
    assert await is_dead(stage, token)
    api_token = await stage.api.request("GET", "/v1/grants", parameters["actor_token"])
    assert refused(api_token, 401) == "token_invalid"
    made(await stage.api.exchange(stage.planner, own["grant"]))


# --- neighbours ---------------------------------------------------------------------------------------------


async def test_the_same_names_in_two_tenants_are_two_things(stage: Stage) -> None:
    """Tool servers share their names, and so their audiences: whose is meant, the token's tenant says."""
    other = await set_stage(stage.api, stage.tools)
    assert other.support == stage.support
    ours, theirs = await stage.token(await stage.grant()), await other.token(await other.grant())
    await asyncio.gather(*(stage.api.call(token, stage.support, "search", CASES) for token in (ours, theirs)))
    assert len(stage.tools.of("search", tenant=stage.tenant)) == 1
    assert len(stage.tools.of("search", tenant=other.tenant)) == 1
    path = f"/tool-servers/support?tenant={other.tenant}"
    made(await stage.api.admin_request("PATCH", path, json={"status": "disabled"}))
    made(await stage.api.call(ours, stage.support, "search", CASES))
    assert refused(await stage.api.call(theirs, stage.support, "search", CASES), 403) == "tool_not_allowed"


async def test_a_neighbours_ids_name_nothing_here(stage: Stage) -> None:
    other = await set_stage(stage.api, stage.tools)
    grant = await other.grant(childRunId="run_of_both")
    token = await other.token(grant)
    api_token = await stage.api.token_of(stage.planner)
    for verb in ("derive", "close"):
        response = await stage.api.request("POST", f"/v1/grants/{grant['grantId']}/{verb}", api_token, json={})
        assert response.status_code == 404
    for subject, kind in ((grant["grant"], DELEGATION_GRANT), (token, ACCESS_TOKEN)):
        response = await stage.api.exchange(stage.planner, subject, subject_token_type=kind)
        assert refused(response, 400) == "tenant_mismatch"
        assert (await stage.api.introspect(stage.planner, subject)).json() == {"active": False}
        made(await stage.api.revoke(stage.planner, subject))
    assert (await other.api.introspect(other.planner, token)).json()["active"]
    assert (await stage.grant(childRunId="run_of_both"))["childRunId"] == "run_of_both"
    assert refused(await stage.api.mint(stage.planner, holder=other.planner.client_id), 403)


async def test_a_clients_name_is_taken_once_for_all_tenants(stage: Stage) -> None:
    """A token's `client_id` must not mean another client elsewhere."""
    other = await set_stage(stage.api, stage.tools)
    body = {"clientId": stage.planner.client_id, "tenantId": other.tenant, "kind": "agent", "scopes": []}
    response = await stage.api.admin_request("POST", "/clients", json=body)
    assert response.status_code == 409


async def test_an_idempotency_key_of_a_neighbour_brings_nobody_its_result(stage: Stage) -> None:
    other = await set_stage(stage.api, stage.tools)
    answers = [
        made(
            await one.api.call(await one.token(await one.grant()), one.support, "search", CASES, idempotency_key="key")
        )
        for one in (stage, other)
    ]
    assert answers[0]["callId"] != answers[1]["callId"]
    assert len(stage.tools.of("search", tenant=other.tenant)) == 1
