"""The tools of a tool server: what each takes, costs and does, by an administrator's word."""

from typing import Annotated, Literal, Self
from urllib.parse import quote

from fastapi import APIRouter, Response
from pydantic import Field, JsonValue, StringConstraints

from app.api.admin.documents import Administrator, ExactCents, InTenant, PageInTenant, ResourceType, merged
from app.api.caller import TheWorld
from app.api.errors import allowed
from app.api.wire import Document, Name, StrictRoute, Time
from app.core.budget import Price, cents_to_ucents, ucents_to_cents
from app.core.definition import Definition, Difference, DifferenceKind, PendingDefinition, differences
from app.core.grant import ServerName, TenantId, ToolName
from app.core.registry import Effect, HttpBinding, Tool, ToolSource, Trust
from app.usecases.accept_definition import accept_definition
from app.usecases.failures import Malformed
from app.usecases.register_tool import (
    MAX_DESCRIPTION_CHARS,
    change_tool,
    list_tools_of,
    read_tool,
    register_tool,
    remove_tool,
)

router = APIRouter(prefix="/tool-servers/{name}/tools", route_class=StrictRoute)

Schema = dict[str, JsonValue]

Prose = Annotated[str, StringConstraints(max_length=MAX_DESCRIPTION_CHARS)]

PathTool = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_./-]+$")]
Sink = Annotated[str, StringConstraints(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$")]
Argument = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class HttpDocument(Document):
    """How a tool is called over plain HTTP."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    path: Annotated[str, StringConstraints(max_length=500, pattern=r"^/")] | None = Field(
        default=None,
        description=(
            "below the endpoint; `{name}` takes that argument, which the schema must require, as part of one "
            "segment; `/` and the tool's name unless set"
        ),
    )

    @property
    def binding(self) -> HttpBinding:
        return HttpBinding(method=self.method, path=self.path or "")


class ToolRequest(Document):
    """A tool to register."""

    description: Prose
    input_schema: Schema = Field(description='a JSON Schema (2020-12) of `"type": "object"`')
    output_schema: Schema | None = None
    cost_cents: ExactCents = 0
    max_cost_cents: ExactCents | None = Field(
        default=None, description="what a call holds while it runs; costCents unless set, needed with costFrom"
    )
    cost_from: Annotated[str, StringConstraints(max_length=500)] | None = Field(
        default=None, description="RFC 6901 pointer to the cents that the tool reports in its result"
    )
    effect: Annotated[Effect, Field(strict=False)]
    trust: Annotated[Trust, Field(strict=False)] = Trust.EXTERNAL_UNTRUSTED
    sinks: list[Sink] = Field(default_factory=list, max_length=32)
    idempotent: bool = False
    loggable_arguments: list[Argument] = Field(
        default_factory=list, max_length=100, description="properties whose values may stand in the audit log"
    )
    resource_arguments: dict[Argument, ResourceType] = Field(
        default_factory=dict,
        description="properties that name things, and the type of those: policies are asked about each",
        examples=[{"caseId": "case"}],
    )
    http: HttpDocument = Field(default_factory=HttpDocument, description="for the transport http only")

    def tool(self, tenant_id: TenantId, server: str, name: str, source: ToolSource) -> Tool:
        return Tool(
            tenant_id=tenant_id,
            server=ServerName(server),
            name=ToolName(name),
            description=self.description,
            input_schema=self.input_schema,
            output_schema=self.output_schema,
            price=self._price,
            effect=self.effect,
            trust=self.trust,
            sinks=tuple(sorted(set(self.sinks))),
            idempotent=self.idempotent,
            loggable_arguments=tuple(sorted(set(self.loggable_arguments))),
            resource_arguments=dict(sorted(self.resource_arguments.items())),
            http=self.http.binding,
            source=source,
        )

    @property
    def _price(self) -> Price:
        if self.cost_from is not None and self.max_cost_cents is None:
            raise Malformed("/maxCostCents", "is needed with costFrom")
        maximum = self.cost_cents if self.max_cost_cents is None else self.max_cost_cents
        return Price(
            fixed_ucents=cents_to_ucents(self.cost_cents),
            max_ucents=cents_to_ucents(maximum),
            cost_from=self.cost_from,
        )


class ToolPatch(Document):
    """Members to change; null takes the default."""

    description: Prose | None = None
    input_schema: Schema | None = None
    output_schema: Schema | None = None
    cost_cents: ExactCents | None = None
    max_cost_cents: ExactCents | None = None
    cost_from: Annotated[str, StringConstraints(max_length=500)] | None = None
    effect: Annotated[Effect, Field(strict=False)] | None = None
    trust: Annotated[Trust, Field(strict=False)] | None = None
    sinks: Annotated[list[Sink], Field(max_length=32)] | None = None
    idempotent: bool | None = None
    loggable_arguments: Annotated[list[Argument], Field(max_length=100)] | None = None
    resource_arguments: dict[Argument, ResourceType] | None = None
    http: HttpDocument | None = None


class DefinitionDocument(Document):
    """A tool as its server describes it."""

    description: str
    input_schema: Schema
    output_schema: Schema | None

    @classmethod
    def of(cls, definition: Definition) -> Self:
        return cls(
            description=definition.description,
            input_schema=definition.input_schema,
            output_schema=definition.output_schema,
        )


class DifferenceDocument(Document):
    """One place in which what is offered differs from what was pinned."""

    kind: DifferenceKind
    pointer: str = Field(description="RFC 6901, in `description`, `inputSchema` and `outputSchema`")
    before: JsonValue = Field(default=None, description="left out where it was added")
    after: JsonValue = Field(default=None, description="left out where it was removed")

    @classmethod
    def of(cls, difference: Difference) -> Self:
        sides: dict[str, JsonValue] = {"before": difference.before, "after": difference.after}
        absent = {DifferenceKind.ADDED: "before", DifferenceKind.REMOVED: "after"}.get(difference.kind)
        given = {side: value for side, value in sides.items() if side != absent}
        return cls(kind=difference.kind, pointer=difference.pointer, **given)


class PendingDocument(Document):
    """What the tool server offered otherwise than pinned: the tool is refused until it is accepted."""

    definition_digest: str = Field(description="names it when it is accepted")
    seen_at: Time
    definition: DefinitionDocument | None = Field(default=None, description="left out where it can't be shown")
    difference: list[DifferenceDocument] = Field(description="from what is pinned; at most the first 200")
    flaw: str | None = Field(default=None, description="why it can't be shown or accepted")

    @classmethod
    def of(cls, pinned: Definition, pending: PendingDefinition) -> Self:
        digest, seen_at = pending.digest, pending.seen_at
        if pending.definition is None:
            return cls(definition_digest=digest, seen_at=seen_at, difference=[], flaw=pending.flaw)
        return cls(
            definition_digest=digest,
            seen_at=seen_at,
            definition=DefinitionDocument.of(pending.definition),
            difference=[DifferenceDocument.of(one) for one in differences(pinned, pending.definition)],
        )


class AcceptRequest(Document):
    """Which pending definition is accepted: the one that was looked at."""

    definition_digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class ToolDocument(Document):
    tenant_id: str
    tool_server: str
    name: str
    description: str
    input_schema: Schema
    output_schema: Schema | None
    cost_cents: int | float
    max_cost_cents: int | float
    cost_from: str | None
    effect: Effect
    trust: Trust
    sinks: list[str]
    idempotent: bool
    loggable_arguments: list[str]
    resource_arguments: dict[str, str]
    http: HttpDocument | None = Field(default=None, description="for the transport http only")
    source: ToolSource = Field(description="declared by an administrator, or discovered and pinned")
    definition_digest: str = Field(
        description=(
            "what is pinned: SHA-256 over the RFC 8785 form of `name`, `description`, `inputSchema` and `outputSchema` "
            "as the tool server offers them"
        )
    )
    pinned: DefinitionDocument | None = Field(
        default=None, description="what the tool server offers, where it is described otherwise here"
    )
    pending: PendingDocument | None = Field(default=None, description="left out where nothing has changed")

    @classmethod
    def of(cls, tool: Tool) -> Self:
        document = cls(
            tenant_id=tool.tenant_id,
            tool_server=tool.server,
            name=tool.name,
            description=tool.description,
            input_schema=tool.input_schema,
            output_schema=tool.output_schema,
            cost_cents=ucents_to_cents(tool.price.fixed_ucents),
            max_cost_cents=ucents_to_cents(tool.price.max_ucents),
            cost_from=tool.price.cost_from,
            effect=tool.effect,
            trust=tool.trust,
            sinks=list(tool.sinks),
            idempotent=tool.idempotent,
            loggable_arguments=list(tool.loggable_arguments),
            resource_arguments=dict(tool.resource_arguments),
            source=tool.source,
            definition_digest=tool.pin_digest,
        )
        return document.model_copy(update=_present(tool))


def _present(tool: Tool) -> dict[str, Document]:
    """The members that not every tool has. Only a tool server over plain HTTP gives its tools a path."""
    binding = HttpDocument.model_validate({"method": tool.http.method, "path": tool.http.path or None})
    members = {
        "http": binding if tool.http.path else None,
        "pinned": None if tool.pinned is None else DefinitionDocument.of(tool.pinned),
        "pending": None if tool.pending is None else PendingDocument.of(tool.pin, tool.pending),
    }
    return {name: member for name, member in members.items() if member is not None}


class ToolPage(Document):
    items: list[ToolDocument]
    next: str | None


@router.put(
    "/{tool:path}",
    status_code=201,
    summary="Register a tool, or replace it",
    response_model_exclude_unset=True,
    responses={200: {"model": ToolDocument, "description": "It was there before"}},
)
async def register(
    world: TheWorld,
    caller: Administrator,
    query: InTenant,
    name: Name,
    tool: PathTool,
    body: ToolRequest,
    response: Response,
) -> ToolDocument:
    """A new tool of an MCP server is pinned as that server offers it now, or else as it is declared here.

    Replacing a tool moves no pin and accepts nothing.
    """
    wish = body.tool(query.of(caller), name, tool, ToolSource.DECLARED)
    registered = allowed(await register_tool(world, caller, wish))
    response.status_code = 201 if registered.created else 200
    response.headers["Location"] = f"/v1/admin/tool-servers/{name}/tools/{quote(tool, safe='')}"
    return ToolDocument.of(registered.thing)


@router.get("", summary="List a tool server's tools by name", response_model_exclude_unset=True)
async def page(world: TheWorld, caller: Administrator, query: PageInTenant, name: Name) -> ToolPage:
    found = allowed(await list_tools_of(world, caller, query.of(caller), ServerName(name), query.page))
    return ToolPage(items=[ToolDocument.of(tool) for tool in found.items], next=found.next)


@router.get("/{tool:path}", summary="A tool", response_model_exclude_unset=True)
async def read(world: TheWorld, caller: Administrator, query: InTenant, name: Name, tool: PathTool) -> ToolDocument:
    found = await read_tool(world, caller, query.of(caller), ServerName(name), ToolName(tool))
    return ToolDocument.of(allowed(found))


@router.patch("/{tool:path}", summary="Change a tool", response_model_exclude_unset=True)
async def change(
    world: TheWorld, caller: Administrator, query: InTenant, name: Name, tool: PathTool, body: ToolPatch
) -> ToolDocument:
    """Members that are left out stay as they are; null takes the default."""

    def changed(before: Tool) -> Tool:
        is_fixed = before.price.cost_from is None and before.price.max_ucents == before.price.fixed_ucents
        follows = {"maxCostCents"} if is_fixed else set[str]()
        document = merged(ToolRequest, ToolDocument.of(before), body, defaulted=follows)
        return document.tool(before.tenant_id, before.server, before.name, before.source)

    found = await change_tool(world, caller, query.of(caller), ServerName(name), ToolName(tool), changed)
    return ToolDocument.of(allowed(found))


@router.post("/{tool:path}/accept", summary="Accept a tool's changed definition", response_model_exclude_unset=True)
async def accept(
    world: TheWorld, caller: Administrator, query: InTenant, name: Name, tool: PathTool, body: AcceptRequest
) -> ToolDocument:
    """What is pending becomes what the tool server is held to; 409 where another is pending by now, or none.

    What is described here in other words than those pinned so far stays, the rest follows.
    """
    digest = body.definition_digest
    found = await accept_definition(world, caller, query.of(caller), ServerName(name), ToolName(tool), digest)
    return ToolDocument.of(allowed(found))


@router.delete("/{tool:path}", status_code=204, summary="Remove a tool")
async def remove(world: TheWorld, caller: Administrator, query: InTenant, name: Name, tool: PathTool) -> None:
    """Grants that name it permit nothing any more."""
    allowed(await remove_tool(world, caller, query.of(caller), ServerName(name), ToolName(tool)))
