"""How documents cross the wire: parsed strictly, in the case of whoever defines them.

Every JSON body is read by the core's strict parser before any model sees it, so duplicate members, NaN,
oversize and deep bodies are refused once, here, for every route.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

import pydantic
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, StringConstraints
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException

from app.core.grant import parse_time, render_time
from app.core.strict_json import JsonValue, StrictJsonError, parse

MAX_BODY_BYTES = 262_144
MAX_BODY_DEPTH = 32


class Document(BaseModel):
    """Base of our own documents: camelCase, nothing coerced, nothing unknown."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="forbid", strict=True
    )


class QueryDocument(BaseModel):
    """Base of query strings: an unknown name is refused, since a misspelled filter would silently show too much."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="forbid")


class OAuthDocument(BaseModel):
    """Base of OAuth's documents: members named as the RFCs name them."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _time(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_time(value)
    except ValueError as error:
        raise ValueError("must be a time with its offset, as in 2026-01-31T12:00:00Z (RFC 3339)") from error


Time = Annotated[
    datetime,
    BeforeValidator(_time),
    PlainSerializer(render_time, return_type=str),
    Field(json_schema_extra={"format": "date-time"}),
]
"""An RFC 3339 time with its offset."""

Json: TypeAlias = pydantic.JsonValue
"""Any JSON value in a document; pydantic can't resolve the core's own recursive alias."""

Members = dict[str, Json]
"""An object whose members are not ours to name."""

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@/-]*$")]
"""An id that people choose: a tenant, a client, a run."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""A tool server's name: one path segment."""

ToolSpelling = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_./-]+$")]
"""A tool's name, bare or as `server/tool`."""

Text = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Uri = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[a-z][a-z0-9+.-]*:[^\s#]+$")]
"""An absolute URI without a fragment (RFC 8707 §2)."""


def _some_uris(value: object) -> object:
    """Said in one sentence: pydantic would say of each alternative why it is not that one."""
    for uri in value if isinstance(value, list) and value else [value]:
        if not isinstance(uri, str) or not _URI.fullmatch(uri):
            raise ValueError("must be an absolute URI without a fragment, or a list of such")
    return value


def _a_number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")  # noqa: TRY004 (pydantic takes no other for a fault of the value)
    return value


_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*:[^\s#]+")
Audiences = Annotated[Uri | Annotated[list[Uri], Field(min_length=1)], BeforeValidator(_some_uris)]
"""One tool server or several, by their URIs."""

Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
MAX_CENTS: Final = 900_719_925_474
Cents = Annotated[
    int | float,
    BeforeValidator(_a_number),
    Field(
        ge=0,
        le=MAX_CENTS,
        description="decimal cents, at most four decimal places",
        # Pydantic says nothing of a union's bounds.
        json_schema_extra={"minimum": 0, "maximum": MAX_CENTS},
    ),
]


TAGS: Final = ("one call", "a list of calls")
"""Names of alternatives in a body's type; with their spaces they are no member's, and no pointer shows them."""

MAX_BODY_SECONDS: Final = 30


class BodyRefused(HTTPException):
    """A body that never became a document: its status, and the member where it went wrong."""

    def __init__(self, status_code: int, detail: str, pointer: str = "") -> None:
        super().__init__(status_code=status_code, detail=detail)
        self.pointer = pointer


class StrictRequest(Request):
    """A request whose body is bounded while it is read, and whose JSON is parsed by the core."""

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            try:
                async with asyncio.timeout(MAX_BODY_SECONDS):
                    self._body = await self._read()
            except TimeoutError as error:
                raise BodyRefused(408, f"the body took longer than {MAX_BODY_SECONDS} seconds") from error
        return self._body

    async def _read(self) -> bytes:
        body = bytearray()
        async for chunk in self.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise BodyRefused(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
        return bytes(body)

    async def json(self) -> JsonValue:
        try:
            return parse(await self.body(), max_bytes=MAX_BODY_BYTES, max_depth=MAX_BODY_DEPTH)
        except StrictJsonError as error:
            raise BodyRefused(400, error.detail, error.pointer) from error


def _has_body(request: Request) -> bool:
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"


def media_type(request: Request) -> str:
    """The body's media type without its parameters (RFC 9110 §8.3.1), empty where none is given."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


class StrictRoute(APIRoute):
    """A route whose handler sees a StrictRequest."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        takes_body = self.body_field is not None

        async def handle(request: Request) -> Response:
            # Starlette's patterns end in `$`, which also matches before a line's end: a name would be cut unseen.
            if str(request.scope["path"]).endswith("\n"):
                raise HTTPException(404)
            if takes_body and _has_body(request) and media_type(request) != "application/json":
                raise BodyRefused(415, "the body must be sent as Content-Type: application/json")
            return await handler(StrictRequest(request.scope, request.receive))

        return handle
