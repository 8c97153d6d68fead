"""Tools behind plain HTTP: arguments become a path, a query or a JSON body, and an answer becomes a result.

Knows how a binding lays out a request, and how statuses and bodies are read. Whether the arguments are
permitted was decided before; what is sent here is exactly those, in canonical form (RFC 8785).
"""

import re
from contextlib import suppress
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlencode

from yarl import URL

from app.adapters.upstream.client import NotSentError, Reply, UnusableError, UpstreamClient, with_credential
from app.core.registry import HttpBinding
from app.core.strict_json import JsonObject, JsonValue, StrictJsonError, canonical, parse
from app.ports import Outcome, UpstreamAnswer, UpstreamRequest

MAX_RESULT_DEPTH: Final = 64

_BODY_METHODS: Final = frozenset({"POST", "PUT", "PATCH"})
_QUERY_METHODS: Final = frozenset({"GET", "DELETE"})
_PLACEHOLDER: Final = re.compile(r"\{([^{}]+)\}")
_PATH_CHARACTERS: Final = "/:@!$&'()*+,;=~%"
_ACCEPT: Final = {"Accept": "application/json"}
_ACCEPT_AND_TYPE: Final = {**_ACCEPT, "Content-Type": "application/json"}


class MisplacedError(NotSentError):
    """An argument that the binding has no place for: not the tool server's fault, but the caller's."""

    def __init__(self, name: str, flaw: str) -> None:
        super().__init__(f"the argument '{name}' {flaw}")
        self.name = name


async def call(client: UpstreamClient, request: UpstreamRequest, deadline: float) -> UpstreamAnswer:
    """Run one tool; raises NotSentError, LostError or UnusableError."""
    url, body = compose(client.endpoint(request.endpoint), request.http, request.arguments)
    headers = with_credential(request.headers, _ACCEPT if body is None else _ACCEPT_AND_TYPE)
    async with client.exchange(
        request.http.method,
        url,
        headers=headers,
        body=body,
        deadline=deadline,
        max_bytes=request.max_response_bytes,
    ) as reply:
        return await (_success(reply) if reply.is_success else _failure(reply))


# --- the request ------------------------------------------------------------------------------------------


def compose(endpoint: URL, binding: HttpBinding, arguments: JsonObject) -> tuple[URL, bytes | None]:
    """Where the arguments go; raises NotSentError where the binding has no place for one of them."""
    literals, names = _template(binding.path)
    path = _joined(endpoint.raw_path, _filled(literals, names, [_segment(name, arguments) for name in names]))
    rest = {name: value for name, value in arguments.items() if name not in names}
    if binding.method in _BODY_METHODS:
        return _url(endpoint, path, endpoint.raw_query_string), canonical(rest)
    if binding.method in _QUERY_METHODS:
        if rest and endpoint.raw_query_string:
            # Which of two parameters counts, and which names are the same, every server decides for itself.
            raise NotSentError("the tool's arguments would stand beside the query that its endpoint has")
        return _url(endpoint, path, endpoint.raw_query_string or _query(rest)), None
    raise NotSentError("the tool is bound to an HTTP method that the gateway does not send")


@lru_cache(maxsize=1024)
def _template(path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fixed parts of a path template, encoded, and the names between them."""
    parts = _PLACEHOLDER.split(path)
    return tuple(quote(part, safe=_PATH_CHARACTERS) for part in parts[::2]), tuple(parts[1::2])


def _segment(name: str, arguments: JsonObject) -> str:
    """An argument as one path segment, or part of one: it can neither end the segment nor climb out of it."""
    value = arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise MisplacedError(name, "belongs in the tool's path and is no string or integer")
    text = str(value)
    if text in {"", ".", ".."} or not text.isprintable() or "/" in text or "\\" in text:
        raise MisplacedError(name, "can't be one segment of the tool's path")
    return quote(text, safe="")


def _filled(literals: tuple[str, ...], names: tuple[str, ...], segments: list[str]) -> str:
    path = literals[0] + "".join(map("".join, zip(segments, literals[1:], strict=True)))
    # No part is a dot segment, but two parts beside each other could make one.
    if not {".", ".."}.isdisjoint(path.split("/")):
        flaw = "would make the tool's path climb out of its place"
        raise MisplacedError(names[0], flaw) if names else NotSentError(f"the binding {flaw}")
    return path


def _joined(base: str, path: str) -> str:
    return f"{base.rstrip('/')}/{path.lstrip('/')}" if path else base


def _url(endpoint: URL, path: str, query: str) -> URL:
    # Encoded already: a URL that normalises would undo what keeps an argument in its segment.
    return URL(f"{endpoint.origin()}{path}{'?' if query else ''}{query}", encoded=True)


def _query(arguments: JsonObject) -> str:
    return urlencode([(name, _scalar(name, arguments[name])) for name in sorted(arguments)], quote_via=quote)


def _scalar(name: str, value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return canonical(value).decode()
    raise MisplacedError(name, "is no string, number or boolean and has no place in a query")


# --- the answer -------------------------------------------------------------------------------------------


async def _success(reply: Reply) -> UpstreamAnswer:
    raw = await reply.read()
    return UpstreamAnswer(outcome=Outcome.SUCCESS, result=_result(raw, reply.media_type))


async def _failure(reply: Reply) -> UpstreamAnswer:
    """Any other status, redirects too: the tool did not do what it was asked, and its body may say why."""
    result: JsonValue = None
    with suppress(UnusableError, StrictJsonError):
        result = _json(await reply.read())
    return UpstreamAnswer(outcome=Outcome.TOOL_ERROR, result=result, detail=f"the tool answered HTTP {reply.status}")


def _result(raw: bytes, media_type: str) -> JsonValue:
    """The JSON value that a body holds; a text that is none, and does not claim to be, as a string."""
    if not raw:
        return None
    try:
        return _json(raw)
    except StrictJsonError as error:
        if media_type == "application/json" or media_type.endswith("+json"):
            raise UnusableError("the tool's answer is no strict JSON") from error
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UnusableError("the tool's answer is neither JSON nor text") from error


def _json(raw: bytes) -> JsonValue:
    return parse(raw, max_bytes=len(raw), max_depth=MAX_RESULT_DEPTH)
