"""Subgrant's JWTs: signed here, and read back only where every part is as it was signed here.

Knows keys, headers and claims (RFC 7515, 7519, 8725, 9068). PyJWT is asked for signatures only: taking a token
apart is done here, since it lets pass what must be refused (members given twice, other types, dates that are no
integers, a second spelling of the same token).
Refuses to know whether a grant lives, which the core judges, and where keys are kept, which are handed in.

Each kind of JWT has a type of its own and is refused wherever another is expected. No message or repr holds a
part of a token.
"""

import hashlib
import math
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, NoReturn, Self, TypeAlias, TypeVar

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)
from jwt.algorithms import ECAlgorithm, OKPAlgorithm

from app.core.compact_jwt import CompactJwt, NotCompactError, base64url, refuse_unreadable, taken_apart
from app.core.grant import (
    ClientId,
    Grant,
    GrantId,
    GrantInvalid,
    TenantId,
    VerifiedGrant,
    parse_grant,
    render_grant,
)
from app.core.reasons import Reason
from app.core.signing import signing_key
from app.core.strict_json import JsonObject, JsonValue, canonical
from app.ports import AccessToken, Clock, Seal, SigningKey, StoreUnavailable, TokenExpired, TokenRefused

PrivateKey: TypeAlias = Ed25519PrivateKey | ec.EllipticCurvePrivateKey
PublicKey: TypeAlias = Ed25519PublicKey | ec.EllipticCurvePublicKey
Unseal: TypeAlias = Callable[[bytes, str], bytes]

GATEWAY: Final = "gateway"
"""Subject and client of the credentials that the gateway presents to tool servers."""

DETAILS_TYPE: Final = "delegation"
"""The `type` of our authorization details (RFC 9396 §2)."""

MAX_CACHED_TOKENS: Final = 8192
MAX_CACHED_CHARS: Final = 16 * 2**20
_MAX_DATE: Final = 253_402_300_799
"""The last second of the year 9999, after which a datetime can't be."""
_ACTOR_MEMBERS: Final = frozenset({"sub", "run", "act"})


class Kind(NamedTuple):
    """A kind of JWT: its `typ`, compared exactly (RFC 8725 §3.11), and how long it may be."""

    typ: str
    max_chars: int


GRANT: Final = Kind("delegation-grant+jwt", 96 * 1024)
ACCESS_TOKEN: Final = Kind("at+jwt", 16 * 1024)
UPSTREAM: Final = Kind("subgrant-gateway+jwt", 16 * 1024)


# --- keys -------------------------------------------------------------------------------------------------


class NoSigningKey(Exception):
    """There is no live key whose time to sign has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenKey:
    """A key in use. It has one algorithm, which is ours to say and never a token's (RFC 8725 §3.1)."""

    kid: str
    alg: str
    public_jwk: JsonObject
    private: PrivateKey = field(repr=False)
    public: PublicKey = field(repr=False)
    created_at: datetime
    signs_from: datetime

    @classmethod
    def of(cls, alg: str, private: PrivateKey, created_at: datetime, signs_from: datetime | None = None) -> Self:
        """A key that signs at once unless told from when. Raises ValueError where it is none for the algorithm."""
        members = _public_members(alg, private)
        kid = _thumbprint(members)
        public_jwk = members | {"kid": kid, "alg": alg, "use": "sig"}
        return cls(
            kid=kid,
            alg=alg,
            public_jwk=public_jwk,
            private=private,
            public=private.public_key(),
            created_at=created_at,
            signs_from=signs_from or created_at,
        )

    def sign(self, content: bytes) -> bytes:
        return jwt.get_algorithm_by_name(self.alg).sign(content, self.private)

    def verifies(self, content: bytes, signature: bytes) -> bool:
        return jwt.get_algorithm_by_name(self.alg).verify(content, self.public, signature)


def make_key(alg: str, now: datetime, seal: Seal, signs_from: datetime | None = None) -> SigningKey:
    """A new key for `EdDSA` (Ed25519) or `ES256`, its private half sealed for `signing-key:{kid}`."""
    if alg not in _GENERATORS:
        raise ValueError(f"a signing algorithm is one of {', '.join(_GENERATORS)}")
    key = OpenKey.of(alg, _GENERATORS[alg](), now)
    der = key.private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return SigningKey(
        kid=key.kid,
        alg=alg,
        public_jwk=key.public_jwk,
        sealed_private=seal(der, _purpose(key.kid)),
        created_at=now,
        signs_from=signs_from or now,
    )


_GENERATORS: Final[Mapping[str, Callable[[], PrivateKey]]] = {
    "EdDSA": Ed25519PrivateKey.generate,
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
}


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The live keys by kid, oldest first. All of them verify, and `core.signing` says which of them signs.

    What was read is believed until `good_until`, since another process may retire a key meanwhile; None for keys
    that nobody else can retire.
    """

    keys: Mapping[str, OpenKey]
    good_until: datetime | None = None

    @classmethod
    def load(cls, records: Sequence[SigningKey], unseal: Unseal) -> Self:
        """Raises ValueError where a record was sealed with another key or was changed. Retired ones are left out."""
        live = (_open(record, unseal) for record in records if record.retired_at is None)
        return cls.holding(*live)

    @classmethod
    def holding(cls, *keys: OpenKey) -> Self:
        ordered = sorted(keys, key=lambda key: (key.created_at, key.kid))
        return cls(MappingProxyType({key.kid: key for key in ordered}))

    def signing(self, alg: str, now: datetime) -> OpenKey:
        found = signing_key(self.keys.values(), alg, now)
        if found is None:
            raise NoSigningKey("there is no live key that signs yet")
        return found


def _open(record: SigningKey, unseal: Unseal) -> OpenKey:
    private = load_der_private_key(unseal(record.sealed_private, _purpose(record.kid)), password=None)
    if not isinstance(private, PrivateKey):
        raise ValueError(f"signing key {record.kid} is of an unknown type")  # noqa: TRY004 - what is stored is wrong
    key = OpenKey.of(record.alg, private, record.created_at, record.signs_from)
    if (key.kid, key.public_jwk) != (record.kid, record.public_jwk):
        # The public half is stored in the clear; only what follows from the sealed half is believed.
        raise ValueError(f"signing key {record.kid} is not the one that was sealed")
    return key


def _purpose(kid: str) -> str:
    return f"signing-key:{kid}"


def _public_members(alg: str, private: PrivateKey) -> JsonObject:
    if alg == "EdDSA" and isinstance(private, Ed25519PrivateKey):
        return OKPAlgorithm.to_jwk(private.public_key(), as_dict=True)
    if alg == "ES256" and isinstance(private, ec.EllipticCurvePrivateKey) and private.curve.name == "secp256r1":
        return ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
    raise ValueError(f"this is no {alg} key")


def _thumbprint(members: JsonObject) -> str:
    """RFC 7638 §3: the hash of a public key's required members, which are all that `members` holds."""
    return base64url(hashlib.sha256(canonical(members)).digest())


# --- signing and verifying --------------------------------------------------------------------------------


class JoseSigner:
    """`ports.Signer` for one issuer. Safe to use from several threads.

    Keys that were not read again in time are used for nothing: StoreUnavailable, as for anything that only the
    store can tell. So once every ring that holds a retired key is too old, nothing that it signed is accepted.
    """

    def __init__(self, *, issuer: str, keys: KeyRing, clock: Clock, alg: str = "EdDSA") -> None:
        self._issuer = issuer
        self._alg = alg
        self._ring = keys
        self._clock = clock
        self._grants: _Verified[VerifiedGrant] = _Verified()
        self._tokens: _Verified[AccessToken] = _Verified()

    def use(self, keys: KeyRing) -> None:
        """Sign and verify with these keys from now on; what a key that is gone has signed is refused at once."""
        self._ring = keys

    @property
    def _keys(self) -> KeyRing:
        ring = self._ring
        if ring.good_until is not None and self._clock() >= ring.good_until:
            raise StoreUnavailable("the signing keys were not read again in time")
        return ring

    def jwks(self) -> JsonObject:
        """The public keys (RFC 7517 §5): all that verify, those that will sign among them."""
        return {"keys": [key.public_jwk for key in self._keys.keys.values()]}

    @property
    def algorithm(self) -> str:
        return self._alg

    def new_key(self, seal: Seal, now: datetime, signs_from: datetime) -> SigningKey:
        return make_key(self._alg, now, seal, signs_from)

    def grants_start(self, key: SigningKey) -> str:
        return f"{base64url(_header(GRANT, key.alg, key.kid))}."

    def sign_grant(self, grant: Grant, act: JsonObject) -> str:
        """Raises ValueError for a grant that no verifier would take: too long, or with fractions of seconds."""
        if act.get("sub") != grant.actor:
            raise ValueError("the outermost actor is the grant's")
        details: JsonObject = {"type": DETAILS_TYPE, **render_grant(grant)}
        claims: JsonObject = {**_registered(grant), "act": act, "authorization_details": [details]}
        compact = self._sign(GRANT, claims)
        try:
            self.verify_grant(compact)  # what can't be read back would be a grant that nobody can close
        except TokenRefused as refused:
            raise ValueError(refused.detail) from refused
        return compact

    def verify_grant(self, compact: str) -> VerifiedGrant:
        fingerprint = _fingerprint(compact, GRANT)
        known = self._grants.recall(fingerprint, self._keys)
        if known is not None:
            return known
        kid, claims = self._verify(compact, GRANT)
        verified = VerifiedGrant(grant=_grant(claims), signed=compact)
        self._grants.remember(fingerprint, kid, len(compact), verified)
        return verified

    def sign_access_token(self, claims: JsonObject) -> str:
        """Raises ValueError for claims that no verifier would take."""
        try:
            _access_token(claims)
        except TokenRefused as refusal:
            raise ValueError(f"not the claims of an access token: {refusal.detail}") from None
        return self._sign(ACCESS_TOKEN, claims)

    def verify_access_token(self, compact: str, now: datetime) -> AccessToken:
        fingerprint = _fingerprint(compact, ACCESS_TOKEN)
        token = self._tokens.recall(fingerprint, self._keys)
        if token is None:
            kid, claims = self._verify(compact, ACCESS_TOKEN)
            token = _access_token(claims)
            self._tokens.remember(fingerprint, kid, len(compact), token)
        _refuse_outside_its_time(token, now)
        return token

    def sign_upstream(self, audience: str, claims: JsonObject, now: datetime, lifetime: timedelta) -> str:
        """For one tool server, in the gateway's own name: `claims` add to that and never replace it."""
        own: JsonObject = {
            "aud": audience,
            "sub": GATEWAY,
            "client_id": GATEWAY,
            "iat": math.floor(now.timestamp()),
            "exp": math.floor((now + lifetime).timestamp()),
            "jti": secrets.token_urlsafe(16),
        }
        return self._sign(UPSTREAM, claims | own)

    def _sign(self, kind: Kind, claims: JsonObject) -> str:
        key = self._keys.signing(self._alg, self._clock())
        header = _header(kind, key.alg, key.kid)
        signed = f"{base64url(header)}.{base64url(canonical(claims | {'iss': self._issuer}))}"
        compact = f"{signed}.{base64url(key.sign(signed.encode('ascii')))}"
        if len(compact) > kind.max_chars:
            raise ValueError(f"a {kind.typ} is at most {kind.max_chars} characters long")
        return compact

    def _verify(self, compact: str, kind: Kind) -> tuple[str, JsonObject]:
        """The kid and the claims of a JWT of this kind that this issuer signed with a live key."""
        parts = _parts(compact, kind)
        key = self._key(parts.header, kind)
        if not key.verifies(parts.signed, parts.signature):
            _refuse("the signature is not ours")
        claims = _claims(parts)
        if canonical(claims) != parts.payload:
            # Ours are canonical; this also tells 1.0 from 1, which the parser, canonicalising, does not.
            _refuse("the claims are not in canonical form")
        if claims.get("iss") != self._issuer:
            _refuse("the issuer is another")
        return key.kid, claims

    def _key(self, header: JsonObject, kind: Kind) -> OpenKey:
        """The key to verify with: an exact look-up. What a header says of keys (jku, jwk, x5u, x5c) is not read."""
        if header.get("typ") != kind.typ:
            _refuse("the token is of another kind")
        kid = header.get("kid")
        key = self._keys.keys.get(kid) if isinstance(kid, str) else None
        if key is None:
            _refuse("the signing key is not known")
        if header.get("alg") != key.alg:
            _refuse("the algorithm is not the key's")
        return key


def _header(kind: Kind, alg: str, kid: str) -> bytes:
    return canonical({"alg": alg, "kid": kid, "typ": kind.typ})


def _refuse(detail: str) -> NoReturn:
    # Without a cause: a parser's error may quote what it stumbled on.
    raise TokenRefused(Reason.TOKEN_INVALID, detail) from None


# --- the parts of a JWT -----------------------------------------------------------------------------------


def _fingerprint(compact: str, kind: Kind) -> bytes:
    """What a token is remembered by. Refuses what is too long to be looked at, or not ASCII."""
    try:
        refuse_unreadable(compact, max_chars=kind.max_chars)
    except NotCompactError as error:
        _refuse(error.detail)
    return hashlib.sha256(compact.encode("ascii")).digest()


def _parts(compact: str, kind: Kind) -> CompactJwt:
    try:
        return taken_apart(compact, max_chars=kind.max_chars)
    except NotCompactError as error:
        _refuse(error.detail)


def _claims(parts: CompactJwt) -> JsonObject:
    try:
        return parts.claims()
    except NotCompactError as error:
        _refuse(error.detail)


# --- a grant's claims -------------------------------------------------------------------------------------


def _registered(grant: Grant) -> JsonObject:
    """The claims that repeat what the document says, for whoever reads claims only (RFC 7519 §4.1, RFC 8693 §4)."""
    uris: list[JsonValue] = [audience.uri for audience in grant.audience]
    return {
        "sub": grant.subject,
        "aud": uris[0] if len(uris) == 1 else uris,
        "iat": _date_of(grant.issued_at),
        "nbf": _date_of(grant.not_before),
        "exp": _date_of(grant.expires_at),
        "jti": grant.grant_id,
        "client_id": grant.holder,
        "may_act": {"sub": grant.holder},
        "tenant_id": grant.tenant_id,
    }


def _date_of(moment: datetime) -> int:
    """A NumericDate (RFC 7519 §2), which is the moment itself and not nearly."""
    if moment.microsecond:
        raise ValueError("a grant's times are whole seconds")
    return int(moment.timestamp())


def _grant(claims: JsonObject) -> Grant:
    """The grant in the claims, where they say nothing else than the grant does."""
    document = _details(claims)
    try:
        grant = parse_grant(document)
        registered = _registered(grant)
    except GrantInvalid:
        _refuse("the token holds no grant")
    except ValueError:
        _refuse("a time in the grant is not a whole second")
    for name in ("iat", "nbf", "exp"):
        _date(claims, name)  # whatever it equals, it is an integer
    if any(claims.get(name) != value for name, value in registered.items()):
        _refuse("the claims and the grant differ")
    _refuse_unknown_members(document, grant)
    if not claims.keys() <= registered.keys() | {"iss", "act", "authorization_details"}:
        _refuse("the grant has claims that are not known here")
    if _actor(claims.get("act")).get("sub") != grant.actor:
        _refuse("the claims and the grant differ")
    return grant


def _details(claims: JsonObject) -> JsonObject:
    """The grant's document: the only authorization detail (RFC 9396 §2), less its type."""
    details = claims.get("authorization_details")
    detail = details[0] if isinstance(details, list) and len(details) == 1 else None
    if not isinstance(detail, dict) or detail.get("type") != DETAILS_TYPE:
        _refuse("the token holds no grant")
    return {name: value for name, value in detail.items() if name != "type"}


def _refuse_unknown_members(document: JsonObject, grant: Grant) -> None:
    # A later version may narrow by members that this one does not know: ignoring them would widen the grant.
    if not document.keys() <= render_grant(grant).keys():
        _refuse("the grant has members that are not known here")


# --- an access token's claims -----------------------------------------------------------------------------


def _access_token(claims: JsonObject) -> AccessToken:
    """The facts of RFC 9068 §2.2 and our own; whether its time has come is asked each time anew."""
    grant_id = _text(claims, "grant_id") if "grant_id" in claims else None
    if "nbf" in claims:
        _date(claims, "nbf")
    for name in claims.keys() & {"act", "may_act"}:
        _actor(claims[name])
    return AccessToken(
        jti=_text(claims, "jti"),
        audience=_text(claims, "aud"),
        subject=_text(claims, "sub"),
        client_id=ClientId(_text(claims, "client_id")),
        tenant_id=TenantId(_text(claims, "tenant_id")),
        scopes=_scopes(claims),
        grant_id=None if grant_id is None else GrantId(grant_id),
        issued_at=_date(claims, "iat"),
        expires_at=_date(claims, "exp"),
        key_thumbprint=_bound_to(claims["cnf"]) if "cnf" in claims else None,
        claims=claims,
    )


def _refuse_outside_its_time(token: AccessToken, now: datetime) -> None:
    if now >= token.expires_at:  # no leeway: who signed it has our clock (RFC 7519 §4.1.4)
        raise TokenExpired(token)
    if "nbf" in token.claims and now < _date(token.claims, "nbf"):
        _refuse("the token is not valid yet")


def _bound_to(cnf: JsonValue) -> str:
    """The key that must be proven with the token (RFC 7800, by RFC 9449 §6.1): no other way to bind one is known."""
    if not isinstance(cnf, dict) or cnf.keys() != {"jkt"}:
        _refuse("cnf is not the thumbprint of a key")
    return _text(cnf, "jkt")


def _actor(act: JsonValue) -> JsonObject:
    """Who acts, and for whom, and for whom they did: of their identity alone (RFC 8693 §4.1)."""
    if not isinstance(act, dict) or not act.keys() <= _ACTOR_MEMBERS:
        _refuse("act is not an actor")
    _text(act, "sub")
    if "act" in act:
        _actor(act["act"])  # as deep as claims may be, and no deeper
    return act


def _scopes(claims: JsonObject) -> frozenset[str]:
    """Space-delimited (RFC 6749 §3.3); none is none."""
    scope = claims.get("scope", "")
    if not isinstance(scope, str):
        _refuse("scope is not a string")
    return frozenset(scope.split(" ")) - {""}


def _text(claims: JsonObject, name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value:
        _refuse(f"{name} is not a string")
    return value


def _date(claims: JsonObject, name: str) -> datetime:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_DATE:
        _refuse(f"{name} is not a date")
    return datetime.fromtimestamp(value, UTC)


# --- what was verified ------------------------------------------------------------------------------------

Facts = TypeVar("Facts", VerifiedGrant, AccessToken)


class _Entry(NamedTuple, Generic[Facts]):
    kid: str
    chars: int
    facts: Facts


class _Verified(Generic[Facts]):
    """Facts from tokens that were verified, by the hash of the whole token; the least recently used go first.

    Only what a signature says forever is kept, and it counts only while the key that made the signature is
    live. Whatever changes, such as time or revocation, is asked outside. Nothing that was refused is
    remembered, so that nobody fills this without valid tokens.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, _Entry[Facts]] = OrderedDict()
        self._chars = 0
        self._lock = threading.Lock()

    def recall(self, fingerprint: bytes, keys: KeyRing) -> Facts | None:
        with self._lock:
            entry = self._entries.get(fingerprint)
            if entry is None or entry.kid not in keys.keys:
                return None
            self._entries.move_to_end(fingerprint)
            return entry.facts

    def remember(self, fingerprint: bytes, kid: str, chars: int, facts: Facts) -> None:
        with self._lock:
            self._forget(fingerprint)
            self._entries[fingerprint] = _Entry(kid, chars, facts)
            self._chars += chars
            while len(self._entries) > MAX_CACHED_TOKENS or self._chars > MAX_CACHED_CHARS:
                self._forget(next(iter(self._entries)))

    def _forget(self, fingerprint: bytes) -> None:
        entry = self._entries.pop(fingerprint, None)
        if entry is not None:
            self._chars -= entry.chars
