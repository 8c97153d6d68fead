"""Tokens and grants that were never issued like this: forged, re-signed, confused, altered at rest."""

import base64
import json
from collections.abc import Awaitable, Callable

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.api_client import ACCESS_TOKEN, Json, made, refused
from tests.attacks.stage import Stage
from tests.mcp_client import McpClient

pytestmark = pytest.mark.anyio

CASES = {"customerId": "c_42"}
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
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


# --- genuine, and of another kind (RFC 8725 §3.11) ------------------------------------------------------------


async def credentials_of(stage: Stage) -> dict[str, str]:
    """One of each kind that a tenant's clients and tool servers ever see, all genuine and all alive."""
    path = f"/tool-servers/support?tenant={stage.tenant}"
    made(await stage.api.admin_request("PATCH", path, json={"credential": {"type": "jwt"}}))
    grant = await stage.grant()
    access = await stage.token(grant)
    made(await stage.api.call(access, stage.support, "search", CASES))
    greeting = await McpClient(stage.api.http, access, "2025-11-25").initialize()
    return {
        "a grant": grant["grant"],
        "a token for a tool server": access,
        "a token for the API": await stage.api.token(stage.planner),
        "the gateway's own": stage.tools.requests[-1].headers["Authorization"].removeprefix("Bearer "),
        "a session's id": greeting.headers["mcp-session-id"],
        "a grant's id": grant["grantId"],
        "a client's secret": stage.planner.client_secret,
    }


Door = Callable[[Stage, str], Awaitable[httpx.Response]]


async def as_token_of_a_tool(stage: Stage, credential: str) -> httpx.Response:
    return await stage.api.call(credential, stage.support, "search", CASES)


async def as_token_over_mcp(stage: Stage, credential: str) -> httpx.Response:
    return await McpClient(stage.api.http, credential).ask("tools/list")


async def as_token_of_the_api(stage: Stage, credential: str) -> httpx.Response:
    return await stage.api.request("POST", "/v1/grants", credential, json={})


async def as_subjects_grant(stage: Stage, credential: str) -> httpx.Response:
    return await stage.api.exchange(stage.planner, credential)


async def as_subjects_token(stage: Stage, credential: str) -> httpx.Response:
    return await stage.api.exchange(stage.planner, credential, subject_token_type=ACCESS_TOKEN)


async def as_actors_token(stage: Stage, credential: str) -> httpx.Response:
    grant = await stage.grant()
    return await stage.api.exchange(
        stage.planner, grant["grant"], actor_token=credential, actor_token_type=ACCESS_TOKEN
    )


async def as_secret(stage: Stage, credential: str) -> httpx.Response:
    client = stage.planner._replace(client_secret=credential)
    return await stage.api.introspect(client, credential)


async def as_assertion(stage: Stage, credential: str) -> httpx.Response:
    """Of a client (RFC 7523 §2.2)."""
    proof = {"client_assertion": credential, "client_assertion_type": ASSERTION, "client_id": stage.planner.client_id}
    return await stage.api.http.post("/oauth/token", data={"grant_type": "client_credentials"} | proof)


async def as_authorization(stage: Stage, credential: str) -> httpx.Response:
    """An assertion as a grant (RFC 7523 §2.1)."""
    form = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": credential}
    return await stage.api.http.post("/oauth/token", data=form, auth=httpx.BasicAuth(*stage.planner))


async def as_proof(stage: Stage, credential: str) -> httpx.Response:
    """Of a key (RFC 9449 §4)."""
    form, headers = {"grant_type": "client_credentials"}, {"DPoP": credential}
    return await stage.api.http.post("/oauth/token", data=form, auth=httpx.BasicAuth(*stage.planner), headers=headers)


DOORS: dict[Door, tuple[int, set[str]]] = {
    as_token_of_a_tool: (401, {"a token for a tool server", "a grant"}),
    as_token_over_mcp: (401, {"a token for a tool server", "a grant"}),
    as_token_of_the_api: (401, {"a token for the API"}),
    as_subjects_grant: (400, {"a grant"}),
    as_subjects_token: (400, {"a token for a tool server"}),
    as_actors_token: (400, {"a token for a tool server", "a token for the API"}),
    as_secret: (401, {"a client's secret"}),
    as_assertion: (401, set()),
    as_authorization: (400, set()),
    as_proof: (400, set()),
}
"""What each is refused with, and which kinds are not. A grant is a bearer token where its tenant allows that."""


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_each_kind_of_credential_is_refused_where_another_is_expected(stage: Stage, door: Door) -> None:
    status, taken = DOORS[door]
    for kind, credential in (await credentials_of(stage)).items():
        response = await door(stage, credential)
        if kind in taken:
            assert response.is_success, (kind, response.text)
            continue
        # A living token for a tool server, or a grant, proves somebody to the API who may not do this there.
        may_be = {status, 403} if door is as_token_of_the_api and kind.startswith(("a grant", "a token")) else {status}
        assert response.status_code in may_be, (kind, response.text)
        assert credential not in response.text


async def test_what_is_no_token_is_inactive_and_what_is_one_says_of_which_kind(stage: Stage) -> None:
    types = {"a grant": "N_A", "a token for a tool server": "Bearer", "a token for the API": "Bearer"}
    for kind, credential in (await credentials_of(stage)).items():
        seen = (await stage.api.introspect(stage.planner, credential)).json()
        assert seen == {"active": False} if kind not in types else seen["token_type"] == types[kind]


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
