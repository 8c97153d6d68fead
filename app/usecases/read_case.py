"""Read a policy's case: the document of a call as `docs/policies.md` spells it, as a question to the engine.

Every member may be left out, so that a case says only what it is about. The defaults are one harmless call that
never changes, the time included: the same case has the same answer today and tomorrow. The tenant is whose
policies they are; no case can name another.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, Final

from app.core.budget import cents_to_ucents
from app.core.grant import MAX_LINEAGE, TenantId, parse_time
from app.core.registry import Effect, Trust
from app.core.resource_rules import attributes_flaw, id_flaw, is_scalar, type_flaw
from app.core.resources import Attributes, ResourceRef
from app.core.strict_json import JsonObject, JsonValue, point
from app.ports import PolicyQuestion
from app.usecases.failures import Malformed
from app.usecases.register_tool import TOOL_NAME

MAX_TEXT_CHARS: Final = 500
MAX_SINKS: Final = 32
DEFAULT_CLIENT: Final = "client"
"""Who calls, for whom, and as whom, unless a case says otherwise."""
DEFAULT_PARENT_RUN: Final = "parent-run"
DEFAULT_TIME: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)

_DEFAULT: Final = PolicyQuestion(
    tenant_id="",
    grant_id="gr_case",
    root_grant_id="gr_case_root",
    depth=0,
    run_id="run",
    parent_run_id=None,
    subject=DEFAULT_CLIENT,
    actor=DEFAULT_CLIENT,
    client_id=DEFAULT_CLIENT,
    server="server",
    tool="tool",
    effect=Effect.READ,
    trust=Trust.EXTERNAL_UNTRUSTED,
    sinks=(),
    idempotent=False,
    max_cost_ucents=0,
    now=DEFAULT_TIME,
    source_ip=None,
    resource=None,
    resource_attributes={},
    attributes={},
)

_SERVER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NOT_TEXT: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def read_case(call: JsonObject, tenant_id: TenantId, pointer: str = "") -> PolicyQuestion:
    """The question that a case's `call` asks. Raises Malformed, its pointer below the given one."""
    said: dict[str, Any] = {}
    for name, value in call.items():
        if name not in _MEMBERS:
            raise Malformed(point(pointer, name), "is not a member of a call")
        field, read = _MEMBERS[name]
        said[field] = read(value, point(pointer, name))
    question = replace(_DEFAULT, tenant_id=tenant_id, **_implied(said), **said)
    around, named = _around(question), set[ResourceRef]() if question.resource is None else {question.resource}
    # A case with a misspelt id would pass for the wrong reason.
    for type_, id_ in sorted(question.attributes.keys() - around - named):
        raise Malformed(point(point(f"{pointer}/attributes", type_), id_), "describes nothing that is in this call")
    return replace(
        question,
        resource_attributes={} if question.resource is None else question.attributes.get(question.resource, {}),
        attributes={ref: attributes for ref, attributes in question.attributes.items() if ref in around},
    )


def _implied(said: Mapping[str, Any]) -> dict[str, Any]:
    """What follows from what a case says, where the case does not say it itself."""
    client, depth = said.get("client_id", DEFAULT_CLIENT), said.get("depth", 0)
    implied = {
        "subject": client,
        "actor": client,
        "parent_run_id": DEFAULT_PARENT_RUN if depth else None,
        "root_grant_id": _DEFAULT.root_grant_id if depth else _DEFAULT.grant_id,
    }
    return {field: value for field, value in implied.items() if field not in said}


def _around(question: PolicyQuestion) -> set[ResourceRef]:
    """What stands around every call: all of it an administrator may have described."""
    return {
        ResourceRef("tenant", question.tenant_id),
        ResourceRef("subject", question.subject),
        ResourceRef("run", question.run_id),
        ResourceRef("client", question.actor),
        ResourceRef("client", question.client_id),
        ResourceRef("tool-server", question.server),
        ResourceRef("tool", f"{question.server}/{question.tool}"),
    }


# --- members ----------------------------------------------------------------------------------------------


def _text(value: JsonValue, pointer: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_TEXT_CHARS or _NOT_TEXT.search(value):
        raise Malformed(pointer, f"must be a string of 1 to {MAX_TEXT_CHARS} characters without control characters")
    return value


def _server(value: JsonValue, pointer: str) -> str:
    if not isinstance(value, str) or not _SERVER.fullmatch(value):
        raise Malformed(pointer, "must be a tool server's name")
    return value


def _tool(value: JsonValue, pointer: str) -> str:
    if not isinstance(value, str) or not TOOL_NAME.fullmatch(value):
        raise Malformed(pointer, "must be the tool's name, without its server's")
    return value


def _depth(value: JsonValue, pointer: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_LINEAGE:
        raise Malformed(pointer, f"must be an integer from 0 to {MAX_LINEAGE - 1}")
    return value


def _flag(value: JsonValue, pointer: str) -> bool:
    if not isinstance(value, bool):
        raise Malformed(pointer, "must be true or false")
    return value


def _one_of(words: type[Effect | Trust]) -> Callable[[JsonValue, str], str]:
    known = [word.value for word in words]

    def read(value: JsonValue, pointer: str) -> str:
        if value not in known:
            raise Malformed(pointer, f"must be one of {', '.join(known)}")
        return str(value)

    return read


def _sinks(value: JsonValue, pointer: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_SINKS:
        raise Malformed(pointer, f"must be a list of at most {MAX_SINKS} names")
    return tuple(sorted({_text(item, point(pointer, str(index))) for index, item in enumerate(value)}))


def _ucents(value: JsonValue, pointer: str) -> int:
    try:
        return cents_to_ucents(value)
    except ValueError as error:
        raise Malformed(pointer, str(error)) from error


def _time(value: JsonValue, pointer: str) -> datetime:
    try:
        return parse_time(_text(value, pointer))
    except ValueError as error:
        raise Malformed(pointer, "must be a time with its offset, as in 2026-01-31T12:00:00Z (RFC 3339)") from error


def _address(value: JsonValue, pointer: str) -> str:
    text = _text(value, pointer)
    try:
        address = ip_address(text)
    except ValueError as error:
        raise Malformed(pointer, "must be an IP address") from error
    if "%" in text:
        raise Malformed(pointer, "must be an IP address without a zone")
    return str(address)


def _resource(value: JsonValue, pointer: str) -> ResourceRef:
    if not isinstance(value, dict) or value.keys() != {"type", "id"}:
        raise Malformed(pointer, 'must be an object with "type" and "id"')
    type_, id_ = (_text(value[name], point(pointer, name)) for name in ("type", "id"))
    _refuse(type_flaw(type_), point(pointer, "type"))
    _refuse(id_flaw(id_), point(pointer, "id"))
    return ResourceRef(type_, id_)


def _attributes(value: JsonValue, pointer: str) -> Mapping[ResourceRef, Attributes]:
    things: dict[ResourceRef, Attributes] = {}
    for type_, of_type in _object(value, pointer).items():
        place = point(pointer, type_)
        _refuse(type_flaw(type_), place)
        for id_, attributes in _object(of_type, place).items():
            _refuse(id_flaw(id_), point(place, id_))
            things[ResourceRef(type_, id_)] = _scalars(attributes, point(place, id_))
    return things


def _scalars(value: JsonValue, pointer: str) -> Attributes:
    attributes = _object(value, pointer)
    if (flaw := attributes_flaw(attributes)) is not None:
        raise Malformed(f"{pointer}{flaw[0]}", flaw[1])
    return {name: member for name, member in attributes.items() if is_scalar(member)}


def _refuse(flaw: str | None, pointer: str) -> None:
    if flaw is not None:
        raise Malformed(pointer, flaw)


def _object(value: JsonValue, pointer: str) -> JsonObject:
    if not isinstance(value, dict):
        raise Malformed(pointer, "must be an object")
    return value


_MEMBERS: Final[Mapping[str, tuple[str, Callable[[JsonValue, str], object]]]] = {
    "subject": ("subject", _text),
    "actor": ("actor", _text),
    "clientId": ("client_id", _text),
    "runId": ("run_id", _text),
    "parentRunId": ("parent_run_id", _text),
    "depth": ("depth", _depth),
    "server": ("server", _server),
    "tool": ("tool", _tool),
    "effect": ("effect", _one_of(Effect)),
    "trust": ("trust", _one_of(Trust)),
    "sinks": ("sinks", _sinks),
    "idempotent": ("idempotent", _flag),
    "maxCostCents": ("max_cost_ucents", _ucents),
    "now": ("now", _time),
    "sourceIp": ("source_ip", _address),
    "resource": ("resource", _resource),
    "attributes": ("attributes", _attributes),
}
"""How each member is called in the question, and how it is read."""
