"""Lying about facts: whose a thing is, what a policy permits, what may be seen. On real servers and both stores."""

import secrets

import pytest

from tests.api_client import ACCESS_TOKEN, Json, made, refused
from tests.attacks.stage import Stage, set_stage
from tests.server_process import ServerProcess
from tests.tool_server import Owned

pytestmark = pytest.mark.anyio

CASE: Json = {"caseId": {"resource": "case"}}
PERMIT = "permit (principal, action, resource);"
BROKEN = f"""{PERMIT}
@id("overflows")
permit (principal, action, resource) when {{ resource.maxCostUcents * 9223372036854775807 > 0 }};
"""
ONLY_EU = """
permit (principal, action, resource)
when { context has resource && context.resource.hasTag("region") && context.resource.getTag("region") == "eu" };
"""


async def on_record(stage: Stage, case: str, tenant: str | None = None, **attributes: object) -> None:
    path = f"/resources/case/{case}"
    body: Json = {"tenantId": tenant or stage.tenant, "attributes": attributes}
    made(await stage.api.admin_request("PUT", path, json=body))


async def token_under(stage: Stage, rule: Json, **members: object) -> str:
    grant = await stage.grant(resourceConstraints={"search": rule}, maxToolCalls=50, **members)
    return await stage.token(grant)


async def activated(stage: Stage, text: str, **members: object) -> str:
    """A new version of the tenant's policies, active from now on."""
    body: Json = {"tenantId": stage.tenant, "text": text, **members}
    version = str(made(await stage.api.admin_request("POST", "/policies", json=body))["version"])
    made(await stage.api.admin_request("POST", f"/policies/{version}/activate", params={"tenant": stage.tenant}))
    return version


# --- whose a thing is -------------------------------------------------------------------------------------


async def test_another_tenants_thing_is_out_of_reach_whatever_the_caller_says(stage: Stage) -> None:
    other = await set_stage(stage.api, stage.tools)
    await on_record(stage, "c_1")
    await on_record(stage, "c_9", other.tenant)
    token = await token_under(stage, CASE | {"tenantId": {"any": True, "optional": True}})
    assert made(await stage.api.call(token, stage.support, "search", {"caseId": "c_1"}))
    for arguments in (
        {"caseId": "c_9"},
        {"caseId": "c_9", "tenantId": other.tenant},
        {"caseId": "c_404"},
        {"caseId": "c_1 "},
        {"caseId": "C_1"},
        {"caseId": "c_1\u0000"},
        {"caseId": f"{other.tenant}/c_9"},
    ):
        response = await stage.api.call(token, stage.support, "search", arguments)
        assert refused(response, 403) == "resource_out_of_scope"
        assert response.json()["detail"] == 'argument "caseId" names no case that the grant reaches'
    assert [request.arguments for request in stage.tools.of("search", caseId="c_9")] == []


async def test_a_tool_servers_own_record_decides_and_its_silence_refuses(stage: Stage) -> None:
    resolver = {"path": "/resources", "types": ["case"], "cacheSeconds": 0}
    path, where = "/tool-servers/support", {"tenant": stage.tenant}
    made(await stage.api.admin_request("PATCH", path, json={"resolver": resolver}, params=where))
    await on_record(stage, "in_the_directory")
    mine, theirs = (f"c_{secrets.token_hex(4)}" for _ in range(2))
    stage.tools.owners |= {("case", mine): Owned(stage.tenant), ("case", theirs): Owned("globex")}
    token = await token_under(stage, CASE)
    assert made(await stage.api.call(token, stage.support, "search", {"caseId": mine}))
    for case in (theirs, "in_the_directory"):
        response = await stage.api.call(token, stage.support, "search", {"caseId": case})
        assert refused(response, 403) == "resource_out_of_scope"
    stage.tools.resolver_status = 500
    try:
        response = await stage.api.call(token, stage.support, "search", {"caseId": mine})
    finally:
        stage.tools.resolver_status = 200
    assert refused(response, 403) == "resource_out_of_scope"
    assert (await stage.records(decision="deny"))[-1]["resolverFailed"] is True


async def test_a_child_that_lists_things_lists_only_what_is_on_record(stage: Stage) -> None:
    await on_record(stage, "c_1")
    grant = await stage.grant(resourceConstraints={"search": CASE})
    for listed, reason in ((["c_1"], None), (["c_1", "c_404"], "not_narrower")):
        narrowing: Json = {"resourceConstraints": {"search": {"caseId": {"oneOf": listed}}}}
        derived = await stage.api.derive(stage.planner, grant["grantId"], **narrowing)
        exchanged = await stage.api.exchange(stage.planner, grant["grant"], narrowing=narrowing)
        assert (None if derived.is_success else refused(derived)) == reason
        assert (None if exchanged.is_success else refused(exchanged)) == reason


# --- what a policy permits --------------------------------------------------------------------------------


async def test_a_policy_holds_every_call_to_what_is_on_record(stage: Stage) -> None:
    await on_record(stage, "c_eu", region="eu")
    await on_record(stage, "c_us", region="us")
    early = await token_under(stage, CASE)
    await activated(stage, ONLY_EU)
    late = await token_under(stage, CASE)
    for token in (early, late):
        assert made(await stage.api.call(token, stage.support, "search", {"caseId": "c_eu"}))
        response = await stage.api.call(token, stage.support, "search", {"caseId": "c_us"})
        assert refused(response, 403) == "policy_denied"
    await activated(stage, PERMIT)
    assert made(await stage.api.call(early, stage.support, "search", {"caseId": "c_us"}))
    # What is pinned is not loosened by what is activated later.
    assert refused(await stage.api.call(late, stage.support, "search", {"caseId": "c_us"}), 403) == "policy_denied"


@pytest.mark.parametrize("rule", [{"caseId": {"eq": "c_us"}}, {"caseId": {"prefix": "c_"}}, {"*": {"any": True}}])
async def test_no_constraint_hides_a_thing_from_the_tenants_policies(stage: Stage, rule: Json) -> None:
    await on_record(stage, "c_us", region="us")
    where, path = {"tenant": stage.tenant}, "/tool-servers/support/tools/search"
    schema = {"type": "object", "properties": {"caseId": {}}}
    members = {"inputSchema": schema, "resourceArguments": {"caseId": "case"}}
    made(await stage.api.admin_request("PATCH", path, json=members, params=where))
    await activated(stage, ONLY_EU)
    token = await token_under(stage, rule)
    response = await stage.api.call(token, stage.support, "search", {"caseId": "c_us"})
    assert refused(response, 403) == "policy_denied"


async def test_a_policy_that_fails_denies_though_another_permits_and_is_on_record(stage: Stage) -> None:
    token = await token_under(stage, CASE)
    await on_record(stage, "c_1")
    version = await activated(stage, BROKEN)
    response = await stage.api.call(token, stage.support, "search", {"caseId": "c_1"})
    assert refused(response, 403) == "policy_denied"
    last = (await stage.records(decision="deny"))[-1]
    assert last["policyVersions"] == ["v0", version]
    assert len(last["policyErrors"]) == 1


async def test_a_policy_whose_cases_fail_is_not_activated(stage: Stage) -> None:
    cases = [{"name": "anything goes", "expect": "permit", "call": {}}]
    body: Json = {"tenantId": stage.tenant, "text": ONLY_EU, "cases": cases}
    version = made(await stage.api.admin_request("POST", "/policies", json=body))["version"]
    where = {"tenant": stage.tenant}
    response = await stage.api.admin_request("POST", f"/policies/{version}/activate", params=where)
    assert refused(response, 409) == "conflict"
    assert made(await stage.api.admin_request("GET", f"/tenants/{stage.tenant}"))["policyVersion"] == "v0"


async def test_no_caller_chooses_the_version(stage: Stage) -> None:
    response = await stage.api.mint(stage.planner, audience=stage.support, policyVersion="v0")
    assert response.status_code == 422


# --- what may be seen -------------------------------------------------------------------------------------

SHOWN: Json = {"search": ["$.arguments.caseId"]}


async def test_what_is_withheld_is_nowhere(stage: Stage, server: ServerProcess) -> None:
    secret = f"card-{secrets.token_hex(8)}"
    rule: Json = {"caseId": {"str": {}}, "card": {"str": {}}}
    token = await token_under(stage, rule, resultProjection=SHOWN)
    arguments = {"caseId": "c_1", "card": secret}
    for _ in range(2):
        answer = made(await stage.api.call(token, stage.support, "search", arguments, idempotency_key="again"))
        assert answer["result"] == {"arguments": {"caseId": "c_1"}}
        assert secret not in str(answer)
    assert len(stage.tools.of("search", card=secret)) == 1
    assert secret not in str(await stage.records())
    assert secret not in server.stdout + server.stderr


async def test_a_tools_words_about_its_failure_are_withheld(stage: Stage) -> None:
    grant = await stage.open_grant("fail", resultProjection={"fail": ["$.status"]})
    answer = made(await stage.api.call(await stage.token(grant), stage.support, "fail", {}))
    assert answer["outcome"] == "tool_error"
    assert "busy" not in str(answer)


@pytest.mark.parametrize("wider", [["$"], ["$.arguments"], ["$.arguments.card"], ["$[*]"], ["$.arguments[*]"]])
async def test_no_child_sees_more_than_its_parent(stage: Stage, wider: list[str]) -> None:
    rule: Json = {"caseId": {"str": {}}, "card": {"str": {}}}
    grant = await stage.grant(resourceConstraints={"search": rule}, resultProjection=SHOWN)
    narrowing = {"resultProjection": {"search": wider}}
    assert refused(await stage.api.derive(stage.planner, grant["grantId"], **narrowing), 403) == "not_narrower"
    token = await stage.token(grant)
    for subject, kind in ((grant["grant"], {}), (token, {"subject_token_type": ACCESS_TOKEN})):
        response = await stage.api.exchange(stage.planner, subject, narrowing=narrowing, **kind)
        assert refused(response, 400) == "not_narrower"


async def test_a_catalogue_is_its_holders_and_shows_nothing_that_is_refused(stage: Stage) -> None:
    grant = await stage.grant()
    other = await set_stage(stage.api, stage.tools)
    path = f"/v1/grants/{grant['grantId']}/tools"
    shown = made(await stage.api.request("GET", path, await stage.api.token_of(stage.planner)))
    (tool,) = shown["tools"]
    assert tool["name"] == "search"
    assert [*tool["inputSchema"]["properties"]] == ["customerId", "limit"]
    assert tool["inputSchema"]["additionalProperties"] is False
    assert stage.tools.endpoint not in str(shown)
    assert (await stage.api.request("GET", path, await stage.api.token_of(other.planner))).status_code == 404
    stranger = await stage.token(await stage.grant())
    assert (await stage.api.request("GET", path, stranger)).status_code == 404
    assert (await stage.api.request("GET", path, await stage.token(grant))).status_code == 404


async def test_a_child_learns_nothing_of_what_its_parent_may(stage: Stage) -> None:
    agent = await stage.api.client(stage.tenant, f"{stage.tenant}-agent", kind="agent", scopes=["tools:call"])
    parent = await stage.grant(resourceConstraints={"search": {"customerId": {"oneOf": ["c_42", "of-the-parent"]}}})
    narrower = {"search": {"customerId": {"eq": "c_42"}}}
    child = made(
        await stage.api.derive(stage.planner, parent["grantId"], holder=agent.client_id, resourceConstraints=narrower)
    )
    token = await stage.api.access_token(agent, child["grant"])
    own = made(await stage.api.introspect(agent, token))["grant_id"]
    for seen, bearer in ((own, token), (child["grantId"], await stage.api.token_of(agent))):
        lineage = made(await stage.api.request("GET", f"/v1/grants/{seen}/lineage", bearer))
        assert "of-the-parent" not in str(lineage)
        assert parent["grantId"] not in [ancestor["grantId"] for ancestor in lineage["ancestors"]]
    whole = await stage.api.lineage(stage.planner, child["grantId"])
    assert [ancestor["grantId"] for ancestor in whole["ancestors"]] == [parent["grantId"]]


@pytest.mark.parametrize("subject", ["jose\u0301", "ann\u0000", "ann\n", "ann\u202e", "", "x" * 201])
async def test_nobody_is_minted_who_looks_like_somebody_else(stage: Stage, subject: str) -> None:
    response = await stage.api.mint(stage.planner, audience=stage.support, subject=subject)
    assert response.status_code == 422
    assert response.json()["pointer"] == "/subject"
