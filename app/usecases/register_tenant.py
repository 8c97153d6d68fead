"""Register a tenant; read, list and change tenants. For platform administrators only.

A tenant is never removed, since its log and its grants outlive it: it is disabled, which stops both its
clients and its grants. The platform's own tenant comes from the bootstrap and is not touched here. Which policy
is active is not said here either: that takes an activation.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from app.core.grant import TenantId
from app.core.registry import PLATFORM_TENANT, Tenant
from app.usecases.administration import (
    Change,
    Page,
    PageRequest,
    Registered,
    administering,
    changed_members,
    known_tenant,
    not_platform,
    page_of,
    record,
    rows_to_ask,
)
from app.usecases.failures import Conflict, Denied
from app.usecases.world import Caller, World

_MEMBERS: Final[Mapping[str, str]] = {
    "name": "name",
    "active": "status",
    "allow_grant_bearer": "allowGrantBearer",
    "window": "limits",
    "max_depth": "maxDepth",
}


async def register_tenant(world: World, caller: Caller, wish: Tenant) -> Registered[Tenant] | Denied:
    """The tenant as it is registered now. Raises Conflict where it exists and differs, or is the platform's."""
    if (denied := not_platform(caller)) is not None:
        return denied
    _refuse_platform(wish.tenant_id)
    async with administering(world) as tx:
        existing = await tx.registry.tenant(wish.tenant_id)
        if existing is not None:
            return Registered(thing=_same(existing, wish), created=False)
        await tx.registry.add_tenant(wish)
        await record(tx, world, caller, wish.tenant_id, "tenant.created", f"tenant/{wish.tenant_id}")
        await tx.commit()
    return Registered(thing=wish, created=True)


async def read_tenant(world: World, caller: Caller, tenant_id: TenantId) -> Tenant | Denied:
    """One tenant. Raises NotFound."""
    if (denied := not_platform(caller)) is not None:
        return denied
    async with world.store.read() as tx:
        return await known_tenant(tx, tenant_id)


async def list_tenants(world: World, caller: Caller, page: PageRequest) -> Page[Tenant] | Denied:
    """Tenants by id."""
    if (denied := not_platform(caller)) is not None:
        return denied
    rows = rows_to_ask(world, page)
    async with world.store.read() as tx:
        return page_of(await tx.registry.tenants(after=page.after, limit=rows), page, lambda row: row.tenant_id)


async def change_tenant(world: World, caller: Caller, tenant_id: TenantId, change: Change[Tenant]) -> Tenant | Denied:
    """The tenant after the change. Raises NotFound, and Conflict for the platform's own."""
    if (denied := not_platform(caller)) is not None:
        return denied
    _refuse_platform(tenant_id)
    async with administering(world) as tx:
        before = await known_tenant(tx, tenant_id)
        after = replace(change(before), tenant_id=tenant_id, policy_version=before.policy_version)
        if after == before:
            return before
        changed = changed_members(before, after, _MEMBERS)
        await tx.registry.put_tenant(after)
        await record(tx, world, caller, tenant_id, "tenant.changed", f"tenant/{tenant_id}", changed)
        await tx.commit()
    return after


async def disable_tenant(world: World, caller: Caller, tenant_id: TenantId) -> Tenant | Denied:
    """The tenant, disabled: its clients and grants count for nothing from the next call on."""
    return await change_tenant(world, caller, tenant_id, lambda tenant: replace(tenant, active=False))


def _refuse_platform(tenant_id: TenantId) -> None:
    if tenant_id == PLATFORM_TENANT:
        raise Conflict(f"the tenant {PLATFORM_TENANT} is the service's own")


def _same(existing: Tenant, wish: Tenant) -> Tenant:
    if replace(wish, policy_version=existing.policy_version) != existing:
        raise Conflict("the tenant exists and differs")
    return existing
