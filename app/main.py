"""The composition root: settings in, a running application out. Imports everything; nobody imports it.

The only place that reads a clock, opens the store and starts background work.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from fastapi import FastAPI

from app.adapters.cedar_policy import CedarPolicyEngine
from app.adapters.ids import new_id
from app.adapters.jose import JoseSigner, KeyRing, make_key
from app.adapters.json_schema import RustSchemaValidator
from app.adapters.sql import SqlStore, migrate
from app.adapters.upstream import ToolUpstream
from app.adapters.vault import AesVault, key_file, parse_key
from app.api import admin, audit, errors, gateway, grants, health, mcp, token, well_known
from app.api.description import describe
from app.core.grant import ClientId
from app.ports import SigningKey, Store, StoreUnavailable
from app.settings import Settings, SettingsInvalid, load_settings
from app.usecases.bootstrap import bootstrap
from app.usecases.failures import Conflict
from app.usecases.reconcile_calls import reconcile_calls
from app.usecases.register_client import new_secret
from app.usecases.stop_closed_calls import stop_closed_calls
from app.usecases.world import World

log = logging.getLogger("subgrant")

VERSION = "0.1.0"
DRAIN_SECONDS = 30
WATCH_SUPERVISOR_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstAdmin:
    """The platform administrator that the very first start makes up: shown once, stored only as a hash."""

    client_id: str
    secret: str = field(repr=False)


def now() -> datetime:
    """The clock."""
    return datetime.now(UTC)


def open_vault(settings: Settings) -> AesVault:
    """The vault under the configured key, or with SQLite under one kept beside the database with mode 0600."""
    try:
        if settings.key_encryption_key is not None:
            return AesVault(parse_key(settings.key_encryption_key.get_secret_value()))
        if settings.sqlite_file is not None:
            return AesVault(key_file(settings.sqlite_file.with_name(settings.sqlite_file.name + ".key")))
    except ValueError as error:
        raise SettingsInvalid(f"SUBGRANT_KEY_ENCRYPTION_KEY: {error}") from error
    raise SettingsInvalid("SUBGRANT_KEY_ENCRYPTION_KEY: is needed with PostgreSQL (32 random bytes in base64)")


def open_store(settings: Settings) -> SqlStore:
    """The store; nothing is connected yet."""
    return SqlStore.open(
        settings.database_url,
        pool_size=settings.database_pool_size,
        pool_timeout_seconds=settings.database_timeout_seconds,
        lock_timeout_seconds=settings.database_timeout_seconds,
    )


async def prepare(settings: Settings) -> FirstAdmin | None:
    """Make a database ready to serve: migrated, with a signing key and an administrator. Safe to repeat.

    Returns the administrator that was made up, if one was. Raises SettingsInvalid, StoreUnavailable.
    """
    vault = open_vault(settings)
    if settings.migrate_at_start:
        await migrate(settings.database_url)
    store = open_store(settings)
    try:
        missing = await store.ready()
        if missing is not None:
            raise StoreUnavailable(missing)
        await ensure_key(settings, store, vault)
        return await _ensure_admin(settings, store, vault)
    finally:
        await store.aclose()


async def ensure_key(settings: Settings, store: Store, vault: AesVault) -> None:
    """Make a signing key of the configured algorithm where there is none."""
    async with store.write() as tx:
        keys = await tx.keys.all()
        load_keys(keys, vault)
        if not any(key.alg == settings.signing_algorithm for key in keys):
            await tx.keys.add(make_key(settings.signing_algorithm, now(), vault.seal))
            await tx.commit()


def load_keys(keys: tuple[SigningKey, ...], vault: AesVault) -> KeyRing:
    """The keys with their private halves opened. Raises SettingsInvalid under another key-encryption key."""
    try:
        return KeyRing.load(keys, vault.open)
    except ValueError as error:
        message = "SUBGRANT_KEY_ENCRYPTION_KEY: is not the key that the stored signing keys were encrypted with"
        raise SettingsInvalid(message) from error


async def _ensure_admin(settings: Settings, store: Store, vault: AesVault) -> FirstAdmin | None:
    """The operator's administrator, or at the very first start one that is made up."""
    given = settings.bootstrap_client_secret
    client_id = ClientId(settings.bootstrap_client_id)
    secret = new_secret() if given is None else given.get_secret_value()
    try:
        made = await bootstrap(
            store, vault, now, settings.rules, client_id=client_id, secret=secret, replace_secret=given is not None
        )
    except Conflict as error:
        raise SettingsInvalid(f"SUBGRANT_BOOTSTRAP_CLIENT_ID: {error.detail}") from error
    return FirstAdmin(client_id=client_id, secret=secret) if made and given is None else None


def create_app(settings: Settings) -> FastAPI:
    """The application. Its store must be prepared; the world is made when it starts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with _world(settings) as world:
            app.state.world = world
            yield

    app = FastAPI(
        title="Subgrant",
        version=VERSION,
        summary="Delegation grants for agents: minted narrow, exchanged narrower, checked at every tool call.",
        lifespan=lifespan,
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would repeat the Host that was sent
    )
    for module in (well_known, token, grants, gateway, mcp, audit, admin, health):
        app.include_router(module.router)
    errors.install(app)
    app.openapi = partial(describe, app)  # type: ignore[method-assign]  # FastAPI's way to extend the document
    app.exception_handler(token.OAuthError)(token.oauth_error)
    return app


def app_from_environment() -> FastAPI:
    """What each worker process runs."""
    return create_app(load_settings())


@asynccontextmanager
async def _world(settings: Settings) -> AsyncIterator[World]:
    vault, store = open_vault(settings), open_store(settings)
    async with store.read() as tx:
        ring = load_keys(await tx.keys.all(), vault)
    policies = CedarPolicyEngine(timeout_seconds=settings.policy_timeout_seconds)
    signer = JoseSigner(issuer=settings.public_issuer, keys=ring, alg=settings.signing_algorithm)
    world = World(
        store=store,
        signer=signer,
        vault=vault,
        upstream=ToolUpstream(addresses=settings.allowed_tool_server_addresses),
        schemas=RustSchemaValidator(),
        policies=policies,
        clock=now,
        new_id=new_id,
        rules=settings.rules,
    )

    async def reload_keys() -> None:
        async with store.read() as tx:
            signer.use(load_keys(await tx.keys.all(), vault))

    chores = [
        _every(settings.reconcile_every_seconds, lambda: reconcile_calls(world)),
        _every(settings.watch_closings_every_seconds, lambda: stop_closed_calls(world)),
        _every(settings.keys_reload_every_seconds, reload_keys),
    ]
    if multiprocessing.parent_process() is not None:
        chores.append(_every(WATCH_SUPERVISOR_SECONDS, _end_with_supervisor))
    tasks = [asyncio.create_task(chore) for chore in chores]
    try:
        yield world
    finally:
        await _stop(world, tasks)
        policies.close()


async def _every(seconds: float, chore: Callable[[], Awaitable[object]]) -> None:
    """Repeat a chore for ever. One that fails is logged and tried again: it must never end for good."""
    while True:
        try:
            await chore()
        except StoreUnavailable:
            log.warning("the store can't be reached")
        except Exception:
            log.exception("a background chore failed")
        await asyncio.sleep(seconds)


async def _end_with_supervisor() -> None:
    """A worker whose supervisor was killed ends as if told to: nobody else would, and it keeps the port."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None and not supervisor.is_alive():
        os.kill(os.getpid(), signal.SIGTERM)


async def _stop(world: World, chores: list[asyncio.Task[None]]) -> None:
    """Let calls in flight settle, within a bound, then close what is open. What is left the reconciler finds."""
    if world.in_flight.endings:
        await asyncio.wait(world.in_flight.endings, timeout=DRAIN_SECONDS)
    for chore in chores:
        chore.cancel()
    await asyncio.gather(*chores, return_exceptions=True)
    await world.upstream.aclose()
    await world.store.aclose()
