"""oauth4webapi and openid-client, unmodified: what they check of every answer is the test, and what they then tell."""

import pytest

from tests.clients.conftest import REDIRECT_URI, TENANT, Desk, Key
from tests.clients.journey import check_exchange
from tests.clients.node import run_script

pytestmark = pytest.mark.anyio

LIBRARIES = ["oauth4webapi.mjs", "openid-client.mjs"]


@pytest.mark.parametrize("library", LIBRARIES)
async def test_it_exchanges_uses_and_revokes_a_token(desk: Desk, library: str) -> None:
    grant = await desk.grant()
    told = run_script(library, **desk.journey(desk.planner.client_id, grant, clientSecret=desk.planner.client_secret))
    await check_exchange(desk, told, desk.planner.client_id, grant)
    assert told["exchanged"]["token_type"].lower() == "bearer"


async def test_it_proves_itself_with_its_secret_in_the_body(desk: Desk) -> None:
    client = await desk.api.client(TENANT, "posting-planner", authMethod="client_secret_post")
    grant = await desk.grant(holder=client.client_id)
    given = desk.journey(client.client_id, grant, clientSecret=client.client_secret, post=True)
    await check_exchange(desk, run_script("oauth4webapi.mjs", **given), client.client_id, grant)


async def test_what_it_validates_by_itself_is_an_access_token_for_the_tool_server(desk: Desk) -> None:
    """RFC 9068 §4: type, issuer, audience, times and signature by the published keys, as a tool server would."""
    grant = await desk.grant()
    told = run_script(
        "oauth4webapi.mjs", **desk.journey(desk.planner.client_id, grant, clientSecret=desk.planner.client_secret)
    )
    claims = told["claims"]
    assert (claims["iss"], claims["aud"], claims["client_id"]) == (desk.api.url, desk.support, "planner")
    assert claims["sub"] == told["before"]["sub"]
    assert told["guarded"]["resource"] == desk.support
    assert told["guarded"]["authorization_servers"] == [desk.api.url]


@pytest.mark.parametrize("algorithm", ["ES256", "Ed25519"])
@pytest.mark.parametrize("library", LIBRARIES)
async def test_it_proves_itself_with_its_own_key(desk: Desk, library: str, algorithm: str) -> None:
    key = Key.generate(algorithm)
    client_id = await desk.keyed_client(f"{library}-{algorithm}", key)
    grant = await desk.grant(holder=client_id)
    told = run_script(library, **desk.journey(client_id, grant, key=key.jwk))
    await check_exchange(desk, told, client_id, grant)


@pytest.mark.parametrize("algorithm", ["ES256", "Ed25519"])
@pytest.mark.parametrize("library", LIBRARIES)
async def test_it_binds_its_tokens_to_a_key(desk: Desk, library: str, algorithm: str) -> None:
    """RFC 9449: the token is refused without a proof by the key, and the library gives one with each request."""
    grant = await desk.grant()
    secret = desk.planner.client_secret
    told = run_script(library, **desk.journey(desk.planner.client_id, grant, clientSecret=secret, dpop=algorithm))
    await check_exchange(desk, told, desk.planner.client_id, grant)
    assert told["exchanged"]["token_type"].lower() == told["forApi"]["token_type"].lower() == "dpop"
    assert told["before"]["token_type"] == "DPoP"
    assert len(told["before"]["cnf"]["jkt"]) == 43


@pytest.mark.parametrize("dpop", [None, "ES256"])
async def test_it_is_let_act_for_a_person(desk: Desk, dpop: str | None) -> None:
    """RFC 6749 §4.1 with PKCE: what it may do is what the person may, and a code is redeemed once."""
    app, person = await desk.app(f"app-{dpop}"), await desk.person(f"alice-{dpop}")
    standing = await desk.standing_grant(person.client_id)
    given = {**desk.journey(app, {"grant": None}), "redirectUri": REDIRECT_URI, "dpop": dpop}
    told = run_script("authorization-code.mjs", **given, person={"id": person.client_id, "secret": person.secret})
    assert told["tokens"]["token_type"].lower() == ("bearer" if dpop is None else "dpop")
    assert told["tokens"]["scope"] == "tools:call"
    assert told["answer"]["iss"] == desk.api.url
    assert told["called"]["result"]["arguments"] == {"customerId": "c_42", "limit": 2}
    assert told["redeemedAgain"]["error"] == "invalid_grant"
    assert await desk.decisions(standing) == [("allow", None)]
