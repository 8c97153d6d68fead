"""`make bench`: calls through the gateway against a bare pass-through proxy, measured in one run.

Knows the options and the page that is printed and kept. What is measured and how to read it is in README.md.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import decisions, machine
from bench.child import ROOT
from bench.figures import absolutes, ratios
from bench.rounds import STORES, Findings, Plan, measure

RESULTS: Final = ROOT / "bench" / "results.md"
FULL: Final = Plan()
QUICK: Final = Plan(concurrency=(1, 16), seconds=0.4, rounds=2)
MAX_SECONDS: Final = 60

READING: Final = """\
Gateway divided by proxy: the median over the rounds, with the smallest and the largest pair of rounds. Fewer
calls a second, or more of anything else, is worse. README.md says what each is."""


DECISIONS: Final = """\
Pure computation in one process, no store and no network: how many times as long as one Ed25519 verification it
takes to judge arguments and to decide about a call under a chain, each link narrower than the one above."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    plan = _plan(options)
    findings = measure(plan, lambda where: print(where, file=sys.stderr))
    page = _page(plan, findings)
    sys.stdout.write(page)
    output: Path | None = options.output or (RESULTS if plan == FULL else None)
    if findings.faults:
        sys.stderr.writelines(f"worthless: {fault}\n" for fault in findings.faults)
        return 1
    if output is not None:
        output.write_text(page, "utf-8")
    return 0


def _page(plan: Plan, findings: Findings) -> str:
    what = f"{plan.rounds} rounds of {plan.seconds:g} s each, {machine.now():%Y-%m-%d}. {', '.join(findings.versions)}."
    lines = [
        "# The gateway against a bare proxy",
        "",
        what,
        "",
        "## Ratios",
        "",
        READING,
        "",
        *ratios(findings.cells),
        "",
        "## Decisions",
        "",
        DECISIONS,
        "",
        *decisions.lines(),
        "",
        "## This machine, now",
        "",
        *absolutes(findings.cells),
    ]
    return "\n".join(lines) + "\n"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look in about 20 seconds; too short to trust")
    parser.add_argument("--store", nargs="+", choices=STORES, help="on which stores; on both unless said")
    parser.add_argument("--concurrency", nargs="+", type=_count, metavar="N", help="calls at once; 1 16 64 unless said")
    parser.add_argument("--seconds", type=_seconds, metavar="S", help="how long a round is timed")
    parser.add_argument("--rounds", type=_count, metavar="N", help="how many of each")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="keep the page there; a full run keeps it in bench/results.md"
    )
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= 200:
        raise ValueError
    return count


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError
    return seconds


def _plan(options: argparse.Namespace) -> Plan:
    base = QUICK if options.quick else FULL
    return Plan(
        stores=tuple(options.store or base.stores),
        concurrency=tuple(options.concurrency or base.concurrency),
        seconds=options.seconds or base.seconds,
        rounds=options.rounds or base.rounds,
    )


if __name__ == "__main__":
    sys.exit(main())
