"""The demo's nine attempts, over HTTP against a real server: each refused for its reason, and on record."""

import pytest

from tests.api_client import DELEGATION_GRANT, made, refused
from tests.attacks.stage import SEARCH_RULE, Stage

pytestmark = pytest.mark.anyio

CASES = {"customerId": "c_42"}


async def test_the_permitted_call_succeeds_with_its_tenant_filled_in(stage: Stage) -> None:
    grant = await stage.grant()
    answer = made(await stage.api.call(await stage.token(grant), stage.support, "search", CASES))
    assert answer["decision"] == "allow"
    assert answer["outcome"] == "success"
    assert stage.tools.requests[-1].arguments == CASES | {"tenant": stage.tenant}


async def test_a_tool_that_was_not_granted_is_refused(stage: Stage) -> None:
    grant = await stage.grant()
    token = await stage.token(grant)
    assert refused(await stage.api.call(token, stage.support, "fail", {}), 403) == "tool_not_allowed"
    assert refused(await stage.api.call(token, stage.support, "no_such_tool", {}), 403) == "tool_not_allowed"
    assert not stage.tools.of("fail", tenant=stage.tenant)
    assert await stage.is_whole()


async def test_another_tenants_customer_is_refused(stage: Stage) -> None:
    token = await stage.token(await stage.grant())
    other = CASES | {"tenant": "globex"}
    assert refused(await stage.api.call(token, stage.support, "search", other), 403) == "resource_out_of_scope"
    assert not stage.tools.of("search", tenant="globex")


async def test_another_customers_case_is_refused(stage: Stage) -> None:
    token = await stage.token(await stage.grant())
    other = {"customerId": "c_43"}
    assert refused(await stage.api.call(token, stage.support, "search", other), 403) == "resource_out_of_scope"
    assert not stage.tools.of("search", customerId="c_43", tenant=stage.tenant)


async def test_another_audience_is_refused_at_the_exchange(stage: Stage) -> None:
    grant = await stage.grant()
    response = await stage.api.exchange(stage.planner, grant["grant"], resource=stage.billing)
    assert refused(response, 400) == "target_refused"
    assert response.json()["error"] == "invalid_target"


async def test_its_token_at_another_tool_server_is_refused(stage: Stage) -> None:
    token = await stage.token(await stage.grant())
    response = await stage.api.call(token, stage.billing, "search", CASES)
    assert refused(response, 401) == "audience_mismatch"
    assert 'error="invalid_token"' in response.headers["www-authenticate"]


async def test_redelegation_is_refused_by_every_way_to_it(stage: Stage) -> None:
    grant = await stage.grant(mayRedelegate=False)
    token = await stage.token(grant)
    as_grant = await stage.api.exchange(
        stage.planner, grant["grant"], requested_token_type=DELEGATION_GRANT, narrowing={"childRunId": "run_mine"}
    )
    assert refused(as_grant, 400) == "redelegation_denied"
    for_another_run = await stage.api.exchange(stage.planner, grant["grant"], narrowing={"childRunId": "run_mine"})
    assert refused(for_another_run, 400) == "redelegation_denied"
    node = (await stage.api.lineage(stage.planner, grant["grantId"]))["subtree"][1]["grantId"]
    derived = await stage.api.request("POST", f"/v1/grants/{node}/derive", token, json={})
    assert refused(derived, 403) == "redelegation_denied"
    upwards = await stage.api.request("POST", f"/v1/grants/{grant['grantId']}/derive", token, json={})
    assert refused(upwards, 403) == "actor_not_permitted"


async def test_more_calls_than_it_has_are_refused(stage: Stage) -> None:
    grant = await stage.grant()
    token = await stage.token(grant, maxToolCalls=2)
    for _ in range(2):
        made(await stage.api.call(token, stage.support, "search", CASES))
    assert refused(await stage.api.call(token, stage.support, "search", CASES), 403) == "budget_exceeded"
    assert (await stage.api.usage(stage.planner, grant["grantId"]))["toolCalls"] == {"posted": 2, "pending": 0}


async def test_a_call_after_expiry_is_refused(stage: Stage) -> None:
    grant = await stage.grant(expiresInSeconds=3)
    token = await stage.token(grant)
    reason = "none"
    while reason == "none":  # bounded by the test's time-out; the grant lives for three seconds
        response = await stage.api.call(token, stage.support, "search", CASES)
        reason = "none" if response.is_success or response.status_code == 403 else refused(response, 401)
    # The moment may come between the look at the token and the decision; after it there is no doubt.
    assert reason in {"token_expired", "grant_expired"}
    assert refused(await stage.api.call(token, stage.support, "search", CASES), 401) == "token_expired"
    assert (await stage.records(type="tool.denied"))[-1]["reason"] == "token_expired"
    assert refused(await stage.api.call(grant["grant"], stage.support, "search", CASES), 401) == "grant_expired"


async def test_a_call_after_cancellation_is_refused(stage: Stage) -> None:
    grant = await stage.grant()
    token = await stage.token(grant)
    made(await stage.api.call(token, stage.support, "search", CASES))
    made(await stage.api.close(stage.planner, grant["grantId"], "cancelled"))
    assert refused(await stage.api.call(token, stage.support, "search", CASES), 401) == "grant_closed"
    assert refused(await stage.api.exchange(stage.planner, grant["grant"]), 400) == "grant_closed"
    assert refused(await stage.api.derive(stage.planner, grant["grantId"]), 409) == "grant_closed"
    assert made(await stage.api.close(stage.planner, grant["grantId"]))["closedGrants"] == []


async def test_every_attempt_is_on_record_with_its_reason_and_without_its_arguments(stage: Stage) -> None:
    grant = await stage.grant(resourceConstraints={"search": SEARCH_RULE | {"note": {"str": {}, "optional": True}}})
    token = await stage.token(grant)
    secret = "tell-nobody-0451"
    await stage.api.call(token, stage.support, "search", CASES | {"note": secret})
    await stage.api.call(token, stage.support, "search", CASES | {"note": secret, "limit": 99})
    await stage.api.call(token, stage.support, "search", CASES | {secret: 1})
    records = await stage.records()
    assert [record["reason"] for record in records if record.get("decision") == "deny"] == [
        "resource_out_of_scope",
        "argument_invalid",
    ]
    everything = str(records)
    assert secret not in everything
    assert token not in everything
    assert token.rpartition(".")[2] not in everything
    assert await stage.is_whole()
