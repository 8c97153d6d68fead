"""How an MCP tool is called: sessions and whose they are, answers in bodies and streams, lists of tools."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from app.adapters.upstream import ToolUpstream
from app.adapters.upstream.mcp import MAX_PAGES, MAX_TOOLS
from app.core.registry import Transport
from app.core.strict_json import JsonObject, JsonValue
from app.ports import Outcome, UpstreamAnswer, UpstreamFailed, UpstreamRequest
from tests.adapters.upstream.servers import (
    A_RESULT,
    McpServer,
    a_request,
    event,
    response,
    serving,
    streamed,
)
from tests.adapters.upstream.test_sessions import bearer

pytestmark = pytest.mark.anyio

DONE = UpstreamAnswer(outcome=Outcome.SUCCESS, result={"content": A_RESULT["content"]})


def mcp(endpoint: str, run: str = "run_1", **request: object) -> UpstreamRequest:
    return a_request(endpoint, transport=Transport.MCP, run=run, arguments={"caseId": "case_1"}, **request)  # type: ignore[arg-type]


@asynccontextmanager
async def serving_mcp(server: McpServer) -> AsyncIterator[str]:
    async with serving(server.handle) as address:
        yield f"{address}/mcp"


async def answered_with(upstream: ToolUpstream, answer: JsonObject | web.StreamResponse) -> UpstreamAnswer:
    """What comes of a call whose answer is this; a JSON object gets the request's id if it has none."""

    async def give(_request: web.Request, message: JsonObject) -> JsonObject | web.StreamResponse:
        if isinstance(answer, web.StreamResponse):
            return answer
        return {"jsonrpc": "2.0", "id": message["id"], **answer}

    async with serving_mcp(McpServer(answer=give)) as endpoint:
        return await upstream.call(mcp(endpoint))


# --- sessions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18"])
async def test_a_session_is_opened_once_and_used_again(upstream: ToolUpstream, revision: str) -> None:
    server = McpServer(revision=revision)
    async with serving_mcp(server) as endpoint:
        assert [await upstream.call(mcp(endpoint)) for _ in range(3)] == [DONE] * 3
    assert [message.get("method") for _session, message in server.heard] == [
        "initialize",
        "notifications/initialized",
        *["tools/call"] * 3,
    ]
    assert server.sessions() == ["session-1"] * 3
    greeting, *later = server.requests
    assert "MCP-Protocol-Version" not in greeting.headers
    assert {request.headers["MCP-Protocol-Version"] for request in later} == {revision}


async def test_the_call_carries_the_checked_arguments_in_canonical_form(upstream: ToolUpstream) -> None:
    bodies = []

    async def keep(request: web.Request, message: JsonObject) -> JsonObject:
        bodies.append(await request.read())
        return response(message, A_RESULT)

    async with serving_mcp(McpServer(answer=keep)) as endpoint:
        request = a_request(
            endpoint, transport=Transport.MCP, arguments={"b": 1.5, "a": "é"}, headers={"X-Key": "s3cret"}
        )
        await upstream.call(request)
    expected = '{"id":1,"jsonrpc":"2.0","method":"tools/call","params":{"arguments":{"a":"é","b":1.5},"name":"refund"}}'
    assert bodies == [expected.encode()]


async def test_calls_that_begin_together_open_one_session(upstream: ToolUpstream) -> None:
    server = McpServer()
    async with serving_mcp(server) as endpoint:
        answers = await asyncio.gather(*(upstream.call(mcp(endpoint)) for _ in range(10)))
    assert answers == [DONE] * 10
    assert server.opened == 1
    assert len({str(call["id"]) for call in server.calls()}) == 10


async def test_two_runs_never_share_a_session(upstream: ToolUpstream) -> None:
    server = McpServer()
    async with serving_mcp(server) as endpoint:
        for run in ("run_1", "run_2", "run_1"):
            await upstream.call(mcp(endpoint, run))
    assert server.sessions() == ["session-1", "session-2", "session-1"]


async def test_two_endpoints_never_share_a_session(upstream: ToolUpstream) -> None:
    one, two = McpServer(), McpServer()
    async with serving_mcp(one) as first, serving_mcp(two) as second:
        for endpoint in (first, second, f"{first}/other"):
            await upstream.call(mcp(endpoint))
    assert (one.opened, two.opened) == (2, 1)


async def test_two_credentials_never_share_a_session(upstream: ToolUpstream) -> None:
    server = McpServer()
    async with serving_mcp(server) as endpoint:
        for secret in ("one", "two", "one"):
            await upstream.call(mcp(endpoint, headers={"X-Key": secret}))
    assert server.sessions() == ["session-1", "session-2", "session-1"]


async def test_a_credential_signed_anew_keeps_the_session_and_is_the_one_presented(
    upstream: ToolUpstream,
) -> None:
    server = McpServer()
    tokens = [bearer(iss="https://subgrant", sub="u_1", call_id=call) for call in ("call_1", "call_2")]
    async with serving_mcp(server) as endpoint:
        for token in tokens:
            await upstream.call(mcp(endpoint, headers=token))
    assert server.opened == 1
    presented = [request.headers["Authorization"] for request in server.requests]
    assert presented == [tokens[0]["Authorization"]] * 3 + [tokens[1]["Authorization"]]


async def test_an_expired_session_is_replaced_once_and_the_call_runs_once(upstream: ToolUpstream) -> None:
    server = McpServer()
    async with serving_mcp(server) as endpoint:
        await upstream.call(mcp(endpoint))
        server.open.clear()
        assert await upstream.call(mcp(endpoint)) == DONE
    assert server.sessions() == ["session-1", "session-1", "session-2"]


async def test_calls_that_meet_an_expired_session_together_open_one_new_one(upstream: ToolUpstream) -> None:
    server = McpServer()
    async with serving_mcp(server) as endpoint:
        await upstream.call(mcp(endpoint))
        server.open.clear()
        answers = await asyncio.gather(*(upstream.call(mcp(endpoint)) for _ in range(5)))
    assert answers == [DONE] * 5
    assert server.opened == 2


async def test_a_server_that_forgets_every_session_is_not_asked_forever(upstream: ToolUpstream) -> None:
    async def forget(_request: web.Request, _message: JsonObject) -> web.Response:
        return web.Response(status=404)

    server = McpServer(answer=forget)
    async with serving_mcp(server) as endpoint:
        answer = await upstream.call(mcp(endpoint))
    assert answer == UpstreamAnswer(outcome=Outcome.TOOL_ERROR, detail="the tool answered HTTP 404")
    assert (server.opened, len(server.calls())) == (2, 2)


@pytest.mark.parametrize("status", [400, 401, 403, 500, 503])
async def test_another_refusal_is_a_tool_error_sent_once_and_the_next_call_opens_a_new_session(
    upstream: ToolUpstream, status: int
) -> None:
    async def refuse(_request: web.Request, _message: JsonObject) -> web.Response:
        return web.Response(status=status)

    server = McpServer(answer=refuse)
    async with serving_mcp(server) as endpoint:
        answer = await upstream.call(mcp(endpoint))
        assert answer == UpstreamAnswer(outcome=Outcome.TOOL_ERROR, detail=f"the tool answered HTTP {status}")
        assert len(server.calls()) == 1
        server.answer = None
        assert await upstream.call(mcp(endpoint)) == DONE
    assert server.sessions() == ["session-1", "session-2"]


async def test_a_server_without_sessions_is_called_without_one(upstream: ToolUpstream) -> None:
    sessions = []

    async def handle(request: web.Request) -> web.Response:
        message = json.loads(await request.read())
        if message["method"] == "server/discover":
            return web.Response(status=400)
        sessions.append(request.headers.get("Mcp-Session-Id"))
        if message["method"] == "initialize":
            return web.json_response(response(message, {"protocolVersion": "2025-06-18"}))
        return web.json_response(response(message, A_RESULT)) if "id" in message else web.Response(status=202)

    async with serving(handle) as endpoint:
        assert await upstream.call(mcp(endpoint)) == DONE
    assert sessions == [None, None, None]


async def test_sessions_beyond_the_limit_are_ended_at_the_server() -> None:
    upstream, server = ToolUpstream(addresses="loopback", max_sessions=2), McpServer()
    async with serving_mcp(server) as endpoint:
        for run in ("run_1", "run_2", "run_3"):
            await upstream.call(mcp(endpoint, run))
        await server.until(lambda: bool(server.ended))
        assert server.ended == ["session-1"]
        await upstream.aclose()
    assert sorted(server.ended) == ["session-1", "session-2", "session-3"]


# --- no session, no call ----------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2026-07-28", "", 1, None])
async def test_a_revision_that_nobody_here_speaks_leaves_the_call_unsent(
    upstream: ToolUpstream, revision: object
) -> None:
    server = McpServer(revision=revision)  # type: ignore[arg-type]
    async with serving_mcp(server) as endpoint:
        answer = await upstream.call(mcp(endpoint))
    assert answer == UpstreamAnswer(
        outcome=Outcome.UNSENT,
        detail="the tool server opened no session: it speaks no revision of MCP that the gateway knows",
    )
    assert server.calls() == []


REFUSALS: dict[str, Callable[[], web.Response]] = {
    "not found": lambda: web.Response(status=404),
    "out of order": lambda: web.Response(status=503),
    "taken": lambda: web.Response(status=202),
    "a greeting": lambda: web.Response(text="hello"),
    "a list": lambda: web.json_response([]),
    "an error": lambda: web.json_response({"jsonrpc": "2.0", "id": 0, "error": {"code": -32600, "message": "no"}}),
    "another id": lambda: web.json_response({"jsonrpc": "2.0", "id": 9, "result": {"protocolVersion": "2025-11-25"}}),
    "no session id": lambda: web.json_response(
        {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": "2025-11-25"}}, headers={"Mcp-Session-Id": "a b"}
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
async def test_a_failed_handshake_leaves_the_call_unsent(upstream: ToolUpstream, what: str) -> None:
    methods = []

    async def handle(request: web.Request) -> web.Response:
        methods.append(json.loads(await request.read())["method"])
        return REFUSALS[what]()

    async with serving(handle) as endpoint:
        answer = await upstream.call(mcp(endpoint))
    assert (answer.outcome, methods) == (Outcome.UNSENT, ["server/discover", "initialize"])
    assert answer.detail is not None
    assert answer.detail.startswith("the tool server opened no session: ")


@pytest.mark.parametrize("status", [401, 403])
async def test_a_server_that_takes_not_the_credential_is_not_asked_in_other_words(
    upstream: ToolUpstream, status: int
) -> None:
    methods = []

    async def handle(request: web.Request) -> web.Response:
        methods.append(json.loads(await request.read())["method"])
        return web.Response(status=status)

    async with serving(handle) as endpoint:
        answer = await upstream.call(mcp(endpoint))
    assert (answer.outcome, methods) == (Outcome.UNSENT, ["server/discover"])
    assert answer.detail == f"the tool server did not say what it speaks: the tool answered HTTP {status}"


async def test_a_slow_handshake_leaves_the_call_unsent_and_timed_out(upstream: ToolUpstream) -> None:
    async def handle(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(handle) as endpoint:
        request = mcp(endpoint, timeout_seconds=0.2)
        answers = await asyncio.gather(upstream.call(request), upstream.call(request))
    assert {(answer.outcome, answer.timed_out) for answer in answers} == {(Outcome.UNSENT, True)}


# --- answers ----------------------------------------------------------------------------------------------


async def test_a_result_is_handed_on_as_the_tool_gave_it_but_for_its_meta(upstream: ToolUpstream) -> None:
    content: JsonValue = [{"type": "text", "text": "one"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}]
    structured: JsonValue = {"cases": [{"caseId": "case_1", "open": True}], "total": 1}
    result: JsonValue = {
        "content": content,
        "structuredContent": structured,
        "_meta": {"x": 1},
        "isError": False,
        "y": 2,
    }
    answer = await answered_with(upstream, {"result": result})
    assert answer == UpstreamAnswer(
        outcome=Outcome.SUCCESS, result={"content": content, "structuredContent": structured}
    )


async def test_an_error_that_the_tool_reports_is_a_tool_error(upstream: ToolUpstream) -> None:
    content: JsonValue = [{"type": "text", "text": "no such case"}]
    answer = await answered_with(upstream, {"result": {"content": content, "isError": True}})
    assert answer == UpstreamAnswer(
        outcome=Outcome.TOOL_ERROR, result={"content": content}, detail="the tool reported an error"
    )


async def test_a_json_rpc_error_is_a_tool_error(upstream: ToolUpstream) -> None:
    error: JsonValue = {"code": -32602, "message": "Unknown tool: refund"}
    answer = await answered_with(upstream, {"error": error})
    assert answer == UpstreamAnswer(
        outcome=Outcome.TOOL_ERROR,
        result={"error": error},
        detail="the tool server refused the call with JSON-RPC error -32602",
    )


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"result": []},
        {"result": {}},
        {"result": {"content": "done"}},
        {"result": {"content": [], "isError": "false"}},
        {"result": {"content": [], "structuredContent": []}},
        {"error": "no"},
        {"id": 99, "result": A_RESULT},
        {"id": True, "result": A_RESULT},
        {"id": "1", "result": A_RESULT},
        {"method": "tools/call", "result": A_RESULT},
        web.Response(text="<h1>hello</h1>", content_type="text/html"),
        web.Response(text='{"jsonrpc":"2.0","id":1,"id":1,"result":{}}', content_type="application/json"),
        web.Response(text='[{"jsonrpc":"2.0","id":1,"result":{}}]', content_type="application/json"),
        web.Response(text="data: {\n\n", content_type="text/event-stream"),
        web.Response(status=202),
        web.json_response(A_RESULT, headers={"Content-Encoding": "br"}),
    ],
)
async def test_what_is_no_tool_result_is_a_tool_error(
    upstream: ToolUpstream, answer: JsonObject | web.Response
) -> None:
    got = await answered_with(upstream, answer)
    assert (got.outcome, got.result) == (Outcome.TOOL_ERROR, None)
    assert got.detail is not None


async def test_an_answer_beyond_the_size_limit_is_a_tool_error(upstream: ToolUpstream) -> None:
    async def large(_request: web.Request, message: JsonObject) -> JsonObject:
        return response(message, {"content": [{"type": "text", "text": "x" * 5000}]})

    for sse in (False, True):
        async with serving_mcp(McpServer(sse=sse, answer=large)) as endpoint:
            answer = await upstream.call(mcp(endpoint, max_response_bytes=5000))
        assert answer == UpstreamAnswer(outcome=Outcome.TOOL_ERROR, detail="the tool's answer was larger than allowed")


# --- streams ----------------------------------------------------------------------------------------------


async def test_a_stream_of_events_is_read_up_to_the_answer(upstream: ToolUpstream) -> None:
    async def stream(request: web.Request, message: JsonObject) -> web.StreamResponse:
        progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}
        others = event({"jsonrpc": "2.0", "id": message["id"], "method": "roots/list"})
        return await streamed(
            request,
            b": hello\r\nid: 1\r\nretry: 10\r\ndata:\r\n\r\n",
            event(progress),  # type: ignore[arg-type]
            others,
            event(response(message, A_RESULT))[:30],
            event(response(message, A_RESULT))[30:],
        )

    async with serving_mcp(McpServer(answer=stream)) as endpoint:
        assert await upstream.call(mcp(endpoint)) == DONE


async def test_a_stream_that_ends_after_its_answer_leaves_its_connection_for_the_next_call(
    upstream: ToolUpstream,
) -> None:
    answered, server = asyncio.Event(), McpServer()

    async def end_later(request: web.Request, message: JsonObject) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(event(response(message, A_RESULT)))
        await answered.wait()
        return stream

    server.answer = end_later
    async with serving_mcp(server) as endpoint:
        await upstream.call(mcp(endpoint))
        answered.set()
        await asyncio.gather(*upstream._client._errands)  # noqa: SLF001 - nobody else can tell when it has ended
        await upstream.call(mcp(endpoint))
    assert len(server.peers) == 1


async def test_a_stream_that_stays_open_after_its_answer_keeps_nobody_waiting(upstream: ToolUpstream) -> None:
    async def stay(request: web.Request, message: JsonObject) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(event(response(message, A_RESULT)))
        await asyncio.Event().wait()
        return stream

    async with serving_mcp(McpServer(answer=stay)) as endpoint:
        assert await asyncio.wait_for(upstream.call(mcp(endpoint)), 10) == DONE


async def test_a_ping_within_a_stream_is_answered_meanwhile(upstream: ToolUpstream) -> None:
    server = McpServer()

    async def ping(request: web.Request, message: JsonObject) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(event({"jsonrpc": "2.0", "id": "ping-1", "method": "ping"}))
        await server.until(lambda: any("result" in heard for _session, heard in server.heard))
        await stream.write(event(response(message, A_RESULT)))
        return stream

    server.answer = ping
    async with serving_mcp(server) as endpoint:
        assert await upstream.call(mcp(endpoint)) == DONE
    assert ("session-1", {"jsonrpc": "2.0", "id": "ping-1", "result": {}}) in server.heard


async def test_a_stream_that_ends_without_an_answer_is_unknown(upstream: ToolUpstream) -> None:
    async def end(request: web.Request, _message: JsonObject) -> web.StreamResponse:
        return await streamed(request, b"data: {}\n\n", b'data: {"jsonrpc":"2.0","id":1,"result":')

    server = McpServer(answer=end)
    async with serving_mcp(server) as endpoint:
        answer = await upstream.call(mcp(endpoint))
    assert answer == UpstreamAnswer(outcome=Outcome.UNKNOWN, detail="the tool's answer ended before it was complete")
    assert len(server.calls()) == 1


# --- giving up --------------------------------------------------------------------------------------------


def hanging(server: McpServer) -> asyncio.Event:
    """Let the server's tool run until its client has gone; set once a call has arrived."""
    started = asyncio.Event()

    async def hang(_request: web.Request, _message: JsonObject) -> JsonObject:
        started.set()
        await asyncio.Event().wait()
        return {}

    server.answer = hang
    return started


async def test_a_cancelled_call_ends_at_once_and_the_server_is_told(upstream: ToolUpstream) -> None:
    server = McpServer()
    started = hanging(server)
    async with serving_mcp(server) as endpoint:
        call = asyncio.create_task(upstream.call(mcp(endpoint)))
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.until(lambda: bool(server.calls("notifications/cancelled")))
    (cancelled,) = server.calls("notifications/cancelled")
    (called,) = server.calls()
    assert isinstance(cancelled["params"], dict)
    assert cancelled["params"]["requestId"] == called["id"]
    assert server.sessions("notifications/cancelled") == server.sessions()


async def test_a_call_that_times_out_is_unknown_and_the_server_is_told(upstream: ToolUpstream) -> None:
    server = McpServer()
    hanging(server)
    async with serving_mcp(server) as endpoint:
        answer = await upstream.call(mcp(endpoint, timeout_seconds=0.3))
        await server.until(lambda: bool(server.calls("notifications/cancelled")))
    assert (answer.outcome, answer.timed_out) == (Outcome.UNKNOWN, True)
    assert len(server.calls()) == 1


async def test_a_session_survives_a_cancelled_call(upstream: ToolUpstream) -> None:
    server = McpServer()
    started = hanging(server)
    async with serving_mcp(server) as endpoint:
        call = asyncio.create_task(upstream.call(mcp(endpoint)))
        await started.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        server.answer = None
        assert await upstream.call(mcp(endpoint)) == DONE
    assert server.opened == 1


# --- lists of tools ---------------------------------------------------------------------------------------


def a_tool(name: str, **members: object) -> dict[str, object]:
    return {"name": name, "inputSchema": {"type": "object"}, **members}


def paged(*pages: list[dict[str, object]], endless: bool = False) -> McpServer:
    """A server whose tools come in these pages; the cursor is the page's number."""

    async def give(_request: web.Request, message: JsonObject) -> JsonObject:
        assert isinstance(message["params"], dict)
        number = int(str(message["params"].get("cursor", "0")))
        result: dict[str, object] = {"tools": pages[number % len(pages)]}
        if endless or number + 1 < len(pages):
            result["nextCursor"] = str(number + 1)
        return response(message, result)

    return McpServer(answer=give)


async def test_discovery_reads_every_page(upstream: ToolUpstream) -> None:
    output = {"type": "object", "properties": {}}
    full = a_tool("search", description="Finds.", outputSchema=output, annotations={"readOnlyHint": True}, _meta={})
    server = paged([full, a_tool("send")], [a_tool("close")])
    async with serving_mcp(server) as endpoint:
        search, send, close = await upstream.discover(mcp(endpoint))
    assert [search.name, send.name, close.name] == ["search", "send", "close"]
    assert (search.description, search.input_schema, search.output_schema) == (
        "Finds.",
        {"type": "object"},
        output,
    )
    assert (send.description, send.output_schema) == ("", None)
    assert server.opened == 1


@pytest.mark.parametrize(
    "server, sentence",
    [
        (paged([], endless=True), f"the tool server lists its tools on more than {MAX_PAGES} pages"),
        (paged([a_tool("a"), a_tool("a")]), "the tool server lists a tool twice"),
        (paged([a_tool("a")], [a_tool("a")]), "the tool server lists a tool twice"),
        (
            paged([a_tool(f"t_{number}") for number in range(MAX_TOOLS + 1)]),
            f"the tool server lists more than {MAX_TOOLS} tools",
        ),
        (paged([{"name": "a"}]), "the tool server lists a tool without a name or an input schema"),
        (paged([{"inputSchema": {}}]), "the tool server lists a tool without a name or an input schema"),
        (paged([a_tool("a", description=1)]), "the tool server's list of tools is malformed"),
        (paged([a_tool("a", outputSchema=[])]), "the tool server's list of tools is malformed"),
        (paged({}), "the tool server's list of tools is malformed"),  # type: ignore[arg-type]
    ],
)
async def test_a_list_that_can_not_be_pinned_is_a_failure(
    upstream: ToolUpstream, server: McpServer, sentence: str
) -> None:
    async with serving_mcp(server) as endpoint:
        with pytest.raises(UpstreamFailed, match=f"^{sentence}$"):
            await upstream.discover(mcp(endpoint))


async def test_a_server_that_can_not_be_reached_lists_nothing(upstream: ToolUpstream) -> None:
    with pytest.raises(UpstreamFailed, match=r"^the tool server could not be reached$"):
        await upstream.discover(mcp("http://127.0.0.1:9/mcp"))


async def test_a_plain_http_server_lists_nothing(upstream: ToolUpstream) -> None:
    with pytest.raises(UpstreamFailed, match="no list"):
        await upstream.discover(a_request("http://127.0.0.1:9"))
