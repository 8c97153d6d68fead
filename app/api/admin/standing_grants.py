"""Standing grants: what stands behind the tokens that a client asks for by itself, one for each tool server."""

from fastapi import APIRouter, Response

from app.api.admin.documents import Administrator, InTenant
from app.api.caller import TheWorld
from app.api.errors import allowed
from app.api.grants import AnyGrantDocument, GrantDocument, NarrowingDocument, grant_document
from app.api.wire import Document, Identifier, StrictRoute
from app.core.grant import ClientId
from app.usecases.make_standing_grant import list_standing_grants, make_standing_grant

router = APIRouter(prefix="/clients", route_class=StrictRoute)


class StandingGrantRequest(NarrowingDocument):
    """What the client may do at one tool server, for whomever it acts: as much of it as its limits allow."""


class StandingGrantList(Document):
    items: list[AnyGrantDocument]


@router.post("/{client_id:path}/standing-grants", status_code=201, summary="Give a client a standing grant")
async def make(
    world: TheWorld,
    caller: Administrator,
    query: InTenant,
    client_id: Identifier,
    body: StandingGrantRequest,
    response: Response,
) -> GrantDocument:
    """For exactly one tool server, and as long as the client's limits allow unless said otherwise.

    409 while the client has one for the tool server that is neither closed nor expired. It is closed as every grant is.
    """
    made = allowed(await make_standing_grant(world, caller, query.named, ClientId(client_id), body.fields()))
    response.headers["Location"] = f"/v1/grants/{made.grant.grant_id}"
    return GrantDocument.of(made)


@router.get("/{client_id:path}/standing-grants", summary="A client's standing grants")
async def listed(world: TheWorld, caller: Administrator, query: InTenant, client_id: Identifier) -> StandingGrantList:
    """The latest for each tool server, with its usage and status."""
    views = allowed(await list_standing_grants(world, caller, query.named, ClientId(client_id)))
    return StandingGrantList(items=[grant_document(view) for view in views])
