"""Trusted issuers, and what clients prove themselves by, over HTTP."""

import secrets
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import pytest

from app.main import create_app, prepare
from app.settings import Settings
from tests.outsiders import a_key, jwks

Json = dict[str, Any]

ISSUER: Final = "http://127.0.0.1:8700"
ROOT, ROOT_SECRET = "root", "the-operator's-own-secret"
KEYS: Final = jwks(a_key())


class Admin:
    """The platform's administrator, in one tenant."""

    def __init__(self, http: httpx.AsyncClient, token: str, tenant: str) -> None:
        self.http, self.token, self.tenant = http, token, tenant

    async def __call__(self, method: str, path: str, body: Json | None = None) -> httpx.Response:
        headers, params = {"Authorization": f"Bearer {self.token}"}, {"tenant": self.tenant}
        return await self.http.request(method, f"/v1/admin{path}", json=body, params=params, headers=headers)


@pytest.fixture(scope="module")
async def http(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(
        issuer=ISSUER,
        database_url=f"sqlite:///{tmp_path_factory.mktemp('issuers')}/subgrant.db",
        bootstrap_client_id=ROOT,
        bootstrap_client_secret=ROOT_SECRET,  # type: ignore[arg-type]  # pydantic hides it
    )
    await prepare(settings)
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=ISSUER) as client:
            yield client


@pytest.fixture
async def admin(http: httpx.AsyncClient) -> Admin:
    form, auth = {"grant_type": "client_credentials"}, httpx.BasicAuth(ROOT, ROOT_SECRET)
    token = made(await http.post("/oauth/token", data=form, auth=auth))["access_token"]
    admin = Admin(http, token, f"t{secrets.token_hex(4)}")
    headers = {"Authorization": f"Bearer {token}"}
    body = {"tenantId": admin.tenant, "name": "Acme"}
    made(await http.post("/v1/admin/tenants", json=body, headers=headers))
    return admin


def made(response: httpx.Response) -> Json:
    assert response.is_success, response.text
    document: Json = response.json()
    return document


def pointer(response: httpx.Response) -> str:
    assert response.status_code == 422, response.text
    return str(response.json()["pointer"])


def an_issuer(**members: object) -> Json:
    body: Json = {"name": "idp", "issuer": "https://idp.example", "uses": ["client"], "jwks": KEYS}
    return {name: value for name, value in (body | members).items() if value is not None}


# --- issuers ----------------------------------------------------------------------------------------------


async def test_an_issuer_is_shown_with_what_it_has_by_default(admin: Admin) -> None:
    response = await admin("POST", "/issuers", an_issuer())
    assert response.status_code == 201
    assert response.headers["Location"] == "/v1/admin/issuers/idp"
    expected = an_issuer() | {
        "tenantId": admin.tenant,
        "algorithms": ["ES256", "EdDSA", "RS256"],
        "maxLifetimeSeconds": 86_400,
        "singleUse": True,
        "status": "active",
    }
    assert response.json() == expected
    assert made(await admin("GET", "/issuers/idp")) == expected
    assert made(await admin("GET", "/issuers")) == {"items": [expected], "next": None}


async def test_what_is_shown_of_an_issuer_can_be_registered_again(admin: Admin) -> None:
    for body in (an_issuer(), an_issuer(name="other", issuer="urn:o", jwks=None, jwksUri="https://o.example/jwks")):
        made(await admin("POST", "/issuers", body))
        shown = made(await admin("GET", f"/issuers/{body['name']}"))
        again = await admin("POST", "/issuers", shown)
        assert (again.status_code, again.json()) == (200, shown)


async def test_a_patch_changes_only_what_it_names(admin: Admin) -> None:
    before = made(await admin("POST", "/issuers", an_issuer(audience="subgrant")))
    assert made(await admin("PATCH", "/issuers/idp", {})) == before
    after = made(await admin("PATCH", "/issuers/idp", {"uses": ["subject", "client"], "maxLifetimeSeconds": 60}))
    assert after == before | {"uses": ["client", "subject"], "maxLifetimeSeconds": 60}
    moved = made(await admin("PATCH", "/issuers/idp", {"jwks": None, "jwksUri": "https://idp.example/k"}))
    assert moved == {name: after[name] for name in after if name != "jwks"} | {"jwksUri": "https://idp.example/k"}
    assert "audience" not in made(await admin("PATCH", "/issuers/idp", {"audience": None}))
    assert pointer(await admin("PATCH", "/issuers/idp", {"jwks": KEYS})) == "/jwksUri"


@pytest.mark.parametrize("member", ["name", "issuer", "tenantId", "keys"])
async def test_a_patch_can_not_touch_what_an_issuer_is(admin: Admin, member: str) -> None:
    made(await admin("POST", "/issuers", an_issuer()))
    assert pointer(await admin("PATCH", "/issuers/idp", {member: "x"})) == f"/{member}"


@pytest.mark.parametrize(
    "members, where",
    [
        ({"name": "id#p"}, "/name"),
        ({"name": ""}, "/name"),
        ({"issuer": ISSUER}, "/issuer"),
        ({"issuer": f"{ISSUER}/"}, "/issuer"),
        ({"issuer": None}, "/issuer"),
        ({"uses": []}, "/uses"),
        ({"uses": ["everything"]}, "/uses/0"),
        ({"algorithms": []}, "/algorithms"),
        ({"algorithms": ["HS256"]}, "/algorithms/0"),
        ({"algorithms": ["none"]}, "/algorithms/0"),
        ({"jwks": None}, "/jwksUri"),
        ({"jwksUri": "https://idp.example/jwks"}, "/jwksUri"),
        ({"jwks": None, "jwksUri": "http://idp.example/jwks"}, "/jwksUri"),
        ({"jwks": {"keys": []}}, "/jwks"),
        ({"jwks": []}, "/jwks"),
        ({"audience": "a b"}, "/audience"),
        ({"maxLifetimeSeconds": 0}, "/maxLifetimeSeconds"),
        ({"maxLifetimeSeconds": 604_801}, "/maxLifetimeSeconds"),
        ({"singleUse": "no"}, "/singleUse"),
        ({"discovery": True}, "/discovery"),
    ],
)
async def test_an_issuer_is_refused_with(admin: Admin, members: Json, where: str) -> None:
    assert pointer(await admin("POST", "/issuers", an_issuer(**members))) == where
    assert made(await admin("GET", "/issuers"))["items"] == []


async def test_what_is_taken_is_a_conflict(admin: Admin) -> None:
    made(await admin("POST", "/issuers", an_issuer()))
    for other in (an_issuer(singleUse=False), an_issuer(name="other")):
        response = await admin("POST", "/issuers", other)
        assert (response.status_code, response.json()["reason"]) == (409, "conflict")
    assert (await admin("GET", "/issuers/none")).status_code == 404


async def test_a_disabled_issuer_is_kept_under_its_name(admin: Admin) -> None:
    made(await admin("POST", "/issuers", an_issuer()))
    assert (await admin("DELETE", "/issuers/idp")).status_code == 204
    assert made(await admin("GET", "/issuers/idp"))["status"] == "disabled"
    assert (await admin("POST", "/issuers", an_issuer(issuer="https://evil.example"))).status_code == 409
    assert made(await admin("PATCH", "/issuers/idp", {"status": "active"}))["status"] == "active"


# --- clients ----------------------------------------------------------------------------------------------


def a_client(**members: object) -> Json:
    return {"clientId": f"c{secrets.token_hex(6)}", "kind": "agent", **members}


SIGNING: Final[Json] = {"authMethod": "private_key_jwt", "jwks": KEYS}


async def test_a_client_has_what_its_kind_needs_by_default(admin: Admin) -> None:
    for kind, types in (("person", 0), ("agent", 3), ("app", 1)):
        more = {"redirectUris": ["https://app.example/cb"]} if kind == "app" else {}
        document = made(await admin("POST", "/clients", a_client(kind=kind, **more)))
        assert len(document["grantTypes"]) == types
        assert (document["dpopRequired"], document["redirectUris"]) == (False, more.get("redirectUris", []))
        assert not {"jwks", "workload", "standingGrants"} & document.keys()


async def test_what_is_shown_of_a_client_without_a_secret_can_be_registered_again(admin: Admin) -> None:
    made(await admin("POST", "/issuers", an_issuer()))
    workload = {"issuer": "idp", "subject": "spiffe://mesh.example/agent"}
    proofs: tuple[Json, ...] = (
        SIGNING,
        {"authMethod": "private_key_jwt", "workload": workload},
        {"kind": "app", "authMethod": "none", "redirectUris": ["com.example.app:/cb"]},
    )
    for proof in proofs:
        body = a_client(dpopRequired=True, **proof)
        first = await admin("POST", "/clients", body)
        assert first.status_code == 201
        assert "clientSecret" not in first.json()
        shown = made(await admin("GET", f"/clients/{body['clientId']}"))
        assert shown == first.json()
        assert shown.items() >= {name: value for name, value in body.items() if name != "scopes"}.items()
        assert (await admin("POST", "/clients", shown)).status_code == 200


async def test_the_default_grant_types_follow_the_kind(admin: Admin) -> None:
    body = a_client()
    path = f"/clients/{body['clientId']}"
    made(await admin("POST", "/clients", body))
    app = made(await admin("PATCH", path, {"kind": "app", "redirectUris": ["https://app.example/cb"]}))
    assert app["grantTypes"] == ["authorization_code"]
    wide = made(await admin("PATCH", path, {"kind": "agent", "redirectUris": None}))
    narrow = made(await admin("PATCH", path, {"grantTypes": ["client_credentials"]}))
    assert (len(wide["grantTypes"]), narrow["grantTypes"]) == (3, ["client_credentials"])
    assert made(await admin("PATCH", path, {"kind": "auditor"}))["grantTypes"] == ["client_credentials"]


async def test_a_patch_changes_what_proves_a_client(admin: Admin) -> None:
    body = a_client(**SIGNING)
    path = f"/clients/{body['clientId']}"
    made(await admin("POST", "/clients", body))
    assert pointer(await admin("PATCH", path, {"authMethod": "client_secret_basic"})) == "/jwks"
    assert pointer(await admin("PATCH", path, {"jwks": None})) == "/authMethod"
    other = jwks(a_key("EdDSA", "k2"))
    assert made(await admin("PATCH", path, {"jwks": other}))["jwks"] == other
    assert "jwks" not in made(await admin("PATCH", path, {"authMethod": None, "jwks": None}))


@pytest.mark.parametrize(
    "members, where",
    [
        ({"authMethod": "private_key_jwt"}, "/authMethod"),
        ({"authMethod": "none"}, "/authMethod"),
        ({"authMethod": "client_secret_jwt"}, "/authMethod"),
        ({"jwks": KEYS}, "/jwks"),
        (SIGNING | {"jwks": {"keys": [a_key().private_jwk]}}, "/jwks"),
        (SIGNING | {"jwksUri": "https://c.example/jwks"}, "/jwksUri"),
        ({"authMethod": "private_key_jwt", "workload": {"issuer": "idp", "subject": "x"}}, "/workload/issuer"),
        ({"authMethod": "private_key_jwt", "workload": {"issuer": "idp"}}, "/workload/subject"),
        ({"grantTypes": ["password"]}, "/grantTypes/0"),
        ({"grantTypes": ["authorization_code"]}, "/grantTypes"),
        ({"kind": "person", "authMethod": "none"}, "/authMethod"),
        ({"kind": "app"}, "/redirectUris"),
        ({"kind": "app", "redirectUris": ["javascript:alert(1)"]}, "/redirectUris/0"),
        (
            {"kind": "app", "redirectUris": ["https://a.example/cb"], "grantTypes": ["client_credentials"]},
            "/grantTypes",
        ),
        ({"kind": "app", "redirectUris": ["https://a.example/cb"], "limits": {"maxToolCalls": 1}}, "/limits"),
        ({"standingGrants": {"support": "gr_1"}}, "/standingGrants"),
        ({"dpopRequired": "yes"}, "/dpopRequired"),
    ],
)
async def test_a_client_is_refused_with(admin: Admin, members: Json, where: str) -> None:
    assert pointer(await admin("POST", "/clients", a_client(**members))) == where


async def test_a_client_may_use_no_grant_type_that_it_was_not_given(admin: Admin) -> None:
    document = made(await admin("POST", "/clients", a_client(grantTypes=[])))
    auth = httpx.BasicAuth(document["clientId"], document["clientSecret"])
    response = await admin.http.post("/oauth/token", data={"grant_type": "client_credentials"}, auth=auth)
    assert (response.status_code, response.json()["error"]) == (400, "unauthorized_client")
