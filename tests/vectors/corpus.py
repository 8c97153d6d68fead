"""The cases of constraints.json, for the tests that run them. What a case says is described in README.md."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from app.core.kinds import Bindings
from app.core.resources import ResourceRef, Resources
from app.core.strict_json import parse

Case: TypeAlias = dict[str, Any]

_CORPUS: Final[Any] = parse(Path(__file__).with_name("constraints.json").read_bytes(), max_bytes=2**20, max_depth=100)

BINDINGS: Final[Bindings] = _CORPUS["bindings"]
"""The fields of the grant under which every case is judged."""

RECORD: Final[dict[str, dict[str, dict[str, Any]]]] = _CORPUS["record"]
"""The things on record: tenant, type, id, attributes."""

RESOURCES: Final[Resources] = {
    ResourceRef(kind, thing): attributes
    for kind, things in RECORD[str(BINDINGS["tenantId"])].items()
    for thing, attributes in things.items()
}
"""What is on record as the grant's tenant's: all that a decision ever sees of it."""


def sections(part: str) -> dict[str, list[Case]]:
    """The cases of a part of the corpus, by topic."""
    topics: dict[str, list[Case]] = _CORPUS[part]
    return topics


def cases(part: str) -> Iterator[Case]:
    """All cases of a part of the corpus."""
    for section in sections(part).values():
        yield from section
