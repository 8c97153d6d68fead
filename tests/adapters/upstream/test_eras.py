"""Which words each tool server is spoken to in: it is asked once, believed for a while, and never called twice."""

import json
from collections.abc import Callable

import pytest
from aiohttp import web

from app.adapters.upstream import ToolUpstream
from app.adapters.upstream.eras import BELIEVED_SECONDS, Era, Eras
from app.core.strict_json import JsonObject
from app.ports import Outcome, UpstreamAnswer
from tests.adapters.upstream.servers import McpServer, StatelessServer, response, serving
from tests.adapters.upstream.test_mcp_tools import DONE, mcp

pytestmark = pytest.mark.anyio


# --- asking -----------------------------------------------------------------------------------------------


async def test_a_server_of_today_is_asked_once_what_it_speaks(upstream: ToolUpstream) -> None:
    server = StatelessServer()
    async with serving(server.handle) as endpoint:
        for run in ("run_1", "run_2", "run_1"):
            assert await upstream.call(mcp(endpoint, run)) == DONE
    assert [message["method"] for message in server.heard] == ["server/discover", *["tools/call"] * 3]


def an_error(code: int, status: int = 400, **data: object) -> Callable[[], web.Response]:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "no", "data": data}}
    return lambda: web.json_response(body, status=status)


OLDER: dict[str, Callable[[], web.Response]] = {
    "nothing there": lambda: web.Response(status=404),
    "not so": lambda: web.Response(status=405),
    "not understood": lambda: web.Response(status=400),
    "a fault of its own": lambda: web.Response(status=500),
    "a text": lambda: web.Response(status=400, text="Bad Request: No valid session ID provided"),
    "no session": an_error(-32000),
    "an invalid request": an_error(-32600),
    "no such method": an_error(-32601, 404),
    "no such method, as it answers everything": an_error(-32601, 200),
    "no such params": an_error(-32602, 200),
    "another revision": an_error(-32022, supported=["2025-11-25", "2025-06-18"]),
    "an empty result": lambda: web.json_response({"jsonrpc": "2.0", "id": 1, "result": {}}),
    "a list": lambda: web.json_response([]),
}
"""What servers of before answer to a method that they never heard of, and one that was told to be of before."""


@pytest.mark.parametrize("what", OLDER)
async def test_whoever_does_not_say_that_it_speaks_the_revision_of_today_is_greeted(
    upstream: ToolUpstream, what: str
) -> None:
    server = McpServer(unknown=OLDER[what])
    async with serving(server.handle) as endpoint:
        for _ in range(2):
            assert await upstream.call(mcp(endpoint)) == DONE
    assert (len(server.probes), server.opened, len(server.calls())) == (1, 1, 2)


async def test_a_server_that_says_nothing_to_what_it_does_not_know_is_greeted_in_time(upstream: ToolUpstream) -> None:
    server = McpServer()

    async def mute(request: web.Request) -> web.StreamResponse:
        if json.loads(await request.read())["method"] == "server/discover":
            assert request.transport is not None
            request.transport.abort()
        return await server.handle(request)

    async with serving(mute) as endpoint:
        assert await upstream.call(mcp(endpoint)) == DONE


@pytest.mark.parametrize("supported", [["2030-01-01"], [], [7], "2026-07-28", None])
async def test_a_server_that_speaks_nothing_of_ours_is_not_called(upstream: ToolUpstream, supported: object) -> None:
    methods = []

    async def strange(request: web.Request) -> web.Response:
        methods.append(json.loads(await request.read())["method"])
        return an_error(-32022, supported=supported)()

    async with serving(strange) as endpoint:
        answer = await upstream.call(mcp(endpoint))
    detail = "the tool server speaks no revision of MCP that the gateway knows"
    assert answer == UpstreamAnswer(outcome=Outcome.UNSENT, detail=detail)
    assert methods == ["server/discover"]


# --- believing --------------------------------------------------------------------------------------------


def test_what_was_learnt_is_believed_for_a_while_and_forgotten_in_order() -> None:
    now = [0.0]
    eras = Eras(limit=2, clock=lambda: now[0])
    assert eras.known("a") is None
    for endpoint in ("a", "b", "a", "c"):
        eras.learn(endpoint, Era.STATELESS)
    assert [eras.known(endpoint) for endpoint in "abc"] == [Era.STATELESS, None, Era.STATELESS]
    assert len(eras) == 2
    now[0] = BELIEVED_SECONDS - 0.1
    assert eras.known("c") is Era.STATELESS
    now[0] = BELIEVED_SECONDS
    assert eras.known("c") is None
    eras.learn("c", Era.HANDSHAKE)
    assert eras.known("c") is Era.HANDSHAKE
    eras.forget("c")
    assert eras.known("c") is None


class Replaced:
    """Two servers at one address, one after the other."""

    def __init__(self, before: McpServer | StatelessServer, after: McpServer | StatelessServer) -> None:
        self.now: McpServer | StatelessServer = before
        self.after = after

    async def handle(self, request: web.Request) -> web.StreamResponse:
        return await self.now.handle(request)

    def replace(self) -> None:
        self.now = self.after


async def test_a_server_that_learnt_the_revision_of_today_is_called_once_in_it(upstream: ToolUpstream) -> None:
    after = StatelessServer()
    place = Replaced(McpServer(), after)
    async with serving(place.handle) as endpoint:
        assert await upstream.call(mcp(endpoint)) == DONE
        place.replace()
        # In a session that it does not know, and for a run that has none yet.
        for run in ("run_1", "run_2", "run_1"):
            assert await upstream.call(mcp(endpoint, run)) == DONE
    refused, *ran = after.calls()
    assert "_meta" not in params_of(refused)
    assert [("_meta" in params_of(call)) for call in ran] == [True] * 3


def params_of(message: JsonObject) -> JsonObject:
    params = message["params"]
    assert isinstance(params, dict)
    return params


async def test_a_server_that_no_longer_takes_the_revision_ran_nothing_and_is_called_in_another(
    upstream: ToolUpstream,
) -> None:
    after = McpServer(unknown=an_error(-32022, supported=["2025-11-25"]))
    place = Replaced(StatelessServer(), after)
    async with serving(place.handle) as endpoint:
        assert await upstream.call(mcp(endpoint)) == DONE
        place.replace()
        assert await upstream.call(mcp(endpoint)) == DONE
    assert after.sessions() == [None, "session-1"]


async def test_a_server_that_forgot_the_revision_of_today_fails_one_call_and_is_greeted_at_the_next(
    upstream: ToolUpstream,
) -> None:
    before, after = StatelessServer(), McpServer()
    place = Replaced(before, after)
    async with serving(place.handle) as endpoint:
        assert await upstream.call(mcp(endpoint)) == DONE
        place.replace()
        failed = await upstream.call(mcp(endpoint))
        assert failed == UpstreamAnswer(outcome=Outcome.TOOL_ERROR, detail="the tool answered HTTP 404")
        assert await upstream.call(mcp(endpoint)) == DONE
    assert len(after.calls()) == 2, "what was answered with 404 was not sent again"


# --- what a server says it did not do ---------------------------------------------------------------------


async def test_a_server_that_says_each_time_that_it_ran_nothing_is_not_free(upstream: ToolUpstream) -> None:
    """It was sent the call, whatever it says of it: a tool that lied would otherwise be called without end."""
    server = StatelessServer(answer=run_and_deny)
    async with serving(server.handle) as endpoint:
        answers = [await upstream.call(mcp(endpoint)) for _ in range(4)]
    assert {answer.outcome for answer in answers} == {Outcome.TOOL_ERROR}
    assert len(server.calls()) == 4


async def run_and_deny(_request: web.Request, _message: JsonObject) -> web.Response:
    return an_error(-32022, supported=["2026-07-28"])()


@pytest.mark.parametrize("status", [401, 403, 307])
async def test_a_server_that_says_so_and_then_says_no_more_is_not_free_either(
    upstream: ToolUpstream, status: int
) -> None:
    server = StatelessServer()

    async def handle(request: web.Request) -> web.StreamResponse:
        if server.answer is not None and json.loads(await request.read())["method"] == "server/discover":
            return web.Response(status=status)
        return await server.handle(request)

    async with serving(handle) as endpoint:
        assert await upstream.call(mcp(endpoint)) == DONE
        server.answer = run_and_deny
        answer = await upstream.call(mcp(endpoint))
    assert answer == UpstreamAnswer(outcome=Outcome.TOOL_ERROR, detail="the tool answered HTTP 400")
    assert len(server.calls()) == 2


async def test_a_server_that_denies_its_session_and_opens_no_other_is_not_free(upstream: ToolUpstream) -> None:
    server = McpServer()

    async def handle(request: web.Request) -> web.StreamResponse:
        if not server.open and server.opened:
            server.unknown = lambda: web.Response(status=404)
            if json.loads(await request.read())["method"] == "initialize":
                return web.Response(status=401)
        return await server.handle(request)

    async with serving(handle) as endpoint:
        assert await upstream.call(mcp(endpoint)) == DONE
        server.open.clear()
        answer = await upstream.call(mcp(endpoint))
    assert answer == UpstreamAnswer(outcome=Outcome.TOOL_ERROR, detail="the tool answered HTTP 404")


# --- requests ---------------------------------------------------------------------------------------------


async def test_a_request_says_what_it_is_and_nothing_of_who_caused_it(upstream: ToolUpstream) -> None:
    server = StatelessServer()
    async with serving(server.handle) as endpoint:
        await upstream.call(mcp(endpoint, headers={"X-Key": "s3cret"}))
    (call,) = server.calls()
    assert call["params"] == {
        "name": "refund",
        "arguments": {"caseId": "case_1"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "subgrant", "version": "0.1.0"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }
    sent = server.requests[-1].headers
    names = {name.lower() for name in sent}
    assert {name for name in names if name.startswith("mcp-")} == {"mcp-protocol-version", "mcp-method", "mcp-name"}
    assert sent["X-Key"] == "s3cret"
    assert "mcp-session-id" not in names


async def test_requests_in_flight_are_numbered_apart(upstream: ToolUpstream) -> None:
    server = StatelessServer()
    async with serving(server.handle) as endpoint:
        for run in ("run_1", "run_2", "run_3"):
            await upstream.call(mcp(endpoint, run))
    assert len({str(message["id"]) for message in server.heard}) == 4


async def test_arguments_are_repeated_in_header_fields_where_the_schema_wants_it(upstream: ToolUpstream) -> None:
    server = StatelessServer()
    schema: JsonObject = {"type": "object", "properties": {"caseId": {"type": "string", "x-mcp-header": "Case"}}}
    async with serving(server.handle) as endpoint:
        assert await upstream.call(mcp(endpoint, input_schema=schema)) == DONE
        assert server.requests[-1].headers["Mcp-Param-Case"] == "case_1"
        broken: JsonObject = {
            "type": "object",
            "properties": {"caseId": {"type": "string", "x-mcp-header": "a\r\nb: c"}},
        }
        answer = await upstream.call(mcp(endpoint, input_schema=broken))
    assert answer.outcome is Outcome.UNSENT
    assert len(server.calls()) == 1


async def test_a_tool_whose_fields_can_not_be_sent_is_not_discovered(upstream: ToolUpstream) -> None:
    async def tools(_request: web.Request, message: JsonObject) -> JsonObject:
        fields = {"x-mcp-header": ""}
        bad = {"type": "object", "properties": {"a": {"type": "string", **fields}}}
        listed = [{"name": "good", "inputSchema": {"type": "object"}}, {"name": "bad", "inputSchema": bad}]
        return response(message, {"resultType": "complete", "tools": listed})

    async with serving(StatelessServer(answer=tools).handle) as endpoint:
        assert [tool.name for tool in await upstream.discover(mcp(endpoint))] == ["good"]


# --- answers ----------------------------------------------------------------------------------------------


async def result_of(upstream: ToolUpstream, result: JsonObject, *, sse: bool = False) -> UpstreamAnswer:
    async def give(_request: web.Request, message: JsonObject) -> JsonObject:
        return response(message, result)

    async with serving(StatelessServer(answer=give, sse=sse).handle) as endpoint:
        return await upstream.call(mcp(endpoint))


@pytest.mark.parametrize("sse", [False, True])
async def test_every_kind_of_content_passes(upstream: ToolUpstream, *, sse: bool) -> None:
    content: list[JsonObject] = [
        {"type": "text", "text": "one", "annotations": {"audience": ["user"]}},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "a"}},
    ]
    result: JsonObject = {
        "resultType": "complete",
        "content": [*content],
        "structuredContent": [1, 2],
        "_meta": {"x": 1},
    }
    answer = await result_of(upstream, result, sse=sse)
    expected: JsonObject = {"content": [*content], "structuredContent": [1, 2]}
    assert answer == UpstreamAnswer(outcome=Outcome.SUCCESS, result=expected)


async def test_a_result_of_before_that_has_no_type_is_complete(upstream: ToolUpstream) -> None:
    assert (await result_of(upstream, {"content": []})).outcome is Outcome.SUCCESS


@pytest.mark.parametrize("kind", ["task", "", None, 1])
async def test_a_result_of_an_unknown_type_is_no_result(upstream: ToolUpstream, kind: object) -> None:
    answer = await result_of(upstream, {"resultType": kind, "content": []})  # type: ignore[dict-item]
    assert (answer.outcome, answer.result) == (Outcome.TOOL_ERROR, None)


@pytest.mark.parametrize("status", [200, 400, 404])
async def test_a_json_rpc_error_is_a_tool_error_whatever_its_status(upstream: ToolUpstream, status: int) -> None:
    async def refuse(_request: web.Request, message: JsonObject) -> web.Response:
        error = {"code": -32602, "message": "Unknown tool: refund"}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=status)

    server = StatelessServer(answer=refuse)
    async with serving(server.handle) as endpoint:
        answer = await upstream.call(mcp(endpoint))
    assert answer.outcome is Outcome.TOOL_ERROR
    assert answer.detail == "the tool server refused the call with JSON-RPC error -32602"
    assert len(server.calls()) == 1


async def test_a_tool_that_asks_for_input_gets_none_and_its_questions_go_nowhere(upstream: ToolUpstream) -> None:
    asked: JsonObject = {"method": "elicitation/create", "params": {"message": "your password, please"}}
    result: JsonObject = {"resultType": "input_required", "inputRequests": {"a": asked}, "requestState": "secret"}
    answer = await result_of(upstream, result)
    detail = "the tool asked for input of its caller's, which is not passed on"
    assert answer == UpstreamAnswer(outcome=Outcome.TOOL_ERROR, detail=detail)
