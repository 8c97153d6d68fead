"""The page of conformance keeps its word: every item is there once, and every test that it names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "CONFORMANCE.md").read_text()

ITEMS = {
    *[f"B{number}" for number in range(1, 5)], *[f"X{number}" for number in range(1, 13)],
    *[f"R{number}" for number in range(1, 4)], *[f"G{number}" for number in range(1, 6)],
    *[f"M{number}" for number in range(1, 5)], *[f"P{number}" for number in range(1, 5)],
    *[f"I{number}" for number in range(1, 5)], *[f"V{number}" for number in range(1, 5)],
    "A1", "A2", *[f"T{number}" for number in range(1, 5)], "J3", "J4", "J5",
    *[f"D{number}" for number in range(1, 8)], *[f"W{number}" for number in range(1, 4)],
    *[f"C{number}" for number in range(1, 9)], *[f"K{number}" for number in range(1, 5)],
}  # fmt: skip
"""As the design counts them; K is the authorization code."""

ROWS = re.findall(r"^\| ([A-Z]\d+) \| (.+) \| ([^|]+) \|$", PAGE, re.MULTILINE)


def test_every_item_has_exactly_one_row() -> None:
    assert sorted(item for item, _, _ in ROWS) == sorted(ITEMS)


@pytest.mark.parametrize("item, shown_by", [(item, shown_by) for item, _, shown_by in ROWS])
def test_every_item_names_tests_that_exist(item: str, shown_by: str) -> None:
    named = [name.strip(" `") for name in shown_by.split(",")]
    assert named
    for test in named:
        file, _, function = test.partition("::")
        assert re.search(rf"^(async )?def {re.escape(function)}\(", (ROOT / file).read_text(), re.MULTILINE), test


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"tests/[a-z_/]+\.[a-z]+", PAGE))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
