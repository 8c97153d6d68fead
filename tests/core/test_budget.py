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
    Usage,
    cents_to_ucents,
    charge_for,
    resolve_pointer,
    ucents_to_cents,
)
from app.core.strict_json import JsonValue


@pytest.mark.parametrize("cents, ucents", [(0, 0), (1, 10_000), (12.5, 125_000), (0.0001, 1), (1e2, 1_000_000)])
def test_decimal_cents_are_exact_ucents(cents: float, ucents: int) -> None:
    assert cents_to_ucents(cents) == ucents
    assert ucents_to_cents(ucents) == cents


@pytest.mark.parametrize("cents", [-1, 0.00001, True, "5", None, [1], 1e300, MAX_UCENTS])
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
        (Price(fixed_ucents=0, max_ucents=30_000, cost_from="/cost"), {"cost": 4}, Charge(ucents=30_000, overrun=True)),
        (Price(fixed_ucents=0, max_ucents=30_000, cost_from="/cost"), {"cost": -1}, Charge(ucents=30_000)),
        (Price(fixed_ucents=0, max_ucents=30_000, cost_from="/cost"), {}, Charge(ucents=30_000)),
        (Price(fixed_ucents=0, max_ucents=30_000, cost_from="/cost"), None, Charge(ucents=30_000)),
        (Price(fixed_ucents=0, max_ucents=30_000, cost_from="/a/1/c"), {"a": [0, {"c": 1}]}, Charge(ucents=10_000)),
    ],
)
def test_a_call_is_charged_what_it_reports_up_to_its_hold(price: Price, result: JsonValue, charge: Charge) -> None:
    assert charge_for(price, result) == charge


@pytest.mark.parametrize("pointer, value", [("", {"a/b": [7]}), ("/a~1b/0", 7), ("/a~1b/1", None), ("/a~1b/-1", None)])
def test_a_pointer_finds_its_value_or_nothing(pointer: str, value: JsonValue) -> None:
    assert resolve_pointer({"a/b": [7]}, pointer) == value


amounts = st.builds(Amount, tool_calls=st.integers(0, 5), spend_ucents=st.integers(0, 50))


@given(amounts, amounts, amounts, amounts)
def test_a_budget_admits_exactly_what_is_left(limit: Amount, posted: Amount, pending: Amount, demand: Amount) -> None:
    budget = Budget(account_id="gr_x", limit=limit, usage=Usage(posted=posted, pending=pending))
    if (posted + pending).within(limit):
        assert budget.admits(demand) == demand.within(budget.left)
    else:
        assert not budget.admits(demand)
