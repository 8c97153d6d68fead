"""Register a tool of a tool server; read, list, change and remove tools.

What stands here is an administrator's word about a tool: what it takes, costs and does. Nothing of it follows
what the tool server says later. A definition that a call could not be made from, or could not be held to, is
refused here rather than at the call.

An MCP server's own definition of the tool is pinned when the tool is new: what it offers at that moment, or where it
does not say, exactly what was declared. Registering the tool again, or changing it, never moves the pin.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from app.core.budget import Price
from app.core.definition import Definition
from app.core.grant import ServerName, TenantId, ToolName
from app.core.registry import Effect, HttpBinding, Tool, ToolServer, ToolSource, Transport, Trust
from app.core.resource_rules import type_flaw
from app.core.strict_json import JsonObject, canonical
from app.ports import DiscoveredTool, SchemaValidator, Transaction, UpstreamFailed
from app.usecases.administration import (
    Change,
    Page,
    PageRequest,
    Registered,
    administering,
    changed_members,
    out_of_reach,
    page_of,
    record,
    rows_to_ask,
)
from app.usecases.ask_tool_server import MAX_CHECK_SECONDS, ask_tool_server
from app.usecases.failures import Conflict, Denied, Malformed, NotFound
from app.usecases.register_tool_server import known_server
from app.usecases.world import Caller, World

MAX_TOOLS_PER_SERVER: Final = 1000
MAX_DESCRIPTION_CHARS: Final = 8000
MAX_SCHEMA_BYTES: Final = 131_072
MAX_RESOURCE_ARGUMENTS: Final = 32

TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")
"""A tool's name as MCP spells it."""

METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})

_PROSE: Final = re.compile(r"[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*")
"""Text with line breaks and without what else controls a terminal."""

_PATH: Final = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|\{[^{}/]+\})*")
"""A path template: no query, no fragment, nothing percent-encoded that could be read in two ways."""

_PLACEHOLDER: Final = re.compile(r"\{([^{}/]+)\}")
_POINTER: Final = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
"""A JSON pointer (RFC 6901 §3)."""

_MEMBERS: Final[Mapping[str, str]] = {
    "description": "description",
    "input_schema": "inputSchema",
    "output_schema": "outputSchema",
    "price.fixed_ucents": "costCents",
    "price.max_ucents": "maxCostCents",
    "price.cost_from": "costFrom",
    "effect": "effect",
    "trust": "trust",
    "sinks": "sinks",
    "idempotent": "idempotent",
    "loggable_arguments": "loggableArguments",
    "resource_arguments": "resourceArguments",
    "http": "http",
    "source": "source",
}


async def register_tool(world: World, caller: Caller, wish: Tool) -> Registered[Tool] | Denied:
    """The tool as it is registered now: new, or in the place of the one before.

    A binding without a path takes `/` and the tool's name. Raises Malformed, NotFound and Conflict.
    """
    if (denied := out_of_reach(caller, wish.tenant_id)) is not None:
        return denied
    server, offered = await _offered(world, wish)
    async with administering(world) as tx:
        if await known_server(tx, wish.tenant_id, wish.server) != server:
            raise Conflict("the tool server was changed meanwhile")
        tool = checked(world.schemas, server, wish)
        existing = await tx.registry.tool(tool.tenant_id, tool.server, tool.name)
        if existing is None:
            tool = tool if offered is None else held_to(offered, tool)
            siblings = await tx.registry.tools(tool.tenant_id, tool.server)
            await add_tool(tx, world, caller, tool, beside=len(siblings))
            await tx.commit()
        elif not same_definition(existing, tool := _as_pinned(server, existing, tool)):
            await _replace(tx, world, caller, existing, tool)
            await tx.commit()
    return Registered(thing=tool, created=existing is None)


async def _offered(world: World, wish: Tool) -> tuple[ToolServer, Definition | None]:
    """The tool server, and what it offers under the name of a tool that is new, where it says so usably."""
    async with world.store.read() as tx:
        server = await known_server(tx, wish.tenant_id, wish.server)
        existing = await tx.registry.tool(wish.tenant_id, wish.server, wish.name)
    checked(world.schemas, server, wish)
    if existing is not None or server.transport is not Transport.MCP or not server.active:
        return server, None
    try:
        session = world.new_id("declare")
        found = await ask_tool_server(world, server, session=session, at_most_seconds=MAX_CHECK_SECONDS)
    except UpstreamFailed:
        return server, None
    named = [tool for tool in found if tool.name == wish.name]
    is_usable = len(named) == 1 and flaw_of(world.schemas, server, named[0]) is None
    return server, definition_of(named[0]) if is_usable else None


async def read_tool(
    world: World, caller: Caller, tenant_id: TenantId, server: ServerName, name: ToolName
) -> Tool | Denied:
    """One tool. Raises NotFound."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    async with world.store.read() as tx:
        return await known_tool(tx, tenant_id, server, name)


async def list_tools_of(
    world: World, caller: Caller, tenant_id: TenantId, server: ServerName, page: PageRequest
) -> Page[Tool] | Denied:
    """A tool server's tools by name. Raises NotFound."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    rows = rows_to_ask(world, page)
    async with world.store.read() as tx:
        await known_server(tx, tenant_id, server)
        tools = await tx.registry.tools(tenant_id, server)
    rest = sorted((tool for tool in tools if tool.name > (page.after or "")), key=lambda tool: tool.name)
    return page_of(rest[:rows], page, lambda tool: tool.name)


async def change_tool(
    world: World, caller: Caller, tenant_id: TenantId, server: ServerName, name: ToolName, change: Change[Tool]
) -> Tool | Denied:
    """The tool after the change. Raises NotFound and Malformed."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    async with administering(world) as tx:
        before, registered = await known_tool(tx, tenant_id, server, name), await known_server(tx, tenant_id, server)
        wish = replace(change(before), tenant_id=tenant_id, server=server, name=name, source=before.source)
        after = _as_pinned(registered, before, checked(world.schemas, registered, wish))
        if not same_definition(before, after):
            await _replace(tx, world, caller, before, after)
            await tx.commit()
    return after


async def remove_tool(
    world: World, caller: Caller, tenant_id: TenantId, server: ServerName, name: ToolName
) -> Denied | None:
    """Remove a tool: grants that name it permit nothing any more. Raises NotFound."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    async with administering(world) as tx:
        tool = await known_tool(tx, tenant_id, server, name)
        await tx.registry.remove_tool(tenant_id, server, name)
        await record(tx, world, caller, tenant_id, "tool.removed", tool_resource(tool))
        await tx.commit()
    return None


async def add_tool(tx: Transaction, world: World, caller: Caller, tool: Tool, *, beside: int) -> None:
    """Store a checked tool that is new, with its record. Raises Conflict where it stands beside too many."""
    if beside >= MAX_TOOLS_PER_SERVER:
        raise Conflict(f"a tool server has at most {MAX_TOOLS_PER_SERVER} tools")
    await tx.registry.put_tool(tool)
    action = {ToolSource.DECLARED: "tool.created", ToolSource.DISCOVERED: "tool.discovered"}[tool.source]
    await record(tx, world, caller, tool.tenant_id, action, tool_resource(tool))


async def _replace(tx: Transaction, world: World, caller: Caller, before: Tool, after: Tool) -> None:
    changed = changed_members(before, after, _MEMBERS)
    await tx.registry.put_tool(after)
    await record(tx, world, caller, after.tenant_id, "tool.changed", tool_resource(after), changed)


async def known_tool(tx: Transaction, tenant_id: TenantId, server: ServerName, name: ToolName) -> Tool:
    """The tool. Raises NotFound."""
    tool = await tx.registry.tool(tenant_id, server, name)
    if tool is None:
        raise NotFound("there is no such tool")
    return tool


def tool_resource(tool: Tool) -> str:
    """The tool as records name it."""
    return f"tool-server/{tool.server}/tool/{tool.name}"


def same_definition(one: Tool, other: Tool) -> bool:
    """Whether two tools are the same in everything; to Python `true` equals 1, to a schema it does not."""
    return one == other and _schemas(one) == _schemas(other) and one.pin_digest == other.pin_digest


def _schemas(tool: Tool) -> bytes:
    return canonical([tool.input_schema, tool.output_schema])


# --- what the tool server's own definition is held to -----------------------------------------------------


def held_to(pin: Definition, tool: Tool) -> Tool:
    """The tool, whose server must offer it like this; kept apart only where the tool itself says otherwise."""
    is_own = pin.digest(tool.name) == tool.definition.digest(tool.name)
    return replace(tool, pinned=None if is_own else pin)


def _as_pinned(server: ToolServer, before: Tool, after: Tool) -> Tool:
    """A tool that was changed: what an administrator says of it moves no pin and accepts nothing."""
    if server.transport is not Transport.MCP:
        return after
    return replace(held_to(before.pin, after), pending=before.pending)


def definition_of(offered: DiscoveredTool) -> Definition:
    return Definition(
        description=offered.description, input_schema=offered.input_schema, output_schema=offered.output_schema
    )


def flaw_of(schemas: SchemaValidator, server: ToolServer, offered: DiscoveredTool) -> str | None:
    """Why what a tool server offers can't be used, if it can't. The offered text is not repeated."""
    try:
        checked(schemas, server, as_offered(server, offered))
    except Malformed as fault:
        return f"{fault.pointer}: {fault.detail}"
    return None


def as_offered(server: ToolServer, offered: DiscoveredTool) -> Tool:
    """A tool of which nothing is known but its server's word, and so read as the worst."""
    return Tool(
        tenant_id=server.tenant_id,
        server=server.name,
        name=offered.name,
        description=offered.description,
        input_schema=offered.input_schema,
        output_schema=offered.output_schema,
        price=Price(fixed_ucents=0, max_ucents=0),
        effect=Effect.EXTERNAL,
        trust=Trust.EXTERNAL_UNTRUSTED,
        sinks=(),
        idempotent=False,
        loggable_arguments=(),
        http=HttpBinding(),
        source=ToolSource.DISCOVERED,
    )


# --- what makes a usable definition -----------------------------------------------------------------------


def checked(schemas: SchemaValidator, server: ToolServer, wish: Tool) -> Tool:
    """The tool, its binding complete, if calls can be made from it. Raises Malformed naming the member."""
    tool = _bound(server, wish)
    for pointer, fault in _CHECKS:
        detail = fault(tool)
        if detail is not None:
            raise Malformed(pointer, detail)
    for pointer, schema in (("/inputSchema", tool.input_schema), ("/outputSchema", tool.output_schema)):
        detail = None if schema is None else schemas.check_schema(schema)
        if detail is not None:
            raise Malformed(pointer, detail)
    return tool


def _bound(server: ToolServer, tool: Tool) -> Tool:
    if server.transport is Transport.HTTP:
        return replace(tool, http=replace(tool.http, path=tool.http.path or f"/{tool.name}"))
    if tool.http != HttpBinding():
        raise Malformed("/http", "is for tool servers with the transport http")
    return tool


def _name_fault(tool: Tool) -> str | None:
    return None if TOOL_NAME.fullmatch(tool.name) else "must be 1 to 128 letters, digits, '_', '.', '/' or '-'"


def _description_fault(tool: Tool) -> str | None:
    is_prose = len(tool.description) <= MAX_DESCRIPTION_CHARS and _PROSE.fullmatch(tool.description)
    return None if is_prose else f"must be at most {MAX_DESCRIPTION_CHARS} characters without control characters"


def _size_fault(tool: Tool) -> str | None:
    return None if len(_schemas(tool)) <= MAX_SCHEMA_BYTES else f"must be at most {MAX_SCHEMA_BYTES} bytes"


def _input_fault(tool: Tool) -> str | None:
    if tool.input_schema.get("type") != "object":
        return 'must be a schema of "type": "object"'
    required, properties = tool.input_schema.get("required", []), tool.input_schema.get("properties", {})
    is_shaped = isinstance(properties, dict) and isinstance(required, list)
    return None if is_shaped else "must have an object of properties and a list of required names"


def _pointer_fault(tool: Tool) -> str | None:
    pointer = tool.price.cost_from
    return None if pointer is None or _POINTER.fullmatch(pointer) else "must be a JSON pointer (RFC 6901)"


def _maximum_fault(tool: Tool) -> str | None:
    return None if tool.price.max_ucents >= tool.price.fixed_ucents else "must be at least costCents"


def _loggable_fault(tool: Tool) -> str | None:
    unknown = set(tool.loggable_arguments) - _properties(tool.input_schema).keys()
    return "must each be a property of inputSchema" if unknown else None


def _resource_fault(tool: Tool) -> str | None:
    if len(tool.resource_arguments) > MAX_RESOURCE_ARGUMENTS:
        return f"must be at most {MAX_RESOURCE_ARGUMENTS} arguments"
    if tool.resource_arguments.keys() - _properties(tool.input_schema).keys():
        return "must each be a property of inputSchema"
    return next(filter(None, map(type_flaw, tool.resource_arguments.values())), None)


def _method_fault(tool: Tool) -> str | None:
    return None if tool.http.method in METHODS else f"must be one of {', '.join(sorted(METHODS))}"


def _path_fault(tool: Tool) -> str | None:
    path = tool.http.path
    if path and not _PATH.fullmatch(path):
        return "must be an absolute path without query, fragment and percent-encoding"
    if {".", ".."} & set(path.split("/")):
        return "must have no '.' and '..' segments"
    required = tool.input_schema.get("required", [])
    assert isinstance(required, list), "the schema was checked first"
    needed = set(_PLACEHOLDER.findall(path))
    if not needed <= _properties(tool.input_schema).keys() & set(required):
        return "must name in braces only properties that inputSchema requires"
    return None


def _properties(schema: JsonObject) -> JsonObject:
    properties = schema.get("properties", {})
    assert isinstance(properties, dict), "the schema was checked first"
    return properties


# In this order: what stands further down reads what was checked further up.
_CHECKS: Final[Sequence[tuple[str, Callable[[Tool], str | None]]]] = (
    ("/name", _name_fault),
    ("/description", _description_fault),
    ("/inputSchema", _size_fault),
    ("/inputSchema", _input_fault),
    ("/costFrom", _pointer_fault),
    ("/maxCostCents", _maximum_fault),
    ("/loggableArguments", _loggable_fault),
    ("/resourceArguments", _resource_fault),
    ("/http/method", _method_fault),
    ("/http/path", _path_fault),
)
