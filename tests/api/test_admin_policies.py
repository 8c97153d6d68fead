"""Policies over HTTP, with the real engine: the way from a text to an active version, and what is in its way."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple

import httpx
import pytest

from app.adapters.ids import new_id
from tests.api_client import Api, Credentials, Json, made, refused
from tests.server_process import ServerProcess, sqlite_url

PERMIT: Final = "permit (principal, action, resource);"
FORBID: Final = "forbid (principal, action, resource);"
READS: Final = 'permit (principal, action, resource) when { resource.effect == Effect::"read" };'
FAILS: Final = "permit (principal, action, resource) when { resource.maxCostUcents + 9223372036854775807 > 0 };"

SEARCH: Final[Json] = {"name": "a search", "expect": "permit", "call": {"tool": "case_search", "maxCostCents": 1}}
DELETE: Final[Json] = {
    "name": "a deletion",
    "expect": "deny",
    "call": {"tool": "delete", "effect": "destructive", "maxCostCents": 1},
}


class Admin(NamedTuple):
    """An administrator, and the tenant that it administers."""

    api: Api
    client: Credentials
    tenant: str

    async def __call__(self, method: str, path: str = "", body: object = None, **query: str) -> httpx.Response:
        token = await self.api.token_of(self.client)
        return await self.api.request(method, f"/v1/admin/policies{path}", token, json=body, params=query)

    async def add(self, text: str, *cases: Json, **members: object) -> Json:
        return made(await self("POST", "", {"text": text, "cases": [*cases], **members}))

    async def active(self) -> str:
        """The tenant's active version, as the platform's administrator is told."""
        return str(made(await self.api.admin_request("GET", f"/tenants/{self.tenant}"))["policyVersion"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(sqlite_url(tmp_path_factory.mktemp("policies"))) as running:
        yield running


@pytest.fixture(scope="module")
async def api(server: ServerProcess) -> AsyncIterator[Api]:
    async with Api(server.url) as client:
        yield client


async def a_new_tenant(api: Api) -> Admin:
    tenant = new_id("t")
    await api.tenant(tenant)
    client = await api.client(tenant, f"{tenant}-admin", kind="admin", scopes=["admin", "audit:read"])
    return Admin(api, client, tenant)


@pytest.fixture
async def admin(api: Api) -> Admin:
    return await a_new_tenant(api)


@pytest.fixture(scope="module")
async def clerk(api: Api) -> Admin:
    """The administrator of a tenant that tests share, since whatever they ask for is refused."""
    return await a_new_tenant(api)


@pytest.fixture
async def stranger(api: Api) -> Admin:
    return await a_new_tenant(api)


def problem(response: httpx.Response, status: int) -> Json:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: Json = response.json()
    return document


# --- the way ----------------------------------------------------------------------------------------------


async def test_a_version_is_added_read_listed_and_activated(admin: Admin) -> None:
    body = {"text": READS, "description": "reading only", "cases": [SEARCH, DELETE]}
    response = await admin("POST", "", body)
    assert response.status_code == 201
    assert response.headers["Location"] == "/v1/admin/policies/v1"
    version = response.json()
    assert version.pop("createdAt").endswith("Z")
    assert version == body | {
        "tenantId": admin.tenant,
        "version": "v1",
        "createdBy": admin.client.client_id,
        "active": False,
    }
    assert await admin.active() == "v0"
    activated = made(await admin("POST", "/v1/activate"))
    assert activated.items() >= (version | {"active": True}).items()
    assert made(await admin("GET", "/v1")) == activated
    assert await admin.active() == "v1"
    items = made(await admin("GET"))["items"]
    assert [(item["version"], item["active"]) for item in items] == [("v0", False), ("v1", True)]
    assert items[1].items() <= activated.items()
    assert not {"text", "cases"} & items[1].keys()


async def test_a_repeat_adds_nothing_and_says_so_by_its_status(admin: Admin) -> None:
    body = {"text": PERMIT, "cases": [SEARCH]}
    first, again = await admin("POST", "", body), await admin("POST", "", body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()


async def test_lists_have_pages(admin: Admin) -> None:
    for text in (PERMIT, FORBID):
        await admin.add(text)
    first = made(await admin("GET", limit="2"))
    second = made(await admin("GET", limit="2", after=first["next"]))
    assert [item["version"] for page in (first, second) for item in page["items"]] == ["v0", "v1", "v2"]
    assert second["next"] is None
    assert problem(await admin("GET", after="x"), 422)["pointer"] == "/after"


async def test_the_way_back_is_always_open(admin: Admin) -> None:
    await admin.add(FORBID)
    made(await admin("POST", "/v1/activate"))
    built_in = made(await admin("POST", "/v0/activate"))
    assert (built_in["active"], built_in["createdAt"], built_in["createdBy"], built_in["cases"]) == (
        *(True, None, None, []),
    )
    assert await admin.active() == "v0"


async def test_cases_are_tried_against_a_text_and_nothing_is_kept(admin: Admin) -> None:
    refund = {"name": "a refund", "expect": "permit", "call": {"effect": "write"}}
    trial = made(await admin("POST", "/test", {"text": READS, "cases": [SEARCH, DELETE, refund]}))
    assert trial["passed"] is False
    seen = [(result["name"], result["expect"], result["seen"], result["passed"]) for result in trial["results"]]
    assert seen == [
        ("a search", "permit", "permit", True),
        ("a deletion", "deny", "deny", True),
        ("a refund", "permit", "deny", False),
    ]
    assert len(trial["results"][0]["determining"]) == 1
    assert [item["version"] for item in made(await admin("GET"))["items"]] == ["v0"]


async def test_a_version_is_tried_with_its_own_cases(admin: Admin) -> None:
    await admin.add(READS, SEARCH, DELETE)
    trial = made(await admin("POST", "/test", {"version": "v1"}))
    assert trial["passed"] is True
    assert len(trial["results"]) == 2
    built_in = made(await admin("POST", "/test", {"version": "v0", "cases": [SEARCH, DELETE]}))
    assert [result["seen"] for result in built_in["results"]] == ["permit", "permit"]


async def test_a_case_that_fails_refuses_the_activation_and_is_named(admin: Admin) -> None:
    await admin.add(FORBID, SEARCH, DELETE)
    refusal = problem(await admin("POST", "/v1/activate"), 409)
    assert (refusal["reason"], refusal["detail"]) == ("conflict", '1 of 2 cases fail: "a search"')
    assert await admin.active() == "v0"


async def test_a_policy_that_fails_denies_and_is_reported(admin: Admin) -> None:
    trial = made(await admin("POST", "/test", {"text": FAILS, "cases": [SEARCH, DELETE]}))
    assert [result["seen"] for result in trial["results"]] == ["deny", "deny"]
    assert all(result["errors"] for result in trial["results"])
    await admin.add(FAILS, SEARCH)
    problem(await admin("POST", "/v1/activate"), 409)


async def test_records_tell_who_moved_from_which_version_to_which(admin: Admin) -> None:
    await admin.add(f"// a secret plan\n{PERMIT}", SEARCH)
    made(await admin("POST", "/v1/activate"))
    records = await admin.api.audit(admin.client, type="admin.changed")
    created, activated = [record for record in records if record["resource"] == "policy/v1"]
    assert (created["action"], activated["action"]) == ("policy.created", "policy.activated")
    assert (activated["fromVersion"], activated["toVersion"]) == ("v0", "v1")
    assert created["clientId"] == activated["clientId"] == admin.client.client_id
    assert "secret plan" not in json.dumps(records)
    assert created["textDigest"]


async def test_a_tenant_shows_its_version_and_takes_none(admin: Admin) -> None:
    await admin.add(PERMIT)
    made(await admin("POST", "/v1/activate"))
    path, api = f"/tenants/{admin.tenant}", admin.api
    assert problem(await api.admin_request("PATCH", path, json={"policyVersion": "v0"}), 422)["pointer"] == (
        "/policyVersion"
    )
    assert made(await api.admin_request("PATCH", path, json={"name": "Renamed"}))["policyVersion"] == "v1"
    again = await api.admin_request("POST", "/tenants", json={"tenantId": admin.tenant, "name": "Renamed"})
    assert (again.status_code, again.json()["policyVersion"]) == (200, "v1")


# --- who --------------------------------------------------------------------------------------------------


async def test_policies_of_another_tenant_are_out_of_reach(admin: Admin, stranger: Admin) -> None:
    await admin.add(PERMIT, SEARCH)
    for tenant in (admin.tenant, "no-such-tenant"):
        responses = [
            await stranger("POST", "", {"text": PERMIT, "tenantId": tenant}),
            await stranger("POST", "", {"text": PERMIT}, tenant=tenant),
            await stranger("GET", "", tenant=tenant),
            await stranger("GET", "/v1", tenant=tenant),
            await stranger("POST", "/v1/activate", tenant=tenant),
            await stranger("POST", "/test", {"version": "v1"}, tenant=tenant),
            await stranger("POST", "/test", {"version": "v1", "tenantId": tenant}),
        ]
        assert {problem(response, 403)["reason"] for response in responses} == {"tenant_mismatch"}
    own = [await stranger("GET", "/v1"), await stranger("POST", "/v1/activate")]
    assert {problem(response, 404)["reason"] for response in own} == {"not_found"}
    assert await admin.active() == "v0"


async def test_only_administrators_administer_policies(admin: Admin) -> None:
    auditor = await admin.api.client(admin.tenant, new_id("c"), kind="auditor", scopes=["audit:read"])
    nobody = Admin(admin.api, auditor, admin.tenant)
    responses = [
        await nobody("POST", "", {"text": PERMIT}),
        await nobody("GET"),
        await nobody("GET", "/v0"),
        await nobody("POST", "/v0/activate"),
        await nobody("POST", "/test", {"text": PERMIT, "cases": [SEARCH]}),
    ]
    assert {refused(response, 403) for response in responses} == {"insufficient_scope"}
    assert (await admin.api.http.get("/v1/admin/policies")).status_code == 401


async def test_a_platform_administrator_names_the_tenant(admin: Admin) -> None:
    root = Admin(admin.api, admin.api.admin, "platform")
    assert (await root.add(PERMIT, tenantId=admin.tenant))["tenantId"] == admin.tenant
    made(await root("POST", "/v1/activate", tenant=admin.tenant))
    assert await admin.active() == "v1"
    body = {"text": PERMIT, "tenantId": admin.tenant}
    assert problem(await root("POST", "", body, tenant="platform"), 422)["pointer"] == "/tenantId"


# --- hostile input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "permit",
        "permit (principal, action, resource) when { context.nothingOfTheKind };",
        "permit (principal, action, resource) when { " + "a" * 70_000 + " };",
        PERMIT + " // \x1b[2J",
        PERMIT + " // \u202e",
        "permit (principal, action, resource) when { " + "(" * 20_000 + "true" + ")" * 20_000 + " };",
        "permit (principal, action, resource) when { " + "!" * 60_000 + "true };",
        "permit (principal, action, resource) when { " + "[" * 20_000 + "]" * 20_000 + " == 1 };",
        "permit (principal, action, resource) when { "
        + "if true then " * 4_000
        + "true"
        + " else false" * 4_000
        + " };",
        "permit (principal, action, resource) " + "when { true } " * 4_000 + "x",
        "@" * 60_000,
    ],
    ids=range(11),
)
async def test_a_text_that_is_no_policy_is_refused_and_leaves_the_server_standing(clerk: Admin, text: str) -> None:
    for path, body in (("", {"text": text}), ("/test", {"text": text, "cases": [SEARCH]})):
        refusal = problem(await clerk("POST", path, body), 422)
        assert refusal["pointer"] == "/text"
        assert len(refusal["detail"]) < 10_000
    assert (await clerk.api.http.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    "members, pointer",
    [
        ({"text": None}, "/text"),
        ({"version": "v7"}, "/version"),
        ({"active": True}, "/active"),
        ({"cases": [SEARCH, SEARCH]}, "/cases/1/name"),
        ({"cases": [SEARCH | {"expect": "allow"}]}, "/cases/0/expect"),
        ({"cases": [SEARCH | {"call": []}]}, "/cases/0/call"),
        ({"cases": [SEARCH | {"call": {"tenantId": "globex"}}]}, "/cases/0/call/tenantId"),
        ({"cases": [SEARCH | {"call": {"attributes": {"case": {"c": {"deep": {}}}}}}]}, None),
        ({"cases": [SEARCH | {"name": "\x1b[2J"}]}, "/cases/0/name"),
        ({"cases": [SEARCH | {"name": str(number)} for number in range(101)]}, "/cases"),
        ({"description": "d" * 1001}, "/description"),
    ],
)
async def test_a_body_that_is_not_understood_is_refused_where(clerk: Admin, members: Json, pointer: str | None) -> None:
    expected = pointer or "/cases/0/call/attributes/case/c/deep"
    assert problem(await clerk("POST", "", {"text": PERMIT} | members), 422)["pointer"] == expected
    assert [item["version"] for item in made(await clerk("GET"))["items"]] == ["v0"]


async def test_a_trial_of_nothing_or_of_two_things_is_refused(clerk: Admin) -> None:
    bodies: list[Json] = [{}, {"text": PERMIT, "version": "v0", "cases": [SEARCH]}, {"cases": [SEARCH]}]
    pointers = [problem(await clerk("POST", "/test", body), 422)["pointer"] for body in bodies]
    assert pointers == ["/text"] * 3
    assert problem(await clerk("POST", "/test", {"text": PERMIT}), 422)["pointer"] == "/cases"


@pytest.mark.parametrize("version", ["v7", "v00", "v9999"])
async def test_a_version_that_is_none_is_not_found(clerk: Admin, version: str) -> None:
    problem(await clerk("GET", f"/{version}"), 404)
    problem(await clerk("POST", f"/{version}/activate"), 404)


async def test_a_version_is_neither_changed_nor_removed(admin: Admin) -> None:
    await admin.add(PERMIT)
    for method in ("PUT", "PATCH", "DELETE"):
        assert (await admin(method, "/v1", {"text": FORBID})).status_code == 405
    assert made(await admin("GET", "/v1"))["text"] == PERMIT


# --- at once ----------------------------------------------------------------------------------------------


async def test_versions_added_at_once_are_as_many_as_were_added(admin: Admin) -> None:
    added = await asyncio.gather(*(admin.add(f"{PERMIT} // {number}") for number in range(8)))
    assert {version["version"] for version in added} == {f"v{number}" for number in range(1, 9)}


async def test_activations_at_once_are_a_chain_in_the_log(admin: Admin) -> None:
    for text in (PERMIT, READS, FORBID):
        await admin.add(text)
    await asyncio.gather(*(admin("POST", f"/v{number % 4}/activate") for number in range(12)))
    records = await admin.api.audit(admin.client, type="admin.changed")
    moves = [(record["fromVersion"], record["toVersion"]) for record in records if "toVersion" in record]
    assert moves
    assert [before for before, _ in moves] == ["v0", *(after for _, after in moves[:-1])]
    assert moves[-1][1] == await admin.active()
