"""Standing grants and what is issued under them, over HTTP: the whole application, asked as its clients ask."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import pytest

from app.adapters.ids import new_id
from app.main import create_app, prepare
from app.settings import Settings
from tests.api_client import ACCESS_TOKEN, DELEGATION_GRANT, GENEROUS, Api, Credentials, Json, made, refused
from tests.members import DROP
from tests.outsiders import a_key, claims_of, jwks
from tests.server_process import BOOTSTRAP

pytestmark = pytest.mark.anyio

ISSUER: Final = "http://subgrant.example"
IDP: Final = "https://idp.example"
KEY: Final = a_key("ES256", "idp-1")
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
JWT: Final = "urn:ietf:params:oauth:token-type:jwt"
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
SEARCH: Final[Json] = {
    "allowedTools": ["search"],
    "resourceConstraints": {"search": {"*": {"any": True}}},
    "maxToolCalls": 5,
    "maxSpendCents": 10,
}


@pytest.fixture(scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    settings = Settings(
        issuer=ISSUER,
        database_url=f"sqlite:///{tmp_path_factory.mktemp('standing')}/subgrant.db",
        bootstrap_client_id=BOOTSTRAP.client_id,
        bootstrap_client_secret=BOOTSTRAP.client_secret,  # type: ignore[arg-type]  # pydantic hides it
        tool_server_addresses="loopback",
    )
    await prepare(settings)
    app = create_app(settings)
    async with app.router.lifespan_context(app), Api(ISSUER) as api:
        await api.http.aclose()
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        api.http = httpx.AsyncClient(transport=transport, base_url=ISSUER)
        yield api


@dataclass(frozen=True)
class House:
    """A tenant with an agent, a tool server and a company's identity provider that it trusts."""

    api: Api
    tenant: str
    agent: Credentials
    audience: str

    async def standing(self, client: Credentials | None = None, /, **members: object) -> httpx.Response:
        body = {"audience": self.audience, **SEARCH, **members}
        path = f"/clients/{(client or self.agent).client_id}/standing-grants"
        return await self.api.admin_request("POST", path, json=body)

    async def ask(self, client: Credentials | None = None, /, **form: Any) -> httpx.Response:  # noqa: ANN401
        """At the token endpoint; `client_credentials` for the tool server unless told otherwise."""
        given = {"grant_type": "client_credentials", "resource": self.audience} | form
        kept = {name: value for name, value in given.items() if value is not None}
        return await self.api.http.post("/oauth/token", data=kept, auth=httpx.BasicAuth(*(client or self.agent)))

    def id_token(self, typ: object = "JWT", **claims: object) -> str:
        now = datetime.now(UTC)
        fresh = {"jti": new_id("j")} | claims
        return KEY.sign(claims_of(IDP, ISSUER, "alice", now, **fresh), typ=typ)  # type: ignore[arg-type]  # any claim

    def assertion(self, **claims: object) -> str:
        ours = {"client_id": self.agent.client_id, "resource": self.audience, "scope": "tools:call"}
        return self.id_token("oauth-id-jag+jwt", **(ours | claims))


@pytest.fixture
async def house(api: Api) -> House:
    tenant = new_id("t")
    await api.tenant(tenant)
    agent = await api.client(tenant, f"{tenant}-agent", kind="agent", scopes=["grants:read"])
    audience = await api.tool_server(tenant, "support", "http://127.0.0.1:9/support")
    await api.tool(tenant, "support", "search")
    issuer = {"name": "okta", "tenantId": tenant, "issuer": IDP, "uses": ["client", "subject", "grant"]}
    made(await api.admin_request("POST", "/issuers", json=issuer | {"jwks": jwks(KEY)}))
    return House(api, tenant, agent, audience)


def details(**members: object) -> str:
    return json.dumps([{"type": "delegation", **members}])


async def seen(house: House, token: str) -> Json:
    return made(await house.api.introspect(house.agent, token))


# --- administration -----------------------------------------------------------------------------------------


async def test_an_administrator_makes_and_lists_them_and_nobody_gets_the_signed_form(house: House) -> None:
    response = await house.standing()
    document = made(response)
    assert response.status_code == 201
    assert response.headers["location"] == f"/v1/grants/{document['grantId']}"
    assert document["standing"] is True
    assert document["subject"] == document["actor"] == document["holder"] == house.agent.client_id
    assert "grant" not in document
    listed = made(await house.api.admin_request("GET", f"/clients/{house.agent.client_id}/standing-grants"))
    assert [grant["grantId"] for grant in listed["items"]] == [document["grantId"]]
    assert (await house.api.grant(house.agent, document["grantId"]))["standing"] is True


async def test_the_clients_document_names_them_and_a_change_leaves_them_alone(house: House) -> None:
    path = f"/clients/{house.agent.client_id}"
    grant = made(await house.standing())
    for response in (
        await house.api.admin_request("GET", path),
        await house.api.admin_request("PATCH", path, json={"limits": GENEROUS}),
    ):
        assert made(response)["standingGrants"] == {"support": grant["grantId"]}
    assert refused(await house.api.admin_request("PATCH", path, json={"standingGrants": {}}), 422)


async def test_a_second_is_a_conflict_until_the_first_is_closed(house: House) -> None:
    first = made(await house.standing())
    assert refused(await house.standing(), 409) == "conflict"
    made(await house.api.close(house.agent, first["grantId"]))
    assert (await house.standing()).status_code == 201


async def test_what_exceeds_the_clients_limits_or_is_unknown_is_refused(house: House) -> None:
    assert refused(await house.standing(maxToolCalls=1_000_001), 403) == "not_narrower"
    assert refused(await house.standing(audience=f"{ISSUER}/mcp/nothing"), 403) == "target_refused"
    assert refused(await house.standing(audience=["https://a.example"] * 17), 422) == "malformed"
    for member in ("standing", "subject", "holder", "issuedBy", "subjectToken", "cnf"):
        assert refused(await house.standing(**{member: "x"}), 422) == "malformed"


async def test_others_than_administrators_are_refused(house: House) -> None:
    path = f"/v1/admin/clients/{house.agent.client_id}/standing-grants"
    token = await house.api.token_of(house.agent)
    body = {"audience": house.audience, **SEARCH}
    assert refused(await house.api.request("POST", path, token, json=body), 403) == "insufficient_scope"
    assert refused(await house.api.request("GET", path, token), 403) == "insufficient_scope"
    nobody = await house.api.admin_request("POST", "/clients/nobody/standing-grants", json=body)
    assert refused(nobody, 404) == "not_found"


async def test_no_clients_id_is_the_path_of_anothers_standing_grants(house: House) -> None:
    body = {"clientId": f"{house.agent.client_id}/standing-grants", "tenantId": house.tenant, "kind": "agent"}
    response = await house.api.admin_request("POST", "/clients", json=body)
    assert (response.status_code, response.json()["pointer"]) == (422, "/clientId")
    with_slash = await house.api.client(house.tenant, f"{house.tenant}/team/agent", kind="agent", scopes=[])
    grant = made(await house.standing(with_slash))
    path = f"/clients/{with_slash.client_id}"
    assert made(await house.api.admin_request("GET", path))["standingGrants"] == {"support": grant["grantId"]}
    listed = made(await house.api.admin_request("GET", f"{path}/standing-grants"))
    assert [each["grantId"] for each in listed["items"]] == [grant["grantId"]]


# --- client_credentials (RFC 6749 §4.4, RFC 8707) -----------------------------------------------------------


async def test_without_a_resource_or_with_our_own_the_token_is_for_the_api(house: House) -> None:
    for resource in (None, ISSUER):
        body = made(await house.ask(resource=resource))
        assert body["scope"] == "grants:read"
        assert "authorization_details" not in body
        assert refused(await house.ask(resource=resource, authorization_details=details())) == (
            "invalid_authorization_details"
        )


async def test_with_a_tool_server_it_is_under_the_standing_grant_and_without_one_there_is_none(house: House) -> None:
    response = await house.ask()
    assert refused(response, 400) == "target_refused"
    assert response.json()["error"] == "invalid_target"
    grant = made(await house.standing())
    body = made(await house.ask())
    assert (body["token_type"], body["scope"], body["issued_token_type"]) == ("Bearer", "tools:call", ACCESS_TOKEN)
    assert body["authorization_details"][0]["parentGrantId"] == grant["grantId"]
    claims = await seen(house, body["access_token"])
    assert (claims["aud"], claims["sub"]) == (house.audience, house.agent.client_id)


async def test_the_api_and_a_tool_server_at_once_are_no_target(house: House) -> None:
    await house.standing()
    response = await house.ask(resource=[ISSUER, house.audience])
    assert refused(response, 400) == "target_refused"
    assert response.json()["error"] == "invalid_target"


@pytest.mark.parametrize(
    "given, said",
    [
        ("{}", "authorization_details: Input should be a valid list"),
        (details(audience="x"), "authorization_details/0/audience: must be an absolute URI"),
        (details(audience=["https://a.example", 1]), "authorization_details/0/audience: must be an absolute URI"),
        (details(audience=[]), "authorization_details/0/audience: must be an absolute URI"),
        (details(maxSpendCents="x"), "authorization_details/0/maxSpendCents: must be a number"),
        (details(maxSpendCents=True), "authorization_details/0/maxSpendCents: must be a number"),
        (details(allowedTools=["a b"]), "authorization_details/0/allowedTools/0: "),
    ],
)
async def test_a_malformed_narrowing_is_named_where_it_stands(house: House, given: str, said: str) -> None:
    await house.standing()
    answer = (await house.ask(authorization_details=given)).json()
    assert answer["error"] == "invalid_authorization_details"
    assert answer["error_description"].startswith(said)


@pytest.mark.parametrize(
    "form, error",
    [
        ({"authorization_details": details(maxToolCalls=6)}, "invalid_authorization_details"),
        ({"authorization_details": details(standing=True)}, "invalid_authorization_details"),
        ({"authorization_details": details(subject="okta#alice")}, "invalid_authorization_details"),
        ({"authorization_details": details(audience="https://other.example")}, "invalid_target"),
        ({"scope": "grants:read"}, "invalid_scope"),
        ({"scope": "tools:call admin"}, "invalid_scope"),
    ],
)
async def test_a_token_is_narrowed_and_never_widened(house: House, form: Mapping[str, str], error: str) -> None:
    await house.standing()
    response = await house.ask(**form)
    assert (response.status_code, response.json()["error"]) == (400, error)


async def test_a_narrower_token_says_what_it_is_good_for(house: House) -> None:
    await house.standing()
    narrowing = details(maxToolCalls=2, expiresInSeconds=30, childRunId="run-of-my-own")
    body = made(await house.ask(authorization_details=narrowing))
    (granted,) = body["authorization_details"]
    assert (granted["maxToolCalls"], granted["childRunId"]) == (2, "run-of-my-own")
    assert body["expires_in"] <= 30
    again = await house.ask(authorization_details=narrowing)
    assert (again.status_code, again.json()["error"]) == (400, "invalid_request")


# --- identity assertions (RFC 7523 §2.1) --------------------------------------------------------------------


async def test_an_identity_assertion_is_a_grant_and_good_once(house: House) -> None:
    await house.standing()
    assertion = house.assertion()
    form = {"grant_type": JWT_BEARER, "assertion": assertion, "resource": None}
    body = made(await house.ask(**form))
    claims = await seen(house, body["access_token"])
    assert (claims["sub"], claims["aud"]) == ("okta#alice", house.audience)
    response = await house.ask(**form)
    assert refused(response, 400) == "token_invalid"
    assert response.json()["error"] == "invalid_grant"


@pytest.mark.parametrize(
    "claims, error",
    [
        ({"client_id": "another"}, "invalid_grant"),
        ({"aud": "https://other.example"}, "invalid_grant"),
        ({"iss": "https://stranger.example"}, "invalid_grant"),
        ({"jti": DROP}, "invalid_grant"),
        ({"exp": 1}, "invalid_grant"),
        ({"may_act": {"sub": "another"}}, "invalid_grant"),
        ({"resource": "https://other.example"}, "invalid_target"),
        ({"scope": "other"}, "invalid_scope"),
    ],
)
async def test_an_assertion_that_is_not_good_is_refused_in_its_own_word(house: House, claims: Json, error: str) -> None:
    """RFC 7521 §4.1.1, RFC 8707 §2, RFC 6749 §5.2."""
    await house.standing()
    response = await house.ask(grant_type=JWT_BEARER, assertion=house.assertion(**claims), resource=None)
    assert (response.status_code, response.json()["error"]) == (400, error)


async def test_an_assertion_is_needed_and_must_be_one(house: House) -> None:
    await house.standing()
    assert refused(await house.ask(grant_type=JWT_BEARER), 400) == "invalid_request"
    for text in ("x", house.id_token(), "a.b.c"):
        response = await house.ask(grant_type=JWT_BEARER, assertion=text)
        assert (response.status_code, response.json()["error"]) == (400, "invalid_grant")


async def test_a_client_that_may_not_use_assertions_is_told_so(house: House) -> None:
    other = await house.api.client(
        house.tenant, f"{house.tenant}-other", kind="agent", scopes=[], grantTypes=["client_credentials"]
    )
    response = await house.ask(other, grant_type=JWT_BEARER, assertion=house.assertion())
    assert response.json()["error"] == "unauthorized_client"


# --- exchanges of others' tokens (RFC 8693 §2.1) ------------------------------------------------------------


@pytest.mark.parametrize("kind", [JWT, ID_TOKEN])
async def test_a_trusted_issuers_token_says_for_whom(house: House, kind: str) -> None:
    await house.standing()
    response = await house.api.exchange(house.agent, house.id_token(), subject_token_type=kind, resource=house.audience)
    claims = await seen(house, made(response)["access_token"])
    assert (claims["sub"], claims["act"]["sub"]) == ("okta#alice", house.agent.client_id)


async def test_a_workloads_token_says_who_acts(house: House) -> None:
    worker: Json = {"clientId": f"{house.tenant}-worker", "tenantId": house.tenant, "kind": "agent"}
    worker |= {"authMethod": "private_key_jwt", "workload": {"issuer": "okta", "subject": "pod-7"}}
    made(await house.api.admin_request("POST", "/clients", json=worker))
    await house.standing(mayRedelegate=True)
    response = await house.api.exchange(
        house.agent,
        house.id_token(),
        subject_token_type=ID_TOKEN,
        resource=house.audience,
        actor_token=house.id_token(sub="pod-7"),
        actor_token_type=JWT,
    )
    claims = await seen(house, made(response)["access_token"])
    assert (claims["sub"], claims["act"]["sub"]) == ("okta#alice", worker["clientId"])
    assert claims["act"]["act"]["sub"] == house.agent.client_id


@pytest.mark.parametrize("name", ["subject", "actor"])
async def test_a_bad_token_of_others_is_a_bad_request(house: House, name: str) -> None:
    """RFC 8693 §2.2.2."""
    await house.standing()
    good, bad = house.id_token(), house.id_token(exp=1)
    form: dict[str, Any] = {"subject_token_type": ID_TOKEN}
    if name == "actor":
        form |= {"actor_token": bad, "actor_token_type": JWT}
    response = await house.api.exchange(
        house.agent, bad if name == "subject" else good, resource=house.audience, **form
    )
    assert (response.status_code, response.json()["error"]) == (400, "invalid_request")


async def test_a_token_says_its_own_type_and_no_other_is_believed(house: House) -> None:
    await house.standing(mayRedelegate=True)
    access = made(await house.ask())["access_token"]
    grant = made(await house.api.mint(await orchestrator(house), audience=house.audience, **SEARCH))["grant"]
    tokens = {ACCESS_TOKEN: access, DELEGATION_GRANT: grant, JWT: house.id_token(), ID_TOKEN: house.id_token()}
    for kind, token in tokens.items():
        for claimed in tokens.keys() - {kind}:
            if {kind, claimed} == {JWT, ID_TOKEN}:
                continue
            response = await house.api.exchange(house.agent, token, subject_token_type=claimed, resource=house.audience)
            assert (response.status_code, response.json()["error"]) == (400, "invalid_request"), (kind, claimed)


async def orchestrator(house: House) -> Credentials:
    return await house.api.client(house.tenant, f"{house.tenant}-planner-{new_id('x')}")


async def test_an_id_token_is_no_actor_token(house: House) -> None:
    response = await house.api.exchange(
        house.agent, house.id_token(), subject_token_type=JWT, actor_token=house.id_token(), actor_token_type=ID_TOKEN
    )
    assert refused(response, 400) == "invalid_request"


# --- minting ------------------------------------------------------------------------------------------------


async def test_a_subject_token_proves_the_subject_of_a_root(house: House) -> None:
    planner = await orchestrator(house)
    wish = {"audience": house.audience, **SEARCH}
    for kind in ({}, {"subjectTokenType": JWT}, {"subjectTokenType": ID_TOKEN}):
        grant = made(await house.api.mint(planner, **wish, subjectToken=house.id_token(), **kind))
        assert grant["subject"] == "okta#alice"
    unproven = await house.api.mint(planner, **wish, subject="okta#alice")
    assert refused(unproven, 403) == "not_narrower"
    another = await house.api.mint(planner, **wish, subject="okta#bob", subjectToken=house.id_token())
    assert refused(another, 422) == "malformed"
    expired = await house.api.mint(planner, **wish, subjectToken=house.id_token(exp=1))
    assert expired.json()["pointer"] == "/subjectToken"
    for wrong in ({"subjectToken": ""}, {"subjectTokenType": ACCESS_TOKEN, "subjectToken": house.id_token()}):
        assert refused(await house.api.mint(planner, **wish, **wrong), 422) == "malformed"


@pytest.mark.parametrize("member", ["standing", "cnf", "keyThumbprint"])
async def test_nobody_mints_or_derives_what_only_an_administrator_makes(house: House, member: str) -> None:
    planner = await orchestrator(house)
    wish = {"audience": house.audience, **SEARCH, "mayRedelegate": True}
    assert refused(await house.api.mint(planner, **wish, **{member: True}), 422) == "malformed"
    root = made(await house.api.mint(planner, **wish))
    assert refused(await house.api.derive(planner, root["grantId"], **{member: True}), 422) == "malformed"
    for subject in ("okta#alice", planner.client_id):
        assert refused(await house.api.derive(planner, root["grantId"], subject=subject), 422) == "malformed"
