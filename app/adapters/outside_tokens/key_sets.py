"""Public keys as others publish them (RFC 7517), and which of them a token may have been signed with.

Knows which key fits which algorithm, and what makes a set of keys ambiguous or unfit. PyJWT and cryptography build
the keys, from public members alone: what else stands beside them is not looked at.
Refuses to know where a set came from, and what was signed.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from app.core.registry import SigningAlgorithm
from app.core.strict_json import JsonObject, JsonValue, StrictJsonError, canonical, parse

PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

MAX_KEYS: Final = 64
MAX_REGISTERED_KEYS: Final = 8
MAX_REGISTERED_BYTES: Final = 16_384
"""Registered sets are read with the records that they stand in, which calls read, too."""
MAX_KEY_DEPTH: Final = 8
MAX_KID_CHARS: Final = 255
MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192
"""A larger key makes each verification take long, and is in nobody's use."""
MAX_RSA_EXPONENT: Final = 2**32

_RSA: Final = frozenset(alg for alg in SigningAlgorithm if alg.startswith(("RS", "PS")))
_BY_CURVE: Final[Mapping[tuple[str, str], SigningAlgorithm]] = {
    ("EC", "P-256"): SigningAlgorithm.ES256,
    ("EC", "P-384"): SigningAlgorithm.ES384,
    ("EC", "P-521"): SigningAlgorithm.ES512,
    ("OKP", "Ed25519"): SigningAlgorithm.EDDSA,
}

SPELLINGS: Final[Mapping[str, str]] = {"Ed25519": SigningAlgorithm.EDDSA}
"""The name that an algorithm has since RFC 9864 (§2.2), which libraries put in their tokens and keys, and ours."""

_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_USES: Final = frozenset({"sig", "jwt-svid"})
"""What a key that verifies may be for: a mesh marks its own with a word of its own (SPIFFE Trust Domain and Bundle)."""


class KeyFlawError(ValueError):
    """A key or a set of keys that can't be used. The message is a sentence without a part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationKey:
    """One public key, and by which algorithms it may verify: the one that it names, or those of its kind."""

    kid: str | None
    algorithms: frozenset[str]
    public: PublicKey = field(repr=False)

    def verifies(self, alg: str, content: bytes, signature: bytes) -> bool:
        return jwt.get_algorithm_by_name(alg).verify(content, self.public, signature)


class Wanted(NamedTuple):
    """Which key a token's header asks for; its word for the algorithm is checked against ours before."""

    kid: str | None
    alg: str


@dataclass(frozen=True, slots=True)
class KeySet:
    """Usable keys, no two of one name."""

    keys: tuple[VerificationKey, ...]

    def find(self, wanted: Wanted) -> VerificationKey | None:
        """The one key with exactly this name, or without a name the only one that fits (RFC 7515 §4.1.4)."""
        fitting = [key for key in self.keys if wanted.alg in key.algorithms]
        if wanted.kid is not None:
            fitting = [key for key in fitting if key.kid == wanted.kid]
        return fitting[0] if len(fitting) == 1 else None


def published_keys(body: bytes) -> KeySet:
    """The usable keys of a set that somebody published. Raises KeyFlawError.

    Keys of other kinds and for other purposes are none of ours, and are left out. So is one whose private half is
    published with it, since anybody signs with that. A name that stands for two keys makes the whole ambiguous.
    """
    try:
        document = parse(body, max_bytes=len(body), max_depth=MAX_KEY_DEPTH)
    except StrictJsonError:
        raise KeyFlawError("is no strict JSON") from None
    found = []
    for jwk in _listed(document):
        try:
            found.append(read_key(jwk))
        except KeyFlawError:
            continue
    return _distinct(found)


def registered_keys(jwks: JsonObject) -> KeySet:
    """The keys of a set that an administrator registers: each must be usable, by one algorithm (RFC 8725 §3.1).

    Several are told apart by their names, so only a single one needs none. Raises KeyFlawError.
    """
    listed = _listed(jwks)
    if not 1 <= len(listed) <= MAX_REGISTERED_KEYS or len(canonical(jwks)) > MAX_REGISTERED_BYTES:
        raise KeyFlawError(f"must hold 1 to {MAX_REGISTERED_KEYS} keys, in {MAX_REGISTERED_BYTES} bytes")
    keys = [read_key(jwk) for jwk in listed]
    if any(len(key.algorithms) > 1 for key in keys):
        raise KeyFlawError("holds an RSA key that does not say its alg")
    if any(isinstance(jwk, dict) and "kid" in jwk and jwk["kid"] is None for jwk in listed):
        raise KeyFlawError("holds a key whose kid is no name")
    if len(keys) > 1 and any(key.kid is None for key in keys):
        raise KeyFlawError("holds several keys, of which each needs a kid")
    if len({_numbers(key.public) for key in keys}) != len(keys):
        raise KeyFlawError("holds one key twice")
    return _distinct(keys)


def read_key(jwk: JsonValue) -> VerificationKey:
    """One public key (RFC 7517 §4). Raises KeyFlawError."""
    if not isinstance(jwk, dict):
        raise KeyFlawError("holds what is no key")
    if _PRIVATE & jwk.keys():
        raise KeyFlawError("holds a key that is not public")
    kid = jwk.get("kid")
    if kid is not None and (not isinstance(kid, str) or not 0 < len(kid) <= MAX_KID_CHARS):
        raise KeyFlawError("holds a key whose kid is no name")
    if jwk.get("use", "sig") not in _USES or not _may_verify(jwk.get("key_ops")):
        raise KeyFlawError("holds a key that is not for signatures")
    return VerificationKey(kid=kid, algorithms=_algorithms(jwk), public=_public(jwk))


def _listed(document: JsonValue) -> list[JsonValue]:
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise KeyFlawError("is no set of keys")
    if len(keys) > MAX_KEYS:
        raise KeyFlawError("has too many keys")
    return keys


def _distinct(keys: list[VerificationKey]) -> KeySet:
    names = [key.kid for key in keys if key.kid is not None]
    if len(set(names)) != len(names):
        raise KeyFlawError("has two keys of one kid")
    return KeySet(tuple(keys))


def _numbers(public: PublicKey) -> bytes:
    """The key itself, by whatever names and in whatever spelling it stands in a set."""
    return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _may_verify(operations: JsonValue) -> bool:
    return operations is None or (isinstance(operations, list) and "verify" in operations)


def _algorithms(jwk: JsonObject) -> frozenset[str]:
    """By which algorithms the key may verify. Only an RSA key fits several, where it doesn't say."""
    kty, curve, alg = jwk.get("kty"), jwk.get("crv"), jwk.get("alg")
    if kty == "RSA":
        fitting = _RSA
    elif isinstance(kty, str) and isinstance(curve, str) and (kty, curve) in _BY_CURVE:
        fitting = frozenset({_BY_CURVE[kty, curve]})
    else:
        raise KeyFlawError("holds a key of a kind that is not used here")
    if alg is None:
        return fitting
    if not isinstance(alg, str) or SPELLINGS.get(alg, alg) not in fitting:
        raise KeyFlawError("holds a key whose alg does not fit it")
    return frozenset({SPELLINGS.get(alg, alg)})


def _public(jwk: JsonObject) -> PublicKey:
    kty = str(jwk["kty"])
    members = {"kty": kty} | {name: _base64url(jwk.get(name), name) for name in _MEMBERS[kty]}
    try:
        key = _READERS[kty](members)
    except (jwt.InvalidKeyError, ValueError, TypeError):
        raise KeyFlawError("holds a key that is malformed") from None
    if isinstance(key, RSAPublicKey):
        _refuse_weak(key)
    if not isinstance(key, PublicKey):
        raise KeyFlawError("holds a key that is not public")
    return key


def _base64url(value: JsonValue, name: str) -> str:
    if not isinstance(value, str):
        raise KeyFlawError("holds a key that is malformed")
    if name == "crv":
        return value
    try:
        # The alphabet is checked, which the reader behind does not.
        base64.b64decode(value.replace("-", "+").replace("_", "/") + "=" * (-len(value) % 4), validate=True)
    except ValueError:
        raise KeyFlawError("holds a key that is malformed") from None
    return value


def _refuse_weak(key: RSAPublicKey) -> None:
    if not MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS:
        raise KeyFlawError(f"holds an RSA key that is not of {MIN_RSA_BITS} to {MAX_RSA_BITS} bits")
    exponent = key.public_numbers().e
    if exponent % 2 == 0 or not 1 < exponent < MAX_RSA_EXPONENT:
        raise KeyFlawError("holds an RSA key whose exponent is unfit")


_READERS: Final = {"RSA": RSAAlgorithm.from_jwk, "EC": ECAlgorithm.from_jwk, "OKP": OKPAlgorithm.from_jwk}
