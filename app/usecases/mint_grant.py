"""Mint a root grant for a client, within the ceiling that an administrator gave it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from app.core.attenuation import Birth, mint
from app.core.grant import (
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
from app.usecases.delegation_evidence import creation_events, record_refusal
from app.usecases.failures import Denied, Malformed
from app.usecases.read_wish import NarrowingFields, read_wish, resolve_audiences
from app.usecases.world import Caller, World


@dataclass(frozen=True, slots=True, kw_only=True)
class MintRequest:
    """What an orchestrator asks for. `holder` and `subject` default to the client itself."""

    fields: NarrowingFields
    subject: str | None = None
    holder: ClientId | None = None
    parent_run_id: RunId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedGrant:
    """A new grant with its signed compact form."""

    grant: Grant
    signed: str = field(repr=False)


async def mint_grant(world: World, caller: Caller, request: MintRequest) -> SignedGrant | Denied:
    """A signed root grant, or why there is none. Raises Malformed, and AlreadyExists for a used childRunId."""
    if caller.grant_id is not None or not caller.has(Scope.GRANTS_ISSUE):
        detail = "minting a grant needs the scope grants:issue"
        return Denied(reason=Reason.INSUFFICIENT_SCOPE, detail=detail, scope=Scope.GRANTS_ISSUE)
    async with world.store.write() as tx:
        client = await tx.registry.client(caller.client_id)
        assert client is not None, "the caller's client was read when it was authenticated"
        made = await _mint(tx, world, client, request)
        if isinstance(made, Denied):
            refused = await record_refusal(tx, world, caller.client_id, caller.tenant_id, made)
            await tx.commit()
            return refused
        signed = world.signer.sign_grant(made, extended(None, made).actors)
        await tx.grants.add(made, signed, (made.grant_id,), claims_run=True)
        await tx.audit.append(made.tenant_id, creation_events(world, caller.client_id, made))
        await tx.commit()
    return SignedGrant(grant=made, signed=signed)


async def _mint(tx: Transaction, world: World, client: Client, request: MintRequest) -> Grant | Denied:
    fields = request.fields
    if fields.tenant_id not in (None, client.tenant_id):
        return Denied(reason=Reason.TENANT_MISMATCH, detail="the client is of another tenant", pointer="/tenantId")
    # As the directory spells ids: nobody looks like another subject, and what is bound to it is always usable.
    if request.subject is not None and (flaw := id_flaw(request.subject)) is not None:
        raise Malformed("/subject", flaw)
    audience = await resolve_audiences(tx, world, client.tenant_id, fields.audience or ())
    if isinstance(audience, Denied):
        return audience
    holder = await active_client(tx, client.tenant_id, request.holder or client.client_id, "/holder")
    if isinstance(holder, Denied):
        return holder
    tenant = await tx.registry.tenant(client.tenant_id)
    assert tenant is not None, "a client belongs to a tenant"
    now = world.clock()
    wish = read_wish(fields, audience, now)
    refused = await unregistered(tx, client.tenant_id, wish.tools or ())
    if refused is not None:
        return refused
    made = mint(
        wish,
        client.ceiling,
        Birth(
            grant_id=GrantId(world.new_id("gr")),
            actor=holder.client_id,
            issued_by=client.client_id,
            holder=holder.client_id,
            child_run_id=fields.child_run_id or RunId(world.new_id("run")),
            now=now,
        ),
        tenant_id=client.tenant_id,
        subject=request.subject or client.client_id,
        parent_run_id=request.parent_run_id,
        policy_version=tenant.policy_version,
        lifetime=world.rules.default_grant_lifetime,
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
