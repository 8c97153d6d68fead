"""`subgrant resources`: what belongs to whom, by an administrator's word: one thing, or a file of them."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from app.cli.client import segments
from app.cli.options import After, Body, InTenant, Limit, Members, given, json_option
from app.cli.output import ExitCode, Stop, cause, line
from app.cli.session import Session, remote
from app.core.resource_rules import flaws
from app.core.resources import ResourceRef
from app.core.strict_json import JsonObject, JsonValue, StrictJsonError, parse

group = typer.Typer(no_args_is_help=True)

PATH: Final = "/v1/admin/resources"
COLUMNS: Final = {"type": "type", "id": "id", "attributes": "attributes"}

MAX_REQUEST_THINGS: Final = 1000
MAX_REQUEST_BYTES: Final = 250_000
"""What the server takes; of bytes a little less, for what stands around the things."""

MAX_LINE_BYTES: Final = 1_048_576
MAX_LINE_DEPTH: Final = 2
MEMBERS: Final = frozenset({"type", "id", "attributes"})

ResourceType = Annotated[str, typer.Argument(metavar="TYPE")]
ResourceId = Annotated[str, typer.Argument(metavar="ID")]


@group.command()
@remote
async def put(
    session: Session,
    *,
    type: ResourceType,  # noqa: A002 (its name in the API)
    id: ResourceId,  # noqa: A002
    attributes: Annotated[Members | None, json_option("What constraints and policies may ask for.")] = None,
    tenant: InTenant = None,
    body: Body = None,
) -> None:
    """Register a thing, or replace it."""
    wanted = (body or {}) | given(attributes=attributes)
    path, query = PATH + segments(type, id), {"tenant": tenant}
    session.show(await session.api.request("PUT", path, body=wanted, query=query))


@group.command()
@remote
async def get(session: Session, *, type: ResourceType, id: ResourceId, tenant: InTenant = None) -> None:  # noqa: A002
    """Show a thing."""
    session.show(await session.api.get(PATH + segments(type, id), {"tenant": tenant}))


@group.command("list")
@remote
async def list_(
    session: Session,
    *,
    type: Annotated[str | None, typer.Option(help="Of this type only.")] = None,  # noqa: A002
    tenant: InTenant = None,
    limit: Limit = 100,
    after: After = None,
) -> None:
    """List a tenant's things by type and id."""
    await session.page(PATH, COLUMNS, {"tenant": tenant, "type": type, "limit": limit, "after": after})


@group.command()
@remote
async def remove(session: Session, *, type: ResourceType, id: ResourceId, tenant: InTenant = None) -> None:  # noqa: A002
    """Remove a thing: it belongs to nobody from the next call on."""
    answer = await session.api.request("DELETE", PATH + segments(type, id), query={"tenant": tenant})
    session.show(answer) if session.as_json else line(f"{type} {id} is removed")


# --- a file of them ---------------------------------------------------------------------------------------


@group.command()
@remote
async def load(
    session: Session,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help='Of lines {"type": …, "id": …, "attributes": {…}}.')],
    tenant: InTenant = None,
) -> None:
    """Register every thing of a file; a later line takes the place of an earlier one about the same thing.

    Nothing is sent before every line was read and found good. A request carries many lines, all of them or none.
    """
    with opened(file) as source:
        total, requests = measured(source)
        with progress(is_long=requests > 1) as bar:
            bar.add_task("loading", total=total)
            document = await _send(session, source, tenant, bar)
    session.show(document) if session.as_json else line(
        f"{document['loaded']} loaded, {document['created']} of them new"
    )


async def _send(session: Session, source: "Source", tenant: str | None, bar: Progress) -> JsonObject:
    """What all requests together have come to."""
    loaded, created = 0, 0
    for chunk in chunks(source):
        resources: list[JsonValue] = [*chunk]
        try:
            answer = await session.api.post(PATH, {"resources": resources}, {"tenant": tenant})
        except Stop as stop:
            raise Stop(f"{stop} ({loaded} things were loaded before)", stop.code) from stop
        loaded, created = loaded + len(chunk), created + _count(answer, "created")
        bar.advance(bar.task_ids[0], len(chunk))
    return {"loaded": loaded, "created": created}


def _count(answer: JsonObject, member: str) -> int:
    count = answer.get(member)
    return count if isinstance(count, int) else 0


def measured(source: "Source") -> tuple[int, int]:
    """How many things a file has, and in how many requests they go. Raises Stop with the number of a bad line."""
    sizes = [len(chunk) for chunk in chunks(source)]
    return sum(sizes), len(sizes)


def chunks(source: "Source") -> Iterator[list[JsonObject]]:
    """The things of a file, as many at a time as a request may carry and none of them twice."""
    chunk = Chunk()
    for resource in source.resources():
        if not chunk.takes(resource):
            yield chunk.resources
            chunk = Chunk()
        chunk.add(resource)
    if chunk.resources:
        yield chunk.resources


@dataclass(slots=True)
class Chunk:
    """What goes in one request."""

    resources: list[JsonObject] = field(default_factory=list)
    _refs: set[tuple[JsonValue, JsonValue]] = field(default_factory=set)
    _bytes: int = 0

    def takes(self, resource: JsonObject) -> bool:
        has_room = len(self.resources) < MAX_REQUEST_THINGS and self._bytes + _size(resource) <= MAX_REQUEST_BYTES
        return has_room and (resource["type"], resource["id"]) not in self._refs

    def add(self, resource: JsonObject) -> None:
        self.resources.append(resource)
        self._refs.add((resource["type"], resource["id"]))
        self._bytes += _size(resource)


def _size(resource: JsonObject) -> int:
    """What it takes in a request, with the comma and the blank behind it."""
    return len(json.dumps(resource)) + 2


@dataclass(frozen=True, slots=True)
class Source:
    """A file that can be read from its start again, and what it is called."""

    name: str
    file: IO[bytes]

    def resources(self) -> Iterator[JsonObject]:
        """The thing of each line. Raises Stop with the number of one that holds none."""
        self.file.seek(0)
        number = 0
        while text := self.file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if text.strip():
                try:
                    yield _resource(text)
                except StrictJsonError as error:
                    raise Stop(f"{self.name}:{number}: {error}", ExitCode.USAGE) from error


def _resource(text: bytes) -> JsonObject:
    """The thing that a line holds. Raises StrictJsonError."""
    document = parse(text.strip(), max_bytes=MAX_LINE_BYTES, max_depth=MAX_LINE_DEPTH)
    if not isinstance(document, dict) or not {"type", "id"} <= document.keys() <= MEMBERS:
        raise StrictJsonError("must be an object of type, id and attributes")
    type_, id_, attributes = document["type"], document["id"], document.get("attributes", {})
    if not isinstance(type_, str) or not isinstance(id_, str) or not isinstance(attributes, dict):
        raise StrictJsonError("must have strings for type and id, and an object for attributes")
    for pointer, detail in flaws(ResourceRef(type_, id_), attributes):
        raise StrictJsonError(detail, pointer=pointer)
    if _size(document) > MAX_REQUEST_BYTES:
        raise StrictJsonError("is more than a request can carry")
    return document


@contextmanager
def opened(name: str) -> Iterator[Source]:
    """A file, or standard input; what can be read once only is copied to the disk first. Raises Stop."""
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
            if name != "-" and file.seekable():
                yield Source(name, file)
                return
            with TemporaryFile() as copy:
                copyfileobj(file, copy)
                yield Source(name, copy)
    except OSError as error:
        raise Stop(f"{name}: {cause(error)}", ExitCode.USAGE) from error


def progress(*, is_long: bool) -> Progress:
    """A bar on the terminal, for work that takes a while; nothing elsewhere."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    is_seen = is_long and sys.stderr.isatty()
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not is_seen)
