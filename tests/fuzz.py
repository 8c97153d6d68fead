"""Fuzzing: grants and rules that nobody would write, from the corpus by mutation. `make fuzz ARGS="--seconds 600"`.

Each round takes documents of the corpus apart and puts them together wrongly, as values and as bytes, and holds
what comes out to four promises: parsing ends in a value or in the one error it may raise; what was parsed is
rendered as something that parses to the same; judging and proving end, without an exception and within a
second; and what is proven holds for every value at hand. Seeded, so that a failure can be played again.
"""

import argparse
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from app.core.constraints import (
    ConstraintInvalid,
    ToolRule,
    check_arguments,
    fill_bindings,
    flaw_in,
    parse_tool_rule,
    render_tool_rule,
)
from app.core.grant import GrantInvalid, parse_grant, render_grant
from app.core.meet import meet_rules
from app.core.narrowing import Ground, Refusal, narrow_tool_rule, rule_within
from app.core.projection import ProjectionInvalid, parse_projection, project, render_projection
from app.core.schema import rule_schema
from app.core.strict_json import JsonValue, StrictJsonError, canonical, parse
from tests.samples import a_grant
from tests.vectors.corpus import BINDINGS, RESOURCES, cases

MAX_SECONDS: Final = 1.0
"""What one step may take of this process's own time, on a machine that does other things as well."""

MAX_BYTES, MAX_DEPTH = 65_536, 32
PATHS: Final = ["$", "$.a", "$.a[*].b", "$['a b']", "$[*]", "$.a.*.c"]

Json = Any


class Hang(BaseException):
    """A step that did not end. Not an Exception: the prover takes those for a refusal."""


@contextmanager
def watched() -> Iterator[None]:
    """A step that must end soon."""

    def ring(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# --- what is made -----------------------------------------------------------------------------------------


class Maker:
    """Documents and values, each made of pieces of the corpus."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311  # what is made up has to be made up again
        judged, proven = [*cases("evaluation")], [*cases("narrowing")]
        self.constraints: list[Json] = [
            *(case["constraint"] for case in judged),
            *(case[side] for case in proven for side in ("child", "parent")),
            *(case["document"] for case in cases("invalid") if "document" in case),
        ]
        self.values: list[Json] = [case["value"] for case in judged if "value" in case]
        self.pieces = [piece for document in self.constraints for piece in parts(document)]

    def pick(self, pool: Sequence[Json]) -> Json:
        return self.chance.choice(pool)

    def constraint(self) -> Json:
        document = self.pick(self.constraints)
        for _ in range(self.chance.choice((0, 0, 1, 1, 2, 5))):
            document = self.mutated(document)
        # What is larger never arrives.
        return document if len(json.dumps(document)) <= MAX_BYTES // 4 else None

    def rule(self) -> Json:
        names = self.chance.choices(("a", "b", "c", "*", "/", "~", "\u00e9", ""), k=self.chance.randint(0, 4))
        rule = {name: self.constraint() for name in names}
        return rule | {"*": {"any": True}} if self.chance.random() < 0.1 else rule

    def arguments(self) -> dict[str, Json]:
        return {
            name: self.value() for name in self.chance.choices(("a", "b", "c", "d", "/"), k=self.chance.randint(0, 4))
        }

    def value(self) -> Json:
        value = self.pick(self.values)
        mutated = self.mutated(value) if self.chance.random() < 0.3 else value
        return mutated if len(json.dumps(mutated)) <= MAX_BYTES else None

    def mutated(self, document: Json) -> Json:
        """The document with one place of it changed."""
        if isinstance(document, dict) and document and self.chance.random() < 0.8:
            name = self.pick([*document])
            return self.chance.choice(
                (
                    lambda: document | {name: self.mutated(document[name])},
                    lambda: document | {str(self.pick(self.pieces))[:9]: self.pick(self.pieces)},
                    lambda: {other: value for other, value in document.items() if other != name},
                )
            )()
        if isinstance(document, list) and document and self.chance.random() < 0.8:
            place = self.chance.randrange(len(document))
            changed = [*document]
            changed[place : place + 1] = self.pick(([], [self.mutated(document[place])], [document[place]] * 3))
            return changed
        return self.chance.choice((self._edited, self._wrapped, lambda _: self.pick(self.pieces)))(document)

    def _edited(self, document: Json) -> Json:
        if isinstance(document, str):
            place = self.chance.randint(0, len(document))
            return (
                document[:place]
                + self.pick(("", "\0", "/", "..", "*", "%2e", "\n", "é", "(", "{9}", "K"))
                + document[place:]
            )
        if isinstance(document, int | float):
            return document + self.pick((-1, 1, 0.5, 2**53, -document))
        return None

    def _wrapped(self, document: Json) -> Json:
        levels, widest = self.pick(((1, 3), (2, 3), (9, 1)))
        for _ in range(levels):
            document = {self.pick(("allOf", "anyOf")): [document] * self.chance.randint(0, widest)}
        return document

    def raw(self, document: Json) -> bytes:
        """The document's text, damaged."""
        text = bytearray(json.dumps(document).encode())
        for _ in range(self.chance.choice((0, 1, 3))):
            place = self.chance.randint(0, len(text))
            text[place : place + self.chance.randint(0, 2)] = self.pick(
                (b"", b'"', b"{", b"\\u0061", b"\xff", b"1e400", b"[" * 40)
            )
        return bytes(text)


def parts(document: Json) -> Iterator[Json]:
    """Everything that a document is made of, itself first."""
    yield document
    inner = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    for part in inner:
        yield from parts(part)


# --- what is promised -------------------------------------------------------------------------------------


def read_rule(document: JsonValue) -> ToolRule | None:
    """The rule, or None where it is refused as it should be."""
    try:
        rule = parse_tool_rule(document, pointer="")
    except ConstraintInvalid:
        return None
    again = parse_tool_rule(render_tool_rule(rule), pointer="")
    assert again == rule, "what is rendered is what was parsed"
    return rule


def a_text(maker: Maker) -> str:
    """Damaged bytes, as a body that arrives."""
    try:
        document = parse(maker.raw(maker.rule()), max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    except StrictJsonError:
        return "no JSON"
    return "no rule" if read_rule(document) is None else "a rule"


def a_call(maker: Maker) -> str:
    """A call under a rule, and under what a schema says of the rule."""
    rule, arguments = read_rule(maker.rule()), maker.arguments()
    if rule is None:
        return "no rule"
    canonical(rule_schema(rule))
    if flaw_in(arguments) is not None:
        return "flawed"
    filled = fill_bindings(rule, arguments, BINDINGS)
    return "allowed" if check_arguments(rule, filled, BINDINGS, resources=RESOURCES) is None else "refused"


def a_proof(maker: Maker) -> str:
    """A proof, held to every value that both sides can be asked about."""
    child, parent = read_rule({"a": maker.constraint()}), read_rule({"a": maker.constraint()})
    if child is None or parent is None:
        return "no rule"
    stored = narrow_tool_rule(child, parent, Ground(resources=RESOURCES))
    if isinstance(stored, Refusal):
        return stored.reason.value
    assert rule_within(stored, parent, Ground(resources=RESOURCES)) is None, "what was proven is proven again"
    met = meet_rules(stored, parent)
    for given in ({}, *({"a": maker.value()} for _ in range(40))):
        # As a decision does: what the leaf binds is filled in before any link is asked.
        arguments = fill_bindings(stored, given, BINDINGS)
        if flaw_in(arguments) is None and allows(stored, arguments):
            assert allows(parent, arguments), f"proven, and not so: {arguments}"
            assert allows(met, arguments), f"in both, and not in what they have in common: {arguments}"
    return "proven"


def allows(rule: ToolRule, arguments: dict[str, Json]) -> bool:
    return check_arguments(rule, arguments, BINDINGS, resources=RESOURCES) is None


def a_document(maker: Maker) -> str:
    """A signed grant's payload, after somebody was at it."""
    document = maker.mutated(render_grant(a_grant()))
    if not isinstance(document, dict):
        return "no object"
    try:
        grant = parse_grant(document)
    except GrantInvalid:
        return "no grant"
    assert parse_grant(render_grant(grant)) == grant, "what is rendered is what was parsed"
    return "a grant"


def a_projection(maker: Maker) -> str:
    """Paths, and what they leave of a value."""
    paths = [maker.mutated(path) if maker.chance.random() < 0.5 else path for path in maker.chance.choices(PATHS, k=3)]
    try:
        projection = parse_projection(paths, pointer="")
    except ProjectionInvalid:
        return "no projection"
    assert parse_projection(render_projection(projection), pointer="") == projection
    value = maker.value()
    once = project(projection, value)
    assert project(projection, once) == once, "what was left is left again"
    return "projected"


PROMISES: Final[Sequence[Callable[[Maker], str]]] = (a_text, a_call, a_proof, a_document, a_projection)


def fuzz(seed: int, goes_on: Callable[[int], bool]) -> Counter[tuple[str, str]]:
    """Rounds while it goes on; what came of them. Raises what was not promised."""
    maker, came, rounds = Maker(seed), Counter[tuple[str, str]](), 0
    while goes_on(rounds):
        for promise in PROMISES:
            with watched():
                came[promise.__name__, promise(maker)] += 1
        rounds += 1
    return came


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    ends = time.monotonic() + options.seconds
    came = fuzz(options.seed, lambda _: time.monotonic() < ends)
    for (promise, what), times in sorted(came.items()):
        sys.stdout.write(f"{promise:14}{what:24}{times:>12,}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
