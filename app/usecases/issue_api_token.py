"""A token for Subgrant's own API by `client_credentials` (RFC 6749 §4.4). It carries scopes and no grant."""

from dataclasses import dataclass, field

from app.core.reasons import Reason
from app.core.registry import Client
from app.core.strict_json import JsonObject
from app.usecases.failures import Denied
from app.usecases.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    token: str = field(repr=False)
    expires_in_seconds: int
    scopes: tuple[str, ...]


async def issue_api_token(
    world: World, client: Client, *, resource: tuple[str, ...], scopes: frozenset[str] | None
) -> ApiToken | Denied:
    """A token whose audience is the issuer, with the scopes asked for or all that the client has.

    With a tool server's `resource` it would need a standing grant that an administrator made; there is none,
    and a fresh budget is never made up here, so the target is refused.
    """
    if any(uri != world.rules.issuer for uri in resource):
        detail = "a token for a tool server comes from exchanging a grant"
        return Denied(reason=Reason.TARGET_REFUSED, detail=detail)
    held = frozenset(scope.value for scope in client.scopes)
    granted = held if scopes is None else scopes
    if not granted <= held:
        detail = "the client may not have every scope that was asked for"
        return Denied(reason=Reason.INSUFFICIENT_SCOPE, detail=detail)
    now = world.clock()
    lifetime = int(world.rules.access_token_lifetime.total_seconds())
    issued_at = int(now.timestamp())
    claims: JsonObject = {
        "aud": world.rules.issuer,
        "sub": client.client_id,
        "client_id": client.client_id,
        "tenant_id": client.tenant_id,
        "scope": " ".join(sorted(granted)),
        "jti": world.new_id("at"),
        "iat": issued_at,
        "exp": issued_at + lifetime,
    }
    token = world.signer.sign_access_token(claims)
    return ApiToken(token=token, expires_in_seconds=lifetime, scopes=tuple(sorted(granted)))
