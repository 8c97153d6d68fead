"""Bodies, forms and parameters that are not what they should be: one shape of error; nothing is changed."""

import json
from typing import Any

import httpx
import pytest

from tests.api_client import ACCESS_TOKEN, TOKEN_EXCHANGE, Json, made
from tests.attacks.stage import Stage

pytestmark = pytest.mark.anyio

BODIES: dict[str, tuple[bytes, int, str | None]] = {
    "a duplicate member": (b'{"maxToolCalls": 1, "maxToolCalls": 9}', 400, None),
    "a duplicate member spelt otherwise": (b'{"maxToolCalls": 1, "max\\u0054oolCalls": 9}', 400, None),
    "a duplicate deep inside": (b'{"resourceConstraints": {"a": {"x": {"eq": 1, "eq": 2}}}}', 400, None),
    "NaN": (b'{"maxSpendCents": NaN}', 400, None),
    "infinity": (b'{"maxSpendCents": -Infinity}', 400, None),
    "a number that overflows": (b'{"maxSpendCents": 1e400}', 400, None),
    "a number beyond what JSON can carry": (b'{"maxToolCalls": 9007199254740993}', 400, None),
    "a lone surrogate": (b'{"subject": "\\ud800"}', 400, None),
    "no UTF-8": (b'{"subject": "\xff"}', 400, None),
    "a byte order mark": (b'\xef\xbb\xbf{"maxToolCalls": 1}', 400, None),
    "trailing garbage": (b'{"maxToolCalls": 1} {}', 400, None),
    "no JSON": (b"maxToolCalls: 1", 400, None),
    "nothing": (b"", 422, ""),
    "too deep": (b"[" * 100_000, 400, None),
    "too large": (b'{"subject": "' + b"x" * 300_000 + b'"}', 413, None),
    "a list": (b"[]", 422, ""),
    "a string for a number": (b'{"maxToolCalls": "5"}', 422, "/maxToolCalls"),
    "true for a number": (b'{"maxToolCalls": true}', 422, "/maxToolCalls"),
    "a fraction of a call": (b'{"maxToolCalls": 1.5}', 422, "/maxToolCalls"),
    "less than nothing": (b'{"maxToolCalls": -1}', 422, "/maxToolCalls"),
    "a fifth decimal place": (b'{"maxSpendCents": 0.00001}', 422, "/maxSpendCents"),
    "one for true": (b'{"mayRedelegate": 1}', 422, "/mayRedelegate"),
    "an unknown member": (b'{"maxToolcalls": 5}', 422, "/maxToolcalls"),
    "a member of a later version": (b'{"plan": {}}', 422, "/plan"),
    "a time without its offset": (b'{"expiresAt": "2026-01-01T00:00:00"}', 422, "/expiresAt"),
    "no time": (b'{"expiresAt": "tomorrow"}', 422, "/expiresAt"),
    "two expiries": (b'{"expiresAt": "2099-01-01T00:00:00Z", "expiresInSeconds": 5}', 422, "/expiresInSeconds"),
    "an audience with a fragment": (b'{"audience": "https://a.example/#x"}', 422, "/audience"),
    "tools of no audience": (b'{"allowedTools": ["search"]}', 422, "/allowedTools"),
    "a run id with a space": (b'{"childRunId": "a b"}', 422, "/childRunId"),
}


@pytest.mark.parametrize("what", BODIES)
async def test_a_bad_grant_request_is_refused_in_one_shape_and_changes_nothing(stage: Stage, what: str) -> None:
    content, status, pointer = BODIES[what]
    before = len(await stage.records())
    response = await post(stage, "/v1/grants", content)
    assert response.status_code == status, response.text
    document = problem_of(response)
    assert document["reason"] == "malformed"
    if pointer is not None:
        assert document["pointer"].startswith(pointer), document
    assert len(await stage.records()) == before


async def test_a_member_given_twice_is_named(stage: Stage) -> None:
    response = await post(stage, "/v1/grants", b'{"allowedTools": [], "max\\u0054oolCalls": 1, "maxToolCalls": 9}')
    assert "maxToolCalls" in problem_of(response)["detail"]


async def post(stage: Stage, path: str, content: bytes, content_type: str = "application/json") -> httpx.Response:
    token = await stage.api.token_of(stage.planner)
    return await stage.api.request("POST", path, token, content=content, headers={"Content-Type": content_type})


def problem_of(response: httpx.Response) -> Json:
    """Every REST error is an RFC 9457 document with the same members."""
    assert response.headers["content-type"] == "application/problem+json"
    document: Json = response.json()
    assert {"type", "title", "status", "reason", "detail"} <= set(document)
    assert document["status"] == response.status_code
    return document


async def test_a_body_of_another_type_is_refused(stage: Stage) -> None:
    response = await post(stage, "/v1/grants", b"{}", "application/x-www-form-urlencoded")
    assert response.status_code == 415
    assert "application/json" in problem_of(response)["detail"]


CONSTRAINTS: dict[str, tuple[Any, str]] = {
    "an unknown kind": ({"search": {"a": {"regexp": "x"}}}, "/resourceConstraints/search/a"),
    "two kinds": ({"search": {"a": {"eq": 1, "any": True}}}, "/resourceConstraints/search/a"),
    "no kind": ({"search": {"a": {}}}, "/resourceConstraints/search/a"),
    "an empty set": ({"search": {"a": {"oneOf": []}}}, "/resourceConstraints/search/a"),
    "min above max": ({"search": {"a": {"int": {"min": 2, "max": 1}}}}, "/resourceConstraints/search/a"),
    "an unknown member": ({"search": {"a": {"int": {"minimum": 2}}}}, "/resourceConstraints/search/a"),
    "65 arguments": ({"search": {f"a{n}": {"any": True} for n in range(65)}}, "/resourceConstraints/search"),
    "257 values": ({"search": {"a": {"oneOf": [*range(257)]}}}, "/resourceConstraints/search/a"),
    "a tool that is not allowed": ({"fail": {}}, "/resourceConstraints/fail"),
    "no object": ({"search": []}, "/resourceConstraints/search"),
    "a denormalised string": ({"search": {"a": {"eq": "e\u0301"}}}, "/resourceConstraints/search/a"),
}


@pytest.mark.parametrize("what", CONSTRAINTS)
async def test_bad_constraints_are_refused_at_their_place(stage: Stage, what: str) -> None:
    constraints, pointer = CONSTRAINTS[what]
    response = await stage.api.mint(
        stage.planner, audience=stage.support, allowedTools=["search"], resourceConstraints=constraints
    )
    assert response.status_code == 422, response.text
    assert problem_of(response)["pointer"].startswith(pointer)


async def test_a_grant_over_its_size_is_refused(stage: Stage) -> None:
    values = [f"{n:04}{'x' * 396}" for n in range(250)]
    response = await stage.api.mint(
        stage.planner,
        audience=stage.support,
        allowedTools=["search"],
        resourceConstraints={"search": {"a": {"oneOf": values}}},
    )
    assert response.status_code == 422
    assert "65536" in problem_of(response)["detail"]


ARGUMENTS: dict[str, tuple[Json, str, str]] = {
    "left out": ({}, "argument_invalid", "/customerId"),
    "not granted": ({"customerId": "c_42", "x": 1}, "argument_invalid", "/x"),
    "of another type": ({"customerId": "c_42", "limit": "3"}, "argument_invalid", "/limit"),
    "true for one": ({"customerId": "c_42", "limit": True}, "argument_invalid", "/limit"),
    "a fraction": ({"customerId": "c_42", "limit": 1.5}, "argument_invalid", "/limit"),
    "above its maximum": ({"customerId": "c_42", "limit": 6}, "resource_out_of_scope", "/limit"),
    "a list around it": ({"customerId": ["c_42"]}, "resource_out_of_scope", "/customerId"),
    "another case": ({"customerId": "C_42"}, "resource_out_of_scope", "/customerId"),
    "white space": ({"customerId": "c_42 "}, "resource_out_of_scope", "/customerId"),
    "full-width": ({"customerId": "\uff43_42"}, "resource_out_of_scope", "/customerId"),
}


@pytest.mark.parametrize("what", ARGUMENTS)
async def test_bad_arguments_are_refused_at_their_place(stage: Stage, what: str) -> None:
    arguments, reason, pointer = ARGUMENTS[what]
    token = await stage.token(await stage.grant())
    response = await stage.api.call(token, stage.support, "search", arguments)
    assert response.status_code == {"argument_invalid": 422, "resource_out_of_scope": 403}[reason]
    document = problem_of(response)
    assert (document["reason"], document["pointer"]) == (reason, pointer)


@pytest.mark.parametrize("segment", ["..", ".", "", "a/b", "a\\b", "a\r\nb", "a\0b", True, {"a": 1}, None])
async def test_an_argument_that_is_no_path_segment_is_the_callers_fault_and_never_leaves(
    stage: Stage, segment: object
) -> None:
    schema = {"type": "object", "properties": {"id": {}}, "required": ["id"]}
    http = {"method": "POST", "path": "/{id}"}
    await stage.api.tool(stage.tenant, "support", "by_path", schema=schema, http=http)
    grant = await stage.open_grant("by_path")
    token, arguments = await stage.token(grant), {"id": segment}
    before = len(stage.tools.requests)
    response = await stage.api.call(token, stage.support, "by_path", arguments)
    document = problem_of(response)
    assert (response.status_code, document["reason"], document["pointer"]) == (422, "argument_invalid", "/id")
    checked = made(await stage.api.check(token, stage.support, "by_path", arguments))
    assert checked["decisions"][0]["reason"] == "argument_invalid"
    assert len(stage.tools.requests) == before


async def test_what_is_checked_is_what_is_sent(stage: Stage) -> None:
    """1.0 is 1, and the tool receives it so: the canonical arguments travel, not the caller's bytes."""
    token = await stage.token(await stage.grant())
    body = (
        b'{"name": "search", "toolServerAudience": "%s", "arguments": {"limit": 1.0, "customerId": "c_\\u0034\\u0032"}}'
        % stage.support.encode()
    )
    headers = {"Content-Type": "application/json"}
    made(await stage.api.request("POST", "/v1/gateway/calls", token, content=body, headers=headers))
    sent = stage.tools.of("search", tenant=stage.tenant)[-1].arguments
    assert sent == {"customerId": "c_42", "limit": 1, "tenant": stage.tenant}
    assert isinstance(sent["limit"], int)


FORMS: dict[str, tuple[str, str]] = {
    "nothing": ("", "invalid_request"),
    "a repeated parameter": ("grant_type=client_credentials&grant_type=client_credentials", "invalid_request"),
    "an unknown grant type": ("grant_type=password", "unsupported_grant_type"),
    "no subject token": (f"grant_type={TOKEN_EXCHANGE}", "invalid_request"),
    "an unknown subject token type": (
        f"grant_type={TOKEN_EXCHANGE}&subject_token=x&subject_token_type=urn:x",
        "invalid_request",
    ),
    "an actor token without its type": (
        f"grant_type={TOKEN_EXCHANGE}&subject_token=x&subject_token_type={ACCESS_TOKEN}&actor_token=y",
        "invalid_request",
    ),
    "a scope the client lacks": ("grant_type=client_credentials&scope=admin", "invalid_scope"),
    "a tool server without a grant": ("grant_type=client_credentials&resource=https://t.example", "invalid_target"),
    "no form": ("%", "invalid_request"),
}


@pytest.mark.parametrize("what", FORMS)
async def test_a_bad_token_request_gets_oauths_error(stage: Stage, what: str) -> None:
    form, error = FORMS[what]
    response = await stage.api.http.post(
        "/oauth/token",
        content=form,
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        auth=httpx.BasicAuth(*stage.planner),
    )
    assert response.status_code == 400
    assert response.json()["error"] == error
    assert response.headers["cache-control"] == "no-store"


async def test_a_client_is_proven_in_one_way_and_by_its_own_secret(stage: Stage) -> None:
    form = {"grant_type": "client_credentials"}
    client_id, secret = stage.planner
    for wrong in ((client_id, "no"), ("nobody", secret), (client_id, secret + "x")):
        response = await stage.api.http.post("/oauth/token", data=form, auth=httpx.BasicAuth(*wrong))
        assert (response.status_code, response.json()["error"]) == (401, "invalid_client")
        assert response.headers["www-authenticate"].startswith("Basic")
    both = form | {"client_id": client_id, "client_secret": secret}
    response = await stage.api.http.post("/oauth/token", data=both, auth=httpx.BasicAuth(client_id, secret))
    assert (response.status_code, response.json()["error"]) == (400, "invalid_request")
    posted = await stage.api.http.post("/oauth/token", data=both)
    assert (posted.status_code, posted.json()["error"]) == (401, "invalid_client")


async def test_what_does_not_exist_is_a_problem_too(stage: Stage) -> None:
    token = await stage.api.token_of(stage.planner)
    for method, path, status in (("GET", "/v1/grants/gr_none", 404), ("GET", "/nope", 404), ("PUT", "/v1/grants", 405)):
        response = await stage.api.request(method, path, token)
        assert response.status_code == status
        problem_of(response)


async def test_no_error_repeats_what_was_sent(stage: Stage) -> None:
    secret = "sesame-open-7741"
    bodies = [{"subject": [secret]}, {"childRunId": f"{secret} x"}, {"maxToolCalls": secret}, {"expiresAt": secret}]
    for body in bodies:
        response = await post(stage, "/v1/grants", json.dumps(body).encode())
        assert response.status_code == 422
        assert secret not in response.text
