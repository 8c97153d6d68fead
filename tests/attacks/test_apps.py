"""Attacks of an application that a person let act for it, and of whoever only knows the application's name."""

import base64
import hashlib
import html
import json
import re
import secrets
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.api_client import Credentials, Json, made, refused
from tests.attacks.stage import OPEN, Stage
from tests.prover import Prover

pytestmark = pytest.mark.anyio

CALLBACK: Final = "https://app.example/callback"
VERIFIER: Final = "v" * 43
CHALLENGE: Final = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
THUMBPRINT: Final = Prover.ed25519().thumbprint


@dataclass(frozen=True)
class Desk:
    """A person of the stage, and an application that asks it."""

    stage: Stage
    app: str
    person: Credentials

    async def standing(self) -> Json:
        """What stands behind the person's tokens for the support server. Nobody acts for it without redelegation."""
        body: Json = {
            "audience": self.stage.support,
            "allowedTools": ["search"],
            "resourceConstraints": {"search": OPEN},
            "maxToolCalls": 5,
            "maxSpendCents": 5,
            "mayRedelegate": True,
        }
        path = f"/clients/{self.person.client_id}/standing-grants"
        return made(await self.stage.api.admin_request("POST", path, json=body))

    async def asked(self, **parameters: str) -> dict[str, list[str]]:
        """What comes back to the application once the person has allowed all that it asked for."""
        http = self.stage.api.http
        given = {
            "response_type": "code",
            "client_id": self.app,
            "redirect_uri": CALLBACK,
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
        }
        page = await http.get("/oauth/authorize", params=given | parameters)
        if page.status_code == httpx.codes.OK:
            signing_in = {"request": hidden(page, "request"), "person": self.person.client_id}
            page = await http.post("/oauth/authorize", data=signing_in | {"secret": self.person.client_secret})
            page = await http.post("/oauth/authorize", data={"consent": hidden(page, "consent"), "answer": "allow"})
        return parse_qs(urlsplit(page.headers["location"]).query)

    async def change_person(self, **members: object) -> None:
        made(await self.stage.api.admin_request("PATCH", f"/clients/{self.person.client_id}", json=members))

    async def redeemed(self, code: str, **parameters: str) -> httpx.Response:
        form = {
            "grant_type": "authorization_code",
            "client_id": self.app,
            "code": code,
            "code_verifier": VERIFIER,
            "redirect_uri": CALLBACK,
        }
        return await self.stage.api.http.post("/oauth/token", data=form | parameters)

    async def token(self, **parameters: str) -> str:
        (code,) = (await self.asked(**parameters))["code"]
        return str(made(await self.redeemed(code))["access_token"])


def hidden(page: httpx.Response, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page.text)
    assert found is not None, page.text
    return html.unescape(found[1])


async def a_desk(stage: Stage, *scopes: str, kind: str = "person") -> Desk:
    """Application and person with the same scopes, so that the token has them all."""
    person = await stage.api.client(stage.tenant, f"{stage.tenant}-alice", kind=kind, scopes=scopes)
    app = await an_app(stage, *scopes, authMethod="none")
    return Desk(stage, app.client_id, person)


async def an_app(stage: Stage, *scopes: str, **members: object) -> Credentials:
    app = f"{stage.tenant}-app-{secrets.token_hex(4)}"
    body: Json = {"clientId": app, "tenantId": stage.tenant, "kind": "app", "redirectUris": [CALLBACK]}
    document = made(await stage.api.admin_request("POST", "/clients", json=body | {"scopes": [*scopes]} | members))
    return Credentials(app, document.get("clientSecret", ""))


async def a_lesser_administrator(stage: Stage) -> str:
    """The token of one that holds the scope admin and no other."""
    admin = await stage.api.client(stage.tenant, f"{stage.tenant}-lesser", kind="admin", scopes=["admin"])
    return await stage.api.token(admin)


# --- what a person's scopes are worth to it ---------------------------------------------------------------


@pytest.mark.parametrize("verb", ["derive", "close"])
async def test_leave_to_read_grants_is_no_leave_to_use_or_end_them(stage: Stage, verb: str) -> None:
    desk = await a_desk(stage, "grants:read")
    standing = await desk.standing()
    token = await desk.token()
    listed = made(await stage.api.request("GET", "/v1/grants", token))["items"]
    assert [grant["grantId"] for grant in listed] == [standing["grantId"]]
    tried = await stage.api.request("POST", f"/v1/grants/{standing['grantId']}/{verb}", token, json={})
    assert tried.status_code == 403, tried.text


async def test_what_an_app_was_given_by_its_person_ends_with_the_app(stage: Stage) -> None:
    desk = await a_desk(stage, "grants:read", "grants:issue")
    wish: Json = {"audience": stage.support, "allowedTools": ["search"], "resourceConstraints": {"search": OPEN}}
    token = await desk.token()
    body = wish | {"maxToolCalls": 1, "maxSpendCents": 1}
    minted = await stage.api.request("POST", "/v1/grants", token, json=body)
    if minted.is_success:
        made(await stage.api.admin_request("PATCH", f"/clients/{desk.app}", json={"status": "disabled"}))
        called = await stage.api.call(minted.json()["grant"], stage.support, "search", {"customerId": "c_42"})
        assert refused(called) == "grant_revoked"


async def test_what_an_app_does_in_a_persons_name_is_on_record_with_the_apps_own(stage: Stage) -> None:
    desk = await a_desk(stage, "admin", kind="admin")
    token, mole = await desk.token(), f"{stage.tenant}-mole"
    made(await stage.api.request("POST", "/v1/admin/clients", token, json={"clientId": mole, "kind": "agent"}))
    (record,) = [record for record in await stage.records() if record.get("resource") == f"client/{mole}"]
    assert desk.app in record.values()


async def test_that_an_app_got_a_token_for_the_api_is_on_record(stage: Stage) -> None:
    desk = await a_desk(stage, "grants:read")
    await desk.token()
    assert [record for record in await stage.records() if record.get("clientId") == desk.app]


async def test_what_an_app_may_ask_people_for_shows_it_nothing_by_itself(stage: Stage) -> None:
    app = await an_app(stage, "audit:read")
    token = await stage.token(await stage.open_grant("search"))
    assert (await stage.api.introspect(app, token)).json() == {"active": False}


async def test_what_a_person_was_not_shown_is_not_given(stage: Stage) -> None:
    person = await stage.api.client(stage.tenant, f"{stage.tenant}-alice", kind="person", scopes=["grants:read"])
    app = await an_app(stage, "grants:read", "audit:read", authMethod="none")
    desk = Desk(stage, app.client_id, person)
    (code,) = (await desk.asked())["code"]
    await desk.change_person(scopes=["grants:read", "audit:read"])
    assert made(await desk.redeemed(code))["scope"] == "grants:read"


async def test_a_person_whose_tokens_must_be_bound_to_a_key_gives_none_that_is_not(stage: Stage) -> None:
    desk = await a_desk(stage, "grants:read")
    await desk.change_person(dpopRequired=True)
    (code,) = (await desk.asked()).get("code", ["none"])
    redeemed = await desk.redeemed(code)
    if redeemed.is_success:
        listed = await stage.api.request("GET", "/v1/grants", redeemed.json()["access_token"])
        assert listed.status_code == 401, listed.text


# --- who may change an app --------------------------------------------------------------------------------


async def test_nobody_makes_an_app_hold_by_itself_what_it_could_only_ask_for(stage: Stage) -> None:
    app = await an_app(stage, "audit:read", "grants:issue")
    change: Json = {"kind": "auditor", "grantTypes": ["client_credentials"], "redirectUris": []}
    token = await a_lesser_administrator(stage)
    tried = await stage.api.request("PATCH", f"/v1/admin/clients/{app.client_id}", token, json=change)
    assert refused(tried) == "insufficient_scope"


async def test_nobody_sends_the_codes_of_an_app_elsewhere_that_may_ask_for_more(stage: Stage) -> None:
    # Where its codes go is all that proves an application without a secret.
    app = await an_app(stage, "audit:read", authMethod="none")
    change: Json = {"redirectUris": ["https://evil.example/callback"]}
    token = await a_lesser_administrator(stage)
    tried = await stage.api.request("PATCH", f"/v1/admin/clients/{app.client_id}", token, json=change)
    assert refused(tried) == "insufficient_scope"


# --- what a code is redeemed for --------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["api", "tool server"])
async def test_a_key_that_is_named_with_a_code_is_not_ignored(stage: Stage, target: str) -> None:
    desk = await a_desk(stage, "grants:read")
    await desk.standing()
    asked = {"resource": stage.support} if target == "tool server" else {}
    (code,) = (await desk.asked(**asked))["code"]
    redeemed = await desk.redeemed(code, dpop_jkt=THUMBPRINT)
    assert redeemed.json().get("token_type") != "Bearer", redeemed.text


@pytest.mark.parametrize("step", ["asking", "redeeming"])
async def test_a_narrowing_that_comes_with_a_code_is_not_ignored(stage: Stage, step: str) -> None:
    desk = await a_desk(stage, "grants:read")
    await desk.standing()
    details = {"authorization_details": json.dumps([{"type": "delegation", "maxToolCalls": 1}])}
    answer = await desk.asked(resource=stage.support, **(details if step == "asking" else {}))
    if "error" in answer:
        return
    redeemed = await desk.redeemed(answer["code"][0], **(details if step == "redeeming" else {}))
    if redeemed.is_success:
        assert redeemed.json()["authorization_details"][0]["maxToolCalls"] == 1


# --- and what a client's own token is worth ---------------------------------------------------------------


@pytest.mark.parametrize("verb, body", [("derive", {}), ("close", {"reason": "cancelled"})])
async def test_a_token_that_was_narrowed_to_reading_only_reads(stage: Stage, verb: str, body: Json) -> None:
    grant = await stage.open_grant("search")
    token = await stage.api.token(stage.planner, scope="grants:read")
    tried = await stage.api.request("POST", f"/v1/grants/{grant['grantId']}/{verb}", token, json=body)
    assert refused(tried, 403) == "insufficient_scope"
    assert (await stage.api.grant(stage.planner, grant["grantId"]))["status"] == "active"


async def test_a_client_without_scopes_acts_with_what_it_holds(stage: Stage) -> None:
    agent = await stage.api.client(stage.tenant, f"{stage.tenant}-agent", kind="agent", scopes=[])
    grant = await stage.open_grant("search", holder=agent.client_id)
    below = made(await stage.api.derive(agent, grant["grantId"]))
    assert made(await stage.api.close(agent, below["grantId"]))["status"] == "closed"
