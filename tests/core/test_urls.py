"""URLs: what is accepted everybody reads alike, narrowing is exact, the schema refuses nothing that is allowed."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import httpx
import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from urllib3.util import parse_url
from yarl import URL

from app.core.addresses import HostPattern, parse_host_pattern
from app.core.urls import (
    MAX_PATTERN_CHARS,
    MAX_URL_CHARS,
    SCHEMES,
    Url,
    UrlPath,
    UrlRule,
    read_url,
    read_url_path,
    url_matches,
    url_schema_pattern,
    url_within,
)

EXAMPLES: Final = settings.default.max_examples if settings.default else 100

# --- how others read --------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """What a parser makes of a URL: an absent port is its scheme's, an absent path `/`, an absent query empty."""

    scheme: str
    user: str
    host: str
    port: int
    path: str
    query: str
    fragment: str


def by_us(text: str) -> Reading | None:
    url = read_url(text)
    return url and Reading(url.scheme, "", url.host.strip("[]"), url.port, url.path, url.query or "", "")


def by_urllib(text: str) -> Reading:
    parts = urlsplit(text)
    port, host = parts.port or SCHEMES[parts.scheme], parts.hostname or ""
    return Reading(parts.scheme, parts.username or "", host, port, parts.path or "/", parts.query, parts.fragment)


def by_urllib3(text: str) -> Reading:
    parts = parse_url(text)
    scheme, host = parts.scheme or "", (parts.host or "").strip("[]").lower()
    rest = parts.path or "/", parts.query or "", parts.fragment or ""
    return Reading(scheme, parts.auth or "", host, parts.port or SCHEMES[scheme], *rest)


def by_httpx(text: str) -> Reading:
    url = httpx.URL(text)
    path, query = url.raw_path.decode().partition("?")[0], url.query.decode()
    user, host, port = url.userinfo.decode(), url.raw_host.decode(), url.port or SCHEMES[url.scheme]
    return Reading(url.scheme, user, host, port, path, query, url.fragment)


def by_yarl(text: str) -> Reading:
    url = URL(text)
    user, host, port = url.raw_user or "", url.raw_host or "", url.port or SCHEMES[url.scheme]
    return Reading(url.scheme, user, host, port, url.raw_path, url.raw_query_string, url.raw_fragment)


READERS: Final[list[Callable[[str], Reading]]] = [by_urllib, by_urllib3, by_httpx, by_yarl]


def fields(reading: Reading) -> tuple[Reading, list[tuple[str, str]]]:
    """The reading with its query taken apart: yarl decodes triplets there that stand for nothing but themselves."""
    return reading._replace(query=""), parse_qsl(reading.query, keep_blank_values=True)


def same(reader: Callable[[str], Reading], text: str, ours: Reading) -> bool:
    theirs = reader(text)
    return fields(theirs) == fields(ours) if reader is by_yarl else theirs == ours


# --- values -----------------------------------------------------------------------------------------------

H: Final = "api.example.com"


@pytest.mark.parametrize(
    "text, url",
    [
        ("https://api.example.com", Url("https", H, 443, "/", None)),
        ("https://api.example.com/", Url("https", H, 443, "/", None)),
        ("HTTPS://API.Example.COM/V1", Url("https", H, 443, "/V1", None)),
        ("https://api.example.com:443/v1", Url("https", H, 443, "/v1", None)),
        ("https://api.example.com:8443", Url("https", H, 8443, "/", None)),
        ("http://api.example.com:443/", Url("http", H, 443, "/", None)),
        ("ws://api.example.com:65535/", Url("ws", H, 65535, "/", None)),
        ("wss://api.example.com/", Url("wss", H, 443, "/", None)),
        ("ftp://api.example.com/a;type=i", Url("ftp", H, 21, "/a;type=i", None)),
        ("https://api.example.com/v1/", Url("https", H, 443, "/v1/", None)),
        ("https://api.example.com/@user/a:b", Url("https", H, 443, "/@user/a:b", None)),
        ("https://api.example.com/a-._~!$&'()*+,;=:@", Url("https", H, 443, "/a-._~!$&'()*+,;=:@", None)),
        ("https://api.example.com/.well-known/..a/a../.a.", Url("https", H, 443, "/.well-known/..a/a../.a.", None)),
        ("https://api.example.com/main...dev", Url("https", H, 443, "/main...dev", None)),
        ("https://api.example.com/a%20b%23%3F%5B%5D", Url("https", H, 443, "/a%20b%23%3F%5B%5D", None)),
        ("https://api.example.com/c%2B%2B", Url("https", H, 443, "/c%2B%2B", None)),
        ("https://api.example.com/caf%C3%A9", Url("https", H, 443, "/caf%C3%A9", None)),
        ("https://api.example.com/cafe%CC%81", Url("https", H, 443, "/cafe%CC%81", None)),
        ("https://api.example.com/%EF%BC%A1", Url("https", H, 443, "/%EF%BC%A1", None)),
        ("https://api.example.com/?", Url("https", H, 443, "/", "")),
        ("https://api.example.com/?a=b&a=c;d", Url("https", H, 443, "/", "a=b&a=c;d")),
        ("https://api.example.com/v1?u=//e.com/../?@:a", Url("https", H, 443, "/v1", "u=//e.com/../?@:a")),
        ("https://api.example.com/v1?a=%2F%25%00%27%41%FF", Url("https", H, 443, "/v1", "a=%2F%25%00%27%41%FF")),
        ("http://localhost:8080/", Url("http", "localhost", 8080, "/", None)),
        ("http://127.0.0.1/", Url("http", "127.0.0.1", 80, "/", None)),
        ("http://[::1]:8080/", Url("http", "[::1]", 8080, "/", None)),
        ("http://[2001:db8::1]/", Url("http", "[2001:db8::1]", 80, "/", None)),
        ("https://xn--bcher-kva.example/", Url("https", "xn--bcher-kva.example", 443, "/", None)),
        (f"https://{H}/".ljust(MAX_URL_CHARS, "x"), Url("https", H, 443, "/".ljust(MAX_URL_CHARS - 23, "x"), None)),
    ],
)
def test_what_is_accepted_is_read_alike_by_everybody(text: str, url: Url) -> None:
    assert read_url(text) == url
    ours = by_us(text)
    assert ours is not None
    assert [reader.__name__ for reader in READERS if not same(reader, text, ours)] == []


@pytest.mark.parametrize(
    "text",
    [
        # no absolute URL
        *("", "/", H, f"//{H}/", "https:", "https:/", "https://", "https:///", "https:///v1", "https://?a", "https://:443/"),
        *(f"https:{H}/", f"https:/{H}/", f"https:///{H}/", f"https:////{H}/", f"https//{H}/", f"https:\\\\{H}/"),
        *(f"://{H}/", f":https://{H}/", f"url:https://{H}/", f"https://{H}/ https://{H}/", f"https://https://{H}/"),
        # of another scheme
        *("file:///etc/passwd", f"file://{H}/", "javascript:alert(1)", "data:,x", f"gopher://{H}/", f"s://{H}/"),
        *(f"httpss://{H}/", f"http+unix://{H}/", f"jar:https://{H}/!/", f"view-source:https://{H}/"),
        # with userinfo
        *(f"https://user@{H}/", f"https://user:pass@{H}/", f"https://@{H}/", f"https://:@{H}/", f"https://a@b@{H}/"),
        *(f"https://{H}@evil.com/", f"https://{H}:443@evil.com/", f"https://evil.com\\@{H}/", f"https://{H}\\@evil.com/"),
        *(f"https://{H}%40evil.com/", f"https://{H}?@evil.com/", f"https://{H};@evil.com/", f"https://{H}&@evil.com/"),
        # with a fragment
        *(f"https://{H}#", f"https://{H}/#", f"https://{H}/v1#a", f"https://{H}/?a#b", f"https://evil.com#@{H}/"),
        # with backslashes, control characters or white space
        *(f"https://{H}\\", f"https://{H}\\.evil.com/", f"https://{H}/\\evil.com", f"https://{H}/v1\\..\\x"),
        *(f"\thttps://{H}/", f" https://{H}/", f"https://{H}/ ", f"https://{H}/\n", f"ht\ttps://{H}/", f"https://{H}\n/"),
        *(f"https://{H} /", f"https://{H}/\x00", f"https://{H}/a b", f"https://{H}/\x7f", f"https://{H}/\x85"),
        # not in ASCII
        *("https://api\uff0eexample.com/", "https://api\u3002example.com/", f"https://{H}\uff0f.evil.com/"),
        *(f"https://{H}\u2025/", "https://\u0430pi.example.com/", f"https://{H}\u00ad/", f"https://{H}:\u0664\u0664\u0663/"),
        *("https://\u212aa.example/", "http\u017f://a.example/", "\uff48ttps://a.example/", f"\ufeffhttps://{H}/"),
        # too long
        *(f"https://{H}/".ljust(MAX_URL_CHARS + 1, "x"), f"https://{'a.' * 127}com/", f"https://{'a' * 64}.com/"),
    ],
)  # fmt: skip
def test_what_somebody_could_read_otherwise_is_refused(text: str) -> None:
    assert read_url(text) is None


@pytest.mark.parametrize(
    "host",
    [
        *("api.example.com.", ".example.com", "api..example.com", "-api.example.com", "api_1.example.com"),
        *("*.example.com", "api%2eexample.com", "%61pi.example.com", "api%00.example.com", "a,b", "a!b", "a|b"),
        *("xn--zca.example", "xn--a"),
        *("2130706433", "0x7f000001", "0x7f.1", "127.1", "0177.0.0.1", "127.0.0.01", "127.0.0.1.", "1.2.3.4.5"),
        *("256.0.0.1", "example.0x", "example.1", "0", "::1", "[::1", "::1]", "[::1]x", "[::1].", "[[::1]]", "[]"),
        *("[a]", "[v1.a]", "[127.0.0.1]", "[::FFFF]", "[0:0:0:0:0:0:0:1]", "[fe80::1%25eth0]", "[fe80::1%eth0]"),
        *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[::7f00:1]"),
    ],
)  # fmt: skip
def test_a_url_has_a_host_in_its_one_form(host: str) -> None:
    assert read_url(f"http://{host}/") is None


@pytest.mark.parametrize(
    "port",
    [
        "",
        "0",
        "00",
        "0443",
        "65536",
        "99999",
        "443443",
        "4294967739",
        "+443",
        "-1",
        "443:443",
        "44 3",
        "4_43",
        "x",
        "0x1bb",
    ],
)
def test_a_url_has_a_port_in_its_one_form(port: str) -> None:
    assert read_url(f"https://{H}:{port}/") is None
    assert read_url(f"https://{H}:{port}") is None


@pytest.mark.parametrize(
    "path",
    [
        # dot segments, however spelt
        *("/.", "/..", "/./", "/v1/../x", "/v1/./x", "/v1/..", "/%2e", "/%2E", "/v1/%2e%2e/x", "/v1/%2E./x"),
        *("/v1/.%2e", "/v1/..;/x", "/v1/..;a=b/x", "/v1/.;/x", "/v1/..%3B/x", "/v1/..%EF%BC%9B/x", "/..."),
        *("/v1/..%20/x", "/v1/..%C2%A0", "/%EF%BC%8E%EF%BC%8E/x", "/%E2%80%A5/x", "/%E2%80%A4", "/%C0%AE%C0%AE/x"),
        # empty segments, and what a server would make one
        *("//", "//v1", "/v1//x", "/v1//", "///", "/v1/;/x", "/v1/;a", "/;", "/%20/x", "/v1/%20", "/%E3%80%80"),
        # separators in disguise
        *("/v1%2Fx", "/v1%2fx", "/v1%5Cx", "/v1%5cx", "/a%EF%BC%8Fb", "/a%EF%BC%BCb", "/%EF%B9%A8", "/%E2%84%80"),
        *("/%C0%AF", "/%2F", "/%5C"),
        # what is decoded twice
        *("/%25", "/%252e%252e/x", "/%252F", "/%EF%BC%852e", "/%25%32%65"),
        # control characters
        *("/%00", "/%0D%0Ax", "/%09", "/%1F", "/%7F", "/%C2%80", "/%C2%85"),
        # triplets that some parsers decode, or which are none
        *("/%41", "/%7E", "/%2D", "/%40", "/%3A", "/%3B", "/%26", "/%27", "/%24", "/%2C", "/%3D"),
        *("/%", "/%2", "/%zz", "/%u002e", "/%%", "/caf%c3%a9", "/%3f", "/%FF", "/%C3", "/%A9", "/%ED%A0%80"),
        # characters that may not stand in a path
        *("/a|b", "/a^b", "/{a}", "/<a>", '/"', "/`", "/[a]", "/a b", "/\\", "/\u00e9", "/\uff0e\uff0e/x"),
        *("/\ud800", "/a#b"),
    ],
)  # fmt: skip
def test_a_path_that_a_server_could_read_otherwise_is_refused(path: str) -> None:
    assert read_url(f"https://{H}{path}") is None
    assert read_url_path(path) is None


@pytest.mark.parametrize(
    "query",
    [
        "'",
        '"',
        "<",
        "|",
        "^",
        "`",
        "{a}",
        "[a]",
        "\\",
        "#",
        "a b",
        "a\tb",
        "\u00e9",
        "\x00",
        "%",
        "%2",
        "%zz",
        "%2f",
        "%c3%A9",
    ],
)
def test_a_query_has_the_characters_of_a_query(query: str) -> None:
    assert read_url(f"https://{H}/v1?{query}") is None
    assert read_url(f"https://{H}/v1?a={query}&b=1") is None
    assert read_url(f"https://{H}/v1?a=b") is not None


@pytest.mark.parametrize("text", [f"https://{H}?", f"https://{H}?a=b", f"https://{H}:443?a=b"])
def test_a_query_follows_a_path(text: str) -> None:
    assert read_url(text) is None
    assert read_url(text.replace("?", "/?")) is not None


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/a%20b", "/@a:b", "/a;b", "/.a/..b", "/x".ljust(MAX_URL_CHARS, "x")]
)
def test_a_rule_spells_a_path_as_a_value_does(path: str) -> None:
    assert read_url_path(path) == path


@pytest.mark.parametrize("path", ["", "v1", "*", "/v1?", "/v1?a", "/x".ljust(MAX_URL_CHARS + 1, "x")])
def test_what_no_value_could_have_is_no_path_of_a_rule(path: str) -> None:
    assert read_url_path(path) is None


# --- whatever is accepted, and much is tried --------------------------------------------------------------

CHARS: Final = "azAZ09-._~!$&()*+,;=:@"
TRIPLETS: Final = ["%20", "%22", "%23", "%2B", "%3C", "%3F", "%5B", "%5E", "%60", "%7D", "%C3%A9", "%F0%9F%98%80"]
IN_QUERIES: Final = ["/", "?", "%27", "%2F", "%3D", "%26", "%41", "%00", "%25", "%FF"]
INSERTS: Final = [
    *("@", "\\", "#", "%", "\t", "\n", "\r", "\x00", " ", ".", "..", "/", "//", "/./", "/../", ";", "..;", "?", ":"),
    *("@evil.com", "[", "]", "|", "^", "'", '"', "<", "`", "{", "a", "A", "0", "1", "-", "_", "*", "~", "+", ":80"),
    *("\uff0e", "\u3002", "\u212a", "\uff0f", "\uff20", "\u00ad", "\u200b", "\u00e9", "\u2025", "\u2100", "\ufeff"),
    *("\u0661", "%2e", "%2E", "%2F", "%5C", "%40", "%41", "%25", "%00", "%0A", "%C0%AF", "%EF%BC%8E", ":080"),
]  # fmt: skip

schemes = st.sampled_from(["http", "https", "ws", "wss", "ftp", "HTTP", "hTTps"])
good_hosts = st.sampled_from(
    ["localhost", "a.example", "API.Example.com", "1.a-b.x0", "127.0.0.1", "[::1]", "[1:2::3:0:0:4]", "xn--p1ai"]
)
labels = st.text("abx01-", min_size=1, max_size=4) | st.sampled_from(
    ["0x7f", "0x", "017", "255", "xn--zca", "XN--p1ai"]
)
hosts = (
    good_hosts | st.lists(labels, min_size=1, max_size=5).map(".".join) | st.ip_addresses(v=6).map(lambda ip: f"[{ip}]")
)
ports = st.sampled_from(["", ":1", ":21", ":80", ":443", ":8080", ":65535"])
# What a segment starts with is no dot, so that none of them is made of dots.
segments = st.builds(
    "{}{}".format, st.sampled_from("aZ0_~-!@"), st.lists(st.sampled_from([*CHARS, "'", *TRIPLETS])).map("".join)
)
paths = st.builds(
    lambda names, end: "".join(f"/{name}" for name in names) + end,
    st.lists(segments, min_size=1, max_size=4),
    st.sampled_from(["", "/"]),
) | st.just("/")
queries = st.just("") | st.lists(st.sampled_from([*CHARS, *TRIPLETS, *IN_QUERIES]), max_size=9).map(
    lambda query: f"?{''.join(query)}"
)


@settings(max_examples=2 * EXAMPLES)
@given(schemes, good_hosts, ports, paths, queries)
def test_a_url_put_together_by_the_grammar_is_taken_apart_by_everybody(
    scheme: str, host: str, port: str, path: str, query: str
) -> None:
    text = f"{scheme}://{host}{port}{path}{query}"
    number = int(port[1:] or SCHEMES[scheme.lower()])
    assert read_url(text) == Url(scheme.lower(), host.lower(), number, path, query[1:] if query else None)
    assert read_url_path(path) == path
    ours = by_us(text)
    assert ours is not None
    assert [reader.__name__ for reader in READERS if not same(reader, text, ours)] == []


def edited(text: str, place: int, dropped: int, insert: str) -> str:
    place %= len(text) + 1
    return text[:place] + insert + text[place + dropped :]


# What the grammar makes or nearly makes, perhaps edited already, beside a place where more is to be put in or left out.
edits = st.tuples(st.integers(0, 60), st.integers(0, 2), st.sampled_from(["", *INSERTS]))
nearly_urls = st.builds(
    lambda scheme, host, rest, edit: edited(f"{scheme}://{host}{''.join(rest)}", *edit),
    schemes,
    hosts,
    st.tuples(ports, st.just("") | paths, queries),
    st.just((0, 0, "")) | edits,
)
places = st.integers(0, 60)


def variants(text: str, place: int) -> list[str]:
    """The text itself, and with everything there is put in at a place, instead of as many characters."""
    return [text, *(edited(text, place, dropped, insert) for dropped in (0, 1, 2) for insert in ["", *INSERTS])]


@given(nearly_urls, places)
def test_nobody_reads_otherwise_what_is_accepted(text: str, place: int) -> None:
    for variant in variants(text, place):
        ours = by_us(variant)
        assert ours is None or [reader.__name__ for reader in READERS if reads_otherwise(reader, variant, ours)] == []


def reads_otherwise(reader: Callable[[str], Reading], text: str, ours: Reading) -> bool:
    """Whether a parser makes something else of a URL. One that refuses it makes nothing of it."""
    try:
        return not same(reader, text, ours)
    except (ValueError, httpx.InvalidURL):
        return False


# --- rules ------------------------------------------------------------------------------------------------


def patterns_of(*texts: str) -> tuple[HostPattern, ...]:
    patterns = tuple(pattern for text in texts if (pattern := parse_host_pattern(text)))
    assert len(patterns) == len(texts)
    return patterns


def rule(
    *host_patterns: str,
    schemes: str = "https",
    ports: set[int] | None = None,
    path: str | None = None,
    query: bool = False,
) -> UrlRule:
    """A rule in short: schemes apart by spaces, `/v1` for exactly that path and `/v1*` for what is at or under it."""
    return UrlRule(
        schemes=frozenset(schemes.split()),
        hosts=patterns_of(*host_patterns or (H,)),
        ports=None if ports is None else frozenset(ports),
        path=None if path is None else UrlPath(path.removesuffix("*"), below=path.endswith("*")),
        query=query,
    )


def allows(allowed: UrlRule, text: str) -> bool:
    url = read_url(text)
    assert url is not None
    return url_matches(allowed, url)


@pytest.mark.parametrize(
    "allowed, text, matches",
    [
        (rule(), f"https://{H}/a/b", True),
        (rule(), f"HTTPS://{H.upper()}", True),
        (rule(), f"http://{H}/", False),
        (rule(), f"wss://{H}/", False),
        (rule(), f"https://x.{H}/", False),
        (rule(), "https://api.example.com.evil.com/", False),
        # ports
        (rule(), f"https://{H}:443/", True),
        (rule(), f"https://{H}:8443/", False),
        (rule(schemes="http https"), f"http://{H}:443/", False),
        (rule(schemes="http https"), f"http://{H}:80/", True),
        (rule(ports={8443}), f"https://{H}/", False),
        (rule(ports={8443}), f"https://{H}:8443/", True),
        (rule(ports={443, 8443}), f"https://{H}/", True),
        (rule(schemes="http https", ports={443}), f"http://{H}/", False),
        (rule(schemes="http https", ports={443}), f"http://{H}:443/", True),
        # hosts
        (rule("*.example.com"), f"https://{H}/", True),
        (rule("*.example.com"), "https://example.com/", False),
        (rule("*.example.com"), "https://badexample.com/", False),
        (rule("*.example.com", "example.com"), "https://example.com/", True),
        (rule("127.0.0.1"), "https://127.0.0.1/", True),
        (rule("[::1]"), "https://[::1]/", True),
        # paths
        (rule(path="/v1"), f"https://{H}/v1", True),
        (rule(path="/v1"), f"https://{H}/v1/", False),
        (rule(path="/v1"), f"https://{H}/v1/x", False),
        (rule(path="/v1"), f"https://{H}/V1", False),
        (rule(path="/v1/"), f"https://{H}/v1", False),
        (rule(path="/v1/"), f"https://{H}/v1/", True),
        (rule(path="/v1*"), f"https://{H}/v1", True),
        (rule(path="/v1*"), f"https://{H}/v1/", True),
        (rule(path="/v1*"), f"https://{H}/v1/x/y", True),
        (rule(path="/v1*"), f"https://{H}/v10", False),
        (rule(path="/v1*"), f"https://{H}/v1;x", False),
        (rule(path="/v1*"), f"https://{H}/", False),
        (rule(path="/v1/*"), f"https://{H}/v1", False),
        (rule(path="/v1/*"), f"https://{H}/v1/", True),
        (rule(path="/v1/*"), f"https://{H}/v1/x", True),
        (rule(path="/"), f"https://{H}", True),
        (rule(path="/"), f"https://{H}/x", False),
        (rule(path="/*"), f"https://{H}/x", True),
        # queries
        (rule(), f"https://{H}/?", False),
        (rule(), f"https://{H}/?a=b", False),
        (rule(query=True), f"https://{H}/?a=b", True),
        (rule(query=True), f"https://{H}/", True),
        (rule(path="/v1", query=True), f"https://{H}/v1?x", True),
        (rule(path="/v1", query=True), f"https://{H}/v1/x?/v1", False),
    ],
)
def test_a_url_is_held_to_every_part_of_a_rule(allowed: UrlRule, text: str, matches: bool) -> None:
    assert allows(allowed, text) is matches


@pytest.mark.parametrize(
    "child, parent, within",
    [
        (rule(), rule(), True),
        (rule(), rule(schemes="http https"), True),
        (rule(schemes="http https"), rule(), False),
        (rule(), rule("*.example.com"), True),
        (rule("*.example.com"), rule(), False),
        (rule("*.a.example.com"), rule("*.example.com"), True),
        (rule("*.example.com"), rule("*.a.example.com"), False),
        (rule("example.com"), rule("*.example.com"), False),
        (rule("*.badexample.com"), rule("*.example.com"), False),
        (rule(ports={443}), rule(), True),
        (rule(), rule(ports={443, 8443}), True),
        (rule(), rule(ports={8443}), False),
        (rule(ports={8443}), rule(), False),
        (rule(schemes="http https"), rule(schemes="http https", ports={80, 443}), True),
        (rule(schemes="http https", ports={80, 443}), rule(schemes="http https"), False),
        (rule(schemes="http", ports={80}), rule(schemes="http https"), True),
        (rule(path="/v1"), rule(path="/v1"), True),
        (rule(path="/v1"), rule(path="/v1*"), True),
        (rule(path="/v1/x"), rule(path="/v1*"), True),
        (rule(path="/v1/x*"), rule(path="/v1*"), True),
        (rule(path="/v1*"), rule(path="/v1*"), True),
        (rule(path="/v1*"), rule(path="/v1"), False),
        (rule(path="/v1/x"), rule(path="/v1"), False),
        (rule(path="/v1*"), rule(path="/v1/*"), False),
        (rule(path="/v1/*"), rule(path="/v1*"), True),
        (rule(path="/v10"), rule(path="/v1*"), False),
        (rule(path="/v1"), rule(), True),
        (rule(path="/v1*"), rule(), True),
        (rule(), rule(path="/v1*"), False),
        (rule(), rule(path="/*"), True),
        (rule(), rule(query=True), True),
        (rule(query=True), rule(), False),
        (rule(query=True), rule(query=True), True),
    ],
)
def test_a_rule_is_within_another_part_by_part(child: UrlRule, parent: UrlRule, within: bool) -> None:
    assert url_within(child, parent) is within


# A small world in which every two rules that differ have a URL by which they differ.
WORLD: Final = [
    f"{scheme}://{host}{port}{path}{query}"
    for scheme, host, port, path, query in product(
        ["http", "https"],
        [
            *("example.com", "a.example.com", "b.a.example.com", "c.b.a.example.com", "z.a.example.com"),
            *("z.example.com", "xexample.com", "10.0.0.1", "[::1]"),
        ],
        ["", ":80", ":443", ":8080"],
        ["/", "/v1", "/v1/", "/v1/x", "/v1/x/y", "/v10", "/v10/a", "/z"],
        ["", "?q"],
    )
]  # fmt: skip
URLS: Final = [url for text in WORLD if (url := read_url(text))]
PATHS: Final = [
    None,
    *(UrlPath(path, below) for path, below in product(["/", "/v1", "/v1/", "/v1/x", "/v10"], [False, True])),
]
HOSTS: Final = [
    "example.com",
    "*.example.com",
    "a.example.com",
    "*.a.example.com",
    "b.a.example.com",
    "10.0.0.1",
    "[::1]",
]

parts: dict[str, st.SearchStrategy[Any]] = {
    "schemes": st.frozensets(st.sampled_from(["http", "https"]), min_size=1),
    "hosts": st.lists(st.sampled_from(HOSTS), min_size=1, max_size=3).map(lambda texts: patterns_of(*texts)),
    "ports": st.none() | st.frozensets(st.sampled_from([80, 443, 8080]), min_size=1),
    "path": st.sampled_from(PATHS),
    "query": st.booleans(),
}
rules = st.builds(UrlRule, **parts)


@st.composite
def near(draw: st.DrawFn, other: UrlRule) -> UrlRule:
    """A rule that differs from another in a part or two."""
    changed = draw(st.sets(st.sampled_from([*parts]), max_size=2))
    return replace(other, **{name: draw(parts[name]) for name in changed})


pairs = rules.flatmap(lambda parent: st.tuples(near(parent), st.just(parent)))


def test_every_url_of_the_small_world_is_read() -> None:
    assert len(URLS) == len(WORLD)


@given(pairs)
def test_a_rule_is_within_another_exactly_if_all_that_it_allows_are(pair: tuple[UrlRule, UrlRule]) -> None:
    child, parent = pair
    assert url_within(child, parent) == all(url_matches(parent, url) for url in URLS if url_matches(child, url))
    assert url_within(child, child)


def test_proofs_of_urls_chain() -> None:
    some = [
        UrlRule(schemes=frozenset(names.split()), hosts=patterns_of(H), ports=allowed, path=path, query=query)
        for names, allowed, path, query in product(
            ["https", "http https"], [None, frozenset({443}), frozenset({80, 443})], PATHS, [False, True]
        )
    ]
    above = {child: {parent for parent in some if url_within(child, parent)} for child in some}
    for child, parents in above.items():
        assert child in parents
        assert all(above[middle] <= parents for middle in parents)


# --- the schema of URLs -----------------------------------------------------------------------------------


def accepted_by(allowed: UrlRule) -> jsonschema_rs.Validator:
    pattern = url_schema_pattern(allowed)
    assert pattern is not None
    return jsonschema_rs.validator_for(
        {"type": "string", "pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions(size_limit=2**20)
    )


@given(rules)
def test_the_schema_accepts_every_url_that_matches(allowed: UrlRule) -> None:
    schema = accepted_by(allowed)
    verdicts = [(schema.is_valid(text), url_matches(allowed, url)) for text, url in zip(WORLD, URLS, strict=True)]
    assert (False, True) not in verdicts
    assert len(allowed.schemes) > 1 or (True, False) not in verdicts


@given(schemes, good_hosts, ports, st.just("") | paths, queries)
def test_the_schema_accepts_whatever_the_grammar_makes(
    scheme: str, host: str, port: str, path: str, query: str
) -> None:
    text = f"{scheme}://{host}{port}{path}{query if path else ''}"
    url = read_url(text)
    assert url is not None
    for place in (None, UrlPath(url.path, below=True), UrlPath(url.path, below=False)):
        allowed = UrlRule(
            schemes=frozenset({url.scheme}),
            hosts=(HostPattern(url.host, below=False),),
            ports=frozenset({url.port}),
            path=place,
            query=url.query is not None,
        )
        assert url_matches(allowed, url)
        assert accepted_by(allowed).is_valid(text)


# Every host and port that `nearly_urls` starts from, and every path.
OPEN: Final = UrlRule(
    schemes=frozenset(SCHEMES),
    hosts=patterns_of("localhost", "a.example", "*.example.com", "1.a-b.x0", "127.0.0.1", "[::1]", "[1:2::3:0:0:4]"),
    ports=frozenset({1, 21, 80, 443, 8080, 65535}),
    query=True,
)
OPEN_SCHEMA: Final = accepted_by(OPEN)


@given(nearly_urls, places)
def test_the_schema_is_wider_only_where_a_pattern_cannot_tell(text: str, place: int) -> None:
    for variant in variants(text, place):
        url = read_url(variant)
        if url is not None and url_matches(OPEN, url):
            assert OPEN_SCHEMA.is_valid(variant)
        elif OPEN_SCHEMA.is_valid(variant):
            # A Punycode label, or a path that becomes another one when what is not ASCII in it is decoded.
            path = urlsplit(variant).path
            assert "xn--" in variant.lower() or (re.search("%[89A-F]", path) and read_url_path(path) is None)


def test_a_rule_whose_pattern_is_too_long_has_none() -> None:
    few, many = (rule(*(f"host-number-{number}.example.com" for number in range(count))) for count in (10, 256))
    pattern = url_schema_pattern(few)
    assert pattern is not None
    assert len(pattern) < MAX_PATTERN_CHARS
    assert url_schema_pattern(many) is None
