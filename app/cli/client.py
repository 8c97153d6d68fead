"""HTTP to a running server: a token for each invocation, one request, and its document or one line why not.

Refuses to know what any document means. No message of its own repeats a token or a secret.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Self
from urllib.parse import quote, quote_plus, urlsplit

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    encode_basic_auth,
)
from yarl import URL

from app.cli.output import ExitCode, Stop, cause
from app.core.strict_json import JsonObject

DEFAULT_URL: Final = "http://127.0.0.1:8700"
TOKEN_PATH: Final = "/oauth/token"

# A tool may take its five minutes; who does not even accept a connection is not there.
TIMEOUT: Final = ClientTimeout(total=None, sock_connect=10, sock_read=330)

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What a bearer token is made of (RFC 6750 §2.1)."""

Query = Mapping[str, str | int | None]
Form = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where a server is, and with what the caller proves who it is."""

    url: str = DEFAULT_URL
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not _is_base(self.url):
            raise Stop("--url: must be an http or https URL without user and query", ExitCode.USAGE)
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise Stop("--token: this is no token", ExitCode.USAGE)

    @property
    def basic(self) -> str:
        """The client's credentials for the header (RFC 6749 §2.3.1: form-encoded first)."""
        if not self.client_id or not self.client_secret:
            raise Stop("credentials are needed: SUBGRANT_CLIENT_ID and SUBGRANT_CLIENT_SECRET", ExitCode.USAGE)
        return encode_basic_auth(quote_plus(self.client_id), quote_plus(self.client_secret))


def _is_base(url: str) -> bool:
    """Whether paths can be added to a URL, and nothing secret is in it."""
    try:
        parts = urlsplit(url)
        # Reading the port is what parses it.
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return False
    is_bare = "@" not in parts.netloc and not parts.query and not parts.fragment
    return has_port and is_bare and parts.scheme in ("http", "https") and bool(parts.hostname)


class ApiClient:
    """One server's API, as one caller."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._base = access.url.rstrip("/")
        self._http = ClientSession(timeout=TIMEOUT)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def get(self, path: str, query: Query | None = None) -> JsonObject:
        return await self.request("GET", path, query=query)

    async def post(self, path: str, body: JsonObject, query: Query | None = None) -> JsonObject:
        return await self.request("POST", path, body=body, query=query)

    async def request(
        self, method: str, path: str, *, body: JsonObject | None = None, query: Query | None = None
    ) -> JsonObject:
        """The document of the answer; empty where there is none."""
        bearer = await self._bearer()
        with _one_line(self._base):
            url = self._url(path, query)
            async with self._http.request(method, url, headers=bearer, json=body, allow_redirects=False) as response:
                return await _document(response)

    async def token(self, form: Form) -> JsonObject:
        """What the token endpoint answers the authenticated client."""
        headers = {"Authorization": self.access.basic}
        with _one_line(self._base):
            url = self._url(TOKEN_PATH)
            async with self._http.post(url, headers=headers, data=form, allow_redirects=False) as response:
                return await _document(response)

    async def stream(self, path: str, query: Query, accept: str) -> AsyncIterator[bytes]:
        """The bytes of an answer as they come."""
        headers = {**await self._bearer(), "Accept": accept}
        with _one_line(self._base):
            url = self._url(path, query)
            async with self._http.get(url, headers=headers, allow_redirects=False) as response:
                if response.status != HTTPStatus.OK:
                    await _document(response)
                async for chunk in response.content.iter_any():
                    yield chunk

    async def _bearer(self) -> Mapping[str, str]:
        token = self.access.token
        if token is None:
            answer = await self.token([("grant_type", "client_credentials")])
            token = str(answer.get("access_token"))
        return {"Authorization": f"Bearer {token}"}

    def _url(self, path: str, query: Query | None = None) -> URL:
        # Encoded already: an id with a slash stays one segment.
        known = {name: str(value) for name, value in (query or {}).items() if value is not None}
        return URL(self._base + path, encoded=True).with_query(known or None)


def segments(*parts: str) -> str:
    """A path of these segments, whatever is in them."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


async def _document(response: ClientResponse) -> JsonObject:
    """The document of a success. Raises Stop with a refusal's reason and detail."""
    text = await response.text(errors="replace")
    try:
        document = json.loads(text or "{}")
    except ValueError:
        document = None
    if response.status < HTTPStatus.MULTIPLE_CHOICES and isinstance(document, dict):
        return document
    raise Stop(_refusal(response.status, document if isinstance(document, dict) else {}))


def _refusal(status: int, document: JsonObject) -> str:
    """A problem (RFC 9457) or an OAuth error (RFC 6749 §5.2) in one line."""
    reason = document.get("reason") or document.get("error")
    detail = document.get("detail") or document.get("error_description")
    if not isinstance(reason, str):
        return f"http_{status}: this is no answer of Subgrant; is the URL right?"
    return f"{reason}: {detail}" if isinstance(detail, str) else reason


@contextmanager
def _one_line(url: str) -> Iterator[None]:
    try:
        yield
    except ClientConnectorError as error:
        raise Stop(f"can't reach {url}: {cause(error.os_error)}", ExitCode.UNREACHABLE) from error
    except TimeoutError as error:
        raise Stop(f"can't reach {url}: no answer in time", ExitCode.UNREACHABLE) from error
    except ClientError as error:
        raise Stop(f"can't reach {url}: the connection broke off", ExitCode.UNREACHABLE) from error
