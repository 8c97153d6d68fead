"""Puts one fault after another into the rules and says which of them no test notices.

    python -m tools.mutate [MODULE ...]     for example: python -m tools.mutate core/budget.py

The tests are collected once. For each fault the process forks, and the child gives the functions that are already
there the changed code and runs the tests that reach them, the quickest first, until one fails. What a module
computes while it is imported (constants, tables, classes) can't be changed so: such a fault gets a process that
imports the changed module afresh. Files are never touched.
"""

import os
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.mutate.mutants import ROOT, mutants_of
from tools.mutate.trials import Trials, Verdict

MODULES: Final = (
    "core/decision.py",
    "core/constraints.py",
    "core/spelling.py",
    *(f"core/kinds/{name}.py" for name in ("base", "compounds", "places", "scalars", "texts", "things")),
    "core/narrowing.py",
    "core/budget.py",
    "core/attenuation.py",
    "core/meet.py",
)
EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")
"""The faults that change nothing that can be seen, each with its reason."""


def main(modules: Sequence[str]) -> None:
    began = time.monotonic()
    equivalent = {(entry["module"], entry["fault"]) for entry in tomllib.loads(EQUIVALENT.read_text())["equivalent"]}
    mutants = [
        mutant
        for module in modules or MODULES
        for mutant in mutants_of(ROOT / "app" / module)
        if (module, mutant.fault.name) not in equivalent
    ]
    trials = Trials(workers=os.cpu_count() or 1, say=_say)
    _say(f"{len(mutants)} faults, {len(trials.tests)} tests")
    verdicts = trials.of(mutants)
    _say(f"\n{time.monotonic() - began:.0f} seconds")
    for path in dict.fromkeys(mutant.path for mutant in mutants):
        _say(_score(path, [verdict for mutant, verdict in zip(mutants, verdicts, strict=True) if mutant.path == path]))


def _score(path: Path, verdicts: Sequence[Verdict]) -> str:
    noticed = verdicts.count(Verdict.NOTICED)
    return f"{path.relative_to(ROOT)}: {noticed} of {len(verdicts)} noticed, {100 * noticed / len(verdicts):.1f} %"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
