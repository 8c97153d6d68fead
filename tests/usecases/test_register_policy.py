"""Versions of policies: how they are added, tried and activated, by whom, and two administrators at once."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
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
from app.core.grant import POLICY_V0, ClientId, GrantId, TenantId
from app.core.reasons import Reason
from app.core.registry import PLATFORM_TENANT, PolicyCase, Tenant
from app.core.strict_json import JsonObject, canonical
from app.ports import PolicyAnswer, PolicyQuestion, RecordFilter, Store
from app.usecases.activate_policy import activate_policy
from app.usecases.administration import PageRequest
from app.usecases.failures import Conflict, Denied, Malformed, NotFound
from app.usecases.register_policy import (
    MAX_CASES,
    MAX_CASES_BYTES,
    MAX_TEXT_BYTES,
    ROWS_AT_ONCE,
    PolicyDetail,
    PolicyWish,
    add_policy,
    list_policies,
    read_policy,
)
from app.usecases.register_tenant import change_tenant, register_tenant
from app.usecases.try_policy import CaseResult, Trial, try_policy
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
COLLEAGUE = Caller(client_id=ClientId("acme-admin-2"), tenant_id=ACME, scopes=frozenset({"admin"}))
STRANGER = Caller(client_id=ClientId("globex-admin"), tenant_id=GLOBEX, scopes=frozenset({"admin"}))
AUDITOR = Caller(client_id=ClientId("auditor"), tenant_id=ACME, scopes=frozenset({"audit:read", "grants:issue"}))
ROUNDS = 5


@dataclass
class WordEngine:
    """Policies in one line: a tool is permitted whose name stands in the text, unless the text is to fail."""

    asked: list[tuple[str, PolicyQuestion]] = field(default_factory=list)
    meanwhile: Callable[[], Awaitable[object]] | None = None

    def flaws(self, text: str) -> tuple[str, ...]:
        return ("line 1: no policy starts so", "line 2: neither here") if "flawed" in text else ()

    async def answer(self, text: str, question: PolicyQuestion) -> PolicyAnswer:
        self.asked.append((text, question))
        if self.meanwhile is not None:
            interruption, self.meanwhile = self.meanwhile, None
            await interruption()
        if "fails" in text:
            return PolicyAnswer(permitted=False, errors=("policy0 could not be evaluated",))
        return PolicyAnswer(permitted=question.tool in text.split(), determining=("policy0",))


@pytest.fixture
def engine() -> WordEngine:
    return WordEngine()


async def a_world(store: Store, engine: WordEngine) -> World:
    vault = AesVault(b"k" * 32)
    return World(
        store=store,
        signer=JoseSigner(
            issuer=ISSUER, keys=KeyRing.load((make_key("EdDSA", NOW, vault.seal),), vault.open), clock=lambda: NOW
        ),
        vault=vault,
        upstream=ToolUpstream(),
        schemas=RustSchemaValidator(),
        policies=engine,
        outsiders=OutsideJwts(fetch=nothing_published),
        proofs=DpopProofs(),
        clock=lambda: NOW,
        new_id=new_id,
        rules=Rules(issuer=ISSUER),
    )


async def populate(world: World) -> None:
    async with world.store.write() as tx:
        for tenant_id in (PLATFORM_TENANT, ACME, GLOBEX):
            await tx.registry.add_tenant(Tenant(tenant_id=tenant_id, name=tenant_id))
        await tx.commit()


@pytest.fixture
async def world(engine: WordEngine) -> World:
    made = await a_world(MemoryStore(), engine)
    await populate(made)
    return made


def accepted(result: T | Denied) -> T:
    assert not isinstance(result, Denied), result
    return result


def refused(result: object) -> Reason:
    assert isinstance(result, Denied), result
    return result.reason


def a_wish(text: str = "permit search", *cases: PolicyCase, tenant_id: TenantId = ACME, about: str = "") -> PolicyWish:
    return PolicyWish(tenant_id=tenant_id, text=text, description=about, cases=cases)


def a_case(name: str = "search", *, permitted: bool = True, **call: object) -> PolicyCase:
    return PolicyCase(name=name, permitted=permitted, call={"tool": name, **call})  # type: ignore[dict-item]  # a sample's members are the test's to get right


async def added(world: World, *wish: object, caller: Caller = ADMIN, **members: object) -> str:
    made = accepted(await add_policy(world, caller, a_wish(*wish, **members)))  # type: ignore[arg-type]  # likewise
    return made.thing.version


async def active(world: World, tenant_id: TenantId = ACME) -> str:
    async with world.store.read() as tx:
        tenant = await tx.registry.tenant(tenant_id)
    assert tenant is not None
    return tenant.policy_version


async def log_of(world: World, tenant_id: TenantId = ACME) -> list[JsonObject]:
    async with world.store.read() as tx:
        records = await tx.audit.page(tenant_id, RecordFilter(), after_seq=None, newest_first=False, limit=1000)
    return [record.body for record in records]


# --- adding and reading -----------------------------------------------------------------------------------


async def test_versions_are_named_in_order_and_each_tenant_has_its_own(world: World) -> None:
    assert [await added(world, f"permit {name}") for name in "abc"] == ["v1", "v2", "v3"]
    assert await added(world, "permit a", tenant_id=GLOBEX, caller=STRANGER) == "v1"
    assert await active(world) == POLICY_V0


async def test_a_version_is_read_as_it_was_written(world: World) -> None:
    case = a_case(effect="read")
    version = await added(world, "permit search\n// for now", case, about="the first")
    assert accepted(await read_policy(world, ADMIN, ACME, version)) == PolicyDetail(
        tenant_id=ACME,
        version="v1",
        description="the first",
        created_at=NOW,
        created_by=ADMIN.client_id,
        active=False,
        text="permit search\n// for now",
        cases=(case,),
    )


async def test_the_newest_version_said_again_adds_nothing(world: World) -> None:
    first = accepted(await add_policy(world, ADMIN, a_wish("permit a", a_case())))
    again = accepted(await add_policy(world, COLLEAGUE, a_wish("permit a", a_case())))
    assert (first.created, again.created) == (True, False)
    assert again.thing == first.thing
    assert [record["action"] for record in await log_of(world)] == ["policy.created"]


async def test_an_older_version_said_again_is_a_new_one(world: World) -> None:
    assert [await added(world, text) for text in ("permit a", "permit b", "permit a")] == ["v1", "v2", "v3"]


@pytest.mark.parametrize(
    "other",
    [
        a_wish("permit a ", a_case(idempotent=True)),
        a_wish("permit a", a_case(idempotent=True), about="why"),
        a_wish("permit a"),
        a_wish("permit a", a_case("a", idempotent=True)),
        a_wish("permit a", a_case(idempotent=True, permitted=False)),
        a_wish("permit a", a_case(idempotent=False)),
    ],
)
async def test_what_differs_in_anything_is_a_new_version(world: World, other: PolicyWish) -> None:
    await added(world, "permit a", a_case(idempotent=True))
    assert accepted(await add_policy(world, ADMIN, other)).created


async def test_a_case_with_one_differs_from_a_case_with_true(world: World) -> None:
    for value in (True, 1, 1.5):
        case = a_case(attributes={"tenant": {ACME: {"open": value}}})
        assert accepted(await add_policy(world, ADMIN, a_wish("permit a", case))).created


async def test_the_built_in_version_is_shown_and_no_ones(world: World) -> None:
    policy = accepted(await read_policy(world, ADMIN, ACME, POLICY_V0))
    assert (policy.active, policy.created_at, policy.created_by, policy.cases) == (True, None, None, ())
    assert policy.text.startswith("permit")


@pytest.mark.parametrize("version", ["v1", "v", "v01", "V1", "", "v1\n", "v1 ", "1", "test", "v99999999", "v\u0661"])
async def test_a_version_that_is_none_is_not_found(world: World, version: str) -> None:
    for attempt in (read_policy, activate_policy):
        with pytest.raises(NotFound):
            await attempt(world, ADMIN, ACME, version)
    with pytest.raises(NotFound):
        await try_policy(world, ADMIN, Trial(tenant_id=ACME, version=version, cases=(a_case(),)))


async def test_a_list_is_in_the_order_of_making_and_begins_with_what_is_built_in(world: World) -> None:
    made = [await added(world, f"permit {number}") for number in range(12)]
    await activate_policy(world, ADMIN, ACME, "v10")
    whole = accepted(await list_policies(world, ADMIN, ACME, PageRequest()))
    assert [policy.version for policy in whole.items] == [POLICY_V0, *made]
    assert [policy.version for policy in whole.items if policy.active] == ["v10"]
    assert whole.next is None


@pytest.mark.parametrize("limit", [1, 2, 12, 13, 14, ROWS_AT_ONCE + 1])
async def test_pages_put_together_are_the_whole_list(world: World, limit: int) -> None:
    made = [await added(world, f"permit {number}") for number in range(12)]
    found, after = list[str](), None
    while True:
        page = accepted(await list_policies(world, ADMIN, ACME, PageRequest(after=after, limit=limit)))
        assert 0 < len(page.items) <= limit
        found += [policy.version for policy in page.items]
        if page.next is None:
            break
        after = page.next
    assert found == [POLICY_V0, *made]


async def test_a_page_may_be_longer_than_what_is_read_at_once(world: World) -> None:
    made = [await added(world, f"permit {number}") for number in range(2 * ROWS_AT_ONCE + 3)]
    page = accepted(await list_policies(world, ADMIN, ACME, PageRequest()))
    assert [policy.version for policy in page.items] == [POLICY_V0, *made]


async def test_a_cursor_that_is_none_is_refused(world: World) -> None:
    with pytest.raises(Malformed) as error:
        await list_policies(world, ADMIN, ACME, PageRequest(after="v1' or 1=1"))
    assert error.value.pointer == "/after"


# --- who --------------------------------------------------------------------------------------------------


async def attempts(world: World, caller: Caller, tenant_id: TenantId) -> list[object]:
    """Every verb, by this caller in this tenant."""
    return [
        await add_policy(world, caller, a_wish(tenant_id=tenant_id)),
        await read_policy(world, caller, tenant_id, "v1"),
        await list_policies(world, caller, tenant_id, PageRequest()),
        await activate_policy(world, caller, tenant_id, "v1"),
        await try_policy(world, caller, Trial(tenant_id=tenant_id, version="v1", cases=(a_case(),))),
    ]


async def test_nobody_reaches_into_another_tenant(world: World, engine: WordEngine) -> None:
    await added(world, "permit a")
    for tenant_id in (ACME, TenantId("no-such-tenant")):
        assert {refused(result) for result in await attempts(world, STRANGER, tenant_id)} == {Reason.TENANT_MISMATCH}
    assert (await active(world), engine.asked) == (POLICY_V0, [])


async def test_a_version_of_another_tenant_does_not_exist(world: World) -> None:
    await added(world, "permit a")
    for attempt in (read_policy, activate_policy):
        with pytest.raises(NotFound):
            await attempt(world, STRANGER, GLOBEX, "v1")
    assert await active(world, GLOBEX) == POLICY_V0


async def test_policies_are_for_administrators(world: World) -> None:
    await added(world, "permit a")
    holder = Caller(client_id=ADMIN.client_id, tenant_id=ACME, scopes=ADMIN.scopes, grant_id=GrantId("gr_1"))
    for caller in (AUDITOR, holder):
        assert {refused(result) for result in await attempts(world, caller, ACME)} == {Reason.INSUFFICIENT_SCOPE}


async def test_a_platform_administrator_acts_in_any_tenant_that_there_is(world: World) -> None:
    version = await added(world, "permit a", tenant_id=GLOBEX, caller=PLATFORM)
    assert accepted(await activate_policy(world, PLATFORM, GLOBEX, version)).active
    assert (await active(world, GLOBEX), await active(world)) == ("v1", POLICY_V0)
    with pytest.raises(NotFound):
        await added(world, "permit a", tenant_id=TenantId("no-such-tenant"), caller=PLATFORM)
    trial = Trial(tenant_id=TenantId("no-such-tenant"), text="permit a", cases=(a_case(),))
    with pytest.raises(NotFound):
        await try_policy(world, PLATFORM, trial)


# --- what is refused --------------------------------------------------------------------------------------


async def complaint(world: World, wish: PolicyWish) -> tuple[str, str]:
    """Where and why a wish is refused; whatever is refused is not stored, and can't be tried."""
    with pytest.raises(Malformed) as error:
        await add_policy(world, ADMIN, wish)
    async with world.store.read() as tx:
        assert await tx.policies.count(ACME) == 0
    assert await log_of(world) == []
    return error.value.pointer, error.value.detail


async def test_a_flawed_text_is_refused_with_its_flaws(world: World) -> None:
    flawed = ("/text", "line 1: no policy starts so; line 2: neither here")
    assert await complaint(world, a_wish("flawed")) == flawed
    with pytest.raises(Malformed) as error:
        await try_policy(world, ADMIN, Trial(tenant_id=ACME, text="flawed", cases=(a_case(),)))
    assert (error.value.pointer, error.value.detail) == flawed


@pytest.mark.parametrize(
    "text",
    [
        "a" * (MAX_TEXT_BYTES + 1),
        "é" * (MAX_TEXT_BYTES // 2 + 1),
        "permit \x00",
        "permit \x1b[2J",
        "permit \x7f",
        "permit \u202e hcraes",
        "permit \u2066 search",
        "permit \ud800",
    ],
)
async def test_a_text_that_can_not_be_reviewed_never_reaches_the_engine(
    world: World, engine: WordEngine, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    def read(_: str) -> tuple[str, ...]:
        raise AssertionError("the engine was asked")

    monkeypatch.setattr(engine, "flaws", read)
    pointer, detail = await complaint(world, a_wish(text))
    assert pointer == "/text"
    assert len(detail) < 100


async def test_a_text_as_long_as_it_may_be_is_taken(world: World) -> None:
    assert await added(world, "é" * (MAX_TEXT_BYTES // 2)) == "v1"
    assert await added(world, "permit\tsearch\r\n// ½ é 漢\n") == "v2"


@pytest.mark.parametrize(
    "cases, pointer",
    [
        ([a_case(str(number)) for number in range(MAX_CASES + 1)], "/cases"),
        ([a_case(), a_case()], "/cases/1/name"),
        ([PolicyCase(name="", permitted=True, call={})], "/cases/0/name"),
        ([PolicyCase(name="a\nb", permitted=True, call={})], "/cases/0/name"),
        ([PolicyCase(name="\u202e", permitted=True, call={})], "/cases/0/name"),
        ([PolicyCase(name="n" * 101, permitted=True, call={})], "/cases/0/name"),
        ([a_case(), a_case("other", tenantId="globex")], "/cases/1/call/tenantId"),
        ([a_case(effect="any")], "/cases/0/call/effect"),
        ([a_case(subject="s" * MAX_CASES_BYTES)], "/cases"),
    ],
)
async def test_cases_that_can_not_be_run_are_refused_where_they_stand(
    world: World, cases: list[PolicyCase], pointer: str
) -> None:
    assert (await complaint(world, a_wish("permit a", *cases)))[0] == pointer
    with pytest.raises(Malformed) as error:
        await try_policy(world, ADMIN, Trial(tenant_id=ACME, text="permit a", cases=tuple(cases)))
    assert error.value.pointer == pointer


@pytest.mark.parametrize("description", ["d" * 1001, "\x1b[31m", "\u202e"])
async def test_a_description_is_readable_text(world: World, description: str) -> None:
    assert (await complaint(world, a_wish("permit a", about=description)))[0] == "/description"


async def test_versions_end_where_there_are_too_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.usecases.register_policy.MAX_VERSIONS", 2)
    await added(world, "permit a")
    await added(world, "permit b")
    with pytest.raises(Conflict):
        await added(world, "permit c")
    assert await added(world, "permit b") == "v2"


# --- trying -----------------------------------------------------------------------------------------------


def seen(results: tuple[CaseResult, ...]) -> list[tuple[str, bool, bool]]:
    return [(result.case.name, result.answer.permitted, result.passed) for result in results]


async def test_cases_are_tried_in_order_against_a_text_and_nothing_is_stored(world: World, engine: WordEngine) -> None:
    cases = (a_case("search"), a_case("refund", permitted=False), a_case("delete"), a_case("send", permitted=False))
    trial = Trial(tenant_id=ACME, text="permit search send", cases=cases)
    results = accepted(await try_policy(world, ADMIN, trial))
    assert seen(results) == [
        ("search", True, True),
        ("refund", False, True),
        ("delete", False, False),
        ("send", True, False),
    ]
    assert results[0].answer.determining == ("policy0",)
    assert {question.tenant_id for _, question in engine.asked} == {ACME}
    async with world.store.read() as tx:
        assert await tx.policies.count(ACME) == 0
    assert await log_of(world) == []


async def test_a_version_is_tried_with_its_own_cases_or_with_others(world: World, engine: WordEngine) -> None:
    version = await added(world, "permit search", a_case("search"))
    own = accepted(await try_policy(world, ADMIN, Trial(tenant_id=ACME, version=version)))
    others = accepted(await try_policy(world, ADMIN, Trial(tenant_id=ACME, version=version, cases=(a_case("x"),))))
    assert (seen(own), seen(others)) == ([("search", True, True)], [("x", False, False)])
    built_in = Trial(tenant_id=ACME, version=POLICY_V0, cases=(a_case("search"),))
    await try_policy(world, ADMIN, built_in)
    assert engine.asked[-1][0].startswith("permit")


async def test_a_policy_that_fails_denies_the_case_and_is_reported(world: World) -> None:
    cases = (a_case("search"), a_case("refund", permitted=False))
    results = accepted(await try_policy(world, ADMIN, Trial(tenant_id=ACME, text="permit search fails", cases=cases)))
    assert seen(results) == [("search", False, False), ("refund", False, True)]
    assert {result.answer.errors for result in results} == {("policy0 could not be evaluated",)}


@pytest.mark.parametrize(
    "trial, pointer",
    [
        (Trial(tenant_id=ACME), "/text"),
        (Trial(tenant_id=ACME, text="permit a", version="v1"), "/text"),
        (Trial(tenant_id=ACME, text="permit a"), "/cases"),
        (Trial(tenant_id=ACME, text="permit a", cases=()), "/cases"),
        (Trial(tenant_id=ACME, version="v0"), "/cases"),
        (Trial(tenant_id=ACME, version="v1", cases=()), "/cases"),
    ],
)
async def test_nothing_tried_is_not_passed(world: World, trial: Trial, pointer: str) -> None:
    await added(world, "permit a", a_case("a"))
    with pytest.raises(Malformed) as error:
        await try_policy(world, ADMIN, trial)
    assert error.value.pointer == pointer


# --- activating -------------------------------------------------------------------------------------------


async def test_an_activation_leaves_a_record_with_both_versions_and_no_text(world: World) -> None:
    await added(world, "permit search // a secret plan", a_case())
    await added(world, "permit search")
    for version in ("v1", "v2", POLICY_V0):
        assert accepted(await activate_policy(world, ADMIN, ACME, version)).active
        assert await active(world) == version
    records = [record for record in await log_of(world) if record["action"] == "policy.activated"]
    assert [(record["fromVersion"], record["toVersion"]) for record in records] == [
        (POLICY_V0, "v1"),
        ("v1", "v2"),
        ("v2", POLICY_V0),
    ]
    assert {record["clientId"] for record in records} == {ADMIN.client_id}
    log = await log_of(world)
    assert b"secret plan" not in canonical([*log])
    digests = [record["textDigest"] for record in log if record["action"] == "policy.created"]
    assert len(set(digests)) == 2


async def test_what_is_active_stays_so_and_leaves_no_record(world: World, engine: WordEngine) -> None:
    await added(world, "permit search", a_case())
    await activate_policy(world, ADMIN, ACME, "v1")
    before, asked = await log_of(world), len(engine.asked)
    assert accepted(await activate_policy(world, COLLEAGUE, ACME, "v1")).active
    assert (await log_of(world), len(engine.asked)) == (before, asked)


async def test_a_failing_case_refuses_the_activation_and_is_named(world: World) -> None:
    cases = [a_case("search"), a_case("refund"), *(a_case(f"tool{number}") for number in range(20))]
    await added(world, "permit search", *cases)
    with pytest.raises(Conflict) as error:
        await activate_policy(world, ADMIN, ACME, "v1")
    assert error.value.detail.startswith('21 of 22 cases fail: "refund", "tool0", ')
    assert error.value.detail.endswith(" and 11 more")
    assert "search" not in error.value.detail
    assert await active(world) == POLICY_V0
    assert [record["action"] for record in await log_of(world)] == ["policy.created"]


async def test_a_policy_that_fails_in_a_case_is_not_activated(world: World) -> None:
    await added(world, "permit search fails", a_case("search"))
    with pytest.raises(Conflict, match='"search"'):
        await activate_policy(world, ADMIN, ACME, "v1")


async def test_what_is_no_policy_to_this_release_is_not_activated(
    world: World, engine: WordEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await added(world, "permit search")
    monkeypatch.setattr(engine, "flaws", lambda _: ("there is no such entity any more",))
    with pytest.raises(Conflict, match="there is no such entity any more"):
        await activate_policy(world, ADMIN, ACME, "v1")
    assert await active(world) == POLICY_V0


async def test_cases_that_take_too_long_are_given_up(
    world: World, engine: WordEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await added(world, "permit search", a_case())
    monkeypatch.setattr("app.usecases.try_policy.MAX_SECONDS", 0)

    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    engine.meanwhile = wait_for_ever
    with pytest.raises(Conflict, match="take longer than"):
        await activate_policy(world, ADMIN, ACME, "v1")
    assert await active(world) == POLICY_V0
    engine.meanwhile = wait_for_ever
    with pytest.raises(Malformed, match="take longer than"):
        await try_policy(world, ADMIN, Trial(tenant_id=ACME, version="v1"))


async def test_there_is_always_a_way_back(world: World, engine: WordEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    await added(world, "permit search")
    await activate_policy(world, ADMIN, ACME, "v1")
    monkeypatch.setattr(engine, "flaws", lambda _: ("nothing is usable",))
    assert accepted(await activate_policy(world, ADMIN, ACME, POLICY_V0)).active


async def test_cases_run_while_others_administer(world: World, engine: WordEngine) -> None:
    await added(world, "permit search", a_case())
    await added(world, "permit search refund", a_case("refund"))

    async def meanwhile() -> None:
        await activate_policy(world, COLLEAGUE, ACME, "v2")

    engine.meanwhile = meanwhile
    async with asyncio.timeout(30):
        await activate_policy(world, ADMIN, ACME, "v1")
    records = [record for record in await log_of(world) if record["action"] == "policy.activated"]
    moves = [(record["clientId"], record["fromVersion"], record["toVersion"]) for record in records]
    assert moves == [(COLLEAGUE.client_id, POLICY_V0, "v2"), (ADMIN.client_id, "v2", "v1")]
    assert await active(world) == "v1"


async def test_two_that_activate_the_same_version_leave_one_record(world: World, engine: WordEngine) -> None:
    await added(world, "permit search", a_case())

    async def meanwhile() -> None:
        await activate_policy(world, COLLEAGUE, ACME, "v1")

    engine.meanwhile = meanwhile
    assert accepted(await activate_policy(world, ADMIN, ACME, "v1")).active
    assert [record["action"] for record in await log_of(world)] == ["policy.created", "policy.activated"]


async def test_a_tenant_that_is_changed_or_registered_again_keeps_its_active_version(world: World) -> None:
    await added(world, "permit search")
    await activate_policy(world, ADMIN, ACME, "v1")
    changed = accepted(await change_tenant(world, PLATFORM, ACME, lambda _: Tenant(tenant_id=ACME, name="Acme")))
    assert (changed.name, changed.policy_version) == ("Acme", "v1")
    again = accepted(await register_tenant(world, PLATFORM, Tenant(tenant_id=ACME, name="Acme")))
    assert (again.created, again.thing.policy_version) == (False, "v1")
    assert await active(world) == "v1"


# --- two administrators at once, on real databases ---------------------------------------------------------


Workers = tuple[World, World]


@pytest.fixture
async def workers(two_stores: tuple[Store, Store]) -> Workers:  # noqa: F811 - the fixture
    one, other = [await a_world(store, WordEngine()) for store in two_stores]
    await populate(one)
    return one, other


async def test_versions_that_are_added_at_once_are_two(workers: Workers) -> None:
    one, other = workers
    for number in range(ROUNDS):
        versions = await asyncio.gather(
            added(one, f"permit a{number}"), added(other, f"permit b{number}", caller=COLLEAGUE)
        )
        assert {*versions} == {f"v{2 * number + 1}", f"v{2 * number + 2}"}
    page = accepted(await list_policies(one, ADMIN, ACME, PageRequest()))
    assert [policy.version for policy in page.items] == [f"v{number}" for number in range(2 * ROUNDS + 1)]


async def test_the_same_version_that_is_added_twice_at_once_is_one(workers: Workers) -> None:
    one, other = workers
    for number in range(ROUNDS):
        versions = await asyncio.gather(added(one, f"permit {number}"), added(other, f"permit {number}"))
        assert set(versions) == {f"v{number + 1}"}


async def test_activations_at_once_are_one_after_the_other_in_the_log(workers: Workers) -> None:
    one, other = workers
    for text in ("permit a", "permit b"):
        await added(one, text)
    for _ in range(ROUNDS):
        activations = (
            activate_policy(worker, admin, ACME, version)
            for worker, admin in ((one, ADMIN), (other, COLLEAGUE))
            for version in ("v1", "v2", POLICY_V0)
        )
        await asyncio.gather(*activations, change_tenant(other, PLATFORM, ACME, lambda tenant: tenant))
    records = [record for record in await log_of(one) if record["action"] == "policy.activated"]
    stands = POLICY_V0
    for record in records:
        assert record["fromVersion"] == stands
        stands = str(record["toVersion"])
    assert stands == await active(one) == await active(other)
