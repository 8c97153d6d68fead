"""What of others' JWTs is believed, and which of their keys are used (RFC 7515, 7517, 7519, 7523 §3, 8725)."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.adapters.outside_tokens import Ages, OutsideJwts
from app.core.registry import SigningAlgorithm
from app.ports import KeySource, OutsideToken, PublishedKeys, TokenRefused, UpstreamFailed
from tests.members import DROP, with_changes
from tests.outsiders import OutsideKey, a_key, a_weak_rsa_key, b64, claims_of, jwks
from tests.samples import NOW

Json = dict[str, Any]

ISSUER: Final = "https://idp.example"
AUDIENCE: Final = "https://subgrant.example"
KEYS_AT: Final = "https://idp.example/jwks"
EVERY: Final = frozenset(map(str, SigningAlgorithm))
HOUR: Final = timedelta(hours=1)
SECONDS: Final = int(NOW.timestamp())
HEADER: Final = b'{"alg":"ES256","kid":"k1"}'


@dataclass
class Publisher:
    """A server of keys, with the clock by which their age is told."""

    keys: Json = field(default_factory=lambda: jwks(a_key()))
    max_age_seconds: float | None = None
    failure: str | None = None
    asked: int = 0
    now: float = 1000.0
    held: asyncio.Event | None = None

    async def fetch(self, uri: str) -> PublishedKeys:
        assert uri == KEYS_AT
        self.asked += 1
        if self.held is not None:
            await self.held.wait()
        if self.failure is not None:
            raise UpstreamFailed(self.failure)
        return PublishedKeys(body=json.dumps(self.keys).encode(), max_age_seconds=self.max_age_seconds)


@pytest.fixture
def publisher() -> Publisher:
    return Publisher()


@pytest.fixture
def outsiders(publisher: Publisher) -> OutsideJwts:
    return OutsideJwts(fetch=publisher.fetch, ages=Ages(), seconds=lambda: publisher.now)


def good(**changes: object) -> Json:
    return claims_of(ISSUER, AUDIENCE, "ada", NOW, **changes)  # type: ignore[arg-type]  # whatever a claim may be


async def verified(
    outsiders: OutsideJwts, compact: str, keys: KeySource | None = None, now: datetime = NOW
) -> OutsideToken:
    source = keys or KeySource(algorithms=EVERY, jwks=jwks(a_key()))
    return await outsiders.verify(compact, issuer=ISSUER, audience=AUDIENCE, keys=source, now=now, max_lifetime=HOUR)


async def refusal(outsiders: OutsideJwts, compact: str, keys: KeySource | None = None, now: datetime = NOW) -> str:
    with pytest.raises(TokenRefused) as refused:
        await verified(outsiders, compact, keys, now)
    return refused.value.detail


# --- what is believed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("alg", sorted(EVERY))
async def test_each_asymmetric_algorithm_is_verified(outsiders: OutsideJwts, alg: str) -> None:
    key = a_key(alg)
    token = await verified(outsiders, key.sign(good()), KeySource(algorithms=frozenset({alg}), jwks=jwks(key)))
    assert (token.issuer, token.subject, token.jti, token.typ) == (ISSUER, "ada", "jti-1", "JWT")
    assert token.expires_at - NOW == timedelta(seconds=60)
    assert token.issued_at == NOW


@pytest.mark.parametrize("in_the_key", ["EdDSA", "Ed25519"])
@pytest.mark.parametrize("in_the_token", ["EdDSA", "Ed25519"])
async def test_an_algorithm_may_have_its_newer_name(outsiders: OutsideJwts, in_the_token: str, in_the_key: str) -> None:
    """RFC 9864 §2.2; the older name is what trusted issuers are registered with."""
    key = a_key("EdDSA")
    keys = KeySource(algorithms=frozenset({"EdDSA"}), jwks={"keys": [key.jwk | {"alg": in_the_key}]})
    assert (await verified(outsiders, key.sign(good(), alg=in_the_token), keys)).subject == "ada"


async def test_the_newer_name_opens_nothing_that_the_older_one_does_not(outsiders: OutsideJwts) -> None:
    key = a_key("EdDSA")
    other = KeySource(algorithms=frozenset({"ES256"}), jwks=jwks(key))
    assert await refusal(outsiders, key.sign(good(), alg="Ed25519"), other) == (
        "the algorithm is not one that the issuer signs with"
    )
    elliptic = KeySource(algorithms=EVERY, jwks=jwks(a_key()))
    assert await refusal(outsiders, a_key().sign(good(), alg="Ed25519"), elliptic) == "the signing key is not known"


GOOD: Final[dict[str, dict[str, object]]] = {
    "an audience in a list of one": {"aud": [AUDIENCE]},
    "neither jti nor iat": {"jti": DROP, "iat": DROP},
    "a clock that is a little ahead": {
        "iat": int(NOW.timestamp()) + 60,
        "nbf": int(NOW.timestamp()) + 60,
        "seconds": 90,
    },
    "a date in another spelling": {"exp": float(int(NOW.timestamp()) + 60)},
    "a subject with a blank": {"sub": "Ada Lovelace"},
}


@pytest.mark.parametrize("claims", GOOD.values(), ids=list(GOOD))
async def test_a_token_may_have(outsiders: OutsideJwts, claims: dict[str, object]) -> None:
    assert (await verified(outsiders, a_key().sign(good(**claims)))).issuer == ISSUER


async def test_a_token_without_a_kid_is_verified_where_one_key_fits(outsiders: OutsideJwts) -> None:
    keys = KeySource(algorithms=EVERY, jwks=jwks(a_key(), a_key("EdDSA", "k2")))
    await verified(outsiders, a_key(kid=None).sign(good()), keys)


async def test_a_mesh_names_its_trust_domain_where_its_token_names_no_issuer(outsiders: OutsideJwts) -> None:
    """SPIFFE JWT-SVIDs need neither `iss` nor `iat` nor `jti`; their keys are marked with a use of their own."""
    key = a_key()
    claims = good(iss=DROP, iat=DROP, jti=DROP, sub="spiffe://mesh.example/ns/agents/sa/planner", aud=[AUDIENCE])
    compact = key.sign(claims, typ="JOSE")
    source = KeySource(algorithms=EVERY, jwks={"keys": [key.jwk | {"use": "jwt-svid"}]})
    assert outsiders.issuer_named(compact) == "spiffe://mesh.example"
    token = await outsiders.verify(
        compact, issuer="spiffe://mesh.example", audience=AUDIENCE, keys=source, now=NOW, max_lifetime=HOUR
    )
    assert token.subject == "spiffe://mesh.example/ns/agents/sa/planner"


# --- what is not ------------------------------------------------------------------------------------------

BAD_CLAIMS: Final[dict[str, tuple[dict[str, object], str]]] = {
    "another issuer": ({"iss": "https://idp.other"}, "the issuer is another"),
    "an issuer with a slash more": ({"iss": f"{ISSUER}/"}, "the issuer is another"),
    "an issuer in other letters": ({"iss": "https://IDP.example"}, "the issuer is another"),
    "no issuer": ({"iss": DROP}, "iss is not a string"),
    "an issuer that is a list": ({"iss": [ISSUER]}, "iss is not a string"),
    "an issuer that is too long": ({"iss": "https://" + "x" * 255}, "iss is too long"),
    "another audience": ({"aud": "https://other.example"}, "aud is not exactly the audience that it must be"),
    "two audiences": ({"aud": [AUDIENCE, "https://other.example"]}, "aud is not exactly the audience that it must be"),
    "one audience twice": ({"aud": [AUDIENCE, AUDIENCE]}, "aud is not exactly the audience that it must be"),
    "the token endpoint as audience": (
        {"aud": f"{AUDIENCE}/oauth/token"},
        "aud is not exactly the audience that it must be",
    ),
    "an audience with a slash more": ({"aud": f"{AUDIENCE}/"}, "aud is not exactly the audience that it must be"),
    "no audience": ({"aud": DROP}, "aud is not exactly the audience that it must be"),
    "an empty list of audiences": ({"aud": []}, "aud is not exactly the audience that it must be"),
    "no subject": ({"sub": DROP}, "sub is not a string"),
    "an empty subject": ({"sub": ""}, "sub is not a string"),
    "a number as subject": ({"sub": 7}, "sub is not a string"),
    "a subject with a line end": ({"sub": "ada\nadmin"}, "sub is not a string"),
    "a subject that is too long": ({"sub": "a" * 513}, "sub is too long"),
    "a jti that is too long": ({"jti": "j" * 256}, "jti is too long"),
    "an empty jti": ({"jti": ""}, "jti is not a string"),
    "a number as jti": ({"jti": 7}, "jti is not a string"),
    "no expiry": ({"exp": DROP}, "exp is not a date"),
    "an expiry of now": ({"exp": SECONDS, "iat": SECONDS - 60}, "the token has expired"),
    "an expiry that is a text": ({"exp": str(SECONDS + 60)}, "exp is not a date"),
    "an expiry with a fraction": ({"exp": SECONDS + 60.5}, "exp is not a date"),
    "an expiry that is true": ({"exp": True}, "exp is not a date"),
    "an expiry beyond all dates": ({"exp": 253_402_300_800}, "exp is not a date"),
    "an expiry that is too far": ({"exp": SECONDS + 3661, "iat": DROP}, "the token lives longer than it may"),
    "a life that is too long": ({"iat": SECONDS - 3600, "exp": SECONDS + 1}, "the token lives longer than it may"),
    "an expiry before its issue": ({"iat": SECONDS + 60, "exp": SECONDS + 60}, "the token lives longer than it may"),
    "an issue in the future": ({"iat": SECONDS + 61, "exp": SECONDS + 90}, "the token was issued in the future"),
    "an issue that is a text": ({"iat": str(SECONDS)}, "iat is not a date"),
    "a time that has not come": ({"nbf": SECONDS + 61}, "the token is not valid yet"),
    "a negative time": ({"nbf": -1}, "nbf is not a date"),
}


@pytest.mark.parametrize("claims, detail", BAD_CLAIMS.values(), ids=list(BAD_CLAIMS))
async def test_a_true_signature_does_not_help(outsiders: OutsideJwts, claims: dict[str, object], detail: str) -> None:
    assert await refusal(outsiders, a_key().sign(good(**claims))) == detail


def hmac_signed(secret: bytes) -> str:
    content = f"{b64(json.dumps({'alg': 'HS256', 'kid': 'k1'}).encode())}.{b64(json.dumps(good()).encode())}"
    return f"{content}.{b64(hmac.digest(secret, content.encode(), hashlib.sha256))}"


def unsigned() -> str:
    return f"{b64(json.dumps({'alg': 'none', 'kid': 'k1'}).encode())}.{b64(json.dumps(good()).encode())}."


def public_pem(key: OutsideKey) -> bytes:
    encoded: bytes = key.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return encoded


BAD_TOKENS: Final[dict[str, Callable[[], str]]] = {
    "a signature by a stranger": lambda: OutsideKey("ES256", "k1", a_key("ES256", "other", 1).private).sign(good()),
    "a stranger's key in its header": lambda: (
        a_key("ES256", "other", 1).named("k1").sign(good(), jwk=a_key("ES256", "other", 1).jwk)
    ),
    "a place for its keys in its header": lambda: a_key("ES256", "other", 1).sign(good(), jku="https://evil.example/k"),
    "an HMAC with the public key": lambda: hmac_signed(public_pem(a_key())),
    "an HMAC with nothing": lambda: hmac_signed(b""),
    "no signature": unsigned,
    "no algorithm": lambda: a_key().sign(good(), alg=DROP),
    "an algorithm that is a list": lambda: a_key().sign(good(), alg=["ES256"]),
    "the algorithm of another key": lambda: a_key("EdDSA").sign(good(), kid="k1", alg="ES256"),
    "an unknown key": lambda: a_key().sign(good(), kid="k2"),
    "a kid in other letters": lambda: a_key().sign(good(), kid="K1"),
    "a kid that is a number": lambda: a_key().sign(good(), kid=1),
    "an extension": lambda: a_key().sign(good(), crit=["exp"]),
    "an empty list of extensions": lambda: a_key().sign(good(), crit=[]),
    "an unencoded payload": lambda: a_key().sign(good(), b64=False),
    "a typ that is a list": lambda: a_key().sign(good(), typ=["JWT"]),
    "a member twice": lambda: a_key().raw(
        b'{"alg":"ES256","kid":"k1"}', b'{"iss":"x",' + json.dumps(good()).encode()[1:]
    ),
    "a header's member twice": lambda: a_key().raw(
        b'{"alg":"none","alg":"ES256","kid":"k1"}', json.dumps(good()).encode()
    ),
    "claims that are a list": lambda: a_key().raw(HEADER, b"[]"),
    "NaN as a date": lambda: a_key().raw(HEADER, json.dumps(good(exp=float("nan"))).encode()),
    "padding": lambda: a_key().sign(good()) + "=",
    "four parts": lambda: a_key().sign(good()) + ".e30",
    "two parts": lambda: a_key().sign(good()).rpartition(".")[0],
    "a blank at its end": lambda: a_key().sign(good()) + " ",
    "letters of another script": lambda: a_key().sign(good()).replace("e", "\u0435", 1),
    "no part at all": lambda: "",
    "more than can be read": lambda: a_key().sign(good(note="x" * 20_000)),
}


@pytest.mark.parametrize("forge", BAD_TOKENS.values(), ids=list(BAD_TOKENS))
async def test_nothing_is_believed_that_has(outsiders: OutsideJwts, forge: Callable[[], str]) -> None:
    await refusal(outsiders, forge())


async def test_an_algorithm_that_is_not_configured_is_refused_though_the_key_fits(outsiders: OutsideJwts) -> None:
    keys = KeySource(algorithms=frozenset({"EdDSA"}), jwks=jwks(a_key()))
    assert await refusal(outsiders, a_key().sign(good()), keys) == "the algorithm is not one that the issuer signs with"


async def test_a_symmetric_algorithm_is_refused_even_where_it_is_configured(outsiders: OutsideJwts) -> None:
    keys = KeySource(algorithms=frozenset({"HS256", "none"}), jwks=jwks(a_key()))
    for forged in (hmac_signed(public_pem(a_key())), unsigned()):
        await refusal(outsiders, forged, keys)


async def test_a_key_verifies_by_its_own_algorithm_only(outsiders: OutsideJwts) -> None:
    key = a_key("RS256")
    as_other = OutsideKey("PS256", "k1", key.private)
    keys = KeySource(algorithms=EVERY, jwks=jwks(key))
    assert await refusal(outsiders, as_other.sign(good()), keys) == "the signing key is not known"


async def test_a_token_without_a_kid_is_refused_where_two_keys_fit(outsiders: OutsideJwts) -> None:
    two = KeySource(algorithms=EVERY, jwks=jwks(a_key(), a_key(kid="k2", which=2)))
    assert await refusal(outsiders, a_key(kid=None).sign(good()), two) == "the signing key is not known"


async def test_no_refusal_repeats_a_part_of_the_token(outsiders: OutsideJwts) -> None:
    for forge in BAD_TOKENS.values():
        compact = forge()
        said = await refusal(outsiders, compact)
        assert not any(part in said for part in ("ada", *compact.split(".")) if part)


def test_an_issuer_is_named_before_anything_is_proven(outsiders: OutsideJwts) -> None:
    assert outsiders.issuer_named(a_key("EdDSA", "any").sign(good(exp=1))) == ISSUER
    for compact in ("", "a.b.c", a_key().sign(good(iss=DROP)), a_key().sign({"sub": "spiffe://UPPER/x"})):
        with pytest.raises(TokenRefused):
            outsiders.issuer_named(compact)


# --- keys that are registered -----------------------------------------------------------------------------


def changed_key(key: OutsideKey, **changes: object) -> Json:
    return {"keys": [with_changes(key.jwk, changes)]}


FLAWS: Final[dict[str, tuple[Callable[[], Json], str]]] = {
    "no keys": (lambda: {"keys": []}, "must hold 1 to 8 keys, in 16384 bytes"),
    "nine keys": (
        lambda: {"keys": [a_key().named(f"k{n}").jwk for n in range(9)]},
        "must hold 1 to 8 keys, in 16384 bytes",
    ),
    "more than is read": (lambda: changed_key(a_key(), x5c="x" * 16_384), "must hold 1 to 8 keys, in 16384 bytes"),
    "no list": (lambda: {"keys": {}}, "is no set of keys"),
    "a key on its own": (lambda: a_key().jwk, "is no set of keys"),
    "a text for a key": (lambda: {"keys": ["k"]}, "holds what is no key"),
    "a private EC key": (lambda: {"keys": [a_key().private_jwk]}, "holds a key that is not public"),
    "a private OKP key": (lambda: {"keys": [a_key("EdDSA").private_jwk]}, "holds a key that is not public"),
    "a private RSA key": (lambda: {"keys": [a_key("RS256").private_jwk]}, "holds a key that is not public"),
    "a shared secret": (
        lambda: {"keys": [{"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}]},
        "holds a key that is not public",
    ),
    "a kind without a key": (lambda: {"keys": [{"kty": "oct"}]}, "holds a key of a kind that is not used here"),
    "a small RSA key": (lambda: jwks(a_weak_rsa_key()), "holds an RSA key that is not of 2048 to 8192 bits"),
    "an RSA key of any algorithm": (
        lambda: changed_key(a_key("RS256"), alg=DROP),
        "holds an RSA key that does not say its alg",
    ),
    "an RSA exponent of one": (lambda: changed_key(a_key("RS256"), e="AQ"), "holds a key that is malformed"),
    "an even RSA exponent": (lambda: changed_key(a_key("RS256"), e="AQAA"), "holds a key that is malformed"),
    "an RSA exponent that takes long": (
        lambda: changed_key(a_key("RS256"), e=b64(b"\x01" + b"\x00" * 7 + b"\x01")),
        "holds an RSA key whose exponent is unfit",
    ),
    "an algorithm for another kind": (
        lambda: changed_key(a_key(), alg="RS256"),
        "holds a key whose alg does not fit it",
    ),
    "an algorithm for another curve": (
        lambda: changed_key(a_key(), alg="ES384"),
        "holds a key whose alg does not fit it",
    ),
    "a symmetric algorithm": (lambda: changed_key(a_key(), alg="HS256"), "holds a key whose alg does not fit it"),
    "an algorithm that is a list": (
        lambda: changed_key(a_key(), alg=["ES256"]),
        "holds a key whose alg does not fit it",
    ),
    "an unknown curve": (
        lambda: changed_key(a_key(), crv="secp256k1"),
        "holds a key of a kind that is not used here",
    ),
    "a point off its curve": (lambda: changed_key(a_key(), x=b64(b"\x01" * 32)), "holds a key that is malformed"),
    "a coordinate that is too short": (lambda: changed_key(a_key(), x="AQ"), "holds a key that is malformed"),
    "a coordinate that is no base64url": (lambda: changed_key(a_key(), x="*" * 43), "holds a key that is malformed"),
    "no coordinate": (lambda: changed_key(a_key(), y=DROP), "holds a key that is malformed"),
    "a key for secrecy": (lambda: changed_key(a_key(), use="enc"), "holds a key that is not for signatures"),
    "a key that only signs": (lambda: changed_key(a_key(), key_ops=["sign"]), "holds a key that is not for signatures"),
    "a kid that is a number": (lambda: changed_key(a_key(), kid=1), "holds a key whose kid is no name"),
    "a kid that is null": (lambda: changed_key(a_key(), kid=None), "holds a key whose kid is no name"),
    "two keys and a name for one": (
        lambda: jwks(a_key(), a_key("EdDSA", None)),
        "holds several keys, of which each needs a kid",
    ),
    "two keys without a name": (
        lambda: jwks(a_key(kid=None), a_key("EdDSA", None)),
        "holds several keys, of which each needs a kid",
    ),
    "one key under two names": (lambda: jwks(a_key(), a_key().named("k2")), "holds one key twice"),
    "one kid twice": (lambda: jwks(a_key(), a_key("EdDSA")), "has two keys of one kid"),
}


@pytest.mark.parametrize("made, flaw", FLAWS.values(), ids=list(FLAWS))
def test_a_set_of_keys_is_refused_that_has(outsiders: OutsideJwts, made: Callable[[], Json], flaw: str) -> None:
    assert outsiders.flaw(made()) == flaw


def test_a_set_may_hold_keys_of_every_kind(outsiders: OutsideJwts) -> None:
    algorithms = ("RS256", "PS512", "ES256", "ES384", "ES512", "EdDSA")
    keys = [a_key(alg, alg, which) for which, alg in enumerate(algorithms)]
    assert outsiders.flaw(jwks(*keys)) is None
    assert outsiders.flaw(changed_key(a_key(), alg=DROP, kid=DROP, use=DROP, key_ops=["verify"])) is None


# --- keys that are fetched --------------------------------------------------------------------------------

FETCHED: Final = KeySource(algorithms=EVERY, jwks_uri=KEYS_AT)


async def test_keys_are_fetched_once_and_kept(outsiders: OutsideJwts, publisher: Publisher) -> None:
    for _ in range(3):
        await verified(outsiders, a_key().sign(good()), FETCHED)
    assert publisher.asked == 1


async def test_nobody_is_asked_for_the_keys_of_a_token_that_is_refused_anyway(
    outsiders: OutsideJwts, publisher: Publisher
) -> None:
    for claims in ({"exp": 1}, {"aud": "https://other.example"}, {"iss": "https://other.example"}):
        await refusal(outsiders, a_key().sign(good(**claims)), FETCHED)
    await refusal(outsiders, hmac_signed(b"secret"), FETCHED)
    assert publisher.asked == 0


AGES: Final[dict[str, tuple[float | None, float]]] = {
    "what is usual": (None, 300),
    "what the server says": (120, 120),
    "no less than a moment": (0, 10),
    "no longer than is set": (1_000_000, 3600),
}


@pytest.mark.parametrize("said, kept", AGES.values(), ids=list(AGES))
async def test_keys_are_kept_for(outsiders: OutsideJwts, publisher: Publisher, said: float | None, kept: float) -> None:
    publisher.max_age_seconds = said
    compact = a_key().sign(good())
    await verified(outsiders, compact, FETCHED)
    publisher.now += kept - 0.1
    await verified(outsiders, compact, FETCHED)
    assert publisher.asked == 1
    publisher.now += 0.1
    await verified(outsiders, compact, FETCHED)
    assert publisher.asked == 2


async def test_a_key_that_is_taken_back_stops_once_the_set_is_old(outsiders: OutsideJwts, publisher: Publisher) -> None:
    compact = a_key().sign(good())
    await verified(outsiders, compact, FETCHED)
    publisher.keys = jwks(a_key("EdDSA", "k2"))
    publisher.now += 300
    assert await refusal(outsiders, compact, FETCHED) == "the signing key is not known"


async def test_a_new_key_is_taken_at_once(outsiders: OutsideJwts, publisher: Publisher) -> None:
    await verified(outsiders, a_key().sign(good()), FETCHED)
    publisher.keys = jwks(a_key("EdDSA", "k2"))
    publisher.now += 10
    await verified(outsiders, a_key("EdDSA", "k2").sign(good()), FETCHED)


async def test_forged_names_of_keys_make_no_more_than_one_question_in_a_while(
    outsiders: OutsideJwts, publisher: Publisher
) -> None:
    for number in range(500):
        await refusal(outsiders, a_key().sign(good(), kid=f"forged-{number}"), FETCHED)
    assert publisher.asked == 1
    publisher.now += 9.9
    await refusal(outsiders, a_key().sign(good(), kid="forged"), FETCHED)
    assert publisher.asked == 1
    publisher.now += 0.1
    await refusal(outsiders, a_key().sign(good(), kid="forged"), FETCHED)
    assert publisher.asked == 2


async def test_all_who_wait_for_keys_wait_for_one_answer(outsiders: OutsideJwts, publisher: Publisher) -> None:
    publisher.held = asyncio.Event()
    waiting = [asyncio.create_task(verified(outsiders, a_key().sign(good()), FETCHED)) for _ in range(50)]
    await asyncio.sleep(0.01)
    waiting[0].cancel()
    await asyncio.sleep(0.01)
    publisher.held.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert publisher.asked == 1
    assert isinstance(results[0], asyncio.CancelledError)
    assert all(isinstance(result, OutsideToken) for result in results[1:])


FAILURES: Final[dict[str, Callable[[Publisher], None]]] = {
    "is down": lambda publisher: setattr(publisher, "failure", "nobody is there"),
    "publishes what is no set": lambda publisher: setattr(publisher, "keys", {"keys": "none"}),
    "publishes one name twice": lambda publisher: setattr(publisher, "keys", jwks(a_key(), a_key("EdDSA"))),
    "publishes too much": lambda publisher: setattr(
        publisher, "keys", {"keys": [a_key().named(f"k{n}").jwk for n in range(65)]}
    ),
}


@pytest.mark.parametrize("fail", FAILURES.values(), ids=list(FAILURES))
async def test_the_last_good_keys_count_for_a_while_where_the_server(
    outsiders: OutsideJwts, publisher: Publisher, fail: Callable[[Publisher], None]
) -> None:
    compact = a_key().sign(good())
    await verified(outsiders, compact, FETCHED)
    fail(publisher)
    publisher.now += 14_399
    await verified(outsiders, compact, FETCHED)
    publisher.now += 1
    assert await refusal(outsiders, compact, FETCHED) == "the issuer's keys can't be had"


@pytest.mark.parametrize("fail", FAILURES.values(), ids=list(FAILURES))
async def test_nothing_is_believed_where_from_the_start_the_server(
    outsiders: OutsideJwts, publisher: Publisher, fail: Callable[[Publisher], None]
) -> None:
    fail(publisher)
    for _ in range(20):
        assert await refusal(outsiders, a_key().sign(good()), FETCHED) == "the issuer's keys can't be had"
    assert publisher.asked == 1, "a server that is down is left alone"


async def test_keys_that_are_none_of_ours_are_left_out_of_what_is_published(
    outsiders: OutsideJwts, publisher: Publisher
) -> None:
    odd: list[Json] = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "k2"},
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA", "kid": "k3"},
        a_key("EdDSA", "k4").private_jwk,
        with_changes(a_key("ES384", "k5").jwk, {"use": "enc"}),
        a_weak_rsa_key().jwk,
    ]
    publisher.keys = {"keys": [*odd, a_key().jwk]}
    await verified(outsiders, a_key().sign(good()), FETCHED)
    for key in (a_key("EdDSA", "k4"), a_key("ES384", "k5"), a_weak_rsa_key()):
        assert await refusal(outsiders, key.sign(good()), FETCHED) == "the signing key is not known"


async def test_a_published_rsa_key_without_an_alg_takes_those_that_are_configured(
    outsiders: OutsideJwts, publisher: Publisher
) -> None:
    key = a_key("RS256")
    publisher.keys = {"keys": [with_changes(key.jwk, {"alg": DROP})]}
    keys = KeySource(algorithms=frozenset({"RS256"}), jwks_uri=KEYS_AT)
    await verified(outsiders, key.sign(good()), keys)
    as_other = OutsideKey("PS256", "k1", key.private)
    assert "the algorithm" in await refusal(outsiders, as_other.sign(good()), keys)


async def test_a_token_in_its_time_is_refused_after_it(outsiders: OutsideJwts) -> None:
    compact = a_key().sign(good())
    expiry = datetime.fromtimestamp(SECONDS + 60, UTC)
    await verified(outsiders, compact, now=expiry - timedelta(microseconds=1))
    assert await refusal(outsiders, compact, now=expiry) == "the token has expired"


@pytest.mark.parametrize("alg", ["ES256", "EdDSA", "RS256"])
async def test_no_character_of_a_token_can_be_another(outsiders: OutsideJwts, alg: str) -> None:
    key = a_key(alg)
    keys, compact = KeySource(algorithms=frozenset({alg}), jwks=jwks(key)), key.sign(good())
    for at, char in enumerate(compact):
        for other in ("A" if char != "A" else "B", "-", ".", ""):
            if other != char:
                await refusal(outsiders, compact[:at] + other + compact[at + 1 :], keys)
    await verified(outsiders, compact, keys)
