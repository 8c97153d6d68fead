"""The store in memory, for tests: the same semantics as the databases', held to by the same contract suite.

A transaction works on a copy of the state and swaps it in when it commits. Writers take turns on a lock;
readers keep the state that they began with. Knows nothing of SQL, and forgets everything with its process.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from types import MappingProxyType
from typing import Any, cast

from app.core import audit
from app.core.audit import AuditRecord, Head
from app.core.budget import Amount, Budget, ReservationState, Usage
from app.core.decision import Account
from app.core.grant import ClientId, Grant, GrantId, RunId, ServerName, TenantId, ToolName
from app.core.registry import (
    Client,
    Policy,
    Registration,
    Resource,
    Tenant,
    Tool,
    ToolServer,
    TrustedIssuer,
    Workload,
)
from app.core.resources import ResourceRef, Resources
from app.core.strict_json import JsonObject, canonical
from app.ports import (
    NO_CALL_LEFT,
    AlreadyExists,
    AuditLog,
    CallRecord,
    Directory,
    GrantFilter,
    GrantStore,
    KeyStore,
    Ledger,
    PolicyStore,
    RecordFilter,
    Registry,
    Settlement,
    SigningKey,
    SpentTokens,
    StoredGrant,
    Transaction,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A grant and what is stored beside it; its account is in `accounts`."""

    grant: Grant
    signed: str
    lineage: tuple[GrantId, ...]
    closed_at: datetime | None = None


@dataclass(slots=True)
class _State:
    """Every table. Values are immutable, so copying the dicts copies the state."""

    tenants: dict[TenantId, Tenant] = field(default_factory=dict)
    clients: dict[ClientId, Client] = field(default_factory=dict)
    servers: dict[tuple[TenantId, ServerName], ToolServer] = field(default_factory=dict)
    tools: dict[tuple[TenantId, ServerName, ToolName], Tool] = field(default_factory=dict)
    resources: dict[tuple[TenantId, ResourceRef], Resource] = field(default_factory=dict)
    policies: dict[tuple[TenantId, str], Policy] = field(default_factory=dict)
    issuers: dict[tuple[TenantId, str], TrustedIssuer] = field(default_factory=dict)
    spent: dict[tuple[TenantId, str, str], tuple[datetime, str | None]] = field(default_factory=dict)
    keys: dict[str, SigningKey] = field(default_factory=dict)
    nodes: dict[tuple[TenantId, GrantId], _Node] = field(default_factory=dict)
    runs: dict[tuple[TenantId, RunId], GrantId] = field(default_factory=dict)
    accounts: dict[tuple[TenantId, str], Account] = field(default_factory=dict)
    calls: dict[tuple[TenantId, str], CallRecord] = field(default_factory=dict)
    idempotency_keys: dict[tuple[TenantId, RunId, ServerName, str], str] = field(default_factory=dict)
    logs: dict[TenantId, tuple[AuditRecord, ...]] = field(default_factory=dict)

    def copy(self) -> "_State":
        return _State(**{name: dict(getattr(self, name)) for name in self.__slots__})

    def frozen(self) -> "_State":
        """The same state for readers: a faulty one that writes fails, as it does in a database."""
        return _State(**{name: cast("Any", MappingProxyType(getattr(self, name))) for name in self.__slots__})


class MemoryStore:
    def __init__(self) -> None:
        self._state = _State()
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Transaction]:
        yield MemoryTransaction(self, self._state.frozen())

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Transaction]:
        async with self._turn:
            yield MemoryTransaction(self, self._state.copy())

    def swap(self, state: _State) -> None:
        assert isinstance(state.tenants, dict), "a reader has nothing to commit"
        self._state = state

    async def ready(self) -> str | None:
        return None

    async def aclose(self) -> None:
        pass


class MemoryTransaction:
    def __init__(self, store: MemoryStore, state: _State) -> None:
        self._store = store
        self._state = state
        self.grants: GrantStore = MemoryGrants(state)
        self.ledger: Ledger = MemoryLedger(state)
        self.audit: AuditLog = MemoryAuditLog(state)
        self.registry: Registry = MemoryRegistry(state)
        self.directory: Directory = MemoryDirectory(state)
        self.policies: PolicyStore = MemoryPolicies(state)
        self.spent: SpentTokens = MemorySpentTokens(state)
        self.keys: KeyStore = MemoryKeys(state)

    async def commit(self) -> None:
        self._store.swap(self._state)


# --- grants -----------------------------------------------------------------------------------------------


class MemoryGrants:
    def __init__(self, state: _State) -> None:
        self._state = state

    async def add(self, grant: Grant, signed: str, lineage: Sequence[GrantId], *, claims_run: bool) -> None:
        assert lineage[0] == grant.root_grant_id, "a lineage starts at the root"
        assert (None, *lineage)[-2:] == (grant.parent_grant_id, grant.grant_id), "a lineage ends with the grant"
        run, key = (grant.tenant_id, grant.child_run_id), (grant.tenant_id, grant.grant_id)
        if claims_run and run in self._state.runs:
            raise AlreadyExists("childRunId")
        assert key not in self._state.nodes, "a grant's id is its own"
        assert all((grant.tenant_id, link) in self._state.nodes for link in lineage[:-1]), "a parent is stored"
        if claims_run:
            self._state.runs[run] = grant.grant_id
        self._state.nodes[key] = _Node(grant=grant, signed=signed, lineage=tuple(lineage))
        self._state.accounts[key] = Account(budget=Budget(account_id=grant.grant_id, limit=grant.limit))

    async def chain(self, tenant_id: TenantId, grant_id: GrantId) -> tuple[StoredGrant, ...]:
        node = self._state.nodes.get((tenant_id, grant_id))
        return () if node is None else tuple(self._stored(tenant_id, link) for link in node.lineage)

    async def subtree(self, tenant_id: TenantId, grant_id: GrantId, limit: int) -> tuple[StoredGrant, ...]:
        below = sorted(_below(self._state, tenant_id, grant_id), key=lambda node: node.lineage)
        return tuple(self._stored(tenant_id, node.grant.grant_id) for node in below[:limit])

    async def page(
        self, tenant_id: TenantId, where: GrantFilter, *, before: GrantId | None, limit: int
    ) -> tuple[StoredGrant, ...]:
        found = sorted(
            grant_id
            for (tenant, grant_id), node in self._state.nodes.items()
            if tenant == tenant_id and (before is None or grant_id < before) and self._fits(node, where)
        )
        return tuple(self._stored(tenant_id, grant_id) for grant_id in found[::-1][:limit])

    async def children(self, tenant_id: TenantId, grant_id: GrantId, live_at: datetime | None = None) -> int:
        return sum(grant.parent_grant_id == grant_id for grant in self._counted(tenant_id, live_at))

    async def tree_size(self, tenant_id: TenantId, root_grant_id: GrantId, live_at: datetime | None = None) -> int:
        return sum(grant.root_grant_id == root_grant_id for grant in self._counted(tenant_id, live_at))

    def _counted(self, tenant_id: TenantId, live_at: datetime | None) -> Iterator[Grant]:
        for key, node in self._state.nodes.items():
            is_open = self._state.accounts[key].closed is None
            if key[0] == tenant_id and (live_at is None or (is_open and node.grant.expires_at > live_at)):
                yield node.grant

    async def close(self, tenant_id: TenantId, grant_id: GrantId, *, reason: str, at: datetime) -> tuple[GrantId, ...]:
        below = sorted(_below(self._state, tenant_id, grant_id), key=lambda node: (len(node.lineage), node.lineage[-1]))
        keys = [
            (tenant_id, node.grant.grant_id)
            for node in below
            if node.grant.grant_id == grant_id or node.grant.expires_at > at - NO_CALL_LEFT
        ]
        are_open = [key for key in keys if self._state.accounts[key].closed is None]
        for key in are_open:
            self._state.accounts[key] = replace(self._state.accounts[key], closed=reason)
            self._state.nodes[key] = replace(self._state.nodes[key], closed_at=at)
        return tuple(grant for _, grant in are_open)

    async def runs_of(self, tenant_id: TenantId, grants: Sequence[GrantId]) -> Mapping[GrantId, RunId]:
        nodes = {grant: self._state.nodes.get((tenant_id, grant)) for grant in grants}
        return {grant: node.grant.child_run_id for grant, node in nodes.items() if node is not None}

    async def closed_among(self, grants: Sequence[tuple[TenantId, GrantId]]) -> frozenset[GrantId]:
        known = [key for key in grants if key in self._state.nodes]
        return frozenset(grant for tenant, grant in known if self._state.accounts[tenant, grant].closed is not None)

    async def resting_on(self, start: str, *, live_at: datetime, limit: int) -> int:
        links = {key for key, node in self._state.nodes.items() if node.signed.startswith(start)}
        resting = (
            key
            for key, node in self._state.nodes.items()
            if self._state.accounts[key].closed is None
            and node.grant.expires_at > live_at
            and any((key[0], link) in links for link in node.lineage)
        )
        return len(tuple(islice(resting, limit)))

    def _stored(self, tenant_id: TenantId, grant_id: GrantId) -> StoredGrant:
        node = self._state.nodes[tenant_id, grant_id]
        return StoredGrant(
            tenant_id=tenant_id,
            grant_id=grant_id,
            signed=node.signed,
            lineage=node.lineage,
            issued_at=node.grant.issued_at,
            expires_at=node.grant.expires_at,
            account=self._state.accounts[tenant_id, grant_id],
            closed_at=node.closed_at,
        )

    def _fits(self, node: _Node, where: GrantFilter) -> bool:
        grant = node.grant
        wanted = (
            (where.parent_grant_id, grant.parent_grant_id),
            (where.root_grant_id, grant.root_grant_id),
            (where.run_id, grant.child_run_id),
            (where.holder, grant.holder),
            (where.subject, grant.subject),
        )
        return (
            all(value in (None, actual) for value, actual in wanted)
            and (where.live_at is None or (node.closed_at is None and grant.expires_at > where.live_at))
            and (where.visible_to is None or where.visible_to in self._viewers(node))
        )

    def _viewers(self, node: _Node) -> frozenset[ClientId]:
        lineage = [self._state.nodes[node.grant.tenant_id, link].grant for link in node.lineage]
        return frozenset(client for grant in lineage for client in (grant.holder, grant.issued_by))


def _below(state: _State, tenant_id: TenantId, grant_id: str) -> Iterator[_Node]:
    """The grant and its descendants."""
    return (node for (tenant, _), node in state.nodes.items() if tenant == tenant_id and grant_id in node.lineage)


# --- the ledger -------------------------------------------------------------------------------------------

NOTHING = Amount()


class MemoryLedger:
    def __init__(self, state: _State) -> None:
        self._state = state

    async def lock(self, tenant_id: TenantId, grants: Sequence[GrantId]) -> Mapping[GrantId, Account]:
        return await self.accounts(tenant_id, grants)

    async def accounts(self, tenant_id: TenantId, grants: Sequence[GrantId]) -> Mapping[GrantId, Account]:
        known = [grant for grant in grants if (tenant_id, grant) in self._state.nodes]
        return {grant: self._state.accounts[tenant_id, grant] for grant in known}

    async def windows(self, tenant_id: TenantId, limits: Mapping[str, Amount], *, lock: bool) -> tuple[Budget, ...]:
        found = []
        for window, limit in sorted(limits.items()):
            account = self._state.accounts.get((tenant_id, window))
            account = account or Account(budget=Budget(account_id=window, limit=limit))
            if lock:
                self._state.accounts[tenant_id, window] = account
            found.append(replace(account.budget, limit=limit))
        return tuple(found)

    async def reserve(self, call: CallRecord) -> None:
        assert call.state is ReservationState.PENDING, "a call is reserved before it ends"
        key = None if call.idempotency_key is None else _key_of(call, call.idempotency_key)
        if key in self._state.idempotency_keys:
            raise AlreadyExists("idempotencyKey")
        assert (call.tenant_id, call.call_id) not in self._state.calls, "a call's id is its own"
        self._move(call, pending=call.hold)
        if key is not None:
            self._state.idempotency_keys[key] = call.call_id
        self._state.calls[call.tenant_id, call.call_id] = call

    async def settle(self, tenant_id: TenantId, call_id: str, ending: Settlement, at: datetime) -> CallRecord | None:
        before = self._state.calls.get((tenant_id, call_id))
        if before is None or not before.state.may_become(ending.state):
            return None
        after = replace(
            before,
            state=ending.state,
            charged_ucents=ending.charged_ucents,
            outcome=ending.outcome,
            result=ending.result,
            result_digest=ending.result_digest,
            settled_at=at,
        )
        least, most = _charges(after)
        assert least <= after.charged_ucents <= most, "a charge is within the hold"
        is_held = before.state is ReservationState.PENDING
        self._move(
            before,
            pending=_negative(before.hold) if is_held else NOTHING,
            posted=_posted(after) + _negative(_posted(before)),
        )
        self._state.calls[tenant_id, call_id] = after
        if after.state is ReservationState.VOIDED and after.idempotency_key is not None:
            # What never ran may be tried again under the same key.
            self._state.idempotency_keys.pop((tenant_id, after.run_id, after.server, after.idempotency_key), None)
        return after

    async def repeated(
        self, tenant_id: TenantId, run_id: RunId, server: ServerName, idempotency_key: str
    ) -> CallRecord | None:
        call_id = self._state.idempotency_keys.get((tenant_id, run_id, server, idempotency_key))
        return None if call_id is None else self._state.calls[tenant_id, call_id]

    async def overdue(self, now: datetime, limit: int) -> tuple[CallRecord, ...]:
        pending = (call for call in self._state.calls.values() if call.state is ReservationState.PENDING)
        late = [call for call in pending if call.deadline_at < now]
        late.sort(key=lambda call: (call.deadline_at, call.tenant_id, call.call_id))
        return tuple(late[:limit])

    def _move(self, call: CallRecord, *, pending: Amount, posted: Amount = NOTHING) -> None:
        """Add signed amounts to every account of a call; none is changed where one may not be."""
        moved = {key: _moved(self._state.accounts[key], pending, posted) for key in self._keys(call)}
        for (tenant_id, account_id), account in moved.items():
            is_grant = (tenant_id, account_id) in self._state.nodes
            assert not is_grant or account.budget.admits(NOTHING), "a grant's account never exceeds its limit"
        self._state.accounts.update(moved)

    def _keys(self, call: CallRecord) -> list[tuple[TenantId, str]]:
        keys = [(call.tenant_id, account) for account in call.accounts]
        assert all(key in self._state.accounts for key in keys), "every account of a call exists"
        return keys


def _key_of(call: CallRecord, key: str) -> tuple[TenantId, RunId, ServerName, str]:
    return call.tenant_id, call.run_id, call.server, key


def _charges(call: CallRecord) -> tuple[int, int]:
    """What an ended call may be charged: nothing for a void, all that was held when it expired."""
    held = call.hold.spend_ucents
    fixed = {ReservationState.VOIDED: (0, 0), ReservationState.EXPIRED: (held, held)}
    return fixed.get(call.state, (0, held))


def _posted(call: CallRecord) -> Amount:
    """What a call weighs on its accounts for good."""
    if call.state in (ReservationState.PENDING, ReservationState.VOIDED):
        return NOTHING
    return Amount(tool_calls=call.hold.tool_calls, spend_ucents=call.charged_ucents)


def _negative(amount: Amount) -> Amount:
    return Amount(tool_calls=-amount.tool_calls, spend_ucents=-amount.spend_ucents)


def _moved(account: Account, pending: Amount, posted: Amount) -> Account:
    usage = account.budget.usage
    usage = Usage(posted=usage.posted + posted, pending=usage.pending + pending)
    return replace(account, budget=replace(account.budget, usage=usage))


# --- the audit log ----------------------------------------------------------------------------------------

_EQUAL = {
    "type": "type",
    "decision": "decision",
    "reason": "reason",
    "grant_id": "grantId",
    "root_grant_id": "rootGrantId",
    "run_id": "runId",
    "subject": "subject",
    "client_id": "clientId",
    "tool": "tool",
    "call_id": "callId",
}


class MemoryAuditLog:
    def __init__(self, state: _State) -> None:
        self._state = state

    async def append(self, tenant_id: TenantId, events: Sequence[JsonObject]) -> tuple[AuditRecord, ...]:
        log, head = list(self._log(tenant_id)), await self.head(tenant_id)
        for event in events:
            log.append(audit.append(head, tenant_id, event))
            head = Head(seq=log[-1].seq, hash=log[-1].hash)
        self._state.logs[tenant_id] = tuple(log)
        return tuple(log[len(log) - len(events) :])

    async def head(self, tenant_id: TenantId) -> Head:
        log = self._log(tenant_id)
        return Head(seq=log[-1].seq, hash=log[-1].hash) if log else Head()

    async def page(
        self, tenant_id: TenantId, where: RecordFilter, *, after_seq: int | None, newest_first: bool, limit: int
    ) -> tuple[AuditRecord, ...]:
        ordered = self._log(tenant_id)[::-1] if newest_first else self._log(tenant_id)
        beyond = (
            record
            for record in ordered
            if after_seq is None or (record.seq < after_seq if newest_first else record.seq > after_seq)
        )
        return tuple(self._fitting(beyond, tenant_id, where))[:limit]

    async def read(self, tenant_id: TenantId) -> AsyncIterator[AuditRecord]:
        for record in self._log(tenant_id):
            yield record

    def _log(self, tenant_id: TenantId) -> tuple[AuditRecord, ...]:
        return self._state.logs.get(tenant_id, ())

    def _fitting(
        self, records: Iterable[AuditRecord], tenant_id: TenantId, where: RecordFilter
    ) -> Iterator[AuditRecord]:
        for record in records:
            if _fits(record, where) and (
                where.subtree_of is None or record.body.get("grantId") in self._subtree(tenant_id, where.subtree_of)
            ):
                yield record

    def _subtree(self, tenant_id: TenantId, grant_id: str) -> frozenset[str]:
        return frozenset(node.grant.grant_id for node in _below(self._state, tenant_id, grant_id))


def _fits(record: AuditRecord, where: RecordFilter) -> bool:
    body = record.body
    time = str(body.get("time", ""))
    return (
        all(getattr(where, name) in (None, body.get(member)) for name, member in _EQUAL.items())
        and (where.since is None or time >= _rendered(where.since))
        and (where.until is None or ("time" in body and time < _rendered(where.until)))
        and (where.text is None or canonical(where.text)[1:-1] in canonical(body))
    )


def _rendered(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# --- the registry, the directory, the policies and the keys -----------------------------------------------


class MemoryRegistry:
    def __init__(self, state: _State) -> None:
        self._state = state

    async def add_tenant(self, tenant: Tenant) -> None:
        if tenant.tenant_id in self._state.tenants:
            raise AlreadyExists("tenantId")
        await self.put_tenant(tenant)

    async def put_tenant(self, tenant: Tenant) -> None:
        self._state.tenants[tenant.tenant_id] = tenant

    async def tenant(self, tenant_id: TenantId) -> Tenant | None:
        return self._state.tenants.get(tenant_id)

    async def tenants(self, *, after: str | None, limit: int) -> tuple[Tenant, ...]:
        ids = sorted(tenant for tenant in self._state.tenants if after is None or tenant > after)
        return tuple(self._state.tenants[tenant] for tenant in ids[:limit])

    async def add_client(self, client: Client) -> None:
        if client.client_id in self._state.clients:
            raise AlreadyExists("clientId")
        await self.put_client(client)

    async def put_client(self, client: Client) -> None:
        assert client.tenant_id in self._state.tenants, "a client's tenant exists"
        self._state.clients[client.client_id] = client

    async def client(self, client_id: ClientId) -> Client | None:
        return self._state.clients.get(client_id)

    async def clients(self, tenant_id: TenantId, *, after: str | None, limit: int) -> tuple[Client, ...]:
        found = sorted(
            client_id
            for client_id, client in self._state.clients.items()
            if client.tenant_id == tenant_id and (after is None or client_id > after)
        )
        return tuple(self._state.clients[client_id] for client_id in found[:limit])

    async def clients_of(self, tenant_id: TenantId, workload: Workload) -> tuple[Client, ...]:
        everyone = (client for _, client in sorted(self._state.clients.items()) if client.tenant_id == tenant_id)
        return tuple(client for client in everyone if client.workload == workload)

    async def add_server(self, server: ToolServer) -> None:
        if (server.tenant_id, server.name) in self._state.servers:
            raise AlreadyExists("name")
        await self.put_server(server)

    async def put_server(self, server: ToolServer) -> None:
        assert server.tenant_id in self._state.tenants, "a tool server's tenant exists"
        other = await self.server_for(server.tenant_id, server.audience)
        if other is not None and other.name != server.name:
            raise AlreadyExists("audience")
        self._state.servers[server.tenant_id, server.name] = server

    async def server(self, tenant_id: TenantId, name: ServerName) -> ToolServer | None:
        return self._state.servers.get((tenant_id, name))

    async def server_for(self, tenant_id: TenantId, audience: str) -> ToolServer | None:
        own = (server for server in self._state.servers.values() if server.tenant_id == tenant_id)
        return next((server for server in own if server.audience == audience), None)

    async def addresses(self) -> frozenset[str]:
        servers = self._state.servers.values()
        return frozenset(address for server in servers for address in (server.endpoint, server.upstream_audience))

    async def audiences(self) -> frozenset[str]:
        return frozenset(server.audience for server in self._state.servers.values())

    async def servers(self, tenant_id: TenantId, *, after: str | None, limit: int) -> tuple[ToolServer, ...]:
        keys = sorted(key for key in self._state.servers if key[0] == tenant_id and (after is None or key[1] > after))
        return tuple(self._state.servers[key] for key in keys[:limit])

    async def put_tool(self, tool: Tool) -> None:
        assert (tool.tenant_id, tool.server) in self._state.servers, "a tool's server exists"
        self._state.tools[tool.tenant_id, tool.server, tool.name] = tool

    async def remove_tool(self, tenant_id: TenantId, server: ServerName, name: ToolName) -> bool:
        return self._state.tools.pop((tenant_id, server, name), None) is not None

    async def tool(self, tenant_id: TenantId, server: ServerName, name: ToolName) -> Tool | None:
        return self._state.tools.get((tenant_id, server, name))

    async def tools(self, tenant_id: TenantId, server: ServerName) -> tuple[Tool, ...]:
        keys = sorted(key for key in self._state.tools if key[:2] == (tenant_id, server))
        return tuple(self._state.tools[key] for key in keys)

    async def put_issuer(self, issuer: TrustedIssuer) -> None:
        assert issuer.tenant_id in self._state.tenants, "an issuer's tenant exists"
        other = await self.issuer_of(issuer.tenant_id, issuer.issuer)
        if other is not None and other.name != issuer.name:
            raise AlreadyExists("issuer")
        self._state.issuers[issuer.tenant_id, issuer.name] = issuer

    async def issuer(self, tenant_id: TenantId, name: str) -> TrustedIssuer | None:
        return self._state.issuers.get((tenant_id, name))

    async def issuer_of(self, tenant_id: TenantId, issuer: str) -> TrustedIssuer | None:
        theirs = (each for (tenant, _), each in self._state.issuers.items() if tenant == tenant_id)
        return next((each for each in theirs if each.issuer == issuer), None)

    async def issuers(self, tenant_id: TenantId, *, after: str | None, limit: int) -> tuple[TrustedIssuer, ...]:
        names = sorted(name for tenant, name in self._state.issuers if tenant == tenant_id and name > (after or ""))
        return tuple(self._state.issuers[tenant_id, name] for name in names[:limit])

    async def registration(
        self, tenant_id: TenantId, clients: Sequence[ClientId], server: ServerName, tool: ToolName
    ) -> Registration:
        return Registration(
            tenant=await self.tenant(tenant_id),
            clients={each: self._state.clients[each] for each in clients if each in self._state.clients},
            server=await self.server(tenant_id, server),
            tool=await self.tool(tenant_id, server, tool),
        )


class MemoryDirectory:
    def __init__(self, state: _State) -> None:
        self._state = state

    async def put(self, resources: Sequence[Resource]) -> None:
        assert all(each.tenant_id in self._state.tenants for each in resources), "a resource's tenant exists"
        for each in resources:
            self._state.resources[each.tenant_id, each.ref] = each

    async def remove(self, tenant_id: TenantId, ref: ResourceRef) -> bool:
        return self._state.resources.pop((tenant_id, ref), None) is not None

    async def resource(self, tenant_id: TenantId, ref: ResourceRef) -> Resource | None:
        return self._state.resources.get((tenant_id, ref))

    async def look_up(self, tenant_id: TenantId, refs: Collection[ResourceRef]) -> Resources:
        known = [ref for ref in refs if (tenant_id, ref) in self._state.resources]
        return {ref: self._state.resources[tenant_id, ref].attributes for ref in known}

    async def page(
        self, tenant_id: TenantId, *, kind: str | None, after: ResourceRef | None, limit: int
    ) -> tuple[Resource, ...]:
        found = sorted(
            (tenant, ref)
            for tenant, ref in self._state.resources
            if tenant == tenant_id and kind in (None, ref.type) and (after is None or ref > after)
        )
        return tuple(self._state.resources[key] for key in found[:limit])


class MemoryPolicies:
    def __init__(self, state: _State) -> None:
        self._state = state

    async def add(self, policy: Policy) -> None:
        assert policy.tenant_id in self._state.tenants, "a policy's tenant exists"
        if (policy.tenant_id, policy.version) in self._state.policies:
            raise AlreadyExists("version")
        self._state.policies[policy.tenant_id, policy.version] = policy

    async def policy(self, tenant_id: TenantId, version: str) -> Policy | None:
        return self._state.policies.get((tenant_id, version))

    async def count(self, tenant_id: TenantId) -> int:
        return len(self._of(tenant_id))

    async def page(self, tenant_id: TenantId, *, after: str | None, limit: int) -> tuple[Policy, ...]:
        made = self._of(tenant_id)
        versions = [policy.version for policy in made]
        if after is not None:
            made = made[versions.index(after) + 1 :] if after in versions else ()
        return made[:limit]

    def _of(self, tenant_id: TenantId) -> tuple[Policy, ...]:
        """A tenant's, in the order in which they were made, which is the dictionary's."""
        return tuple(policy for (tenant, _), policy in self._state.policies.items() if tenant == tenant_id)


class MemorySpentTokens:
    def __init__(self, state: _State) -> None:
        self._state = state

    async def spend(
        self, tenant_id: TenantId, issuer: str, jti: str, *, expires_at: datetime, now: datetime, on: str | None = None
    ) -> bool:
        assert tenant_id in self._state.tenants, "who spends a token is of a tenant"
        for key in [key for key, (expires, _) in self._state.spent.items() if key[0] == tenant_id and expires < now]:
            del self._state.spent[key]
        if (tenant_id, issuer, jti) in self._state.spent:
            return False
        self._state.spent[tenant_id, issuer, jti] = (expires_at, on)
        return True

    async def is_spent(self, tenant_id: TenantId, issuer: str, jti: str) -> bool:
        return (tenant_id, issuer, jti) in self._state.spent

    async def spent_on(self, tenant_id: TenantId, issuer: str, jti: str) -> str | None:
        return self._state.spent.get((tenant_id, issuer, jti), (None, None))[1]

    async def spent_among(self, tenant_id: TenantId, issuer: str, jtis: Sequence[str]) -> frozenset[str]:
        return frozenset(jti for jti in jtis if (tenant_id, issuer, jti) in self._state.spent)


class MemoryKeys:
    def __init__(self, state: _State) -> None:
        self._state = state

    async def add(self, key: SigningKey) -> None:
        if key.kid in self._state.keys:
            raise AlreadyExists("kid")
        self._state.keys[key.kid] = key

    async def all(self) -> tuple[SigningKey, ...]:
        in_use = (key for key in self._state.keys.values() if key.retired_at is None)
        return tuple(sorted(in_use, key=lambda key: (key.created_at, key.kid)))

    async def key(self, kid: str) -> SigningKey | None:
        return self._state.keys.get(kid)

    async def page(self, *, after: str | None, limit: int) -> tuple[SigningKey, ...]:
        made = sorted(self._state.keys.values(), key=lambda key: (key.created_at, key.kid))
        kids = [key.kid for key in made]
        if after is not None and after not in kids:
            return ()
        first = 0 if after is None else kids.index(after) + 1
        return tuple(made[first:][:limit])

    async def retire(self, kid: str, at: datetime) -> None:
        key = self._state.keys.get(kid)
        if key is not None and key.retired_at is None:
            self._state.keys[kid] = replace(key, retired_at=at)
