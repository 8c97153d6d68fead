"""Grants: mint, derive, read, close. The documents are the DelegationGrant's, camelCase."""

from typing import Annotated, Final, Literal, Self, TypeAlias

from fastapi import APIRouter, Query, Response
from pydantic import Field

from app.api.caller import AuthenticatedCaller, CallerInTenant, TenantQuery, TheWorld
from app.api.errors import REFUSALS, DenialError, allowed
from app.api.wire import Audiences, Cents, Count, Document, Identifier, Members, StrictRoute, Text, Time, ToolSpelling
from app.core.budget import Amount, ucents_to_cents
from app.core.grant import ClientId, GrantId, RunId, TenantId, render_grant
from app.core.reasons import Reason
from app.core.strict_json import JsonObject
from app.ports import GrantFilter
from app.usecases.close_grant import close_grant
from app.usecases.derive_grant import derive_grant
from app.usecases.failures import Denied
from app.usecases.list_tools import ListedTool, list_tools
from app.usecases.mint_grant import MintRequest, SignedGrant, mint_grant
from app.usecases.prove_parties import JWT
from app.usecases.read_grants import (
    ACTIVE,
    STATUS,
    UNVERIFIABLE,
    GrantView,
    UnverifiableView,
    View,
    list_grants,
    read_grant,
    read_lineage,
)
from app.usecases.read_wish import NarrowingFields
from app.usecases.world import World

router = APIRouter(prefix="/v1/grants", tags=["grants"], route_class=StrictRoute, responses=REFUSALS)

GRANT_ID = r"^gr_[a-z0-9_]{1,60}$"
PathId = Annotated[str, Field(max_length=64)]
MAX_TOKEN_CHARS: Final = 16_384
Seconds = Annotated[int, Field(ge=1, le=31_536_000)]


class NarrowingDocument(Document):
    """The narrowing fields, one list for mint, derive and `authorization_details`. Left out means inherited or none."""

    tenant_id: Identifier | None = None
    audience: Audiences | None = None
    allowed_tools: list[ToolSpelling] | None = None
    resource_constraints: Members | None = Field(
        default=None,
        description="per tool, what each argument may be",
        examples=[{"case_search": {"limit": {"int": {"max": 50}}}}],
    )
    result_projection: dict[str, list[str]] | None = Field(
        default=None,
        description="per tool, which fields of its result come back: RFC 9535 paths of names and `[*]`; else all",
        examples=[{"case_search": ["$.cases[*].caseId", "$.cases[*].updatedOn"]}],
    )
    max_tool_calls: Count | None = None
    max_spend_cents: Cents | None = None
    not_before: Time | None = None
    expires_at: Time | None = None
    expires_in_seconds: Seconds | None = None
    may_redelegate: bool | None = None
    max_depth: Annotated[int, Field(ge=0, le=16)] | None = None
    child_run_id: Identifier | None = None

    def projection(self) -> JsonObject | None:
        named = self.result_projection
        return None if named is None else {tool: [*paths] for tool, paths in named.items()}

    def fields(self) -> NarrowingFields:
        """The same, for the use cases."""
        audience = [self.audience] if isinstance(self.audience, str) else self.audience
        return NarrowingFields(
            tenant_id=None if self.tenant_id is None else TenantId(self.tenant_id),
            audience=None if audience is None else tuple(audience),
            allowed_tools=None if self.allowed_tools is None else tuple(self.allowed_tools),
            resource_constraints=self.resource_constraints,
            result_projection=self.projection(),
            max_tool_calls=self.max_tool_calls,
            max_spend_cents=self.max_spend_cents,
            not_before=self.not_before,
            expires_at=self.expires_at,
            expires_in_seconds=self.expires_in_seconds,
            may_redelegate=self.may_redelegate,
            max_depth=self.max_depth,
            child_run_id=None if self.child_run_id is None else RunId(self.child_run_id),
        )


class DeriveDocument(NarrowingDocument):
    """A request for a child grant."""

    holder: Identifier | None = Field(default=None, description="the client that may exchange it")


class MintDocument(DeriveDocument):
    """A request for a root grant."""

    subject: Text | None = Field(
        default=None, description="for whom; the client itself unless its limits allow another"
    )
    subject_token: Annotated[str, Field(min_length=1, max_length=MAX_TOKEN_CHARS)] | None = Field(
        default=None, description="a trusted issuer's token that proves the subject, whatever the limits say"
    )
    subject_token_type: Literal["urn:ietf:params:oauth:token-type:jwt", "urn:ietf:params:oauth:token-type:id_token"] = (
        JWT
    )
    parent_run_id: Identifier | None = None


CLOSED: Final = "closed"


class CloseDocument(Document):
    reason: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")] = CLOSED


class AmountsDocument(Document):
    posted: int | float
    pending: int | float


class UsageDocument(Document):
    tool_calls: AmountsDocument
    spend_cents: AmountsDocument


class ConfirmationDocument(Document):
    """RFC 9449 §6.1."""

    jkt: str


class GrantDocument(Document):
    """A DelegationGrant with what became of it."""

    grant_id: str
    parent_grant_id: str | None
    root_grant_id: str
    depth: int
    tenant_id: str
    subject: str
    actor: str
    issued_by: str
    holder: str
    parent_run_id: str | None
    child_run_id: str
    audience: str | list[str]
    tool_servers: list[str]
    allowed_tools: list[str]
    resource_constraints: Members
    result_projection: dict[str, list[str]] = Field(default_factory=dict)
    max_tool_calls: int
    max_spend_cents: int | float
    issued_at: str
    not_before: str
    expires_at: str
    may_redelegate: bool
    max_depth: int
    policy_version: str
    standing: bool = Field(default=False, description="whether it stands behind tokens that its client asks for")
    cnf: ConfirmationDocument | None = Field(default=None, description="the key whose holder alone may use it")
    status: str = ACTIVE
    usage: UsageDocument
    close_reason: str | None = None
    closed_at: Time | None = None

    @classmethod
    def of(cls, view: GrantView) -> Self:
        return cls.model_validate(
            render_grant(view.grant)
            | {
                "status": view.status,
                "usage": usage_document(view.account.budget.usage.posted, view.account.budget.usage.pending),
                "closeReason": view.account.closed,
                "closedAt": view.closed_at,
            }
        )


class UnverifiableGrantDocument(Document):
    """What the store has of a grant whose record, or that of one above, can't be verified. It allows nothing.

    No signature stands behind any of it: its key was retired, or somebody changed the record.
    """

    grant_id: str
    parent_grant_id: str | None
    root_grant_id: str
    depth: int
    tenant_id: str
    issued_at: Time
    expires_at: Time
    status: Literal["unverifiable"]
    usage: UsageDocument
    close_reason: str | None = None
    closed_at: Time | None = None

    @classmethod
    def of(cls, view: UnverifiableView) -> Self:
        stored, used = view.stored, view.stored.account.budget.usage
        return cls.model_validate(
            {
                "grantId": stored.grant_id,
                "parentGrantId": (None, *stored.lineage)[-2],
                "rootGrantId": stored.lineage[0],
                "depth": len(stored.lineage) - 1,
                "tenantId": stored.tenant_id,
                "issuedAt": stored.issued_at,
                "expiresAt": stored.expires_at,
                "status": UNVERIFIABLE,
                "usage": usage_document(used.posted, used.pending),
                "closeReason": stored.account.closed,
                "closedAt": stored.closed_at,
            }
        )


AnyGrantDocument: TypeAlias = GrantDocument | UnverifiableGrantDocument


def grant_document(view: View) -> AnyGrantDocument:
    """A grant for its readers, verified or marked as what is not."""
    return GrantDocument.of(view) if isinstance(view, GrantView) else UnverifiableGrantDocument.of(view)


class SignedGrantDocument(GrantDocument):
    grant: str = Field(description="the signed compact JWT")

    @classmethod
    def signed(cls, made: SignedGrant) -> Self:
        usage = usage_document(Amount(), Amount())
        status = ACTIVE if made.grant.not_before <= made.grant.issued_at else STATUS[Reason.GRANT_NOT_YET_VALID]
        document = {"usage": usage, "status": status, "grant": made.signed}
        return cls.model_validate(render_grant(made.grant) | document)


class GrantPage(Document):
    items: list[AnyGrantDocument]
    next: str | None


class GrantQuery(TenantQuery):
    """Which grants to list. An unknown parameter is refused: a filter that is ignored would show too much."""

    limit: Annotated[int, Field(ge=1, le=500)] = 50
    before: Annotated[str, Field(pattern=GRANT_ID)] | None = Field(default=None, description="a page's `next`")
    parent_grant_id: PathId | None = None
    root_grant_id: PathId | None = None
    run_id: Identifier | None = None
    holder: Identifier | None = None
    subject: Text | None = None
    status: Literal["active"] | None = None

    def where(self, world: World) -> GrantFilter:
        """The same, for the use cases."""
        return GrantFilter(
            parent_grant_id=None if self.parent_grant_id is None else GrantId(self.parent_grant_id),
            root_grant_id=None if self.root_grant_id is None else GrantId(self.root_grant_id),
            run_id=None if self.run_id is None else RunId(self.run_id),
            holder=None if self.holder is None else ClientId(self.holder),
            subject=self.subject,
            live_at=world.clock() if self.status == ACTIVE else None,
        )


class LineageDocument(Document):
    ancestors: list[AnyGrantDocument]
    subtree: list[AnyGrantDocument]
    truncated: bool


class ListedToolDocument(Document):
    name: str = Field(description="as the grant spells it")
    tool_server: str
    description: str
    input_schema: Members = Field(description="what the grant allows; arguments that it binds are not shown")
    output_schema: Members | None = Field(description="what of a result comes back")

    @classmethod
    def of(cls, tool: ListedTool) -> Self:
        return cls(
            name=tool.name,
            tool_server=tool.ref.server,
            description=tool.description,
            input_schema=tool.input_schema,
            output_schema=tool.output_schema,
        )


class CatalogueDocument(Document):
    grant_id: str
    tools: list[ListedToolDocument]


class ClosedDocument(Document):
    grant_id: str
    status: Literal["closed"] = "closed"
    closed_grants: list[str] = Field(description="what was still open, the grant first")
    aborted_calls: int = Field(description="calls in flight in this process that were aborted")


def usage_document(posted: Amount, pending: Amount) -> JsonObject:
    """Usage as the API shows it; money in decimal cents."""
    return {
        "toolCalls": {"posted": posted.tool_calls, "pending": pending.tool_calls},
        "spendCents": {
            "posted": ucents_to_cents(posted.spend_ucents),
            "pending": ucents_to_cents(pending.spend_ucents),
        },
    }


@router.post("", status_code=201, summary="Mint a root grant")
async def mint(
    world: TheWorld, caller: AuthenticatedCaller, body: MintDocument, response: Response
) -> SignedGrantDocument:
    """Needs the scope `grants:issue`. What is left out is nothing: no tools, no calls, no spend, no redelegation."""
    request = MintRequest(
        fields=body.fields(),
        subject=body.subject,
        subject_token=body.subject_token,
        holder=None if body.holder is None else ClientId(body.holder),
        parent_run_id=None if body.parent_run_id is None else RunId(body.parent_run_id),
    )
    made = allowed(await mint_grant(world, caller, request))
    response.headers["Location"] = f"/v1/grants/{made.grant.grant_id}"
    return SignedGrantDocument.signed(made)


@router.post("/{grant_id}/derive", status_code=201, summary="Derive a child grant")
async def derive(
    world: TheWorld, caller: AuthenticatedCaller, grant_id: PathId, body: DeriveDocument, response: Response
) -> SignedGrantDocument:
    """Redelegation for orchestrators: proven narrower than the parent, or refused."""
    holder = None if body.holder is None else ClientId(body.holder)
    made = allowed(await derive_grant(world, caller, GrantId(grant_id), body.fields(), holder))
    response.headers["Location"] = f"/v1/grants/{made.grant.grant_id}"
    return SignedGrantDocument.signed(made)


@router.get("", summary="List grants, newest first")
async def page(world: TheWorld, caller: CallerInTenant, asked: Annotated[GrantQuery, Query()]) -> GrantPage:
    """Filters combine. Auditors and administrators see the tenant's grants; others their own and those below."""
    start = None if asked.before is None else GrantId(asked.before)
    found = allowed(await list_grants(world, caller, asked.where(world), before=start, limit=asked.limit))
    return GrantPage(items=[grant_document(view) for view in found.views], next=found.next)


@router.get("/{grant_id}", summary="A grant with its usage and status")
async def read(world: TheWorld, caller: CallerInTenant, grant_id: PathId) -> AnyGrantDocument:
    view = await read_grant(world, caller, GrantId(grant_id))
    if isinstance(view, Denied):
        raise DenialError(view)
    return grant_document(view)


@router.get("/{grant_id}/lineage", summary="Ancestors and subtree with usage")
async def lineage(world: TheWorld, caller: CallerInTenant, grant_id: PathId) -> LineageDocument:
    found = allowed(await read_lineage(world, caller, GrantId(grant_id)))
    return LineageDocument(
        ancestors=[grant_document(view) for view in found.ancestors],
        subtree=[grant_document(view) for view in found.subtree],
        truncated=found.truncated,
    )


@router.get("/{grant_id}/tools", summary="The grant's tools, as a model may be shown them")
async def tools(world: TheWorld, caller: CallerInTenant, grant_id: PathId) -> CatalogueDocument:
    """Input schemas are narrowed to what the whole chain allows. What policies and budgets say is known at the call."""
    listed = allowed(await list_tools(world, caller, GrantId(grant_id)))
    return CatalogueDocument(grant_id=grant_id, tools=[ListedToolDocument.of(tool) for tool in listed])


@router.post("/{grant_id}/close", summary="Close a grant and all below it")
async def close(
    world: TheWorld, caller: CallerInTenant, grant_id: PathId, body: CloseDocument | None = None
) -> ClosedDocument:
    """The next call under any of it is refused; calls in flight are aborted where the transport allows."""
    ended = allowed(await close_grant(world, caller, GrantId(grant_id), CLOSED if body is None else body.reason))
    return ClosedDocument(grant_id=ended.grant_id, closed_grants=list(ended.closed), aborted_calls=ended.aborted_calls)
