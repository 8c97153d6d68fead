"""The service's signing keys: which there are, a new one, the end of one. For platform administrators only.

Private halves have no way in and none out: no document here has a member for one.
"""

from datetime import timedelta
from typing import Annotated, Literal, Self

from fastapi import APIRouter
from pydantic import Field, StringConstraints

from app.api.admin.documents import NothingAsked, PageAsked, PlatformAdministrator
from app.api.caller import TheWorld
from app.api.errors import allowed
from app.api.wire import Document, StrictRoute, Time
from app.usecases.rotate_keys import KeyState, KeyStatus, Retirement, list_keys, retire_key, rotate_key

router = APIRouter(prefix="/keys", route_class=StrictRoute)

MAX_LEAD_SECONDS = 2_592_000

Kid = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""The thumbprint of a key (RFC 7638)."""


class RotationRequest(Document):
    """How a new key is to take over."""

    lead_seconds: Annotated[int, Field(ge=0, le=MAX_LEAD_SECONDS)] | None = Field(
        default=None,
        description="how long it is published by every worker before it signs; a setting is the default",
    )

    @property
    def lead(self) -> timedelta | None:
        return None if self.lead_seconds is None else timedelta(seconds=self.lead_seconds)


class RetirementRequest(Document):
    """How a key is to end."""

    dry_run: bool = Field(default=False, description="retire nothing, and say what would end with it")


class KeyDocument(Document):
    kid: str
    alg: Literal["EdDSA", "ES256"]
    created_at: Time
    signs_from: Time
    status: KeyStatus
    retired_at: Time | None = None

    @classmethod
    def of(cls, state: KeyState) -> Self:
        key = state.key
        members = {"kid": key.kid, "alg": key.alg, "created_at": key.created_at, "signs_from": key.signs_from}
        retired = {} if key.retired_at is None else {"retired_at": key.retired_at}
        return cls.model_validate(members | retired | {"status": state.status})


class KeyPage(Document):
    items: list[KeyDocument]
    next: str | None


class RetirementDocument(Document):
    key: KeyDocument
    live_grants: int = Field(description="how many live grants rest on it, children of those that it signed included")

    @classmethod
    def of(cls, retirement: Retirement) -> Self:
        return cls(key=KeyDocument.of(retirement.state), live_grants=retirement.live_grants)


@router.get("", summary="List signing keys in the order in which they were made", response_model_exclude_unset=True)
async def page(world: TheWorld, caller: PlatformAdministrator, query: PageAsked) -> KeyPage:
    """Without their private halves; retired ones too."""
    found = allowed(await list_keys(world, caller, query.page))
    return KeyPage(items=[KeyDocument.of(state) for state in found.items], next=found.next)


@router.post("/rotate", status_code=201, summary="Make a new signing key", response_model_exclude_unset=True)
async def rotate(
    world: TheWorld, caller: PlatformAdministrator, _: NothingAsked, body: RotationRequest | None = None
) -> KeyDocument:
    """It is published at once, signs from `signsFrom` on, and ends nothing: what older keys signed stays valid."""
    asked = body or RotationRequest()
    return KeyDocument.of(allowed(await rotate_key(world, caller, asked.lead)))


@router.post("/{kid}/retire", summary="Retire a signing key", response_model_exclude_unset=True)
async def retire(
    world: TheWorld, caller: PlatformAdministrator, _: NothingAsked, kid: Kid, body: RetirementRequest | None = None
) -> RetirementDocument:
    """Answered once no worker accepts what it signed: tokens, and grants with all that was derived from them.

    409 for the only key that signs.
    """
    asked = body or RetirementRequest()
    return RetirementDocument.of(allowed(await retire_key(world, caller, kid, dry_run=asked.dry_run)))
