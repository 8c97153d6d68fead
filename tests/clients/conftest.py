"""A running Subgrant and what a client finds there: a tenant, a tool server, an orchestrator, and its grants."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeyParameters, OKPKey

from tests.api_client import GENEROUS, Api, Credentials, Json, made, proposal
from tests.clients.browser import Person
from tests.server_process import ServerProcess, sqlite_url
from tests.tool_server import ToolServer

TENANT: Final = "acme"
REDIRECT_URI: Final = "http://127.0.0.1/callback"
SEARCH_RULE: Final[Json] = {"customerId": {"eq": "c_42"}, "limit": {"int": {"min": 1, "max": 5}, "optional": True}}
SEARCH: Final[Json] = {
    "type": "object",
    "properties": {"customerId": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["customerId"],
}

NAMED: Final[KeyParameters] = {"kid": "k1"}
GENERATORS: Final[dict[str, Callable[[], ECKey | OKPKey]]] = {
    "ES256": lambda: ECKey.generate_key("P-256", NAMED),
    "Ed25519": lambda: OKPKey.generate_key("Ed25519", NAMED),
}


@dataclass(frozen=True, slots=True)
class Key:
    """A key pair of somebody's own: of a client that proves itself by it (RFC 7523 §2.2), or of another issuer."""

    algorithm: str
    private: ECKey | OKPKey = field(repr=False)

    @classmethod
    def generate(cls, algorithm: str) -> "Key":
        return cls(algorithm, GENERATORS[algorithm]())

    @property
    def jwk(self) -> Json:
        """The private half as well."""
        return {**self.private.as_dict(private=True)}

    @property
    def jwks(self) -> Json:
        """What the server is told of it."""
        return {"keys": [{**self.private.as_dict(private=False), "use": "sig", "alg": self.algorithm}]}

    @property
    def pem(self) -> str:
        return self.private.as_pem(private=True).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Two tools behind Subgrant, of which a grant names one, and who may have such grants."""

    api: Api
    tools: ToolServer
    planner: Credentials
    support: str
    """The tool server's audience, which is the URL of its MCP endpoint."""

    async def grant(self, **members: object) -> Json:
        """A root grant to search for one customer."""
        wish: Json = {
            "audience": self.support,
            "allowedTools": ["search"],
            "resourceConstraints": {"search": SEARCH_RULE},
            "maxToolCalls": 10,
            "maxSpendCents": 100,
            "mayRedelegate": True,
        }
        return made(await self.api.mint(self.planner, **(wish | members)))

    async def keyed_client(self, client_id: str, key: Key) -> str:
        """An orchestrator that proves itself by a key of its own."""
        members = {"kind": "orchestrator", "scopes": ["grants:issue", "grants:read"], "limits": GENEROUS}
        body = {"clientId": client_id, "tenantId": TENANT, "authMethod": "private_key_jwt", "jwks": key.jwks, **members}
        assert "clientSecret" not in made(await self.api.admin_request("POST", "/clients", json=body))
        return client_id

    async def standing_grant(self, client_id: str) -> Json:
        """What an administrator lets a client do by itself: the same search, without anybody's grant."""
        body: Json = {
            "audience": self.support,
            "allowedTools": ["search"],
            "resourceConstraints": {"search": SEARCH_RULE},
            "maxToolCalls": 10,
            "maxSpendCents": 100,
            "mayRedelegate": True,
        }
        return made(await self.api.admin_request("POST", f"/clients/{client_id}/standing-grants", json=body))

    async def app(self, client_id: str) -> str:
        """An application that keeps no secret, and asks people for what it may do."""
        body = {"clientId": client_id, "tenantId": TENANT, "kind": "app", "authMethod": "none"}
        made(await self.api.admin_request("POST", "/clients", json={**body, "redirectUris": [REDIRECT_URI]}))
        return client_id

    async def person(self, client_id: str) -> Person:
        """Somebody whom an administrator lets search, and who may let an application do so."""
        return Person(*await self.api.client(TENANT, client_id, kind="person"))

    async def identity_assertion(self, client_id: str, name: str) -> str:
        """What a company's identity provider says of a user and a client (ID-JAG), once it is trusted here."""
        key = Key.generate("ES256")
        idp = f"https://{name}.example"
        body = {"name": name, "tenantId": TENANT, "issuer": idp, "uses": ["grant"], "jwks": key.jwks}
        made(await self.api.admin_request("POST", "/issuers", json=body))
        now = int(time.time())
        who = {"iss": idp, "sub": "ada", "aud": self.api.url, "client_id": client_id}
        what = {"resource": self.support, "scope": "tools:call", "jti": name, "iat": now, "exp": now + 60}
        return jwt.encode({"typ": "oauth-id-jag+jwt", "alg": key.algorithm, "kid": "k1"}, who | what, key.private)

    async def decisions(self, grant: Json) -> list[tuple[str, str | None]]:
        """What the audit log says was decided about calls under a root grant or what came of it, oldest first."""
        records = await self.api.audit(tenant=TENANT, rootGrantId=grant["grantId"])
        decided: list[Json] = [record for record in records if record.get("decision")]
        return [(record["decision"], record.get("reason")) for record in decided]

    def journey(self, client_id: str, grant: Json, **more: object) -> dict[str, Any]:
        """What an OAuth client's scenario is told."""
        return {
            "issuer": self.api.url,
            "clientId": client_id,
            "resource": self.support,
            "grant": grant["grant"],
            "narrowing": {"maxToolCalls": 3},
            "call": proposal(self.support, "search", {"customerId": "c_42", "limit": 2}),
            **more,
        }


@pytest.fixture(scope="module")
def subgrant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(sqlite_url(tmp_path_factory.mktemp("clients"))) as server:
        yield server


@pytest.fixture(scope="module")
def tools() -> Iterator[ToolServer]:
    with ToolServer() as server:
        yield server


@pytest.fixture(scope="module")
async def desk(subgrant: ServerProcess, tools: ToolServer) -> AsyncIterator[Desk]:
    async with Api(subgrant.url) as api:
        await api.tenant(TENANT)
        support = await api.tool_server(TENANT, "support", tools.endpoint)
        await api.tool(TENANT, "support", "search", schema=SEARCH, cost_cents=1)
        await api.tool(TENANT, "support", "fail")
        planner = await api.client(TENANT, "planner")
        yield Desk(api=api, tools=tools, planner=planner, support=support)
