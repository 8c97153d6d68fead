"""`make prove`: the prover of narrowing, asked thousands of questions to which a solver knows the answers.

Knows the options and what is printed. What is asked, and how to read it, is in README.md.
"""

import argparse
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from prove.pairs import cases
from prove.report import page
from prove.verdicts import Verdict, judge

CASES: Final = 8000
SEED: Final = 1
EVERY: Final = 1000
"""Cases after which a line tells how far it is."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    began = perf_counter()
    verdicts = [*_verdicts(options.seed, options.cases, began)]
    sys.stdout.write(page(verdicts, every_pair=options.full) + "\n")
    return 1 if any(verdict.fault for verdict in verdicts) else 0


def _verdicts(seed: int, number: int, began: float) -> Sequence[Verdict]:
    verdicts: list[Verdict] = []
    for case in cases(seed, number):
        verdicts.append(judge(case))
        if len(verdicts) % EVERY == 0:
            sys.stderr.write(f"{len(verdicts)} of {number} cases, {perf_counter() - began:.0f} s\n")
    return verdicts


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m prove", description=__doc__)
    parser.add_argument("--cases", type=_count, default=CASES, metavar="N", help=f"how many; {CASES} unless said")
    parser.add_argument("--seed", type=int, default=SEED, metavar="S", help=f"which ones; {SEED} unless said")
    parser.add_argument("--full", action="store_true", help="a line for every pair of kinds, too")
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise ValueError
    return count


if __name__ == "__main__":
    sys.exit(main())
