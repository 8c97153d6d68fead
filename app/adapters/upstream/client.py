"""The one HTTP client through which every tool server is reached.

Knows how bytes travel: which addresses may be connected to, how long an exchange may take, how large an
answer may be, and whether a failed request may have left this machine. Everything is sent once: no redirect
is followed, nothing is repeated. Refuses to know what the bytes mean, and names no address in a sentence.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from math import inf
from typing import Final

from aiohttp import (
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientError,
    ClientHandlerType,
    ClientOSError,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientSSLError,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    InvalidURL,
    ServerDisconnectedError,
    TCPConnector,
)
from yarl import URL

from app.adapters.upstream.addresses import AddressPolicy, is_literal, may_connect
from app.adapters.upstream.resolver import AddressRefusedError, CheckedResolver, ResolverBusyError
from app.core.registry import may_carry_credential

CONNECT_SHARE: Final = 0.5
"""The part of the time left that connecting may take; so a time-out says whether anything was sent."""

KEEP_ALIVE_SECONDS: Final = 4.0
"""Less than servers commonly keep an idle connection, so that they seldom close one just as we use it."""

ERRAND_SECONDS: Final = 1.0
MAX_ERRAND_BYTES: Final = 65_536
MAX_ERRANDS: Final = 1000

_FIELD_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")


class NotSentError(Exception):
    """The request provably did not leave, so nothing can have happened behind it."""

    def __init__(self, detail: str, *, timed_out: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.timed_out = timed_out


class LostError(Exception):
    """The request may have arrived, and no whole answer came back."""

    def __init__(self, detail: str, *, timed_out: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.timed_out = timed_out


class UnusableError(Exception):
    """The tool server did answer, with something that can't be handed on."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class Reply:
    """An answer whose status and header fields are here, and whose body is still to be read."""

    def __init__(self, response: ClientResponse, max_bytes: int) -> None:
        self.status = response.status
        self.is_ending = False
        """Set by who has read all that matters, of an answer that has no length and is about to end."""
        self._response = response
        self._bytes_left = max_bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300  # noqa: PLR2004 - "successful", RFC 9110 §15.3

    @property
    def media_type(self) -> str:
        return (self.field("Content-Type") or "").partition(";")[0].strip().lower()

    def field(self, name: str) -> str | None:
        return self._response.headers.get(name)

    async def read(self) -> bytes:
        """The whole body."""
        chunks = []
        while chunk := await self.chunk():
            chunks.append(chunk)
        return b"".join(chunks)

    async def chunk(self) -> bytes:
        """What has arrived of the body since the last chunk, waiting for it; empty at the end.

        Raises UnusableError once the body is larger than allowed, having read hardly more than that.
        """
        self._refuse_encoded()
        chunk = await self._response.content.readany()
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            raise UnusableError("the tool's answer was larger than allowed")
        return chunk

    def allow_beside(self, more_bytes: int) -> None:
        """Let the body hold so much beside what was asked for, whose size its reader minds."""
        self._bytes_left += more_bytes

    def _refuse_encoded(self) -> None:
        # Only plain bytes were asked for, so that a small answer can't unpack into a large one.
        if (self.field("Content-Encoding") or "identity").lower() != "identity":
            raise UnusableError("the tool's answer was compressed, which it was not asked to be")


class UpstreamClient:
    """A pool of connections for one process and one event loop, made when it is first used."""

    def __init__(self, *, addresses: AddressPolicy, max_connections: int, max_connections_per_server: int) -> None:
        self._addresses = addresses
        self._resolver = CheckedResolver(addresses)
        self._limits = (max_connections, max_connections_per_server)
        self._session: ClientSession | None = None
        self._errands: set[asyncio.Task[None]] = set()
        self._closed = False

    def endpoint(self, spelling: str) -> URL:
        """A tool server's endpoint, if it may be used at all; else raises NotSentError."""
        return _endpoint(spelling, self._addresses)

    @asynccontextmanager
    async def exchange(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        deadline: float,
        max_bytes: int,
    ) -> AsyncIterator[Reply]:
        """Send one request and hand out its answer, to be read within the block.

        `deadline` is a time of the loop, for everything together. Raises NotSentError, LostError or
        UnusableError.
        """
        session, timeout = self._opened(), _time_left(deadline)
        try:
            response = await session.request(
                method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            )
            reply = Reply(response, max_bytes)
            try:
                yield reply
            finally:
                self._let_go(response, is_ending=reply.is_ending)
        except (ClientConnectorError, ConnectionTimeoutError, InvalidURL) as error:
            raise _not_sent(error) from error
        except TimeoutError as error:
            raise LostError("the tool did not answer in time", timed_out=True) from error
        except (ClientError, OSError) as error:
            raise LostError("the connection broke before the tool had answered") from error

    def errand(self, method: str, url: URL, *, headers: Mapping[str, str], body: bytes | None = None) -> None:
        """Send something polite but dispensable in the background; over within ERRAND_SECONDS."""
        if len(self._errands) < MAX_ERRANDS:
            self._aside(self._run_errand(method, url, headers, body))

    async def aclose(self) -> None:
        await asyncio.gather(*self._errands, return_exceptions=True)
        self._closed = True
        if self._session is not None:
            await self._session.close()
        await self._resolver.close()

    def _aside(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    def _let_go(self, response: ClientResponse, *, is_ending: bool) -> None:
        if is_ending and not response.content.at_eof() and len(self._errands) < MAX_ERRANDS:
            self._aside(_see_out(response))
        else:
            response.release()

    async def _run_errand(self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None) -> None:
        deadline = asyncio.get_running_loop().time() + ERRAND_SECONDS
        with suppress(NotSentError, LostError, UnusableError):
            async with self.exchange(
                method, url, headers=headers, body=body, deadline=deadline, max_bytes=MAX_ERRAND_BYTES
            ) as reply:
                # Read to its end, so that the connection can be used again.
                await reply.read()

    def _opened(self) -> ClientSession:
        if self._closed:
            raise NotSentError("the gateway is shutting down")
        if self._session is None:
            self._session = self._open()
        return self._session

    def _open(self) -> ClientSession:
        total, per_server = self._limits
        connector = TCPConnector(
            resolver=self._resolver,
            limit=total,
            limit_per_host=per_server,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
        )
        return ClientSession(
            connector=connector,
            headers={"User-Agent": "subgrant", "Accept-Encoding": "identity"},
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            middlewares=(_once,),
        )


def with_credential(credential: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, str]:
    """Our own header fields and the gateway's credential; raises NotSentError where it is no plain field."""
    for name, value in credential.items():
        if not _FIELD_NAME.fullmatch(name) or not _FIELD_VALUE.fullmatch(value):
            raise NotSentError("the tool server's credential is no valid header field")
        if not may_carry_credential(name):
            raise NotSentError("the tool server's credential would replace a header field of the protocol")
    return {**headers, **credential}


@lru_cache(maxsize=1024)
def _endpoint(spelling: str, addresses: AddressPolicy) -> URL:
    try:
        url = URL(spelling)
    except ValueError as error:
        raise NotSentError("the tool server's endpoint is no URL") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise NotSentError("the tool server's endpoint is no http or https URL")
    if url.user is not None or url.password is not None or url.fragment:
        raise NotSentError("the tool server's endpoint carries more than an address")
    # The resolver never sees an address that is written out, and a pooled connection asks no resolver.
    if is_literal(url.host) and not may_connect(url.host, addresses):
        raise NotSentError("the tool server's address is not allowed")
    return url


def _time_left(deadline: float) -> ClientTimeout:
    left = deadline - asyncio.get_running_loop().time()
    if left <= 0:
        raise NotSentError("there was no time left to send the call", timed_out=True)
    return ClientTimeout(total=left, connect=left * CONNECT_SHARE, ceil_threshold=inf)


def _not_sent(error: ClientError) -> NotSentError:
    match error:
        case ConnectionTimeoutError():
            return NotSentError("the tool server could not be reached in time", timed_out=True)
        case ClientConnectorDNSError(os_error=AddressRefusedError()):
            return NotSentError("the tool server's address is not allowed")
        case ClientConnectorDNSError(os_error=ResolverBusyError()):
            return NotSentError("too many names of tool servers are being resolved at once")
        case ClientConnectorDNSError():
            return NotSentError("the tool server's name could not be resolved")
        case ClientSSLError():
            return NotSentError("the tool server offered no TLS connection that can be trusted")
        case _:
            return NotSentError("the tool server could not be reached")


async def _see_out(response: ClientResponse) -> None:
    """Wait for the end of an answer that should come at once; then the connection can be used again."""
    try:
        with suppress(ClientError, OSError):
            async with asyncio.timeout(ERRAND_SECONDS):
                await response.content.readany()
    finally:
        # A connection whose answer has not ended is closed by this.
        response.release()


async def _once(request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
    # aiohttp repeats GET, PUT and DELETE on a connection that broke. By then a tool may have run, whatever
    # its method is. So the error becomes one that aiohttp does not know.
    try:
        return await send(request)
    except ClientConnectorError:
        raise
    except (ClientOSError, ServerDisconnectedError) as error:
        raise LostError("the connection broke before the tool had answered") from error
