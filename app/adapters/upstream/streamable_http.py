"""MCP's streamable HTTP transport as its clients see it: one request out, and its answer from a body or a stream.

Knows JSON-RPC, and how a request finds its answer among what else a server says meanwhile. Refuses to know what is
asked, and which revision it is asked in. The official SDK does far more, for twenty times the CPU.

https://modelcontextprotocol.io/specification/2025-11-25/basic/transports
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from aiohttp import ClientError
from yarl import URL

from app.adapters.upstream.client import LostError, NotSentError, Reply, UnusableError, UpstreamClient
from app.adapters.upstream.sse import EventParser, EventTooLargeError
from app.core.strict_json import JsonObject, JsonValue, StrictJsonError, canonical, parse

MAX_MESSAGE_DEPTH: Final = 64

MAX_ERROR_BYTES: Final = 65_536
"""How much of an answer is read whose status says that there is no result in it."""

MAX_HEARD: Final = 1000
"""How many messages beside the answer are looked at. Whatever else can't be the answer is not even parsed."""

MAX_HEARD_BYTES: Final = 16_384
"""How large a message beside the answer may be. A larger one is dropped."""

MAX_STREAM_BYTES: Final = 16_777_216
"""What a stream may hold beside its answer."""

MAX_RESUMPTIONS: Final = 100
RESUME_AFTER_SECONDS: Final = 1.0
"""How long a stream is left alone before it is taken up again, where its server doesn't say."""
SOONEST_SECONDS: Final = 0.05

HEADERS: Final = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}

CLIENT_INFO: Final[JsonObject] = {"name": "subgrant", "version": "0.1.0"}

_EVENT_ID: Final = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]{0,1022}[\x21-\x7e])?")
_LONE_NAMES: Final = (b'"id"', b"\\u")
"""One of these is in every answer: its id, or some other spelling of that name."""

Hear = Callable[[JsonObject], None]
"""Takes what a server says beside the answer."""


class RefusedError(UnusableError):
    """The server answered with a status that carries no result; `error` is the JSON-RPC error that came with it."""

    def __init__(self, status: int, error: JsonObject | None = None) -> None:
        super().__init__(f"the tool answered HTTP {status}")
        self.status = status
        self.error = error

    @property
    def code(self) -> JsonValue:
        return None if self.error is None else self.error.get("code")


class OtherEraError(RefusedError):
    """The server speaks otherwise than it was spoken to, and says so: it has not run what it was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long an exchange may take, as a time of the loop, and how large an answer may be."""

    deadline: float
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request, and whether a stream with its answer may be taken up again where it broke."""

    url: URL
    headers: Mapping[str, str] = field(repr=False)
    number: int
    method: str
    params: JsonObject = field(repr=False)
    is_resumable: bool = False

    @property
    def body(self) -> bytes:
        return canonical({"jsonrpc": "2.0", "id": self.number, "method": self.method, "params": self.params})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The response message, and the session that its header fields name."""

    message: JsonObject
    session_id: str | None = field(default=None, repr=False)


def hear_nothing(_: JsonObject) -> None:
    """For who asks what nothing is said beside."""


class StreamableHttp:
    def __init__(self, client: UpstreamClient) -> None:
        self._client = client

    async def ask(self, asked: Asked, bounds: Bounds, hear: Hear = hear_nothing) -> Answered:
        """Send a request, once, and return its answer. Raises RefusedError, NotSentError, LostError, UnusableError."""
        stream = _Stream(asked.number, bounds.max_bytes, hear)
        try:
            answered = await self._post(asked, bounds, stream)
        except LostError as error:
            if error.timed_out or not stream.is_resumable(asked):
                raise
            answered = None
        return answered or await self._resumed(asked, bounds, stream)

    async def tell(self, url: URL, headers: Mapping[str, str], message: JsonObject, bounds: Bounds) -> None:
        """Send a notification, and wait until it was taken. Raises as `ask` does."""
        async with self._client.exchange(
            "POST",
            url,
            headers=headers,
            body=canonical(message),
            deadline=bounds.deadline,
            max_bytes=bounds.max_bytes,
        ) as reply:
            await reply.read()
            if not reply.is_success:
                raise RefusedError(reply.status)

    def say(self, url: URL, headers: Mapping[str, str], message: JsonObject) -> None:
        """Send what needs no answer, in the background."""
        self._client.errand("POST", url, headers=headers, body=canonical(message))

    async def _post(self, asked: Asked, bounds: Bounds, stream: "_Stream") -> Answered | None:
        async with self._client.exchange(
            "POST",
            asked.url,
            headers=asked.headers,
            body=asked.body,
            deadline=bounds.deadline,
            max_bytes=bounds.max_bytes,
        ) as reply:
            if reply.status != HTTPStatus.OK:
                raise RefusedError(reply.status, await _error(reply))
            message = await _answer(reply, stream)
            return None if message is None else Answered(message=message, session_id=reply.field("Mcp-Session-Id"))

    # --- streams that broke

    async def _resumed(self, asked: Asked, bounds: Bounds, stream: "_Stream") -> Answered:
        """Take a stream up behind its last event, by GET: nothing is run by it, nor run again."""
        for _ in range(MAX_RESUMPTIONS):
            if not stream.is_resumable(asked):
                break
            await self._wait(stream.pause_seconds, bounds)
            with suppress(_BrokenAgain):
                message = await self._take_up(asked, bounds, stream)
                if message is not None:
                    return Answered(message=message)
        raise LostError("the tool's answer ended before it was complete")

    async def _wait(self, seconds: float, bounds: Bounds) -> None:
        left = bounds.deadline - asyncio.get_running_loop().time()
        if seconds >= left:
            raise LostError("the tool did not answer in time", timed_out=True)
        await asyncio.sleep(seconds)

    async def _take_up(self, asked: Asked, bounds: Bounds, stream: "_Stream") -> JsonObject | None:
        before = stream.last_id
        try:
            return await self._get(asked, bounds, stream)
        except NotSentError as error:
            # The call itself was sent long ago.
            raise LostError(error.detail, timed_out=error.timed_out) from error
        except LostError as error:
            if error.timed_out or stream.last_id == before:
                raise
            raise _BrokenAgain from error

    async def _get(self, asked: Asked, bounds: Bounds, stream: "_Stream") -> JsonObject | None:
        headers = {name: value for name, value in asked.headers.items() if name != "Content-Type"}
        headers |= {"Accept": "text/event-stream", "Last-Event-ID": stream.last_id}
        async with self._client.exchange(
            "GET", asked.url, headers=headers, body=None, deadline=bounds.deadline, max_bytes=bounds.max_bytes
        ) as reply:
            if reply.status != HTTPStatus.OK or reply.media_type != "text/event-stream":
                raise LostError("the tool's answer ended before it was complete")
            return await stream.read(reply)


class _BrokenAgain(Exception):
    """A stream broke once more, but went on meanwhile."""


class _Stream:
    """One answer's stream of events, over however many connections."""

    def __init__(self, number: int, max_bytes: int, hear: Hear) -> None:
        self.number = number
        self._max_bytes = max_bytes
        self._hear = hear
        self._heard = 0
        self._parser = EventParser(max_event_bytes=max_bytes)
        self._last_id: bytes | None = None
        self._retry_milliseconds: int | None = None

    def is_resumable(self, asked: Asked) -> bool:
        return asked.is_resumable and self._last_id is not None and _EVENT_ID.fullmatch(self._last_id) is not None

    @property
    def last_id(self) -> str:
        assert self._last_id is not None, "a stream without an id is not taken up again"
        return self._last_id.decode("ascii")

    @property
    def pause_seconds(self) -> float:
        if self._retry_milliseconds is None:
            return RESUME_AFTER_SECONDS
        return max(SOONEST_SECONDS, self._retry_milliseconds / 1000)

    async def read(self, reply: Reply) -> JsonObject | None:
        """The one message that answers, None where the stream ends before it; others are heard meanwhile."""
        reply.allow_beside(MAX_STREAM_BYTES)
        parser = self._parser = EventParser(max_event_bytes=self._max_bytes)
        while chunk := await reply.chunk():
            try:
                events = parser.feed(chunk)
            except EventTooLargeError as error:
                raise UnusableError("the tool's answer was larger than allowed") from error
            self._note_place()
            for message in self._worth_reading(events):
                if answers(message, self.number):
                    reply.is_ending = True
                    return message
                if "method" in message:
                    self._hear(message)
        return None

    def _note_place(self) -> None:
        self._last_id = self._parser.last_id or self._last_id
        if self._parser.retry_milliseconds is not None:
            self._retry_milliseconds = self._parser.retry_milliseconds

    def _worth_reading(self, events: list[bytes]) -> Iterator[JsonObject]:
        for event in events:
            may_answer = any(name in event for name in _LONE_NAMES)
            self._heard += 1
            if not may_answer and (self._heard > MAX_HEARD or len(event) > MAX_HEARD_BYTES):
                continue
            message = message_in(event)
            if answers(message, self.number) or (self._heard <= MAX_HEARD and len(event) <= MAX_HEARD_BYTES):
                yield message


async def _answer(reply: Reply, stream: _Stream) -> JsonObject | None:
    if reply.media_type == "text/event-stream":
        return await stream.read(reply)
    if reply.media_type == "application/json":
        message = message_in(await reply.read())
        if answers(message, stream.number):
            return message
    raise UnusableError("the tool's answer is no MCP message")


async def _error(reply: Reply) -> JsonObject | None:
    """The JSON-RPC error in an answer that has no result, if there is one."""
    if reply.media_type != "application/json":
        return None
    raw = b""
    with suppress(UnusableError, ClientError, OSError):
        while len(raw) <= MAX_ERROR_BYTES and (chunk := await reply.chunk()):
            raw += chunk
        error = message_in(raw[: MAX_ERROR_BYTES + 1]).get("error")
        return error if isinstance(error, dict) else None
    return None


def message_in(raw: bytes) -> JsonObject:
    """One JSON-RPC message. Raises UnusableError."""
    try:
        message = parse(raw, max_bytes=len(raw), max_depth=MAX_MESSAGE_DEPTH)
    except StrictJsonError as error:
        raise UnusableError("the tool's answer is no strict JSON") from error
    if not isinstance(message, dict):
        raise UnusableError("the tool's answer is no MCP message")
    return message


def answers(message: JsonObject, number: int) -> bool:
    """Whether this is the response to our request; a server numbers requests of its own as it likes."""
    identifier = message.get("id")
    return "method" not in message and type(identifier) is int and identifier == number


def notification(method: str, params: JsonObject | None = None) -> JsonObject:
    message: JsonObject = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}
