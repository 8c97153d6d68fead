"""OAuth clients: who may authenticate, and the most that each may ever grant."""

from datetime import timedelta
from typing import Annotated, Final, Literal, Self
from urllib.parse import quote

from fastapi import APIRouter, Response
from pydantic import Field, StringConstraints

from app.api.admin.documents import (
    YEAR_SECONDS,
    Administrator,
    ExactCents,
    InTenant,
    Line,
    PageInTenant,
    Status,
    WindowLimits,
    merged,
    status_of,
    tenant_named,
    window_members,
)
from app.api.caller import TheWorld
from app.api.errors import allowed
from app.api.wire import Count, Document, Identifier, StrictRoute
from app.core.attenuation import Ceiling
from app.core.budget import Amount, cents_to_ucents, ucents_to_cents
from app.core.grant import MAX_LINEAGE, ClientId, TenantId
from app.core.registry import AuthMethod, Client, ClientKind, Scope
from app.usecases.register_client import (
    NO_SECRET,
    ClientWithSecret,
    change_client,
    disable_client,
    list_clients,
    read_client,
    register_client,
    rotate_client_secret,
)

router = APIRouter(prefix="/clients", route_class=StrictRoute)

CLOSED: Final = Ceiling()

GrantableScope = Literal["tools:call", "grants:issue", "grants:read", "audit:read", "admin"]
"""Every scope but `platform`, which the bootstrap alone gives."""

AudienceLimit = Annotated[
    str,
    StringConstraints(max_length=500, pattern=r"^(\*|[A-Za-z0-9][A-Za-z0-9._-]{0,63}|[a-z][a-z0-9+.-]*:[^\s#]+)$"),
]
"""A tool server's name or audience; `*` for any."""

ToolLimit = Annotated[str, StringConstraints(max_length=200, pattern=r"^(\*|[A-Za-z0-9_./-]+)$")]
"""A tool's name, or `server/tool`; `*` for any."""


class ClientLimits(WindowLimits):
    """The most that the client may ever grant. What is left out is nothing."""

    audiences: list[AudienceLimit] = Field(default_factory=list, max_length=200)
    allowed_tools: list[ToolLimit] = Field(default_factory=list, max_length=1000)
    subjects: list[Line] = Field(
        default_factory=list, max_length=200, description="for whom beside itself; `*` for anybody"
    )
    max_tool_calls: Count = 0
    max_spend_cents: ExactCents = 0
    max_lifetime_seconds: Annotated[int, Field(ge=1, le=YEAR_SECONDS)] = int(CLOSED.max_lifetime.total_seconds())
    max_depth: Annotated[int, Field(ge=0, le=MAX_LINEAGE)] = CLOSED.max_depth

    @property
    def ceiling(self) -> Ceiling:
        """The same, for the core."""
        return Ceiling(
            audiences=frozenset(self.audiences),
            allowed_tools=frozenset(self.allowed_tools),
            subjects=frozenset(self.subjects),
            limit=Amount(tool_calls=self.max_tool_calls, spend_ucents=cents_to_ucents(self.max_spend_cents)),
            max_lifetime=timedelta(seconds=self.max_lifetime_seconds),
            max_depth=self.max_depth,
        )

    @classmethod
    def of(cls, client: Client) -> Self:
        ceiling = client.ceiling
        return cls.model_validate(
            {
                "audiences": sorted(ceiling.audiences),
                "allowedTools": sorted(ceiling.allowed_tools),
                "subjects": sorted(ceiling.subjects),
                "maxToolCalls": ceiling.limit.tool_calls,
                "maxSpendCents": ucents_to_cents(ceiling.limit.spend_ucents),
                "maxLifetimeSeconds": int(ceiling.max_lifetime.total_seconds()),
                "maxDepth": ceiling.max_depth,
                **window_members(client.window),
            }
        )


class ClientRequest(Document):
    """A client to register."""

    client_id: Identifier
    tenant_id: Identifier | None = Field(default=None, description="the caller's own unless named")
    kind: Annotated[ClientKind, Field(strict=False)]
    scopes: list[GrantableScope] = Field(default_factory=list)
    auth_method: Annotated[AuthMethod, Field(strict=False)] = AuthMethod.CLIENT_SECRET_BASIC
    limits: ClientLimits = Field(default_factory=ClientLimits)
    status: Status = "active"

    def client(self, tenant_id: TenantId) -> Client:
        return Client(
            client_id=ClientId(self.client_id),
            tenant_id=tenant_id,
            kind=self.kind,
            scopes=frozenset(map(Scope, self.scopes)),
            auth_method=self.auth_method,
            secret_hash=NO_SECRET,
            ceiling=self.limits.ceiling,
            window=self.limits.window,
            active=self.status == "active",
        )


class ClientPatch(Document):
    """Members to change; null takes the default."""

    kind: Annotated[ClientKind, Field(strict=False)] | None = None
    scopes: list[GrantableScope] | None = None
    auth_method: Annotated[AuthMethod, Field(strict=False)] | None = None
    limits: ClientLimits | None = None
    status: Status | None = None


class ClientDocument(Document):
    client_id: str
    tenant_id: str
    kind: ClientKind
    scopes: list[Scope]
    auth_method: AuthMethod
    limits: ClientLimits
    status: Status

    @classmethod
    def of(cls, client: Client) -> Self:
        return cls(
            client_id=client.client_id,
            tenant_id=client.tenant_id,
            kind=client.kind,
            scopes=sorted(client.scopes),
            auth_method=client.auth_method,
            limits=ClientLimits.of(client),
            status=status_of(active=client.active),
        )


class RegisteredClientDocument(ClientDocument):
    client_secret: str | None = Field(default=None, description="shown this once, and only to a new client")

    @classmethod
    def with_secret(cls, made: ClientWithSecret) -> Self:
        document = cls.of(made.client)
        return document if made.secret is None else document.model_copy(update={"client_secret": made.secret})


class ClientSecretDocument(Document):
    client_id: str
    client_secret: str = Field(description="shown this once; the one before is worth nothing now")


class ClientPage(Document):
    items: list[ClientDocument]
    next: str | None


@router.post(
    "",
    status_code=201,
    summary="Register an OAuth client",
    response_model_exclude_unset=True,
    responses={200: {"model": ClientDocument, "description": "It is registered so already; no secret"}},
)
async def register(
    world: TheWorld, caller: Administrator, query: InTenant, body: ClientRequest, response: Response
) -> RegisteredClientDocument:
    """An administrator gives only scopes that it holds. 409 where the id is taken by any other client."""
    wish = body.client(tenant_named(caller, query, body.tenant_id))
    made = allowed(await register_client(world, caller, wish))
    response.status_code = 200 if made.secret is None else 201
    response.headers["Cache-Control"] = "no-store"
    response.headers["Location"] = f"/v1/admin/clients/{quote(made.client.client_id, safe='')}"
    return RegisteredClientDocument.with_secret(made)


@router.post("/{client_id:path}/secret", summary="Give a client a new secret")
async def rotate(
    world: TheWorld, caller: Administrator, query: InTenant, client_id: Identifier, response: Response
) -> ClientSecretDocument:
    """The old secret is worth nothing from now on. Only for a client without scopes that the caller lacks."""
    made = allowed(await rotate_client_secret(world, caller, query.named, ClientId(client_id)))
    assert made.secret is not None, "a rotation makes a secret"
    response.headers["Cache-Control"] = "no-store"
    return ClientSecretDocument(client_id=made.client.client_id, client_secret=made.secret)


@router.get("", summary="List a tenant's clients by id", response_model_exclude_unset=True)
async def page(world: TheWorld, caller: Administrator, query: PageInTenant) -> ClientPage:
    found = allowed(await list_clients(world, caller, query.of(caller), query.page))
    return ClientPage(items=[ClientDocument.of(client) for client in found.items], next=found.next)


@router.get("/{client_id:path}", summary="A client", response_model_exclude_unset=True)
async def read(world: TheWorld, caller: Administrator, query: InTenant, client_id: Identifier) -> ClientDocument:
    return ClientDocument.of(allowed(await read_client(world, caller, query.named, ClientId(client_id))))


@router.patch(
    "/{client_id:path}",
    summary="Change a client",
    response_model_exclude_unset=True,
)
async def change(
    world: TheWorld, caller: Administrator, query: InTenant, client_id: Identifier, body: ClientPatch
) -> ClientDocument:
    """Members that are left out stay as they are, `limits` is replaced as a whole; null takes the default."""

    def changed(client: Client) -> Client:
        return merged(ClientRequest, ClientDocument.of(client), body).client(client.tenant_id)

    return ClientDocument.of(allowed(await change_client(world, caller, query.named, ClientId(client_id), changed)))


@router.delete("/{client_id:path}", status_code=204, summary="Disable a client")
async def disable(world: TheWorld, caller: Administrator, query: InTenant, client_id: Identifier) -> None:
    """Its tokens and grants count for nothing from the next call on; a PATCH of `status` undoes it."""
    allowed(await disable_client(world, caller, query.named, ClientId(client_id)))
