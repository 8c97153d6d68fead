"""The conformance suite's scenarios for clients, against what calls tool servers: the gateway's other side.

Left out are the suite's `auth/…` scenarios: they test a client that gets itself a token of a tool server's own
authorization server, and the gateway shows tool servers the credential that an administrator registered.
"""

import sys
from pathlib import Path

import pytest

from tests.conformance.suite import Report, run_suite
from tests.server_process import ROOT, ServerProcess

# Each is many scenarios in one test.
pytestmark = pytest.mark.timeout(300)

SCENARIOS = {
    "2026-07-28": [
        "tools_call",
        "request-metadata",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        "json-schema-2020-12-preservation",
        "sep-2322-client-request-state",
    ],
    "2025-11-25": [
        "initialize",
        "tools_call",
        "sse-retry",
        "elicitation-sep1034-client-defaults",
        "json-schema-2020-12-preservation",
    ],
    "2025-06-18": ["initialize", "tools_call"],
}


@pytest.mark.parametrize("revision", SCENARIOS)
def test_what_the_suite_requires_of_a_client_holds_but_for_what_the_gateway_refuses(
    subgrant: ServerProcess, tmp_path: Path, revision: str
) -> None:
    command = f"cd {ROOT} && {sys.executable} -m tests.conformance.gateway_client {subgrant.url}"
    reports = [
        run_suite(
            "client",
            *("--command", command, "--scenario", scenario, "--spec-version", revision, "--timeout", "20000"),
            folder=tmp_path / str(number),
        )
        for number, scenario in enumerate(SCENARIOS[revision])
    ]
    report = Report(checks=tuple(check for part in reports for check in part.checks))
    print(f"client {revision}: {report}")  # noqa: T201 - read with `pytest -rP`
    assert not report.surprises(f"client {revision}")
