"""Others that sign: keys of every kind, tokens true and false, and a real server that publishes the keys.

Knows how JWTs are put together, without any JOSE library's objections, and how a server of keys behaves or
misbehaves. Refuses to know what is done with a token.
"""

import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, Self

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.members import DROP, with_changes

Json = dict[str, Any]
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

_CURVES: Final[Mapping[str, Callable[[], ec.EllipticCurve]]] = {
    "ES256": ec.SECP256R1,
    "ES384": ec.SECP384R1,
    "ES512": ec.SECP521R1,
}


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@dataclass(frozen=True)
class OutsideKey:
    """A key that somebody signs with, and the name under which it is published."""

    alg: str
    kid: str | None
    private: Any = field(repr=False)

    @property
    def jwk(self) -> Json:
        public = self.private.public_key()
        members: Json = _writer(self.alg).to_jwk(public, as_dict=True)
        members.pop("key_ops", None)
        return with_changes(members, {"alg": self.alg, "use": "sig", "kid": DROP if self.kid is None else self.kid})

    @property
    def private_jwk(self) -> Json:
        members: Json = _writer(self.alg).to_jwk(self.private, as_dict=True)
        members.pop("key_ops", None)
        return self.jwk | members

    def named(self, kid: str | None) -> "OutsideKey":
        """The same key under another name."""
        return replace(self, kid=kid)

    def sign(self, claims: Mapping[str, Any], **header: Any) -> str:  # noqa: ANN401 - whatever a forger writes
        members = {"alg": self.alg, "typ": "JWT", "kid": DROP if self.kid is None else self.kid}
        return self.raw(json.dumps(with_changes(members, header)).encode(), json.dumps(dict(claims)).encode())

    def raw(self, header: bytes, payload: bytes) -> str:
        """These very bytes, truly signed."""
        content = f"{b64(header)}.{b64(payload)}"
        signature = jwt.get_algorithm_by_name(self.alg).sign(content.encode(), self.private)
        return f"{content}.{b64(signature)}"


def _writer(alg: str) -> Any:  # noqa: ANN401 - three classes of PyJWT without a common one that it types
    return {"R": RSAAlgorithm, "P": RSAAlgorithm}.get(alg[0]) or (OKPAlgorithm if alg == "EdDSA" else ECAlgorithm)


@cache
def a_key(alg: str = "ES256", kid: str | None = "k1", which: int = 0) -> OutsideKey:
    """A key of this kind; `which` tells several apart. RSA keys take long to make, so each is made once."""
    return OutsideKey(alg, kid, _private(alg, which))


@cache
def _private(alg: str, which: int) -> Any:  # noqa: ANN401
    if alg == "EdDSA":
        return Ed25519PrivateKey.generate()
    if alg in _CURVES:
        return ec.generate_private_key(_CURVES[alg]())
    return _rsa(which, 2048)


@cache
def _rsa(which: int, bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65_537, bits)


def a_weak_rsa_key() -> OutsideKey:
    return OutsideKey("RS256", "weak", _rsa(0, 1024))


def jwks(*keys: OutsideKey) -> Json:
    return {"keys": [key.jwk for key in keys]}


def claims_of(
    issuer: str, audience: str, subject: str, now: datetime, *, jti: str = "jti-1", seconds: int = 60, **changes: object
) -> Json:
    """The claims of a good token; `changes` make it another."""
    claims = {
        "iss": issuer,
        "aud": audience,
        "sub": subject,
        "jti": jti,
        "iat": int(now.timestamp()),
        "exp": int((now + timedelta(seconds=seconds)).timestamp()),
    }
    return with_changes(claims, changes)


class IdentityProvider:
    """A server of keys on loopback. What it publishes and how it answers, each test decides."""

    def __init__(self, *keys: OutsideKey) -> None:
        self.keys: Sequence[OutsideKey] = keys
        self.answer: Answer | None = None
        self.headers: Mapping[str, str] = {}
        self.asked = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        assert self._runner is not None
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    @property
    def jwks_uri(self) -> str:
        return f"{self.url}/jwks.json"

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        if self.answer is not None:
            return await self.answer(request)
        return web.json_response(jwks(*self.keys), headers=self.headers)
