"""OAuth clients: who may authenticate and how, and the most that each may ever grant."""

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
from app.api.wire import Count, Document, Identifier, Members, Name, StrictRoute
from app.core.attenuation import Ceiling
from app.core.budget import Amount, cents_to_ucents, ucents_to_cents
from app.core.grant import MAX_LINEAGE, ClientId, TenantId
from app.core.registry import AuthMethod, Client, ClientKind, GrantType, Scope, Workload
from app.usecases.register_client import (
    MAX_REDIRECT_URIS,
    NO_SECRET,
    ClientWithSecret,
    change_client,
    default_grant_types,
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


LooseGrantType = Annotated[GrantType, Field(strict=False)]
GrantTypes = Annotated[list[LooseGrantType], Field(max_length=len(GrantType))]
RedirectUri = Annotated[str, StringConstraints(min_length=1, max_length=500)]
RedirectUris = Annotated[list[RedirectUri], Field(max_length=MAX_REDIRECT_URIS)]


class WorkloadDocument(Document):
    """Whom a trusted issuer must name for the client."""

    issuer: Name = Field(description="a trusted issuer's name, whose uses have `client`")
    subject: Annotated[str, StringConstraints(min_length=1, max_length=512)] = Field(description="the exact `sub`")

    @property
    def workload(self) -> Workload:
        return Workload(issuer=self.issuer, subject=self.subject)


class ClientRequest(Document):
    """A client to register."""

    client_id: Identifier
    tenant_id: Identifier | None = Field(default=None, description="the caller's own unless named")
    kind: Annotated[ClientKind, Field(strict=False)]
    scopes: list[GrantableScope] = Field(default_factory=list)
    auth_method: Annotated[AuthMethod, Field(strict=False)] = AuthMethod.CLIENT_SECRET_BASIC
    grant_types: GrantTypes | None = Field(
        default=None, description="unless set: none for a person, authorization_code for an app, all others else"
    )
    jwks: Members | None = Field(default=None, description="public keys, for private_key_jwt (RFC 7517 §5)")
    workload: WorkloadDocument | None = Field(default=None, description="instead of jwks")
    dpop_required: bool = Field(default=False, description="whether its tokens must be bound to a key (RFC 9449)")
    redirect_uris: RedirectUris = Field(default_factory=list, description="compared as they stand (RFC 8252)")
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
            grant_types=default_grant_types(self.kind) if self.grant_types is None else frozenset(self.grant_types),
            jwks=self.jwks,
            workload=None if self.workload is None else self.workload.workload,
            dpop_required=self.dpop_required,
            redirect_uris=tuple(dict.fromkeys(self.redirect_uris)),
            ceiling=self.limits.ceiling,
            window=self.limits.window,
            active=self.status == "active",
        )


class ClientPatch(Document):
    """Members to change; null takes the default."""

    kind: Annotated[ClientKind, Field(strict=False)] | None = None
    scopes: list[GrantableScope] | None = None
    auth_method: Annotated[AuthMethod, Field(strict=False)] | None = None
    grant_types: GrantTypes | None = None
    jwks: Members | None = None
    workload: WorkloadDocument | None = None
    dpop_required: bool | None = None
    redirect_uris: RedirectUris | None = None
    limits: ClientLimits | None = None
    status: Status | None = None


class ClientDocument(Document):
    client_id: str
    tenant_id: str
    kind: ClientKind
    scopes: list[Scope]
    auth_method: AuthMethod
    grant_types: list[GrantType]
    jwks: Members | None = Field(default=None, description="left out where it signs nothing itself")
    workload: WorkloadDocument | None = Field(default=None, description="left out where nobody vouches for it")
    dpop_required: bool
    redirect_uris: list[str]
    standing_grants: dict[str, str] | None = Field(
        default=None, description="by tool server, the grant behind what it asks for itself; left out where none is"
    )
    limits: ClientLimits
    status: Status

    @classmethod
    def of(cls, client: Client) -> Self:
        document = cls(
            client_id=client.client_id,
            tenant_id=client.tenant_id,
            kind=client.kind,
            scopes=sorted(client.scopes),
            auth_method=client.auth_method,
            grant_types=sorted(client.grant_types),
            dpop_required=client.dpop_required,
            redirect_uris=list(client.redirect_uris),
            limits=ClientLimits.of(client),
            status=status_of(active=client.active),
        )
        return document.model_copy(update=_shown_where_there(client))


def _shown_where_there(client: Client) -> dict[str, object]:
    workload = client.workload
    members: dict[str, object] = {
        "jwks": client.jwks,
        "workload": workload and WorkloadDocument(issuer=workload.issuer, subject=workload.subject),
        "standing_grants": dict(client.standing_grants),
    }
    return {name: value for name, value in members.items() if value}


class RegisteredClientDocument(ClientDocument):
    client_secret: str | None = Field(
        default=None, description="shown this once, and only to a new client that proves itself by one"
    )

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
    response.status_code = 201 if made.created else 200
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
    """Members that are left out stay as they are; null takes the default.

    What proves the client is set only by an administrator that holds every scope of the client. A client that gets
    no secret any more loses the one that it has, and one that shall have a secret again is to be given one.
    """

    def changed(client: Client) -> Client:
        is_default = client.grant_types == default_grant_types(client.kind)
        follows = {"grantTypes"} if is_default else set[str]()
        return merged(ClientRequest, ClientDocument.of(client), body, defaulted=follows).client(client.tenant_id)

    return ClientDocument.of(allowed(await change_client(world, caller, query.named, ClientId(client_id), changed)))


@router.delete("/{client_id:path}", status_code=204, summary="Disable a client")
async def disable(world: TheWorld, caller: Administrator, query: InTenant, client_id: Identifier) -> None:
    """Its tokens and grants count for nothing from the next call on; a PATCH of `status` undoes it."""
    allowed(await disable_client(world, caller, query.named, ClientId(client_id)))
