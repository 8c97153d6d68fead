"""Facts that only the server says: whose things are, what policies permit. Closed on failure."""

from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.grant import ServerName, TenantId, ToolName
from app.core.reasons import Reason
from app.core.registry import Credential, Policy, Resolver, Resource, Tenant
from app.core.resources import ResourceRef
from app.core.strict_json import JsonObject, JsonScalar, JsonValue
from app.ports import PolicyAnswer, StoreUnavailable
from app.usecases.authorize_call import ProposedCall, authorize_call
from app.usecases.derive_grant import derive_grant
from app.usecases.failures import Denied
from app.usecases.find_facts import MAX_ROUNDS
from app.usecases.forward_call import Forwarded, forward_call
from app.usecases.mint_grant import SignedGrant
from app.usecases.read_wish import NarrowingFields
from tests.samples import ACME, NOW, SEARCH, SUPPORT
from tests.usecases.worlds import PLANNER, Scene, a_scene, caller_for

pytestmark = pytest.mark.anyio

GLOBEX = TenantId("globex")
OPEN: JsonObject = {"*": {"any": True}}
CASE: JsonObject = {"caseId": {"resource": "case"}}
EU_CASE: JsonObject = {"caseId": {"resource": {"type": "case", "where": {"region": "eu", "open": True}}}}


@pytest.fixture
async def scene() -> Scene:
    return await a_scene()


def a_call(key: str | None = None, **arguments: str) -> ProposedCall:
    return ProposedCall(
        tool_server_audience=SUPPORT.uri, name=ToolName(SEARCH.tool), arguments={**arguments}, idempotency_key=key
    )


async def grant_with(scene: Scene, rule: JsonObject, *, may_redelegate: bool = False) -> SignedGrant:
    return await scene.grant(resource_constraints={SEARCH.tool: rule}, may_redelegate=may_redelegate)


async def on_record(scene: Scene, case: str, tenant_id: TenantId = ACME, **attributes: JsonScalar) -> None:
    async with scene.world.store.write() as tx:
        if await tx.registry.tenant(tenant_id) is None:
            await tx.registry.add_tenant(Tenant(tenant_id=tenant_id, name="Another"))
        await tx.directory.put([Resource(tenant_id=tenant_id, type="case", id=case, attributes=attributes)])
        await tx.commit()


async def outcome(scene: Scene, made: SignedGrant, call: ProposedCall) -> Reason | None:
    answer = await forward_call(scene.world, caller_for(made), call)
    return answer.reason if isinstance(answer, Denied) else None


# --- the directory ----------------------------------------------------------------------------------------


async def test_a_thing_on_record_as_the_tenants_is_reached_and_any_other_is_not(scene: Scene) -> None:
    await on_record(scene, "c_1")
    await on_record(scene, "c_9", GLOBEX)
    made = await grant_with(scene, CASE)
    assert await outcome(scene, made, a_call(caseId="c_1")) is None
    assert await outcome(scene, made, a_call(caseId="c_9")) is Reason.RESOURCE_OUT_OF_SCOPE
    assert await outcome(scene, made, a_call(caseId="c_404")) is Reason.RESOURCE_OUT_OF_SCOPE
    assert len(scene.tools.requests) == 1


async def test_a_refusal_does_not_tell_whether_the_thing_exists(scene: Scene) -> None:
    await on_record(scene, "c_us", region="us", open=True)
    await on_record(scene, "c_eu", GLOBEX, region="eu", open=True)
    made = await grant_with(scene, EU_CASE)
    refusals = [
        await forward_call(scene.world, caller_for(made), a_call(caseId=case)) for case in ("c_us", "c_eu", "-")
    ]
    assert len({(one.reason, one.detail, one.pointer) for one in refusals if isinstance(one, Denied)}) == 1
    assert all(isinstance(one, Denied) for one in refusals)
    denials = [body for body in await scene.records() if body.get("decision") == "deny"]
    assert len({(body["reason"], body.get("pointer"), body.get("resolverFailed")) for body in denials}) == 1


async def test_attributes_are_compared_by_type_and_value(scene: Scene) -> None:
    made = await grant_with(scene, EU_CASE)
    for case, attributes in {
        "right": {"region": "eu", "open": True},
        "a number": {"region": "eu", "open": 1},
        "a string": {"region": "eu", "open": "true"},
        "missing": {"region": "eu"},
        "null": {"region": "eu", "open": None},
    }.items():
        await on_record(scene, case, **attributes)  # type: ignore[arg-type]  # scalars of several types
        expected = None if case == "right" else Reason.RESOURCE_OUT_OF_SCOPE
        assert await outcome(scene, made, a_call(caseId=case)) is expected


async def test_a_thing_that_changes_hands_is_out_of_reach_at_the_next_call(scene: Scene) -> None:
    await on_record(scene, "c_1")
    made = await grant_with(scene, CASE)
    assert await outcome(scene, made, a_call(caseId="c_1")) is None
    async with scene.world.store.write() as tx:
        await tx.directory.remove(ACME, ResourceRef("case", "c_1"))
        await tx.commit()
    assert await outcome(scene, made, a_call(caseId="c_1")) is Reason.RESOURCE_OUT_OF_SCOPE


async def test_a_child_may_list_things_that_are_on_record_and_the_call_asks_again(scene: Scene) -> None:
    await on_record(scene, "c_1")
    await on_record(scene, "c_2")
    root = await grant_with(scene, CASE, may_redelegate=True)

    async def derived(*cases: str) -> SignedGrant | Denied:
        rule: JsonObject = {"caseId": {"oneOf": [*cases]}}
        fields = NarrowingFields(resource_constraints={SEARCH.tool: rule}, max_tool_calls=2, max_spend_cents=10)
        return await derive_grant(scene.world, scene.planner, root.grant.grant_id, fields, None)

    refused = await derived("c_1", "c_404")
    assert isinstance(refused, Denied)
    assert (refused.reason, refused.pointer) == (Reason.NOT_NARROWER, f"/resourceConstraints/{SEARCH.tool}/caseId")
    child = await derived("c_1", "c_2")
    assert isinstance(child, SignedGrant)
    assert await outcome(scene, child, a_call(caseId="c_2")) is None
    async with scene.world.store.write() as tx:
        await tx.directory.remove(ACME, ResourceRef("case", "c_2"))
        await tx.commit()
    assert await outcome(scene, child, a_call(caseId="c_2")) is Reason.RESOURCE_OUT_OF_SCOPE


async def test_no_argument_says_whose_a_thing_is(scene: Scene) -> None:
    await on_record(scene, "c_9", GLOBEX)
    made = await grant_with(scene, CASE | {"tenantId": {"any": True, "optional": True}})
    call = a_call(caseId="c_9", tenantId="globex")
    assert await outcome(scene, made, call) is Reason.RESOURCE_OUT_OF_SCOPE
    assert await outcome(scene, made, a_call(caseId="c_9", tenantId="acme")) is Reason.RESOURCE_OUT_OF_SCOPE


async def test_a_call_that_names_too_many_things_reaches_none(scene: Scene) -> None:
    await on_record(scene, "c_1")
    made = await grant_with(scene, {"cases": {"list": {"items": {"resource": "case"}}}})
    call = a_call()
    some: list[JsonValue] = ["c_1", "c_1"]
    few, many = (replace(call, arguments={"cases": ids}) for ids in (some, [*some, *map(str, range(1000))]))
    assert await outcome(scene, made, few) is None
    assert await outcome(scene, made, many) is Reason.RESOURCE_OUT_OF_SCOPE


# --- a tool server's own record ---------------------------------------------------------------------------


async def with_resolver(scene: Scene, *, cache_seconds: float = 5, types: tuple[str, ...] = ("case",)) -> None:
    async with scene.world.store.write() as tx:
        server = await tx.registry.server(ACME, SUPPORT.server)
        assert server is not None
        resolver = Resolver(path="/resources", types=types, cache_seconds=cache_seconds)
        await tx.registry.put_server(replace(server, resolver=resolver))
        await tx.commit()


async def test_a_tool_servers_record_counts_in_the_place_of_the_directory(scene: Scene) -> None:
    await with_resolver(scene)
    await on_record(scene, "c_1")
    scene.tools.record = {ResourceRef("case", "c_2"): {}}
    made = await grant_with(scene, CASE)
    assert await outcome(scene, made, a_call(caseId="c_1")) is Reason.RESOURCE_OUT_OF_SCOPE
    assert await outcome(scene, made, a_call(caseId="c_2")) is None
    asked = scene.tools.questions[-1]
    assert (asked.endpoint, asked.tenant_id, asked.refs) == (
        "http://tools.internal:9000/resources",
        ACME,
        (ResourceRef("case", "c_2"),),
    )
    assert asked.headers == {"X-Key": "the tool server's own secret"}


async def test_types_that_the_resolver_does_not_know_are_the_directorys(scene: Scene) -> None:
    await with_resolver(scene, types=("invoice",))
    await on_record(scene, "c_1")
    made = await grant_with(scene, CASE)
    assert await outcome(scene, made, a_call(caseId="c_1")) is None
    assert scene.tools.questions == []


async def test_an_answer_holds_for_a_while_and_no_longer(scene: Scene) -> None:
    await with_resolver(scene, cache_seconds=5)
    scene.tools.record = {ResourceRef("case", "c_2"): {}}
    made = await grant_with(scene, CASE)
    for seconds, questions in ((0, 1), (4.9, 1), (5, 2)):
        scene.clock.now = NOW + timedelta(seconds=seconds)
        assert await outcome(scene, made, a_call(caseId="c_2")) is None
        assert len(scene.tools.questions) == questions
    scene.tools.record = {}
    scene.clock.now = NOW + timedelta(seconds=9)
    assert await outcome(scene, made, a_call(caseId="c_2")) is None
    scene.clock.now = NOW + timedelta(seconds=10)
    assert await outcome(scene, made, a_call(caseId="c_2")) is Reason.RESOURCE_OUT_OF_SCOPE


async def test_a_resolver_that_fails_refuses_and_is_on_record(scene: Scene) -> None:
    await with_resolver(scene)
    scene.tools.record = None
    made = await grant_with(scene, CASE)
    assert await outcome(scene, made, a_call(caseId="c_1")) is Reason.RESOURCE_OUT_OF_SCOPE
    assert (await scene.records())[-1]["resolverFailed"] is True
    scene.tools.record = {ResourceRef("case", "c_1"): {}}
    assert await outcome(scene, made, a_call(caseId="c_1")) is None


async def test_a_call_that_names_nothing_asks_nobody(scene: Scene) -> None:
    await with_resolver(scene)
    made = await grant_with(scene, {"caseId": {"str": {}}})
    assert await outcome(scene, made, a_call(caseId="c_1")) is None
    assert scene.tools.questions == []


async def test_nothing_is_held_or_recorded_while_a_resolver_is_asked(scene: Scene) -> None:
    await with_resolver(scene)
    scene.tools.record = {ResourceRef("case", "c_1"): {}}
    made = await grant_with(scene, CASE)
    assert await outcome(scene, made, a_call(caseId="c_1")) is None
    types = [body["type"] for body in await scene.records() if str(body["type"]).startswith("tool.")]
    assert types == ["tool.proposed", "tool.authorized", "tool.executed"]


# --- policies ---------------------------------------------------------------------------------------------

PERMIT, FORBID = PolicyAnswer(permitted=True, determining=("all",)), PolicyAnswer(permitted=False, determining=("no",))


async def add(scene: Scene, version: str, answer: PolicyAnswer) -> None:
    scene.policies.answers[f"text of {version}"] = answer
    policy = Policy(
        tenant_id=ACME,
        version=version,
        text=f"text of {version}",
        description="",
        cases=(),
        created_at=NOW,
        created_by=PLANNER,
    )
    async with scene.world.store.write() as tx:
        await tx.policies.add(policy)
        await tx.commit()


async def activate(scene: Scene, version: str) -> None:
    async with scene.world.store.write() as tx:
        tenant = await tx.registry.tenant(ACME)
        assert tenant is not None
        await tx.registry.put_tenant(replace(tenant, policy_version=version))
        await tx.commit()


async def test_a_root_pins_the_version_that_is_active_and_its_children_keep_it(scene: Scene) -> None:
    await add(scene, "v1", PERMIT)
    await activate(scene, "v1")
    root = await scene.grant(may_redelegate=True)
    await activate(scene, "v0")
    child = await derive_grant(scene.world, scene.planner, root.grant.grant_id, NarrowingFields(), None)
    assert isinstance(child, SignedGrant)
    assert (root.grant.policy_version, child.grant.policy_version) == ("v1", "v1")


@pytest.mark.parametrize(
    "pinned, active, permitted",
    [(PERMIT, PERMIT, True), (PERMIT, FORBID, False), (FORBID, PERMIT, False), (FORBID, FORBID, False)],
)
async def test_a_call_must_satisfy_the_pinned_version_and_the_active_one(
    scene: Scene, pinned: PolicyAnswer, active: PolicyAnswer, permitted: bool
) -> None:
    await add(scene, "v1", pinned)
    await add(scene, "v2", active)
    await activate(scene, "v1")
    made = await scene.grant()
    await activate(scene, "v2")
    assert await outcome(scene, made, a_call()) is (None if permitted else Reason.POLICY_DENIED)
    verdict = next(body for body in await scene.records() if "policyVersions" in body)
    assert verdict["policyVersions"] == ["v1", "v2"]
    assert len(scene.tools.requests) == (1 if permitted else 0)


async def test_the_built_in_version_permits_what_the_grant_permits_and_asks_nobody(scene: Scene) -> None:
    assert await outcome(scene, await scene.grant(), a_call()) is None
    assert scene.policies.questions == []


async def test_a_missing_version_denies_and_is_on_record(scene: Scene) -> None:
    await activate(scene, "v7")
    made = await scene.grant()
    assert await outcome(scene, made, a_call()) is Reason.POLICY_DENIED
    assert (await scene.records())[-1]["policyErrors"] == ["v7: the version is missing"]


async def test_an_error_denies_and_is_on_record(scene: Scene) -> None:
    await add(scene, "v1", PolicyAnswer(permitted=False, errors=("policy_timeout",)))
    await activate(scene, "v1")
    made = await scene.grant()
    assert await outcome(scene, made, a_call()) is Reason.POLICY_DENIED
    last = (await scene.records())[-1]
    assert (last["type"], last["policyErrors"]) == ("tool.denied", ["v1: policy_timeout"])


async def test_policies_see_what_the_server_says_and_each_named_thing_by_itself(scene: Scene) -> None:
    await add(scene, "v1", PERMIT)
    await activate(scene, "v1")
    await on_record(scene, "c_1", region="eu")
    await on_record(scene, "c_2", region="us")
    async with scene.world.store.write() as tx:
        await tx.directory.put([Resource(tenant_id=ACME, type="subject", id=PLANNER, attributes={"region": "eu"})])
        await tx.commit()
    made = await grant_with(scene, {"cases": {"list": {"items": {"resource": "case"}}}})
    caller = replace(caller_for(made), address="10.1.2.3")
    call = replace(a_call(), arguments={"cases": ["c_2", "c_1"]})
    assert isinstance(await forward_call(scene.world, caller, call), Forwarded)
    first, second = scene.policies.questions
    assert (first.resource, second.resource) == (ResourceRef("case", "c_1"), ResourceRef("case", "c_2"))
    assert (first.resource_attributes, second.resource_attributes) == ({"region": "eu"}, {"region": "us"})
    assert first.attributes == {ResourceRef("subject", PLANNER): {"region": "eu"}}
    assert (first.source_ip, first.tool, first.server, first.subject, first.run_id, first.now) == (
        "10.1.2.3",
        SEARCH.tool,
        SEARCH.server,
        PLANNER,
        made.grant.child_run_id,
        NOW,
    )


async def test_one_thing_that_policies_do_not_permit_denies_the_call(scene: Scene) -> None:
    await add(scene, "v1", PERMIT)
    await activate(scene, "v1")
    for case in ("c_1", "c_2"):
        await on_record(scene, case)
    made = await grant_with(scene, {"cases": {"list": {"items": {"resource": "case"}}}})
    ask = scene.policies.answer

    async def only_the_first(text: str, question: object) -> PolicyAnswer:
        answer = await ask(text, question)  # type: ignore[arg-type]  # it is a question
        return answer if scene.policies.questions[-1].resource == ResourceRef("case", "c_1") else FORBID

    scene.policies.answer = only_the_first  # type: ignore[method-assign]  # a fake with an opinion
    assert await outcome(scene, made, replace(a_call(), arguments={"cases": ["c_1"]})) is None
    assert await outcome(scene, made, replace(a_call(), arguments={"cases": ["c_1", "c_2"]})) is Reason.POLICY_DENIED


async def test_a_version_that_is_activated_meanwhile_is_asked_too(scene: Scene) -> None:
    await add(scene, "v1", PERMIT)
    await add(scene, "v2", FORBID)
    await activate(scene, "v1")
    made = await scene.grant()
    ask = scene.policies.answer

    async def and_activate(text: str, question: object) -> PolicyAnswer:
        await activate(scene, "v2")
        return await ask(text, question)  # type: ignore[arg-type]  # it is a question

    scene.policies.answer = and_activate  # type: ignore[method-assign]  # a fake with a side effect
    assert await outcome(scene, made, a_call()) is Reason.POLICY_DENIED


async def test_facts_that_never_hold_still_end_in_no_decision(scene: Scene) -> None:
    await add(scene, "v1", PERMIT)
    await activate(scene, "v1")
    made = await grant_with(scene, CASE)
    await on_record(scene, "c_1", turn=0)
    turns = 0
    ask = scene.policies.answer

    async def and_change(text: str, question: object) -> PolicyAnswer:
        nonlocal turns
        turns += 1
        await on_record(scene, "c_1", turn=turns)
        return await ask(text, question)  # type: ignore[arg-type]  # it is a question

    scene.policies.answer = and_change  # type: ignore[method-assign]  # a fake with a side effect
    with pytest.raises(StoreUnavailable):
        await forward_call(scene.world, caller_for(made), a_call(caseId="c_1"))
    assert turns == MAX_ROUNDS
    assert scene.tools.requests == []


async def test_checks_say_the_same_as_calls(scene: Scene) -> None:
    await add(scene, "v1", FORBID)
    await activate(scene, "v1")
    made = await grant_with(scene, CASE)
    weighed = await authorize_call(scene.world, caller_for(made), [a_call(caseId="c_1")])
    assert not isinstance(weighed, Denied)
    assert getattr(weighed[0].verdict, "reason", None) is Reason.RESOURCE_OUT_OF_SCOPE
    await on_record(scene, "c_1")
    weighed = await authorize_call(scene.world, caller_for(made), [a_call(caseId="c_1")])
    assert not isinstance(weighed, Denied)
    assert getattr(weighed[0].verdict, "reason", None) is Reason.POLICY_DENIED


async def test_a_tool_servers_record_never_describes_who_calls(scene: Scene) -> None:
    """Registered before it was refused, perhaps: what the resolver says of a subject is not what policies are told."""
    await add(scene, "v1", PERMIT)
    await activate(scene, "v1")
    await with_resolver(scene, types=("subject",))
    scene.tools.record = {ResourceRef("subject", PLANNER): {"suspended": False}}
    async with scene.world.store.write() as tx:
        suspended = Resource(tenant_id=ACME, type="subject", id=PLANNER, attributes={"suspended": True})
        await tx.directory.put([suspended])
        await tx.commit()
    made = await grant_with(scene, {"who": {"resource": "subject"}})
    assert await outcome(scene, made, a_call(who=PLANNER)) is None
    (question,) = scene.policies.questions
    assert question.resource_attributes == {"suspended": False}
    assert question.attributes == {ResourceRef("subject", PLANNER): {"suspended": True}}


async def test_things_of_many_tool_servers_are_asked_about_in_one_round(scene: Scene) -> None:
    names = [ServerName(f"s{number}") for number in range(MAX_ROUNDS + 2)]
    await with_resolver(scene)
    async with scene.world.store.write() as tx:
        server = await tx.registry.server(ACME, SUPPORT.server)
        tool = await tx.registry.tool(ACME, SEARCH.server, SEARCH.tool)
        assert server is not None
        assert tool is not None
        for name in names:
            at = f"http://{name}.internal/x"
            other = replace(server, name=name, credential=Credential(), audience=at)
            await tx.registry.add_server(replace(other, endpoint=at, upstream_audience=at))
            await tx.registry.put_tool(replace(tool, server=name))
        await tx.commit()
    scene.tools.record = {ResourceRef("case", "c_1"): {}}
    spelt = [f"{name}/{SEARCH.tool}" for name in names]
    root = await scene.grant(
        spelt,
        audience=tuple(f"http://{name}.internal/x" for name in names),
        resource_constraints=dict.fromkeys(spelt, CASE),
        may_redelegate=True,
    )
    narrower: JsonObject = {tool: {"caseId": {"eq": "c_1"}} for tool in spelt}
    fields = NarrowingFields(resource_constraints=narrower, max_tool_calls=1, max_spend_cents=1)
    child = await derive_grant(scene.world, scene.planner, root.grant.grant_id, fields, None)
    assert isinstance(child, SignedGrant)
    assert len(scene.tools.questions) == len(names)


async def test_policies_are_asked_about_what_a_tool_is_registered_to_name_whatever_the_grant_says(scene: Scene) -> None:
    await add(scene, "v1", PERMIT)
    await activate(scene, "v1")
    await on_record(scene, "c_1", region="us")
    async with scene.world.store.write() as tx:
        tool = await tx.registry.tool(ACME, SEARCH.server, SEARCH.tool)
        assert tool is not None
        await tx.registry.put_tool(replace(tool, resource_arguments={"caseId": "case", "more": "case"}))
        await tx.commit()
    rules: list[JsonObject] = [OPEN, {"caseId": {"eq": "c_1"}}, {"caseId": {"prefix": "c_"}}, CASE]
    for rule in rules:
        made = await grant_with(scene, rule)
        scene.policies.questions.clear()
        assert await outcome(scene, made, a_call(caseId="c_1")) is None
        (question,) = scene.policies.questions
        assert (question.resource, question.resource_attributes) == (ResourceRef("case", "c_1"), {"region": "us"})
    made = await grant_with(scene, OPEN)
    scene.policies.questions.clear()
    call = replace(a_call(), arguments={"caseId": 7, "more": ["c_1", "x" * 300]})
    assert isinstance(await forward_call(scene.world, caller_for(made), call), Forwarded)
    asked = {question.resource for question in scene.policies.questions}
    assert asked == {ResourceRef("case", "7"), ResourceRef("case", "c_1"), ResourceRef("case", "x" * 300)}
