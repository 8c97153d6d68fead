"""Values in columns: any string and any time comes back as it was, and compares as Python compares it."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql, sqlite

from app.adapters.sql.columns import Moment, Word, from_microseconds, to_microseconds

WORD, MOMENT = Word(), Moment()
POSTGRES, SQLITE = postgresql.dialect(), sqlite.dialect()  # type: ignore[no-untyped-call]  # of the library


@given(st.text())
def test_postgresql_holds_any_string_without_nul_and_gives_it_back(word: str) -> None:
    bind, result = WORD.bind_processor(POSTGRES), WORD.result_processor(POSTGRES, None)
    assert bind is not None
    assert result is not None
    stored = bind(word)
    assert stored is not None
    assert "\x00" not in stored
    assert result(stored) == word


@given(st.text(alphabet="a01\x00\x1a"), st.text(alphabet="a01\x00\x1a"))
def test_two_strings_are_never_stored_as_one(one: str, other: str) -> None:
    bind = WORD.bind_processor(POSTGRES)
    assert bind is not None
    assert (bind(one) == bind(other)) is (one == other)


def test_sqlite_needs_no_help() -> None:
    assert WORD.bind_processor(SQLITE) is None
    assert WORD.result_processor(SQLITE, None) is None


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_comes_back_to_the_microsecond(moment: datetime) -> None:
    assert from_microseconds(to_microseconds(moment)) == moment


@given(st.datetimes(timezones=st.timezones()), st.datetimes(timezones=st.timezones()))
def test_times_order_as_they_do_whatever_their_offsets(one: datetime, other: datetime) -> None:
    assert (to_microseconds(one) < to_microseconds(other)) is (one.astimezone(UTC) < other.astimezone(UTC))


def test_a_stored_time_is_in_utc() -> None:
    noon = datetime(2026, 6, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert from_microseconds(to_microseconds(noon)).isoformat() == "2026-06-01T10:00:00+00:00"


def test_a_time_without_its_offset_is_a_callers_bug() -> None:
    with pytest.raises(AssertionError, match="offset"):
        MOMENT.process_bind_param(datetime(2026, 6, 1), SQLITE)  # noqa: DTZ001 - that is the point


def test_nothing_stays_nothing() -> None:
    assert MOMENT.process_bind_param(None, SQLITE) is None
    assert MOMENT.process_result_value(None, SQLITE) is None
