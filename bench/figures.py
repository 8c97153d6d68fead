"""From rounds to tables: ratios first, since only they outlive the machine, then what this machine did.

A ratio is the median over the gateway's rounds divided by the median over the proxy's; beside it stand the
smallest and the largest ratio within one pair of rounds. Pure arithmetic and text.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

MICRO: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of one server."""

    calls: int
    window_seconds: float
    latencies_ms: Sequence[float]
    server_cpu_seconds: float
    database_cpu_seconds: float

    @property
    def calls_per_second(self) -> float:
        return len(self.latencies_ms) / self.window_seconds if self.window_seconds else 0.0

    @property
    def p50_ms(self) -> float:
        return percentile(self.latencies_ms, 50)

    @property
    def p99_ms(self) -> float:
        return percentile(self.latencies_ms, 99)

    @property
    def server_cpu_us(self) -> float:
        """CPU time a call of the process that serves; an embedded database is part of it."""
        return self.server_cpu_seconds / max(1, self.calls) * MICRO

    @property
    def database_cpu_us(self) -> float:
        return self.database_cpu_seconds / max(1, self.calls) * MICRO

    @property
    def cpu_us(self) -> float:
        return self.server_cpu_us + self.database_cpu_us


class Pair(NamedTuple):
    """A round of each, one right after the other."""

    proxy: Round
    gateway: Round


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """All that was measured on one store at one concurrency. `sync_ms` is what the disk took meanwhile."""

    store: str
    concurrency: int
    pairs: Sequence[Pair]
    sync_ms: float


Measure = Callable[[Round], float]

MEASURES: Final[Mapping[str, Measure]] = {
    "calls/s": lambda one: one.calls_per_second,
    "p50": lambda one: one.p50_ms,
    "p99": lambda one: one.p99_ms,
    "CPU a call": lambda one: one.server_cpu_us,
    "with the database's": lambda one: one.cpu_us,
}


def ratios(cells: Iterable[Cell]) -> list[str]:
    """Gateway to proxy."""
    rows = [[*_where(cell), *(ratio(cell.pairs, measure) for measure in MEASURES.values())] for cell in cells]
    return table(("store", "at once", *MEASURES), rows)


def ratio(pairs: Sequence[Pair], measure: Measure) -> str:
    """One ratio with its spread."""
    proxy = [measure(pair.proxy) for pair in pairs]
    gateway = [measure(pair.gateway) for pair in pairs]
    if not all(proxy):
        return "too short"
    each = [ours / theirs for ours, theirs in zip(gateway, proxy, strict=True)]
    middle = statistics.median(gateway) / statistics.median(proxy)
    return f"{_short(middle)} ({_short(min(each))}–{_short(max(each))})"


def absolutes(cells: Iterable[Cell]) -> list[str]:
    """What this machine did: medians over the rounds, and the p99 of all their calls together."""
    head = ("store", "at once", "server", "calls/s", "p50 ms", "p99 ms", "CPU µs a call", "database's", "sync ms")
    rows = [row for cell in cells for row in _absolute(cell)]
    return table((*head, "calls"), rows)


def _absolute(cell: Cell) -> Iterator[list[str]]:
    for name, rounds in (
        ("proxy", [pair.proxy for pair in cell.pairs]),
        ("gateway", [pair.gateway for pair in cell.pairs]),
    ):
        figures = (
            _median(rounds, lambda one: one.calls_per_second),
            _median(rounds, lambda one: one.p50_ms),
            percentile([latency for one in rounds for latency in one.latencies_ms], 99),
            _median(rounds, lambda one: one.server_cpu_us),
            _median(rounds, lambda one: one.database_cpu_us),
            cell.sync_ms,
        )
        yield [*_where(cell), name, *map(_short, figures), str(sum(one.calls for one in rounds))]


def _where(cell: Cell) -> tuple[str, str]:
    return cell.store, str(cell.concurrency)


def _median(rounds: Sequence[Round], measure: Measure) -> float:
    return statistics.median(measure(one) for one in rounds)


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest of the values that so many percent of them do not exceed; 0 without any."""
    if not values:
        return 0.0
    return sorted(values)[-(-len(values) * percent // 100) - 1]


def _short(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table that reads well as it is and as Markdown."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    rule = [f"{'-' * (width - 1)}:" for width in widths]
    return [_row(line, widths) for line in (head, rule, *lines[1:])]


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return f"| {' | '.join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))} |"
