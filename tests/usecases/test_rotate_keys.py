"""Signing keys come and go: published before they sign, never the last one gone, every change on record."""

from dataclasses import replace
from datetime import timedelta

import pytest

from app.adapters.jose import KeyRing, make_key
from app.core.grant import GrantId
from app.core.reasons import Reason
from app.core.registry import PLATFORM_TENANT, Scope
from app.core.signing import MAX_KEYS
from app.ports import SigningKey, Vault
from app.usecases.administration import Page, PageRequest
from app.usecases.failures import Conflict, Denied, NotFound
from app.usecases.rotate_keys import KeyState, KeyStatus, Retirement, list_keys, retire_key, rotate_key
from app.usecases.world import Caller
from tests.samples import ACME, NOW
from tests.usecases.worlds import Scene, a_scene

pytestmark = pytest.mark.anyio

ROOT = Caller(client_id="root", tenant_id=PLATFORM_TENANT, scopes=frozenset({Scope.PLATFORM}))  # type: ignore[arg-type]
LEAD = timedelta(seconds=60)
SPREAD = timedelta(seconds=5)


@pytest.fixture
async def scene() -> Scene:
    """A service with one key, whose workers believe what they read for five seconds; nothing waits for them."""
    scene = await a_scene(key_lead=LEAD, keys_good_for=timedelta(0))
    async with scene.world.store.write() as tx:
        await tx.keys.add(make_key("EdDSA", NOW - timedelta(days=1), scene.world.vault.seal))
        await tx.commit()
    await reread(scene)
    return scene


async def reread(scene: Scene) -> None:
    """What every worker does all the time."""
    async with scene.world.store.read() as tx:
        ring = KeyRing.load(await tx.keys.all(), scene.world.vault.open)
    scene.world.signer.use(ring)  # type: ignore[attr-defined]  # the real one, as every worker has it


async def keys(scene: Scene) -> tuple[SigningKey, ...]:
    async with scene.world.store.read() as tx:
        return await tx.keys.all()


async def statuses(scene: Scene) -> list[KeyStatus]:
    page = await list_keys(scene.world, ROOT, PageRequest())
    assert isinstance(page, Page)
    return [state.status for state in page.items]


async def rotated(scene: Scene, lead: timedelta | None = None) -> KeyState:
    state = await rotate_key(scene.world, ROOT, lead)
    assert isinstance(state, KeyState)
    await reread(scene)
    return state


async def retired(scene: Scene, kid: str, *, dry_run: bool = False) -> Retirement:
    retirement = await retire_key(scene.world, ROOT, kid, dry_run=dry_run)
    assert isinstance(retirement, Retirement)
    await reread(scene)
    return retirement


@pytest.mark.parametrize(
    "caller",
    [
        replace(ROOT, scopes=frozenset({Scope.ADMIN})),
        replace(ROOT, tenant_id=ACME, scopes=frozenset(Scope) - {Scope.PLATFORM}),
        replace(ROOT, grant_id=GrantId("gr_1")),
    ],
)
async def test_keys_are_for_the_platforms_administrator(scene: Scene, caller: Caller) -> None:
    (key,) = await keys(scene)
    for refused in (
        await list_keys(scene.world, caller, PageRequest()),
        await rotate_key(scene.world, caller, None),
        await retire_key(scene.world, caller, key.kid, dry_run=False),
        await retire_key(scene.world, caller, key.kid, dry_run=True),
    ):
        assert isinstance(refused, Denied)
        assert (refused.reason, refused.scope) == (Reason.INSUFFICIENT_SCOPE, Scope.PLATFORM)
    assert await keys(scene) == (key,)


async def test_a_new_key_is_published_then_signs_and_the_old_one_still_verifies(scene: Scene) -> None:
    before = await scene.grant()
    state = await rotated(scene)
    assert (state.status, state.key.signs_from - state.key.created_at) == (KeyStatus.PUBLISHED, LEAD)
    assert await statuses(scene) == [KeyStatus.SIGNING, KeyStatus.PUBLISHED]
    scene.clock.now += LEAD
    assert await statuses(scene) == [KeyStatus.VERIFYING, KeyStatus.SIGNING]
    after = await scene.grant()
    old, new = await keys(scene)
    signer = scene.world.signer
    assert before.signed.startswith(signer.grants_start(old))
    assert after.signed.startswith(signer.grants_start(new))
    for made in (before, after):
        assert signer.verify_grant(made.signed).grant == made.grant


async def test_the_private_half_is_sealed_and_opens_to_the_published_key(scene: Scene) -> None:
    key = (await rotated(scene)).key
    vault: Vault = scene.world.vault
    assert "d" not in key.public_jwk
    assert KeyRing.load([key], vault.open).keys[key.kid].public_jwk == key.public_jwk


@pytest.mark.parametrize("lead", [timedelta(0), timedelta(seconds=1), LEAD])
async def test_the_lead_begins_when_every_worker_has_read_the_key(lead: timedelta) -> None:
    scene = await a_scene(keys_good_for=SPREAD)
    state = await rotated(scene, lead)
    assert state.key.signs_from == NOW + SPREAD + lead


async def test_a_lead_that_is_named_counts_and_not_the_usual_one(scene: Scene) -> None:
    assert (await rotated(scene, timedelta(seconds=7))).key.signs_from == NOW + timedelta(seconds=7)
    assert (await rotated(scene, timedelta(0))).key.signs_from == NOW


async def test_no_more_keys_are_in_use_than_may_be(scene: Scene) -> None:
    for _ in range(MAX_KEYS - 1):
        await rotated(scene, timedelta(0))
    with pytest.raises(Conflict, match="16"):
        await rotate_key(scene.world, ROOT, None)
    await retired(scene, (await keys(scene))[0].kid)
    await rotated(scene)
    assert len(await keys(scene)) == MAX_KEYS


async def test_the_only_key_that_signs_is_not_retired_though_another_waits(scene: Scene) -> None:
    (only,) = await keys(scene)
    with pytest.raises(Conflict, match="only key that signs"):
        await retire_key(scene.world, ROOT, only.kid, dry_run=False)
    waiting = await rotated(scene)
    with pytest.raises(Conflict, match="only key that signs"):
        await retire_key(scene.world, ROOT, only.kid, dry_run=False)
    scene.clock.now = waiting.key.signs_from
    assert (await retired(scene, only.kid)).state.status is KeyStatus.RETIRED
    assert await statuses(scene) == [KeyStatus.RETIRED, KeyStatus.SIGNING]
    with pytest.raises(Conflict, match="only key that signs"):
        await retire_key(scene.world, ROOT, waiting.key.kid, dry_run=False)


async def test_a_key_that_waits_may_be_retired_and_never_signs(scene: Scene) -> None:
    waiting = (await rotated(scene)).key
    await retired(scene, waiting.kid)
    scene.clock.now = waiting.signs_from
    (old,) = await keys(scene)
    assert (await scene.grant()).signed.startswith(scene.world.signer.grants_start(old))


async def test_retiring_again_changes_nothing_and_leaves_no_second_record(scene: Scene) -> None:
    old = (await keys(scene))[0]
    await rotated(scene, timedelta(0))
    first = await retired(scene, old.kid)
    scene.clock.now += timedelta(minutes=1)
    assert (await retired(scene, old.kid)).state == first.state
    assert first.state.key.retired_at == NOW
    actions = [(body["action"], body["resource"]) for body in await scene.records(PLATFORM_TENANT)]
    new = (await keys(scene))[0]
    assert actions == [("key.created", f"signing-key/{new.kid}"), ("key.retired", f"signing-key/{old.kid}")]


async def test_a_key_that_never_was_is_not_found(scene: Scene) -> None:
    for dry_run in (True, False):
        with pytest.raises(NotFound):
            await retire_key(scene.world, ROOT, "none", dry_run=dry_run)


async def test_who_retires_a_key_is_told_how_many_live_grants_rest_on_it(scene: Scene) -> None:
    for minutes in (30, 30, 1):
        await scene.grant(expires_at=NOW + timedelta(minutes=minutes))
    (old,) = await keys(scene)
    new = (await rotated(scene, timedelta(0))).key
    await scene.grant(expires_at=NOW + timedelta(minutes=30))
    assert (await retired(scene, old.kid, dry_run=True)).live_grants == 3
    assert (await retired(scene, new.kid, dry_run=True)).live_grants == 1
    scene.clock.now += timedelta(minutes=1)
    retirement = await retired(scene, old.kid, dry_run=True)
    assert (retirement.live_grants, retirement.state.status) == (2, KeyStatus.VERIFYING)
    assert len(await keys(scene)) == 2
    assert (await retired(scene, old.kid)).live_grants == 2


async def test_lists_page_in_the_order_in_which_keys_were_made(scene: Scene) -> None:
    for seconds in (1, 2):
        scene.clock.now = NOW + timedelta(seconds=seconds)
        await rotated(scene)
    made = [key.kid for key in await keys(scene)]
    first = await list_keys(scene.world, ROOT, PageRequest(limit=2))
    assert isinstance(first, Page)
    rest = await list_keys(scene.world, ROOT, PageRequest(after=first.next, limit=2))
    assert isinstance(rest, Page)
    assert [state.key.kid for state in (*first.items, *rest.items)] == made
    assert rest.next is None
