"""What an attack needs: a tenant, its clients, tool servers, and a grant narrow enough to be worth breaking."""

import secrets
from dataclasses import dataclass

from tests.api_client import Api, Credentials, Json, made
from tests.tool_server import TOOLS, ToolServer

AUDITOR_SCOPES = ("audit:read", "grants:read")
SEARCH_RULE: Json = {
    "tenant": {"bind": "tenantId"},
    "customerId": {"eq": "c_42"},
    "limit": {"int": {"min": 1, "max": 5}, "optional": True},
}
OPEN: Json = {"*": {"any": True}}


@dataclass(frozen=True)
class Stage:
    api: Api
    tools: ToolServer
    tenant: str
    planner: Credentials
    auditor: Credentials
    support: str
    billing: str

    async def grant(self, **members: object) -> Json:
        """A root grant for support: search for one customer, five calls, unless told otherwise."""
        wish: Json = {
            "audience": self.support,
            "allowedTools": ["search"],
            "resourceConstraints": {"search": SEARCH_RULE},
            "maxToolCalls": 5,
            "maxSpendCents": 100,
            "mayRedelegate": True,
        }
        return made(await self.api.mint(self.planner, **(wish | members)))

    async def open_grant(self, tool: str, **members: object) -> Json:
        """A root grant for one tool with any arguments."""
        return await self.grant(allowedTools=[tool], resourceConstraints={tool: OPEN}, **members)

    async def token(self, grant: Json, **narrowing: object) -> str:
        """An access token for a grant, narrowed further."""
        return await self.api.access_token(self.planner, grant["grant"], narrowing=narrowing or None)

    async def records(self, **filters: str) -> list[Json]:
        return await self.api.audit(self.auditor, **filters)

    async def reasons(self, grant_id: str) -> list[str]:
        """The reasons that the audit log has for a grant's denials."""
        denials = await self.records(grantId=grant_id, decision="deny")
        return [denial["reason"] for denial in denials]

    async def is_whole(self) -> bool:
        return bool((await self.api.verify(self.tenant, self.auditor))["ok"])


async def set_stage(api: Api, tools: ToolServer, *, tenant: str | None = None, **limits: object) -> Stage:
    """Make it, under names that no other test has."""
    tenant = tenant or f"t{secrets.token_hex(6)}"
    await api.tenant(tenant)
    planner = await api.client(tenant, f"{tenant}-planner", **limits)  # type: ignore[arg-type]  # the client's members
    auditor = await api.client(tenant, f"{tenant}-auditor", kind="auditor", scopes=AUDITOR_SCOPES, limits={})
    audiences = {name: await _register(api, tools, tenant, name) for name in ("support", "billing")}
    return Stage(api, tools, tenant, planner, auditor, audiences["support"], audiences["billing"])


async def _register(api: Api, tools: ToolServer, tenant: str, name: str) -> str:
    audience = await api.tool_server(tenant, name, tools.endpoint, timeoutSeconds=2)
    for tool in TOOLS:
        price: Json = {"costFrom": "/costCents", "maxCostCents": 10} if tool == "priced" else {}
        await api.tool(tenant, name, tool, cost_cents=1, **price)
    return audience
