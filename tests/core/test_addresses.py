"""Hosts and networks: one reading or none, and narrowing that is exact."""

from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from itertools import chain, product
from typing import Final

import httpx
import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from app.core.addresses import (
    MAX_HOST_CHARS,
    HostPattern,
    Network,
    address_in,
    host_matches,
    host_schema_pattern,
    hosts_within,
    network_within,
    parse_host_pattern,
    parse_network,
    read_host,
    spell_host_pattern,
)

EXAMPLES: Final = settings.default.max_examples if settings.default else 100
KELVIN, FULL_STOP, LOOK_ALIKE = "\u212a", "\uff0e", "\u0430"
LONG_LABEL: Final = "a" * 63
LONGEST: Final = ".".join([LONG_LABEL] * 3 + ["a" * 61])

# --- hosts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, host",
    [
        ("api.example.com", "api.example.com"),
        ("API.Example.COM", "api.example.com"),
        ("localhost", "localhost"),
        ("a", "a"),
        ("1.example", "1.example"),
        ("0x7f.1.example", "0x7f.1.example"),
        ("127.0.0.1.example", "127.0.0.1.example"),
        ("example.x0", "example.x0"),
        ("example.0xg", "example.0xg"),
        ("a--b.r3---sn.example", "a--b.r3---sn.example"),
        (LONG_LABEL, LONG_LABEL),
        (LONGEST, LONGEST),
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.1", "0.0.0.1"),
        ("255.255.255.255", "255.255.255.255"),
        ("[::1]", "[::1]"),
        ("[::]", "[::]"),
        ("[2001:db8::1:0:0:1]", "[2001:db8::1:0:0:1]"),
        ("[1:2:3:4:5:6:7:8]", "[1:2:3:4:5:6:7:8]"),
        ("[64:ff9b::7f00:1]", "[64:ff9b::7f00:1]"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("XN--Bcher-KVA.example", "xn--bcher-kva.example"),
        ("xn--e1afmkfd.xn--p1ai", "xn--e1afmkfd.xn--p1ai"),
        ("xn--11b5bs3a9aj6g", "xn--11b5bs3a9aj6g"),
        ("xn--mgbh0fb", "xn--mgbh0fb"),
    ],
)
def test_a_host_is_read_in_lower_case(text: str, host: str) -> None:
    assert read_host(text) == host
    assert read_host(host) == host


@pytest.mark.parametrize(
    "text",
    [
        # no names
        "",
        ".",
        "a..example",
        ".example",
        "example.",
        "-a.example",
        "a-.example",
        "a_b.example",
        "_dmarc.example",
        "a b.example",
        " a.example",
        "a.example ",
        "a.example\n",
        "a\t.example",
        "a\x00.example",
        "a%2eexample",
        "a%.example",
        "a/example",
        "a\\.example",
        "a@b.example",
        "a:80",
        "a,b",
        "*",
        "*.example.com",
        "a" * 64,
        LONGEST + "a",
        # what becomes one of ours when somebody maps it
        f"a{FULL_STOP}example",
        "a\u3002example",
        f"{KELVIN}.example",
        f"ex{LOOK_ALIKE}mple.com",
        "b\u00fccher.example",
        "a\u00adb.example",
        "a\u200b.example",
        "\u0661.example",
        # addresses in another than the dotted form
        "2130706433",
        "0x7f000001",
        "0X7F000001",
        "0x7f.1",
        "0x7f.0x0.0x0.0x1",
        "0x",
        "example.0x",
        "127.1",
        "127.0.1",
        "0177.0.0.1",
        "127.0.0.01",
        "127.0.0.08",
        "00.0.0.0",
        "256.0.0.1",
        "127.0.0.1.",
        "1.2.3.4.5",
        "example.1",
        "example.99",
        "\u0661.2.3.4",
        "1.2.3.4/32",
        # IPv6 in another than the one form
        "::1",
        "[::1",
        "::1]",
        "[]",
        "[1]",
        "[127.0.0.1]",
        "[::1]]",
        "[[::1]]",
        "[::1]:80",
        "[0:0:0:0:0:0:0:1]",
        "[::0001]",
        "[2001:DB8::1]",
        "[2001:db8:0:1::0:1]",
        "[2001:db8::1:0:0:0:1]",
        "[1:2:3:4:5:6::8]",
        "[fe80::1%eth0]",
        "[fe80::1%25eth0]",
        "[fe80::1%]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[::7f00:1]",
        "[::2]",
        "[v1.x]",
        # Punycode that means something else to somebody, or nothing
        "xn--",
        "xn--a",
        "xn--abc",
        "xn--ascii-",
        "xn--zca",  # ß, which becomes ss
        "xn--strae-oqa.example",
        "xn--3xa",  # a final sigma
        "xn--jv8h",  # an emoji
        "xn--a-wbb",  # begins with an accent
        "xn--ab-x0b",  # a joiner, which is dropped
        "xn--ab-t62n",  # a variation selector, which is dropped
        "xn--a-fg21m",  # another, which older tables do not know
        "xn--strae-301b",  # a capital ß
        "xn--b-pns",  # a subscript j, which older tables do not know
        "xn--a-0hc",  # written from the left and from the right
        "xn--a-3n0i",  # a full-width slash
        "xn--ab-r13a",  # an ideographic full stop
        "xn--a-4ca",  # a superscript two
        "xn--99zzzzzzzzzz",
    ],
)
def test_what_is_no_host_in_the_one_form_is_refused(text: str) -> None:
    assert read_host(text) is None
    assert parse_host_pattern(text) == (HostPattern("example.com", below=True) if text == "*.example.com" else None)


POINTS: Final = [
    *"a-z0",
    *"\u00e4\u00df\u03c2\u0131\u212a\u2100\u2025\u3002\uff0e\uff0f\uff20\ufe68\u200d\u00ad\u034f\u0300\u06f0\u4f60\u10400\u1e9e\ufb01\u00b2",
]
names = st.text(st.sampled_from(POINTS) | st.characters(codec="utf-8", min_codepoint=0x80), min_size=1, max_size=4)


def by_yarl(url: str) -> str | None:
    try:
        return URL(url).raw_host
    except ValueError:
        return None


def by_httpx(url: str) -> str | None:
    try:
        return httpx.URL(url).raw_host.decode()
    except httpx.InvalidURL:
        return None


@settings(max_examples=10 * EXAMPLES)
@given(names)
def test_a_name_in_punycode_is_the_same_host_whoever_decodes_and_encodes_it(name: str) -> None:
    label = "xn--" + name.encode("punycode").decode()
    host = read_host(f"{label}.example")
    if host is None:
        return
    shown = host.removeprefix("xn--").removesuffix(".example").encode().decode("punycode") + ".example"
    assert shown.encode("idna").decode() == host
    for reader in (by_yarl, by_httpx):
        assert reader(f"http://{shown}/") in {host, None}  # None if it is stricter, and reads nothing


# --- patterns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, pattern",
    [
        ("api.example.com", HostPattern("api.example.com", below=False)),
        ("*.example.com", HostPattern("example.com", below=True)),
        ("localhost", HostPattern("localhost", below=False)),
        ("10.0.0.1", HostPattern("10.0.0.1", below=False)),
        ("[2001:db8::1]", HostPattern("[2001:db8::1]", below=False)),
        ("*." + LONGEST[2:], HostPattern(LONGEST[2:], below=True)),
    ],
)
def test_a_pattern_is_read_back_from_its_spelling(text: str, pattern: HostPattern) -> None:
    assert parse_host_pattern(text) == pattern
    assert spell_host_pattern(pattern) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "*.",
        "**",
        "*.*",
        "*.*.example.com",
        "**.example.com",
        "*example.com",
        "*-a.example.com",
        "a.*.example.com",
        "api.*",
        "api.*.com",
        "*.com",
        "*.localhost",
        "*.example.com.",
        "*..example.com",
        "*.127.0.0.1",
        "*.0.0.1",
        "*.[::1]",
        "*.example.0x7f",
        "API.example.com",
        "*.Example.com",
        ".example.com",
        "https://example.com",
        "example.com:443",
        "example.com/",
        "?.example.com",
        "[a-z].example.com",
        "*." + LONGEST,
        "*." + LONGEST[1:],
    ],
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    assert parse_host_pattern(text) is None


def patterns_of(*texts: str) -> list[HostPattern]:
    patterns = [parse_host_pattern(text) for text in texts]
    assert None not in patterns
    return [pattern for pattern in patterns if pattern is not None]


@pytest.mark.parametrize(
    "pattern, host, matches",
    [
        ("example.com", "example.com", True),
        ("example.com", "a.example.com", False),
        ("*.example.com", "example.com", False),
        ("*.example.com", "a.example.com", True),
        ("*.example.com", "c.b.a.example.com", True),
        ("*.example.com", "badexample.com", False),
        ("*.example.com", "a.example.com.evil.com", False),
        ("*.example.com", "example.com.evil.com", False),
        ("a.example.com", "axexample.com", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.10", False),
        ("[::1]", "[::1]", True),
        ("[::1]", "[::11]", False),
    ],
)
def test_a_star_stands_for_one_label_or_more(pattern: str, host: str, matches: bool) -> None:
    assert host_matches(patterns_of(pattern), host) is matches
    assert host_matches(patterns_of("other.example.org", pattern), host) is matches
    assert not host_matches([], host)


# A small world in which every pair of sets of patterns that differ has a host by which they differ.
PATTERNS: Final = patterns_of(
    "example.com", "*.example.com", "a.example.com", "*.a.example.com", "b.a.example.com", "10.0.0.1", "[fd00::a]"
)
HOSTS: Final = [
    *("example.com", "a.example.com", "b.a.example.com", "x.b.a.example.com", "y.a.example.com", "z.example.com"),
    *("xexample.com", "xa.example.com", "example.com.au", "10.0.0.1", "10.0.0.11", "[fd00::a]", "[fd00::]"),
]
pattern_sets = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=4)


@settings(max_examples=5 * EXAMPLES)
@given(pattern_sets, pattern_sets)
def test_hosts_are_within_others_exactly_if_all_that_match_do(
    child: list[HostPattern], parent: list[HostPattern]
) -> None:
    allowed = [host for host in HOSTS if host_matches(child, host)]
    assert hosts_within(child, parent) == all(host_matches(parent, host) for host in allowed)
    assert hosts_within(child, child)
    assert hosts_within(child, [*parent, *child])


def test_proofs_of_hosts_chain() -> None:
    proven = {pair for pair in product(PATTERNS, repeat=2) if hosts_within(pair[:1], pair[1:])}
    assert {
        (child, parent) for (child, middle), (same, parent) in product(proven, repeat=2) if middle == same
    } == proven


# --- the schema of hosts ----------------------------------------------------------------------------------


def accepted_by(pattern: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(
        {"type": "string", "pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions()
    )


def holds(patterns: Collection[HostPattern], text: str) -> bool:
    host = read_host(text)
    return host is not None and host_matches(patterns, host)


near_hosts = st.builds(
    lambda host, at, drop, insert: host[: at % (len(host) + 1)] + insert + host[at % (len(host) + 1) + drop :],
    st.sampled_from(HOSTS),
    st.integers(0, 30),
    st.integers(0, 2),
    st.sampled_from(
        ["", "", ".", "-", "x", "X", "0", "_", "*", "a.", "A--9.", "[", ":", "\n", " ", KELVIN, FULL_STOP, LONG_LABEL]
    ),
)


@settings(max_examples=2 * EXAMPLES)
@given(pattern_sets, st.lists(near_hosts, min_size=10, max_size=10))
def test_the_schema_accepts_the_hosts_that_match_and_no_others(patterns: list[HostPattern], texts: list[str]) -> None:
    schema = accepted_by(host_schema_pattern(patterns))
    for text in chain(HOSTS, map(str.upper, HOSTS), texts):
        assert schema.is_valid(text) == holds(patterns, text)


def test_the_schema_is_wider_only_in_what_stands_before_a_name() -> None:
    schema = accepted_by(host_schema_pattern(patterns_of("*.example.com")))
    for text in ("xn--zca.example.com", f"{LONG_LABEL}." * 4 + "example.com"):
        assert schema.is_valid(text)
        assert read_host(text) is None
    assert len(f"{LONG_LABEL}." * 4 + "example.com") > MAX_HOST_CHARS


# --- networks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.0/8",
        "0.0.0.0/0",
        "10.1.2.3/32",
        "2001:db8::/32",
        "::/0",
        "::1/128",
        "::/128",
        "::/127",
        "fe80::/10",
        "::/64",
    ],
)
def test_a_network_is_read_from_its_one_spelling(text: str) -> None:
    assert str(parse_network(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.0",
        "10/8",
        "10.0.0/8",
        "10.0.0.1/8",
        "010.0.0.0/8",
        "10.0.0.0/08",
        "10.0.0.0/33",
        "10.0.0.0/-1",
        "10.0.0.0/",
        "10.0.0.0/255.0.0.0",
        "10.0.0.0/0.255.255.255",
        " 10.0.0.0/8",
        "10.0.0.0/8\n",
        "10.0.0.0/8/8",
        "167772160/8",
        "0xa.0.0.0/8",
        "\u0661.0.0.0/8",
        "example.com/8",
        "2001:db8::1/32",
        "2001:DB8::/32",
        "2001:db8:0::/32",
        "2001:db8:0:0:0:0:0:0/32",
        "2001:db8::/129",
        "[2001:db8::]/32",
        "fe80::%eth0/64",
        "fe80::1%1/128",
        "::ffff:0:0/96",
        "::ffff:10.0.0.0/104",
        "::ffff:a00:0/104",
        "::/96",
        "::10.0.0.0/104",
        "::a00:0/104",
        "::2/128",
    ],
)
def test_what_is_no_network_in_the_one_form_is_refused(text: str) -> None:
    assert parse_network(text) is None


def network(text: str) -> Network:
    parsed = parse_network(text)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    "address, inside",
    [
        ("10.0.0.0", True),
        ("10.255.255.255", True),
        ("9.255.255.255", False),
        ("11.0.0.0", False),
        ("::1", False),
        ("2001:db8::1", False),
        ("010.0.0.1", None),
        ("10.0.0.01", None),
        ("10.1", None),
        ("167772161", None),
        ("0xa.0.0.1", None),
        ("10.0.0.1/32", None),
        (" 10.0.0.1", None),
        ("10.0.0.1\n", None),
        ("10.0.0.256", None),
        ("\u0661\u0660.0.0.1", None),
        (f"10{FULL_STOP}0.0.1", None),
        ("::ffff:10.0.0.1", None),
        ("::ffff:a00:1", None),
        ("::10.0.0.1", None),
        ("::a00:1", None),
        ("2001:DB8::1", None),
        ("2001:db8:0:0:0:0:0:1", None),
        ("2001:db8::0:1", None),
        ("[2001:db8::1]", None),
        ("fe80::1%eth0", None),
        ("fe80::1%", None),
        ("example.com", None),
        ("", None),
    ],
)
def test_an_address_is_in_a_network_of_its_family_or_is_no_address(address: str, inside: bool | None) -> None:
    assert address_in(network("10.0.0.0/8"), address) is inside
    assert address_in(network("::/0"), address) is (None if inside is None else ":" in address)


octets = st.integers(0, 15)
networks = st.one_of(
    st.builds(lambda low, bits: IPv4Network((0x0A000000 + low, bits), strict=False), octets, st.integers(27, 32)),
    st.builds(lambda low, bits: IPv6Network(((0xFD << 120) + low, bits), strict=False), octets, st.integers(123, 128)),
)
ADDRESSES: Final = [str(IPv4Address(0x0A000000 + low)) for low in range(-1, 40)] + [
    str(IPv6Address((0xFD << 120) + low)) for low in range(-1, 40)
]


@settings(max_examples=2 * EXAMPLES)
@given(networks, networks)
def test_a_network_is_within_another_exactly_if_all_its_addresses_are(child: Network, parent: Network) -> None:
    assert network_within(child, child)
    inside = [address for address in ADDRESSES if address_in(child, address)]
    assert inside == [str(address) for address in child]
    assert network_within(child, parent) == all(address_in(parent, address) for address in inside)
    assert parse_network(str(child)) == child


@settings(max_examples=5 * EXAMPLES)
@given(st.ip_addresses(), st.sampled_from(["10.0.0.0/8", "0.0.0.0/0", "2001::/16", "::/0", "::1/128"]))
def test_only_the_one_spelling_of_an_address_is_read(address: IPv4Address | IPv6Address, text: str) -> None:
    outer = network(text)
    shared = isinstance(address, IPv6Address) and int(address) >> 32 in {0, 0xFFFF} and int(address) > 1
    expected = None if shared else address.version == outer.version and address in outer
    assert address_in(outer, str(address)) is expected
    for spelling in {address.exploded, str(address).upper(), f" {address}", f"0{address}"} - {str(address)}:
        assert address_in(outer, spelling) is None
    assert ip_address(str(address)) == address
