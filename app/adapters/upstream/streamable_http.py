"""MCP's streamable HTTP transport, revisions 2025-11-25 and 2025-06-18: sessions, and one message at a time.

Knows JSON-RPC and how a request finds its answer in a body or in a stream of events. What a tool is and what
its results look like is not known here. The official SDK does far more, for twenty times the CPU.

https://modelcontextprotocol.io/specification/2025-11-25/basic/transports
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import Final

from yarl import URL

from app.adapters.upstream.client import (
    LostError,
    NotSentError,
    Reply,
    UnusableError,
    UpstreamClient,
    with_credential,
)
from app.adapters.upstream.sse import EventParser
from app.core.strict_json import JsonObject, StrictJsonError, canonical, parse

REVISIONS: Final = ("2025-11-25", "2025-06-18")
"""What we speak, newest first."""

MAX_MESSAGE_DEPTH: Final = 64
MAX_PINGS: Final = 8

_SESSION_ID: Final = re.compile(r"[\x21-\x7e]{1,1024}")
_HEADERS: Final = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_GREETING: Final[JsonObject] = {
    "protocolVersion": REVISIONS[0],
    "capabilities": {},
    "clientInfo": {"name": "subgrant", "version": "0.1.0"},
}


class SessionEndedError(Exception):
    """The server knows the session no more, and so has not looked at what was sent in it."""


class RefusedError(UnusableError):
    """The server answered with a status that carries no message."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the tool answered HTTP {status}")
        self.status = status


@dataclass(slots=True, kw_only=True)
class Session:
    """An open session, with the credential that was last presented in it."""

    url: URL
    credential: Mapping[str, str] = field(repr=False)
    revision: str | None = None
    session_id: str | None = field(default=None, repr=False)
    numbers: Iterator[int] = field(default_factory=count)

    @property
    def headers(self) -> dict[str, str]:
        headers = dict(_HEADERS)
        if self.revision is not None:
            headers["MCP-Protocol-Version"] = self.revision
        if self.session_id is not None:
            headers["Mcp-Session-Id"] = self.session_id
        return with_credential(self.credential, headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long an exchange may take, as a time of the loop, and how large an answer may be."""

    deadline: float
    max_bytes: int


class StreamableHttp:
    def __init__(self, client: UpstreamClient) -> None:
        self._client = client

    async def open(self, url: URL, credential: Mapping[str, str], bounds: Bounds) -> Session:
        """Initialise a session. Whatever goes wrong raises NotSentError: no call has been made yet."""
        session = Session(url=url, credential=credential)
        try:
            await self._initialise(session, bounds)
        except LostError as error:
            raise NotSentError("the tool server opened no session", timed_out=error.timed_out) from error
        except UnusableError as error:
            raise NotSentError(f"the tool server opened no session: {error.detail}") from error
        return session

    async def ask(self, session: Session, method: str, params: JsonObject, bounds: Bounds) -> JsonObject:
        """Send a request and return the response message, having told the server where nobody waits for it.

        Raises SessionEndedError, RefusedError, NotSentError, LostError or UnusableError.
        """
        number = next(session.numbers)
        try:
            message, _session_id = await self._exchange(session, number, method, params, bounds)
        except asyncio.CancelledError:
            self._cancel(session, number)
            raise
        except LostError as error:
            if error.timed_out:
                self._cancel(session, number)
            raise
        return message

    def end(self, session: Session) -> None:
        """Tell the server, in the background, that its session is not needed any more."""
        if session.session_id is not None:
            self._client.errand("DELETE", session.url, headers=session.headers)

    async def _initialise(self, session: Session, bounds: Bounds) -> None:
        number = next(session.numbers)
        message, session_id = await self._exchange(session, number, "initialize", _GREETING, bounds)
        session.revision = _revision(message)
        session.session_id = _checked_session_id(session_id)
        async with self._post(session, _notification("notifications/initialized"), bounds) as reply:
            await reply.read()
            if not reply.is_success:
                raise RefusedError(reply.status)

    async def _exchange(
        self, session: Session, number: int, method: str, params: JsonObject, bounds: Bounds
    ) -> tuple[JsonObject, str | None]:
        request: JsonObject = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        async with self._post(session, request, bounds) as reply:
            if reply.status == HTTPStatus.NOT_FOUND and session.session_id is not None:
                raise SessionEndedError
            if reply.status != HTTPStatus.OK:
                raise RefusedError(reply.status)
            return await self._answer(session, number, reply), reply.field("Mcp-Session-Id")

    def _post(self, session: Session, message: JsonObject, bounds: Bounds) -> AbstractAsyncContextManager[Reply]:
        return self._client.exchange(
            "POST",
            session.url,
            headers=session.headers,
            body=canonical(message),
            deadline=bounds.deadline,
            max_bytes=bounds.max_bytes,
        )

    async def _answer(self, session: Session, number: int, reply: Reply) -> JsonObject:
        if reply.media_type == "text/event-stream":
            return await self._answer_in_stream(session, number, reply)
        if reply.media_type == "application/json":
            message = _message(await reply.read())
            if _answers(message, number):
                return message
        raise UnusableError("the tool's answer is no MCP message")

    async def _answer_in_stream(self, session: Session, number: int, reply: Reply) -> JsonObject:
        """The one message that answers; what else a server sends meanwhile is for people to watch."""
        parser, pings = EventParser(), 0
        while chunk := await reply.chunk():
            for message in map(_message, parser.feed(chunk)):
                if _answers(message, number):
                    reply.is_ending = True
                    return message
                if message.get("method") == "ping" and pings < MAX_PINGS:
                    pings += 1
                    self._send_aside(session, {"jsonrpc": "2.0", "id": message.get("id"), "result": {}})
        raise LostError("the tool's answer ended before it was complete")

    def _cancel(self, session: Session, number: int) -> None:
        params: JsonObject = {"requestId": number, "reason": "the gateway waits no longer"}
        self._send_aside(session, _notification("notifications/cancelled", params))

    def _send_aside(self, session: Session, message: JsonObject) -> None:
        self._client.errand("POST", session.url, headers=session.headers, body=canonical(message))


def _notification(method: str, params: JsonObject | None = None) -> JsonObject:
    message: JsonObject = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}


def _message(raw: bytes) -> JsonObject:
    try:
        message = parse(raw, max_bytes=len(raw), max_depth=MAX_MESSAGE_DEPTH)
    except StrictJsonError as error:
        raise UnusableError("the tool's answer is no strict JSON") from error
    if not isinstance(message, dict):
        raise UnusableError("the tool's answer is no MCP message")
    return message


def _answers(message: JsonObject, number: int) -> bool:
    """Whether this is the response to our request; a server numbers requests of its own as it likes."""
    identifier = message.get("id")
    return "method" not in message and type(identifier) is int and identifier == number


def _revision(message: JsonObject) -> str:
    result = message.get("result")
    revision = result.get("protocolVersion") if isinstance(result, dict) else None
    if revision not in REVISIONS:
        raise UnusableError("it speaks no revision of MCP that the gateway knows")
    assert isinstance(revision, str)
    return revision


def _checked_session_id(session_id: str | None) -> str | None:
    if session_id is not None and not _SESSION_ID.fullmatch(session_id):
        raise UnusableError("its session has no valid id")
    return session_id
