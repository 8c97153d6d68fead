"""A call over MCP while it runs: what its client hears, when that is a stream, and how the client takes it back."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
import pytest
from fastapi import FastAPI

from app.api import errors, mcp
from app.core.strict_json import JsonObject, JsonValue
from app.ports import LogMessage, Notice, Outcome, Progress, UpstreamAnswer, UpstreamRequest
from tests.api.test_mcp import ISSUER, speak_mcp, token_for
from tests.mcp_client import (
    HANDSHAKES,
    REVISIONS,
    STATELESS,
    Json,
    McpClient,
    decision_of,
    error_of,
    in_event,
    messages_of,
    result_of,
)
from tests.samples import ACME, SEARCH
from tests.usecases.worlds import Scene, a_scene

pytestmark = pytest.mark.anyio

LEVEL = "io.modelcontextprotocol/logLevel"
INVALID_PARAMS = -32602
STEPS = (Progress(progress=1), Progress(progress=2.5, total=4, message="half way"))


@pytest.fixture
async def scene() -> Scene:
    return await a_scene()


@pytest.fixture
def app(scene: Scene) -> FastAPI:
    app = FastAPI(version="7.8.9", redirect_slashes=False)
    app.include_router(mcp.router)
    errors.install(app)
    app.state.world = scene.world
    return app


@pytest.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ISSUER) as client:
        yield client


@pytest.fixture
async def token(scene: Scene) -> str:
    return await token_for(scene)


@pytest.fixture
def client(http: httpx.AsyncClient, token: str) -> McpClient:
    return McpClient(http, token)


@pytest.fixture(params=REVISIONS)
def any_client(request: pytest.FixtureRequest, http: httpx.AsyncClient, token: str) -> McpClient:
    return McpClient(http, token, request.param)


@pytest.fixture(params=HANDSHAKES)
def old_client(request: pytest.FixtureRequest, http: httpx.AsyncClient, token: str) -> McpClient:
    return McpClient(http, token, request.param)


def saying(scene: Scene, *notices: Notice) -> None:
    async def say(request: UpstreamRequest) -> None:
        if request.listener is not None:
            for notice in notices:
                request.listener.tell(notice)

    scene.tools.meanwhile = say


def watched(token: object = "t1", **meta: object) -> Json:
    return {"name": SEARCH.tool, "_meta": {"progressToken": token, **meta}}


def is_stream(response: httpx.Response) -> bool:
    return response.headers["content-type"].startswith("text/event-stream")


# --- one connection, event by event -----------------------------------------------------------------------


@dataclass
class Connection:
    """One request over a connection of its own, which its client may let go or stop reading from."""

    app: FastAPI
    client: McpClient
    body: Json
    headers: Mapping[str, str]
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    reading: asyncio.Event = field(default_factory=asyncio.Event)
    sent: "asyncio.Queue[dict[str, Any]]" = field(default_factory=asyncio.Queue)
    was_read: bool = False
    minds: bool = False
    """Whether the server tells its application that it sends to nobody (ASGI 2.4); others say nothing."""

    async def __aenter__(self) -> Self:
        self.reading.set()
        fields = self.client.fields(self.headers) | {"Host": "subgrant.example"}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "https",
            "path": f"/mcp/{self.client.server}",
            "raw_path": f"/mcp/{self.client.server}".encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in fields.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self.served = asyncio.create_task(self.app(scope, self._receive, self._send))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.gone.set()
        self.served.cancel()
        await asyncio.gather(self.served, return_exceptions=True)

    async def start(self) -> Json:
        """The status, and the header fields."""
        message = await self._next()
        assert message["type"] == "http.response.start"
        return {"status": message["status"]} | {name.decode(): value.decode() for name, value in message["headers"]}

    async def piece(self) -> tuple[bytes, bool]:
        """What is sent next, and whether more will be."""
        message = await self._next()
        assert message["type"] == "http.response.body"
        return message.get("body", b""), message.get("more_body", False)

    async def messages(self) -> list[Json]:
        """Everything that is sent from now on."""
        text, more = b"", True
        while more:
            piece, more = await self.piece()
            text += piece
        if not text.startswith((b"event:", b":")):
            return [json.loads(text)] if text else []
        return [message for event in text.decode().split("\n\n") for message in in_event(event)]

    async def _next(self) -> dict[str, Any]:
        return await asyncio.wait_for(self.sent.get(), 10)

    async def _receive(self) -> dict[str, Any]:
        if not self.was_read:
            self.was_read = True
            return {"type": "http.request", "body": json.dumps(self.body).encode(), "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:  # noqa: ANN401 - ASGI's
        await self.reading.wait()
        if not self.gone.is_set():
            self.sent.put_nowait(message)
        elif self.minds:
            raise OSError("the client has gone")


async def connect(app: FastAPI, client: McpClient, params: Json) -> Connection:
    await client.ask("tools/list")
    return Connection(app, client, *client.request("tools/call", params))


# --- what is heard ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["t1", 0, 7, "", "x" * 256])
async def test_progress_comes_before_the_answer_under_the_clients_own_token(
    any_client: McpClient, scene: Scene, given: str | int
) -> None:
    saying(scene, *STEPS)
    response = await any_client.ask("tools/call", watched(given))
    assert is_stream(response)
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert "content-length" not in response.headers
    one, two, answer = messages_of(response)
    first = {"progressToken": given, "progress": 1}
    assert one == {"jsonrpc": "2.0", "method": "notifications/progress", "params": first}
    second = {"progressToken": given, "progress": 2.5, "total": 4, "message": "half way"}
    assert two == {"jsonrpc": "2.0", "method": "notifications/progress", "params": second}
    assert answer["result"]["isError"] is False
    assert decision_of(response)["outcome"] == "success"


async def test_the_first_word_is_heard_while_the_tool_still_runs(
    app: FastAPI, any_client: McpClient, scene: Scene
) -> None:
    released = asyncio.Event()

    async def say(request: UpstreamRequest) -> None:
        assert request.listener is not None
        request.listener.tell(STEPS[0])
        await released.wait()
        request.listener.tell(STEPS[1])

    scene.tools.meanwhile = say
    async with await connect(app, any_client, watched()) as connection:
        start = await connection.start()
        assert (start["status"], start["content-type"]) == (200, "text/event-stream; charset=utf-8")
        piece, more = await connection.piece()
        assert more
        assert in_event(piece.decode())[0]["params"]["progress"] == 1
        assert connection.sent.empty()
        released.set()
        later = await connection.messages()
    assert [message.get("method") for message in later] == ["notifications/progress", None]


async def test_a_tool_never_learns_the_clients_token(any_client: McpClient, scene: Scene) -> None:
    await any_client.ask("tools/call", watched("secret-token"))
    (request,) = scene.tools.requests
    assert "secret-token" not in repr(request)
    assert request.listener is not None
    assert request.listener.hears_progress


UNWATCHED: dict[str, tuple[Json, dict[str, str]]] = {
    "no token": ({"name": SEARCH.tool}, {}),
    "null for a token": (watched(None), {}),
    "no events": (watched(), {"Accept": "application/json"}),
    "no events, said so": (watched(), {"Accept": "application/json, text/event-stream;q=0"}),
}


@pytest.mark.parametrize("what", UNWATCHED)
async def test_who_does_not_ask_or_can_not_take_events_gets_one_object(
    any_client: McpClient, scene: Scene, what: str
) -> None:
    saying(scene, *STEPS)
    await any_client.ask("tools/list")
    params, fields = UNWATCHED[what]
    body, headers = any_client.request("tools/call", params)
    response = await any_client.send(body, headers | fields)
    assert response.headers["content-type"] == "application/json"
    assert result_of(response)["isError"] is False
    assert scene.tools.requests[0].listener is None


@pytest.mark.parametrize("given", [True, 1.5, [], {}, "x" * 257])
async def test_a_token_is_a_string_or_an_integer(any_client: McpClient, scene: Scene, given: object) -> None:
    response = await any_client.ask("tools/call", watched(given))
    assert error_of(response)["code"] == INVALID_PARAMS
    assert scene.tools.requests == []


async def test_messages_are_handed_on_to_who_asks_with_the_call(client: McpClient, scene: Scene) -> None:
    data: JsonValue = {"rows": [1, 2]}
    saying(scene, LogMessage(level="error", data=data, logger="db"), LogMessage(level="error", data="bare"))
    response = await client.ask("tools/call", {"name": SEARCH.tool, "_meta": {LEVEL: "warning"}})
    one, two, _ = messages_of(response)
    params = {"level": "error", "data": {"rows": [1, 2]}, "logger": "db"}
    assert one == {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
    assert two["params"] == {"level": "error", "data": "bare"}
    (request,) = scene.tools.requests
    assert request.listener is not None
    assert (request.listener.log_level, request.listener.hears_progress) == ("warning", False)


@pytest.mark.parametrize("level", ["loud", "", 3, None.__class__, ["error"], "DEBUG"])
async def test_a_level_that_is_none_is_refused(client: McpClient, scene: Scene, level: object) -> None:
    given = str(level) if isinstance(level, type) else level
    response = await client.ask("tools/call", {"name": SEARCH.tool, "_meta": {LEVEL: given}})
    assert (response.status_code, error_of(response)["code"]) == (400, INVALID_PARAMS)
    assert scene.tools.requests == []


async def test_where_there_is_no_level_in_a_call_there_are_no_messages(old_client: McpClient, scene: Scene) -> None:
    saying(scene, LogMessage(level="error", data="x"))
    response = await old_client.ask("tools/call", watched("t1", **{LEVEL: "debug"}))
    assert [message.get("method") for message in messages_of(response)] == [None]
    assert error_of(await old_client.ask("logging/setLevel", {"level": "debug"}))["code"] == -32601


async def test_a_refused_call_is_no_stream_and_keeps_its_status(
    any_client: McpClient, scene: Scene, http: httpx.AsyncClient
) -> None:
    saying(scene, *STEPS)
    unknown = await any_client.ask("tools/call", watched() | {"name": "no_such_tool"})
    assert error_of(unknown)["code"] == INVALID_PARAMS
    spent = McpClient(http, await token_for(scene, max_tool_calls=0), any_client.revision)
    denied = await spent.ask("tools/call", watched())
    assert denied.headers["content-type"] == "application/json"
    assert decision_of(denied)["reason"] == "budget_exceeded"
    assert scene.tools.requests == []


async def test_a_projection_lets_no_word_of_the_tool_through(scene: Scene, http: httpx.AsyncClient) -> None:
    saying(
        scene,
        Progress(progress=41111111, total=99, message="card 4111"),
        LogMessage(level="alert", data={"card": "4111"}, logger="4111"),
    )
    projection = {SEARCH.tool: ["$.cases[*].caseId"]}
    client = McpClient(http, await token_for(scene, result_projection=projection))
    response = await client.ask("tools/call", watched("t1", **{LEVEL: "debug"}))
    one, _ = messages_of(response)
    assert one["params"] == {"progressToken": "t1", "progress": 1}
    assert "4111" not in response.text


async def test_silence_is_broken_now_and_then(
    app: FastAPI, client: McpClient, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.mcp.calls.KEEP_ALIVE_SECONDS", 0.05)
    released = asyncio.Event()

    async def wait(_: UpstreamRequest) -> None:
        await released.wait()

    scene.tools.meanwhile = wait
    async with await connect(app, client, watched()) as connection:
        await connection.start()
        for _ in range(3):
            assert await connection.piece() == (b":\n\n", True)
        released.set()
        (answer,) = await connection.messages()
    assert answer["result"]["isError"] is False


async def test_a_stream_may_end_in_an_error(client: McpClient, scene: Scene) -> None:
    await speak_mcp(scene)
    error: JsonObject = {"code": -32021, "message": "x", "data": {"requiredCapabilities": {"sampling": {}}}}
    scene.tools.answer = UpstreamAnswer(outcome=Outcome.TOOL_ERROR, result={"error": error})
    saying(scene, STEPS[0])
    response = await client.ask("tools/call", watched())
    *_, answer = messages_of(response)
    assert is_stream(response)
    assert (answer["id"], answer["error"]["code"]) == (1, -32021)
    assert answer["error"]["data"]["requiredCapabilities"] == {"sampling": {}}


@pytest.mark.parametrize("given", [{"inputResponses": {}}, {"requestState": "AAAA"}])
async def test_answers_to_what_nobody_asked_are_refused(any_client: McpClient, scene: Scene, given: Json) -> None:
    response = await any_client.ask("tools/call", {"name": SEARCH.tool} | given)
    assert error_of(response)["code"] == INVALID_PARAMS
    assert scene.tools.requests == []


# --- taking a call back -----------------------------------------------------------------------------------


def hanging(scene: Scene) -> tuple[asyncio.Event, asyncio.Event]:
    """A tool that runs until it is released; whether it has begun, and its release."""
    started, released = asyncio.Event(), asyncio.Event()

    async def hang(_: UpstreamRequest) -> None:
        started.set()
        await released.wait()

    scene.tools.meanwhile = hang
    return started, released


async def settled(scene: Scene) -> Json:
    """The record of how the one call ended."""
    while scene.world.in_flight.endings:
        await asyncio.wait(set(scene.world.in_flight.endings))
    return (await scene.records())[-1]


@pytest.mark.parametrize("params", [watched(), {"name": SEARCH.tool}], ids=["a stream", "one object"])
async def test_in_todays_revision_a_client_that_goes_takes_its_call_back(
    app: FastAPI, client: McpClient, scene: Scene, params: Json
) -> None:
    started, _ = hanging(scene)
    async with await connect(app, client, params) as connection:
        await started.wait()
        connection.gone.set()
        record = await asyncio.wait_for(settled(scene), 10)
        await asyncio.wait_for(connection.served, 10)
    assert (record["type"], record["cancelled"]) == ("tool.outcome_unknown", True)


@pytest.mark.parametrize("revision", [STATELESS, "2025-11-25"])
async def test_a_stream_to_nobody_ends_quietly(
    app: FastAPI, http: httpx.AsyncClient, scene: Scene, revision: str
) -> None:
    released = asyncio.Event()

    async def say(request: UpstreamRequest) -> None:
        assert request.listener is not None
        await released.wait()
        request.listener.tell(STEPS[0])

    scene.tools.meanwhile = say
    client = McpClient(http, await token_for(scene), revision)
    connection = await connect(app, client, watched())
    connection.minds = True
    async with connection:
        await connection.start()
        connection.gone.set()
        released.set()
        await asyncio.wait_for(connection.served, 10)
    ended = {STATELESS: {"success", "unknown"}, "2025-11-25": {"success"}}
    assert (await settled(scene))["outcome"] in ended[revision]


@pytest.mark.parametrize("params", [watched(), {"name": SEARCH.tool}], ids=["a stream", "one object"])
async def test_before_a_client_that_goes_says_nothing_by_it(
    app: FastAPI, old_client: McpClient, scene: Scene, params: Json
) -> None:
    started, released = hanging(scene)
    async with await connect(app, old_client, params) as connection:
        await started.wait()
        connection.gone.set()
        await asyncio.sleep(0)
        released.set()
        record = await asyncio.wait_for(settled(scene), 10)
    assert (record["type"], record["outcome"]) == ("tool.executed", "success")


async def cancel(client: McpClient, request_id: object, **params: object) -> httpx.Response:
    _, headers = client.request("ping")
    named = {"requestId": request_id, **params}
    return await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": named}, headers)


async def test_before_a_client_takes_its_call_back_by_naming_it_and_hears_no_more_of_it(
    app: FastAPI, old_client: McpClient, scene: Scene
) -> None:
    started, _ = hanging(scene)
    async with await connect(app, old_client, watched()) as connection:
        await started.wait()
        taken = await cancel(old_client, connection.body["id"], reason="never mind")
        assert (taken.status_code, taken.content) == (202, b"")
        record = await asyncio.wait_for(settled(scene), 10)
        assert (await connection.start())["status"] == 200
        assert await connection.messages() == []
    assert (record["type"], record["cancelled"], record["costCents"]) == ("tool.outcome_unknown", True, 2)


async def test_a_client_that_waits_for_one_object_is_sent_none_either(
    app: FastAPI, old_client: McpClient, scene: Scene
) -> None:
    started, _ = hanging(scene)
    async with await connect(app, old_client, {"name": SEARCH.tool}) as connection:
        await started.wait()
        await cancel(old_client, connection.body["id"])
        start = await connection.start()
        assert (start["status"], start["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert await connection.messages() == []


async def test_a_client_that_takes_no_events_is_told_what_became_of_its_call(
    app: FastAPI, old_client: McpClient, scene: Scene
) -> None:
    started, _ = hanging(scene)
    connection = await connect(app, old_client, {"name": SEARCH.tool})
    connection.headers = {**connection.headers, "Accept": "application/json"}
    async with connection:
        await started.wait()
        await cancel(old_client, connection.body["id"])
        await connection.start()
        (answer,) = await connection.messages()
    assert answer["result"]["isError"] is True
    assert "must not simply be repeated" in answer["result"]["content"][0]["text"]


async def test_nobody_elses_call_is_taken_back(app: FastAPI, scene: Scene, http: httpx.AsyncClient) -> None:
    started, released = hanging(scene)
    token = await token_for(scene)
    owner = McpClient(http, token, "2025-11-25")
    async with await connect(app, owner, {"name": SEARCH.tool}) as connection:
        await started.wait()
        number = connection.body["id"]
        same_grant = McpClient(http, token, "2025-11-25")
        other_revision = McpClient(http, token, "2025-06-18")
        other_grant = McpClient(http, await token_for(scene), "2025-11-25")
        for other in (same_grant, other_revision, other_grant):
            await other.ask("ping")
            assert (await cancel(other, number)).status_code == 202
        stolen = McpClient(http, await token_for(scene), "2025-11-25", session=owner.session)
        assert (await cancel(stolen, number)).status_code == 404
        assert (await cancel(McpClient(http, None, "2025-11-25", session=owner.session), number)).status_code == 401
        today = McpClient(http, token)
        assert (await cancel(today, number)).status_code == 202
        # Its own session, but nothing that names this call.
        wrongs: tuple[object, ...] = (str(number), number + 1, None, True, [number], {}, 1.5, "x" * 300)
        for wrong in wrongs:
            assert (await cancel(owner, wrong)).status_code == 202
        released.set()
        await connection.start()
        (answer,) = await connection.messages()
    assert answer["result"]["isError"] is False


async def test_a_client_of_today_is_not_told_apart_by_a_number_that_others_use_too(
    app: FastAPI, client: McpClient, scene: Scene
) -> None:
    started, released = hanging(scene)
    async with await connect(app, client, {"name": SEARCH.tool}) as connection:
        await started.wait()
        assert (await cancel(client, connection.body["id"])).status_code == 202
        released.set()
        await connection.start()
        (answer,) = await connection.messages()
    assert answer["result"]["isError"] is False, "only its connection takes a call back"


@pytest.mark.parametrize("revision", [STATELESS, "2025-11-25"])
async def test_a_client_that_does_not_read_is_not_waited_for(
    app: FastAPI, http: httpx.AsyncClient, scene: Scene, monkeypatch: pytest.MonkeyPatch, revision: str
) -> None:
    monkeypatch.setattr("app.api.mcp.calls.SEND_SECONDS", 0.05)
    released = asyncio.Event()

    async def say(request: UpstreamRequest) -> None:
        assert request.listener is not None
        request.listener.tell(STEPS[0])
        await released.wait()

    scene.tools.meanwhile = say
    client = McpClient(http, await token_for(scene), revision)
    async with await connect(app, client, watched()) as connection:
        await connection.start()
        connection.reading.clear()
        if revision == STATELESS:
            record = await asyncio.wait_for(settled(scene), 10)
            assert record["cancelled"] is True
        else:
            await asyncio.sleep(0.1)
            released.set()
            assert (await asyncio.wait_for(settled(scene), 10))["outcome"] == "success"
        await asyncio.wait_for(connection.served, 10)


async def test_what_is_said_last_is_heard_by_who_reads_slowly(app: FastAPI, client: McpClient, scene: Scene) -> None:
    released = asyncio.Event()

    async def say(request: UpstreamRequest) -> None:
        assert request.listener is not None
        await released.wait()
        request.listener.tell(STEPS[0])
        await asyncio.sleep(0.01)
        request.listener.tell(STEPS[1])

    scene.tools.meanwhile = say
    async with await connect(app, client, watched()) as connection:
        await connection.start()
        # The first word can't be sent before the call has ended.
        connection.reading.clear()
        released.set()
        await settled(scene)
        await asyncio.sleep(0.01)
        connection.reading.set()
        messages = await connection.messages()
    assert [message.get("method") for message in messages] == ["notifications/progress"] * 2 + [None]


async def test_closing_a_grant_ends_the_streams_of_its_calls(app: FastAPI, client: McpClient, scene: Scene) -> None:
    started, _ = hanging(scene)
    async with await connect(app, client, watched()) as connection:
        await started.wait()
        (lineage,) = ({grant for _, grant in scene.world.in_flight.grants()},)
        assert scene.world.in_flight.abort(lineage) == 1
        await connection.start()
        (answer,) = await connection.messages()
    assert answer["result"]["isError"] is True
    assert "the grant was closed" in answer["result"]["content"][1]["text"]
    assert str(ACME) not in json.dumps(answer["result"]["content"])
