"""A signing key leaks, or goes: what it signed ends in every worker at once, and nothing else ever does."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.adapters.jose import KeyRing, OpenKey
from app.main import load_keys, open_store, open_vault
from app.settings import load_settings
from tests.api_client import ACCESS_TOKEN, DELEGATION_GRANT, Api, Json, made, proposal, refused
from tests.attacks.stage import OPEN, Stage
from tests.server_process import KEY_ENCRYPTION_KEY, ServerProcess

pytestmark = pytest.mark.anyio

GOOD_FOR = 1.0
ENV = {"SUBGRANT_KEY_LEAD_SECONDS": "0", "SUBGRANT_KEYS_GOOD_FOR_SECONDS": str(GOOD_FOR)}
CASES = {"customerId": "c_42"}
MANY = 24
"""So many new connections reach both workers."""


@pytest.fixture(scope="module")
def server(database_url: str) -> Iterator[ServerProcess]:
    with ServerProcess(database_url, workers=2, env=ENV) as running:
        yield running


@pytest.fixture
async def fresh(server: ServerProcess) -> AsyncIterator[Api]:
    """The API with no token fetched yet, each request over a connection of its own."""
    async with Api(server.url) as api:
        yield unpooled(api)


def unpooled(api: Api) -> Api:
    api.http.headers["Connection"] = "close"
    return api


def kid_of(token: str) -> str:
    return str(jwt.get_unverified_header(token)["kid"])


async def signing_kid(api: Api) -> str:
    keys = made(await api.admin_request("GET", "/keys"))["items"]
    (signing,) = [key["kid"] for key in keys if key["status"] == "signing"]
    return str(signing)


async def rotated(api: Api) -> tuple[str, str]:
    """The kids of the key that signed and of the one that signs in its place by now, in both workers."""
    old = await signing_kid(api)
    new = made(await api.admin_request("POST", "/keys/rotate", json={}))["kid"]
    await asyncio.wait_for(signs_with(api, new), 30)
    return old, new


async def signs_with(api: Api, kid: str) -> None:
    while True:
        if await signing_kid(api) == kid:
            return
        await asyncio.sleep(0.1)


async def retired(api: Api, kid: str) -> Json:
    return made(await api.admin_request("POST", f"/keys/{kid}/retire", json={}))


async def call(api: Api, stage: Stage, token: str) -> httpx.Response:
    return await api.call(token, stage.support, "search", CASES)


async def test_what_a_retired_key_signed_is_refused_by_every_worker_once_it_is_answered(
    server: ServerProcess, stage: Stage, fresh: Api
) -> None:
    grant = await stage.grant()
    token, api_token = await stage.token(grant), await stage.api.token(stage.planner)
    old, new = await rotated(stage.api)
    below = await stage.token(grant)
    assert (kid_of(token), kid_of(api_token), kid_of(grant["grant"]), kid_of(below)) == (old, old, old, new)
    made(await call(fresh, stage, token))
    assert (await retired(stage.api, old))["liveGrants"] >= 3
    answers = await asyncio.gather(*(call(fresh, stage, dead) for dead in [token, grant["grant"], below] * (MANY // 3)))
    assert {refused(answer, 401) for answer in answers} == {"token_invalid"}
    lists = await asyncio.gather(*(fresh.request("GET", "/v1/grants", api_token) for _ in range(MANY // 2)))
    assert {refused(answer, 401) for answer in lists} == {"token_invalid"}
    for subject, kind in ((grant["grant"], DELEGATION_GRANT), (token, ACCESS_TOKEN), (below, ACCESS_TOKEN)):
        response = await fresh.exchange(stage.planner, subject, subject_token_type=kind)
        assert refused(response, 400) == "token_invalid"
        assert (await fresh.introspect(stage.planner, subject)).json() == {"active": False}
    assert old not in {key["kid"] for key in made(await fresh.http.get("/oauth/jwks"))["keys"]}
    await it_is_shown_for_what_it_is(fresh, stage, grant["grantId"])


async def it_is_shown_for_what_it_is(api: Api, stage: Stage, grant_id: str) -> None:
    """Those who see the tenant find what has to be made anew; nobody is told what it would have allowed."""
    path, tenant = f"/v1/grants/{grant_id}", {"tenant": stage.tenant}
    auditor, planner = await api.token(stage.auditor), await api.token(stage.planner)
    shown = made(await api.request("GET", path, auditor))
    assert (shown["grantId"], shown["status"]) == (grant_id, "unverifiable")
    assert not shown.keys() & {"allowedTools", "subject", "holder", "resourceConstraints", "maxToolCalls"}
    lineage = made(await api.request("GET", f"{path}/lineage", auditor))
    assert {each["status"] for each in lineage["subtree"]} == {"unverifiable"}
    page = made(await api.request("GET", "/v1/grants", auditor, params={"rootGrantId": grant_id}))
    assert {each["status"] for each in page["items"]} == {"unverifiable"}
    for method, part in (("GET", ""), ("GET", "/lineage"), ("GET", "/tools"), ("POST", "/derive")):
        body: Json | None = {} if method == "POST" else None
        answer = await api.request(method, f"{path}{part}", planner, json=body)
        assert refused(answer, 409) == "grant_unverifiable"
    closed = made(await api.request("POST", f"{path}/close", await api.token_of(api.admin), json={}, params=tenant))
    assert grant_id in closed["closedGrants"]


async def test_what_other_keys_signed_lives_on(server: ServerProcess, stage: Stage, fresh: Api) -> None:
    await rotated(stage.api)
    again = Stage(fresh, stage.tools, stage.tenant, stage.planner, stage.auditor, stage.support, stage.billing)
    grant = await again.grant(maxToolCalls=100)
    kept = await again.token(grant)
    _, newer = await rotated(stage.api)
    await retired(fresh, newer)
    answers = await asyncio.gather(*(call(fresh, stage, kept) for _ in range(MANY)))
    assert all(answer.is_success for answer in answers)
    assert await again.is_whole()


class Workers(NamedTuple):
    """A connection to each of two workers, and the process that is at the other end of it."""

    here: Api
    there: Api
    there_pid: int


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process neither runs nor answers meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_worker_that_slept_through_a_retirement_accepts_nothing_by_that_key(
    server: ServerProcess, stage: Stage
) -> None:
    """The request waits in a stopped worker, which wakes with the key in memory after the key was retired."""
    first, second = server.worker_pids()
    async with Api(server.url) as here, Api(server.url) as there:
        with stopped(second):
            await here.token_of(here.admin)
        with stopped(first):
            await there.token_of(there.admin)
        token = await stage.token(await stage.open_grant("search", maxToolCalls=10))
        old, _ = await rotated(here)
        assert kid_of(token) == old
        made(await call(there, stage, token))
        before = len(stage.tools.of("search"))
        with stopped(second):
            waiting = asyncio.create_task(call(there, stage, token))
            started = time.monotonic()
            await retired(here, old)
            assert time.monotonic() - started >= GOOD_FOR
            assert not waiting.done()
        answer = await waiting
        assert answer.status_code in {401, 503}, answer.text
        async with asyncio.timeout(10):
            while answer.status_code == 503:
                answer = await call(there, stage, token)
        assert refused(answer, 401) == "token_invalid"
        assert len(stage.tools.of("search")) == before


async def stolen_keys(server: ServerProcess) -> KeyRing:
    """What somebody has who once read the database and the key-encryption key."""
    given = {"key_encryption_key": KEY_ENCRYPTION_KEY} if "postgres" in server.database_url else {}
    settings = load_settings(database_url=server.database_url, **given)
    store = open_store(settings)
    try:
        async with store.read() as tx:
            return load_keys(await tx.keys.all(), open_vault(settings))
    finally:
        await store.aclose()


def signed_by(key: OpenKey, token: str, **header: str) -> str:
    """The token's claims, signed anew by a key under its own kid or another's."""
    claims = jwt.decode(token, options={"verify_signature": False})
    fields = {"kid": key.kid, "typ": "at+jwt"} | header
    return jwt.encode(claims, key.private, algorithm="EdDSA", headers=fields, sort_headers=True)


async def test_a_leaked_key_is_worth_nothing_under_any_kid_once_it_is_retired(
    server: ServerProcess, stage: Stage, fresh: Api
) -> None:
    old, new = await rotated(stage.api)
    leaked = (await stolen_keys(server)).keys[old]
    stranger = OpenKey.of("EdDSA", Ed25519PrivateKey.generate(), leaked.created_at)
    await retired(stage.api, old)
    again = Stage(fresh, stage.tools, stage.tenant, stage.planner, stage.auditor, stage.support, stage.billing)
    token = await again.token(await again.grant())
    forgeries = [
        signed_by(leaked, token),
        signed_by(leaked, token, kid=new),
        signed_by(stranger, token, kid=old),
        signed_by(stranger, token, kid=new),
    ]
    answers = await asyncio.gather(*(call(fresh, stage, forgery) for forgery in forgeries * 4))
    assert {refused(answer, 401) for answer in answers} == {"token_invalid"}
    made(await call(fresh, stage, token))


async def test_tokens_that_are_issued_while_their_key_is_retired_are_dead_and_all_others_live(
    server: ServerProcess, stage: Stage, fresh: Api
) -> None:
    """The newest key goes while it signs: whatever it still signed meanwhile counts for nothing afterwards."""
    grant = await stage.open_grant("search", maxToolCalls=1000)
    old, new = await rotated(stage.api)
    issued: list[str] = []
    begun, done = asyncio.Event(), asyncio.Event()

    async def keep_exchanging() -> None:
        while not done.is_set():
            response = await fresh.exchange(stage.planner, grant["grant"])
            assert response.is_success, response.text
            issued.append(str(response.json()["access_token"]))
            begun.set()

    exchanging = [asyncio.create_task(keep_exchanging()) for _ in range(2)]
    await begun.wait()
    await retired(stage.api, new)
    done.set()
    await asyncio.gather(*exchanging)
    assert {kid_of(token) for token in issued} == {old, new}
    answers = [(kid_of(token), await call(fresh, stage, token)) for token in issued]
    assert {refused(answer, 401) for kid, answer in answers if kid == new} == {"token_invalid"}
    # Of an exchange in whose midst the key went, the node was signed by it and the token by the other.
    torn = [answer for kid, answer in answers if kid == old and not answer.is_success]
    assert len(torn) <= len(exchanging)
    assert {refused(answer, 401) for answer in torn} <= {"token_invalid"}


async def test_a_rotation_under_load_fails_no_exchange_and_no_call(
    server: ServerProcess, stage: Stage, fresh: Api
) -> None:
    """Each token is used at once, over a new connection: by a worker that may know the new key only from the store."""
    grant = await stage.grant(
        allowedTools=["search"], resourceConstraints={"search": OPEN}, maxToolCalls=100_000, maxSpendCents=100_000
    )
    used: set[str] = set()
    done = asyncio.Event()

    async def keep_calling() -> None:
        while not done.is_set():
            token = await fresh.access_token(stage.planner, grant["grant"])
            used.add(kid_of(token))
            body = proposal(stage.support, "search", CASES)
            made(await fresh.request("POST", "/v1/gateway/calls", token, json=body))

    calling = [asyncio.create_task(keep_calling()) for _ in range(3)]
    for _ in range(2):
        await rotated(stage.api)
    await asyncio.sleep(0.3)
    done.set()
    await asyncio.gather(*calling)
    assert len(used) == 3
