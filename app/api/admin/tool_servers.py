"""Tool servers: where the gateway forwards to, and what it presents there."""

from typing import Annotated, Self

from fastapi import APIRouter, Response
from pydantic import Field, StringConstraints

from app.api.admin.documents import (
    Administrator,
    InTenant,
    PageInTenant,
    Status,
    merged,
    status_of,
    tenant_named,
)
from app.api.admin.tools import PendingDocument
from app.api.caller import TheWorld
from app.api.errors import allowed, refusal
from app.api.wire import Document, Identifier, Name, StrictRoute, Uri
from app.core.grant import ServerName, TenantId
from app.core.registry import Credential, CredentialType, Resolver, ToolServer, Transport
from app.core.resource_rules import TYPE_PATTERN
from app.usecases.discover_tools import Discovery, discover_tools
from app.usecases.register_tool_server import (
    MAX_CACHE_SECONDS,
    MAX_DEFINITION_AGE_SECONDS,
    MAX_RESOLVED_TYPES,
    MAX_RESOLVER_PATH_CHARS,
    CredentialWish,
    change_tool_server,
    disable_tool_server,
    list_tool_servers,
    read_tool_server,
    register_tool_server,
)
from app.usecases.world import Rules

router = APIRouter(prefix="/tool-servers", route_class=StrictRoute)

Seconds = Annotated[float, Field(ge=0.1, le=300)]
DefinitionAge = Annotated[float, Field(ge=0, le=MAX_DEFINITION_AGE_SECONDS)]
ResponseBytes = Annotated[int, Field(ge=1024, le=16_777_216)]
LooseCredentialType = Annotated[CredentialType, Field(strict=False)]


class CredentialRequest(Document):
    """What the gateway presents: nothing, a secret header field, or a JWT that it signs for `upstreamAudience`."""

    type: LooseCredentialType
    header: str | None = None
    value: str | None = Field(
        default=None,
        repr=False,
        description="goes in and never comes out",
        json_schema_extra={"writeOnly": True, "format": "password"},
    )

    @property
    def wish(self) -> CredentialWish:
        return CredentialWish(type=self.type, header=self.header, value=self.value)


class CredentialDocument(Document):
    """A credential without its value."""

    type: CredentialType
    header: str | None = None

    @classmethod
    def of(cls, credential: Credential) -> Self:
        if credential.header is None:
            return cls(type=credential.type)
        return cls(type=credential.type, header=credential.header)


class ResolverDocument(Document):
    """Where the tool server says whose the things of these types are; the directory is not asked about them."""

    path: Annotated[str, StringConstraints(max_length=MAX_RESOLVER_PATH_CHARS, pattern=r"^/")] = Field(
        description="on the endpoint's own origin, whatever the endpoint's path is"
    )
    types: list[Annotated[str, StringConstraints(pattern=f"^{TYPE_PATTERN}$")]] = Field(
        min_length=1, max_length=MAX_RESOLVED_TYPES
    )
    cache_seconds: Annotated[float, Field(ge=0, le=MAX_CACHE_SECONDS)] = Field(
        default=5.0, description="how long an answer may be used again"
    )

    @classmethod
    def of(cls, resolver: Resolver) -> Self:
        return cls(path=resolver.path, types=list(resolver.types), cache_seconds=resolver.cache_seconds)

    @property
    def resolver(self) -> Resolver:
        return Resolver(path=self.path, types=tuple(sorted(set(self.types))), cache_seconds=self.cache_seconds)


class ToolServerMembers(Document):
    """A tool server to register, but for its credential."""

    tenant_id: Identifier | None = Field(default=None, description="the caller's own unless named")
    name: Name
    audience: Uri | None = Field(default=None, description="`{issuer}/mcp/{name}` unless set")
    transport: Annotated[Transport, Field(strict=False)]
    endpoint: Uri
    upstream_audience: Uri | None = Field(
        default=None, description="whom the gateway's JWT is for; the endpoint unless set"
    )
    timeout_seconds: Seconds = 30.0
    max_response_bytes: ResponseBytes = 1_048_576
    resolver: ResolverDocument | None = Field(default=None, description="none unless set")
    definition_max_age_seconds: DefinitionAge = Field(
        default=0.0,
        description=(
            "for the transport mcp: how long its word that a tool is as it was pinned may be used again; with 0 it is "
            "asked before every call"
        ),
    )
    status: Status = "active"

    def server(self, tenant_id: TenantId, rules: Rules) -> ToolServer:
        return ToolServer(
            tenant_id=tenant_id,
            name=ServerName(self.name),
            audience=self.audience or f"{rules.mcp_prefix}{self.name}",
            transport=self.transport,
            endpoint=self.endpoint,
            upstream_audience=self.upstream_audience or self.endpoint,
            credential=Credential(),
            timeout_seconds=self.timeout_seconds,
            max_response_bytes=self.max_response_bytes,
            resolver=None if self.resolver is None else self.resolver.resolver,
            definition_max_age_seconds=self.definition_max_age_seconds,
            active=self.status == "active",
        )


class ToolServerRequest(ToolServerMembers):
    """A tool server to register."""

    credential: CredentialRequest = CredentialRequest(type=CredentialType.NONE)


class ToolServerPatch(Document):
    """Members to change; null takes the default. A transport stays: the tools are bound to it."""

    audience: Uri | None = None
    endpoint: Uri | None = None
    upstream_audience: Uri | None = None
    credential: CredentialRequest | None = None
    timeout_seconds: Seconds | None = None
    max_response_bytes: ResponseBytes | None = None
    resolver: ResolverDocument | None = None
    definition_max_age_seconds: DefinitionAge | None = None
    status: Status | None = None

    @property
    def wish(self) -> CredentialWish | None:
        """The credential to take; None keeps the one that is there."""
        if "credential" not in self.model_fields_set:
            return None
        return CredentialWish() if self.credential is None else self.credential.wish


class ToolServerDocument(Document):
    tenant_id: str
    name: str
    audience: str
    transport: Transport
    endpoint: str
    upstream_audience: str
    credential: CredentialDocument
    timeout_seconds: float
    max_response_bytes: int
    resolver: ResolverDocument | None = Field(default=None, description="left out where there is none")
    definition_max_age_seconds: float
    status: Status

    @classmethod
    def of(cls, server: ToolServer) -> Self:
        document = cls(
            tenant_id=server.tenant_id,
            name=server.name,
            audience=server.audience,
            transport=server.transport,
            endpoint=server.endpoint,
            upstream_audience=server.upstream_audience,
            credential=CredentialDocument.of(server.credential),
            timeout_seconds=server.timeout_seconds,
            max_response_bytes=server.max_response_bytes,
            definition_max_age_seconds=server.definition_max_age_seconds,
            status=status_of(active=server.active),
        )
        if server.resolver is None:
            return document
        return document.model_copy(update={"resolver": ResolverDocument.of(server.resolver)})


class ToolServerPage(Document):
    items: list[ToolServerDocument]
    next: str | None


class RefusedToolDocument(Document):
    name: str = Field(description="`?` where the offered name is none")
    detail: str


class ChangedToolDocument(Document):
    """A tool that is offered otherwise than pinned: refused until what is pending is accepted."""

    name: str
    definition_digest: str = Field(description="of the pinned definition")
    pending: PendingDocument


class DiscoveryDocument(Document):
    """What an MCP server offers beside what is pinned, by name."""

    added: list[str]
    unchanged: list[str]
    changed: list[str] = Field(description="offered otherwise than pinned: refused until accepted")
    missing: list[str] = Field(description="pinned and no longer offered: refused while it is so")
    refused: list[RefusedToolDocument] = Field(description="offered with a definition that can't be used")
    pending: list[ChangedToolDocument] = Field(description="what is offered of those that changed")

    @classmethod
    def of(cls, discovery: Discovery) -> Self:
        return cls(
            added=list(discovery.added),
            unchanged=list(discovery.unchanged),
            changed=list(discovery.changed),
            missing=list(discovery.missing),
            refused=[RefusedToolDocument(name=tool.name, detail=tool.detail) for tool in discovery.refused],
            pending=[
                ChangedToolDocument(
                    name=tool.name,
                    definition_digest=tool.pin_digest,
                    pending=PendingDocument.of(tool.pin, tool.pending),
                )
                for tool in discovery.pending
                if tool.pending is not None
            ],
        )


@router.post(
    "",
    status_code=201,
    summary="Register a tool server",
    response_model_exclude_unset=True,
    responses={200: {"model": ToolServerDocument, "description": "It is registered so already"}},
)
async def register(
    world: TheWorld, caller: Administrator, query: InTenant, body: ToolServerRequest, response: Response
) -> ToolServerDocument:
    """409 where it exists and differs, or where an audience and an address of any tool server would be the same."""
    wish = body.server(tenant_named(caller, query, body.tenant_id), world.rules)
    registered = allowed(await register_tool_server(world, caller, wish, body.credential.wish))
    response.status_code = 201 if registered.created else 200
    response.headers["Location"] = f"/v1/admin/tool-servers/{registered.thing.name}"
    return ToolServerDocument.of(registered.thing)


@router.get(
    "",
    summary="List a tenant's tool servers by name",
    response_model_exclude_unset=True,
)
async def page(world: TheWorld, caller: Administrator, query: PageInTenant) -> ToolServerPage:
    found = allowed(await list_tool_servers(world, caller, query.of(caller), query.page))
    return ToolServerPage(items=[ToolServerDocument.of(server) for server in found.items], next=found.next)


@router.get("/{name}", summary="A tool server", response_model_exclude_unset=True)
async def read(world: TheWorld, caller: Administrator, query: InTenant, name: Name) -> ToolServerDocument:
    found = allowed(await read_tool_server(world, caller, query.of(caller), ServerName(name)))
    return ToolServerDocument.of(found)


@router.patch(
    "/{name}",
    summary="Change a tool server",
    response_model_exclude_unset=True,
)
async def change(
    world: TheWorld, caller: Administrator, query: InTenant, name: Name, body: ToolServerPatch
) -> ToolServerDocument:
    """Members that are left out stay as they are; null takes the default.

    An endpoint that moves to another origin needs a header credential again, which nobody but its owner has.
    """

    def changed(server: ToolServer) -> ToolServer:
        follows = {"upstreamAudience"} if server.upstream_audience == server.endpoint else set[str]()
        document = merged(ToolServerMembers, ToolServerDocument.of(server), body, defaulted=follows)
        return document.server(server.tenant_id, world.rules)

    found = await change_tool_server(world, caller, query.of(caller), ServerName(name), changed, credential=body.wish)
    return ToolServerDocument.of(allowed(found))


@router.delete("/{name}", status_code=204, summary="Disable a tool server")
async def disable(world: TheWorld, caller: Administrator, query: InTenant, name: Name) -> None:
    """No call reaches it from the next one on; a PATCH of `status` undoes it."""
    allowed(await disable_tool_server(world, caller, query.of(caller), ServerName(name)))


@router.post(
    "/{name}/discover",
    summary="Pin the new tools of an MCP server, and see which have changed",
    response_model_exclude_unset=True,
    responses={502: refusal("The tool server could not be asked for its tools")},
)
async def discover(world: TheWorld, caller: Administrator, query: InTenant, name: Name) -> DiscoveryDocument:
    """What it offers is taken once: a definition that differs from the pinned one is shown and pending, never taken.

    A tool that is offered as it was pinned again is pending no more.

    The effect of a discovered tool is unknown and so read as `external`, its output as untrusted, its cost as none.
    """
    return DiscoveryDocument.of(allowed(await discover_tools(world, caller, query.of(caller), ServerName(name))))
