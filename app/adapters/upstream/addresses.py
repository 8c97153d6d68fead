"""Which network addresses the gateway may connect to.

Knows ranges of addresses and nothing else: no name, no connection. IPv4 is public unless it is listed here,
IPv6 only inside the range that is assigned as global unicast. The standard library's own idea of what is
global differs between patch releases of one Python, so it is not asked.
"""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Literal

AddressPolicy = Literal["public", "loopback", "private"]
"""Public addresses only; those and this machine's own; or those and the internal network's as well."""

_Network = IPv4Network | IPv6Network


def _networks(*spellings: str) -> Sequence[_Network]:
    return tuple(ip_network(spelling) for spelling in spellings)


_LOOPBACK: Final = _networks("127.0.0.0/8", "::1/128")
_NEVER: Final = _networks(
    "0.0.0.0/8",  # unspecified; Linux connects it to loopback
    "127.0.0.0/8",  # inside a NAT64 address: the loopback of another machine
    "100.100.100.200/32",  # a cloud's metadata service, inside the shared address space
    "168.63.129.16/32",  # another's, at a public address
    "169.254.0.0/16",  # link-local, where most metadata services are
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",  # multicast
    "240.0.0.0/4",  # reserved, broadcast
    "2001::/23",  # protocol assignments, Teredo among them, which hides an IPv4 address
    "2001:db8::/32",
    "2002::/16",  # 6to4, likewise
    "3fff::/20",
    "fd00:ec2::/32",  # metadata services again
    "fd20:ce::/32",
)
_PRIVATE: Final = _networks(
    "10.0.0.0/8",
    "100.64.0.0/10",  # shared address space (RFC 6598)
    "172.16.0.0/12",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "fc00::/7",
)
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")


@lru_cache(maxsize=4096)
def may_connect(spelling: str, policy: AddressPolicy) -> bool:
    """Whether an address in text may be connected to. What is no address may not."""
    try:
        address = ip_address(spelling)
    except ValueError:
        return False
    if _is_in(_LOOPBACK, address):
        return policy != "public"
    if address in _NAT64:
        # An IPv6-only network reaches the IPv4 world through these; the address that counts is inside.
        address = IPv4Address(int(address) & 0xFFFF_FFFF)
    if _is_in(_NEVER, address):
        return False
    if _is_in(_PRIVATE, address):
        return policy == "private"
    return isinstance(address, IPv4Address) or address in _GLOBAL_UNICAST


def _is_in(networks: Sequence[_Network], address: IPv4Address | IPv6Address) -> bool:
    return any(address in network for network in networks)


def is_literal(host: str) -> bool:
    """Whether a URL's host is an address itself, which no resolver is asked about."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
