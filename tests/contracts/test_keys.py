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
    signs_from=NOW + timedelta(minutes=5, microseconds=7),
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


async def test_a_key_that_is_retired_is_left_out_and_keeps_the_time_at_which_it_was(store: Store) -> None:
    await add(store, KEY)
    for at in (NOW, NOW + timedelta(days=1)):
        async with store.write() as tx:
            await tx.keys.retire(KEY.kid, at)
            await tx.keys.retire("another", at)
            await tx.commit()
    assert await keys_of(store) == ()
    async with store.read() as tx:
        assert await tx.keys.key(KEY.kid) == replace(KEY, retired_at=NOW)
        assert await tx.keys.key("another") is None


async def test_a_page_holds_retired_keys_too_in_the_order_in_which_they_were_made(store: Store) -> None:
    made = [replace(KEY, kid=kid, created_at=NOW + timedelta(seconds=at)) for kid, at in (("c", 0), ("a", 1), ("b", 1))]
    await add(store, *reversed(made))
    async with store.write() as tx:
        await tx.keys.retire("a", NOW)
        await tx.commit()
    made[1] = replace(made[1], retired_at=NOW)
    async with store.read() as tx:
        assert await tx.keys.page(after=None, limit=2) == tuple(made[:2])
        for place, key in enumerate(made):
            assert await tx.keys.page(after=key.kid, limit=3) == tuple(made[place + 1 :])
        assert await tx.keys.page(after="another", limit=3) == ()


async def test_a_key_id_is_used_once(store: Store) -> None:
    await add(store, KEY)
    with pytest.raises(AlreadyExists, match="kid"):
        await add(store, KEY)
