"""What belongs to whom: who may say so, what is kept of it, and how a tool server's resolver is registered."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import pytest

from app.adapters.dpop import DpopProofs
from app.adapters.ids import new_id
from app.adapters.jose import JoseSigner, KeyRing, make_key
from app.adapters.json_schema import RustSchemaValidator
from app.adapters.memory import MemoryStore
from app.adapters.outside_tokens import OutsideJwts
from app.adapters.upstream import ToolUpstream
from app.adapters.vault import AesVault
from app.core.grant import ClientId, GrantId, ServerName, TenantId
from app.core.reasons import Reason
from app.core.registry import (
    PLATFORM_TENANT,
    Credential,
    CredentialType,
    Resolver,
    Resource,
    Tenant,
    ToolServer,
    Transport,
)
from app.core.resources import Attributes, ResourceRef
from app.core.strict_json import JsonObject, JsonScalar, canonical
from app.ports import PolicyAnswer, PolicyQuestion, RecordFilter, Store
from app.usecases.administration import PageRequest
from app.usecases.failures import Denied, Malformed, NotFound
from app.usecases.register_resource import (
    MAX_RECORDED,
    MAX_RESOURCES_PER_LOAD,
    MAX_TENANTS_PER_LOAD,
    Loaded,
    list_resources,
    load_resources,
    read_resource,
    register_resource,
    remove_resource,
)
from app.usecases.register_tool_server import (
    MAX_RESOLVED_TYPES,
    CredentialWish,
    change_tool_server,
    read_tool_server,
    register_tool_server,
)
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
from tests.usecases.worlds import nothing_published

T = TypeVar("T")

ISSUER = "https://subgrant.example"
GLOBEX = TenantId("globex")
PLATFORM = Caller(client_id=ClientId("root"), tenant_id=PLATFORM_TENANT, scopes=frozenset({"admin", "platform"}))
ADMIN = Caller(client_id=ClientId("acme-admin"), tenant_id=ACME, scopes=frozenset({"admin"}))
STRANGER = Caller(client_id=ClientId("globex-admin"), tenant_id=GLOBEX, scopes=frozenset({"admin"}))
AUDITOR = Caller(client_id=ClientId("auditor"), tenant_id=ACME, scopes=frozenset({"audit:read", "grants:issue"}))
HOLDER = replace(ADMIN, grant_id=GrantId("gr_1"))
CASE = ResourceRef("case", "c_42")
HUSH = "hush-hush-0815"


@dataclass
class NoPolicies:
    """An engine that nobody here asks."""

    def flaws(self, text: str) -> tuple[str, ...]:
        raise NotImplementedError

    async def answer(self, text: str, question: PolicyQuestion) -> PolicyAnswer:
        raise NotImplementedError


async def a_world(store: Store) -> World:
    vault = AesVault(b"k" * 32)
    return World(
        store=store,
        signer=JoseSigner(
            issuer=ISSUER, keys=KeyRing.load((make_key("EdDSA", NOW, vault.seal),), vault.open), clock=lambda: NOW
        ),
        vault=vault,
        upstream=ToolUpstream(),
        schemas=RustSchemaValidator(),
        policies=NoPolicies(),
        outsiders=OutsideJwts(fetch=nothing_published),
        proofs=DpopProofs(),
        clock=lambda: NOW,
        new_id=new_id,
        rules=Rules(issuer=ISSUER, max_page_rows=100),
    )


async def populate(world: World, *more: str) -> None:
    async with world.store.write() as tx:
        for tenant_id in (PLATFORM_TENANT, ACME, GLOBEX, *map(TenantId, more)):
            await tx.registry.add_tenant(Tenant(tenant_id=tenant_id, name=tenant_id))
        await tx.commit()


@pytest.fixture
async def world() -> World:
    made = await a_world(MemoryStore())
    await populate(made)
    return made


def accepted(result: T | Denied) -> T:
    assert not isinstance(result, Denied), result
    return result


def refused(result: object) -> Reason:
    assert isinstance(result, Denied), result
    return result.reason


def a_thing(ref: ResourceRef = CASE, tenant_id: TenantId = ACME, **attributes: JsonScalar) -> Resource:
    return Resource(tenant_id=tenant_id, type=ref.type, id=ref.id, attributes=attributes)


def cases(count: int, tenant_id: TenantId = ACME, **attributes: JsonScalar) -> list[Resource]:
    return [a_thing(ResourceRef("case", f"c_{number:04}"), tenant_id, **attributes) for number in range(count)]


async def log_of(world: World, tenant_id: TenantId = ACME) -> list[JsonObject]:
    async with world.store.read() as tx:
        records = await tx.audit.page(tenant_id, RecordFilter(), after_seq=None, newest_first=False, limit=1000)
    return [record.body for record in records]


async def everything_of(world: World, tenant_id: TenantId = ACME) -> dict[ResourceRef, Attributes]:
    async with world.store.read() as tx:
        found = await tx.directory.page(tenant_id, kind=None, after=None, limit=10_000)
    return {resource.ref: resource.attributes for resource in found}


# --- whose it is ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "caller, reason",
    [
        (STRANGER, Reason.TENANT_MISMATCH),
        (AUDITOR, Reason.INSUFFICIENT_SCOPE),
        (HOLDER, Reason.INSUFFICIENT_SCOPE),
    ],
    ids=["another tenant's administrator", "no administrator", "an administrator's grant"],
)
async def test_nobody_else_reads_writes_or_lists_a_tenants_things(world: World, caller: Caller, reason: Reason) -> None:
    accepted(await register_resource(world, ADMIN, a_thing(region="eu")))
    before = (await everything_of(world), await log_of(world))
    absent = ResourceRef("case", "c_none")
    outcomes = [
        await register_resource(world, caller, a_thing(region="us")),
        await register_resource(world, caller, a_thing(absent)),
        await load_resources(world, caller, [a_thing(region="us"), a_thing(absent)]),
        await read_resource(world, caller, ACME, CASE),
        await read_resource(world, caller, ACME, absent),
        await list_resources(world, caller, ACME, PageRequest()),
        await remove_resource(world, caller, ACME, CASE),
        await remove_resource(world, caller, ACME, absent),
        await read_resource(world, caller, TenantId("no-such-tenant"), CASE),
    ]
    assert {refused(outcome) for outcome in outcomes} == {reason}
    # One answer for all, so that nothing tells whether a thing, or a tenant, is there.
    assert len({repr(outcome) for outcome in outcomes}) == 1
    assert (await everything_of(world), await log_of(world)) == before


async def test_a_load_that_names_another_tenant_changes_nothing_in_either(world: World) -> None:
    rows = [*cases(3), a_thing(tenant_id=GLOBEX), a_thing(ResourceRef("case", "last"))]
    assert refused(await load_resources(world, ADMIN, rows)) is Reason.TENANT_MISMATCH
    assert await everything_of(world) == await everything_of(world, GLOBEX) == {}
    assert await log_of(world) == await log_of(world, GLOBEX) == []


async def test_the_same_name_is_another_thing_in_another_tenant(world: World) -> None:
    accepted(await register_resource(world, ADMIN, a_thing(owner="ada")))
    accepted(await register_resource(world, STRANGER, a_thing(tenant_id=GLOBEX, owner="eve")))
    assert accepted(await read_resource(world, ADMIN, ACME, CASE)).attributes == {"owner": "ada"}
    assert await remove_resource(world, STRANGER, GLOBEX, CASE) is None
    assert accepted(await read_resource(world, ADMIN, ACME, CASE)).attributes == {"owner": "ada"}


async def test_a_platform_administrator_acts_in_any_tenant(world: World) -> None:
    accepted(await register_resource(world, PLATFORM, a_thing()))
    loaded = accepted(await load_resources(world, PLATFORM, [*cases(2), *cases(3, GLOBEX)]))
    assert loaded == Loaded(loaded=5, created=5)
    assert (len(await everything_of(world)), len(await everything_of(world, GLOBEX))) == (3, 3)
    assert [record["clientId"] for record in await log_of(world, GLOBEX)] == ["root"]


async def test_a_tenant_that_does_not_exist_is_not_found_and_nothing_is_loaded(world: World) -> None:
    nowhere = TenantId("no-such-tenant")
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: register_resource(world, PLATFORM, a_thing(tenant_id=nowhere)),
        lambda: load_resources(world, PLATFORM, [a_thing(), a_thing(tenant_id=nowhere)]),
        lambda: list_resources(world, PLATFORM, nowhere, PageRequest()),
        lambda: read_resource(world, PLATFORM, nowhere, CASE),
    ]
    for attempt in attempts:
        with pytest.raises(NotFound):
            await attempt()
    assert await everything_of(world) == {}


# --- one thing --------------------------------------------------------------------------------------------


async def test_a_thing_is_new_then_the_same_then_replaced_then_gone(world: World) -> None:
    first = accepted(await register_resource(world, ADMIN, a_thing(region="eu", level=1)))
    again = accepted(await register_resource(world, ADMIN, a_thing(level=1, region="eu")))
    other = accepted(await register_resource(world, ADMIN, a_thing(region="eu", open=True)))
    assert (first.created, again.created, other.created) == (True, False, False)
    assert accepted(await read_resource(world, ADMIN, ACME, CASE)) == a_thing(region="eu", open=True)
    assert await remove_resource(world, ADMIN, ACME, CASE) is None
    with pytest.raises(NotFound):
        await read_resource(world, ADMIN, ACME, CASE)
    with pytest.raises(NotFound):
        await remove_resource(world, ADMIN, ACME, CASE)
    assert [(record["action"], record.get("changedFields")) for record in await log_of(world)] == [
        ("resource.created", None),
        ("resource.changed", ["attributes.level", "attributes.open"]),
        ("resource.removed", None),
    ]
    assert {record["resource"] for record in await log_of(world)} == {"resource/case/c_42"}


@pytest.mark.parametrize("before, after", [(1, True), (0, False), (False, None), ("1", 1), ("", None)], ids=repr)
async def test_values_of_different_types_are_different(world: World, before: JsonScalar, after: JsonScalar) -> None:
    await register_resource(world, ADMIN, a_thing(flag=before))
    await register_resource(world, ADMIN, a_thing(flag=after))
    await load_resources(world, ADMIN, [a_thing(flag=before)])
    value = accepted(await read_resource(world, ADMIN, ACME, CASE)).attributes["flag"]
    assert (type(value), value) == (type(before), before)
    assert len(await log_of(world)) == 3


async def test_an_attribute_without_a_value_is_not_one_that_is_left_out(world: World) -> None:
    await register_resource(world, ADMIN, a_thing(flag=None))
    await register_resource(world, ADMIN, a_thing())
    assert accepted(await read_resource(world, ADMIN, ACME, CASE)).attributes == {}


async def test_no_record_holds_an_attributes_value(world: World) -> None:
    await register_resource(world, ADMIN, a_thing(note=HUSH))
    await register_resource(world, ADMIN, a_thing(note=f"{HUSH}-2"))
    await load_resources(world, ADMIN, [a_thing(note=f"{HUSH}-3"), *cases(3, note=HUSH)])
    await remove_resource(world, ADMIN, ACME, CASE)
    assert len(await log_of(world)) == 4
    assert HUSH.encode() not in canonical([*await log_of(world)])


@pytest.mark.parametrize(
    "wish, pointer",
    [
        (a_thing(ResourceRef("Case", "c")), "/type"),
        (a_thing(ResourceRef("", "c")), "/type"),
        (a_thing(ResourceRef("case/x", "c")), "/type"),
        (a_thing(ResourceRef("case", "")), "/id"),
        (a_thing(ResourceRef("case", "a\nb")), "/id"),
        (a_thing(ResourceRef("case", "e\u0301")), "/id"),
        (a_thing(ResourceRef("case", "x" * 201)), "/id"),
        (a_thing(note="x" * 1001), "/attributes/note"),
        (a_thing(note="e\u0301"), "/attributes/note"),
        (replace(a_thing(), attributes={"a b": 1}), "/attributes/a b"),
        (replace(a_thing(), attributes={f"a{number}": 1 for number in range(33)}), "/attributes"),
    ],
    ids=ascii,
)
async def test_what_is_no_thing_is_refused_by_name_and_in_a_load_by_place(
    world: World, wish: Resource, pointer: str
) -> None:
    with pytest.raises(Malformed) as alone:
        await register_resource(world, ADMIN, wish)
    with pytest.raises(Malformed) as among_others:
        await load_resources(world, ADMIN, [*cases(2), wish])
    assert (alone.value.pointer, among_others.value.pointer) == (pointer, f"/resources/2{pointer}")
    assert await everything_of(world) == {}
    assert await log_of(world) == []


@pytest.mark.parametrize("id_", ["../x", "%2f", "'; DROP TABLE resources; --", '"', "a/b/", "..", " ", "_%", "🧾"])
async def test_a_strange_id_is_one_id_and_no_other(world: World, id_: str) -> None:
    ref = ResourceRef("case", id_)
    accepted(await register_resource(world, ADMIN, a_thing(ref)))
    assert [*await everything_of(world)] == [ref]
    assert accepted(await read_resource(world, ADMIN, ACME, ref)).id == id_


# --- many at once -----------------------------------------------------------------------------------------


async def test_a_load_says_how_many_were_new_and_leaves_one_record(world: World) -> None:
    await load_resources(world, ADMIN, cases(4, region="eu"))
    rows = [*cases(5, region="us"), a_thing(ResourceRef("account", "a_1")), a_thing(ResourceRef("case", "c_0000x"))]
    assert accepted(await load_resources(world, ADMIN, rows)) == Loaded(loaded=7, created=3)
    assert len(await everything_of(world)) == 7
    _, record = await log_of(world)
    digest = record.pop("contentDigest")
    assert (isinstance(digest, str), digest) != (True, "")
    assert record == record | {
        "type": "admin.changed",
        "action": "resources.loaded",
        "resource": "resources",
        "clientId": "acme-admin",
        "created": 3,
        "changed": 4,
        "types": ["account", "case"],
    }
    assert record["resources"] == [
        "resource/account/a_1",
        *(f"resource/case/c_{number:04}" for number in (0,)),
        "resource/case/c_0000x",
        *(f"resource/case/c_{number:04}" for number in (1, 2, 3, 4)),
    ]


async def test_a_load_of_what_is_there_already_leaves_no_record(world: World) -> None:
    await load_resources(world, ADMIN, cases(10, region="eu"))
    assert accepted(await load_resources(world, ADMIN, cases(10, region="eu"))) == Loaded(loaded=10, created=0)
    assert len(await log_of(world)) == 1


async def test_the_record_of_a_load_names_a_bounded_number(world: World) -> None:
    rows = [a_thing(ResourceRef(f"type{number}", "x")) for number in range(MAX_RESOURCES_PER_LOAD)]
    await load_resources(world, ADMIN, rows)
    (record,) = await log_of(world)
    assert record["created"] == MAX_RESOURCES_PER_LOAD
    assert isinstance(record["types"], list)
    assert isinstance(record["resources"], list)
    assert len(record["types"]) == len(record["resources"]) == MAX_RECORDED
    assert len(canonical(record)) < 3000


async def test_the_digest_of_a_load_is_of_its_content_and_tenant(world: World) -> None:
    async def digest(tenant_id: TenantId, region: str) -> object:
        await load_resources(world, PLATFORM, cases(3, tenant_id, region=region))
        return (await log_of(world, tenant_id))[-1]["contentDigest"]

    digests = [await digest(ACME, "eu"), await digest(ACME, "us"), await digest(GLOBEX, "eu"), await digest(ACME, "eu")]
    assert len(set(digests)) == 3
    assert digests[0] == digests[3]


async def test_a_thing_twice_in_one_load_is_refused(world: World) -> None:
    with pytest.raises(Malformed) as caught:
        await load_resources(world, ADMIN, [*cases(3), a_thing(ResourceRef("case", "c_0001"), region="eu")])
    assert caught.value.pointer == "/resources/3"
    assert await everything_of(world) == {}
    rows = [a_thing(), a_thing(tenant_id=GLOBEX), a_thing(ResourceRef("account", CASE.id))]
    assert accepted(await load_resources(world, PLATFORM, rows)).created == 3


@pytest.mark.parametrize("count", [0, MAX_RESOURCES_PER_LOAD + 1])
async def test_a_load_has_its_bounds(world: World, count: int) -> None:
    with pytest.raises(Malformed) as caught:
        await load_resources(world, ADMIN, cases(count))
    assert caught.value.pointer == "/resources"


async def test_a_load_is_of_a_bounded_number_of_tenants(world: World) -> None:
    names = [f"t{number}" for number in range(MAX_TENANTS_PER_LOAD + 1)]
    await populate(await a_world(MemoryStore()))
    rows = [a_thing(tenant_id=TenantId(name)) for name in names]
    with pytest.raises(Malformed) as caught:
        await load_resources(world, PLATFORM, rows)
    assert caught.value.pointer == "/resources"


# --- pages ------------------------------------------------------------------------------------------------


async def test_things_are_listed_by_type_and_id_a_page_at_a_time(world: World) -> None:
    refs = [
        ResourceRef(type_, id_) for type_ in ("account", "case", "case-note", "case2") for id_ in ("/", "a/b", "b", "é")
    ]
    await load_resources(world, ADMIN, [a_thing(ref) for ref in reversed(refs)])
    seen: list[ResourceRef] = []
    page = PageRequest(limit=3)
    while True:
        found = accepted(await list_resources(world, ADMIN, ACME, page))
        seen += [resource.ref for resource in found.items]
        if found.next is None:
            break
        page = replace(page, after=found.next)
    assert seen == sorted(refs)
    only = accepted(await list_resources(world, ADMIN, ACME, PageRequest(limit=3), kind="case"))
    assert [resource.id for resource in only.items] == ["/", "a/b", "b"]
    assert only.next == "case/b"
    rest = accepted(await list_resources(world, ADMIN, ACME, PageRequest(after=only.next), kind="case"))
    assert ([resource.id for resource in rest.items], rest.next) == (["é"], None)


async def test_a_list_has_nothing_of_another_tenant(world: World) -> None:
    await load_resources(world, PLATFORM, [*cases(5, GLOBEX), a_thing()])
    assert [resource.ref for resource in accepted(await list_resources(world, ADMIN, ACME, PageRequest())).items] == [
        CASE
    ]


async def test_a_cursor_that_is_none_is_refused(world: World) -> None:
    with pytest.raises(Malformed) as caught:
        await list_resources(world, ADMIN, ACME, PageRequest(after="case"))
    assert caught.value.pointer == "/after"


# --- on real databases ------------------------------------------------------------------------------------


@pytest.fixture
async def workers(two_stores: tuple[Store, Store]) -> tuple[World, World]:  # noqa: F811 - the fixture
    one, other = [await a_world(store) for store in two_stores]
    await populate(one)
    return one, other


async def test_two_administrators_load_the_same_things_one_after_the_other(workers: tuple[World, World]) -> None:
    one, other = workers
    full = cases(MAX_RESOURCES_PER_LOAD)
    loads = [
        load_resources(one, ADMIN, [replace(case, attributes={"by": "one"}) for case in full]),
        load_resources(other, PLATFORM, [replace(case, attributes={"by": "other"}) for case in reversed(full)]),
    ]
    outcomes = [accepted(outcome) for outcome in await asyncio.gather(*loads)]
    assert sorted(outcome.created for outcome in outcomes) == [0, MAX_RESOURCES_PER_LOAD]
    # All or nothing: never some of the one and some of the other.
    assert len({attributes["by"] for attributes in (await everything_of(one)).values()}) == 1
    assert sorted((record["created"], record["changed"]) for record in await log_of(one)) == [
        (0, MAX_RESOURCES_PER_LOAD),
        (MAX_RESOURCES_PER_LOAD, 0),
    ]


async def test_hostile_ids_come_back_as_they_were(workers: tuple[World, World]) -> None:
    world, _ = workers
    ids = [
        "../x",
        "%2f",
        "'; DROP TABLE resources; --",
        '"',
        "a/b/",
        "..",
        " ",
        "_%",
        "🧾",
        "é",
        "\\x00",
        "C_42",
        "c_42",
    ]
    await load_resources(world, ADMIN, [a_thing(ResourceRef("case", id_), note=id_, nul="\x00") for id_ in ids])
    found = await everything_of(world)
    assert {ref.id for ref in found} == {*ids}
    assert all(attributes == {"note": ref.id, "nul": "\x00"} for ref, attributes in found.items())


# --- the resolver of a tool server ------------------------------------------------------------------------

RESOLVER = Resolver(path="/resources", types=("case",), cache_seconds=5.0)
SECRET = CredentialWish(type=CredentialType.HEADER, header="X-Api-Key", value=HUSH)


def a_server(**changes: object) -> ToolServer:
    server = ToolServer(
        tenant_id=ACME,
        name=ServerName("support"),
        audience=f"{ISSUER}/mcp/support",
        transport=Transport.HTTP,
        endpoint="https://tools.example/support",
        upstream_audience="https://tools.example/support",
        credential=Credential(),
        timeout_seconds=30.0,
        max_response_bytes=1_048_576,
        resolver=RESOLVER,
    )
    return replace(server, **changes)  # type: ignore[arg-type]  # a sample's changes are the test's to get right


@pytest.fixture
async def registered(world: World) -> World:
    accepted(await register_tool_server(world, ADMIN, a_server(), SECRET))
    return world


@pytest.mark.parametrize("path", ["/", "/resources", "/v1/resources/", "/a.b/c~d", "/(a)@b:c", "/..."])
async def test_a_resolver_is_a_path_of_the_tool_servers_own(world: World, path: str) -> None:
    resolver = replace(RESOLVER, path=path, types=("account", "case"), cache_seconds=0)
    accepted(await register_tool_server(world, ADMIN, a_server(resolver=resolver), SECRET))
    assert accepted(await read_tool_server(world, ADMIN, ACME, ServerName("support"))).resolver == resolver


@pytest.mark.parametrize(
    "changes, member",
    [
        *(
            ({"path": path}, "/resolver/path")
            for path in (
                "", "resources", "//", "//evil.example/x", "/a//b", "https://evil.example/", "@evil.example", "/a?b",
                "/a#b", "/%2e%2e/a", "/a/../b", "/./a", "/..", "/a b", "/a\\b", "/a\n", "/{id}", "/ä", "/" + "a" * 500,
            )
        ),
        ({"types": ()}, "/resolver/types"),
        ({"types": tuple(f"t{number}" for number in range(MAX_RESOLVED_TYPES + 1))}, "/resolver/types"),
        ({"types": ("case", "Account")}, "/resolver/types/1"),
        ({"types": ("*",)}, "/resolver/types/0"),
        ({"cache_seconds": -1}, "/resolver/cacheSeconds"),
        ({"cache_seconds": 301}, "/resolver/cacheSeconds"),
        ({"cache_seconds": float("nan")}, "/resolver/cacheSeconds"),
    ],
    ids=ascii,
)  # fmt: skip
async def test_any_other_resolver_is_refused_at_first_and_later(
    registered: World, changes: dict[str, object], member: str
) -> None:
    bad = replace(RESOLVER, **changes)  # type: ignore[arg-type]  # likewise
    other = a_server(
        name=ServerName("other"), endpoint="https://tools.example/other", audience="urn:other", resolver=bad
    )
    with pytest.raises(Malformed) as at_first:
        await register_tool_server(registered, ADMIN, other, SECRET)
    with pytest.raises(Malformed) as later:
        await changed(registered, resolver=bad)
    assert (at_first.value.pointer, later.value.pointer) == (member, member)
    assert accepted(await read_tool_server(registered, ADMIN, ACME, ServerName("support"))).resolver == RESOLVER


async def changed(world: World, **changes: object) -> ToolServer | Denied:
    """The tool server after these changes."""

    def change(server: ToolServer) -> ToolServer:
        return replace(server, **changes)  # type: ignore[arg-type]  # likewise

    return await change_tool_server(world, ADMIN, ACME, ServerName("support"), change)


async def test_a_resolver_changes_and_goes_and_the_log_says_so(registered: World) -> None:
    accepted(await changed(registered, resolver=replace(RESOLVER, types=("case", "note"))))
    accepted(await changed(registered, resolver=None))
    changes = [record["changedFields"] for record in await log_of(registered) if "changedFields" in record]
    assert changes == [["resolver"], ["resolver"]]
    assert accepted(await read_tool_server(registered, ADMIN, ACME, ServerName("support"))).resolver is None


async def test_a_resolver_leaves_the_credential_where_it_is(registered: World) -> None:
    before = accepted(await read_tool_server(registered, ADMIN, ACME, ServerName("support")))
    after = accepted(await changed(registered, resolver=None))
    assert (after.credential, after.endpoint) == (before.credential, before.endpoint)


async def test_an_endpoint_that_moves_takes_no_credential_to_its_resolver(registered: World) -> None:
    with pytest.raises(Malformed) as caught:
        await changed(registered, endpoint="https://evil.example/", resolver=replace(RESOLVER, path="/theirs"))
    assert caught.value.pointer == "/credential"
