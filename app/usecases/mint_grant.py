"""Mint a root grant for a client, within the ceiling that an administrator gave it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from app.core.attenuation import Birth, mint
from app.core.grant import (
    Audience,
    ClientId,
    Grant,
    GrantId,
    RunId,
    ServerName,
    TenantId,
    ToolName,
    ToolRef,
    extended,
    render_grant,
)
from app.core.narrowing import Refusal
from app.core.reasons import Reason
from app.core.registry import Client, Scope
from app.core.resource_rules import id_flaw
from app.core.strict_json import canonical
from app.ports import Transaction
from app.usecases.delegation_evidence import creation_events, proof_refs, record_refusal, record_refusal_alone
from app.usecases.failures import Denied, Malformed
from app.usecases.prove_identity import Proven
from app.usecases.prove_parties import proven_subject
from app.usecases.read_wish import NarrowingFields, read_wish, resolve_audiences
from app.usecases.world import Caller, World


@dataclass(frozen=True, slots=True, kw_only=True)
class MintRequest:
    """What an orchestrator asks for. `holder` and `subject` default to the client itself.

    With a `subject_token` a trusted issuer proves the subject, and `subject` may only repeat it.
    """

    fields: NarrowingFields
    subject: str | None = None
    subject_token: str | None = field(default=None, repr=False)
    holder: ClientId | None = None
    parent_run_id: RunId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RootParties:
    """For whom a root is made. `proven_subject` is whom a trusted issuer proved, in the place of `subject`."""

    holder: ClientId
    subject: str
    lifetime: timedelta
    proven_subject: str | None = None
    parent_run_id: RunId | None = None
    is_standing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedGrant:
    """A new grant with its signed compact form."""

    grant: Grant
    signed: str = field(repr=False)


APPS_ASK = Denied(
    reason=Reason.ACTOR_NOT_PERMITTED, detail="an application gets authority over tools by asking a person for it"
)
"""What a person lets an application have ends with the application: a grant of the person's own would not."""


async def mint_grant(world: World, caller: Caller, request: MintRequest) -> SignedGrant | Denied:
    """A signed root grant, or why there is none. Raises Malformed, and AlreadyExists for a used childRunId."""
    if caller.through is not None:
        return await record_refusal_alone(world, caller.client_id, caller.tenant_id, APPS_ASK, caller.through)
    if caller.grant_id is not None or not caller.has(Scope.GRANTS_ISSUE):
        detail = "minting a grant needs the scope grants:issue"
        return Denied(reason=Reason.INSUFFICIENT_SCOPE, detail=detail, scope=Scope.GRANTS_ISSUE)
    proven = await _proven(world, caller, request)
    if isinstance(proven, Denied):
        return await record_refusal_alone(world, caller.client_id, caller.tenant_id, proven)
    async with world.store.write() as tx:
        client = await tx.registry.client(caller.client_id)
        assert client is not None, "the caller's client was read when it was authenticated"
        made = await _mint(tx, world, client, request, proven)
        if isinstance(made, Denied):
            refused = await record_refusal(tx, world, caller.client_id, caller.tenant_id, made)
            await tx.commit()
            return refused
        signed = world.signer.sign_grant(made, extended(None, made).actors)
        await tx.grants.add(made, signed, (made.grant_id,), claims_run=True)
        await tx.audit.append(made.tenant_id, creation_events(world, caller.client_id, made, proof_refs(proven)))
        await tx.commit()
    return SignedGrant(grant=made, signed=signed)


async def _proven(world: World, caller: Caller, request: MintRequest) -> Proven | Denied | None:
    """Whom the subject token proves, for the holder to act for; None without one.

    It is read before anything is locked.
    """
    if request.subject_token is None:
        return None
    async with world.store.read() as tx:
        holder = await active_client(tx, caller.tenant_id, request.holder or caller.client_id, "/holder")
    if isinstance(holder, Denied):
        return holder
    proven = await proven_subject(world, request.subject_token, holder, None)
    if isinstance(proven, Denied):
        return replace(proven, pointer="/subjectToken")
    if request.subject not in (None, proven.subject):
        raise Malformed("/subject", "is not whom the subjectToken proves")
    return proven


async def _mint(
    tx: Transaction, world: World, client: Client, request: MintRequest, proven: Proven | None
) -> Grant | Denied:
    # As the directory spells ids: nobody looks like another subject, and what is bound to it is always usable.
    if request.subject is not None and (flaw := id_flaw(request.subject)) is not None:
        raise Malformed("/subject", flaw)
    audience = await audience_in(tx, world, client, request.fields)
    if isinstance(audience, Denied):
        return audience
    holder = await active_client(tx, client.tenant_id, request.holder or client.client_id, "/holder")
    if isinstance(holder, Denied):
        return holder
    who = RootParties(
        holder=holder.client_id,
        subject=request.subject or client.client_id,
        proven_subject=None if proven is None else proven.subject,
        parent_run_id=request.parent_run_id,
        lifetime=world.rules.default_grant_lifetime,
    )
    return await root_of(tx, world, client, request.fields, audience, who)


async def audience_in(
    tx: Transaction, world: World, client: Client, fields: NarrowingFields
) -> tuple[Audience, ...] | Denied:
    """The tool servers of the client's tenant that a new root is for."""
    if fields.tenant_id not in (None, client.tenant_id):
        return Denied(reason=Reason.TENANT_MISMATCH, detail="the client is of another tenant", pointer="/tenantId")
    return await resolve_audiences(tx, world, client.tenant_id, fields.audience or ())


async def root_of(
    tx: Transaction,
    world: World,
    client: Client,
    fields: NarrowingFields,
    audience: tuple[Audience, ...],
    who: RootParties,
) -> Grant | Denied:
    """A root within what its client, its tenant and the tool servers' registrations allow, not stored yet."""
    tenant = await tx.registry.tenant(client.tenant_id)
    assert tenant is not None, "a client belongs to a tenant"
    now = world.clock()
    wish = read_wish(fields, audience, now)
    refused = await unregistered(tx, client.tenant_id, wish.tools or ())
    if refused is not None:
        return refused
    made = mint(
        wish,
        tenant.bounded(client.ceiling),
        Birth(
            grant_id=GrantId(world.new_id("gr")),
            actor=who.holder,
            issued_by=client.client_id,
            holder=who.holder,
            child_run_id=fields.child_run_id or RunId(world.new_id("run")),
            now=now,
            subject=who.proven_subject,
        ),
        tenant_id=client.tenant_id,
        subject=who.subject,
        parent_run_id=who.parent_run_id,
        policy_version=tenant.policy_version,
        lifetime=who.lifetime,
        standing=who.is_standing,
    )
    return refusal_of(made) if isinstance(made, Refusal) else sized(world, made)


async def active_client(tx: Transaction, tenant_id: TenantId, client_id: ClientId, pointer: str) -> Client | Denied:
    """The client that a request names: active, and of the tenant."""
    client = await tx.registry.client(client_id)
    if client is None or not client.active or client.tenant_id != tenant_id:
        detail = "no active client of this tenant has this id"
        return Denied(reason=Reason.ACTOR_NOT_PERMITTED, detail=detail, pointer=pointer)
    return client


async def unregistered(tx: Transaction, tenant_id: TenantId, refs: Iterable[ToolRef]) -> Denied | None:
    """The refusal of a tool that is not registered: worded as for one that the caller may not have."""
    known: dict[ServerName, frozenset[ToolName]] = {}
    for ref in refs:
        if ref.server not in known:
            tools = await tx.registry.tools(tenant_id, ref.server)
            known[ref.server] = frozenset(tool.name for tool in tools)
        if ref.tool not in known[ref.server]:
            detail = f"the tool server has no tool {ref.tool}"
            return Denied(reason=Reason.TOOL_NOT_ALLOWED, detail=detail, pointer="/allowedTools")
    return None


def refusal_of(refusal: Refusal) -> Denied:
    """The core's refusal of a derivation, for the caller."""
    return Denied(reason=refusal.reason, detail=refusal.detail, pointer=refusal.pointer)


def sized(world: World, grant: Grant) -> Grant:
    """The grant, unless its document is over the limit. Raises Malformed."""
    if len(canonical(render_grant(grant))) > world.rules.max_grant_bytes:
        raise Malformed("", f"the grant would be larger than {world.rules.max_grant_bytes} bytes")
    return grant
