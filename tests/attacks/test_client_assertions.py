"""Whoever tries to be a client that it is not, with what clients sign themselves (RFC 7523 §3, RFC 8725)."""

import asyncio
import hashlib
import hmac
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.api_client import Api, Credentials, Json, made
from tests.attacks.forger import Lure
from tests.attacks.stage import Stage, set_stage
from tests.members import DROP
from tests.outsiders import ASSERTION_TYPE, OutsideKey, a_key, b64, claims_of, jwks
from tests.server_process import ServerProcess
from tests.tool_server import ToolServer

KEY: Final = a_key("ES256", "bot-1")
STRANGER: Final = a_key("ES256", "stranger", 7)


@pytest.fixture(scope="module")
def server(database_url: str) -> Iterator[ServerProcess]:
    """Two workers, which know of each other only by the store."""
    with ServerProcess(database_url, workers=2) as running:
        yield running


@pytest.fixture(scope="module")
async def stage(server: ServerProcess, tool_server: ToolServer) -> AsyncIterator[Stage]:
    """One for all: each test has a client of its own."""
    async with Api(server.url) as api:
        yield await set_stage(api, tool_server)


@dataclass(frozen=True)
class Bot:
    """A client that signs its own assertions, and whoever would like to be it."""

    stage: Stage
    client_id: str

    @property
    def issuer(self) -> str:
        return self.stage.api.url

    def claims(self, **changes: object) -> Json:
        now = datetime.now(UTC)
        fresh = {"jti": secrets.token_hex(8)} | changes
        return claims_of(self.client_id, self.issuer, self.client_id, now, **fresh)  # type: ignore[arg-type]  # any claim

    def sign(self, key: OutsideKey = KEY, header: dict[str, Any] | None = None, **changes: object) -> str:
        return key.sign(self.claims(**changes), **(header or {}))

    async def ask(self, assertion: str, **form: str) -> httpx.Response:
        """A token for the API, asked for with this assertion."""
        parts = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion}
        return await self.post("/oauth/token", {"grant_type": "client_credentials"} | parts | form)

    async def post(self, path: str, form: dict[str, str], basic: Credentials | None = None) -> httpx.Response:
        auth = httpx.USE_CLIENT_DEFAULT if basic is None else httpx.BasicAuth(*basic)
        return await self.stage.api.http.post(path, data=form, auth=auth)


async def a_bot(stage: Stage, key: OutsideKey = KEY) -> Bot:
    client_id = f"{stage.tenant}-bot-{secrets.token_hex(4)}"
    body = {
        "clientId": client_id,
        "tenantId": stage.tenant,
        "kind": "orchestrator",
        "scopes": ["grants:read", "grants:issue"],
        "authMethod": "private_key_jwt",
        "jwks": jwks(key),
    }
    document = made(await stage.api.admin_request("POST", "/clients", json=body))
    assert "clientSecret" not in document
    return Bot(stage, client_id)


@pytest.fixture
async def bot(stage: Stage) -> Bot:
    return await a_bot(stage)


def refused(response: httpx.Response) -> Json:
    assert response.status_code == 401, response.text
    assert response.headers["Cache-Control"] == "no-store"
    document: Json = response.json()
    assert document == {"error": "invalid_client", "error_description": "the client could not be authenticated"}
    return document


async def test_a_client_with_a_key_is_served(bot: Bot) -> None:
    for form in ({}, {"client_id": bot.client_id}):
        token = made(await bot.ask(bot.sign(), **form))["access_token"]
        response = await bot.stage.api.request("GET", "/v1/grants", token)
        assert response.status_code == 200, response.text


async def test_why_an_assertion_was_refused_is_in_the_platforms_log_alone(bot: Bot) -> None:
    """Its operator finds the check that failed; the log has no part of what was presented, nor a name of nobody."""
    spent = bot.sign()
    made(await bot.ask(spent))
    refused(await bot.ask(spent))
    refused(await bot.ask(bot.sign(aud=f"{bot.issuer}/oauth/token")))
    refused(await bot.ask(bot.sign(), client_id="somebody-else"))
    stranger = f"nobody-{secrets.token_hex(8)}"
    refused(await bot.ask(bot.sign(iss=stranger, sub=stranger)))
    records = await bot.stage.api.audit(type="access.refused")
    said = [str(each["cause"]) for each in records if each.get("clientId") == bot.client_id]
    assert said == [
        "a client assertion was refused: it was used before",
        "a client assertion was refused: aud is not exactly the audience that it must be",
    ]
    assert stranger not in json.dumps(records)
    assert spent not in json.dumps(records)
    assert not await bot.stage.records(type="access.refused")


async def test_of_many_who_show_one_assertion_at_once_one_is_served(bot: Bot) -> None:
    assertion = bot.sign()
    responses = await asyncio.gather(*(bot.ask(assertion) for _ in range(30)))
    served = [response for response in responses if response.status_code == 200]
    assert len(served) == 1
    for response in responses:
        if response is not served[0]:
            refused(response)


async def test_another_spelling_of_a_used_assertion_is_used(bot: Bot) -> None:
    """One jti, whatever else differs: another signature, another header, other bytes for the same claims."""
    claims = bot.claims()
    made(await bot.ask(KEY.sign(claims)))
    header = json.dumps({"alg": "ES256", "kid": "bot-1"}).encode()
    spaced = KEY.raw(header, json.dumps(claims, indent=1).encode())
    for again in (KEY.sign(claims), KEY.sign(claims, typ=DROP), spaced, KEY.sign(claims | {"exp": claims["exp"] + 1})):
        refused(await bot.ask(again))


async def test_an_assertion_that_was_used_at_one_endpoint_is_used_at_all(bot: Bot) -> None:
    for first, second in (("introspect", "revoke"), ("revoke", "token"), ("token", "introspect")):
        form = {
            "client_assertion_type": ASSERTION_TYPE,
            "client_assertion": bot.sign(),
            "grant_type": "client_credentials",
            "token": "unknown",
        }
        assert (await bot.post(f"/oauth/{first}", form)).status_code == 200
        refused(await bot.post(f"/oauth/{second}", form))


async def test_a_used_assertion_stays_used_after_a_crash(server: ServerProcess, bot: Bot) -> None:
    assertion = bot.sign(seconds=600)
    made(await bot.ask(assertion))
    server.kill()
    server.start()
    refused(await bot.ask(assertion))


async def test_two_clients_may_use_one_jti(stage: Stage) -> None:
    first, second = await a_bot(stage), await a_bot(stage, a_key("EdDSA", "bot-2"))
    made(await first.ask(first.sign(jti="one")))
    made(await second.ask(second.sign(a_key("EdDSA", "bot-2"), jti="one")))


WRONG_CLAIMS: Final[dict[str, dict[str, Any]]] = {
    "no jti": {"jti": DROP},
    "an empty jti": {"jti": ""},
    "a jti that is too long": {"jti": "j" * 256},
    "no expiry": {"exp": DROP},
    "an expiry that is past": {"seconds": -1, "iat": DROP},
    "an expiry that is too far": {"seconds": 7200},
    "the token endpoint as audience": {"aud": "{issuer}/oauth/token"},
    "the issuer with a slash as audience": {"aud": "{issuer}/"},
    "two audiences": {"aud": ["{issuer}", "https://other.example"]},
    "no audience": {"aud": DROP},
    "another issuer": {"iss": "someone-else"},
    "another subject": {"sub": "someone-else"},
    "the platform's administrator": {"iss": "platform-admin", "sub": "platform-admin"},
    "a time that has not come": {"nbf": 4_000_000_000},
}


@pytest.mark.parametrize("changes", WRONG_CLAIMS.values(), ids=list(WRONG_CLAIMS))
async def test_a_truly_signed_assertion_is_refused_that_has(bot: Bot, changes: dict[str, Any]) -> None:
    def filled(value: object) -> object:
        if isinstance(value, list):
            return [filled(item) for item in value]
        return value.replace("{issuer}", bot.issuer) if isinstance(value, str) else value

    claims: dict[str, Any] = {name: filled(value) for name, value in changes.items()}
    assertion = bot.sign(**claims)
    for form in ({}, {"client_id": bot.client_id}):
        refused(await bot.ask(assertion, **form))


def hmac_signed(bot: Bot, secret: bytes) -> str:
    header = b64(json.dumps({"alg": "HS256", "kid": "bot-1"}).encode())
    content = f"{header}.{b64(json.dumps(bot.claims()).encode())}"
    return f"{content}.{b64(hmac.digest(secret, content.encode(), hashlib.sha256))}"


def public_key(form: PublicFormat) -> bytes:
    encoded: bytes = KEY.private.public_key().public_bytes(Encoding.PEM, form)
    return encoded


FORGED: Final[dict[str, Callable[[Bot], str]]] = {
    "a stranger's signature": lambda bot: bot.sign(STRANGER, {"kid": "bot-1"}),
    "a stranger's key in the header": lambda bot: bot.sign(STRANGER, {"jwk": STRANGER.jwk}),
    "a stranger's key under the client's name": lambda bot: bot.sign(STRANGER, {"jwk": KEY.jwk, "kid": "bot-1"}),
    "the public key as a secret": lambda bot: hmac_signed(bot, public_key(PublicFormat.SubjectPublicKeyInfo)),
    "the key set as a secret": lambda bot: hmac_signed(bot, json.dumps(jwks(KEY)).encode()),
    "an empty secret": lambda bot: hmac_signed(bot, b""),
    "no signature": lambda bot: bot.sign(header={"alg": "none"}).rpartition(".")[0] + ".",
    "an algorithm of no kind": lambda bot: bot.sign(header={"alg": "none"}),
    "an algorithm in other letters": lambda bot: bot.sign(header={"alg": "es256"}),
    "the algorithm of another curve": lambda bot: bot.sign(header={"alg": "ES384"}),
    "an unknown kid": lambda bot: bot.sign(header={"kid": "bot-2"}),
    "an unknown extension": lambda bot: bot.sign(header={"crit": ["x"], "x": 1}),
    "another kind of JWT": lambda bot: bot.sign(header={"typ": "at+jwt"}),
    "what is no JWT": lambda bot: "a.b.c",
    "a whole megabyte": lambda bot: "e" * 200_000,
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=list(FORGED))
async def test_a_forged_assertion_is_refused_that_has(bot: Bot, forge: Callable[[Bot], str]) -> None:
    refused(await bot.ask(forge(bot), client_id=bot.client_id))


async def test_nobody_is_lured_to_a_strangers_keys(bot: Bot) -> None:
    async with Lure() as lure:
        for header in ({"jku": lure.url}, {"x5u": lure.url}, {"jku": lure.url, "kid": "bot-1"}):
            refused(await bot.ask(bot.sign(STRANGER, header), client_id=bot.client_id))
        assert lure.visits == 0


async def test_our_own_tokens_prove_no_client(bot: Bot) -> None:
    token = made(await bot.ask(bot.sign()))["access_token"]
    grant = await bot.stage.grant()
    for own in (token, grant["grant"]):
        refused(await bot.ask(own, client_id=bot.client_id))
        refused(await bot.ask(own))


async def test_one_clients_assertion_is_not_anothers(stage: Stage) -> None:
    victim, thief = await a_bot(stage), await a_bot(stage, STRANGER)
    refused(await thief.ask(victim.sign(), client_id=thief.client_id))
    refused(await victim.ask(thief.sign(STRANGER), client_id=victim.client_id))
    refused(await victim.ask(thief.sign(STRANGER, iss=victim.client_id, sub=victim.client_id)))
    refused(await victim.ask(thief.sign(STRANGER, sub=victim.client_id)))


TWO_WAYS: Final[dict[str, Callable[[Bot, Credentials], Awaitable[httpx.Response]]]] = {
    "a secret in the body": lambda bot, other: bot.ask(
        bot.sign(), client_id=other.client_id, client_secret=other.client_secret
    ),
    "a secret in the header": lambda bot, other: bot.post(
        "/oauth/token",
        {
            "grant_type": "client_credentials",
            "client_assertion_type": ASSERTION_TYPE,
            "client_assertion": bot.sign(),
        },
        basic=other,
    ),
    "a secret in both": lambda bot, other: bot.post(
        "/oauth/token",
        {"grant_type": "client_credentials", "client_secret": other.client_secret},
        basic=other,
    ),
    "an assertion without its type": lambda bot, _: bot.post(
        "/oauth/token", {"grant_type": "client_credentials", "client_assertion": bot.sign()}
    ),
    "a type without its assertion": lambda bot, _: bot.post(
        "/oauth/token", {"grant_type": "client_credentials", "client_assertion_type": ASSERTION_TYPE}
    ),
}


@pytest.mark.parametrize("ask", TWO_WAYS.values(), ids=list(TWO_WAYS))
async def test_a_client_proves_itself_in_exactly_one_way(
    bot: Bot, ask: Callable[[Bot, Credentials], Awaitable[httpx.Response]]
) -> None:
    response = await ask(bot, bot.stage.planner)
    assert response.status_code == 400, response.text
    assert response.json()["error"] == "invalid_request"


async def test_two_assertions_are_a_repeated_parameter(bot: Bot) -> None:
    form: dict[str, Any] = {
        "grant_type": "client_credentials",
        "client_assertion_type": ASSERTION_TYPE,
        "client_assertion": [bot.sign(), bot.sign()],
    }
    response = await bot.stage.api.http.post("/oauth/token", data=form)
    assert (response.status_code, response.json()["error"]) == (400, "invalid_request")


async def test_another_type_of_assertion_is_refused(bot: Bot) -> None:
    saml = ASSERTION_TYPE.replace("jwt-bearer", "saml2-bearer")
    refused(await bot.ask(bot.sign(), client_assertion_type=saml))


async def test_whether_there_is_a_client_is_not_told(bot: Bot) -> None:
    """One answer, whatever is wrong: no such client, another method, a wrong key, a wrong secret, a bare name."""
    secretive = bot.stage.planner.client_id
    asked = [
        await bot.ask(bot.sign(STRANGER, {"kid": "bot-1"}), client_id=name)
        for name in (bot.client_id, secretive, "nobody-at-all", "platform-admin")
    ]
    for name in (bot.client_id, secretive, "nobody-at-all", "platform-admin"):
        asked.append(await bot.post("/oauth/token", {"grant_type": "client_credentials", "client_id": name}))
        form = {"grant_type": "client_credentials", "client_id": name, "client_secret": "wrong"}
        asked.append(await bot.post("/oauth/token", form))
    assert len({(response.status_code, response.text, str(sorted(response.headers))) for response in asked}) == 1
    refused(asked[0])


async def test_a_client_without_a_proof_learns_of_nobodys_tokens(stage: Stage) -> None:
    """An application that can keep no secret has but a name, which everybody knows (RFC 7662 §2.1)."""
    body = {
        "clientId": f"{stage.tenant}-app",
        "tenantId": stage.tenant,
        "kind": "app",
        "authMethod": "none",
        "redirectUris": ["https://app.example/cb"],
    }
    made(await stage.api.admin_request("POST", "/clients", json=body))
    grant = await stage.grant()
    token = await stage.token(grant)
    for own in (token, grant["grant"]):
        form = {"client_id": f"{stage.tenant}-app", "token": own}
        refused(await stage.api.http.post("/oauth/introspect", data=form))
    for grant_type in ("client_credentials", "urn:ietf:params:oauth:grant-type:token-exchange"):
        form = {"client_id": f"{stage.tenant}-app", "grant_type": grant_type}
        response = await stage.api.http.post("/oauth/token", data=form)
        assert (response.status_code, response.json()["error"]) == (400, "unauthorized_client")
