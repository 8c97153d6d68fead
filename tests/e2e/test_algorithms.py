"""The main job under either signing algorithm, and over a change from one to the other."""

import asyncio
from pathlib import Path

import jwt
import pytest

from tests.api_client import Api, made
from tests.attacks.stage import set_stage
from tests.server_process import ServerProcess, sqlite_url
from tests.tool_server import ToolServer

pytestmark = pytest.mark.anyio

AT_ONCE = {"SUBGRANT_KEY_LEAD_SECONDS": "0", "SUBGRANT_KEYS_GOOD_FOR_SECONDS": "0.5"}


async def test_what_was_signed_under_one_algorithm_holds_after_a_change_to_the_other(tmp_path: Path) -> None:
    url, tokens = sqlite_url(tmp_path), []
    with ToolServer() as tools:
        with ServerProcess(url, env={"SUBGRANT_SIGNING_ALGORITHM": "ES256"}) as server:
            port = server.port
            async with Api(server.url) as api:
                stage = await set_stage(api, tools)
                token = await stage.token(await stage.grant())
                assert jwt.get_unverified_header(token)["alg"] == "ES256"
                made(await api.call(token, stage.support, "search", {"customerId": "c_42"}))
                tokens.append(token)
        with ServerProcess(url, port=port, env=AT_ONCE) as server:
            async with Api(server.url) as api:
                keys = made(await api.http.get("/oauth/jwks"))["keys"]
                assert {key["alg"] for key in keys} == {"ES256", "EdDSA"}
                assert not any("d" in key for key in keys)
                made(await api.call(tokens[0], stage.support, "search", {"customerId": "c_42"}))
                # The new key signs once everybody can know it; until then the old one does.
                await asyncio.wait_for(signs_with(api, "EdDSA"), 30)
                made(await api.call(tokens[0], stage.support, "search", {"customerId": "c_42"}))


async def signs_with(api: Api, alg: str) -> None:
    """Until a token is issued by this algorithm."""
    while True:
        if jwt.get_unverified_header(await api.token(api.admin))["alg"] == alg:
            return
        await asyncio.sleep(0.1)
