"""Register a tool server; read, list and change tool servers.

The secret that the gateway presents to a tool server goes in and never comes out: it is sealed here, bound to
the server's name, no view of it is given, and an endpoint does not move to another origin without naming the
secret anew, since whoever moved it could read it there.

What callers ask tokens for (audiences) and what tool servers trust the gateway's credential for (endpoints and
upstream audiences) are kept apart over all tenants: a token must be worth nothing at a tool server directly.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hmac import compare_digest
from typing import Final
from urllib.parse import SplitResult, urlsplit

from app.core.grant import ServerName, TenantId
from app.core.registry import (
    DESCRIBED_TYPES,
    Credential,
    CredentialType,
    Resolver,
    ToolServer,
    Transport,
    may_carry_credential,
)
from app.core.resource_rules import type_flaw
from app.ports import AlreadyExists, Transaction, Vault
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
from app.usecases.tool_credential import credential_purpose
from app.usecases.world import Caller, Rules, World

_DEFAULT_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[\x21\x22\x24-\x5b\x5d-\x7e]{1,2000}")
"""An absolute URI (RFC 3986 §4.3): printable ASCII, no fragment, none of the blanks and backslashes that readers
of URLs drop or turn round, each in its own way."""

_FIELD_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
"""A header field's name: a token (RFC 9110 §5.6.2)."""

_FIELD_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]{0,4094}[\x21-\x7e])?")
"""Visible ASCII, blanks only inside (RFC 9110 §5.5): nothing that ends a line."""

_UNREADABLE: Final = b"\n"
"""No header's value."""

MAX_RESOLVER_PATH_CHARS: Final = 500
MAX_RESOLVED_TYPES: Final = 64
MAX_CACHE_SECONDS: Final = 300.0
MAX_DEFINITION_AGE_SECONDS: Final = 300.0

_RESOLVER_PATH: Final = re.compile(r"/|(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]+)+/?")
"""An absolute path: no query, no fragment, nothing percent-encoded, no empty segment that could begin a host."""

_MEMBERS: Final[Mapping[str, str]] = {
    "audience": "audience",
    "endpoint": "endpoint",
    "upstream_audience": "upstreamAudience",
    "credential": "credential",
    "timeout_seconds": "timeoutSeconds",
    "max_response_bytes": "maxResponseBytes",
    "resolver": "resolver",
    "definition_max_age_seconds": "definitionMaxAgeSeconds",
    "active": "status",
}

_ADDRESSED: Final = ("audience", "endpoint", "upstream_audience")


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialWish:
    """What the gateway shall present, with the header's value in the clear."""

    type: CredentialType = CredentialType.NONE
    header: str | None = None
    value: str | None = field(default=None, repr=False)


async def register_tool_server(
    world: World, caller: Caller, wish: ToolServer, credential: CredentialWish
) -> Registered[ToolServer] | Denied:
    """The tool server as it is registered now; its credential comes from the second argument.

    Raises Malformed, NotFound for a tenant that is none, and Conflict where it exists and differs or where its
    audience or an address of its is taken for the other purpose.
    """
    if (denied := out_of_reach(caller, wish.tenant_id)) is not None:
        return denied
    _check_uris(wish)
    _check_credential(credential)
    _check_resolver(wish.resolver)
    _check_definition_age(wish)
    async with administering(world) as tx:
        await known_tenant(tx, wish.tenant_id)
        existing = await tx.registry.server(wish.tenant_id, wish.name)
        if existing is not None:
            return Registered(thing=_same(world.vault, existing, wish, credential), created=False)
        server = replace(wish, credential=_sealed(world.vault, wish, credential))
        await _keep_apart(tx, world.rules, server)
        await tx.registry.add_server(server)
        await record(tx, world, caller, server.tenant_id, "tool_server.created", _resource(server))
        await tx.commit()
    return Registered(thing=server, created=True)


async def read_tool_server(world: World, caller: Caller, tenant_id: TenantId, name: ServerName) -> ToolServer | Denied:
    """One tool server. Raises NotFound."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    async with world.store.read() as tx:
        return await known_server(tx, tenant_id, name)


async def list_tool_servers(
    world: World, caller: Caller, tenant_id: TenantId, page: PageRequest
) -> Page[ToolServer] | Denied:
    """A tenant's tool servers by name. Raises NotFound for a tenant that is none."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    rows = rows_to_ask(world, page)
    async with world.store.read() as tx:
        await known_tenant(tx, tenant_id)
        servers = await tx.registry.servers(tenant_id, after=page.after, limit=rows)
    return page_of(servers, page, lambda row: row.name)


async def change_tool_server(
    world: World,
    caller: Caller,
    tenant_id: TenantId,
    name: ServerName,
    change: Change[ToolServer],
    credential: CredentialWish | None = None,
) -> ToolServer | Denied:
    """The tool server after the change; without a credential it keeps the one that it has.

    Raises NotFound, Malformed and Conflict as registering does.
    """
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    async with administering(world) as tx:
        before = await known_server(tx, tenant_id, name)
        after = _kept(before, change(before))
        if credential is None:
            _refuse_carried_off(before, after)
        elif not _same_credential(world.vault, before, credential):
            _check_credential(credential)
            after = replace(after, credential=_sealed(world.vault, before, credential))
        if after == before:
            return before
        if _moves(before, after):
            _check_uris(after)
            await _keep_apart(tx, world.rules, after)
        if after.resolver != before.resolver:
            _check_resolver(after.resolver)
        _check_definition_age(after)
        changed = changed_members(before, after, _MEMBERS)
        await tx.registry.put_server(after)
        await record(tx, world, caller, tenant_id, "tool_server.changed", _resource(after), changed)
        await tx.commit()
    return after


async def disable_tool_server(
    world: World, caller: Caller, tenant_id: TenantId, name: ServerName
) -> ToolServer | Denied:
    """The tool server, disabled: no call reaches it from the next one on."""
    return await change_tool_server(world, caller, tenant_id, name, lambda server: replace(server, active=False))


async def known_server(tx: Transaction, tenant_id: TenantId, name: ServerName) -> ToolServer:
    """The tool server, disabled or not. Raises NotFound."""
    server = await tx.registry.server(tenant_id, name)
    if server is None:
        raise NotFound("there is no such tool server")
    return server


def _kept(before: ToolServer, after: ToolServer) -> ToolServer:
    """The changed tool server, with what no change may touch; its tools are bound to its transport."""
    return replace(
        after,
        tenant_id=before.tenant_id,
        name=before.name,
        transport=before.transport,
        credential=before.credential,
    )


def _resource(server: ToolServer) -> str:
    return f"tool-server/{server.name}"


# --- addresses --------------------------------------------------------------------------------------------


def _moves(before: ToolServer, after: ToolServer) -> bool:
    # Only then, so that nothing about an address that is there already stands in the way of a disabling.
    return any(getattr(before, member) != getattr(after, member) for member in _ADDRESSED)


def _check_uris(server: ToolServer) -> None:
    for member in _ADDRESSED:
        if not _URI.fullmatch(getattr(server, member)):
            raise Malformed(f"/{_MEMBERS[member]}", "must be an absolute URI without a fragment")
    split = _split(server.endpoint)
    if split is None or split.scheme not in _DEFAULT_PORTS or not split.hostname:
        raise Malformed("/endpoint", "must be an http or https URL")
    if "@" in split.netloc:
        raise Malformed("/endpoint", "must have no user and no password: those belong into the credential")


async def _keep_apart(tx: Transaction, rules: Rules, server: ToolServer) -> None:
    """Raises Conflict; never says which tool server is in the way, it may be another tenant's."""
    own = {"endpoint": server.endpoint, "upstreamAudience": server.upstream_audience}
    if _is_reserved(server.audience, rules, but=server.name):
        raise Conflict("audience: neither the issuer nor another tool server's default can be an audience")
    namesake = await tx.registry.server_for(server.tenant_id, server.audience)
    if namesake is not None and namesake.name != server.name:
        raise AlreadyExists("audience")
    if normalised(server.audience) in _all_normalised([*await tx.registry.addresses(), *own.values()]):
        raise Conflict("audience: the address of a tool server can't be an audience")
    audiences = _all_normalised([*await tx.registry.audiences(), server.audience])
    for member, address in own.items():
        if _is_reserved(address, rules) or normalised(address) in audiences:
            raise Conflict(f"{member}: what tokens are issued for can't be the address of a tool server")


def _is_reserved(uri: str, rules: Rules, but: ServerName | None = None) -> bool:
    """Whether a URI is the issuer or a tool server's default audience (other than that of `but`)."""
    if but is not None and uri == f"{rules.mcp_prefix}{but}":
        return False
    plain, issuer = normalised(uri), normalised(rules.issuer)
    return plain == issuer or f"{plain}/".startswith(f"{issuer}/mcp/")


def _all_normalised(uris: Iterable[str]) -> frozenset[str]:
    return frozenset(map(normalised, uris))


def normalised(uri: str) -> str:
    """A URI so that spellings of one place are equal (RFC 3986 §6.2): case, default port, closing slashes."""
    split = _split(uri)
    if split is None or split.scheme not in _DEFAULT_PORTS:
        return uri
    host = (split.hostname or "").rstrip(".")
    port = "" if split.port in (None, _DEFAULT_PORTS[split.scheme]) else f":{split.port}"
    query = f"?{split.query}" if split.query else ""
    return f"{split.scheme}://{host}{port}{split.path.rstrip('/')}{query}"


def _split(uri: str) -> SplitResult | None:
    try:
        split = urlsplit(uri)
        # Reading the port is what parses it.
        return split if split.port is None or split.port > 0 else None
    except ValueError:
        return None


# --- the resolver -----------------------------------------------------------------------------------------


def _check_resolver(resolver: Resolver | None) -> None:
    """It is asked with the tool server's credential, so it is a path: there is no other place to send that to."""
    if resolver is None:
        return
    if len(resolver.path) > MAX_RESOLVER_PATH_CHARS or not _RESOLVER_PATH.fullmatch(resolver.path):
        raise Malformed("/resolver/path", "must be an absolute path without query, fragment and percent-encoding")
    if {".", ".."} & set(resolver.path.split("/")):
        raise Malformed("/resolver/path", "must have no '.' and '..' segments")
    if not 1 <= len(resolver.types) <= MAX_RESOLVED_TYPES:
        raise Malformed("/resolver/types", f"must be 1 to {MAX_RESOLVED_TYPES} types of resources")
    for index, type_ in enumerate(resolver.types):
        if (flaw := type_flaw(type_)) is not None:
            raise Malformed(f"/resolver/types/{index}", flaw)
        if type_ in DESCRIBED_TYPES:
            raise Malformed(f"/resolver/types/{index}", "is for the directory alone: policies are told of it there")
    if not 0 <= resolver.cache_seconds <= MAX_CACHE_SECONDS:
        raise Malformed("/resolver/cacheSeconds", f"must be from 0 to {MAX_CACHE_SECONDS:g}")


def _check_definition_age(server: ToolServer) -> None:
    age = server.definition_max_age_seconds
    if not 0 <= age <= MAX_DEFINITION_AGE_SECONDS:
        raise Malformed("/definitionMaxAgeSeconds", f"must be from 0 to {MAX_DEFINITION_AGE_SECONDS:g}")
    if age and server.transport is not Transport.MCP:
        raise Malformed("/definitionMaxAgeSeconds", "is for tool servers with the transport mcp")


# --- the credential ---------------------------------------------------------------------------------------


def _check_credential(wish: CredentialWish) -> None:
    given = {"header": wish.header, "value": wish.value}
    is_header = wish.type is CredentialType.HEADER
    for member, text in given.items():
        if (text is not None) != is_header:
            fault = "is needed for a credential of type header" if is_header else "is for the type header only"
            raise Malformed(f"/credential/{member}", fault)
    if wish.header is not None and not _FIELD_NAME.fullmatch(wish.header):
        raise Malformed("/credential/header", "must be the name of a header field")
    if wish.header is not None and not may_carry_credential(wish.header):
        raise Malformed("/credential/header", "must not be a header field of the protocol itself")
    if wish.value is not None and not _FIELD_VALUE.fullmatch(wish.value):
        raise Malformed(
            "/credential/value", "must be at most 4096 visible ASCII characters, with blanks only between them"
        )


def _sealed(vault: Vault, server: ToolServer, wish: CredentialWish) -> Credential:
    if wish.value is None:
        return Credential(type=wish.type)
    sealed = vault.seal(wish.value.encode(), credential_purpose(server))
    return Credential(type=wish.type, header=wish.header, sealed=sealed)


def _refuse_carried_off(before: ToolServer, after: ToolServer) -> None:
    if before.credential.sealed is not None and _origin(before.endpoint) != _origin(after.endpoint):
        raise Malformed("/credential", "is needed again where the endpoint moves to another origin")


def _origin(endpoint: str) -> str:
    split = urlsplit(normalised(endpoint))
    return f"{split.scheme}://{split.netloc}"


def _same(vault: Vault, existing: ToolServer, wish: ToolServer, credential: CredentialWish) -> ToolServer:
    is_same = replace(existing, credential=wish.credential) == wish
    if not is_same or not _same_credential(vault, existing, credential):
        raise Conflict("the tool server exists and differs")
    return existing


def _same_credential(vault: Vault, server: ToolServer, wish: CredentialWish) -> bool:
    stored = server.credential
    if (stored.type, stored.header) != (wish.type, wish.header):
        return False
    return compare_digest(_opened(vault, server), (wish.value or "").encode())


def _opened(vault: Vault, server: ToolServer) -> bytes:
    if server.credential.sealed is None:
        return b""
    try:
        return vault.open(server.credential.sealed, credential_purpose(server))
    except ValueError:
        # Sealed under a key that is gone: equal to no secret, so that a new one can take its place.
        return _UNREADABLE
