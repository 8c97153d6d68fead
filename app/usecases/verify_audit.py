"""Prove that a tenant's log is whole, or name the first place where it is not."""

from dataclasses import dataclass

from app.core.audit import Fault, Head, Verifier
from app.core.grant import TenantId
from app.usecases.failures import Denied
from app.usecases.read_audit import TOO_MANY_READERS, audited_tenant
from app.usecases.world import Caller, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    tenant_id: TenantId
    head: Head
    fault: Fault | None


async def verify_audit(world: World, caller: Caller, tenant_id: TenantId | None) -> Verification | Denied:
    """Read every record that is stored, in bounded memory, and check the chain against the head of the same moment."""
    tenant = audited_tenant(caller, tenant_id)
    if isinstance(tenant, Denied):
        return tenant
    if world.long_reads.full:
        return TOO_MANY_READERS
    async with world.long_reads.turn(), world.store.read() as tx:
        head = await tx.audit.head(tenant)
        verifier = Verifier()
        async for record in tx.audit.read(tenant):
            if not verifier.accept(record):
                break
    return Verification(tenant_id=tenant, head=head, fault=verifier.fault_against(head))
