"""The tools of a tool server: what each takes, costs and does, by an administrator's word."""

from typing import Annotated, Literal, Self
from urllib.parse import quote

from fastapi import APIRouter, Response
from pydantic import Field, JsonValue, StringConstraints

from app.api.admin.documents import Administrator, ExactCents, InTenant, PageInTenant, ResourceType, merged
from app.api.caller import TheWorld
from app.api.errors import allowed
from app.api.wire import Document, Name, StrictRoute
from app.core.budget import Price, cents_to_ucents, ucents_to_cents
from app.core.grant import ServerName, TenantId, ToolName
from app.core.registry import Effect, HttpBinding, Tool, ToolSource, Trust
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
        )
        # Only a tool server over plain HTTP gives its tools a path.
        binding = HttpDocument.model_validate({"method": tool.http.method, "path": tool.http.path or None})
        return document.model_copy(update={"http": binding}) if tool.http.path else document


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
    """Replacing a tool whose server offers another definition than the pinned one is how that one is accepted."""
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


@router.delete("/{tool:path}", status_code=204, summary="Remove a tool")
async def remove(world: TheWorld, caller: Administrator, query: InTenant, name: Name, tool: PathTool) -> None:
    """Grants that name it permit nothing any more."""
    allowed(await remove_tool(world, caller, query.of(caller), ServerName(name), ToolName(tool)))
