"""What the terminal sees: JSON as it came, tables, and one line for whatever went wrong.

Text may come from strangers (a tool's result, a reason for closing), so no control character of theirs ever
reaches the terminal, and nothing of theirs is read as markup.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from app.core.strict_json import JsonObject, JsonValue

Cell = str | Callable[[JsonObject], object]
"""What a column shows of a row: a member by its name, or what is made of the row."""

PIPE_COLUMNS: Final = 240
"""How wide a table may be where there is no terminal to fit it to."""

_SHOWN_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    0x09: " ",
    0x0A: " ",
}
_JSON_CONTROLS: Final = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


class ExitCode(IntEnum):
    """How a command ends that does not succeed."""

    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3


class Stop(Exception):
    """The command ends here, with one line on stderr."""

    def __init__(self, line: str, code: ExitCode = ExitCode.REFUSED) -> None:
        super().__init__(plain(line))
        self.code = code


def cause(error: OSError) -> str:
    """What the system says, without what a library added."""
    said = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)
    return said.partition(" (while")[0].lower()


def console() -> Console:
    """The standard output, as wide as the terminal."""
    width = None if sys.stdout.isatty() else PIPE_COLUMNS
    return Console(highlight=False, markup=False, emoji=False, width=width)


def show(*renderables: RenderableType) -> None:
    """Print for people."""
    for renderable in renderables:
        console().print(renderable)


def line(text: str) -> None:
    """Print one line as it is: what is copied from the terminal or read by a program is never wrapped."""
    print(plain(text), flush=True)  # noqa: T201 (printing is a command's job)


def warn(text: str) -> None:
    """One line on stderr, for what goes on all the same."""
    print(plain(text), file=sys.stderr, flush=True)  # noqa: T201


def show_json(document: JsonValue) -> None:
    """Print a document for programs. Escaping what JSON itself would let through changes no value."""
    print(json.dumps(document, indent=2, ensure_ascii=False).translate(_JSON_CONTROLS))  # noqa: T201


def plain(text: str) -> str:
    """Text without control characters."""
    return text.translate(_SHOWN_CONTROLS)


def word(value: object) -> str:
    """A value in a table's cell."""
    match value:
        case None | "":
            return "–"
        case dict() | list() if not value:
            return "–"
        case bool():
            return "yes" if value else "no"
        case list() if not any(isinstance(item, dict | list) for item in value):
            return ", ".join(map(word, value))
        case dict() | list():
            return plain(json.dumps(value, ensure_ascii=False))
        case _:
            return plain(str(value))


def table(columns: Mapping[str, Cell], rows: Iterable[JsonObject]) -> Table:
    """Rows under headings."""
    made = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        made.add_row(*(Text(word(cell(row) if callable(cell) else row.get(cell))) for cell in columns.values()))
    return made


def facts(document: JsonObject) -> Table:
    """One document, a line for each member."""
    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in document.items():
        made.add_row(name, Text(word(value)))
    return made
