"""Attacks with another issuer's word for whom somebody acts, and who does."""

import asyncio

import pytest

from tests.api_client import Json, made, refused
from tests.attacks.house import ID_TOKEN, JWT, House, a_house
from tests.attacks.stage import OPEN, Stage
from tests.prover import Prover

pytestmark = pytest.mark.anyio


async def test_a_root_for_a_subject_is_held_by_the_party_that_its_token_names_and_no_other(stage: Stage) -> None:
    house = await a_house(stage)
    wish = {
        "audience": stage.support,
        "allowedTools": ["search"],
        "resourceConstraints": {"search": OPEN},
        "maxToolCalls": 1,
        "maxSpendCents": 1,
        "subjectToken": house.id_token(may_act={"sub": stage.planner.client_id}),
    }
    made(await stage.api.mint(stage.planner, **wish))
    # Who holds the grant is its actor: whom the token names would not even stand in `act`.
    tried = await stage.api.mint(stage.planner, **wish, holder=house.agent.client_id)
    assert refused(tried) == "actor_not_permitted"


async def a_pod(house: House) -> str:
    """A client that its workload's tokens prove."""
    pod: Json = {"clientId": f"{house.stage.tenant}-pod", "tenantId": house.stage.tenant, "kind": "agent"}
    pod |= {"authMethod": "private_key_jwt", "workload": {"issuer": "okta", "subject": "pod-7"}}
    return str(made(await house.stage.api.admin_request("POST", "/clients", json=pod))["clientId"])


async def test_whoever_catches_a_workloads_token_acts_with_it_no_second_time(stage: Stage) -> None:
    house = await a_house(stage)
    pod = await a_pod(house)
    await house.standing(mayRedelegate=True)
    caught = house.id_token(sub="pod-7")
    acting: Json = {"actor_token": caught, "actor_token_type": JWT, "subject_token_type": ID_TOKEN}
    asked = [stage.api.exchange(house.agent, house.id_token(), resource=stage.support, **acting) for _ in range(4)]
    won = [answer for answer in await asyncio.gather(*asked) if answer.is_success]
    assert len(won) == 1
    # Nor does it prove the client itself any more.
    form = {
        "grant_type": "client_credentials",
        "client_id": pod,
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": caught,
    }
    assert refused(await stage.api.http.post("/oauth/token", data=form), 401) == "invalid_client"
    made(await stage.api.http.post("/oauth/token", data=form | {"client_assertion": house.id_token(sub="pod-7")}))


async def test_to_name_the_key_of_a_bound_assertion_is_not_to_have_it(stage: Stage) -> None:
    house, key = await a_house(stage), Prover.ed25519()
    await house.standing()
    bound = house.assertion(cnf={"jkt": key.thumbprint})
    refused(await house.present(bound, dpop_jkt=key.thumbprint))
    refused(await house.present(bound))
