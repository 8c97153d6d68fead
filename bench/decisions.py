"""What deciding costs by itself: rules and chains, as a multiple of one Ed25519 verification in the same process.

Pure computation, without a store or a network, so that a verification is all that it has to be compared with: it
is what any check of a signed token costs at the least. What is measured takes turns with it in short rounds.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.core.constraints import ToolRule, check_arguments, parse_tool_rule
from app.core.decision import Allow, decide
from app.core.grant import Grant
from app.core.strict_json import JsonObject, JsonValue
from bench.figures import table
from tests.samples import NOW, SEARCH, a_call, a_chain, a_child, a_grant, accounts_of, facts

ROUNDS: Final = 9
ROUND_SECONDS: Final = 0.15

# One of each kind that a call's argument can be judged by alone, with a value that it allows.
EXAMPLES: Final[Sequence[tuple[JsonValue, JsonValue]]] = (
    ({"eq": "c_42"}, "c_42"),
    ({"oneOf": [f"acct_{number}" for number in range(20)]}, "acct_19"),
    ({"int": {"min": 1, "max": 50}}, 7),
    ({"decimal": {"min": "0.01", "max": "99.99", "scale": 2}}, 12.5),
    ({"str": {"maxLength": 200}}, "open cases of the last month"),
    ({"prefix": "case_"}, "case_1093"),
    ({"glob": "reports/*.pdf"}, "reports/2026-05.pdf"),
    ({"regex": "[a-z]{2,8}-[0-9]{4}"}, "invoice-2041"),
    ({"path": {"root": "/data"}}, "/data/acme/cases.csv"),
    ({"url": {"hosts": ["*.example.com"], "path": {"under": "/v1"}}}, "https://api.example.com/v1/cases/42"),
    ({"cidr": "10.0.0.0/8"}, "10.1.2.3"),
    ({"subsetOf": ["read", "write"]}, ["read"]),
    ({"list": {"items": {"prefix": "c_"}, "maxLength": 9}}, ["c_1", "c_2", "c_3"]),
    ({"object": {"fields": {"city": {"str": {"maxLength": 40}}}}}, {"city": "Lund"}),
    ({"anyOf": [{"eq": "eu"}, {"eq": "us"}]}, "us"),
    ({"bool": {}}, True),
)


def lines() -> list[str]:
    """The table: each piece of work as a multiple of a verification."""
    figures = {name: _multiples(work) for name, work in _works().items()}
    rows = [[name, *_figures(multiples)] for name, multiples in figures.items()]
    return table(["decided", "× a verification", "µs"], rows)


def _works() -> Mapping[str, Callable[[], object]]:
    rule, arguments = _wide_rule(64)
    flat, simple = _wide_rule(8)
    return {
        "64 constraints on one call": lambda: check_arguments(rule, arguments, {}),
        "a chain of 1, 8 constraints": _decision(1, flat, simple),
        "a chain of 3, 8 constraints": _decision(3, flat, simple),
        "a chain of 16, 8 constraints": _decision(16, flat, simple),
        "a chain of 16, 64 constraints": _decision(16, rule, arguments),
    }


def _wide_rule(count: int) -> tuple[ToolRule, JsonObject]:
    """A rule of so many constraints, of all kinds in turn, and arguments within it."""
    names = [f"a{number}" for number in range(count)]
    examples = [EXAMPLES[number % len(EXAMPLES)] for number in range(count)]
    document: JsonObject = {name: constraint for name, (constraint, _) in zip(names, examples, strict=True)}
    arguments: JsonObject = {name: value for name, (_, value) in zip(names, examples, strict=True)}
    rule = parse_tool_rule(document, pointer="")
    assert check_arguments(rule, arguments, {}) is None, "what is measured is what is allowed"
    return rule, arguments


def _decision(depth: int, rule: ToolRule, arguments: JsonObject) -> Callable[[], object]:
    grants = [a_grant(tools={SEARCH: rule}, max_depth=depth)]
    for level in range(1, depth):
        grants.append(_child(grants[-1], level))
    chain = a_chain(*grants)
    accounts, call, known = accounts_of(chain), a_call(arguments), facts()
    assert isinstance(decide(chain, call, accounts, known, NOW), Allow), "what is measured is what is allowed"
    return lambda: decide(chain, call, accounts, known, NOW)


def _child(parent: Grant, level: int) -> Grant:
    """One argument narrower than its parent, as real children are: every link's proof has something to prove."""
    rule = parent.tools[SEARCH]
    limit = rule.arguments["a2"]
    constraint = replace(limit.constraint, maximum=51 - level)  # type: ignore[type-var]  # it is the `int`
    arguments = {**rule.arguments, "a2": replace(limit, constraint=constraint)}
    return a_child(parent, tools={SEARCH: replace(rule, arguments=arguments)})


def _multiples(work: Callable[[], object]) -> list[tuple[float, float]]:
    """Rounds of the work and of a verification in turn: how many times as long it took, and how long in µs."""
    verify = _verification()
    return [(taken / verified, taken * 1e6) for taken, verified in _rounds(work, verify)]


def _rounds(work: Callable[[], object], reference: Callable[[], object]) -> Iterator[tuple[float, float]]:
    for _ in range(ROUNDS):
        yield _seconds_each(work), _seconds_each(reference)


def _seconds_each(work: Callable[[], object]) -> float:
    work()
    began, times = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < ROUND_SECONDS:
        work()
        times += 1
    return passed / max(1, times)


def _verification() -> Callable[[], object]:
    key, message = Ed25519PrivateKey.generate(), b"x" * 1000
    public, signature = key.public_key(), key.sign(message)
    return lambda: public.verify(signature, message)


def _figures(multiples: Sequence[tuple[float, float]]) -> list[str]:
    ratios = [ratio for ratio, _ in multiples]
    middle = statistics.median(ratios)
    micros = statistics.median(micros for _, micros in multiples)
    return [f"{middle:.3g} ({min(ratios):.3g}–{max(ratios):.3g})", f"{micros:.3g}"]
