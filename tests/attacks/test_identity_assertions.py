"""Others' signatures as an attack: assertions and subjects of somebody else, for somewhere else, twice, or forged.

RFC 7523 §3, RFC 8693 §2.1 and §4.4, draft-ietf-oauth-identity-assertion-authz-grant.
"""

import asyncio
import hmac
import json
from collections.abc import Iterator
from typing import Final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.api_client import ACCESS_TOKEN, DELEGATION_GRANT, Json, made, refused
from tests.attacks.forger import unb64
from tests.attacks.house import ID_TOKEN, IDP, JWT, JWT_BEARER, KEY, House, a_house
from tests.attacks.stage import Stage, set_stage
from tests.members import DROP
from tests.outsiders import a_key, b64, jwks
from tests.server_process import ServerProcess

pytestmark = pytest.mark.anyio

STRANGER: Final = a_key("ES256", "idp-1", 9)
"""Another's key, under the name of the real one."""
PUBLIC_PEM: Final = KEY.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
"""What everybody knows, as the secret of a signature that is none."""


@pytest.fixture(scope="module")
def server(database_url: str) -> Iterator[ServerProcess]:
    """Two workers, which know of each other only by the store."""
    with ServerProcess(database_url, workers=2) as running:
        yield running


@pytest.fixture
async def house(stage: Stage) -> House:
    house = await a_house(stage)
    await house.standing(mayRedelegate=True)
    return house


def claims_of(token: str) -> Json:
    decoded: Json = json.loads(unb64(token.split(".")[1]))
    return decoded


# --- replay -------------------------------------------------------------------------------------------------


async def test_of_many_uses_at_once_in_two_workers_one_wins(house: House) -> None:
    assertion = house.assertion()
    responses = await asyncio.gather(*(house.present(assertion) for _ in range(10)))
    assert sorted(response.status_code for response in responses) == [200] + [400] * 9
    assert {response.json()["error"] for response in responses if response.status_code == 400} == {"invalid_grant"}


async def test_the_same_jti_in_another_assertion_is_used_up_as_well(house: House) -> None:
    made(await house.present(house.assertion(jti="once")))
    for again in (
        house.assertion(jti="once"),
        house.assertion(jti="once", sub="bob"),
        house.assertion(jti="once", scope=DROP),
    ):
        assert (await house.present(again)).json()["error"] == "invalid_grant"


async def test_another_spelling_of_a_used_assertion_is_no_other(house: House) -> None:
    assertion = house.assertion()
    made(await house.present(assertion))
    header, payload, signature = assertion.split(".")
    spellings = (
        assertion + "=",
        f"{header}=.{payload}.{signature}",
        f"{assertion}.",
        f"{assertion}\n",
        f" {assertion}",
    )
    for spelled in spellings:
        assert (await house.present(spelled)).json()["error"] == "invalid_grant"


async def test_a_jti_of_one_issuer_is_not_anothers(house: House) -> None:
    other = {"name": "other", "tenantId": house.stage.tenant, "issuer": "https://other.example", "jwks": jwks(KEY)}
    made(await house.stage.api.admin_request("POST", "/issuers", json=other | {"uses": ["grant"]}))
    made(await house.present(house.assertion(jti="same")))
    made(await house.present(house.assertion(jti="same", iss="https://other.example")))


async def test_a_narrowing_that_is_refused_leaves_the_assertion_as_good_as_it_was(house: House) -> None:
    assertion = house.assertion()
    wide = '[{"type": "delegation", "maxToolCalls": 6}]'
    assert refused(await house.present(assertion, authorization_details=wide), 400) == "not_narrower"
    made(await house.present(assertion))


# --- whose, for whom, where ---------------------------------------------------------------------------------


async def test_an_assertion_for_one_client_is_worth_nothing_to_another(house: House) -> None:
    thief = await a_house(house.stage, "thief", trusts=False)
    await thief.standing()
    stolen = house.assertion()
    assert (await thief.present(stolen)).json()["error"] == "invalid_grant"
    assert refused(await thief.present(stolen, client_id=house.agent.client_id)) in {
        "invalid_client",
        "invalid_request",
    }
    made(await house.present(stolen))


async def test_an_assertion_reaches_no_tool_server_but_its_own(house: House) -> None:
    await house.standing(audience=house.stage.billing)
    elsewhere = json.dumps([{"type": "delegation", "audience": house.stage.billing}])
    for form in ({"resource": house.stage.billing}, {"authorization_details": elsewhere}):
        response = await house.present(house.assertion(), **form)
        assert (response.status_code, response.json()["error"]) == (400, "invalid_target")


async def test_a_neighbours_issuer_speaks_for_nobody_here(house: House) -> None:
    """Though both trust an issuer of the same name, and the same `iss` with keys of their own."""
    neighbour = await a_house(await set_stage(house.stage.api, house.stage.tools), trusts=False)
    await neighbour.standing()
    assert (await neighbour.present(neighbour.assertion())).json()["error"] == "invalid_grant"
    theirs = {"name": "okta", "tenantId": neighbour.stage.tenant, "issuer": IDP, "jwks": jwks(STRANGER)}
    made(await house.stage.api.admin_request("POST", "/issuers", json=theirs | {"uses": ["grant", "subject"]}))
    assert (await neighbour.present(neighbour.assertion())).json()["error"] == "invalid_grant"
    assert (await house.present(house.assertion(STRANGER))).json()["error"] == "invalid_grant"
    made(await neighbour.present(neighbour.assertion(STRANGER)))
    made(await house.present(house.assertion()))


@pytest.mark.parametrize("sub", ["agent", "platform-admin", "okta#alice", "../admin", "alice@example.com"])
async def test_a_subject_is_never_a_client_nor_another_issuers_subject(house: House, sub: str) -> None:
    for sub_ in (sub, house.agent.client_id):
        token = made(await house.present(house.assertion(sub=sub_)))["access_token"]
        assert claims_of(token)["sub"] == f"okta#{sub_}"
        assert claims_of(token)["client_id"] == house.agent.client_id


async def test_a_subject_gets_no_authority_from_its_name(house: House) -> None:
    """A token with a client's name as its subject is no token of that client."""
    victim = house.stage.planner.client_id
    token = made(await house.present(house.assertion(sub=victim)))["access_token"]
    response = await house.stage.api.request("POST", "/v1/grants", token, json={})
    assert response.status_code in {401, 403}


async def test_what_is_bound_to_the_subject_is_bound_to_the_one_that_was_proven(stage: Stage) -> None:
    house = await a_house(stage)
    await house.standing(resourceConstraints={"search": {"customerId": {"bind": "subject"}}})
    alices = made(await house.present(house.assertion()))["access_token"]
    bobs = made(await house.present(house.assertion(sub="bob")))["access_token"]
    own = await house.token()
    for token, subject in ((alices, "okta#alice"), (bobs, "okta#bob"), (own, house.agent.client_id)):
        for customer in ("okta#alice", "okta#bob", "alice", house.agent.client_id):
            answer = await stage.api.check(token, stage.support, "search", {"customerId": customer})
            (decision,) = made(answer)["decisions"]
            assert decision["decision"] == ("allow" if customer == subject else "deny")


# --- kinds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("typ", ["JWT", "at+jwt", "client-authentication+jwt", "dpop+jwt", "oauth-id-jag+jwt ", DROP])
async def test_without_its_type_an_assertion_is_none(house: House, typ: object) -> None:
    assert (await house.present(house.assertion(typ=typ))).json()["error"] == "invalid_grant"


async def test_each_kind_of_token_is_refused_where_another_is_expected(house: House) -> None:
    api, agent = house.stage.api, house.agent
    assertion, id_token = house.assertion(), house.id_token()
    access = await house.token()
    grant = made(await api.exchange(agent, access, subject_token_type=ACCESS_TOKEN))["access_token"]
    for token in (id_token, access, grant):
        assert (await house.present(token)).json()["error"] == "invalid_grant"
    for kind in (JWT, ID_TOKEN, ACCESS_TOKEN, DELEGATION_GRANT):
        response = await api.exchange(agent, assertion, subject_token_type=kind, resource=house.stage.support)
        assert (response.status_code, response.json()["error"]) == (400, "invalid_request")
    for bearer in (assertion, id_token):
        assert (await house.call(bearer)).status_code == 401
    made(await house.present(assertion))


@pytest.mark.parametrize("how", ["none", "no signature", "another key", "HS256", "cut", "claims changed"])
async def test_a_forged_assertion_is_none(house: House, how: str) -> None:
    genuine = house.assertion()
    header, payload, signature = genuine.split(".")
    changed = b64(json.dumps(claims_of(genuine) | {"sub": "mallory"}).encode())
    unsigned = b64(json.dumps({"alg": "none", "typ": "oauth-id-jag+jwt"}).encode())
    shared = b64(json.dumps({"alg": "HS256", "kid": "idp-1", "typ": "oauth-id-jag+jwt"}).encode())
    forged = {
        "none": f"{unsigned}.{payload}.",
        "no signature": f"{header}.{payload}.",
        "another key": house.assertion(STRANGER),
        "HS256": f"{shared}.{payload}.{b64(hmac.digest(PUBLIC_PEM, f'{shared}.{payload}'.encode(), 'sha256'))}",
        "cut": f"{header}.{payload}.{signature[:-4]}",
        "claims changed": f"{header}.{changed}.{signature}",
    }[how]
    assert (await house.present(forged)).json()["error"] == "invalid_grant"
    made(await house.present(genuine))


# --- delegation in others' tokens ---------------------------------------------------------------------------


@pytest.mark.parametrize("claim", ["act", "may_act"])
async def test_a_token_for_another_actor_brings_nothing_by_any_way(house: House, claim: str) -> None:
    """RFC 8693 §4.1, §4.4: no token is issued in which the actor that it names is missing."""
    api, agent = house.stage.api, house.agent
    other = {claim: {"sub": "somebody-else"}}
    exchanged = await api.exchange(agent, house.id_token(**other), subject_token_type=JWT, resource=house.stage.support)
    assert refused(exchanged, 400) == "actor_not_permitted"
    assert (await house.present(house.assertion(**other))).json()["error"] == "invalid_grant"
    wish = {"audience": house.stage.support, "subjectToken": house.id_token(**other)}
    assert refused(await api.mint(house.stage.planner, **wish), 403) == "actor_not_permitted"
    mine = {claim: {"sub": agent.client_id}}
    token = made(
        await api.exchange(agent, house.id_token(**mine), subject_token_type=JWT, resource=house.stage.support)
    )["access_token"]
    assert claims_of(token)["act"]["sub"] == agent.client_id


async def test_no_history_in_a_presented_token_reaches_ours(house: House) -> None:
    api, agent = house.stage.api, house.agent
    nested = {"act": {"sub": agent.client_id, "act": {"sub": "a-forged-history"}}}
    response = await api.exchange(agent, house.id_token(**nested), subject_token_type=JWT, resource=house.stage.support)
    assert refused(response, 400) == "actor_not_permitted"
    token = await house.token()
    again = await api.access_token(agent, token, subject_token_type=ACCESS_TOKEN)
    assert claims_of(again)["act"] == claims_of(token)["act"]


async def test_our_own_tokens_say_who_may_act_next_and_nobody_else_does(house: House) -> None:
    worker = await house.stage.api.client(house.stage.tenant, f"{house.stage.tenant}-worker", kind="agent", scopes=[])
    token = await house.token()
    assert claims_of(token)["may_act"] == {"sub": house.agent.client_id}
    response = await house.stage.api.exchange(worker, token, subject_token_type=ACCESS_TOKEN)
    assert refused(response, 400) == "actor_not_permitted"


async def test_an_exchange_extends_no_life_and_revives_nothing(house: House) -> None:
    api, agent = house.stage.api, house.agent
    token = made(await house.present(house.assertion()))["access_token"]
    longer = await api.exchange(agent, token, subject_token_type=ACCESS_TOKEN, narrowing={"expiresInSeconds": 3000})
    assert refused(longer, 400) == "not_narrower"
    again = await api.access_token(agent, token, subject_token_type=ACCESS_TOKEN)
    assert claims_of(again)["exp"] <= claims_of(token)["exp"]
    made(await api.revoke(agent, token))
    for dead in (token, again):
        response = await api.exchange(agent, dead, subject_token_type=ACCESS_TOKEN)
        assert refused(response, 400) == "grant_revoked"


async def test_an_issuer_that_is_no_longer_trusted_brings_nothing_more(house: House) -> None:
    path, tenant = "/issuers/okta", {"tenant": house.stage.tenant}
    made(await house.stage.api.admin_request("PATCH", path, json={"status": "disabled"}, params=tenant))
    assert (await house.present(house.assertion())).json()["error"] == "invalid_grant"
    response = await house.stage.api.exchange(
        house.agent, house.id_token(), subject_token_type=ID_TOKEN, resource=house.stage.support
    )
    assert refused(response, 400) == "token_invalid"


async def test_no_refusal_repeats_the_token_or_tells_what_is_trusted(house: House) -> None:
    assertion = house.assertion(client_id="somebody-else")
    text = (await house.present(assertion)).text
    assert assertion not in text
    assert claims_of(assertion)["jti"] not in text
    records = json.dumps(await house.stage.records())
    assert assertion.split(".")[1] not in records
    assert JWT_BEARER not in text
