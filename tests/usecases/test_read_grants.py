"""What is shown of grants whose key is gone: that the store has them, and nothing that they would allow."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pytest

from app.adapters.jose import JoseSigner, KeyRing, make_key
from app.api.grants import grant_document
from app.core.grant import ClientId, GrantId
from app.core.reasons import Reason
from app.core.registry import Scope
from app.ports import GrantFilter, SigningKey
from app.usecases.close_grant import Closed, close_grant
from app.usecases.derive_grant import derive_grant
from app.usecases.failures import Denied, UnverifiableGrant
from app.usecases.list_tools import list_tools
from app.usecases.make_standing_grant import list_standing_grants
from app.usecases.mint_grant import SignedGrant
from app.usecases.read_grants import (
    GrantPage,
    LineageView,
    UnverifiableView,
    View,
    list_grants,
    read_grant,
    read_lineage,
)
from app.usecases.read_wish import NarrowingFields
from app.usecases.world import Caller, World
from tests.samples import ACME, NOW
from tests.usecases.standing import ADMIN, standing
from tests.usecases.worlds import PLANNER, Scene, a_scene, caller_for, verified

pytestmark = pytest.mark.anyio

AUDITOR: Final = Caller(client_id=ClientId("auditor"), tenant_id=ACME, scopes=frozenset({Scope.AUDIT_READ}))


@dataclass
class Rotation:
    """Grants of which the first two were signed by a key that is gone: a root, its child, and below a newer one."""

    scene: Scene
    root: SignedGrant
    child: SignedGrant
    below: SignedGrant

    @property
    def dead(self) -> list[GrantId]:
        return [made.grant.grant_id for made in (self.root, self.child, self.below)]


def with_keys(world: World, *keys: SigningKey) -> World:
    ring = KeyRing.load(keys, world.vault.open)
    return replace(world, signer=JoseSigner(issuer=world.rules.issuer, keys=ring, clock=world.clock))


async def derived(scene: Scene, parent: SignedGrant) -> SignedGrant:
    wish = NarrowingFields(may_redelegate=True)
    made = await derive_grant(scene.world, scene.planner, parent.grant.grant_id, wish, None)
    assert isinstance(made, SignedGrant), made
    return made


@pytest.fixture
async def rotation() -> Rotation:
    scene = await a_scene()
    old, new = (make_key("EdDSA", NOW, scene.world.vault.seal) for _ in range(2))
    scene.world = with_keys(scene.world, old)
    root = await scene.grant(may_redelegate=True)
    child = await derived(scene, root)
    await standing(scene)
    scene.world = with_keys(scene.world, old, replace(new, created_at=NOW, signs_from=NOW))
    below = await derived(scene, child)
    scene.world = with_keys(scene.world, new)
    return Rotation(scene, root, child, below)


async def listed(scene: Scene, caller: Caller, where: GrantFilter | None = None) -> dict[GrantId, View]:
    page = await list_grants(scene.world, caller, where or GrantFilter(), before=None, limit=50)
    assert isinstance(page, GrantPage)
    return {
        view.stored.grant_id if isinstance(view, UnverifiableView) else view.grant.grant_id: view for view in page.views
    }


async def test_a_page_has_what_can_not_be_verified_marked(rotation: Rotation) -> None:
    for caller in (ADMIN, AUDITOR, rotation.scene.planner):
        views = await listed(rotation.scene, caller)
        assert {type(views[grant_id]) for grant_id in rotation.dead} == {UnverifiableView}
    below = await listed(rotation.scene, ADMIN, GrantFilter(parent_grant_id=rotation.child.grant.grant_id))
    assert [*map(type, below.values())] == [UnverifiableView], "what is above it is not on its page"
    alive = await rotation.scene.grant()
    views = await listed(rotation.scene, ADMIN, GrantFilter(live_at=rotation.scene.clock.now))
    assert list(views) == [alive.grant.grant_id]


async def test_those_who_see_the_tenant_read_that_it_is_there(rotation: Rotation) -> None:
    for caller in (ADMIN, AUDITOR):
        for grant_id in rotation.dead:
            view = await read_grant(rotation.scene.world, caller, grant_id)
            assert isinstance(view, UnverifiableView)
            assert view.stored.grant_id == grant_id
        lineage = await read_lineage(rotation.scene.world, caller, rotation.child.grant.grant_id)
        assert isinstance(lineage, LineageView)
        shown = [view for view in (*lineage.ancestors, *lineage.subtree) if isinstance(view, UnverifiableView)]
        assert [view.stored.grant_id for view in shown] == rotation.dead


async def test_nothing_of_what_it_would_allow_is_shown(rotation: Rotation) -> None:
    view = await read_grant(rotation.scene.world, ADMIN, rotation.child.grant.grant_id)
    assert not isinstance(view, Denied)
    child = rotation.child.grant
    assert grant_document(view).model_dump(mode="json", by_alias=True) == {
        "grantId": child.grant_id,
        "parentGrantId": child.parent_grant_id,
        "rootGrantId": child.root_grant_id,
        "depth": 1,
        "tenantId": ACME,
        "issuedAt": child.issued_at.isoformat().replace("+00:00", "Z"),
        "expiresAt": child.expires_at.isoformat().replace("+00:00", "Z"),
        "status": "unverifiable",
        "usage": {"toolCalls": {"posted": 0, "pending": 0}, "spendCents": {"posted": 0, "pending": 0}},
        "closeReason": None,
        "closedAt": None,
    }


NAMED: Final[dict[str, Callable[[Scene, Caller, GrantId], Awaitable[object]]]] = {
    "derives": lambda scene, caller, grant_id: derive_grant(scene.world, caller, grant_id, NarrowingFields(), None),
    "lists its tools": lambda scene, caller, grant_id: list_tools(scene.world, caller, grant_id),
}


@pytest.mark.parametrize("name", NAMED.values(), ids=list(NAMED))
async def test_a_live_caller_is_told_that_the_grant_is_at_fault(
    rotation: Rotation, name: Callable[[Scene, Caller, GrantId], Awaitable[object]]
) -> None:
    for caller in (rotation.scene.planner, ADMIN):
        for grant_id in rotation.dead:
            with pytest.raises(UnverifiableGrant):
                await name(rotation.scene, caller, grant_id)


async def test_its_own_client_reads_no_more_than_that_it_can_not_be_verified(rotation: Rotation) -> None:
    for read in (read_grant, read_lineage):
        with pytest.raises(UnverifiableGrant):
            await read(rotation.scene.world, rotation.scene.planner, rotation.root.grant.grant_id)


async def test_a_credential_of_such_a_grant_is_no_live_caller(rotation: Rotation) -> None:
    for read in (read_grant, read_lineage, list_tools):
        refused = await read(rotation.scene.world, caller_for(rotation.below), rotation.root.grant.grant_id)
        assert isinstance(refused, Denied)
        assert refused.reason is Reason.TOKEN_INVALID


async def test_it_is_closed_by_an_administrator_and_shown_as_closed(rotation: Rotation) -> None:
    closed = await close_grant(rotation.scene.world, ADMIN, rotation.root.grant.grant_id, "leaked")
    assert isinstance(closed, Closed)
    assert sorted(closed.closed) == sorted(rotation.dead)
    view = await read_grant(rotation.scene.world, ADMIN, rotation.below.grant.grant_id)
    assert isinstance(view, UnverifiableView)
    assert view.stored.account.closed == "leaked"


async def standing_ones(scene: Scene) -> Sequence[View]:
    found = await list_standing_grants(scene.world, ADMIN, None, PLANNER)
    assert not isinstance(found, Denied)
    return found


async def test_a_clients_standing_grants_are_listed_too(rotation: Rotation) -> None:
    assert [*map(type, await standing_ones(rotation.scene))] == [UnverifiableView]
    again = await standing(rotation.scene)
    assert [view.grant.grant_id for view in verified(await standing_ones(rotation.scene))] == [again.grant_id]


async def test_a_standing_grant_that_the_store_lost_hides_no_other(rotation: Rotation) -> None:
    async with rotation.scene.world.store.write() as tx:
        client = await tx.registry.client(PLANNER)
        assert client is not None
        lost = {**client.standing_grants, "billing": "gr_lost"}
        await tx.registry.put_client(replace(client, standing_grants=lost))
        await tx.commit()
    assert len(await standing_ones(rotation.scene)) == 1
