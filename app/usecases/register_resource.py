"""Register what belongs to a tenant: one thing, or many at once; read, list and remove things.

What stands here is an administrator's word about whose a thing is and what it has. A caller's arguments are
held against it, never the other way round. Records name things and the attributes that changed, no values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.core.grant import TenantId
from app.core.registry import Resource
from app.core.resource_rules import flaws
from app.core.resources import Attributes, ResourceRef
from app.core.strict_json import JsonObject, JsonScalar, JsonValue, canonical
from app.ports import Transaction
from app.usecases.administration import (
    Page,
    PageRequest,
    Registered,
    admin_event,
    administering,
    known_tenant,
    out_of_reach,
    page_of,
    record,
    rows_to_ask,
)
from app.usecases.failures import Denied, Malformed, NotFound
from app.usecases.world import Caller, World, digest

MAX_RESOURCES_PER_LOAD: Final = 1000
MAX_TENANTS_PER_LOAD: Final = 20
MAX_RECORDED: Final = 20
"""Things, and types, that the record of a load names."""

_UNSAID: Final = object()
"""No attribute's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What came of a load: how many things it named, and how many of them were not registered before."""

    loaded: int
    created: int


async def register_resource(world: World, caller: Caller, wish: Resource) -> Registered[Resource] | Denied:
    """The thing as it is registered now: new, or in the place of the one before.

    Raises Malformed, and NotFound for a tenant that is none.
    """
    if (denied := out_of_reach(caller, wish.tenant_id)) is not None:
        return denied
    _check(wish)
    async with administering(world) as tx:
        await known_tenant(tx, wish.tenant_id)
        existing = await tx.directory.resource(wish.tenant_id, wish.ref)
        changed = [] if existing is None else _changed(existing.attributes, wish.attributes)
        if existing is None or changed:
            action = "resource.created" if existing is None else "resource.changed"
            await tx.directory.put([wish])
            await record(tx, world, caller, wish.tenant_id, action, _resource(wish.ref), changed)
            await tx.commit()
    return Registered(thing=wish, created=existing is None)


async def load_resources(world: World, caller: Caller, wishes: Sequence[Resource]) -> Loaded | Denied:
    """Register many things, each new or in the place of the one before: all of them or none.

    Raises Malformed, and NotFound for a tenant that is none.
    """
    for tenant_id in {wish.tenant_id for wish in wishes}:
        if (denied := out_of_reach(caller, tenant_id)) is not None:
            return denied
    by_tenant = _checked_load(wishes)
    created = 0
    async with administering(world) as tx:
        for tenant_id, resources in by_tenant.items():
            created += await _load(tx, world, caller, tenant_id, resources)
        await tx.commit()
    return Loaded(loaded=len(wishes), created=created)


async def read_resource(world: World, caller: Caller, tenant_id: TenantId, ref: ResourceRef) -> Resource | Denied:
    """One thing. Raises NotFound."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    async with world.store.read() as tx:
        return await _known(tx, tenant_id, ref)


async def list_resources(
    world: World, caller: Caller, tenant_id: TenantId, page: PageRequest, *, kind: str | None = None
) -> Page[Resource] | Denied:
    """A tenant's things by type and id, of one type only where `kind` names it.

    Raises Malformed, and NotFound for a tenant that is none.
    """
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    rows, after = rows_to_ask(world, page), _place(page.after)
    async with world.store.read() as tx:
        await known_tenant(tx, tenant_id)
        resources = await tx.directory.page(tenant_id, kind=kind, after=after, limit=rows)
    return page_of(resources, page, lambda resource: f"{resource.type}/{resource.id}")


async def remove_resource(world: World, caller: Caller, tenant_id: TenantId, ref: ResourceRef) -> Denied | None:
    """Remove a thing: it belongs to nobody from the next call on. Raises NotFound."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    async with administering(world) as tx:
        await _known(tx, tenant_id, ref)
        await tx.directory.remove(tenant_id, ref)
        await record(tx, world, caller, tenant_id, "resource.removed", _resource(ref))
        await tx.commit()
    return None


async def _known(tx: Transaction, tenant_id: TenantId, ref: ResourceRef) -> Resource:
    resource = await tx.directory.resource(tenant_id, ref)
    if resource is None:
        raise NotFound("there is no such resource")
    return resource


def _place(cursor: str | None) -> ResourceRef | None:
    """What a page's `next` names. A type has no slash, so that the first one ends it."""
    if cursor is None:
        return None
    type_, slash, id_ = cursor.partition("/")
    if not slash:
        raise Malformed("/after", "must be the `next` of a page")
    return ResourceRef(type_, id_)


def _resource(ref: ResourceRef) -> str:
    return f"resource/{ref.type}/{ref.id}"


# --- many at once -----------------------------------------------------------------------------------------


async def _load(
    tx: Transaction, world: World, caller: Caller, tenant_id: TenantId, resources: Sequence[Resource]
) -> int:
    """Load one tenant's things, with one record of those that are new or changed; how many are new."""
    await known_tenant(tx, tenant_id)
    found = await tx.directory.look_up(tenant_id, [resource.ref for resource in resources])
    new = [resource for resource in resources if resource.ref not in found]
    changed = [
        resource
        for resource in resources
        if resource.ref in found and _changed(found[resource.ref], resource.attributes)
    ]
    if new or changed:
        await tx.directory.put([*new, *changed])
        await tx.audit.append(tenant_id, [_load_event(world, caller, tenant_id, new, changed)])
    return len(new)


def _load_event(
    world: World, caller: Caller, tenant_id: TenantId, new: Sequence[Resource], changed: Sequence[Resource]
) -> JsonObject:
    """One record, however much was loaded; its digest tells whether a file that is shown later is what was."""
    resources = sorted([*new, *changed], key=lambda resource: resource.ref)
    content: JsonValue = [[*resource.ref, {**resource.attributes}] for resource in resources]
    types: list[JsonValue] = [*sorted({resource.type for resource in resources})]
    members: JsonObject = {
        "created": len(new),
        "changed": len(changed),
        "types": types[:MAX_RECORDED],
        "resources": [_resource(resource.ref) for resource in resources[:MAX_RECORDED]],
        "contentDigest": digest(world, tenant_id, canonical(content)),
    }
    return admin_event(world.clock(), "resources.loaded", "resources", caller=caller) | members


def _checked_load(wishes: Sequence[Resource]) -> Mapping[TenantId, list[Resource]]:
    """The things of a load by their tenants. Raises Malformed."""
    if not 1 <= len(wishes) <= MAX_RESOURCES_PER_LOAD:
        raise Malformed("/resources", f"must be 1 to {MAX_RESOURCES_PER_LOAD} things")
    seen: set[tuple[TenantId, ResourceRef]] = set()
    by_tenant: dict[TenantId, list[Resource]] = {}
    for index, wish in enumerate(wishes):
        _check(wish, f"/resources/{index}")
        if (wish.tenant_id, wish.ref) in seen:
            raise Malformed(f"/resources/{index}", "is named before in the same request")
        seen.add((wish.tenant_id, wish.ref))
        by_tenant.setdefault(wish.tenant_id, []).append(wish)
    if len(by_tenant) > MAX_TENANTS_PER_LOAD:
        raise Malformed("/resources", f"must be of at most {MAX_TENANTS_PER_LOAD} tenants")
    return by_tenant


# --- one thing --------------------------------------------------------------------------------------------


def _check(wish: Resource, pointer: str = "") -> None:
    for member, detail in flaws(wish.ref, wish.attributes):
        raise Malformed(f"{pointer}{member}", detail)


def _changed(before: Attributes, after: Attributes) -> list[str]:
    """The attributes in which two descriptions differ; to Python `true` equals 1, to a policy it does not."""
    names = sorted(before.keys() | after.keys())
    return [f"attributes.{name}" for name in names if _spelt(before, name) != _spelt(after, name)]


def _spelt(attributes: Attributes, name: str) -> tuple[type, object]:
    value: JsonScalar | object = attributes.get(name, _UNSAID)
    return type(value), value
