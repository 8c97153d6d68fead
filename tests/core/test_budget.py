"""Money is exact, a charge never exceeds its hold, and a budget admits what fits and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.budget import (
    MAX_UCENTS,
    Amount,
    Budget,
    Charge,
    Price,
    ReservationState,
    Usage,
    cents_to_ucents,
    charge_for,
    least,
    resolve_pointer,
    ucents_to_cents,
)
from app.core.strict_json import JsonValue


@pytest.mark.parametrize("cents, ucents", [(0, 0), (1, 10_000), (12.5, 125_000), (0.0001, 1), (1e2, 1_000_000)])
def test_decimal_cents_are_exact_ucents(cents: float, ucents: int) -> None:
    assert cents_to_ucents(cents) == ucents
    assert ucents_to_cents(ucents) == cents


@pytest.mark.parametrize(
    "ucents, cents", [(0, "0"), (10_000, "1"), (9_999, "0.9999"), (1, "0.0001"), (20_001, "2.0001")]
)
def test_whole_cents_are_shown_as_an_integer_and_parts_with_their_digits(ucents: int, cents: str) -> None:
    assert repr(ucents_to_cents(ucents)) == cents


def test_no_amount_is_above_the_largest_integer_that_is_safe_in_json() -> None:
    assert MAX_UCENTS == 9_007_199_254_740_991
    assert cents_to_ucents(900_719_925_474.0991) == MAX_UCENTS
    with pytest.raises(ValueError, match="must"):
        cents_to_ucents(900_719_925_474.0992)


@pytest.mark.parametrize("cents", [-1, -0.0001, 0.00001, True, "5", None, [1], 1e300, MAX_UCENTS])
def test_what_is_no_amount_of_cents_is_refused(cents: JsonValue) -> None:
    with pytest.raises(ValueError, match="must"):
        cents_to_ucents(cents)


@given(st.integers(0, 10**14))
def test_cents_round_trip(ucents: int) -> None:
    assert cents_to_ucents(ucents_to_cents(ucents)) == ucents


@pytest.mark.parametrize(
    "price, result, charge",
    [
        (Price(fixed_ucents=5, max_ucents=5), {"cost": 99}, Charge(ucents=5)),
        (Price(fixed_ucents=0, max_ucents=30_000, cost_from="/cost"), {"cost": 2}, Charge(ucents=20_000)),
        (Price(fixed_ucents=0, max_ucents=30_000, cost_from="/cost"), {"cost": 3}, Charge(ucents=30_000)),
        (Price(fixed_ucents=0, max_ucents=30_000, cost_from="/cost"), {"cost": 4}, Charge(ucents=30_000, overrun=True)),
        (Price(fixed_ucents=0, max_ucents=30_000, cost_from="/cost"), {"cost": -1}, Charge(ucents=30_000)),
        (Price(fixed_ucents=0, max_ucents=30_000, cost_from="/cost"), {}, Charge(ucents=30_000)),
        (Price(fixed_ucents=0, max_ucents=30_000, cost_from="/cost"), None, Charge(ucents=30_000)),
        (Price(fixed_ucents=0, max_ucents=30_000, cost_from="/a/1/c"), {"a": [0, {"c": 1}]}, Charge(ucents=10_000)),
    ],
)
def test_a_call_is_charged_what_it_reports_up_to_its_hold(price: Price, result: JsonValue, charge: Charge) -> None:
    assert charge_for(price, result) == charge


DOCUMENT: JsonValue = {"a/b": [7, 8], "m~n": 9, "~1": 10, "0": 11, "word": "text"}


@pytest.mark.parametrize(
    "pointer, value",
    [
        ("", DOCUMENT),
        ("/a~1b/0", 7),
        ("/a~1b/1", 8),
        ("/a~1b/2", None),
        ("/a~1b/-1", None),
        ("/a~1b/x", None),
        ("/m~0n", 9),
        ("/~01", 10),
        ("/0", 11),
        ("/word/0", None),
        ("/nothing/here", None),
    ],
)
def test_a_pointer_finds_its_value_or_nothing(pointer: str, value: JsonValue) -> None:
    assert resolve_pointer(DOCUMENT, pointer) == value


@pytest.mark.parametrize(
    "calls, ucents, fits", [(2, 50, True), (1, 0, True), (3, 50, False), (2, 51, False), (3, 0, False), (0, 51, False)]
)
def test_an_amount_is_within_a_limit_when_neither_part_is_above_it(calls: int, ucents: int, fits: bool) -> None:
    assert Amount(tool_calls=calls, spend_ucents=ucents).within(Amount(tool_calls=2, spend_ucents=50)) is fits


@pytest.mark.parametrize(
    "calls, ucents, left", [(0, 0, (5, 50)), (2, 30, (3, 20)), (5, 50, (0, 0)), (6, 20, (0, 30)), (1, 70, (4, 0))]
)
def test_what_is_left_is_neither_posted_nor_held_and_never_below_nothing(
    calls: int, ucents: int, left: tuple[int, int]
) -> None:
    limit, some = Amount(tool_calls=5, spend_ucents=50), Amount(tool_calls=calls, spend_ucents=ucents)
    for usage in (Usage(posted=some), Usage(pending=some)):
        budget = Budget(account_id="gr_x", limit=limit, usage=usage)
        assert budget.left == Amount(tool_calls=left[0], spend_ucents=left[1])


def test_the_least_of_several_amounts_is_the_least_of_each_part() -> None:
    amounts = (Amount(tool_calls=3, spend_ucents=10), Amount(tool_calls=2, spend_ucents=30))
    assert least(iter(amounts)) == Amount(tool_calls=2, spend_ucents=10)


PENDING, POSTED, VOIDED, EXPIRED = ReservationState


def test_the_states_of_a_hold_keep_the_words_that_the_ledger_stores() -> None:
    assert [state.value for state in ReservationState] == ["pending", "posted", "voided", "expired"]


@pytest.mark.parametrize("state", ReservationState)
def test_a_hold_ends_once_and_what_expired_is_corrected_once(state: ReservationState) -> None:
    endings = {ending for ending in ReservationState if state.may_become(ending)}
    assert endings == {PENDING: {POSTED, VOIDED, EXPIRED}, EXPIRED: {POSTED, VOIDED}}.get(state, set())


amounts = st.builds(Amount, tool_calls=st.integers(0, 5), spend_ucents=st.integers(0, 50))


@given(amounts, amounts, amounts, amounts)
def test_a_budget_admits_exactly_what_is_left(limit: Amount, posted: Amount, pending: Amount, demand: Amount) -> None:
    budget = Budget(account_id="gr_x", limit=limit, usage=Usage(posted=posted, pending=pending))
    if (posted + pending).within(limit):
        assert budget.admits(demand) == demand.within(budget.left)
    else:
        assert not budget.admits(demand)
