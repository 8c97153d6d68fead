"""Grants at rest: immutable rows, the lineage by which subtrees are found, and the closing of subtrees.

Each method of the port is one step in the transaction, written below it as a function of a connection. The
money of the accounts that are opened here is `ledger.py`'s.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, bindparam, exists, func, insert, select, union, update
from sqlalchemy.sql.elements import ColumnElement

from app.adapters.sql.columns import Moment
from app.adapters.sql.ledger import ACCOUNT_COLUMNS, account_of, new_account
from app.adapters.sql.statements import AnyRow, AnySelect, insert_new, insert_rows, slices, word, words
from app.adapters.sql.tables import accounts, grant_viewers, grants, runs
from app.adapters.sql.unit import Unit
from app.core.grant import Grant, GrantId, RunId, TenantId
from app.ports import NO_CALL_LEFT, AlreadyExists, GrantFilter, StoredGrant

SEPARATOR = "/"
AFTER_SEPARATOR = chr(ord(SEPARATOR) + 1)


class SqlGrants:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    async def add(self, grant: Grant, signed: str, lineage: Sequence[GrantId], *, claims_run: bool) -> None:
        await self._unit.run(_add, grant, signed, tuple(lineage), claims_run)

    async def chain(self, tenant_id: TenantId, grant_id: GrantId) -> tuple[StoredGrant, ...]:
        return await self._unit.run(_chain, tenant_id, grant_id)

    async def subtree(self, tenant_id: TenantId, grant_id: GrantId, limit: int) -> tuple[StoredGrant, ...]:
        return await self._unit.run(_subtree, tenant_id, grant_id, limit)

    async def page(
        self, tenant_id: TenantId, where: GrantFilter, *, before: GrantId | None, limit: int
    ) -> tuple[StoredGrant, ...]:
        return await self._unit.run(_page, tenant_id, where, before, limit)

    async def children(self, tenant_id: TenantId, grant_id: GrantId, live_at: datetime | None = None) -> int:
        return await self._unit.run(_children, tenant_id, grant_id, live_at)

    async def tree_size(self, tenant_id: TenantId, root_grant_id: GrantId, live_at: datetime | None = None) -> int:
        return await self._unit.run(_tree_size, tenant_id, root_grant_id, live_at)

    async def close(self, tenant_id: TenantId, grant_id: GrantId, *, reason: str, at: datetime) -> tuple[GrantId, ...]:
        return await self._unit.run(_close, tenant_id, grant_id, reason, at)

    async def runs_of(self, tenant_id: TenantId, grants: Sequence[GrantId]) -> Mapping[GrantId, RunId]:
        return await self._unit.run(_runs_of, tenant_id, tuple(grants))

    async def closed_among(self, grants: Sequence[tuple[TenantId, GrantId]]) -> frozenset[GrantId]:
        return await self._unit.run(_closed_among, tuple(grants))

    async def resting_on(self, start: str, *, live_at: datetime, limit: int) -> int:
        return await self._unit.run(_resting_on, start, live_at, limit)


# --- adding -----------------------------------------------------------------------------------------------


def _add(
    connection: Connection,
    grant: Grant,
    signed: str,
    lineage: tuple[GrantId, ...],
    claims_run: bool,  # noqa: FBT001
) -> None:
    assert lineage[0] == grant.root_grant_id, "a lineage starts at the root"
    assert (None, *lineage)[-2:] == (grant.parent_grant_id, grant.grant_id), "a lineage ends with the grant itself"
    assert not any(SEPARATOR in link for link in lineage), "an id holds no separator"
    # The run first, so that nothing is left behind where it is taken; its foreign key is deferred.
    claim = {"tenant_id": grant.tenant_id, "run_id": grant.child_run_id, "grant_id": grant.grant_id}
    if claims_run and not insert_new(connection, runs, claim):
        raise AlreadyExists("childRunId")
    insert_rows(connection, grants, [_grant_row(grant, signed, lineage)])
    insert_rows(connection, accounts, [new_account(grant, len(lineage))])
    own = {"tenant": grant.tenant_id, "grant": grant.grant_id}
    connection.execute(_ADD_VIEWERS, {**own, "lineage": lineage})


def _grant_row(grant: Grant, signed: str, lineage: tuple[GrantId, ...]) -> dict[str, Any]:
    return {
        "tenant_id": grant.tenant_id,
        "grant_id": grant.grant_id,
        "parent_grant_id": grant.parent_grant_id,
        "root_grant_id": grant.root_grant_id,
        "path": SEPARATOR.join(lineage),
        "depth": grant.depth,
        "holder": grant.holder,
        "issued_by": grant.issued_by,
        "subject": grant.subject,
        "actor": grant.actor,
        "child_run_id": grant.child_run_id,
        "issued_at": grant.issued_at,
        "expires_at": grant.expires_at,
        "signed": signed,
    }


def _viewers(column: ColumnElement[str]) -> AnySelect:
    return select(word("tenant"), column, word("grant")).where(
        grants.c.tenant_id == word("tenant"), grants.c.grant_id.in_(words("lineage"))
    )


_ADD_VIEWERS = insert(grant_viewers).from_select(
    ["tenant_id", "client_id", "grant_id"], union(_viewers(grants.c.holder), _viewers(grants.c.issued_by))
)

# --- reading ----------------------------------------------------------------------------------------------

_OWN_ACCOUNT = and_(accounts.c.tenant_id == grants.c.tenant_id, accounts.c.account_id == grants.c.grant_id)
_DOCUMENT = (grants.c.signed, grants.c.path, grants.c.issued_at, grants.c.expires_at)
_STORED = select(grants.c.tenant_id, grants.c.grant_id, *_DOCUMENT, *ACCOUNT_COLUMNS).join(accounts, _OWN_ACCOUNT)


def stored_grant(row: AnyRow) -> StoredGrant:
    return StoredGrant(
        tenant_id=row.tenant_id,
        grant_id=row.grant_id,
        signed=row.signed,
        lineage=tuple(row.path.split(SEPARATOR)),
        issued_at=row.issued_at,
        expires_at=row.expires_at,
        account=account_of(row),
        closed_at=row.closed_at,
    )


def _chain(connection: Connection, tenant_id: TenantId, grant_id: GrantId) -> tuple[StoredGrant, ...]:
    rows = connection.execute(_CHAIN, {"tenant": tenant_id, "grant": grant_id})
    return tuple(stored_grant(row) for row in rows)


def _upward() -> AnySelect:
    """From the grant to its root, a step of the primary key for each link."""
    leaf = select(grants.c.grant_id, grants.c.parent_grant_id).where(
        grants.c.tenant_id == word("tenant"), grants.c.grant_id == word("grant")
    )
    lineage = leaf.cte("lineage", recursive=True)
    parents = select(grants.c.grant_id, grants.c.parent_grant_id).join(
        lineage,
        and_(grants.c.tenant_id == word("tenant"), grants.c.grant_id == lineage.c.parent_grant_id),
    )
    lineage = lineage.union_all(parents)
    # IN rather than a join, which SQLite might begin with all grants of the tenant.
    is_in_lineage = grants.c.grant_id.in_(select(lineage.c.grant_id))
    return _STORED.where(grants.c.tenant_id == word("tenant"), is_in_lineage).order_by(accounts.c.lock_rank)


_CHAIN = _upward()


def _subtree(connection: Connection, tenant_id: TenantId, grant_id: GrantId, limit: int) -> tuple[StoredGrant, ...]:
    own = lineage_of(connection, tenant_id, grant_id)
    if own is None:
        return ()
    # A path sorts right before those that continue it: parents before children, straight from the index.
    query = _STORED.where(within(tenant_id, own)).order_by(grants.c.path).limit(limit)
    return tuple(stored_grant(row) for row in connection.execute(query))


_LINEAGE = select(grants.c.root_grant_id, grants.c.path).where(
    grants.c.tenant_id == word("tenant"), grants.c.grant_id == word("grant")
)


def within(tenant_id: TenantId, own: AnyRow) -> ColumnElement[bool]:
    """The grant whose root and path are given, and all below it, as one range of an index."""
    return and_(
        grants.c.tenant_id == tenant_id,
        grants.c.root_grant_id == own.root_grant_id,
        grants.c.path >= own.path,
        grants.c.path < own.path + AFTER_SEPARATOR,
        (grants.c.path == own.path) | (grants.c.path > own.path + SEPARATOR),
    )


def lineage_of(connection: Connection, tenant_id: TenantId, grant_id: str) -> AnyRow | None:
    """A grant's root and path, for `within`."""
    return connection.execute(_LINEAGE, {"tenant": tenant_id, "grant": grant_id}).first()


def _page(
    connection: Connection, tenant_id: TenantId, where: GrantFilter, before: GrantId | None, limit: int
) -> tuple[StoredGrant, ...]:
    query, newest = _STORED.where(grants.c.tenant_id == tenant_id), grants.c.grant_id
    if where.visible_to is not None:
        # The viewer's own rows are the page's, in their order, so they lead.
        query, newest = query.join(grant_viewers, _is_seen), grant_viewers.c.grant_id
        own = (grant_viewers.c.tenant_id == tenant_id, grant_viewers.c.client_id == where.visible_to)
        query = query.where(*own)
    if before is not None:
        query = query.where(newest < before)
    if where.live_at is not None:
        query = query.where(accounts.c.closed.is_(None), grants.c.expires_at > where.live_at)
    equal = {
        grants.c.parent_grant_id: where.parent_grant_id,
        grants.c.root_grant_id: where.root_grant_id,
        grants.c.child_run_id: where.run_id,
        grants.c.holder: where.holder,
        grants.c.subject: where.subject,
    }
    query = query.where(*(column == value for column, value in equal.items() if value is not None))
    rows = connection.execute(query.order_by(newest.desc()).limit(limit))
    return tuple(stored_grant(row) for row in rows)


_is_seen = and_(grant_viewers.c.tenant_id == grants.c.tenant_id, grant_viewers.c.grant_id == grants.c.grant_id)


def _children(connection: Connection, tenant_id: TenantId, grant_id: GrantId, live_at: datetime | None) -> int:
    return _counted(connection, _COUNT_CHILDREN, {"tenant": tenant_id, "grant": grant_id}, live_at)


def _counted(
    connection: Connection, queries: tuple[AnySelect, AnySelect], asked: dict[str, str], live_at: datetime | None
) -> int:
    """The first query counts all, the second those that live."""
    if live_at is None:
        return int(connection.execute(queries[0], asked).scalar_one())
    return int(connection.execute(queries[1], {**asked, "live_at": live_at}).scalar_one())


def _counting(*which: ColumnElement[bool]) -> tuple[AnySelect, AnySelect]:
    everything = select(func.count()).select_from(grants).where(grants.c.tenant_id == word("tenant"), *which)
    is_alive = (accounts.c.closed.is_(None), grants.c.expires_at > bindparam("live_at", type_=Moment()))
    return everything, everything.join(accounts, _OWN_ACCOUNT).where(*is_alive)


_ITS_ROOT = select(grants.c.root_grant_id).where(
    grants.c.tenant_id == word("tenant"), grants.c.grant_id == word("grant")
)
# Those that live are found by their tree, in the order of their expiry, past however many that are dead.
_COUNT_CHILDREN = (
    _counting(grants.c.parent_grant_id == word("grant"))[0],
    _counting(grants.c.parent_grant_id == word("grant"), grants.c.root_grant_id == _ITS_ROOT.scalar_subquery())[1],
)


def _tree_size(connection: Connection, tenant_id: TenantId, root_grant_id: GrantId, live_at: datetime | None) -> int:
    return _counted(connection, _COUNT_TREE, {"tenant": tenant_id, "root": root_grant_id}, live_at)


# Answered from an index alone, and with it where only those count that live.
_COUNT_TREE = _counting(grants.c.root_grant_id == word("root"))

# --- closing ----------------------------------------------------------------------------------------------


def _close(
    connection: Connection, tenant_id: TenantId, grant_id: GrantId, reason: str, at: datetime
) -> tuple[GrantId, ...]:
    """Close a subtree, so that no concurrent call or derivation slips past.

    Whoever reserves or derives below this grant holds its account. So it is locked first, and the subtree
    is read only then: a child that was added meanwhile is seen, one that comes later finds the grant closed.
    """
    own = connection.execute(_LOCK_OWN, {"tenant": tenant_id, "grant": grant_id}).first()
    if own is None:
        return ()
    may_call = (grants.c.grant_id == grant_id) | (grants.c.expires_at > at - NO_CALL_LEFT)
    open_below = (
        select(grants.c.grant_id)
        .join(accounts, _OWN_ACCOUNT)
        .where(within(tenant_id, own), may_call, accounts.c.closed.is_(None))
        .order_by(accounts.c.lock_rank, accounts.c.account_id)
        .with_for_update(of=accounts)
    )
    closed = tuple(connection.execute(open_below).scalars())
    for ids in slices(closed):
        connection.execute(_CLOSE, {"tenant": tenant_id, "ids": ids, "reason": reason, "at": at})
    return tuple(GrantId(each) for each in closed)


_LOCK_OWN = (
    select(grants.c.root_grant_id, grants.c.path)
    .join(accounts, _OWN_ACCOUNT)
    .where(grants.c.tenant_id == word("tenant"), grants.c.grant_id == word("grant"))
    .with_for_update(of=accounts)
)
_CLOSE = (
    update(accounts)
    .where(accounts.c.tenant_id == word("tenant"), accounts.c.account_id.in_(words("ids")))
    .values(closed=word("reason"), closed_at=bindparam("at", type_=Moment()))
)


def _runs_of(connection: Connection, tenant_id: TenantId, ids: tuple[GrantId, ...]) -> dict[GrantId, RunId]:
    rows = (row for some in slices(ids) for row in connection.execute(_RUNS, {"tenant": tenant_id, "ids": some}))
    return {GrantId(row.grant_id): RunId(row.child_run_id) for row in rows}


_RUNS = select(grants.c.grant_id, grants.c.child_run_id).where(
    grants.c.tenant_id == word("tenant"), grants.c.grant_id.in_(words("ids"))
)


def _closed_among(connection: Connection, pairs: tuple[tuple[TenantId, GrantId], ...]) -> frozenset[GrantId]:
    # Tenant by tenant: SQLite looks up no pairs in an index, only single values.
    by_tenant: dict[TenantId, list[GrantId]] = {}
    for tenant_id, grant_id in pairs:
        by_tenant.setdefault(tenant_id, []).append(grant_id)
    return frozenset(
        GrantId(closed)
        for tenant_id, ids in by_tenant.items()
        for some in slices(ids)
        for closed in connection.execute(_CLOSED, {"tenant": tenant_id, "ids": some}).scalars()
    )


_CLOSED = select(accounts.c.account_id).where(
    accounts.c.tenant_id == word("tenant"), accounts.c.account_id.in_(words("ids")), accounts.c.closed.is_not(None)
)


# --- what rests on a key ----------------------------------------------------------------------------------


def _resting_on(connection: Connection, start: str, live_at: datetime, limit: int) -> int:
    link = grants.alias("link")
    is_above = (link.c.path == grants.c.path) | (
        (grants.c.path > link.c.path + SEPARATOR) & (grants.c.path < link.c.path + AFTER_SEPARATOR)
    )
    in_tree = (link.c.tenant_id == grants.c.tenant_id, link.c.root_grant_id == grants.c.root_grant_id)
    starts_so = func.substr(link.c.signed, 1, len(start)) == start
    resting = (
        select(grants.c.grant_id)
        .join(accounts, _OWN_ACCOUNT)
        .where(accounts.c.closed.is_(None), grants.c.expires_at > live_at)
        .where(exists().where(*in_tree, is_above, starts_so))
        .limit(limit)
    )
    return int(connection.execute(select(func.count()).select_from(resting.subquery())).scalar_one())
