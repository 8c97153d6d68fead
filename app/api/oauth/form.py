"""Forms, read strictly: what is said twice, or can be read in two ways, is refused (RFC 6749 §3.2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from app.api.oauth.failures import OAuthError
from app.api.wire import BodyRefused, StrictRequest, media_type
from app.usecases.world import Possession

REPEATABLE: Final = frozenset({"resource", "audience"})
MAX_PARAMETERS: Final = 64


@dataclass(frozen=True)
class Form:
    """A parsed form: each parameter once, but for those that may repeat. An empty one counts as left out."""

    values: Mapping[str, tuple[str, ...]]
    possession: Possession | None = None
    """The key that a DPoP proof proved beside it, where one may (RFC 9449 §5)."""

    def one(self, name: str) -> str | None:
        values = self.values.get(name)
        return None if values is None else values[0]

    def need(self, name: str) -> str:
        value = self.one(name)
        if value is None:
            raise OAuthError("invalid_request", f"the parameter {name} is missing")
        return value

    def all(self, name: str) -> tuple[str, ...]:
        return self.values.get(name, ())


async def form_of(request: Request) -> Form:
    """The request's form, read strictly (RFC 6749 §3.2: a parameter occurs once)."""
    if media_type(request) != "application/x-www-form-urlencoded":
        raise OAuthError("invalid_request", "the body must be application/x-www-form-urlencoded")
    try:
        body = await StrictRequest(request.scope, request.receive).body()
    except BodyRefused as error:  # an OAuth client expects OAuth's error (RFC 6749 §5.2)
        raise OAuthError("invalid_request", error.detail, status=error.status_code) from error
    return read_form(body)


def read_form(text: bytes) -> Form:
    """The parameters of a form, or of a query, which is spelt alike. Raises OAuthError."""
    try:
        pairs = parse_qsl(
            text.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(text),
            max_num_fields=MAX_PARAMETERS,
            errors="strict",
        )
    except ValueError as error:
        raise OAuthError("invalid_request", "the body is no well-formed form") from error
    values: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    for name, value in pairs:
        if name in seen and name not in REPEATABLE:
            raise OAuthError("invalid_request", "a parameter is repeated")
        seen.add(name)
        if value:
            values[name] = (*values.get(name, ()), value)
    return Form(values)


TheForm = Annotated[Form, Depends(form_of)]
