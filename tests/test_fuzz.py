"""A look at the fuzzer: it runs, it reaches what it is about, and a fault in what it watches is found."""

import pytest

from app.core import narrowing
from tests.fuzz import Hang, fuzz, watched

ROUNDS = 300


def test_some_rounds_break_no_promise_and_reach_every_ending() -> None:
    came = fuzz(2026, lambda rounds: rounds < ROUNDS)
    assert {
        ("a_text", "no JSON"),
        ("a_text", "a rule"),
        ("a_call", "allowed"),
        ("a_call", "refused"),
        ("a_proof", "proven"),
        ("a_proof", "not_narrower"),
        ("a_document", "a grant"),
        ("a_projection", "projected"),
    } <= came.keys()


def test_a_prover_that_believes_everything_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrowing, "_proven", lambda *_: None)
    with pytest.raises(AssertionError, match="proven, and not so"):
        fuzz(1, lambda rounds: rounds < ROUNDS)


@watched()
def never_ending() -> None:
    while True:
        pass


def test_a_step_that_does_not_end_is_ended() -> None:
    with pytest.raises(Hang):
        never_ending()
