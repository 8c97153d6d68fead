"""Host names and IP addresses: which spellings can be read in one way only, and what covers what.

Knows the part of the grammar on which every parser agrees, a lenient one too, and refuses the rest of it: nothing is
repaired, mapped or guessed. Only the case of a host name is free. Refuses to know what a name resolves to.

One host has one spelling, as in a URL: an IPv6 address stands in brackets. Addresses that only hide an IPv4 address
are refused everywhere, since their text differs from library to library.
"""

import re
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple, TypeAlias
from unicodedata import category, normalize

MAX_HOST_CHARS: Final = 253  # RFC 1035 §2.3.4, without the root's dot
MIN_PARENT_LABELS: Final = 2
"""Labels after `*.`: what stands under a top-level domain is nobody's, and a slip of the pen."""

Network: TypeAlias = IPv4Network | IPv6Network


class HostPattern(NamedTuple):
    """One host, or with `below` every host strictly below a name, at any depth."""

    name: str
    below: bool


# --- hosts ------------------------------------------------------------------------------------------------

_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""The last label of what some parsers take for an IPv4 address, however few its parts: `127.1`, `0x7f.1`, `0x`."""

_IGNORED: Final = re.compile("[\u115f\u1160\u17b4\u17b5\u180f\U000e0100-\U000e01ef]")
"""Letters and marks that a parser drops, and that the codec for Punycode is too old to know as such."""


def read_host(text: str) -> str | None:
    """The host in lower case: a DNS name, a dotted IPv4 address or an IPv6 address in brackets; None for all else.

    Underscores, empty labels and a dot at the end are refused.
    """
    if not text.isascii() or len(text) > MAX_HOST_CHARS:
        return None
    if text.startswith("["):
        return text if isinstance(_read_address(text[1:-1]), IPv6Address) and text.endswith("]") else None
    host = text.lower()
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return host if isinstance(_read_address(host), IPv4Address) else None
    return host if all(map(_is_label, labels)) else None


def parse_host_pattern(text: str) -> HostPattern | None:
    """The pattern that a grant spells: a host in lower case, or `*.` and a name of two labels or more."""
    below = text.startswith("*.")
    name = text[2:] if below else text
    if read_host(name) != name:
        return None
    # Nothing stands below an address, nor below a name that is as long as names may be.
    if below and (name.count(".") + 1 < MIN_PARENT_LABELS or read_host(f"x.{name}") is None):
        return None
    return HostPattern(name, below)


def spell_host_pattern(pattern: HostPattern) -> str:
    """The inverse of `parse_host_pattern`."""
    return f"*.{pattern.name}" if pattern.below else pattern.name


def host_matches(patterns: Collection[HostPattern], host: str) -> bool:
    """Whether a host, as `read_host` gives it, is one of these or below one of these."""
    return any(_covers(pattern, host) for pattern in patterns)


def hosts_within(child: Collection[HostPattern], parent: Collection[HostPattern]) -> bool:
    """Whether every host that the child's patterns allow is allowed by the parent's."""
    return all(_within_one(pattern, parent) for pattern in child)


def _covers(pattern: HostPattern, host: str) -> bool:
    return host.endswith(f".{pattern.name}") if pattern.below else host == pattern.name


def _within_one(child: HostPattern, parent: Collection[HostPattern]) -> bool:
    # One parent is enough: what is below a name is never covered by several patterns of which none covers it alone.
    return child in parent or any(pattern.below and _covers(pattern, child.name) for pattern in parent)


def _is_label(label: str) -> bool:
    return _LABEL.fullmatch(label) is not None and (not label.startswith("xn--") or _is_steady(label))


def _is_steady(label: str) -> bool:
    """Whether a Punycode label means one name only, whoever decodes it, maps it and encodes it again.

    Parsers that decode it show a name; should that one be mapped, as U+FF0F to a slash or `ß` to `ss`, another host is
    reached. So it must decode to letters, marks and digits, no mark the first, that case folding and normalisation
    leave as they are.
    """
    try:
        shown = label.encode().decode("idna")  # fails where encoding what it decoded gives anything else
    except UnicodeError:
        return False
    kinds = [category(character)[0] if character != "-" else "L" for character in shown]
    if kinds[0] == "M" or not {*kinds} <= {*"LMN"} or _IGNORED.search(shown):
        return False
    return normalize("NFKC", shown.casefold()) == shown


# --- networks ---------------------------------------------------------------------------------------------

_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_COMPATIBLE: Final = IPv6Network("::/96")
_UNSPECIFIED_AND_LOOPBACK: Final = IPv6Network("::/127")


def parse_network(text: str) -> Network | None:
    """The network that a canonical text spells: `10.0.0.0/8`, `2001:db8::/32`; None for all else."""
    try:
        network = ip_network(text)
    except ValueError:
        return None
    return network if str(network) == text and "%" not in text and not _hides_ipv4(network) else None


def address_in(network: Network, text: str) -> bool | None:
    """Whether an address is in a network, and so of its family; None if the text is no canonical address at all."""
    address = _read_address(text)
    return None if address is None else address in network


def network_within(child: Network, parent: Network) -> bool:
    """Whether every address of the child is one of the parent's."""
    return child.prefixlen >= parent.prefixlen and child.network_address in parent


def _read_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return address if str(address) == text and "%" not in text and not _hides_ipv4(ip_network(address)) else None


def _hides_ipv4(network: Network) -> bool:
    if isinstance(network, IPv4Network) or network.subnet_of(_UNSPECIFIED_AND_LOOPBACK):
        return False
    return network.subnet_of(_MAPPED) or network.subnet_of(_COMPATIBLE)


# --- JSON Schema ------------------------------------------------------------------------------------------

_SYNTAX: Final = re.compile(r"[\\^$.*+?()\[\]{}|]")
"""What means something in a pattern. Nothing else is escaped: ECMA's `u` flag refuses a needless backslash."""

_ANY_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"


def host_schema_pattern(patterns: Collection[HostPattern]) -> str:
    """A JSON Schema pattern for the hosts that match, in either case.

    It is exact but for what stands before a name: a host below it may come out longer than MAX_HOST_CHARS, and a label
    there may be Punycode that `read_host` refuses.
    """
    return f"^{host_expression(patterns)}$"


def host_expression(patterns: Collection[HostPattern]) -> str:
    """The same as a part of a larger pattern. There must be patterns: of nothing there is no expression."""
    assert patterns, "no grant allows an empty set of hosts"
    alternatives = [_spelt(pattern.name) for pattern in patterns if not pattern.below]
    if below := [_spelt(pattern.name) for pattern in patterns if pattern.below]:
        alternatives.append(rf"(?:{_ANY_LABEL}\.)+{one_of(below)}")
    return one_of(alternatives)


def one_of(alternatives: Iterable[str]) -> str:
    """An expression for any of these, which are expressions."""
    return f"(?:{'|'.join(alternatives)})"


def literal(text: str) -> str:
    """An expression for this text, as it stands."""
    return _SYNTAX.sub(r"\\\g<0>", text)


def either_case(text: str) -> str:
    """An expression for this text, with its letters in either case: a pattern has no flags."""
    return "".join(f"[{letter.upper()}{letter}]" if letter.isalpha() else literal(letter) for letter in text)


def _spelt(host: str) -> str:
    return literal(host) if host.startswith("[") else either_case(host)
