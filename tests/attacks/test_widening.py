"""Asking for more: every member of a grant, at mint, derive and exchange, by every caller who should not."""

import json

import pytest

from tests.api_client import ACCESS_TOKEN, DELEGATION_GRANT, Json, made, refused
from tests.attacks.stage import OPEN, SEARCH_RULE, Stage, set_stage

pytestmark = pytest.mark.anyio

WIDENINGS: dict[str, tuple[Json, str]] = {
    "more calls": ({"maxToolCalls": 6}, "not_narrower"),
    "more spend": ({"maxSpendCents": 100.01}, "not_narrower"),
    "a longer life": ({"expiresInSeconds": 3600}, "not_narrower"),
    "another tool": ({"allowedTools": ["search", "fail"]}, "not_narrower"),
    "another customer": (
        {"allowedTools": ["search"], "resourceConstraints": {"search": SEARCH_RULE | {"customerId": {"eq": "c_43"}}}},
        "not_narrower",
    ),
    "any customer": (
        {"resourceConstraints": {"search": SEARCH_RULE | {"customerId": {"any": True}}}},
        "not_narrower",
    ),
    "an argument more": (
        {"resourceConstraints": {"search": SEARCH_RULE | {"everything": {"any": True}}}},
        "not_narrower",
    ),
    "any arguments": ({"resourceConstraints": {"search": OPEN}}, "not_narrower"),
    "a wider limit": (
        {"resourceConstraints": {"search": SEARCH_RULE | {"limit": {"int": {"min": 1, "max": 6}}}}},
        "not_narrower",
    ),
    "its tenant chosen": (
        {"resourceConstraints": {"search": SEARCH_RULE | {"tenant": {"eq": "globex"}}}},
        "narrowing_unprovable",
    ),
    "another tenant": ({"tenantId": "globex"}, "tenant_mismatch"),
    "more depth": ({"maxDepth": 9}, "depth_exceeded"),
}


@pytest.mark.parametrize("what", WIDENINGS)
async def test_a_derivation_that_asks_for_more_is_refused_and_changes_nothing(stage: Stage, what: str) -> None:
    members, reason = WIDENINGS[what]
    grant = await stage.grant()
    response = await stage.api.derive(stage.planner, grant["grantId"], **members)
    # A bound argument may not be restated as anything else; which of the two words says so is the prover's.
    assert refused(response, 403) in {reason, "not_narrower"}
    assert len((await stage.api.lineage(stage.planner, grant["grantId"]))["subtree"]) == 1
    assert (await stage.reasons(grant["grantId"]))[-1] == refused(response)


@pytest.mark.parametrize("what", WIDENINGS)
async def test_an_exchange_that_asks_for_more_is_refused(stage: Stage, what: str) -> None:
    members, reason = WIDENINGS[what]
    grant = await stage.grant()
    for kind in (ACCESS_TOKEN, DELEGATION_GRANT):
        response = await stage.api.exchange(stage.planner, grant["grant"], requested_token_type=kind, narrowing=members)
        assert refused(response, 400) in {reason, "not_narrower"}


async def test_a_token_exchanged_again_can_not_regain_what_it_gave_up(stage: Stage) -> None:
    token = await stage.token(await stage.grant(), maxToolCalls=2, maxSpendCents=5)
    for members in ({"maxToolCalls": 3}, {"maxSpendCents": 6}, {"mayRedelegate": True}):
        response = await stage.api.exchange(stage.planner, token, subject_token_type=ACCESS_TOKEN, narrowing=members)
        assert refused(response, 400) in {"not_narrower", "redelegation_denied"}


async def test_depth_is_bounded(stage: Stage) -> None:
    grant = await stage.grant(maxDepth=2)
    child = made(await stage.api.derive(stage.planner, grant["grantId"], mayRedelegate=True))
    grandchild = made(await stage.api.derive(stage.planner, child["grantId"], mayRedelegate=True))
    assert (child["depth"], grandchild["depth"]) == (1, 2)
    assert refused(await stage.api.derive(stage.planner, grandchild["grantId"]), 403) == "depth_exceeded"


@pytest.mark.parametrize(
    "members, pointer",
    [
        ({"audience": "https://elsewhere.example"}, "/audience"),
        ({"maxToolCalls": 11}, "/maxToolCalls"),
        ({"maxSpendCents": 101}, "/maxSpendCents"),
        ({"expiresInSeconds": 601}, "/expiresAt"),
        ({"allowedTools": ["fail"], "resourceConstraints": {}}, "/allowedTools"),
        ({"subject": "user:ada"}, "/subject"),
        ({"maxDepth": 3}, "/maxDepth"),
        ({"holder": "nobody"}, "/holder"),
    ],
)
async def test_a_root_beyond_its_clients_limits_is_refused(stage: Stage, members: Json, pointer: str) -> None:
    limits = {
        "audiences": [stage.support],
        "allowedTools": ["search"],
        "maxToolCalls": 10,
        "maxSpendCents": 100,
        "maxLifetimeSeconds": 600,
        "maxDepth": 2,
    }
    path = f"/clients/{stage.planner.client_id}"
    made(await stage.api.admin_request("PATCH", path, json={"limits": limits}))
    wish = {"audience": stage.support, "allowedTools": ["search"], "maxToolCalls": 10} | members
    response = await stage.api.mint(stage.planner, **wish)
    assert response.status_code == 403
    assert response.json()["pointer"] == pointer


async def test_a_grant_of_nothing_is_what_an_empty_wish_gets(stage: Stage) -> None:
    grant = made(await stage.api.mint(stage.planner))
    assert (grant["allowedTools"], grant["maxToolCalls"], grant["maxSpendCents"]) == ([], 0, 0)
    assert not grant["mayRedelegate"]


async def test_only_holder_and_issuers_may_exchange_or_derive(stage: Stage) -> None:
    stranger = await stage.api.client(stage.tenant, f"{stage.tenant}-stranger")
    agent = await stage.api.client(stage.tenant, f"{stage.tenant}-agent", kind="agent", scopes=["grants:read"])
    grant = await stage.grant(holder=agent.client_id)
    assert refused(await stage.api.exchange(stranger, grant["grant"]), 400) == "actor_not_permitted"
    assert (await stage.api.derive(stranger, grant["grantId"])).status_code == 404
    made(await stage.api.exchange(agent, grant["grant"]))
    made(await stage.api.derive(agent, grant["grantId"]))


async def test_another_tenant_sees_nothing_and_gets_nothing(stage: Stage, tool_server: object) -> None:
    other = await set_stage(stage.api, stage.tools)
    grant = await stage.grant()
    token = await stage.token(grant)
    assert refused(await stage.api.exchange(other.planner, grant["grant"]), 400) == "tenant_mismatch"
    for path in ("", "/lineage"):
        url = f"/v1/grants/{grant['grantId']}{path}"
        response = await stage.api.request("GET", url, await stage.api.token_of(other.planner))
        assert response.status_code == 404
    assert (await stage.api.close(other.planner, grant["grantId"])).status_code == 404
    assert (await stage.api.introspect(other.planner, token)).json() == {"active": False}
    made(await stage.api.revoke(other.planner, token))
    made(await stage.api.call(token, stage.support, "search", {"customerId": "c_42"}))
    listed = await stage.api.request("GET", "/v1/grants", await stage.api.token_of(other.auditor))
    assert grant["grantId"] not in listed.text
    assert grant["grantId"] not in str(await other.records())
    foreign = await stage.api.request(
        "GET", "/v1/audit/records", await stage.api.token_of(other.auditor), params={"tenant": stage.tenant}
    )
    assert refused(foreign, 403) == "tenant_mismatch"


async def test_disabling_whoever_a_grant_rests_on_stops_it_at_the_next_call(stage: Stage) -> None:
    token = await stage.token(await stage.grant())
    call = {"customerId": "c_42"}
    things = {
        f"/tool-servers/support?tenant={stage.tenant}": "tool_not_allowed",
        f"/clients/{stage.planner.client_id}": "grant_revoked",
        f"/tenants/{stage.tenant}": "grant_revoked",
    }
    for path, reason in things.items():
        made(await stage.api.admin_request("PATCH", path, json={"status": "disabled"}))
        assert refused(await stage.api.call(token, stage.support, "search", call)) == reason
        made(await stage.api.admin_request("PATCH", path, json={"status": "active"}))
        made(await stage.api.call(token, stage.support, "search", call))


async def test_an_actor_is_rebuilt_from_the_lineage_and_named_by_its_own_token(stage: Stage) -> None:
    agent = await stage.api.client(stage.tenant, f"{stage.tenant}-agent", kind="agent", scopes=["grants:read"])
    grant = await stage.grant(childRunId=f"{stage.tenant}-run-1")
    token = await stage.api.access_token(
        stage.planner,
        grant["grant"],
        narrowing={"childRunId": f"{stage.tenant}-run-2"},
        actor_token=await stage.api.token(agent),
        actor_token_type=ACCESS_TOKEN,
    )
    seen = (await stage.api.introspect(stage.planner, token)).json()
    assert seen["act"] == {
        "sub": agent.client_id,
        "run": f"{stage.tenant}-run-2",
        "act": {"sub": stage.planner.client_id, "run": f"{stage.tenant}-run-1"},
    }
    assert seen["sub"] == stage.planner.client_id


async def test_a_run_is_claimed_once(stage: Stage) -> None:
    run = f"{stage.tenant}-run"
    await stage.grant(childRunId=run)
    again = await stage.api.mint(stage.planner, childRunId=run)
    assert again.status_code == 409


async def test_a_key_bound_token_is_refused_rather_than_issued_unbound(stage: Stage) -> None:
    response = await stage.api.exchange(stage.planner, (await stage.grant())["grant"], dpop_jkt="thumbprint")
    assert response.json()["error"] == "invalid_request"


async def test_two_details_an_unknown_type_or_field_are_refused(stage: Stage) -> None:
    grant = await stage.grant()
    one = {"type": "delegation"}
    unusable: list[object] = [[], [one, one], [{"type": "other"}], [one | {"plan": {}}], [{"maxToolCalls": 1}], {}, 1]
    for details in unusable:
        text = json.dumps(details)
        response = await stage.api.exchange(stage.planner, grant["grant"], authorization_details=text)
        assert response.json()["error"] == "invalid_authorization_details"
    twice = '[{"type": "delegation", "maxToolCalls": 1, "max\\u0054oolCalls": 5}]'
    response = await stage.api.exchange(stage.planner, grant["grant"], authorization_details=twice)
    assert response.json()["error"] == "invalid_authorization_details"
