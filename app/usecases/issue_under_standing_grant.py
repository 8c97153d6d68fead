"""Issue a token under a client's standing grant: the one way to a tool server that begins with no grant.

Every flow that proves a client, and maybe a subject, ends here: client credentials (RFC 6749 §4.4), authorization
codes (§4.1), identity assertions (RFC 7523 §2.1) and another issuer's subject tokens (RFC 8693 §2.1). The authority
is what an administrator once gave the owner, so that a token is a node below it and never a budget of its own.
Refuses to know how anybody was proven.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from app.core.grant import Audience, ClientId, GrantId, RunId, ServerName, TenantId
from app.core.reasons import Reason
from app.core.registry import Client, Scope
from app.core.strict_json import JsonObject
from app.ports import AlreadyExists, Transaction
from app.usecases.delegation_evidence import creation_events, exchange_event, record_refusal_alone
from app.usecases.derive_grant import Node, Parties, add_node
from app.usecases.failures import Denied, Malformed
from app.usecases.find_facts import Known, with_facts
from app.usecases.issued_token import ACCESS_TOKEN, DELEGATION_GRANT, Exchanged, issued_token
from app.usecases.load_chain import Lineage, death, load_lineage
from app.usecases.mint_grant import active_client
from app.usecases.read_wish import MAX_AUDIENCES, NarrowingFields, resolve_audience
from app.usecases.world import CLOCK_MARGIN, World

MAX_ID_CHARS: Final = 255
"""How long an issuer or a `jti` may be that is kept as spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What is used up by the token that is issued for it: who issued it, its `jti`, and how long it could be used."""

    issuer: str
    jti: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingRequest:
    """Who wants a token under whose standing grant.

    `client` is who authenticated; it acts itself unless `actor` names another. `subject` is whom a trusted issuer
    proved, else it is the owner. `resource` names the tool server, which may be left out where the owner has a
    standing grant for one alone.
    """

    owner: Client
    client: Client
    actor: ClientId | None = None
    subject: str | None = None
    resource: tuple[str, ...] = ()
    scopes: frozenset[str] | None = None
    requested_token_type: str = ACCESS_TOKEN
    fields: NarrowingFields = field(default_factory=NarrowingFields)
    key_thumbprint: str | None = None
    spending: Spending | None = None
    proof: JsonObject = field(default_factory=dict)
    """What the log says of the tokens by which the parties were proven."""


NO_STANDING_GRANT = Denied(
    reason=Reason.TARGET_REFUSED, detail="no standing grant for this tool server: an administrator makes one"
)
USED = Denied(reason=Reason.TOKEN_INVALID, detail="it was used before")


async def issue_under_standing_grant(world: World, request: StandingRequest) -> Exchanged | Denied:
    """The token or grant, or why there is none. What is spent is spent on the new node, and only if there is one.

    Raises Malformed, Conflict, AlreadyExists.
    """
    return await with_facts(world, lambda known: _attempt(world, request, known))


async def _attempt(world: World, request: StandingRequest, known: Known) -> Exchanged | Denied:
    async with world.store.write() as tx:
        issued = await _issue(tx, world, request, known)
        if not isinstance(issued, Denied):
            await tx.commit()
            return issued
    # The transaction takes back with it what a refused request had spent.
    return await record_refusal_alone(world, request.client.client_id, request.client.tenant_id, issued)


async def _issue(tx: Transaction, world: World, request: StandingRequest, known: Known) -> Exchanged | Denied:
    grant_id = GrantId(world.new_id("gr"))
    if not await spent_now(tx, world, request.client.tenant_id, request.spending, on=grant_id):
        return USED
    if request.scopes is not None and not request.scopes <= {Scope.TOOLS_CALL}:
        detail = "a token for a tool server has the scope tools:call alone"
        return Denied(reason=Reason.INSUFFICIENT_SCOPE, detail=detail, scope=Scope.TOOLS_CALL)
    node = await _node(tx, world, request, grant_id, known)
    if isinstance(node, Denied):
        return node
    token_id = world.new_id("at")
    client_id, token_type = request.client.client_id, request.requested_token_type
    events = [exchange_event(world, client_id, node.grant, token_type, token_id, request.proof)]
    if token_type == DELEGATION_GRANT:
        events = [*creation_events(world, client_id, node.grant), *events]
    await tx.audit.append(node.grant.tenant_id, events)
    return issued_token(world, request.client, node, token_type, token_id)


async def spent_now(
    tx: Transaction, world: World, tenant_id: TenantId, spending: Spending | None, on: str | None = None
) -> bool:
    """Whether nothing stands against the use of what is presented. It is used from now on, once committed."""
    if spending is None:
        return True
    if max(len(spending.issuer), len(spending.jti)) > MAX_ID_CHARS:
        return False
    expires_at, now = spending.expires_at + CLOCK_MARGIN, world.clock()
    return await tx.spent.spend(tenant_id, spending.issuer, spending.jti, expires_at=expires_at, now=now, on=on)


async def _node(
    tx: Transaction, world: World, request: StandingRequest, grant_id: GrantId, known: Known
) -> Node | Denied:
    client = await active_client(tx, request.client.tenant_id, request.client.client_id, "")
    actor = await active_client(tx, request.client.tenant_id, request.actor or request.client.client_id, "")
    found = await _standing(tx, world, request)
    for refused in (client, actor, found):
        if isinstance(refused, Denied):
            return refused
    assert isinstance(client, Client)
    assert isinstance(actor, Client)
    assert not isinstance(found, Denied)
    lineage, audience = found
    if request.fields.child_run_id == lineage.chain.leaf.child_run_id:
        # The run of the standing grant is nobody's: tokens of two subjects in one run would share its answers.
        raise AlreadyExists("childRunId")
    parties = _parties(world, request, client, actor, grant_id)
    return await add_node(tx, world, lineage, replace(request.fields, audience=(audience.uri,)), parties, known)


def _parties(world: World, request: StandingRequest, client: Client, actor: Client, grant_id: GrantId) -> Parties:
    """Whose the node is. A token's lives shortly, a delegation grant's as long as its client's limits allow."""
    is_grant = request.requested_token_type == DELEGATION_GRANT
    return Parties(
        actor=actor.client_id,
        issued_by=client,
        holder=actor.client_id,
        child_run_id=request.fields.child_run_id or RunId(world.new_id("run")),
        as_grant=is_grant,
        max_lifetime=None if is_grant else world.rules.max_access_token_lifetime,
        lifetime=client.ceiling.max_lifetime if is_grant else world.rules.access_token_lifetime,
        grant_id=grant_id,
        subject=request.subject,
        key_thumbprint=request.key_thumbprint,
    )


async def _standing(tx: Transaction, world: World, request: StandingRequest) -> tuple[Lineage, Audience] | Denied:
    """The owner's standing grant for the target, locked and alive, and the audience as it was asked for."""
    owner = await active_client(tx, request.client.tenant_id, request.owner.client_id, "")
    if isinstance(owner, Denied):
        return NO_STANDING_GRANT
    audience = await _target(tx, world, owner, request)
    if audience is None:
        return NO_STANDING_GRANT
    lineage = await standing_lineage(tx, world, owner, audience.server, lock=True)
    if lineage is None or await death(tx, world, lineage) is not None:
        return NO_STANDING_GRANT
    return lineage, audience


async def _target(tx: Transaction, world: World, owner: Client, request: StandingRequest) -> Audience | None:
    """The one tool server that is asked for, by whichever of its names: of several, the first is the token's `aud`.

    Where none is named it is the sole one of the owner's standing grants.
    """
    uris = dict.fromkeys((*request.resource, *(request.fields.audience or ())))
    if len(uris) > MAX_AUDIENCES:
        raise Malformed("/audience", f"at most {MAX_AUDIENCES} audiences")
    named = [await resolve_audience(tx, world, owner.tenant_id, uri) for uri in uris]
    if named:
        return named[0] if len({item and item.server for item in named}) == 1 else None
    servers = [await tx.registry.server(owner.tenant_id, ServerName(name)) for name in owner.standing_grants]
    found = [Audience(server.audience, server.name) for server in servers if server is not None and server.active]
    return found[0] if len(servers) == len(found) == 1 else None


async def standing_lineage(
    tx: Transaction, world: World, owner: Client, server: ServerName, *, lock: bool
) -> Lineage | None:
    """The owner's standing grant for a tool server, dead or alive.

    The registry only says where to look. What is not signed as the owner's standing grant is none.
    """
    grant_id = owner.standing_grants.get(server)
    if grant_id is None:
        return None
    lineage = await load_lineage(tx, world, owner.tenant_id, GrantId(grant_id), lock=lock)
    if not isinstance(lineage, Lineage):
        return None
    grant = lineage.chain.leaf
    return lineage if grant.standing and grant.holder == owner.client_id else None
