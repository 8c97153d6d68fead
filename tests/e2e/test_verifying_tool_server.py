"""A tool server that verifies the gateway's credential by the published keys never fails over a rotation under load."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Final

import jwt
import pytest
from aiohttp import web

from tests.api_client import Api, Json, made
from tests.attacks.stage import OPEN, Stage, set_stage
from tests.server_process import ServerProcess, sqlite_url
from tests.tool_server import ToolServer

pytestmark = pytest.mark.anyio

LEAD_SECONDS: Final = 3
CACHE_SECONDS: Final = 2.0
"""How long verifiers go without asking again. PyJWT's own goes 30 seconds, and the usual lead is 60."""
ENV: Final = {"SUBGRANT_KEY_LEAD_SECONDS": str(LEAD_SECONDS), "SUBGRANT_KEYS_GOOD_FOR_SECONDS": "1"}
CASES: Final = {"customerId": "c_42"}


class PatientKeys(jwt.PyJWKClient):
    """Trusts what it fetched for as long as it may, and asks no sooner for a key that it does not know."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri, cache_jwk_set=False)
        self._known: dict[str, jwt.PyJWK] = {}
        self._fetched_at = float("-inf")
        self._lock = threading.Lock()

    def get_signing_key(self, kid: str) -> jwt.PyJWK:
        with self._lock:
            if time.monotonic() - self._fetched_at >= CACHE_SECONDS:
                self._known = {str(key.key_id): key for key in self.get_signing_keys()}
                self._fetched_at = time.monotonic()
            if kid not in self._known:
                raise jwt.PyJWKClientError("the key is not known, and it is too early to ask again")
            return self._known[kid]


class VerifyingToolServer(ToolServer):
    """Does what it is asked only with a JWT of the gateway's for this very endpoint, in the eyes of each verifier."""

    def __init__(self) -> None:
        super().__init__()
        self.issuer = ""
        self.verifiers: list[jwt.PyJWKClient] = []
        self.kids: list[str] = []
        self.failures: list[str] = []

    def trust(self, issuer: str) -> None:
        uri = f"{issuer}/oauth/jwks"
        self.issuer, self.verifiers = issuer, [jwt.PyJWKClient(uri, cooldown_duration=CACHE_SECONDS), PatientKeys(uri)]

    async def saw(self, kid: str) -> None:
        """Until a call was made with a credential by this key."""
        while True:
            await asyncio.sleep(0.05)
            if kid in self.kids:
                return

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        audience = f"{self.endpoint}/upstream"
        try:
            for verifier in self.verifiers:
                await asyncio.to_thread(self._verify, verifier, token, audience)
        except jwt.PyJWTError as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            return web.json_response({"error": "who are you"}, status=401)
        self.kids.append(str(jwt.get_unverified_header(token)["kid"]))
        return await super()._handle(request)

    def _verify(self, verifier: jwt.PyJWKClient, token: str, audience: str) -> None:
        key = verifier.get_signing_key_from_jwt(token)
        jwt.decode(token, key, algorithms=["EdDSA"], audience=audience, issuer=self.issuer)


async def verified_stage(api: Api, tools: VerifyingToolServer) -> Stage:
    stage = await set_stage(api, tools)
    path = f"/tool-servers/support?tenant={stage.tenant}"
    credential = {"credential": {"type": "jwt"}, "upstreamAudience": f"{tools.endpoint}/upstream"}
    made(await api.admin_request("PATCH", path, json=credential))
    return stage


async def a_grant(stage: Stage) -> Json:
    rules = {"search": OPEN}
    return await stage.grant(resourceConstraints=rules, maxToolCalls=100_000, maxSpendCents=100_000)


async def test_no_call_fails_over_a_rotation_or_a_planned_retirement(tmp_path: Path) -> None:
    with VerifyingToolServer() as tools, ServerProcess(sqlite_url(tmp_path), workers=2, env=ENV) as server:
        tools.trust(server.issuer)
        async with Api(server.url) as api:
            stage = await verified_stage(api, tools)
            done = asyncio.Event()

            async def keep_calling(token: str) -> None:
                while not done.is_set():
                    answer = made(await api.call(token, stage.support, "search", CASES))
                    assert answer["outcome"] == "success", tools.failures

            token = await stage.token(await a_grant(stage))
            calling = [asyncio.create_task(keep_calling(token)) for _ in range(2)]
            await asyncio.to_thread(tools.wait_for, 1, "search")
            (old,) = set(tools.kids)
            new = made(await api.admin_request("POST", "/keys/rotate", json={}))["kid"]
            await asyncio.wait([*calling, asyncio.create_task(tools.saw(new))], return_when=asyncio.FIRST_COMPLETED)
            done.set()
            await asyncio.gather(*calling)

            # What rests on the old key ends with it; what was minted since does not notice.
            done.clear()
            newer = Stage(api, tools, stage.tenant, stage.planner, stage.auditor, stage.support, stage.billing)
            token = await newer.token(await a_grant(newer))
            calling = [asyncio.create_task(keep_calling(token)) for _ in range(2)]
            async with Api(server.url) as again:
                made(await again.admin_request("POST", f"/keys/{old}/retire", json={}))
            done.set()
            await asyncio.gather(*calling)
            assert tools.failures == []
            assert set(tools.kids) == {old, new}
            assert tools.kids[-1] == new
