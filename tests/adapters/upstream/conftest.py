"""An upstream that may reach the loopback servers of the tests, and the names that they go by."""

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from app.adapters.upstream import ToolUpstream
from app.adapters.upstream.addresses import is_literal


@pytest.fixture
async def upstream() -> AsyncIterator[ToolUpstream]:
    upstream = ToolUpstream(addresses="loopback")
    yield upstream
    await upstream.aclose()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, list[str]]], None]:
    """Set what the resolver says: addresses by name. Any other name has none."""
    known: dict[str, list[str]] = {}

    def getaddrinfo(host: str, port: int, *_hints: object, **_more: object) -> list[Any]:
        addresses = [host] if is_literal(host) else known.get(host)
        if addresses is None:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [_address_info(address, port) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return known.update


def _address_info(address: str, port: int) -> tuple[Any, ...]:
    if ":" in address:
        return (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0))
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
