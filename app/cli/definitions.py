"""How the definition that a tool server offers differs from the pinned one, line by line.

It is a stranger's text that an administrator is asked to accept, and that a model will read: what a terminal
would not show of it (invisible characters, those that turn the direction of writing) is shown by its code.
"""

import json
from collections.abc import Iterator
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from app.cli.output import word
from app.cli.session import rows
from app.core.strict_json import JsonObject, JsonValue

SIGNS: Final = {"added": (("+", "green", "after"),), "removed": (("-", "red", "before"),)}
"""The lines of a difference: sign, colour, and the side that it shows."""

CHANGED: Final = (("-", "red", "before"), ("+", "green", "after"))


def changes(tool: JsonObject) -> RenderableType:
    """What is pending of a tool's document: what to accept it by, and every difference."""
    pending = tool.get("pending")
    assert isinstance(pending, dict), "only a tool that changed is shown so"
    return Group(
        Text(f"changed: refused until accepted, seen {word(pending.get('seenAt'))}", style="bold yellow"),
        Text(f"pinned  {word(tool.get('definitionDigest'))}"),
        Text(f"pending {word(pending.get('definitionDigest'))}"),
        *_lines(pending),
    )


def _lines(pending: JsonObject) -> Iterator[Text]:
    if (flaw := pending.get("flaw")) is not None:
        yield Text(f"can't be shown: {visible(flaw)}", style="red", overflow="fold")
    for difference in rows(pending, "difference"):
        yield Text(visible_text(str(difference.get("pointer"))), style="bold", overflow="fold")
        for sign, colour, side in SIGNS.get(str(difference.get("kind")), CHANGED):
            yield Text(f"  {sign} {visible(difference.get(side))}", style=colour, overflow="fold")


def visible(value: JsonValue) -> str:
    """A value as JSON in which nothing hides."""
    return visible_text(json.dumps(value, ensure_ascii=False))


def visible_text(text: str) -> str:
    """A text in which nothing hides."""
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
