"""A token for an identity assertion: a company's identity provider says that a user lets a client act at a tool server.

RFC 7523 §2.1 with the assertion of draft-ietf-oauth-identity-assertion-authz-grant (ID-JAG), which is what MCP calls
enterprise-managed authorization. The assertion proves subject and consent; the authority is the client's standing
grant for the tool server.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from app.core.reasons import Reason
from app.core.registry import Client, IssuerUse, Scope
from app.core.strict_json import JsonObject, JsonValue
from app.ports import OutsideToken
from app.usecases.delegation_evidence import proof_refs, record_refusal_alone
from app.usecases.failures import Denied
from app.usecases.issue_under_standing_grant import Spending, StandingRequest, issue_under_standing_grant
from app.usecases.issued_token import Exchanged
from app.usecases.prove_identity import prove_identity
from app.usecases.prove_parties import subject_for
from app.usecases.read_wish import NarrowingFields
from app.usecases.world import World

NOT_UNDERSTOOD: Final = ("authorization_details", "tenant")
"""Claims of newer drafts that narrow what the user allowed, or say which user it is. To ignore them would widen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionRequest:
    """The parameters of RFC 7523 §2.1 with those of RFC 8707, RFC 9396 and RFC 9449."""

    assertion: str = field(repr=False)
    resource: tuple[str, ...] = ()
    scopes: frozenset[str] | None = None
    fields: NarrowingFields = field(default_factory=NarrowingFields)
    key_thumbprint: str | None = None
    """The key that the token is bound to."""
    proven_key: str | None = None
    """The key that whoever asks has proven (RFC 9449 §5)."""


async def accept_identity_assertion(world: World, client: Client, request: AssertionRequest) -> Exchanged | Denied:
    """The token, or why there is none. Raises Malformed, Conflict, AlreadyExists."""
    wanted = await _read(world, client, request)
    if isinstance(wanted, Denied):
        return await record_refusal_alone(world, client.client_id, client.tenant_id, wanted)
    return await issue_under_standing_grant(world, wanted)


async def _read(world: World, client: Client, request: AssertionRequest) -> StandingRequest | Denied:
    proven = await prove_identity(world, client.tenant_id, request.assertion, IssuerUse.GRANT)
    if isinstance(proven, Denied):
        return proven
    for detail in _faults(client, proven.token):
        return Denied(reason=Reason.TOKEN_INVALID, detail=detail)
    subject = subject_for(world, proven, client, request.proven_key)
    if isinstance(subject, Denied):
        return subject
    allowed = _scopes(proven.token.claims)
    if allowed is not None and Scope.TOOLS_CALL not in allowed:
        detail = "the assertion does not allow the scope that is needed"
        return Denied(reason=Reason.INSUFFICIENT_SCOPE, detail=detail, scope=Scope.TOOLS_CALL)
    assert proven.token.jti is not None, "an assertion without a jti was refused above"
    return StandingRequest(
        owner=client,
        client=client,
        subject=subject.subject,
        # Both must mean the same tool server. The request's spelling comes first, since it is what is asked for.
        resource=(*request.resource, *_resource(proven.token.claims)),
        scopes=request.scopes,
        fields=request.fields,
        key_thumbprint=request.key_thumbprint,
        proof=proof_refs(subject),
        spending=Spending(issuer=proven.token.issuer, jti=proven.token.jti, expires_at=proven.token.expires_at),
    )


def _faults(client: Client, token: OutsideToken) -> Iterator[str]:
    """What is wrong with an assertion whose signature, times, `aud` and `typ` hold."""
    claims = token.claims
    if claims.get("client_id") != client.client_id:
        yield "the assertion is for another client"
    if token.jti is None:
        yield "the assertion has no jti"
    if claims.get("aud_tenant", client.tenant_id) != client.tenant_id:
        yield "the assertion is for another tenant"
    for name in NOT_UNDERSTOOD:
        if name in claims:
            yield f"the assertion has the claim {name}, which is not understood"
    if "scope" in claims and not isinstance(claims["scope"], str):
        yield "the assertion's scope is no string"
    if "resource" in claims and not _resource(claims):
        yield "the assertion's resource is no URI"


def _scopes(claims: JsonObject) -> frozenset[str] | None:
    scope = claims.get("scope")
    return frozenset(scope.split(" ")) if isinstance(scope, str) else None


def _resource(claims: JsonObject) -> tuple[str, ...]:
    """The resources that the assertion names (RFC 8707 §2); nothing where any of it is no string."""
    named: JsonValue = claims.get("resource")
    each = named if isinstance(named, list) else [named]
    texts = tuple(one for one in each if isinstance(one, str))
    return texts if len(texts) == len(each) else ()
