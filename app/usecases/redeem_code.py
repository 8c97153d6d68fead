"""Redeem an authorization code (RFC 6749 §4.1.3): once, by the application that it was given to, with PKCE's proof."""

from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest

from app.core.compact_jwt import base64url
from app.core.grant import ClientId, GrantId
from app.core.reasons import Reason
from app.core.registry import Client
from app.usecases.authorize_app import (
    CODE_LIFETIME,
    AppRequest,
    Consent,
    Misdirected,
    active_client_of,
    offer_to,
    open_code,
)
from app.usecases.close_grant import revoke
from app.usecases.failures import Denied
from app.usecases.issue_api_token import TOKEN_PREFIX, ApiToken, issue_api_token
from app.usecases.issue_under_standing_grant import Spending, StandingRequest, issue_under_standing_grant
from app.usecases.issued_token import Exchanged
from app.usecases.read_wish import NarrowingFields
from app.usecases.record_stranger import record_stranger
from app.usecases.revoke_token import revoke_api_token
from app.usecases.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Redemption:
    """What an application presents for a token: the key that it proved, and the one to which the token is bound."""

    code: str = field(repr=False)
    verifier: str = field(repr=False)
    redirect_uri: str | None
    resource: tuple[str, ...] = ()
    fields: NarrowingFields = field(default_factory=NarrowingFields)
    proven_key: str | None = None
    key_thumbprint: str | None = None


async def redeem_code(world: World, app: Client, presented: Redemption) -> Exchanged | ApiToken | Denied:
    """The token that the person allowed, or why there is none. Raises Malformed, Conflict."""
    consent = await redeemable(world, app, presented)
    return consent if isinstance(consent, Denied) else await _redeemed(world, app, consent, presented)


async def redeemable(world: World, app: Client, presented: Redemption) -> Consent | Denied:
    """What the code stands for, unless it is plain without a look into the store that the application has no use of it.

    That is on record among the refusals of strangers, which are so many a second and no more.
    """
    try:
        consent = open_code(world, presented.code)
        fault = _fault(world, app, presented, consent.request)
    except Misdirected as error:
        fault = Denied(reason=Reason.TOKEN_INVALID, detail=error.detail)
    else:
        if fault is None:
            return consent
    await record_stranger(world, fault.reason, "an authorization code was refused")
    return fault


async def _redeemed(
    world: World, app: Client, consent: Consent, presented: Redemption
) -> Exchanged | ApiToken | Denied:
    async with world.store.read() as tx:
        person = await active_client_of(tx, consent.person)
    if person is None or person.tenant_id != app.tenant_id:
        return Denied(reason=Reason.TOKEN_INVALID, detail="the person is disabled")
    if person.dpop_required and presented.key_thumbprint is None:
        return Denied(reason=Reason.PROOF_INVALID, detail="the person's tokens must be bound to a key")
    issued = await _issued(world, app, person, consent, presented)
    if not isinstance(issued, Denied):
        return issued
    async with world.store.read() as tx:
        used_on = await tx.spent.spent_on(app.tenant_id, world.rules.issuer, consent.jti)
    return issued if used_on is None else await _used_twice(world, app, consent.person, used_on)


def _fault(world: World, app: Client, presented: Redemption, asked: AppRequest) -> Denied | None:
    """What a code can't be redeemed for, whoever has it: it was another's, or another's request."""
    redirect_uri = presented.redirect_uri or (None if asked.redirect_uri_given else asked.redirect_uri)
    wanted = asked.resource or world.rules.issuer
    faults = (
        (asked.app != app.client_id, Reason.TOKEN_INVALID, "the code was given to another application"),
        (redirect_uri != asked.redirect_uri, Reason.TOKEN_INVALID, "the redirect_uri is not the one asked with"),
        (not _fits(presented.verifier, asked.challenge), Reason.TOKEN_INVALID, "the code_verifier does not fit"),
        (asked.key_thumbprint not in (None, presented.proven_key), Reason.TOKEN_INVALID, "the key is another"),
        (not {*presented.resource} <= {wanted}, Reason.TARGET_REFUSED, "the person allowed another resource"),
    )
    return next((Denied(reason=reason, detail=detail) for stands, reason, detail in faults if stands), None)


def _fits(verifier: str, challenge: str) -> bool:
    """RFC 7636 §4.6, for S256."""
    return compare_digest(base64url(sha256(verifier.encode()).digest()), challenge)


async def _issued(
    world: World, app: Client, person: Client, consent: Consent, presented: Redemption
) -> Exchanged | ApiToken | Denied:
    request = consent.request
    try:
        offer = await offer_to(world, consent)
    except Misdirected as error:  # disabled since it proved itself
        return Denied(reason=Reason.TOKEN_INVALID, detail=error.detail)
    if isinstance(offer, Denied):
        return offer
    if not offer.covers(consent):
        return Denied(reason=Reason.TOKEN_INVALID, detail="what the person allowed is not there any more")
    # A consent is answered once, however many codes were made of it.
    spending = Spending(issuer=world.rules.issuer, jti=consent.jti, expires_at=consent.answer_by + CODE_LIFETIME)
    if request.resource is None:
        return await issue_api_token(
            world,
            app,
            resource=(),
            scopes=frozenset(consent.scopes),
            person=person,
            spending=spending,
            key_thumbprint=presented.key_thumbprint,
        )
    return await issue_under_standing_grant(
        world,
        StandingRequest(
            owner=person,
            client=app,
            resource=(request.resource,),
            scopes=frozenset(consent.scopes),
            fields=presented.fields,
            key_thumbprint=presented.key_thumbprint,
            spending=spending,
        ),
    )


async def _used_twice(world: World, app: Client, person: ClientId, used_on: str) -> Denied:
    """Somebody else has the code as well, so what was issued for it ends, too (RFC 6749 §4.1.2).

    `used_on` is the node that was made, or a token for the API.
    """
    if used_on.startswith(TOKEN_PREFIX):
        await revoke_api_token(world, app, person, used_on, world.clock() + world.rules.access_token_lifetime)
    else:
        await revoke(world, app, GrantId(used_on))
    return Denied(reason=Reason.TOKEN_INVALID, detail="the code was used before: what it gave is revoked")
