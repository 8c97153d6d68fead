"""A client whose tokens are bound to a key of its own, and whoever stole what it sent."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.api_client import DELEGATION_GRANT, TOKEN_EXCHANGE, Credentials, Json, made, proposal
from tests.attacks.stage import Stage
from tests.mcp_client import McpClient
from tests.prover import Prover

CASES: Json = {"customerId": "c_42"}
CALLS, CHECKS, TOKEN = "/v1/gateway/calls", "/v1/gateway/checks", "/oauth/token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The stage's planner with a key. Every request has a proof of its own unless the test has one for it."""

    stage: Stage
    key: Prover = field(default_factory=Prover.ed25519)

    @property
    def http(self) -> httpx.AsyncClient:
        return self.stage.api.http

    def url(self, path: str) -> str:
        return f"{self.stage.api.url}{path}"

    def headers(self, method: str, path: str, token: str, **claims: object) -> dict[str, str]:
        return self.key.headers(method, self.url(path), token, **claims)

    @property
    def reached(self) -> int:
        """How many searches of this stage reached the tool."""
        return len(self.stage.tools.of("search", tenant=self.stage.tenant))

    # --- the token endpoint -------------------------------------------------------------------------------

    async def ask(
        self, form: Json, *, client: Credentials | None = None, proof: str | None = None, prove: bool = True
    ) -> httpx.Response:
        """The token endpoint, with a proof unless told not to."""
        client = client or self.stage.planner
        proof = proof or (self.key.proof("POST", self.url(TOKEN)) if prove else None)
        headers = {} if proof is None else {"DPoP": proof}
        return await self.http.post(TOKEN, data=form, auth=httpx.BasicAuth(*client), headers=headers)

    async def api_token(self) -> str:
        return str(made(await self.ask({"grant_type": "client_credentials"}))["access_token"])

    async def exchange(
        self,
        subject: str,
        *,
        subject_type: str = DELEGATION_GRANT,
        narrowing: Json | None = None,
        proof: str | None = None,
        prove: bool = True,
        **form: Any,  # noqa: ANN401  # parameters of any kind
    ) -> httpx.Response:
        form |= {"grant_type": TOKEN_EXCHANGE, "subject_token": subject, "subject_token_type": subject_type}
        if narrowing is not None:
            form["authorization_details"] = json.dumps([{"type": "delegation", **narrowing}])
        return await self.ask(form, proof=proof, prove=prove)

    async def token(self, **members: object) -> str:
        """A bound access token for a new grant, whose members are those of a mint."""
        grant = await self.stage.grant(**members)
        return str(made(await self.exchange(grant["grant"]))["access_token"])

    # --- what is protected --------------------------------------------------------------------------------

    async def call(self, token: str, headers: dict[str, str] | None = None, **body: object) -> httpx.Response:
        """One search, presented as it should be unless the test has other header fields."""
        presented = self.headers("POST", CALLS, token) if headers is None else headers
        return await self.http.post(CALLS, json=proposal(self.stage.support, "search", CASES) | body, headers=presented)

    async def mcp(self, method: str, params: Json, headers: dict[str, str]) -> httpx.Response:
        client = McpClient(self.http, None, server="support")
        body, fields = client.request(method, params)
        return await client.send(body, fields | headers)
