"""Twice safe, in breadth: of every pair that the corpus refuses a child is made all the same, and gains nothing.

The proof of narrowing is replaced by one that believes everything. The gateway evaluates every link of the chain by
itself, and so the witness of each pair, which the child allows and its parent does not, is refused and never sent.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Final

import pytest

from app.core import attenuation, narrowing
from app.core.grant import TenantId, ToolName
from app.core.reasons import Reason
from app.core.registry import Resource, Tenant
from app.core.strict_json import JsonObject, canonical
from app.usecases.authorize_call import ProposedCall
from app.usecases.derive_grant import derive_grant
from app.usecases.failures import Denied
from app.usecases.forward_call import Forwarded, forward_call
from app.usecases.mint_grant import SignedGrant
from app.usecases.read_wish import NarrowingFields
from tests.samples import ACME, SEARCH, SUPPORT
from tests.usecases.worlds import Scene, a_scene, caller_for
from tests.vectors.corpus import RECORD, Case, sections

pytestmark = pytest.mark.anyio

BATCH: Final = 25
"""Cases that one store in memory sees: it copies all that it holds for every transaction."""


def parent_of(case: Case) -> bytes:
    return canonical(case["parent"])


def batches() -> Iterator[tuple[str, list[Case]]]:
    """The refused cases whose witness shows what is wider, by topic, those with the same parent together."""
    for topic, section in sections("narrowing").items():
        wider = sorted((case for case in section if {"witness", "witnessAbsent"} & case.keys()), key=parent_of)
        for start in range(0, len(wider), BATCH):
            yield f"{topic}, {start // BATCH + 1}", wider[start : start + BATCH]


WIDER: Final = dict(batches())


@pytest.fixture(autouse=True)
def believes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object, **__: object) -> Iterator[None]:
        return iter(())

    monkeypatch.setattr(narrowing, "_proven", lambda *_: None)
    monkeypatch.setattr(attenuation, "widenings", nothing)


@pytest.fixture
async def scene() -> Scene:
    scene = await a_scene()
    async with scene.world.store.write() as tx:
        for tenant_id in map(TenantId, RECORD.keys() - {ACME}):
            await tx.registry.add_tenant(Tenant(tenant_id=tenant_id, name="Another"))
        await tx.directory.put(
            [
                Resource(tenant_id=TenantId(tenant_id), type=kind, id=thing, attributes=attributes)
                for tenant_id, types in RECORD.items()
                for kind, things in types.items()
                for thing, attributes in things.items()
            ]
        )
        await tx.commit()
    return scene


async def a_parent(scene: Scene, constraint: JsonObject) -> SignedGrant:
    """A grant whose tool takes one argument under this constraint."""
    return await scene.grant(resource_constraints={SEARCH.tool: {"x": constraint}}, may_redelegate=True)


async def a_child(scene: Scene, parent: SignedGrant, constraint: JsonObject) -> SignedGrant:
    """A child of it whose tool takes the argument under another constraint."""
    rules: JsonObject = {SEARCH.tool: {"x": constraint}}
    fields = NarrowingFields(resource_constraints=rules, max_tool_calls=2, max_spend_cents=10)
    made = await derive_grant(scene.world, scene.planner, parent.grant.grant_id, fields, None)
    assert isinstance(made, SignedGrant), made
    return made


def with_witness(case: Case) -> ProposedCall:
    arguments = {"x": case["witness"]} if "witness" in case else {}
    return ProposedCall(tool_server_audience=SUPPORT.uri, name=ToolName(SEARCH.tool), arguments=arguments)


@pytest.mark.parametrize("batch", WIDER)
async def test_what_a_child_allows_beyond_its_parent_is_refused_and_never_sent(scene: Scene, batch: str) -> None:
    for siblings in ([*group] for _, group in groupby(WIDER[batch], key=parent_of)):
        parent = await a_parent(scene, siblings[0]["parent"])
        for case in siblings:
            made = await a_child(scene, parent, case["child"])
            answer = await forward_call(scene.world, caller_for(made), with_witness(case))
            assert isinstance(answer, Denied), case
            assert answer.reason in {Reason.ARGUMENT_INVALID, Reason.RESOURCE_OUT_OF_SCOPE}, case
    assert scene.tools.requests == []


async def test_what_child_and_parent_both_allow_is_sent(scene: Scene) -> None:
    """Else all of the above would be refused whatever it is: here the parent allows what the child does."""
    cases = WIDER["int: bounds within bounds, 1"]
    for case in cases:
        made = await a_child(scene, await a_parent(scene, case["child"]), case["child"])
        assert isinstance(await forward_call(scene.world, caller_for(made), with_witness(case)), Forwarded), case
    assert len(scene.tools.requests) == len(cases)
