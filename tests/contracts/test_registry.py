"""The registry: records come back as they were, names are unique where they must be, and one read answers a call."""

from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.attenuation import Ceiling
from app.core.budget import Amount
from app.core.grant import ClientId, ServerName, TenantId, ToolName
from app.core.registry import Client, Credential, Registration, Scope, Tenant, Tool, ToolServer, Window, Workload
from app.ports import AlreadyExists, Store
from tests.contracts.examples import CLIENT, SERVER, TENANT, TOOL, register
from tests.samples import ACME, SEARCH, SUPPORT

pytestmark = pytest.mark.anyio

OTHER = Tenant(tenant_id=TenantId("other"), name="Other", active=False, allow_grant_bearer=False)
FULL_CLIENT = replace(
    CLIENT,
    client_id=ClientId("full"),
    scopes=frozenset(Scope),
    ceiling=Ceiling(
        audiences=frozenset({"a", "b"}),
        allowed_tools=frozenset({"*"}),
        subjects=frozenset({"user:ä"}),
        limit=Amount(tool_calls=3, spend_ucents=2**53 - 1),
        max_lifetime=timedelta(seconds=1, microseconds=5),
        max_depth=0,
    ),
    window=Window(length=timedelta(days=30), limit=Amount(tool_calls=1)),
    active=False,
)


async def put(store: Store, *records: Tenant | Client | ToolServer | Tool) -> None:
    async with store.write() as tx:
        for record in records:
            match record:
                case Tenant():
                    await tx.registry.put_tenant(record)
                case Client():
                    await tx.registry.put_client(record)
                case ToolServer():
                    await tx.registry.put_server(record)
                case Tool():
                    await tx.registry.put_tool(record)
        await tx.commit()


# --- tenants and clients ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tenant", [TENANT, OTHER], ids=lambda tenant: tenant.name)
async def test_a_tenant_comes_back_exactly_as_it_was(store: Store, tenant: Tenant) -> None:
    await put(store, tenant)
    async with store.read() as tx:
        assert await tx.registry.tenant(tenant.tenant_id) == tenant


@pytest.mark.parametrize("client", [CLIENT, FULL_CLIENT], ids=lambda client: client.client_id)
async def test_a_client_comes_back_exactly_as_it_was(store: Store, client: Client) -> None:
    await put(store, TENANT, client)
    async with store.read() as tx:
        assert await tx.registry.client(client.client_id) == client


async def test_putting_replaces_all_of_a_record(store: Store) -> None:
    await register(store)
    changed = (
        replace(TENANT, name="Renamed", window=None),
        replace(FULL_CLIENT, client_id=CLIENT.client_id),
        replace(SERVER, endpoint="https://new.example", credential=Credential(), active=False),
        replace(TOOL, description="Changed", output_schema={"type": "null"}),
    )
    await put(store, *changed)
    async with store.read() as tx:
        assert await tx.registry.tenant(ACME) == changed[0]
        assert await tx.registry.client(CLIENT.client_id) == changed[1]
        assert await tx.registry.server(ACME, SERVER.name) == changed[2]
        assert await tx.registry.tool(ACME, TOOL.server, TOOL.name) == changed[3]


async def test_adding_what_exists_is_refused_by_name(store: Store) -> None:
    await register(store)
    await put(store, OTHER)
    async with store.write() as tx:
        with pytest.raises(AlreadyExists, match="tenantId"):
            await tx.registry.add_tenant(TENANT)
        with pytest.raises(AlreadyExists, match="clientId"):
            await tx.registry.add_client(replace(CLIENT, tenant_id=OTHER.tenant_id))
        with pytest.raises(AlreadyExists, match="name"):
            await tx.registry.add_server(replace(SERVER, audience="https://else.example"))
        with pytest.raises(AlreadyExists, match="audience"):
            await tx.registry.add_server(replace(SERVER, name=ServerName("else")))
        with pytest.raises(AlreadyExists, match="audience"):
            await tx.registry.put_server(replace(SERVER, name=ServerName("else")))
        assert await tx.registry.client(CLIENT.client_id) == CLIENT


async def test_what_was_never_registered_is_not_there(store: Store) -> None:
    async with store.read() as tx:
        assert await tx.registry.tenant(ACME) is None
        assert await tx.registry.client(CLIENT.client_id) is None
        assert await tx.registry.server(ACME, SERVER.name) is None
        assert await tx.registry.server_for(ACME, SERVER.audience) is None
        assert await tx.registry.tool(ACME, TOOL.server, TOOL.name) is None
        assert await tx.registry.tools(ACME, TOOL.server) == ()


@pytest.mark.parametrize("odd", ["", "a\x00b", "a\x1a0b", "a\x1ab", "%", "_", "'; --", "ü𝄞", "a" * 1000])
async def test_any_name_stands_for_itself_and_no_other(store: Store, odd: str) -> None:
    client = replace(CLIENT, client_id=ClientId(odd))
    await register(store)
    await put(store, client)
    async with store.read() as tx:
        assert await tx.registry.client(ClientId(odd)) == client
        assert await tx.registry.client(CLIENT.client_id) == CLIENT
        assert await tx.registry.client(ClientId(odd + "\x00")) is None


async def test_listings_are_in_order_of_name_and_continue_after_one(store: Store) -> None:
    names = ["Z", "a", "a-b", "a_b", "b", "ä"]
    await put(store, TENANT, OTHER, *(replace(CLIENT, client_id=ClientId(name)) for name in names))
    await put(store, replace(CLIENT, client_id=ClientId("foreign"), tenant_id=OTHER.tenant_id))
    async with store.read() as tx:
        page = await tx.registry.clients(ACME, after=None, limit=4)
        assert [client.client_id for client in page] == names[:4]
        rest = await tx.registry.clients(ACME, after=page[-1].client_id, limit=4)
        assert [client.client_id for client in rest] == names[4:]
        assert await tx.registry.tenants(after=None, limit=9) == (TENANT, OTHER)
        assert await tx.registry.tenants(after=ACME, limit=9) == (OTHER,)


# --- tool servers and tools -------------------------------------------------------------------------------


async def test_a_tool_server_and_its_tool_come_back_exactly_as_they_were(store: Store) -> None:
    await register(store)
    async with store.read() as tx:
        assert await tx.registry.server(ACME, SERVER.name) == SERVER
        assert await tx.registry.tool(ACME, TOOL.server, TOOL.name) == TOOL


async def test_a_tool_server_is_found_by_exactly_its_audience(store: Store) -> None:
    await register(store)
    async with store.read() as tx:
        assert await tx.registry.server_for(ACME, SUPPORT.uri) == SERVER
        assert await tx.registry.server_for(ACME, SUPPORT.uri + "/") is None
        assert await tx.registry.server_for(ACME, SUPPORT.uri.upper()) is None
        assert await tx.registry.server_for(OTHER.tenant_id, SUPPORT.uri) is None


async def test_names_and_audiences_of_tool_servers_are_each_tenants_own(store: Store) -> None:
    await register(store)
    theirs = replace(SERVER, tenant_id=OTHER.tenant_id, endpoint="https://theirs.example")
    await put(store, OTHER, theirs)
    async with store.read() as tx:
        assert await tx.registry.server(OTHER.tenant_id, SERVER.name) == theirs
        assert await tx.registry.server(ACME, SERVER.name) == SERVER


async def test_addresses_and_audiences_are_those_of_every_tenant(store: Store) -> None:
    await register(store)
    theirs = replace(
        SERVER, tenant_id=OTHER.tenant_id, audience="theirs", endpoint="e", upstream_audience=SERVER.endpoint
    )
    await put(store, OTHER, theirs)
    async with store.read() as tx:
        assert await tx.registry.addresses() == {SERVER.endpoint, SERVER.upstream_audience, "e"}
        assert await tx.registry.audiences() == {SERVER.audience, "theirs"}


async def test_tool_servers_are_listed_by_name(store: Store) -> None:
    second = replace(SERVER, name=ServerName("a_first"), audience="another")
    await register(store)
    await put(store, second)
    async with store.read() as tx:
        assert await tx.registry.servers(ACME, after=None, limit=5) == (second, SERVER)
        assert await tx.registry.servers(ACME, after=second.name, limit=5) == (SERVER,)
        assert await tx.registry.servers(OTHER.tenant_id, after=None, limit=5) == ()


async def test_tools_are_listed_by_name_in_their_server(store: Store) -> None:
    first = replace(TOOL, name=ToolName("a_first"))
    await register(store)
    await put(store, first)
    async with store.read() as tx:
        assert await tx.registry.tools(ACME, SERVER.name) == (first, TOOL)
        assert await tx.registry.tools(OTHER.tenant_id, SERVER.name) == ()


async def test_a_removed_tool_is_gone_and_removed_once(store: Store) -> None:
    await register(store)
    async with store.write() as tx:
        assert await tx.registry.remove_tool(ACME, TOOL.server, TOOL.name)
        assert not await tx.registry.remove_tool(ACME, TOOL.server, TOOL.name)
        assert await tx.registry.tools(ACME, TOOL.server) == ()


async def test_a_tool_without_its_server_is_a_callers_bug(store: Store) -> None:
    with pytest.raises(AssertionError):
        await put(store, TENANT, TOOL)


async def test_a_client_or_server_without_its_tenant_is_a_callers_bug(store: Store) -> None:
    with pytest.raises(AssertionError):
        await put(store, CLIENT)
    with pytest.raises(AssertionError):
        await put(store, SERVER)


# --- all that bears on one call ---------------------------------------------------------------------------


async def test_one_read_tells_all_that_bears_on_a_call(store: Store) -> None:
    await register(store)
    await put(store, FULL_CLIENT)
    async with store.read() as tx:
        wanted = [CLIENT.client_id, FULL_CLIENT.client_id, ClientId("unknown")]
        assert await tx.registry.registration(ACME, wanted, SEARCH.server, SEARCH.tool) == Registration(
            tenant=TENANT,
            clients={CLIENT.client_id: CLIENT, FULL_CLIENT.client_id: FULL_CLIENT},
            server=SERVER,
            tool=TOOL,
        )


async def test_what_a_call_names_in_vain_is_none(store: Store) -> None:
    await register(store)
    nothing = Registration(tenant=None, clients={}, server=None, tool=None)
    async with store.read() as tx:
        found = await tx.registry.registration(ACME, [], SERVER.name, ToolName("unknown"))
        assert found == Registration(tenant=TENANT, clients={}, server=SERVER, tool=None)
        assert await tx.registry.registration(TenantId("x"), [], SERVER.name, TOOL.name) == nothing


async def test_the_clients_of_a_workload_are_those_of_the_tenant_that_have_exactly_it(store: Store) -> None:
    agent = Workload(issuer="mesh", subject='spiffe://x/"agent"')
    own = replace(CLIENT, client_id=ClientId("b"), workload=agent)
    twin = replace(own, client_id=ClientId("a"), active=False)
    others = (
        replace(own, client_id=ClientId("c"), workload=replace(agent, issuer="another")),
        replace(own, client_id=ClientId("d"), workload=replace(agent, subject="spiffe://x/")),
        replace(own, client_id=ClientId("e"), workload=None, jwks={"workload": {"issuer": "mesh", "subject": "s"}}),
        replace(own, client_id=ClientId("f"), tenant_id=OTHER.tenant_id),
    )
    await put(store, TENANT, OTHER, own, twin, *others)
    async with store.read() as tx:
        assert await tx.registry.clients_of(ACME, agent) == (twin, own)
        assert await tx.registry.clients_of(ACME, Workload(issuer="mesh", subject="s")) == ()
        assert await tx.registry.clients_of(OTHER.tenant_id, agent) == (others[3],)
