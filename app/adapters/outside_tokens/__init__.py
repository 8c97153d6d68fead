"""JWTs that others signed: clients with keys of their own, and issuers that a tenant trusts (RFC 7523 §3, RFC 8725).

Knows signatures, and the claims that say who vouches for whom, to whom and until when. What a header says of keys
(jku, jwk, x5u, x5c) is not read: keys are what an administrator registered or where that says. Refuses to know whom
a token may speak for, whether it was used before, and how keys are fetched.

No message holds a part of a token.
"""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn

from app.adapters.outside_tokens.key_sets import (
    SPELLINGS,
    KeyFlawError,
    KeySet,
    VerificationKey,
    Wanted,
    registered_keys,
)
from app.adapters.outside_tokens.published import Ages, PublishedKeySets
from app.core.compact_jwt import CompactJwt, NotCompactError, taken_apart
from app.core.reasons import Reason
from app.core.registry import SigningAlgorithm
from app.core.strict_json import JsonObject, JsonValue
from app.ports import FetchKeys, KeySource, OutsideToken, TokenRefused

__all__ = ["Ages", "OutsideJwts"]

MAX_CHARS: Final = 16 * 1024
MAX_NAME_CHARS: Final = 255
"""Of an issuer and of a `jti`, which together are what a used token is remembered by."""
MAX_SUBJECT_CHARS: Final = 512
SKEW: Final = timedelta(seconds=60)
"""How far ahead of ours another's clock may be (RFC 7519 §4.1.4)."""
_ASYMMETRIC: Final = frozenset(map(str, SigningAlgorithm))
_SPIFFE_ID: Final = re.compile(r"(spiffe://[a-z0-9._-]{1,255})(?:/.*)?")
_MAX_DATE: Final = 253_402_300_799
"""The last second of the year 9999, after which a datetime can't be."""


class OutsideJwts:
    """`ports.OutsideTokens`, for one process and one event loop."""

    def __init__(
        self, *, fetch: FetchKeys, ages: Ages | None = None, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._published = PublishedKeySets(fetch=fetch, ages=ages or Ages(), seconds=seconds)

    def issuer_named(self, compact: str) -> str:
        return _issuer(_claims(_parts(compact)))

    async def verify(
        self, compact: str, *, issuer: str, audience: str, keys: KeySource, now: datetime, max_lifetime: timedelta
    ) -> OutsideToken:
        parts = _parts(compact)
        claims = _claims(parts)
        # Before anybody is asked for keys, so that a token for somebody else makes no traffic.
        token = _token(parts.header, claims)
        _refuse_for_others(token, issuer, audience)
        _refuse_outside_its_time(token, now, max_lifetime)
        await self._refuse_unsigned(parts, keys)
        return token

    def flaw(self, jwks: JsonObject) -> str | None:
        try:
            registered_keys(jwks)
        except KeyFlawError as flaw:
            return str(flaw)
        return None

    async def _refuse_unsigned(self, parts: CompactJwt, source: KeySource) -> None:
        wanted = _wanted(parts.header, source.algorithms)
        found = await self._keys(source, wanted)
        if found is None:
            _refuse("the issuer's keys can't be had")
        if not _key(found, wanted).verifies(wanted.alg, parts.signed, parts.signature):
            _refuse("the signature is not the issuer's")

    async def _keys(self, source: KeySource, wanted: Wanted) -> KeySet | None:
        if source.jwks_uri is not None:
            return await self._published.keys(source.jwks_uri, wanted)
        try:
            return registered_keys(source.jwks or {})
        except KeyFlawError:
            return None


def _refuse(detail: str) -> NoReturn:
    raise TokenRefused(Reason.TOKEN_INVALID, detail) from None


def _parts(compact: str) -> CompactJwt:
    try:
        return taken_apart(compact, max_chars=MAX_CHARS)
    except NotCompactError as error:
        _refuse(error.detail)


def _claims(parts: CompactJwt) -> JsonObject:
    try:
        return parts.claims()
    except NotCompactError as error:
        _refuse(error.detail)


# --- the signature ----------------------------------------------------------------------------------------


def _wanted(header: JsonObject, algorithms: frozenset[str]) -> Wanted:
    named, kid = header.get("alg"), header.get("kid")
    alg = SPELLINGS.get(named, named) if isinstance(named, str) else None
    if alg is None or alg not in algorithms or alg not in _ASYMMETRIC:
        _refuse("the algorithm is not one that the issuer signs with")
    if kid is not None and not isinstance(kid, str):
        _refuse("kid is not a string")
    return Wanted(kid, alg)


def _key(found: KeySet, wanted: Wanted) -> VerificationKey:
    key = found.find(wanted)
    if key is None:
        _refuse("the signing key is not known")
    return key


# --- the claims -------------------------------------------------------------------------------------------


def _token(header: JsonObject, claims: JsonObject) -> OutsideToken:
    typ = header.get("typ")
    if typ is not None and not isinstance(typ, str):
        _refuse("typ is not a string")
    return OutsideToken(
        issuer=_issuer(claims),
        subject=_text(claims, "sub", MAX_SUBJECT_CHARS),
        jti=_text(claims, "jti", MAX_NAME_CHARS) if "jti" in claims else None,
        issued_at=_date(claims, "iat") if "iat" in claims else None,
        expires_at=_date(claims, "exp"),
        typ=typ,
        claims=claims,
    )


def _issuer(claims: JsonObject) -> str:
    """Who vouches: the `iss`, or for a JWT-SVID that has none its subject's trust domain (SPIFFE JWT-SVID §3)."""
    if "iss" not in claims and (found := _SPIFFE_ID.fullmatch(_text(claims, "sub", MAX_SUBJECT_CHARS))):
        return found[1]
    return _text(claims, "iss", MAX_NAME_CHARS)


def _refuse_for_others(token: OutsideToken, issuer: str, audience: str) -> None:
    if token.issuer != issuer:
        _refuse("the issuer is another")
    # Whoever else the token is for could show it to us as their own (RFC 7523 §3, by its successor).
    if token.claims.get("aud") not in (audience, [audience]):
        _refuse("aud is not exactly the audience that it must be")


def _refuse_outside_its_time(token: OutsideToken, now: datetime, max_lifetime: timedelta) -> None:
    if now >= token.expires_at:
        _refuse("the token has expired")
    if token.expires_at - now > max_lifetime + SKEW:
        _refuse("the token lives longer than it may")
    if "nbf" in token.claims and now + SKEW < _date(token.claims, "nbf"):
        _refuse("the token is not valid yet")
    if token.issued_at is None:
        return
    if now + SKEW < token.issued_at:
        _refuse("the token was issued in the future")
    if not timedelta() < token.expires_at - token.issued_at <= max_lifetime:
        _refuse("the token lives longer than it may")


def _text(claims: JsonObject, name: str, max_chars: int) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value or not value.isprintable():
        _refuse(f"{name} is not a string")
    if len(value) > max_chars:
        _refuse(f"{name} is too long")
    return value


def _date(claims: JsonObject, name: str) -> datetime:
    value: JsonValue = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_DATE:
        _refuse(f"{name} is not a date")
    return datetime.fromtimestamp(value, UTC)
