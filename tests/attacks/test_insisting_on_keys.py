"""Attacks with what is bound to no key though its client, or whoever it was handed to, must bind it (RFC 9449 §5.2)."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.api_client import ACCESS_TOKEN, Credentials, Json, made, refused
from tests.attacks.bound import CALLS, Bound
from tests.attacks.stage import Stage

pytestmark = pytest.mark.anyio


def as_bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def insist(stage: Stage, client: Credentials) -> None:
    made(await stage.api.admin_request("PATCH", f"/clients/{client.client_id}", json={"dpopRequired": True}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """A grant and a token for it, of a client that has to bind its own only since then."""

    stage: Stage
    client: Credentials
    grant: Json
    token: str


async def from_before(stage: Stage) -> Before:
    client = await stage.api.client(stage.tenant, f"{stage.tenant}-later")
    grant = await replace(stage, planner=client).grant()
    token = await stage.api.access_token(client, grant["grant"], narrowing={"mayRedelegate": True})
    own = made(await stage.api.introspect(client, token))["grant_id"]
    made(await stage.api.request("GET", f"/v1/grants/{own}", token))
    await insist(stage, client)
    return Before(stage=stage, client=client, grant=grant | {"own": own}, token=token)


@pytest.mark.parametrize("credential", ["grant", "token"])
async def test_whoever_finds_an_old_grant_or_token_hands_nothing_of_it_to_itself(stage: Stage, credential: str) -> None:
    before = await from_before(stage)
    thief = await stage.api.client(stage.tenant, f"{stage.tenant}-thief", kind="agent", scopes=["tools:call"])
    bearer, grant_id = {
        "grant": (before.grant["grant"], before.grant["grantId"]),
        "token": (before.token, before.grant["own"]),
    }[credential]
    tried = await stage.api.request("POST", f"/v1/grants/{grant_id}/derive", bearer, json={"holder": thief.client_id})
    assert refused(tried, 401) == "token_invalid"
    assert refused(await stage.api.request("POST", f"/v1/grants/{grant_id}/close", bearer, json={}), 401) == (
        "token_invalid"
    )
    for part in ("", "/tools", "/lineage"):
        read = await stage.api.request("GET", f"/v1/grants/{grant_id}{part}", bearer)
        assert refused(read, 401) == "token_invalid"
    untouched = await stage.api.request("GET", f"/v1/grants/{grant_id}", await stage.api.token(stage.auditor))
    assert made(untouched)["status"] == "active"


async def test_introspection_calls_an_old_token_inactive_and_not_the_grant_that_a_key_may_still_exchange(
    stage: Stage,
) -> None:
    before = await from_before(stage)
    for asker in (before.client, stage.auditor):
        assert (await stage.api.introspect(asker, before.token)).json() == {"active": False}
        assert (await stage.api.introspect(asker, before.grant["grant"])).json()["active"] is True
    bound = Bound(stage=replace(stage, planner=before.client))
    token = made(await bound.exchange(before.grant["grant"]))["access_token"]
    assert made(await stage.api.introspect(before.client, token))["token_type"] == "DPoP"


async def test_a_token_that_another_client_asked_for_is_bound_where_its_holder_must_bind_its_own(stage: Stage) -> None:
    agent = await stage.api.client(
        stage.tenant, f"{stage.tenant}-agent", kind="agent", scopes=["tools:call"], limits={}
    )
    actor: dict[str, Any] = {"actor_token": await stage.api.token(agent), "actor_token_type": ACCESS_TOKEN}
    bound, root = Bound(stage=stage), await stage.grant()
    token = made(await bound.exchange(root["grant"], prove=False, **actor))["access_token"]
    made(await bound.call(token, as_bearer(token)))
    keyed = made(await bound.exchange(root["grant"], **actor))["access_token"]
    await insist(stage, agent)
    assert refused(await bound.call(token, as_bearer(token)), 401) == "token_invalid"
    assert (await bound.mcp("tools/list", {}, as_bearer(token))).status_code == 401
    assert (await stage.api.introspect(stage.planner, token)).json() == {"active": False}
    assert bound.reached == 1
    made(await bound.call(keyed, bound.headers("POST", CALLS, keyed)))
    assert made(await stage.api.introspect(stage.planner, keyed))["active"] is True
