"""Standing grants: an administrator makes them within a client's limits, and every token is a node below one."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.budget import Amount
from app.core.decision import REVOKED
from app.core.grant import ClientId, GrantId, RunId, TenantId
from app.core.reasons import Reason
from app.core.registry import Scope
from app.ports import AlreadyExists
from app.usecases.close_grant import close_grant
from app.usecases.derive_grant import derive_grant
from app.usecases.failures import Conflict, Denied, Malformed, NotFound
from app.usecases.issue_under_standing_grant import NO_STANDING_GRANT, USED, Spending
from app.usecases.issued_token import ACCESS_TOKEN, DELEGATION_GRANT, Exchanged
from app.usecases.make_standing_grant import list_standing_grants, make_standing_grant
from app.usecases.read_wish import MAX_AUDIENCES, NarrowingFields
from app.usecases.register_client import change_client, disable_client
from app.usecases.world import Caller
from tests.samples import ACME, SEARCH, SUPPORT
from tests.usecases.standing import (
    ADMIN,
    SEARCHING,
    another_client,
    another_server,
    ask,
    claims_of,
    client,
    exchange,
    put,
    standing,
    token,
)
from tests.usecases.worlds import PLANNER, Scene, a_scene, verified

pytestmark = pytest.mark.anyio


@pytest.fixture
async def scene() -> Scene:
    return await a_scene()


def reason(result: object) -> Reason:
    assert isinstance(result, Denied), result
    return result.reason


# --- making one ---------------------------------------------------------------------------------------------


async def test_a_standing_grant_is_the_clients_own_root_for_one_tool_server(scene: Scene) -> None:
    grant = await standing(scene, may_redelegate=True)
    assert grant.standing
    assert grant.is_root
    assert {grant.issued_by, grant.holder, grant.actor, grant.subject} == {PLANNER}
    assert grant.servers == {SUPPORT.server}
    assert grant.may_redelegate
    assert grant.limit == Amount(tool_calls=5, spend_ucents=1_000_000)
    assert (await client(scene)).standing_grants == {SUPPORT.server: grant.grant_id}


async def test_it_lives_as_long_as_the_clients_limits_allow_unless_told_otherwise(scene: Scene) -> None:
    ceiling = (await client(scene)).ceiling
    grant = await standing(scene)
    assert grant.expires_at - grant.issued_at == ceiling.max_lifetime


async def test_who_made_it_is_on_record_beside_the_delegation(scene: Scene) -> None:
    grant = await standing(scene)
    records = await scene.records()
    assert [record["type"] for record in records] == ["delegation.created", "delegation.scope", "admin.changed"]
    assert (records[0]["grantId"], records[0]["standing"]) == (grant.grant_id, True)
    assert records[2]["action"] == "client.standing_grant_made"
    assert records[2]["clientId"] == ADMIN.client_id
    assert records[2]["resource"] == f"client/{PLANNER}"


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tool_calls": 101},
        {"max_spend_cents": 1001},
        {"expires_in_seconds": 36_001},
        {"max_depth": 5},
    ],
)
async def test_it_is_within_the_clients_ceiling(scene: Scene, fields: dict[str, int]) -> None:
    made = await make_standing_grant(scene.world, ADMIN, None, PLANNER, replace(SEARCHING, **fields))  # type: ignore[arg-type]  # one of its fields
    assert reason(made) is Reason.NOT_NARROWER
    assert (await client(scene)).standing_grants == {}


async def test_it_is_no_deeper_than_the_tenant_allows(scene: Scene) -> None:
    async with scene.world.store.write() as tx:
        tenant = await tx.registry.tenant(ACME)
        assert tenant is not None
        await tx.registry.put_tenant(replace(tenant, max_depth=1))
        await tx.commit()
    deep = await make_standing_grant(scene.world, ADMIN, None, PLANNER, replace(SEARCHING, max_depth=2))
    assert reason(deep) is Reason.NOT_NARROWER
    assert (await standing(scene)).max_depth == 1


async def test_it_is_for_exactly_one_tool_server_that_there_is_and_tools_that_it_has(scene: Scene) -> None:
    billing = await another_server(scene)
    for audience in ((), (SUPPORT.uri, billing)):
        fields = NarrowingFields(audience=audience)
        with pytest.raises(Malformed, match="exactly one"):
            await make_standing_grant(scene.world, ADMIN, None, PLANNER, fields)
    nowhere = NarrowingFields(audience=("https://tools.example/nowhere",))
    assert reason(await make_standing_grant(scene.world, ADMIN, None, PLANNER, nowhere)) is Reason.TARGET_REFUSED
    missing = replace(SEARCHING, allowed_tools=("missing",), resource_constraints=None)
    assert reason(await make_standing_grant(scene.world, ADMIN, None, PLANNER, missing)) is Reason.TOOL_NOT_ALLOWED
    foreign = replace(SEARCHING, tenant_id=TenantId("other"))
    assert reason(await make_standing_grant(scene.world, ADMIN, None, PLANNER, foreign)) is Reason.TENANT_MISMATCH


@pytest.mark.parametrize("scopes", [frozenset(), frozenset(Scope) - {Scope.ADMIN, Scope.PLATFORM}])
async def test_only_an_administrator_makes_and_lists_them(scene: Scene, scopes: frozenset[Scope]) -> None:
    caller = replace(ADMIN, client_id=PLANNER, scopes=scopes)
    assert reason(await make_standing_grant(scene.world, caller, None, PLANNER, SEARCHING)) is Reason.INSUFFICIENT_SCOPE
    assert reason(await list_standing_grants(scene.world, caller, None, PLANNER)) is Reason.INSUFFICIENT_SCOPE


async def test_another_tenants_administrator_finds_no_such_client(scene: Scene) -> None:
    stranger = replace(ADMIN, tenant_id=TenantId("other"))
    for tenant in (None, TenantId("other")):
        with pytest.raises(NotFound):
            await make_standing_grant(scene.world, stranger, tenant, PLANNER, SEARCHING)
    assert reason(await make_standing_grant(scene.world, stranger, ACME, PLANNER, SEARCHING)) is Reason.TENANT_MISMATCH


async def test_a_disabled_client_gets_none(scene: Scene) -> None:
    await disable_client(scene.world, ADMIN, None, PLANNER)
    with pytest.raises(Conflict, match="disabled"):
        await make_standing_grant(scene.world, ADMIN, None, PLANNER, SEARCHING)


async def test_there_is_one_living_for_each_tool_server(scene: Scene) -> None:
    first = await standing(scene)
    with pytest.raises(Conflict, match=first.grant_id):
        await standing(scene)
    elsewhere = await another_server(scene)
    await standing(scene, audience=(elsewhere,), allowed_tools=(), resource_constraints=None)
    assert not isinstance(await close_grant(scene.world, ADMIN, first.grant_id, "closed"), Denied)
    second = await standing(scene, expires_in_seconds=60)
    assert (await client(scene)).standing_grants[SUPPORT.server] == second.grant_id
    scene.clock.now += timedelta(seconds=60)
    assert (await standing(scene)).grant_id not in {first.grant_id, second.grant_id}


async def test_one_that_is_not_valid_yet_is_in_the_way_and_good_for_nothing(scene: Scene) -> None:
    begins = scene.clock.now + timedelta(hours=1)
    await standing(scene, not_before=begins, expires_in_seconds=7200)
    with pytest.raises(Conflict):
        await standing(scene)
    refused = await ask(scene)
    assert isinstance(refused, Denied)
    assert (refused.reason, refused.detail) == (NO_STANDING_GRANT.reason, NO_STANDING_GRANT.detail)
    scene.clock.now = begins
    assert isinstance(await ask(scene), Exchanged)


async def test_a_list_has_the_latest_of_each_tool_server_dead_or_alive(scene: Scene) -> None:
    first = await standing(scene)
    await close_grant(scene.world, ADMIN, first.grant_id, "closed")
    listed = await list_standing_grants(scene.world, ADMIN, None, PLANNER)
    assert not isinstance(listed, Denied)
    assert [(view.grant.grant_id, view.status) for view in verified(listed)] == [(first.grant_id, "closed")]
    second = await standing(scene)
    again = await list_standing_grants(scene.world, ADMIN, None, PLANNER)
    assert not isinstance(again, Denied)
    assert [(view.grant.grant_id, view.status) for view in verified(again)] == [(second.grant_id, "active")]


async def test_changing_a_client_leaves_its_standing_grants_alone(scene: Scene) -> None:
    grant = await standing(scene)
    changed = await change_client(scene.world, ADMIN, None, PLANNER, lambda one: replace(one, standing_grants={}))
    assert not isinstance(changed, Denied)
    assert changed.standing_grants == {SUPPORT.server: grant.grant_id}


# --- a token under one --------------------------------------------------------------------------------------


async def test_a_token_is_a_node_below_in_a_run_of_its_own_and_hands_nothing_on(scene: Scene) -> None:
    root = await standing(scene)
    first, second = await token(scene), await token(scene)
    for issued in (first, second):
        assert issued.grant.parent_grant_id == root.grant_id
        assert issued.grant.depth == 0
        assert not issued.grant.standing
        assert issued.grant.subject == PLANNER
        assert issued.grant.parent_run_id == root.child_run_id
    assert len({first.grant.child_run_id, second.grant.child_run_id, root.child_run_id}) == 3


async def test_a_token_says_for_whom_by_whom_and_under_what(scene: Scene) -> None:
    root = await standing(scene)
    issued = await token(scene, subject="okta#alice", key_thumbprint="k" * 43)
    claims = claims_of(scene, issued)
    run = {"sub": PLANNER, "run": issued.grant.child_run_id, "act": {"sub": PLANNER, "run": root.child_run_id}}
    assert claims["act"] == run
    assert claims["may_act"] == {"sub": PLANNER}
    assert (claims["sub"], claims["client_id"], claims["aud"]) == ("okta#alice", PLANNER, SUPPORT.uri)
    assert (claims["grant_id"], claims["scope"]) == (issued.grant.grant_id, "tools:call")
    assert claims["cnf"] == {"jkt": "k" * 43}
    assert issued.grant.key_thumbprint == "k" * 43


async def test_the_audience_is_what_was_asked_for(scene: Scene) -> None:
    await standing(scene)
    by_prefix = f"{scene.world.rules.issuer}/mcp/{SUPPORT.server}"
    assert claims_of(scene, await token(scene, resource=(by_prefix,)))["aud"] == by_prefix
    assert claims_of(scene, await token(scene, resource=()))["aud"] == SUPPORT.uri


async def test_without_a_target_there_must_be_one_alone(scene: Scene) -> None:
    assert reason(await ask(scene, resource=())) is Reason.TARGET_REFUSED
    billing = await another_server(scene)
    await standing(scene)
    await standing(scene, audience=(billing,), allowed_tools=(), resource_constraints=None)
    assert reason(await ask(scene, resource=())) is Reason.TARGET_REFUSED
    assert reason(await ask(scene, resource=(SUPPORT.uri, billing))) is Reason.TARGET_REFUSED
    assert isinstance(await ask(scene, resource=(billing,)), Exchanged)


async def test_a_target_may_be_said_twice_if_both_mean_the_same(scene: Scene) -> None:
    await standing(scene)
    by_prefix = f"{scene.world.rules.issuer}/mcp/{SUPPORT.server}"
    for resource, audience in (((SUPPORT.uri,), SUPPORT.uri), ((by_prefix, SUPPORT.uri), SUPPORT.uri), ((), by_prefix)):
        issued = await token(scene, resource=resource, fields=NarrowingFields(audience=(audience,)))
        assert claims_of(scene, issued)["aud"] == (resource or (audience,))[0]
    for other in (await another_server(scene), "https://tools.example/nowhere"):
        assert reason(await ask(scene, fields=NarrowingFields(audience=(other,)))) is Reason.TARGET_REFUSED
        assert reason(await ask(scene, resource=(SUPPORT.uri, other))) is Reason.TARGET_REFUSED


async def test_as_many_names_of_a_target_as_a_grant_may_have_audiences_are_looked_up_and_no_more(scene: Scene) -> None:
    await standing(scene)
    names = tuple(f"https://tools.example/{n}" for n in range(MAX_AUDIENCES))
    for number in range(MAX_AUDIENCES):
        await another_server(scene, f"{number}")
    assert reason(await ask(scene, resource=names)) is Reason.TARGET_REFUSED
    issued = await token(scene)
    with pytest.raises(Malformed, match="at most"):
        await ask(scene, resource=(*names, SUPPORT.uri))
    with pytest.raises(Malformed, match="at most"):
        await exchange(scene, issued.token, ACCESS_TOKEN, resource=(*names, SUPPORT.uri))
    assert reason(await exchange(scene, issued.token, ACCESS_TOKEN, resource=names)) is Reason.TARGET_REFUSED


async def test_a_token_may_be_narrower_and_never_wider(scene: Scene) -> None:
    await standing(scene)
    narrow = await token(scene, fields=NarrowingFields(max_tool_calls=1, expires_in_seconds=5))
    assert narrow.grant.limit.tool_calls == 1
    assert narrow.expires_in_seconds == 5
    wider = (
        NarrowingFields(max_tool_calls=6),
        NarrowingFields(allowed_tools=("other",)),
        NarrowingFields(expires_in_seconds=36_001),
    )
    for fields in wider:
        assert reason(await ask(scene, fields=fields)) is Reason.NOT_NARROWER
    assert reason(await ask(scene, fields=NarrowingFields(may_redelegate=True))) is Reason.REDELEGATION_DENIED


async def test_an_access_token_lives_shortly_however_long_the_standing_grant_does(scene: Scene) -> None:
    await standing(scene)
    assert (await token(scene)).expires_in_seconds == 600
    assert reason(await ask(scene, fields=NarrowingFields(expires_in_seconds=3601))) is Reason.NOT_NARROWER


async def test_a_scope_of_the_api_is_none_of_a_tool_servers(scene: Scene) -> None:
    await standing(scene)
    assert isinstance(await ask(scene, scopes=frozenset({"tools:call"})), Exchanged)
    for scopes in ({"grants:issue"}, {"tools:call", "admin"}):
        assert reason(await ask(scene, scopes=frozenset(scopes))) is Reason.INSUFFICIENT_SCOPE


async def test_acting_for_the_owner_is_redelegation(scene: Scene) -> None:
    """As an application does for a person, by an authorization code."""
    await standing(scene)
    app = await another_client(scene, "app")
    assert reason(await ask(scene, client=app)) is Reason.REDELEGATION_DENIED
    await close_standing(scene)
    root = await standing(scene, may_redelegate=True)
    issued = await token(scene, client=app)
    assert issued.grant.depth == 1
    assert (issued.grant.subject, issued.grant.actor, issued.grant.holder) == (PLANNER, "app", "app")
    owner = {"sub": PLANNER, "run": root.child_run_id}
    assert claims_of(scene, issued)["act"] == {"sub": "app", "run": issued.grant.child_run_id, "act": owner}
    assert claims_of(scene, issued)["client_id"] == "app"


async def close_standing(scene: Scene, reason: str = "closed") -> None:
    for grant_id in (await client(scene)).standing_grants.values():
        assert not isinstance(await close_grant(scene.world, ADMIN, GrantId(grant_id), reason), Denied)


async def test_a_delegation_grant_under_it_needs_redelegation(scene: Scene) -> None:
    await standing(scene)
    assert reason(await ask(scene, requested_token_type=DELEGATION_GRANT)) is Reason.REDELEGATION_DENIED
    await close_standing(scene)
    await standing(scene, may_redelegate=True)
    issued = await token(scene, requested_token_type=DELEGATION_GRANT, subject="okta#alice")
    assert issued.issued_token_type == DELEGATION_GRANT
    assert scene.world.signer.verify_grant(issued.token).grant.subject == "okta#alice"
    assert issued.expires_in_seconds == 36_000


@pytest.mark.parametrize("word", ["closed", REVOKED])
async def test_a_dead_standing_grant_is_none(scene: Scene, word: str) -> None:
    assert reason(await ask(scene)) is Reason.TARGET_REFUSED
    root = await standing(scene)
    await close_grant(scene.world, ADMIN, root.grant_id, word)
    assert reason(await ask(scene)) is Reason.TARGET_REFUSED


async def test_an_expired_standing_grant_is_none(scene: Scene) -> None:
    root = await standing(scene)
    scene.clock.now = root.expires_at - timedelta(seconds=1)
    assert (await token(scene)).expires_in_seconds == 1
    scene.clock.now = root.expires_at
    assert reason(await ask(scene)) is Reason.TARGET_REFUSED


async def test_that_of_a_disabled_owner_is_none_for_whoever_asks(scene: Scene) -> None:
    await standing(scene, may_redelegate=True)
    app = await another_client(scene, "app")
    await put(scene, replace(await client(scene), active=False))
    assert reason(await ask(scene, client=app)) is Reason.TARGET_REFUSED


async def test_a_disabled_client_or_actor_gets_nothing_under_it(scene: Scene) -> None:
    await standing(scene, may_redelegate=True)
    gone = await another_client(scene, "gone", active=False)
    assert reason(await ask(scene, client=gone)) is Reason.ACTOR_NOT_PERMITTED
    assert reason(await ask(scene, actor=gone.client_id)) is Reason.ACTOR_NOT_PERMITTED


async def test_the_registry_only_says_where_to_look(scene: Scene) -> None:
    """What it names must be signed as the client's own standing grant for the tool server."""
    theirs = await standing(scene, may_redelegate=True)
    thief = await another_client(scene, "thief", standing_grants={SUPPORT.server: theirs.grant_id})
    assert reason(await ask(scene, owner=thief, client=thief)) is Reason.TARGET_REFUSED
    ordinary = (await scene.grant()).grant
    await put(scene, replace(await client(scene), standing_grants={SUPPORT.server: ordinary.grant_id}))
    assert reason(await ask(scene)) is Reason.TARGET_REFUSED
    await put(scene, replace(await client(scene), standing_grants={SUPPORT.server: "gr_missing"}))
    assert reason(await ask(scene)) is Reason.TARGET_REFUSED
    billing = await another_server(scene)
    await put(scene, replace(await client(scene), standing_grants={"billing": theirs.grant_id}))
    assert reason(await ask(scene, resource=(billing,))) is Reason.TARGET_REFUSED


async def test_nobody_acts_in_the_run_of_the_standing_grant_itself(scene: Scene) -> None:
    root = await standing(scene)
    with pytest.raises(AlreadyExists):
        await ask(scene, fields=NarrowingFields(child_run_id=root.child_run_id))
    mine = RunId("run_mine")
    assert (await token(scene, fields=NarrowingFields(child_run_id=mine))).grant.child_run_id == mine
    with pytest.raises(AlreadyExists):
        await ask(scene, fields=NarrowingFields(child_run_id=mine))


async def test_tokens_that_are_dead_leave_room_for_others(scene: Scene) -> None:
    """A standing grant outlives them all, so only as many count as live at once."""
    scene = await a_scene(max_children_per_grant=3, max_grants_per_tree=5)
    await standing(scene)
    for _ in range(3):
        await token(scene)
    with pytest.raises(Conflict, match="children"):
        await ask(scene)
    scene.clock.now += timedelta(minutes=10)
    closed = await token(scene)
    await token(scene)
    await token(scene)
    await close_grant(scene.world, ADMIN, closed.grant.grant_id, "closed")
    last = await token(scene, fields=NarrowingFields(max_tool_calls=1))
    below = await exchange(scene, last.token, ACCESS_TOKEN)
    assert isinstance(below, Exchanged)
    with pytest.raises(Conflict, match="tree"):
        await exchange(scene, last.token, ACCESS_TOKEN)


async def test_an_ordinary_grants_children_count_when_they_are_dead_too(scene: Scene) -> None:
    scene = await a_scene(max_children_per_grant=1)
    grant = await scene.grant(may_redelegate=True)
    first = await derive_grant(scene.world, scene.planner, grant.grant.grant_id, NarrowingFields(), None)
    assert not isinstance(first, Denied)
    await close_grant(scene.world, ADMIN, first.grant.grant_id, "closed")
    with pytest.raises(Conflict, match="children"):
        await derive_grant(scene.world, scene.planner, grant.grant.grant_id, NarrowingFields(), None)


# --- what is spent for it -----------------------------------------------------------------------------------


def a_spending(scene: Scene, jti: str = "j1") -> Spending:
    return Spending(issuer="https://idp.example", jti=jti, expires_at=scene.clock.now + timedelta(minutes=1))


async def test_what_is_spent_is_spent_once_and_on_the_new_grant(scene: Scene) -> None:
    await standing(scene)
    issued = await token(scene, spending=a_spending(scene))
    again = await ask(scene, spending=a_spending(scene))
    assert isinstance(again, Denied)
    assert (again.reason, again.detail) == (USED.reason, USED.detail)
    async with scene.world.store.read() as tx:
        assert await tx.spent.spent_on(ACME, "https://idp.example", "j1") == issued.grant.grant_id
    assert [record["type"] for record in await scene.records()][-1] == "delegation.refused"


async def test_many_at_once_with_the_same_thing_to_spend_bring_one_token(scene: Scene) -> None:
    await standing(scene)
    results = await asyncio.gather(*(ask(scene, spending=a_spending(scene)) for _ in range(8)))
    assert [isinstance(result, Exchanged) for result in results].count(True) == 1


async def test_a_refused_request_spends_nothing(scene: Scene) -> None:
    await standing(scene)
    assert isinstance(await ask(scene, spending=a_spending(scene), fields=NarrowingFields(max_tool_calls=6)), Denied)
    both = NarrowingFields(expires_in_seconds=5, expires_at=scene.clock.now + timedelta(seconds=5))
    with pytest.raises(Malformed):
        await ask(scene, spending=a_spending(scene), fields=both)
    assert isinstance(await ask(scene, spending=a_spending(scene)), Exchanged)


async def test_what_could_not_be_kept_as_spent_is_not_taken(scene: Scene) -> None:
    await standing(scene)
    assert isinstance(await ask(scene, spending=a_spending(scene, "j" * 255)), Exchanged)
    assert reason(await ask(scene, spending=a_spending(scene, "j" * 256))) is Reason.TOKEN_INVALID


async def test_a_refusal_is_on_record_and_a_token_is_with_its_run(scene: Scene) -> None:
    refused = await ask(scene)
    assert isinstance(refused, Denied)
    (record,) = await scene.records()
    assert (record["type"], record["reason"]) == ("delegation.refused", "target_refused")
    assert record["decisionId"] == refused.decision_id
    await standing(scene)
    issued = await token(scene, subject="okta#alice")
    (*_, last) = await scene.records()
    assert (last["type"], last["grantId"]) == ("delegation.exchanged", issued.grant.grant_id)
    assert (last["subject"], last["runId"]) == ("okta#alice", issued.grant.child_run_id)


# --- what is below ------------------------------------------------------------------------------------------


async def test_who_the_subject_is_stays_said_below_a_token(scene: Scene) -> None:
    """Only the child of the standing grant itself may have another."""
    await standing(scene, may_redelegate=True)
    first = await token(scene, subject="okta#alice", fields=NarrowingFields(may_redelegate=True))
    below = await exchange(scene, first.token, ACCESS_TOKEN)
    assert isinstance(below, Exchanged)
    assert below.grant.subject == "okta#alice"
    derived = await derive_grant(scene.world, scene.planner, first.grant.grant_id, NarrowingFields(), None)
    assert not isinstance(derived, Denied)
    assert derived.grant.subject == "okta#alice"


async def test_closing_the_standing_grant_ends_every_token(scene: Scene) -> None:
    root = await standing(scene)
    issued = [await token(scene) for _ in range(3)]
    closed = await close_grant(scene.world, scene.planner, root.grant_id, "closed")
    assert not isinstance(closed, Denied)
    assert set(closed.closed) == {root.grant_id, *(one.grant.grant_id for one in issued)}


async def test_another_client_neither_derives_from_nor_exchanges_below_it(scene: Scene) -> None:
    root = await standing(scene, may_redelegate=True)
    issued = await token(scene, fields=NarrowingFields(may_redelegate=True))
    await another_client(scene, "thief")
    thief = Caller(client_id=ClientId("thief"), tenant_id=ACME)
    with pytest.raises(NotFound):
        await derive_grant(scene.world, thief, root.grant_id, NarrowingFields(), None)
    stolen = await exchange(scene, issued.token, ACCESS_TOKEN, by="thief")
    assert reason(stolen) is Reason.ACTOR_NOT_PERMITTED
    assert SEARCH in root.tools
