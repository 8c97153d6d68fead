"""Let a person allow an application to act for it (RFC 6749 §4.1): who asks, who signs in, what it may have.

A person is a client that signs in with its own secret. An application has no authority but what a person lets it
have: at a tool server a node below the person's standing grant, at Subgrant's own API some of the person's scopes.

Nothing is stored before a code is redeemed: what was asked for travels through the person's browser, sealed, so
that no worker has to remember it and nobody on the way can read or change it.
"""

import json
import re
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from app.core.compact_jwt import base64url, decoded, refuse_unreadable
from app.core.grant import ClientId, GrantChain, TenantId, render_grant
from app.core.reasons import Reason
from app.core.registry import AuthMethod, Client, ClientKind, GrantType, Scope
from app.core.strict_json import JsonObject
from app.ports import Transaction
from app.usecases.authenticate_client import ClientCredentials, authenticate_client
from app.usecases.failures import Denied, Failure
from app.usecases.issue_under_standing_grant import standing_lineage
from app.usecases.load_chain import death
from app.usecases.read_wish import resolve_audience
from app.usecases.record_stranger import record_stranger
from app.usecases.world import World

CONSENT_LIFETIME: Final = timedelta(minutes=10)
"""How long a person may look at what it is asked for."""

CODE_LIFETIME: Final = timedelta(minutes=1)
"""RFC 6749 §4.1.2 allows ten minutes; an application redeems its code at once."""

MAX_SEALED_CHARS: Final = 16_384

SIGN_IN_KINDS: Final = frozenset({ClientKind.PERSON, ClientKind.ADMIN, ClientKind.AUDITOR})
SECRET_METHODS: Final = frozenset({AuthMethod.CLIENT_SECRET_BASIC, AuthMethod.CLIENT_SECRET_POST})

_LOOPBACK_PORT: Final = re.compile(r"^(http://(?:127\.0\.0\.1|\[::1\]|localhost)):\d{1,5}(?=[/?]|$)")
"""An application on the person's own machine listens where it was free when it started (RFC 8252 §7.3)."""


class Misdirected(Failure):
    """It is not known who asks, or where the answer should go: nothing is sent anywhere (RFC 6749 §4.1.2.1)."""

    code = "misdirected"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppRequest:
    """What an application asks a person for. `resource` is a tool server's audience; None is Subgrant's own API.

    `redirect_uri_given` is whether the request named it: then the redemption of the code must, too.
    """

    app: ClientId
    tenant_id: TenantId
    redirect_uri: str
    redirect_uri_given: bool
    challenge: str
    scopes: tuple[str, ...]
    resource: str | None
    state: str | None = field(default=None, repr=False)
    key_thumbprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """A request that a person has signed in for, what it was shown, and until when it may answer."""

    request: AppRequest
    person: ClientId
    jti: str
    answer_by: datetime
    scopes: tuple[str, ...] = ()
    """What the person was shown, and no more is ever given: these scopes,"""
    standing_grant: str | None = None
    """and for a tool server the standing grant that was behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a person can let an application have. `grant` is the standing grant behind it, None for the API."""

    scopes: tuple[str, ...]
    grant: JsonObject | None = None

    def covers(self, consent: Consent) -> bool:
        """Whether it is still what the person was shown."""
        return set(consent.scopes) <= set(self.scopes) and consent.standing_grant == self.standing_grant

    @property
    def standing_grant(self) -> str | None:
        return None if self.grant is None else str(self.grant["grantId"])


async def asking_app(world: World, app: ClientId, redirect_uri: str | None) -> tuple[Client, str]:
    """The application that asks, and where its answer goes. Raises Misdirected."""
    async with world.store.read() as tx:
        client = await active_client_of(tx, app)
    if client is None or GrantType.AUTHORIZATION_CODE not in client.grant_types:
        raise Misdirected("no application with this client_id may ask")
    if redirect_uri is None and len(client.redirect_uris) == 1:
        return client, client.redirect_uris[0]
    if redirect_uri is None or _portless(redirect_uri) not in map(_portless, client.redirect_uris):
        raise Misdirected("the redirect_uri is none that the application registered")
    return client, redirect_uri


def _portless(uri: str) -> str:
    return _LOOPBACK_PORT.sub(r"\1", uri)


async def active_client_of(tx: Transaction, client_id: ClientId) -> Client | None:
    """The client of this id, if it and its tenant are active."""
    client = await tx.registry.client(client_id)
    tenant = None if client is None else await tx.registry.tenant(client.tenant_id)
    return client if client is not None and client.active and tenant is not None and tenant.active else None


def scopes_to_ask_for(app: Client, resource: str | None, asked: frozenset[str] | None) -> tuple[str, ...] | Denied:
    """The scopes that a person will be asked for: those named, else all that the application may ask for."""
    most = {Scope.TOOLS_CALL} if resource is not None else app.scopes
    scopes = frozenset(most) if asked is None else asked
    if not scopes or not scopes <= most:
        detail = "the application may not ask for every scope that it asked for"
        return Denied(reason=Reason.INSUFFICIENT_SCOPE, detail=detail)
    return tuple(sorted(scopes))


# --- the person -------------------------------------------------------------------------------------------


async def sign_in(world: World, request: AppRequest, person: ClientId, secret: str) -> Consent | Denied | None:
    """The request with the person that has just proven itself; None for whoever has not."""
    async with world.store.read() as tx:
        known = await active_client_of(tx, person)
    method = AuthMethod.CLIENT_SECRET_BASIC if known is None else known.auth_method
    proven = (
        await authenticate_client(world, ClientCredentials(client_id=person, secret=secret, method=method))
        if method in SECRET_METHODS
        else None
    )
    if isinstance(proven, Denied):
        return proven
    if proven is None or proven.kind not in SIGN_IN_KINDS or proven.tenant_id != request.tenant_id:
        await record_stranger(world, Reason.TOKEN_INVALID, "nobody could be signed in")
        return None
    return Consent(
        request=request,
        person=proven.client_id,
        jti=world.new_id("ac"),
        answer_by=world.clock() + CONSENT_LIFETIME,
    )


async def offer_to(world: World, consent: Consent) -> Offer | Denied:
    """What the person can let the application have. Raises Misdirected where the application is disabled by now."""
    request = consent.request
    async with world.store.read() as tx:
        if await active_client_of(tx, request.app) is None:
            raise Misdirected("the application is disabled")
        person = await active_client_of(tx, consent.person)
        if person is None:
            return Denied(reason=Reason.ACTOR_NOT_PERMITTED, detail="the person is disabled")
        if request.resource is None:
            shared = tuple(scope for scope in request.scopes if scope in person.scopes)
            return Offer(scopes=shared) if shared else NOTHING_TO_SHARE
        chain = await _standing_chain(tx, world, person, request.resource)
    if chain is None:
        return Denied(reason=Reason.TARGET_REFUSED, detail="the person has no standing grant for this target")
    if not chain.leaf.may_redelegate:
        return Denied(reason=Reason.REDELEGATION_DENIED, detail="the person's standing grant may not be passed on")
    return Offer(scopes=request.scopes, grant=render_grant(chain.leaf))


NOTHING_TO_SHARE: Final = Denied(
    reason=Reason.INSUFFICIENT_SCOPE, detail="the person holds none of the scopes that are asked for"
)


async def _standing_chain(tx: Transaction, world: World, person: Client, resource: str) -> GrantChain | None:
    audience = await resolve_audience(tx, world, person.tenant_id, resource)
    lineage = None if audience is None else await standing_lineage(tx, world, person, audience.server, lock=False)
    return None if lineage is None or await death(tx, world, lineage) is not None else lineage.chain


def shown(consent: Consent, offer: Offer) -> Consent:
    """The consent that a person is asked for, which holds what it was shown."""
    return replace(consent, scopes=offer.scopes, standing_grant=offer.standing_grant)


async def withdraw(world: World, consent: Consent) -> None:
    """Whoever said no is not taken at a later yes: the consent is answered, and no code of it is worth anything."""
    expires_at, now = consent.answer_by + CODE_LIFETIME, world.clock()
    async with world.store.write() as tx:
        await tx.spent.spend(
            consent.request.tenant_id, world.rules.issuer, consent.jti, expires_at=expires_at, now=now, on=WITHDRAWN
        )
        await tx.commit()


WITHDRAWN: Final = "withdrawn"


def code_for(world: World, consent: Consent) -> str:
    """The authorization code: the consent, sealed, for one redemption within its lifetime."""
    return _sealed(world, CODE, consent, world.clock() + CODE_LIFETIME)


# --- what travels sealed ----------------------------------------------------------------------------------

REQUEST: Final = "authorization request"
CONSENT: Final = "authorization consent"
CODE: Final = "authorization code"


def seal_request(world: World, request: AppRequest) -> str:
    """For the form in which a person signs in."""
    consent = Consent(request=request, person=ClientId(""), jti="", answer_by=world.clock() + CONSENT_LIFETIME)
    return _sealed(world, REQUEST, consent, consent.answer_by)


def open_request(world: World, sealed: str) -> AppRequest:
    """Raises Misdirected."""
    return _opened(world, REQUEST, sealed).request


def seal_consent(world: World, consent: Consent) -> str:
    """For the form in which a person that has signed in says yes or no."""
    return _sealed(world, CONSENT, consent, consent.answer_by)


def open_consent(world: World, sealed: str) -> Consent:
    """Raises Misdirected."""
    return _opened(world, CONSENT, sealed)


def open_code(world: World, sealed: str) -> Consent:
    """What a code stands for. Raises Misdirected for what is no code of ours, or not any more."""
    return _opened(world, CODE, sealed)


def _sealed(world: World, purpose: str, consent: Consent, expires_at: datetime) -> str:
    members = {**asdict(consent), "answer_by": int(consent.answer_by.timestamp())}
    document = {"consent": members, "exp": int(expires_at.timestamp())}
    return base64url(world.vault.seal(json.dumps(document).encode(), purpose))


def _opened(world: World, purpose: str, sealed: str) -> Consent:
    try:
        refuse_unreadable(sealed, max_chars=MAX_SEALED_CHARS)
        document = json.loads(world.vault.open(decoded(sealed), purpose))
    except ValueError:
        raise Misdirected("this was not made here, or not for this") from None
    if world.clock() >= datetime.fromtimestamp(document["exp"], UTC):
        raise Misdirected("this has expired: ask again")
    # Nobody else seals for these purposes, so the members are as they were written.
    members = document["consent"]
    request = members["request"] | {"scopes": tuple(members["request"]["scopes"])}
    answer_by = datetime.fromtimestamp(members["answer_by"], UTC)
    rest = {"request": AppRequest(**request), "answer_by": answer_by, "scopes": tuple(members["scopes"])}
    return Consent(**(members | rest))
