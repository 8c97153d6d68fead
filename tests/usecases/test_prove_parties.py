"""Whom another issuer's token proves, for whom it lets act, and what it can't do: give authority or write history."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.grant import ClientId, TenantId
from app.core.reasons import Reason
from app.core.registry import AuthMethod, IssuerUse, Tenant, Workload
from app.core.strict_json import JsonObject, JsonValue
from app.usecases.accept_identity_assertion import AssertionRequest, accept_identity_assertion
from app.usecases.close_grant import close_grant
from app.usecases.failures import Denied, Malformed
from app.usecases.issue_under_standing_grant import USED
from app.usecases.issued_token import ACCESS_TOKEN, DELEGATION_GRANT, Exchanged
from app.usecases.mint_grant import MintRequest, SignedGrant, mint_grant
from app.usecases.prove_client import ClientAssertion, ProvenClient, prove_client, spend_assertion
from app.usecases.prove_parties import ID_TOKEN, JWT
from app.usecases.read_wish import NarrowingFields
from app.usecases.world import CLOCK_MARGIN
from tests.samples import ACME, SUPPORT
from tests.usecases.standing import (
    ADMIN,
    ISSUER,
    SEARCHING,
    IdentityProvider,
    another_client,
    another_server,
    claims_of,
    client,
    exchange,
    put,
    standing,
    token,
)
from tests.usecases.worlds import PLANNER, Scene, a_scene

pytestmark = pytest.mark.anyio

IDP = IdentityProvider()
WORKLOAD = Workload(issuer=IDP.name, subject="spiffe-like/agent")


@pytest.fixture
async def scene() -> Scene:
    """A planner with a standing grant, and an identity provider that is trusted for everything."""
    scene = await a_scene()
    await put(scene, IDP.trusted())
    await standing(scene, may_redelegate=True)
    return scene


def reason(result: object) -> Reason:
    assert isinstance(result, Denied), result
    return result.reason


async def accepted(scene: Scene, assertion: str, by: str = PLANNER, **request: object) -> Exchanged | Denied:
    wanted = replace(AssertionRequest(assertion=assertion), **request)  # type: ignore[arg-type]  # the test's to get right
    return await accept_identity_assertion(scene.world, await client(scene, by), wanted)


# --- identity assertions (RFC 7523 §2.1, draft-ietf-oauth-identity-assertion-authz-grant) ---------------------


async def test_an_assertion_brings_a_token_under_the_clients_standing_grant(scene: Scene) -> None:
    issued = await accepted(scene, IDP.assertion(scene))
    assert isinstance(issued, Exchanged)
    claims = claims_of(scene, issued)
    assert (claims["sub"], claims["aud"], claims["client_id"]) == ("okta#alice", SUPPORT.uri, PLANNER)
    root = (await client(scene)).standing_grants[SUPPORT.server]
    assert issued.grant.parent_grant_id == root
    act = claims["act"]
    assert isinstance(act, dict)
    assert act["sub"] == PLANNER


async def test_the_resource_comes_from_the_assertion_the_request_or_the_one_standing_grant(scene: Scene) -> None:
    for assertion, resource in ((SUPPORT.uri, ()), (None, (SUPPORT.uri,)), (None, ()), ([SUPPORT.uri], (SUPPORT.uri,))):
        issued = await accepted(scene, IDP.assertion(scene, resource=assertion), resource=resource)
        assert isinstance(issued, Exchanged)
        assert claims_of(scene, issued)["aud"] == SUPPORT.uri


async def test_a_resource_may_be_the_assertions_by_its_other_name(scene: Scene) -> None:
    by_prefix = f"{ISSUER}/mcp/{SUPPORT.server}"
    issued = await accepted(scene, IDP.assertion(scene), resource=(by_prefix,))
    assert isinstance(issued, Exchanged)
    assert claims_of(scene, issued)["aud"] == by_prefix


async def test_a_resource_that_is_not_the_assertions_is_refused(scene: Scene) -> None:
    billing = await another_server(scene)
    await standing(scene, audience=(billing,), allowed_tools=(), resource_constraints=None)
    assert reason(await accepted(scene, IDP.assertion(scene), resource=(billing,))) is Reason.TARGET_REFUSED
    both = [SUPPORT.uri, billing]
    assert reason(await accepted(scene, IDP.assertion(scene, resource=both))) is Reason.TARGET_REFUSED
    one_of_both = await accepted(scene, IDP.assertion(scene, resource=both), resource=(billing,))
    assert reason(one_of_both) is Reason.TARGET_REFUSED


async def test_without_a_standing_grant_there_is_no_target(scene: Scene) -> None:
    await another_client(scene, "agent")
    assertion = IDP.assertion(scene, client_id="agent")
    assert reason(await accepted(scene, assertion, by="agent")) is Reason.TARGET_REFUSED


async def test_an_assertion_is_good_for_one_token(scene: Scene) -> None:
    assertion = IDP.assertion(scene)
    assert isinstance(await accepted(scene, assertion), Exchanged)
    assert reason(await accepted(scene, assertion)) is Reason.TOKEN_INVALID
    resigned = IDP.assertion(scene, jti="again", scope="tools:call"), IDP.assertion(scene, jti="again")
    assert isinstance(await accepted(scene, resigned[0]), Exchanged)
    assert reason(await accepted(scene, resigned[1])) is Reason.TOKEN_INVALID


async def test_an_assertion_does_not_come_back_when_it_is_about_to_expire(scene: Scene) -> None:
    assertion = IDP.assertion(scene, exp=int(scene.clock.now.timestamp()) + 60)
    assert isinstance(await accepted(scene, assertion), Exchanged)
    scene.clock.now += timedelta(seconds=59)
    assert reason(await accepted(scene, assertion)) is Reason.TOKEN_INVALID
    scene.clock.now += timedelta(seconds=1)
    assert isinstance(await accepted(scene, IDP.assertion(scene)), Exchanged)
    assert isinstance(await accepted(scene, assertion), Denied)


@pytest.mark.parametrize(
    "claims",
    [
        {"client_id": "agent"},
        {"client_id": None},
        {"client_id": [PLANNER]},
        {"aud": "https://subgrant.example/"},
        {"aud": "https://subgrant.example/oauth/token"},
        {"aud": [ISSUER, "https://other.example"]},
        {"jti": None},
        {"exp": None},
        {"sub": None},
        {"scope": ["tools:call"]},
        {"resource": {"uri": SUPPORT.uri}},
        {"resource": [SUPPORT.uri, 7]},
        {"resource": []},
        {"aud_tenant": "other"},
        {"tenant": "their-tenant"},
        {"authorization_details": []},
        {"sub": "al\u0000ice"},
        {"sub": "a" * 200},
        {"sub": "A\u030a"},
    ],
)
async def test_an_assertion_with_a_flaw_is_refused(scene: Scene, claims: JsonObject) -> None:
    assert reason(await accepted(scene, IDP.assertion(scene, **claims))) is Reason.TOKEN_INVALID


async def test_an_assertion_for_our_tenant_by_name_is_good(scene: Scene) -> None:
    assert isinstance(await accepted(scene, IDP.assertion(scene, aud_tenant=ACME)), Exchanged)


@pytest.mark.parametrize(
    "typ", [None, "JWT", "at+jwt", "oauth-id-jag", "OAUTH-ID-JAG+JWT", "client-authentication+jwt"]
)
async def test_a_token_of_another_kind_is_no_assertion(scene: Scene, typ: str | None) -> None:
    claims = IDP.claims(scene, client_id=PLANNER, resource=SUPPORT.uri, jti="j")
    assert reason(await accepted(scene, IDP.sign(claims, typ=typ))) is Reason.TOKEN_INVALID
    assert isinstance(await accepted(scene, IDP.sign(claims, typ="oauth-id-jag+jwt")), Exchanged)


async def test_an_assertion_whose_audience_is_configured_otherwise_is_still_for_us_alone(scene: Scene) -> None:
    """The draft has our issuer as its `aud`, whatever the issuer's other tokens have."""
    await put(scene, replace(IDP.trusted(), audience="api://subgrant"))
    assert reason(await accepted(scene, IDP.assertion(scene, aud="api://subgrant"))) is Reason.TOKEN_INVALID
    assert isinstance(await accepted(scene, IDP.assertion(scene)), Exchanged)
    assert isinstance(await exchange(scene, IDP.id_token(scene, aud="api://subgrant"), ID_TOKEN), Exchanged)
    assert reason(await exchange(scene, IDP.id_token(scene), ID_TOKEN)) is Reason.TOKEN_INVALID


async def test_an_issuer_that_is_not_trusted_for_grants_gives_none(scene: Scene) -> None:
    await put(scene, IDP.trusted(IssuerUse.CLIENT, IssuerUse.SUBJECT))
    assert reason(await accepted(scene, IDP.assertion(scene))) is Reason.TOKEN_INVALID
    await put(scene, replace(IDP.trusted(), active=False))
    assert reason(await accepted(scene, IDP.assertion(scene))) is Reason.TOKEN_INVALID


async def test_another_tenants_issuer_is_a_stranger(scene: Scene) -> None:
    other, theirs = TenantId("other"), IdentityProvider(issuer="https://theirs.example", name="theirs")
    async with scene.world.store.write() as tx:
        await tx.registry.add_tenant(Tenant(tenant_id=other, name="Other"))
        await tx.registry.put_issuer(theirs.trusted(tenant_id=other))
        await tx.commit()
    assert reason(await accepted(scene, theirs.assertion(scene))) is Reason.TOKEN_INVALID


async def test_the_scope_of_an_assertion_bounds_the_tokens(scene: Scene) -> None:
    assert isinstance(await accepted(scene, IDP.assertion(scene, scope=None)), Exchanged)
    assert isinstance(await accepted(scene, IDP.assertion(scene, scope="tools:call other")), Exchanged)
    assert reason(await accepted(scene, IDP.assertion(scene, scope="other"))) is Reason.INSUFFICIENT_SCOPE
    wider = await accepted(scene, IDP.assertion(scene), scopes=frozenset({"tools:call", "other"}))
    assert reason(wider) is Reason.INSUFFICIENT_SCOPE
    elsewhere = await accepted(scene, IDP.assertion(scene, scope="tools:call other"), scopes=frozenset({"other"}))
    assert reason(elsewhere) is Reason.INSUFFICIENT_SCOPE


async def test_an_assertion_bound_to_a_key_is_for_its_holder(scene: Scene) -> None:
    jkt = "k" * 43
    bound: JsonObject = {"jkt": jkt}
    assert reason(await accepted(scene, IDP.assertion(scene, cnf=bound))) is Reason.PROOF_INVALID
    other = await accepted(scene, IDP.assertion(scene, cnf=bound), proven_key="o" * 43)
    assert reason(other) is Reason.PROOF_INVALID
    # To name a key is not to have it.
    named = await accepted(scene, IDP.assertion(scene, cnf=bound), key_thumbprint=jkt)
    assert reason(named) is Reason.PROOF_INVALID
    for strange in ({"jkt": None}, {}, {"x5t#S256": jkt}, {"jkt": jkt, "x5t#S256": jkt}, jkt):
        assert reason(await accepted(scene, IDP.assertion(scene, cnf=strange))) is Reason.PROOF_INVALID
    issued = await accepted(scene, IDP.assertion(scene, cnf=bound), key_thumbprint=jkt, proven_key=jkt)
    assert isinstance(issued, Exchanged)
    assert claims_of(scene, issued)["cnf"] == bound


async def test_an_assertion_may_be_narrowed_by_who_presents_it(scene: Scene) -> None:
    narrow = await accepted(scene, IDP.assertion(scene), fields=NarrowingFields(max_tool_calls=1))
    assert isinstance(narrow, Exchanged)
    assert narrow.grant.limit.tool_calls == 1
    wide = await accepted(scene, IDP.assertion(scene), fields=NarrowingFields(max_tool_calls=6))
    assert reason(wide) is Reason.NOT_NARROWER


async def test_every_refused_assertion_is_on_record(scene: Scene) -> None:
    refused = await accepted(scene, IDP.assertion(scene, client_id="agent"))
    assert isinstance(refused, Denied)
    (*_, record) = await scene.records()
    assert (record["type"], record["decisionId"]) == ("delegation.refused", refused.decision_id)


# --- subjects (RFC 8693 §2.1) -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [JWT, ID_TOKEN])
async def test_an_outside_subject_token_says_for_whom_and_gives_nothing(scene: Scene, kind: str) -> None:
    issued = await exchange(scene, IDP.id_token(scene), kind, resource=(SUPPORT.uri,))
    assert isinstance(issued, Exchanged)
    assert issued.grant.subject == "okta#alice"
    await another_client(scene, "agent")
    nothing = await exchange(scene, IDP.id_token(scene), kind, by="agent", resource=(SUPPORT.uri,))
    assert reason(nothing) is Reason.TARGET_REFUSED


async def test_a_delegation_grant_may_be_asked_for_an_outside_subject(scene: Scene) -> None:
    issued = await exchange(scene, IDP.id_token(scene), ID_TOKEN, requested_token_type=DELEGATION_GRANT)
    assert isinstance(issued, Exchanged)
    assert scene.world.signer.verify_grant(issued.token).grant.subject == "okta#alice"
    assert issued.grant.depth == 1


async def test_a_subject_named_like_a_client_is_not_that_client(scene: Scene) -> None:
    issued = await exchange(scene, IDP.id_token(scene, sub=PLANNER), ID_TOKEN)
    assert isinstance(issued, Exchanged)
    assert issued.grant.subject == f"okta#{PLANNER}"


async def test_a_subject_may_be_one_only_where_the_issuer_is_trusted_for_that(scene: Scene) -> None:
    await put(scene, IDP.trusted(IssuerUse.CLIENT, IssuerUse.GRANT))
    assert reason(await exchange(scene, IDP.id_token(scene), ID_TOKEN)) is Reason.TOKEN_INVALID


async def test_an_identity_assertion_is_no_subject_token_and_ours_is_not_another_issuers(scene: Scene) -> None:
    assert reason(await exchange(scene, IDP.assertion(scene), JWT)) is Reason.TOKEN_INVALID
    ours = await token(scene)
    assert reason(await exchange(scene, ours.token, JWT)) is Reason.TOKEN_INVALID
    for kind in (ACCESS_TOKEN, DELEGATION_GRANT):
        assert reason(await exchange(scene, IDP.id_token(scene), kind)) is Reason.TOKEN_INVALID


@pytest.mark.parametrize("claim", ["act", "may_act"])
@pytest.mark.parametrize(
    "party",
    [
        {"sub": "agent"},
        {"client_id": "agent"},
        {"sub": PLANNER, "client_id": "agent"},
        {"sub": "agent", "client_id": PLANNER},
        {"sub": PLANNER, "iss": "https://idp.example"},
        {"sub": "spiffe-like/agent"},
        {"sub": PLANNER, "act": {"sub": "agent"}},
        {"sub": PLANNER, "aud": "https://other.example"},
        {"iss": ISSUER},
        {"sub": None},
        {"sub": [PLANNER]},
        {"sub": PLANNER, "iss": None},
        {},
        [],
        None,
        PLANNER,
        [{"sub": PLANNER}],
    ],
)
async def test_a_token_for_another_to_act_with_never_loses_that_actor(
    scene: Scene, claim: str, party: JsonValue
) -> None:
    """RFC 8693 §4.1, §4.4: nobody else uses it, and no token is issued in which the actor is missing."""
    claims = IDP.claims(scene) | {claim: party}
    assert reason(await exchange(scene, IDP.sign(claims), JWT)) is Reason.ACTOR_NOT_PERMITTED
    assertion = IDP.claims(scene, client_id=PLANNER, resource=SUPPORT.uri, jti="j") | {claim: party}
    signed = IDP.sign(assertion, typ="oauth-id-jag+jwt")
    assert reason(await accepted(scene, signed)) is Reason.ACTOR_NOT_PERMITTED
    request = MintRequest(fields=SEARCHING, subject_token=IDP.sign(claims))
    assert reason(await mint_grant(scene.world, scene.planner, request)) is Reason.ACTOR_NOT_PERMITTED


@pytest.mark.parametrize("claim", ["act", "may_act"])
@pytest.mark.parametrize("party", [{"sub": PLANNER}, {"client_id": PLANNER}, {"sub": PLANNER, "iss": ISSUER}])
async def test_a_token_that_names_who_asks_is_good_and_its_history_is_not_copied(
    scene: Scene, claim: str, party: JsonObject
) -> None:
    issued = await exchange(scene, IDP.id_token(scene, **{claim: party}), JWT)
    assert isinstance(issued, Exchanged)
    root = (await client(scene)).standing_grants[SUPPORT.server]
    async with scene.world.store.read() as tx:
        (stored,) = await tx.grants.chain(ACME, root)  # type: ignore[arg-type]  # the registry has it as text
    run = scene.world.signer.verify_grant(stored.signed).grant.child_run_id
    expected = {"sub": PLANNER, "run": issued.grant.child_run_id, "act": {"sub": PLANNER, "run": run}}
    assert claims_of(scene, issued)["act"] == expected


async def test_a_token_may_name_a_client_by_its_workload(scene: Scene) -> None:
    await put(scene, replace(await client(scene), workload=WORKLOAD))
    for party in ({"sub": WORKLOAD.subject}, {"sub": WORKLOAD.subject, "iss": IDP.issuer}):
        assert isinstance(await exchange(scene, IDP.id_token(scene, may_act=party), JWT), Exchanged)
    elsewhere = {"sub": WORKLOAD.subject, "iss": ISSUER}
    assert reason(await exchange(scene, IDP.id_token(scene, may_act=elsewhere), JWT)) is Reason.ACTOR_NOT_PERMITTED


async def test_who_is_named_must_be_who_will_act(scene: Scene) -> None:
    """The client that an actor token proves, where there is one."""
    await another_client(scene, "agent", workload=WORKLOAD)
    for named, is_good in (("agent", True), (PLANNER, False)):
        actor = {"actor_token": IDP.id_token(scene, sub=WORKLOAD.subject), "actor_token_type": JWT}
        subject = IDP.id_token(scene, may_act={"client_id": named})
        assert isinstance(await exchange(scene, subject, JWT, **actor), Exchanged) == is_good


# --- actors -------------------------------------------------------------------------------------------------


async def test_a_workloads_token_makes_its_client_the_actor(scene: Scene) -> None:
    await another_client(scene, "agent", workload=WORKLOAD)
    for subject, kind in (
        ((await scene.grant(may_redelegate=True)).signed, DELEGATION_GRANT),
        ((await token(scene, fields=NarrowingFields(may_redelegate=True))).token, ACCESS_TOKEN),
        (IDP.id_token(scene), ID_TOKEN),
    ):
        acting = IDP.id_token(scene, sub=WORKLOAD.subject)
        issued = await exchange(scene, subject, kind, actor_token=acting, actor_token_type=JWT)
        assert isinstance(issued, Exchanged), issued
        assert (issued.grant.actor, issued.grant.holder, issued.grant.issued_by) == ("agent", "agent", PLANNER)
        claims = claims_of(scene, issued)
        act = claims["act"]
        assert isinstance(act, dict)
        assert (act["sub"], claims["may_act"], claims["client_id"]) == ("agent", {"sub": "agent"}, PLANNER)


async def test_a_workload_that_proves_no_single_active_client_is_no_actor(scene: Scene) -> None:
    actor = {"actor_token": IDP.id_token(scene, sub=WORKLOAD.subject), "actor_token_type": JWT}

    async def tried() -> Reason:
        return reason(await exchange(scene, IDP.id_token(scene), ID_TOKEN, **actor))

    assert await tried() is Reason.ACTOR_NOT_PERMITTED
    await another_client(scene, "agent", workload=WORKLOAD, active=False)
    assert await tried() is Reason.ACTOR_NOT_PERMITTED
    await another_client(scene, "agent", workload=WORKLOAD)
    await another_client(scene, "twin", workload=WORKLOAD)
    assert await tried() is Reason.ACTOR_NOT_PERMITTED


async def test_a_workload_is_one_by_its_issuer_and_its_subject(scene: Scene) -> None:
    other = IdentityProvider(issuer="https://other.example", name="other")
    await put(scene, other.trusted())
    await another_client(scene, "agent", workload=WORKLOAD)
    for forged in (other.id_token(scene, sub=WORKLOAD.subject), IDP.id_token(scene, sub="agent")):
        result = await exchange(scene, IDP.id_token(scene), ID_TOKEN, actor_token=forged, actor_token_type=JWT)
        assert reason(result) is Reason.ACTOR_NOT_PERMITTED


async def as_agent(scene: Scene, acting: str, *, subject: str | None = None) -> Exchanged | Denied:
    """An exchange of a grant, or of a subject's token, for whom this proves."""
    if subject is not None:
        return await exchange(scene, subject, ID_TOKEN, actor_token=acting, actor_token_type=JWT)
    grant = (await scene.grant(may_redelegate=True)).signed
    return await exchange(scene, grant, DELEGATION_GRANT, actor_token=acting, actor_token_type=JWT)


def is_used(result: object) -> bool:
    return isinstance(result, Denied) and result.detail == USED.detail


@pytest.mark.parametrize("first", ["grant", "subject"])
async def test_an_actor_token_is_used_up_by_what_is_issued_for_it(scene: Scene, first: str) -> None:
    await another_client(scene, "agent", workload=WORKLOAD)
    acting = IDP.id_token(scene, sub=WORKLOAD.subject)
    subjects = (None, IDP.id_token(scene)) if first == "grant" else (IDP.id_token(scene), None)
    assert isinstance(await as_agent(scene, acting, subject=subjects[0]), Exchanged)
    for subject in subjects:
        assert is_used(await as_agent(scene, acting, subject=subject))
    assert isinstance(await as_agent(scene, IDP.id_token(scene, sub=WORKLOAD.subject)), Exchanged)


async def test_an_actor_token_that_brought_nothing_is_as_good_as_it_was(scene: Scene) -> None:
    await another_client(scene, "agent", workload=WORKLOAD)
    acting, grant = IDP.id_token(scene, sub=WORKLOAD.subject), await scene.grant()
    refused = await exchange(scene, grant.signed, DELEGATION_GRANT, actor_token=acting, actor_token_type=JWT)
    assert reason(refused) is Reason.REDELEGATION_DENIED
    (*_, record) = await scene.records()
    assert (record["type"], record["grantId"]) == ("delegation.refused", grant.grant.grant_id)
    assert isinstance(await as_agent(scene, acting), Exchanged)


@pytest.mark.parametrize("first", ["client", "actor"])
async def test_a_workloads_token_is_good_once_whether_it_proves_who_asks_or_who_acts(scene: Scene, first: str) -> None:
    signing = {"auth_method": AuthMethod.PRIVATE_KEY_JWT, "secret_hash": "", "workload": WORKLOAD}
    agent = await another_client(scene, "agent", **signing)
    compact = IDP.id_token(scene, sub=WORKLOAD.subject)
    proven = await prove_client(scene.world, ClientAssertion(client_id=agent.client_id, assertion=compact))
    assert isinstance(proven, ProvenClient)
    if first == "client":
        assert await spend_assertion(scene.world, proven)
        assert is_used(await as_agent(scene, compact))
    else:
        assert isinstance(await as_agent(scene, compact), Exchanged)
        assert not await spend_assertion(scene.world, proven)


async def test_a_used_actor_token_is_remembered_for_longer_than_it_could_be_used(scene: Scene) -> None:
    """By the clock of a worker that is behind it can be shown for a while yet."""
    await another_client(scene, "agent", workload=WORKLOAD)
    acting, begun = IDP.id_token(scene, sub=WORKLOAD.subject), scene.clock.now
    assert isinstance(await as_agent(scene, acting), Exchanged)
    scene.clock.now = begun + timedelta(seconds=60) + CLOCK_MARGIN - timedelta(seconds=1)
    # Whatever is spent meanwhile takes the chance to forget what has expired.
    assert isinstance(await as_agent(scene, IDP.id_token(scene, sub=WORKLOAD.subject)), Exchanged)
    scene.clock.now = begun
    assert is_used(await as_agent(scene, acting))


async def test_an_actor_token_without_a_jti_is_for_issuers_whose_tokens_are_shown_again(scene: Scene) -> None:
    await another_client(scene, "agent", workload=WORKLOAD)
    acting = IDP.id_token(scene, sub=WORKLOAD.subject, jti=None)
    assert reason(await as_agent(scene, acting)) is Reason.TOKEN_INVALID
    await put(scene, replace(IDP.trusted(), single_use=False))
    for compact in (acting, acting, *[IDP.id_token(scene, sub=WORKLOAD.subject)] * 2):
        assert isinstance(await as_agent(scene, compact), Exchanged)


async def test_an_actor_token_that_has_an_actor_of_its_own_is_refused(scene: Scene) -> None:
    await another_client(scene, "agent", workload=WORKLOAD)
    acting = IDP.id_token(scene, sub=WORKLOAD.subject, act={"sub": "another"})
    result = await exchange(scene, IDP.id_token(scene), ID_TOKEN, actor_token=acting, actor_token_type=JWT)
    assert reason(result) is Reason.ACTOR_NOT_PERMITTED


async def test_an_actor_needs_an_issuer_that_is_trusted_for_clients(scene: Scene) -> None:
    await another_client(scene, "agent", workload=WORKLOAD)
    await put(scene, IDP.trusted(IssuerUse.SUBJECT))
    actor = {"actor_token": IDP.id_token(scene, sub=WORKLOAD.subject), "actor_token_type": JWT}
    assert reason(await exchange(scene, IDP.id_token(scene), ID_TOKEN, **actor)) is Reason.TOKEN_INVALID


async def test_an_outside_token_bound_to_a_key_needs_that_key(scene: Scene) -> None:
    await another_client(scene, "agent", workload=WORKLOAD)
    cnf: JsonObject = {"jkt": "k" * 43}
    bound, free = IDP.id_token(scene, cnf=cnf), IDP.id_token(scene)
    actor = {"actor_token": IDP.id_token(scene, sub=WORKLOAD.subject, cnf=cnf), "actor_token_type": JWT}
    assert reason(await exchange(scene, bound, JWT)) is Reason.PROOF_INVALID
    assert reason(await exchange(scene, free, JWT, **actor)) is Reason.PROOF_INVALID
    assert isinstance(await exchange(scene, bound, JWT, proven_key="k" * 43, **actor), Exchanged)


# --- minting (settled: a trusted issuer's token proves the subject) --------------------------------------------


async def minted(scene: Scene, **request: object) -> SignedGrant | Denied:
    wanted = replace(MintRequest(fields=SEARCHING), **request)  # type: ignore[arg-type]  # likewise
    return await mint_grant(scene.world, scene.planner, wanted)


async def test_a_subject_token_proves_the_subject_of_a_root_whatever_the_limits_say(scene: Scene) -> None:
    assert (await client(scene)).ceiling.subjects == frozenset()
    for subject in (None, "okta#alice"):
        made = await minted(scene, subject_token=IDP.id_token(scene), subject=subject)
        assert isinstance(made, SignedGrant)
        assert made.grant.subject == "okta#alice"


async def test_a_root_is_for_the_holder_that_its_subjects_token_names(scene: Scene) -> None:
    await another_client(scene, "agent", workload=WORKLOAD)
    by_workload = {"sub": WORKLOAD.subject, "iss": IDP.issuer}
    for claim, named in (("may_act", {"sub": "agent"}), ("act", {"client_id": "agent"}), ("may_act", by_workload)):
        compact = IDP.id_token(scene, **{claim: named})
        made = await minted(scene, subject_token=compact, holder=ClientId("agent"))
        assert isinstance(made, SignedGrant)
        assert (made.grant.holder, made.grant.actor, made.grant.subject) == ("agent", "agent", "okta#alice")
        # Who asks for it is not who acts.
        assert reason(await minted(scene, subject_token=compact)) is Reason.ACTOR_NOT_PERMITTED
    ours = IDP.id_token(scene, may_act={"sub": PLANNER})
    refused = await minted(scene, subject_token=ours, holder=ClientId("agent"))
    assert isinstance(refused, Denied)
    assert (refused.reason, refused.pointer) == (Reason.ACTOR_NOT_PERMITTED, "/subjectToken")


async def test_a_holder_that_is_none_has_no_subject_token_read(scene: Scene) -> None:
    await another_client(scene, "agent", active=False)
    for holder in ("agent", "nobody"):
        refused = await minted(scene, subject_token="x", holder=ClientId(holder))
        assert isinstance(refused, Denied)
        assert (refused.reason, refused.pointer) == (Reason.ACTOR_NOT_PERMITTED, "/holder")


# --- what the log says of it ----------------------------------------------------------------------------------


async def proofs_of(scene: Scene, kind: str) -> list[JsonObject]:
    """By what the parties of everything of this kind were proven, oldest first."""
    names = ("provenBy", "actorProvenBy")
    records = [record for record in await scene.records() if record["type"] == kind]
    return [{name: record[name] for name in names if name in record} for record in records]


async def test_what_is_issued_on_anothers_word_names_that_word_and_never_repeats_it(scene: Scene) -> None:
    await another_client(scene, "agent", workload=WORKLOAD)
    subject, acting = IDP.id_token(scene, jti="s1"), IDP.id_token(scene, sub=WORKLOAD.subject, jti="a1")
    nameless, assertion = IDP.id_token(scene, jti=None), IDP.assertion(scene, jti="g1")
    await exchange(scene, subject, JWT, actor_token=acting, actor_token_type=JWT)
    await exchange(scene, nameless, JWT)
    await accepted(scene, assertion)
    await as_agent(scene, IDP.id_token(scene, sub=WORKLOAD.subject, jti="a2"))
    await token(scene)
    assert await proofs_of(scene, "delegation.exchanged") == [
        {"provenBy": {"issuer": "okta", "jti": "s1"}, "actorProvenBy": {"issuer": "okta", "jti": "a1"}},
        {"provenBy": {"issuer": "okta"}},
        {"provenBy": {"issuer": "okta", "jti": "g1"}},
        {"actorProvenBy": {"issuer": "okta", "jti": "a2"}},
        {},
    ]
    kept = json.dumps(list(await scene.records()))
    assert not [whole for whole in (subject, acting, nameless, assertion) if whole.split(".")[2] in kept]


async def test_a_root_names_the_word_that_proved_its_subject(scene: Scene) -> None:
    await minted(scene, subject_token=IDP.id_token(scene, jti="s1"))
    await minted(scene)
    (*_, proven, plain) = await proofs_of(scene, "delegation.created")
    assert (proven, plain) == ({"provenBy": {"issuer": "okta", "jti": "s1"}}, {})


async def test_without_the_token_its_subject_is_as_any_other(scene: Scene) -> None:
    assert reason(await minted(scene, subject="okta#alice")) is Reason.NOT_NARROWER


async def test_a_subject_beside_a_token_must_be_the_same(scene: Scene) -> None:
    for other in ("alice", "okta#bob", PLANNER):
        with pytest.raises(Malformed, match="subjectToken"):
            await minted(scene, subject_token=IDP.id_token(scene), subject=other)


async def test_a_subject_token_bound_to_a_key_is_none_where_no_key_is_proven(scene: Scene) -> None:
    bound = IDP.id_token(scene, cnf={"jkt": "k" * 43})
    assert reason(await minted(scene, subject_token=bound)) is Reason.PROOF_INVALID


async def test_only_who_may_mint_has_a_subject_token_read(scene: Scene) -> None:
    nobody = replace(scene.planner, scopes=frozenset())
    request = MintRequest(fields=SEARCHING, subject_token="x")
    assert reason(await mint_grant(scene.world, nobody, request)) is Reason.INSUFFICIENT_SCOPE


async def test_a_proven_subject_widens_nothing_else(scene: Scene) -> None:
    wide = replace(SEARCHING, max_tool_calls=101)
    assert reason(await minted(scene, fields=wide, subject_token=IDP.id_token(scene))) is Reason.NOT_NARROWER
    refused = await minted(scene, subject_token=IDP.id_token(scene, exp=1))
    assert isinstance(refused, Denied)
    assert (refused.reason, refused.pointer) == (Reason.TOKEN_INVALID, "/subjectToken")


async def test_closing_the_standing_grant_ends_what_assertions_and_subject_tokens_brought(scene: Scene) -> None:
    first = await accepted(scene, IDP.assertion(scene))
    second = await exchange(scene, IDP.id_token(scene), ID_TOKEN)
    assert isinstance(first, Exchanged)
    assert isinstance(second, Exchanged)
    root = first.grant.root_grant_id
    closed = await close_grant(scene.world, ADMIN, root, "closed")
    assert not isinstance(closed, Denied)
    assert set(closed.closed) == {root, first.grant.grant_id, second.grant.grant_id}
