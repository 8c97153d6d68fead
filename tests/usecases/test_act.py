"""`act` through whatever flows a delegation takes: complete, nested, and the server's own record of it.

RFC 8693 §4.1. What is walked is drawn by chance, the same each time.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import jwt
import pytest

from app.core.grant import Grant, GrantId, RunId
from app.core.registry import Workload
from app.core.strict_json import JsonObject, JsonValue
from app.usecases.exchange_token import ExchangeRequest, exchange_token
from app.usecases.failures import Denied
from app.usecases.issued_token import ACCESS_TOKEN, DELEGATION_GRANT, Exchanged
from app.usecases.prove_parties import ID_TOKEN, JWT
from app.usecases.read_wish import NarrowingFields
from tests.samples import ACME, SUPPORT
from tests.usecases.standing import IdentityProvider, another_client, ask, client, exchange, put, standing
from tests.usecases.worlds import PLANNER, Scene, a_scene

pytestmark = pytest.mark.anyio

IDP = IdentityProvider()
AGENTS = ("agent-0", "agent-1", "agent-2")


@dataclass
class Held:
    """What somebody holds at a step of the walk."""

    token: str
    kind: str
    grant: Grant


async def lineage_of(scene: Scene, grant: Grant) -> list[Grant]:
    async with scene.world.store.read() as tx:
        stored = await tx.grants.chain(ACME, GrantId(grant.grant_id))
    return [scene.world.signer.verify_grant(link.signed).grant for link in stored]


def told(act: JsonValue) -> list[tuple[JsonValue, JsonValue]]:
    """Who acted in which run, the current actor first."""
    links = []
    while act is not None:
        assert isinstance(act, dict)
        assert act.keys() <= {"sub", "run", "act"}
        links.append((act["sub"], act["run"]))
        act = act.get("act")
    return links


async def recorded(scene: Scene, grant: Grant) -> list[tuple[str, str]]:
    links: list[tuple[str, str]] = []
    for link in await lineage_of(scene, grant):
        if not links or links[0] != (link.actor, link.child_run_id):
            links.insert(0, (link.actor, link.child_run_id))
    return links


async def step(scene: Scene, held: Held, luck: random.Random) -> Held:
    """The holder exchanges what it holds: for itself or another, in its run or a new one, for a token or a grant."""
    holder = await client(scene, held.grant.holder)
    actor: dict[str, str] = {}
    if luck.random() < 0.5:
        actor = {"actor_token": IDP.id_token(scene, sub=luck.choice(AGENTS)), "actor_token_type": JWT}
    run = RunId(scene.world.new_id("run")) if luck.random() < 0.4 else None
    request = ExchangeRequest(
        subject_token=held.token,
        subject_token_type=held.kind,
        requested_token_type=luck.choice((ACCESS_TOKEN, DELEGATION_GRANT)),
        fields=NarrowingFields(may_redelegate=True, child_run_id=run),
        **actor,  # type: ignore[arg-type]  # two members of it
    )
    issued = await exchange_token(scene.world, holder, request)
    assert isinstance(issued, Exchanged), issued
    return Held(issued.token, issued.issued_token_type, issued.grant)


def act_in(held: Held) -> JsonValue:
    """What the token or grant itself says."""
    claims: JsonObject = jwt.decode(held.token, options={"verify_signature": False})
    return claims["act"]


@pytest.mark.parametrize("seed", range(12))
async def test_act_is_the_whole_lineage_whatever_way_a_token_came_about(seed: int) -> None:
    luck = random.Random(seed)  # noqa: S311 - of a test
    scene = await a_scene()
    await put(scene, IDP.trusted())
    for name in AGENTS:
        await another_client(scene, name, workload=Workload(issuer=IDP.name, subject=name))
    await standing(scene, may_redelegate=True)
    fields = NarrowingFields(may_redelegate=True)
    starts: dict[str, Callable[[], Awaitable[Exchanged | Denied]]] = {
        "own": lambda: ask(scene, fields=fields),
        "for a user": lambda: exchange(scene, IDP.id_token(scene), ID_TOKEN, resource=(SUPPORT.uri,), fields=fields),
        "minted": lambda: _minted(scene),
    }
    first = await starts[luck.choice(sorted(starts))]()
    assert isinstance(first, Exchanged)
    held, subject = Held(first.token, first.issued_token_type, first.grant), first.grant.subject
    for _ in range(6):
        if held.grant.depth >= held.grant.max_depth:
            break
        assert told(act_in(held)) == await recorded(scene, held.grant)
        assert told(act_in(held))[-1][0] == PLANNER
        assert held.grant.subject == subject
        held = await step(scene, held, luck)


async def _minted(scene: Scene) -> Exchanged:
    made = await scene.grant(may_redelegate=True)
    issued = await exchange(scene, made.signed, DELEGATION_GRANT, fields=NarrowingFields(may_redelegate=True))
    assert isinstance(issued, Exchanged)
    return issued
