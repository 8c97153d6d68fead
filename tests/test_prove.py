"""The oracle of narrowing finds nothing wrong with the prover as it is, and what is wrong with one that is broken."""

from collections.abc import Callable
from itertools import product
from typing import Any, Final
from unicodedata import combining, is_normalized

import pytest

from app.core import narrowing
from app.core.constraints import ToolRule, check_arguments, parse_tool_rule
from app.core.kinds import Int, List, NotOneOf, Object, Path, Prefix
from app.core.narrowing import Refusal
from prove.__main__ import main
from prove.documents import KINDS, Document, kinds_in, label_of
from prove.expressions import STEADY
from prove.pairs import Case, cases
from prove.samples import GLOBS, NUMBERS_BETWEEN, REGEXES, WORDS
from prove.solving import Witness, counterexample
from prove.verdicts import NARROWER, WIDER, judge

CASES: Final = 300
SEED: Final = 11


def test_nothing_contradicts_the_prover_and_it_falls_short_of_nothing_that_it_promises() -> None:
    verdicts = [judge(case) for case in cases(SEED, CASES)]
    assert [verdict for verdict in verdicts if verdict.fault] == []
    assert [verdict.case for verdict in verdicts if verdict.missed and verdict.within_reach] == []
    assert {verdict.truth for verdict in verdicts} == {NARROWER, WIDER}


def test_the_same_seed_asks_the_same_questions_of_every_kind() -> None:
    asked = [*cases(SEED, 600)]
    assert asked[:CASES] == [*cases(SEED, CASES)]
    assert asked[:CASES] != [*cases(SEED + 1, CASES)]
    assert {label_of(rule) for case in asked for rule in (case.child, case.parent)} == {*KINDS}


# --- a broken prover --------------------------------------------------------------------------------------

ROWS: Final = narrowing._ROWS  # noqa: SLF001 - what is broken here is inside
Broken = Callable[[pytest.MonkeyPatch], None]


def careless(pair: tuple[type, type]) -> Broken:
    """A prover with a row that proves whatever it is asked."""
    return lambda patch: patch.setattr(narrowing, "_ROWS", {**ROWS, pair: lambda *_: None})


def credulous(name: str) -> Broken:
    """A prover in which a question is always answered with yes."""
    return lambda patch: patch.setattr(narrowing, name, lambda *_: True)


def without_absence(patch: pytest.MonkeyPatch) -> None:
    """A prover that does not ask whether an argument may be left out."""
    within = narrowing._within  # noqa: SLF001 - likewise
    patch.setattr(
        narrowing,
        "_argument_within",
        lambda child, parent, ground: within(child.constraint, parent.constraint, ground),
    )


@pytest.mark.parametrize(
    "broken, about",
    [
        (careless((Int, Int)), {"int"}),
        (careless((Prefix, NotOneOf)), {"prefix", "notOneOf"}),
        (careless((List, List)), {"list"}),
        (careless((Object, Object)), {"object"}),
        (careless((Path, Path)), {"path"}),
        (credulous("included"), {"regex"}),
        (credulous("_allowed"), {"oneOf"}),
        (credulous("hosts_within"), {"host"}),
        (credulous("url_within"), {"url"}),
        (credulous("network_within"), {"cidr"}),
        (credulous("is_empty"), {"allOf", "prefix"}),
        (without_absence, {"absent"}),
    ],
)
def test_a_broken_prover_is_caught(monkeypatch: pytest.MonkeyPatch, broken: Broken, about: set[str]) -> None:
    broken(monkeypatch)
    asked = (case for case in cases(SEED, 20_000) if about <= kinds_in(case.child, case.parent))
    assert any(judge(case).fault for case in asked)


def test_a_prover_that_proves_everything_is_caught_at_once_and_shown_why() -> None:
    def everything(_child: ToolRule, _parent: ToolRule) -> Refusal | None:
        return None

    verdict = judge(Case("narrowed", {"int": {"max": 6}}, {"int": {"max": 5}}), everything)
    assert verdict.fault is not None
    assert verdict.witness == Witness(6, {})


def test_the_command_exits_with_1_where_something_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--cases", "20", "--seed", "3"]) == 0
    assert "MISSED" not in capsys.readouterr().out
    monkeypatch.setattr(narrowing, "_within", lambda *_: None)
    assert main(["--cases", "20", "--seed", "3", "--full"]) == 1
    page = capsys.readouterr().out
    assert "MISSED  no counterexample in 20 cases" in page
    assert "the prover proved it" in page


# --- the oracle means what the evaluator means -------------------------------------------------------------

SCALARS: Final[tuple[Any, ...]] = (
    *("", "a", "ab", "case_17", "1.50", "-0.5", "-0.00", "01", "a\nb", "/data", "x.tar.gz", "reports/a.pdf", "\u00e9"),
    *("1.505", "100", "9007199254740991", "-90071992547409.91", ".5", "5.", "1e2", " 1", "+1"),
    *(-(2**53) + 1, -1, 0, 1, 100, 2**53 - 1, True, False, None, *NUMBERS_BETWEEN, 0.125, -90.25),
)
DOCUMENTS: Final[tuple[Document, ...]] = (
    *(
        {"regex": pattern}
        for pattern in (*REGEXES, r"[\w.-]+", r"a{2,}b?|\x{e9}|[^\x00-\x{ffff}a]?", r"-?\d+(\.\d\d)?")
    ),
    *({"glob": glob} for glob in GLOBS),
    *({"decimal": {"scale": scale} | bounds} for scale, bounds in product((0, 1, 2), ({}, {"min": "0"}, {"max": "1"}))),
    {"decimal": {"scale": 2, "min": "-90071992547409.91", "max": "-0.5"}},
    {"int": {"min": 0}},
    {"str": {"minLength": 2, "maxLength": 3}},
    {"prefix": "a"},
    {"suffix": "b"},
    {"notOneOf": {"type": "number", "values": [1, 0.5]}},
    {"notOneOf": {"type": "string", "values": ["a", *WORDS[:3]]}},
    {"notOneOf": {"type": "boolean", "values": [True]}},
    {
        "anyOf": [
            {"oneOf": [1, "a", None]},
            {"allOf": [{"prefix": "a"}, {"suffix": "b"}]},
            {"list": {"items": {"any": True}}},
        ]
    },
    {"object": {"fields": {}}},
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_the_oracle_allows_a_value_exactly_where_the_evaluator_does(document: Document) -> None:
    rule = parse_tool_rule({"x": document}, pointer="")
    for scalar in SCALARS:
        allowed = check_arguments(rule, {"x": scalar}, {}) is None
        assert (counterexample({"eq": scalar}, document) is None) == allowed, scalar


def test_the_characters_of_the_oracle_are_steady_in_any_order() -> None:
    chars = [chr(code) for low, high in STEADY for code in range(low, min(high, low + 0x300) + 1)]
    assert not any(map(combining, chars))
    assert all(is_normalized("NFC", f"{char}e{char}{char}A{char}\u00e9{char}") for char in chars)
