"""Exchange a grant, or a token for one, for something narrower (RFC 8693).

Every exchange makes a node below the subject's, so that budgets and closing reach it. It is redelegation when
the actor or the run differs from the subject's, or a delegation grant is asked for. `act` is always rebuilt
from the stored lineage; nothing that a presented token says of its history is copied.
"""

from dataclasses import dataclass, field, replace

from app.core.grant import Audience, ClientId, Grant, GrantChain, GrantId, render_grant
from app.core.reasons import Reason
from app.core.registry import Client, Scope
from app.core.strict_json import JsonObject, canonical
from app.ports import TokenRefused, Transaction
from app.usecases.delegation_evidence import creation_events, exchange_event, record_refusal
from app.usecases.derive_grant import NOT_PERMITTED, Node, Parties, add_node
from app.usecases.failures import Denied, Malformed
from app.usecases.find_facts import Known, with_facts
from app.usecases.load_chain import Lineage, death, load_lineage
from app.usecases.mint_grant import active_client
from app.usecases.read_wish import NarrowingFields, resolve_audience
from app.usecases.world import Caller, World

ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
DELEGATION_GRANT = "urn:subgrant:params:oauth:token-type:delegation-grant"
DETAIL_TYPE = "delegation"
MAX_SHOWN_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRequest:
    """The parameters of RFC 8693 §2.1, parsed. `resource` holds `resource` and `audience` alike."""

    subject_token: str = field(repr=False)
    subject_token_type: str
    actor_token: str | None = field(default=None, repr=False)
    resource: tuple[str, ...] = ()
    scopes: frozenset[str] | None = None
    requested_token_type: str = ACCESS_TOKEN
    fields: NarrowingFields = field(default_factory=NarrowingFields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """What was issued: an access token for one tool server, or a signed child grant."""

    token: str = field(repr=False)
    issued_token_type: str
    expires_in_seconds: int
    grant: Grant

    @property
    def details(self) -> JsonObject:
        """What was granted, as the response's `authorization_details` echo it (RFC 9396 §7)."""
        return {"type": DETAIL_TYPE, **render_grant(self.grant)}


async def exchange_token(world: World, client: Client, request: ExchangeRequest) -> Exchanged | Denied:
    """The narrower token or grant, or why there is none. Raises Malformed, Conflict, AlreadyExists."""
    return await with_facts(world, lambda known: _attempt(world, client, request, known))


async def _attempt(world: World, client: Client, request: ExchangeRequest, known: Known) -> Exchanged | Denied:
    async with world.store.write() as tx:
        lineage = await _subject(tx, world, client, request)
        made = lineage if isinstance(lineage, Denied) else await _exchange(tx, world, client, lineage, request, known)
        if isinstance(made, Denied):
            parent = None if isinstance(lineage, Denied) else lineage.chain.leaf
            refused = await record_refusal(tx, world, client.client_id, client.tenant_id, made, parent)
            await tx.commit()
            return refused
        token_id = world.new_id("at")
        exchanged = _issue(world, client, made, request, token_id)
        events = [exchange_event(world, client.client_id, made.grant, request.requested_token_type, token_id)]
        if request.requested_token_type == DELEGATION_GRANT:
            events = [*creation_events(world, client.client_id, made.grant), *events]
        await tx.audit.append(client.tenant_id, events)
        await tx.commit()
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
    tx: Transaction, world: World, client: Client, lineage: Lineage, request: ExchangeRequest, known: Known
) -> Node | Denied:
    if not lineage.permits(Caller(client_id=client.client_id, tenant_id=client.tenant_id)):
        return NOT_PERMITTED
    dead = await death(tx, world, lineage)
    if dead is not None:
        return dead
    subject = lineage.chain.leaf
    actor = await _actor(tx, world, client, request)
    if isinstance(actor, Denied):
        return actor
    if request.scopes is not None and not request.scopes <= {Scope.TOOLS_CALL}:
        detail = "a token for a tool server has the scope tools:call alone"
        return Denied(reason=Reason.INSUFFICIENT_SCOPE, detail=detail, scope=Scope.TOOLS_CALL)
    audience = await _audience(tx, world, subject, request)
    if isinstance(audience, Denied):
        return audience
    run = request.fields.child_run_id or subject.child_run_id
    asks_for_grant = request.requested_token_type == DELEGATION_GRANT
    parties = Parties(
        actor=actor,
        issued_by=client,
        holder=ClientId(actor),
        child_run_id=run,
        as_grant=asks_for_grant,
        max_lifetime=None if asks_for_grant else world.rules.max_access_token_lifetime,
        lifetime=client.ceiling.max_lifetime if asks_for_grant else world.rules.access_token_lifetime,
    )
    uris = tuple(item.uri for item in audience)
    return await add_node(tx, world, lineage, replace(request.fields, audience=uris), parties, known)


async def _actor(tx: Transaction, world: World, client: Client, request: ExchangeRequest) -> str | Denied:
    """Who will act: the client of the actor token, else the client that exchanges."""
    if request.actor_token is None:
        return client.client_id
    try:
        access = world.signer.verify_access_token(request.actor_token, world.clock())
    except TokenRefused as refused:
        return Denied(reason=refused.reason, detail=refused.detail)
    if access.tenant_id != client.tenant_id:
        return Denied(reason=Reason.TENANT_MISMATCH, detail="the actor token is of another tenant")
    actor = await active_client(tx, client.tenant_id, access.client_id, "")
    return actor if isinstance(actor, Denied) else actor.client_id


async def _audience(
    tx: Transaction, world: World, subject: Grant, request: ExchangeRequest
) -> tuple[Audience, ...] | Denied:
    """The audience asked for: one for an access token, a subset for a grant, the sole one when left out."""
    uris = request.resource or request.fields.audience or ()
    if request.resource and request.fields.audience and set(request.resource) != set(request.fields.audience):
        raise Malformed("/audience", "resource and the audience in authorization_details differ")
    resolved = [await resolve_audience(tx, world, subject.tenant_id, uri) for uri in dict.fromkeys(uris)]
    audience = tuple(item for item in resolved if item is not None) if uris else subject.audience
    refused = Denied(reason=Reason.TARGET_REFUSED, detail="the grant does not reach this target")
    if len(audience) < len(resolved) or not {item.server for item in audience} <= subject.servers:
        return refused
    if request.requested_token_type == ACCESS_TOKEN and len(audience) != 1:
        return replace(refused, detail="an access token is for exactly one tool server: name it as resource")
    return audience


def _issue(world: World, client: Client, node: Node, request: ExchangeRequest, token_id: str) -> Exchanged:
    grant = node.grant
    is_grant = request.requested_token_type == DELEGATION_GRANT
    try:
        token = node.signed if is_grant else world.signer.sign_access_token(_claims(client, node.chain, token_id))
    except ValueError as error:
        raise Malformed("", f"the token can't be issued: {error}") from error
    return Exchanged(
        token=token,
        issued_token_type=request.requested_token_type,
        expires_in_seconds=max(0, int((grant.expires_at - world.clock()).total_seconds())),
        grant=grant,
    )


def _claims(client: Client, chain: GrantChain, token_id: str) -> JsonObject:
    """The claims of an access token for a tool server (RFC 9068 §2.2, RFC 8693 §4)."""
    grant = chain.leaf
    return {
        "aud": grant.audience[0].uri,
        "sub": grant.subject,
        "act": chain.actors,
        "client_id": client.client_id,
        "tenant_id": grant.tenant_id,
        "grant_id": grant.grant_id,
        "scope": Scope.TOOLS_CALL.value,
        "jti": token_id,
        "iat": int(grant.issued_at.timestamp()),
        "nbf": int(grant.not_before.timestamp()),
        "exp": int(grant.expires_at.timestamp()),
        "authorization_details": [_shown(grant)],
    }


def _shown(grant: Grant) -> JsonObject:
    # A token travels in a header: it names its grant, and says what it allows only where that is short.
    document = render_grant(grant)
    summary = {name: document[name] for name in ("allowedTools", "maxToolCalls", "maxSpendCents", "mayRedelegate")}
    named: JsonObject = {"type": DETAIL_TYPE, "grantId": grant.grant_id}
    return named | summary if len(canonical(summary)) <= MAX_SHOWN_BYTES else named
