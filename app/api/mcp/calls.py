"""One `tools/call` while it runs: what its client hears meanwhile, and how the client takes it back.

Knows when an answer is one JSON object and when it is a stream of events, and what a connection that ends means in
each revision. What is told, and what may be, is decided in `usecases/watch.py`; what became of the call, in `tools.py`.

https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/progress
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fastapi import Response
from starlette.types import Receive, Scope, Send

from app.api.errors import DenialError
from app.api.mcp.exchange import Exchange
from app.api.mcp.messages import (
    MAX_ID_CHARS,
    Code,
    Fault,
    RequestId,
    answer_of,
    answered,
    event_of,
    is_request_id,
    refusal_of,
)
from app.api.mcp.tools import call_tool
from app.core.strict_json import JsonObject, JsonValue
from app.ports import LOG_LEVELS, LogMessage, Notice, Progress, StoreUnavailable
from app.usecases.watch import Watch

KEEP_ALIVE_SECONDS: Final = 15.0
"""How long a stream says nothing before it says that it is still there, for proxies that mind silence."""

SEND_SECONDS: Final = 30.0
"""How long a client may take to take what it is sent; after that it counts as gone."""

EVENT_HEADERS: Final = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
EVENTS: Final = "text/event-stream"
_STILL_HERE: Final = b":\n\n"

Complete = Callable[[JsonObject], JsonObject]
"""Makes of a call's result what its revision wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attended:
    """A call that somebody waits for. `is_tied`: the client that lets its connection go takes the call back."""

    exchange: Exchange
    watch: Watch
    token: RequestId | None
    complete: Complete
    is_tied: bool

    @property
    def request_id(self) -> RequestId:
        assert self.exchange.message.id is not None, "a call without an id is not run"
        return self.exchange.message.id

    @property
    def is_taken_back(self) -> bool:
        """Whether the client said itself that it wants no answer: it is sent none."""
        return self.watch.cancelled and not self.is_tied


async def answer_call(
    exchange: Exchange, complete: Complete, *, name: str | None = None, log_level: str | None = None, is_tied: bool
) -> Response:
    """The answer to a call, begun as a stream once it is on its way where its client wants to hear of it meanwhile.

    Raises Fault, DenialError, StoreUnavailable.
    """
    token = progress_token(exchange.message.meta)
    hears = exchange.accepts_events
    watch = Watch(name=name, hears_progress=hears and token is not None, log_level=log_level if hears else None)
    attended = Attended(exchange=exchange, watch=watch, token=token, complete=complete, is_tied=is_tied)
    call = asyncio.create_task(_result(attended))
    wants_stream = watch.hears_progress or watch.log_level is not None
    if await _begins_before_it_ends(attended, call, wants_stream=wants_stream):
        return EventStream(attended, call)
    result = await call
    if attended.is_taken_back and hears:
        return Response(media_type=EVENTS, headers=EVENT_HEADERS)
    return answered(attended.request_id, result)


async def _result(attended: Attended) -> JsonObject:
    exchange, watch = attended.exchange, attended.watch
    with exchange.world.in_flight.watched(exchange.caller.tenant_id, watch):
        return attended.complete(await call_tool(exchange, watch))


async def _begins_before_it_ends(attended: Attended, call: "asyncio.Task[JsonObject]", *, wants_stream: bool) -> bool:
    """Wait until there is something to answer; whether that is a stream. A client that goes meanwhile is minded."""
    watched = _leaving(attended)
    began = asyncio.create_task(attended.watch.began.wait())
    try:
        await asyncio.wait({call, began} if wants_stream else {call}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        began.cancel()
        watched.cancel()
    return not call.done()


def _leaving(attended: Attended) -> "asyncio.Task[None]":
    return asyncio.create_task(_mind_the_connection(attended))


async def _mind_the_connection(attended: Attended) -> None:
    """Take a call back when its client goes (2026-07-28). In other revisions that says nothing."""
    while (await attended.exchange.receive())["type"] != "http.disconnect":
        pass
    if attended.is_tied:
        attended.watch.cancel()


class EventStream(Response):
    """What a call's client hears: what the tool says, and at the end what came of it."""

    def __init__(self, attended: Attended, call: "asyncio.Task[JsonObject]") -> None:
        super().__init__(media_type=EVENTS, headers=EVENT_HEADERS)
        # There is no telling how long it will be.
        del self.headers["content-length"]
        self._attended = attended
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        leaving = _leaving(self._attended)
        try:
            await self._stream(send)
        except (OSError, TimeoutError):
            # Nobody takes it. The call goes on, or is taken back as the revision says.
            if self._attended.is_tied:
                self._attended.watch.cancel()
        finally:
            leaving.cancel()
            await asyncio.wait({self._call})

    async def _stream(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        has_ended = False
        while not has_ended:
            heard = await self._hear()
            # Before looking what was told: whatever came before the end is said before it.
            has_ended = self._call.done()
            for notice in self._attended.watch.take():
                await _send(send, event_of(_notification(notice, self._attended.token)))
            if not heard:
                await _send(send, _STILL_HERE)
        if not self._attended.is_taken_back:
            await _send(send, event_of(await self._ending()))
        await _send(send, b"", more=False)

    async def _hear(self) -> bool:
        """Wait for news or the end; whether there is either."""
        news = asyncio.create_task(self._attended.watch.news.wait())
        done, _ = await asyncio.wait(
            {self._call, news}, timeout=KEEP_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        news.cancel()
        return bool(done)

    async def _ending(self) -> JsonObject:
        try:
            return answer_of(self._attended.request_id, await self._call)
        except Fault as fault:
            fault.id = self._attended.request_id
            return refusal_of(fault)
        except (DenialError, StoreUnavailable):
            # It was on its way, so that only its record can be missing; nothing that a status could say is left.
            detail = "what came of the call could not be read"
            return refusal_of(Fault(Code.INTERNAL_ERROR, detail, id=self._attended.request_id))


async def _send(send: Send, body: bytes, *, more: bool = True) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": more})


# --- what is asked for, and what is told ------------------------------------------------------------------


def progress_token(meta: JsonObject) -> RequestId | None:
    """The token by which a client wants to hear of progress. Raises Fault."""
    token = meta.get("progressToken")
    if token is None:
        return None
    if not is_request_id(token):
        detail = f"progressToken must be an integer or a string of at most {MAX_ID_CHARS} characters"
        raise Fault(Code.INVALID_PARAMS, detail)
    return token


def log_level_of(value: JsonValue) -> str | None:
    """The least grave level of messages that a client wants to hear. Raises Fault."""
    if value is not None and value not in LOG_LEVELS:
        raise Fault(Code.INVALID_PARAMS, f"a log level is one of {', '.join(LOG_LEVELS)}")
    assert value is None or isinstance(value, str), "levels are strings"
    return value


def _notification(notice: Notice, token: RequestId | None) -> JsonObject:
    match notice:
        case Progress(progress=progress, total=total, message=text):
            said: JsonObject = {"total": total, "message": text}
            return _told("notifications/progress", {"progressToken": token, "progress": progress}, said)
        case LogMessage(level=level, data=data, logger=logger):
            return _told("notifications/message", {"level": level, "data": data}, {"logger": logger})


def _told(method: str, params: JsonObject, said: JsonObject) -> JsonObject:
    said = {name: value for name, value in said.items() if value is not None}
    return {"jsonrpc": "2.0", "method": method, "params": {**params, **said}}
