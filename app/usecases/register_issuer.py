"""Register a trusted issuer; read, list and change trusted issuers (RFC 7523 §3, RFC 8414 §2).

A tenant trusts whom its own administrators name, for what they say. The issuer's name and its `iss` stay: subjects
are known by the one and proven under the other, so a disabled issuer is not followed by another of its name.

Whoever sets an issuer's keys can act as every client that rests on it. So it takes the scopes of those clients.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from app.core.grant import TenantId
from app.core.registry import Client, TrustedIssuer
from app.ports import Transaction
from app.usecases.administration import (
    Change,
    Page,
    PageRequest,
    Registered,
    administering,
    changed_members,
    known_tenant,
    out_of_reach,
    page_of,
    record,
    rows_to_ask,
)
from app.usecases.failures import Conflict, Denied, Malformed, NotFound
from app.usecases.register_client import outranked
from app.usecases.register_tool_server import normalised
from app.usecases.world import Caller, Rules, World

MAX_LIFETIME: Final = timedelta(days=7)
MAX_ISSUER_CHARS: Final = 255
"""Of an issuer and of an audience: with a `jti`, an issuer is what a used token is remembered by."""

_CLIENTS_AT_ONCE: Final = 500
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[\x21\x22\x24-\x5b\x5d-\x7e]+")
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")

_MEMBERS: Final[Mapping[str, str]] = {
    "uses": "uses",
    "algorithms": "algorithms",
    "jwks_uri": "jwksUri",
    "jwks": "jwks",
    "audience": "audience",
    "max_lifetime": "maxLifetimeSeconds",
    "single_use": "singleUse",
    "active": "status",
}


async def register_issuer(world: World, caller: Caller, wish: TrustedIssuer) -> Registered[TrustedIssuer] | Denied:
    """The issuer as it is trusted now.

    Raises Malformed, NotFound for a tenant that is none, Conflict where the name is taken by an issuer that differs,
    and AlreadyExists where the issuer is trusted under another name.
    """
    if (denied := out_of_reach(caller, wish.tenant_id)) is not None:
        return denied
    _check(world, wish)
    async with administering(world) as tx:
        await known_tenant(tx, wish.tenant_id)
        existing = await tx.registry.issuer(wish.tenant_id, wish.name)
        if existing is not None:
            return Registered(thing=_same(existing, wish), created=False)
        await tx.registry.put_issuer(wish)
        await record(tx, world, caller, wish.tenant_id, "issuer.created", _resource(wish))
        await tx.commit()
    return Registered(thing=wish, created=True)


async def read_issuer(world: World, caller: Caller, tenant_id: TenantId, name: str) -> TrustedIssuer | Denied:
    """One trusted issuer. Raises NotFound."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    async with world.store.read() as tx:
        return await _known(tx, tenant_id, name)


async def list_issuers(
    world: World, caller: Caller, tenant_id: TenantId, page: PageRequest
) -> Page[TrustedIssuer] | Denied:
    """A tenant's trusted issuers by name. Raises NotFound for a tenant that is none."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    rows = rows_to_ask(world, page)
    async with world.store.read() as tx:
        await known_tenant(tx, tenant_id)
        issuers = await tx.registry.issuers(tenant_id, after=page.after, limit=rows)
    return page_of(issuers, page, lambda row: row.name)


async def change_issuer(
    world: World, caller: Caller, tenant_id: TenantId, name: str, change: Change[TrustedIssuer]
) -> TrustedIssuer | Denied:
    """The issuer after the change; its name and its `iss` stay. Raises NotFound, Malformed and Conflict."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    async with administering(world) as tx:
        before = await _known(tx, tenant_id, name)
        after = replace(change(before), tenant_id=tenant_id, name=before.name, issuer=before.issuer)
        if after == before:
            return before
        if not _only_ends(before, after):
            _check(world, after)
            if (denied := await _outranked(tx, caller, before)) is not None:
                return denied
        changed = changed_members(before, after, _MEMBERS)
        await tx.registry.put_issuer(after)
        await record(tx, world, caller, tenant_id, "issuer.changed", _resource(after), changed)
        await tx.commit()
    return after


async def disable_issuer(world: World, caller: Caller, tenant_id: TenantId, name: str) -> TrustedIssuer | Denied:
    """The issuer, disabled: from the next token on, nothing that it signs proves anything."""
    return await change_issuer(world, caller, tenant_id, name, lambda issuer: replace(issuer, active=False))


async def _known(tx: Transaction, tenant_id: TenantId, name: str) -> TrustedIssuer:
    issuer = await tx.registry.issuer(tenant_id, name)
    if issuer is None:
        raise NotFound("there is no such trusted issuer")
    return issuer


def _same(existing: TrustedIssuer, wish: TrustedIssuer) -> TrustedIssuer:
    if existing != wish:
        raise Conflict("the trusted issuer exists and differs")
    return existing


def _resource(issuer: TrustedIssuer) -> str:
    return f"issuer/{issuer.name}"


def _only_ends(before: TrustedIssuer, after: TrustedIssuer) -> bool:
    # Nothing that is wrong with an issuer, and nobody's rank, stands in the way of no longer trusting it.
    return after == replace(before, active=False)


async def _outranked(tx: Transaction, caller: Caller, issuer: TrustedIssuer) -> Denied | None:
    """Why the caller may not say who is a client of this issuer: one that rests on it has scopes that it lacks."""
    after: str | None = None
    while clients := await tx.registry.clients(issuer.tenant_id, after=after, limit=_CLIENTS_AT_ONCE):
        for client in clients:
            if _rests_on(client, issuer) and (denied := outranked(caller, client)) is not None:
                return replace(denied, pointer=None)
        after = clients[-1].client_id
    return None


def _rests_on(client: Client, issuer: TrustedIssuer) -> bool:
    return client.workload is not None and client.workload.issuer == issuer.name


# --- what an issuer may be --------------------------------------------------------------------------------


def _check(world: World, issuer: TrustedIssuer) -> None:
    _check_issuer(world.rules, issuer.issuer)
    if not issuer.uses:
        raise Malformed("/uses", "must name at least one use")
    if not issuer.algorithms:
        raise Malformed("/algorithms", "must name at least one algorithm")
    if (issuer.jwks_uri is None) == (issuer.jwks is None):
        raise Malformed("/jwksUri", "either jwksUri or jwks is needed")
    if issuer.jwks_uri is not None:
        _check_jwks_uri(issuer.jwks_uri)
    if issuer.jwks is not None and (flaw := world.outsiders.flaw(issuer.jwks)) is not None:
        raise Malformed("/jwks", f"the set of keys {flaw}")
    audience = issuer.audience
    if audience is not None and not (len(audience) <= MAX_ISSUER_CHARS and _VISIBLE.fullmatch(audience)):
        raise Malformed("/audience", f"must be at most {MAX_ISSUER_CHARS} visible characters")
    if not timedelta(seconds=1) <= issuer.max_lifetime <= MAX_LIFETIME:
        raise Malformed("/maxLifetimeSeconds", f"must be from 1 to {MAX_LIFETIME // timedelta(seconds=1)}")


def _check_issuer(rules: Rules, issuer: str) -> None:
    if len(issuer) > MAX_ISSUER_CHARS or not _URI.fullmatch(issuer):
        raise Malformed("/issuer", f"must be an absolute URI of at most {MAX_ISSUER_CHARS} characters, as in `iss`")
    own = normalised(rules.issuer)
    if f"{normalised(issuer)}/".startswith(f"{own}/"):
        # What we sign ourselves says other things, and is proven in other ways.
        raise Malformed("/issuer", "must not be this service itself")


def _check_jwks_uri(uri: str) -> None:
    try:
        split = urlsplit(uri)
        host, _ = split.hostname or "", split.port
    except ValueError:
        raise Malformed("/jwksUri", "must be an https URL") from None
    if not _URI.fullmatch(uri) or not host or "@" in split.netloc:
        raise Malformed("/jwksUri", "must be an https URL without user, password and fragment")
    # Keys that somebody on the way could replace prove nothing; to this machine itself there is no way.
    if split.scheme != "https" and not (split.scheme == "http" and _is_this_machine(host)):
        raise Malformed("/jwksUri", "must be an https URL, or http on this machine itself")


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
