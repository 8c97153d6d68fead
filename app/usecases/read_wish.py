"""From what a caller wrote to what the core understands: audiences resolved, tools and constraints parsed."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.core.attenuation import Wish
from app.core.budget import cents_to_ucents
from app.core.constraints import ConstraintInvalid, ToolRule, parse_tool_rule
from app.core.grant import MAX_TOOLS, Audience, RunId, ServerName, TenantId, ToolRef, parse_tool, spell_tool
from app.core.projection import Projection, ProjectionInvalid, parse_projection
from app.core.reasons import Reason
from app.core.strict_json import JsonObject
from app.ports import Transaction
from app.usecases.failures import Denied, Malformed
from app.usecases.world import World

MAX_AUDIENCES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowingFields:
    """The narrowing fields as they arrive: one list for mint, derive and `authorization_details`."""

    tenant_id: TenantId | None = None
    audience: tuple[str, ...] | None = None
    allowed_tools: tuple[str, ...] | None = None
    resource_constraints: JsonObject | None = None
    result_projection: JsonObject | None = None
    max_tool_calls: int | None = None
    max_spend_cents: int | float | None = None
    not_before: datetime | None = None
    expires_at: datetime | None = None
    expires_in_seconds: int | None = None
    may_redelegate: bool | None = None
    max_depth: int | None = None
    child_run_id: RunId | None = None


async def resolve_audience(tx: Transaction, world: World, tenant_id: TenantId, uri: str) -> Audience | None:
    """The enabled tool server that a URI names: its registered audience, or `{issuer}/mcp/{name}`."""
    server = await tx.registry.server_for(tenant_id, uri)
    if server is None and uri.startswith(world.rules.mcp_prefix):
        name = ServerName(uri.removeprefix(world.rules.mcp_prefix))
        server = await tx.registry.server(tenant_id, name)
    return Audience(uri, server.name) if server is not None and server.active else None


async def resolve_audiences(
    tx: Transaction, world: World, tenant_id: TenantId, uris: tuple[str, ...]
) -> tuple[Audience, ...] | Denied:
    """Every URI resolved, or the refusal that names the first one that can't be."""
    if len(uris) > MAX_AUDIENCES:
        raise Malformed("/audience", f"at most {MAX_AUDIENCES} audiences")
    audience: list[Audience] = []
    for uri in uris:
        resolved = await resolve_audience(tx, world, tenant_id, uri)
        if resolved is None:
            detail = "the audience names no tool server of this tenant"
            return Denied(reason=Reason.TARGET_REFUSED, detail=detail, pointer="/audience")
        if resolved.server in {known.server for known in audience}:
            raise Malformed("/audience", "two audiences name the same tool server")
        audience.append(resolved)
    return tuple(audience)


def read_wish(
    fields: NarrowingFields, audience: tuple[Audience, ...], now: datetime, *, inherited: Iterable[ToolRef] = ()
) -> Wish:
    """The wish under the audience that the new grant will have. Raises Malformed.

    `inherited` are the parent's tools: what `resourceConstraints` speak of when `allowedTools` is left out.
    """
    return Wish(
        audience=audience,
        tools=_tools(fields, audience, inherited),
        projections=_projections(fields, audience, inherited),
        tool_calls=fields.max_tool_calls,
        spend_ucents=_ucents(fields.max_spend_cents),
        not_before=_whole_second(fields.not_before),
        expires_at=_expiry(fields, now),
        may_redelegate=fields.may_redelegate,
        max_depth=fields.max_depth,
    )


def _tools(
    fields: NarrowingFields, audience: tuple[Audience, ...], inherited: Iterable[ToolRef]
) -> Mapping[ToolRef, ToolRule | None] | None:
    constraints = fields.resource_constraints
    if fields.allowed_tools is None and constraints is None:
        return None
    names = _names(fields, audience, inherited)
    _refuse_others("resourceConstraints", constraints, names)
    return {_ref(name, audience): _rule(name, constraints or {}) for name in names}


def _projections(
    fields: NarrowingFields, audience: tuple[Audience, ...], inherited: Iterable[ToolRef]
) -> Mapping[ToolRef, Projection] | None:
    wished = fields.result_projection
    if wished is None:
        return None
    _refuse_others("resultProjection", wished, _names(fields, audience, inherited))
    try:
        return {
            _ref(name, audience): parse_projection(paths, pointer=_pointer("resultProjection", name))
            for name, paths in wished.items()
        }
    except ProjectionInvalid as error:
        raise Malformed(error.pointer, error.detail) from error


def _names(fields: NarrowingFields, audience: tuple[Audience, ...], inherited: Iterable[ToolRef]) -> Collection[str]:
    """The tools that the wish is about, as it spells them: its own, else those of the parent."""
    if fields.allowed_tools is not None:
        if len(fields.allowed_tools) > MAX_TOOLS:
            raise Malformed("/allowedTools", f"at most {MAX_TOOLS} tools")
        return fields.allowed_tools
    servers = {item.server for item in audience}
    return tuple(spell_tool(audience, ref) for ref in inherited if ref.server in servers)


def _refuse_others(member: str, by_tool: JsonObject | None, names: Collection[str]) -> None:
    for name in by_tool or {}:
        if name not in names:
            raise Malformed(_pointer(member, name), "the grant's allowedTools do not name this tool")


def _ref(name: str, audience: tuple[Audience, ...]) -> ToolRef:
    if not audience:
        raise Malformed("/allowedTools", "tools need an audience")
    try:
        return parse_tool(audience, name)
    except ValueError as error:
        raise Malformed("/allowedTools", str(error)) from error


def _rule(name: str, constraints: JsonObject) -> ToolRule | None:
    if name not in constraints:
        return None
    try:
        return parse_tool_rule(constraints[name], pointer=_pointer("resourceConstraints", name))
    except ConstraintInvalid as error:
        raise Malformed(error.pointer, error.detail) from error


def _pointer(member: str, name: str) -> str:
    return f"/{member}/" + name.replace("~", "~0").replace("/", "~1")


def _ucents(cents: float | None) -> int | None:
    try:
        return None if cents is None else cents_to_ucents(cents)
    except ValueError as error:
        raise Malformed("/maxSpendCents", str(error)) from error


def _expiry(fields: NarrowingFields, now: datetime) -> datetime | None:
    if fields.expires_in_seconds is None:
        return _whole_second(fields.expires_at)
    if fields.expires_at is not None:
        raise Malformed("/expiresInSeconds", "give expiresAt or expiresInSeconds, not both")
    return now.replace(microsecond=0) + timedelta(seconds=fields.expires_in_seconds)


def _whole_second(moment: datetime | None) -> datetime | None:
    # Rounding down: a NumericDate has whole seconds, and an expiry may only come earlier by it.
    return None if moment is None else moment.replace(microsecond=0)
