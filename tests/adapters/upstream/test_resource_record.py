"""A tool server's own record of whose things are: what it is asked, and what of its answer is taken."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.upstream import ToolUpstream
from app.core.grant import TenantId
from app.core.resource_rules import MAX_ATTRIBUTES, MAX_TEXT_CHARS
from app.core.resources import Attributes, ResourceRef, Resources
from app.ports import ResolveRequest, UpstreamFailed
from tests.adapters.upstream.servers import read_request, serving, serving_raw
from tests.tool_server import RESOLVER, Owned, ToolServer

pytestmark = pytest.mark.anyio

CASE, OTHER = ResourceRef("case", "c_42"), ResourceRef("case", "c_13")
UNREADABLE = "the tool server's answer about resources is not as agreed"
SECRET = "hush-hush-0815"

Json = dict[str, Any]


def a_question(endpoint: str, *refs: ResourceRef, **changes: Any) -> ResolveRequest:  # noqa: ANN401 - as the port takes it
    members: Json = {
        "endpoint": endpoint,
        "tenant_id": TenantId("acme"),
        "refs": refs or (CASE,),
        "headers": {},
        "timeout_seconds": 20,
        "max_response_bytes": 100_000,
    }
    return ResolveRequest(**members | changes)


def an_entry(ref: ResourceRef = CASE, tenant: str = "acme", attributes: Mapping[str, object] | None = None) -> Json:
    return {"type": ref.type, "id": ref.id, "tenantId": tenant, "attributes": {**(attributes or {})}}


def answering(body: object, **members: Any) -> Callable[[web.Request], Awaitable[web.Response]]:  # noqa: ANN401 - aiohttp's
    text = body if isinstance(body, str) else json.dumps(body)

    async def handle(_request: web.Request) -> web.Response:
        return web.Response(**{"text": text, "content_type": "application/json"} | members)

    return handle


async def resolved(upstream: ToolUpstream, body: object, *refs: ResourceRef, **members: object) -> Resources:
    async with serving(answering(body, **members)) as server:
        return await upstream.resolve(a_question(f"{server}/resources", *refs))


async def failure(upstream: ToolUpstream, endpoint: str, **changes: object) -> str:
    with pytest.raises(UpstreamFailed) as caught:
        await upstream.resolve(a_question(endpoint, **changes))
    return str(caught.value)


async def refusal(upstream: ToolUpstream, body: object, **members: object) -> str:
    """The failure that an answer comes to."""
    async with serving(answering(body, **members)) as server:
        return await failure(upstream, f"{server}/resources")


# --- the question -----------------------------------------------------------------------------------------


async def test_the_question_names_the_tenant_and_the_things(upstream: ToolUpstream) -> None:
    with ToolServer() as tools:
        question = a_question(tools.endpoint + RESOLVER, CASE, OTHER, headers={"X-Api-Key": SECRET})
        assert await upstream.resolve(question) == {}
    (asked,) = tools.questions
    assert asked.arguments == {
        "tenantId": "acme",
        "resources": [{"type": "case", "id": "c_42"}, {"type": "case", "id": "c_13"}],
    }
    assert asked.headers["X-Api-Key"] == SECRET
    assert asked.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("id_", ["c/../../admin", 'a"b', "a\nb", "%2f", "ÅE\u0301", "\u202e", "", "x" * 5000])
async def test_any_id_is_asked_about_as_it_is(upstream: ToolUpstream, id_: str) -> None:
    ref = ResourceRef("case", id_)
    with ToolServer() as tools:
        tools.owners[ref] = Owned("acme")
        assert await upstream.resolve(a_question(tools.endpoint + RESOLVER, ref)) == {ref: {}}
    assert tools.questions[0].arguments["resources"] == [{"type": "case", "id": id_}]


# --- the answer -------------------------------------------------------------------------------------------


async def test_what_is_on_record_comes_with_its_attributes(upstream: ToolUpstream) -> None:
    attributes = {"region": "eu", "open": True, "level": 3, "share": 0.5, "closedBy": None}
    body = {"resources": [an_entry(attributes=attributes)]}
    assert await resolved(upstream, body, CASE, OTHER) == {CASE: attributes}


async def test_numbers_come_in_their_one_spelling(upstream: ToolUpstream) -> None:
    body = '{"resources": [{"type": "case", "id": "c_42", "tenantId": "acme", "attributes": {"a": 1.0, "b": true}}]}'
    attributes: Attributes = (await resolved(upstream, body))[CASE]
    assert [(type(value), value) for value in attributes.values()] == [(int, 1), (bool, True)]


async def test_another_tenants_thing_is_left_out(upstream: ToolUpstream) -> None:
    body = {"resources": [an_entry(OTHER, "globex"), an_entry(CASE)]}
    assert await resolved(upstream, body, CASE, OTHER) == {CASE: {}}


@pytest.mark.parametrize("tenant", ["ACME", "acme ", "", "acme\u0000"])
async def test_a_tenant_is_the_one_asked_for_or_another(upstream: ToolUpstream, tenant: str) -> None:
    assert await resolved(upstream, {"resources": [an_entry(CASE, tenant)]}) == {}


@given(owners=st.dictionaries(st.sampled_from(["c_1", "c_2", "c_3"]), st.sampled_from(["acme", "globex", "initech"])))
def test_exactly_the_tenants_own_things_are_found(owners: dict[str, str]) -> None:
    refs = [ResourceRef("case", id_) for id_ in ("c_1", "c_2", "c_3")]
    body = {"resources": [an_entry(ResourceRef("case", id_), tenant) for id_, tenant in owners.items()]}

    async def found() -> Resources:
        upstream = ToolUpstream(addresses="loopback")
        try:
            return await resolved(upstream, body, *refs)
        finally:
            await upstream.aclose()

    assert {ref.id for ref in asyncio.run(found())} == {id_ for id_, tenant in owners.items() if tenant == "acme"}


GOOD = an_entry()


def without(member: str) -> Json:
    return {name: value for name, value in GOOD.items() if name != member}


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        {"resources": None},
        {"resources": {}},
        {"resources": [None]},
        {"resources": [[]]},
        {"resources": ["case/c_42"]},
        {"resources": [], "next": "more"},
        {"resource": [GOOD]},
        *({"resources": [without(member)]} for member in GOOD),
        {"resources": [GOOD | {"owner": "acme"}]},
        {"resources": [GOOD | {"type": 1}]},
        {"resources": [GOOD | {"id": 42}]},
        {"resources": [GOOD | {"tenantId": None}]},
        {"resources": [GOOD | {"tenantId": ["acme"]}]},
        {"resources": [GOOD | {"attributes": None}]},
        {"resources": [GOOD | {"attributes": []}]},
        {"resources": [an_entry(attributes={"tags": ["a"]})]},
        {"resources": [an_entry(attributes={"owner": {"tenant": "acme"}})]},
        {"resources": [an_entry(attributes={"note": "e\u0301"})]},
        {"resources": [an_entry(attributes={"note": "x" * (MAX_TEXT_CHARS + 1)})]},
        {"resources": [an_entry(attributes={"a b": 1})]},
        {"resources": [an_entry(attributes={f"a{number}": number for number in range(MAX_ATTRIBUTES + 1)})]},
        {"resources": [an_entry(OTHER)]},
        {"resources": [an_entry(ResourceRef("account", "c_42"))]},
        {"resources": [GOOD, GOOD]},
        {"resources": [GOOD, an_entry(CASE, "globex")]},
        {"resources": [an_entry(CASE, "globex", {"tags": ["a"]})]},
        '{"resources": [], "resources": []}',
        '{"resources": [{"type":"case","id":"c_42","tenantId":"globex","tenantId":"acme","attributes":{}}]}',
        '{"resources": [{"type":"case","id":"c_42","tenantId":"globex","tenant\\u0049d":"acme","attributes":{}}]}',
        '{"resources": [{"type":"case","id":"c_42","tenantId":"acme","attributes":{"a":1,"a":2}}]}',
        '{"resources": [{"type":"case","id":"c_42","tenantId":"acme","attributes":{"a":NaN}}]}',
        '{"resources": [{"type":"case","id":"c_42","tenantId":"acme","attributes":{"a":9007199254740993}}]}',
        '{"resources": [{"type":"case","id":"c_42","tenantId":"acme","attributes":{"a":"\\ud800"}}]}',
        '\ufeff{"resources": []}',
        '{"resources": ' + "[" * 50_000,
    ],
    ids=lambda body: str(body)[:70],
)
async def test_an_answer_that_is_not_as_agreed_is_none(upstream: ToolUpstream, body: object) -> None:
    assert await refusal(upstream, body) == UNREADABLE


@pytest.mark.parametrize("second", [GOOD, an_entry(CASE, "globex"), GOOD | {"attributes": {"region": "eu"}}])
async def test_a_thing_is_answered_once_though_others_are_not_answered(upstream: ToolUpstream, second: Json) -> None:
    with pytest.raises(UpstreamFailed, match=UNREADABLE):
        await resolved(upstream, {"resources": [GOOD, second]}, CASE, OTHER)


async def test_an_answer_to_other_cases_of_letters_is_none(upstream: ToolUpstream) -> None:
    assert await refusal(upstream, {"resources": [GOOD | {"id": "C_42"}]}) == UNREADABLE


@pytest.mark.parametrize("content_type", ["text/plain", "text/html", "application/problem+json", "application/ld+json"])
async def test_an_answer_of_another_kind_is_none(upstream: ToolUpstream, content_type: str) -> None:
    assert await refusal(upstream, {"resources": [GOOD]}, content_type=content_type) == UNREADABLE


async def test_a_compressed_answer_is_none(upstream: ToolUpstream) -> None:
    said = await refusal(upstream, {"resources": []}, headers={"Content-Encoding": "br"})
    assert said == "the tool's answer was compressed, which it was not asked to be"


@pytest.mark.parametrize("status", [201, 202, 203, 206, 207, 304, 400, 401, 403, 404, 410, 429, 500, 503])
async def test_any_other_status_is_a_failure_though_the_body_is_good(upstream: ToolUpstream, status: int) -> None:
    said = await refusal(upstream, {"resources": [GOOD]}, status=status)
    assert said == f"the tool server was asked about resources and answered HTTP {status}"


# --- no redirect, no address but the allowed, bounds --------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_the_credential_goes_nowhere(upstream: ToolUpstream, status: int) -> None:
    elsewhere: list[Mapping[str, str]] = []

    async def collect(request: web.Request) -> web.Response:
        elsewhere.append(dict(request.headers))
        return web.json_response({"resources": [GOOD]})

    async with serving(collect) as thief:
        handle = answering({"resources": [GOOD]}, status=status, headers={"Location": f"{thief}/resources"})
        async with serving(handle) as server:
            said = await failure(upstream, f"{server}/resources", headers={"X-Api-Key": SECRET})
    assert said == f"the tool server was asked about resources and answered HTTP {status}"
    assert elsewhere == []


async def test_an_address_that_tool_servers_may_not_have_is_not_asked() -> None:
    asked: list[web.Request] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request)
        return web.json_response({"resources": [GOOD]})

    upstream = ToolUpstream()
    async with serving(handle) as server:
        said = await failure(upstream, f"{server}/resources")
    await upstream.aclose()
    assert (said, asked) == ("the tool server's address is not allowed", [])


async def test_an_answer_larger_than_allowed_is_none(upstream: ToolUpstream) -> None:
    body = {"resources": [an_entry(attributes={"note": "x" * 900})]}
    async with serving(answering(body)) as server:
        said = await failure(upstream, f"{server}/resources", max_response_bytes=500)
        assert await upstream.resolve(a_question(f"{server}/resources", max_response_bytes=5000))
    assert said == "the tool's answer was larger than allowed"


async def test_an_endless_answer_ends_at_its_limit(upstream: ToolUpstream) -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"400\r\n" + b" " * 0x400 + b"\r\n")
            await writer.drain()

    async with serving_raw(pour) as server:
        assert await failure(upstream, f"{server}/resources") == "the tool's answer was larger than allowed"


@pytest.mark.parametrize(
    "head", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"]
)
async def test_an_answer_that_does_not_come_in_time_is_none(upstream: ToolUpstream, head: bytes) -> None:
    async def dawdle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(head)
        await writer.drain()
        await reader.read()

    async with serving_raw(dawdle) as server:
        said = await failure(upstream, f"{server}/resources", timeout_seconds=0.2)
    assert said == "the tool did not answer in time"


@pytest.mark.parametrize(
    "head", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{"]
)
async def test_a_connection_that_breaks_is_a_failure_and_asked_once(upstream: ToolUpstream, head: bytes) -> None:
    requests: list[bytes] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(head)
        await writer.drain()

    async with serving_raw(hang_up) as server:
        said = await failure(upstream, f"{server}/resources")
    assert said == "the connection broke before the tool had answered"
    assert len(requests) == 1


async def test_no_failure_names_an_address_or_a_credential(upstream: ToolUpstream) -> None:
    headers = {"X-Api-Key": SECRET}
    said = [
        await failure(upstream, "http://127.0.0.1:1/resources", headers=headers),
        await failure(upstream, "http://169.254.169.254/resources", headers=headers),
        await failure(upstream, "ftp://127.0.0.1/resources", headers=headers),
        await failure(upstream, "http://user:pw@127.0.0.1/resources", headers=headers),
        await failure(upstream, "http://127.0.0.1:1/resources", headers={"X-Api-Key": f"{SECRET}\r\n"}),
        await failure(upstream, "http://127.0.0.1:1/resources", headers={"Host": SECRET}),
        await failure(upstream, "http://127.0.0.1:1/resources", timeout_seconds=0),
    ]
    assert not [text for text in said for hidden in ("127.0", "169.254", SECRET, "X-Api-Key") if hidden in text]
