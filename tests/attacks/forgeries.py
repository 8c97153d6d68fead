"""Every way to make a token that was never issued, by name; and what an independent library says of each.

`joserfc` with the same key set is the oracle. Where it accepts what Subgrant refuses, the row says why it may and
we must not. The names are the documentation; the making is the forger's.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.core.strict_json import canonical
from tests.attacks.forger import P256_ORDER, STRANGER, EcChange, Forger, b64, unb64
from tests.members import DROP

PUBLIC: Final = PublicFormat.SubjectPublicKeyInfo
MEGABYTE: Final = 2**20


class Forgery(NamedTuple):
    """How to make it; why the oracle accepts it, if it does; and the doors that do not ask what it lies about.

    Such a door is named with the kind of token. Each needs our own key, since everything else about the token holds.
    """

    make: Callable[[Forger], str]
    oracle_accepts: str = ""
    spared_at: frozenset[tuple[str, str]] = frozenset()


TRUE_SIGNATURE: Final = "the signature is true and the claims are right; we take only what we ourselves would write"
NO_PROFILE: Final = "it knows JWT (RFC 7519) and not our profile of it; who signs truly is believed"
BYTE_ORDER_MARK: Final = "its parser skips the mark, which RFC 8259 §8.1 lets it; nobody may write one"
LAST_WINS: Final = (
    "its parser keeps one of two members of the same name (RFC 8259 §4 lets it); the other reader may keep the other"
)
UTF_16: Final = "its parser guesses the encoding; JSON that is exchanged is UTF-8 (RFC 8259 §8.1)"
ARRAYS: Final = "RFC 7519 §4.1.3 allows an array; our tokens have one audience, as a string"
NUMBERS: Final = "RFC 7519 §2 allows fractions and exponents; our dates are whole seconds in one spelling"


def _none(alg: object) -> Forgery:
    return Forgery(lambda f: f.unsigned(alg=alg))


def _kid(kid: object) -> Forgery:
    return Forgery(lambda f: f.by_stranger(kid=kid))


def _header(oracle_accepts: str = "", **members: object) -> Forgery:
    return Forgery(lambda f: f.headed(**members), oracle_accepts)


def _claim(oracle_accepts: str = "", **members: object) -> Forgery:
    return Forgery(lambda f: f.claiming(**members), oracle_accepts)


def _elsewhere(aud: Callable[[Forger], str]) -> Forgery:
    """A token for another audience. The endpoints that look its grant up serve whoever may see that grant."""
    spared = frozenset({("tool", "as_subject"), ("tool", "introspected")})
    return Forgery(lambda f: f.claiming(aud=aud(f)), spared_at=spared)


def _spelling(name: str, value: bytes, oracle_accepts: str = "") -> Forgery:
    return Forgery(lambda f: f.spelling(name, value), oracle_accepts)


def _segment(part: int, change: Callable[[str], str], oracle_accepts: str = "") -> Forgery:
    return Forgery(lambda f: f.replaced(part, change(f.segments[part])), oracle_accepts)


def _whole(change: Callable[[str], str], oracle_accepts: str = "") -> Forgery:
    return Forgery(lambda f: change(f.genuine), oracle_accepts)


def _ec(**change: int | bool) -> Forgery:
    return Forgery(lambda f: f.ec(EcChange(**change)))  # type: ignore[arg-type]  # a row names what it changes


ALGORITHMS: Final[Mapping[str, Forgery]] = {
    "alg none": _none("none"),
    "alg None": _none("None"),
    "alg NONE": _none("NONE"),
    "alg nOnE": _none("nOnE"),
    "alg none with a space": _none("none "),
    "alg none with a NUL": _none("none\0"),
    "alg none in full-width letters": _none("\uff4e\uff4f\uff4e\uff45"),
    "alg empty": _none(""),
    "alg null": _none(None),
    "alg left out": _none(DROP),
    "alg false": _none(False),
    "alg a list with none in it": _none(["none", "EdDSA"]),
    "alg none over the true signature": Forgery(lambda f: f.headed(alg="none")),
    "alg none under a stranger's signature": Forgery(lambda f: f.by_stranger(alg="none")),
    "alg in lower case, truly signed": _header(alg="eddsa"),
    "alg by its newer name, truly signed": _header(alg="Ed25519"),
    "alg of our other key, truly signed": _header(alg="ES256"),
    "alg a list, truly signed": _header(alg=["EdDSA"]),
    "alg RS256": Forgery(lambda f: f.by_stranger(alg="RS256")),
    "alg PS256": Forgery(lambda f: f.by_stranger(alg="PS256")),
    "alg ES256K": Forgery(lambda f: f.by_stranger(alg="ES256K")),
    "HS256 with the public key as PEM": Forgery(lambda f: f.hmac_with(f.public(Encoding.PEM, PUBLIC))),
    "HS256 with the public key as DER": Forgery(lambda f: f.hmac_with(f.public(Encoding.DER, PUBLIC))),
    "HS256 with the public key's bytes": Forgery(lambda f: f.hmac_with(f.public(Encoding.Raw, PublicFormat.Raw))),
    "HS256 with the JWK": Forgery(lambda f: f.hmac_with(canonical(f.key.public_jwk))),
    "HS256 with the JWK's x": Forgery(lambda f: f.hmac_with(str(f.key.public_jwk["x"]).encode())),
    "HS256 with the kid": Forgery(lambda f: f.hmac_with(f.key.kid.encode())),
    "HS256 with nothing": Forgery(lambda f: f.hmac_with(b"")),
    "HS256 with the public key, called EdDSA": Forgery(
        lambda f: f.hmac_with(f.public(Encoding.Raw, PublicFormat.Raw), alg="EdDSA")
    ),
}

KEYS: Final[Mapping[str, Forgery]] = {
    "a stranger's signature under our kid": Forgery(lambda f: f.by_stranger()),
    "a stranger's signature under its own kid": _kid(STRANGER.kid),
    "kid that is a path": _kid("../../../../dev/null"),
    "kid that is a URL": Forgery(lambda f: f.by_stranger(kid=f.lure)),
    "kid that is SQL": _kid("x' UNION SELECT 'AAAA' --"),
    "kid that is a command": _kid("x|/usr/bin/id"),
    "kid empty": _kid(""),
    "kid a number": _kid(0),
    "kid a list of ours": Forgery(lambda f: f.by_stranger(kid=[f.key.kid])),
    "kid an object": Forgery(lambda f: f.by_stranger(kid={"kid": f.key.kid})),
    "kid null": _kid(None),
    "kid left out": _kid(DROP),
    "kid of our other key, truly signed": Forgery(lambda f: f.headed(kid=f.ec_key.kid)),
    "kid left out, truly signed": _header(kid=DROP),
    "kid empty, truly signed": _header(kid=""),
    "kid with a space, truly signed": Forgery(lambda f: f.headed(kid=f.key.kid + " ")),
    "kid with a NUL, truly signed": Forgery(lambda f: f.headed(kid=f.key.kid + "\0")),
    "kid in upper case, truly signed": Forgery(lambda f: f.headed(kid=f.key.kid.upper())),
    "jku of a stranger": Forgery(lambda f: f.by_stranger(kid=STRANGER.kid, jku=f.lure)),
    "jku of a stranger under our kid": Forgery(lambda f: f.by_stranger(jku=f.lure)),
    "x5u of a stranger": Forgery(lambda f: f.by_stranger(kid=STRANGER.kid, x5u=f.lure)),
    "x5u of a stranger under our kid": Forgery(lambda f: f.by_stranger(x5u=f.lure)),
    "jwk of a stranger": Forgery(lambda f: f.by_stranger(kid=STRANGER.kid, jwk=STRANGER.public_jwk)),
    "jwk of a stranger under our kid": Forgery(lambda f: f.by_stranger(jwk=STRANGER.public_jwk)),
    "jwk of a stranger without a kid": Forgery(lambda f: f.by_stranger(kid=DROP, jwk=STRANGER.public_jwk)),
    "x5c of a stranger": Forgery(lambda f: f.by_stranger(kid=STRANGER.kid, x5c=["MIIB"])),
    "x5c and x5t under our kid": Forgery(lambda f: f.by_stranger(x5c=["MIIB"], x5t="AAAA")),
    "everything that brings a key": Forgery(
        lambda f: f.by_stranger(jku=f.lure, x5u=f.lure, jwk=STRANGER.public_jwk, x5c=["MIIB"])
    ),
}

CRITICAL: Final[Mapping[str, Forgery]] = {
    "crit of an unknown name": Forgery(lambda f: f.headed(**{"crit": ["urn:x"], "urn:x": 1})),
    "crit of a name that is not there": _header(crit=["urn:x"]),
    "crit of a registered name": _header(TRUE_SIGNATURE, crit=["kid"]),
    "crit of exp": _header(crit=["exp"], exp=1),
    "crit of b64 true": _header(TRUE_SIGNATURE, crit=["b64"], b64=True),
    "crit empty": _header(TRUE_SIGNATURE, crit=[]),
    "crit null": _header(crit=None),
    "crit a string": _header(crit="b64"),
    "b64 false": _header(b64=False),
    "b64 true, not critical": _header(TRUE_SIGNATURE, b64=True),
    "b64 false over the bare payload": Forgery(
        lambda f: _bare(f, canonical(f.header | {"crit": ["b64"], "b64": False}))
    ),
}


def _bare(forger: Forger, header: bytes) -> str:
    """RFC 7797: what is signed is the payload as it is, not its base64url."""
    signature = forger.key.sign(f"{b64(header)}.".encode() + forger.payload)
    return f"{b64(header)}.{forger.segments[1]}.{b64(signature)}"


DUPLICATES: Final[Mapping[str, Forgery]] = {
    "alg twice, none first": Forgery(lambda f: f.with_first_member(0, b'"alg":"none"'), LAST_WINS),
    "alg twice, spelt with an escape": Forgery(lambda f: f.with_first_member(0, rb'"\u0061lg":"none"'), LAST_WINS),
    "kid twice": Forgery(lambda f: f.with_first_member(0, b'"kid":"other"'), LAST_WINS),
    "typ twice": Forgery(lambda f: f.with_first_member(0, b'"typ":"JWT"'), LAST_WINS),
    "sub twice": Forgery(lambda f: f.with_first_member(1, b'"sub":"mallory"'), LAST_WINS),
    "sub twice, spelt with an escape": Forgery(lambda f: f.with_first_member(1, rb'"\u0073ub":"mallory"'), LAST_WINS),
    "exp twice": Forgery(lambda f: f.with_first_member(1, b'"exp":4102444800'), LAST_WINS),
    "tenant_id twice": Forgery(lambda f: f.with_first_member(1, b'"tenant_id":"globex"'), LAST_WINS),
    "a member twice deep inside": Forgery(lambda f: f.with_first_member(1, b'"a":{"x":1,"x":2}'), LAST_WINS),
}

SHAPES: Final[Mapping[str, Forgery]] = {
    "padding of the header": _segment(0, lambda part: part + "=" * (-len(part) % 4 or 4)),
    "padding of the payload": _segment(1, lambda part: part + "=" * (-len(part) % 4 or 4)),
    "padding of the signature": _whole(lambda token: token + "=="),
    "unused bits of the header": Forgery(lambda f: f.with_unused_bits(0)),
    "unused bits of the payload": Forgery(lambda f: f.with_unused_bits(1)),
    "unused bits of the signature": Forgery(lambda f: f.with_unused_bits(2)),
    "a character that decoders skip": _segment(2, lambda part: f"{part[:9]}!{part[9:]}"),
    "the other alphabet": _segment(2, lambda part: part.replace("-", "+").replace("_", "/") + "+"),
    "a space inside": _segment(1, lambda part: f"{part[:9]} {part[9:]}"),
    "a line break inside the signature": _segment(2, lambda part: f"{part[:9]}\n{part[9:]}"),
    "CRLF at the end": _whole(lambda token: token + "\r\n"),
    "a space in front": _whole(lambda token: " " + token),
    "a tab at the end": _whole(lambda token: token + "\t"),
    "a NUL at the end": _whole(lambda token: token + "\0"),
    "a NUL in front": _whole(lambda token: "\0" + token),
    "a zero-width space at the end": _whole(lambda token: token + "\u200b"),
    "a full-width letter": _segment(0, lambda part: "\uff45" + part[1:]),
    "a Cyrillic letter": _segment(1, lambda part: part[:-1] + "\u0430"),
    "a fourth segment": _whole(lambda token: token + ".AAAA"),
    "an empty fourth segment": _whole(lambda token: token + "."),
    "a dot in front": _whole(lambda token: "." + token),
    "two segments": _whole(lambda token: token.rpartition(".")[0]),
    "one segment": _whole(lambda token: token.partition(".")[0]),
    "dots only": _whole(lambda _: ".."),
    "two tokens": _whole(lambda token: f"{token},{token}"),
    "the scheme once more": _whole(lambda token: f"Bearer {token}"),
    "in quotes": _whole(lambda token: f'"{token}"'),
    "no header": _segment(0, lambda _: ""),
    "no payload": _segment(1, lambda _: ""),
    "no signature": _segment(2, lambda _: ""),
    "a flattened JSON serialization": Forgery(
        lambda f: json.dumps(dict(zip(("protected", "payload", "signature"), f.segments, strict=True)))
    ),
    "a general JSON serialization": Forgery(
        lambda f: json.dumps(
            {"payload": f.segments[1], "signatures": [{"protected": f.segments[0], "signature": f.segments[2]}]}
        )
    ),
    "a JWE": Forgery(lambda f: f"{b64(canonical(f.header | {'alg': 'dir', 'enc': 'A128GCM'}))}..AAAA.AAAA.AAAA"),
    "a JWT in a JWT": Forgery(
        lambda f: f.raw(canonical(f.header | {"cty": "JWT"}), f.genuine.encode()),
    ),
    "a signature cut short": _segment(2, lambda part: part[:-8]),
    "a signature twice": _segment(2, lambda part: part + part),
    "a signature of zeros": _segment(2, lambda _: b64(bytes(64))),
    "a signature with a byte more": _segment(2, lambda part: b64(unb64(part) + b"\0")),
    "a signature of other claims": Forgery(lambda f: f.replaced(2, f.claiming(sub="mallory").rpartition(".")[2])),
    "other claims under the signature": Forgery(lambda f: f.replaced(1, f.claiming(sub="mallory").split(".")[1])),
    "S plus the order of the group": Forgery(lambda f: f.shifted_by_the_order()),
    "an ECDSA signature in DER": _ec(is_der=True),
    "r and s zero": _ec(r=0, s=0),
    "r zero": _ec(r=0),
    "s zero": _ec(s=0),
    "r the order": _ec(r=P256_ORDER),
    "s the order": _ec(s=P256_ORDER),
    "r and s one": _ec(r=1, s=1),
    "r and s of 33 bytes": _ec(length=33),
    "a bare word": _whole(lambda _: "undefined"),
    "a JSON null": _whole(lambda _: "null"),
    "what a session's id looks like": _whole(lambda _: "5f3d7a0a-9c6c-4a7e-8a52-4f0f2c9a3c11"),
}

KINDS: Final[Mapping[str, Forgery]] = {
    "typ of another kind of ours": Forgery(lambda f: f.of_another_kind(0)),
    "typ of a third kind of ours": Forgery(lambda f: f.of_another_kind(1)),
    "typ JWT": _header(typ="JWT"),
    "typ jwt": _header(typ="jwt"),
    "typ left out": _header(typ=DROP),
    "typ empty": _header(typ=""),
    "typ null": _header(typ=None),
    "typ a list": Forgery(lambda f: f.headed(typ=[f.header["typ"]])),
    "typ in capitals": Forgery(
        lambda f: f.headed(typ=f.header["typ"].upper()),
        "RFC 7515 §4.1.9: media types have no case; ours is written one way",
    ),
    "typ with application/": Forgery(
        lambda f: f.headed(typ=f"application/{f.header['typ']}"), "RFC 9068 §4 lets others write it so; we never do"
    ),
    "typ with a space": Forgery(lambda f: f.headed(typ=f.header["typ"] + " ")),
    "typ with a parameter": Forgery(lambda f: f.headed(typ=f.header["typ"] + ";v=1")),
    "typ of a DPoP proof": _header(typ="dpop+jwt"),
    "typ of a client assertion": _header(typ="client-authentication+jwt"),
    "typ of a logout token": _header(typ="logout+jwt"),
    "typ of an introspection answer": _header(typ="token-introspection+jwt"),
}

ISSUERS: Final[Mapping[str, Forgery]] = {
    "iss with a slash": Forgery(lambda f: f.claiming(iss=f.claims["iss"] + "/")),
    "iss in capitals": Forgery(lambda f: f.claiming(iss=f.claims["iss"].upper())),
    "iss of another tenant": Forgery(lambda f: f.claiming(iss=f.claims["iss"] + "/globex")),
    "iss under another scheme": Forgery(lambda f: f.claiming(iss=f.claims["iss"].replace("http:", "https:"))),
    "iss by another name of the host": Forgery(
        lambda f: f.claiming(iss=f.claims["iss"].replace("127.0.0.1", "localhost"))
    ),
    "iss with a space": Forgery(lambda f: f.claiming(iss=f.claims["iss"] + " ")),
    "iss in a list": Forgery(lambda f: f.claiming(iss=[f.claims["iss"]])),
    "iss of a stranger": _claim(iss="https://evil.example"),
    "iss null": _claim(iss=None),
    "iss empty": _claim(iss=""),
    "iss left out": _claim(iss=DROP),
}

AUDIENCES: Final[Mapping[str, Forgery]] = {
    "aud in a list": Forgery(lambda f: f.claiming(aud=[f.claims["aud"]]), ARRAYS),
    "aud in a list with another": Forgery(lambda f: f.claiming(aud=[f.claims["aud"], "https://evil.example"]), ARRAYS),
    "aud in a list within a list": Forgery(lambda f: f.claiming(aud=[[f.claims["aud"]]])),
    "aud with a slash": _elsewhere(lambda f: f.claims["aud"] + "/"),
    "aud in capitals": _elsewhere(lambda f: f.claims["aud"].upper()),
    "aud of others": _elsewhere(lambda _: "https://evil.example"),
    "aud a star": _elsewhere(lambda _: "*"),
    "aud an empty list": _claim(aud=[]),
    "aud empty": _claim(aud=""),
    "aud null": _claim(aud=None),
    "aud left out": _claim(aud=DROP),
}

DATES: Final[Mapping[str, Forgery]] = {
    "exp a string": _claim(exp="4102444800"),
    "exp a fraction": _spelling("exp", b"4102444800.5", NUMBERS),
    "exp with a zero fraction": _spelling("exp", b"4102444800.0", NUMBERS),
    "exp with an exponent": _spelling("exp", b"41024448e2", NUMBERS),
    "exp with a leading zero": _spelling("exp", b"04102444800"),
    "exp with a plus": _spelling("exp", b"+4102444800"),
    "exp in hexadecimal": _spelling("exp", b"0xF4865700"),
    "exp negative": _claim(exp=-1),
    "exp minus zero": _spelling("exp", b"-0"),
    "exp 1e400": _spelling("exp", b"1e400"),
    "exp -1e400": _spelling("exp", b"-1e400"),
    "exp NaN": _spelling("exp", b"NaN"),
    "exp Infinity": _spelling("exp", b"Infinity"),
    "exp true": _claim(exp=True),
    "exp null": _claim(exp=None),
    "exp a list": _claim(exp=[4102444800]),
    "exp left out": _claim(exp=DROP),
    "exp past": _claim(exp=1),
    "exp zero": _claim(exp=0),
    "exp after the last year": _claim(exp=253402300800, oracle_accepts=NUMBERS),
    "exp beyond 64 bits": _spelling("exp", b"9" * 40, NUMBERS),
    "exp of ten thousand digits": _spelling("exp", b"9" * 10_000),
    "nbf to come": _claim(nbf=4102444800),
    "nbf a string": _claim(nbf="0"),
    "nbf a fraction": _spelling("nbf", b"0.5", NUMBERS),
    "nbf true": _claim(nbf=True),
    "nbf null": _claim(nbf=None),
    "nbf NaN": _spelling("nbf", b"NaN"),
    "iat a string": _claim(iat="0"),
    "iat negative": _claim(iat=-1, oracle_accepts=NUMBERS),
    "iat a fraction": _spelling("iat", b"0.5", NUMBERS),
    "iat null": _claim(iat=None),
    "iat left out": _claim(iat=DROP),
}

CLAIMS: Final[Mapping[str, Forgery]] = {
    "jti left out": _claim(jti=DROP),
    "jti empty": _claim(jti=""),
    "jti null": _claim(jti=None),
    "jti a number": _claim(jti=1),
    "jti a list": Forgery(lambda f: f.claiming(jti=[f.claims["jti"]])),
    "sub left out": _claim(sub=DROP),
    "sub empty": _claim(sub=""),
    "sub null": _claim(sub=None),
    "sub an object": _claim(sub={"sub": "x"}),
    "client_id left out": _claim(client_id=DROP),
    "client_id a list": Forgery(lambda f: f.claiming(client_id=[f.claims["client_id"]]), NO_PROFILE),
    "client_id of nobody": Forgery(
        lambda f: f.claiming(client_id="nobody-of-this-name"),
        NO_PROFILE,
        # Where a grant is named, it says who holds it.
        frozenset(("tool", door) for door in ("at_the_gateway", "at_the_mcp_endpoint", "as_subject", "introspected")),
    ),
    "tenant_id left out": _claim(NO_PROFILE, tenant_id=DROP),
    "tenant_id of another": _claim(NO_PROFILE, tenant_id="globex"),
    "tenant_id a list": Forgery(lambda f: f.claiming(tenant_id=[f.claims["tenant_id"]]), NO_PROFILE),
    "scope a list": _claim(NO_PROFILE, scope=["admin", "tools:call"]),
    "scope null": _claim(NO_PROFILE, scope=None),
    "scope true": _claim(NO_PROFILE, scope=True),
    "grant_id of nothing": Forgery(
        lambda f: f.claiming(grant_id="gr_00000000000000000000000000"),
        NO_PROFILE,
        frozenset({("api", "at_the_api")}),  # which refuses it as the token of some grant
    ),
    "grant_id empty": _claim(NO_PROFILE, grant_id=""),
    "grant_id null": _claim(NO_PROFILE, grant_id=None),
    "grant_id a list": _claim(NO_PROFILE, grant_id=["gr_00000000000000000000000000"]),
    "cnf a string": _claim(NO_PROFILE, cnf="jkt"),
    "cnf a list": _claim(NO_PROFILE, cnf=[{"jkt": "x"}]),
    "cnf null": _claim(NO_PROFILE, cnf=None),
    "cnf empty": _claim(NO_PROFILE, cnf={}),
    "cnf of a key that is a number": _claim(NO_PROFILE, cnf={"jkt": 1}),
    "cnf of a certificate": _claim(NO_PROFILE, cnf={"x5t#S256": "AAAA"}),
    "act a string": _claim(NO_PROFILE, act="planner"),
    "act a list": _claim(NO_PROFILE, act=[{"sub": "planner"}]),
    "act null": _claim(NO_PROFILE, act=None),
    "act empty": _claim(NO_PROFILE, act={}),
    "act with a list inside": _claim(NO_PROFILE, act={"sub": "planner", "act": [{"sub": "x"}]}),
    "act with a subject that is a number": _claim(NO_PROFILE, act={"sub": 1}),
    "act with an expiry": _claim(NO_PROFILE, act={"sub": "planner", "exp": 4102444800}),
    "act with an audience deep inside": _claim(NO_PROFILE, act={"sub": "a", "act": {"sub": "b", "aud": "x"}}),
    "act of ten thousand levels": _spelling("act", b'{"sub":"a","act":' * 10_000 + b"{}" + b"}" * 10_000),
    "act of a hundred levels": _spelling("act", b'{"act":' * 100 + b'{"sub":"a"}' + b"}" * 100, NO_PROFILE),
    "act of a megabyte": _claim(act={"sub": "x" * MEGABYTE}),
    "may_act a string": _claim(NO_PROFILE, may_act="planner"),
    "may_act a list": _claim(NO_PROFILE, may_act=[{"sub": "planner"}]),
    "may_act null": _claim(NO_PROFILE, may_act=None),
}

BODIES: Final[Mapping[str, Forgery]] = {
    "a header that is no JSON": Forgery(lambda f: f.raw(b"alg: EdDSA", f.payload)),
    "a header that is a list": Forgery(lambda f: f.raw(b"[]", f.payload)),
    "a header with a byte order mark": Forgery(
        lambda f: f.raw(b"\xef\xbb\xbf" + canonical(f.header), f.payload), BYTE_ORDER_MARK
    ),
    "a header in UTF-16": Forgery(lambda f: f.raw(canonical(f.header).decode().encode("utf-16"), f.payload), UTF_16),
    "a header with a comment": Forgery(lambda f: f.raw(canonical(f.header) + b"//", f.payload)),
    "a header of a hundred levels": Forgery(lambda f: f.with_first_member(0, b'"x":' + b"[" * 100 + b"]" * 100)),
    "a header of four kilobytes": _header(x="x" * 4096),
    "a header of a megabyte": _header(x="x" * MEGABYTE),
    "claims that are a list": Forgery(lambda f: f.paid(b"[" + f.payload + b"]")),
    "claims that are a string": Forgery(lambda f: f.paid(b'"claims"')),
    "claims that are null": Forgery(lambda f: f.paid(b"null")),
    "claims of nothing": Forgery(lambda f: f.paid(b"{}")),
    "claims with a byte order mark": Forgery(lambda f: f.paid(b"\xef\xbb\xbf" + f.payload), BYTE_ORDER_MARK),
    "claims in UTF-16": Forgery(lambda f: f.paid(f.payload.decode().encode("utf-16")), UTF_16),
    "claims that are no UTF-8": Forgery(lambda f: f.paid(f.payload[:-1] + b',"x":"\xff"}')),
    "claims with a lone surrogate": Forgery(lambda f: f.paid(f.payload[:-1] + rb',"x":"\ud800"}'), TRUE_SIGNATURE),
    "claims with something after them": Forgery(lambda f: f.paid(f.payload + b"{}")),
    "claims with a space after them": Forgery(lambda f: f.paid(f.payload + b" "), TRUE_SIGNATURE),
    "claims in another order": Forgery(
        lambda f: f.paid(json.dumps(dict(reversed(f.claims.items())), separators=(",", ":")).encode()), TRUE_SIGNATURE
    ),
    "claims with white space": Forgery(lambda f: f.paid(json.dumps(f.claims).encode()), TRUE_SIGNATURE),
    "claims with a comma too many": Forgery(lambda f: f.paid(f.payload[:-1] + b",}")),
    "claims with a NaN": Forgery(lambda f: f.paid(f.payload[:-1] + b',"x":NaN}'), TRUE_SIGNATURE),
    "claims a hundred levels deep": Forgery(
        lambda f: f.with_first_member(1, b'"x":' + b"[" * 100 + b"]" * 100), TRUE_SIGNATURE
    ),
    "a megabyte of claims": _claim(x="x" * MEGABYTE),
    "a megabyte of signature": _segment(2, lambda _: "A" * MEGABYTE),
    "a megabyte of dots": _whole(lambda _: "." * MEGABYTE),
}

FORGERIES: Final[Mapping[str, Forgery]] = {
    **ALGORITHMS,
    **KEYS,
    **CRITICAL,
    **DUPLICATES,
    **SHAPES,
    **KINDS,
    **ISSUERS,
    **AUDIENCES,
    **DATES,
    **CLAIMS,
    **BODIES,
}

ALIKE: Final[Mapping[str, Callable[[Forger], str]]] = {
    "the token itself": lambda f: f.genuine,
    "the token put together again": lambda f: f.headed(),
    "a key set that is offered and not fetched": lambda f: f.headed(jku=f.lure, x5u=f.lure),
    "a stranger's key in the header": lambda f: f.headed(jwk=STRANGER.public_jwk),
    "our other key": lambda f: f.ec(),
    "the mirrored signature of our other key": lambda f: f.ec(EcChange(is_mirrored=True)),
}
"""What is accepted here and there alike: the controls without which nothing above would prove anything."""
