"""The signer against everything that a JWT library has ever been talked into accepting."""

import base64
import hmac
import json
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from app.adapters import jose
from app.adapters.jose import JoseSigner, KeyRing, NoSigningKey, OpenKey, make_key
from app.core.grant import Grant, parse_grant, render_grant
from app.core.reasons import Reason
from app.core.strict_json import JsonObject, JsonValue, canonical
from app.ports import SigningKey, StoreUnavailable, TokenRefused

Json: TypeAlias = dict[str, Any]
Attack: TypeAlias = Callable[[], str]

VECTOR: Final[Json] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "signed_ed25519.json").read_text(encoding="utf-8")
)
ISSUER: Final[str] = VECTOR["issuer"]
MADE: Final = datetime(2026, 1, 1, tzinfo=UTC)
NOW: Final = datetime(2026, 1, 31, 12, 1, tzinfo=UTC)
GRANT_TYP: Final = "delegation-grant+jwt"
TOKEN_TYP: Final = "at+jwt"


def key_of(seed: bytes, created_at: datetime = MADE) -> OpenKey:
    return OpenKey.of("EdDSA", Ed25519PrivateKey.from_private_bytes(seed), created_at)


KEY: Final = key_of(bytes.fromhex(VECTOR["seed"]))
OTHER_KEY: Final = key_of(b"o" * 32, MADE - timedelta(days=1))
STRANGER: Final = key_of(b"s" * 32)
ES256_KEY: Final = OpenKey.of("ES256", jose._GENERATORS["ES256"](), MADE - timedelta(days=2))  # noqa: SLF001

GRANT: Final[Grant] = parse_grant(VECTOR["grant"]["document"])
ACT: Final[JsonObject] = VECTOR["grant"]["act"]
SIGNED_GRANT: Final[str] = VECTOR["grant"]["compact"]
CLAIMS: Final[JsonObject] = VECTOR["accessToken"]["claims"]
SIGNED_TOKEN: Final[str] = VECTOR["accessToken"]["compact"]


@pytest.fixture
def signer() -> JoseSigner:
    return signer_with(KEY, OTHER_KEY, ES256_KEY)


def signer_with(*keys: OpenKey, alg: str = "EdDSA") -> JoseSigner:
    return JoseSigner(issuer=ISSUER, keys=KeyRing.holding(*keys), clock=lambda: NOW, alg=alg)


# --- forging ----------------------------------------------------------------------------------------------


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def unb64(segment: str) -> bytes:
    return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))


def json_of(compact: str, part: int) -> Json:
    value: Json = json.loads(unb64(compact.split(".")[part]))
    return value


def raw(value: bytes | Mapping[str, Any]) -> bytes:
    return value if isinstance(value, bytes) else canonical(dict(value))


def forge(header: bytes | Mapping[str, Any], payload: bytes | Mapping[str, Any], key: OpenKey = KEY) -> str:
    """What somebody signs who has a key and no scruples, without any JOSE library."""
    signed = f"{b64(raw(header))}.{b64(raw(payload))}"
    return f"{signed}.{b64(key.sign(signed.encode()))}"


def header(typ: str, key: OpenKey = KEY, **members: JsonValue) -> Json:
    return {"alg": key.alg, "kid": key.kid, "typ": typ} | members


GRANT_CLAIMS: Final = json_of(SIGNED_GRANT, 1)
TOKEN_CLAIMS: Final = json_of(SIGNED_TOKEN, 1)


def grant_token(**claims: JsonValue) -> str:
    return forge(header(GRANT_TYP), GRANT_CLAIMS | claims)


def access_token(**claims: JsonValue) -> str:
    return forge(header(TOKEN_TYP), TOKEN_CLAIMS | claims)


def without(claims: Json, name: str) -> Json:
    return {other: value for other, value in claims.items() if other != name}


def with_document(**members: JsonValue) -> str:
    detail = GRANT_CLAIMS["authorization_details"][0] | members
    return grant_token(authorization_details=[detail])


def refusal(verify: Callable[[], object], compact: str) -> TokenRefused:
    """The refusal, which gives away no part of the token, whoever prints what of it."""
    with pytest.raises(TokenRefused) as caught:
        verify()
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert not any(part in told for part in parts(compact))
    return caught.value


def parts(compact: str) -> list[str]:
    windows = range(min(len(compact), 4096) - 11)
    return ["alice@acme.example", GRANT.grant_id, str(CLAIMS["jti"]), *(compact[i : i + 12] for i in windows)]


def refuses_grant(signer: JoseSigner, compact: str) -> str:
    refused = refusal(lambda: signer.verify_grant(compact), compact)
    assert refused.reason is Reason.TOKEN_INVALID
    return refused.detail


def refuses_token(signer: JoseSigner, compact: str) -> str:
    refused = refusal(lambda: signer.verify_access_token(compact, NOW), compact)
    assert refused.reason is Reason.TOKEN_INVALID
    return refused.detail


# --- what is signed ---------------------------------------------------------------------------------------


def test_signed_bytes_are_forever(signer: JoseSigner) -> None:
    assert signer.sign_grant(GRANT, ACT) == SIGNED_GRANT
    assert signer.sign_access_token(CLAIMS) == SIGNED_TOKEN
    assert KEY.public_jwk == VECTOR["publicJwk"]


def test_a_grant_is_read_back_as_it_was_signed(signer: JoseSigner) -> None:
    verified = signer.verify_grant(SIGNED_GRANT)
    assert verified.grant == GRANT
    assert verified.signed == SIGNED_GRANT


def test_a_grant_is_one_document_in_its_token_and_in_the_api() -> None:
    (detail,) = GRANT_CLAIMS["authorization_details"]
    assert detail == {"type": "delegation", **render_grant(GRANT)}


def test_a_grants_header_names_algorithm_key_and_type_and_nothing_else() -> None:
    assert json_of(SIGNED_GRANT, 0) == {"alg": "EdDSA", "kid": KEY.kid, "typ": GRANT_TYP}


def test_a_grants_claims_repeat_its_document() -> None:
    assert without(GRANT_CLAIMS, "authorization_details") == {
        "iss": ISSUER,
        "sub": "alice@acme.example",
        "aud": "https://tools.example/support",
        "iat": 1769860800,
        "nbf": 1769860800,
        "exp": 1769861400,
        "jti": GRANT.grant_id,
        "client_id": "research-agent",
        "act": ACT,
        "may_act": {"sub": "research-agent"},
        "tenant_id": "acme",
    }


def test_a_grant_for_several_audiences_lists_them(signer: JoseSigner) -> None:
    document = VECTOR["grant"]["document"] | {
        "audience": ["https://a.example", "https://b.example"],
        "toolServers": ["a", "b"],
        "allowedTools": [],
        "resourceConstraints": {},
    }
    compact = signer.sign_grant(parse_grant(document), ACT)
    assert json_of(compact, 1)["aud"] == ["https://a.example", "https://b.example"]
    assert render_grant(signer.verify_grant(compact).grant) == document


def test_whether_a_grant_has_expired_is_not_the_signers_to_say(signer: JoseSigner) -> None:
    long_ago = replace(GRANT, expires_at=datetime(2001, 1, 1, tzinfo=UTC))
    assert signer.verify_grant(signer.sign_grant(long_ago, ACT)).grant == long_ago


def test_an_access_token_is_read_back_as_it_was_signed(signer: JoseSigner) -> None:
    token = signer.verify_access_token(SIGNED_TOKEN, NOW)
    assert token.claims == CLAIMS | {"iss": ISSUER}
    assert (token.jti, token.client_id, token.tenant_id) == (CLAIMS["jti"], "research-agent", "acme")
    assert (token.subject, token.audience) == ("alice@acme.example", "https://tools.example/support")
    assert token.scopes == {"grants:read", "tools:call"}
    assert token.grant_id == GRANT.grant_id
    assert token.expires_at - token.issued_at == timedelta(minutes=5)


def test_an_access_token_for_the_api_names_no_grant(signer: JoseSigner) -> None:
    compact = signer.sign_access_token(without(without(CLAIMS, "grant_id"), "scope"))
    token = signer.verify_access_token(compact, NOW)
    assert token.grant_id is None
    assert token.scopes == frozenset()


def test_nobody_signs_for_another_issuer(signer: JoseSigner) -> None:
    compact = signer.sign_access_token(CLAIMS | {"iss": "https://evil.example"})
    assert json_of(compact, 1)["iss"] == ISSUER


def test_the_gateway_presents_itself_and_never_the_agent(signer: JoseSigner) -> None:
    claims: JsonObject = {"sub": "alice", "client_id": "agent", "aud": "x", "exp": 1, "tenant_id": "acme"}
    compact = signer.sign_upstream("https://tools.internal", claims, NOW, timedelta(seconds=30))
    body = json_of(compact, 1)
    assert json_of(compact, 0)["typ"] == "subgrant-gateway+jwt"
    assert (body["sub"], body["client_id"], body["aud"]) == ("gateway", "gateway", "https://tools.internal")
    assert (body["exp"] - body["iat"], body["iss"], body["tenant_id"]) == (30, ISSUER, "acme")


def test_no_two_upstream_credentials_share_an_identifier(signer: JoseSigner) -> None:
    signed = [signer.sign_upstream("https://t", {}, NOW, timedelta(seconds=30)) for _ in range(2)]
    assert len({json_of(compact, 1)["jti"] for compact in signed}) == 2


def test_what_no_verifier_would_take_is_not_signed(signer: JoseSigner) -> None:
    with pytest.raises(ValueError, match="jti"):
        signer.sign_access_token(without(CLAIMS, "jti"))
    with pytest.raises(ValueError, match="at most"):
        signer.sign_access_token(CLAIMS | {"padding": "x" * 16384})
    with pytest.raises(ValueError, match="whole seconds"):
        signer.sign_grant(replace(GRANT, expires_at=GRANT.expires_at + timedelta(microseconds=1)), ACT)
    with pytest.raises(ValueError, match="actor"):
        signer.sign_grant(GRANT, {"sub": "somebody-else"})


# --- keys -------------------------------------------------------------------------------------------------


def seal(plaintext: bytes, purpose: str) -> bytes:
    return purpose.encode() + b"\0" + plaintext


def unseal(sealed: bytes, purpose: str) -> bytes:
    sealed_for, _, plaintext = sealed.partition(b"\0")
    if sealed_for != purpose.encode():
        raise ValueError("sealed for another purpose")
    return plaintext


@pytest.mark.parametrize("alg", ["EdDSA", "ES256"])
def test_a_made_key_is_opened_again_and_signs(alg: str) -> None:
    ring = KeyRing.load([make_key(alg, MADE, seal)], unseal)
    signer = JoseSigner(issuer=ISSUER, keys=ring, clock=lambda: NOW, alg=alg)
    compact = signer.sign_grant(GRANT, ACT)
    assert json_of(compact, 0)["alg"] == alg
    assert signer.verify_grant(compact).grant == GRANT


def test_a_key_id_is_the_thumbprint_of_rfc_8037() -> None:
    key = key_of(unb64("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"))
    assert key.kid == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


@pytest.mark.parametrize("alg", ["HS256", "RS256", "none", ""])
def test_no_key_is_made_for_another_algorithm(alg: str) -> None:
    with pytest.raises(ValueError, match="EdDSA, ES256"):
        make_key(alg, MADE, seal)


def test_a_key_has_one_algorithm() -> None:
    with pytest.raises(ValueError, match="no ES256 key"):
        OpenKey.of("ES256", Ed25519PrivateKey.generate(), MADE)


def tampered_records() -> dict[str, SigningKey]:
    honest, attackers = make_key("EdDSA", MADE, seal), make_key("EdDSA", MADE, seal)
    rsa = generate_rsa(65537, 2048).private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return {
        "public half of another": replace(honest, public_jwk=attackers.public_jwk),
        "private half of another": replace(honest, sealed_private=attackers.sealed_private),
        "both halves of another": replace(attackers, kid=honest.kid),
        "resealed for this kid": replace(honest, sealed_private=seal(b"x", f"signing-key:{honest.kid}")),
        "algorithm": replace(honest, alg="ES256"),
        "unknown algorithm": replace(honest, alg="none"),
        "RSA": replace(honest, sealed_private=seal(rsa, f"signing-key:{honest.kid}")),
    }


@pytest.mark.parametrize("how", tampered_records())
def test_a_stored_key_that_was_tampered_with_does_not_load(how: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        KeyRing.load([tampered_records()[how]], unseal)


def test_the_newest_key_of_the_algorithm_signs_and_all_verify(signer: JoseSigner) -> None:
    assert json_of(signer.sign_grant(GRANT, ACT), 0)["kid"] == KEY.kid
    for key in (KEY, OTHER_KEY, ES256_KEY):
        compact = signer_with(key, alg=key.alg).sign_grant(GRANT, ACT)
        assert signer.verify_grant(compact).grant == GRANT


def test_every_worker_finds_the_same_newest_key() -> None:
    twins = key_of(b"1" * 32), key_of(b"2" * 32)
    rings = KeyRing.holding(*twins), KeyRing.holding(*reversed(twins))
    assert rings[0].signing("EdDSA", NOW) is rings[1].signing("EdDSA", NOW)


def test_a_key_is_published_and_verifies_before_it_signs() -> None:
    record = make_key("EdDSA", MADE, seal, signs_from=NOW + timedelta(seconds=60))
    (waiting,) = KeyRing.load([record], unseal).keys.values()
    moment = [NOW]
    signer = JoseSigner(issuer=ISSUER, keys=KeyRing.holding(KEY, waiting), clock=lambda: moment[0])
    assert json_of(signer.sign_grant(GRANT, ACT), 0)["kid"] == KEY.kid
    published: Any = signer.jwks()["keys"]
    assert {key["kid"] for key in published} == {KEY.kid, waiting.kid}
    signer.verify_grant(forge(header(GRANT_TYP, waiting), GRANT_CLAIMS, waiting))
    moment[0] = record.signs_from
    assert json_of(signer.sign_grant(GRANT, ACT), 0)["kid"] == waiting.kid
    signer.verify_grant(SIGNED_GRANT)


def test_a_key_of_another_algorithm_signs_until_there_is_one_of_the_configured() -> None:
    changed = signer_with(KEY, alg="ES256")
    assert json_of(changed.sign_grant(GRANT, ACT), 0)["alg"] == "EdDSA"
    changed.use(KeyRing.holding(KEY, ES256_KEY))
    assert json_of(changed.sign_grant(GRANT, ACT), 0)["alg"] == "ES256"


def test_keys_that_were_not_read_again_in_time_are_used_for_nothing() -> None:
    moment = [NOW]
    until = NOW + timedelta(seconds=5)
    keys = KeyRing.holding(KEY)
    signer = JoseSigner(issuer=ISSUER, keys=replace(keys, good_until=until), clock=lambda: moment[0])
    uses: list[Callable[[], object]] = [
        lambda: signer.verify_grant(SIGNED_GRANT),
        lambda: signer.verify_access_token(SIGNED_TOKEN, NOW),
        lambda: signer.sign_grant(GRANT, ACT),
        lambda: signer.sign_access_token(CLAIMS),
        lambda: signer.sign_upstream("https://t", {}, NOW, timedelta(minutes=1)),
        signer.jwks,
    ]
    moment[0] = until - timedelta(microseconds=1)
    for use in uses:
        use()
    moment[0] = until  # from here on nobody knows what was retired meanwhile, not even of what was verified before
    for use in uses:
        with pytest.raises(StoreUnavailable):
            use()
    signer.use(replace(keys, good_until=until + timedelta(seconds=5)))
    for use in uses:
        use()


def test_a_key_knows_what_its_grants_start_with() -> None:
    record = make_key("ES256", MADE, seal)
    signer = signer_with(*KeyRing.load([record], unseal).keys.values(), alg="ES256")
    start = signer.grants_start(record)
    assert signer.sign_grant(GRANT, ACT).startswith(start)
    assert not SIGNED_GRANT.startswith(start)
    assert not signer.sign_access_token(CLAIMS).startswith(start)


def test_a_retired_key_is_refused_at_once_though_its_tokens_were_verified_before(signer: JoseSigner) -> None:
    signer.verify_grant(SIGNED_GRANT)
    signer.verify_access_token(SIGNED_TOKEN, NOW)
    signer.use(KeyRing.holding(OTHER_KEY))
    assert refuses_grant(signer, SIGNED_GRANT) == "the signing key is not known"
    assert refuses_token(signer, SIGNED_TOKEN) == "the signing key is not known"


def test_a_key_retired_in_the_store_is_not_loaded() -> None:
    record = make_key("EdDSA", MADE, seal)
    ring = KeyRing.load([replace(record, retired_at=NOW)], unseal)
    assert JoseSigner(issuer=ISSUER, keys=ring, clock=lambda: NOW).jwks() == {"keys": []}


def test_without_a_live_key_nothing_is_signed() -> None:
    late = OpenKey.of("EdDSA", Ed25519PrivateKey.generate(), MADE, NOW + timedelta(microseconds=1))
    for signer in (signer_with(), signer_with(late)):
        with pytest.raises(NoSigningKey):
            signer.sign_grant(GRANT, ACT)


def test_the_key_set_is_public_and_says_what_each_key_is_for(signer: JoseSigner) -> None:
    keys: Any = signer.jwks()["keys"]
    assert [key["kid"] for key in keys] == [ES256_KEY.kid, OTHER_KEY.kid, KEY.kid]
    assert [key["alg"] for key in keys] == ["ES256", "EdDSA", "EdDSA"]
    assert all(key["use"] == "sig" and "d" not in key for key in keys)


def test_another_library_verifies_with_the_published_keys(signer: JoseSigner) -> None:
    published: Any = signer.jwks()
    keys = {key.key_id: key for key in jwt.PyJWKSet.from_dict(published).keys}
    for key in (KEY, ES256_KEY):
        compact = signer_with(key, alg=key.alg).sign_access_token(CLAIMS | {"exp": 4102444800})
        decoded = jwt.decode(compact, keys[key.kid], audience=str(CLAIMS["aud"]), issuer=ISSUER)
        assert decoded["jti"] == CLAIMS["jti"]


def test_no_repr_shows_a_private_key() -> None:
    assert "private" not in repr(KEY)


# --- attacks on the shape ---------------------------------------------------------------------------------


def hmac_with_the_public_key() -> str:
    public = KEY.public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{b64(raw(header(GRANT_TYP, alg='HS256')))}.{SIGNED_GRANT.split('.')[1]}"
    return f"{signed}.{b64(hmac.digest(public, signed.encode(), 'sha256'))}"


def replaced(part: int, change: Callable[[str], str]) -> str:
    segments = SIGNED_GRANT.split(".")
    segments[part] = change(segments[part])
    return ".".join(segments)


def trailing_bits(segment: str) -> str:
    """The same bytes, spelt with other unused bits."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return segment[:-1] + alphabet[alphabet.index(segment[-1]) + 1]


def twice(part: bytes, first: bytes) -> bytes:
    """A JSON object with one more member at its front."""
    return b"{" + first + b"," + part[1:]


PAYLOAD: Final = unb64(SIGNED_GRANT.split(".")[1])

ATTACKS: Final[Mapping[str, Mapping[str, Attack]]] = {
    "the algorithm is not the key's": {
        "alg none": lambda: forge(header(GRANT_TYP, alg="none"), GRANT_CLAIMS),
        "alg left out": lambda: forge(without(header(GRANT_TYP), "alg"), GRANT_CLAIMS),
        "alg in lower case": lambda: forge(header(GRANT_TYP, alg="eddsa"), GRANT_CLAIMS),
        "HS256 with the public key": hmac_with_the_public_key,
        "another algorithm of ours": lambda: forge(header(GRANT_TYP, alg="ES256"), GRANT_CLAIMS),
        "a list of algorithms": lambda: forge(header(GRANT_TYP, alg=["EdDSA"]), GRANT_CLAIMS),
    },
    "a part of the token is not base64url": {
        "alg none, unsigned": lambda: forge(header(GRANT_TYP, alg="none"), GRANT_CLAIMS).rpartition(".")[0] + ".",
        "padding of the header": lambda: replaced(0, lambda part: part + "=" * (-len(part) % 4 or 4)),
        "padding of the payload": lambda: replaced(1, lambda part: part + "="),
        "padding of the signature": lambda: SIGNED_GRANT + "==",
        "trailing bits": lambda: replaced(2, trailing_bits),
        "characters that decoders skip": lambda: replaced(1, lambda part: part[:20] + "!" + part[20:]),
        "line break": lambda: SIGNED_GRANT + "\n",
        "space before": lambda: " " + SIGNED_GRANT,
        "the other alphabet": lambda: replaced(2, lambda part: part.replace("-", "+")),
        "dots only": lambda: "..",
        "no header": lambda: replaced(0, lambda _: ""),
        "no payload": lambda: replaced(1, lambda _: ""),
        "no signature": lambda: replaced(2, lambda _: ""),
    },
    "the signing key is not known": {
        "unknown kid": lambda: forge(header(GRANT_TYP, STRANGER), GRANT_CLAIMS, STRANGER),
        "kid left out": lambda: forge(without(header(GRANT_TYP), "kid"), GRANT_CLAIMS),
        "kid that is no string": lambda: forge(header(GRANT_TYP, kid=[KEY.kid]), GRANT_CLAIMS),
        "kid that is a path": lambda: forge(header(GRANT_TYP, kid="../../dev/null"), GRANT_CLAIMS),
        "key set brought along (jku)": lambda: forge(
            header(GRANT_TYP, STRANGER, jku="https://evil.example/jwks"), GRANT_CLAIMS, STRANGER
        ),
        "certificate brought along (x5c, x5u)": lambda: forge(
            header(GRANT_TYP, STRANGER, x5c=["MIIB"], x5u="https://evil.example/x5u"), GRANT_CLAIMS, STRANGER
        ),
    },
    "the signature is not ours": {
        "kid of another key": lambda: forge(header(GRANT_TYP, OTHER_KEY), GRANT_CLAIMS),
        "key brought along (jwk)": lambda: forge(header(GRANT_TYP, jwk=STRANGER.public_jwk), GRANT_CLAIMS, STRANGER),
        "short signature": lambda: replaced(2, lambda part: part[:40]),
        "signature of another token": lambda: replaced(2, lambda _: SIGNED_TOKEN.rpartition(".")[2]),
    },
    "a critical extension is not known": {
        "crit": lambda: forge(header(GRANT_TYP, crit=["exp"], exp=1), GRANT_CLAIMS),
        "crit of b64": lambda: forge(header(GRANT_TYP, crit=["b64"], b64=True), GRANT_CLAIMS),
        "empty crit": lambda: forge(header(GRANT_TYP, crit=[]), GRANT_CLAIMS),
        "crit that is null": lambda: forge(header(GRANT_TYP, crit=None), GRANT_CLAIMS),
        "b64 without crit": lambda: forge(header(GRANT_TYP, b64=False), GRANT_CLAIMS),
    },
    "the token is of another kind": {
        "typ left out": lambda: forge(without(header(GRANT_TYP), "typ"), GRANT_CLAIMS),
        "typ JWT": lambda: forge(header("JWT"), GRANT_CLAIMS),
        "typ in other case": lambda: forge(header("Delegation-Grant+JWT"), GRANT_CLAIMS),
        "typ with application/": lambda: forge(header("application/delegation-grant+jwt"), GRANT_CLAIMS),
    },
    "a part of the token is not strict JSON": {
        "header member twice": lambda: forge(twice(raw(header(GRANT_TYP)), b'"alg":"none"'), GRANT_CLAIMS),
        "claim twice": lambda: forge(header(GRANT_TYP), twice(PAYLOAD, b'"sub":"mallory"')),
        "claim twice, spelt differently": lambda: forge(header(GRANT_TYP), twice(PAYLOAD, rb'"\u0073ub":"mallory"')),
        "claim twice deep inside": lambda: forge(
            header(GRANT_TYP), PAYLOAD.replace(b'"maxDepth":3', b'"maxDepth":3,"maxDepth":9')
        ),
        "header that is no JSON": lambda: forge(b"alg:EdDSA", GRANT_CLAIMS),
        "header that is huge": lambda: forge(header(GRANT_TYP, x5c=["x" * 5000]), GRANT_CLAIMS),
        "payload with a byte order mark": lambda: forge(header(GRANT_TYP), b"\xef\xbb\xbf" + PAYLOAD),
        "payload nested too deep": lambda: grant_token(x=json.loads("[" * 100 + "]" * 100)),
        "NaN": lambda: forge(header(GRANT_TYP), PAYLOAD.replace(b"1769861400", b"NaN")),
        "Infinity": lambda: forge(header(GRANT_TYP), PAYLOAD.replace(b"1769861400", b"1e999")),
    },
    "a part of the token is not a JSON object": {
        "header that is a list": lambda: forge(b"[]", GRANT_CLAIMS),
        "payload that is a string": lambda: forge(header(GRANT_TYP), b'"grant"'),
        "payload that is a list": lambda: forge(header(GRANT_TYP), b"[" + PAYLOAD + b"]"),
    },
    "the claims are not in canonical form": {
        "payload with white space": lambda: forge(header(GRANT_TYP), PAYLOAD.replace(b":", b": ")),
        "payload in another order": lambda: forge(header(GRANT_TYP), json.dumps(GRANT_CLAIMS).encode()),
    },
    "the token is not in compact form": {
        "not ASCII": lambda: replaced(1, lambda part: part[:-1] + "é"),
        "lone surrogate": lambda: replaced(1, lambda part: part[:-1] + "\ud800"),
        "full-width letters": lambda: replaced(0, lambda part: "\uff45" + part[1:]),
        "one segment": lambda: "x",
        "two segments": lambda: SIGNED_GRANT.rpartition(".")[0],
        "four segments": lambda: SIGNED_GRANT + ".AAAA",
        "five segments, as in JWE": lambda: SIGNED_GRANT + ".AAAA.AAAA",
        "empty": lambda: "",
        "JSON serialization": lambda: json.dumps({"payload": "e30", "signatures": []}),
    },
    "the token is too long": {
        "a megabyte": lambda: forge(header(GRANT_TYP), GRANT_CLAIMS | {"x": "x" * 2**20}),
        "a megabyte of dots": lambda: "." * 2**20,
    },
}
"""Why each is refused, and what is."""


@pytest.mark.parametrize("why, attack", [(why, attack) for why in ATTACKS for attack in ATTACKS[why]])
def test_a_forged_grant_is_refused(signer: JoseSigner, why: str, attack: str) -> None:
    assert refuses_grant(signer, ATTACKS[why][attack]()) == why


def test_the_forger_of_these_tests_could_forge_a_grant_with_our_key(signer: JoseSigner) -> None:
    assert grant_token() == SIGNED_GRANT
    assert signer.verify_grant(forge(header(GRANT_TYP, jku="https://evil.example"), GRANT_CLAIMS)).grant == GRANT


@pytest.mark.parametrize("compact", [SIGNED_GRANT, SIGNED_TOKEN], ids=["grant", "access token"])
def test_one_flipped_byte_anywhere_breaks_verification(signer: JoseSigner, compact: str) -> None:
    verify = signer.verify_grant if compact is SIGNED_GRANT else lambda text: signer.verify_access_token(text, NOW)
    verify(compact)
    for place, char in enumerate(compact):
        for bit in (1, 2, 32):
            with pytest.raises(TokenRefused):
                verify(compact[:place] + chr(ord(char) ^ bit) + compact[place + 1 :])


@given(start=st.integers(0, len(SIGNED_GRANT)), length=st.integers(0, 40), text=st.text(max_size=40))
def test_no_edited_grant_verifies(start: int, length: int, text: str) -> None:
    edited = SIGNED_GRANT[:start] + text + SIGNED_GRANT[start + length :]
    if edited != SIGNED_GRANT:
        with pytest.raises(TokenRefused):
            signer_with(KEY).verify_grant(edited)


@given(payload=st.binary(max_size=200))
def test_no_payload_makes_the_verifier_fail_otherwise_than_by_refusing(payload: bytes) -> None:
    for typ in (GRANT_TYP, TOKEN_TYP):
        compact = forge(header(typ), payload)
        refuses_grant(signer_with(KEY), compact)
        refuses_token(signer_with(KEY), compact)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(name=st.sampled_from(sorted(GRANT_CLAIMS)), value=JSON)
def test_no_claim_of_a_grant_may_be_another(name: str, value: JsonValue) -> None:
    if value != GRANT_CLAIMS[name]:
        refuses_grant(signer_with(KEY), grant_token(**{name: value}))


@given(name=st.sampled_from(sorted(TOKEN_CLAIMS)), value=JSON)
def test_any_claim_of_an_access_token_is_taken_or_refused(name: str, value: JsonValue) -> None:
    try:
        token = signer_with(KEY).verify_access_token(access_token(**{name: value}), NOW)
    except TokenRefused:
        return
    assert token.claims[name] == value


# --- attacks on the claims --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(without(GRANT_CLAIMS, "authorization_details")))
def test_every_claim_of_a_grant_must_be_there(signer: JoseSigner, name: str) -> None:
    refuses_grant(signer, forge(header(GRANT_TYP), without(GRANT_CLAIMS, name)))


@pytest.mark.parametrize(
    "name, value",
    [
        ("exp", 1769861401),
        ("iat", 1769860799),
        ("nbf", 1769860799),
        ("sub", "mallory"),
        ("jti", "gr_other"),
        ("aud", ["https://tools.example/support"]),
        ("aud", "https://tools.example/other"),
        ("client_id", "mallory"),
        ("tenant_id", "other"),
        ("may_act", {"sub": "mallory"}),
        ("may_act", {"sub": "research-agent", "also": "mallory"}),
        ("act", {"sub": "mallory"}),
        ("act", "research-agent"),
        ("iss", "https://subgrant.example/"),
        ("iss", [ISSUER]),
    ],
)
def test_a_grants_claims_never_differ_from_its_document(signer: JoseSigner, name: str, value: JsonValue) -> None:
    refuses_grant(signer, grant_token(**{name: value}))


def test_a_claim_that_is_not_known_might_narrow_and_is_no_grants(signer: JoseSigner) -> None:
    assert refuses_grant(signer, grant_token(scope="tools:call")) == "the grant has claims that are not known here"


@pytest.mark.parametrize("name", ["act", "may_act"])
@pytest.mark.parametrize(
    "actor",
    ["planner", ["planner"], None, {}, {"sub": 1}, {"sub": ""}, {"sub": "a", "exp": 1}, {"sub": "a", "act": ["b"]}],
)
def test_an_actor_is_an_object_that_identifies_and_says_nothing_more(
    signer: JoseSigner, name: str, actor: JsonValue
) -> None:
    refuses_token(signer, access_token(**{name: actor}))


@pytest.mark.parametrize(
    "cnf", ["x", ["x"], None, {}, {"jkt": 1}, {"jkt": ""}, {"x5t#S256": "x"}, {"jkt": "x", "jwk": {}}]
)
def test_a_token_is_bound_to_a_key_in_the_one_known_way(signer: JoseSigner, cnf: JsonValue) -> None:
    refuses_token(signer, access_token(cnf=cnf))
    compact = access_token(cnf={"jkt": "thumbprint"})
    assert signer.verify_access_token(compact, NOW).key_thumbprint == "thumbprint"


@pytest.mark.parametrize(
    "members",
    [
        {"expiresAt": "2036-01-31T12:10:00Z"},
        {"expiresAt": "2026-01-31T12:10:00.5Z"},
        {"expiresAt": "2026-01-31T12:10:00"},
        {"subject": "mallory"},
        {"grantId": "gr_other"},
        {"tenantId": "other"},
        {"holder": "mallory"},
        {"depth": "1"},
        {"maxToolCalls": True},
        {"maxToolCalls": 1.5},
        {"allowedTools": None},
        {"allowedTools": ["unruled"]},
        {"resourceConstraints": {"case_search": {"x": {"magic": 1}}, "refund": {}}},
        {"type": "openid"},
        {"someLaterRestriction": ["only this"]},
    ],
)
def test_a_document_that_differs_or_is_no_grant_is_refused(signer: JoseSigner, members: JsonObject) -> None:
    refuses_grant(signer, with_document(**members))


@pytest.mark.parametrize("details", [None, [], {}, "x", [None], [{}], [{"type": "delegation"}], [1, 2]])
def test_a_grant_token_holds_exactly_one_grant(signer: JoseSigner, details: JsonValue) -> None:
    refuses_grant(signer, grant_token(authorization_details=details))
    (detail,) = GRANT_CLAIMS["authorization_details"]
    refuses_grant(signer, grant_token(authorization_details=[detail, detail]))


BAD_DATES: Final[list[JsonValue]] = [
    "1769861100", True, False, None, 1769861100.5, -1, 253402300800, 2**53 - 1, [1769861100], {}
]  # fmt: skip


@pytest.mark.parametrize("date", BAD_DATES, ids=repr)
@pytest.mark.parametrize("name", ["iat", "exp", "nbf"])
def test_a_date_is_an_integer_in_range(signer: JoseSigner, name: str, date: JsonValue) -> None:
    refuses_token(signer, access_token(**{name: date}))
    refuses_grant(signer, grant_token(**{name: date}))


@pytest.mark.parametrize("spelling", [b"1769861100.0", b"1.7698611e9", b"1769861100e0", b"01769861100"])
def test_a_date_has_one_spelling(signer: JoseSigner, spelling: bytes) -> None:
    payload = canonical(TOKEN_CLAIMS)
    signer.verify_access_token(forge(header(TOKEN_TYP), payload), NOW)
    refuses_token(signer, forge(header(TOKEN_TYP), payload.replace(b"1769861100", spelling)))


@pytest.mark.parametrize("name", ["iss", "exp", "aud", "sub", "client_id", "iat", "jti", "tenant_id"])
def test_rfc_9068_claims_are_required(signer: JoseSigner, name: str) -> None:
    refuses_token(signer, forge(header(TOKEN_TYP), without(TOKEN_CLAIMS, name)))


@pytest.mark.parametrize(
    "name, value",
    [
        ("aud", [TOKEN_CLAIMS["aud"]]),
        ("aud", []),
        ("aud", ""),
        ("sub", None),
        ("client_id", {"sub": "x"}),
        ("jti", 7),
        ("tenant_id", ""),
        ("scope", ["tools:call"]),
        ("scope", None),
        ("grant_id", None),
        ("grant_id", ""),
        ("iss", "https://evil.example"),
        ("iss", "HTTPS://SUBGRANT.EXAMPLE"),
    ],
)
def test_an_access_tokens_claims_have_their_types(signer: JoseSigner, name: str, value: JsonValue) -> None:
    refuses_token(signer, access_token(**{name: value}))


def test_an_access_token_expires_to_the_second_also_when_it_was_verified_before(signer: JoseSigner) -> None:
    expires = datetime.fromtimestamp(TOKEN_CLAIMS["exp"], UTC)
    signer.verify_access_token(SIGNED_TOKEN, expires - timedelta(microseconds=1))
    refused = refusal(lambda: signer.verify_access_token(SIGNED_TOKEN, expires), SIGNED_TOKEN)
    assert refused.reason is Reason.TOKEN_EXPIRED


def test_an_access_token_is_not_valid_before_its_time(signer: JoseSigner) -> None:
    compact = access_token(nbf=int(NOW.timestamp()))
    signer.verify_access_token(compact, NOW)
    early = NOW - timedelta(microseconds=1)
    refused = refusal(lambda: signer.verify_access_token(compact, early), compact)
    assert refused.reason is Reason.TOKEN_INVALID


def test_each_kind_is_refused_wherever_another_is_expected(signer: JoseSigner) -> None:
    upstream = signer.sign_upstream("https://t", TOKEN_CLAIMS, NOW, timedelta(minutes=5))
    for compact in (SIGNED_TOKEN, upstream):
        assert refuses_grant(signer, compact) == "the token is of another kind"
    for compact in (SIGNED_GRANT, upstream):
        assert refuses_token(signer, compact) == "the token is of another kind"


def test_a_kind_is_its_type_and_not_its_claims(signer: JoseSigner) -> None:
    both = GRANT_CLAIMS | TOKEN_CLAIMS | {"exp": GRANT_CLAIMS["exp"], "jti": GRANT_CLAIMS["jti"]}
    both = {name: both[name] for name in GRANT_CLAIMS} | {
        "authorization_details": GRANT_CLAIMS["authorization_details"]
    }
    grant, token = forge(header(GRANT_TYP), both), forge(header(TOKEN_TYP), both)
    signer.verify_grant(grant)
    signer.verify_access_token(token, NOW)
    refuses_token(signer, grant)
    refuses_grant(signer, token)


def test_another_issuer_with_the_same_keys_is_another(signer: JoseSigner) -> None:
    other = JoseSigner(issuer="https://other.example", keys=KeyRing.holding(KEY), clock=lambda: NOW)
    refuses_grant(other, SIGNED_GRANT)
    refuses_grant(signer, other.sign_grant(GRANT, ACT))


# --- remembering ------------------------------------------------------------------------------------------


def test_a_token_is_verified_once(signer: JoseSigner) -> None:
    assert signer.verify_grant(SIGNED_GRANT) is signer.verify_grant(SIGNED_GRANT)
    first = signer.verify_access_token(SIGNED_TOKEN, NOW)
    assert signer.verify_access_token(SIGNED_TOKEN, NOW) is first


def test_what_was_refused_is_judged_anew(signer: JoseSigner) -> None:
    compact = forge(header(GRANT_TYP, STRANGER), GRANT_CLAIMS, STRANGER)
    refuses_grant(signer, compact)
    signer.use(KeyRing.holding(STRANGER))
    assert signer.verify_grant(compact).grant == GRANT


@dataclass(frozen=True)
class Bound:
    name: str
    value: int


@pytest.mark.parametrize(
    "bound",
    [Bound("MAX_CACHED_TOKENS", 2), Bound("MAX_CACHED_CHARS", 2 * len(SIGNED_TOKEN) + 100)],
    ids=lambda bound: bound.name,
)
def test_memory_is_bounded_and_the_least_recently_used_goes_first(
    signer: JoseSigner, monkeypatch: pytest.MonkeyPatch, bound: Bound
) -> None:
    monkeypatch.setattr(jose, bound.name, bound.value)
    one, two, three = (access_token(jti=f"tk_{number:026d}") for number in range(3))
    first, second = (signer.verify_access_token(compact, NOW) for compact in (one, two))
    assert signer.verify_access_token(one, NOW) is first
    signer.verify_access_token(three, NOW)
    assert signer.verify_access_token(one, NOW) is first
    assert signer.verify_access_token(two, NOW) is not second
