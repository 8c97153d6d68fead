"""`subgrant resources`, against a real server, and the file that it loads, line by line."""

import json
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import pytest

from app.api.wire import MAX_BODY_BYTES
from app.cli.output import Stop
from app.cli.resources import MAX_REQUEST_BYTES, MAX_REQUEST_THINGS, Source, chunks, measured, opened, progress
from app.core.strict_json import JsonObject
from app.usecases.register_resource import MAX_RESOURCES_PER_LOAD
from tests.cli.command import Ended, subgrant
from tests.server_process import BOOTSTRAP, ServerProcess, sqlite_url

TENANT = ("--tenant", "acme")


class Operator(NamedTuple):
    """The platform's administrator at a terminal."""

    url: str

    def __call__(self, *arguments: str, stdin: str = "") -> Ended:
        client_id, secret = BOOTSTRAP
        env = {"SUBGRANT_URL": self.url, "SUBGRANT_CLIENT_ID": client_id, "SUBGRANT_CLIENT_SECRET": secret}
        return subgrant(*arguments, env=env, stdin=stdin)

    def ids(self, type_: str) -> list[str]:
        page = self("resources", "list", *TENANT, "--type", type_, "--limit", "500", "--json").json
        return [item["id"] for item in page["items"]]


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    with ServerProcess(sqlite_url(tmp_path_factory.mktemp("resources"))) as server:
        made = Operator(server.url)
        assert made("tenants", "create", "acme").code == 0
        yield made


def lines(*rows: Mapping[str, object]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def source(content: str | bytes) -> Source:
    return Source("file", BytesIO(content if isinstance(content, bytes) else content.encode()))


# --- one thing --------------------------------------------------------------------------------------------


def test_a_thing_is_put_shown_listed_and_removed(operator: Operator) -> None:
    thing = ("note", "a/../b %2f")
    attributes = {"region": "eu", "open": True}
    put = operator("resources", "put", *thing, *TENANT, "--attributes", json.dumps(attributes), "--json").json
    assert put == {"tenantId": "acme", "type": "note", "id": "a/../b %2f", "attributes": attributes}
    assert operator("resources", "get", *thing, *TENANT, "--json").json == put
    table = operator("resources", "list", *TENANT, "--type", "note")
    assert (table.code, "a/../b %2f" in table.stdout) == (0, True)
    body = ("--body", "-", *TENANT, "--json")
    replaced = operator("resources", "put", *thing, *body, stdin='{"attributes": {"n": 1}}')
    assert replaced.json["attributes"] == {"n": 1}
    assert operator("resources", "remove", *thing, *TENANT).stdout == "note a/../b %2f is removed\n"
    assert operator("resources", "get", *thing, *TENANT).complaint.startswith("not_found: ")


def test_a_list_says_where_its_next_page_begins(operator: Operator) -> None:
    rows = [{"type": "page", "id": f"p/{number}"} for number in range(3)]
    assert operator("resources", "load", "-", *TENANT, stdin=lines(*rows)).code == 0
    first = operator("resources", "list", *TENANT, "--type", "page", "--limit", "2")
    assert first.stderr == "there is more: --after page/p/1\n"
    second = operator("resources", "list", *TENANT, "--type", "page", "--after", "page/p/1", "--json").json
    assert [item["id"] for item in second["items"]] == ["p/2"]


def test_a_tool_server_is_registered_with_its_resolver(operator: Operator) -> None:
    where = ("--transport", "http", "--endpoint", "http://127.0.0.1:9/x", *TENANT, "--json")
    resolver = ("--resolver-path", "/resources", "--resolver-type", "case", "--resolver-type", "account")
    made = operator("servers", "create", "support", *where, *resolver, "--resolver-cache-seconds", "0").json
    assert made["resolver"] == {"path": "/resources", "types": ["account", "case"], "cacheSeconds": 0}


# --- a file of them ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["file", "stdin", "fifo-like"])
def test_a_file_is_loaded_in_as_many_requests_as_it_takes(operator: Operator, tmp_path: Path, way: str) -> None:
    type_ = f"case-{way}"
    text = lines(*({"type": type_, "id": f"c_{number:05}", "attributes": {"n": number}} for number in range(1200)))
    path = tmp_path / "cases.ndjson"
    path.write_text(text)
    name, stdin = {"file": (str(path), ""), "stdin": ("-", text), "fifo-like": ("/dev/stdin", text)}[way]
    ended = operator("resources", "load", name, *TENANT, stdin=stdin)
    assert (ended.code, ended.stdout, ended.stderr) == (0, "1200 loaded, 1200 of them new\n", "")
    assert operator.ids(type_) == [f"c_{number:05}" for number in range(500)]


def test_a_bad_line_is_named_and_nothing_is_sent(operator: Operator, tmp_path: Path) -> None:
    path = tmp_path / "cases.ndjson"
    good = lines(*({"type": "unsent", "id": f"c_{number}"} for number in range(MAX_REQUEST_THINGS + 5)))
    path.write_text(f'{good}{{"type": "unsent", "id": "a", "id": "b"}}\n')
    ended = operator("resources", "load", str(path), *TENANT)
    assert ended.code == 2
    assert ended.complaint == f'{path}:1006: a member is given twice: "id"'
    assert operator.ids("unsent") == []


def test_what_the_server_refuses_says_how_far_it_came(operator: Operator) -> None:
    ended = operator("resources", "load", "-", "--tenant", "nowhere", stdin=lines({"type": "case", "id": "c"}))
    assert ended.code == 1
    assert ended.complaint == "not_found: there is no such tenant (0 things were loaded before)"


def test_a_file_that_is_not_there_is_one_line(operator: Operator) -> None:
    ended = operator("resources", "load", "/not/there", *TENANT)
    assert (ended.code, ended.complaint) == (2, "/not/there: no such file or directory")


def test_nothing_is_nothing_to_load(operator: Operator) -> None:
    assert operator("resources", "load", "-", *TENANT, stdin="\n").stdout == "0 loaded, 0 of them new\n"


def test_a_later_line_takes_the_place_of_an_earlier_one(operator: Operator) -> None:
    rows: list[JsonObject] = [{"type": "twice", "id": "c", "attributes": {"n": number}} for number in range(3)]
    assert operator("resources", "load", "-", *TENANT, "--json", stdin=lines(*rows)).json == {"loaded": 3, "created": 1}
    assert operator("resources", "get", "twice", "c", *TENANT, "--json").json["attributes"] == {"n": 2}


# --- lines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"null",
        b'"case"',
        b'{"type": "case"}',
        b'{"id": "c"}',
        b'{"type": "case", "id": 5}',
        b'{"type": "case", "id": "c", "tenantId": "globex"}',
        b'{"type": "case", "id": "c", "attributes": null}',
        b'{"type": "case", "id": "c", "attributes": {"a": []}}',
        b'{"type": "case", "id": "c", "attributes": {"a": NaN}}',
        b'{"type": "case", "id": "c", "attributes": {"a": 1, "a": 2}}',
        b'{"type": "Case", "id": "c"}',
        b'{"type": "case", "id": ""}',
        b'{"type": "case", "id": "a\\nb"}',
        b'{"type": "case", "id": "e\\u0301"}',
        b'{"type": "case", "id": "\\ud800"}',
        b'{"type": "case", "id": "\xff"}',
        b'{"type": "case", "id": "c"} {"type": "case", "id": "d"}',
        b'\xef\xbb\xbf{"type": "case", "id": "c"}',
        b'{"type": "case", "id": "c"' + b" " * 1_100_000 + b"}",
        b"[" * 100_000,
    ],
    ids=lambda line: ascii(line)[:60],
)
def test_a_line_that_holds_no_thing_is_named_by_its_number(line: bytes) -> None:
    with pytest.raises(Stop, match=r"\Afile:3: "):
        measured(source(b'{"type": "case", "id": "a"}\n\n' + line + b'\n{"type": "case", "id": "b"}\n'))


def test_a_thing_that_fits_in_no_request_is_named(tmp_path: Path) -> None:
    attributes: JsonObject = {f"a{number}": "🧾" * 1000 for number in range(32)}
    with pytest.raises(Stop, match=r"\Afile:1: is more than a request can carry"):
        measured(source(lines({"type": "case", "id": "c", "attributes": attributes})))


def test_a_request_is_no_larger_than_the_server_takes() -> None:
    assert MAX_REQUEST_THINGS <= MAX_RESOURCES_PER_LOAD
    assert MAX_REQUEST_BYTES + 100 <= MAX_BODY_BYTES


def test_requests_are_as_large_as_they_may_be_and_no_larger() -> None:
    attributes: JsonObject = {"note": "é" * 1000}
    rows: list[JsonObject] = [{"type": "case", "id": f"c_{number}", "attributes": attributes} for number in range(100)]
    cut = [*chunks(source(lines(*rows)))]
    assert [row for chunk in cut for row in chunk] == rows
    sizes = [len(json.dumps({"resources": chunk})) for chunk in cut]
    assert max(sizes) <= MAX_REQUEST_BYTES + 20
    assert all(size > MAX_REQUEST_BYTES - 7000 for size in sizes[:-1])
    many = source(lines(*({"type": "case", "id": f"c_{number}"} for number in range(2 * MAX_REQUEST_THINGS + 1))))
    assert [len(chunk) for chunk in chunks(many)] == [MAX_REQUEST_THINGS, MAX_REQUEST_THINGS, 1]
    assert measured(many) == (2 * MAX_REQUEST_THINGS + 1, 3)


def test_a_last_line_needs_no_end_and_windows_ends_are_ends() -> None:
    text = '{"type": "case", "id": "a"}\r\n{"type": "case", "id": "b"}'
    assert [row["id"] for chunk in chunks(source(text)) for row in chunk] == ["a", "b"]


def test_a_file_is_read_from_its_start_each_time(tmp_path: Path) -> None:
    path = tmp_path / "cases.ndjson"
    path.write_text(lines({"type": "case", "id": "a"}))
    with opened(str(path)) as file:
        assert measured(file) == measured(file) == (1, 1)


def test_a_bar_is_for_long_work_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress(is_long=True).disable
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert not progress(is_long=True).disable
    assert progress(is_long=False).disable
