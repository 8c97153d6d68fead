"""Which credentials need a proof, and what becomes of a proof: it is spent with the first thing it was shown for."""

from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.grant import ToolName
from app.core.reasons import Reason
from app.core.registry import Transport
from app.core.strict_json import JsonObject, JsonValue
from app.ports import Proof, StoreUnavailable
from app.usecases.authenticate_caller import authenticate_caller
from app.usecases.authorize_call import ProposedCall
from app.usecases.failures import Denied, IdempotencyConflict
from app.usecases.forward_call import Forwarded, forward_call
from app.usecases.prove_possession import (
    MUST_BE_BOUND,
    NOT_AS_BEARER,
    NOT_BOUND,
    ONE_PROOF,
    OTHER_KEY,
    REPLAYED,
    THUMBPRINT_URI,
    Presented,
    ShownProofs,
    spend,
    spend_now,
)
from app.usecases.world import CLOCK_MARGIN, Caller, Possession
from tests.prover import Prover
from tests.samples import ACME, NOW, SEARCH, SUPPORT
from tests.usecases.worlds import PLANNER, Scene, a_scene, caller_for

pytestmark = pytest.mark.anyio

URL = "https://subgrant.example/v1/grants"
KEY, THIEF = Prover.ed25519(), Prover.ed25519()


@pytest.fixture
async def scene() -> Scene:
    return await a_scene()


def a_token(scene: Scene, **more: JsonValue) -> str:
    claims: JsonObject = {
        "aud": "https://subgrant.example",
        "sub": PLANNER,
        "client_id": PLANNER,
        "tenant_id": ACME,
        "scope": "grants:read",
        "jti": "at_1",
        "iat": int(NOW.timestamp()),
        "exp": int((NOW + timedelta(minutes=10)).timestamp()),
    }
    return scene.world.signer.sign_access_token(claims | more)


def bound_token(scene: Scene, **more: JsonValue) -> str:
    return a_token(scene, cnf={"jkt": KEY.thumbprint}, **more)


def presented(token: str, *proofs: str, is_dpop: bool = True) -> Presented:
    return Presented(token=token, is_dpop=is_dpop, shown=ShownProofs(proofs=proofs, method="GET", url=URL))


def proof_of(token: str, key: Prover = KEY) -> str:
    return key.proof("GET", URL, token=token, iat=int(NOW.timestamp()))


def a_possession(use: str = "use_1", jti: str = "j") -> Possession:
    proof = Proof(key_thumbprint=KEY.thumbprint, jti=jti, expires_at=NOW + timedelta(minutes=6))
    return Possession(proof=proof, use=use)


def a_call(key: str | None = None, **arguments: str) -> ProposedCall:
    return ProposedCall(
        tool_server_audience=SUPPORT.uri, name=ToolName(SEARCH.tool), arguments={**arguments}, idempotency_key=key
    )


async def is_spent(scene: Scene, jti: str = "j") -> bool:
    async with scene.world.store.read() as tx:
        return await tx.spent.is_spent(ACME, THUMBPRINT_URI + KEY.thumbprint, jti)


# --- which credentials need one ---------------------------------------------------------------------------


async def test_a_bound_token_with_a_proof_of_its_key_proves_its_caller(scene: Scene) -> None:
    token = bound_token(scene)
    caller = await authenticate_caller(scene.world, presented(token, proof_of(token)))
    assert isinstance(caller, Caller)
    assert caller.key_thumbprint == KEY.thumbprint
    assert caller.possession is not None
    assert not caller.possession.is_spent


async def test_a_token_that_is_bound_to_nothing_needs_no_proof(scene: Scene) -> None:
    token = a_token(scene)
    caller = await authenticate_caller(scene.world, presented(token, is_dpop=False))
    assert isinstance(caller, Caller)
    assert (caller.key_thumbprint, caller.possession) == (None, None)


async def test_a_token_presented_as_what_it_is_not_is_refused(scene: Scene) -> None:
    bound, free = bound_token(scene), a_token(scene)
    refusals = {
        NOT_AS_BEARER: presented(bound, proof_of(bound), is_dpop=False),
        NOT_BOUND: presented(free, proof_of(free)),
        ONE_PROOF: presented(bound),
        OTHER_KEY: presented(bound, proof_of(bound, THIEF)),
    }
    for denied, shown in refusals.items():
        assert await authenticate_caller(scene.world, shown) == denied
    two = presented(bound, proof_of(bound), proof_of(bound))
    assert await authenticate_caller(scene.world, two) == ONE_PROOF


async def test_an_expired_token_for_a_grant_needs_its_proof_as_well(scene: Scene) -> None:
    made = await scene.grant()
    token = bound_token(scene, grant_id=made.grant.grant_id, aud=SUPPORT.uri)
    scene.clock.now = NOW + timedelta(minutes=11)
    late = KEY.proof("GET", URL, token=token, iat=int(scene.clock.now.timestamp()))
    caller = await authenticate_caller(scene.world, presented(token, late), may_be_expired=True)
    assert isinstance(caller, Caller)
    assert caller.is_expired
    bare = await authenticate_caller(scene.world, presented(token, is_dpop=False), may_be_expired=True)
    assert bare == NOT_AS_BEARER


async def test_a_proof_that_does_not_hold_says_why(scene: Scene) -> None:
    token = bound_token(scene)
    refused = await authenticate_caller(scene.world, presented(token, proof_of("another token")))
    assert isinstance(refused, Denied)
    assert refused.reason is Reason.PROOF_INVALID
    assert "ath" in refused.detail


async def test_a_client_that_must_bind_its_tokens_is_not_proven_by_one_that_is_not(scene: Scene) -> None:
    async with scene.world.store.write() as tx:
        client = await tx.registry.client(PLANNER)
        assert client is not None
        await tx.registry.put_client(replace(client, dpop_required=True))
        await tx.commit()
    assert await authenticate_caller(scene.world, presented(a_token(scene), is_dpop=False)) == MUST_BE_BOUND
    token = bound_token(scene)
    assert isinstance(await authenticate_caller(scene.world, presented(token, proof_of(token))), Caller)


# --- what becomes of it -----------------------------------------------------------------------------------


async def test_a_proof_is_spent_once_by_whoever_is_first(scene: Scene) -> None:
    assert await spend_now(scene.world, ACME, a_possession("use_1")) is None
    assert await spend_now(scene.world, ACME, a_possession("use_2")) == REPLAYED
    assert await spend_now(scene.world, ACME, a_possession("use_2", jti="k")) is None


async def test_a_spent_proof_is_remembered_where_a_clock_is_behind(scene: Scene) -> None:
    possession = a_possession("use_1")
    assert await spend_now(scene.world, ACME, possession) is None
    scene.clock.now = possession.proof.expires_at + CLOCK_MARGIN - timedelta(seconds=1)
    assert await spend_now(scene.world, ACME, a_possession("use_2", jti="k")) is None
    assert await spend_now(scene.world, ACME, a_possession("use_3")) == REPLAYED


async def test_the_request_that_spent_a_proof_may_spend_it_again(scene: Scene) -> None:
    assert await spend_now(scene.world, ACME, a_possession("use_1")) is None
    async with scene.world.store.write() as tx:
        assert await spend(tx, scene.world, ACME, a_possession("use_1")) is None


async def test_a_request_without_a_proof_has_none_to_spend(scene: Scene) -> None:
    scene.store.fails_after = 0
    assert await spend_now(scene.world, ACME, None) is None


async def test_a_call_spends_its_proof_in_the_transaction_that_reserves(scene: Scene) -> None:
    made, possession = await scene.grant(), a_possession()
    caller = replace(caller_for(made), possession=possession)
    scene.store.fails_after = 2  # one that reserves, one that settles, and none for the proof
    assert isinstance(await forward_call(scene.world, caller, a_call()), Forwarded)
    assert possession.is_spent
    assert await is_spent(scene)


async def test_a_call_with_a_spent_proof_reaches_nothing_and_is_on_record(scene: Scene) -> None:
    made = await scene.grant()
    for use, expected in (("use_1", None), ("use_2", Reason.PROOF_INVALID)):
        caller = replace(caller_for(made), possession=a_possession(use))
        answer = await forward_call(scene.world, caller, a_call())
        assert (answer.reason if isinstance(answer, Denied) else None) is expected
    assert len(scene.tools.requests) == 1
    last = (await scene.records())[-1]
    assert (last["type"], last["reason"], last["clientId"]) == ("tool.denied", "proof_invalid", PLANNER)


async def test_a_call_that_is_tried_again_once_more_is_known_keeps_its_proof(scene: Scene) -> None:
    """A decision that lacks what only the tool server knows is made anew, by the same request."""
    made = await scene.grant()
    async with scene.world.store.write() as tx:
        server = await tx.registry.server(ACME, SUPPORT.server)
        assert server is not None
        await tx.registry.put_server(replace(server, transport=Transport.MCP))
        await tx.commit()
    caller = replace(caller_for(made), possession=a_possession())
    assert isinstance(await forward_call(scene.world, caller, a_call()), Forwarded)
    assert len(scene.tools.listings) == 1


async def test_a_denied_call_has_spent_its_proof(scene: Scene) -> None:
    made, possession = await scene.grant(), a_possession()
    caller = replace(caller_for(made), possession=possession)
    other = replace(a_call(), name=ToolName("no_such_tool"))
    assert isinstance(await forward_call(scene.world, caller, other), Denied)
    assert possession.is_spent
    assert await is_spent(scene)


async def test_a_call_that_ends_in_a_failure_leaves_its_proof_to_whoever_answers(scene: Scene) -> None:
    made = await scene.grant()
    await forward_call(scene.world, caller_for(made), a_call("k"))
    possession = a_possession()
    caller = replace(caller_for(made), possession=possession)
    with pytest.raises(IdempotencyConflict):
        await forward_call(scene.world, caller, a_call("k", customerId="another"))
    assert await spend_now(scene.world, ACME, possession) is None
    assert await is_spent(scene)


async def test_without_the_store_a_proof_is_neither_spent_nor_taken(scene: Scene) -> None:
    scene.store.fails_after, possession = 0, a_possession()
    with pytest.raises(StoreUnavailable):
        await spend_now(scene.world, ACME, possession)
    assert not possession.is_spent
