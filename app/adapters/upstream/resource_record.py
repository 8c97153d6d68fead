"""A tool server's own record of whose things are: one question for several things, one answer.

Knows how the question is spelt and how the answer is read: strictly, to the last member, since what the answer
says is what a call is then permitted by. What is not in it belongs to nobody; what is another tenant's is left
out. Refuses to know what the things are.
"""

from collections.abc import Collection
from http import HTTPStatus
from typing import Final

from app.adapters.upstream.client import UnusableError, UpstreamClient, with_credential
from app.core.resource_rules import attributes_flaw, is_scalar
from app.core.resources import Attributes, ResourceRef, Resources
from app.core.strict_json import JsonObject, JsonValue, StrictJsonError, canonical, parse
from app.ports import ResolveRequest

MAX_ANSWER_DEPTH: Final = 4
"""Levels of a whole answer: itself, its list, a thing, the thing's attributes."""

_ANSWER: Final = frozenset({"resources"})
_THING: Final = frozenset({"type", "id", "tenantId", "attributes"})
_HEADERS: Final = {"Accept": "application/json", "Content-Type": "application/json"}
_UNREADABLE: Final = "the tool server's answer about resources is not as agreed"


async def ask(client: UpstreamClient, request: ResolveRequest, deadline: float) -> Resources:
    """What is on record; raises NotSentError, LostError or UnusableError."""
    url = client.endpoint(request.endpoint)
    headers = with_credential(request.headers, _HEADERS)
    async with client.exchange(
        "POST",
        url,
        headers=headers,
        body=canonical(_question(request)),
        deadline=deadline,
        max_bytes=request.max_response_bytes,
    ) as reply:
        if reply.status != HTTPStatus.OK:
            raise UnusableError(f"the tool server was asked about resources and answered HTTP {reply.status}")
        if reply.media_type != "application/json":
            raise UnusableError(_UNREADABLE)
        return _read(await reply.read(), request)


def _question(request: ResolveRequest) -> JsonObject:
    resources: list[JsonValue] = [{"type": ref.type, "id": ref.id} for ref in request.refs]
    return {"tenantId": request.tenant_id, "resources": resources}


# --- the answer -------------------------------------------------------------------------------------------


def _read(raw: bytes, request: ResolveRequest) -> Resources:
    try:
        answer = parse(raw, max_bytes=len(raw), max_depth=MAX_ANSWER_DEPTH)
    except StrictJsonError as error:
        raise UnusableError(_UNREADABLE) from error
    things = _members(answer, _ANSWER)["resources"]
    if not isinstance(things, list):
        raise UnusableError(_UNREADABLE)
    asked, found = set(request.refs), dict[ResourceRef, Attributes]()
    for thing in things:
        members = _members(thing, _THING)
        ref = _taken(members, asked)
        tenant, attributes = members["tenantId"], _attributes(members["attributes"])
        if not isinstance(tenant, str):
            raise UnusableError(_UNREADABLE)
        if tenant == request.tenant_id:
            found[ref] = attributes
    return found


def _members(value: JsonValue, names: Collection[str]) -> JsonObject:
    """An object with exactly these members."""
    if not isinstance(value, dict) or value.keys() != names:
        raise UnusableError(_UNREADABLE)
    return value


def _taken(members: JsonObject, asked: set[ResourceRef]) -> ResourceRef:
    """The thing that an entry is about, which was asked about and is now answered."""
    type_, id_ = members["type"], members["id"]
    if not isinstance(type_, str) or not isinstance(id_, str) or ResourceRef(type_, id_) not in asked:
        raise UnusableError(_UNREADABLE)
    asked.remove(ResourceRef(type_, id_))
    return ResourceRef(type_, id_)


def _attributes(value: JsonValue) -> Attributes:
    if not isinstance(value, dict) or attributes_flaw(value) is not None:
        raise UnusableError(_UNREADABLE)
    return {name: member for name, member in value.items() if is_scalar(member)}
