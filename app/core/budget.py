"""Budgets: what may be spent, what is held, what is gone, and what a call costs.

Money is an integer of `ucents`, 1/10,000 of a cent; JSON shows it as decimal cents. This file adds and
compares. It does not know where usage is stored, nor who asks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from app.core.strict_json import JsonValue

UCENTS_PER_CENT = 10_000
MAX_UCENTS = 2**53 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A number of tool calls together with a sum of money."""

    tool_calls: int = 0
    spend_ucents: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            tool_calls=self.tool_calls + other.tool_calls, spend_ucents=self.spend_ucents + other.spend_ucents
        )

    def within(self, limit: "Amount") -> bool:
        """Whether neither part exceeds the limit's."""
        return self.tool_calls <= limit.tool_calls and self.spend_ucents <= limit.spend_ucents


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an account has spent for good (`posted`) and what calls in flight hold (`pending`)."""

    posted: Amount = Amount()
    pending: Amount = Amount()

    @property
    def total(self) -> Amount:
        return self.posted + self.pending


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One account of the ledger: a grant's own, or a client's or a tenant's for a window of time."""

    account_id: str
    limit: Amount
    usage: Usage = Usage()

    @property
    def left(self) -> Amount:
        """What is neither posted nor held; never below zero."""
        total = self.usage.total
        return Amount(
            tool_calls=max(0, self.limit.tool_calls - total.tool_calls),
            spend_ucents=max(0, self.limit.spend_ucents - total.spend_ucents),
        )

    def admits(self, demand: Amount) -> bool:
        """Whether the demand still fits beside all that is posted and held."""
        return (self.usage.total + demand).within(self.limit)


class ReservationState(StrEnum):
    """Where a call's hold on its budgets stands: a two-phase transfer (pending, then one of the others)."""

    PENDING = "pending"
    POSTED = "posted"
    VOIDED = "voided"
    EXPIRED = "expired"

    def may_become(self, ending: "ReservationState") -> bool:
        """A hold ends once; what the reconciler expired is corrected once, by the late answer."""
        if self is ReservationState.EXPIRED:
            return ending in (ReservationState.POSTED, ReservationState.VOIDED)
        return self is ReservationState.PENDING and ending is not ReservationState.PENDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one call of a tool costs.

    `fixed_ucents` is charged when the tool reports nothing; `max_ucents` is what is held while it runs;
    `cost_from` is the RFC 6901 pointer to the cost in cents that the tool reports in its result.
    """

    fixed_ucents: int
    max_ucents: int
    cost_from: str | None = None

    @property
    def hold(self) -> Amount:
        """What a call reserves before it runs."""
        return Amount(tool_calls=1, spend_ucents=self.max_ucents)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What a finished call is charged, and whether the tool reported more than was held."""

    ucents: int
    overrun: bool = False


def charge_for(price: Price, result: JsonValue) -> Charge:
    """The charge for a call that ran.

    A reported cost settles at what was reported, and at the maximum when it is above it; a tool that should
    report and does not, or reports nonsense, is charged the maximum, since less could not be proven.
    """
    if price.cost_from is None:
        return Charge(ucents=price.fixed_ucents)
    reported = resolve_pointer(result, price.cost_from)
    try:
        ucents = cents_to_ucents(reported)
    except ValueError:
        return Charge(ucents=price.max_ucents)
    return Charge(ucents=min(ucents, price.max_ucents), overrun=ucents > price.max_ucents)


def cents_to_ucents(cents: JsonValue) -> int:
    """Decimal cents, as JSON writes them, as integer ucents. Raises ValueError on anything else."""
    if isinstance(cents, bool) or not isinstance(cents, int | float):
        raise ValueError("must be a number of cents")  # noqa: TRY004  # one error for every bad amount
    exact = Decimal(str(cents)) * UCENTS_PER_CENT
    if not 0 <= exact <= MAX_UCENTS:
        raise ValueError("must be between 0 and 900719925474 cents")
    if exact != exact.to_integral_value():
        raise ValueError("must have at most four decimal places")
    return int(exact)


def ucents_to_cents(ucents: int) -> int | float:
    """Integer ucents as decimal cents for JSON: an integer where it is whole."""
    whole, rest = divmod(ucents, UCENTS_PER_CENT)
    return whole if rest == 0 else float(Decimal(ucents) / UCENTS_PER_CENT)


def least(amounts: Iterable[Amount]) -> Amount:
    """The greatest amount that is within every one of `amounts` (at least one)."""
    amounts = tuple(amounts)
    return Amount(
        tool_calls=min(amount.tool_calls for amount in amounts),
        spend_ucents=min(amount.spend_ucents for amount in amounts),
    )


def resolve_pointer(document: JsonValue, pointer: str) -> JsonValue:
    """The value at an RFC 6901 pointer, or None where nothing stands there."""
    value = document
    for raw in pointer.split("/")[1:]:
        token = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(token)
        elif isinstance(value, list) and token.isdecimal() and int(token) < len(value):
            value = value[int(token)]
        else:
            return None
    return value
