"""`tools/list` and `tools/call`, in every revision alike: the grant's catalogue, and its guarded calls."""

import base64
from collections.abc import Mapping
from itertools import accumulate
from typing import Final

from pydantic import TypeAdapter, ValidationError

from app.api.errors import TABLE, DenialError, OverMcp, allowed
from app.api.gateway import Key
from app.api.mcp.exchange import CAPABILITIES_META, Exchange
from app.api.mcp.messages import Code, Fault
from app.api.mcp.results import (
    DECISION,
    PREFIX,
    allowed_decision,
    decision_of,
    denied_result,
    failed_result,
    lacked_by,
    result_of,
)
from app.api.wire import ToolSpelling
from app.core.grant import ToolName
from app.core.strict_json import JsonObject, JsonValue, canonical
from app.usecases.authorize_call import ProposedCall
from app.usecases.failures import CallInFlight, Denied, IdempotencyConflict, ToolServerFailed
from app.usecases.forward_call import Forwarded, forward_call
from app.usecases.list_tools import ListedTool, list_tools
from app.usecases.watch import Watch

CALL: Final = "tools/call"

IDEMPOTENCY_KEY: Final = f"{PREFIX}idempotencyKey"

MAX_PAGE_TOOLS: Final = 100
MAX_PAGE_BYTES: Final = 1_048_576

HEADER_KEYWORD: Final = "x-mcp-header"
"""What makes clients repeat an argument in a header field. No field is read here, so nobody is asked to send one."""

_OF_OTHER_ROUNDS: Final = frozenset({"inputResponses", "requestState"})

_BY_NAME: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES: Final = frozenset({"const", "enum", "default", "examples"})

_NAME: Final[TypeAdapter[str]] = TypeAdapter(ToolSpelling)
_KEY: Final[TypeAdapter[str]] = TypeAdapter(Key)


# --- tools/list -------------------------------------------------------------------------------------------


async def page_of_tools(exchange: Exchange) -> JsonObject:
    """The grant's tools of this tool server by name, some at a time."""
    after = _position(exchange.message.params.get("cursor"))
    grant_id = exchange.caller.grant_id
    assert grant_id is not None, "whoever has no grant was not admitted"
    listed = allowed(await list_tools(exchange.world, exchange.caller, grant_id, server=exchange.server))
    ahead = [tool for tool in listed if after is None or tool.ref.tool > after]
    ahead.sort(key=lambda tool: tool.ref.tool)
    tools = [_document(tool) for tool in ahead[:MAX_PAGE_TOOLS]]
    tools = tools[: _fitting(tools)]
    following: JsonObject = {} if len(tools) == len(ahead) else {"nextCursor": _cursor(ahead[len(tools) - 1].ref.tool)}
    return {"tools": [*tools], **following}


def _fitting(tools: list[JsonObject]) -> int:
    """How many of them a page holds: as many as its limits allow, and always one."""
    sizes = accumulate(len(canonical(tool)) for tool in tools)
    return max(1, sum(size <= MAX_PAGE_BYTES for size in sizes))


def _document(tool: ListedTool) -> JsonObject:
    """A `Tool`. No annotations: what a tool does is the registry's to say, and no hint decides about a call."""
    output = tool.output_schema
    # The one root that all revisions allow; a result of another type travels inside an object.
    shown: JsonObject = {} if output is None or output.get("type") != "object" else {"outputSchema": output}
    schema = without_header_keyword(tool.input_schema)
    return {"name": tool.ref.tool, "description": tool.description, "inputSchema": schema, **shown}


def without_header_keyword(schema: JsonValue) -> JsonValue:
    """A schema that names no header fields for arguments; values and names that read alike are left alone."""
    if isinstance(schema, list):
        return [without_header_keyword(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        keyword: _named(part) if keyword in _BY_NAME else part if keyword in _VALUES else without_header_keyword(part)
        for keyword, part in schema.items()
        if keyword != HEADER_KEYWORD
    }


def _named(schemas: JsonValue) -> JsonValue:
    if not isinstance(schemas, dict):
        return schemas
    return {name: without_header_keyword(schema) for name, schema in schemas.items()}


def _cursor(name: str) -> str:
    """The name of the last tool on a page, which may have gone when the next page is asked for."""
    return base64.urlsafe_b64encode(name.encode()).decode()


def _position(cursor: JsonValue) -> str | None:
    if cursor is None:
        return None
    detail = "the cursor is none that was given out"
    try:
        name = base64.urlsafe_b64decode(str(cursor)).decode()
    except ValueError as error:
        raise Fault(Code.INVALID_PARAMS, detail) from error
    if _cursor(name) != cursor:
        raise Fault(Code.INVALID_PARAMS, detail)
    return name


# --- tools/call -------------------------------------------------------------------------------------------


async def call_tool(exchange: Exchange, watch: Watch) -> JsonObject:
    """One call through the gateway, decided where every route's calls are. Raises Fault, DenialError."""
    proposed = _proposed(exchange)
    try:
        came = await forward_call(exchange.world, exchange.caller, proposed, watch)
    except (CallInFlight, IdempotencyConflict, ToolServerFailed) as failure:
        return failed_result(failure)
    if isinstance(came, Denied):
        return _denied(came)
    if exchange.is_stateless:
        _check_capabilities(exchange, came)
    return result_of(came)


def _check_capabilities(exchange: Exchange, came: Forwarded) -> None:
    """Refuse, as the tool did, a client that does not offer what the tool needs; another one can't be helped here."""
    declared = exchange.message.meta.get(CAPABILITIES_META)
    lacked = lacked_by(came, declared if isinstance(declared, dict) else {})
    if lacked:
        data: JsonObject = {"requiredCapabilities": lacked, DECISION: allowed_decision(came)}
        raise Fault(Code.MISSING_CAPABILITY, "the tool needs what the client does not offer", data=data)


def _denied(denied: Denied) -> JsonObject:
    match TABLE[denied.reason].mcp:
        case OverMcp.STATUS:
            raise DenialError(denied)
        case OverMcp.UNKNOWN_TOOL:
            # As for a tool that does not exist, which it may well be.
            raise Fault(Code.INVALID_PARAMS, "Unknown tool", data={DECISION: decision_of(denied)})
        case OverMcp.RESULT:
            return denied_result(denied)


def _proposed(exchange: Exchange) -> ProposedCall:
    params = exchange.message.params
    if not _OF_OTHER_ROUNDS.isdisjoint(params):
        # Nobody here asked for input, so that whatever is presented as an answer or as our state is none of ours.
        raise Fault(Code.INVALID_PARAMS, "no input was asked for: a call is made anew, without answers and state")
    arguments = params.get("arguments", {})
    if not isinstance(arguments, dict):
        raise Fault(Code.INVALID_PARAMS, "arguments must be an object")
    return ProposedCall(
        tool_server_audience=exchange.audience,
        name=ToolName(_read(_NAME, params.get("name"), "name must be a tool's name")),
        arguments=arguments,
        idempotency_key=_key(exchange.message.meta),
    )


def _key(meta: Mapping[str, JsonValue]) -> str | None:
    unknown = {name for name in meta if name.startswith(PREFIX)} - {IDEMPOTENCY_KEY}
    if unknown:
        # A wish of ours that is not understood is never ignored.
        raise Fault(Code.INVALID_PARAMS, f"of the members of _meta that begin with {PREFIX} only the key is known")
    if IDEMPOTENCY_KEY not in meta:
        return None
    detail = f"{IDEMPOTENCY_KEY} must be a string of 1 to 255 visible ASCII characters"
    return _read(_KEY, meta[IDEMPOTENCY_KEY], detail)


def _read(form: TypeAdapter[str], value: JsonValue, detail: str) -> str:
    try:
        return form.validate_python(value, strict=True)
    except ValidationError as error:
        raise Fault(Code.INVALID_PARAMS, detail) from error
