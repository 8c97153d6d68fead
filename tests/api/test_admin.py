"""Administration over HTTP: the whole application on a database of its own, spoken to as its clients do."""

import json
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any, NamedTuple, get_args

import httpx
import pytest
from fastapi import FastAPI

from app.adapters.ids import new_id
from app.api.admin.clients import GrantableScope
from app.core.registry import Scope
from app.main import create_app, prepare
from app.settings import Settings
from tests.changing_server import ChangingServer

Json = dict[str, Any]

ISSUER = "http://subgrant.example"
ROOT, ROOT_SECRET = "root", "the-operator's-own-secret"
HUSH = "hush-hush-0815"
SCHEMA: Json = {"type": "object", "properties": {"customerId": {"type": "string"}}, "required": ["customerId"]}
TOOL: Json = {"description": "Search cases.", "inputSchema": SCHEMA, "effect": "read"}
EVERY_SCOPE = ["tools:call", "grants:issue", "grants:read", "audit:read", "admin"]


class Admin(NamedTuple):
    """An administrator with a token, and the tenant that it administers."""

    http: httpx.AsyncClient
    token: str
    tenant: str

    async def __call__(self, method: str, path: str, body: Json | None = None, **query: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return await self.http.request(method, f"/v1/admin{path}", json=body, params=query, headers=headers)

    async def raw(self, content: bytes, path: str = "/clients") -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        return await self.http.post(f"/v1/admin{path}", content=content, headers=headers)

    async def log(self) -> str:
        headers = {"Authorization": f"Bearer {self.token}"}
        response = await self.http.get("/v1/audit/records", params={"limit": "500"}, headers=headers)
        assert response.status_code == 200, response.text
        return response.text


@pytest.fixture(scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FastAPI]:
    settings = Settings(
        issuer=ISSUER,
        database_url=f"sqlite:///{tmp_path_factory.mktemp('admin')}/subgrant.db",
        bootstrap_client_id=ROOT,
        bootstrap_client_secret=ROOT_SECRET,  # type: ignore[arg-type]  # pydantic hides it
        tool_server_addresses="loopback",
    )
    await prepare(settings)
    made = create_app(settings)
    async with made.router.lifespan_context(made):
        yield made


@pytest.fixture(scope="module")
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=ISSUER) as client:
        yield client


async def token_of(http: httpx.AsyncClient, client_id: str, secret: str) -> str:
    form = {"grant_type": "client_credentials"}
    response = await http.post("/oauth/token", data=form, auth=httpx.BasicAuth(client_id, secret))
    assert response.status_code == 200, response.text
    return str(response.json()["access_token"])


@pytest.fixture(scope="module")
async def root(http: httpx.AsyncClient) -> Admin:
    """The platform's administrator."""
    return Admin(http, await token_of(http, ROOT, ROOT_SECRET), "platform")


@pytest.fixture
async def admin(root: Admin) -> Admin:
    """The administrator of a new tenant."""
    return await a_new_tenant(root)


@pytest.fixture(scope="module")
async def clerk(root: Admin) -> Admin:
    """The administrator of a tenant that tests share, since whatever they ask for is refused."""
    return await a_new_tenant(root)


@pytest.fixture
async def stranger(root: Admin) -> Admin:
    """The administrator of another new tenant."""
    return await a_new_tenant(root)


async def a_new_tenant(root: Admin, scopes: list[str] = EVERY_SCOPE) -> Admin:
    tenant = new_id("t")
    assert (await root("POST", "/tenants", {"tenantId": tenant, "name": "Acme"})).status_code == 201
    body = {"clientId": f"{tenant}-admin", "tenantId": tenant, "kind": "admin", "scopes": scopes}
    made = await root("POST", "/clients", body)
    assert made.status_code == 201, made.text
    return Admin(root.http, await token_of(root.http, body["clientId"], made.json()["clientSecret"]), tenant)  # type: ignore[arg-type]


def a_client(**members: object) -> Json:
    return {"clientId": new_id("c"), "kind": "agent", "scopes": ["tools:call"]} | members


def a_server(**members: object) -> Json:
    name = new_id("s")
    return {"name": name, "transport": "http", "endpoint": f"http://tools.example/{name}"} | members


def problem(response: httpx.Response, status: int) -> Json:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: Json = response.json()
    assert document["status"] == status
    return document


def made(response: httpx.Response) -> Json:
    assert response.status_code in {200, 201}, response.text
    document: Json = response.json()
    return document


# --- who ----------------------------------------------------------------------------------------------------


async def test_nothing_is_answered_without_a_token(http: httpx.AsyncClient) -> None:
    for path in ("/tenants", "/clients", "/tool-servers", "/tool-servers/support/tools"):
        response = await http.get(f"/v1/admin{path}")
        problem(response, 401)
        assert response.headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_client_without_the_scope_learns_which_one_it_lacks(admin: Admin) -> None:
    worker = made(await admin("POST", "/clients", a_client()))
    token = await token_of(admin.http, worker["clientId"], worker["clientSecret"])
    response = await Admin(admin.http, token, admin.tenant)("GET", "/clients")
    assert problem(response, 403)["reason"] == "insufficient_scope"
    assert 'scope="admin platform"' in response.headers["WWW-Authenticate"]


async def test_tenants_are_for_the_platforms_administrator(admin: Admin) -> None:
    responses = [
        await admin("POST", "/tenants", {"tenantId": "mine", "name": "Mine"}),
        await admin("GET", "/tenants"),
        await admin("GET", f"/tenants/{admin.tenant}"),
        await admin("PATCH", f"/tenants/{admin.tenant}", {"name": "Mine"}),
        await admin("DELETE", f"/tenants/{admin.tenant}"),
    ]
    assert [problem(response, 403)["reason"] for response in responses] == ["insufficient_scope"] * 5


async def test_an_administrator_can_not_name_another_tenant(admin: Admin, stranger: Admin) -> None:
    for tenant in (stranger.tenant, "no-such-tenant"):
        responses = [
            await admin("POST", "/clients", a_client(tenantId=tenant)),
            await admin("POST", "/clients", a_client(), tenant=tenant),
            await admin("GET", "/clients", tenant=tenant),
            await admin("POST", "/tool-servers", a_server(tenantId=tenant)),
            await admin("GET", "/tool-servers", tenant=tenant),
            await admin("PUT", "/tool-servers/support/tools/t", TOOL, tenant=tenant),
            await admin("POST", "/tool-servers/support/discover", tenant=tenant),
        ]
        assert {problem(response, 403)["reason"] for response in responses} == {"tenant_mismatch"}


async def test_another_tenants_things_do_not_exist(admin: Admin, stranger: Admin) -> None:
    client, server = a_client(), a_server()
    made(await admin("POST", "/clients", client))
    made(await admin("POST", "/tool-servers", server))
    made(await admin("PUT", f"/tool-servers/{server['name']}/tools/search", TOOL))
    client_path, server_path = f"/clients/{client['clientId']}", f"/tool-servers/{server['name']}"
    responses = [
        await stranger("GET", client_path),
        await stranger("PATCH", client_path, {"status": "disabled"}),
        await stranger("DELETE", client_path),
        await stranger("POST", f"{client_path}/secret"),
        await stranger("GET", server_path),
        await stranger("PATCH", server_path, {"endpoint": "http://evil.example"}),
        await stranger("DELETE", server_path),
        await stranger("POST", f"{server_path}/discover"),
        await stranger("GET", f"{server_path}/tools"),
        await stranger("PUT", f"{server_path}/tools/search", TOOL),
        await stranger("DELETE", f"{server_path}/tools/search"),
    ]
    assert {problem(response, 404)["reason"] for response in responses} == {"not_found"}
    assert made(await admin("GET", client_path))["status"] == "active"
    assert made(await admin("GET", server_path))["endpoint"] == server["endpoint"]


async def test_a_platform_administrator_acts_in_any_tenant_by_naming_it(root: Admin, admin: Admin) -> None:
    server = a_server(tenantId=admin.tenant)
    made(await root("POST", "/tool-servers", server))
    path = f"/tool-servers/{server['name']}"
    made(await root("PUT", f"{path}/tools/search", TOOL, tenant=admin.tenant))
    assert made(await root("GET", f"{path}/tools/search", tenant=admin.tenant))["tenantId"] == admin.tenant
    problem(await root("GET", path), 404)
    assert server["name"] in (await admin("GET", "/tool-servers")).text


async def test_a_request_that_names_two_tenants_is_refused(root: Admin, admin: Admin) -> None:
    response = await root("POST", "/clients", a_client(tenantId=admin.tenant), tenant="platform")
    assert problem(response, 422)["pointer"] == "/tenantId"


async def test_a_tenant_that_does_not_exist_is_not_found(root: Admin) -> None:
    problem(await root("POST", "/clients", a_client(tenantId="no-such-tenant")), 404)
    problem(await root("GET", "/clients", tenant="no-such-tenant"), 404)


# --- tenants --------------------------------------------------------------------------------------------------


async def test_a_tenant_is_registered_read_changed_and_disabled(root: Admin) -> None:
    body = {"tenantId": new_id("t"), "name": "Acme"}
    path = f"/tenants/{body['tenantId']}"
    first = await root("POST", "/tenants", body)
    assert first.status_code == 201
    unsaid = {"status": "active", "policyVersion": "v0"}
    assert first.json() == body | {"allowGrantBearer": True, "limits": {}} | unsaid
    assert first.headers["Location"] == f"/v1/admin{path}"
    assert (await root("POST", "/tenants", body)).status_code == 200
    problem(await root("POST", "/tenants", body | {"name": "Other"}), 409)
    limits = {"windowSeconds": 3600, "windowMaxToolCalls": 100, "windowMaxSpendCents": 12.5}
    changed = made(await root("PATCH", path, {"allowGrantBearer": False, "limits": limits}))
    assert changed == body | {"allowGrantBearer": False, "limits": limits} | unsaid
    assert (await root("DELETE", path)).status_code == 204
    assert made(await root("GET", path))["status"] == "disabled"
    assert made(await root("PATCH", path, {"status": "active", "limits": None}))["limits"] == {}


async def test_a_tenants_depth_is_bounded_changed_and_let_go(root: Admin) -> None:
    body: Json = {"tenantId": new_id("t"), "name": "Acme", "maxDepth": 2}
    path = f"/tenants/{body['tenantId']}"
    assert made(await root("POST", "/tenants", body))["maxDepth"] == 2
    assert (await root("POST", "/tenants", body)).status_code == 200
    problem(await root("POST", "/tenants", body | {"maxDepth": 3}), 409)
    assert made(await root("PATCH", path, {"name": "Acme Ltd"}))["maxDepth"] == 2
    assert made(await root("PATCH", path, {"maxDepth": 0}))["maxDepth"] == 0
    for wrong in (-1, 33, "2", 1.5, True):
        assert problem(await root("PATCH", path, {"maxDepth": wrong}), 422)["pointer"] == "/maxDepth"
    assert "maxDepth" not in made(await root("PATCH", path, {"maxDepth": None}))


async def test_a_disabled_tenants_administrator_is_out_at_once(root: Admin, admin: Admin) -> None:
    assert (await admin("GET", "/clients")).status_code == 200
    await root("DELETE", f"/tenants/{admin.tenant}")
    problem(await admin("GET", "/clients"), 401)


async def test_the_platforms_tenant_is_reserved(root: Admin) -> None:
    problem(await root("POST", "/tenants", {"tenantId": "platform", "name": "Mine"}), 409)
    problem(await root("DELETE", "/tenants/platform"), 409)


# --- clients --------------------------------------------------------------------------------------------------


async def test_a_client_is_registered_with_a_secret_that_is_shown_once(admin: Admin) -> None:
    body = a_client(kind="orchestrator", scopes=["grants:issue"], limits={"maxSpendCents": 2.5, "audiences": ["*"]})
    first = await admin("POST", "/clients", body)
    assert first.status_code == 201
    assert first.headers["Cache-Control"] == "no-store"
    secret = first.json()["clientSecret"]
    assert await token_of(admin.http, body["clientId"], secret)
    again = await admin("POST", "/clients", body)
    assert again.status_code == 200
    others = [again, await admin("GET", f"/clients/{body['clientId']}"), await admin("GET", "/clients")]
    assert all("secret" not in response.text.lower().replace("client_secret_basic", "") for response in others)
    assert made(again)["limits"] == {
        "audiences": ["*"],
        "allowedTools": [],
        "subjects": [],
        "maxToolCalls": 0,
        "maxSpendCents": 2.5,
        "maxLifetimeSeconds": 600,
        "maxDepth": 4,
    }


async def test_what_is_shown_of_a_client_can_be_registered_again(admin: Admin) -> None:
    limits = {"windowSeconds": 60, "windowMaxToolCalls": 1, "windowMaxSpendCents": 0.0001, "subjects": ["user:ada"]}
    body = a_client(limits=limits)
    made(await admin("POST", "/clients", body))
    shown = made(await admin("GET", f"/clients/{body['clientId']}"))
    assert (await admin("POST", "/clients", shown)).status_code == 200


async def test_a_client_that_exists_and_differs_is_a_conflict(admin: Admin, stranger: Admin) -> None:
    body = a_client()
    made(await admin("POST", "/clients", body))
    own = problem(await admin("POST", "/clients", body | {"kind": "auditor"}), 409)
    foreign = problem(await stranger("POST", "/clients", body), 409)
    assert own == foreign


async def test_a_patch_changes_only_what_it_names(admin: Admin) -> None:
    body = a_client(limits={"maxToolCalls": 5}, authMethod="client_secret_post")
    path = f"/clients/{body['clientId']}"
    before = made(await admin("POST", "/clients", body))
    after = made(await admin("PATCH", path, {"scopes": ["tools:call", "grants:read"]}))
    assert after["scopes"] == ["grants:read", "tools:call"]
    del before["clientSecret"]
    assert after == before | {"scopes": after["scopes"]}
    assert made(await admin("PATCH", path, {"authMethod": None}))["authMethod"] == "client_secret_basic"
    assert made(await admin("PATCH", path, {"limits": None}))["limits"]["maxToolCalls"] == 0
    assert problem(await admin("PATCH", path, {"kind": None}), 422)["pointer"] == "/kind"
    assert made(await admin("PATCH", path, {})) == made(await admin("GET", path))


@pytest.mark.parametrize("member", ["clientId", "tenantId", "clientSecret", "secretHash", "isPlatform"])
async def test_a_patch_can_not_touch_what_a_client_is(admin: Admin, member: str) -> None:
    body = a_client()
    made(await admin("POST", "/clients", body))
    response = await admin("PATCH", f"/clients/{body['clientId']}", {member: "x"})
    assert problem(response, 422)["pointer"] == f"/{member}"


async def test_a_new_secret_ends_the_old_one(admin: Admin) -> None:
    body = a_client()
    old = made(await admin("POST", "/clients", body))["clientSecret"]
    response = await admin("POST", f"/clients/{body['clientId']}/secret")
    assert response.headers["Cache-Control"] == "no-store"
    assert await token_of(admin.http, body["clientId"], made(response)["clientSecret"])
    refused = await admin.http.post(
        "/oauth/token", data={"grant_type": "client_credentials"}, auth=httpx.BasicAuth(body["clientId"], old)
    )
    assert refused.status_code == 401


async def test_a_disabled_client_is_out_at_once(admin: Admin) -> None:
    helper = made(await admin("POST", "/clients", a_client(kind="admin", scopes=["admin"])))
    token = await token_of(admin.http, helper["clientId"], helper["clientSecret"])
    as_helper = Admin(admin.http, token, admin.tenant)
    assert (await as_helper("GET", "/clients")).status_code == 200
    assert (await admin("DELETE", f"/clients/{helper['clientId']}")).status_code == 204
    problem(await as_helper("GET", "/clients"), 401)
    assert made(await admin("PATCH", f"/clients/{helper['clientId']}", {"status": "active"}))["status"] == "active"
    assert (await as_helper("GET", "/clients")).status_code == 200


async def test_an_administrator_gives_no_scope_that_it_lacks(root: Admin) -> None:
    poor = await a_new_tenant(root, scopes=["admin", "tools:call"])
    response = await poor("POST", "/clients", a_client(scopes=["tools:call", "audit:read"]))
    assert problem(response, 403) == problem(response, 403) | {"reason": "insufficient_scope", "pointer": "/scopes"}
    body = a_client()
    made(await poor("POST", "/clients", body))
    problem(await poor("PATCH", f"/clients/{body['clientId']}", {"scopes": ["grants:issue"]}), 403)
    assert made(await poor("GET", f"/clients/{body['clientId']}"))["scopes"] == ["tools:call"]


async def test_the_scope_platform_can_not_even_be_asked_for(root: Admin) -> None:
    response = await root("POST", "/clients", a_client(kind="admin", scopes=["admin", "platform"]))
    assert problem(response, 422)["pointer"] == "/scopes/1"
    assert set(get_args(GrantableScope)) == set(Scope) - {Scope.PLATFORM}


async def test_an_id_with_slashes_is_one_client(admin: Admin) -> None:
    body = a_client(clientId=f"{new_id('c')}/secret")
    first = await admin("POST", "/clients", body)
    location = first.headers["Location"].removeprefix("/v1/admin")
    assert made(await admin("GET", location))["clientId"] == body["clientId"]
    assert made(await admin("POST", f"{location}/secret"))["clientId"] == body["clientId"]


async def test_pages_follow_their_cursor(admin: Admin) -> None:
    ids = sorted([made(await admin("POST", "/clients", a_client()))["clientId"] for _ in range(4)])
    seen: list[str] = []
    query: dict[str, str] = {"limit": "2"}
    while True:
        page = made(await admin("GET", "/clients", None, **query))
        seen += [item["clientId"] for item in page["items"]]
        if page["next"] is None:
            break
        query["after"] = page["next"]
    assert seen == sorted([*ids, f"{admin.tenant}-admin"])


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "501"}, {"limit": "x"}, {"tenent": "acme"}, {"after": "\x00"}], ids=str
)
async def test_a_query_that_means_nothing_is_refused(clerk: Admin, query: dict[str, str]) -> None:
    ((name, _),) = query.items()
    assert problem(await clerk("GET", "/clients", None, **query), 422)["pointer"] == f"/{name}"


# --- tool servers -----------------------------------------------------------------------------------------------


async def test_a_tool_server_is_registered_read_changed_and_disabled(admin: Admin) -> None:
    body = a_server()
    path = f"/tool-servers/{body['name']}"
    first = await admin("POST", "/tool-servers", body)
    assert first.status_code == 201
    assert first.json() == body | {
        "tenantId": admin.tenant,
        "audience": f"{ISSUER}/mcp/{body['name']}",
        "upstreamAudience": body["endpoint"],
        "credential": {"type": "none"},
        "timeoutSeconds": 30,
        "maxResponseBytes": 1_048_576,
        "definitionMaxAgeSeconds": 0,
        "status": "active",
    }
    assert (await admin("POST", "/tool-servers", body)).status_code == 200
    problem(await admin("POST", "/tool-servers", body | {"timeoutSeconds": 5}), 409)
    moved = made(await admin("PATCH", path, {"endpoint": f"{body['endpoint']}/v2", "timeoutSeconds": 0.5}))
    assert (moved["upstreamAudience"], moved["timeoutSeconds"]) == (f"{body['endpoint']}/v2", 0.5)
    assert (await admin("DELETE", path)).status_code == 204
    assert made(await admin("GET", path))["status"] == "disabled"
    assert made(await admin("PATCH", path, {"status": "active"}))["status"] == "active"


async def test_a_header_secret_never_comes_out_again(admin: Admin) -> None:
    body = a_server(credential={"type": "header", "header": "X-Api-Key", "value": HUSH})
    path = f"/tool-servers/{body['name']}"
    responses = [
        await admin("POST", "/tool-servers", body),
        await admin("POST", "/tool-servers", body),
        await admin("GET", path),
        await admin("GET", "/tool-servers"),
        await admin("PATCH", path, {"timeoutSeconds": 3}),
        await admin("PATCH", path, {"credential": {"type": "header", "header": "X-Api-Key", "value": f"{HUSH}-2"}}),
        await admin("PATCH", path, {"credential": {"type": "header", "header": "X-Api-Key", "value": f"{HUSH}\n"}}),
        await admin("PATCH", path, {"credential": {"type": "header", "header": "Bad Name", "value": HUSH}}),
        await admin("PATCH", path, {"credential": {"type": "header", "header": "X-Key", "value": HUSH, "more": HUSH}}),
        await admin("PATCH", path, {"credential": {"type": "jwt", "value": HUSH}}),
        await admin("POST", "/tool-servers", body),
        await admin("DELETE", path),
    ]
    assert [response.status_code for response in responses] == [
        201, 200, 200, 200, 200, 200, 422, 422, 422, 422, 409, 204,
    ]  # fmt: skip
    assert made(await admin("GET", path))["credential"] == {"type": "header", "header": "X-Api-Key"}
    assert HUSH not in "".join(response.text + repr(response.headers) for response in responses)
    assert HUSH not in await admin.log()


@pytest.mark.parametrize("value", ["a\r\nX-Admin: yes", "a\nb", "a\x00b"])
async def test_a_secret_that_would_end_its_line_is_refused(clerk: Admin, value: str) -> None:
    body = a_server(credential={"type": "header", "header": "X-Api-Key", "value": value})
    assert problem(await clerk("POST", "/tool-servers", body), 422)["pointer"] == "/credential/value"
    problem(await clerk("GET", f"/tool-servers/{body['name']}"), 404)


async def test_an_endpoint_does_not_move_away_with_its_secret(admin: Admin) -> None:
    credential = {"type": "header", "header": "X-Api-Key", "value": HUSH}
    body = a_server(credential=credential)
    path, elsewhere = f"/tool-servers/{body['name']}", "http://evil.example/"
    made(await admin("POST", "/tool-servers", body))
    assert problem(await admin("PATCH", path, {"endpoint": elsewhere}), 422)["pointer"] == "/credential"
    moved = await admin("PATCH", path, {"endpoint": elsewhere, "credential": credential})
    assert made(moved)["endpoint"] == elsewhere


async def test_audiences_and_addresses_never_meet_over_all_tenants(admin: Admin, stranger: Admin) -> None:
    theirs = a_server(audience=f"http://audience.example/{new_id('a')}")
    made(await stranger("POST", "/tool-servers", theirs))
    crossings = [
        a_server(audience=theirs["endpoint"].upper().replace("HTTP:", "http:").replace("TOOLS", "tools") + "/"),
        a_server(audience=theirs["endpoint"].replace("tools.example", "Tools.Example:80")),
        a_server(endpoint=theirs["audience"]),
        a_server(upstreamAudience=f"{theirs['audience']}/"),
        a_server(audience=ISSUER),
        a_server(upstreamAudience=f"{ISSUER}/"),
    ]
    details = [problem(await admin("POST", "/tool-servers", body), 409)["detail"] for body in crossings[1:]]
    assert not [detail for detail in details if stranger.tenant in detail or theirs["name"] in detail]
    # Paths are case-sensitive, so this one is another place.
    made(await admin("POST", "/tool-servers", crossings[0]))


async def test_discovering_an_unreachable_tool_server_is_a_bad_gateway(admin: Admin) -> None:
    body = a_server(transport="mcp", endpoint="http://127.0.0.1:1/mcp", timeoutSeconds=1)
    made(await admin("POST", "/tool-servers", body))
    document = problem(await admin("POST", f"/tool-servers/{body['name']}/discover"), 502)
    assert document["reason"] == "tool_server_unavailable"
    assert "127.0.0.1" not in document["detail"]


async def test_only_mcp_servers_are_discovered(clerk: Admin) -> None:
    body = a_server()
    made(await clerk("POST", "/tool-servers", body))
    problem(await clerk("POST", f"/tool-servers/{body['name']}/discover"), 409)


# --- tools --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def tools(admin: Admin) -> str:
    """The path of a tool server's tools."""
    body = a_server()
    made(await admin("POST", "/tool-servers", body))
    return f"/tool-servers/{body['name']}/tools"


@pytest.fixture(scope="module")
async def shared_tools(clerk: Admin) -> str:
    """The same, of the tenant that tests share."""
    body = a_server()
    made(await clerk("POST", "/tool-servers", body))
    return f"/tool-servers/{body['name']}/tools"


async def test_a_tool_is_registered_replaced_changed_and_removed(admin: Admin, tools: str) -> None:
    path = f"{tools}/cases/search.v1"
    first = await admin("PUT", path, TOOL)
    assert first.status_code == 201
    assert first.json() == TOOL | {
        "tenantId": admin.tenant,
        "toolServer": tools.split("/")[2],
        "name": "cases/search.v1",
        "outputSchema": None,
        "costCents": 0,
        "maxCostCents": 0,
        "costFrom": None,
        "trust": "external_untrusted",
        "sinks": [],
        "idempotent": False,
        "loggableArguments": [],
        "resourceArguments": {},
        "http": {"method": "POST", "path": "/cases/search.v1"},
        "source": "declared",
        "definitionDigest": digest_of("cases/search.v1", TOOL),
    }
    assert (await admin("PUT", path, TOOL)).status_code == 200
    full = TOOL | {
        "outputSchema": {"type": "object"},
        "costCents": 0.5,
        "maxCostCents": 2,
        "costFrom": "/cost",
        "effect": "external",
        "trust": "internal",
        "sinks": ["email"],
        "idempotent": True,
        "loggableArguments": ["customerId"],
        "http": {"method": "GET", "path": "/customers/{customerId}"},
    }
    replaced = await admin("PUT", path, full)
    assert replaced.status_code == 200
    assert made(replaced) == made(replaced) | full | {"definitionDigest": digest_of("cases/search.v1", full)}
    changed = made(await admin("PATCH", path, {"costFrom": None, "maxCostCents": None, "description": "Less."}))
    less = {"costFrom": None, "maxCostCents": 0.5, "description": "Less."}
    assert changed == made(replaced) | less | {"definitionDigest": digest_of("cases/search.v1", full | less)}
    assert [tool["name"] for tool in made(await admin("GET", tools))["items"]] == ["cases/search.v1"]
    assert (await admin("DELETE", path)).status_code == 204
    problem(await admin("GET", path), 404)
    problem(await admin("DELETE", path), 404)


def digest_of(name: str, tool: Json) -> str:
    """A definition's digest, as anybody can compute it."""
    members = {"name": name, "outputSchema": None} | {
        member: tool[member] for member in ("description", "inputSchema", "outputSchema") if member in tool
    }
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "members,pointer",
    [
        ({"effect": "harmless"}, "/effect"),
        ({"effect": None}, "/effect"),
        ({"description": None}, "/description"),
        ({"description": "\x00"}, "/description"),
        ({"inputSchema": {"type": "string"}}, "/inputSchema"),
        ({"inputSchema": []}, "/inputSchema"),
        ({"inputSchema": {"type": "object", "properties": {"a": {"$ref": "https://evil.example"}}}}, "/inputSchema"),
        ({"costCents": -1}, "/costCents"),
        ({"costCents": 0.00001}, "/costCents"),
        ({"costCents": "1"}, "/costCents"),
        ({"costCents": True}, "/costCents"),
        ({"costCents": 2, "maxCostCents": 1}, "/maxCostCents"),
        ({"costFrom": "/cost"}, "/maxCostCents"),
        ({"idempotent": "yes"}, "/idempotent"),
        ({"loggableArguments": ["note"]}, "/loggableArguments"),
        ({"http": {"method": "CONNECT"}}, "/http/method"),
        ({"http": {"path": "/{note}"}}, "/http/path"),
        ({"http": {"url": "http://evil.example"}}, "/http/url"),
        ({"source": "discovered"}, "/source"),
    ],
    ids=str,
)
async def test_a_bad_tool_is_refused_by_name(clerk: Admin, shared_tools: str, members: Json, pointer: str) -> None:
    found = problem(await clerk("PUT", f"{shared_tools}/search", TOOL | members), 422)["pointer"]
    assert found.startswith(pointer)
    problem(await clerk("GET", f"{shared_tools}/search"), 404)


async def test_a_tool_without_a_tool_server_is_not_found(clerk: Admin) -> None:
    problem(await clerk("PUT", "/tool-servers/nowhere/tools/search", TOOL), 404)
    problem(await clerk("GET", "/tool-servers/nowhere/tools"), 404)


@pytest.mark.parametrize("name", ["two%20words", "sm%C3%B6rg", "x" * 129, "a%00b"])
async def test_a_tool_has_a_name_as_mcp_spells_it(clerk: Admin, shared_tools: str, name: str) -> None:
    assert problem(await clerk("PUT", f"{shared_tools}/{name}", TOOL), 422)["pointer"] == "/tool"


# --- definitions that change ----------------------------------------------------------------------------------------


async def test_a_changed_definition_is_shown_in_full_until_it_is_accepted(admin: Admin) -> None:
    schema: Json = {"type": "object", "properties": {"to": {"type": "string"}}}
    offered: Json = {"name": "send/v1", "description": "Sends.", "inputSchema": schema}
    wider = schema | {"properties": schema["properties"] | {"bcc": {"type": "string"}}}
    with ChangingServer() as server:
        server.reset(offered)
        body = a_server(transport="mcp", endpoint=server.endpoint, definitionMaxAgeSeconds=2.5)
        assert made(await admin("POST", "/tool-servers", body))["definitionMaxAgeSeconds"] == 2.5
        desk = f"/tool-servers/{body['name']}"
        path = f"{desk}/tools/send/v1"
        own = {"description": "In other words.", "inputSchema": schema, "effect": "write"}
        declared = made(await admin("PUT", path, own))
        assert declared["definitionDigest"] == digest_of("send/v1", offered)
        assert declared["pinned"] == {"description": "Sends.", "inputSchema": schema, "outputSchema": None}
        assert "http" not in declared
        assert "pending" not in declared

        changed = offered | {"description": "Sends all.", "inputSchema": wider}
        server.reset(changed)
        found = made(await admin("POST", f"{desk}/discover"))
    assert (found["added"], found["unchanged"], found["changed"]) == ([], [], ["send/v1"])
    pending = found["pending"][0]["pending"]
    assert found["pending"] == [
        {"name": "send/v1", "definitionDigest": declared["definitionDigest"], "pending": pending}
    ]
    digest = digest_of("send/v1", changed)
    assert pending == {
        "definitionDigest": digest,
        "seenAt": pending["seenAt"],
        "definition": {"description": "Sends all.", "inputSchema": wider, "outputSchema": None},
        "difference": [
            {"kind": "changed", "pointer": "/description", "before": "Sends.", "after": "Sends all."},
            {"kind": "added", "pointer": "/inputSchema/properties/bcc", "after": {"type": "string"}},
        ],
    }
    assert made(await admin("GET", path)) == declared | {"pending": pending}
    assert made(await admin("PATCH", path, {"idempotent": True}))["pending"] == pending
    problem(await admin("POST", f"{path}/accept", {"definitionDigest": declared["definitionDigest"]}), 409)
    accepted = made(await admin("POST", f"{path}/accept", {"definitionDigest": digest}))
    assert (accepted["definitionDigest"], accepted["description"]) == (digest, "In other words.")
    assert (accepted["inputSchema"], accepted["pinned"]) == (wider, pending["definition"])
    assert "pending" not in accepted
    problem(await admin("POST", f"{path}/accept", {"definitionDigest": digest}), 409)


# --- bodies that never become a document ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content,status",
    [
        (b'{"clientId": "a1", "clientId": "a2", "kind": "agent"}', 400),
        (b'{"clientId": "a1", "kind": "agent", "limits": {"maxSpendCents": NaN}}', 400),
        (b'{"clientId": "a1", "kind": "agent", "limits": {"maxSpendCents": Infinity}}', 400),
        (b'{"clientId": "a1", "kind": "agent", "limits": {"maxToolCalls": 9007199254740992}}', 400),
        (b'{"clientId": "a\\ud800", "kind": "agent"}', 400),
        (b'\xef\xbb\xbf{"clientId": "a1", "kind": "agent"}', 400),
        (b'{"clientId": "\xff", "kind": "agent"}', 400),
        (b'{"clientId": "a1", "kind": "agent"', 400),
        (b'{"clientId": ' + b"[" * 40 + b"]" * 40 + b"}", 400),
        (b'{"clientId": "' + b"a" * 300_000 + b'"}', 413),
        (b"[]", 422),
        (b"null", 422),
        (b'"text"', 422),
        (b"", 422),
    ],
    ids=lambda value: str(value)[:50],
)
async def test_a_body_that_is_no_document_changes_nothing(clerk: Admin, content: bytes, status: int) -> None:
    before = (await clerk("GET", "/clients")).text
    problem(await clerk.raw(content), status)
    assert (await clerk("GET", "/clients")).text == before


@pytest.mark.parametrize(
    "members,pointer",
    [
        ({"clientId": None}, "/clientId"),
        ({"clientId": 5}, "/clientId"),
        ({"clientId": ""}, "/clientId"),
        ({"clientId": "a b"}, "/clientId"),
        ({"clientId": "a\n"}, "/clientId"),
        ({"kind": "god"}, "/kind"),
        ({"scopes": "tools:call"}, "/scopes"),
        ({"scopes": ["tools:all"]}, "/scopes/0"),
        ({"authMethod": "private_key_jwt"}, "/authMethod"),
        ({"authMethod": "none"}, "/authMethod"),
        ({"jwks": {"keys": []}}, "/jwks"),
        ({"limits": {"maxToolCalls": -1}}, "/limits/maxToolCalls"),
        ({"limits": {"maxToolCalls": 1.5}}, "/limits/maxToolCalls"),
        ({"limits": {"maxToolCalls": True}}, "/limits/maxToolCalls"),
        ({"limits": {"maxSpendCents": 0.12345}}, "/limits/maxSpendCents"),
        ({"limits": {"maxLifetimeSeconds": 0}}, "/limits/maxLifetimeSeconds"),
        ({"limits": {"allowedTools": ["support/*"]}}, "/limits/allowedTools/0"),
        ({"limits": {"audiences": [""]}}, "/limits/audiences/0"),
        ({"limits": {"windowSeconds": 60}}, "/limits"),
        ({"limits": {"maxToolcalls": 1}}, "/limits/maxToolcalls"),
        ({"status": "deleted"}, "/status"),
        ({"secret": "my-own"}, "/secret"),
    ],
    ids=str,
)
async def test_a_bad_client_is_refused_by_name(clerk: Admin, members: Json, pointer: str) -> None:
    document = problem(await clerk("POST", "/clients", a_client(**members)), 422)
    assert document["pointer"].startswith(pointer)
    assert pointer in document["detail"]


@pytest.mark.parametrize(
    "members,pointer",
    [
        ({"name": "two/parts"}, "/name"),
        ({"name": ".."}, "/name"),
        ({"transport": "grpc"}, "/transport"),
        ({"endpoint": "tools.example"}, "/endpoint"),
        ({"endpoint": "http://user:pass@tools.example"}, "/endpoint"),
        ({"endpoint": "file:///etc/passwd"}, "/endpoint"),
        ({"endpoint": "http://tools.example/#f"}, "/endpoint"),
        ({"audience": "http://a.example/#f"}, "/audience"),
        ({"timeoutSeconds": 0}, "/timeoutSeconds"),
        ({"timeoutSeconds": 301}, "/timeoutSeconds"),
        ({"maxResponseBytes": 1}, "/maxResponseBytes"),
        ({"definitionMaxAgeSeconds": 5}, "/definitionMaxAgeSeconds"),
        ({"transport": "mcp", "definitionMaxAgeSeconds": 301}, "/definitionMaxAgeSeconds"),
        ({"transport": "mcp", "definitionMaxAgeSeconds": -1}, "/definitionMaxAgeSeconds"),
        ({"credential": {"type": "basic"}}, "/credential/type"),
        ({"credential": {"type": "header", "header": "Host", "value": "evil"}}, "/credential/header"),
        ({"credential": {"type": "header", "header": "X-Key"}}, "/credential/value"),
        ({"enforcement": "shadow"}, "/enforcement"),
    ],
    ids=str,
)
async def test_a_bad_tool_server_is_refused_by_name(clerk: Admin, members: Json, pointer: str) -> None:
    document = problem(await clerk("POST", "/tool-servers", a_server(**members)), 422)
    assert document["pointer"] == pointer


# --- the description ------------------------------------------------------------------------------------------------


async def test_every_route_is_described_with_its_refusals(app: FastAPI) -> None:
    paths = app.openapi()["paths"]
    operations = [
        operation for path, methods in paths.items() if path.startswith("/v1/admin") for operation in methods.values()
    ]
    assert len(operations) == 43
    for operation in operations:
        assert operation["tags"] == ["admin"]
        assert operation["summary"]
        assert "application/problem+json" in operation["responses"]["4XX"]["content"]
        assert "422" not in operation["responses"]
    assert HUSH not in json.dumps(paths)
