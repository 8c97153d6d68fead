"""What the contract tests store: small chains, calls and events, and the steps that put them there."""

from dataclasses import replace
from datetime import timedelta

from app.core.budget import Amount, Price, ReservationState
from app.core.decision import Account
from app.core.grant import Grant, GrantId, RunId
from app.core.registry import (
    AuthMethod,
    Client,
    ClientKind,
    Credential,
    CredentialType,
    Effect,
    HttpBinding,
    Policy,
    PolicyCase,
    Resolver,
    Resource,
    Scope,
    Tenant,
    Tool,
    ToolServer,
    ToolSource,
    Transport,
    Trust,
    Window,
)
from app.core.strict_json import JsonObject
from app.ports import CallRecord, Outcome, Settlement, Store, Transaction
from app.usecases.world import stamp
from tests.samples import ACME, NOW, SEARCH, SUPPORT, a_child, a_grant

ROOT = a_grant()
CHILD = a_child(ROOT)
GRANDCHILD = a_child(CHILD)
ONE_CALL = Amount(tool_calls=1, spend_ucents=100)


def lineage_of(*grants: Grant) -> list[GrantId]:
    return [grant.grant_id for grant in grants]


async def add_chain(store: Store, *chain: Grant) -> list[GrantId]:
    """Store a lineage, root first, all of it new; its ids."""
    async with store.write() as tx:
        for length, grant in enumerate(chain, start=1):
            await tx.grants.add(grant, f"signed {grant.grant_id}", lineage_of(*chain[:length]), claims_run=True)
        await tx.commit()
    return lineage_of(*chain)


async def add_below(store: Store, parents: tuple[Grant, ...], *children: Grant) -> None:
    """Store children below a lineage that is there."""
    async with store.write() as tx:
        for child in children:
            await tx.grants.add(child, f"signed {child.grant_id}", lineage_of(*parents, child), claims_run=True)
        await tx.commit()


async def account(store: Store, grant_id: GrantId) -> Account:
    async with store.read() as tx:
        return (await tx.ledger.accounts(ACME, [grant_id]))[grant_id]


async def posted_and_pending(store: Store, grant_id: GrantId) -> tuple[Amount, Amount]:
    usage = (await account(store, grant_id)).budget.usage
    return usage.posted, usage.pending


def a_record(call_id: str = "call_1", **changes: object) -> CallRecord:
    record = CallRecord(
        tenant_id=ACME,
        call_id=call_id,
        decision_id=f"dec_{call_id}",
        grant_id=ROOT.grant_id,
        run_id=ROOT.child_run_id,
        server=SEARCH.server,
        tool=SEARCH.tool,
        request_digest="0123",
        idempotency_key=None,
        hold=ONE_CALL,
        accounts=(ROOT.grant_id,),
        reserved_at=NOW,
        deadline_at=NOW + timedelta(seconds=30),
    )
    return replace(record, **changes)  # type: ignore[arg-type]  # a sample's changes are the test's to get right


def an_ending(state: ReservationState = ReservationState.POSTED, **changes: object) -> Settlement:
    ending = Settlement(state=state, charged_ucents=0, outcome=Outcome.SUCCESS)
    return replace(ending, **changes)  # type: ignore[arg-type]  # likewise


async def reserve(store: Store, record: CallRecord) -> None:
    async with store.write() as tx:
        await tx.ledger.lock(record.tenant_id, [GrantId(each) for each in record.accounts])
        await tx.ledger.reserve(record)
        await tx.commit()


async def settle(store: Store, call_id: str, ending: Settlement) -> CallRecord | None:
    async with store.write() as tx:
        settled = await tx.ledger.settle(ACME, call_id, ending, NOW)
        await tx.commit()
    return settled


async def reserve_if_it_fits(tx: Transaction, record: CallRecord) -> bool:
    """What the use case does: look at the locked accounts, and hold only what they admit."""
    accounts = await tx.ledger.lock(record.tenant_id, [GrantId(each) for each in record.accounts])
    fits = all(each.closed is None and each.budget.admits(record.hold) for each in accounts.values())
    if fits:
        await tx.ledger.reserve(record)
        await tx.commit()
    return fits


def an_event(number: int = 1, **members: object) -> JsonObject:
    event: JsonObject = {"type": "tool.authorized", "time": stamp(NOW + timedelta(seconds=number)), "number": number}
    return event | members  # type: ignore[return-value]  # a test's members are JSON


async def append(store: Store, *events: JsonObject) -> None:
    async with store.write() as tx:
        await tx.audit.append(ACME, events)
        await tx.commit()


TENANT = Tenant(
    tenant_id=ACME,
    name="Acme",
    window=Window(length=timedelta(hours=1), limit=ONE_CALL),
    policy_version="v3",
)
CLIENT = Client(
    client_id=ROOT.issued_by,
    tenant_id=ACME,
    kind=ClientKind.ORCHESTRATOR,
    scopes=frozenset({Scope.GRANTS_ISSUE, Scope.TOOLS_CALL}),
    auth_method=AuthMethod.CLIENT_SECRET_BASIC,
    secret_hash="hashed",
)
SERVER = ToolServer(
    tenant_id=ACME,
    name=SUPPORT.server,
    audience=SUPPORT.uri,
    transport=Transport.HTTP,
    endpoint="https://backend.example/support",
    upstream_audience="https://backend.example",
    credential=Credential(type=CredentialType.HEADER, header="X-Key", sealed=b"\x00\xff sealed"),
    timeout_seconds=2.5,
    max_response_bytes=65_536,
    resolver=Resolver(path="/resources", types=("case", "account"), cache_seconds=1.5),
)
TOOL = Tool(
    tenant_id=ACME,
    server=SEARCH.server,
    name=SEARCH.tool,
    description="Finds cases – quickly",
    input_schema={"type": "object", "properties": {"limit": {"maximum": 1.5, "enum": [None, True]}}},
    output_schema=None,
    price=Price(fixed_ucents=1, max_ucents=2, cost_from="/cost"),
    effect=Effect.READ,
    trust=Trust.INTERNAL,
    sinks=("mail", "web"),
    idempotent=True,
    loggable_arguments=("customerId",),
    http=HttpBinding(method="GET", path="/cases/{id}"),
    source=ToolSource.DECLARED,
)
RESOURCE = Resource(
    tenant_id=ACME,
    type="case",
    id="case_7",
    attributes={"owner": "user:ada", "amount": 12.5, "items": 3, "open": True, "closedBy": None},
)
POLICY = Policy(
    tenant_id=ACME,
    version="v1",
    text="permit (principal, action, resource);\n// ä\n",
    description="all that the grant permits",
    cases=(
        PolicyCase(name="reads", permitted=True, call={"tool": "support/case_search", "resource": {"id": "case_7"}}),
        PolicyCase(name="writes", permitted=False, call={"limits": [1, 1.5, True, None, "x"]}),
    ),
    created_at=NOW + timedelta(microseconds=123_456),
    created_by=CLIENT.client_id,
)


async def register(store: Store) -> None:
    """A tenant with a client, a tool server and its tool."""
    async with store.write() as tx:
        await tx.registry.add_tenant(TENANT)
        await tx.registry.add_client(CLIENT)
        await tx.registry.add_server(SERVER)
        await tx.registry.put_tool(TOOL)
        await tx.commit()


async def describe(store: Store, *resources: Resource) -> None:
    async with store.write() as tx:
        await tx.directory.put(resources)
        await tx.commit()


async def publish(store: Store, *policies: Policy) -> None:
    async with store.write() as tx:
        for policy in policies:
            await tx.policies.add(policy)
        await tx.commit()


def a_run(name: str) -> RunId:
    return RunId(f"run_{name}")
