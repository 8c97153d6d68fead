"""Identifiers: what they look like, that they differ, and that they sort by time."""

import re
import time

import pytest

from app.adapters.ids import new_id


def test_an_identifier_is_its_prefix_and_26_characters_of_crockfords_alphabet() -> None:
    assert re.fullmatch(r"gr_[0-7][0-9a-hjkmnp-tv-z]{25}", new_id("gr"))


def test_no_two_identifiers_are_alike() -> None:
    assert len({new_id("gr") for _ in range(10_000)}) == 10_000


def test_a_later_millisecond_sorts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [0, 1, 31, 32, 2**40, 1_769_860_800_000, 2**48 - 1]
    made = []
    for milliseconds in moments:
        monkeypatch.setattr(time, "time_ns", lambda milliseconds=milliseconds: milliseconds * 1_000_000)
        made.append(new_id("gr"))
    assert made == sorted(made)


def test_within_a_millisecond_80_bits_are_left_to_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_769_860_800_000_000_000)
    made = [new_id("gr").removeprefix("gr_") for _ in range(1000)]
    assert {text[:10] for text in made} == {"01kg9ys7g0"}
    assert all(len({text[place] for text in made}) == 32 for place in range(10, 26))


@pytest.mark.parametrize("prefix", ["", "GR", "gr_", "gr ", "é", "gr\n", "1"])
def test_a_prefix_is_one_lower_case_word(prefix: str) -> None:
    with pytest.raises(AssertionError):
        new_id(prefix)
