"""`subgrant demo` as anybody runs it: on real processes, telling the truth by its exit code, leaving nothing behind."""

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console

from app.demo import processes, story
from app.demo.render import Screen
from app.demo.stage import Act, Answer, Outcome, Result, Stage, StageFailed, Step
from tests.server_process import ROOT, plain_environment

pytestmark = pytest.mark.anyio

COMMAND: Final = (sys.executable, "-m", "app.cli", "demo")
SECONDS: Final = 60
PIDS: Final = re.compile(r"pids (\d+), (\d+), (\d+)")

REASONS: Final = {
    "not_narrower",
    "tool_not_allowed",
    "audience_mismatch",
    "target_refused",
    "token_invalid",
    "resource_out_of_scope",
    "redelegation_denied",
    "actor_not_permitted",
    "tenant_mismatch",
    "budget_exceeded",
    "grant_closed",
    "token_expired",
    "grant_expired",
}


@contextmanager
def demo(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo, with its temporary files in this folder, and the output of one who is no terminal."""
    env = plain_environment() | {"TMPDIR": str(folder), "NO_COLOR": "1"}
    # Tests that a shell started in the background ignore interrupts, and so would whatever they start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run = subprocess.Popen(COMMAND, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    with run:
        try:
            yield run
        finally:
            run.kill()


def pids_in(output: str) -> list[int]:
    found = PIDS.search(output)
    assert found, output
    return [int(pid) for pid in found.groups()]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def rows_in(output: str) -> Mapping[int, str]:
    """The lines of the steps, by number."""
    numbered = re.compile(r"^(\d+) +(?=supervisor|child|globex|billing|auditor)", re.MULTILINE)
    starts = list(numbered.finditer(output))
    return {int(start[1]): output[start.start() :].splitlines()[0] for start in starts}


def a_screen() -> tuple[Screen, io.StringIO]:
    output = io.StringIO()
    return Screen(Console(file=output)), output


async def nothing(_stage: Stage) -> Answer:
    return Answer(status=200, document={})


def a_step(expected: Outcome) -> Step:
    return Step("child", "calls refund", nothing, expected)


# --- as it runs -------------------------------------------------------------------------------------------


def test_the_whole_story_goes_as_expected_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path) as run:
        output, errors = run.communicate(timeout=SECONDS)
    steps = story.steps_of(story.ACTS)
    assert (run.returncode, errors) == (0, ""), output + errors
    assert output.splitlines()[-1].strip() == f"{len(steps)} steps as expected"
    assert not [pid for pid in pids_in(output) if is_running(pid)]
    assert not [*tmp_path.iterdir()]

    rows = rows_in(output)
    assert [*rows] == [*range(1, len(steps) + 1)]
    for (number, row), step in zip(rows.items(), steps, strict=True):
        # A reason in words may take a second line.
        for words in (step.who, step.tries, step.expected.decision, step.expected.code):
            assert words in row, f"step {number}: {row}"
        assert (step.expected.reason or "").split(" ")[0] in row, f"step {number}: {row}"
    assert max(map(len, output.splitlines())) <= 100


def test_the_story_has_every_refusal_that_it_is_about() -> None:
    refused = {step.expected.reason for step in story.steps_of(story.ACTS) if step.expected.decision == "refused"}
    assert refused >= REASONS


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_story_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    with demo(tmp_path) as run:
        assert run.stdout is not None
        said = ""
        while not PIDS.search(said):
            line = run.stdout.readline()
            assert line, said
            said += line
        assert all(is_running(pid) for pid in pids_in(said))
        run.send_signal(number)
        run.communicate(timeout=SECONDS)
    assert run.returncode != 0
    assert not [pid for pid in pids_in(said) if is_running(pid)]
    assert not [*tmp_path.iterdir()]


def test_a_server_that_does_not_start_is_named_and_the_others_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "SERVE", ("-c", "print('no luck today'); raise SystemExit(2)"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    started: list[int] = []
    start = processes.Processes.start

    def noted(self: processes.Processes, *arguments: object) -> processes.Process:
        process = start(self, *arguments)  # type: ignore[arg-type]  # whatever it is given
        started.append(process.pid)
        return process

    monkeypatch.setattr(processes.Processes, "start", noted)
    output = io.StringIO()
    assert story.run(Console(file=output)) == 1
    assert "the subgrant server did not start" in output.getvalue()
    assert "no luck today" in output.getvalue()
    assert started
    assert not [pid for pid in started if is_running(pid)]
    assert not [*tmp_path.iterdir()]


# --- what counts as expected ------------------------------------------------------------------------------

TOOL_REFUSED: Final = story.refused("tool_not_allowed", "403")


@pytest.mark.parametrize(
    "seen",
    [
        story.allowed(),
        story.refused("tool_not_allowed", "401"),
        story.refused("budget_exceeded", "403"),
        story.refused("tool_not_allowed", "403 insufficient_scope"),
    ],
)
def test_another_decision_reason_or_code_is_a_difference_in_words(seen: Outcome) -> None:
    result = Result(7, a_step(TOOL_REFUSED), seen)
    assert result.difference == f"expected refused, tool_not_allowed, 403; got {seen.words}"


def test_the_sentence_beside_a_reason_makes_no_difference() -> None:
    problem = Answer(
        status=403, document={"reason": "tool_not_allowed", "detail": "the grant does not allow this tool"}
    )
    assert Result(7, a_step(TOOL_REFUSED), problem.outcome).difference is None


def test_a_call_that_fails_at_the_tool_is_no_success() -> None:
    answer = Answer(status=200, document={"decision": "allow", "outcome": "tool_error"}, finding="all is well")
    assert answer.outcome == Outcome(decision="allowed", reason="tool_error", code="200")


def test_a_step_that_differs_is_named_and_fails_the_story() -> None:
    acts = (Act("Only", (a_step(TOOL_REFUSED),)),)
    screen, output = a_screen()
    assert story.conclude(screen, acts, [Result(1, a_step(TOOL_REFUSED), story.allowed())]) == 1
    assert (
        "Step 1 (child: calls refund): expected refused, tool_not_allowed, 403; got allowed, 200" in output.getvalue()
    )
    assert "as expected" not in output.getvalue()


def test_a_story_that_stops_early_fails() -> None:
    step = a_step(story.allowed())
    screen, output = a_screen()
    assert story.conclude(screen, (Act("Only", (step, step)),), [Result(1, step, story.allowed())]) == 1
    assert "1 more step was never tried" in output.getvalue()


def test_a_story_as_expected_ends_well() -> None:
    step = a_step(story.allowed())
    screen, output = a_screen()
    results = [Result(number, step, story.allowed()) for number in (1, 2)]
    assert story.conclude(screen, (Act("First", (step,)), Act("Second", (step,))), results) == 0
    assert output.getvalue().strip() == "2 steps as expected"


async def test_a_step_that_can_not_be_tried_is_no_refusal() -> None:
    async def broken(_stage: Stage) -> Answer:
        raise StageFailed("an answer has no grantId")

    stage: Stage = None  # type: ignore[assignment]  # a step that fails at once looks at nothing
    seen = await story.attempt(stage, Step("child", "calls refund", broken, TOOL_REFUSED))
    assert (seen.decision, seen.reason) == (story.FAILED, "an answer has no grantId")
    assert Result(1, a_step(TOOL_REFUSED), seen).difference is not None
