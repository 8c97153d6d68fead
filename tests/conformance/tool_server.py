"""The tool server that the conformance suite asks for: its tools' names, what they answer, and what they want.

Made with the official SDK, which speaks every revision. Some tools do what a gateway has to stop: ask the model or
its user something, or log where nobody asked for a log. Nothing here knows of Subgrant.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    ListToolsResult,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    PaginatedRequestParams,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
)
from starlette.applications import Starlette

Json = dict[str, Any]
Context = ServerRequestContext[Any, Any]
Answer = CallToolResult | InputRequiredResult
ToolFunction = Callable[[Context, Json], Awaitable[Answer]]

PAUSE_SECONDS: Final = 0.05
RED_PIXEL: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="  # a whole PNG
)
SILENCE: Final = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
"""A WAV of nothing."""

NO_ARGUMENTS: Final[Json] = {"type": "object", "properties": {}}
NAME_SCHEMA: Final[Json] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
CUSTOM_HEADER: Final[Json] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "query": {"type": "string"}},
    "required": ["region"],
}
JSON_SCHEMA_2020_12: Final[Json] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
"""As the suite spells it."""


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)


def _image() -> ImageContent:
    return ImageContent(type="image", data=RED_PIXEL, mime_type="image/png")


def _resource(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    contents = TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return EmbeddedResource(type="resource", resource=contents)


def _answers(*content: ContentBlock, is_error: bool = False) -> ToolFunction:
    async def tool(_context: Context, _arguments: Json) -> Answer:
        return CallToolResult(content=[*content], is_error=is_error)

    return tool


async def _report_progress(context: Context, _arguments: Json) -> Answer:
    for progress in (0, 50, 100):
        await context.session.report_progress(progress, 100)
        await asyncio.sleep(PAUSE_SECONDS)
    return CallToolResult(content=[_text("done")])


def _logs(pause_seconds: float) -> ToolFunction:
    """Whether or not anybody asked for a log."""

    async def tool(context: Context, _arguments: Json) -> Answer:
        for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            said = LoggingMessageNotificationParams(level="info", data=words)
            await context.session.send_notification(LoggingMessageNotification(params=said), context.request_id)
            await asyncio.sleep(pause_seconds)
        return CallToolResult(content=[_text("done")])

    return tool


def _question(prompt: str) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=_text(prompt))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=100))


def _form(message: str) -> ElicitRequest:
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=NAME_SCHEMA))


async def _ask_the_model(context: Context, arguments: Json) -> Answer:
    answer = await context.session.send_request(_question(arguments.get("prompt", "")), CreateMessageResult)
    return CallToolResult(content=[_text(f"LLM response: {answer.content}")])


async def _ask_the_user(context: Context, arguments: Json) -> Answer:
    answer = await context.session.send_request(_form(arguments.get("message", "")), ElicitResult)
    return CallToolResult(content=[_text(f"User response: {answer.action}")])


async def _need_sampling(context: Context, _arguments: Json) -> Answer:
    capabilities = context.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        needed: Json = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "this needs sampling", needed)
    return CallToolResult(content=[_text("sampling is there")])


def _wants(**requests: CreateMessageRequest | ElicitRequest | ListRootsRequest) -> ToolFunction:
    """It never gets what it wants: nothing that it asks for may reach an agent through the gateway."""

    async def tool(_context: Context, _arguments: Json) -> Answer:
        return InputRequiredResult(input_requests=dict(requests), request_state="a state of its own")

    return tool


TOOLS: Final[dict[str, ToolFunction]] = {
    "test_simple_text": _answers(_text("This is a simple text response for testing.")),
    "test_image_content": _answers(_image()),
    "test_audio_content": _answers(AudioContent(type="audio", data=SILENCE, mime_type="audio/wav")),
    "test_embedded_resource": _answers(_resource("test://embedded-resource", "text/plain", "An embedded resource.")),
    "test_multiple_content_types": _answers(
        _text("Multiple content types test:"),
        _image(),
        _resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ),
    "test_error_handling": _answers(_text("This tool intentionally returns an error for testing"), is_error=True),
    "test_tool_with_progress": _report_progress,
    "test_tool_with_logging": _logs(PAUSE_SECONDS),
    "test_logging_tool": _logs(0),
    "test_sampling": _ask_the_model,
    "test_elicitation": _ask_the_user,
    "test_elicitation_sep1034_defaults": _ask_the_user,
    "test_elicitation_sep1330_enums": _ask_the_user,
    "test_missing_capability": _need_sampling,
    "test_streaming_elicitation": _wants(user_name=_form("What is your name?")),
    "test_input_required_result_elicitation": _wants(user_name=_form("What is your name?")),
    "test_input_required_result_sampling": _wants(capital_question=_question("What is the capital of France?")),
    "test_input_required_result_list_roots": _wants(client_roots=ListRootsRequest()),
    "test_input_required_result_request_state": _wants(confirm=_form("Please confirm")),
    "test_input_required_result_multiple_inputs": _wants(
        user_name=_form("What is your name?"), greeting=_question("Generate a greeting"), roots=ListRootsRequest()
    ),
    "test_input_required_result_multi_round": _wants(step1=_form("Step 1")),
    "test_input_required_result_tampered_state": _wants(confirm=_form("Please confirm")),
    "test_input_required_result_capabilities": _wants(user_name=_form("What is your name?")),
    "json_schema_2020_12_tool": _answers(_text("done")),
    "test_custom_header": _answers(_text("done")),
}
SCHEMAS: Final[dict[str, Json]] = {
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "json_schema_2020_12_tool": JSON_SCHEMA_2020_12,
    "test_custom_header": CUSTOM_HEADER,
}


def tool_server() -> Starlette:
    """Serves under `/mcp`."""

    async def list_tools(_context: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        tools = [
            Tool(name=name, description=f"Does {name}", input_schema=SCHEMAS.get(name, NO_ARGUMENTS)) for name in TOOLS
        ]
        return ListToolsResult(tools=tools)

    async def call_tool(context: Context, params: CallToolRequestParams) -> Answer:
        return await TOOLS[params.name](context, params.arguments or {})

    server = Server("conformance-tools", version="1.0.0", on_list_tools=list_tools, on_call_tool=call_tool)
    return server.streamable_http_app()
