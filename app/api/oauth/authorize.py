"""The authorization endpoint (RFC 6749 §3.1, with PKCE, RFC 7636): where a person allows an application to act for it.

Two pages of plain HTML: sign in, then say yes or no to what is shown. Whoever asked is told by a redirect, and only
once it is certain that the redirect leads to it.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.api.caller import TheWorld
from app.api.description import form
from app.api.oauth.failures import OAuthError, refused
from app.api.oauth.form import Form, TheForm, read_form
from app.api.oauth.issued import scopes_of
from app.api.oauth.possession import key_for
from app.core.grant import ClientId
from app.usecases.authorize_app import (
    AppRequest,
    Consent,
    Misdirected,
    asking_app,
    code_for,
    offer_to,
    open_consent,
    open_request,
    scopes_to_ask_for,
    seal_consent,
    seal_request,
    shown,
    sign_in,
    withdraw,
)
from app.usecases.failures import Denied
from app.usecases.world import World

router = APIRouter()

CODE_CHALLENGE_METHODS: Final = ("S256",)
RESPONSE_TYPES: Final = ("code",)

_STATE: Final = re.compile(r"[\x20-\x7e]{0,2048}")
"""Visible ASCII and blanks (RFC 6749 appendix A.5)."""

_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
"""A SHA-256 in base64url (RFC 7636 §4.2)."""

_RESOURCE: Final = re.compile(r"[a-z][a-z0-9+.-]*:[^\s#]{1,480}")
"""An absolute URI without a fragment (RFC 8707 §2)."""

_PAGES: Final = Path(__file__).parent / "pages"
_STYLE: Final = (_PAGES / "style.css").read_text()
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_TEMPLATES: Final = Environment(loader=FileSystemLoader(_PAGES), autoescape=True, undefined=StrictUndefined)


@router.get(
    "/authorize",
    summary="Ask a person to let an application act for it",
    response_class=HTMLResponse,
    responses={
        303: {"description": "The request can't be granted: the application is told"},
        400: {"description": "A page that says what is wrong; nobody is sent anywhere"},
    },
)
async def ask(world: TheWorld, request: Request) -> Response:
    """RFC 6749 §4.1.1 with PKCE (S256 only), `resource` (RFC 8707) and `dpop_jkt` (RFC 9449 §10)."""
    try:
        parameters = read_form(request.scope["query_string"])
        app, redirect_uri = await asking_app(
            world, ClientId(parameters.need("client_id")), parameters.one("redirect_uri")
        )
    except OAuthError as error:
        return _refused_page(error.description)
    except Misdirected as error:
        return _refused_page(error.detail)
    state = parameters.one("state")
    try:
        resource = _resource(world, parameters)
        scopes = scopes_to_ask_for(app, resource, scopes_of(parameters))
        if isinstance(scopes, Denied):
            raise refused(scopes)
        asked = AppRequest(
            app=app.client_id,
            tenant_id=app.tenant_id,
            redirect_uri=redirect_uri,
            redirect_uri_given=parameters.one("redirect_uri") is not None,
            challenge=_challenge(parameters),
            scopes=scopes,
            resource=resource,
            state=_state(state),
            key_thumbprint=key_for(parameters),
        )
    except OAuthError as error:
        return _sent_back(world, redirect_uri, state, {"error": error.error, "error_description": error.description})
    return _sign_in_page(world, asked)


@router.post(
    "/authorize",
    summary="Sign in, then answer",
    response_class=HTMLResponse,
    responses={
        303: {"description": "Back to the application, with a code or an error"},
        "4XX": {"description": "What no page of ours sends: a page that says so, or OAuth's error"},
    },
    openapi_extra=form(
        request="from the page: what was asked for",
        person="who signs in",
        secret="of whoever signs in",
        consent="from the second page: what was asked for, and who signed in",
        answer="`allow` or `deny`",
    ),
)
async def answer(world: TheWorld, form: TheForm) -> Response:
    """The forms of the two pages. They hold what was asked for, sealed: nothing of it can be changed."""
    try:
        if form.one("consent") is None:
            return await _signed_in(world, open_request(world, form.need("request")), form)
        return await _answered(world, open_consent(world, form.need("consent")), form.need("answer"))
    except Misdirected as error:
        return _refused_page(error.detail)


async def _signed_in(world: World, asked: AppRequest, form: Form) -> Response:
    consent = await sign_in(world, asked, ClientId(form.need("person")), form.need("secret"))
    if consent is None:
        return _sign_in_page(world, asked, failed=True)
    if isinstance(consent, Denied):
        raise refused(consent)
    offer = await offer_to(world, consent)
    if isinstance(offer, Denied):
        return _denied(world, consent, offer)
    values = {"consent": consent, "offer": offer, "sealed": seal_consent(world, shown(consent, offer))}
    return _page("consent.html", f"Let {asked.app} act for you?", values, asked.redirect_uri)


async def _answered(world: World, consent: Consent, answered: str) -> Response:
    request = consent.request
    if answered != "allow":
        await withdraw(world, consent)
        detail = {"error": "access_denied", "error_description": "the person said no"}
        return _sent_back(world, request.redirect_uri, request.state, detail)
    offer = await offer_to(world, consent)
    if isinstance(offer, Denied):
        return _denied(world, consent, offer)
    if not offer.covers(consent):
        raise Misdirected("what could be allowed has changed: ask again")
    return _sent_back(world, request.redirect_uri, request.state, {"code": code_for(world, consent)})


def _denied(world: World, consent: Consent, denied: Denied) -> Response:
    detail = {"error": "access_denied", "error_description": denied.detail}
    return _sent_back(world, consent.request.redirect_uri, consent.request.state, detail)


# --- parameters -------------------------------------------------------------------------------------------


def _challenge(parameters: Form) -> str:
    if parameters.need("response_type") not in RESPONSE_TYPES:
        raise OAuthError("unsupported_response_type", "the response_type must be code")
    if parameters.one("authorization_details") is not None:
        raise OAuthError("invalid_authorization_details", "a narrowing comes with the code's redemption")
    if parameters.one("code_challenge_method") not in CODE_CHALLENGE_METHODS:
        raise OAuthError("invalid_request", "PKCE is needed, with the code_challenge_method S256")
    challenge = parameters.need("code_challenge")
    if not _CHALLENGE.fullmatch(challenge):
        raise OAuthError("invalid_request", "the code_challenge must be a SHA-256 in base64url")
    return challenge


def _resource(world: World, parameters: Form) -> str | None:
    """The one resource asked for; None for the API itself."""
    named = dict.fromkeys(parameters.all("resource"))
    if len(named) > 1:
        raise OAuthError("invalid_target", "a code is for exactly one resource")
    resource = next(iter(named), world.rules.issuer)
    if not _RESOURCE.fullmatch(resource):
        raise OAuthError("invalid_target", "a resource is an absolute URI without a fragment")
    return None if resource == world.rules.issuer else resource


def _state(state: str | None) -> str | None:
    if state is not None and not _STATE.fullmatch(state):
        raise OAuthError("invalid_request", "the state must be at most 2048 characters of visible ASCII and blanks")
    return state


# --- answers ----------------------------------------------------------------------------------------------


def _sent_back(world: World, redirect_uri: str, state: str | None, members: Mapping[str, str]) -> Response:
    """To the application, with our name beside the answer, so that no other server's can pass for it (RFC 9207)."""
    answer = {**members, **({} if state is None else {"state": state}), "iss": world.rules.issuer}
    separator = "&" if urlsplit(redirect_uri).query else "?"
    # 303: the browser never repeats the form, which holds a secret, to where it is sent (RFC 9700 §4.12).
    headers = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return RedirectResponse(f"{redirect_uri}{separator}{urlencode(answer)}", status_code=303, headers=headers)


def _sign_in_page(world: World, asked: AppRequest, *, failed: bool = False) -> Response:
    values = {"request": asked, "failed": failed, "sealed": seal_request(world, asked)}
    title = f"Sign in for {asked.app}"
    return _page("sign_in.html", title, values, asked.redirect_uri, status=401 if failed else 200)


def _refused_page(detail: str) -> Response:
    return _page("refused.html", "This request can't be answered", {"detail": detail}, None, status=400)


def _page(
    template: str, title: str, values: Mapping[str, object], redirect_uri: str | None, *, status: int = 200
) -> HTMLResponse:
    split = urlsplit(redirect_uri or "")
    origin = f"{split.scheme}://{split.netloc}" if split.netloc else f"{split.scheme}:"
    # Browsers hold a form's redirects to `form-action` as well.
    leads_to = "" if redirect_uri is None else f" {origin}"
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'{leads_to}; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Cache-Control": "no-store",
        "Content-Security-Policy": policy,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
    page = _TEMPLATES.get_template(template)
    html = page.render(title=title, style=_STYLE, destination=origin, action="authorize", **values)
    return HTMLResponse(html, status_code=status, headers=headers)
