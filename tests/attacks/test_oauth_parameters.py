"""The OAuth endpoints' forms and client authentication in every spelling that two readers might read differently.

RFC 6749 §2.3.1, §3.2 and §5.2, RFC 7009 §2.1, RFC 7662 §2.1. Bodies are written byte by byte: a library that encodes
forms would mend what is wrong with them. Which store is behind makes no difference to a form.
"""

import base64
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus, urlencode

import httpx
import pytest

from tests.api_client import ACCESS_TOKEN, DELEGATION_GRANT, TOKEN_EXCHANGE, Api, Credentials, Json, made, proposal
from tests.attacks.stage import Stage, set_stage
from tests.server_process import ServerProcess, sqlite_url
from tests.tool_server import ToolServer

pytestmark = pytest.mark.anyio

FORM: Final = "application/x-www-form-urlencoded"
ENDPOINTS: Final = ("/oauth/token", "/oauth/introspect", "/oauth/revoke")
MEGABYTE: Final = 2**20


@pytest.fixture(scope="module")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return sqlite_url(Path(tmp_path_factory.mktemp("parameters")))


@pytest.fixture(scope="module")
async def stage(server: ServerProcess, tool_server: ToolServer) -> AsyncIterator[Stage]:
    """One for all: what is wrong with a form changes nothing, which the last of the tests would notice."""
    async with Api(server.url) as api:
        yield await set_stage(api, tool_server)


@pytest.fixture(scope="module")
async def actor_token(stage: Stage) -> str:
    agent = await stage.api.client(stage.tenant, f"{stage.tenant}-agent", kind="agent", scopes=["grants:read"])
    return await stage.api.token(agent)


@pytest.fixture(scope="module")
async def form(stage: Stage, actor_token: str) -> Mapping[str, str]:
    """A good exchange with every parameter that it may have, but for client_secret."""
    return {
        "grant_type": TOKEN_EXCHANGE,
        "subject_token": (await stage.grant())["grant"],
        "subject_token_type": DELEGATION_GRANT,
        "actor_token": actor_token,
        "actor_token_type": ACCESS_TOKEN,
        "resource": stage.support,
        "audience": stage.support,
        "requested_token_type": ACCESS_TOKEN,
        "scope": "tools:call",
        "authorization_details": json.dumps([{"type": "delegation", "maxToolCalls": 1}]),
        "client_id": stage.planner.client_id,
    }


def basic(client_id: str, secret: str) -> str:
    """The header's value for an id and a secret that are sent as they are, form-encoded or not."""
    return "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()


def proof_of(client: Credentials) -> str:
    return basic(quote_plus(client.client_id), quote_plus(client.client_secret))


async def post(
    stage: Stage,
    path: str,
    body: bytes | str,
    *,
    content_type: str | None = FORM,
    authorization: str | None = None,
    client: Credentials | None = None,
) -> httpx.Response:
    """A body as it is, as the planner unless told otherwise."""
    content = body.encode() if isinstance(body, str) else body
    headers = {} if content_type is None else {"Content-Type": content_type}
    headers["Authorization"] = authorization or proof_of(client or stage.planner)
    return await stage.api.http.post(path, content=content, headers=headers)


def error_of(response: httpx.Response, status: int = 400) -> str:
    """OAuth's error, in OAuth's shape and never cached."""
    assert response.status_code == status, f"{response.status_code} {response.text}"
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    document: Json = response.json()
    assert isinstance(document["error_description"], str)
    return str(document["error"])


# --- said twice, said empty, never heard of ------------------------------------------------------------------

ONCE: Final = (
    "grant_type",
    "subject_token",
    "subject_token_type",
    "actor_token",
    "actor_token_type",
    "requested_token_type",
    "scope",
    "authorization_details",
    "client_id",
    "client_secret",
    "of_no_meaning",
)


@pytest.mark.parametrize("name", ONCE)
async def test_a_parameter_said_twice_is_refused_whatever_it_says(
    stage: Stage, form: Mapping[str, str], name: str
) -> None:
    before = (await stage.records())[-1]["seq"]
    twice = [(name, form.get(name, "a")), (name, form.get(name, "a"))]
    rest = [pair for pair in form.items() if pair[0] != name]
    spellings = {
        "the same twice": urlencode([*rest, *twice]),
        "another value later": urlencode([*rest, twice[0], (name, "other")]),
        "another value before": urlencode([(name, "other"), *rest, twice[0]]),
        "an empty value later": urlencode([*rest, twice[0], (name, "")]),
        "an empty value before": urlencode([(name, ""), *rest, twice[0]]),
        "a name that is spelt otherwise": urlencode([*rest, twice[0]]) + f"&{name[:-1]}%{ord(name[-1]):02x}=other",
    }
    for how, body in spellings.items():
        assert error_of(await post(stage, "/oauth/token", body)) == "invalid_request", how
    assert (await stage.records())[-1]["seq"] == before


@pytest.mark.parametrize("name", ["resource", "audience"])
async def test_a_target_may_be_said_twice_and_every_one_of_them_counts(
    stage: Stage, form: Mapping[str, str], name: str
) -> None:
    said = [pair for pair in form.items() if pair[0] not in {"resource", "audience"}]
    made(await post(stage, "/oauth/token", urlencode([*said, (name, stage.support), (name, stage.support)])))
    both = urlencode([*said, (name, stage.support), (name, stage.billing)])
    assert error_of(await post(stage, "/oauth/token", both)) == "invalid_target"
    empty = urlencode([*said, (name, stage.support), (name, "")])
    assert made(await post(stage, "/oauth/token", empty))["access_token"]


async def test_resource_and_audience_are_both_heard_when_they_differ(stage: Stage, form: Mapping[str, str]) -> None:
    odd = dict(form) | {"audience": stage.billing}
    assert error_of(await post(stage, "/oauth/token", urlencode(odd))) == "invalid_target"


@pytest.mark.parametrize("endpoint", ["/oauth/introspect", "/oauth/revoke"])
@pytest.mark.parametrize("name", ["token", "token_type_hint", "client_id", "of_no_meaning"])
async def test_a_parameter_said_twice_is_refused_where_tokens_are_looked_at(
    stage: Stage, endpoint: str, name: str
) -> None:
    token = await stage.token(await stage.grant())
    body = urlencode([("token", token), (name, "other"), (name, "other")])
    assert error_of(await post(stage, endpoint, body)) == "invalid_request"
    assert (await stage.api.introspect(stage.planner, token)).json()["active"]


@pytest.mark.parametrize("name", ["actor_token", "resource", "audience", "requested_token_type", "scope"])
async def test_an_empty_parameter_counts_as_left_out(stage: Stage, form: Mapping[str, str], name: str) -> None:
    odd = dict(form) | {name: ""}
    odd |= {"actor_token_type": ""} if name == "actor_token" else {}
    assert made(await post(stage, "/oauth/token", urlencode(odd)))["issued_token_type"] == ACCESS_TOKEN


async def test_an_empty_narrowing_is_none_and_an_empty_secret_is_no_second_proof(
    stage: Stage, form: Mapping[str, str]
) -> None:
    odd = dict(form) | {"authorization_details": "", "client_secret": ""}
    granted = made(await post(stage, "/oauth/token", urlencode(odd)))["authorization_details"][0]
    assert granted["maxToolCalls"] == 5


@pytest.mark.parametrize("name", ["grant_type", "subject_token", "subject_token_type"])
async def test_an_empty_parameter_that_is_needed_is_missing(stage: Stage, form: Mapping[str, str], name: str) -> None:
    odd = dict(form) | {name: ""}
    assert error_of(await post(stage, "/oauth/token", urlencode(odd))) == "invalid_request"


@pytest.mark.parametrize("name", ["actor_token", "actor_token_type"])
async def test_an_actors_token_and_its_type_come_together_or_not_at_all(
    stage: Stage, form: Mapping[str, str], name: str
) -> None:
    odd = dict(form) | {name: ""}
    assert error_of(await post(stage, "/oauth/token", urlencode(odd))) == "invalid_request"
    del odd[name]
    assert error_of(await post(stage, "/oauth/token", urlencode(odd))) == "invalid_request"


@pytest.mark.parametrize("endpoint", ["/oauth/introspect", "/oauth/revoke"])
async def test_an_empty_token_is_a_missing_one(stage: Stage, endpoint: str) -> None:
    for body in ("", "token=", "token_type_hint=access_token", "token=&token_type_hint="):
        assert error_of(await post(stage, endpoint, body)) == "invalid_request"


@pytest.mark.parametrize(
    "name", ["of_no_meaning", "SUBJECT_TOKEN", "subject_token[]", "act", "may_act", "sub", "exp", "__proto__", "\u212a"]
)
async def test_an_unknown_parameter_is_ignored_and_changes_nothing(
    stage: Stage, form: Mapping[str, str], name: str
) -> None:
    plain = made(await post(stage, "/oauth/token", urlencode(form)))["authorization_details"][0]
    odd = made(await post(stage, "/oauth/token", urlencode(dict(form) | {name: '{"sub":"mallory"}'})))
    detail = odd["authorization_details"][0]
    of_its_own = {"grantId", "childRunId", "issuedAt", "notBefore", "expiresAt"}
    assert {k: v for k, v in detail.items() if k not in of_its_own} == {
        k: v for k, v in plain.items() if k not in of_its_own
    }


@pytest.mark.parametrize("hint", ["access_token", "refresh_token", "urn:x", "\u0000", "x" * 1000, ""])
async def test_a_hint_that_is_wrong_still_finds_the_token(stage: Stage, hint: str) -> None:
    for token in (await stage.token(await stage.grant()), (await stage.grant())["grant"]):
        body = urlencode({"token": token, "token_type_hint": hint})
        assert made(await post(stage, "/oauth/introspect", body))["active"]
        assert (await post(stage, "/oauth/revoke", body)).status_code == 200
        assert made(await post(stage, "/oauth/introspect", body)) == {"active": False}


# --- almost the right word ----------------------------------------------------------------------------------

ALMOST: Final = (" {}", "{} ", "{}\t", "{}\n", "{}\r\n", "{}\0", "{}#", "{};", "{},", "\ufeff{}", "{}\u200b", "{}%20")


@pytest.mark.parametrize("grant_type", ["client_credentials", TOKEN_EXCHANGE])
async def test_a_grant_type_is_exactly_that(stage: Stage, grant_type: str) -> None:
    odd = [*(almost.format(grant_type) for almost in ALMOST), grant_type.upper(), grant_type.title()]
    for spelling in odd:
        body = urlencode({"grant_type": spelling})
        assert error_of(await post(stage, "/oauth/token", body)) == "unsupported_grant_type", repr(spelling)


@pytest.mark.parametrize("name", ["subject_token_type", "actor_token_type", "requested_token_type"])
async def test_a_token_type_is_exactly_that(stage: Stage, form: Mapping[str, str], name: str) -> None:
    odd = [*(almost.format(form[name]) for almost in ALMOST), form[name].upper(), "access_token", "*"]
    for spelling in odd:
        response = await post(stage, "/oauth/token", urlencode(dict(form) | {name: spelling}))
        assert error_of(response) == "invalid_request", repr(spelling)


SCOPES: Final[Mapping[str, str]] = {
    "a scope that the client lacks": "admin",
    "one of two": "grants:issue+admin",
    "another case": "GRANTS:ISSUE",
    "a tab between": "grants:issue%09grants:read",
    "a comma between": "grants:issue,grants:read",
    "a line break between": "grants:issue%0Agrants:read",
    "two spaces between": "grants:issue++grants:read",
    "a space in front": "+grants:issue",
    "a space alone": "+",
    "a plus that is one": "grants:issue%2Bgrants:read",
    "a NUL": "grants:issue%00",
    "a star": "*",
    "quotes": "%22grants:issue%22",
    "an encoding twice": "grants%253Aissue",
    "an encoding that is none": "grants%zzissue",
}


@pytest.mark.parametrize("what", SCOPES)
async def test_a_scope_that_is_not_the_clients_or_no_scope_at_all_is_refused(stage: Stage, what: str) -> None:
    body = f"grant_type=client_credentials&scope={SCOPES[what]}"
    assert error_of(await post(stage, "/oauth/token", body)) == "invalid_scope"


@pytest.mark.parametrize("space", ["+", "%20"])
async def test_a_space_has_two_spellings(stage: Stage, space: str) -> None:
    body = f"grant_type=client_credentials&scope=grants:issue{space}grants%3Aread"
    assert made(await post(stage, "/oauth/token", body))["scope"] == "grants:issue grants:read"


TARGETS: Final = (
    "support",
    "/mcp/support",
    "//127.0.0.1/mcp/support",
    "urn:x",
    "{}#",
    "{}#x",
    "{}?",
    "{}?x=1",
    "{}/",
    "{}/../billing",
    "{}%2F",
    "{}\0",
    "{} ",
    " {}",
    "{}\r\nX: y",
    "http://[::1",
    "javascript:alert(1)",
    "*",
)


@pytest.mark.parametrize("target", TARGETS)
async def test_a_target_that_is_not_the_grants_is_refused_as_a_target(
    stage: Stage, form: Mapping[str, str], target: str
) -> None:
    odd = dict(form) | {"resource": target.format(stage.support), "audience": ""}
    assert error_of(await post(stage, "/oauth/token", urlencode(odd))) == "invalid_target"


DETAILS: Final[Mapping[str, str]] = {
    "no JSON": "delegation",
    "an object": '{"type":"delegation"}',
    "null": "null",
    "a list of null": "[null]",
    "no type": '[{"maxToolCalls":1}]',
    "another type": '[{"type":"Delegation"}]',
    "a type that is no string": '[{"type":["delegation"]}]',
    "two of them": '[{"type":"delegation"},{"type":"delegation"}]',
    "an unknown field": '[{"type":"delegation","act":{"sub":"mallory"}}]',
    "a field said twice": '[{"type":"delegation","maxToolCalls":1,"maxToolCalls":5}]',
    "a field by another case": '[{"type":"delegation","MaxToolCalls":1}]',
    "NaN": '[{"type":"delegation","maxSpendCents":NaN}]',
    "a byte order mark": '\ufeff[{"type":"delegation"}]',
    "something after it": '[{"type":"delegation"}]]',
    "a NUL after it": '[{"type":"delegation"}]\0',
    "ten thousand levels": "[" * 10_000,
    "a lone surrogate": '[{"type":"delegation","childRunId":"\\ud800"}]',
}


@pytest.mark.parametrize("what", DETAILS)
async def test_authorization_details_that_are_not_what_they_should_be_are_refused_as_such(
    stage: Stage, form: Mapping[str, str], what: str
) -> None:
    odd = dict(form) | {"authorization_details": DETAILS[what]}
    assert error_of(await post(stage, "/oauth/token", urlencode(odd))) == "invalid_authorization_details"


# --- bodies that are no forms -------------------------------------------------------------------------------

CREDENTIALS_FORM: Final = "grant_type=client_credentials"
BODIES: Final[Mapping[str, tuple[bytes, str | None]]] = {
    "JSON": (b'{"grant_type": "client_credentials"}', "application/json"),
    "JSON that says it is a form": (b'{"grant_type": "client_credentials"}', FORM),
    "a form that says it is JSON": (CREDENTIALS_FORM.encode(), "application/json"),
    "a form that says it is text": (CREDENTIALS_FORM.encode(), "text/plain"),
    "a form that does not say what it is": (CREDENTIALS_FORM.encode(), None),
    "a form of an empty type": (CREDENTIALS_FORM.encode(), ""),
    "a form of two types": (CREDENTIALS_FORM.encode(), f"text/plain, {FORM}"),
    "a multipart form": (
        b'--b\r\nContent-Disposition: form-data; name="grant_type"\r\n\r\nclient_credentials\r\n--b--\r\n',
        "multipart/form-data; boundary=b",
    ),
    "UTF-16 with its mark": (CREDENTIALS_FORM.encode("utf-16"), f"{FORM}; charset=utf-16"),
    "UTF-16 without": (CREDENTIALS_FORM.encode("utf-16-le"), f"{FORM}; charset=utf-16le"),
    "UTF-32": (CREDENTIALS_FORM.encode("utf-32"), f"{FORM}; charset=utf-32"),
    "EBCDIC": (CREDENTIALS_FORM.encode("cp500"), f"{FORM}; charset=ibm500"),
    "UTF-7": (CREDENTIALS_FORM.replace("=", "+AD0-").encode(), f"{FORM}; charset=utf-7"),
    "a byte order mark": (b"\xef\xbb\xbf" + CREDENTIALS_FORM.encode(), FORM),
    "bytes beyond ASCII": (CREDENTIALS_FORM.encode() + b"&x=\xc3\xa9", FORM),
    "no UTF-8 beneath the percent": (CREDENTIALS_FORM.encode() + b"&x=%ff", FORM),
    "half a character": (CREDENTIALS_FORM.encode() + b"&x=%c3", FORM),
    "an overlong slash": (CREDENTIALS_FORM.encode() + b"&x=%c0%af", FORM),
    "a surrogate": (CREDENTIALS_FORM.encode() + b"&x=%ed%a0%80", FORM),
    "a name without a value": (CREDENTIALS_FORM.encode() + b"&x", FORM),
    "an ampersand too many": (CREDENTIALS_FORM.encode() + b"&", FORM),
    "semicolons": (b"x=1;grant_type=client_credentials", FORM),
    "ten thousand parameters": (b"&".join(b"p%d=1" % n for n in range(10_000)), FORM),
    "ten thousand of the same": (b"&".join([b"resource=urn:x"] * 10_000), FORM),
    "nothing but ampersands": (b"&" * 10_000, FORM),
    "nothing": (b"", FORM),
    "a NUL": (b"\0", FORM),
    "compressed": (b"\x1f\x8b\x08\x00", FORM),
}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("what", BODIES)
async def test_a_body_that_is_no_form_is_refused_in_oauths_words(stage: Stage, endpoint: str, what: str) -> None:
    body, content_type = BODIES[what]
    assert error_of(await post(stage, endpoint, body, content_type=content_type)) == "invalid_request"


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_a_body_of_a_megabyte_is_refused_in_oauths_words(stage: Stage, endpoint: str) -> None:
    body = f"{CREDENTIALS_FORM}&token={'x' * MEGABYTE}"
    assert error_of(await post(stage, endpoint, body), 413) == "invalid_request"


@pytest.mark.parametrize("parameter", ["charset=utf-8", "charset=utf-16", "charset=ibm500", "charset=", "x"])
async def test_a_charset_changes_nothing_since_forms_have_none(
    stage: Stage, form: Mapping[str, str], parameter: str
) -> None:
    """WHATWG URL §5.1: the bytes of a form are read in one way, whatever its type claims."""
    response = await post(stage, "/oauth/token", CREDENTIALS_FORM, content_type=f"{FORM}; {parameter}")
    assert made(response)["token_type"] == "Bearer"


async def test_nothing_is_read_from_the_query(stage: Stage) -> None:
    """RFC 6749 §2.3.1: credentials are never in the URI, and nothing else of a token request is."""
    query = urlencode({"grant_type": "client_credentials", "client_id": "x", "client_secret": "y"})
    assert error_of(await post(stage, f"/oauth/token?{query}", "")) == "invalid_request"
    secret = urlencode({"client_id": stage.planner.client_id, "client_secret": stage.planner.client_secret})
    response = await stage.api.http.post(f"/oauth/token?{secret}", data={"grant_type": "client_credentials"})
    assert error_of(response, 401) == "invalid_client"
    token = await stage.token(await stage.grant())
    assert error_of(await post(stage, f"/oauth/revoke?token={token}", "")) == "invalid_request"
    assert (await stage.api.introspect(stage.planner, token)).json()["active"]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
async def test_the_endpoints_are_posted_to(stage: Stage, endpoint: str, method: str) -> None:
    response = await stage.api.http.request(method, endpoint, headers={"Authorization": proof_of(stage.planner)})
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


# --- who is asking ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a:b", "a:b:c", "a@b", "a/b", "a.b-c_d", ":x", "a::"])
async def test_an_id_is_decoded_once_and_a_colon_in_it_is_its_own(stage: Stage, name: str) -> None:
    client = await stage.api.client(stage.tenant, f"{stage.tenant}{name}")
    assert made(await post(stage, "/oauth/token", CREDENTIALS_FORM, client=client))["access_token"]
    if ":" not in name:
        return
    bare = await post(stage, "/oauth/token", CREDENTIALS_FORM, authorization=basic(*client))
    assert error_of(bare, 401) == "invalid_client"


async def test_an_id_and_a_secret_are_decoded_and_not_twice(stage: Stage) -> None:
    client_id, secret = (quote_plus(part) for part in stage.api.admin)
    admin = {
        "as the RFC has it": (basic(client_id, secret), True),
        "spaces as %20": (basic(client_id, quote(stage.api.admin.client_secret, safe="")), True),
        "every byte encoded": (basic("".join(f"%{byte:02X}" for byte in client_id.encode()), secret), True),
        "the scheme in lower case": (basic(client_id, secret).replace("Basic", "basic"), True),
        "encoded twice": (basic(client_id, quote_plus(secret)), False),
        "with a space": (basic(client_id, f"{secret}+"), False),
        "with a NUL": (basic(client_id, f"{secret}%00"), False),
        "with an invalid byte": (basic(client_id, f"{secret}%ff"), False),
    }
    for how, (authorization, is_right) in admin.items():
        response = await post(stage, "/oauth/token", CREDENTIALS_FORM, authorization=authorization)
        assert response.is_success == is_right, how
        assert is_right or error_of(response, 401) == "invalid_client", how


UNPROVEN: Final[Mapping[str, str]] = {
    "no id": basic("", "secret"),
    "no secret": basic("platform-admin", ""),
    "neither": basic("", ""),
    "no colon": "Basic " + base64.b64encode(b"platform-admin").decode(),
    "the scheme alone": "Basic",
    "no base64": "Basic !!!!",
    "half of base64": "Basic YTp",
    "UTF-8 that is none": "Basic " + base64.b64encode(b"\xff\xfe:x").decode(),
    "UTF-8": basic("pl\u00e4tform", "s\u00e9cret"),
    "a NUL": basic("platform-admin\0", "x"),
    "a NUL beneath the percent": basic("platform-admin%00", "x"),
    "no UTF-8 beneath the percent": basic("%ff%fe", "%ff"),
    "a line break": basic("platform-admin\r\nX-Injected: 1", "x"),
    "SQL": basic(quote_plus("' OR 1=1 --"), "x"),
    "an id of a megabyte's twentieth": basic("x" * 40_000, "x"),
    "another scheme": "Digest username=platform-admin",
    "a bearer token": "Bearer x",
    "a token without its scheme": "x",
    "two in one": f"{basic('a', 'b')}, {basic('c', 'd')}",
}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("how", UNPROVEN)
async def test_who_proves_nothing_is_no_client_and_is_challenged(stage: Stage, endpoint: str, how: str) -> None:
    body = f"{CREDENTIALS_FORM}&token=x"
    response = await post(stage, endpoint, body, authorization=UNPROVEN[how])
    assert error_of(response, 401) == "invalid_client"
    assert response.headers["www-authenticate"] == 'Basic realm="subgrant"'


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_two_authorization_headers_are_two_proofs_and_refused(stage: Stage, endpoint: str) -> None:
    token = await stage.token(await stage.grant())
    right, wrong = proof_of(stage.planner), basic("nobody", "x")
    for values in ((right, right), (right, wrong), (wrong, right), (right, f"Bearer {token}")):
        headers = [("Content-Type", FORM), *(("Authorization", value) for value in values)]
        body = f"{CREDENTIALS_FORM}&token={token}"
        response = await stage.api.http.post(endpoint, content=body, headers=headers)
        assert error_of(response) == "invalid_request"
    assert (await stage.api.introspect(stage.planner, token)).json()["active"]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_a_header_and_a_body_that_both_prove_or_contradict_are_refused(stage: Stage, endpoint: str) -> None:
    both = urlencode({"token": "x", "client_id": stage.planner.client_id, "client_secret": "anything"})
    assert error_of(await post(stage, endpoint, f"{CREDENTIALS_FORM}&{both}")) == "invalid_request"
    other = urlencode({"token": "x", "client_id": stage.auditor.client_id})
    assert error_of(await post(stage, endpoint, f"{CREDENTIALS_FORM}&{other}"), 401) == "invalid_client"


async def test_a_secret_in_the_body_is_no_proof_for_a_client_that_uses_the_header(stage: Stage) -> None:
    said = {"client_id": stage.planner.client_id, "client_secret": stage.planner.client_secret}
    for form in (said, {"client_id": said["client_id"]}, {"client_secret": said["client_secret"]}):
        response = await stage.api.http.post("/oauth/token", data={"grant_type": "client_credentials"} | form)
        assert error_of(response, 401) == "invalid_client"
        assert "www-authenticate" not in response.headers


async def test_an_access_token_is_no_proof_of_a_client(stage: Stage) -> None:
    token = await stage.api.token(stage.planner)
    for authorization in (f"Bearer {token}", basic(quote_plus(stage.planner.client_id), token)):
        response = await post(stage, "/oauth/introspect", f"token={token}", authorization=authorization)
        assert error_of(response, 401) == "invalid_client"


# --- tokens where they don't belong ---------------------------------------------------------------------------


async def test_a_bearer_token_in_a_form_or_a_document_is_no_credential(stage: Stage) -> None:
    """RFC 6750 §2.2 and §2.3 are not offered, and are no second way beside a header."""
    token = await stage.token(await stage.grant())
    call = proposal(stage.support, "search", {"customerId": "c_42"})
    in_form = await stage.api.http.post("/v1/gateway/calls", data={"access_token": token})
    in_body = await stage.api.http.post("/v1/gateway/calls", json=call | {"access_token": token})
    for response in (in_form, in_body):
        assert response.status_code in {401, 415}
    beside = await stage.api.request("POST", "/v1/gateway/calls", token, json=call | {"access_token": token})
    assert beside.status_code == 422
    assert not stage.tools.of("search", tenant=stage.tenant)


@pytest.mark.parametrize(
    "path", ["/v1/grants", "/v1/audit/records", "/v1/admin/tenants", "/v1/gateway/checks", "/mcp/support"]
)
async def test_a_bearer_token_in_the_query_is_refused_with_a_header_and_without(stage: Stage, path: str) -> None:
    method = "GET" if path.startswith(("/v1/grants", "/v1/audit", "/v1/admin")) else "POST"
    token = await stage.api.token_of(stage.api.admin)
    for bearer in (None, token):
        response = await stage.api.request(method, f"{path}?access_token={token}", bearer, json={})
        assert response.status_code == 400, response.text
        assert token not in response.text
