"""A member that a test leaves out: said in the place of a value, with the same name in every process."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final


class _Member(Enum):
    DROP = "left out"


DROP: Final = _Member.DROP
"""As a member's value: the member is left out. No plain object, whose name in a test's id would be an address."""


def with_changes(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The document with these members in the place of its own, and without those that are dropped."""
    return {name: value for name, value in {**document, **changes}.items() if value is not DROP}
