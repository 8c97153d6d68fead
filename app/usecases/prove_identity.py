"""Prove by another issuer's token who somebody is (RFC 7523 §3, RFC 8693 §2.1).

A tenant trusts nobody whom its own administrators did not name, exactly and for this use. Whether a token was used
before, and what follows from it, is for whoever asks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.core.grant import TenantId
from app.core.reasons import Reason
from app.core.registry import IssuerUse, TrustedIssuer
from app.core.strict_json import JsonObject
from app.ports import KeySource, OutsideToken, TokenRefused
from app.usecases.failures import Denied
from app.usecases.world import World

_PLAIN: Final = frozenset({None, "JWT", "JOSE"})
"""Types that say nothing; platforms sign what they hand to workloads without any (RFC 7519 §5.1)."""

TYPES: Final[Mapping[IssuerUse, frozenset[str | None]]] = {
    IssuerUse.CLIENT: _PLAIN | {"client-authentication+jwt"},
    IssuerUse.SUBJECT: _PLAIN | {"at+jwt"},
    IssuerUse.GRANT: frozenset({"oauth-id-jag+jwt"}),
}
"""The types of JWT that prove something for each use: one of another kind says other things (RFC 8725 §3.11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """What a token says, and the trusted issuer that says it."""

    token: OutsideToken
    issuer: TrustedIssuer

    @property
    def subject(self) -> str:
        """The name by which we know the subject: never a client's (RFC 9068 §5)."""
        return self.issuer.subject(self.token.subject)

    @property
    def reference(self) -> JsonObject:
        """What the log names the token by: the token itself could be used again."""
        jti: JsonObject = {} if self.token.jti is None else {"jti": self.token.jti}
        return {"issuer": self.issuer.name} | jti


async def prove_identity(world: World, tenant_id: TenantId, compact: str, use: IssuerUse) -> Proven | Denied:
    """What a token proves that an issuer signed which the tenant trusts for this use.

    Keys may be fetched meanwhile, so never in a transaction. Nothing is spent: see `spend_assertion`.
    """
    try:
        named = world.outsiders.issuer_named(compact)
    except TokenRefused as refused:
        return Denied(reason=refused.reason, detail=refused.detail)
    async with world.store.read() as tx:
        issuer = await tx.registry.issuer_of(tenant_id, named)
    return await proven_by(world, issuer, compact, use)


async def proven_by(world: World, issuer: TrustedIssuer | None, compact: str, use: IssuerUse) -> Proven | Denied:
    """The same, by this issuer."""
    if issuer is None or not issuer.active or use not in issuer.uses:
        return Denied(reason=Reason.TOKEN_INVALID, detail="the token's issuer is not trusted for this")
    try:
        token = await world.outsiders.verify(
            compact,
            issuer=issuer.issuer,
            audience=_audience(world, issuer, use),
            keys=KeySource(algorithms=issuer.algorithms, jwks=issuer.jwks, jwks_uri=issuer.jwks_uri),
            now=world.clock(),
            max_lifetime=issuer.max_lifetime,
        )
    except TokenRefused as refused:
        return Denied(reason=refused.reason, detail=refused.detail)
    if token.typ not in TYPES[use]:
        return Denied(reason=Reason.TOKEN_INVALID, detail="the token is of another kind")
    return Proven(token=token, issuer=issuer)


def _audience(world: World, issuer: TrustedIssuer, use: IssuerUse) -> str:
    """The only `aud` that counts: an assertion's is us, whatever its issuer's other tokens say (RFC 7523 §3)."""
    return world.rules.issuer if use is IssuerUse.GRANT else issuer.audience or world.rules.issuer
