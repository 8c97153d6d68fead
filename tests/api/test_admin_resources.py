"""What belongs to whom, over real HTTP: a server of its own, spoken to by administrators and by others."""

import http.client
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest

from app.api.wire import MAX_BODY_BYTES
from app.usecases.register_resource import MAX_RESOURCES_PER_LOAD
from tests.api_client import Api, Credentials, made, refused
from tests.server_process import ServerProcess, sqlite_url

Json = dict[str, Any]

HUSH = "hush-hush-0815"
EVERY_SCOPE = ("tools:call", "grants:issue", "grants:read", "audit:read", "admin")
PATH = "/v1/admin/resources"


class Admin(NamedTuple):
    """An administrator with a token, and the tenant that it administers."""

    api: Api
    tenant: str
    token: str

    async def __call__(self, method: str, path: str = "", body: object = None, **query: str) -> httpx.Response:
        return await self.api.request(method, f"/v1/admin/resources{path}", self.token, json=body, params=query)

    def raw(self, method: str, target: str, body: bytes | None = None) -> tuple[int, Json]:
        """A request whose target is sent as it is, byte for byte; most clients tidy one up."""
        url = httpx.URL(self.api.url)
        connection = http.client.HTTPConnection(url.host, url.port or 80, timeout=60)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, f"/v1/admin/resources{target}", body, headers)
            response = connection.getresponse()
            content = response.read()
            return response.status, json.loads(content) if content else {}
        finally:
            connection.close()

    async def everything(self) -> list[Json]:
        items: list[Json] = made(await self("GET", limit="500"))["items"]
        return items

    async def log(self) -> list[Json]:
        response = await self.api.request("GET", "/v1/audit/records", self.token, params={"order": "oldest"})
        return [record for record in made(response)["items"] if record["resource"].startswith("resource")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(sqlite_url(tmp_path_factory.mktemp("resources"))) as running:
        yield running


@pytest.fixture(scope="module")
async def api(server: ServerProcess) -> AsyncIterator[Api]:
    async with Api(server.url) as made_api:
        yield made_api


async def a_client(api: Api, tenant: str, kind: str, scopes: tuple[str, ...]) -> Admin:
    client = await api.client(tenant, f"c{secrets.token_hex(6)}", kind=kind, scopes=scopes, limits={})
    return Admin(api, tenant, await api.token(client))


async def a_new_tenant(api: Api) -> Admin:
    tenant = f"t{secrets.token_hex(6)}"
    await api.tenant(tenant)
    return await a_client(api, tenant, "admin", EVERY_SCOPE)


@pytest.fixture
async def admin(api: Api) -> Admin:
    return await a_new_tenant(api)


@pytest.fixture(scope="module")
async def clerk(api: Api) -> Admin:
    """The administrator of a tenant that tests share, since whatever they ask for is refused."""
    return await a_new_tenant(api)


@pytest.fixture
async def stranger(api: Api) -> Admin:
    """The administrator of another tenant."""
    return await a_new_tenant(api)


@pytest.fixture(scope="module")
async def root(api: Api) -> Admin:
    """The platform's administrator."""
    return Admin(api, "platform", await api.token(Credentials(*api.admin)))


def problem(response: httpx.Response, status: int) -> Json:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: Json = response.json()
    return document


def row(id_: str, type_: str = "case", **attributes: object) -> Json:
    return {"type": type_, "id": id_, "attributes": attributes}


# --- one thing --------------------------------------------------------------------------------------------


async def test_a_thing_is_registered_read_replaced_and_removed(admin: Admin) -> None:
    attributes = {"region": "eu", "open": True, "level": 3, "share": 0.5, "closedBy": None}
    first = await admin("PUT", "/case/c_42", {"attributes": attributes})
    assert first.status_code == 201
    assert first.json() == {"tenantId": admin.tenant, "type": "case", "id": "c_42", "attributes": attributes}
    assert first.headers["Location"] == "/v1/admin/resources/case/c_42"
    assert made(await admin("GET", "/case/c_42")) == first.json()
    again = await admin("PUT", "/case/c_42", {"attributes": attributes, "tenantId": admin.tenant})
    assert (again.status_code, again.json()) == (200, first.json())
    replaced = await admin("PUT", "/case/c_42", {})
    assert (replaced.status_code, replaced.json()["attributes"]) == (200, {})
    assert (await admin("DELETE", "/case/c_42")).status_code == 204
    assert problem(await admin("GET", "/case/c_42"), 404)["reason"] == "not_found"
    assert problem(await admin("DELETE", "/case/c_42"), 404)["reason"] == "not_found"


async def test_a_scalar_keeps_its_type_over_the_wire(admin: Admin) -> None:
    body = b'{"attributes": {"a": true, "b": 1, "c": 1.0, "d": "1", "e": null, "f": 1.5, "g": 9007199254740991}}'
    assert admin.raw("PUT", "/case/typed", body)[0] == 201
    response = await admin("GET", "/case/typed")
    assert '"attributes":{"a":true,"b":1,"c":1,"d":"1","e":null,"f":1.5,"g":9007199254740991}' in response.text


STRANGE = [
    "../x",
    "..",
    ".",
    "a/b/../c",
    "/",
    "//",
    "a//b",
    "%2f",
    "%252f",
    "a b",
    "'",
    '"',
    "a?b#c",
    "a+b",
    "é",
    "🧾",
    ";",
]


@pytest.mark.parametrize("id_", STRANGE)
async def test_any_printable_id_is_one_thing_of_the_given_type(admin: Admin, id_: str) -> None:
    target = f"/case/{quote(id_, safe='')}"
    status, document = admin.raw("PUT", target, b"{}")
    assert (status, document["type"], document["id"]) == (201, "case", id_)
    assert admin.raw("GET", target) == (200, document)
    assert await admin.everything() == [document]
    assert admin.raw("DELETE", target) == (204, {})
    assert await admin.everything() == []


async def test_the_location_of_a_thing_leads_to_it(admin: Admin) -> None:
    response = await admin("PUT", "/case/a%2Fb%20c%3Fd%25", {})
    document = made(response)
    assert document["id"] == "a/b c?d%"
    assert admin.raw("GET", response.headers["Location"].removeprefix(PATH)) == (200, document)


@pytest.mark.parametrize(
    "target, pointer",
    [
        ("/case/a%0D", "/id"),
        ("/case/a%00", "/id"),
        ("/case/%1b%5b2J", "/id"),
        ("/case/%E2%80%AE", "/id"),
        ("/case/e%CC%81", "/id"),
        ("/case/%ff%fe", "/id"),
        ("/case/%C0%AF", "/id"),
        ("/case/" + "x" * 201, "/id"),
        ("/case/", "/id"),
        ("/Case/c_42", "/type"),
        ("/../c_42", "/type"),
        ("/%2e%2e/c_42", "/type"),
        ("/case%0A/c_42", "/type"),
        ("/" + "a" * 65 + "/c_42", "/type"),
    ],
)
async def test_what_hides_or_has_two_spellings_is_refused(clerk: Admin, target: str, pointer: str) -> None:
    status, document = clerk.raw("PUT", target, b"{}")
    assert (status, document["pointer"]) == (422, pointer)
    assert await clerk.everything() == []


async def test_an_id_with_a_line_break_reaches_no_other_thing(admin: Admin) -> None:
    made(await admin("PUT", "/case/a", {}))
    for method, body in (("PUT", b"{}"), ("GET", None), ("DELETE", None)):
        statuses = [admin.raw(method, f"/case/{target}", body)[0] for target in ("a%0A", "a%0Ab", "%0Aa", "%0A")]
        assert statuses == [404, 404, 404, 404]
    assert [item["id"] for item in await admin.everything()] == ["a"]


@pytest.mark.parametrize(
    "body, pointer",
    [
        ({"attributes": {"a": [1]}}, "/attributes/a"),
        ({"attributes": {"a": {"b": 1}}}, "/attributes/a"),
        ({"attributes": {"a": "x" * 1001}}, "/attributes/a"),
        ({"attributes": {"a": "e\u0301"}}, "/attributes/a"),
        ({"attributes": {"a b": 1}}, "/attributes/a b"),
        ({"attributes": {"": 1}}, "/attributes/"),
        ({"attributes": {f"a{number}": 1 for number in range(33)}}, "/attributes"),
        ({"attributes": []}, "/attributes"),
        ({"attributes": None}, "/attributes"),
        ({"attrs": {}}, "/attrs"),
        ({"type": "case"}, "/type"),
        ({"tenantId": ""}, "/tenantId"),
        ({"tenantId": 5}, "/tenantId"),
        ([], ""),
    ],
    ids=ascii,
)
async def test_a_bad_document_is_refused_by_name_and_without_its_values(
    clerk: Admin, body: object, pointer: str
) -> None:
    response = await clerk("PUT", "/case/c_42", body)
    document = problem(response, 422)
    assert document["pointer"] == pointer
    assert "xxx" not in response.text
    assert await clerk.everything() == []


@pytest.mark.parametrize(
    "content",
    [
        b'{"attributes": {"owner": "a", "owner": "b"}}',
        b'{"attributes": {"owner": "a", "\\u006fwner": "b"}}',
        b'{"attributes": {"a": NaN}}',
        b'{"attributes": {"a": 9007199254740993}}',
        b'{"attributes": {"a": "\\ud800"}}',
        b"{",
        b"",
    ],
)
async def test_what_is_no_strict_json_changes_nothing(clerk: Admin, content: bytes) -> None:
    assert clerk.raw("PUT", "/case/c_42", content)[0] in {400, 422}
    assert await clerk.everything() == []


# --- whose it is ------------------------------------------------------------------------------------------


async def test_another_tenants_administrator_is_told_the_same_whatever_is_there(admin: Admin, stranger: Admin) -> None:
    made(await admin("PUT", "/case/c_42", {"attributes": {"note": HUSH}}))
    before = (await admin.everything(), await admin.log())

    async def attempts(tenant: str, id_: str) -> list[tuple[int, str]]:
        responses = [
            await stranger("GET", f"/case/{id_}", tenant=tenant),
            await stranger("DELETE", f"/case/{id_}", tenant=tenant),
            await stranger("PUT", f"/case/{id_}", {}, tenant=tenant),
            await stranger("PUT", f"/case/{id_}", {"tenantId": tenant}),
            await stranger("GET", tenant=tenant),
            await stranger("GET", tenant=tenant, type="case", after=f"case/{id_}"),
            await stranger("POST", "", {"resources": [row(id_)]}, tenant=tenant),
            await stranger("POST", "", {"resources": [row("mine"), row(id_) | {"tenantId": tenant}]}),
        ]
        assert {response.status_code for response in responses} == {403}
        return [(response.status_code, response.text) for response in responses]

    there = await attempts(admin.tenant, "c_42")
    assert there == await attempts(admin.tenant, "c_none") == await attempts("no-such-tenant", "c_42")
    assert {json.loads(text)["reason"] for _, text in there} == {"tenant_mismatch"}
    assert HUSH not in str(there)
    assert (await admin.everything(), await admin.log()) == before
    assert (await stranger.everything(), await stranger.log()) == ([], [])


async def test_in_its_own_tenant_another_tenants_thing_is_not_there(admin: Admin, stranger: Admin) -> None:
    made(await admin("PUT", "/case/c_42", {"attributes": {"note": HUSH}}))
    missing = [await stranger("GET", f"/case/{id_}") for id_ in ("c_42", "c_none")]
    missing += [await stranger("DELETE", f"/case/{id_}") for id_ in ("c_42", "c_none")]
    assert len({(problem(response, 404)["reason"], response.text) for response in missing}) == 1
    # And its name is free.
    assert (await stranger("PUT", "/case/c_42", {})).status_code == 201
    assert (await stranger("DELETE", "/case/c_42")).status_code == 204
    assert [item["attributes"] for item in await admin.everything()] == [{"note": HUSH}]


async def test_whoever_is_no_administrator_learns_which_scope_it_lacks(admin: Admin) -> None:
    made(await admin("PUT", "/case/c_42", {}))
    other = await a_client(admin.api, admin.tenant, "auditor", ("audit:read", "grants:read"))
    for response in (
        await other("GET"),
        await other("GET", "/case/c_42"),
        await other("PUT", "/case/c_42", {}),
        await other("POST", "", {"resources": [row("c_1")]}),
        await other("DELETE", "/case/c_42"),
    ):
        assert refused(response, 403) == "insufficient_scope"
        assert 'scope="admin platform"' in response.headers["WWW-Authenticate"]


async def test_nothing_is_answered_without_a_token(api: Api) -> None:
    for method, path in (("GET", ""), ("POST", ""), ("GET", "/case/c"), ("PUT", "/case/c"), ("DELETE", "/case/c")):
        assert (await api.request(method, PATH + path, None, json={})).status_code == 401


async def test_a_platform_administrator_names_the_tenant(root: Admin, admin: Admin, stranger: Admin) -> None:
    made(await root("PUT", "/case/c_1", {"tenantId": admin.tenant}))
    made(await root("PUT", "/case/c_2", {}, tenant=admin.tenant))
    rows = [row("c_3") | {"tenantId": admin.tenant}, row("c_3") | {"tenantId": stranger.tenant}]
    assert made(await root("POST", "", {"resources": rows})) == {"loaded": 2, "created": 2}
    assert [item["id"] for item in await admin.everything()] == ["c_1", "c_2", "c_3"]
    assert [item["id"] for item in await stranger.everything()] == ["c_3"]
    assert made(await root("GET", "/case/c_1", tenant=admin.tenant))["tenantId"] == admin.tenant
    problem(await root("GET", "/case/c_1"), 404)
    problem(await root("PUT", "/case/c_1", {"tenantId": "no-such-tenant"}), 404)


async def test_two_tenants_for_one_thing_are_refused(root: Admin, admin: Admin, stranger: Admin) -> None:
    alone = await root("PUT", "/case/c_1", {"tenantId": stranger.tenant}, tenant=admin.tenant)
    rows = {"resources": [row("c_1"), row("c_2") | {"tenantId": stranger.tenant}]}
    among = await root("POST", "", rows, tenant=admin.tenant)
    pointers = [problem(response, 422)["pointer"] for response in (alone, among)]
    assert pointers == ["/tenantId", "/resources/1/tenantId"]
    assert await admin.everything() == await stranger.everything() == []


# --- many at once -----------------------------------------------------------------------------------------


async def test_a_load_of_as_many_as_may_be_is_one_request_and_one_record(admin: Admin) -> None:
    rows = [row(f"c_{number:05}", region="eu-central", open=True) for number in range(MAX_RESOURCES_PER_LOAD)]
    assert made(await admin("POST", "", {"resources": rows})) == {"loaded": 1000, "created": 1000}
    rows[0] = row("c_00000", region="us", open=True)
    assert made(await admin("POST", "", {"resources": rows})) == {"loaded": 1000, "created": 0}
    assert [(record["created"], record["changed"], record["types"]) for record in await admin.log()] == [
        (1000, 0, ["case"]),
        (0, 1, ["case"]),
    ]
    refused_ = await admin("POST", "", {"resources": [*rows, row("one more")]})
    assert problem(refused_, 422)["pointer"] == "/resources"


async def test_a_load_beyond_what_a_body_may_hold_is_refused_whole(clerk: Admin) -> None:
    rows = [row(f"c_{number}", note="x" * 900) for number in range(300)]
    assert len(json.dumps(rows)) > MAX_BODY_BYTES
    problem(await clerk("POST", "", {"resources": rows}), 413)
    assert await clerk.everything() == []


@pytest.mark.parametrize(
    "bad, pointer",
    [
        (row("a\nb"), "/resources/2/id"),
        (row("e\u0301"), "/resources/2/id"),
        (row(""), "/resources/2/id"),
        (row("c", "Case"), "/resources/2/type"),
        (row("c", note=["x"]), "/resources/2/attributes/note"),
        (row("c", note="x" * 1001), "/resources/2/attributes/note"),
        ({"id": "c"}, "/resources/2/type"),
        ({"type": "case"}, "/resources/2/id"),
        (row("c") | {"owner": "me"}, "/resources/2/owner"),
        (row("c_0"), "/resources/2"),
        (None, "/resources/2"),
        ([], "/resources/2"),
    ],
    ids=ascii,
)
async def test_one_bad_thing_keeps_all_of_a_load_out(clerk: Admin, bad: object, pointer: str) -> None:
    response = await clerk("POST", "", {"resources": [row("c_0"), row("c_1"), bad]})
    assert problem(response, 422)["pointer"] == pointer
    assert (await clerk.everything(), await clerk.log()) == ([], [])


@pytest.mark.parametrize("body", [{}, {"resources": []}, {"resources": {}}, {"resources": [], "more": 1}, []])
async def test_a_load_of_nothing_is_refused(clerk: Admin, body: object) -> None:
    problem(await clerk("POST", "", body), 422)


# --- pages ------------------------------------------------------------------------------------------------


async def test_things_are_listed_by_type_and_id_a_page_at_a_time(admin: Admin) -> None:
    names = [(type_, id_) for type_ in ("account", "case") for id_ in ("a/b", "b&c=d", "x" * 200, "é")]
    rows = [row(id_, type_) for type_, id_ in names]
    made(await admin("POST", "", {"resources": rows[::-1]}))
    seen: list[tuple[str, str]] = []
    page = made(await admin("GET", "", limit="3"))
    while page["next"] is not None:
        seen += [(item["type"], item["id"]) for item in page["items"]]
        page = made(await admin("GET", "", limit="3", after=page["next"]))
    seen += [(item["type"], item["id"]) for item in page["items"]]
    assert seen == names
    only = made(await admin("GET", "", type="case", limit="500"))
    assert [item["id"] for item in only["items"]] == [id_ for type_, id_ in names if type_ == "case"]
    assert made(await admin("GET", "", type="note")) == {"items": [], "next": None}


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "501"},
        {"type": "Case"},
        {"type": "case' OR 1=1"},
        {"after": ""},
        {"after": "case"},
        {"after": "x" * 300},
        {"kind": "case"},
        {"tenant": "../x"},
    ],
    ids=str,
)
async def test_a_query_that_means_nothing_is_refused(clerk: Admin, query: dict[str, str]) -> None:
    ((name, _),) = query.items()
    assert problem(await clerk("GET", "", **query), 422)["pointer"] == f"/{name}"


# --- the log ----------------------------------------------------------------------------------------------


async def test_the_log_has_who_did_what_to_which_thing_and_no_value(admin: Admin) -> None:
    made(await admin("PUT", "/case/a%2Fb", {"attributes": {"note": HUSH, "open": True}}))
    made(await admin("PUT", "/case/a%2Fb", {"attributes": {"note": f"{HUSH}-2", "open": True}}))
    made(await admin("POST", "", {"resources": [row("a/b", note=HUSH), row("c", "account", note=HUSH)]}))
    await admin("DELETE", "/case/a%2Fb")
    records = await admin.log()
    assert [(record["action"], record["resource"]) for record in records] == [
        ("resource.created", "resource/case/a/b"),
        ("resource.changed", "resource/case/a/b"),
        ("resources.loaded", "resources"),
        ("resource.removed", "resource/case/a/b"),
    ]
    assert records[1]["changedFields"] == ["attributes.note"]
    assert records[2]["resources"] == ["resource/account/c", "resource/case/a/b"]
    assert HUSH not in str(records)
    assert made(await admin.api.request("GET", "/v1/audit/verify", admin.token))["ok"] is True


# --- the resolver of a tool server ------------------------------------------------------------------------


RESOLVER: Json = {"path": "/resources", "types": ["case", "account", "case"], "cacheSeconds": 2.5}


def a_server(**members: object) -> Json:
    name = f"s{secrets.token_hex(6)}"
    endpoint = f"https://tools.example/{name}"
    return {"name": name, "transport": "http", "endpoint": endpoint, "resolver": RESOLVER} | members


async def servers(admin: Admin, method: str, path: str = "", body: object = None) -> httpx.Response:
    return await admin.api.request(method, f"/v1/admin/tool-servers{path}", admin.token, json=body)


async def test_a_resolver_is_registered_changed_and_removed_with_its_tool_server(admin: Admin) -> None:
    body = a_server()
    shown: Json = {"path": "/resources", "types": ["account", "case"], "cacheSeconds": 2.5}
    path = f"/{body['name']}"
    assert made(await servers(admin, "POST", "", body))["resolver"] == shown
    assert (await servers(admin, "POST", "", body)).status_code == 200
    assert (await servers(admin, "POST", "", body | {"resolver": None})).status_code == 409
    changed = made(await servers(admin, "PATCH", path, {"resolver": {"path": "/v2", "types": ["case"]}}))
    assert changed["resolver"] == {"path": "/v2", "types": ["case"], "cacheSeconds": 5}
    kept = made(await servers(admin, "PATCH", path, {"timeoutSeconds": 3}))
    assert kept["resolver"] == changed["resolver"]
    assert "resolver" not in made(await servers(admin, "PATCH", path, {"resolver": None}))
    assert "resolver" not in made(await servers(admin, "GET", path))


@pytest.mark.parametrize(
    "members, pointer",
    [
        ({"path": "//evil.example/resources"}, "/resolver/path"),
        ({"path": "https://evil.example/resources"}, "/resolver/path"),
        ({"path": "/a/../../b"}, "/resolver/path"),
        ({"path": "/a?tenant=b"}, "/resolver/path"),
        ({"path": "/%2e%2e/b"}, "/resolver/path"),
        ({"path": "/{id}"}, "/resolver/path"),
        ({"path": "/a\r\nHost: evil.example"}, "/resolver/path"),
        ({"path": None}, "/resolver/path"),
        ({"types": []}, "/resolver/types"),
        ({"types": [f"t{number}" for number in range(65)]}, "/resolver/types"),
        ({"types": ["Case"]}, "/resolver/types/0"),
        ({"types": ["*"]}, "/resolver/types/0"),
        ({"types": "case"}, "/resolver/types"),
        ({"cacheSeconds": -1}, "/resolver/cacheSeconds"),
        ({"cacheSeconds": 300.5}, "/resolver/cacheSeconds"),
        ({"cacheSeconds": "5"}, "/resolver/cacheSeconds"),
        ({"endpoint": "https://evil.example"}, "/resolver/endpoint"),
    ],
    ids=str,
)
async def test_a_bad_resolver_is_refused_by_name(clerk: Admin, members: Json, pointer: str) -> None:
    body = a_server(resolver=RESOLVER | members)
    assert problem(await servers(clerk, "POST", "", body), 422)["pointer"] == pointer
    assert (await servers(clerk, "GET", f"/{body['name']}")).status_code == 404
