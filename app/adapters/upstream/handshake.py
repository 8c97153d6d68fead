"""MCP 2025-11-25 and 2025-06-18: a server is greeted, opens a session, and is asked within it.

Knows which session a request belongs in, and how one is opened, ended and given up. What a server asks of its client
is refused here: nobody's model, files or attention is at a tool's disposal.

https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import Final

from yarl import URL

from app.adapters.upstream.client import LostError, NotSentError, UnusableError, UpstreamClient, with_credential
from app.adapters.upstream.notices import tell
from app.adapters.upstream.sessions import Sessions, Slot, credential_identity
from app.adapters.upstream.streamable_http import (
    CLIENT_INFO,
    HEADERS,
    Asked,
    Bounds,
    Hear,
    OtherEraError,
    RefusedError,
    StreamableHttp,
    hear_nothing,
    notification,
)
from app.core.strict_json import JsonObject
from app.ports import Listener, UpstreamRequest

REVISIONS: Final = ("2025-11-25", "2025-06-18")
"""What we speak, newest first."""

MAX_REPLIES: Final = 8
"""How many requests of a server's own are answered while it is asked one."""

UNAUTHORISED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})

HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022
_METHOD_NOT_FOUND: Final = -32601

_SESSION_ID: Final = re.compile(r"[\x21-\x7e]{1,1024}")
_GREETING: Final[JsonObject] = {"protocolVersion": REVISIONS[0], "capabilities": {}, "clientInfo": CLIENT_INFO}


class NoSessionError(NotSentError):
    """The server opens no session, perhaps because it has none. No call was made."""


class SessionEndedError(Exception):
    """The server knows the session no more, and so has not looked at what was sent in it."""


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
        headers = dict(HEADERS)
        if self.revision is not None:
            headers["MCP-Protocol-Version"] = self.revision
        if self.session_id is not None:
            headers["Mcp-Session-Id"] = self.session_id
        return with_credential(self.credential, headers)

    def asked(self, number: int, method: str, params: JsonObject, *, is_resumable: bool) -> Asked:
        return Asked(
            url=self.url, headers=self.headers, number=number, method=method, params=params, is_resumable=is_resumable
        )


class Handshake:
    def __init__(self, client: UpstreamClient, wire: StreamableHttp, *, max_sessions: int) -> None:
        self._client = client
        self._wire = wire
        self._sessions: Sessions[Session] = Sessions(limit=max_sessions)

    async def ask(self, request: UpstreamRequest, method: str, params: JsonObject, bounds: Bounds) -> JsonObject:
        """The response message to a request in its run's session.

        Raises NoSessionError, OtherEraError, RefusedError, NotSentError, LostError or UnusableError.
        """
        key = (request.session_key, request.endpoint, credential_identity(request.headers))
        with self._sessions.use(key) as slot:
            try:
                return await self._ask_in(slot, request, method, params, bounds)
            except SessionEndedError:
                # Nothing was run, so the same request may be sent again: once, in a new session.
                pass
            try:
                return await self._ask_in(slot, request, method, params, bounds)
            except (SessionEndedError, NotSentError) as error:
                # By its own word it has run nothing. But it was sent something, and only what was not is free.
                raise RefusedError(HTTPStatus.NOT_FOUND) from error

    def end_sessions(self) -> None:
        for session in self._sessions.take_all():
            self._end(session)

    async def _ask_in(
        self, slot: Slot[Session], request: UpstreamRequest, method: str, params: JsonObject, bounds: Bounds
    ) -> JsonObject:
        session = await self._opened(slot, request, bounds)
        session.credential = request.headers
        try:
            return await self._asked_in(session, method, params, bounds, request.listener)
        except (SessionEndedError, RefusedError):
            # Not every server refuses a session with the 404 that it should: never stay in one.
            slot.forget(session)
            raise

    async def _asked_in(
        self, session: Session, method: str, params: JsonObject, bounds: Bounds, listener: Listener | None
    ) -> JsonObject:
        """Ask, and tell the server where nobody waits for its answer any more."""
        number = next(session.numbers)
        asked = session.asked(number, method, _with_token(params, number, listener), is_resumable=True)
        try:
            return (await self._wire.ask(asked, bounds, self._hearing(session, number, listener))).message
        except RefusedError as error:
            raise _refused(session, error) from error
        except asyncio.CancelledError:
            self._cancel(session, number)
            raise
        except LostError as error:
            if error.timed_out:
                self._cancel(session, number)
            raise

    # --- sessions

    async def _opened(self, slot: Slot[Session], request: UpstreamRequest, bounds: Bounds) -> Session:
        if slot.session is not None:
            return slot.session
        try:
            async with asyncio.timeout_at(bounds.deadline), slot.lock:
                if slot.session is None:
                    url = self._client.endpoint(request.endpoint)
                    slot.session = await self._open(url, request.headers, bounds)
        except TimeoutError as error:
            raise NotSentError("the tool server opened no session in time", timed_out=True) from error
        for surplus in self._sessions.take_surplus():
            self._end(surplus)
        return slot.session

    async def _open(self, url: URL, credential: Mapping[str, str], bounds: Bounds) -> Session:
        """Initialise a session. Whatever goes wrong, no call has been made yet: raises NotSentError."""
        session = Session(url=url, credential=credential)
        try:
            await self._initialise(session, bounds)
        except LostError as error:
            raise NotSentError("the tool server opened no session", timed_out=error.timed_out) from error
        except UnusableError as error:
            is_unauthorised = isinstance(error, RefusedError) and error.status in UNAUTHORISED
            kind = NotSentError if is_unauthorised else NoSessionError
            raise kind(f"the tool server opened no session: {error.detail}") from error
        return session

    async def _initialise(self, session: Session, bounds: Bounds) -> None:
        asked = session.asked(next(session.numbers), "initialize", _GREETING, is_resumable=False)
        answered = await self._wire.ask(asked, bounds, hear_nothing)
        session.revision = _revision(answered.message)
        session.session_id = _checked_session_id(answered.session_id)
        await self._wire.tell(session.url, session.headers, notification("notifications/initialized"), bounds)

    def _end(self, session: Session) -> None:
        """Tell the server, in the background, that its session is not needed any more."""
        if session.session_id is not None:
            self._client.errand("DELETE", session.url, headers=session.headers)

    # --- what is said meanwhile

    def _hearing(self, session: Session, number: int, listener: Listener | None) -> Hear:
        replies = count(1)

        def hear(message: JsonObject) -> None:
            if "id" in message:
                self._reply(session, message, replies)
            else:
                tell(listener, message, number)

        return hear

    def _reply(self, session: Session, message: JsonObject, replies: Iterator[int]) -> None:
        """Answer a ping, and refuse whatever else: we have none of the capabilities that a server could ask for."""
        identifier = message.get("id")
        if isinstance(identifier, bool) or not isinstance(identifier, str | int) or next(replies) > MAX_REPLIES:
            return
        refusal: JsonObject = {"code": _METHOD_NOT_FOUND, "message": "the gateway does nothing for a tool server"}
        answer: JsonObject = {"result": {}} if message.get("method") == "ping" else {"error": refusal}
        self._wire.say(session.url, session.headers, {"jsonrpc": "2.0", "id": identifier, **answer})

    def _cancel(self, session: Session, number: int) -> None:
        params: JsonObject = {"requestId": number, "reason": "the gateway waits no longer"}
        self._wire.say(session.url, session.headers, notification("notifications/cancelled", params))


def _with_token(params: JsonObject, number: int, listener: Listener | None) -> JsonObject:
    if listener is None or not listener.hears_progress:
        return params
    # A token of our own: the caller's is nobody else's business, and need not be unique here.
    return {**params, "_meta": {"progressToken": number}}


def _refused(session: Session, error: RefusedError) -> Exception:
    """What a refusal within a session means."""
    if error.status == HTTPStatus.NOT_FOUND and session.session_id is not None:
        return SessionEndedError()
    if error.code in {HEADER_MISMATCH, UNSUPPORTED_VERSION}:
        # Only the revision that has no sessions knows these codes, for what it has not understood.
        return OtherEraError(error.status, error.error)
    return error


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
