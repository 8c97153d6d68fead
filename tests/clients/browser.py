"""A person in front of the pages of the authorization endpoint, who signs in and says yes; no page needs a script."""

import html
import re
from typing import NamedTuple
from urllib.parse import urljoin

import httpx


class Person(NamedTuple):
    """Who signs in, and with what."""

    client_id: str
    secret: str


async def allow(url: str, person: Person) -> str:
    """Where the browser is sent once the person has allowed what the application asks for at this address."""
    async with httpx.AsyncClient(trust_env=False) as browser:
        page = await browser.get(url)
        signed_in = await _submit(browser, page, "request", person=person.client_id, secret=person.secret)
        answered = await _submit(browser, signed_in, "consent", answer="allow")
    assert answered.status_code == 303, answered.text
    return str(answered.headers["location"])


async def _submit(browser: httpx.AsyncClient, page: httpx.Response, hidden: str, **fields: str) -> httpx.Response:
    """Send the page's form, with what it holds and what the person adds."""
    assert page.status_code == 200, page.text
    action = re.search(r'<form method="post" action="([^"]*)"', page.text)
    held = re.search(rf'name="{hidden}" value="([^"]*)"', page.text)
    assert action is not None, page.text
    assert held is not None, page.text
    where = urljoin(str(page.url), html.unescape(action[1]))
    return await browser.post(where, data={hidden: html.unescape(held[1]), **fields})
