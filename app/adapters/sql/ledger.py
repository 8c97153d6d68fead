"""The ledger: accounts, the holds of calls in flight, and how each call ended.

Whoever changes an account's money holds its row: `lock` and `windows` take the rows in the one global order
(see `postgres.py`), grants before windows. The table's constraints refuse whatever would exceed a grant's
limit, so a caller that reserves without looking fails instead of overspending.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Update, and_, bindparam, delete, select, update

from app.adapters.sql.columns import Moment
from app.adapters.sql.statements import (
    AnyRow,
    AnySelect,
    Values,
    has_row_locks,
    insert_missing,
    insert_new,
    insert_rows,
    word,
    words,
)
from app.adapters.sql.tables import WINDOW_RANK, accounts, calls, idempotency_keys
from app.adapters.sql.unit import Unit
from app.core.budget import Amount, Budget, ReservationState, Usage
from app.core.decision import Account
from app.core.grant import Grant, GrantId, RunId, ServerName, TenantId
from app.ports import AlreadyExists, CallRecord, Outcome, Settlement


class SqlLedger:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    async def lock(self, tenant_id: TenantId, grants: Sequence[GrantId]) -> Mapping[GrantId, Account]:
        return await self._unit.run(_accounts, _LOCK, tenant_id, tuple(grants))

    async def accounts(self, tenant_id: TenantId, grants: Sequence[GrantId]) -> Mapping[GrantId, Account]:
        return await self._unit.run(_accounts, _LOOK, tenant_id, tuple(grants))

    async def windows(self, tenant_id: TenantId, limits: Mapping[str, Amount], *, lock: bool) -> tuple[Budget, ...]:
        if not limits:
            return ()
        return await self._unit.run(_lock_windows if lock else _look_at_windows, tenant_id, dict(limits))

    async def reserve(self, call: CallRecord) -> None:
        await self._unit.run(_reserve, call)

    async def settle(self, tenant_id: TenantId, call_id: str, ending: Settlement, at: datetime) -> CallRecord | None:
        return await self._unit.run(_settle, tenant_id, call_id, ending, at)

    async def repeated(
        self, tenant_id: TenantId, run_id: RunId, server: ServerName, idempotency_key: str
    ) -> CallRecord | None:
        return await self._unit.run(_repeated, tenant_id, run_id, server, idempotency_key)

    async def overdue(self, now: datetime, limit: int) -> tuple[CallRecord, ...]:
        return await self._unit.run(_overdue, now, limit)


# --- accounts ---------------------------------------------------------------------------------------------

ACCOUNT_COLUMNS = (
    accounts.c.account_id,
    accounts.c.limit_calls,
    accounts.c.limit_ucents,
    accounts.c.posted_calls,
    accounts.c.posted_ucents,
    accounts.c.pending_calls,
    accounts.c.pending_ucents,
    accounts.c.closed,
    accounts.c.closed_at,
)


def account_of(row: AnyRow) -> Account:
    """The account in a row with the ACCOUNT_COLUMNS."""
    limit = Amount(tool_calls=row.limit_calls, spend_ucents=row.limit_ucents)
    return Account(budget=Budget(account_id=row.account_id, limit=limit, usage=_usage_of(row)), closed=row.closed)


def _usage_of(row: AnyRow) -> Usage:
    return Usage(
        posted=Amount(tool_calls=row.posted_calls, spend_ucents=row.posted_ucents),
        pending=Amount(tool_calls=row.pending_calls, spend_ucents=row.pending_ucents),
    )


def new_account(grant: Grant, lineage_length: int) -> dict[str, Any]:
    """The row of a new grant's account. Its rank puts it behind all its ancestors in the order of locks."""
    return {
        **_unused(grant.tenant_id, grant.grant_id, grant.limit),
        "grant_id": grant.grant_id,
        "lock_rank": lineage_length,
    }


def _unused(tenant_id: TenantId, account_id: str, limit: Amount) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "account_id": account_id,
        "limit_calls": limit.tool_calls,
        "limit_ucents": limit.spend_ucents,
        "posted_calls": 0,
        "posted_ucents": 0,
        "pending_calls": 0,
        "pending_ucents": 0,
    }


_THESE = and_(accounts.c.tenant_id == word("tenant"), accounts.c.account_id.in_(words("ids")))
_LOOK = select(*ACCOUNT_COLUMNS).where(_THESE)
_LOCK = _LOOK.order_by(accounts.c.lock_rank, accounts.c.account_id).with_for_update()


def _accounts(
    connection: Connection, query: AnySelect, tenant_id: TenantId, grants: tuple[GrantId, ...]
) -> dict[GrantId, Account]:
    rows = connection.execute(query, {"tenant": tenant_id, "ids": grants})
    return {row.account_id: account_of(row) for row in rows}


def _lock_windows(connection: Connection, tenant_id: TenantId, limits: dict[str, Amount]) -> tuple[Budget, ...]:
    found = _windows(connection, _LOCK, tenant_id, limits)
    missing = sorted(limits.keys() - found.keys())
    if missing:
        rows = [{**_unused(tenant_id, window, limits[window]), "lock_rank": WINDOW_RANK} for window in missing]
        insert_missing(connection, accounts, rows)
        # Whether it was this transaction that made them or a concurrent one, they are locked now.
        found = _windows(connection, _LOCK, tenant_id, limits)
    return tuple(found[window] for window in sorted(limits))


def _look_at_windows(connection: Connection, tenant_id: TenantId, limits: dict[str, Amount]) -> tuple[Budget, ...]:
    """Without the lock nothing is made: a window without a row has not been used."""
    found = _windows(connection, _LOOK, tenant_id, limits)
    return tuple(found.get(window, Budget(account_id=window, limit=limits[window])) for window in sorted(limits))


def _windows(
    connection: Connection, query: AnySelect, tenant_id: TenantId, limits: dict[str, Amount]
) -> dict[str, Budget]:
    rows = connection.execute(query, {"tenant": tenant_id, "ids": sorted(limits)})
    return {
        row.account_id: Budget(account_id=row.account_id, limit=limits[row.account_id], usage=_usage_of(row))
        for row in rows
    }


def _adding(*columns: str) -> Update:
    """Add a signed amount to columns of accounts that are locked."""
    return (
        update(accounts)
        .where(_THESE)
        .values({column: accounts.c[column] + bindparam(f"add_{column}", type_=None) for column in columns})
    )


_HOLD = _adding("pending_calls", "pending_ucents")
_SETTLE = _adding("pending_calls", "pending_ucents", "posted_calls", "posted_ucents")

# --- calls ------------------------------------------------------------------------------------------------


def _reserve(connection: Connection, call: CallRecord) -> None:
    assert call.state is ReservationState.PENDING, "a call is reserved before it ends"
    if call.idempotency_key is not None and not insert_new(connection, idempotency_keys, _key_row(call)):
        raise AlreadyExists("idempotencyKey")
    insert_rows(connection, calls, [_call_row(call)])
    held = connection.execute(
        _HOLD,
        {
            "tenant": call.tenant_id,
            "ids": call.accounts,
            "add_pending_calls": call.hold.tool_calls,
            "add_pending_ucents": call.hold.spend_ucents,
        },
    ).rowcount
    assert held == len(call.accounts), "every account that a call holds budget on exists"


def _key_row(call: CallRecord) -> Values:
    return {
        "tenant_id": call.tenant_id,
        "run_id": call.run_id,
        "server": call.server,
        "key": call.idempotency_key,
        "call_id": call.call_id,
    }


def _call_row(call: CallRecord) -> Values:
    return {
        "tenant_id": call.tenant_id,
        "call_id": call.call_id,
        "decision_id": call.decision_id,
        "grant_id": call.grant_id,
        "run_id": call.run_id,
        "server": call.server,
        "tool": call.tool,
        "request_digest": call.request_digest,
        "idempotency_key": call.idempotency_key,
        "hold_calls": call.hold.tool_calls,
        "hold_ucents": call.hold.spend_ucents,
        "accounts": json.dumps(call.accounts),
        "reserved_at": call.reserved_at,
        "deadline_at": call.deadline_at,
        "state": call.state.value,
        "charged_ucents": call.charged_ucents,
    }


def _call_of(row: AnyRow) -> CallRecord:
    return CallRecord(
        tenant_id=row.tenant_id,
        call_id=row.call_id,
        decision_id=row.decision_id,
        grant_id=row.grant_id,
        run_id=row.run_id,
        server=row.server,
        tool=row.tool,
        request_digest=row.request_digest,
        idempotency_key=row.idempotency_key,
        hold=Amount(tool_calls=row.hold_calls, spend_ucents=row.hold_ucents),
        accounts=tuple(json.loads(row.accounts)),
        reserved_at=row.reserved_at,
        deadline_at=row.deadline_at,
        state=ReservationState(row.state),
        charged_ucents=row.charged_ucents,
        outcome=None if row.outcome is None else Outcome(row.outcome),
        result=row.result,
        result_digest=row.result_digest,
        settled_at=row.settled_at,
    )


def _repeated(
    connection: Connection, tenant_id: TenantId, run_id: RunId, server: ServerName, key: str
) -> CallRecord | None:
    values = {"tenant": tenant_id, "run": run_id, "server": server, "key": key}
    row = connection.execute(_REPEATED, values).first()
    return None if row is None else _call_of(row)


_REPEATED = (
    select(calls)
    .join(
        idempotency_keys,
        and_(idempotency_keys.c.tenant_id == calls.c.tenant_id, idempotency_keys.c.call_id == calls.c.call_id),
    )
    .where(
        idempotency_keys.c.tenant_id == word("tenant"),
        idempotency_keys.c.run_id == word("run"),
        idempotency_keys.c.server == word("server"),
        idempotency_keys.c.key == word("key"),
    )
)


def _overdue(connection: Connection, now: datetime, limit: int) -> tuple[CallRecord, ...]:
    return tuple(_call_of(row) for row in connection.execute(_OVERDUE, {"now": now, "limit": limit}))


_OVERDUE = (
    select(calls)
    .where(calls.c.state == "pending", calls.c.deadline_at < bindparam("now", type_=Moment()))
    .order_by(calls.c.deadline_at, calls.c.tenant_id, calls.c.call_id)
    .limit(bindparam("limit"))
)


# --- settling ---------------------------------------------------------------------------------------------

_ONE_CALL = and_(calls.c.tenant_id == word("tenant"), calls.c.call_id == word("call"))
_FIND = select(calls).where(_ONE_CALL)


def _settle(
    connection: Connection, tenant_id: TenantId, call_id: str, ending: Settlement, at: datetime
) -> CallRecord | None:
    row = connection.execute(_FIND, {"tenant": tenant_id, "call": call_id}).first()
    before = None if row is None else _call_of(row)
    if before is None or not before.state.may_become(ending.state):
        return None
    # The accounts are locked before the call is changed, as everywhere; which they are never changes.
    if has_row_locks(connection):
        connection.execute(_LOCK, {"tenant": tenant_id, "ids": before.accounts}).all()
    if connection.execute(_END, _ending_values(before, ending, at)).rowcount == 0:
        # Somebody else settled it before the accounts were ours: now they are, and its state is certain.
        return _settle(connection, tenant_id, call_id, ending, at)
    connection.execute(_SETTLE, _movement(before, ending))
    if ending.state is ReservationState.VOIDED and before.idempotency_key is not None:
        # What never ran may be tried again under the same key.
        connection.execute(_FREE_KEY, _key_row(before))
    return replace(
        before,
        state=ending.state,
        charged_ucents=ending.charged_ucents,
        outcome=ending.outcome,
        result=ending.result,
        result_digest=ending.result_digest,
        settled_at=at,
    )


_FREE_KEY = delete(idempotency_keys).where(
    *(idempotency_keys.c[name] == word(name) for name in ("tenant_id", "run_id", "server", "key", "call_id"))
)
_END = (
    update(calls)
    .where(_ONE_CALL, calls.c.state == word("state_before"))
    .values(
        state=word("new_state"),
        charged_ucents=bindparam("new_charge"),
        outcome=word("new_outcome"),
        result=bindparam("new_result"),
        result_digest=word("new_digest"),
        settled_at=bindparam("new_settled_at", type_=Moment()),
    )
)


def _ending_values(before: CallRecord, ending: Settlement, at: datetime) -> dict[str, Any]:
    return {
        "tenant": before.tenant_id,
        "call": before.call_id,
        "state_before": before.state.value,
        "new_state": ending.state.value,
        "new_charge": ending.charged_ucents,
        "new_outcome": ending.outcome.value,
        "new_result": ending.result,
        "new_digest": ending.result_digest,
        "new_settled_at": at,
    }


def _movement(before: CallRecord, ending: Settlement) -> dict[str, Any]:
    """What a settlement adds to each account: the hold goes, the charge replaces it or an earlier charge."""
    is_held = before.state is ReservationState.PENDING
    was_posted = Amount() if is_held else Amount(tool_calls=before.hold.tool_calls, spend_ucents=before.charged_ucents)
    is_posted = ending.state is not ReservationState.VOIDED
    return {
        "tenant": before.tenant_id,
        "ids": before.accounts,
        "add_pending_calls": -before.hold.tool_calls if is_held else 0,
        "add_pending_ucents": -before.hold.spend_ucents if is_held else 0,
        "add_posted_calls": (before.hold.tool_calls if is_posted else 0) - was_posted.tool_calls,
        "add_posted_ucents": ending.charged_ucents - was_posted.spend_ucents,
    }
