"""A stage with an agent that has a standing grant, and a company's identity provider that the tenant trusts."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import httpx

from tests.api_client import Credentials, Json, made
from tests.attacks.stage import OPEN, Stage
from tests.outsiders import OutsideKey, a_key, claims_of, jwks

IDP: Final = "https://idp.example"
KEY: Final = a_key("ES256", "idp-1")
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
JWT: Final = "urn:ietf:params:oauth:token-type:jwt"
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"


@dataclass(frozen=True)
class House:
    """The stage, seen by one of its agents."""

    stage: Stage
    agent: Credentials

    async def standing(self, **members: object) -> Json:
        """A standing grant for the support server: five calls of search, five cents."""
        return made(await self.try_standing(**members))

    async def try_standing(self, **members: object) -> httpx.Response:
        body: Json = {
            "audience": self.stage.support,
            "allowedTools": ["search"],
            "resourceConstraints": {"search": OPEN},
            "maxToolCalls": 5,
            "maxSpendCents": 5,
        }
        path = f"/clients/{self.agent.client_id}/standing-grants"
        return await self.stage.api.admin_request("POST", path, json=body | members)

    async def ask(self, **form: Any) -> httpx.Response:  # noqa: ANN401
        """At the token endpoint: client credentials for the support server unless told otherwise."""
        given = {"grant_type": "client_credentials", "resource": self.stage.support} | form
        kept = {name: value for name, value in given.items() if value is not None}
        return await self.stage.api.http.post("/oauth/token", data=kept, auth=httpx.BasicAuth(*self.agent))

    async def token(self, **form: Any) -> str:  # noqa: ANN401
        return str(made(await self.ask(**form))["access_token"])

    async def present(self, assertion: str, **form: Any) -> httpx.Response:  # noqa: ANN401
        return await self.ask(**({"grant_type": JWT_BEARER, "assertion": assertion, "resource": None} | form))

    async def call(self, token: str) -> httpx.Response:
        return await self.stage.api.call(token, self.stage.support, "search", {"customerId": "c_42"})

    def id_token(self, key: OutsideKey = KEY, /, typ: object = "JWT", **claims: object) -> str:
        fresh = {"jti": secrets.token_hex(8)} | claims
        mine = claims_of(IDP, self.stage.api.url, "alice", datetime.now(UTC), **fresh)  # type: ignore[arg-type]  # any claim
        return key.sign(mine, typ=typ)

    def assertion(self, key: OutsideKey = KEY, /, typ: object = "oauth-id-jag+jwt", **claims: object) -> str:
        ours = {"client_id": self.agent.client_id, "resource": self.stage.support, "scope": "tools:call"}
        return self.id_token(key, typ=typ, **(ours | claims))


async def a_house(stage: Stage, name: str = "agent", *, trusts: bool = True, **client: object) -> House:
    members: Json = {"kind": "agent", "scopes": ["grants:read"]} | client
    agent = await stage.api.client(stage.tenant, f"{stage.tenant}-{name}", **members)
    if trusts:
        issuer: Json = {"name": "okta", "tenantId": stage.tenant, "issuer": IDP, "jwks": jwks(KEY)}
        uses = {"uses": ["client", "subject", "grant"]}
        made(await stage.api.admin_request("POST", "/issuers", json=issuer | uses))
    return House(stage, agent)
