"""Options that several commands take: groups of them, and values that are too long or too secret for a command line.

A group of options is a function from them to the one value that a command wants; `options` puts the group's
parameters in that value's place, where Typer finds them.
"""

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, cast

import typer

from app.cli.output import cause
from app.core.strict_json import JsonObject, JsonValue, StrictJsonError, parse

R = TypeVar("R")

MAX_BYTES: Final = 1_048_576
MAX_DEPTH: Final = 64
JSON_METAVAR: Final = "JSON|@FILE|-"
TEXT_METAVAR: Final = "TEXT|@FILE|-"


def options(**groups: Callable[..., object]) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a command the options of these groups, each collected into the parameter of its name."""

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        members = {name: inspect.signature(group).parameters for name, group in groups.items()}
        own = [item for item in inspect.signature(command).parameters.values() if item.name not in groups]
        taken = [parameter for group in members.values() for parameter in group.values()]

        @wraps(command)
        def run(**given: object) -> R:
            collected = {
                name: group(**{member: given.pop(member) for member in members[name]}) for name, group in groups.items()
            }
            return command(**given, **collected)

        signature = inspect.Signature([*own, *taken])
        run.__signature__ = signature  # type: ignore[attr-defined]  # what inspect.signature looks for
        run.__annotations__ = {item.name: item.annotation for item in signature.parameters.values()}
        return run

    return decorate


def read_text(text: str) -> str:
    """A value as it stands, or what `@FILE` or `-` (standard input) holds. Raises BadParameter."""
    if text != "-" and not text.startswith("@"):
        return text
    try:
        return _read(text).decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise typer.BadParameter("is not UTF-8") from None


def read_json(text: str) -> JsonValue:
    """The same for JSON, parsed as strictly as the service does. Raises BadParameter."""
    content = _read(text) if text == "-" or text.startswith("@") else text.encode()
    try:
        return parse(content, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    except StrictJsonError as error:
        where = f" at {error.pointer}" if error.pointer else ""
        raise typer.BadParameter(f"{error.detail}{where}") from None


def read_object(text: str) -> JsonObject:
    """The same for a JSON object."""
    value = read_json(text)
    if not isinstance(value, dict):
        raise typer.BadParameter("must be a JSON object")
    return value


def _read(source: str) -> bytes:
    try:
        return sys.stdin.buffer.read(MAX_BYTES + 1) if source == "-" else Path(source[1:]).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{source[1:]}: {cause(error)}") from None


def given(**members: object) -> JsonObject:
    """A document of the members that were given, spelled as documents spell them."""
    said = {_camel(name): value for name, value in members.items() if value not in (None, [])}
    return cast("JsonObject", said)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


Members = dict[str, Any]
"""A JSON object as Typer sees one: it evaluates annotations, and the recursive type is none that it could."""


def json_option(text: str, *names: str) -> Any:  # noqa: ANN401 (as Typer's own)
    """An option that takes a JSON object."""
    return typer.Option(*names, parser=read_object, metavar=JSON_METAVAR, help=text)


Body = Annotated[Members | None, json_option("The request's body; options add to it.", "--body")]
InTenant = Annotated[
    str | None, typer.Option("--tenant", metavar="ID", help="The tenant, for administrators of the platform.")
]
AsJson = Annotated[bool, typer.Option("--json", help="The document as it came.")]
Limit = Annotated[int, typer.Option(min=1, max=500, help="How many rows.")]
After = Annotated[str | None, typer.Option(metavar="CURSOR", help="The next page: the last page's `next`.")]
