"""Every forgery at every door of a real server, beside what an independent library says of the same token.

The forger has the server's own keys, so that what is refused is refused for what it is and not for its signature;
and the same forger's unchanged tokens pass every door, so that a refusal means something.
"""

import asyncio
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from joserfc import jwt
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import KeySet

from app.adapters.jose import KeyRing
from app.api.wire import MAX_BODY_BYTES
from tests.api_client import ACCESS_TOKEN, DELEGATION_GRANT, Api, Json, made
from tests.attacks.forger import EcChange, Forger, Lure, prepared_keys
from tests.attacks.forgeries import ALIKE, FORGERIES
from tests.attacks.stage import Stage, set_stage
from tests.mcp_client import McpClient
from tests.server_process import ServerProcess, sqlite_url
from tests.tool_server import ToolServer

pytestmark = pytest.mark.anyio

CASES: Final[Json] = {"customerId": "c_42"}
ALGORITHMS: Final = ("EdDSA", "ES256")
LONGEST_IN_A_HEADER: Final = 16_384


# --- the oracle -------------------------------------------------------------------------------------------


def oracle_accepts(token: str, keys: KeySet, *, issuer: str, audience: str) -> bool:
    """What a careful resource server would say that is made of joserfc and RFC 9068 §4, and knows no more of us."""
    must = {"essential": True}
    claims: dict[str, Any] = dict.fromkeys(("exp", "iat", "jti", "sub", "client_id"), must)
    claims |= {"iss": must | {"value": issuer}, "aud": must | {"value": audience}}
    try:
        decoded = _decoded(token, keys)
        jwt.JWTClaimsRegistry(**claims).validate(decoded.claims)
    except (JoseError, ValueError, TypeError, RecursionError):  # that it stumbles is no acceptance
        return False
    typ = decoded.header.get("typ")
    return isinstance(typ, str) and typ.lower().removeprefix("application/") == "at+jwt"


def _decoded(token: str, keys: KeySet) -> jwt.Token:
    with warnings.catch_warnings():
        # It prefers RFC 9864's newer name of the same algorithm, which few others know yet.
        warnings.simplefilter("ignore", SecurityWarning)
        return jwt.decode(token, keys, algorithms=ALGORITHMS)


async def published_keys(api: Api) -> KeySet:
    return KeySet.import_key_set(made(await api.http.get("/oauth/jwks")))  # type: ignore[arg-type]  # as it came


# --- the stage --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A server whose keys the forger has, three genuine credentials of one client, and the oracle's keys."""

    stage: Stage
    lure: Lure
    oracle: KeySet
    api: Forger
    tool: Forger
    grant: Forger

    @property
    def issuer(self) -> str:
        return self.stage.api.url


@pytest.fixture(scope="module")
def keys_and_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KeyRing, ServerProcess]]:
    """Which store it is makes no difference to a token that reaches none."""
    url = sqlite_url(Path(tmp_path_factory.mktemp("oracle")))
    keys = asyncio.run(prepared_keys(url))
    with ServerProcess(url) as running:
        yield keys, running


@pytest.fixture(scope="module")
async def scene(keys_and_server: tuple[KeyRing, ServerProcess], tool_server: ToolServer) -> AsyncIterator[Scene]:
    keys, server = keys_and_server
    async with Api(server.url) as api, Lure() as lure:
        stage = await set_stage(api, tool_server)
        grant = await stage.grant(maxToolCalls=10_000)
        tool = Forger(genuine=await stage.token(grant), keys=keys, lure=lure.url)
        yield Scene(
            stage=stage,
            lure=lure,
            oracle=await published_keys(api),
            api=replace(tool, genuine=await api.token(stage.planner)),
            tool=tool,
            grant=replace(tool, genuine=grant["grant"]),
        )


# --- the doors --------------------------------------------------------------------------------------------

Door = Callable[[Scene, str], Awaitable[httpx.Response]]


async def at_the_api(scene: Scene, token: str) -> httpx.Response:
    return await scene.stage.api.request("GET", "/v1/grants?limit=1", token)


async def at_the_gateway(scene: Scene, token: str) -> httpx.Response:
    return await scene.stage.api.call(token, scene.stage.support, "search", CASES)


async def at_the_mcp_endpoint(scene: Scene, token: str) -> httpx.Response:
    return await McpClient(scene.stage.api.http, token).ask("tools/list")


async def as_subject(scene: Scene, token: str) -> httpx.Response:
    return await scene.stage.api.exchange(scene.stage.planner, token, subject_token_type=ACCESS_TOKEN)


async def as_subject_grant(scene: Scene, token: str) -> httpx.Response:
    return await scene.stage.api.exchange(scene.stage.planner, token, subject_token_type=DELEGATION_GRANT)


async def as_actor(scene: Scene, token: str) -> httpx.Response:
    return await scene.stage.api.exchange(
        scene.stage.planner, scene.grant.genuine, actor_token=token, actor_token_type=ACCESS_TOKEN
    )


async def introspected(scene: Scene, token: str) -> httpx.Response:
    return await scene.stage.api.introspect(scene.stage.planner, token)


DOORS: Final[dict[str, tuple[Door, ...]]] = {
    "api": (at_the_api, as_actor, introspected),
    "tool": (at_the_gateway, at_the_mcp_endpoint, as_subject, introspected),
    "grant": (at_the_gateway, as_subject_grant, introspected),
}
"""Where each genuine credential is worth something."""

IN_A_HEADER: Final = {at_the_api, at_the_gateway, at_the_mcp_endpoint}


def fits_in_a_header(token: str) -> bool:
    """Whether a client can send it: what a field's value can't hold, no HTTP library sends (RFC 9110 §5.5)."""
    return len(token) <= LONGEST_IN_A_HEADER and token.isascii() and token.isprintable() and token == token.strip()


def doors(kind: str, token: str, spared: frozenset[tuple[str, str]]) -> list[Door]:
    reachable = [door for door in DOORS[kind] if door not in IN_A_HEADER or fits_in_a_header(token)]
    return [door for door in reachable if (kind, door.__name__) not in spared]


def is_refused(door: Door, token: str, response: httpx.Response) -> bool:
    """Whether it is refused in the words of this door, and in no others."""
    if door not in IN_A_HEADER and len(token) > MAX_BODY_BYTES:
        return response.status_code == 413 and response.json()["error"] == "invalid_request"
    if door is introspected:
        return response.status_code == 200 and response.json() == {"active": False}
    if door in IN_A_HEADER:
        return response.status_code == 401 and 'error="invalid_token"' in response.headers["www-authenticate"]
    return response.status_code == 400 and response.json()["error"] == "invalid_request"


# --- controls ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ALIKE)
@pytest.mark.parametrize("kind", DOORS)
async def test_what_the_server_itself_signed_passes_every_door_and_the_oracle(
    scene: Scene, kind: str, how: str
) -> None:
    forger: Forger = getattr(scene, kind)
    token = ALIKE[how](forger)
    for door in DOORS[kind]:
        response = await door(scene, token)
        assert response.is_success, (door, response.text)
        assert not is_refused(door, token, response), door
    audience = forger.claims["aud"]
    assert oracle_accepts(token, scene.oracle, issuer=scene.issuer, audience=audience) == (kind != "grant")
    assert not scene.lure.visits


# --- forgeries --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", FORGERIES)
async def test_a_forgery_passes_no_door(scene: Scene, what: str) -> None:
    forgery = FORGERIES[what]
    for kind in DOORS:
        token = forgery.make(getattr(scene, kind))
        tried = doors(kind, token, forgery.spared_at)
        for door, response in zip(tried, await asyncio.gather(*(door(scene, token) for door in tried)), strict=True):
            assert is_refused(door, token, response), (kind, door.__name__, response.status_code, response.text[:300])
    assert not scene.lure.visits


@pytest.mark.parametrize("what", FORGERIES)
async def test_where_an_independent_library_says_otherwise_there_is_a_reason(scene: Scene, what: str) -> None:
    token = FORGERIES[what].make(scene.api)
    accepted = oracle_accepts(token, scene.oracle, issuer=scene.issuer, audience=scene.issuer)
    assert accepted == bool(FORGERIES[what].oracle_accepts)


def test_there_are_many_forgeries_and_each_is_another_token() -> None:
    assert len(FORGERIES) >= 200
    assert all(forgery.oracle_accepts.count(" ") >= 3 for forgery in FORGERIES.values() if forgery.oracle_accepts)


async def test_each_forgery_is_none_of_the_others(scene: Scene) -> None:
    made_of = {FORGERIES[what].make(scene.api) for what in FORGERIES}
    assert len(made_of) == len(FORGERIES)


# --- what is issued ---------------------------------------------------------------------------------------


async def test_a_mirrored_signature_is_no_second_life_for_a_revoked_token(scene: Scene) -> None:
    """ECDSA lets anybody write a second valid signature; what is revoked is the token and not its spelling."""
    token = await scene.stage.token(await scene.stage.grant())
    forger = replace(scene.tool, genuine=token)
    twin = forger.ec(EcChange(is_mirrored=True))
    assert (await at_the_gateway(scene, twin)).is_success
    made(await scene.stage.api.revoke(scene.stage.planner, token))
    assert (await at_the_gateway(scene, twin)).status_code == 401
    assert (await introspected(scene, twin)).json() == {"active": False}


async def test_an_independent_library_verifies_what_is_issued_under_eddsa(scene: Scene) -> None:
    await assert_issued_well(scene.stage, "EdDSA")


async def test_an_independent_library_verifies_what_is_issued_under_es256(
    tmp_path: Path, tool_server: ToolServer
) -> None:
    with ServerProcess(sqlite_url(tmp_path), env={"SUBGRANT_SIGNING_ALGORITHM": "ES256"}) as server:
        async with Api(server.url) as api:
            await assert_issued_well(await set_stage(api, tool_server), "ES256")


async def assert_issued_well(stage: Stage, algorithm: str) -> None:
    """The claims of RFC 9068 §2.2 in a token for the API and in one for a tool server, under the published keys."""
    keys = await published_keys(stage.api)
    for_the_tool = await stage.token(await stage.grant())
    for token, audience in ((await stage.api.token(stage.planner), stage.api.url), (for_the_tool, stage.support)):
        assert oracle_accepts(token, keys, issuer=stage.api.url, audience=audience)
        assert not oracle_accepts(token, keys, issuer=stage.api.url, audience=f"{audience}/")
        decoded = _decoded(token, keys)
        assert decoded.header == {"alg": algorithm, "typ": "at+jwt", "kid": decoded.header["kid"]}
        assert {"iss", "exp", "aud", "sub", "client_id", "iat", "jti", "scope"} <= decoded.claims.keys()
        assert decoded.claims["exp"] > decoded.claims["iat"]
    act = _decoded(for_the_tool, keys).claims["act"]
    assert act["sub"] == stage.planner.client_id
