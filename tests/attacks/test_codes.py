"""Attacks on what is used up: authorization codes, by whoever has one or the page that gives one."""

import asyncio
from datetime import datetime, timedelta

import pytest

from app.core.registry import PLATFORM_TENANT
from app.usecases.allowance import Allowance
from tests.api.test_authorize import ISSUER, PERSON, Browser, browser, change, sent_back, stand_behind
from tests.prover import Prover
from tests.samples import ACME

pytestmark = pytest.mark.anyio

__all__ = ["browser"]


async def another_is_spent(browser: Browser, now: datetime) -> None:
    """Some other token of the tenant, by a worker with this clock: it forgets what has expired by then."""
    async with browser.scene.world.store.write() as tx:
        await tx.spent.spend(ACME, "another", "another", expires_at=now + timedelta(hours=1), now=now)
        await tx.commit()


async def test_a_code_is_good_for_one_token_though_another_workers_clock_is_ahead(browser: Browser) -> None:
    code, asked_at = await browser.code(), browser.scene.clock.now
    assert (await browser.redeem(code)).is_success
    browser.scene.clock.now = asked_at + timedelta(seconds=50)
    await another_is_spent(browser, browser.scene.clock.now + timedelta(seconds=30))
    assert (await browser.redeem(code)).json().get("error") == "invalid_grant"


async def test_one_consent_is_good_for_one_token_however_late_it_is_sent_again(browser: Browser) -> None:
    page = await browser.sign_in(await browser.ask())
    assert (await browser.redeem(sent_back(await browser.answer(page))["code"])).is_success
    browser.scene.clock.now += timedelta(minutes=2)
    await another_is_spent(browser, browser.scene.clock.now)
    late = await browser.redeem(sent_back(await browser.answer(page))["code"])
    assert late.json().get("error") == "invalid_grant"


async def test_of_many_who_redeem_one_code_at_once_none_keeps_a_token(browser: Browser) -> None:
    code = await browser.code()
    answers = await asyncio.gather(*(browser.redeem(code) for _ in range(5)))
    (won,) = [answer for answer in answers if answer.is_success]
    token = browser.read(won.json()["access_token"])
    assert token.grant_id is not None
    async with browser.scene.world.store.read() as tx:
        assert (await tx.grants.chain(ACME, token.grant_id))[-1].closed_at is not None


async def test_whoever_only_knows_an_applications_name_writes_next_to_nothing(browser: Browser) -> None:
    prover, now = Prover.ed25519(), int(browser.scene.clock().timestamp())
    proof = prover.proof("POST", f"{ISSUER}/oauth/token", iat=now)
    before = browser.scene.store.writes
    for attempt in ({"grant_type": "client_credentials"}, {"grant_type": "another"}, {"code_verifier": "short"}):
        assert (await browser.redeem("x", proof=proof, **attempt)).is_client_error
    assert browser.scene.store.writes == before
    for _ in range(100):
        assert (await browser.redeem("x", proof=proof)).json()["error"] == "invalid_grant"
    assert browser.scene.store.writes <= before + Allowance().burst
    assert (await browser.redeem(await browser.code(), proof=proof)).json()["token_type"] == "DPoP"


async def test_a_refused_code_is_in_the_platforms_log_and_is_not_repeated(browser: Browser) -> None:
    code = await browser.code()
    assert (await browser.redeem(code, code_verifier="w" * 43)).json()["error"] == "invalid_grant"
    last = (await browser.scene.records(PLATFORM_TENANT))[-1]
    assert (last["type"], last["reason"]) == ("access.refused", "token_invalid")
    assert code not in str(last)


async def test_what_is_no_longer_as_it_was_shown_is_not_given(browser: Browser) -> None:
    page, code = await browser.sign_in(await browser.ask()), await browser.code()
    await change(browser.scene, PERSON, standing_grants={})
    await stand_behind(browser.scene, max_tool_calls=2)
    assert (await browser.answer(page)).status_code == 400
    assert (await browser.redeem(code)).json()["error"] == "invalid_grant"


@pytest.mark.parametrize("state", ["ü", "a\x7f", "a" * 2049])
async def test_a_state_that_is_none_is_refused(browser: Browser, state: str) -> None:
    assert sent_back(await browser.ask(state=state))["error"] == "invalid_request"


async def test_a_consent_that_was_denied_is_worth_nothing_however_it_is_answered_later(browser: Browser) -> None:
    page = await browser.sign_in(await browser.ask())
    early = sent_back(await browser.answer(page))["code"]
    assert sent_back(await browser.answer(page, "deny"))["error"] == "access_denied"
    for code in (early, sent_back(await browser.answer(page))["code"]):
        assert (await browser.redeem(code)).json()["error"] == "invalid_grant"
