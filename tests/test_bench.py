"""The benchmark runs and prints its tables. How fast anything was is no test's business."""

import subprocess
import sys

import pytest

from tests.server_process import ROOT, plain_environment

HALF_A_RUN_SECONDS = 200


@pytest.mark.timeout(2 * HALF_A_RUN_SECONDS)
@pytest.mark.parametrize("store,name", [("sqlite", "SQLite"), ("postgresql", "PostgreSQL")])
def test_the_benchmark_runs_and_prints_its_tables(store: str, name: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--store", store],
        cwd=ROOT,
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=HALF_A_RUN_SECONDS,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    ratios, _, absolutes = run.stdout.partition("## This machine, now")
    assert ratios.count(f"| {name} |") == 2
    assert absolutes.count(f"| {name} |") == 4
