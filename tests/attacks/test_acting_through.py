"""Attacks of an application that acts for a person over the API, and of whoever found a token that may only read."""

import pytest

from tests.api_client import Json, made, refused
from tests.attacks.stage import OPEN, Stage
from tests.attacks.test_apps import Desk, a_desk

pytestmark = pytest.mark.anyio

CASES: Json = {"customerId": "c_42"}


def wish(stage: Stage) -> Json:
    return {
        "audience": stage.support,
        "allowedTools": ["search"],
        "resourceConstraints": {"search": OPEN},
        "maxToolCalls": 1,
        "maxSpendCents": 1,
        "mayRedelegate": True,
    }


async def a_person_with_a_grant(stage: Stage) -> tuple[Desk, Json]:
    """Somebody that can do by its own credentials, too, what is refused to its application."""
    desk = await a_desk(stage, "grants:issue", kind="admin")
    return desk, made(await stage.api.mint(desk.person, **wish(stage)))


async def an_administrators_desk(stage: Stage) -> Desk:
    return await a_desk(stage, "admin", "grants:issue", kind="admin")


# --- authority over tools ---------------------------------------------------------------------------------


async def test_an_app_mints_nothing_with_a_persons_scope_and_the_attempt_names_it(stage: Stage) -> None:
    desk, _ = await a_person_with_a_grant(stage)
    tried = await stage.api.request("POST", "/v1/grants", await desk.token(), json=wish(stage))
    assert refused(tried, 403) == "actor_not_permitted"
    (record,) = await stage.records(type="delegation.refused")
    assert (record["clientId"], record["through"]) == (desk.person.client_id, desk.app)


@pytest.mark.parametrize("as_whom", ["holder", "administrator"])
async def test_an_app_derives_nothing_from_a_persons_grant_though_the_person_may(stage: Stage, as_whom: str) -> None:
    if as_whom == "holder":
        desk, grant = await a_person_with_a_grant(stage)
    else:
        desk, grant = await an_administrators_desk(stage), await stage.grant()
    path = f"/v1/grants/{grant['grantId']}/derive"
    tried = await stage.api.request("POST", path, await desk.token(), json={})
    assert refused(tried, 403) == "actor_not_permitted"
    (record,) = await stage.records(type="delegation.refused")
    assert (record["clientId"], record["through"]) == (desk.person.client_id, desk.app)
    made(await stage.api.derive(desk.person, grant["grantId"]))


async def test_an_app_of_an_administrator_makes_a_standing_grant_and_is_on_record(stage: Stage) -> None:
    desk = await an_administrators_desk(stage)
    path = f"/v1/admin/clients/{desk.person.client_id}/standing-grants"
    made(await stage.api.request("POST", path, await desk.token(), json=wish(stage)))
    (record,) = [one for one in await stage.records() if one.get("action") == "client.standing_grant_made"]
    assert record["through"] == desk.app


# --- what is on record ------------------------------------------------------------------------------------


async def test_a_closing_names_the_app_that_closed_and_none_where_the_person_did(stage: Stage) -> None:
    desk, grant = await a_person_with_a_grant(stage)
    child = made(await stage.api.derive(desk.person, grant["grantId"]))
    by_hand = made(await stage.api.mint(desk.person, **wish(stage)))
    made(await stage.api.request("POST", f"/v1/grants/{grant['grantId']}/close", await desk.token(), json={}))
    made(await stage.api.close(desk.person, by_hand["grantId"]))
    closings = {record["grantId"]: record for record in await stage.records(type="delegation.closed")}
    assert {record["clientId"] for record in closings.values()} == {desk.person.client_id}
    through = {grant_id: record.get("through") for grant_id, record in closings.items()}
    assert through == {grant["grantId"]: desk.app, child["grantId"]: desk.app, by_hand["grantId"]: None}


async def test_every_kind_of_administrators_record_names_the_app(stage: Stage) -> None:
    desk = await an_administrators_desk(stage)
    token = await desk.token()
    for method, path, body in (
        ("POST", "clients", {"clientId": f"{stage.tenant}-mole", "kind": "agent"}),
        ("PATCH", f"clients/{stage.planner.client_id}", {"limits": {"maxToolCalls": 1}}),
        ("POST", "resources", {"resources": [{"type": "case", "id": "1", "attributes": {}}]}),
        ("PUT", "resources/case/2", {"attributes": {}}),
        ("POST", "policies", {"text": "permit(principal, action, resource);"}),
        ("POST", "policies/v1/activate", None),
        ("PATCH", "tool-servers/support/tools/search", {"costCents": 2}),
    ):
        made(await stage.api.request(method, f"/v1/admin/{path}", token, json=body))
    acts = [one for one in await stage.records() if one.get("clientId") == desk.person.client_id and "action" in one]
    assert {one["action"] for one in acts} >= {
        "client.created",
        "resources.loaded",
        "policy.created",
        "policy.activated",
    }
    assert len(acts) == 7
    assert {one.get("through") for one in acts} == {desk.app}


async def test_a_call_that_an_app_tries_with_a_token_for_the_api_names_it(stage: Stage) -> None:
    desk, _ = await a_person_with_a_grant(stage)
    tried = await stage.api.call(await desk.token(), stage.support, "search", CASES)
    assert refused(tried, 401) == "token_invalid"
    (record,) = await stage.records(type="tool.denied")
    assert (record["clientId"], record["through"]) == (desk.person.client_id, desk.app)


# --- tokens that only read --------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["derive", "close"])
async def test_a_token_that_was_narrowed_to_reading_neither_hands_on_nor_ends_a_grant(stage: Stage, verb: str) -> None:
    grant = await stage.grant()
    reading = await stage.api.token(stage.planner, scope="grants:read")
    path = f"/v1/grants/{grant['grantId']}"
    assert made(await stage.api.request("GET", path, reading))["status"] == "active"
    tried = await stage.api.request("POST", f"{path}/{verb}", reading, json={})
    assert refused(tried, 403) == "insufficient_scope"
    assert 'scope="grants:issue"' in tried.headers["www-authenticate"]
    assert (await stage.api.grant(stage.planner, grant["grantId"]))["status"] == "active"
    issuing = await stage.api.token(stage.planner, scope="grants:issue")
    made(await stage.api.request("POST", f"{path}/{verb}", issuing, json={}))


@pytest.mark.parametrize("verb", ["derive", "close"])
async def test_an_agent_hands_on_and_ends_what_it_holds_with_the_scope_to_call_tools(stage: Stage, verb: str) -> None:
    agent = await stage.api.client(stage.tenant, f"{stage.tenant}-agent", kind="agent", scopes=["tools:call"])
    grant = await stage.grant(holder=agent.client_id)
    token = await stage.api.token(agent)
    made(await stage.api.request("POST", f"/v1/grants/{grant['grantId']}/{verb}", token, json={}))


# --- keys that a person's tokens must be bound to ---------------------------------------------------------


async def test_what_an_app_got_before_its_person_had_to_bind_tokens_is_worth_nothing(stage: Stage) -> None:
    desk = await a_desk(stage, "grants:read")
    token = await desk.token()
    made(await stage.api.request("GET", "/v1/grants", token))
    await desk.change_person(dpopRequired=True)
    assert refused(await stage.api.request("GET", "/v1/grants", token), 401) == "token_invalid"
    assert (await stage.api.introspect(stage.auditor, token)).json() == {"active": False}
