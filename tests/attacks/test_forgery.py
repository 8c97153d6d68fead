"""Tokens and grants that were never issued like this: forged, re-signed, confused, altered at rest."""

import base64
import json
from collections.abc import Callable

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.api_client import ACCESS_TOKEN, Json, made, refused
from tests.attacks.stage import Stage

pytestmark = pytest.mark.anyio

CASES = {"customerId": "c_42"}
STRANGERS_KEY = Ed25519PrivateKey.generate()


def parts(token: str) -> tuple[Json, Json, str]:
    header, payload, signature = token.split(".")
    return _decode(header), _decode(payload), signature


def _decode(segment: str) -> Json:
    decoded: Json = json.loads(base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)))
    return decoded


def _encode(document: Json) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def resigned(token: str, header_changes: Json | None = None, claim_changes: Json | None = None) -> str:
    """The token with changes, signed anew by a key that is not Subgrant's under the kid that is."""
    header, claims, _ = parts(token)
    header |= header_changes or {}
    return jwt.encode(claims | (claim_changes or {}), STRANGERS_KEY, algorithm="EdDSA", headers=header)


def altered(token: str, claim_changes: Json) -> str:
    """The token with changed claims under its old signature."""
    header, claims, signature = parts(token)
    return f"{_encode(header)}.{_encode(claims | claim_changes)}.{signature}"


def unsigned(token: str) -> str:
    header, claims, _ = parts(token)
    return f"{_encode(header | {'alg': 'none'})}.{_encode(claims)}."


def flipped(token: str) -> str:
    head, _, signature = token.rpartition(".")
    return f"{head}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"


FORGERIES: dict[str, Callable[[str], str]] = {
    "signed by a stranger": resigned,
    "signed by a stranger under its own jwk": lambda token: resigned(
        token, {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}, "jku": "http://127.0.0.1:1/keys"}
    ),
    "of an unknown kid": lambda token: resigned(token, {"kid": "unknown"}),
    "with a later expiry": lambda token: altered(token, {"exp": 4_000_000_000}),
    "with another grant": lambda token: altered(token, {"grant_id": "gr_00000000000000000000000000"}),
    "with another tenant": lambda token: altered(token, {"tenant_id": "globex"}),
    "with a forged act": lambda token: altered(token, {"act": {"sub": "planner"}}),
    "without a signature": unsigned,
    "with one byte flipped": flipped,
    "with padding": lambda token: token + "=",
    "with a fourth segment": lambda token: f"{token}.AAAA",
    "cut short": lambda token: token[:-8],
    "of no shape at all": lambda token: "a.b.c",
}


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_forged_access_token_is_refused(stage: Stage, forgery: str) -> None:
    token = FORGERIES[forgery](await stage.token(await stage.grant()))
    assert refused(await stage.api.call(token, stage.support, "search", CASES), 401) == "token_invalid"
    exchange = await stage.api.exchange(stage.planner, token, subject_token_type=ACCESS_TOKEN)
    assert refused(exchange, 400) == "token_invalid"
    assert (await stage.api.introspect(stage.planner, token)).json() == {"active": False}


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_forged_grant_is_refused(stage: Stage, forgery: str) -> None:
    grant = FORGERIES[forgery]((await stage.grant())["grant"])
    assert refused(await stage.api.call(grant, stage.support, "search", CASES), 401) == "token_invalid"
    assert refused(await stage.api.exchange(stage.planner, grant), 400) == "token_invalid"


async def test_a_grant_with_wider_authority_under_its_old_signature_is_refused(stage: Stage) -> None:
    grant = (await stage.grant())["grant"]
    _, claims, _ = parts(grant)
    detail = claims["authorization_details"][0] | {"maxToolCalls": 1000}
    wider = altered(grant, {"authorization_details": [detail]})
    assert refused(await stage.api.call(wider, stage.support, "search", CASES), 401) == "token_invalid"


async def test_each_kind_of_token_is_refused_where_another_is_expected(stage: Stage) -> None:
    grant = await stage.grant()
    api_token = await stage.api.token(stage.planner)
    access = await stage.token(grant)
    assert refused(await stage.api.call(api_token, stage.support, "search", CASES), 401) == "token_invalid"
    assert refused(await stage.api.exchange(stage.planner, access), 400) == "token_invalid"
    assert refused(await stage.api.exchange(stage.planner, api_token, subject_token_type=ACCESS_TOKEN), 400)
    mint = await stage.api.request("POST", "/v1/grants", access, json={})
    assert refused(mint, 403) == "insufficient_scope"
    as_access = await stage.api.exchange(stage.planner, grant["grant"], subject_token_type=ACCESS_TOKEN)
    assert refused(as_access, 400) == "token_invalid"


async def test_the_gateways_own_credential_is_no_token_here(stage: Stage) -> None:
    """What a tool server receives could be played back by whoever runs it."""
    path = f"/tool-servers/support?tenant={stage.tenant}"
    made(await stage.api.admin_request("PATCH", path, json={"credential": {"type": "jwt"}}))
    token = await stage.token(await stage.grant())
    made(await stage.api.call(token, stage.support, "search", CASES))
    sent = stage.tools.requests[-1].headers["Authorization"].removeprefix("Bearer ")
    assert sent != token
    assert refused(await stage.api.call(sent, stage.support, "search", CASES), 401) == "token_invalid"
    assert refused(await stage.api.exchange(stage.planner, sent, subject_token_type=ACCESS_TOKEN), 400)


async def test_what_arrives_never_leaves(stage: Stage) -> None:
    token = await stage.token(await stage.grant())
    made(await stage.api.call(token, stage.support, "search", CASES))
    seen = str(stage.tools.requests) + str(await stage.records())
    assert token not in seen
    assert token.rpartition(".")[2] not in seen


async def test_a_token_in_the_query_or_given_twice_is_refused(stage: Stage) -> None:
    token = await stage.token(await stage.grant())
    body = {"toolServerAudience": stage.support, "name": "search", "arguments": CASES}
    in_query = await stage.api.http.post(f"/v1/gateway/calls?access_token={token}", json=body)
    assert in_query.status_code == 400
    twice = [("Authorization", f"Bearer {token}"), ("Authorization", f"Bearer {token}")]
    assert (await stage.api.http.post("/v1/gateway/calls", json=body, headers=twice)).status_code == 400
    bare = await stage.api.http.post("/v1/gateway/calls", json=body)
    assert bare.status_code == 401
    assert "error=" not in bare.headers["www-authenticate"]
