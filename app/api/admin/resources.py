"""The resource directory: what belongs to whom, by an administrator's word."""

from typing import Annotated, Final, Self
from urllib.parse import quote

from fastapi import APIRouter, Query, Response
from pydantic import Field, PlainValidator, StringConstraints, WithJsonSchema

from app.api.admin.documents import Administrator, InTenant, ResourceType, TenantPageQuery, tenant_named
from app.api.caller import TenantQuery, TheWorld
from app.api.errors import allowed
from app.api.wire import Document, Identifier, StrictRoute
from app.core.grant import TenantId
from app.core.registry import Resource
from app.core.resource_rules import MAX_ATTRIBUTES, MAX_ID_CHARS, is_scalar
from app.core.resources import ResourceRef
from app.core.strict_json import JsonScalar, JsonValue
from app.usecases.failures import Malformed
from app.usecases.register_resource import (
    MAX_RESOURCES_PER_LOAD,
    Loaded,
    list_resources,
    load_resources,
    read_resource,
    register_resource,
    remove_resource,
)
from app.usecases.world import Caller

router = APIRouter(prefix="/resources", route_class=StrictRoute)

MAX_CURSOR_CHARS: Final = 64 + 1 + MAX_ID_CHARS


def _scalar(value: JsonValue) -> JsonScalar:
    if not is_scalar(value):
        raise ValueError("must be a string, a number, a boolean or null")
    return value


# One validator for all, since a union of types would be refused once for each of them.
Scalar = Annotated[
    JsonScalar,
    PlainValidator(_scalar),
    WithJsonSchema({"type": ["string", "number", "boolean", "null"]}),
]
Attributes = Annotated[dict[str, Scalar], Field(max_length=MAX_ATTRIBUTES)]
ResourceId = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ID_CHARS)]


class ResourceRequest(Document):
    """What is on record of a thing."""

    tenant_id: Identifier | None = Field(default=None, description="the caller's own unless named")
    attributes: Attributes = Field(default_factory=dict, description="what constraints and policies may ask for")

    def resource(self, tenant_id: TenantId, ref: ResourceRef) -> Resource:
        return Resource(tenant_id=tenant_id, type=ref.type, id=ref.id, attributes=self.attributes)


class ListedResource(ResourceRequest):
    """One thing of several."""

    type: ResourceType
    id: ResourceId


class LoadRequest(Document):
    """Things to register, each once."""

    resources: list[ListedResource] = Field(min_length=1, max_length=MAX_RESOURCES_PER_LOAD)

    def wishes(self, caller: Caller, query: TenantQuery) -> list[Resource]:
        """The same, for the registry. Raises Malformed where one names another tenant than the query does."""
        return [self._wish(caller, query, index) for index in range(len(self.resources))]

    def _wish(self, caller: Caller, query: TenantQuery, index: int) -> Resource:
        listed = self.resources[index]
        try:
            tenant_id = tenant_named(caller, query, listed.tenant_id)
        except Malformed as fault:
            raise Malformed(f"/resources/{index}{fault.pointer}", fault.detail) from None
        return listed.resource(tenant_id, ResourceRef(listed.type, listed.id))


class LoadDocument(Document):
    loaded: int
    created: int = Field(description="how many of them were not registered before")

    @classmethod
    def of(cls, loaded: Loaded) -> Self:
        return cls(loaded=loaded.loaded, created=loaded.created)


class ResourceDocument(Document):
    tenant_id: str
    type: str
    id: str
    attributes: dict[str, Scalar]

    @classmethod
    def of(cls, resource: Resource) -> Self:
        return cls(tenant_id=resource.tenant_id, type=resource.type, id=resource.id, attributes={**resource.attributes})


class ResourcePage(Document):
    items: list[ResourceDocument]
    next: str | None


class ResourceQuery(TenantPageQuery):
    """Which part of a tenant's things."""

    type: ResourceType | None = None
    after: Annotated[str, StringConstraints(min_length=1, max_length=MAX_CURSOR_CHARS)] | None = None


@router.post("", summary="Register many things at once")
async def load(world: TheWorld, caller: Administrator, query: InTenant, body: LoadRequest) -> LoadDocument:
    """Each is new or takes the place of the one before; all of them or, where one is refused, none."""
    return LoadDocument.of(allowed(await load_resources(world, caller, body.wishes(caller, query))))


@router.get("", summary="List a tenant's things by type and id")
async def page(world: TheWorld, caller: Administrator, query: Annotated[ResourceQuery, Query()]) -> ResourcePage:
    found = allowed(await list_resources(world, caller, query.of(caller), query.page, kind=query.type))
    return ResourcePage(items=[ResourceDocument.of(resource) for resource in found.items], next=found.next)


@router.put(
    "/{type}/{id:path}",
    status_code=201,
    summary="Register a thing, or replace it",
    responses={200: {"model": ResourceDocument, "description": "It was there before"}},
)
async def register(
    world: TheWorld,
    caller: Administrator,
    query: InTenant,
    type: ResourceType,  # noqa: A002 (its name on the wire)
    id: ResourceId,  # noqa: A002
    body: ResourceRequest,
    response: Response,
) -> ResourceDocument:
    """It belongs to the tenant from the next call on; attributes that are left out are gone."""
    wish = body.resource(tenant_named(caller, query, body.tenant_id), ResourceRef(type, id))
    registered = allowed(await register_resource(world, caller, wish))
    response.status_code = 201 if registered.created else 200
    response.headers["Location"] = f"/v1/admin/resources/{type}/{quote(id, safe='')}"
    return ResourceDocument.of(registered.thing)


@router.get("/{type}/{id:path}", summary="A thing")
async def read(
    world: TheWorld,
    caller: Administrator,
    query: InTenant,
    type: ResourceType,  # noqa: A002
    id: ResourceId,  # noqa: A002
) -> ResourceDocument:
    found = await read_resource(world, caller, query.of(caller), ResourceRef(type, id))
    return ResourceDocument.of(allowed(found))


@router.delete("/{type}/{id:path}", status_code=204, summary="Remove a thing")
async def remove(
    world: TheWorld,
    caller: Administrator,
    query: InTenant,
    type: ResourceType,  # noqa: A002
    id: ResourceId,  # noqa: A002
) -> None:
    """It belongs to nobody from the next call on."""
    allowed(await remove_resource(world, caller, query.of(caller), ResourceRef(type, id)))
