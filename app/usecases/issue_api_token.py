"""A token for Subgrant's own API (RFC 6749 §4.1, §4.4). It carries scopes and no grant."""

from dataclasses import dataclass, field
from typing import Final

from app.core.audit import RecordType
from app.core.reasons import Reason
from app.core.registry import Client
from app.core.strict_json import JsonObject
from app.usecases.failures import Denied
from app.usecases.issue_under_standing_grant import USED, Spending, spent_now
from app.usecases.issued_token import confirmation
from app.usecases.world import World, evidence

TOKEN_PREFIX: Final = "at"
"""What the ids of access tokens begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    token: str = field(repr=False)
    expires_in_seconds: int
    scopes: tuple[str, ...]
    key_thumbprint: str | None = None


async def issue_api_token(
    world: World,
    client: Client,
    *,
    resource: tuple[str, ...],
    scopes: frozenset[str] | None,
    person: Client | None = None,
    key_thumbprint: str | None = None,
    spending: Spending | None = None,
) -> ApiToken | Denied:
    """A token whose audience is the issuer, with the scopes asked for or all that there are.

    The scopes are the client's own, or those of the person that it acts for. What is spent is spent on the token.
    """
    if any(uri != world.rules.issuer for uri in resource):
        return Denied(reason=Reason.TARGET_REFUSED, detail="a token is for the API or for one tool server, not both")
    subject = person or client
    held = frozenset(scope.value for scope in subject.scopes)
    granted = held if scopes is None else scopes
    if not granted <= held:
        detail = "the client may not have every scope that was asked for"
        return Denied(reason=Reason.INSUFFICIENT_SCOPE, detail=detail)
    token_id = world.new_id(TOKEN_PREFIX)
    if spending is not None and not await _spent(world, client, subject, spending, granted, token_id):
        return USED
    lifetime = int(world.rules.access_token_lifetime.total_seconds())
    issued_at = int(world.clock().timestamp())
    claims: JsonObject = {
        "aud": world.rules.issuer,
        "sub": subject.client_id,
        "client_id": client.client_id,
        "tenant_id": client.tenant_id,
        "scope": " ".join(sorted(granted)),
        "jti": token_id,
        "iat": issued_at,
        "exp": issued_at + lifetime,
        **confirmation(key_thumbprint),
    }
    return ApiToken(
        token=world.signer.sign_access_token(claims),
        expires_in_seconds=lifetime,
        scopes=tuple(sorted(granted)),
        key_thumbprint=key_thumbprint,
    )


async def _spent(
    world: World, client: Client, subject: Client, spending: Spending, scopes: frozenset[str], token_id: str
) -> bool:
    """Whether nothing stands against the use of what is presented. What comes of it is on record."""
    members: JsonObject = {
        "clientId": client.client_id,
        "subject": subject.client_id,
        "scopes": [*sorted(scopes)],
        "tokenId": token_id,
    }
    async with world.store.write() as tx:
        if not await spent_now(tx, world, client.tenant_id, spending, on=token_id):
            return False
        await tx.audit.append(client.tenant_id, [evidence(RecordType.ACCESS_GRANTED, world.clock(), members)])
        await tx.commit()
    return True
