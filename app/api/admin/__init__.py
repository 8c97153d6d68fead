"""Administration under `/v1/admin`, one router for each kind of thing.

Documents in, use cases, documents out. A secret has a way in and none out: no response document has a member
for a header's value, and a client's secret is answered once.
"""

from fastapi import APIRouter

from app.api.admin.clients import router as clients
from app.api.admin.issuers import router as issuers
from app.api.admin.keys import router as keys
from app.api.admin.policies import router as policies
from app.api.admin.resources import router as resources
from app.api.admin.standing_grants import router as standing_grants
from app.api.admin.tenants import router as tenants
from app.api.admin.tool_servers import router as tool_servers
from app.api.admin.tools import router as tools
from app.api.errors import REFUSALS

router = APIRouter(prefix="/v1/admin", tags=["admin"], responses=REFUSALS)
# The paths below a client come first: an id may have slashes, so the client's own would swallow them.
for part in (tenants, standing_grants, clients, issuers, tool_servers, tools, resources, policies, keys):
    router.include_router(part)
