"""Whether a call arrived, may have arrived, or can't have: at most one side effect, whatever goes wrong."""

import asyncio
import gzip
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from app.adapters.upstream import ToolUpstream
from app.core.registry import Transport
from app.ports import Outcome, UpstreamAnswer
from tests.adapters.upstream.servers import a_request, read_request, serving, serving_raw

pytestmark = pytest.mark.anyio

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
BROKEN = UpstreamAnswer(outcome=Outcome.UNKNOWN, detail="the connection broke before the tool had answered")
NOT_ALLOWED = UpstreamAnswer(outcome=Outcome.UNSENT, detail="the tool server's address is not allowed")

Names = Callable[[Mapping[str, list[str]]], None]


class Counter:
    """A tool with one side effect for each request that it gets, however it then answers."""

    def __init__(self, answer: bytes) -> None:
        self.effects = 0
        self.connections = 0
        self.answers = [answer]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers each request with the next answer, the last one ever after; b"" ends the connection."""
        self.connections += 1
        while True:
            await read_request(reader)
            answer = self.answers[min(self.effects, len(self.answers) - 1)]
            self.effects += 1
            if not answer:
                return
            writer.write(answer)
            await writer.drain()


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"


# --- provably unsent --------------------------------------------------------------------------------------


async def test_a_refused_connection_is_unsent(upstream: ToolUpstream) -> None:
    answer = await upstream.call(a_request(f"http://127.0.0.1:{closed_port()}"))
    assert answer == UpstreamAnswer(outcome=Outcome.UNSENT, detail="the tool server could not be reached")


async def test_a_name_without_an_address_is_unsent(upstream: ToolUpstream, names: Names) -> None:
    names({})
    answer = await upstream.call(a_request("http://nowhere.test"))
    assert answer == UpstreamAnswer(outcome=Outcome.UNSENT, detail="the tool server's name could not be resolved")


@pytest.mark.parametrize("transport", Transport)
async def test_a_connection_that_takes_too_long_is_unsent_and_timed_out(
    upstream: ToolUpstream, transport: Transport
) -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await asyncio.Event().wait()

    # TLS is part of connecting, and this server never shakes hands.
    async with serving_raw(silent) as server:
        endpoint = server.replace("http:", "https:")
        answer = await upstream.call(a_request(endpoint, transport=transport, timeout_seconds=0.2))
    assert answer == UpstreamAnswer(
        outcome=Outcome.UNSENT, detail="the tool server could not be reached in time", timed_out=True
    )


async def test_no_time_at_all_is_unsent_and_timed_out(upstream: ToolUpstream) -> None:
    answer = await upstream.call(a_request("http://127.0.0.1:9", timeout_seconds=0))
    assert (answer.outcome, answer.timed_out) == (Outcome.UNSENT, True)


async def test_a_certificate_that_nobody_vouches_for_is_unsent(upstream: ToolUpstream, tmp_path: Path) -> None:
    async with serving_tls(tmp_path) as server:
        answer = await upstream.call(a_request(server))
    assert answer == UpstreamAnswer(
        outcome=Outcome.UNSENT, detail="the tool server offered no TLS connection that can be trusted"
    )


@pytest.mark.parametrize(
    "endpoint",
    [
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "unix:///run/x.sock",
        "127.0.0.1:80",
        "http://",
        "http://user:pw@127.0.0.1/",
        "http://user@127.0.0.1/",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1/#x",
        "http://[::1",
        "",
    ],
)
@pytest.mark.parametrize("transport", Transport)
async def test_an_endpoint_that_is_no_plain_http_url_is_unsent(
    upstream: ToolUpstream, endpoint: str, transport: Transport
) -> None:
    answer = await upstream.call(a_request(endpoint, transport=transport))
    assert answer.outcome is Outcome.UNSENT
    assert answer.detail is not None
    assert answer.detail.startswith("the tool server's endpoint")


@pytest.mark.parametrize(
    "name, value",
    [
        ("X-Key", "a\r\nX-Admin: 1"),
        ("X-Key", "a\nb"),
        ("X-Key", "a\x00b"),
        ("X-Key", "schlüssel"),
        ("X-Key\r\nX-Admin", "1"),
        ("X Key", "1"),
        ("", "1"),
        ("Host", "metadata"),
        ("content-length", "0"),
        ("Transfer-Encoding", "chunked"),
        ("Mcp-Session-Id", "s"),
        ("Mcp-Anything", "1"),
        ("Cookie", "session=1"),
        ("Proxy-Authorization", "Basic x"),
    ],
)
@pytest.mark.parametrize("transport", Transport)
async def test_a_credential_that_is_no_plain_header_field_is_unsent(
    upstream: ToolUpstream, name: str, value: str, transport: Transport
) -> None:
    tool = Counter(OK)
    async with serving_raw(tool.handle) as server:
        answer = await upstream.call(a_request(server, transport=transport, headers={name: value}))
    assert (answer.outcome, tool.effects) == (Outcome.UNSENT, 0)
    assert answer.detail is not None
    assert "credential" in answer.detail


async def test_after_closing_nothing_is_sent() -> None:
    upstream = ToolUpstream(addresses="loopback")
    await upstream.aclose()
    answer = await upstream.call(a_request("http://127.0.0.1:9"))
    assert answer == UpstreamAnswer(outcome=Outcome.UNSENT, detail="the gateway is shutting down")


async def test_waiting_for_a_free_connection_too_long_is_unsent() -> None:
    upstream = ToolUpstream(addresses="loopback", max_connections_per_server=1)
    busy = asyncio.Event()

    async def handle(_request: web.Request) -> web.Response:
        busy.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(handle) as server:
        first = asyncio.create_task(upstream.call(a_request(server)))
        await busy.wait()
        answer = await upstream.call(a_request(server, timeout_seconds=0.2))
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    await upstream.aclose()
    assert (answer.outcome, answer.timed_out) == (Outcome.UNSENT, True)


# --- addresses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", Transport)
async def test_loopback_needs_the_setting(transport: Transport, names: Names) -> None:
    strict, tool = ToolUpstream(), Counter(OK)
    async with serving_raw(tool.handle) as server:
        names({"tools.test": ["127.0.0.1"]})
        by_name = server.replace("127.0.0.1", "tools.test")
        for endpoint in (server, by_name):
            assert await strict.call(a_request(endpoint, transport=transport)) == NOT_ALLOWED
    await strict.aclose()
    assert tool.connections == 0


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "[::ffff:127.0.0.1]", "0.1.2.3"]
)
async def test_the_setting_does_not_open_link_local_addresses(upstream: ToolUpstream, host: str) -> None:
    assert await upstream.call(a_request(f"http://{host}/latest/meta-data")) == NOT_ALLOWED


@pytest.mark.parametrize("host", ["2130706433", "127.1", "0177.0.0.1"])
async def test_an_address_in_disguise_is_unsent(upstream: ToolUpstream, host: str) -> None:
    answer = await upstream.call(a_request(f"http://{host}/"))
    assert answer.outcome is Outcome.UNSENT


async def test_a_name_is_pinned_to_its_allowed_addresses(upstream: ToolUpstream, names: Names) -> None:
    tool = Counter(OK)
    async with serving_raw(tool.handle) as server:
        names({"mixed.test": ["169.254.169.254", "fe80::1", "127.0.0.1"], "bad.test": ["169.254.169.254"]})
        mixed = await upstream.call(a_request(server.replace("127.0.0.1", "mixed.test")))
        bad = await upstream.call(a_request(server.replace("127.0.0.1", "bad.test")))
    assert (mixed.outcome, bad, tool.effects) == (Outcome.SUCCESS, NOT_ALLOWED, 1)


async def test_a_name_that_changes_its_mind_leads_nowhere_new(upstream: ToolUpstream, names: Names) -> None:
    tool = Counter(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    async with serving_raw(tool.handle) as server:
        endpoint = server.replace("127.0.0.1", "tools.test")
        names({"tools.test": ["127.0.0.1"]})
        await upstream.call(a_request(endpoint))
        names({"tools.test": ["169.254.169.254"]})
        # Either the checked address is still pinned or the new one is refused; it is never connected to.
        answer = await upstream.call(a_request(endpoint, timeout_seconds=2))
    assert (answer == NOT_ALLOWED, tool.effects) in {(True, 1), (False, 2)}


async def test_a_long_label_is_a_name_that_does_not_resolve(upstream: ToolUpstream) -> None:
    answer = await upstream.call(a_request(f"http://{'a' * 64}.test/"))
    assert answer.outcome is Outcome.UNSENT


# --- one side effect --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
async def test_a_dropped_connection_is_unknown_and_never_repeated(upstream: ToolUpstream, method: str) -> None:
    tool = Counter(b"")
    async with serving_raw(tool.handle) as server:
        answer = await upstream.call(a_request(server, method=method))
    assert (answer, tool.effects, tool.connections) == (BROKEN, 1, 1)


@pytest.mark.parametrize("method", METHODS)
async def test_a_reused_connection_that_drops_is_unknown_and_never_repeated(
    upstream: ToolUpstream, method: str
) -> None:
    tool = Counter(OK)
    tool.answers.append(b"")
    async with serving_raw(tool.handle) as server:
        first = await upstream.call(a_request(server, method=method))
        second = await upstream.call(a_request(server, method=method))
    assert first.outcome is Outcome.SUCCESS
    assert (second, tool.effects, tool.connections) == (BROKEN, 2, 1)


@pytest.mark.parametrize("method", METHODS)
async def test_a_503_is_one_side_effect(upstream: ToolUpstream, method: str) -> None:
    tool = Counter(UNAVAILABLE)
    async with serving_raw(tool.handle) as server:
        answer = await upstream.call(a_request(server, method=method))
    assert (answer.outcome, answer.detail) == (Outcome.TOOL_ERROR, "the tool answered HTTP 503")
    assert tool.effects == 1


@pytest.mark.parametrize(
    "partial",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: appl",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n",
    ],
)
async def test_half_an_answer_is_unknown(upstream: ToolUpstream, partial: bytes) -> None:
    effects = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal effects
        await read_request(reader)
        effects += 1
        writer.write(partial)
        await writer.drain()

    async with serving_raw(handle) as server:
        assert await upstream.call(a_request(server)) == BROKEN
    assert effects == 1


@pytest.mark.parametrize("transport", Transport)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_never_followed(upstream: ToolUpstream, status: int, transport: Transport) -> None:
    paths = []

    async def handle(request: web.Request) -> web.Response:
        paths.append(request.path)
        elsewhere = "/other" if len(paths) % 2 else "http://169.254.169.254/latest/meta-data"
        return web.Response(status=status, headers={"Location": elsewhere})

    async with serving(handle) as server:
        answers = [await upstream.call(a_request(server, transport=transport)) for _ in range(2)]
    assert paths == ["/", "/"]
    assert {answer.detail for answer in answers} <= {
        f"the tool answered HTTP {status}",
        f"the tool server did not say what it speaks: the tool answered HTTP {status}",
    }


# --- limits -----------------------------------------------------------------------------------------------


async def test_a_slow_tool_is_unknown_and_timed_out(upstream: ToolUpstream) -> None:
    gone = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await reader.read()
        gone.set()

    async with serving_raw(handle) as server:
        answer = await upstream.call(a_request(server, timeout_seconds=0.2))
        await asyncio.wait_for(gone.wait(), 10)
    assert answer == UpstreamAnswer(outcome=Outcome.UNKNOWN, detail="the tool did not answer in time", timed_out=True)


async def test_an_answer_that_trickles_past_its_time_is_unknown_and_timed_out(
    upstream: ToolUpstream,
) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
        await writer.drain()
        await reader.read()

    async with serving_raw(handle) as server:
        answer = await upstream.call(a_request(server, timeout_seconds=0.2))
    assert (answer.outcome, answer.timed_out) == (Outcome.UNKNOWN, True)


async def test_an_answer_of_just_the_allowed_size_is_handed_on(upstream: ToolUpstream) -> None:
    async def handle(_request: web.Request) -> web.Response:
        return web.Response(text="x" * 1000)

    async with serving(handle) as server:
        fits = await upstream.call(a_request(server, max_response_bytes=1000))
        too_large = await upstream.call(a_request(server, max_response_bytes=999))
    assert fits.result == "x" * 1000
    assert too_large == UpstreamAnswer(outcome=Outcome.TOOL_ERROR, detail="the tool's answer was larger than allowed")


async def test_an_answer_without_end_is_cut_off(upstream: ToolUpstream) -> None:
    sent = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while True:
            writer.write(b" " * 65_536)
            await writer.drain()
            sent += 65_536

    async with serving_raw(handle) as server:
        answer = await upstream.call(a_request(server, max_response_bytes=100_000))
    assert answer.outcome is Outcome.TOOL_ERROR
    assert sent < 50_000_000


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
async def test_a_compressed_answer_is_never_unpacked(upstream: ToolUpstream, encoding: str) -> None:
    bomb = gzip.compress(b"\x00" * 50_000_000)

    async def handle(_request: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"Content-Encoding": encoding})

    async with serving(handle) as server:
        answer = await upstream.call(a_request(server))
    assert answer == UpstreamAnswer(
        outcome=Outcome.TOOL_ERROR, detail="the tool's answer was compressed, which it was not asked to be"
    )


async def test_no_cookie_is_ever_kept(upstream: ToolUpstream, names: Names) -> None:
    cookies = []

    async def handle(request: web.Request) -> web.Response:
        cookies.append(request.headers.get("Cookie"))
        return web.Response(headers={"Set-Cookie": "session=1"})

    async with serving(handle) as server:
        names({"tools.test": ["127.0.0.1"]})
        for _ in range(2):
            await upstream.call(a_request(server.replace("127.0.0.1", "tools.test")))
    assert cookies == [None, None]


async def test_no_proxy_of_the_environment_is_used(upstream: ToolUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")
    tool = Counter(OK)
    async with serving_raw(tool.handle) as server:
        assert (await upstream.call(a_request(server))).outcome is Outcome.SUCCESS


async def test_cancelling_a_call_cuts_its_connection(upstream: ToolUpstream) -> None:
    started, gone = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        started.set()
        await reader.read()
        gone.set()

    async with serving_raw(handle) as server:
        call = asyncio.create_task(upstream.call(a_request(server)))
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(gone.wait(), 10)


@pytest.mark.parametrize("transport", Transport)
async def test_no_sentence_names_an_address_or_a_credential(upstream: ToolUpstream, transport: Transport) -> None:
    tool = Counter(UNAVAILABLE)
    headers = {"X-Key": "s3cret"}
    async with serving_raw(tool.handle) as server:
        port = server.rpartition(":")[2]
        reached = await upstream.call(a_request(server, transport=transport, headers=headers))
    unreached = await upstream.call(a_request(server, transport=transport, headers=headers))
    for answer in (reached, unreached):
        assert answer.detail is not None
        assert not any(secret in repr(answer) for secret in ("127.0.0.1", port, "s3cret"))


# --- helpers ----------------------------------------------------------------------------------------------


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@asynccontextmanager
async def serving_tls(folder: Path) -> AsyncIterator[str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    file = folder / "tls.pem"
    file.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    tool = Counter(OK)
    server = await asyncio.start_server(tool.handle, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
