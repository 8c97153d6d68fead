"""An MCP client for tests that says what it is told to, in any revision, and returns what came back as it came.

Written from the specification, not from the server: header fields and members are spelt here once more. What a
test is not about, it fills in as a well-behaved client would. The official client is in `tests/e2e`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import httpx

Json = dict[str, Any]

STATELESS: Final = "2026-07-28"
HANDSHAKES: Final = ("2025-11-25", "2025-06-18")
REVISIONS: Final = (STATELESS, *HANDSHAKES)

DECISION: Final = "dev.subgrant/decision"
IDEMPOTENCY_KEY: Final = "dev.subgrant/idempotencyKey"

ACCEPT: Final = "application/json, text/event-stream"
HELLO: Final[Json] = {"capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}


def meta(**more: object) -> Json:
    """What each request of the stateless revision says of itself."""
    return {
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {},
        **more,
    }


@dataclass
class McpClient:
    """Speaks one revision to one tool server's endpoint, with one token or none."""

    http: httpx.AsyncClient
    token: str | None
    revision: str = STATELESS
    server: str = "support"
    session: str | None = None
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    async def send(self, body: object, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Any body under any header fields; nothing of a revision is added."""
        return await self.send_bytes(json.dumps(body).encode(), headers)

    async def send_bytes(self, content: bytes, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return await self.http.post(f"/mcp/{self.server}", content=content, headers=self.fields(headers))

    def fields(self, headers: Mapping[str, str] | None = None) -> dict[str, str]:
        bearer = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return {"Accept": ACCEPT, "Content-Type": "application/json"} | bearer | dict(headers or {})

    async def ask(self, method: str, params: Json | None = None) -> httpx.Response:
        """A request as the revision has it; the handshake first, where it begins with one."""
        if self.revision != STATELESS and self.session is None and method != "initialize":
            greeted = await self.initialize()
            if not greeted.is_success:
                return greeted
            self.session = greeted.headers["mcp-session-id"]
        return await self.send(*self.request(method, params))

    def request(self, method: str, params: Json | None = None) -> tuple[Json, dict[str, str]]:
        """Body and header fields of a request."""
        given = dict(params or {})
        if self.revision == STATELESS:
            given["_meta"] = meta(**given.get("_meta", {}))
            named = given.get("name")
            headers = {"MCP-Protocol-Version": STATELESS, "Mcp-Method": method}
            headers |= {"Mcp-Name": named} if method == "tools/call" and isinstance(named, str) else {}
        else:
            headers = {"MCP-Protocol-Version": self.revision, "Mcp-Session-Id": self.session or ""}
        return {"jsonrpc": "2.0", "id": next(self.numbers), "method": method, "params": given}, headers

    async def initialize(self, revision: str | None = None) -> httpx.Response:
        params = {"protocolVersion": revision or self.revision, **HELLO}
        return await self.send({"jsonrpc": "2.0", "id": next(self.numbers), "method": "initialize", "params": params})

    async def call(self, tool: str, arguments: Json | None = None, *, key: str | None = None) -> httpx.Response:
        params: Json = {"name": tool, "arguments": arguments or {}}
        return await self.ask("tools/call", params | ({} if key is None else {"_meta": {IDEMPOTENCY_KEY: key}}))

    async def tools(self, **params: object) -> Json:
        return result_of(await self.ask("tools/list", params))


EVENTS: Final = "text/event-stream"


def messages_of(response: httpx.Response) -> list[Json]:
    """Every message of an answer: of a stream of events in their order, else the only one."""
    if response.headers["content-type"].partition(";")[0] != EVENTS:
        return [response.json()]
    return [message for event in response.text.split("\n\n") for message in in_event(event)]


def in_event(event: str) -> list[Json]:
    """The message in one event of a stream; none in one that only says that the stream goes on."""
    data = [line.removeprefix("data: ") for line in event.splitlines() if line.startswith("data: ")]
    return [json.loads("\n".join(data))] if data else []


def result_of(response: httpx.Response) -> Json:
    """The result of a request that must have one."""
    assert response.status_code == 200, f"{response.status_code} {response.text}"
    document = messages_of(response)[-1]
    assert set(document) == {"jsonrpc", "id", "result"}, document
    result: Json = document["result"]
    return result


def error_of(response: httpx.Response) -> Json:
    """The error of a message that must have one."""
    assert response.headers["content-type"] == "application/json", response.text
    document: Json = response.json()
    assert {"jsonrpc", "error"} <= set(document) <= {"jsonrpc", "id", "error"}, document
    error: Json = document["error"]
    assert isinstance(error["code"], int)
    assert isinstance(error["message"], str)
    return error


def decision_of(response: httpx.Response) -> Json:
    """What was decided, wherever it stands: beside a result, or with an error."""
    document = messages_of(response)[-1]
    holder = document["result"]["_meta"] if "result" in document else document["error"]["data"]
    decision: Json = holder[DECISION]
    return decision


def text_of(result: Json) -> str:
    """The words of a tool result."""
    return "\n".join(item["text"] for item in result["content"])
