"""DPoP proofs (RFC 9449): that whoever sends a request holds a key, told from the request and the proof alone.

Knows proofs, the public keys in them, and nonces that every worker can tell without asking anybody. A proof is taken
apart as strictly as our own tokens are, and PyJWT is asked for signatures only.
Refuses to know what is bound to the key, and whether a proof was used before: the store knows that.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, NoReturn, TypeAlias
from urllib.parse import urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from app.core.compact_jwt import NotCompactError, base64url, decoded, taken_apart
from app.core.reasons import Reason
from app.core.strict_json import JsonObject, canonical
from app.ports import PROOF_ALGORITHMS, Proof, TokenRefused

PublicKey: TypeAlias = ec.EllipticCurvePublicKey | Ed25519PublicKey | rsa.RSAPublicKey

TYP: Final = "dpop+jwt"
MAX_PROOF_CHARS: Final = 8192
MAX_JTI_CHARS: Final = 255
WINDOW: Final = timedelta(minutes=5)
"""How far `iat` may be from now, to either side (RFC 9449 §11.1)."""

NONCE_PERIOD: Final = timedelta(seconds=150)
_MIN_RSA_BITS: Final = 2048
_MAX_RSA_BITS: Final = 4096
_MAX_RSA_EXPONENT_BYTES: Final = 4
"""What is larger says nothing more of a key, and lets anybody keep us busy."""

_PRIVATE_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_DEFAULT_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_VISIBLE: Final = re.compile(r"[!-~]+")
_TRIPLET: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9._~-]")


class _Refused(Exception):
    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


def _refuse(detail: str) -> NoReturn:
    raise _Refused(detail) from None


# --- proofs -----------------------------------------------------------------------------------------------


class DpopProofs:
    """`ports.Proofs`. Without `nonces` none are asked for."""

    def __init__(self, nonces: "Nonces | None" = None) -> None:
        self._nonces = nonces

    def nonce(self, now: datetime) -> str | None:
        return None if self._nonces is None else self._nonces.at(now)

    def verify(self, proof: str, *, method: str, url: str, access_token: str | None, now: datetime) -> Proof:
        """The list of RFC 9449 §4.3, item by item. One header field, its first, is for whoever reads the request."""
        try:
            key_thumbprint, claims = _signed(proof)
            self._refuse_other_request(claims, method, url, access_token)
            issued_at, jti = _issued_at(claims, now), _jti(claims)
        except (NotCompactError, _Refused) as refused:
            raise TokenRefused(Reason.PROOF_INVALID, f"the DPoP proof: {refused.detail}") from None
        if self._nonces is not None and not self._nonces.accepts(claims.get("nonce"), now):
            detail = "the DPoP proof needs the nonce that this answer gives"
            raise TokenRefused(Reason.PROOF_NONCE_NEEDED, detail)
        return Proof(key_thumbprint=key_thumbprint, jti=jti, expires_at=issued_at + WINDOW)

    @staticmethod
    def _refuse_other_request(claims: JsonObject, method: str, url: str, access_token: str | None) -> None:
        if claims.get("htm") != method:
            _refuse("htm is not the method of the request")
        htu = claims.get("htu")
        target = _target(htu) if isinstance(htu, str) else None
        if target is None or target != _target(url):
            _refuse("htu is not the URL of the request")
        if access_token is not None and claims.get("ath") != _hash_of(access_token):
            _refuse("ath is not the hash of the token")


def _signed(proof: str) -> tuple[str, JsonObject]:
    """The thumbprint of the key that signed the proof, which it holds itself, and its claims."""
    parts = taken_apart(proof, max_chars=MAX_PROOF_CHARS)
    if parts.header.get("typ") != TYP:
        _refuse("it is a token of another kind")
    name, jwk = parts.header.get("alg"), parts.header.get("jwk")
    algorithm = _ALGORITHMS.get(name) if isinstance(name, str) else None
    if algorithm is None or not isinstance(jwk, dict):
        _refuse("it needs a public key, and one of the algorithms that are accepted")
    if _PRIVATE_MEMBERS & jwk.keys():
        _refuse("its key is not a public one")
    if not jwt.get_algorithm_by_name(algorithm.verifier).verify(parts.signed, algorithm.key(jwk), parts.signature):
        _refuse("the signature is not its key's")
    members = {member: jwk[member] for member in algorithm.members}
    return base64url(hashlib.sha256(canonical(members)).digest()), parts.claims()


def _issued_at(claims: JsonObject, now: datetime) -> datetime:
    iat = claims.get("iat")
    if isinstance(iat, bool) or not isinstance(iat, int) or abs(iat - now.timestamp()) > WINDOW.total_seconds():
        _refuse("iat is not a time close to now")
    return datetime.fromtimestamp(iat, UTC)


def _jti(claims: JsonObject) -> str:
    jti = claims.get("jti")
    if not isinstance(jti, str) or not 0 < len(jti) <= MAX_JTI_CHARS or "\0" in jti:
        _refuse(f"jti is not a string of 1 to {MAX_JTI_CHARS} characters")
    return jti


def _hash_of(access_token: str) -> str:
    return base64url(hashlib.sha256(access_token.encode("ascii")).digest())


# --- the key in a proof -----------------------------------------------------------------------------------


class _Algorithm(NamedTuple):
    """How a key of this algorithm is read, which of its members RFC 7638 §3.2 hashes, and PyJWT's name for it."""

    key: Callable[[JsonObject], PublicKey]
    members: tuple[str, ...]
    verifier: str


def _elliptic(crv: str, curve: ec.EllipticCurve) -> Callable[[JsonObject], PublicKey]:
    size = (curve.key_size + 7) // 8

    def read(jwk: JsonObject) -> PublicKey:
        _refuse_other_type(jwk, kty="EC", crv=crv)
        x, y = (int.from_bytes(_octets(jwk, name, size)) for name in ("x", "y"))
        try:
            return ec.EllipticCurvePublicNumbers(x, y, curve).public_key()
        except ValueError:
            _refuse("its key is not a point of the curve")

    return read


def _edwards(jwk: JsonObject) -> PublicKey:
    _refuse_other_type(jwk, kty="OKP", crv="Ed25519")
    return Ed25519PublicKey.from_public_bytes(_octets(jwk, "x", 32))


def _rsa(jwk: JsonObject) -> PublicKey:
    _refuse_other_type(jwk, kty="RSA")
    n, e = _octets(jwk, "n"), _octets(jwk, "e")
    bits = int.from_bytes(n).bit_length()
    # A leading zero would be a second spelling of the same key, with another thumbprint.
    if not _MIN_RSA_BITS <= bits <= _MAX_RSA_BITS or len(e) > _MAX_RSA_EXPONENT_BYTES or 0 in (n[0], e[0]):
        _refuse(f"an RSA key has {_MIN_RSA_BITS} to {_MAX_RSA_BITS} bits and a small exponent")
    try:
        return rsa.RSAPublicNumbers(int.from_bytes(e), int.from_bytes(n)).public_key()
    except ValueError:
        _refuse("its key is not an RSA key")


def _refuse_other_type(jwk: JsonObject, **members: str) -> None:
    if any(jwk.get(name) != value for name, value in members.items()):
        _refuse("its key is not one of the algorithm's")


def _octets(jwk: JsonObject, name: str, size: int | None = None) -> bytes:
    """A member's octets in their only spelling, of exactly this size where one is given."""
    value = jwk.get(name)
    if not isinstance(value, str) or not value.isascii():
        _refuse("its key lacks a member")
    octets = decoded(value)
    if size not in (None, len(octets)):
        _refuse("a member of its key has the wrong size")
    return octets


_EC_MEMBERS: Final = ("crv", "kty", "x", "y")
_OKP_MEMBERS: Final = ("crv", "kty", "x")
_RSA_MEMBERS: Final = ("e", "kty", "n")

_ALGORITHMS: Final[Mapping[str, _Algorithm]] = {
    "ES256": _Algorithm(_elliptic("P-256", ec.SECP256R1()), _EC_MEMBERS, "ES256"),
    "ES384": _Algorithm(_elliptic("P-384", ec.SECP384R1()), _EC_MEMBERS, "ES384"),
    "EdDSA": _Algorithm(_edwards, _OKP_MEMBERS, "EdDSA"),
    "Ed25519": _Algorithm(_edwards, _OKP_MEMBERS, "EdDSA"),  # the same by its name in RFC 9864
    "RS256": _Algorithm(_rsa, _RSA_MEMBERS, "RS256"),
    "PS256": _Algorithm(_rsa, _RSA_MEMBERS, "PS256"),
}
assert tuple(_ALGORITHMS) == PROOF_ALGORITHMS, "what is promised is what is accepted"


# --- the URL in a proof -----------------------------------------------------------------------------------


class _Target(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str


def _target(url: str) -> _Target | None:
    """What a URL is the address of, normalised by syntax and scheme (RFC 3986 §6.2.2, §6.2.3); None if it is none.

    Query and fragment do not count (RFC 9449 §4.3).
    """
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        return None
    # The parser drops white space and line ends without a word.
    if not _VISIBLE.fullmatch(url) or parts.scheme not in _DEFAULT_PORTS or not host or "@" in parts.netloc:
        return None
    path = _without_dots(_TRIPLET.sub(_shortest, parts.path) or "/")
    return _Target(parts.scheme, host, _DEFAULT_PORTS[parts.scheme] if port is None else port, path)


def _shortest(triplet: re.Match[str]) -> str:
    char = chr(int(triplet[1], 16))
    return char if _UNRESERVED.fullmatch(char) else triplet[0].upper()


def _without_dots(path: str) -> str:
    """RFC 3986 §5.2.4, for an absolute path."""
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept)


# --- nonces -----------------------------------------------------------------------------------------------


class Nonces:
    """Nonces that any worker can tell: a keyed digest of the issuer and of the time, in steps (RFC 9449 §8).

    A proof is thereby made at most two steps before it is used, whatever its maker's clock says. `digest` must be
    unguessable to whoever lacks its key.
    """

    def __init__(self, *, issuer: str, digest: Callable[[bytes], str]) -> None:
        self._issuer = issuer
        self._digest = digest

    def at(self, now: datetime) -> str:
        return self._of(self._step(now))

    def accepts(self, nonce: object, now: datetime) -> bool:
        """Whether it is of this step, of the one before, or of the next by the clock of a worker that is ahead."""
        if not isinstance(nonce, str) or not nonce.isascii():
            return False
        step = self._step(now)
        return any(hmac.compare_digest(nonce, self._of(close)) for close in (step - 1, step, step + 1))

    def _of(self, step: int) -> str:
        return self._digest(f"dpop nonce\0{self._issuer}\0{step}".encode())

    @staticmethod
    def _step(now: datetime) -> int:
        return int(now.timestamp() // NONCE_PERIOD.total_seconds())
