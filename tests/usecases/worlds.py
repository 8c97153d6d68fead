"""A world of real adapters around the memory store, with a tenant, an orchestrator and one tool in it."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from app.adapters.dpop import DpopProofs
from app.adapters.ids import new_id
from app.adapters.jose import JoseSigner, KeyRing, make_key
from app.adapters.json_schema import RustSchemaValidator
from app.adapters.memory import MemoryStore
from app.adapters.outside_tokens import OutsideJwts
from app.adapters.vault import AesVault
from app.core.attenuation import Ceiling
from app.core.budget import Amount, Price
from app.core.grant import ClientId, TenantId
from app.core.registry import (
    PLATFORM_TENANT,
    AuthMethod,
    Client,
    ClientKind,
    Credential,
    CredentialType,
    Effect,
    HttpBinding,
    Scope,
    Tenant,
    Tool,
    ToolServer,
    ToolSource,
    Transport,
    Trust,
)
from app.core.resources import Resources
from app.core.strict_json import JsonObject
from app.ports import (
    DiscoveredTool,
    Outcome,
    PolicyAnswer,
    PolicyQuestion,
    PublishedKeys,
    ResolveRequest,
    Store,
    StoreUnavailable,
    Transaction,
    UpstreamAnswer,
    UpstreamFailed,
    UpstreamRequest,
)
from app.usecases.failures import Denied
from app.usecases.mint_grant import MintRequest, SignedGrant, mint_grant
from app.usecases.read_grants import GrantView, View
from app.usecases.read_wish import NarrowingFields
from app.usecases.tool_credential import credential_purpose
from app.usecases.world import Caller, Rules, World
from tests.samples import ACME, NOW, SEARCH, SUPPORT

PLANNER = ClientId("planner")
SECRET = "the tool server's own secret"
ENDPOINT = "http://tools.internal:9000/support"
OFFERED = DiscoveredTool(name=SEARCH.tool, description="search", input_schema={"type": "object"}, output_schema=None)
"""The one tool, as its server describes it."""


@dataclass
class Clock:
    """A clock that a test sets."""

    now: datetime = NOW

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Tools:
    """A tool server that answers what it is told to, and keeps what it was asked."""

    answer: UpstreamAnswer = field(default_factory=lambda: UpstreamAnswer(outcome=Outcome.SUCCESS, result={"ok": 1}))
    requests: list[UpstreamRequest] = field(default_factory=list)
    record: Resources | None = None
    questions: list[ResolveRequest] = field(default_factory=list)
    offers: Sequence[DiscoveredTool] | None = (OFFERED,)
    listings: list[UpstreamRequest] = field(default_factory=list)
    meanwhile: Callable[[UpstreamRequest], Awaitable[object]] | None = None
    """What a tool does before it answers."""

    async def call(self, request: UpstreamRequest) -> UpstreamAnswer:
        self.requests.append(request)
        if self.meanwhile is not None:
            await self.meanwhile(request)
        return self.answer

    def misfit(self, *_: object) -> None:
        return None

    async def discover(self, request: UpstreamRequest) -> tuple[DiscoveredTool, ...]:
        self.listings.append(request)
        if self.offers is None:
            raise UpstreamFailed("the tool server did not answer")
        return tuple(self.offers)

    async def resolve(self, request: ResolveRequest) -> Resources:
        self.questions.append(request)
        if self.record is None:
            raise UpstreamFailed("the resolver did not answer")
        return {ref: self.record[ref] for ref in request.refs if ref in self.record}

    async def aclose(self) -> None:
        pass


@dataclass
class Policies:
    """Policies that say what they are told to, and keep what they were asked."""

    answers: dict[str, PolicyAnswer] = field(default_factory=dict)
    questions: list[PolicyQuestion] = field(default_factory=list)

    def flaws(self, text: str) -> tuple[str, ...]:
        return () if text in self.answers else ("unknown",)

    async def answer(self, text: str, question: PolicyQuestion) -> PolicyAnswer:
        self.questions.append(question)
        return self.answers[text]


async def nothing_published(uri: str) -> PublishedKeys:
    """A network in which nobody publishes keys."""
    raise UpstreamFailed("nobody is there")


class FailingStore:
    """A store whose writes fail as often as it is told, from the given one on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.writes = 0
        self.fails_after: int | None = None
        self.fails_for = 10**9
        self.on_failure: Callable[[], None] = lambda: None

    def read(self) -> AbstractAsyncContextManager[Transaction]:
        return self._store.read()

    def write(self) -> AbstractAsyncContextManager[Transaction]:
        self.writes += 1
        if self.fails_after is not None:
            self.fails_after -= 1
            if self.fails_after < 0 and self.fails_for > 0:
                self.fails_for -= 1
                self.on_failure()
                raise StoreUnavailable("away")
        return self._store.write()

    async def ready(self) -> str | None:
        return await self._store.ready()

    async def aclose(self) -> None:
        await self._store.aclose()


@dataclass
class Scene:
    """A world and what is in it."""

    world: World
    store: FailingStore
    tools: Tools
    policies: Policies
    clock: Clock
    planner: Caller

    async def records(self, tenant_id: TenantId = ACME) -> list[JsonObject]:
        async with self.world.store.read() as tx:
            return [record.body async for record in tx.audit.read(tenant_id)]

    async def types(self) -> list[str]:
        return [str(body["type"]) for body in await self.records()]

    async def grant(self, tools: Sequence[str] = (SEARCH.tool,), **fields: object) -> SignedGrant:
        wish = NarrowingFields(
            audience=(SUPPORT.uri,),
            allowed_tools=tuple(tools),
            resource_constraints={tool: {"*": {"any": True}} for tool in tools},
            max_tool_calls=5,
            max_spend_cents=100,
        )
        wish = replace(wish, **fields)  # type: ignore[arg-type]  # a test's fields are its own to get right
        made = await mint_grant(self.world, self.planner, MintRequest(fields=wish))
        assert not isinstance(made, Denied), made
        return made


def caller_for(made: SignedGrant) -> Caller:
    """Whoever presents the grant itself."""
    return Caller(client_id=PLANNER, tenant_id=ACME, grant_id=made.grant.grant_id)


async def a_scene(**rules: object) -> Scene:
    vault, clock, tools, store = AesVault(b"k" * 32), Clock(), Tools(), FailingStore(MemoryStore())
    policies = Policies()
    signer = JoseSigner(
        issuer="https://subgrant.example",
        keys=KeyRing.load((make_key("EdDSA", NOW, vault.seal),), vault.open),
        clock=clock,
    )
    world = World(
        store=store,
        signer=signer,
        vault=vault,
        upstream=tools,
        schemas=RustSchemaValidator(),
        policies=policies,
        outsiders=OutsideJwts(fetch=nothing_published),
        proofs=DpopProofs(),
        clock=clock,
        new_id=new_id,
        rules=replace(Rules(issuer="https://subgrant.example", settle_grace=timedelta(seconds=1)), **rules),  # type: ignore[arg-type]  # likewise
    )
    await _populate(world, vault)
    scopes = frozenset({Scope.GRANTS_ISSUE, Scope.GRANTS_READ})
    return Scene(world, store, tools, policies, clock, Caller(client_id=PLANNER, tenant_id=ACME, scopes=scopes))


async def _populate(world: World, vault: AesVault) -> None:
    server = ToolServer(
        tenant_id=ACME,
        name=SUPPORT.server,
        audience=SUPPORT.uri,
        transport=Transport.HTTP,
        endpoint=ENDPOINT,
        upstream_audience=ENDPOINT,
        credential=Credential(),
        timeout_seconds=2,
        max_response_bytes=65_536,
    )
    sealed = vault.seal(SECRET.encode(), credential_purpose(server))
    credential = Credential(type=CredentialType.HEADER, header="X-Key", sealed=sealed)
    async with world.store.write() as tx:
        await tx.registry.add_tenant(Tenant(tenant_id=PLATFORM_TENANT, name="Platform"))
        await tx.registry.add_tenant(Tenant(tenant_id=ACME, name="Acme"))
        await tx.registry.add_client(_planner())
        await tx.registry.add_server(replace(server, credential=credential))
        await tx.registry.put_tool(_search())
        await tx.commit()


def _planner() -> Client:
    ceiling = Ceiling(
        audiences=frozenset({"*"}),
        allowed_tools=frozenset({"*"}),
        limit=Amount(tool_calls=100, spend_ucents=10_000_000),
        max_lifetime=timedelta(hours=10),
    )
    return Client(
        client_id=PLANNER,
        tenant_id=ACME,
        kind=ClientKind.ORCHESTRATOR,
        scopes=frozenset({Scope.GRANTS_ISSUE, Scope.GRANTS_READ}),
        auth_method=AuthMethod.CLIENT_SECRET_BASIC,
        secret_hash="none",
        ceiling=ceiling,
    )


def _search() -> Tool:
    return Tool(
        tenant_id=ACME,
        server=SEARCH.server,
        name=SEARCH.tool,
        description="search",
        input_schema={"type": "object"},
        output_schema=None,
        price=Price(fixed_ucents=10_000, max_ucents=20_000),
        effect=Effect.READ,
        trust=Trust.INTERNAL,
        sinks=(),
        idempotent=False,
        loggable_arguments=(),
        http=HttpBinding(method="POST", path="/search"),
        source=ToolSource.DECLARED,
    )


def verified(views: Sequence[View]) -> list[GrantView]:
    """Grants as their readers see them, each of which must be one that is verified."""
    found = [view for view in views if isinstance(view, GrantView)]
    assert len(found) == len(views), "a grant's record can't be verified"
    return found
