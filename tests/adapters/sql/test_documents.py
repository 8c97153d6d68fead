"""Registered things as stored documents: nothing is lost, and what was written once can be read for ever."""

from collections.abc import Hashable, Mapping
from dataclasses import Field, fields, replace
from datetime import UTC
from types import MappingProxyType
from typing import TypeVar, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.sql.documents import RecordCache, dump, load, load_once
from app.core.attenuation import Ceiling
from app.core.budget import Amount, Price
from app.core.definition import Definition, PendingDefinition
from app.core.grant import POLICY_V0
from app.core.registry import (
    Client,
    Credential,
    HttpBinding,
    Policy,
    PolicyCase,
    Resolver,
    Resource,
    Tenant,
    Tool,
    ToolServer,
    Window,
)
from tests.contracts.examples import CLIENT, POLICY, RESOURCE, SERVER, TENANT, TOOL
from tests.samples import ACME, NOW

T = TypeVar("T")
Registered = Tenant | Client | ToolServer | Tool | Resource | Policy
COLUMNS: Mapping[type[Registered], tuple[str, ...]] = {Policy: ("created_at",)}
"""What no document of its kind ever holds: a time has a column."""

# What a database may hold today. A member that is renamed or removed needs a migration, not a change here.
TENANT_BEFORE_POLICIES = (
    '{"active":true,"allow_grant_bearer":true,"name":"Acme","tenant_id":"acme",'
    '"window":{"length":3600000000,"limit":{"spend_ucents":100,"tool_calls":1}}}'
)
TENANT_DOCUMENT = (
    '{"active":true,"allow_grant_bearer":true,"name":"Acme","policy_version":"v3","tenant_id":"acme",'
    '"window":{"length":3600000000,"limit":{"spend_ucents":100,"tool_calls":1}}}'
)
CLIENT_DOCUMENT = (
    '{"active":true,"auth_method":"client_secret_basic","ceiling":{"allowed_tools":[],"audiences":[],'
    '"limit":{"spend_ucents":0,"tool_calls":0},"max_depth":4,"max_lifetime":600000000,"subjects":[]},'
    '"client_id":"planner","kind":"orchestrator","scopes":["grants:issue","tools:call"],"secret_hash":"hashed",'
    '"tenant_id":"acme","window":null}'
)
SERVER_BEFORE_RESOLVERS = (
    '{"active":true,"audience":"https://tools.example/support","credential":{"header":"X-Key",'
    '"sealed":"AP8gc2VhbGVk","type":"header"},"endpoint":"https://backend.example/support",'
    '"max_response_bytes":65536,"name":"support","tenant_id":"acme","timeout_seconds":2.5,"transport":"http",'
    '"upstream_audience":"https://backend.example"}'
)
SERVER_BEFORE_PINS = (
    '{"active":true,"audience":"https://tools.example/support","credential":{"header":"X-Key",'
    '"sealed":"AP8gc2VhbGVk","type":"header"},"endpoint":"https://backend.example/support",'
    '"max_response_bytes":65536,"name":"support","resolver":{"cache_seconds":1.5,"path":"/resources",'
    '"types":["case","account"]},"tenant_id":"acme","timeout_seconds":2.5,"transport":"http",'
    '"upstream_audience":"https://backend.example"}'
)
SERVER_DOCUMENT = SERVER_BEFORE_PINS.replace('"endpoint"', '"definition_max_age_seconds":2.5,"endpoint"')
TOOL_BEFORE_PINS = (
    '{"description":"Finds cases – quickly","effect":"read","http":{"method":"GET","path":"/cases/{id}"},'
    '"idempotent":true,"input_schema":{"properties":{"limit":{"enum":[null,true],"maximum":1.5}},"type":"object"},'
    '"loggable_arguments":["customerId"],"name":"case_search","output_schema":null,'
    '"price":{"cost_from":"/cost","fixed_ucents":1,"max_ucents":2},"server":"support","sinks":["mail","web"],'
    '"source":"declared","tenant_id":"acme","trust":"internal"}'
)
TOOL_DOCUMENT = TOOL_BEFORE_PINS.replace(
    '"price"',
    '"pending":{"definition":null,"digest":"d2","flaw":"/description: too long",'
    '"seen_at":"2026-06-01T12:00:00+00:00"},'
    '"pinned":{"description":"Finds","input_schema":{"type":"object"},"output_schema":null},"price"',
)
PINNED_TOOL = replace(
    TOOL,
    pinned=Definition(description="Finds", input_schema={"type": "object"}, output_schema=None),
    pending=PendingDefinition(digest="d2", seen_at=NOW, definition=None, flaw="/description: too long"),
)
RESOURCE_DOCUMENT = (
    '{"attributes":{"amount":12.5,"closedBy":null,"items":3,"open":true,"owner":"user:ada"},"id":"case_7",'
    '"tenant_id":"acme","type":"case"}'
)
POLICY_DOCUMENT = (
    '{"cases":[{"call":{"resource":{"id":"case_7"},"tool":"support/case_search"},"name":"reads","permitted":true},'
    '{"call":{"limits":[1,1.5,true,null,"x"]},"name":"writes","permitted":false}],"created_by":"planner",'
    '"description":"all that the grant permits","tenant_id":"acme",'
    '"text":"permit (principal, action, resource);\\n// ä\\n","version":"v1"}'
)


@pytest.mark.parametrize(
    "record, document",
    [
        (TENANT, TENANT_DOCUMENT),
        (replace(TENANT, policy_version=POLICY_V0), TENANT_BEFORE_POLICIES),
        (CLIENT, CLIENT_DOCUMENT),
        (replace(SERVER, definition_max_age_seconds=2.5), SERVER_DOCUMENT),
        (SERVER, SERVER_BEFORE_PINS),
        (replace(SERVER, resolver=None), SERVER_BEFORE_RESOLVERS),
        (PINNED_TOOL, TOOL_DOCUMENT),
        (TOOL, TOOL_BEFORE_PINS),
        (RESOURCE, RESOURCE_DOCUMENT),
        (POLICY, POLICY_DOCUMENT),
    ],
    ids=[
        "tenant", "tenant before policies", "client", "server", "server before pins", "server before resolvers", "tool",
        "tool before pins", "resource", "policy",
    ],
)  # fmt: skip
def test_a_document_that_was_stored_once_still_reads_the_same(record: Registered, document: str) -> None:
    assert load(type(record), document, **columns_of(record)) == record


def columns_of(record: Registered) -> dict[str, Hashable]:
    return {column: getattr(record, column) for column in COLUMNS.get(type(record), ())}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
json_objects = st.dictionaries(st.text(max_size=3), json_values, max_size=3)
json_scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e300, 1e300) | st.text(max_size=5)
GIVEN: Mapping[str, st.SearchStrategy[object]] = {
    "input_schema": json_objects,
    "output_schema": st.none() | json_objects,
    "call": json_objects,
    "attributes": st.dictionaries(st.text(max_size=3), json_scalars, max_size=5),
    "timeout_seconds": st.floats(0, 1e6),
    "cache_seconds": st.floats(0, 1e6),
    "definition_max_age_seconds": st.floats(0, 300),
    "jwks": st.none() | json_objects,
    "created_at": st.datetimes(timezones=st.just(UTC)),
}


def every_member_of(kind: type[T]) -> st.SearchStrategy[T]:
    """Records of which no member is left at its default."""
    members = fields(kind)  # type: ignore[arg-type]  # a dataclass
    return st.builds(kind, **{member.name: _values(member) for member in members})


def _values(member: "Field[object]") -> st.SearchStrategy[object]:
    given = GIVEN.get(member.name)
    return st.from_type(cast("type[object]", member.type)) if given is None else given


for part in (Amount, Price, Window, Ceiling, Credential, HttpBinding, Resolver, PolicyCase, Definition):
    st.register_type_strategy(part, every_member_of(part))
times = st.datetimes(timezones=st.just(UTC))
st.register_type_strategy(
    PendingDefinition,
    st.builds(PendingDefinition, digest=st.text(), seen_at=times, definition=st.from_type(Definition), flaw=st.none())
    | st.builds(PendingDefinition, digest=st.text(), seen_at=times, definition=st.none(), flaw=st.text()),
)


@given(st.one_of(*(every_member_of(kind) for kind in (Tenant, Client, ToolServer, Tool, Resource, Policy))))
def test_every_member_of_every_record_survives(record: Registered) -> None:
    columns = columns_of(record)
    loaded = load(type(record), dump(record, without=columns), **columns)
    assert loaded == record
    # What Python takes for equal, `True` and 1 and 1.0, is told apart by the document.
    assert dump(loaded, without=columns) == dump(record, without=columns)


def test_any_mapping_is_stored_as_what_it_holds() -> None:
    shielded = replace(RESOURCE, attributes=MappingProxyType(dict(RESOURCE.attributes)))
    assert dump(shielded) == dump(RESOURCE)


def test_members_with_columns_of_their_own_stay_out_of_the_document() -> None:
    document = dump(TENANT, without=("tenant_id",))
    assert "acme" not in document
    assert load(Tenant, document, tenant_id="acme") == TENANT


def test_records_that_were_read_are_kept_within_both_bounds() -> None:
    def key(text: str) -> tuple[type, str, tuple[tuple[str, str], ...]]:
        return (Tenant, text, ())

    def kept(cache: RecordCache, *texts: str) -> list[bool]:
        return [cache.get(key(text)) is not None for text in texts]

    few = RecordCache(documents=2, chars=1000)
    for text in ("a", "b", "a"):
        few.put(key(text), TENANT)
    assert kept(few, "b", "a") == [True, True]
    few.put(key("c"), TENANT)
    assert kept(few, "a", "b", "c") == [True, False, True]

    small = RecordCache(documents=1000, chars=10)
    for text in ("a" * 6, "b" * 4, "c" * 4, "d" * 11):
        small.put(key(text), TENANT)
    assert kept(small, "a" * 6, "b" * 4, "c" * 4, "d" * 11) == [False, True, True, False]


def test_a_long_text_in_a_column_counts_as_much_as_one_in_the_document() -> None:
    def key(text: str) -> tuple[type, str, tuple[tuple[str, Hashable], ...]]:
        return (Policy, "{}", (("text", text), ("created_at", POLICY.created_at)))

    cache = RecordCache(documents=1000, chars=10)
    for text in ("a" * 9, "b" * 4, "c" * 3):
        cache.put(key(text), POLICY)
    assert [cache.get(key(text)) is not None for text in ("a" * 9, "b" * 4, "c" * 3)] == [False, False, True]
    cache.put(key("d"), POLICY)
    assert [cache.get(key(text)) is not None for text in ("c" * 3, "d")] == [True, True]


def test_a_record_that_is_read_once_is_not_kept() -> None:
    document = dump(RESOURCE)
    first, second = (load_once(Resource, document) for _ in range(2))
    assert first == second == RESOURCE
    assert first is not second
    assert load(Resource, document) is load(Resource, document)


def test_one_document_under_two_ids_is_two_records() -> None:
    document = dump(TENANT, without=("tenant_id",))
    assert load(Tenant, document, tenant_id="acme") != load(Tenant, document, tenant_id="globex")


def test_a_member_added_with_a_default_reads_old_documents() -> None:
    assert load(Tenant, '{"name":"Acme"}', tenant_id="acme") == Tenant(tenant_id=ACME, name="Acme")


def test_a_document_of_a_newer_version_is_refused_rather_than_half_read() -> None:
    with pytest.raises(ValueError, match="does not know"):
        load(Tenant, '{"name":"Acme","forbids":["everything"]}', tenant_id="acme")
