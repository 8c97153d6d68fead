"""A client of a running Subgrant, for tests: setting up in one line, attacking with nothing in the way.

What sets up (`token`, `tenant`, `client`, `tool_server`, `tool`) must succeed and returns the document. What
a test is about (`mint`, `derive`, `exchange`, `call`, `check`, `close`, …) returns the response as it came:
`made(response)` is its document where it must have succeeded, `refused(response)` its reason where it must not.
Refuses to know how a server is started; `tests/server_process.py` does.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote, quote_plus

import httpx

from tests.server_process import BOOTSTRAP, Bootstrap

Json = dict[str, Any]

TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
DELEGATION_GRANT: Final = "urn:subgrant:params:oauth:token-type:delegation-grant"

ORCHESTRATOR_SCOPES: Final = ("grants:issue", "grants:read")
GENEROUS: Final[Json] = {
    "audiences": ["*"],
    "allowedTools": ["*"],
    "maxToolCalls": 1_000_000,
    "maxSpendCents": 1_000_000,
    "maxLifetimeSeconds": 86_400,
    "maxDepth": 8,
}
"""Limits that are in no test's way."""

ANY_OBJECT: Final[Json] = {"type": "object"}


class Credentials(NamedTuple):
    """An OAuth client that a test made."""

    client_id: str
    client_secret: str


class Api:
    """The API of one server, spoken to as any of its clients. Tokens for the API are fetched once for each."""

    def __init__(self, url: str, admin: Bootstrap | Credentials = BOOTSTRAP, *, timeout_seconds: float = 60) -> None:
        self.url = url
        self.admin = Credentials(*admin)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
        self.http = httpx.AsyncClient(base_url=url, timeout=timeout_seconds, limits=limits, trust_env=False)
        self._tokens: dict[Credentials, str] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    # --- tokens -------------------------------------------------------------------------------------------

    async def token(self, client: Credentials, *, scope: str | None = None) -> str:
        """A fresh token for the API itself (`client_credentials`)."""
        form = {"grant_type": "client_credentials"} | ({} if scope is None else {"scope": scope})
        document = made(await self.http.post("/oauth/token", data=form, auth=_basic(client)))
        return str(document["access_token"])

    async def token_of(self, client: Credentials) -> str:
        """The same, fetched once."""
        if client not in self._tokens:
            self._tokens[client] = await self.token(client)
        return self._tokens[client]

    async def exchange(
        self,
        client: Credentials,
        subject_token: str,
        *,
        subject_token_type: str = DELEGATION_GRANT,
        resource: str | Sequence[str] | None = None,
        requested_token_type: str | None = None,
        narrowing: Mapping[str, object] | None = None,
        **parameters: str,
    ) -> httpx.Response:
        """RFC 8693. `narrowing` are the members of the one `authorization_details` of type `delegation`."""
        details = None if narrowing is None else json.dumps([{"type": "delegation", **narrowing}])
        form: dict[str, Any] = {
            "grant_type": TOKEN_EXCHANGE,
            "subject_token": subject_token,
            "subject_token_type": subject_token_type,
            "resource": resource,
            "requested_token_type": requested_token_type,
            "authorization_details": details,
            **parameters,
        }
        given = {name: value for name, value in form.items() if value is not None}
        return await self.http.post("/oauth/token", data=given, auth=_basic(client))

    async def access_token(
        self,
        client: Credentials,
        subject_token: str,
        *,
        resource: str | None = None,
        narrowing: Mapping[str, object] | None = None,
        **parameters: str,
    ) -> str:
        """The access token of an exchange that must succeed."""
        response = await self.exchange(client, subject_token, resource=resource, narrowing=narrowing, **parameters)
        return str(made(response)["access_token"])

    async def introspect(self, client: Credentials, token: str) -> httpx.Response:
        return await self.http.post("/oauth/introspect", data={"token": token}, auth=_basic(client))

    async def revoke(self, client: Credentials, token: str) -> httpx.Response:
        return await self.http.post("/oauth/revoke", data={"token": token}, auth=_basic(client))

    # --- setting up, as the platform's administrator ------------------------------------------------------

    async def admin_request(
        self, method: str, path: str, *, json: object = None, params: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Any request of the administrator, below `/v1/admin`."""
        token = await self.token_of(self.admin)
        return await self.request(method, f"/v1/admin{path}", token, json=json, params=params)

    async def tenant(self, tenant_id: str, **members: object) -> Json:
        body = {"tenantId": tenant_id, "name": f"Tenant {tenant_id}"} | members
        return made(await self.admin_request("POST", "/tenants", json=body))

    async def client(
        self,
        tenant_id: str,
        client_id: str,
        *,
        kind: str = "orchestrator",
        scopes: Sequence[str] = ORCHESTRATOR_SCOPES,
        limits: Mapping[str, object] = GENEROUS,
        **members: object,
    ) -> Credentials:
        """A new OAuth client; an orchestrator with limits that are in nobody's way unless told otherwise."""
        body = {"clientId": client_id, "tenantId": tenant_id, "kind": kind, "scopes": [*scopes], "limits": {**limits}}
        document = made(await self.admin_request("POST", "/clients", json=body | members))
        return Credentials(client_id, document["clientSecret"])

    async def tool_server(
        self, tenant_id: str, name: str, endpoint: str, *, transport: str = "http", **members: object
    ) -> str:
        """A new tool server; returns its audience."""
        body = {"tenantId": tenant_id, "name": name, "transport": transport, "endpoint": endpoint} | members
        return str(made(await self.admin_request("POST", "/tool-servers", json=body))["audience"])

    async def tool(
        self,
        tenant_id: str,
        server: str,
        name: str,
        *,
        schema: Mapping[str, object] = ANY_OBJECT,
        cost_cents: float = 0,
        effect: str = "read",
        **members: object,
    ) -> Json:
        """A tool, new or replaced."""
        body = {"description": name, "inputSchema": {**schema}, "costCents": cost_cents, "effect": effect} | members
        path = f"/tool-servers/{server}/tools/{quote(name, safe='')}"
        return made(await self.admin_request("PUT", path, json=body, params={"tenant": tenant_id}))

    async def discover(self, tenant_id: str, server: str) -> Json:
        """Pin the tools that an MCP server offers."""
        path = f"/tool-servers/{server}/discover"
        return made(await self.admin_request("POST", path, params={"tenant": tenant_id}))

    # --- grants -------------------------------------------------------------------------------------------

    async def mint(self, client: Credentials, **members: object) -> httpx.Response:
        """A root grant; the members are the document's own: `audience=…, allowedTools=[…], maxToolCalls=…`."""
        return await self.request("POST", "/v1/grants", await self.token_of(client), json=members)

    async def derive(self, client: Credentials, grant_id: str, **members: object) -> httpx.Response:
        path = f"/v1/grants/{grant_id}/derive"
        return await self.request("POST", path, await self.token_of(client), json=members)

    async def grant(self, client: Credentials, grant_id: str) -> Json:
        """A grant with its usage, as this client sees it."""
        return made(await self.request("GET", f"/v1/grants/{grant_id}", await self.token_of(client)))

    async def usage(self, client: Credentials, grant_id: str) -> Json:
        """What a grant used: `{"toolCalls": {"posted", "pending"}, "spendCents": {…}}`."""
        usage: Json = (await self.grant(client, grant_id))["usage"]
        return usage

    async def lineage(self, client: Credentials, grant_id: str) -> Json:
        return made(await self.request("GET", f"/v1/grants/{grant_id}/lineage", await self.token_of(client)))

    async def close(self, client: Credentials, grant_id: str, reason: str = "task_complete") -> httpx.Response:
        path = f"/v1/grants/{grant_id}/close"
        return await self.request("POST", path, await self.token_of(client), json={"reason": reason})

    # --- the gateway --------------------------------------------------------------------------------------

    async def call(
        self,
        token: str,
        audience: str,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> httpx.Response:
        """One tool call under a bearer token: checked, and if allowed run."""
        body = proposal(audience, tool, arguments)
        key = {} if idempotency_key is None else {"idempotencyKey": idempotency_key}
        return await self.request("POST", "/v1/gateway/calls", token, json=body | key)

    async def check(
        self, token: str, audience: str, tool: str, arguments: Mapping[str, object] | None = None
    ) -> httpx.Response:
        """The decision on one call, without its effects. A denial is an answer, not an error."""
        return await self.request("POST", "/v1/gateway/checks", token, json=proposal(audience, tool, arguments))

    # --- audit --------------------------------------------------------------------------------------------

    async def audit(self, client: Credentials | None = None, **filters: str) -> list[Json]:
        """Every matching record, oldest first; as the administrator unless told otherwise."""
        token = await self.token_of(client or self.admin)
        headers = {"Accept": "application/x-ndjson"}
        params = {"order": "oldest"} | filters
        response = await self.request("GET", "/v1/audit/records", token, params=params, headers=headers)
        assert response.is_success, response.text
        return [json.loads(line) for line in response.text.splitlines()]

    async def verify(self, tenant_id: str, client: Credentials | None = None) -> Json:
        """Whether a tenant's log is whole."""
        token = await self.token_of(client or self.admin)
        return made(await self.request("GET", "/v1/audit/verify", token, params={"tenant": tenant_id}))

    # --- anything -----------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        token: str | None,
        *,
        json: object = None,
        content: bytes | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Any request with this bearer token, or with none. `content` is a body as it is, `json` one to encode."""
        bearer = {} if token is None else {"Authorization": f"Bearer {token}"}
        return await self.http.request(
            method, path, json=json, content=content, params=params, headers=bearer | dict(headers or {})
        )


def _basic(client: Credentials) -> httpx.BasicAuth:
    """Both halves are form-encoded first (RFC 6749 §2.3.1)."""
    return httpx.BasicAuth(quote_plus(client.client_id), quote_plus(client.client_secret))


def proposal(audience: str, tool: str, arguments: Mapping[str, object] | None = None) -> Json:
    """A call as the gateway takes it."""
    return {"toolServerAudience": audience, "name": tool, "arguments": dict(arguments or {})}


def made(response: httpx.Response) -> Json:
    """The document of a response that must be a success."""
    assert response.is_success, f"{response.status_code} {response.text}"
    document: Json = response.json() if response.content else {}
    return document


def refused(response: httpx.Response, status: int | None = None) -> str:
    """The reason of a response that must be a refusal (of this status), from a problem or an OAuth error alike."""
    assert response.is_client_error, f"{response.status_code} {response.text}"
    assert status in (None, response.status_code), f"{response.status_code} {response.text}"
    document = response.json()
    return str(document.get("reason") or document["error"])
