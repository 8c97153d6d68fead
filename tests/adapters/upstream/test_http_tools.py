"""How a plain HTTP tool is called: where each argument goes, and what comes back of an answer."""

from typing import Any

import pytest
from aiohttp import web

from app.adapters.upstream import ToolUpstream
from app.core.strict_json import JsonObject, JsonValue
from app.ports import Outcome, UpstreamAnswer
from tests.adapters.upstream.servers import a_request, serving

pytestmark = pytest.mark.anyio


class Echo:
    """Answers with what it was sent, and keeps it."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        body = (await request.read()).decode()
        return web.json_response({"target": request.raw_path, "method": request.method, "body": body})


async def echoed(
    upstream: ToolUpstream,
    base: str = "",
    **request: Any,  # noqa: ANN401 - as `a_request` takes it
) -> dict[str, str]:
    async with serving(Echo().handle) as server:
        answer = await upstream.call(a_request(server + base, **request))
    assert answer.outcome is Outcome.SUCCESS, answer
    assert isinstance(answer.result, dict)
    return {name: str(value) for name, value in answer.result.items()}


async def answered(upstream: ToolUpstream, response: web.Response) -> UpstreamAnswer:
    async def handle(_request: web.Request) -> web.Response:
        return response

    async with serving(handle) as server:
        return await upstream.call(a_request(server))


# --- the request ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_arguments_travel_as_a_canonical_json_body(upstream: ToolUpstream, method: str) -> None:
    arguments: JsonObject = {"b": 1, "a": {"y": [1.5, None], "x": "ö"}}
    sent = await echoed(upstream, method=method, path="/refunds", arguments=arguments)
    assert sent == {
        "target": "/refunds",
        "method": method,
        "body": '{"a":{"x":"ö","y":[1.5,null]},"b":1}',
    }


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_arguments_of_a_bodiless_method_travel_in_the_query(upstream: ToolUpstream, method: str) -> None:
    arguments: JsonObject = {"q": "a&b=c d/é", "limit": 5, "ratio": 0.5, "open": True}
    sent = await echoed(upstream, method=method, path="/cases", arguments=arguments)
    assert sent == {
        "target": "/cases?limit=5&open=true&q=a%26b%3Dc%20d%2F%C3%A9&ratio=0.5",
        "method": method,
        "body": "",
    }


@pytest.mark.parametrize("value", [None, ["a"], {"a": 1}])
async def test_what_is_no_scalar_has_no_place_in_a_query(upstream: ToolUpstream, value: JsonValue) -> None:
    answer = await upstream.call(a_request("http://127.0.0.1:9", method="GET", arguments={"filter": value}))
    assert answer.outcome is Outcome.UNSENT
    assert answer.detail is not None
    assert "'filter'" in answer.detail


@pytest.mark.parametrize(
    "value, segment",
    [
        ("c_42", "c_42"),
        (7, "7"),
        ("a b?c#d", "a%20b%3Fc%23d"),
        ("100%", "100%25"),
        ("%2e%2e%2f", "%252e%252e%252f"),
        ("...", "..."),
        ("é~", "%C3%A9~"),
        ("a;b=c&d", "a%3Bb%3Dc%26d"),
    ],
)
async def test_a_path_argument_is_one_encoded_segment(upstream: ToolUpstream, value: JsonValue, segment: str) -> None:
    sent = await echoed(upstream, path="/accounts/{customerId}/close", arguments={"customerId": value, "why": "x"})
    assert sent["target"] == f"/accounts/{segment}/close"
    assert sent["body"] == '{"why":"x"}'


@pytest.mark.parametrize(
    "value", ["", ".", "..", "a/b", "/", "a\\b", "a\nb", "a\x00", "\x7f", "\u2028", True, None, 1.5, ["a"], {}]
)
async def test_a_value_that_is_no_segment_is_never_sent(upstream: ToolUpstream, value: JsonValue) -> None:
    echo = Echo()
    async with serving(echo.handle) as server:
        answer = await upstream.call(a_request(server, path="/a/{id}", arguments={"id": value}))
    assert (answer.outcome, answer.timed_out, echo.requests) == (Outcome.UNSENT, False, [])
    assert answer.detail is not None
    assert "'id'" in answer.detail


async def test_a_missing_path_argument_is_never_sent(upstream: ToolUpstream) -> None:
    answer = await upstream.call(a_request("http://127.0.0.1:9", path="/a/{id}"))
    assert answer.outcome is Outcome.UNSENT


async def test_two_arguments_beside_each_other_make_no_dot_segment(upstream: ToolUpstream) -> None:
    request = a_request("http://127.0.0.1:9", path="/a/.{id}", arguments={"id": "x"})
    assert (await upstream.call(request)).detail == "the tool server could not be reached"
    request = a_request("http://127.0.0.1:9", path="/a/./{id}", arguments={"id": "x"})
    climbing = "the argument 'id' would make the tool's path climb out of its place"
    assert (await upstream.call(request)).detail == climbing
    answer = await upstream.call(a_request("http://127.0.0.1:9", path="/a/../b"))
    assert answer.outcome is Outcome.UNSENT


@pytest.mark.parametrize(
    "base, path, target",
    [
        ("", "", "/"),
        ("/", "/refunds", "/refunds"),
        ("/api", "", "/api"),
        ("/api", "refunds", "/api/refunds"),
        ("/api/", "/refunds", "/api/refunds"),
        ("/api/", "/re funds?x=1#y", "/api/re%20funds%3Fx=1%23y"),
        ("/api?v=2", "/refunds", "/api/refunds?v=2"),
    ],
)
async def test_the_path_is_added_to_the_endpoints_own(
    upstream: ToolUpstream, base: str, path: str, target: str
) -> None:
    assert (await echoed(upstream, base, path=path))["target"] == target


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_endpoints_own_query_stays_where_no_argument_goes(upstream: ToolUpstream, method: str) -> None:
    sent = await echoed(upstream, "/api?v=2", method=method, path="/cases/{id}", arguments={"id": "c_1"})
    assert sent["target"] == "/api/cases/c_1?v=2"


@pytest.mark.parametrize("name", ["limit", "Limit", "limit[]", "q"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_no_argument_stands_beside_a_fixed_parameter_that_could_be_read_in_its_place(
    upstream: ToolUpstream, method: str, name: str
) -> None:
    echo = Echo()
    async with serving(echo.handle) as server:
        answer = await upstream.call(a_request(f"{server}/api?limit=100", method=method, arguments={name: 5}))
    detail = "the tool's arguments would stand beside the query that its endpoint has"
    assert (answer, echo.requests) == (UpstreamAnswer(outcome=Outcome.UNSENT, detail=detail), [])


async def test_a_method_without_a_meaning_here_is_never_sent(upstream: ToolUpstream) -> None:
    assert (await upstream.call(a_request("http://127.0.0.1:9", method="CONNECT"))).outcome is Outcome.UNSENT


async def test_the_tool_sees_the_gateways_credential_and_nothing_else_of_anybody(
    upstream: ToolUpstream,
) -> None:
    echo = Echo()
    async with serving(echo.handle) as server:
        await upstream.call(a_request(server, headers={"X-Billing-Key": "s3cret"}))
    assert {name.lower(): value for name, value in echo.requests[0].headers.items()} == {
        "host": server.removeprefix("http://"),
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": "subgrant",
        "content-type": "application/json",
        "content-length": "2",
        "x-billing-key": "s3cret",
    }


# --- the answer -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, content_type, result",
    [
        (b'{"refundId":"rf_1","n":1.0}', "application/json", {"refundId": "rf_1", "n": 1}),
        (b"[1,2]", "text/plain", [1, 2]),
        (b"all good", "text/plain; charset=utf-8", "all good"),
        ("schön".encode(), "text/html", "schön"),
        (b'{"a":1,"a":2}', "text/plain", '{"a":1,"a":2}'),
        (b"", "application/json", None),
    ],
)
async def test_an_answer_becomes_a_json_value(
    upstream: ToolUpstream, body: bytes, content_type: str, result: JsonValue
) -> None:
    answer = await answered(upstream, web.Response(body=body, headers={"Content-Type": content_type}))
    assert answer == UpstreamAnswer(outcome=Outcome.SUCCESS, result=result)
    assert type(answer.result) is type(result)


@pytest.mark.parametrize(
    "body, content_type",
    [
        (b'{"a":1,"a":2}', "application/json"),
        (b'{"a":NaN}', "application/problem+json"),
        (b"[" * 65 + b"]" * 65, "application/json"),
        (b"{", "application/json; charset=utf-8"),
        (b"\xff\xfe", "application/octet-stream"),
    ],
)
async def test_an_answer_that_can_not_be_trusted_to_mean_one_thing_is_a_tool_error(
    upstream: ToolUpstream, body: bytes, content_type: str
) -> None:
    answer = await answered(upstream, web.Response(body=body, headers={"Content-Type": content_type}))
    assert answer.outcome is Outcome.TOOL_ERROR
    assert answer.result is None
    assert answer.detail is not None


@pytest.mark.parametrize("status", [301, 400, 401, 404, 422, 429, 500, 503])
async def test_every_other_status_is_a_tool_error_with_its_json_body(upstream: ToolUpstream, status: int) -> None:
    answer = await answered(upstream, web.json_response({"error": "no such case"}, status=status))
    assert answer == UpstreamAnswer(
        outcome=Outcome.TOOL_ERROR,
        result={"error": "no such case"},
        detail=f"the tool answered HTTP {status}",
    )


async def test_an_error_page_is_not_handed_on(upstream: ToolUpstream) -> None:
    answer = await answered(upstream, web.Response(status=500, text="<h1>boom at 10.0.0.7:8080</h1>"))
    assert answer == UpstreamAnswer(outcome=Outcome.TOOL_ERROR, detail="the tool answered HTTP 500")


async def test_an_answer_without_content_is_null(upstream: ToolUpstream) -> None:
    assert await answered(upstream, web.Response(status=204)) == UpstreamAnswer(outcome=Outcome.SUCCESS)
