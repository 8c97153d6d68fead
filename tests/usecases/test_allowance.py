"""A flood of strangers is recorded in part, and what was left out is counted."""

from datetime import timedelta

from app.usecases.allowance import Allowance
from tests.samples import NOW


def test_a_burst_is_taken_and_what_follows_is_counted_until_the_refill() -> None:
    allowance = Allowance(burst=20)
    assert [allowance.take(NOW) for _ in range(20)] == [0] * 20
    assert [allowance.take(NOW) for _ in range(3)] == [None] * 3
    assert allowance.take(NOW + timedelta(seconds=1)) == 3
    assert allowance.take(NOW + timedelta(seconds=1)) is None


def test_time_refills_no_more_than_the_burst() -> None:
    allowance = Allowance(burst=20)
    assert allowance.take(NOW) == 0
    much_later = NOW + timedelta(days=1)
    assert [allowance.take(much_later) for _ in range(20)] == [0] * 20
    assert allowance.take(much_later) is None


def test_a_clock_that_goes_back_neither_refills_nor_breaks() -> None:
    allowance = Allowance(burst=20)
    allowance.take(NOW)
    assert allowance.take(NOW - timedelta(hours=1)) is not None
