"""What the gateway is measured on: one tenant with one hot root, a chain of three grants, and one tool.

Knows how it is set up, which calls are made under it, and what must be true after them: as many calls posted
on every grant of the chain as succeeded, nothing pending, and a whole audit log. Refuses to know about speed.
"""

import json
from collections.abc import Sequence
from typing import Final, Self

from bench.load import Job
from tests.api_client import Api, Credentials, Json, made, proposal

TOOL: Final = "search"
COST_CENTS: Final = 0.5
CHAIN: Final = 3
BODIES: Final = 100
SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {
        "tenant": {"type": "string"},
        "customerId": {"type": "string", "maxLength": 64},
        "limit": {"type": "integer", "minimum": 1},
    },
    "required": ["tenant", "customerId"],
    "additionalProperties": False,
}
RULE: Final[Json] = {
    "tenant": {"bind": "tenantId"},
    "customerId": {"prefix": "c_"},
    "limit": {"int": {"min": 1, "max": 50}, "optional": True},
}
NARROWER: Final[Json] = RULE | {"limit": {"int": {"min": 1, "max": 10}, "optional": True}}
SUCCESS: Final = '"outcome":"success"'
LIFETIME_SECONDS: Final = 86_400


class Stage:
    """A tenant of its own for each concurrency, so that no log grows from one to the next."""

    def __init__(self, api: Api, tenant: str, client: Credentials, audience: str, grants: Sequence[Json]) -> None:
        self._api = api
        self._tenant = tenant
        self._client = client
        self._audience = audience
        self._grants = grants
        self._calls = 0

    @classmethod
    async def set_up(cls, api: Api, tenant: str, endpoint: str) -> Self:
        await api.tenant(tenant)
        client = await api.client(tenant, f"{tenant}-planner")
        audience = await api.tool_server(tenant, "support", endpoint)
        await api.tool(tenant, "support", TOOL, schema=SCHEMA, cost_cents=COST_CENTS)
        root = made(await api.mint(client, audience=audience, expiresInSeconds=LIFETIME_SECONDS, **_authority(RULE)))
        grants = [root]
        while len(grants) < CHAIN:
            parent = grants[-1]["grantId"]
            grants.append(made(await api.derive(client, parent, **_authority(NARROWER))))
        return cls(api, tenant, client, audience, grants)

    async def job(self, port: int, concurrency: int, seconds: float) -> Job:
        """Calls under the chain's last grant, with a fresh token, as a client would keep it."""
        token = await self._api.access_token(self._client, self._grants[-1]["grant"])
        return Job(
            port=port,
            path="/v1/gateway/calls",
            token=token,
            bodies=self.bodies(),
            expected=SUCCESS,
            concurrency=concurrency,
            seconds=seconds,
        )

    def bodies(self) -> list[str]:
        return [json.dumps(proposal(self._audience, TOOL, self._arguments(number))) for number in range(BODIES)]

    def _arguments(self, number: int) -> Json:
        return {"tenant": self._tenant, "customerId": f"c_{number}", "limit": 1 + number % 10}

    async def faults(self, calls: int) -> list[str]:
        """What is wrong after so many more successful calls; nothing, if all is well."""
        self._calls += calls
        expected = {
            "toolCalls": {"posted": self._calls, "pending": 0},
            "spendCents": {"posted": self._calls * COST_CENTS, "pending": 0},
        }
        found = []
        for grant in self._grants:
            usage = await self._api.usage(self._client, grant["grantId"])
            if usage != expected:
                found.append(f"the grant at depth {grant['depth']} shows {usage}, not {expected}")
        verification = await self._api.verify(self._tenant)
        if not verification["ok"]:
            found.append(f"the audit log is not whole: {verification['fault']}")
        if verification["records"] < self._calls:
            found.append(f"{self._calls} calls left only {verification['records']} audit records")
        return found


def _authority(rule: Json) -> Json:
    return {
        "allowedTools": [TOOL],
        "resourceConstraints": {TOOL: rule},
        "maxToolCalls": 1_000_000,
        "maxSpendCents": 1_000_000,
        "mayRedelegate": True,
    }
