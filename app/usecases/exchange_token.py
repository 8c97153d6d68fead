"""Exchange a grant, or a token for one, for something narrower (RFC 8693).

Every exchange makes a node below the subject's, so that budgets and closing reach it. It is redelegation when
the actor or the run differs from the subject's, or a delegation grant is asked for. `act` is always rebuilt
from the stored lineage; nothing that a presented token says of its history is copied.

Another issuer's token proves a party and holds no authority: for its subject that is the calling client's standing
grant.
"""

from dataclasses import dataclass, field, replace

from app.core.grant import Audience, ClientId, Grant, GrantId
from app.core.reasons import Reason
from app.core.registry import Client, Scope
from app.ports import AccessToken, TokenRefused, Transaction
from app.usecases.delegation_evidence import creation_events, exchange_event, proof_refs, record_refusal_alone
from app.usecases.derive_grant import NOT_PERMITTED, Node, Parties, add_node
from app.usecases.failures import Denied, Malformed
from app.usecases.find_facts import Known, with_facts
from app.usecases.issue_under_standing_grant import (
    USED,
    Spending,
    StandingRequest,
    issue_under_standing_grant,
    spent_now,
)
from app.usecases.issued_token import ACCESS_TOKEN, DELEGATION_GRANT, Exchanged, issued_token
from app.usecases.load_chain import Lineage, death, load_lineage
from app.usecases.mint_grant import active_client
from app.usecases.prove_parties import OUTSIDE_TYPES, Actor, proven_actor, proven_subject
from app.usecases.read_wish import MAX_AUDIENCES, NarrowingFields, resolve_audience
from app.usecases.revoke_token import is_revoked
from app.usecases.world import Caller, World


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRequest:
    """The parameters of RFC 8693 §2.1, parsed. `resource` holds `resource` and `audience` alike."""

    subject_token: str = field(repr=False)
    subject_token_type: str
    actor_token: str | None = field(default=None, repr=False)
    actor_token_type: str | None = None
    resource: tuple[str, ...] = ()
    scopes: frozenset[str] | None = None
    requested_token_type: str = ACCESS_TOKEN
    fields: NarrowingFields = field(default_factory=NarrowingFields)
    key_thumbprint: str | None = None
    """The key that what is issued is bound to; None for the subject's."""
    proven_key: str | None = None
    """The key that whoever asks has proven (RFC 9449 §5)."""


UNPROVEN_SUBJECT = Denied(
    reason=Reason.PROOF_INVALID, detail="the subject token is bound to a key: a DPoP proof of that key is missing"
)
UNPROVEN_ACTOR = Denied(
    reason=Reason.PROOF_INVALID, detail="the actor token is bound to a key that is neither proven nor to be bound to"
)


async def exchange_token(world: World, client: Client, request: ExchangeRequest) -> Exchanged | Denied:
    """The narrower token or grant, or why there is none. Raises Malformed, Conflict, AlreadyExists."""
    actor = await _actor(world, client, request)
    if isinstance(actor, Denied):
        return await record_refusal_alone(world, client.client_id, client.tenant_id, actor)
    if request.subject_token_type in OUTSIDE_TYPES:
        return await _for_outsider(world, client, actor, request)
    return await with_facts(world, lambda known: _attempt(world, client, actor, request, known))


async def _for_outsider(world: World, client: Client, actor: Actor, request: ExchangeRequest) -> Exchanged | Denied:
    subject = await proven_subject(world, request.subject_token, actor.client, request.proven_key)
    if isinstance(subject, Denied):
        return await record_refusal_alone(world, client.client_id, client.tenant_id, subject)
    wanted = StandingRequest(
        owner=client,
        client=client,
        actor=actor.client.client_id,
        subject=subject.subject,
        resource=request.resource,
        scopes=request.scopes,
        requested_token_type=request.requested_token_type,
        fields=request.fields,
        key_thumbprint=request.key_thumbprint,
        spending=_spending(actor),
        proof=proof_refs(subject, actor.proven),
    )
    return await issue_under_standing_grant(world, wanted)


def _spending(actor: Actor) -> Spending | None:
    """What is used up with an actor token: the same as where it proves who asks, so that it is good once as either."""
    if actor.proven is None or not actor.proven.issuer.single_use:
        return None
    token = actor.proven.token
    assert token.jti is not None, "what can't be told apart is refused when it is proven"
    return Spending(issuer=token.issuer, jti=token.jti, expires_at=token.expires_at)


async def _attempt(
    world: World, client: Client, actor: Actor, request: ExchangeRequest, known: Known
) -> Exchanged | Denied:
    parent: Grant | None = None
    async with world.store.write() as tx:
        # Before any lineage is locked, as everywhere: so nobody waits for somebody who waits for it.
        if not await spent_now(tx, world, client.tenant_id, _spending(actor)):
            made: Node | Denied = USED
        elif isinstance(lineage := await _subject(tx, world, client, request), Denied):
            made = lineage
        else:
            parent = lineage.chain.leaf
            made = await _exchange(tx, world, client, actor.client, lineage, request, known)
        if not isinstance(made, Denied):
            exchanged = await _issued(tx, world, client, actor, made, request)
            await tx.commit()
            return exchanged
    # The transaction takes back with it what a refused request had spent.
    return await record_refusal_alone(world, client.client_id, client.tenant_id, made, parent=parent)


async def _issued(
    tx: Transaction, world: World, client: Client, actor: Actor, made: Node, request: ExchangeRequest
) -> Exchanged:
    """The token for the new node, on record."""
    token_id, issued, proof = world.new_id("at"), request.requested_token_type, proof_refs(None, actor.proven)
    exchanged = issued_token(world, client, made, issued, token_id)
    events = [exchange_event(world, client.client_id, made.grant, issued, token_id, proof)]
    if issued == DELEGATION_GRANT:
        events = [*creation_events(world, client.client_id, made.grant), *events]
    await tx.audit.append(client.tenant_id, events)
    return exchanged


async def _subject(tx: Transaction, world: World, client: Client, request: ExchangeRequest) -> Lineage | Denied:
    """The locked lineage that the subject token names, dead or alive."""
    named = _subject_grant(world, request)
    if isinstance(named, Denied):
        return named
    tenant_id, grant_id = named
    if tenant_id != client.tenant_id:
        return Denied(reason=Reason.TENANT_MISMATCH, detail="the subject token is of another tenant")
    lineage = await load_lineage(tx, world, client.tenant_id, grant_id, lock=True)
    if lineage is None:
        return Denied(reason=Reason.TOKEN_INVALID, detail="the subject token names no grant")
    if isinstance(lineage, Lineage) and lineage.chain.leaf.key_thumbprint not in {None, request.proven_key}:
        return UNPROVEN_SUBJECT
    return lineage


def _subject_grant(world: World, request: ExchangeRequest) -> "tuple[str, GrantId] | Denied":
    try:
        if request.subject_token_type == DELEGATION_GRANT:
            grant = world.signer.verify_grant(request.subject_token).grant
            return grant.tenant_id, grant.grant_id
        access = world.signer.verify_access_token(request.subject_token, world.clock())
    except TokenRefused as refused:
        return Denied(reason=refused.reason, detail=refused.detail)
    if access.grant_id is None:
        return Denied(reason=Reason.TOKEN_INVALID, detail="the subject token names no grant")
    return access.tenant_id, access.grant_id


async def _exchange(
    tx: Transaction,
    world: World,
    client: Client,
    actor: Client,
    lineage: Lineage,
    request: ExchangeRequest,
    known: Known,
) -> Node | Denied:
    if not lineage.permits(Caller(client_id=client.client_id, tenant_id=client.tenant_id)):
        return NOT_PERMITTED
    subject = lineage.chain.leaf
    dead = await death(tx, world, lineage)
    if dead is not None:
        return dead
    acting = await active_client(tx, client.tenant_id, actor.client_id, "")
    if isinstance(acting, Denied):
        return acting
    if request.scopes is not None and not request.scopes <= {Scope.TOOLS_CALL}:
        detail = "a token for a tool server has the scope tools:call alone"
        return Denied(reason=Reason.INSUFFICIENT_SCOPE, detail=detail, scope=Scope.TOOLS_CALL)
    audience = await _audience(tx, world, subject, request)
    if isinstance(audience, Denied):
        return audience
    run = request.fields.child_run_id or subject.child_run_id
    asks_for_grant = request.requested_token_type == DELEGATION_GRANT
    parties = Parties(
        actor=acting.client_id,
        issued_by=client,
        holder=acting.client_id,
        child_run_id=run,
        as_grant=asks_for_grant,
        max_lifetime=None if asks_for_grant else world.rules.max_access_token_lifetime,
        lifetime=client.ceiling.max_lifetime if asks_for_grant else world.rules.access_token_lifetime,
        key_thumbprint=request.key_thumbprint,
    )
    uris = tuple(item.uri for item in audience)
    return await add_node(tx, world, lineage, replace(request.fields, audience=uris), parties, known)


async def _actor(world: World, client: Client, request: ExchangeRequest) -> Actor | Denied:
    """Who will act: the client that the actor token proves, else the client that exchanges."""
    if request.actor_token is None:
        return Actor(client=client)
    if request.actor_token_type in OUTSIDE_TYPES:
        return await proven_actor(world, client.tenant_id, request.actor_token, request.proven_key)
    try:
        access = world.signer.verify_access_token(request.actor_token, world.clock())
    except TokenRefused as refused:
        return Denied(reason=refused.reason, detail=refused.detail)
    if access.tenant_id != client.tenant_id:
        return Denied(reason=Reason.TENANT_MISMATCH, detail="the actor token is of another tenant")
    # What is bound to the actor's own key is of use to nobody but the actor, who then need not prove it here.
    if access.key_thumbprint not in {None, request.proven_key, request.key_thumbprint}:
        return UNPROVEN_ACTOR
    async with world.store.read() as tx:
        holder = await _acting(tx, world, access)
        acting = holder if isinstance(holder, Denied) else await active_client(tx, client.tenant_id, holder, "")
    return acting if isinstance(acting, Denied) else Actor(client=acting)


async def _acting(tx: Transaction, world: World, access: AccessToken) -> ClientId | Denied:
    """Whom a token proves that is still good (RFC 8693 §2.2.2).

    For a tool server's token that is who holds its grant: `client_id` names who asked for it (RFC 9068 §2.2), and
    an agent that was handed one would act in the name of whoever handed it over.
    """
    if access.grant_id is None:
        if await is_revoked(tx, world, access):
            return Denied(reason=Reason.TOKEN_INVALID, detail="the actor token was revoked")
        is_ours = access.audience == world.rules.issuer
        elsewhere = Denied(reason=Reason.AUDIENCE_MISMATCH, detail="the token is for another audience")
        return access.client_id if is_ours else elsewhere
    lineage = await load_lineage(tx, world, access.tenant_id, access.grant_id, lock=False)
    if not isinstance(lineage, Lineage):
        return lineage or Denied(reason=Reason.TOKEN_INVALID, detail="the actor token names no grant")
    return await death(tx, world, lineage) or lineage.chain.leaf.holder


async def _audience(
    tx: Transaction, world: World, subject: Grant, request: ExchangeRequest
) -> tuple[Audience, ...] | Denied:
    """The audience asked for: one for an access token, a subset for a grant, the sole one when left out."""
    uris = request.resource or request.fields.audience or ()
    if request.resource and request.fields.audience and set(request.resource) != set(request.fields.audience):
        raise Malformed("/audience", "resource and the audience in authorization_details differ")
    if len(uris) > MAX_AUDIENCES:
        raise Malformed("/audience", f"at most {MAX_AUDIENCES} audiences")
    resolved = [await resolve_audience(tx, world, subject.tenant_id, uri) for uri in dict.fromkeys(uris)]
    audience = tuple(item for item in resolved if item is not None) if uris else subject.audience
    refused = Denied(reason=Reason.TARGET_REFUSED, detail="the grant does not reach this target")
    if len(audience) < len(resolved) or not {item.server for item in audience} <= subject.servers:
        return refused
    if request.requested_token_type == ACCESS_TOKEN and len(audience) != 1:
        return replace(refused, detail="an access token is for exactly one tool server: name it as resource")
    return audience
