"""What the documents of administration have in common: words, queries, pages, limits, and what a PATCH means."""

from collections.abc import Collection
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from fastapi import Depends, Query
from fastapi.exceptions import RequestValidationError
from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from app.api.caller import AuthenticatedCaller, TenantQuery, require
from app.api.wire import Cents, Count, Document, QueryDocument
from app.core.budget import Amount, cents_to_ucents, ucents_to_cents
from app.core.grant import TenantId
from app.core.registry import Scope, Window
from app.core.resource_rules import TYPE_PATTERN
from app.core.strict_json import JsonObject
from app.usecases.administration import PageRequest
from app.usecases.failures import Malformed
from app.usecases.world import Caller

Wanted = TypeVar("Wanted", bound=Document)

Status = Literal["active", "disabled"]
Line = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""One line of text for people."""

ResourceType = Annotated[str, StringConstraints(pattern=f"^{TYPE_PATTERN}$")]
"""A type of things, as the directory has it."""

YEAR_SECONDS: Final = 31_536_000


def _exact(cents: float) -> float:
    cents_to_ucents(cents)
    return cents


ExactCents = Annotated[Cents, AfterValidator(_exact)]
"""Cents that are kept exactly. Raises where they have more than four decimal places."""


# --- who and where ----------------------------------------------------------------------------------------


async def _administrator(caller: AuthenticatedCaller) -> Caller:
    require(caller, Scope.ADMIN, Scope.PLATFORM)
    return caller


async def _platform_administrator(caller: AuthenticatedCaller) -> Caller:
    require(caller, Scope.PLATFORM)
    return caller


Administrator = Annotated[Caller, Depends(_administrator)]
PlatformAdministrator = Annotated[Caller, Depends(_platform_administrator)]


class NoQuery(QueryDocument):
    """No parameters."""


class PageQuery(QueryDocument):
    """Which part of a list: at most `limit` rows behind the cursor `after`, which is the last page's `next`."""

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    after: Line | None = None

    @property
    def page(self) -> PageRequest:
        return PageRequest(after=self.after, limit=self.limit)


class TenantPageQuery(PageQuery, TenantQuery):
    """Which part of a tenant's list."""


def tenant_named(caller: Caller, query: TenantQuery, in_body: str | None) -> TenantId:
    """The tenant that a request with a body is about. Raises Malformed where it names two."""
    if in_body is not None and query.tenant not in (None, in_body):
        raise Malformed("/tenantId", "names another tenant than the query does")
    return query.of(caller) if in_body is None else TenantId(in_body)


NothingAsked = Annotated[NoQuery, Query()]
InTenant = Annotated[TenantQuery, Query()]
PageAsked = Annotated[PageQuery, Query()]
PageInTenant = Annotated[TenantPageQuery, Query()]


# --- limits -----------------------------------------------------------------------------------------------


class WindowLimits(Document):
    """A cumulative limit per window of time, whatever grants are minted in it; all three members or none."""

    window_seconds: Annotated[int, Field(ge=1, le=YEAR_SECONDS)] | None = None
    window_max_tool_calls: Count | None = None
    window_max_spend_cents: ExactCents | None = None

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        given = (self.window_seconds, self.window_max_tool_calls, self.window_max_spend_cents)
        if None in given and given != (None, None, None):
            raise ValueError("windowSeconds, windowMaxToolCalls and windowMaxSpendCents are all needed, or none")
        return self

    @property
    def window(self) -> Window | None:
        """The same, for the registry."""
        calls, cents = self.window_max_tool_calls, self.window_max_spend_cents
        if self.window_seconds is None or calls is None or cents is None:
            return None
        return Window(
            length=timedelta(seconds=self.window_seconds),
            limit=Amount(tool_calls=calls, spend_ucents=cents_to_ucents(cents)),
        )


def window_members(window: Window | None) -> JsonObject:
    """A window as the members of `limits`."""
    if window is None:
        return {}
    return {
        "windowSeconds": int(window.length.total_seconds()),
        "windowMaxToolCalls": window.limit.tool_calls,
        "windowMaxSpendCents": ucents_to_cents(window.limit.spend_ucents),
    }


def status_of(*, active: bool) -> Status:
    return "active" if active else "disabled"


# --- PATCH ------------------------------------------------------------------------------------------------


def merged(wanted: type[Wanted], stored: Document, patch: Document, *, defaulted: Collection[str] = ()) -> Wanted:
    """The document that a PATCH asks for (RFC 7396): what is given replaces, null removes.

    What is then left out takes its default. `limits` are patched member by member, so that lowering one lifts
    no other; anything else is replaced whole. `defaulted` are members
    whose stored value was only ever a default, and follows what it is the default of. The whole is read as if
    it had been sent as a new document, so a PATCH can't say what a POST could not.
    """
    document = stored.model_dump(mode="json", by_alias=True, exclude_unset=True)
    given = patch.model_dump(mode="json", by_alias=True, exclude_unset=True)
    kept = {name: value for name, value in document.items() if name not in defaulted}
    known = {field.alias for field in wanted.model_fields.values()}
    if isinstance(given.get(LIMITS), dict):
        given[LIMITS] = _without_nulls(kept.get(LIMITS, {}) | given[LIMITS])
    members = {name: value for name, value in _without_nulls(kept | given).items() if name in known}
    try:
        return wanted.model_validate(members)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError([{**fault, "loc": ("body", *fault["loc"])} for fault in faults]) from None


LIMITS: Final = "limits"


def _without_nulls(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


# --- OpenAPI ----------------------------------------------------------------------------------------------
