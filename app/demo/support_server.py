"""The support desk's tool server: a real MCP server, made with the official SDK.

    python -m app.demo.support_server --port 0 --audience URI --issuer URL --jwks-url URL

Searches a file of cases and sends messages that go nowhere. It trusts Subgrant's gateway and nobody else: a
call needs a JWT that Subgrant signed for this very server, so an agent's own token is worth nothing here. What
an agent may search is not its business; it answers for any tenant and customer that it is asked about.
"""

import argparse
import json
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Annotated, Final, NoReturn

import aiohttp
import jwt
import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.demo.stage import CASES_FILE

ALGORITHMS: Final = ("EdDSA", "ES256")
FETCH_SECONDS: Final = 5


class _Document(BaseModel):
    """What the tools return is spelt as JSON usually is."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Customer(_Document):
    name: str
    email: str
    phone: str


class Note(_Document):
    on: str
    author: str
    text: str


class Case(_Document):
    case_id: str
    tenant: str
    customer_id: str
    customer: Customer
    payment: dict[str, str]
    issue_code: str
    subject: str
    opened_on: str
    updated_on: str
    status: str
    priority: str
    notes: list[Note]

    def mentions(self, query: str) -> bool:
        texts = [self.case_id, self.issue_code, self.subject, self.status, *(note.text for note in self.notes)]
        return any(query.casefold() in text.casefold() for text in texts)


class FoundCases(_Document):
    cases: list[Case]


class SentMessage(_Document):
    message_id: str
    to: str


class GatewayVerifier:
    """Tells the gateway's credential from every other token (`mcp.server.auth.provider.TokenVerifier`)."""

    def __init__(self, *, audience: str, issuer: str, jwks_url: str) -> None:
        self._audience = audience
        self._issuer = issuer
        self._jwks_url = jwks_url
        self._keys: dict[str, jwt.PyJWK] = {}

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            claims = await self._claims(token)
        except (jwt.PyJWTError, aiohttp.ClientError, TimeoutError):
            return None
        client_id = str(claims.get("client_id", claims["iss"]))
        return AccessToken(token=token, client_id=client_id, scopes=[], subject=claims.get("sub"), claims=claims)

    async def _claims(self, token: str) -> dict[str, str]:
        key = await self._key(jwt.get_unverified_header(token).get("kid"))
        claims: dict[str, str] = jwt.decode(
            token,
            key=key,
            algorithms=[name for name in ALGORITHMS if name == key.algorithm_name],
            audience=self._audience,
            issuer=self._issuer,
            options={"require": ["exp", "iat", "iss", "aud"]},
        )
        return claims

    async def _key(self, kid: str | None) -> jwt.PyJWK:
        if kid not in self._keys:
            self._keys = await self._fetch()
        try:
            return self._keys[kid or ""]
        except KeyError as error:
            raise jwt.InvalidKeyError("no such key") from error

    async def _fetch(self) -> dict[str, jwt.PyJWK]:
        timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session,
            session.get(self._jwks_url, allow_redirects=False) as response,
        ):
            keys = jwt.PyJWKSet.from_dict(await response.json()).keys
        return {key.key_id: key for key in keys if key.key_id is not None}


def load_cases() -> list[Case]:
    return [Case.model_validate(case) for case in json.loads(CASES_FILE.read_text("utf-8"))["cases"]]


def make_server(verifier: GatewayVerifier | None, issuer: str | None) -> MCPServer:
    """The server with its tools; without a verifier it accepts anybody, for tests."""
    auth = None
    if verifier is not None:
        auth = AuthSettings(
            issuer_url=AnyHttpUrl(issuer or ""), resource_server_url=None, validate_token_resource=False
        )
    server = MCPServer("acme-support", version="1.0.0", token_verifier=verifier, auth=auth, log_level="WARNING")
    cases, outbox = load_cases(), list[tuple[str, str]]()

    @server.tool(description="Search the support cases of one customer, newest first.")
    def case_search(
        tenant: str,
        customerId: str,  # noqa: N803 - the argument's name on the wire
        query: Annotated[str, Field(description="Words that the case must mention.")] = "",
        limit: Annotated[int, Field(ge=1, le=50)] = 20,
    ) -> FoundCases:
        theirs = (case for case in cases if (case.tenant, case.customer_id) == (tenant, customerId))
        found = sorted((case for case in theirs if case.mentions(query)), key=lambda case: case.opened_on)
        return FoundCases(cases=found[::-1][:limit])

    @server.tool(description="Send a message to a customer.")
    def send_message(
        to: Annotated[str, Field(description="The customer's id.")], text: Annotated[str, Field(max_length=4000)]
    ) -> SentMessage:
        outbox.append((to, text))
        return SentMessage(message_id=f"msg_{len(outbox)}", to=to)

    return server


class _Announcing(uvicorn.Server):
    """Says on standard output when it can be called, and where."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        assert sockets, "it is given its socket"
        print("ready", sockets[0].getsockname()[1], flush=True)  # noqa: T201 - its one line


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    verifier = None
    if options.jwks_url is not None:
        verifier = GatewayVerifier(audience=options.audience, issuer=options.issuer, jwks_url=options.jwks_url)
    app = make_server(verifier, options.issuer).streamable_http_app(host=options.host)
    listener = socket.create_server((options.host, options.port))
    signal.signal(signal.SIGTERM, _leave)
    config = uvicorn.Config(app, log_level=logging.WARNING, ws="none", timeout_graceful_shutdown=1)
    _Announcing(config).run(sockets=[listener])


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m app.demo.support_server", description="A demo MCP server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--audience", help="what the gateway's credential must be for")
    parser.add_argument("--issuer", help="who must have signed it")
    parser.add_argument("--jwks-url", help="where the keys are; without it, anybody may call")
    options = parser.parse_args(arguments)
    if options.jwks_url is not None and None in {options.audience, options.issuer}:
        parser.error("--jwks-url needs --audience and --issuer")
    return options


def _leave(_number: int, _frame: object) -> NoReturn:
    # uvicorn shuts down on the signal and then raises it again: the process ends well, not killed.
    sys.exit(0)


if __name__ == "__main__":
    main()
