"""Register an OAuth client; read, list and change clients, and give one a new secret.

Nobody gives more than it has: an administrator grants only scopes that it holds, and takes over no client
that holds more, as a new secret would. `platform` is given by nobody: the bootstrap alone makes such clients.
What proves a client is what a new secret is: whoever sets it can act as the client. So is where an application's
codes go. An issuer that another tenant trusts proves nothing here.
Client ids are global, so one that is taken is refused alike whichever tenant has it, and a platform
administrator need not say whose a client is.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from secrets import token_urlsafe
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from app.core.attenuation import Ceiling
from app.core.grant import ClientId, TenantId
from app.core.reasons import Reason
from app.core.registry import DEFAULT_GRANT_TYPES, AuthMethod, Client, ClientKind, GrantType, IssuerUse, Scope
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
    "grant_types": "grantTypes",
    "jwks": "jwks",
    "workload": "workload",
    "dpop_required": "dpopRequired",
    "redirect_uris": "redirectUris",
}

SECRET_METHODS: Final = frozenset({AuthMethod.CLIENT_SECRET_BASIC, AuthMethod.CLIENT_SECRET_POST})
MAX_REDIRECT_URIS: Final = 20

_PROOFS: Final = ("auth_method", "jwks", "workload", "redirect_uris")
"""What a client proves itself by, its secret apart: one that has none gets its codes, and nobody else does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientWithSecret:
    """A client with the secret that was made for it just now; None where it has one already, or has none at all."""

    client: Client
    created: bool
    secret: str | None = field(repr=False)


def default_grant_types(kind: ClientKind) -> frozenset[GrantType]:
    """What a client of this kind may present at the token endpoint unless it is said."""
    return _GRANT_TYPES_BY_KIND.get(kind, DEFAULT_GRANT_TYPES)


_GRANT_TYPES_BY_KIND: Final[Mapping[ClientKind, frozenset[GrantType]]] = {
    ClientKind.PERSON: frozenset(),
    ClientKind.APP: frozenset({GrantType.AUTHORIZATION_CODE}),
}


async def register_client(world: World, caller: Caller, wish: Client) -> ClientWithSecret | Denied:
    """The client, with its secret if it is new and proves itself by one.

    Raises Malformed, NotFound for a tenant that is none, and AlreadyExists where the id is taken by a client
    that differs or is another tenant's.
    """
    denied = out_of_reach(caller, wish.tenant_id) or _gives_too_much(caller, wish.scopes)
    if denied is not None:
        return denied
    _check(world, wish)
    secret = new_secret() if wish.auth_method in SECRET_METHODS else None
    secret_hash = NO_SECRET if secret is None else await asyncio.to_thread(world.vault.hash_secret, secret)
    client = replace(wish, secret_hash=secret_hash)
    async with administering(world) as tx:
        await known_tenant(tx, wish.tenant_id)
        existing = await tx.registry.client(wish.client_id)
        if existing is not None:
            return ClientWithSecret(client=_same(existing, wish), created=False, secret=None)
        await _check_workload(tx, client)
        await tx.registry.add_client(client)
        await record(tx, world, caller, client.tenant_id, "client.created", f"client/{client.client_id}")
        await tx.commit()
    return ClientWithSecret(client=client, created=True, secret=secret)


async def read_client(world: World, caller: Caller, tenant_id: TenantId | None, client_id: ClientId) -> Client | Denied:
    """One client. Raises NotFound, also for another tenant's."""
    if (denied := out_of_reach(caller, tenant_id or caller.tenant_id)) is not None:
        return denied
    async with world.store.read() as tx:
        return await known_client(tx, caller, tenant_id, client_id)


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
        before = await known_client(tx, caller, tenant_id, client_id)
        if before.is_platform:
            raise Conflict("the bootstrap made this client: it can only be disabled, or get a new secret")
        after = _kept(before, change(before))
        if (denied := _gives_too_much(caller, _gained(before, after))) is not None:
            return denied
        if _is_proven_otherwise(before, after) and (denied := outranked(caller, before)) is not None:
            return denied
        _check(world, after)
        if after.workload != before.workload:
            await _check_workload(tx, after)
        return await _changed(tx, world, caller, before, after)


async def disable_client(
    world: World, caller: Caller, tenant_id: TenantId | None, client_id: ClientId
) -> Client | Denied:
    """The client, disabled: its tokens and the grants that rest on it count for nothing from the next call on."""
    if (denied := out_of_reach(caller, tenant_id or caller.tenant_id)) is not None:
        return denied
    async with administering(world) as tx:
        before = await known_client(tx, caller, tenant_id, client_id)
        if before.is_platform and (denied := outranked(caller, before)) is not None:
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
        before = await known_client(tx, caller, tenant_id, client_id)
        if (denied := outranked(caller, before)) is not None:
            return denied
        if before.auth_method not in SECRET_METHODS:
            raise Conflict("the client has no secret: it proves itself otherwise")
        after = replace(before, secret_hash=secret_hash)
        await tx.registry.put_client(after)
        await record(tx, world, caller, after.tenant_id, "client.secret_rotated", f"client/{client_id}")
        await tx.commit()
    return ClientWithSecret(client=after, created=False, secret=secret)


def new_secret() -> str:
    """A client secret of 256 random bits."""
    return SECRET_PREFIX + token_urlsafe(32)


async def known_client(tx: Transaction, caller: Caller, tenant_id: TenantId | None, client_id: ClientId) -> Client:
    """The client, disabled or not. Raises NotFound, also for another tenant's."""
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
    """The changed client, with what no change may touch; a secret goes where it proves nothing any more."""
    return replace(
        after,
        client_id=before.client_id,
        tenant_id=before.tenant_id,
        secret_hash=before.secret_hash if after.auth_method in SECRET_METHODS else NO_SECRET,
        standing_grants=before.standing_grants,
    )


def _same(existing: Client, wish: Client) -> Client:
    if replace(existing, secret_hash=NO_SECRET, standing_grants={}) != replace(wish, secret_hash=NO_SECRET):
        raise AlreadyExists("clientId")
    return existing


def _gives_too_much(caller: Caller, scopes: AbstractSet[Scope]) -> Denied | None:
    held = GRANTABLE if caller.is_platform else GRANTABLE & caller.scopes
    return _lacking(scopes - held, "an administrator grants only scopes that it holds")


def _gained(before: Client, after: Client) -> frozenset[Scope]:
    """The scopes that a change gives. Those of an app were only what it could ask people for."""
    becomes_its_own = before.kind is ClientKind.APP and after.kind is not ClientKind.APP
    return after.scopes if becomes_its_own else after.scopes - before.scopes


def _is_proven_otherwise(before: Client, after: Client) -> bool:
    return any(getattr(before, proof) != getattr(after, proof) for proof in _PROOFS)


def outranked(caller: Caller, client: Client) -> Denied | None:
    """Why the caller may not do what would let it act as this client."""
    held = EVERY_SCOPE if caller.is_platform else EVERY_SCOPE & caller.scopes
    return _lacking(client.scopes - held, "the client holds scopes that the administrator does not")


def _lacking(scopes: AbstractSet[Scope], detail: str) -> Denied | None:
    if not scopes:
        return None
    needed = " ".join(sorted(scopes))
    return Denied(reason=Reason.INSUFFICIENT_SCOPE, detail=detail, pointer="/scopes", scope=needed)


# --- what a client may be ---------------------------------------------------------------------------------


class _Flaw(NamedTuple):
    """Something that a client can't be, and the member that says so."""

    is_there: bool
    pointer: str
    detail: str


def _check(world: World, client: Client) -> None:
    for flaw in (*_kind_flaws(client), *_proof_flaws(client)):
        if flaw.is_there:
            raise Malformed(flaw.pointer, flaw.detail)
    if client.jwks is not None and (key_flaw := world.outsiders.flaw(client.jwks)) is not None:
        raise Malformed("/jwks", f"the set of keys {key_flaw}")
    for index, uri in enumerate(client.redirect_uris):
        if (uri_flaw := redirect_uri_flaw(uri)) is not None:
            raise Malformed(f"/redirectUris/{index}", uri_flaw)


def _kind_flaws(client: Client) -> Iterator[_Flaw]:
    """What a kind of client may not have: people sign in where applications ask, and have no other business here."""
    scopes, types, is_app = client.scopes, client.grant_types, client.kind is ClientKind.APP
    is_person, asks = client.kind is ClientKind.PERSON, GrantType.AUTHORIZATION_CODE in types
    by_itself = GrantType.CLIENT_CREDENTIALS in types
    # An app's scopes are the most that it may ask people for; only what a person has comes of them.
    no_admin = Scope.ADMIN in scopes and client.kind not in (ClientKind.ADMIN, ClientKind.APP)
    yield _Flaw(no_admin, "/scopes", "the scope admin needs a client of kind admin, or an app that asks for it")
    # Its own path would be another client's standing grants.
    yield _Flaw(client.client_id.endswith("/standing-grants"), "/clientId", "may not end in /standing-grants")
    yield _Flaw(is_person and bool(types), "/grantTypes", "a person presents nothing at the token endpoint")
    yield _Flaw(asks and not is_app, "/grantTypes", "authorization_code needs a client of kind app")
    yield _Flaw(is_app and by_itself, "/grantTypes", "an app has no authority of its own, so no client_credentials")
    yield _Flaw(asks and not client.redirect_uris, "/redirectUris", "are needed for authorization_code")
    yield _Flaw(bool(client.redirect_uris) and not asks, "/redirectUris", "are for authorization_code alone")
    limited = client.ceiling != Ceiling() or client.window is not None
    yield _Flaw(is_app and limited, "/limits", "an application borrows its limits from people")
    too_many = len(client.redirect_uris) > MAX_REDIRECT_URIS
    yield _Flaw(too_many, "/redirectUris", f"are at most {MAX_REDIRECT_URIS}")


def _proof_flaws(client: Client) -> Iterator[_Flaw]:
    """What a client can't prove itself by (RFC 7591 §2)."""
    method, given = client.auth_method, [client.jwks is not None, client.workload is not None]
    is_person, is_none = client.kind is ClientKind.PERSON, method is AuthMethod.NONE
    asserts = method is AuthMethod.PRIVATE_KEY_JWT
    no_secret = is_person and method not in SECRET_METHODS
    yield _Flaw(no_secret, "/authMethod", "a person signs in with a secret")
    yield _Flaw(is_none and client.kind is not ClientKind.APP, "/authMethod", "none needs a client of kind app")
    more = client.grant_types != {GrantType.AUTHORIZATION_CODE}
    yield _Flaw(is_none and more, "/grantTypes", "a client that proves nothing may use authorization_code alone")
    yield _Flaw(asserts and sum(given) != 1, "/authMethod", "private_key_jwt needs either jwks or workload")
    yield _Flaw(not asserts and given[0], "/jwks", "is for private_key_jwt alone")
    yield _Flaw(not asserts and given[1], "/workload", "is for private_key_jwt alone")


async def _check_workload(tx: Transaction, client: Client) -> None:
    if client.workload is None:
        return
    issuer = await tx.registry.issuer(client.tenant_id, client.workload.issuer)
    if issuer is None or IssuerUse.CLIENT not in issuer.uses:
        raise Malformed("/workload/issuer", "must name a trusted issuer of the tenant whose use is client")


# --- where an application's answer goes -------------------------------------------------------------------

_PRINTABLE: Final = re.compile(r"[\x21\x22\x24-\x5b\x5d-\x7e]{1,500}")
"""ASCII without blanks, backslashes and `#`: what browsers and we would read in two ways, and fragments."""

_PRIVATE_SCHEME: Final = re.compile(r"[a-z][a-z0-9+-]*(?:\.[a-z0-9+-]+)+")
"""A scheme that is an owner's domain, turned round (RFC 8252 §7.1). No browser runs what such a URI holds."""

_AUTHORITY: Final = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?")
"""A DNS name or an IP literal, maybe with a port: what stands for itself in a policy of our pages, and nothing more."""

LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "::1", "localhost"})


def redirect_uri_flaw(uri: str) -> str | None:
    """Why no answer goes to this URI (RFC 6749 §3.1.2, RFC 8252 §7); None for one to be compared as it stands."""
    must = "must be an absolute https URI, http on this machine itself or a scheme with a dot, without a fragment"
    try:
        split = urlsplit(uri)
        host = split.hostname
        _ = split.port
    except ValueError:
        return must
    if not _PRINTABLE.fullmatch(uri) or not uri.startswith(f"{split.scheme}:"):
        return must
    if split.netloc and not _AUTHORITY.fullmatch(split.netloc):
        return must
    if split.scheme == "https":
        return None if host else must
    if split.scheme == "http":
        return None if host in LOOPBACK_HOSTS else must
    return None if _PRIVATE_SCHEME.fullmatch(split.scheme) and split.path else must
