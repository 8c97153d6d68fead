"""A standing grant in a scene, and an identity provider that the tenant trusts."""

from dataclasses import dataclass, field, replace
from datetime import timedelta

from app.core.attenuation import Ceiling
from app.core.budget import Amount
from app.core.grant import ClientId, Grant, ServerName, TenantId
from app.core.registry import (
    AuthMethod,
    Client,
    ClientKind,
    IssuerUse,
    Scope,
    SigningAlgorithm,
    ToolServer,
    TrustedIssuer,
)
from app.core.strict_json import JsonObject
from app.usecases.exchange_token import ExchangeRequest, exchange_token
from app.usecases.failures import Denied
from app.usecases.issue_under_standing_grant import StandingRequest, issue_under_standing_grant
from app.usecases.issued_token import Exchanged
from app.usecases.make_standing_grant import make_standing_grant
from app.usecases.read_wish import NarrowingFields
from app.usecases.world import Caller
from tests.members import DROP
from tests.outsiders import OutsideKey, a_key, jwks
from tests.samples import ACME, SEARCH, SUPPORT
from tests.usecases.worlds import PLANNER, Scene

ISSUER = "https://subgrant.example"
ADMIN = Caller(client_id=ClientId("admin"), tenant_id=ACME, scopes=frozenset({Scope.ADMIN}))
SEARCHING = NarrowingFields(
    audience=(SUPPORT.uri,),
    allowed_tools=(SEARCH.tool,),
    resource_constraints={SEARCH.tool: {"*": {"any": True}}},
    max_tool_calls=5,
    max_spend_cents=100,
)


@dataclass
class IdentityProvider:
    """A company's identity provider, with a key of its own."""

    issuer: str = "https://idp.example"
    name: str = "okta"
    key: OutsideKey = field(default_factory=lambda: a_key("EdDSA", "idp-1"))

    def trusted(self, *uses: IssuerUse, tenant_id: TenantId = ACME) -> TrustedIssuer:
        return TrustedIssuer(
            tenant_id=tenant_id,
            name=self.name,
            issuer=self.issuer,
            uses=frozenset(uses or IssuerUse),
            algorithms=frozenset({SigningAlgorithm.EDDSA}),
            jwks=jwks(self.key),
        )

    def sign(self, claims: JsonObject, *, typ: str | None = "JWT") -> str:
        return self.key.sign(claims, typ=DROP if typ is None else typ)

    def claims(self, scene: Scene, **claims: object) -> JsonObject:
        """Alice's, for us, for a minute; None leaves a claim out."""
        now = int(scene.clock.now.timestamp())
        all_of_them = {"iss": self.issuer, "sub": "alice", "aud": ISSUER, "iat": now, "exp": now + 60} | claims
        return {name: value for name, value in all_of_them.items() if value is not None}  # type: ignore[misc]  # JSON

    def id_token(self, scene: Scene, **claims: object) -> str:
        return self.sign(self.claims(scene, **({"jti": scene.world.new_id("j")} | claims)))

    def assertion(self, scene: Scene, **claims: object) -> str:
        """That Alice lets the planner act at the support server."""
        ours = {"client_id": PLANNER, "resource": SUPPORT.uri, "scope": "tools:call", "jti": scene.world.new_id("j")}
        return self.sign(self.claims(scene, **(ours | claims)), typ="oauth-id-jag+jwt")


async def put(scene: Scene, *records: Client | TrustedIssuer | ToolServer) -> None:
    async with scene.world.store.write() as tx:
        for record in records:
            match record:
                case Client():
                    await tx.registry.put_client(record)
                case TrustedIssuer():
                    await tx.registry.put_issuer(record)
                case ToolServer():
                    await tx.registry.put_server(record)
        await tx.commit()


async def client(scene: Scene, client_id: str = PLANNER) -> Client:
    async with scene.world.store.read() as tx:
        found = await tx.registry.client(ClientId(client_id))
    assert found is not None
    return found


async def another_client(scene: Scene, client_id: str = "agent", **changes: object) -> Client:
    made = Client(
        client_id=ClientId(client_id),
        tenant_id=ACME,
        kind=ClientKind.AGENT,
        scopes=frozenset(),
        auth_method=AuthMethod.CLIENT_SECRET_BASIC,
        secret_hash="none",
        ceiling=Ceiling(
            audiences=frozenset({"*"}),
            allowed_tools=frozenset({"*"}),
            limit=Amount(tool_calls=100, spend_ucents=10_000_000),
            max_lifetime=timedelta(hours=1),
        ),
    )
    made = replace(made, **changes)  # type: ignore[arg-type]  # a test's changes are its own to get right
    await put(scene, made)
    return made


async def another_server(scene: Scene, name: str = "billing") -> str:
    """A second tool server with no tools; its audience."""
    async with scene.world.store.read() as tx:
        support = await tx.registry.server(ACME, SUPPORT.server)
    assert support is not None
    audience = f"https://tools.example/{name}"
    await put(scene, replace(support, name=ServerName(name), audience=audience))
    return audience


async def standing(scene: Scene, client_id: str = PLANNER, **fields: object) -> Grant:
    """The client's standing grant for the support server: five calls of search unless told otherwise."""
    wish = replace(SEARCHING, **fields)  # type: ignore[arg-type]  # likewise
    made = await make_standing_grant(scene.world, ADMIN, None, ClientId(client_id), wish)
    assert not isinstance(made, Denied), made
    return made.grant


async def ask(scene: Scene, **request: object) -> Exchanged | Denied:
    """What the planner gets under its standing grant for the support server."""
    owner = await client(scene)
    wanted = StandingRequest(owner=owner, client=owner, resource=(SUPPORT.uri,))
    return await issue_under_standing_grant(scene.world, replace(wanted, **request))  # type: ignore[arg-type]  # likewise


async def token(scene: Scene, **request: object) -> Exchanged:
    issued = await ask(scene, **request)
    assert isinstance(issued, Exchanged), issued
    return issued


async def exchange(
    scene: Scene, subject_token: str, kind: str, by: str = PLANNER, **request: object
) -> Exchanged | Denied:
    """RFC 8693, asked for by this client."""
    wanted = ExchangeRequest(subject_token=subject_token, subject_token_type=kind)
    return await exchange_token(scene.world, await client(scene, by), replace(wanted, **request))  # type: ignore[arg-type]  # likewise


def claims_of(scene: Scene, issued: Exchanged) -> JsonObject:
    return scene.world.signer.verify_access_token(issued.token, scene.clock.now).claims
