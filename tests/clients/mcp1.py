# mypy: ignore-errors
"""The MCP SDK's first generation, run as a program in an environment of its own: the JavaScript SDKs' journey.

Reads what it is given as JSON from standard input and tells one line of JSON. Not checked for types: the SDK that it
is checked against would be the second generation's, which is what the rest of the tests import.
"""

import asyncio
import json
import sys
from typing import Any

import httpx
from mcp import ClientSession, McpError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthToken

Json = dict[str, Any]


class Storage:
    """Where a provider keeps its token: here."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> None:
        """Nobody is registered dynamically."""

    async def set_client_info(self, client_info: object) -> None:
        raise AssertionError("nothing is registered dynamically")


def provider_of(given: Json, storage: Storage) -> httpx.Auth | None:
    """How it gets itself a token; None where it was given one."""
    who = {"server_url": given["resource"], "storage": storage, "client_id": given.get("clientId")}
    who |= {"issuer": given.get("issuer"), "scopes": given.get("scope")}
    if "clientSecret" in given:
        return ClientCredentialsOAuthProvider(client_secret=given["clientSecret"], **who)
    if "pem" in given:
        parameters = SignedJWTParameters(
            issuer=given["clientId"],
            subject=given["clientId"],
            signing_key=given["pem"],
            signing_algorithm=given["algorithm"],
        )
        signed = parameters.create_assertion_provider()
        # This SDK hands an issuer without a path over with a slash, and the audience must be the issuer's own spelling.
        return PrivateKeyJWTOAuthProvider(assertion_provider=lambda issuer: signed(issuer.rstrip("/")), **who)
    return None


async def journey(given: Json) -> Json:
    storage = Storage()
    headers = {"Authorization": f"Bearer {given['token']}"} if "token" in given else {}
    auth = provider_of(given, storage)
    async with (
        httpx.AsyncClient(headers=headers, auth=auth, trust_env=False) as http,
        streamable_http_client(given["resource"], http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        greeting = await session.initialize()
        tools = (await session.list_tools()).tools
        answers = [await answer(session, call) for call in given["calls"]]
    return {
        "server": greeting.serverInfo.model_dump(),
        "protocol": greeting.protocolVersion,
        "tools": [tool.model_dump(by_alias=True, exclude_none=True) for tool in tools],
        "answers": answers,
        "scope": storage.tokens and storage.tokens.scope,
    }


async def answer(session: ClientSession, call: Json) -> Json:
    try:
        result = await session.call_tool(call["name"], call["arguments"])
    except McpError as error:
        return {"error": {"code": error.error.code, "message": error.error.message}}
    return result.model_dump(by_alias=True, exclude_none=True)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(journey(json.load(sys.stdin)))))  # noqa: T201 - its answer
