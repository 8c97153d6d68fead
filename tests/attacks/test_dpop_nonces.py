"""Proofs that must have been made a moment ago: the server's nonces (RFC 9449 §8, §9), in two workers."""

import time
from collections.abc import Iterator

import httpx
import pytest

from tests.api_client import Json, made
from tests.attacks.bound import CALLS, TOKEN, Bound
from tests.attacks.stage import Stage
from tests.prover import Prover
from tests.server_process import ServerProcess

pytestmark = pytest.mark.anyio

FORM: Json = {"grant_type": "client_credentials"}
ME = "/v1/grants"


@pytest.fixture(scope="module")
def server(database_url: str) -> Iterator[ServerProcess]:
    with ServerProcess(database_url, workers=2, env={"SUBGRANT_DPOP_NONCES": "required"}) as running:
        yield running


@pytest.fixture
async def bound(stage: Stage) -> Bound:
    return Bound(stage=stage)


async def nonce_of(bound: Bound) -> str:
    """What whoever sends a proof without one is given."""
    response = await bound.ask(FORM)
    assert (response.status_code, response.json()["error"]) == (400, "use_dpop_nonce")
    return str(response.headers["dpop-nonce"])


async def bound_token(bound: Bound, nonce: str) -> str:
    answer = await bound.ask(FORM, proof=bound.key.proof("POST", bound.url(TOKEN), nonce=nonce))
    return str(made(answer)["access_token"])


def is_asked_for_a_nonce(response: httpx.Response) -> bool:
    """As RFC 9449 §9 has it: in the one challenge there is, with the nonce beside it and nothing to be kept."""
    assert response.status_code == 401, response.text
    challenge = response.headers["www-authenticate"]
    assert challenge.startswith("DPoP ")
    assert "Bearer" not in challenge
    assert response.headers["cache-control"] == "no-store"
    return 'error="use_dpop_nonce"' in challenge and bool(response.headers["dpop-nonce"])


async def test_the_token_endpoint_gives_a_nonce_and_takes_it(bound: Bound) -> None:
    nonce = await nonce_of(bound)
    for _ in range(4):  # whichever worker answers
        response = await bound.ask(FORM, proof=bound.key.proof("POST", bound.url(TOKEN), nonce=nonce))
        assert made(response)["token_type"] == "DPoP"
        assert response.headers["dpop-nonce"]


async def test_a_resource_asks_for_a_nonce_and_takes_the_same(bound: Bound) -> None:
    nonce = await nonce_of(bound)
    token = await bound_token(bound, nonce)
    refused = await bound.http.get(ME, headers=bound.headers("GET", ME, token))
    assert is_asked_for_a_nonce(refused)
    fresh = refused.headers["dpop-nonce"]
    answer = await bound.http.get(ME, headers=bound.headers("GET", ME, token, nonce=fresh))
    assert answer.status_code == 200
    assert answer.headers["dpop-nonce"]


async def test_the_mcp_endpoint_asks_for_a_nonce_too(bound: Bound) -> None:
    token = await bound_token(bound, await nonce_of(bound))
    assert is_asked_for_a_nonce(await bound.mcp("tools/list", {}, bound.headers("POST", "/mcp/support", token)))


async def test_a_proof_that_was_asked_for_a_nonce_is_not_spent(bound: Bound) -> None:
    """It was never accepted. Nor can it be made good, since the nonce is among what is signed."""
    nonce = await nonce_of(bound)
    token = await bound_token(bound, nonce)
    first = bound.headers("GET", ME, token, jti="the same")
    assert is_asked_for_a_nonce(await bound.http.get(ME, headers=first))
    again = bound.headers("GET", ME, token, jti="the same", nonce=nonce)
    assert (await bound.http.get(ME, headers=again)).status_code == 200


@pytest.mark.parametrize("nonce", ["", "x", "0" * 64, None, 7, ["a"]])
async def test_a_nonce_that_was_never_given_is_none(bound: Bound, nonce: object) -> None:
    token = await bound_token(bound, await nonce_of(bound))
    assert is_asked_for_a_nonce(await bound.call(token, bound.headers("POST", CALLS, token, nonce=nonce)))
    assert bound.reached == 0


async def test_the_nonce_of_another_server_is_none(
    bound: Bound, database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One with the same key-encryption key, even: another issuer has other nonces."""
    issuer = {"SUBGRANT_ISSUER": "https://other.example"}
    with ServerProcess(database_url, env={"SUBGRANT_DPOP_NONCES": "required"} | issuer) as other:
        proof = bound.key.proof("POST", f"https://other.example{TOKEN}")
        async with httpx.AsyncClient(base_url=other.url, trust_env=False) as http:
            response = await http.post(
                TOKEN, data=FORM, auth=httpx.BasicAuth(*bound.stage.planner), headers={"DPoP": proof}
            )
    nonce = response.headers["dpop-nonce"]
    refused = await bound.ask(FORM, proof=bound.key.proof("POST", bound.url(TOKEN), nonce=nonce))
    assert refused.json()["error"] == "use_dpop_nonce"


async def test_bearer_tokens_know_of_no_nonces(bound: Bound) -> None:
    response = await bound.ask(FORM, prove=False)
    assert made(response)["token_type"] == "Bearer"
    assert "dpop-nonce" not in response.headers


async def test_a_bad_proof_is_told_so_and_not_asked_for_a_nonce(bound: Bound) -> None:
    proof = Prover.symmetric().proof("POST", bound.url(TOKEN))
    assert (await bound.ask(FORM, proof=proof)).json()["error"] == "invalid_dpop_proof"


async def test_asking_for_a_nonce_costs_no_client_assertion(bound: Bound) -> None:
    """RFC 9449 §8 would else take two assertions for a token, and a client that keeps to one would never get any."""
    stage, signing = bound.stage, Prover.ed25519()
    name, issuer = f"{stage.tenant}-signer", stage.api.url
    jwks = {"keys": [{**signing.jwk, "alg": "EdDSA", "kid": "k", "use": "sig"}]}
    body = {"clientId": name, "tenantId": stage.tenant, "kind": "agent", "scopes": ["tools:call"], "limits": {}}
    made(await stage.api.admin_request("POST", "/clients", json=body | {"authMethod": "private_key_jwt", "jwks": jwks}))
    now = int(time.time())
    claims = {"iss": name, "sub": name, "aud": issuer, "iat": now, "exp": now + 60, "jti": "once"}
    form = FORM | {
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": signing.signed({"alg": "EdDSA", "kid": "k", "typ": "JWT"}, claims),
    }

    async def ask(nonce: str | None) -> httpx.Response:
        proof = bound.key.proof("POST", bound.url(TOKEN), nonce=nonce)
        return await bound.http.post(TOKEN, data=form, headers={"DPoP": proof})

    asked = await ask(None)
    assert asked.json()["error"] == "use_dpop_nonce"
    nonce = asked.headers["dpop-nonce"]
    assert made(await ask(nonce))["token_type"] == "DPoP"
    assert (await ask(nonce)).json()["error"] == "invalid_client"
