"""Authlib and requests_oauth2client, unmodified, through the journey that the JavaScript libraries make."""

import json
from typing import Any

import httpx
import pytest
import requests
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from joserfc.jwk import import_key
from requests_oauth2client import (
    BearerToken,
    ClientSecretBasic,
    EndpointError,
    MissingDPoPNonce,
    OAuth2Client,
    PrivateKeyJwt,
    RepeatedDPoPNonce,
)

from tests.api_client import ACCESS_TOKEN, DELEGATION_GRANT, TOKEN_EXCHANGE, Json
from tests.clients.conftest import TENANT, Desk, Key
from tests.clients.journey import check_exchange

pytestmark = pytest.mark.anyio


def details(given: Json) -> str:
    return json.dumps([{"type": "delegation", **given["narrowing"]}])


async def authlib_journey(given: Json, **registration: Any) -> Json:  # noqa: ANN401 - Authlib's own keywords
    base = given["issuer"]
    async with httpx.AsyncClient(trust_env=False) as plain:
        metadata = (await plain.get(f"{base}/.well-known/oauth-authorization-server")).json()
    token_endpoint = metadata["token_endpoint"]
    async with AsyncOAuth2Client(given["clientId"], trust_env=False, **registration) as client:
        if "client_auth" in given:
            client.register_client_auth_method(given["client_auth"])
        for_api = await client.fetch_token(token_endpoint, grant_type="client_credentials")

        async def exchange(token: str, token_type: str) -> Any:  # noqa: ANN401 - as Authlib has it
            return await client.fetch_token(
                token_endpoint,
                grant_type=TOKEN_EXCHANGE,
                subject_token=token,
                subject_token_type=token_type,
                resource=given["resource"],
                authorization_details=details(given),
            )

        exchanged = await exchange(given["grant"], DELEGATION_GRANT)
        token = exchanged["access_token"]
        called = (await client.post(f"{base}/v1/gateway/calls", json=given["call"])).json()
        introspection, revocation = metadata["introspection_endpoint"], metadata["revocation_endpoint"]
        before = (await client.introspect_token(introspection, token=token)).json()
        assert (await client.revoke_token(revocation, token=token)).status_code == 200
        after = (await client.introspect_token(introspection, token=token)).json()
        refused_call = await client.post(f"{base}/v1/gateway/calls", json=given["call"])
        assert refused_call.status_code == 401
        with pytest.raises(OAuthError) as refused_exchange:
            await exchange(token, ACCESS_TOKEN)
    return {
        "forApi": for_api,
        "exchanged": exchanged,
        "called": called,
        "before": before,
        "after": after,
        "refusedCall": refused_call.json(),
        "refusedExchange": {"error": refused_exchange.value.error},
    }


def requests_journey(given: Json, *, dpop: bool = False, **authentication: Any) -> Json:  # noqa: ANN401 - its own keywords
    session = requests.Session()
    session.trust_env = False
    client = OAuth2Client.from_discovery_endpoint(
        f"{given['issuer']}/.well-known/oauth-authorization-server",
        issuer=given["issuer"],
        session=session,
        testing=True,  # its word for an issuer without TLS
        **authentication,
    )
    for_api = client.client_credentials(dpop=dpop)

    def exchange(token: str | BearerToken, token_type: str) -> BearerToken:
        return client.token_exchange(
            subject_token=str(token),
            subject_token_type=token_type,
            resource=given["resource"],
            authorization_details=details(given),
            dpop=dpop,
            dpop_key=getattr(for_api, "dpop_key", None),
        )

    def call() -> requests.Response:
        # The token is the library's authentication handler, with a proof where it is bound to a key.
        url = f"{given['issuer']}/v1/gateway/calls"
        return session.post(url, json=given["call"], auth=exchanged, timeout=30)

    exchanged = exchange(given["grant"], DELEGATION_GRANT)
    called = call().json()
    before = client.introspect_token(exchanged.access_token)
    assert client.revoke_token(exchanged.access_token) is True
    after = client.introspect_token(exchanged.access_token)
    with pytest.raises(EndpointError) as refused_exchange:
        exchange(exchanged.access_token, ACCESS_TOKEN)
    try:
        refused_call = call()
    except (
        MissingDPoPNonce,
        RepeatedDPoPNonce,
    ) as error:  # it takes every DPoP challenge for one that asks for a nonce
        refused_call = error.response
    assert refused_call.status_code == 401
    return {
        "forApi": for_api.as_dict(),
        "exchanged": exchanged.as_dict(),
        "called": called,
        "before": before,
        "after": after,
        "refusedCall": refused_call.json(),
        "refusedExchange": {"error": refused_exchange.value.error},
    }


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_authlib_exchanges_uses_and_revokes_a_token(desk: Desk, method: str) -> None:
    client = await desk.api.client(TENANT, f"authlib-{method}", authMethod=method)
    grant = await desk.grant(holder=client.client_id)
    secret = {"client_secret": client.client_secret, "token_endpoint_auth_method": method}
    told = await authlib_journey(
        desk.journey(client.client_id, grant), revocation_endpoint_auth_method=method, **secret
    )
    await check_exchange(desk, told, client.client_id, grant)


async def test_requests_oauth2client_exchanges_uses_and_revokes_a_token(desk: Desk) -> None:
    grant = await desk.grant()
    told = requests_journey(desk.journey(desk.planner.client_id, grant), auth=ClientSecretBasic(*desk.planner))
    await check_exchange(desk, told, desk.planner.client_id, grant)


@pytest.mark.parametrize("algorithm", ["ES256", "Ed25519"])
async def test_authlib_proves_itself_with_its_own_key(desk: Desk, algorithm: str) -> None:
    key = Key.generate(algorithm)
    client_id = await desk.keyed_client(f"authlib-{algorithm}", key)
    grant = await desk.grant(holder=client_id)
    method = PrivateKeyJWT(desk.api.url, alg=algorithm, headers={"kid": key.jwk["kid"]})
    registration = {"client_secret": import_key(key.jwk), "token_endpoint_auth_method": method}
    told = await authlib_journey(desk.journey(client_id, grant), revocation_endpoint_auth_method=method, **registration)
    await check_exchange(desk, told, client_id, grant)


async def test_requests_oauth2client_proves_itself_with_its_own_key(desk: Desk) -> None:
    key = Key.generate("ES256")
    client_id = await desk.keyed_client("requests-ES256", key)
    grant = await desk.grant(holder=client_id)
    method = PrivateKeyJwt(client_id, {**key.jwk, "alg": "ES256"}, aud=desk.api.url)
    told = requests_journey(desk.journey(client_id, grant), auth=method)
    await check_exchange(desk, told, client_id, grant)


async def test_requests_oauth2client_binds_its_tokens_to_a_key(desk: Desk) -> None:
    grant = await desk.grant()
    journey = desk.journey(desk.planner.client_id, grant)
    told = requests_journey(journey, dpop=True, auth=ClientSecretBasic(*desk.planner))
    await check_exchange(desk, told, desk.planner.client_id, grant)
    assert told["exchanged"]["token_type"] == told["before"]["token_type"] == "DPoP"
    assert len(told["before"]["cnf"]["jkt"]) == 43
