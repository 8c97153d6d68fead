"""Which addresses may be connected to, and which never."""

from typing import get_args

import pytest

from app.adapters.upstream.addresses import AddressPolicy, may_connect

POLICIES: tuple[AddressPolicy, ...] = get_args(AddressPolicy)

PUBLIC = ("8.8.8.8", "192.0.1.1", "172.32.0.1", "2606:4700::1111", "2a00:1450:4001::1", "64:ff9b::808:808")
LOOPBACK = ("127.0.0.1", "127.255.255.254", "::1")
PRIVATE = (
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "198.18.0.1",
    "fc00::1",
    "fdff::1",
    "64:ff9b::a00:1",
)
FORBIDDEN = (
    "0.0.0.0",  # noqa: S104 - to be refused
    "0.1.2.3",
    "169.254.0.1",
    "169.254.169.254",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.2.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::",
    "3fff::1",
    "4000::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "febf::1",
    "fec0::1",
    "ff02::1",
)
NO_ADDRESS = ("", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::1]", "1.2.3.4.5")


def policies_for(address: str) -> list[AddressPolicy]:
    return [policy for policy in POLICIES if may_connect(address, policy)]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_always_allowed(address: str) -> None:
    assert policies_for(address) == ["public", "loopback", "private"]


@pytest.mark.parametrize("address", LOOPBACK)
def test_a_loopback_address_needs_the_setting(address: str) -> None:
    assert policies_for(address) == ["loopback", "private"]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_not_opened_with_loopback(address: str) -> None:
    assert policies_for(address) == ["private"]


@pytest.mark.parametrize("address", [*FORBIDDEN, *NO_ADDRESS])
def test_no_setting_opens_the_rest(address: str) -> None:
    assert policies_for(address) == []
