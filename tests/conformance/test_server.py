"""The conformance suite's server requirements, through the gateway, in each revision that it speaks."""

from pathlib import Path

import pytest

from tests.conformance.suite import run_suite

# A run is many scenarios in one test.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

RUNS = {
    "server 2026-07-28": ("--requirements", "2026-07-28"),
    "server 2025-11-25": ("--requirements", "2025-11-25"),
    "server 2025-06-18": ("--suite", "all", "--spec-version", "2025-06-18"),
}

TRIES = 3
"""The suite gives up on some answers after half a second, which may be short beside other tests on a busy machine."""


@pytest.mark.parametrize("run", RUNS)
async def test_what_the_suite_requires_of_a_server_holds_but_for_what_the_gateway_refuses(
    gateway: str, tmp_path: Path, run: str
) -> None:
    surprises: dict[str, str] = {}
    for attempt in range(TRIES):
        report = run_suite("server", "--url", gateway, *RUNS[run], folder=tmp_path / str(attempt))
        print(f"{run}: {report}")  # noqa: T201 - read with `pytest -rP`
        surprises = report.surprises(run)
        if not surprises:
            break
    assert not surprises
