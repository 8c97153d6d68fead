"""Redeem an authorization code (RFC 6749 §4.1.3): once, by the application that it was given to, with PKCE's proof."""

from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest

from app.core.compact_jwt import base64url
from app.core.grant import ClientId, GrantId
from app.core.reasons import Reason
from app.core.registry import Client
from app.usecases.authorize_app import AppRequest, Consent, Misdirected, active_client_of, open_code
from app.usecases.close_grant import revoke
from app.usecases.failures import Denied
from app.usecases.issue_api_token import ApiToken, issue_api_token
from app.usecases.issue_under_standing_grant import Spending, StandingRequest, issue_under_standing_grant
from app.usecases.issued_token import Exchanged
from app.usecases.revoke_token import revoke_api_token
from app.usecases.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Redemption:
    """What an application presents for a token. `key_thumbprint` is the key that it proved, if it did."""

    code: str = field(repr=False)
    verifier: str = field(repr=False)
    redirect_uri: str | None
    resource: tuple[str, ...] = ()
    key_thumbprint: str | None = None


async def redeem_code(world: World, app: Client, presented: Redemption) -> Exchanged | ApiToken | Denied:
    """The token that the person allowed, or why there is none. Raises Malformed, Conflict."""
    try:
        consent = open_code(world, presented.code)
    except Misdirected as error:
        return Denied(reason=Reason.TOKEN_INVALID, detail=error.detail)
    fault = _fault(world, app, presented, consent.request)
    if fault is not None:
        return fault
    async with world.store.read() as tx:
        person = await active_client_of(tx, consent.person)
        used_on = await tx.spent.spent_on(app.tenant_id, world.rules.issuer, consent.jti)
    if used_on is not None:
        return await _used_twice(world, app, consent.person, used_on)
    if person is None or person.tenant_id != app.tenant_id:
        return Denied(reason=Reason.TOKEN_INVALID, detail="the person is disabled")
    return await _issued(world, app, person, consent, presented.key_thumbprint)


def _fault(world: World, app: Client, presented: Redemption, asked: AppRequest) -> Denied | None:
    """What a code can't be redeemed for, whoever has it: it was another's, or another's request."""
    redirect_uri = presented.redirect_uri or (None if asked.redirect_uri_given else asked.redirect_uri)
    wanted = asked.resource or world.rules.issuer
    faults = (
        (asked.app != app.client_id, Reason.TOKEN_INVALID, "the code was given to another application"),
        (redirect_uri != asked.redirect_uri, Reason.TOKEN_INVALID, "the redirect_uri is not the one asked with"),
        (not _fits(presented.verifier, asked.challenge), Reason.TOKEN_INVALID, "the code_verifier does not fit"),
        (asked.key_thumbprint not in (None, presented.key_thumbprint), Reason.TOKEN_INVALID, "the key is another"),
        (not {*presented.resource} <= {wanted}, Reason.TARGET_REFUSED, "the person allowed another resource"),
    )
    return next((Denied(reason=reason, detail=detail) for stands, reason, detail in faults if stands), None)


def _fits(verifier: str, challenge: str) -> bool:
    """RFC 7636 §4.6, for S256."""
    return compare_digest(base64url(sha256(verifier.encode()).digest()), challenge)


async def _issued(
    world: World, app: Client, person: Client, consent: Consent, key_thumbprint: str | None
) -> Exchanged | ApiToken | Denied:
    request = consent.request
    spending = Spending(issuer=world.rules.issuer, jti=consent.jti, expires_at=consent.expires_at)
    if request.resource is None:
        scopes = frozenset(request.scopes) & {scope.value for scope in person.scopes}
        return await issue_api_token(
            world, app, resource=(), scopes=scopes, person=person, spending=spending, key_thumbprint=key_thumbprint
        )
    return await issue_under_standing_grant(
        world,
        StandingRequest(
            owner=person,
            client=app,
            resource=(request.resource,),
            scopes=frozenset(request.scopes),
            key_thumbprint=key_thumbprint,
            spending=spending,
        ),
    )


async def _used_twice(world: World, app: Client, person: ClientId, used_on: str) -> Denied:
    """Somebody else has the code as well, so what was issued for it ends, too (RFC 6749 §4.1.2).

    `used_on` names a node or a token for the API, and as the other of the two it names nothing.
    """
    await revoke(world, app, GrantId(used_on))
    await revoke_api_token(world, app, person, used_on, world.clock() + world.rules.access_token_lifetime)
    return Denied(reason=Reason.TOKEN_INVALID, detail="the code was used before: what it gave is revoked")
