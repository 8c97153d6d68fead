"""What all verbs of an administrator have in common: whose tenant, which record it leaves, how lists page.

Knows nothing of any one resource. A record names members that changed, never what they were or became.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Generic, TypeVar

from app.core.audit import RecordType
from app.core.grant import TenantId
from app.core.reasons import Reason
from app.core.registry import PLATFORM_TENANT, Scope, Tenant
from app.core.strict_json import JsonObject
from app.ports import Transaction
from app.usecases.failures import Denied, Malformed, NotFound
from app.usecases.world import Caller, World, evidence

T = TypeVar("T")

Change = Callable[[T], T]
"""What a PATCH makes of the thing as it is stored: applied inside the transaction that read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered(Generic[T]):
    """A thing that is registered now; `created` says whether it was not before."""

    thing: T
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """Which part of a list: so many rows behind a cursor."""

    after: str | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Rows of a list, and the cursor behind them where there are more."""

    items: tuple[T, ...]
    next: str | None


def out_of_reach(caller: Caller, tenant_id: TenantId) -> Denied | None:
    """Why the caller may not administer this tenant: the same answer whether or not there is such a tenant."""
    if caller.grant_id is not None or not (caller.has(Scope.ADMIN) or caller.is_platform):
        return _lacks(Scope.ADMIN)
    if caller.tenant_id != tenant_id and not caller.is_platform:
        detail = "an administrator acts in its own tenant only"
        return Denied(reason=Reason.TENANT_MISMATCH, detail=detail)
    return None


def not_platform(caller: Caller) -> Denied | None:
    """Why the caller may not administer tenants."""
    return None if caller.grant_id is None and caller.is_platform else _lacks(Scope.PLATFORM)


def _lacks(scope: Scope) -> Denied:
    detail = "the token lacks the scope that this needs"
    return Denied(reason=Reason.INSUFFICIENT_SCOPE, detail=detail, scope=scope)


@asynccontextmanager
async def administering(world: World) -> AsyncIterator[Transaction]:
    """A write transaction that takes its turn with every other administrator's, in all workers.

    So what it read is what it changes, and what it found free stays free, though the store's own isolation
    promises neither: a limit that is changed can't undo a disabling that happened meanwhile. The turn is a row
    that is written and stays as it is. Calls never wait for it.
    """
    async with world.store.write() as tx:
        await tx.registry.put_tenant(await known_tenant(tx, PLATFORM_TENANT))
        yield tx


async def known_tenant(tx: Transaction, tenant_id: TenantId) -> Tenant:
    """The tenant, disabled or not. Raises NotFound."""
    tenant = await tx.registry.tenant(tenant_id)
    if tenant is None:
        raise NotFound("there is no such tenant")
    return tenant


# --- records ----------------------------------------------------------------------------------------------


async def record(
    tx: Transaction,
    world: World,
    caller: Caller,
    tenant_id: TenantId,
    action: str,
    resource: str,
    changed: Sequence[str] = (),
) -> None:
    """Append what an administrator did to the log of the tenant that it concerns."""
    event = admin_event(world.clock(), action, resource, caller=caller, changed=changed)
    await tx.audit.append(tenant_id, [event])


def admin_event(
    at: datetime, action: str, resource: str, *, caller: Caller | None = None, changed: Sequence[str] = ()
) -> JsonObject:
    """The record of one change. Without a caller it was the service itself."""
    members: JsonObject = {"action": action, "resource": resource}
    members |= {} if caller is None else {"clientId": caller.client_id, "through": caller.through}
    return evidence(RecordType.ADMIN_CHANGED, at, members | ({"changedFields": [*changed]} if changed else {}))


def changed_members(before: T, after: T, members: Mapping[str, str]) -> list[str]:
    """The names, as documents spell them, of the attributes (dotted) in which two things differ."""
    differing = (path for path in members if attrgetter(path)(before) != attrgetter(path)(after))
    return sorted({members[path] for path in differing})


# --- pages ------------------------------------------------------------------------------------------------


def rows_to_ask(world: World, page: PageRequest) -> int:
    """One row more than the page has, which tells whether there are more. Raises Malformed."""
    if not 1 <= page.limit <= world.rules.max_page_rows:
        raise Malformed("/limit", f"must be between 1 and {world.rules.max_page_rows}")
    return page.limit + 1


def page_of(rows: Sequence[T], page: PageRequest, cursor: Callable[[T], str]) -> Page[T]:
    """A page from the rows that were asked for."""
    items = tuple(rows[: page.limit])
    return Page(items=items, next=cursor(items[-1]) if len(rows) > page.limit else None)
