"""What a request says of where it went and whence it came, and bytes that end a line too early.

Every URL that is answered comes from the configured issuer (RFC 8414 §3.3, RFC 9728 §3.3); a header never changes
one. Requests are written byte by byte where a library would mend them.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest

from tests.api_client import Api, made
from tests.attacks.stage import Stage, set_stage
from tests.server_process import ServerProcess, sqlite_url
from tests.tool_server import ToolServer

pytestmark = pytest.mark.anyio

EVIL: Final = "evil.example"
READ_SECONDS: Final = 20


@pytest.fixture(scope="module")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Which store is behind makes no difference to a header."""
    return sqlite_url(Path(tmp_path_factory.mktemp("headers")))


@pytest.fixture(scope="module")
async def stage(server: ServerProcess, tool_server: ToolServer) -> AsyncIterator[Stage]:
    """One for all: nothing that is tried here is of any tenant."""
    async with Api(server.url) as api:
        yield await set_stage(api, tool_server)


SPOOFS: Final[Mapping[str, list[tuple[str, str]]]] = {
    "another host": [("Host", EVIL)],
    "another port": [("Host", "127.0.0.1:1")],
    "a host with a path": [("Host", "127.0.0.1/evil.example")],
    "a host with credentials": [("Host", f"127.0.0.1@{EVIL}")],
    "a host in brackets": [("Host", "[::1]")],
    "X-Forwarded-Host": [("X-Forwarded-Host", EVIL)],
    "X-Forwarded-Proto": [("X-Forwarded-Proto", "https")],
    "X-Forwarded-Scheme and -Ssl": [("X-Forwarded-Scheme", "https"), ("X-Forwarded-Ssl", "on")],
    "X-Forwarded-Port": [("X-Forwarded-Port", "443")],
    "X-Forwarded-Prefix": [("X-Forwarded-Prefix", "/evil")],
    "X-Forwarded-For": [("X-Forwarded-For", "203.0.113.7")],
    "Forwarded": [("Forwarded", f'for=203.0.113.7;host="{EVIL}";proto=https')],
    "X-Host and others": [("X-Host", EVIL), ("X-Original-Host", EVIL), ("X-Forwarded-Server", EVIL)],
    "X-Original-URL": [("X-Original-URL", "/v1/admin/tenants"), ("X-Rewrite-URL", "/v1/admin/tenants")],
    "a method in a header": [("X-HTTP-Method-Override", "DELETE"), ("X-Method-Override", "DELETE")],
    "an origin": [("Referer", f"https://{EVIL}/")],
    "everything": [
        ("Host", EVIL),
        ("X-Forwarded-Host", EVIL),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-For", "203.0.113.7"),
        ("Forwarded", f"host={EVIL};proto=https"),
    ],
}

OPEN_PAGES: Final = (
    "/.well-known/oauth-authorization-server",
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp/support",
    "/oauth/jwks",
    "/openapi.json",
)


class Answer(NamedTuple):
    """What of an answer could hold a URL."""

    status: int
    challenge: str | None
    location: str | None
    body: bytes


def answer_of(response: httpx.Response) -> Answer:
    headers = response.headers
    return Answer(response.status_code, headers.get("www-authenticate"), headers.get("location"), response.content)


@pytest.mark.parametrize("spoof", SPOOFS)
async def test_no_header_changes_what_is_said_of_where_things_are(stage: Stage, spoof: str) -> None:
    headers = SPOOFS[spoof]
    for page in OPEN_PAGES:
        plain, spoofed = await stage.api.http.get(page), await stage.api.http.get(page, headers=headers)
        assert plain.status_code == 200, page
        assert answer_of(spoofed) == answer_of(plain), page
        assert spoofed.headers.keys() == plain.headers.keys(), page


@pytest.mark.parametrize("spoof", SPOOFS)
async def test_no_header_changes_a_challenge_or_makes_a_redirect(stage: Stage, spoof: str) -> None:
    headers = SPOOFS[spoof]
    asked = [
        ("GET", "/v1/grants"),
        ("POST", "/mcp/support"),
        ("POST", "/oauth/token"),
        ("GET", "/nowhere"),
        ("GET", "/"),
    ]
    asked += [("GET", "/v1/grants/"), ("GET", "//evil.example"), ("GET", "/oauth/jwks/"), ("POST", "/mcp/support/")]
    for method, path in asked:
        target = httpx.URL(stage.api.url).copy_with(raw_path=path.encode())
        plain = await stage.api.http.request(method, target, json={})
        spoofed = await stage.api.http.request(method, target, json={}, headers=headers)
        assert answer_of(spoofed) == answer_of(plain), path
        assert spoofed.status_code >= 400
        assert "location" not in spoofed.headers


@pytest.mark.parametrize("spoof", SPOOFS)
async def test_no_header_changes_what_a_token_says_or_where_a_client_came_from(stage: Stage, spoof: str) -> None:
    headers = SPOOFS[spoof]
    form = {"grant_type": "client_credentials"}
    auth = httpx.BasicAuth(*stage.planner)
    token = made(await stage.api.http.post("/oauth/token", data=form, auth=auth, headers=headers))["access_token"]
    seen = made(await stage.api.introspect(stage.planner, token))
    assert (seen["iss"], seen["aud"]) == (stage.api.url, stage.api.url)
    minted = await stage.api.http.post(
        "/v1/grants", json={"audience": stage.support}, headers=[("Authorization", f"Bearer {token}"), *headers]
    )
    assert made(minted)["audience"] == stage.support
    assert EVIL not in str(await stage.records())
    assert "203.0.113.7" not in str(await stage.records())


async def test_the_issuer_is_what_was_configured_and_not_where_the_server_listens(tmp_path: Path) -> None:
    issuer = "https://grants.example/base"
    with ServerProcess(sqlite_url(tmp_path), env={"SUBGRANT_ISSUER": issuer}) as server:
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
            for page in OPEN_PAGES[:3]:
                text = (await http.get(page, headers={"X-Forwarded-Host": EVIL})).text
                assert issuer in text
                assert server.url.removeprefix("http://") not in text
            challenged = await http.post("/mcp/support", json={})
            challenge = challenged.headers["www-authenticate"]
            assert "https://grants.example/.well-known/oauth-protected-resource/base/mcp/support" in challenge


# --- byte by byte -------------------------------------------------------------------------------------------


async def sent(stage: Stage, request: bytes) -> bytes:
    """Everything that the server says until it closes, to bytes as they are."""
    url = httpx.URL(stage.api.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        writer.write(request)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), READ_SECONDS)
    finally:
        writer.close()


def request_with(lines: list[bytes], *, target: bytes = b"GET /v1/grants", body: bytes = b"") -> bytes:
    head = [target + b" HTTP/1.1", b"Host: x", b"Connection: close", *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def heads_in(answer: bytes) -> int:
    return answer.count(b"HTTP/1.1 ")


INJECTIONS: Final[Mapping[str, bytes]] = {
    "a folded header": b"Authorization: Bearer a\r\n b",
    "a bare line feed": b"Authorization: Bearer a\nX-Injected: 1",
    "a bare carriage return": b"Authorization: Bearer a\rX-Injected: 1",
    "a NUL": b"Authorization: Bearer a\0b",
    "a vertical tab": b"Authorization: Bearer a\x0bb",
    "bytes beyond ASCII": b"Authorization: Bearer \xff\xfe",
    "a space before the colon": b"Authorization : Bearer a",
    "no name": b": x",
    "a name with a space": b"X Y: x",
    "no colon": b"Authorization",
}


@pytest.mark.parametrize("what", INJECTIONS)
async def test_bytes_that_end_a_line_too_early_get_one_refusal_and_nothing_of_them_back(
    stage: Stage, what: str
) -> None:
    answer = await sent(stage, request_with([INJECTIONS[what]]))
    assert status_of(answer) in {400, 401}
    assert heads_in(answer) == 1
    assert b"x-injected" not in answer.lower()


TARGETS: Final[Mapping[str, bytes]] = {
    "an encoded line break": b"GET /v1/grants%0d%0aX-Injected:%201",
    "an encoded line break in a name": b"GET /.well-known/oauth-protected-resource/mcp/x%0d%0aX-Injected:%201",
    "an encoded line break in a tool server": b"POST /mcp/x%0d%0aX-Injected:%201",
    "an encoded line break in the query": b"GET /v1/grants?before=%0d%0aX-Injected:%201",
    "an encoded NUL": b"GET /v1/grants%00",
    "an encoded slash": b"GET /v1%2fgrants",
    "dots": b"GET /v1/admin/../grants",
    "encoded dots": b"GET /v1/admin/%2e%2e/grants",
    "a backslash": b"GET /v1\\grants",
    "two slashes": b"GET //v1//grants",
    "a semicolon": b"GET /v1/grants;x=1",
    "an absolute target of another host": b"GET http://evil.example/v1/grants",
    "bytes beyond ASCII": b"GET /v1/\xff\xfe",
    "the authority form": b"CONNECT evil.example:443",
    "a method of its own": b"BREW /v1/grants",
    "a target of a megabyte's sixteenth": b"GET /" + b"x" * 70_000,
}


@pytest.mark.parametrize("what", TARGETS)
async def test_a_target_that_two_readers_could_read_differently_reaches_nothing(stage: Stage, what: str) -> None:
    answer = await sent(stage, request_with([], target=TARGETS[what]))
    assert 400 <= status_of(answer) < 500
    assert heads_in(answer) == 1
    assert b"\r\nx-injected" not in answer.lower()
    assert b"evil.example" not in answer


SMUGGLED: Final = b"DELETE /v1/admin/tenants HTTP/1.1\r\nHost: x\r\n\r\n"
FRAMES: Final[Mapping[str, tuple[list[bytes], bytes]]] = {
    "two lengths": ([b"Content-Length: 2", b"Content-Length: 60"], b"{}" + SMUGGLED),
    "two lengths in one": ([b"Content-Length: 2, 60"], b"{}" + SMUGGLED),
    "a length and chunks": ([b"Content-Length: 60", b"Transfer-Encoding: chunked"], b"0\r\n\r\n" + SMUGGLED),
    "chunks that are not last": ([b"Transfer-Encoding: chunked, identity"], b"0\r\n\r\n" + SMUGGLED),
    "chunks by another name": ([b"Transfer-Encoding: xchunked"], b"0\r\n\r\n" + SMUGGLED),
    "a length with a sign": ([b"Content-Length: +2"], b"{}" + SMUGGLED),
    "a length below zero": ([b"Content-Length: -1"], b"{}" + SMUGGLED),
    "a length in hexadecimal": ([b"Content-Length: 0x2"], b"{}" + SMUGGLED),
    "a chunk without its size": ([b"Transfer-Encoding: chunked"], b"zz\r\n{}\r\n0\r\n\r\n" + SMUGGLED),
    "a chunk of a negative size": ([b"Transfer-Encoding: chunked"], b"-1\r\n{}\r\n0\r\n\r\n" + SMUGGLED),
}


@pytest.mark.parametrize("what", FRAMES)
async def test_a_body_whose_end_is_disputed_hides_no_second_request(stage: Stage, what: str) -> None:
    lines, body = FRAMES[what]
    head = [b"Content-Type: application/json", *lines]
    answer = await sent(stage, request_with(head, target=b"POST /v1/grants", body=body))
    assert 400 <= status_of(answer) < 500
    assert heads_in(answer) == 1


@pytest.mark.parametrize("path", ["/v1/grants", "/v1/gateway/checks", "/v1/audit/records", "/mcp/support"])
async def test_two_authorization_headers_are_refused_everywhere(stage: Stage, path: str) -> None:
    token = await stage.token(await stage.grant())
    method = "GET" if path in {"/v1/grants", "/v1/audit/records"} else "POST"
    for others in (f"Bearer {token}", "Basic YTpi", "Bearer "):
        raw = [f"Authorization: {value}".encode() for value in (f"Bearer {token}", others)]
        head = [*raw, b"Content-Type: application/json", b"Content-Length: 2"]
        answer = await sent(stage, request_with(head, target=f"{method} {path}".encode(), body=b"{}"))
        assert status_of(answer) == 400
        assert token.encode() not in answer


async def test_what_is_refused_is_never_a_mirror(stage: Stage) -> None:
    """Nothing that a stranger sends comes back in a header, and no body is any browser's to render."""
    marker = "<script>alert(1)</script>"
    for path in (f"/{marker}", f"/v1/grants?before={marker}", f"/mcp/{marker}", f"/oauth/token?{marker}"):
        for method in ("GET", "POST"):
            response = await stage.api.http.request(method, path, json={marker: marker})
            assert marker not in str(response.headers)
            assert marker not in response.text or response.headers["content-type"].startswith("application/")
            assert json.loads(response.text)


@pytest.mark.parametrize(
    "path, methods",
    [
        ("/v1/grants", "GET, POST"),
        ("/v1/grants/gr_x/close", "POST"),
        ("/v1/admin/tenants/acme", "DELETE, GET, PATCH"),
        ("/oauth/token", "POST"),
        ("/openapi.json", "GET, HEAD"),
    ],
)
async def test_a_method_that_is_not_allowed_is_answered_with_every_one_that_is(
    stage: Stage, path: str, methods: str
) -> None:
    """RFC 9110 §15.5.6: all methods of the target, though each has a route of its own."""
    for method in ("OPTIONS", "TRACE", "PUT"):
        response = await stage.api.http.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, methods), method
