"""The directory at rest: what belongs to a tenant, found by type and id.

The primary key leads with the tenant, so that a thing of another tenant is as little there as one that is on
nobody's record. Refuses to know what an attribute means.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import CompoundSelect, Connection, delete, select, tuple_, union_all
from sqlalchemy.sql.elements import ColumnElement

from app.adapters.sql.documents import dump, load_once
from app.adapters.sql.statements import AnyRow, Values, insert_or_replace, slices, word, words
from app.adapters.sql.tables import resources
from app.adapters.sql.unit import Unit
from app.core.grant import TenantId
from app.core.registry import Resource
from app.core.resources import ResourceRef, Resources

MAX_TYPES = 100
"""Types in one statement, since SQLite joins no more than 500 queries to one."""


class SqlDirectory:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    async def put(self, resources: Sequence[Resource]) -> None:
        if resources:
            await self._unit.run(_put, tuple(resources))

    async def remove(self, tenant_id: TenantId, ref: ResourceRef) -> bool:
        return await self._unit.run(_remove, tenant_id, ref)

    async def resource(self, tenant_id: TenantId, ref: ResourceRef) -> Resource | None:
        return await self._unit.run(_resource, tenant_id, ref)

    async def look_up(self, tenant_id: TenantId, refs: Collection[ResourceRef]) -> Resources:
        return await self._unit.run(_look_up, tenant_id, tuple(refs))

    async def page(
        self, tenant_id: TenantId, *, kind: str | None, after: ResourceRef | None, limit: int
    ) -> tuple[Resource, ...]:
        return await self._unit.run(_page, tenant_id, kind, after, limit)


_COLUMNS = ("tenant_id", "type", "id")
_REF = (resources.c.type, resources.c.id)


def _row_of(resource: Resource) -> Values:
    columns = {column: getattr(resource, column) for column in _COLUMNS}
    return {**columns, "document": dump(resource, without=_COLUMNS)}


def _resource_of(row: AnyRow) -> Resource:
    return load_once(Resource, row.document, tenant_id=row.tenant_id, type=row.type, id=row.id)


def _put(connection: Connection, these: tuple[Resource, ...]) -> None:
    # In one order, whatever the caller's, so that two writers of the same things wait and never deadlock.
    in_order = sorted(these, key=lambda each: (each.tenant_id, each.ref))
    insert_or_replace(connection, resources, *(_row_of(each) for each in in_order))


def _remove(connection: Connection, tenant_id: TenantId, ref: ResourceRef) -> bool:
    return connection.execute(delete(resources).where(*_is(tenant_id, ref))).rowcount == 1


def _resource(connection: Connection, tenant_id: TenantId, ref: ResourceRef) -> Resource | None:
    row = connection.execute(select(resources).where(*_is(tenant_id, ref))).first()
    return None if row is None else _resource_of(row)


def _is(tenant_id: TenantId, ref: ResourceRef) -> tuple[ColumnElement[bool], ...]:
    return resources.c.tenant_id == tenant_id, resources.c.type == ref.type, resources.c.id == ref.id


def _look_up(connection: Connection, tenant_id: TenantId, refs: tuple[ResourceRef, ...]) -> Resources:
    found = (_resource_of(row) for some in slices(refs) for row in _rows(connection, tenant_id, some))
    return {resource.ref: resource.attributes for resource in found}


def _rows(connection: Connection, tenant_id: TenantId, refs: Sequence[ResourceRef]) -> Iterator[AnyRow]:
    ids: defaultdict[str, list[str]] = defaultdict(list)
    for ref in refs:
        ids[ref.type].append(ref.id)
    for some in slices(tuple(ids), MAX_TYPES):
        values = {f"type_{place}": kind for place, kind in enumerate(some)}
        values_in = {f"ids_{place}": ids[kind] for place, kind in enumerate(some)}
        yield from connection.execute(_of_types(len(some)), {"tenant": tenant_id, **values, **values_in})


# One range of the primary key for each type. Comparing pairs would be one condition instead of many, but SQLite
# then reads all of a tenant, and PostgreSQL plans for longer than it reads.
@cache
def _of_types(count: int) -> CompoundSelect[*tuple[Any, ...]]:
    return union_all(*(select(resources).where(*_are_of_type(place)) for place in range(count)))


def _are_of_type(place: int) -> tuple[ColumnElement[bool], ...]:
    return (
        resources.c.tenant_id == word("tenant"),
        resources.c.type == word(f"type_{place}"),
        resources.c.id.in_(words(f"ids_{place}")),
    )


def _page(
    connection: Connection, tenant_id: TenantId, kind: str | None, after: ResourceRef | None, limit: int
) -> tuple[Resource, ...]:
    query = select(resources).where(resources.c.tenant_id == tenant_id)
    if kind is not None:
        query = query.where(resources.c.type == kind)
    if after is not None:
        query = query.where(_behind(after, kind))
    rows = connection.execute(query.order_by(*_REF).limit(limit))
    return tuple(map(_resource_of, rows))


def _behind(after: ResourceRef, kind: str | None) -> ColumnElement[bool]:
    """What follows a thing; inside its own type that is the rest of one range of the primary key."""
    return resources.c.id > after.id if after.type == kind else tuple_(*_REF) > after
