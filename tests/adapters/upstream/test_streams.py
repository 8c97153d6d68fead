"""What is heard of a tool that runs, streams that break, servers that ask instead of answering, and giving up."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from app.adapters.upstream import ToolUpstream
from app.adapters.upstream.streamable_http import MAX_HEARD, MAX_HEARD_BYTES, MAX_RESUMPTIONS
from app.core.strict_json import JsonObject
from app.ports import Listener, LogMessage, Notice, Outcome, Progress, UpstreamAnswer
from tests.adapters.upstream.servers import A_RESULT, FINAL, McpServer, StatelessServer, event, response, serving
from tests.adapters.upstream.test_mcp_tools import DONE, mcp

pytestmark = pytest.mark.anyio

Server = McpServer | StatelessServer
Say = Callable[[web.StreamResponse, JsonObject], Awaitable[None]]


def older(revision: str) -> Callable[[], Server]:
    return lambda: McpServer(revision=revision)


SERVERS: dict[str, Callable[[], Server]] = {
    "2026-07-28": StatelessServer,
    "2025-11-25": older("2025-11-25"),
    "2025-06-18": older("2025-06-18"),
}


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Server:
    return SERVERS[request.param]()


def saying(server: Server, say: Say) -> None:
    """Let a server stream: first what `say` says, then its result."""

    async def answer(request: web.Request, message: JsonObject) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await say(stream, message)
        await stream.write(event(response(message, FINAL)))
        await stream.write_eof()
        return stream

    server.answer = answer


def ears(heard: list[Notice], *, progress: bool = True, log_level: str | None = "debug") -> Listener:
    return Listener(tell=heard.append, hears_progress=progress, log_level=log_level)


def token_of(message: JsonObject) -> object:
    params = message["params"]
    assert isinstance(params, dict)
    meta = params.get("_meta", {})
    assert isinstance(meta, dict)
    return meta.get("progressToken")


def progress(token: object, **params: object) -> bytes:
    sent = {"progressToken": token, **params}
    return event({"jsonrpc": "2.0", "method": "notifications/progress", "params": sent})  # type: ignore[dict-item]


def log_message(**params: object) -> bytes:
    return event({"jsonrpc": "2.0", "method": "notifications/message", "params": params})  # type: ignore[dict-item]


# --- what is heard ----------------------------------------------------------------------------------------


async def test_progress_and_messages_are_heard_before_the_answer(upstream: ToolUpstream, server: Server) -> None:
    heard: list[Notice] = []

    async def say(stream: web.StreamResponse, message: JsonObject) -> None:
        token = token_of(message)
        assert token is not None
        await stream.write(progress(token, progress=1))
        await stream.write(progress(token, progress=2.5, total=10, message="working", _meta={"secret": 1}))
        await stream.write(log_message(level="warning", logger="db", data={"slow": True}, _meta={}))

    saying(server, say)
    async with serving(server.handle) as endpoint:
        assert await upstream.call(mcp(endpoint, listener=ears(heard))) == DONE
    assert heard == [
        Progress(progress=1),
        Progress(progress=2.5, total=10, message="working"),
        LogMessage(level="warning", data={"slow": True}, logger="db"),
    ]


async def test_who_asks_to_hear_nothing_hears_nothing_and_gives_no_token_out(
    upstream: ToolUpstream, server: Server
) -> None:
    tokens = []

    async def say(stream: web.StreamResponse, message: JsonObject) -> None:
        tokens.append(token_of(message))
        await stream.write(progress(message["id"], progress=1) + log_message(level="error", data="x"))

    saying(server, say)
    heard: list[Notice] = []
    async with serving(server.handle) as endpoint:
        assert await upstream.call(mcp(endpoint)) == DONE
        assert await upstream.call(mcp(endpoint, listener=ears(heard, progress=False, log_level=None))) == DONE
    assert (tokens, heard) == ([None, None], [])


async def test_a_level_is_asked_for_in_the_revision_that_has_it_and_held_in_each(
    upstream: ToolUpstream, server: Server
) -> None:
    heard: list[Notice] = []

    async def say(stream: web.StreamResponse, _message: JsonObject) -> None:
        for level in ("debug", "info", "warning", "emergency", "panic", 7):
            await stream.write(log_message(level=level, data=level))

    saying(server, say)
    async with serving(server.handle) as endpoint:
        await upstream.call(mcp(endpoint, listener=ears(heard, log_level="warning")))
    assert [notice.level for notice in heard if isinstance(notice, LogMessage)] == ["warning", "emergency"]
    if isinstance(server, StatelessServer):
        params = server.calls()[0]["params"]
        assert isinstance(params, dict)
        assert isinstance(params["_meta"], dict)
        assert params["_meta"]["io.modelcontextprotocol/logLevel"] == "warning"


MALFORMED: dict[str, JsonObject] = {
    "another token": {"progressToken": 999, "progress": 1},
    "no token": {"progress": 1},
    "true as a token": {"progressToken": True, "progress": 1},
    "no progress": {},
    "progress that is none": {"progress": "1"},
    "true as progress": {"progress": True},
    "a message that is none": {"progress": 1, "message": {"a": 1}},
}


@pytest.mark.parametrize("what", MALFORMED)
async def test_what_is_no_progress_of_this_call_is_not_heard(upstream: ToolUpstream, server: Server, what: str) -> None:
    heard: list[Notice] = []

    async def say(stream: web.StreamResponse, message: JsonObject) -> None:
        own: JsonObject = {} if "token" in what else {"progressToken": message["id"]}
        params: JsonObject = {**own, **MALFORMED[what]}
        await stream.write(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))

    saying(server, say)
    async with serving(server.handle) as endpoint:
        assert await upstream.call(mcp(endpoint, listener=ears(heard))) == DONE
    assert heard == []


async def test_a_flood_is_heard_up_to_a_limit_and_its_answer_all_the_same(
    upstream: ToolUpstream, server: Server
) -> None:
    heard: list[Notice] = []

    async def say(stream: web.StreamResponse, message: JsonObject) -> None:
        token = token_of(message)
        for start in range(0, 100_000, 1000):
            await stream.write(b"".join(progress(token, progress=start + one) for one in range(1000)))

    saying(server, say)
    async with serving(server.handle) as endpoint:
        answer = await upstream.call(mcp(endpoint, listener=ears(heard)))
    assert answer == DONE
    assert len(heard) == MAX_HEARD


async def test_a_notification_of_a_megabyte_is_dropped_and_the_answer_read(
    upstream: ToolUpstream, server: Server
) -> None:
    heard: list[Notice] = []

    async def say(stream: web.StreamResponse, message: JsonObject) -> None:
        token = token_of(message)
        await stream.write(progress(token, progress=1, message="x" * 900_000))
        await stream.write(progress(token, progress=2, message='"id" ' * 10_000))
        await stream.write(progress(token, progress=3, message="x" * (MAX_HEARD_BYTES - 200)))

    saying(server, say)
    async with serving(server.handle) as endpoint:
        assert await upstream.call(mcp(endpoint, listener=ears(heard))) == DONE
    assert [notice.progress for notice in heard if isinstance(notice, Progress)] == [3]


async def test_a_stream_without_end_is_given_up(upstream: ToolUpstream, server: Server) -> None:
    async def say(stream: web.StreamResponse, _message: JsonObject) -> None:
        while True:
            await stream.write(log_message(level="info", data="x" * 60_000) * 16)

    saying(server, say)
    async with serving(server.handle) as endpoint:
        answer = await upstream.call(mcp(endpoint))
    assert answer == UpstreamAnswer(outcome=Outcome.TOOL_ERROR, detail="the tool's answer was larger than allowed")


async def test_a_flood_has_to_fit_in_the_calls_time(upstream: ToolUpstream, server: Server) -> None:
    async def say(stream: web.StreamResponse, message: JsonObject) -> None:
        while True:
            await stream.write(progress(token_of(message), progress=1))
            await asyncio.sleep(0.01)

    saying(server, say)
    started = time.monotonic()
    async with serving(server.handle) as endpoint:
        answer = await upstream.call(mcp(endpoint, timeout_seconds=0.5, listener=ears([])))
    assert (answer.outcome, answer.timed_out) == (Outcome.UNKNOWN, True)
    assert time.monotonic() - started < 5


async def test_the_answer_to_another_request_is_none(upstream: ToolUpstream, server: Server) -> None:
    async def say(stream: web.StreamResponse, message: JsonObject) -> None:
        number = message["id"]
        assert isinstance(number, int)
        stolen: JsonObject = {"content": [{"type": "text", "text": "stolen"}]}
        for other in (number + 1, str(number), None, float(number) + 0.5):
            await stream.write(event({"jsonrpc": "2.0", "id": other, "result": stolen}))

    saying(server, say)
    async with serving(server.handle) as endpoint:
        assert await upstream.call(mcp(endpoint)) == DONE


# --- what a server asks -----------------------------------------------------------------------------------

ASKED = ("sampling/createMessage", "elicitation/create", "roots/list", "ping", "of/tomorrow")


@pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18"])
async def test_a_server_that_asks_for_a_model_a_person_or_files_is_refused(
    upstream: ToolUpstream, revision: str
) -> None:
    server = McpServer(revision=revision)
    heard: list[Notice] = []

    async def say(stream: web.StreamResponse, _message: JsonObject) -> None:
        for number, method in enumerate(ASKED):
            await stream.write(event({"jsonrpc": "2.0", "id": f"q{number}", "method": method, "params": {}}))
        await server.until(lambda: sum("method" not in message for _, message in server.heard) == len(ASKED))

    saying(server, say)
    async with serving(server.handle) as endpoint:
        assert await upstream.call(mcp(endpoint, listener=ears(heard))) == DONE
    replies = {str(message["id"]): message for _, message in server.heard if "method" not in message}
    for number, method in enumerate(ASKED):
        reply = replies[f"q{number}"]
        if method == "ping":
            assert reply["result"] == {}
        else:
            assert isinstance(reply["error"], dict)
            assert reply["error"]["code"] == -32601
    assert heard == []
    assert {session for session, message in server.heard if "method" not in message} == {"session-1"}


async def test_a_server_that_never_stops_asking_is_answered_a_few_times(upstream: ToolUpstream) -> None:
    server = McpServer()

    async def say(stream: web.StreamResponse, _message: JsonObject) -> None:
        for number in range(500):
            await stream.write(event({"jsonrpc": "2.0", "id": number + 100, "method": "ping"}))

    saying(server, say)
    async with serving(server.handle) as endpoint:
        assert await upstream.call(mcp(endpoint)) == DONE
        await upstream.aclose()
    assert sum("method" not in message for _, message in server.heard) <= 8


async def test_a_server_of_today_may_ask_nothing_within_a_stream(upstream: ToolUpstream) -> None:
    server = StatelessServer()

    async def say(stream: web.StreamResponse, _message: JsonObject) -> None:
        await stream.write(event({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {}}))

    saying(server, say)
    async with serving(server.handle) as endpoint:
        assert await upstream.call(mcp(endpoint)) == DONE
        await upstream.aclose()
    assert [message["method"] for message in server.heard] == ["server/discover", "tools/call"]


# --- streams that break -----------------------------------------------------------------------------------


class Breaking:
    """A server with sessions whose stream ends again and again, and can be taken up behind its last event."""

    def __init__(self, *, breaks: int, retry: int = 1, event_id: str = "e", moves: bool = True) -> None:
        self.inner = McpServer(answer=self._begin)
        self.breaks = breaks
        self.retry = retry
        self.event_id = event_id
        self.moves = moves
        self.resumed: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.message: JsonObject = {}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            return await self.inner.handle(request)
        self.resumed.append(request.headers["Last-Event-ID"])
        self.headers.append(dict(request.headers))
        return await self._stream(request)

    async def _begin(self, request: web.Request, message: JsonObject) -> web.StreamResponse:
        self.message = message
        return await self._stream(request)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        if len(self.resumed) < self.breaks:
            number = len(self.resumed) if self.moves else 0
            await stream.write(f"id: {self.event_id}{number}\nretry: {self.retry}\ndata:\n\n".encode())
        else:
            await stream.write(event(response(self.message, A_RESULT)))
        await stream.write_eof()
        return stream


async def test_a_stream_that_ends_early_is_taken_up_where_it_ended(upstream: ToolUpstream) -> None:
    server = Breaking(breaks=3)
    async with serving(server.handle) as endpoint:
        assert await upstream.call(mcp(endpoint, headers={"X-Key": "s3cret"})) == DONE
    assert server.resumed == ["e0", "e1", "e2"]
    assert len(server.inner.calls()) == 1, "the call itself is never sent again"
    for headers in server.headers:
        assert (headers["Mcp-Session-Id"], headers["X-Key"]) == ("session-1", "s3cret")
        assert headers["Accept"] == "text/event-stream"


async def test_a_server_is_left_alone_for_as_long_as_it_wants(upstream: ToolUpstream) -> None:
    server = Breaking(breaks=1, retry=300)
    started = time.monotonic()
    async with serving(server.handle) as endpoint:
        assert await upstream.call(mcp(endpoint)) == DONE
    assert time.monotonic() - started >= 0.3


async def test_a_server_that_wants_to_be_left_alone_too_long_leaves_the_outcome_unknown(upstream: ToolUpstream) -> None:
    server = Breaking(breaks=1, retry=60_000)
    async with serving(server.handle) as endpoint:
        answer = await upstream.call(mcp(endpoint, timeout_seconds=1))
        await server.inner.until(lambda: bool(server.inner.calls("notifications/cancelled")))
    assert (answer.outcome, answer.timed_out) == (Outcome.UNKNOWN, True)
    assert server.resumed == []


@pytest.mark.parametrize("event_id", ["", "ä", "x" * 2000])
async def test_a_place_that_can_not_be_named_is_not_gone_back_to(upstream: ToolUpstream, event_id: str) -> None:
    server = Breaking(breaks=1)

    async def stream_without_number(request: web.Request, _message: JsonObject) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(f"id: {event_id}\ndata:\n\n".encode())
        await stream.write_eof()
        return stream

    server.inner.answer = stream_without_number
    async with serving(server.handle) as endpoint:
        answer = await upstream.call(mcp(endpoint))
    assert answer == UpstreamAnswer(outcome=Outcome.UNKNOWN, detail="the tool's answer ended before it was complete")
    assert server.resumed == []


async def test_a_stream_is_not_taken_up_for_ever(upstream: ToolUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.adapters.upstream.streamable_http.SOONEST_SECONDS", 0)
    server = Breaking(breaks=10**9, retry=0)
    async with serving(server.handle) as endpoint:
        answer = await upstream.call(mcp(endpoint))
    assert answer.outcome is Outcome.UNKNOWN
    assert len(server.resumed) == MAX_RESUMPTIONS


@pytest.mark.parametrize("status", [404, 405, 302, 500])
async def test_a_stream_that_can_not_be_taken_up_is_unknown(upstream: ToolUpstream, status: int) -> None:
    server = Breaking(breaks=1)

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.Response(status=status, headers={"Location": "http://169.254.169.254/"})
        return await server.handle(request)

    async with serving(handle) as endpoint:
        answer = await upstream.call(mcp(endpoint))
    assert answer.outcome is Outcome.UNKNOWN


async def test_a_stream_of_today_is_never_taken_up(upstream: ToolUpstream) -> None:
    async def end(request: web.Request, _message: JsonObject) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(b"id: 1\nretry: 1\ndata:\n\n")
        await stream.write_eof()
        return stream

    server = StatelessServer(answer=end)
    async with serving(server.handle) as endpoint:
        answer = await upstream.call(mcp(endpoint))
    assert answer == UpstreamAnswer(outcome=Outcome.UNKNOWN, detail="the tool's answer ended before it was complete")
    assert {request.method for request in server.requests} == {"POST"}


# --- giving up --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
async def test_a_server_of_today_sees_the_connection_go_when_its_call_is_cancelled(
    upstream: ToolUpstream, *, streams: bool
) -> None:
    started = asyncio.Event()

    async def hang(request: web.Request, message: JsonObject) -> JsonObject:
        if streams:
            stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await stream.prepare(request)
            await stream.write(progress(token_of(message), progress=1))
        started.set()
        await asyncio.Event().wait()
        return {}

    server = StatelessServer(answer=hang)
    async with serving(server.handle) as endpoint:
        call = asyncio.create_task(upstream.call(mcp(endpoint)))
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(server.gone.wait(), 10)
        await upstream.aclose()
    assert [message["method"] for message in server.heard] == ["server/discover", "tools/call"]
