"""Key sets are fetched from where they may be, in bounds, and taken for nothing else."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

import pytest
from aiohttp import web

from app.adapters.upstream.key_sets import MAX_BYTES, KeySetFetcher
from app.ports import UpstreamFailed
from tests.adapters.upstream.servers import serving
from tests.outsiders import Answer, IdentityProvider, a_key


@pytest.fixture
async def fetcher() -> AsyncIterator[KeySetFetcher]:
    fetcher = KeySetFetcher(addresses="loopback", seconds=0.5)
    yield fetcher
    await fetcher.aclose()


async def test_a_set_is_fetched_without_any_credential(fetcher: KeySetFetcher) -> None:
    seen: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request)
        return web.Response(body=b'{"keys":[]}', content_type="application/jwk-set+json")

    async with IdentityProvider() as provider:
        provider.answer = answer
        published = await fetcher.fetch(f"{provider.jwks_uri}?v=1")
    assert published.body == b'{"keys":[]}'
    assert published.max_age_seconds is None
    (request,) = seen
    assert (request.method, request.path_qs) == ("GET", "/jwks.json?v=1")
    assert not {"authorization", "cookie"} & {name.lower() for name in request.headers}


@pytest.mark.parametrize(
    "said, seconds",
    [
        ("public, max-age=120", 120),
        ('Max-Age="60"', 60),
        ("max-age=60, max-age=30", 30),
        ("max-age=60, no-cache", 0),
        ("NO-STORE", 0),
        ("s-maxage=60", None),
        ("max-age=-1", None),
        ("max-age=1e9", None),
        ("", None),
    ],
)
async def test_how_long_a_set_may_be_kept_is_read(fetcher: KeySetFetcher, said: str, seconds: float | None) -> None:
    async with IdentityProvider(a_key()) as provider:
        provider.headers = {"Cache-Control": said}
        assert (await fetcher.fetch(provider.jwks_uri)).max_age_seconds == seconds


async def a_redirect(_: web.Request) -> web.Response:
    return web.Response(status=302, headers={"Location": "http://169.254.169.254/latest/meta-data"})


async def a_page(_: web.Request) -> web.Response:
    return web.Response(text="<html>sign in</html>", content_type="text/html")


async def an_error(_: web.Request) -> web.Response:
    return web.json_response({"keys": []}, status=500)


async def too_much(_: web.Request) -> web.Response:
    return web.Response(body=b" " * (MAX_BYTES + 1), content_type="application/json")


async def ten_megabytes_without_a_length(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "application/json"})
    await stream.prepare(request)
    for _ in range(160):
        await stream.write(b" " * 65_536)
    return stream


async def a_bomb(_: web.Request) -> web.Response:
    response = web.Response(body=b" " * 10_000, content_type="application/json")
    response.enable_compression(web.ContentCoding.gzip)
    response.headers["Content-Encoding"] = "gzip"
    return response


async def nothing_for_long(_: web.Request) -> web.Response:
    await asyncio.sleep(30)
    raise AssertionError("whoever asked has gone")


async def a_byte_in_a_while(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "application/json"})
    await stream.prepare(request)
    for _ in range(300):
        await stream.write(b" ")
        await asyncio.sleep(0.1)
    return stream


BAD_ANSWERS: Final[Mapping[str, Answer]] = {
    "a redirect to where clouds keep credentials": a_redirect,
    "a page for people": a_page,
    "an error": an_error,
    "too much": too_much,
    "ten megabytes without a length": ten_megabytes_without_a_length,
    "what is compressed": a_bomb,
    "nothing for long": nothing_for_long,
    "a byte in a while": a_byte_in_a_while,
}


@pytest.mark.parametrize("answer", BAD_ANSWERS.values(), ids=list(BAD_ANSWERS))
async def test_an_answer_is_no_set_of_keys_that_is(fetcher: KeySetFetcher, answer: Answer) -> None:
    begin = time.monotonic()
    async with IdentityProvider() as provider:
        provider.answer = answer
        with pytest.raises(UpstreamFailed):
            await fetcher.fetch(provider.jwks_uri)
        assert provider.asked == 1, "nothing is followed, and nothing is asked twice"
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize(
    "uri",
    [
        "http://169.254.169.254/keys",
        "https://10.0.0.1/keys",
        "https://[fd00::1]/keys",
        "https://user:secret@127.0.0.1/keys",
        "https://127.0.0.1/keys#fragment",
        "file:///etc/passwd",
        "ftp://127.0.0.1/keys",
        "keys",
        "",
    ],
)
async def test_nobody_is_asked_at(fetcher: KeySetFetcher, uri: str) -> None:
    with pytest.raises(UpstreamFailed):
        await fetcher.fetch(uri)


async def test_this_machine_is_asked_only_where_that_is_allowed() -> None:
    strict = KeySetFetcher(addresses="public")
    async with IdentityProvider(a_key()) as provider:
        with pytest.raises(UpstreamFailed, match="not allowed"):
            await strict.fetch(provider.jwks_uri)
        assert provider.asked == 0
    await strict.aclose()


async def test_a_name_that_turns_to_this_machine_is_not_followed(
    names: Callable[[Mapping[str, list[str]]], None],
) -> None:
    """DNS rebinding: what a name resolves to is checked where the connection is made, each time."""
    strict = KeySetFetcher(addresses="public")
    async with IdentityProvider(a_key()) as provider:
        port = provider.url.rpartition(":")[2]
        for addresses in (["127.0.0.1"], ["169.254.169.254"], ["::1", "127.0.0.1"]):
            names({"idp.example": addresses})
            with pytest.raises(UpstreamFailed, match="not allowed"):
                await strict.fetch(f"http://idp.example:{port}/jwks.json")
        assert provider.asked == 0
    await strict.aclose()


async def test_a_name_may_be_of_this_machine_where_that_is_allowed(
    fetcher: KeySetFetcher, names: Callable[[Mapping[str, list[str]]], None]
) -> None:
    names({"idp.example": ["169.254.169.254", "127.0.0.1"]})
    async with IdentityProvider(a_key()) as provider:
        port = provider.url.rpartition(":")[2]
        published = await fetcher.fetch(f"http://idp.example:{port}/jwks.json")
    assert published.body


async def test_a_server_without_tls_is_not_taken_for_one_with_it(fetcher: KeySetFetcher) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"keys": []})

    async with serving(answer) as url:
        with pytest.raises(UpstreamFailed):
            await fetcher.fetch(url.replace("http://", "https://"))
