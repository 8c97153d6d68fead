"""The list of RFC 9449 §4.3, item by item, and what else may be wrong with a proof, a key, a URL or a nonce."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from joserfc.jwk import ECKey, OKPKey, RSAKey

from app.adapters.dpop import MAX_PROOF_CHARS, NONCE_PERIOD, WINDOW, DpopProofs, Nonces
from app.core.reasons import Reason
from app.ports import PROOF_ALGORITHMS, Proof, TokenRefused
from tests.members import DROP
from tests.prover import Prover, b64

URL = "https://subgrant.example/v1/gateway/calls"
TOKEN = "a.token.of-any-kind"
NOW = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
IAT = int(NOW.timestamp())
PROOFS = DpopProofs()
KEY = Prover.ed25519()

MAKERS: dict[str, Callable[[], Prover]] = {
    "ES256": lambda: Prover.elliptic("ES256"),
    "ES384": lambda: Prover.elliptic("ES384"),
    "EdDSA": Prover.ed25519,
    "Ed25519": lambda: Prover.ed25519("Ed25519"),
    "RS256": lambda: Prover.rsa("RS256"),
    "PS256": lambda: Prover.rsa("PS256"),
}


def proof_by(prover: Prover = KEY, *, token: str | None = TOKEN, **changes: object) -> str:
    return prover.proof("POST", URL, token=token, **{"iat": IAT, **changes})  # type: ignore[arg-type]  # members are any


def read(proof: str, *, method: str = "POST", url: str = URL, token: str | None = TOKEN, now: datetime = NOW) -> Proof:
    return PROOFS.verify(proof, method=method, url=url, access_token=token, now=now)


def is_refused(proof: str, *, url: str = URL, now: datetime = NOW) -> bool:
    """Whether the proof is refused for what it is, and in words that repeat none of it."""
    with pytest.raises(TokenRefused) as caught:
        read(proof, url=url, now=now)
    assert not any(part in str(caught.value) for part in proof.split(".") if len(part) > 8)
    return caught.value.reason is Reason.PROOF_INVALID


# --- a good one -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alg", PROOF_ALGORITHMS)
def test_a_proof_by_each_algorithm_proves_its_key(alg: str) -> None:
    prover = MAKERS[alg]()
    proof = read(proof_by(prover, jti="j"))
    assert proof == Proof(key_thumbprint=prover.thumbprint, jti="j", expires_at=NOW.replace(microsecond=0) + WINDOW)


@pytest.mark.parametrize("alg,kind", [("ES256", ECKey), ("EdDSA", OKPKey), ("RS256", RSAKey)])
def test_the_thumbprint_is_the_one_that_others_compute(alg: str, kind: type[ECKey | OKPKey | RSAKey]) -> None:
    prover = MAKERS[alg]()
    decorated = replace(prover, jwk={**prover.jwk, "kid": "mine", "use": "sig", "alg": alg, "key_ops": ["verify"]})
    assert read(proof_by(decorated)).key_thumbprint == kind.import_key(prover.jwk).thumbprint()


def test_without_an_access_token_no_hash_of_one_is_needed() -> None:
    assert read(proof_by(token=None), token=None).key_thumbprint == KEY.thumbprint


def test_claims_that_are_not_known_are_no_reason_to_refuse() -> None:
    assert read(proof_by(nonce="where none is asked for", exp=1, other={"a": [1]}, jti="j")).jti == "j"


# --- RFC 9449 §4.3 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("proof", ["", "a", "a.b", "a.b.c.d", "..", "é.é.é"])
def test_item_2_what_is_no_well_formed_jwt_is_refused(proof: str) -> None:
    assert is_refused(proof)


@pytest.mark.parametrize("around", ["{}=", " {}", "{},{}", "{}.", "{}\n"])
def test_item_2_what_stands_around_a_proof_is_refused(around: str) -> None:
    assert is_refused(around.format(proof_by(), proof_by()))


def test_item_2_a_member_given_twice_is_refused() -> None:
    header = json.dumps({"typ": "dpop+jwt", "alg": "EdDSA", "jwk": KEY.jwk}).encode()
    twice = b'{"htm":"POST","htm":"POST","htu":"' + URL.encode() + b'","iat":' + str(IAT).encode() + b',"jti":"j"}'
    assert is_refused(KEY.signed_raw(header, twice))


def test_item_2_a_second_spelling_of_a_signature_is_refused() -> None:
    proof = proof_by()
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = last[last.index(proof[-1]) ^ 1]
    assert is_refused(proof[:-1] + other)


@pytest.mark.parametrize("claim", ["jti", "htm", "htu", "iat", "ath"])
def test_item_3_each_claim_is_required(claim: str) -> None:
    missing: dict[str, Any] = {claim: DROP}
    assert is_refused(proof_by(**missing))


@pytest.mark.parametrize("claim", ["jti", "htm", "htu", "iat", "ath"])
@pytest.mark.parametrize("value", [None, "", True, 1.5, [], {}, ["POST"]])
def test_item_3_each_claim_is_of_its_type(claim: str, value: object) -> None:
    changed: dict[str, Any] = {claim: value}
    assert is_refused(proof_by(**changed))


def test_item_3_an_id_is_as_long_as_what_the_store_keeps() -> None:
    assert read(proof_by(jti="j" * 255)).jti == "j" * 255
    assert is_refused(proof_by(jti="j" * 256))
    assert is_refused(proof_by(jti="a\0b"))


@pytest.mark.parametrize("typ", ["dpop+JWT", "jwt", "at+jwt", "application/dpop+jwt", None, DROP])
def test_item_4_another_type_is_refused(typ: object) -> None:
    assert is_refused(proof_by(header={"typ": typ}))


@pytest.mark.parametrize("alg", ["none", "HS256", "ES256K", "ES512", "RS1", "eddsa", "ES256", "", None, 1, DROP])
def test_item_5_an_algorithm_that_is_not_accepted_or_not_the_keys_is_refused(alg: object) -> None:
    assert is_refused(proof_by(header={"alg": alg}))


def test_item_5_a_symmetric_key_is_refused() -> None:
    assert is_refused(proof_by(Prover.symmetric()))


def test_item_5_a_proof_that_nobody_signed_is_refused() -> None:
    header, payload, _ = proof_by(header={"alg": "none"}).split(".")
    assert is_refused(f"{header}.{payload}.")


def test_item_6_a_signature_by_another_key_is_refused() -> None:
    other = replace(KEY, jwk=Prover.ed25519().jwk)
    assert is_refused(proof_by(other))


@pytest.mark.parametrize("alg", PROOF_ALGORITHMS)
def test_item_6_what_was_changed_after_it_was_signed_is_refused(alg: str) -> None:
    header, payload, signature = proof_by(MAKERS[alg](), jti="old").split(".")
    changed = proof_by(jti="new").split(".")[1]
    assert changed != payload
    assert is_refused(f"{header}.{changed}.{signature}")


@pytest.mark.parametrize("member", ["d", "p", "q", "dp", "dq", "qi", "oth", "k"])
def test_item_7_a_private_key_in_the_proof_is_refused(member: str) -> None:
    assert is_refused(proof_by(replace(KEY, jwk={**KEY.jwk, member: b64(b"x" * 32)})))


@pytest.mark.parametrize("method", ["GET", "post", "POST ", "PUT"])
def test_item_8_another_method_is_refused(method: str) -> None:
    assert is_refused(proof_by(htm=method))


SAME = [
    "HTTPS://SUBGRANT.Example:443/v1/gateway/calls",
    "https://subgrant.example:/v1/gateway/calls",
    "https://subgrant.example/v1/gateway/calls?any=query",
    "https://subgrant.example/v1/gateway/calls#fragment",
    "https://subgrant.example/v1/%67ateway/calls",
    "https://subgrant.example/v1/./other/../gateway/calls",
    "https://subgrant.example/v1/other/%2e%2E/gateway/calls",
]
OTHER = [
    "http://subgrant.example/v1/gateway/calls",
    "https://subgrant.example:8443/v1/gateway/calls",
    "https://subgrant.example/V1/gateway/calls",
    "https://subgrant.example/v1/gateway/calls/",
    "https://subgrant.example//v1/gateway/calls",
    "https://subgrant.example/v1/gateway%2Fcalls",
    "https://subgrant.example/v1/gateway/checks",
    "https://subgrant.example.evil.example/v1/gateway/calls",
    "https://subgrant.example@evil.example/v1/gateway/calls",
    "https://user@subgrant.example/v1/gateway/calls",
    "https://evil.example/v1/gateway/calls",
    "//subgrant.example/v1/gateway/calls",
    "/v1/gateway/calls",
    "https:///v1/gateway/calls",
    "https://subgrant.example:99999/v1/gateway/calls",
    "https://[subgrant.example/v1/gateway/calls",
    "ftp://subgrant.example/v1/gateway/calls",
    " https://subgrant.example/v1/gateway/calls",
    "https://subgrant.example/v1/gateway/calls\n",
    "https://subgrant.example/v1/gate\tway/calls",
    "https://subgrant.example/v1/gateway/c\u0430lls",
]


@pytest.mark.parametrize("url", SAME)
def test_item_9_another_spelling_of_the_same_url_is_the_same(url: str) -> None:
    assert read(proof_by(htu=url)).key_thumbprint == KEY.thumbprint


@pytest.mark.parametrize("url", OTHER)
def test_item_9_another_url_is_refused(url: str) -> None:
    assert is_refused(proof_by(htu=url))


@pytest.mark.parametrize(
    "htu,url",
    [
        ("https://subgrant.example", "https://subgrant.example/"),
        ("https://subgrant.example/a/..", "https://subgrant.example/"),
        ("https://subgrant.example/a/.", "https://subgrant.example/a/"),
        ("https://subgrant.example/%c3%a4", "https://subgrant.example/%C3%A4"),
        ("http://[::1]:8700/x", "http://[::1]:8700/x"),
        ("http://[::1]:80/x", "http://[::1]/x"),
    ],
)
def test_item_9_urls_are_normalised_as_rfc_3986_says(htu: str, url: str) -> None:
    assert read(proof_by(htu=htu), url=url).key_thumbprint == KEY.thumbprint


def test_item_9_what_is_no_url_matches_nothing_that_is_none_either() -> None:
    assert is_refused(proof_by(htu="nonsense"), url="nonsense")


@pytest.mark.parametrize("seconds", [-300, -299, 0, 299, 300])
def test_item_11_a_proof_made_up_to_five_minutes_from_now_is_taken(seconds: int) -> None:
    assert read(proof_by(iat=IAT + seconds, jti="j")).jti == "j"


@pytest.mark.parametrize("iat", [IAT - 301, IAT + 301, 0, -1, 10**18, IAT + 0.5, str(IAT)])
def test_item_11_a_proof_made_at_another_time_is_refused(iat: object) -> None:
    assert is_refused(proof_by(iat=iat))


def test_item_12_a_proof_for_another_token_is_refused() -> None:
    assert is_refused(proof_by(token="another.token.altogether"))
    assert is_refused(proof_by(token=None))


# --- beyond the list --------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [{"crit": ["exp"]}, {"crit": []}, {"b64": False}, {"b64": True}])
def test_an_extension_that_is_not_known_is_refused(header: dict[str, object]) -> None:
    assert is_refused(proof_by(header=header))


def test_no_other_way_to_name_a_key_is_followed() -> None:
    elsewhere = {"jku": "https://evil.example/jwks", "x5u": "https://evil.example/cert", "kid": "mine"}
    assert is_refused(proof_by(header={**elsewhere, "jwk": DROP}))


@pytest.mark.parametrize("jwk", [None, "", [], {}, {"kty": "OKP"}, {"kty": "OKP", "crv": "Ed25519", "x": 5}, "x"])
def test_what_is_no_key_is_refused(jwk: object) -> None:
    assert is_refused(proof_by(header={"jwk": jwk}))


def test_a_key_of_another_type_or_curve_is_refused() -> None:
    small, large = Prover.elliptic("ES256"), Prover.elliptic("ES384")
    assert is_refused(proof_by(replace(small, alg="ES384")))
    assert is_refused(proof_by(replace(large, alg="ES256")))
    assert is_refused(proof_by(replace(KEY, alg="RS256")))
    assert is_refused(proof_by(replace(KEY, jwk={**KEY.jwk, "crv": "X25519"})))


def test_what_is_not_on_the_curve_or_of_another_size_is_refused() -> None:
    prover = Prover.elliptic()
    assert is_refused(proof_by(replace(prover, jwk={**prover.jwk, "x": prover.jwk["y"], "y": prover.jwk["x"]})))
    assert is_refused(proof_by(replace(prover, jwk={**prover.jwk, "x": b64(b"\0" * 31)})))
    assert is_refused(proof_by(replace(KEY, jwk={**KEY.jwk, "x": b64(b"\0" * 33)})))


def test_a_second_spelling_of_a_key_is_refused() -> None:
    prover = Prover.rsa()
    padded = b64(b"\0" + int.to_bytes(65537, 3))
    assert is_refused(proof_by(replace(prover, jwk={**prover.jwk, "e": padded})))
    assert is_refused(proof_by(replace(KEY, jwk={**KEY.jwk, "x": KEY.jwk["x"] + "="})))


def test_an_rsa_key_that_is_too_weak_too_large_or_too_slow_is_refused() -> None:
    weak, good = Prover.rsa(bits=1024), Prover.rsa()
    assert is_refused(proof_by(weak))
    assert is_refused(proof_by(replace(good, jwk={**good.jwk, "n": b64(b"\xff" * 513)})))
    assert is_refused(proof_by(replace(good, jwk={**good.jwk, "e": b64(b"\xff" * 5)})))
    assert is_refused(proof_by(replace(good, jwk={**good.jwk, "e": b64(b"\x02")})))


def test_a_huge_proof_is_refused_before_it_is_read() -> None:
    assert is_refused("a" * (MAX_PROOF_CHARS + 1))
    assert is_refused(proof_by(filler="x" * MAX_PROOF_CHARS))
    assert is_refused(proof_by(deep=json.loads("[" * 100 + "]" * 100)))


# --- nonces -----------------------------------------------------------------------------------------------


def digest(content: bytes) -> str:
    return b64(b"secret" + content)


NONCES = Nonces(issuer="https://subgrant.example", digest=digest)
DEMANDING = DpopProofs(NONCES)


def reason_with(nonce: object, now: datetime = NOW) -> Reason | None:
    proof = KEY.proof("POST", URL, token=TOKEN, iat=int(now.timestamp()), nonce=nonce)
    try:
        DEMANDING.verify(proof, method="POST", url=URL, access_token=TOKEN, now=now)
    except TokenRefused as refused:
        return refused.reason
    return None


def test_a_proof_with_the_nonce_of_any_worker_is_taken() -> None:
    another = DpopProofs(Nonces(issuer="https://subgrant.example", digest=digest))
    assert reason_with(another.nonce(NOW)) is None


@pytest.mark.parametrize("nonce", [DROP, None, "", "é", 1, [NONCES.at(NOW)], "0" * 64, NONCES.at(NOW)[:-1]])
def test_a_proof_without_a_good_nonce_is_asked_for_one(nonce: object) -> None:
    assert reason_with(nonce) is Reason.PROOF_NONCE_NEEDED


def test_a_nonce_outlives_the_step_that_it_was_given_in_and_no_more() -> None:
    given = NONCES.at(NOW)
    assert reason_with(given, NOW + NONCE_PERIOD) is None
    assert reason_with(given, NOW + 2 * NONCE_PERIOD) is Reason.PROOF_NONCE_NEEDED
    assert reason_with(given, NOW + timedelta(days=1)) is Reason.PROOF_NONCE_NEEDED


def test_a_worker_takes_the_nonce_of_one_whose_clock_is_a_little_ahead() -> None:
    assert reason_with(NONCES.at(NOW + NONCE_PERIOD)) is None
    assert reason_with(NONCES.at(NOW + 2 * NONCE_PERIOD)) is Reason.PROOF_NONCE_NEEDED


def test_the_nonce_of_another_issuer_is_none() -> None:
    other = Nonces(issuer="https://other.example", digest=digest)
    assert reason_with(other.at(NOW)) is Reason.PROOF_NONCE_NEEDED


def test_what_else_is_wrong_with_a_proof_is_said_before_it_is_asked_for_a_nonce() -> None:
    proof = KEY.proof("GET", URL, token=TOKEN, iat=IAT)
    with pytest.raises(TokenRefused) as caught:
        DEMANDING.verify(proof, method="POST", url=URL, access_token=TOKEN, now=NOW)
    assert caught.value.reason is Reason.PROOF_INVALID


def test_where_no_nonces_are_asked_for_none_is_given() -> None:
    assert PROOFS.nonce(NOW) is None
    assert DEMANDING.nonce(NOW) == NONCES.at(NOW)
