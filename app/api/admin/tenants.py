"""Tenants: who shares one installation. For platform administrators only."""

from typing import Annotated, Self
from urllib.parse import quote

from fastapi import APIRouter, Response
from pydantic import Field

from app.api.admin.documents import (
    Line,
    NothingAsked,
    PageAsked,
    PlatformAdministrator,
    Status,
    WindowLimits,
    merged,
    status_of,
    window_members,
)
from app.api.caller import TheWorld
from app.api.errors import allowed
from app.api.wire import Document, Identifier, StrictRoute
from app.core.grant import MAX_LINEAGE, TenantId
from app.core.registry import Tenant
from app.usecases.register_tenant import (
    change_tenant,
    disable_tenant,
    list_tenants,
    read_tenant,
    register_tenant,
)
from app.usecases.world import Rules

router = APIRouter(prefix="/tenants", route_class=StrictRoute)

Depth = Annotated[int, Field(ge=0, le=MAX_LINEAGE)]


class TenantRequest(Document):
    """A tenant to register."""

    tenant_id: Identifier
    name: Line
    allow_grant_bearer: bool | None = Field(
        default=None,
        description="whether a DelegationGrant itself may be presented at the gateway; a setting is the default",
    )
    limits: WindowLimits = Field(default_factory=WindowLimits)
    max_depth: Depth | None = Field(
        default=None, description="how deep any delegation may go, whatever its grants say; counts at every call"
    )
    status: Status = "active"

    def tenant(self, rules: Rules) -> Tenant:
        bearer = rules.allow_grant_bearer if self.allow_grant_bearer is None else self.allow_grant_bearer
        return Tenant(
            tenant_id=TenantId(self.tenant_id),
            name=self.name,
            active=self.status == "active",
            allow_grant_bearer=bearer,
            window=self.limits.window,
            max_depth=self.max_depth,
        )


class TenantPatch(Document):
    """Members to change; null takes the default."""

    name: Line | None = None
    allow_grant_bearer: bool | None = None
    limits: WindowLimits | None = None
    max_depth: Depth | None = None
    status: Status | None = None


class TenantDocument(Document):
    tenant_id: str
    name: str
    allow_grant_bearer: bool
    limits: WindowLimits
    max_depth: int | None = None
    status: Status
    policy_version: str = Field(description="the active version of its policies; activating another changes it")

    @classmethod
    def of(cls, tenant: Tenant) -> Self:
        document = cls(
            tenant_id=tenant.tenant_id,
            name=tenant.name,
            allow_grant_bearer=tenant.allow_grant_bearer,
            limits=WindowLimits.model_validate(window_members(tenant.window)),
            status=status_of(active=tenant.active),
            policy_version=tenant.policy_version,
        )
        return document if tenant.max_depth is None else document.model_copy(update={"max_depth": tenant.max_depth})


class TenantPage(Document):
    items: list[TenantDocument]
    next: str | None


@router.post(
    "",
    status_code=201,
    summary="Register a tenant",
    response_model_exclude_unset=True,
    responses={200: {"model": TenantDocument, "description": "It is registered so already"}},
)
async def register(
    world: TheWorld, caller: PlatformAdministrator, _: NothingAsked, body: TenantRequest, response: Response
) -> TenantDocument:
    """409 where the tenant exists and differs."""
    registered = allowed(await register_tenant(world, caller, body.tenant(world.rules)))
    response.status_code = 201 if registered.created else 200
    response.headers["Location"] = f"/v1/admin/tenants/{quote(registered.thing.tenant_id, safe='')}"
    return TenantDocument.of(registered.thing)


@router.get("", summary="List tenants by id", response_model_exclude_unset=True)
async def page(world: TheWorld, caller: PlatformAdministrator, query: PageAsked) -> TenantPage:
    found = allowed(await list_tenants(world, caller, query.page))
    return TenantPage(items=[TenantDocument.of(tenant) for tenant in found.items], next=found.next)


@router.get("/{tenant_id:path}", summary="A tenant", response_model_exclude_unset=True)
async def read(
    world: TheWorld, caller: PlatformAdministrator, _: NothingAsked, tenant_id: Identifier
) -> TenantDocument:
    return TenantDocument.of(allowed(await read_tenant(world, caller, TenantId(tenant_id))))


@router.patch(
    "/{tenant_id:path}",
    summary="Change a tenant",
    response_model_exclude_unset=True,
)
async def change(
    world: TheWorld, caller: PlatformAdministrator, _: NothingAsked, tenant_id: Identifier, body: TenantPatch
) -> TenantDocument:
    """Members that are left out stay as they are; null takes the default."""

    def changed(tenant: Tenant) -> Tenant:
        return merged(TenantRequest, TenantDocument.of(tenant), body).tenant(world.rules)

    return TenantDocument.of(allowed(await change_tenant(world, caller, TenantId(tenant_id), changed)))


@router.delete("/{tenant_id:path}", status_code=204, summary="Disable a tenant")
async def disable(world: TheWorld, caller: PlatformAdministrator, _: NothingAsked, tenant_id: Identifier) -> None:
    """Its clients, tokens and grants count for nothing from the next call on; a PATCH of `status` undoes it."""
    allowed(await disable_tenant(world, caller, TenantId(tenant_id)))
