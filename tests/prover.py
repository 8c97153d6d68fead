"""Holds a key and proves it (RFC 9449 §4.2), honestly or with any member of a proof as a test wants it.

Takes proofs together without any JOSE library, since those refuse to make what is wrong. Refuses to know what a
server makes of them.
"""

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384

from tests.members import with_changes

Json = dict[str, Any]


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _number(value: int, size: int | None = None) -> str:
    return b64(value.to_bytes(size or (value.bit_length() + 7) // 8))


def thumbprint_of(jwk: Mapping[str, str]) -> str:
    """RFC 7638 §3."""
    members = {name: jwk[name] for name in sorted(jwk) if name in {"crv", "kty", "x", "y", "e", "n"}}
    return b64(hashlib.sha256(json.dumps(members, separators=(",", ":")).encode()).digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Prover:
    """A key, and the proofs that it signs."""

    alg: str
    jwk: Json
    sign: Callable[[bytes], bytes] = field(repr=False)

    @classmethod
    def ed25519(cls, alg: str = "EdDSA") -> Self:
        key = Ed25519PrivateKey.generate()
        x = b64(key.public_key().public_bytes_raw())
        return cls(alg=alg, jwk={"kty": "OKP", "crv": "Ed25519", "x": x}, sign=key.sign)

    @classmethod
    def elliptic(cls, alg: str = "ES256") -> Self:
        curve, name, size, hashed = {
            "ES256": (ec.SECP256R1(), "P-256", 32, SHA256()),
            "ES384": (ec.SECP384R1(), "P-384", 48, SHA384()),
        }[alg]
        key = ec.generate_private_key(curve)
        numbers = key.public_key().public_numbers()

        def sign(content: bytes) -> bytes:
            r, s = decode_dss_signature(key.sign(content, ec.ECDSA(hashed)))
            return r.to_bytes(size) + s.to_bytes(size)

        jwk = {"kty": "EC", "crv": name, "x": _number(numbers.x, size), "y": _number(numbers.y, size)}
        return cls(alg=alg, jwk=jwk, sign=sign)

    @classmethod
    def rsa(cls, alg: str = "RS256", bits: int = 2048) -> Self:
        key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
        numbers = key.public_key().public_numbers()
        pss = padding.PSS(mgf=padding.MGF1(SHA256()), salt_length=32)
        scheme = pss if alg == "PS256" else padding.PKCS1v15()
        jwk = {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
        return cls(alg=alg, jwk=jwk, sign=lambda content: key.sign(content, scheme, SHA256()))

    @classmethod
    def symmetric(cls) -> Self:
        """A secret that stands in its own proof, so that anybody can sign with it."""
        secret = secrets.token_bytes(32)
        jwk = {"kty": "oct", "k": b64(secret)}
        return cls(alg="HS256", jwk=jwk, sign=lambda content: hmac.digest(secret, content, "sha256"))

    @property
    def thumbprint(self) -> str:
        return thumbprint_of(self.jwk)

    def proof(
        self,
        method: str,
        url: str,
        *,
        token: str | None = None,
        header: Mapping[str, object] | None = None,
        **claims: object,
    ) -> str:
        """A proof for a request, made now. What `header` and `claims` name stands in the place of what is right."""
        right: Json = {"htm": method, "htu": url, "iat": int(time.time()), "jti": secrets.token_urlsafe(16)}
        if token is not None:
            right["ath"] = b64(hashlib.sha256(token.encode()).digest())
        head = {"typ": "dpop+jwt", "alg": self.alg, "jwk": self.jwk, **(header or {})}
        return self.signed(with_changes(head, {}), with_changes(right, claims))

    def signed(self, header: Json, claims: Json) -> str:
        return self.signed_raw(json.dumps(header).encode(), json.dumps(claims).encode())

    def signed_raw(self, header: bytes, payload: bytes) -> str:
        content = f"{b64(header)}.{b64(payload)}"
        return f"{content}.{b64(self.sign(content.encode()))}"

    def headers(self, method: str, url: str, token: str, **claims: object) -> dict[str, str]:
        """The two fields by which a request presents a bound token (RFC 9449 §7.1)."""
        return {"Authorization": f"DPoP {token}", "DPoP": self.proof(method, url, token=token, **claims)}  # type: ignore[arg-type]  # claims are any
