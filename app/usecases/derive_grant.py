"""Derive a child from a grant: the one place where a node is added below another, for REST and OAuth alike."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from app.core.attenuation import Birth, Wish, attenuate, things_to_ask_about
from app.core.budget import Amount
from app.core.grant import ClientId, Grant, GrantChain, GrantId, RunId, ServerName, extended
from app.core.narrowing import Refusal
from app.core.reasons import Reason
from app.core.registry import Client, Scope, ToolServer
from app.core.resources import ResourceRef, Resources
from app.ports import Transaction
from app.usecases.delegation_evidence import creation_events, record_refusal
from app.usecases.failures import Conflict, DeadGrant, Denied, NotFound, UnverifiableGrant
from app.usecases.find_facts import Known, Wanting, resources_for, with_facts
from app.usecases.load_chain import Lineage, death, load_lineage
from app.usecases.mint_grant import APPS_ASK, SignedGrant, active_client, refusal_of, sized
from app.usecases.prove_possession import unbound
from app.usecases.read_wish import NarrowingFields, read_wish, resolve_audiences
from app.usecases.world import Caller, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Parties:
    """For whom a node is made, and by whom; `as_grant` where it is a delegation grant and no token's node.

    `lifetime` is the most where the request has no expiry, `max_lifetime` the most in any case. `subject` is whom a
    trusted issuer proved, and `key_thumbprint` the key that the node is bound to; None takes the parent's.
    """

    actor: str
    issued_by: Client
    holder: ClientId
    child_run_id: RunId
    as_grant: bool
    lifetime: timedelta
    max_lifetime: timedelta | None = None
    grant_id: GrantId | None = None
    subject: str | None = None
    key_thumbprint: str | None = None

    @property
    def ceiling(self) -> Amount | None:
        """What bounds a budget that is left out: the asking client's limit, where an administrator gave it one."""
        limit = self.issued_by.ceiling.limit
        return None if limit == Amount() else limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A new node with its signed grant and the chain that ends in it."""

    chain: GrantChain
    signed: str = field(repr=False)

    @property
    def grant(self) -> Grant:
        return self.chain.leaf


async def derive_grant(
    world: World, caller: Caller, parent_id: GrantId, fields: NarrowingFields, holder: ClientId | None
) -> SignedGrant | Denied:
    """A child grant: redelegation, in REST's spelling. Raises NotFound, Conflict, Malformed, AlreadyExists."""
    return await with_facts(world, lambda known: _attempt(world, caller, parent_id, fields, holder, known))


async def _attempt(
    world: World, caller: Caller, parent_id: GrantId, fields: NarrowingFields, holder: ClientId | None, known: Known
) -> SignedGrant | Denied:
    async with world.store.write() as tx:
        lineage = await load_lineage(tx, world, caller.tenant_id, parent_id, lock=True)
        if lineage is None or not (sees(caller, lineage) or await _is_ancestor(tx, caller, parent_id)):
            raise NotFound("no such grant")
        if isinstance(lineage, Denied) and caller.grant_id is None:
            raise UnverifiableGrant
        if isinstance(lineage, Lineage):
            node = await _derive(tx, world, caller, lineage, fields, holder, known)
        else:
            node = lineage
        if isinstance(node, Denied):
            parent = lineage.chain.leaf if isinstance(lineage, Lineage) else None
            who = (caller.client_id, caller.tenant_id)
            refused = await record_refusal(tx, world, *who, node, parent, through=caller.through)
            await tx.commit()
            return refused
        await tx.audit.append(caller.tenant_id, creation_events(world, caller.client_id, node.grant))
        await tx.commit()
    return SignedGrant(grant=node.grant, signed=node.signed)


def sees(caller: Caller, lineage: Lineage | Denied) -> bool:
    """Whether a grant exists for this caller at all."""
    return isinstance(lineage, Denied) or caller.sees_whole_tenant or lineage.permits(caller)


async def _is_ancestor(tx: Transaction, caller: Caller, grant_id: GrantId) -> bool:
    # A token's own ancestors are no secret to it; to derive from one is refused with its reason.
    if caller.grant_id is None:
        return False
    return grant_id in {link.grant_id for link in await tx.grants.chain(caller.tenant_id, caller.grant_id)}


async def _derive(
    tx: Transaction,
    world: World,
    caller: Caller,
    lineage: Lineage,
    fields: NarrowingFields,
    holder: ClientId | None,
    known: Known,
) -> Node | Denied:
    objection = APPS_ASK if caller.through is not None else await objection_to(tx, caller, lineage)
    if objection is not None:
        return objection
    dead = await death(tx, world, lineage)
    if dead is not None and caller.grant_id is None:
        raise DeadGrant(dead.reason, dead.detail)
    issuer = await active_client(tx, caller.tenant_id, caller.client_id, "")
    holding = await active_client(tx, caller.tenant_id, holder or lineage.chain.leaf.holder, "/holder")
    for refused in (dead, issuer, holding):
        if isinstance(refused, Denied):
            return refused
    assert isinstance(issuer, Client)
    assert isinstance(holding, Client)
    parties = Parties(
        actor=holding.client_id,
        issued_by=issuer,
        holder=holding.client_id,
        child_run_id=fields.child_run_id or RunId(world.new_id("run")),
        as_grant=True,
        lifetime=issuer.ceiling.max_lifetime,
    )
    return await add_node(tx, world, lineage, fields, parties, known)


async def objection_to(tx: Transaction, caller: Caller, lineage: Lineage) -> Denied | None:
    """Why the caller may neither derive from a grant nor close it, dead or alive."""
    if not (lineage.permits(caller) or caller.has(Scope.ADMIN)):
        return NOT_PERMITTED
    if caller.grant_id is not None:
        return await unbound(tx, caller, lineage.chain)
    return ONLY_READS if await _was_narrowed(tx, caller) else None


async def _was_narrowed(tx: Transaction, caller: Caller) -> bool:
    """Whether the token may do less than whose it is, so that it only reads.

    A client without any of these scopes is let act with grants by what it holds, as at the token endpoint; whatever
    an application is let do, it is let do by its scopes alone.
    """
    if caller.scopes & MAY_ACT:
        return False
    client = await tx.registry.client(caller.client_id)
    return caller.through is not None or client is None or bool(client.scopes & MAY_ACT)


NOT_PERMITTED = Denied(
    reason=Reason.ACTOR_NOT_PERMITTED, detail="the caller neither holds nor issued this grant or an ancestor"
)
MAY_ACT = frozenset({Scope.GRANTS_ISSUE, Scope.TOOLS_CALL, Scope.ADMIN, Scope.PLATFORM})
"""What a token for the API needs one of to derive from grants or close them, where its client has any."""
ONLY_READS = Denied(
    reason=Reason.INSUFFICIENT_SCOPE,
    detail="to derive from a grant or to close it needs the scope grants:issue or tools:call",
    scope=Scope.GRANTS_ISSUE,
)


async def add_node(
    tx: Transaction, world: World, lineage: Lineage, fields: NarrowingFields, parties: Parties, known: Known
) -> Node | Denied:
    """Prove, sign and store a child of a living, locked lineage.

    Raises Malformed, Conflict, AlreadyExists, and Wanting for facts that are not known yet.
    """
    parent = lineage.chain.leaf
    refused = await _unfit(tx, world, lineage, fields)
    if refused is not None:
        return refused
    audience = parent.audience
    if fields.audience is not None:
        resolved = await resolve_audiences(tx, world, parent.tenant_id, fields.audience)
        if isinstance(resolved, Denied):
            return resolved
        audience = resolved
    if not {item.server for item in audience} <= parent.servers:
        detail = "the audience is not among the parent grant's"
        return Denied(reason=Reason.TARGET_REFUSED, detail=detail, pointer="/audience")
    now = world.clock()
    wish = read_wish(fields, audience, now, inherited=parent.tools)
    child = attenuate(
        lineage.chain,
        wish,
        Birth(
            grant_id=parties.grant_id or GrantId(world.new_id("gr")),
            actor=parties.actor,
            issued_by=parties.issued_by.client_id,
            holder=parties.holder,
            child_run_id=parties.child_run_id,
            now=now,
            subject=parties.subject,
            key_thumbprint=parties.key_thumbprint,
        ),
        left=lineage.left,
        ceiling=parties.ceiling,
        lifetime=parties.lifetime,
        as_grant=parties.as_grant,
        resources=await _resources(tx, known, wish, parent),
    )
    if isinstance(child, Refusal):
        return refusal_of(child)
    beyond = await _beyond(tx, child, parties)
    if beyond is not None:
        return beyond
    return await _store(tx, world, lineage, sized(world, child))


async def _beyond(tx: Transaction, child: Grant, parties: Parties) -> Denied | None:
    """What the service or the tenant has against a child that is within its parent."""
    if parties.max_lifetime is not None and child.expires_at - child.issued_at > parties.max_lifetime:
        detail = "an access token may not live that long; a delegation grant may"
        return Denied(reason=Reason.NOT_NARROWER, detail=detail, pointer="/expiresAt")
    tenant = await tx.registry.tenant(child.tenant_id)
    if tenant is None or not tenant.allows_depth(child.depth):
        detail = "the delegation would be deeper than the tenant allows"
        return Denied(reason=Reason.DEPTH_EXCEEDED, detail=detail, pointer="/maxDepth")
    return None


async def _resources(tx: Transaction, known: Known, wish: Wish, parent: Grant) -> Mapping[ServerName, Resources]:
    """What is on record, by tool server, of what the proof has to know."""
    found: dict[ServerName, Resources] = {}
    wanted: list[tuple[ToolServer, Collection[ResourceRef]]] = []
    for name, refs in things_to_ask_about(wish, parent).items():
        server = await tx.registry.server(parent.tenant_id, name)
        try:
            found[name] = await resources_for(tx, known, parent.tenant_id, server, refs)
        except Wanting as wanting:
            wanted.extend(wanting.things)
    if wanted:
        raise Wanting(parent.tenant_id, things=wanted)
    return found


async def _unfit(tx: Transaction, world: World, lineage: Lineage, fields: NarrowingFields) -> Denied | None:
    parent = lineage.chain.leaf
    if fields.tenant_id not in (None, parent.tenant_id):
        return Denied(reason=Reason.TENANT_MISMATCH, detail="the grant is of another tenant", pointer="/tenantId")
    # A standing grant outlives many tokens, and what those were is no reason to refuse the next.
    live_at = world.clock() if lineage.chain.root.standing else None
    if await tx.grants.children(parent.tenant_id, parent.grant_id, live_at) >= world.rules.max_children_per_grant:
        raise Conflict("the grant has as many children as it may have")
    # The root's account is locked, so nobody else adds to the tree meanwhile.
    if await tx.grants.tree_size(parent.tenant_id, parent.root_grant_id, live_at) >= world.rules.max_grants_per_tree:
        raise Conflict("the tree of grants is as large as it may be")
    return None


async def _store(tx: Transaction, world: World, lineage: Lineage, child: Grant) -> Node:
    chain = extended(lineage.chain, child)
    signed = world.signer.sign_grant(child, chain.actors)
    claims_run = child.child_run_id != lineage.chain.leaf.child_run_id
    await tx.grants.add(child, signed, [grant.grant_id for grant in chain.grants], claims_run=claims_run)
    return Node(chain=chain, signed=signed)
