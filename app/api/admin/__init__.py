"""Administration under `/v1/admin`: tenants, OAuth clients, tool servers and their tools, one router each.

Documents in, use cases, documents out. A secret has a way in and none out: no response document has a member
for a header's value, and a client's secret is answered once.
"""

from fastapi import APIRouter

from app.api.admin.clients import router as clients
from app.api.admin.tenants import router as tenants
from app.api.admin.tool_servers import router as tool_servers
from app.api.admin.tools import router as tools
from app.api.errors import REFUSALS

router = APIRouter(prefix="/v1/admin", tags=["admin"], responses=REFUSALS)
for part in (tenants, clients, tool_servers, tools):
    router.include_router(part)
