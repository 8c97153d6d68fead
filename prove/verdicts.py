"""One case, asked of both: what the prover says, what an oracle says, and whether they can both be right."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from app.core.constraints import ToolRule, check_arguments, fill_bindings, flaw_in, parse_tool_rule
from app.core.narrowing import Ground, Refusal, narrows, rule_within
from app.core.reasons import Reason
from app.core.strict_json import canonical
from prove.documents import GIVEN, PLACES, Document, allows_absence, kinds_in
from prove.pairs import Case
from prove.rows import within_reach
from prove.solving import ABSENT, UNKNOWN, Answer, Witness, counterexample
from prove.universe import BINDINGS, DIRECTORY, bindings_for, values_for

Prover: TypeAlias = Callable[[ToolRule, ToolRule], Refusal | None]

_ARGUMENT: Final = "x"
NARROWER: Final = "narrower"
WIDER: Final = "wider"
UNDECIDED: Final = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a case. `truth` is the oracle's; `fault` says who contradicts whom."""

    case: Case
    by_solver: bool
    proven: bool
    truth: str
    fault: str | None = None
    witness: Witness | None = None
    within_reach: bool = True
    """Whether the design's table has a row that proves it; asked only of what is narrower and was refused."""
    called_wider: bool = False
    """Refused as what is wider, rather than as what can't be shown."""

    @property
    def missed(self) -> bool:
        """Truly narrower, and refused."""
        return self.truth == NARROWER and not self.proven


def prover(child: ToolRule, parent: ToolRule) -> Refusal | None:
    """The prover under test: of two constraints, or of two rules where an argument may be left out or is bound."""
    ground = Ground(resources=DIRECTORY)
    one, other = child.arguments[_ARGUMENT], parent.arguments[_ARGUMENT]
    if one.optional or other.optional or {one.constraint.kind, other.constraint.kind} & {*GIVEN}:
        return rule_within(child, parent, ground)
    return narrows(one.constraint, other.constraint, ground)


def judge(case: Case, prove: Prover = prover) -> Verdict:
    """Ask both."""
    child, parent = _rule(case.child), _rule(case.parent)
    refusal = prove(child, parent)
    answer = oracle(case.child, case.parent)
    fault = _fault(refusal is None, answer, child, parent)
    missed = refusal is not None and answer is None
    return Verdict(
        case=case,
        by_solver=_is_solvers(case.child, case.parent),
        proven=refusal is None,
        truth=UNDECIDED if answer is UNKNOWN else WIDER if isinstance(answer, Witness) else NARROWER,
        fault=fault,
        witness=answer if isinstance(answer, Witness) else None,
        within_reach=not missed or within_reach(case.child, case.parent, _truly_within),
        called_wider=missed and refusal is not None and refusal.reason == Reason.NOT_NARROWER,
    )


def oracle(child: Document, parent: Document) -> Answer:
    """A call that the child allows and the parent refuses: found by the solver, or among values where it can't be."""
    return counterexample(child, parent) if _is_solvers(child, parent) else _in_universe(child, parent)


def _is_solvers(child: Document, parent: Document) -> bool:
    return not kinds_in(child, parent) & {*PLACES}


def _truly_within(child: Document, parent: Document) -> bool:
    return oracle(child, parent) is None


def _fault(proven: bool, answer: Answer, child: ToolRule, parent: ToolRule) -> str | None:  # noqa: FBT001 - a verdict
    if not isinstance(answer, Witness):
        return None
    if not (_accepts(child, child, answer) and not _accepts(parent, child, answer)):
        return "the evaluator does not agree with the solver about this value"
    return "the prover proved it" if proven else None


def _in_universe(child: Document, parent: Document) -> Answer:
    if allows_absence(child) and not allows_absence(parent):
        return Witness(ABSENT, BINDINGS)
    one, other = _rule(child), _rule(parent)
    tried = (
        Witness(value, bindings)
        for value in values_for(child, parent, _allows)
        for bindings in bindings_for(child, parent, value)
    )
    return next((call for call in tried if _accepts(one, one, call) and not _accepts(other, one, call)), None)


def _allows(constraint: Document, value: Any) -> bool:  # noqa: ANN401 - any JSON value
    rule = _rule(constraint)
    return _accepts(rule, rule, Witness(value, BINDINGS))


@lru_cache(maxsize=64)
def _parsed(document: bytes) -> ToolRule:
    return parse_tool_rule(json.loads(document), pointer="")


def _rule(rule: Document) -> ToolRule:
    return _parsed(canonical({_ARGUMENT: rule}))


def _accepts(rule: ToolRule, filled_by: ToolRule, call: Witness) -> bool:
    """Whether a rule allows a call, in which another rule has filled in what is bound: as on a chain of grants."""
    given = {} if call.value is ABSENT else {_ARGUMENT: call.value}
    arguments = fill_bindings(filled_by, given, call.bindings)
    flaw = flaw_in(arguments)
    return flaw is None and check_arguments(rule, arguments, call.bindings, resources=DIRECTORY) is None
