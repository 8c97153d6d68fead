"""The tool servers behind the gateway, over plain HTTP or MCP.

Knows how an exchange ends: that a call is sent at most once, and what is said of one that failed. Every
sentence here may be shown to a caller; none holds an address, a port or a credential.
"""

import asyncio
from typing import Final

from app.adapters.upstream import http, resource_record
from app.adapters.upstream.addresses import AddressPolicy
from app.adapters.upstream.client import LostError, NotSentError, UnusableError, UpstreamClient
from app.adapters.upstream.mcp import McpTools
from app.core.registry import HttpBinding, Transport
from app.core.resources import Resources
from app.core.strict_json import JsonObject, point
from app.ports import DiscoveredTool, Outcome, ResolveRequest, UpstreamAnswer, UpstreamFailed, UpstreamRequest

MAX_CONNECTIONS: Final = 1024
MAX_CONNECTIONS_PER_SERVER: Final = 256
MAX_SESSIONS: Final = 1024
MAX_ERAS: Final = 4096
"""How many tool servers are remembered for how they want to be spoken to."""


class ToolUpstream:
    """`ports.Upstream`, for one process and one event loop.

    Tool servers at loopback and private addresses are refused unless `addresses` says otherwise; link-local
    ones, where clouds keep their credentials, always are.
    """

    def __init__(
        self,
        *,
        addresses: AddressPolicy = "public",
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_server: int = MAX_CONNECTIONS_PER_SERVER,
        max_sessions: int = MAX_SESSIONS,
        max_eras: int = MAX_ERAS,
    ) -> None:
        self._client = UpstreamClient(
            addresses=addresses,
            max_connections=max_connections,
            max_connections_per_server=max_connections_per_server,
        )
        self._mcp = McpTools(self._client, max_sessions=max_sessions, max_eras=max_eras)

    async def call(self, request: UpstreamRequest) -> UpstreamAnswer:
        try:
            return await self._call(request, _deadline(request))
        except NotSentError as error:
            return UpstreamAnswer(outcome=Outcome.UNSENT, detail=error.detail, timed_out=error.timed_out)
        except LostError as error:
            return UpstreamAnswer(outcome=Outcome.UNKNOWN, detail=error.detail, timed_out=error.timed_out)
        except UnusableError as error:
            return UpstreamAnswer(outcome=Outcome.TOOL_ERROR, detail=error.detail)

    def misfit(
        self, transport: Transport, endpoint: str, binding: HttpBinding, arguments: JsonObject
    ) -> tuple[str, str] | None:
        if transport is not Transport.HTTP:
            return None
        try:
            http.compose(self._client.endpoint(endpoint), binding, arguments)
        except http.MisplacedError as error:
            return point("", error.name), error.detail
        except NotSentError:
            return None  # that is for the call to say
        return None

    async def discover(self, request: UpstreamRequest) -> tuple[DiscoveredTool, ...]:
        if request.transport is not Transport.MCP:
            raise UpstreamFailed("a plain HTTP tool server has no list of its tools")
        try:
            return await self._mcp.tools(request, _deadline(request))
        except (NotSentError, LostError, UnusableError) as error:
            raise UpstreamFailed(error.detail) from error

    async def resolve(self, request: ResolveRequest) -> Resources:
        try:
            return await resource_record.ask(self._client, request, _deadline(request))
        except (NotSentError, LostError, UnusableError) as error:
            raise UpstreamFailed(error.detail) from error

    async def aclose(self) -> None:
        self._mcp.end_sessions()
        await self._client.aclose()

    async def _call(self, request: UpstreamRequest, deadline: float) -> UpstreamAnswer:
        match request.transport:
            case Transport.HTTP:
                return await http.call(self._client, request, deadline)
            case Transport.MCP:
                return await self._mcp.call(request, deadline)


def _deadline(request: UpstreamRequest | ResolveRequest) -> float:
    return asyncio.get_running_loop().time() + request.timeout_seconds
