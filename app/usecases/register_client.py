"""Register an OAuth client; read, list and change clients, and give one a new secret.

Nobody gives more than it has: an administrator grants only scopes that it holds, and takes over no client
that holds more, as a new secret would. `platform` is given by nobody: the bootstrap alone makes such clients.
Client ids are global, so one that is taken is refused alike whichever tenant has it, and a platform
administrator need not say whose a client is.
"""

import asyncio
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from secrets import token_urlsafe
from typing import Final

from app.core.grant import ClientId, TenantId
from app.core.reasons import Reason
from app.core.registry import Client, ClientKind, Scope
from app.ports import AlreadyExists, Transaction
from app.usecases.administration import (
    Change,
    Page,
    PageRequest,
    administering,
    changed_members,
    known_tenant,
    out_of_reach,
    page_of,
    record,
    rows_to_ask,
)
from app.usecases.failures import Conflict, Denied, Malformed, NotFound
from app.usecases.world import Caller, World

SECRET_PREFIX: Final = "sgs_"
"""What client secrets start with, so that a scanner finds a leaked one."""

NO_SECRET: Final = ""
"""The secret hash of a wish: a client gets its own when it is stored."""

EVERY_SCOPE: Final = frozenset(Scope)
GRANTABLE: Final = EVERY_SCOPE - {Scope.PLATFORM}

_MEMBERS: Final[Mapping[str, str]] = {
    "kind": "kind",
    "scopes": "scopes",
    "auth_method": "authMethod",
    "ceiling": "limits",
    "window": "limits",
    "active": "status",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientWithSecret:
    """A client with the secret that was made for it just now; None where it has one already."""

    client: Client
    secret: str | None = field(repr=False)


async def register_client(world: World, caller: Caller, wish: Client) -> ClientWithSecret | Denied:
    """The client, with its secret if it is new.

    Raises Malformed, NotFound for a tenant that is none, and AlreadyExists where the id is taken by a client
    that differs or is another tenant's.
    """
    denied = out_of_reach(caller, wish.tenant_id) or _gives_too_much(caller, wish.scopes)
    if denied is not None:
        return denied
    _check(wish)
    secret = new_secret()
    client = replace(wish, secret_hash=await asyncio.to_thread(world.vault.hash_secret, secret))
    async with administering(world) as tx:
        await known_tenant(tx, wish.tenant_id)
        existing = await tx.registry.client(wish.client_id)
        if existing is not None:
            return ClientWithSecret(client=_same(existing, wish), secret=None)
        await tx.registry.add_client(client)
        await record(tx, world, caller, client.tenant_id, "client.created", f"client/{client.client_id}")
        await tx.commit()
    return ClientWithSecret(client=client, secret=secret)


async def read_client(world: World, caller: Caller, tenant_id: TenantId | None, client_id: ClientId) -> Client | Denied:
    """One client. Raises NotFound, also for another tenant's."""
    if (denied := out_of_reach(caller, tenant_id or caller.tenant_id)) is not None:
        return denied
    async with world.store.read() as tx:
        return await _known(tx, caller, tenant_id, client_id)


async def list_clients(world: World, caller: Caller, tenant_id: TenantId, page: PageRequest) -> Page[Client] | Denied:
    """A tenant's clients by id. Raises NotFound for a tenant that is none."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    rows = rows_to_ask(world, page)
    async with world.store.read() as tx:
        await known_tenant(tx, tenant_id)
        clients = await tx.registry.clients(tenant_id, after=page.after, limit=rows)
    return page_of(clients, page, lambda row: row.client_id)


async def change_client(
    world: World, caller: Caller, tenant_id: TenantId | None, client_id: ClientId, change: Change[Client]
) -> Client | Denied:
    """The client after the change; whose it is and its secret stay. Raises NotFound, Malformed and Conflict."""
    if (denied := out_of_reach(caller, tenant_id or caller.tenant_id)) is not None:
        return denied
    async with administering(world) as tx:
        before = await _known(tx, caller, tenant_id, client_id)
        if before.is_platform:
            raise Conflict("the bootstrap made this client: it can only be disabled, or get a new secret")
        after = _kept(before, change(before))
        if (denied := _gives_too_much(caller, after.scopes - before.scopes)) is not None:
            return denied
        _check(after)
        return await _changed(tx, world, caller, before, after)


async def disable_client(
    world: World, caller: Caller, tenant_id: TenantId | None, client_id: ClientId
) -> Client | Denied:
    """The client, disabled: its tokens and the grants that rest on it count for nothing from the next call on."""
    if (denied := out_of_reach(caller, tenant_id or caller.tenant_id)) is not None:
        return denied
    async with administering(world) as tx:
        before = await _known(tx, caller, tenant_id, client_id)
        if before.is_platform and (denied := _outranked(caller, before)) is not None:
            return denied
        if before.is_platform and before.client_id == caller.client_id:
            raise Conflict("a platform administrator can't disable itself")
        return await _changed(tx, world, caller, before, replace(before, active=False))


async def rotate_client_secret(
    world: World, caller: Caller, tenant_id: TenantId | None, client_id: ClientId
) -> ClientWithSecret | Denied:
    """A new secret for a client; the old one is worth nothing from now on. Raises NotFound."""
    if (denied := out_of_reach(caller, tenant_id or caller.tenant_id)) is not None:
        return denied
    secret = new_secret()
    secret_hash = await asyncio.to_thread(world.vault.hash_secret, secret)
    async with administering(world) as tx:
        before = await _known(tx, caller, tenant_id, client_id)
        if (denied := _outranked(caller, before)) is not None:
            return denied
        after = replace(before, secret_hash=secret_hash)
        await tx.registry.put_client(after)
        await record(tx, world, caller, after.tenant_id, "client.secret_rotated", f"client/{client_id}")
        await tx.commit()
    return ClientWithSecret(client=after, secret=secret)


def new_secret() -> str:
    """A client secret of 256 random bits."""
    return SECRET_PREFIX + token_urlsafe(32)


async def _known(tx: Transaction, caller: Caller, tenant_id: TenantId | None, client_id: ClientId) -> Client:
    client = await tx.registry.client(client_id)
    if client is None or client.tenant_id != (tenant_id or _default_tenant(caller, client)):
        raise NotFound("there is no such client")
    return client


def _default_tenant(caller: Caller, client: Client) -> TenantId:
    return client.tenant_id if caller.is_platform else caller.tenant_id


async def _changed(tx: Transaction, world: World, caller: Caller, before: Client, after: Client) -> Client:
    if after != before:
        changed = changed_members(before, after, _MEMBERS)
        await tx.registry.put_client(after)
        await record(tx, world, caller, after.tenant_id, "client.changed", f"client/{after.client_id}", changed)
        await tx.commit()
    return after


def _kept(before: Client, after: Client) -> Client:
    """The changed client, with what no change may touch."""
    return replace(after, client_id=before.client_id, tenant_id=before.tenant_id, secret_hash=before.secret_hash)


def _same(existing: Client, wish: Client) -> Client:
    if replace(existing, secret_hash=NO_SECRET) != replace(wish, secret_hash=NO_SECRET):
        raise AlreadyExists("clientId")
    return existing


def _check(client: Client) -> None:
    if Scope.ADMIN in client.scopes and client.kind is not ClientKind.ADMIN:
        raise Malformed("/scopes", "the scope admin needs a client of kind admin")


def _gives_too_much(caller: Caller, scopes: AbstractSet[Scope]) -> Denied | None:
    held = GRANTABLE if caller.is_platform else GRANTABLE & caller.scopes
    return _lacking(scopes - held, "an administrator grants only scopes that it holds")


def _outranked(caller: Caller, client: Client) -> Denied | None:
    held = EVERY_SCOPE if caller.is_platform else EVERY_SCOPE & caller.scopes
    return _lacking(client.scopes - held, "the client holds scopes that the administrator does not")


def _lacking(scopes: AbstractSet[Scope], detail: str) -> Denied | None:
    if not scopes:
        return None
    needed = " ".join(sorted(scopes))
    return Denied(reason=Reason.INSUFFICIENT_SCOPE, detail=detail, pointer="/scopes", scope=needed)
