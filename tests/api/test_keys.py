"""Signing keys over HTTP: who may, what is asked and answered, and that a private half never shows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest

from app.main import LiveKeys, create_app, now, open_store, open_vault, prepare
from app.ports import Store, Transaction
from app.settings import Settings
from tests.api_client import refused

Json = dict[str, Any]

ISSUER = "http://subgrant.example"
ROOT = ("root", "the-operator's-own-secret")
GOOD_FOR = 0.5


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(
        issuer=ISSUER,
        database_url=f"sqlite:///{tmp_path_factory.mktemp('keys')}/subgrant.db",
        bootstrap_client_id=ROOT[0],
        bootstrap_client_secret=ROOT[1],  # type: ignore[arg-type]  # pydantic hides it
        keys_good_for_seconds=GOOD_FOR,
    )


@pytest.fixture(scope="module")
async def http(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    await prepare(settings)
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=ISSUER) as client:
            yield client


@pytest.fixture
async def root(http: httpx.AsyncClient) -> httpx.AsyncClient:
    """The same client, as the platform's administrator."""
    form = {"grant_type": "client_credentials"}
    token = (await http.post("/oauth/token", data=form, auth=httpx.BasicAuth(*ROOT))).json()["access_token"]
    http.headers["Authorization"] = f"Bearer {token}"
    return http


async def rotated(root: httpx.AsyncClient, body: Json | None = None) -> Json:
    response = await root.post("/v1/admin/keys/rotate", json=body)
    assert response.status_code == 201, response.text
    document: Json = response.json()
    return document


async def keys(root: httpx.AsyncClient) -> dict[str, Json]:
    response = await root.get("/v1/admin/keys")
    assert response.status_code == 200, response.text
    return {key["kid"]: key for key in response.json()["items"]}


async def published(http: httpx.AsyncClient) -> list[Json]:
    found: list[Json] = (await http.get("/oauth/jwks")).json()["keys"]
    return found


async def is_published(http: httpx.AsyncClient, kid: str) -> None:
    while True:
        if kid in {key["kid"] for key in await published(http)}:
            return
        await asyncio.sleep(0.02)


async def test_keys_are_for_the_platforms_administrator_alone(root: httpx.AsyncClient) -> None:
    assert (await root.post("/v1/admin/tenants", json={"tenantId": "acme", "name": "Acme"})).is_success
    body = {"clientId": "acme-admin", "tenantId": "acme", "kind": "admin", "scopes": ["admin", "audit:read"]}
    secret = (await root.post("/v1/admin/clients", json=body)).json()["clientSecret"]
    form = {"grant_type": "client_credentials"}
    token = (await root.post("/oauth/token", data=form, auth=("acme-admin", secret))).json()["access_token"]
    (kid,) = await keys(root)
    for method, path in (("GET", ""), ("POST", "/rotate"), ("POST", f"/{kid}/retire"), ("POST", "/none/retire")):
        url = f"/v1/admin/keys{path}"
        headers = {"Authorization": f"Bearer {token}"}
        assert refused(await root.request(method, url, headers=headers), 403) == "insufficient_scope"
        assert (await root.request(method, url, headers={"Authorization": ""})).status_code == 401
    assert (await keys(root))[kid]["status"] == "signing"


async def test_a_new_key_is_published_before_it_signs_and_shows_no_private_half(root: httpx.AsyncClient) -> None:
    before = await keys(root)
    made = await rotated(root)
    assert made.keys() == {"kid", "alg", "createdAt", "signsFrom", "status"}
    assert (made["status"], made["alg"]) == ("published", "EdDSA")
    await asyncio.wait_for(is_published(root, made["kid"]), 10)
    assert (await keys(root)).keys() == before.keys() | {made["kid"]}
    assert all(key.keys() == {"kty", "crv", "x", "kid", "alg", "use"} for key in await published(root))


async def test_a_retired_key_is_no_longer_published_once_the_answer_is_given(root: httpx.AsyncClient) -> None:
    made = await rotated(root)
    path = f"/v1/admin/keys/{made['kid']}/retire"
    would_end = (await root.post(path, json={"dryRun": True})).json()
    assert would_end == {"key": made, "liveGrants": 0}
    retired = (await root.post(path)).json()
    assert retired["key"].pop("retiredAt") is not None
    assert retired == {"key": made | {"status": "retired"}, "liveGrants": 0}
    assert made["kid"] not in {key["kid"] for key in await published(root)}
    assert (await keys(root))[made["kid"]]["status"] == "retired"
    again = await root.post(path, json={})
    assert again.json()["key"]["status"] == "retired"


async def test_the_only_key_that_signs_can_not_be_retired(root: httpx.AsyncClient) -> None:
    (signing,) = [kid for kid, key in (await keys(root)).items() if key["status"] == "signing"]
    assert refused(await root.post(f"/v1/admin/keys/{signing}/retire", json={}), 409) == "conflict"
    assert (await keys(root))[signing]["status"] == "signing"


@pytest.mark.parametrize(
    "path, body, pointer",
    [
        ("/rotate", {"leadSeconds": -1}, "/leadSeconds"),
        ("/rotate", {"leadSeconds": 2_592_001}, "/leadSeconds"),
        ("/rotate", {"leadSeconds": "0"}, "/leadSeconds"),
        ("/rotate", {"leadSeconds": True}, "/leadSeconds"),
        ("/rotate", {"alg": "ES256"}, "/alg"),
        ("/x/retire", {"dryRun": "yes"}, "/dryRun"),
        ("/x/retire", {"force": True}, "/force"),
        ("/x.y/retire", {}, "/kid"),
        (f"/{'x' * 65}/retire", {}, "/kid"),
    ],
)
async def test_what_is_malformed_changes_nothing(root: httpx.AsyncClient, path: str, body: Json, pointer: str) -> None:
    before = await keys(root)
    response = await root.post(f"/v1/admin/keys{path}", json=body)
    assert refused(response, 422) == "malformed"
    assert response.json()["pointer"] == pointer
    assert await keys(root) == before


async def test_an_unknown_key_is_not_found(root: httpx.AsyncClient) -> None:
    for body in ({}, {"dryRun": True}):
        assert refused(await root.post("/v1/admin/keys/none/retire", json=body), 404) == "not_found"


async def test_keys_come_in_pages(root: httpx.AsyncClient) -> None:
    await rotated(root)
    first = (await root.get("/v1/admin/keys", params={"limit": 1})).json()
    rest = (await root.get("/v1/admin/keys", params={"after": first["next"]})).json()
    assert [key["kid"] for key in (*first["items"], *rest["items"])] == list(await keys(root))


async def test_a_reading_is_believed_from_when_it_was_asked_for(root: httpx.AsyncClient, settings: Settings) -> None:
    """However long the store takes to answer, what was retired meanwhile is not believed any longer for that."""
    store, vault, good_for = open_store(settings), open_vault(settings), settings.rules.keys_good_for
    try:
        live = LiveKeys(SlowStore(store), vault, good_for)
        asked_at = now()
        first = await live.read()
        assert first.good_until is not None
        assert first.good_until - asked_at < good_for + timedelta(seconds=SLOW_SECONDS / 2)
        again = await live.read()
        assert again.keys is first.keys
        assert again.good_until is not None
        assert again.good_until > first.good_until
    finally:
        await store.aclose()


SLOW_SECONDS = 0.4


class SlowStore:
    """A store whose answers take a while."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Transaction]:
        async with self._store.read() as tx:
            yield tx
            await asyncio.sleep(SLOW_SECONDS)

    def write(self) -> AbstractAsyncContextManager[Transaction]:
        return self._store.write()

    async def ready(self) -> str | None:
        return await self._store.ready()

    async def aclose(self) -> None:
        await self._store.aclose()
