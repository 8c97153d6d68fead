"""Tokens that are bound to a key (RFC 9449): stolen, replayed, forged, talked out of their key.

Whatever an attacker has seen, the key is not among it. Everything runs in two workers, so that what one has seen the
other must know.
"""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

import httpx
import pytest

from tests.api_client import ACCESS_TOKEN, DELEGATION_GRANT, Json, made, refused
from tests.attacks.bound import CALLS, CASES, CHECKS, TOKEN, Bound
from tests.attacks.stage import SEARCH_RULE, Stage
from tests.members import DROP
from tests.prover import Prover, b64
from tests.server_process import ServerProcess

pytestmark = pytest.mark.anyio

ME = "/v1/grants"
MCP = "/mcp/support"


@pytest.fixture(scope="module")
def server(database_url: str) -> Iterator[ServerProcess]:
    with ServerProcess(database_url, workers=2) as running:
        yield running


@pytest.fixture
async def bound(stage: Stage) -> Bound:
    return Bound(stage=stage)


def claims_of(token: str) -> Json:
    segment = token.split(".")[1]
    claims: Json = json.loads(base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)))
    return claims


def challenge_of(response: httpx.Response) -> str:
    return str(response.headers["www-authenticate"])


def is_unproven(response: httpx.Response, error: str = "invalid_dpop_proof") -> bool:
    """Whether a protected resource refused the proof, in the scheme that was used (RFC 9449 §7.1)."""
    assert response.status_code == 401, f"{response.status_code} {response.text}"
    assert challenge_of(response).startswith("DPoP "), challenge_of(response)
    return f'error="{error}"' in challenge_of(response) and 'algs="' in challenge_of(response)


def oauth_error(response: httpx.Response) -> str:
    assert response.status_code == 400, f"{response.status_code} {response.text}"
    return str(response.json()["error"])


# --- what is bound ----------------------------------------------------------------------------------------


async def test_a_token_that_was_asked_for_with_a_proof_is_bound_to_its_key(bound: Bound) -> None:
    grant = await bound.stage.grant()
    answer = made(await bound.exchange(grant["grant"]))
    confirmation = {"jkt": bound.key.thumbprint}
    assert answer["token_type"] == "DPoP"
    assert claims_of(answer["access_token"])["cnf"] == confirmation
    assert answer["authorization_details"][0]["cnf"] == confirmation
    inspected = made(await bound.stage.api.introspect(bound.stage.planner, answer["access_token"]))
    assert (inspected["active"], inspected["cnf"], inspected["token_type"]) == (True, confirmation, "DPoP")
    assert made(await bound.call(answer["access_token"]))["decision"] == "allow"


async def test_a_token_for_the_api_is_bound_alike(bound: Bound) -> None:
    answer = made(await bound.ask({"grant_type": "client_credentials"}))
    assert (answer["token_type"], claims_of(answer["access_token"])["cnf"]) == ("DPoP", {"jkt": bound.key.thumbprint})
    response = await bound.http.get(ME, headers=bound.headers("GET", ME, answer["access_token"]))
    assert response.status_code == 200


async def test_without_a_proof_a_token_is_anybodys_as_before(bound: Bound) -> None:
    answer = made(await bound.ask({"grant_type": "client_credentials"}, prove=False))
    assert answer["token_type"] == "Bearer"
    assert "cnf" not in claims_of(answer["access_token"])


@pytest.mark.parametrize("make", [Prover.elliptic, Prover.rsa, lambda: Prover.ed25519("Ed25519")])
async def test_a_key_of_another_kind_binds_as_well(stage: Stage, make: Callable[[], Prover]) -> None:
    other = Bound(stage=stage, key=make())
    assert made(await other.call(await other.token()))["decision"] == "allow"


async def test_the_log_says_to_which_key_a_token_was_bound(bound: Bound) -> None:
    token = await bound.token()
    (exchanged,) = await bound.stage.records(grantId=claims_of(token)["grant_id"], type="delegation.exchanged")
    assert exchanged["keyThumbprint"] == bound.key.thumbprint


async def test_a_bound_token_is_revoked_by_its_client_without_its_key(bound: Bound) -> None:
    for token in (await bound.token(), await bound.api_token()):
        headers = bound.headers("GET", ME, token)
        assert (await bound.stage.api.revoke(bound.stage.planner, token)).status_code == 200
        assert made(await bound.stage.api.introspect(bound.stage.planner, token)) == {"active": False}
        assert (await bound.http.get(ME, headers=headers)).status_code in {401, 403}
        assert (await bound.call(token)).status_code == 401


async def test_a_scope_that_a_bound_token_lacks_is_named_in_the_scheme_that_was_used(bound: Bound) -> None:
    token = await bound.api_token()
    response = await bound.http.get("/v1/audit/records", headers=bound.headers("GET", "/v1/audit/records", token))
    assert response.status_code == 403
    assert challenge_of(response).startswith("DPoP ")
    assert 'error="insufficient_scope"' in challenge_of(response)
    assert 'scope="audit:read' in challenge_of(response)


# --- stolen -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method,path", [("POST", CALLS), ("POST", CHECKS), ("GET", ME), ("POST", MCP)])
async def test_a_bound_token_as_bearer_is_refused_everywhere(bound: Bound, method: str, path: str) -> None:
    token = await bound.token()
    proof = bound.key.proof(method, bound.url(path), token=token)
    for extra in ({}, {"DPoP": proof}):
        response = await bound.http.request(method, path, json={}, headers={"Authorization": f"Bearer {token}"} | extra)
        assert response.status_code == 401
        assert challenge_of(response).startswith("Bearer ")
        assert 'error="invalid_token"' in challenge_of(response)
        assert ", DPoP " in challenge_of(response)
    assert bound.reached == 0


async def test_a_token_that_is_bound_to_nothing_is_refused_under_the_scheme_dpop(bound: Bound) -> None:
    token = await bound.stage.token(await bound.stage.grant())
    assert is_unproven(await bound.call(token), "invalid_token")


async def test_a_bound_token_without_a_proof_or_with_two_is_refused(bound: Bound) -> None:
    token = await bound.token()
    assert is_unproven(await bound.call(token, {"Authorization": f"DPoP {token}"}))
    one, two = (("DPoP", bound.headers("POST", CALLS, token)["DPoP"]) for _ in range(2))
    for fields in ([one, two], [one, one], [("DPoP", f"{one[1]}, {two[1]}")]):
        request = bound.http.build_request(
            "POST", CALLS, json={}, headers=[("Authorization", f"DPoP {token}"), *fields]
        )
        assert is_unproven(await bound.http.send(request))
    assert bound.reached == 0


async def test_a_proof_by_another_key_is_refused(bound: Bound) -> None:
    token, thief = await bound.token(), Prover.ed25519()
    assert is_unproven(await bound.call(token, thief.headers("POST", bound.url(CALLS), token)), "invalid_token")


async def test_a_proof_that_names_the_right_key_and_is_signed_by_another_is_refused(bound: Bound) -> None:
    token = await bound.token()
    thief = replace(Prover.ed25519(), jwk=bound.key.jwk)
    assert is_unproven(await bound.call(token, thief.headers("POST", bound.url(CALLS), token)))


async def test_a_proof_for_another_request_or_token_is_refused(bound: Bound) -> None:
    token, other = await bound.token(), await bound.token()
    for proof in (
        bound.key.proof("GET", bound.url(CALLS), token=token),
        bound.key.proof("POST", bound.url(CHECKS), token=token),
        bound.key.proof("POST", bound.url(TOKEN), token=token),
        bound.key.proof("POST", bound.url(CALLS), token=other),
        bound.key.proof("POST", bound.url(CALLS)),
    ):
        assert is_unproven(await bound.call(token, {"Authorization": f"DPoP {token}", "DPoP": proof}))


SPOOFED = (
    {"Host": "evil.example"},
    {"X-Forwarded-Host": "evil.example"},
    {"Forwarded": "host=evil.example;proto=http"},
)


@pytest.mark.parametrize("spoofed", SPOOFED)
async def test_a_proof_for_the_host_that_the_request_names_is_refused(bound: Bound, spoofed: dict[str, str]) -> None:
    """Whoever lured a client to evil.example has such proofs. The server's own name is what counts."""
    token = await bound.token()
    lured = bound.key.headers("POST", f"http://evil.example{CALLS}", token)
    assert is_unproven(await bound.call(token, lured | spoofed))
    assert (await bound.call(token, bound.headers("POST", CALLS, token) | spoofed)).status_code == 200


@pytest.mark.parametrize("seconds", [-301, 301 + 5, -86_400])
async def test_a_proof_of_another_time_is_refused(bound: Bound, seconds: int) -> None:
    token = await bound.token()
    made_at = claims_of(bound.key.proof("POST", "x"))["iat"] + seconds
    assert is_unproven(await bound.call(token, bound.headers("POST", CALLS, token, iat=made_at)))


BAD_KEYS: dict[str, Callable[[Prover], Prover]] = {
    "with its private half": lambda key: replace(key, jwk={**key.jwk, "d": b64(b"x" * 32)}),
    "that is a shared secret": lambda _: Prover.symmetric(),
    "under no algorithm": lambda key: replace(key, alg="none"),
    "under another algorithm": lambda key: replace(key, alg="ES256"),
}


@pytest.mark.parametrize("what", BAD_KEYS)
async def test_a_proof_by_a_key_of_which_nobody_should_be_proud_is_refused(bound: Bound, what: str) -> None:
    token = await bound.token()
    forger = BAD_KEYS[what](bound.key)
    assert is_unproven(await bound.call(token, forger.headers("POST", bound.url(CALLS), token)))
    form = {"grant_type": "client_credentials"}
    assert oauth_error(await bound.ask(form, proof=forger.proof("POST", bound.url(TOKEN)))) == "invalid_dpop_proof"


async def test_a_huge_proof_is_refused(bound: Bound) -> None:
    token = await bound.token()
    assert is_unproven(await bound.call(token, bound.headers("POST", CALLS, token, filler="x" * 20_000)))


async def test_a_bound_token_is_no_proof_and_a_proof_is_no_token(bound: Bound) -> None:
    token = await bound.token()
    proof = bound.headers("POST", CALLS, token)["DPoP"]
    assert is_unproven(await bound.call(token, {"Authorization": f"DPoP {token}", "DPoP": token}))
    assert is_unproven(await bound.call(proof, {"Authorization": f"DPoP {proof}", "DPoP": proof}), "invalid_token")
    exchanged = await bound.exchange(proof, subject_type=ACCESS_TOKEN)
    assert oauth_error(exchanged) == "invalid_request"


# --- replayed ---------------------------------------------------------------------------------------------

Sending: TypeAlias = Callable[[], Awaitable[httpx.Response]]
"""Sends the same request each time that it is called."""


async def _same_call(bound: Bound, token: str) -> Sending:
    headers = bound.headers("POST", CALLS, token)
    return lambda: bound.call(token, headers)


async def _same_check(bound: Bound, token: str) -> Sending:
    headers, body = bound.headers("POST", CHECKS, token), {"toolServerAudience": bound.stage.support, "name": "search"}
    return lambda: bound.http.post(CHECKS, json=body | {"arguments": CASES}, headers=headers)


async def _same_mcp_call(bound: Bound, token: str) -> Sending:
    headers, params = bound.headers("POST", MCP, token), {"name": "search", "arguments": CASES}
    return lambda: bound.mcp("tools/call", params, headers)


async def _same_mcp_list(bound: Bound, token: str) -> Sending:
    headers = bound.headers("POST", MCP, token)
    return lambda: bound.mcp("tools/list", {}, headers)


async def _same_read(bound: Bound, _: str) -> Sending:
    headers = bound.headers("GET", ME, await bound.api_token())
    return lambda: bound.http.get(ME, headers=headers)


REPLAYS = [_same_call, _same_check, _same_mcp_call, _same_mcp_list, _same_read]


@pytest.mark.parametrize("replay", REPLAYS)
async def test_of_many_at_once_with_one_proof_exactly_one_is_heard(
    bound: Bound, replay: Callable[[Bound, str], Awaitable[Sending]]
) -> None:
    send = await replay(bound, await bound.token(maxToolCalls=100))
    responses = await asyncio.gather(*(send() for _ in range(20)))
    assert [response.status_code for response in responses].count(200) == 1
    assert all(is_unproven(response) for response in responses if response.status_code != 200)
    if replay in (_same_call, _same_mcp_call):
        assert bound.reached == 1


async def test_of_many_token_requests_with_one_proof_exactly_one_is_heard(bound: Bound) -> None:
    proof, form = bound.key.proof("POST", bound.url(TOKEN)), {"grant_type": "client_credentials"}
    responses = await asyncio.gather(*(bound.ask(form, proof=proof) for _ in range(20)))
    assert [response.status_code for response in responses].count(200) == 1
    assert {oauth_error(response) for response in responses if response.status_code != 200} == {"invalid_dpop_proof"}


async def test_a_replay_charges_nothing_and_is_on_record(bound: Bound) -> None:
    token = await bound.token(maxToolCalls=2)
    grant_id = claims_of(token)["grant_id"]
    headers = bound.headers("POST", CALLS, token)
    assert (await bound.call(token, headers)).status_code == 200
    for _ in range(3):
        assert is_unproven(await bound.call(token, headers))
    usage = await bound.stage.api.usage(bound.stage.planner, grant_id)
    assert usage["toolCalls"] == {"posted": 1, "pending": 0}
    assert await bound.stage.reasons(grant_id) == ["proof_invalid"] * 3


ENDINGS: dict[str, tuple[Json, int]] = {
    "refused": ({"arguments": {"customerId": "c_43"}}, 403),
    "malformed": ({"arguments": {}, "nonsense": 1}, 422),
    "malformed in its key": ({"idempotencyKey": "a key with spaces"}, 422),
    "for another audience": ({"toolServerAudience": "https://elsewhere.example"}, 401),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_call_that_came_to_nothing_has_spent_its_proof(bound: Bound, ending: str) -> None:
    token, (body, status) = await bound.token(), ENDINGS[ending]
    headers = bound.headers("POST", CALLS, token)
    first = await bound.call(token, headers, **body)
    assert first.status_code == status, first.text
    assert is_unproven(await bound.call(token, headers))
    assert bound.reached == 0


async def test_a_call_that_conflicts_has_spent_its_proof(bound: Bound) -> None:
    token = await bound.token()
    assert (await bound.call(token, idempotencyKey="k")).status_code == 200
    headers = bound.headers("POST", CALLS, token)
    conflict = await bound.call(token, headers, idempotencyKey="k", arguments={**CASES, "limit": 1})
    assert refused(conflict, 409) == "idempotency_conflict"
    assert is_unproven(await bound.call(token, headers))


async def test_an_mcp_message_that_came_to_nothing_has_spent_its_proof(bound: Bound) -> None:
    token = await bound.token()
    for method, params in (("no/such", {}), ("tools/call", {"name": 5}), ("tools/call", {"name": "refund"})):
        headers = bound.headers("POST", MCP, token)
        assert (await bound.mcp(method, params, headers)).status_code in {200, 400, 404}
        assert is_unproven(await bound.mcp("tools/call", {"name": "search", "arguments": CASES}, headers))
    assert bound.reached == 0


async def test_a_repeated_idempotency_key_needs_a_proof_of_its_own(bound: Bound) -> None:
    token = await bound.token()
    headers = bound.headers("POST", CALLS, token)
    assert (await bound.call(token, headers, idempotencyKey="k")).status_code == 200
    assert is_unproven(await bound.call(token, headers, idempotencyKey="k"))
    assert (await bound.call(token, idempotencyKey="k")).status_code == 200
    assert bound.reached == 1


async def test_two_keys_may_have_proofs_of_the_same_id(stage: Stage) -> None:
    for _ in range(2):
        one = Bound(stage=stage)
        token = await one.token()
        assert (await one.call(token, one.headers("POST", CALLS, token, jti="1"))).status_code == 200


# --- talked out of its key --------------------------------------------------------------------------------


async def a_bound_grant(bound: Bound) -> str:
    root = await bound.stage.grant(maxDepth=4)
    answer = made(
        await bound.exchange(
            root["grant"], requested_token_type=DELEGATION_GRANT, narrowing={"mayRedelegate": True, "maxToolCalls": 3}
        )
    )
    assert answer["token_type"] == "N_A"
    assert answer["authorization_details"][0]["cnf"] == {"jkt": bound.key.thumbprint}
    return str(answer["access_token"])


async def test_a_bound_grant_is_of_no_use_without_its_key(bound: Bound) -> None:
    grant = await a_bound_grant(bound)
    assert (await bound.call(grant, {"Authorization": f"Bearer {grant}"})).status_code == 401
    assert is_unproven(
        await bound.call(grant, Prover.ed25519().headers("POST", bound.url(CALLS), grant)), "invalid_token"
    )
    assert (await bound.call(grant)).status_code == 200


@pytest.mark.parametrize("requested", [ACCESS_TOKEN, DELEGATION_GRANT])
async def test_a_bound_subject_is_exchanged_by_its_key_alone(bound: Bound, requested: str) -> None:
    grant, thief = await a_bound_grant(bound), Prover.ed25519()
    stolen = thief.proof("POST", bound.url(TOKEN))
    for response in (
        await bound.exchange(grant, requested_token_type=requested, prove=False),
        await bound.exchange(grant, requested_token_type=requested, proof=stolen),
        await bound.exchange(grant, requested_token_type=requested, prove=False, dpop_jkt=thief.thumbprint),
        await bound.exchange(grant, requested_token_type=requested, prove=False, dpop_jkt=bound.key.thumbprint),
    ):
        assert oauth_error(response) == "invalid_dpop_proof"
    assert (await bound.exchange(grant, requested_token_type=requested)).status_code == 200


async def test_a_bound_access_token_is_exchanged_by_its_key_alone(bound: Bound) -> None:
    token, thief = await bound.token(), Prover.ed25519()
    stolen = thief.proof("POST", bound.url(TOKEN))
    assert oauth_error(await bound.exchange(token, subject_type=ACCESS_TOKEN, prove=False)) == "invalid_dpop_proof"
    assert oauth_error(await bound.exchange(token, subject_type=ACCESS_TOKEN, proof=stolen)) == "invalid_dpop_proof"
    again = made(await bound.exchange(token, subject_type=ACCESS_TOKEN))
    assert claims_of(again["access_token"])["cnf"] == {"jkt": bound.key.thumbprint}


async def test_a_token_is_bound_to_the_key_of_the_child_that_it_is_for(bound: Bound) -> None:
    child = Bound(stage=bound.stage)
    grant = await a_bound_grant(bound)
    answer = made(
        await bound.exchange(
            grant, dpop_jkt=child.key.thumbprint, narrowing={"childRunId": f"run-{child.key.thumbprint}"}
        )
    )
    token = answer["access_token"]
    assert claims_of(token)["cnf"] == {"jkt": child.key.thumbprint}
    assert (await child.call(token)).status_code == 200
    assert is_unproven(await bound.call(token), "invalid_token")


async def test_an_unbound_parent_binds_the_token_of_its_child(bound: Bound) -> None:
    root = await bound.stage.grant()
    token = made(await bound.exchange(root["grant"], prove=False, dpop_jkt=bound.key.thumbprint))["access_token"]
    assert (await bound.call(token, {"Authorization": f"Bearer {token}"})).status_code == 401
    assert (await bound.call(token)).status_code == 200


async def test_a_child_that_is_derived_over_rest_keeps_its_parents_key(bound: Bound) -> None:
    parent = claims_of(await a_bound_grant(bound))["jti"]
    derived = made(
        await bound.stage.api.derive(
            bound.stage.planner, parent, allowedTools=["search"], resourceConstraints={"search": SEARCH_RULE}
        )
    )
    grant = derived["grant"]
    assert claims_of(grant)["authorization_details"][0]["cnf"] == {"jkt": bound.key.thumbprint}
    assert (await bound.call(grant, {"Authorization": f"Bearer {grant}"})).status_code == 401
    assert oauth_error(await bound.exchange(grant, prove=False)) == "invalid_dpop_proof"
    assert (await bound.call(grant)).status_code == 200


async def test_a_derivation_can_not_name_another_key(bound: Bound) -> None:
    parent = claims_of(await a_bound_grant(bound))["jti"]
    for member in ({"cnf": {"jkt": Prover.ed25519().thumbprint}}, {"keyThumbprint": Prover.ed25519().thumbprint}):
        assert refused(await bound.stage.api.derive(bound.stage.planner, parent, **member), 422) == "malformed"


MALFORMED = ["x", "A" * 42, "A" * 44, "A" * 42 + "B", "A" * 42 + "=", "a b" * 14 + "A", "é" * 43]


@pytest.mark.parametrize("thumbprint", MALFORMED)
async def test_what_can_be_no_thumbprint_is_refused(bound: Bound, thumbprint: str) -> None:
    root = await bound.stage.grant()
    assert oauth_error(await bound.exchange(root["grant"], dpop_jkt=thumbprint)) == "invalid_request"
    form = {"grant_type": "client_credentials", "dpop_jkt": thumbprint}
    assert oauth_error(await bound.ask(form)) == "invalid_request"


async def test_a_bound_actor_token_names_the_actor_only_where_its_key_has_a_part(bound: Bound) -> None:
    stage, actor = bound.stage, Bound(stage=bound.stage)
    agent = await stage.api.client(
        stage.tenant, f"{stage.tenant}-agent", kind="agent", scopes=["tools:call"], limits={}
    )
    proven = made(await actor.ask({"grant_type": "client_credentials"}, client=agent))["access_token"]
    root = await stage.grant()
    form = {"actor_token": proven, "actor_token_type": ACCESS_TOKEN}
    assert oauth_error(await bound.exchange(root["grant"], **form)) == "invalid_dpop_proof"
    assert oauth_error(await bound.exchange(root["grant"], prove=False, **form)) == "invalid_dpop_proof"
    token = made(await bound.exchange(root["grant"], dpop_jkt=actor.key.thumbprint, **form))["access_token"]
    assert claims_of(token)["act"]["sub"] == agent.client_id
    assert (await actor.call(token)).status_code == 200


# --- who must prove ---------------------------------------------------------------------------------------


async def test_a_client_that_must_prove_a_key_gets_nothing_without(stage: Stage) -> None:
    client = await stage.api.client(stage.tenant, f"{stage.tenant}-bound", dpopRequired=True)
    bound = Bound(stage=replace(stage, planner=client))
    form = {"grant_type": "client_credentials"}
    assert oauth_error(await bound.ask(form, prove=False)) == "invalid_dpop_proof"
    named = form | {"dpop_jkt": bound.key.thumbprint}
    assert oauth_error(await bound.ask(named, prove=False)) == "invalid_dpop_proof"
    assert made(await bound.ask(form))["token_type"] == "DPoP"


async def test_tokens_from_before_a_client_had_to_prove_a_key_are_worth_nothing(stage: Stage) -> None:
    client = await stage.api.client(stage.tenant, f"{stage.tenant}-later")
    token = await stage.api.token(client)
    assert (await stage.api.request("GET", ME, token)).status_code == 200
    made(await stage.api.admin_request("PATCH", f"/clients/{client.client_id}", json={"dpopRequired": True}))
    assert refused(await stage.api.request("GET", ME, token), 401) == "token_invalid"


async def test_grants_and_tokens_from_before_are_of_no_use_at_the_gateway_either(stage: Stage) -> None:
    client = await stage.api.client(stage.tenant, f"{stage.tenant}-later")
    bound = Bound(stage=replace(stage, planner=client))
    grant = (await bound.stage.grant())["grant"]
    token = await stage.api.access_token(client, grant)
    for bearer in (grant, token):
        assert (await bound.call(bearer, {"Authorization": f"Bearer {bearer}"})).status_code == 200
    made(await stage.api.admin_request("PATCH", f"/clients/{client.client_id}", json={"dpopRequired": True}))
    for bearer in (grant, token):
        presented = {"Authorization": f"Bearer {bearer}"}
        assert refused(await bound.call(bearer, presented), 401) == "token_invalid"
        assert (await bound.mcp("tools/list", {}, presented)).status_code == 401
    assert (await bound.call(made(await bound.exchange(grant))["access_token"])).status_code == 200


# --- challenges -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path,scope",
    [
        (CALLS, "tools:call"),
        (ME, "grants:issue grants:read"),
        ("/v1/audit/records", "audit:read"),
        ("/v1/admin/tenants", "admin"),
        (MCP, "tools:call"),
    ],
)
async def test_whoever_has_no_token_learns_where_to_get_one_and_of_no_error(
    bound: Bound, path: str, scope: str
) -> None:
    method = "POST" if path in (CALLS, MCP) else "GET"
    response = await bound.http.request(method, path, headers={"Host": "evil.example"})
    assert response.status_code == 401
    resource = MCP if path == MCP else ""
    metadata = f"{bound.stage.api.url}/.well-known/oauth-protected-resource{resource}"
    for challenge in challenge_of(response).split(", DPoP "):
        assert f'resource_metadata="{metadata}"' in challenge
        assert f'scope="{scope}"' in challenge
        assert "error" not in challenge
    assert (await bound.http.get(metadata)).json()["dpop_signing_alg_values_supported"]


@pytest.mark.parametrize("authorization", ["", "DPoP", "Bearer", "Basic abc", "Negotiate"])
async def test_credentials_of_no_kind_are_none(bound: Bound, authorization: str) -> None:
    response = await bound.http.post(CALLS, json={}, headers={"Authorization": authorization})
    assert response.status_code == 401
    assert "error" not in challenge_of(response)


async def test_two_ways_to_authenticate_at_once_are_refused(bound: Bound) -> None:
    token = await bound.token()
    fields = [("Authorization", f"DPoP {token}"), ("Authorization", f"Bearer {token}")]
    fields.append(("DPoP", bound.headers("POST", CALLS, token)["DPoP"]))
    response = await bound.http.send(bound.http.build_request("POST", CALLS, json={}, headers=fields))
    assert refused(response, 400) == "malformed"
    queried = await bound.http.post(
        f"{CALLS}?access_token={token}", json={}, headers=bound.headers("POST", CALLS, token)
    )
    assert refused(queried, 400) == "malformed"


async def test_a_proof_is_asked_for_in_words_that_hold_nothing_of_the_request(bound: Bound) -> None:
    token = await bound.token()
    evil = 'x", error="none'
    response = await bound.call(token, bound.headers("POST", CALLS, token, htm=evil, jti=evil, nonce=DROP))
    assert is_unproven(response)
    assert evil not in challenge_of(response)
    assert token not in response.text
