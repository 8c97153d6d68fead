"""Make what must exist before anybody can be authenticated: the platform's tenant and its administrator.

The only maker of clients with the scope `platform`. Runs before the service answers anything, in every worker
at once, so whoever comes second takes what the first one made.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

from app.core.grant import ClientId, TenantId
from app.core.registry import PLATFORM_TENANT, AuthMethod, Client, ClientKind, Scope, Tenant
from app.ports import AlreadyExists, Clock, Store, Transaction, Vault
from app.usecases.administration import admin_event, changed_members
from app.usecases.failures import Conflict
from app.usecases.register_client import GRANTABLE, new_secret
from app.usecases.world import Rules

T = TypeVar("T")

PLATFORM_SCOPES: Final = frozenset({Scope.ADMIN, Scope.AUDIT_READ, Scope.GRANTS_READ, Scope.PLATFORM})

ATTEMPTS: Final = 5
"""How often whoever lost a race looks again: each time it finds one thing more already made."""


async def bootstrap(
    store: Store,
    vault: Vault,
    clock: Clock,
    rules: Rules,
    *,
    client_id: ClientId,
    secret: str,
    replace_secret: bool = True,
) -> bool:
    """Whether the platform's administrator was made just now, with this secret.

    A secret from settings is the operator's word: it replaces another one, and the client is active again. One
    that was only made up for a first start (`replace_secret=False`) changes nothing. Raises Conflict where the
    client id is a tenant's.
    """
    wish = Client(
        client_id=client_id,
        tenant_id=PLATFORM_TENANT,
        kind=ClientKind.ADMIN,
        scopes=PLATFORM_SCOPES,
        auth_method=AuthMethod.CLIENT_SECRET_BASIC,
        secret_hash=vault.hash_secret(secret),
    )
    tenant = Tenant(tenant_id=PLATFORM_TENANT, name="Subgrant platform", allow_grant_bearer=rules.allow_grant_bearer)

    async def attempt() -> bool:
        async with store.write() as tx:
            await _ensure_tenant(tx, clock, tenant)
            before = await tx.registry.client(client_id)
            if before is None:
                await _add_client(tx, clock, wish)
            elif not before.is_platform:
                raise Conflict("the bootstrap's client id is taken by a client of a tenant")
            elif replace_secret:
                await _restore(tx, clock, before, wish, is_new=not vault.secret_matches(secret, before.secret_hash))
            await tx.commit()
        return before is None

    return await _until_first(attempt)


async def init_tenant(
    store: Store,
    vault: Vault,
    clock: Clock,
    rules: Rules,
    *,
    tenant_id: TenantId,
    name: str,
    client_id: ClientId,
) -> str:
    """The secret of a new tenant's new administrator. Raises AlreadyExists where either id is taken.

    The administrator holds every scope but `platform`, since it grants only what it holds.
    """
    secret = new_secret()
    tenant = Tenant(tenant_id=tenant_id, name=name, allow_grant_bearer=rules.allow_grant_bearer)
    admin = Client(
        client_id=client_id,
        tenant_id=tenant_id,
        kind=ClientKind.ADMIN,
        scopes=GRANTABLE,
        auth_method=AuthMethod.CLIENT_SECRET_BASIC,
        secret_hash=vault.hash_secret(secret),
    )
    async with store.write() as tx:
        if await tx.registry.tenant(tenant_id) is not None:
            raise AlreadyExists("tenantId")
        if await tx.registry.client(client_id) is not None:
            raise AlreadyExists("clientId")
        await _ensure_tenant(tx, clock, tenant)
        await _add_client(tx, clock, admin)
        await tx.commit()
    return secret


async def _until_first(attempt: Callable[[], Awaitable[T]]) -> T:
    for _ in range(ATTEMPTS - 1):
        try:
            return await attempt()
        except AlreadyExists:
            continue
    return await attempt()


async def _ensure_tenant(tx: Transaction, clock: Clock, tenant: Tenant) -> None:
    if await tx.registry.tenant(tenant.tenant_id) is None:
        await tx.registry.add_tenant(tenant)
        event = admin_event(clock(), "tenant.created", f"tenant/{tenant.tenant_id}")
        await tx.audit.append(tenant.tenant_id, [event])


async def _add_client(tx: Transaction, clock: Clock, client: Client) -> None:
    await tx.registry.add_client(client)
    event = admin_event(clock(), "client.created", f"client/{client.client_id}")
    await tx.audit.append(client.tenant_id, [event])


async def _restore(tx: Transaction, clock: Clock, before: Client, wish: Client, *, is_new: bool) -> None:
    """Make the platform's administrator active again, with the secret from settings if that is another one."""
    after = replace(before, active=True, secret_hash=wish.secret_hash if is_new else before.secret_hash)
    changed = changed_members(before, after, {"active": "status", "secret_hash": "secret"})
    if changed:
        await tx.registry.put_client(after)
        event = admin_event(clock(), "client.changed", f"client/{before.client_id}", changed=changed)
        await tx.audit.append(before.tenant_id, [event])
