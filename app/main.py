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
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from fastapi import FastAPI

from app.adapters.cedar_policy import CedarPolicyEngine
from app.adapters.dpop import DpopProofs, Nonces
from app.adapters.ids import new_id
from app.adapters.jose import JoseSigner, KeyRing, make_key
from app.adapters.json_schema import RustSchemaValidator
from app.adapters.outside_tokens import Ages, OutsideJwts
from app.adapters.sql import SqlStore, migrate
from app.adapters.upstream import ToolUpstream
from app.adapters.upstream.key_sets import KeySetFetcher
from app.adapters.vault import AesVault, key_file, parse_key
from app.api import admin, audit, errors, gateway, grants, health, mcp, oauth, well_known
from app.api.description import describe
from app.api.nonces import FreshNonces
from app.api.oauth.failures import OAuthError, oauth_error
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
KEY_READINGS = 10
"""How often the keys are read in the time for which they are believed, so that a slow store stops nothing."""


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
    """Make a signing key of the configured algorithm where there is none. Beside others it is published first."""
    async with store.write() as tx:
        keys = await tx.keys.all()
        load_keys(keys, vault)
        if not any(key.alg == settings.signing_algorithm for key in keys):
            made_at = now()
            lead = settings.rules.keys_good_for + settings.rules.key_lead if keys else timedelta(0)
            await tx.keys.add(make_key(settings.signing_algorithm, made_at, vault.seal, made_at + lead))
            await tx.commit()


def load_keys(keys: tuple[SigningKey, ...], vault: AesVault) -> KeyRing:
    """The keys with their private halves opened. Raises SettingsInvalid under another key-encryption key."""
    try:
        return KeyRing.load(keys, vault.open)
    except ValueError as error:
        message = "SUBGRANT_KEY_ENCRYPTION_KEY: is not the key that the stored signing keys were encrypted with"
        raise SettingsInvalid(message) from error


class LiveKeys:
    """The store's signing keys, each reading good for so long; opened anew only where they changed."""

    def __init__(self, store: Store, vault: AesVault, good_for: timedelta) -> None:
        self._store = store
        self._vault = vault
        self._good_for = good_for
        self._records: tuple[SigningKey, ...] = ()
        self._ring = KeyRing.holding()

    async def read(self) -> KeyRing:
        # What was committed before this moment is seen, whenever the answer comes.
        asked_at = now()
        async with self._store.read() as tx:
            records = await tx.keys.all()
        if records != self._records:
            self._ring, self._records = load_keys(records, self._vault), records
        return replace(self._ring, good_until=asked_at + self._good_for)


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
    for module in (well_known, oauth, grants, gateway, mcp, audit, admin, health):
        app.include_router(module.router)
    errors.install(app)
    app.add_middleware(FreshNonces)
    app.openapi = partial(describe, app)  # type: ignore[method-assign]  # FastAPI's way to extend the document
    app.exception_handler(OAuthError)(oauth_error)
    return app


def app_from_environment() -> FastAPI:
    """What each worker process runs."""
    return create_app(load_settings())


@asynccontextmanager
async def _world(settings: Settings) -> AsyncIterator[World]:
    vault, store = open_vault(settings), open_store(settings)
    keys = LiveKeys(store, vault, settings.rules.keys_good_for)
    policies = CedarPolicyEngine(timeout_seconds=settings.policy_timeout_seconds)
    signer = JoseSigner(
        issuer=settings.public_issuer, keys=await keys.read(), clock=now, alg=settings.signing_algorithm
    )
    key_sets = KeySetFetcher(addresses=settings.allowed_tool_server_addresses)
    world = World(
        store=store,
        signer=signer,
        vault=vault,
        upstream=ToolUpstream(addresses=settings.allowed_tool_server_addresses),
        schemas=RustSchemaValidator(),
        policies=policies,
        outsiders=OutsideJwts(fetch=key_sets.fetch, ages=_key_ages(settings)),
        proofs=DpopProofs(_nonces(settings, vault)),
        clock=now,
        new_id=new_id,
        rules=settings.rules,
    )

    async def reload_keys() -> None:
        signer.use(await keys.read())

    chores = [
        _every(settings.reconcile_every_seconds, lambda: reconcile_calls(world)),
        _every(settings.watch_closings_every_seconds, lambda: stop_closed_calls(world)),
        _every(settings.keys_good_for_seconds / KEY_READINGS, reload_keys),
    ]
    if multiprocessing.parent_process() is not None:
        chores.append(_every(WATCH_SUPERVISOR_SECONDS, _end_with_supervisor))
    tasks = [asyncio.create_task(chore) for chore in chores]
    try:
        yield world
    finally:
        await _stop(world, tasks)
        await key_sets.aclose()
        policies.close()


def _nonces(settings: Settings, vault: AesVault) -> Nonces | None:
    return None if settings.dpop_nonces == "off" else Nonces(issuer=settings.public_issuer, digest=vault.digest)


def _key_ages(settings: Settings) -> Ages:
    return Ages(
        least=settings.outside_keys_ask_every_seconds,
        most=settings.outside_keys_max_age_seconds,
        last_good=settings.outside_keys_last_good_seconds,
    )


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
