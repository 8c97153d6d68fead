"""Administrators in two workers at once, on real databases: nothing that one did is undone by the other."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from app.adapters.dpop import DpopProofs
from app.adapters.ids import new_id
from app.adapters.jose import JoseSigner, KeyRing, make_key
from app.adapters.json_schema import RustSchemaValidator
from app.adapters.outside_tokens import OutsideJwts
from app.adapters.upstream import ToolUpstream
from app.adapters.vault import AesVault
from app.core.attenuation import Ceiling
from app.core.grant import ClientId, ServerName, TenantId
from app.core.registry import (
    PLATFORM_TENANT,
    AuthMethod,
    Client,
    ClientKind,
    Credential,
    Scope,
    Tenant,
    ToolServer,
    Transport,
)
from app.ports import AlreadyExists, Store
from app.usecases.bootstrap import bootstrap
from app.usecases.failures import Conflict
from app.usecases.register_client import NO_SECRET, change_client, disable_client, read_client, register_client
from app.usecases.register_tenant import register_tenant
from app.usecases.register_tool_server import CredentialWish, register_tool_server
from app.usecases.world import Caller, Rules, World
from tests.contracts.backends import (  # noqa: F401 - fixtures
    database,
    postgres_database,
    shared_postgres,
    sqlite_database,
    sqlite_template,
    two_stores,
)
from tests.samples import ACME, NOW
from tests.usecases.worlds import Policies, nothing_published

ISSUER = "https://subgrant.example"
ROOT, WORKER = ClientId("root"), ClientId("worker")
PLATFORM = Caller(client_id=ROOT, tenant_id=PLATFORM_TENANT, scopes=frozenset({Scope.ADMIN, Scope.PLATFORM}))
VAULT = AesVault(b"k" * 32)
ROUNDS = 5

Workers = tuple[World, World]


def a_world(store: Store) -> World:
    keys = KeyRing.load((make_key("EdDSA", NOW, VAULT.seal),), VAULT.open)
    return World(
        store=store,
        signer=JoseSigner(issuer=ISSUER, keys=keys, clock=lambda: NOW),
        vault=VAULT,
        upstream=ToolUpstream(),
        schemas=RustSchemaValidator(),
        policies=Policies(),
        outsiders=OutsideJwts(fetch=nothing_published),
        proofs=DpopProofs(),
        clock=lambda: NOW,
        new_id=new_id,
        rules=Rules(issuer=ISSUER),
    )


async def boot(world: World) -> bool:
    return await bootstrap(world.store, world.vault, world.clock, world.rules, client_id=ROOT, secret="s" * 32)


@pytest.fixture
async def workers(two_stores: tuple[Store, Store]) -> Workers:  # noqa: F811 - the fixture
    """Two workers, a tenant, and a client in it."""
    one, other = map(a_world, two_stores)
    await boot(one)
    await register_tenant(one, PLATFORM, Tenant(tenant_id=ACME, name="Acme"))
    worker = Client(
        client_id=WORKER,
        tenant_id=ACME,
        kind=ClientKind.AGENT,
        scopes=frozenset(),
        auth_method=AuthMethod.CLIENT_SECRET_BASIC,
        secret_hash=NO_SECRET,
    )
    await register_client(one, PLATFORM, worker)
    return one, other


def a_server(name: str, **members: str) -> ToolServer:
    endpoint = f"https://tools.example/{name}"
    server = ToolServer(
        tenant_id=ACME,
        name=ServerName(name),
        audience=f"urn:{name}",
        transport=Transport.HTTP,
        endpoint=endpoint,
        upstream_audience=endpoint,
        credential=Credential(),
        timeout_seconds=30.0,
        max_response_bytes=1_048_576,
    )
    return replace(server, **members)  # type: ignore[arg-type]  # a sample's changes are the test's to get right


async def outcome(attempt: Awaitable[object]) -> str:
    try:
        await attempt
    except (AlreadyExists, Conflict):
        return "refused"
    return "done"


async def test_a_disabling_survives_a_change_of_limits(workers: Workers) -> None:
    one, other = workers
    for seconds in range(1, ROUNDS + 1):
        wider = Ceiling(max_lifetime=timedelta(seconds=seconds))

        def widen(client: Client, to: Ceiling = wider) -> Client:
            return replace(client, ceiling=to)

        def enable(client: Client) -> Client:
            return replace(client, active=True)

        await change_client(one, PLATFORM, None, WORKER, enable)
        await asyncio.gather(
            change_client(one, PLATFORM, None, WORKER, widen), disable_client(other, PLATFORM, None, WORKER)
        )
        found = await read_client(one, PLATFORM, None, WORKER)
        assert isinstance(found, Client)
        assert (found.active, found.ceiling) == (False, wider)


async def test_of_an_audience_and_the_same_address_only_one_is_registered(workers: Workers) -> None:
    one, other = workers
    for number in range(ROUNDS):
        place = f"https://place.example/{number}"
        outcomes = await asyncio.gather(
            outcome(register_tool_server(one, PLATFORM, a_server(f"a{number}", audience=place), CredentialWish())),
            outcome(register_tool_server(other, PLATFORM, a_server(f"b{number}", endpoint=place), CredentialWish())),
        )
        assert sorted(outcomes) == ["done", "refused"]


async def test_one_client_id_goes_to_one_tenant(workers: Workers) -> None:
    globex = TenantId("globex")
    await register_tenant(workers[0], PLATFORM, Tenant(tenant_id=globex, name="Globex"))
    found = await read_client(workers[0], PLATFORM, None, WORKER)
    assert isinstance(found, Client)
    wish = replace(found, client_id=ClientId("new"), secret_hash=NO_SECRET)
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: register_client(workers[0], PLATFORM, wish),
        lambda: register_client(workers[1], PLATFORM, replace(wish, tenant_id=globex)),
    ]
    assert sorted(await asyncio.gather(*(outcome(attempt()) for attempt in attempts))) == ["done", "refused"]


async def test_workers_that_start_at_once_make_one_administrator(
    two_stores: tuple[Store, Store],  # noqa: F811 - the fixture
) -> None:
    worlds = [a_world(store) for store in two_stores]
    assert sorted(await asyncio.gather(*(boot(world) for world in [*worlds, *worlds]))) == [False, False, False, True]
