"""Signing keys: what is put in comes out, oldest first, until it is retired."""

from dataclasses import replace
from datetime import timedelta

import pytest

from app.ports import AlreadyExists, SigningKey, Store
from tests.samples import NOW

pytestmark = pytest.mark.anyio

KEY = SigningKey(
    kid="k1",
    alg="EdDSA",
    public_jwk={"kty": "OKP", "crv": "Ed25519", "x": "abc"},
    sealed_private=b"\x00\x01\xff",
    created_at=NOW + timedelta(microseconds=123_456),
)


async def add(store: Store, *keys: SigningKey) -> None:
    async with store.write() as tx:
        for key in keys:
            await tx.keys.add(key)
        await tx.commit()


async def keys_of(store: Store) -> tuple[SigningKey, ...]:
    async with store.read() as tx:
        return await tx.keys.all()


async def test_a_key_comes_back_exactly_as_it_was(store: Store) -> None:
    await add(store, KEY)
    assert await keys_of(store) == (KEY,)


async def test_keys_come_oldest_first(store: Store) -> None:
    older = replace(KEY, kid="k2", created_at=NOW - timedelta(days=1))
    await add(store, KEY, older)
    assert await keys_of(store) == (older, KEY)


async def test_a_retired_key_is_left_out(store: Store) -> None:
    await add(store, KEY, replace(KEY, kid="k2", retired_at=NOW))
    assert await keys_of(store) == (KEY,)


async def test_a_key_id_is_used_once(store: Store) -> None:
    await add(store, KEY)
    with pytest.raises(AlreadyExists, match="kid"):
        await add(store, KEY)
