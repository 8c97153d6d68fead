"""Replace the service's signing keys: a new one is published before it signs, an old one is retired at once.

For platform administrators only. A key that is retired ends whatever it signed, grants at rest among them, so who
retires one is told how many live grants rest on it. Nothing here sees a private key.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from app.core.registry import PLATFORM_TENANT
from app.core.signing import MAX_KEYS, signing_key
from app.ports import SigningKey, Transaction
from app.usecases.administration import (
    Page,
    PageRequest,
    administering,
    not_platform,
    page_of,
    record,
    rows_to_ask,
)
from app.usecases.failures import Conflict, Denied, NotFound
from app.usecases.world import Caller, World

MAX_COUNTED: Final = 10_000
"""How many of the grants that rest on a key are counted."""


class KeyStatus(StrEnum):
    """What a key is good for: to be known by now and to sign later, to sign, to verify what it signed, nothing."""

    PUBLISHED = "published"
    SIGNING = "signing"
    VERIFYING = "verifying"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyState:
    """A key, and what it is good for now."""

    key: SigningKey
    status: KeyStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """A key that was retired, or would be, and how many live grants end with it (`MAX_COUNTED` at most)."""

    state: KeyState
    live_grants: int


async def list_keys(world: World, caller: Caller, page: PageRequest) -> Page[KeyState] | Denied:
    """Keys in the order in which they were made, retired ones too."""
    if (denied := not_platform(caller)) is not None:
        return denied
    rows = rows_to_ask(world, page)
    async with world.store.read() as tx:
        found = await tx.keys.page(after=page.after, limit=rows)
        signs = _signing(world, await tx.keys.all())
    states = [_state(world, key, signs) for key in found]
    return page_of(states, page, lambda state: state.key.kid)


async def rotate_key(world: World, caller: Caller, lead: timedelta | None) -> KeyState | Denied:
    """A new key, which signs once every worker has published it for so long. Raises Conflict for one too many."""
    if (denied := not_platform(caller)) is not None:
        return denied
    async with administering(world) as tx:
        keys = await tx.keys.all()
        if len(keys) >= MAX_KEYS:
            raise Conflict(f"at most {MAX_KEYS} keys are in use at once: retire one")
        now = world.clock()
        # Only then has every worker read it, and publishes it.
        known_from = now + world.rules.keys_good_for
        signs_from = known_from + (world.rules.key_lead if lead is None else lead)
        key = world.signer.new_key(world.vault.seal, now, signs_from)
        await tx.keys.add(key)
        await record(tx, world, caller, PLATFORM_TENANT, "key.created", _name(key))
        await tx.commit()
    return _state(world, key, _signing(world, (*keys, key)))


async def retire_key(world: World, caller: Caller, kid: str, *, dry_run: bool) -> Retirement | Denied:
    """The key, retired: once this returns, no worker accepts anything that it signed. Safe to repeat.

    Raises NotFound, and Conflict for the only key that signs. With `dry_run` nothing is retired.
    """
    if (denied := not_platform(caller)) is not None:
        return denied
    # Counted before the turn is taken, since it takes as long as there are grants.
    async with world.store.read() as tx:
        key = await _known(tx, kid)
        signs = _signing(world, await tx.keys.all())
        start = world.signer.grants_start(key)
        count = await tx.grants.resting_on(start, live_at=world.clock(), limit=MAX_COUNTED)
    if not dry_run:
        key = await _retire(world, caller, kid)
        # A worker believes the keys that it read for so long; one that was stopped meanwhile reads them again first.
        await asyncio.sleep(world.rules.keys_good_for.total_seconds())
    return Retirement(state=_state(world, key, signs), live_grants=count)


async def _retire(world: World, caller: Caller, kid: str) -> SigningKey:
    async with administering(world) as tx:
        key = await _known(tx, kid)
        if key.retired_at is not None:
            return key
        if _signing(world, tuple(other for other in await tx.keys.all() if other.kid != kid)) is None:
            raise Conflict("it is the only key that signs: make another and wait until that one does")
        await tx.keys.retire(kid, world.clock())
        await record(tx, world, caller, PLATFORM_TENANT, "key.retired", _name(key))
        retired = await _known(tx, kid)
        await tx.commit()
    return retired


async def _known(tx: Transaction, kid: str) -> SigningKey:
    key = await tx.keys.key(kid)
    if key is None:
        raise NotFound("there is no such key")
    return key


def _signing(world: World, keys: tuple[SigningKey, ...]) -> SigningKey | None:
    return signing_key(keys, world.signer.algorithm, world.clock())


def _state(world: World, key: SigningKey, signs: SigningKey | None) -> KeyState:
    return KeyState(key=key, status=_status(world, key, signs))


def _status(world: World, key: SigningKey, signs: SigningKey | None) -> KeyStatus:
    if key.retired_at is not None:
        return KeyStatus.RETIRED
    if signs is not None and key.kid == signs.kid:
        return KeyStatus.SIGNING
    return KeyStatus.PUBLISHED if key.signs_from > world.clock() else KeyStatus.VERIFYING


def _name(key: SigningKey) -> str:
    return f"signing-key/{key.kid}"
