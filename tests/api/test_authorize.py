"""Asking a person (RFC 6749 §4.1, RFC 7636): two pages, one code, one redemption, and whatever an attacker tries."""

import base64
import hashlib
import html
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from app.api import oauth
from app.core.attenuation import Ceiling
from app.core.budget import Amount
from app.core.grant import ClientId, GrantId
from app.core.registry import AuthMethod, Client, ClientKind, GrantType, Scope, Tenant
from app.ports import AccessToken
from app.usecases.authenticate_caller import api_caller
from app.usecases.failures import Denied
from app.usecases.make_standing_grant import make_standing_grant
from app.usecases.read_wish import NarrowingFields
from app.usecases.world import Caller
from tests.api.served import served
from tests.prover import Prover
from tests.samples import ACME, SEARCH, SUPPORT
from tests.usecases.worlds import Scene, a_scene

pytestmark = pytest.mark.anyio

ISSUER = "https://subgrant.example"
APP, PERSON = ClientId("inspector"), ClientId("alice")
SECRET = "what only alice knows"
CALLBACK, LOOPBACK = "https://app.example/callback", "http://127.0.0.1/callback"
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
ADMIN = Caller(client_id=ClientId("root"), tenant_id=ACME, scopes=frozenset({Scope.ADMIN}))

ASKED = {
    "response_type": "code",
    "client_id": APP,
    "redirect_uri": CALLBACK,
    "code_challenge": CHALLENGE,
    "code_challenge_method": "S256",
    "resource": SUPPORT.uri,
    "state": "xyz&<'\"",
}
"""A sound request; tests leave out or change what they are about."""


@dataclass
class Browser:
    """Somebody in front of the pages."""

    http: httpx.AsyncClient
    scene: Scene

    async def ask(self, **changes: str | None) -> httpx.Response:
        given = {name: value for name, value in {**ASKED, **changes}.items() if value is not None}
        return await self.http.get("/oauth/authorize", params=given)

    async def sign_in(self, page: httpx.Response, person: str = PERSON, secret: str = SECRET) -> httpx.Response:
        form = {"request": hidden(page, "request"), "person": person, "secret": secret}
        return await self.http.post("/oauth/authorize", data=form)

    async def answer(self, page: httpx.Response, answer: str = "allow") -> httpx.Response:
        return await self.http.post("/oauth/authorize", data={"consent": hidden(page, "consent"), "answer": answer})

    async def code(self, **changes: str | None) -> str:
        """The code of a request that is allowed."""
        return sent_back(await self.answer(await self.sign_in(await self.ask(**changes))))["code"]

    async def redeem(self, code: str, *, proof: str | None = None, **changes: str | None) -> httpx.Response:
        form: dict[str, str | None] = {
            "grant_type": "authorization_code",
            "client_id": APP,
            "code": code,
            "code_verifier": VERIFIER,
            "redirect_uri": CALLBACK,
            **changes,
        }
        given = {name: value for name, value in form.items() if value is not None}
        headers = {} if proof is None else {"DPoP": proof}
        return await self.http.post("/oauth/token", data=given, headers=headers)

    def read(self, token: str) -> AccessToken:
        return self.scene.world.signer.verify_access_token(token, self.scene.clock())


def hidden(page: httpx.Response, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page.text)
    assert found is not None, page.text
    return html.unescape(found[1])


def sent_back(response: httpx.Response, to: str = CALLBACK) -> dict[str, str]:
    """The parameters of the redirect to the application, which always names us (RFC 9207)."""
    assert response.status_code == 303, response.text
    split = urlsplit(response.headers["location"])
    assert split._replace(query="").geturl() == to
    found = {name: values[0] for name, values in parse_qs(split.query, strict_parsing=True).items()}
    assert found.pop("iss") == ISSUER
    return found


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    scene = await a_scene()
    await register(scene, an_app(), a_person(scene))
    await stand_behind(scene)
    async with served(scene.world, oauth) as client:
        yield Browser(client, scene)


async def stand_behind(scene: Scene, *, max_tool_calls: int = 7, may_redelegate: bool = True) -> None:
    """Give the person a standing grant for the support server."""
    fields = NarrowingFields(
        audience=(SUPPORT.uri,),
        allowed_tools=(SEARCH.tool,),
        resource_constraints={SEARCH.tool: {"*": {"any": True}}},
        max_tool_calls=max_tool_calls,
        max_spend_cents=50,
        expires_in_seconds=3600,
        may_redelegate=may_redelegate,
    )
    assert not isinstance(await make_standing_grant(scene.world, ADMIN, ACME, PERSON, fields), Denied)


async def register(scene: Scene, *clients: Client) -> None:
    async with scene.world.store.write() as tx:
        for client in clients:
            await tx.registry.put_client(client)
        await tx.commit()


async def change(scene: Scene, client_id: ClientId, **members: Any) -> None:  # noqa: ANN401  # of any member
    async with scene.world.store.read() as tx:
        client = await tx.registry.client(client_id)
    assert client is not None
    await register(scene, replace(client, **members))


def an_app() -> Client:
    return Client(
        client_id=APP,
        tenant_id=ACME,
        kind=ClientKind.APP,
        scopes=frozenset({Scope.GRANTS_READ, Scope.AUDIT_READ}),
        auth_method=AuthMethod.NONE,
        secret_hash="",
        grant_types=frozenset({GrantType.AUTHORIZATION_CODE}),
        redirect_uris=(CALLBACK, LOOPBACK, "com.example.app:/back"),
    )


def a_person(scene: Scene) -> Client:
    ceiling = Ceiling(
        audiences=frozenset({"*"}),
        allowed_tools=frozenset({"*"}),
        limit=Amount(tool_calls=10, spend_ucents=1_000_000),
        max_lifetime=timedelta(hours=2),
    )
    return Client(
        client_id=PERSON,
        tenant_id=ACME,
        kind=ClientKind.PERSON,
        scopes=frozenset({Scope.GRANTS_READ}),
        auth_method=AuthMethod.CLIENT_SECRET_BASIC,
        secret_hash=scene.world.vault.hash_secret(SECRET),
        ceiling=ceiling,
    )


# --- what a person sees and allows ------------------------------------------------------------------------


async def test_a_person_signs_in_sees_what_is_asked_and_allows_it(browser: Browser) -> None:
    first = await browser.ask()
    assert first.status_code == 200
    assert APP in first.text
    assert SUPPORT.uri in first.text
    second = await browser.sign_in(first)
    assert second.status_code == 200
    assert SEARCH.tool in second.text
    assert "7 calls" in second.text
    assert "50 cents" in second.text
    assert SECRET not in second.text
    answer = sent_back(await browser.answer(second))
    assert answer["state"] == ASKED["state"]
    assert answer.keys() == {"code", "state"}


async def test_the_code_gives_a_token_under_the_persons_standing_grant_with_the_application_as_actor(
    browser: Browser,
) -> None:
    response = await browser.redeem(await browser.code())
    document = response.json()
    assert response.status_code == 200, document
    assert response.headers["cache-control"] == "no-store"
    token = browser.read(document["access_token"])
    assert (token.audience, token.subject, token.client_id) == (SUPPORT.uri, PERSON, APP)
    assert token.scopes == {"tools:call"}
    act = token.claims["act"]
    assert isinstance(act, dict)
    assert act["sub"] == APP
    assert isinstance(act["act"], dict)
    assert act["act"]["sub"] == PERSON
    async with browser.scene.world.store.read() as tx:
        assert token.grant_id is not None
        lineage = await tx.grants.chain(ACME, token.grant_id)
        person = await tx.registry.client(PERSON)
    assert person is not None
    assert lineage[0].grant_id == person.standing_grants[SUPPORT.server]


async def test_without_a_resource_the_token_is_for_the_api_with_what_application_and_person_both_have(
    browser: Browser,
) -> None:
    document = (await browser.redeem(await browser.code(resource=None))).json()
    token = browser.read(document["access_token"])
    assert (token.audience, token.subject, token.client_id, token.grant_id) == (ISSUER, PERSON, APP, None)
    assert token.scopes == {"grants:read"}
    assert document["scope"] == "grants:read"


async def test_the_issuer_as_resource_means_the_api(browser: Browser) -> None:
    document = (await browser.redeem(await browser.code(resource=ISSUER), resource=ISSUER)).json()
    assert browser.read(document["access_token"]).audience == ISSUER


async def test_a_person_may_say_no(browser: Browser) -> None:
    answer = sent_back(await browser.answer(await browser.sign_in(await browser.ask()), "deny"))
    assert answer["error"] == "access_denied"
    assert "code" not in answer


async def test_a_person_without_a_standing_grant_has_nothing_to_allow(browser: Browser) -> None:
    await change(browser.scene, PERSON, standing_grants={})
    answer = sent_back(await browser.sign_in(await browser.ask()))
    assert answer["error"] == "access_denied"


async def test_a_person_is_not_asked_for_what_it_may_not_pass_on(browser: Browser) -> None:
    await change(browser.scene, PERSON, standing_grants={})
    await stand_behind(browser.scene, may_redelegate=False)
    answer = sent_back(await browser.sign_in(await browser.ask()))
    assert answer["error"] == "access_denied"
    assert "passed on" in answer["error_description"]


async def test_a_resource_that_does_not_exist_looks_like_one_that_the_person_may_not_use(browser: Browser) -> None:
    missing = sent_back(await browser.sign_in(await browser.ask(resource=f"{ISSUER}/mcp/no-such")))
    await change(browser.scene, PERSON, standing_grants={})
    assert missing == sent_back(await browser.sign_in(await browser.ask()))


async def test_a_standing_grant_that_is_closed_allows_nothing_more_even_with_a_code(browser: Browser) -> None:
    page = await browser.sign_in(await browser.ask())
    code = await browser.code()
    async with browser.scene.world.store.write() as tx:
        person = await tx.registry.client(PERSON)
        assert person is not None
        standing = GrantId(person.standing_grants[SUPPORT.server])
        await tx.grants.close(ACME, standing, reason="task_complete", at=browser.scene.clock())
        await tx.commit()
    assert sent_back(await browser.answer(page))["error"] == "access_denied"
    assert (await browser.redeem(code)).json()["error"] == "invalid_target"


# --- who asks, and where the answer goes ------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": "nobody"},
        {"client_id": None},
        {"client_id": PERSON},
        {"redirect_uri": "https://evil.example/callback"},
        {"redirect_uri": CALLBACK + "/"},
        {"redirect_uri": CALLBACK + "?x=1"},
        {"redirect_uri": "https://app.example:443/callback"},
        {"redirect_uri": "https://app.example.evil.example/callback"},
        {"redirect_uri": "https://app.example@evil.example/callback"},
        {"redirect_uri": "http://127.0.0.1:1@evil.example/callback"},
        {"redirect_uri": "http://127.0.0.1:x/callback"},
        {"redirect_uri": "http://127.0.0.1:80/other"},
        {"redirect_uri": "http://127.0.0.2:80/callback"},
        {"redirect_uri": None},
    ],
)
async def test_whoever_asks_from_nowhere_known_is_told_on_the_page_and_nothing_is_sent(
    browser: Browser, changes: dict[str, str | None]
) -> None:
    response = await browser.ask(**changes)
    assert response.status_code == 400
    assert "location" not in response.headers
    assert "evil" not in response.text
    assert "form-action 'self';" in response.headers["content-security-policy"]


async def test_an_application_on_the_persons_machine_may_listen_on_any_port(browser: Browser) -> None:
    there = "http://127.0.0.1:54321/callback"
    answer = await browser.answer(await browser.sign_in(await browser.ask(redirect_uri=there)))
    code = sent_back(answer, there)["code"]
    assert (await browser.redeem(code, redirect_uri=there)).status_code == 200


async def test_the_only_registered_redirect_uri_need_not_be_named(browser: Browser) -> None:
    await change(browser.scene, APP, redirect_uris=(CALLBACK,))
    code = await browser.code(redirect_uri=None)
    assert (await browser.redeem(code, redirect_uri=None)).status_code == 200


@pytest.mark.parametrize(
    "changes, error",
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": None}, "invalid_request"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"scope": "admin"}, "invalid_scope"),
        ({"scope": "tools:call", "resource": None}, "invalid_scope"),
        ({"resource": "support"}, "invalid_target"),
        ({"resource": SUPPORT.uri + "#part"}, "invalid_target"),
        ({"dpop_jkt": "none"}, "invalid_request"),
    ],
)
async def test_what_can_not_be_asked_goes_back_to_the_application_by_name(
    browser: Browser, changes: dict[str, str | None], error: str
) -> None:
    answer = sent_back(await browser.ask(**changes))
    assert answer["error"] == error
    assert answer["state"] == ASKED["state"]


async def test_a_repeated_parameter_is_refused_and_nothing_is_sent(browser: Browser) -> None:
    response = await browser.http.get("/oauth/authorize", params=[*ASKED.items(), ("state", "other")])
    assert response.status_code == 400
    assert "location" not in response.headers


async def test_two_resources_are_more_than_a_code_is_for(browser: Browser) -> None:
    response = await browser.http.get("/oauth/authorize", params=[*ASKED.items(), ("resource", ISSUER)])
    assert sent_back(response)["error"] == "invalid_target"


# --- the person -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("person, secret", [(PERSON, "wrong"), ("nobody", SECRET), (APP, ""), ("planner", SECRET)])
async def test_who_does_not_prove_to_be_a_person_sees_the_same_page_again(
    browser: Browser, person: str, secret: str
) -> None:
    response = await browser.sign_in(await browser.ask(), person, secret or "x")
    assert response.status_code == 401
    assert "do not belong together" in response.text
    assert (await browser.sign_in(response)).status_code == 200


async def test_a_person_of_another_tenant_can_not_sign_in(browser: Browser) -> None:
    async with browser.scene.world.store.write() as tx:
        await tx.registry.add_tenant(Tenant(tenant_id=ACME.__class__("other"), name="Other"))
        await tx.commit()
    await change(browser.scene, PERSON, tenant_id="other")
    assert (await browser.sign_in(await browser.ask())).status_code == 401


@pytest.mark.parametrize("who", [PERSON, APP])
async def test_disabling_either_side_ends_it_at_every_step(browser: Browser, who: ClientId) -> None:
    code, page = await browser.code(), await browser.sign_in(await browser.ask())
    await change(browser.scene, who, active=False)
    response = await browser.redeem(code)
    assert response.json()["error"] in ("invalid_grant", "invalid_client")
    answer = await browser.answer(page)
    if who == PERSON:
        assert sent_back(answer)["error"] == "access_denied"
    else:
        assert "code" not in parse_qs(urlsplit(answer.headers.get("location", "")).query)


# --- pages and forms --------------------------------------------------------------------------------------


async def test_pages_run_nothing_load_nothing_and_are_framed_and_kept_by_nobody(browser: Browser) -> None:
    for page in (await browser.ask(), await browser.ask(client_id="nobody")):
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        style = re.search(r"<style>(.*?)</style>", page.text, re.DOTALL)
        assert style is not None
        hashed = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
        assert f"style-src 'sha256-{hashed}'" in policy
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert "<script" not in page.text


async def test_what_a_request_says_of_itself_is_text_and_never_markup(browser: Browser) -> None:
    page = await browser.ask(resource="https://x.example/<script>alert(1)</script>")
    assert "<script>" not in page.text
    assert "&lt;script&gt;" in page.text


@pytest.mark.parametrize("damage", ["", "x", "A" * 20_000])
async def test_a_form_that_was_not_made_here_is_refused(browser: Browser, damage: str) -> None:
    for form in ({"request": damage, "person": PERSON, "secret": SECRET}, {"consent": damage, "answer": "allow"}):
        response = await browser.http.post("/oauth/authorize", data=form)
        assert response.status_code == 400


async def test_a_form_that_was_changed_or_is_of_another_step_is_refused(browser: Browser) -> None:
    first = await browser.ask()
    second = await browser.sign_in(first)
    request, consent, code = hidden(first, "request"), hidden(second, "consent"), await browser.code()
    for other in (request, code, consent[:-2] + ("AA" if consent[-2:] != "AA" else "BB")):
        response = await browser.http.post("/oauth/authorize", data={"consent": other, "answer": "allow"})
        assert response.status_code == 400
    for other in (request, consent):
        assert (await browser.redeem(other)).json()["error"] == "invalid_grant"


async def test_pages_expire(browser: Browser) -> None:
    first = await browser.ask()
    second = await browser.sign_in(first)
    browser.scene.clock.now += timedelta(minutes=10)
    assert (await browser.sign_in(first)).status_code == 400
    assert (await browser.answer(second)).status_code == 400


# --- the code ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, error",
    [
        ({"code": "x"}, "invalid_grant"),
        ({"code": None}, "invalid_request"),
        ({"code_verifier": None}, "invalid_request"),
        ({"code_verifier": "w" * 43}, "invalid_grant"),
        ({"code_verifier": CHALLENGE}, "invalid_grant"),
        ({"redirect_uri": LOOPBACK}, "invalid_grant"),
        ({"redirect_uri": None}, "invalid_grant"),
        ({"resource": ISSUER}, "invalid_target"),
    ],
)
async def test_a_code_is_worth_nothing_without_all_that_it_was_asked_with(
    browser: Browser, changes: dict[str, str | None], error: str
) -> None:
    code = await browser.code()
    given = {"code": code, **changes}
    assert (await browser.redeem(**given)).json()["error"] == error  # type: ignore[arg-type]  # some are left out
    assert (await browser.redeem(code)).status_code == 200


async def test_a_code_is_of_the_application_that_it_was_given_to(browser: Browser) -> None:
    await register(browser.scene, replace(an_app(), client_id=ClientId("thief")))
    assert (await browser.redeem(await browser.code(), client_id="thief")).json()["error"] == "invalid_grant"


async def test_a_code_expires_within_a_minute(browser: Browser) -> None:
    code = await browser.code()
    browser.scene.clock.now += timedelta(minutes=1)
    assert (await browser.redeem(code)).json()["error"] == "invalid_grant"


@pytest.mark.parametrize("resource", [SUPPORT.uri, None])
async def test_a_code_that_is_used_twice_takes_back_what_it_gave(browser: Browser, resource: str | None) -> None:
    code = await browser.code(resource=resource)
    token = browser.read((await browser.redeem(code)).json()["access_token"])
    assert (await browser.redeem(code)).json()["error"] == "invalid_grant"
    async with browser.scene.world.store.read() as tx:
        if token.grant_id is None:
            assert await tx.spent.is_spent(ACME, ISSUER, token.jti)
        else:
            assert (await tx.grants.chain(ACME, token.grant_id))[-1].closed_at is not None


async def test_two_codes_of_one_consent_are_good_for_one_token(browser: Browser) -> None:
    page = await browser.sign_in(await browser.ask())
    one, other = [sent_back(await browser.answer(page))["code"] for _ in range(2)]
    assert (await browser.redeem(one)).status_code == 200
    assert (await browser.redeem(other)).json()["error"] == "invalid_grant"


async def test_a_client_without_the_grant_type_redeems_nothing(browser: Browser) -> None:
    code = await browser.code()
    await change(browser.scene, APP, grant_types=frozenset({GrantType.TOKEN_EXCHANGE}))
    assert (await browser.redeem(code)).json()["error"] == "unauthorized_client"


# --- a person's token for the API -------------------------------------------------------------------------


async def test_a_token_that_a_person_allowed_for_the_api_acts_as_the_person(browser: Browser) -> None:
    token = browser.read((await browser.redeem(await browser.code(resource=None))).json()["access_token"])
    caller = await api_caller(browser.scene.world, token)
    assert isinstance(caller, Caller)
    assert (caller.client_id, caller.scopes) == (PERSON, frozenset({Scope.GRANTS_READ}))


@pytest.mark.parametrize("who", [PERSON, APP])
async def test_a_scope_taken_from_either_side_is_gone_from_the_token(browser: Browser, who: ClientId) -> None:
    token = browser.read((await browser.redeem(await browser.code(resource=None))).json()["access_token"])
    await change(browser.scene, who, scopes=frozenset())
    caller = await api_caller(browser.scene.world, token)
    assert isinstance(caller, Caller)
    assert caller.scopes == frozenset()


@pytest.mark.parametrize("who", [PERSON, APP])
async def test_the_token_ends_with_either_side(browser: Browser, who: ClientId) -> None:
    token = browser.read((await browser.redeem(await browser.code(resource=None))).json()["access_token"])
    await change(browser.scene, who, active=False)
    assert isinstance(await api_caller(browser.scene.world, token), Denied)


# --- keys -------------------------------------------------------------------------------------------------


async def test_a_code_for_a_key_is_redeemed_by_that_key_alone_and_so_is_its_token(browser: Browser) -> None:
    own, other = Prover.ed25519(), Prover.elliptic()
    code = await browser.code(dpop_jkt=own.thumbprint)
    url, now = f"{ISSUER}/oauth/token", browser.scene.clock()
    proofs = [prover.proof("POST", url, iat=int(now.timestamp())) for prover in (other, own)]
    for wrong in (None, proofs[0]):
        assert (await browser.redeem(code, proof=wrong)).json()["error"] == "invalid_grant"
    document = (await browser.redeem(code, proof=proofs[1])).json()
    assert document["token_type"] == "DPoP"
    assert browser.read(document["access_token"]).key_thumbprint == own.thumbprint
