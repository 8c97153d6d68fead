"""`python -m bench.load`: the load generator, in a process of its own so that it slows nobody's event loop.

A closed loop on bare sockets: each connection sends its next request when the last was answered. Takes one
job a line as JSON and answers each with one line. Talks to loopback only, for a bounded time and count.
Refuses to know what the requests mean: an answer is good if it is a 200 that holds the expected text.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle
from time import perf_counter
from typing import Final, cast

import httptools
import uvloop

from bench.child import say_ready

HOST: Final = "127.0.0.1"
LEAD_SECONDS: Final = 0.2
MAX_CALLS: Final = 200_000
PATIENCE_SECONDS: Final = 60
"""For the calls that are under way at either end of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Keep `concurrency` requests under way for `seconds`."""

    port: int
    path: str
    token: str
    bodies: Sequence[str]
    expected: str
    concurrency: int
    seconds: float

    def requests(self) -> list[bytes]:
        """The requests as they go over the wire."""
        return [self._request(body.encode()) for body in self.bodies]

    def _request(self, body: bytes) -> bytes:
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: {HOST}:{self.port}\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nAccept: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


@dataclass(slots=True, kw_only=True)
class Report:
    """What came of a job. Latencies are of the calls that ended within the timed window; all count as calls."""

    calls: int = 0
    good: int = 0
    bad: dict[str, int] = field(default_factory=dict)
    window_seconds: float = 0
    latencies_ms: list[float] = field(default_factory=list)


class Load:
    """One job at work.

    The window opens when every connection has had its first answer, so that start and pools are over and the
    queues are as long as they get; calls still under way at its end are waited for, and not timed.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._loop = asyncio.get_running_loop()
        self._requests = cycle(job.requests())
        self._expected = job.expected.encode()
        self._begun_at = perf_counter()
        self._opened_at = self._closed_at = 0.0
        self._fresh = self._open = job.concurrency
        self._bad: Counter[str] = Counter()
        self._report = Report()
        self._done = self._loop.create_future()

    async def run(self) -> Report:
        connections = [
            (await self._loop.create_connection(lambda: Connection(self), HOST, self._job.port))[1]
            for _ in range(self._job.concurrency)
        ]
        async with asyncio.timeout(self._job.seconds + 2 * PATIENCE_SECONDS):
            for connection in connections:
                connection.begin()
            await self._done
        self._report.bad = dict(self._bad)
        return self._report

    def next_request(self) -> bytes | None:
        """What to send now; None once it is over."""
        if self._closed_at or self._report.calls + self._open > MAX_CALLS:
            return None
        return next(self._requests)

    def answered(self, sent_at: float, status: int, body: bytes, *, is_first: bool) -> None:
        now = perf_counter()
        self._report.calls += 1
        if status == 200 and self._expected in body:
            self._report.good += 1
        else:
            self._bad[f"{status} {body[:200].decode(errors='replace')}"] += 1
        if self._opened_at and not self._closed_at:
            self._report.latencies_ms.append((now - sent_at) * 1000)
            self._report.window_seconds = now - self._opened_at
            if self._report.window_seconds >= self._job.seconds:
                self._closed_at = now
        self._fresh -= is_first
        if not self._fresh and not self._opened_at and now - self._begun_at >= LEAD_SECONDS:
            self._opened_at = now

    def ended(self, fault: str | None = None) -> None:
        """A connection is done, or was lost over a request; the latter ends the job."""
        if fault is not None:
            self._bad[fault] += 1
            self._closed_at = self._closed_at or perf_counter()
        self._open -= 1
        if not self._open and not self._done.done():
            self._done.set_result(None)


class Connection(asyncio.Protocol):
    """One kept connection with one request at a time."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._body: list[bytes] = []
        self._sent_at = 0.0
        self._is_first = True
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of it.
        self._transport = cast("asyncio.Transport", transport)

    def begin(self) -> None:
        assert self._transport is not None, "it is connected"
        request = self._load.next_request()
        if request is None:
            self._is_over = True
            self._transport.close()
            self._load.ended()
            return
        self._body.clear()
        self._sent_at = perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status, body = self._parser.get_status_code(), b"".join(self._body)
        self._load.answered(self._sent_at, status, body, is_first=self._is_first)
        self._is_first = False
        self.begin()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._load.ended(f"the connection was lost: {exc or 'closed'}")


async def _run(job: Job) -> Report:
    return await Load(job).run()


def main() -> None:
    """Serve jobs until the input ends."""
    say_ready()
    # With PYTHONUNBUFFERED, print() forgets the rest of a long line when a signal or a freeze cuts its write.
    with open(sys.stdout.fileno(), "w", encoding="ascii", closefd=False) as output:
        for line in sys.stdin:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                report = runner.run(_run(Job(**json.loads(line))))
            output.write(json.dumps(asdict(report)) + "\n")
            output.flush()


if __name__ == "__main__":
    main()
