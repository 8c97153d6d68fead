"""One message that came from a proven caller, with all that answering it needs."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from starlette.datastructures import Headers
from starlette.types import Receive

from app.api.mcp.messages import Code, Fault, Message
from app.core.grant import ServerName
from app.core.strict_json import JsonObject
from app.usecases.world import Caller, World

STATELESS_REVISION: Final = "2026-07-28"
HANDSHAKE_REVISIONS: Final = ("2025-11-25", "2025-06-18")
"""The revisions that begin with `initialize`, newest first."""

REVISIONS: Final = (STATELESS_REVISION, *HANDSHAKE_REVISIONS)

VERSION_FIELD: Final = "MCP-Protocol-Version"
VERSION_META: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_META: Final = "io.modelcontextprotocol/clientCapabilities"

MAX_SHOWN_VERSION: Final = 64

CAPABILITIES: Final[JsonObject] = {"tools": {}}
INSTRUCTIONS: Final = (
    "Every call is checked against a delegation grant and charged to its budget. A refused call says why; the same "
    "call will be refused again. A call whose outcome is unknown may have happened: never simply repeat it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A message, who sent it, and the tool server that the path names."""

    world: World
    caller: Caller
    server: ServerName
    headers: Headers
    message: Message
    receive: Receive
    """What else comes over the connection: that its client has gone."""
    accepts_events: bool
    version: str
    """Of the software that answers."""

    @property
    def audience(self) -> str:
        return f"{self.world.rules.mcp_prefix}{self.server}"

    @property
    def is_stateless(self) -> bool:
        """Whether the message is of 2026-07-28, as its header or its `_meta` says."""
        return STATELESS_REVISION in self.headers.getlist(VERSION_FIELD) or VERSION_META in self.message.meta

    @property
    def server_info(self) -> JsonObject:
        """`Implementation`: for people and logs."""
        return {"name": "subgrant", "title": "Subgrant", "version": self.version}


Method: TypeAlias = Callable[[Exchange], Awaitable[JsonObject]]
"""What a request asks for: its result, or a Fault raised."""

Methods: TypeAlias = Mapping[str, Method]


def unsupported_version(requested: str) -> Fault:
    """The refusal of a revision that is not spoken here, with those that are."""
    data: JsonObject = {"supported": [*REVISIONS], "requested": requested[:MAX_SHOWN_VERSION]}
    return Fault(Code.UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data=data)
