"""Names that hang: they hold up nobody else, and only so many of them are waited for."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app.adapters.upstream import ToolUpstream, resolver
from app.ports import Outcome, UpstreamAnswer
from tests.adapters.upstream.servers import a_request

pytestmark = pytest.mark.anyio

TIMED_OUT = UpstreamAnswer(
    outcome=Outcome.UNSENT, detail="the tool server could not be reached in time", timed_out=True
)
UNRESOLVED = UpstreamAnswer(outcome=Outcome.UNSENT, detail="the tool server's name could not be resolved")
BUSY = UpstreamAnswer(outcome=Outcome.UNSENT, detail="too many names of tool servers are being resolved at once")


class HangingDns:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.over = threading.Event()

    def getaddrinfo(self, host: str, *_hints: object, **_more: object) -> list[Any]:
        self.asked.append(host)
        self.over.wait()
        raise socket.gaierror(socket.EAI_NONAME, "no such name")


@pytest.fixture
async def dns(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HangingDns]:
    dns = HangingDns()
    monkeypatch.setattr(socket, "getaddrinfo", dns.getaddrinfo)
    yield dns
    # Before the loop ends, which waits for its own threads.
    dns.over.set()


async def calls(upstream: ToolUpstream, *names: str) -> list[UpstreamAnswer]:
    requests = [a_request(f"http://{name}.test", timeout_seconds=0.2) for name in names]
    return await asyncio.gather(*map(upstream.call, requests))


async def test_names_that_hang_hold_up_no_other_work_of_the_process(dns: HangingDns, upstream: ToolUpstream) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    assert await calls(upstream, "a", "b", "c") == [TIMED_OUT] * 3
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "done"), 5) == "done"


async def test_beyond_so_many_look_ups_a_call_is_unsent_at_once(
    dns: HangingDns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "THREADS", 1)
    monkeypatch.setattr(resolver, "MAX_WAITING", 1)
    upstream = ToolUpstream()
    assert await calls(upstream, "runs", "waits", "refused") == [TIMED_OUT, TIMED_OUT, BUSY]
    # Those calls are over, their look-ups are not.
    assert await calls(upstream, "later") == [BUSY]
    dns.over.set()
    # The thread takes one after the other, so that after these both have ended.
    answers = [await upstream.call(a_request(f"http://{name}.test")) for name in ("waits", "free")]
    assert answers == [UNRESOLVED] * 2
    assert set(dns.asked) == {"runs.test", "waits.test", "free.test"}
    await upstream.aclose()


async def test_closing_waits_for_no_look_up_and_begins_none(dns: HangingDns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "THREADS", 1)
    upstream = ToolUpstream()
    await calls(upstream, "runs", "waits")
    await asyncio.wait_for(upstream.aclose(), 5)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("resolver")]
    dns.over.set()
    for thread in threads:
        thread.join(5)
    assert (dns.asked, [thread.is_alive() for thread in threads]) == (["runs.test"], [False])
