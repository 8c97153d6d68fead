"""Pages of the audit log: the tenant's own, nobody else's."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from app.core.audit import AuditRecord
from app.core.grant import TenantId
from app.core.reasons import Reason
from app.core.registry import Scope
from app.ports import RecordFilter
from app.usecases.failures import Denied
from app.usecases.world import Caller, World


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    records: Sequence[AuditRecord]
    next_seq: int | None


async def read_audit(
    world: World,
    caller: Caller,
    where: RecordFilter,
    *,
    tenant_id: TenantId | None,
    after_seq: int | None,
    newest_first: bool,
    limit: int,
) -> AuditPage | Denied:
    """One page and where the next one starts."""
    tenant = audited_tenant(caller, tenant_id)
    if isinstance(tenant, Denied):
        return tenant
    # A search by text reads the whole log where little of it matches.
    is_long = where.text is not None
    if is_long and world.long_reads.full:
        return TOO_MANY_READERS
    async with world.long_reads.turn() if is_long else nullcontext(), world.store.read() as tx:
        records = await tx.audit.page(tenant, where, after_seq=after_seq, newest_first=newest_first, limit=limit + 1)
    page = records[:limit]
    return AuditPage(records=page, next_seq=page[-1].seq if len(records) > limit else None)


TOO_MANY_READERS = Denied(reason=Reason.RATE_LIMITED, detail="the log is being read by as many as may; try again")


def audited_tenant(caller: Caller, named: TenantId | None) -> TenantId | Denied:
    """Whose log a caller reads: its own tenant's; a platform administrator may name another."""
    if caller.grant_id is not None or not (caller.has(Scope.AUDIT_READ) or caller.has(Scope.ADMIN)):
        detail = "reading the audit log needs the scope audit:read"
        return Denied(reason=Reason.INSUFFICIENT_SCOPE, detail=detail, scope=Scope.AUDIT_READ)
    if named not in (None, caller.tenant_id) and not caller.is_platform:
        return Denied(reason=Reason.TENANT_MISMATCH, detail="the log is another tenant's", pointer="/tenant")
    return named or caller.tenant_id
