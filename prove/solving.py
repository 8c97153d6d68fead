"""The oracle that is a solver: it looks for a value that one constraint allows and another refuses.

The answer is a witness, None where the solver proves that there is none, or UNKNOWN where it gave up. What it may
spend is counted rather than timed, so that one seed has one outcome.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

import z3

from prove.documents import Document, allows_absence, constraint_of
from prove.encoding import Formula, allowed_as, every, none_of, texts_of
from prove.expressions import STEADY_TEXTS, Expression, all_of, but
from prove.values import TYPES, Text, Value, World, world_of

MAX_EFFORT: Final = 4_000_000
"""What the solver may spend on one question, in a unit of its own."""

MAX_ROUNDS: Final = 200
"""How often it may be told that no string gives the answers that it would like."""


class Missing(Enum):
    """What stands where there is no value."""

    ABSENT = "the argument is left out"
    UNKNOWN = "the solver gave up"


ABSENT: Final = Missing.ABSENT
UNKNOWN: Final = Missing.UNKNOWN


@dataclass(frozen=True, slots=True)
class Witness:
    """A call that shows something: an argument's value, or ABSENT, and the fields of the grant."""

    value: Any
    bindings: Mapping[str, str | None]


Answer: TypeAlias = Witness | Missing | None


def counterexample(child: Document, parent: Document) -> Answer:
    """A call that the child allows and the parent refuses, if there is one."""
    if allows_absence(child) and not allows_absence(parent):
        return Witness(ABSENT, {})
    if "absent" in child:
        return None
    unknown = False
    for of_type in TYPES:
        answer = _of_type(child, parent, of_type)
        if isinstance(answer, Witness):
            return answer
        unknown = unknown or answer is UNKNOWN
    return UNKNOWN if unknown else None


def some_text(constraint: Document) -> str | None:
    """A string that the constraint allows; None if there is none, or none was found."""
    text = z3.String("text")
    solver = _solver()
    solver.add(z3.InRe(text, all_of([texts_of(constraint), STEADY_TEXTS])))
    return _string(solver.model(), text) if solver.check() == z3.sat else None


def _of_type(child: Document, parent: Document, of_type: str) -> Answer:
    world = world_of(child, parent)
    value = Value("argument", world)
    beyond = True if "absent" in parent else none_of([allowed_as(constraint_of(parent), value, of_type)])
    return _solve(world, value, of_type, every([allowed_as(constraint_of(child), value, of_type), beyond]))


def _solve(world: World, value: Value, of_type: str, question: Formula) -> Answer:
    if question is False:
        return None
    solver = _solver()
    solver.add(*world.facts, question)
    for _ in range(MAX_ROUNDS):
        outcome = solver.check()
        if outcome != z3.sat:
            return None if outcome == z3.unsat else UNKNOWN
        found = _Found(solver.model())
        spelt = _spelt([*found.texts(value, of_type)], found)
        if isinstance(spelt, Missing):
            return spelt
        if isinstance(spelt, dict):
            return Witness(found.of_type(value, of_type, spelt), found.bindings)
        solver.add(spelt.fact)
    return UNKNOWN


def _solver() -> z3.Solver:
    solver = z3.SimpleSolver()
    solver.set("rlimit", MAX_EFFORT)
    return solver


# --- strings ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Impossible:
    """What no string can give, as a fact for the solver."""

    fact: Formula


def _spelt(texts: list[Text], found: "_Found") -> dict[str, str] | _Impossible | Missing:
    """A string for each; or the fact that some of them can't be, all their answers together."""
    bound = [text for text in texts if text.bound]
    groups = [*([text] for text in texts if not text.bound), *([bound] if bound else [])]
    spelt: dict[str, str] = {}
    for group in groups:
        solver = _solver()
        solver.add(*(fact for text in group for fact in found.facts_about(text)))
        outcome = solver.check()
        if outcome == z3.unknown:
            return UNKNOWN
        if outcome == z3.unsat:
            return _Impossible(none_of([every(answer for text in group for answer in found.answers(text))]))
        model = solver.model()
        spelt |= {text.name: _string(model, z3.String(text.name)) for text in group}
        found.bindings |= {name: _string(model, _field(name)) for text in group for name in text.bound}
    return spelt


def _field(name: str) -> z3.SeqRef:
    return z3.String(f"grant:{name}")


def _string(model: z3.ModelRef, term: z3.SeqRef) -> str:
    written: str = model.eval(term, model_completion=True).as_string()
    pieces = written.split("\\u{")
    return pieces[0] + "".join(map(_unescaped, pieces[1:]))


def _unescaped(piece: str) -> str:
    code, _, rest = piece.partition("}")
    return chr(int(code, 16)) + rest


# --- what the solver found --------------------------------------------------------------------------------


class _Found:
    """A value in a model; what was never asked about may be anything, and is made something plain."""

    def __init__(self, model: z3.ModelRef) -> None:
        self._model = model
        self.bindings: dict[str, str | None] = {}

    # which strings there are, and what is asked of them

    def texts(self, value: Value, of_type: str) -> Iterator[Text]:
        """The strings in the value."""
        if of_type == "string":
            yield value.text
        for part in self._parts(value, of_type):
            if part.asked("type") is not None:
                yield from self.texts(part, self._type(part))

    def _parts(self, value: Value, of_type: str) -> list[Value]:
        if of_type == "array":
            items: list[Value] = value.asked("items") or []
            return items[: self._length(value)]
        return [member for _, member in self._given(value)] if of_type == "object" else []

    def answers(self, text: Text) -> list[z3.BoolRef]:
        """What the model says about a string."""
        asked = [*(answer for answer, _ in text.asked.values()), *text.bound.values()]
        return [answer if self._holds(answer) else z3.Not(answer) for answer in asked]

    def facts_about(self, text: Text) -> Iterator[z3.BoolRef]:
        """The same about the string itself: all expressions in one, for the solver is quickest with one."""
        term = z3.String(text.name)
        parts: list[Expression] = [
            expression if self._holds(answer) else but([expression]) for answer, expression in text.asked.values()
        ]
        yield z3.InRe(term, all_of([*parts, STEADY_TEXTS]))
        for name, answer in text.bound.items():
            yield z3.InRe(_field(name), STEADY_TEXTS)
            yield term == _field(name) if self._holds(answer) else term != _field(name)

    # the value

    def of_type(self, value: Value, of_type: str, spelt: Mapping[str, str]) -> Any:  # noqa: ANN401 - any JSON value
        read: dict[str, Callable[[], Any]] = {
            "null": lambda: None,
            "boolean": lambda: self._holds(value.truth),
            "integer": lambda: self._term(value.integer).as_long(),
            "number": lambda: self._number(value),
            "string": lambda: spelt[value.text.name],
            "array": lambda: self._array(value, spelt),
            "object": lambda: {name: self._any(member, spelt) for name, member in self._given(value)},
        }
        return read[of_type]()

    def _any(self, value: Value, spelt: Mapping[str, str]) -> Any:  # noqa: ANN401 - any JSON value
        return None if value.asked("type") is None else self.of_type(value, self._type(value), spelt)

    def _number(self, value: Value) -> float:
        asked = value.asked("units")
        return 0.5 if asked is None else float(f"{self._term(asked).as_long()}e-{value.world.places}")

    def _array(self, value: Value, spelt: Mapping[str, str]) -> list[Any]:
        items = [self._any(item, spelt) for item in self._parts(value, "array")]
        return [items[index] if index < len(items) else (items or [None])[0] for index in range(self._length(value))]

    def _length(self, value: Value) -> int:
        asked = value.asked("length")
        return 0 if asked is None else int(self._term(asked).as_long())

    def _given(self, value: Value) -> list[tuple[str, Value]]:
        members = value.asked("members") or {}
        return [(name, member) for name, (given, member) in members.items() if self._holds(given)]

    def _type(self, value: Value) -> str:
        return TYPES[self._term(value.type).as_long()]

    def _holds(self, answer: z3.BoolRef) -> bool:
        return bool(z3.is_true(self._term(answer)))

    def _term(self, term: Any) -> Any:  # noqa: ANN401 - terms of the solver's
        return self._model.eval(term, model_completion=True)
