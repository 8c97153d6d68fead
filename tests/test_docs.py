"""What the pages say is what the code takes."""

import json
import re
from pathlib import Path

import pytest

from app.core.constraints import parse_tool_rule
from app.core.reasons import Reason
from app.core.spelling import KINDS

DOCS = Path(__file__).parent.parent / "docs"
EXAMPLES = re.findall(r"^\| `[^|]+\| `(\{.*?\})` \|", (DOCS / "constraints.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_of_a_constraint_is_one(example: str) -> None:
    parse_tool_rule({"argument": json.loads(example)}, pointer="")


def test_every_kind_has_its_example() -> None:
    shown = {next(iter(json.loads(example))) for example in EXAMPLES}
    assert set(KINDS) - shown <= {"anyOf"}


def test_every_reason_that_is_answered_today_is_in_the_concepts() -> None:
    page = (DOCS / "concepts.md").read_text()
    later = {Reason.APPROVAL_REQUIRED}
    assert [reason for reason in Reason if reason not in later and f"`{reason}`" not in page] == []
