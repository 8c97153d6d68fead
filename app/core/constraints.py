"""The constraint language: from a grant's document to the rule of a tool, and how a call is held to it.

How each kind is spelt is in `spelling.py`, what it allows in `kinds/`; whether one constraint is narrower than
another, in `narrowing.py`.
"""

from collections.abc import Iterator
from unicodedata import is_normalized

from app.core.kinds import (
    ArgumentRule,
    Bind,
    Bindings,
    Constraint,
    Object,
    Objection,
    Site,
    ToolRule,
)
from app.core.resources import Resources
from app.core.spelling import MAX_ARGUMENTS, ConstraintInvalid, Node, read_rule, spell_rule
from app.core.steps import OutOfSteps, Steps
from app.core.strict_json import JsonObject, JsonValue, StrictJsonError, normalise, walk

__all__ = [
    "MAX_ARGUMENTS",
    "ArgumentRule",
    "Bindings",
    "Constraint",
    "ConstraintInvalid",
    "Objection",
    "ToolRule",
    "check_arguments",
    "fill_bindings",
    "flaw_in",
    "parse_tool_rule",
    "render_tool_rule",
]


def parse_tool_rule(document: JsonValue, *, pointer: str) -> ToolRule:
    """The rule that a member of `resourceConstraints` spells; `pointer` is the member's own.

    Raises ConstraintInvalid at the first member that is not understood, or is beyond a limit.
    """
    try:
        document = normalise(document)
    except StrictJsonError as error:
        raise ConstraintInvalid(pointer + error.pointer, error.detail) from None
    if (flaw := next(_flaws(document, pointer), None)) is not None:
        raise ConstraintInvalid(*flaw)
    return read_rule(Node(value=document, pointer=pointer), openable=True)


def render_tool_rule(rule: ToolRule) -> JsonObject:
    """The document of a rule, the inverse of `parse_tool_rule`."""
    return spell_rule(rule)


def fill_bindings(rule: ToolRule, arguments: JsonObject, bindings: Bindings) -> JsonObject:
    """The arguments, with each bound one that was left out set to the field of the grant that it is bound to.

    A field that the grant does not have fills nothing in: `check_arguments` objects to that.
    """
    filled = dict(arguments)
    for name, argument in rule.arguments.items():
        constraint, given = argument.constraint, arguments.get(name)
        if isinstance(constraint, Bind) and (bound := bindings.get(constraint.field)) is not None:
            filled.setdefault(name, bound)
        elif isinstance(constraint, Object) and isinstance(given, dict):
            filled[name] = fill_bindings(constraint.fields, given, bindings)
    return filled


def check_arguments(
    rule: ToolRule,
    arguments: JsonObject,
    bindings: Bindings,
    steps: Steps | None = None,
    resources: Resources | None = None,
) -> Objection | None:
    """None if a call with these arguments is within the rule, else the foremost objection.

    `arguments` are canonical (`strict_json.parse`), filled in (`fill_bindings`) and without a flaw
    (`flaw_in`). Recursion goes as deep as the rule, never as deep as the arguments. `steps` are what may be
    spent on it and on what else is asked with them; `resources` what is on record of the things that the
    arguments name.
    """
    at = Site(bindings=bindings, resources=resources or {}, steps=steps or Steps())
    try:
        return rule.objection(arguments, at)
    except OutOfSteps:
        return at.invalid("takes too many steps to check")


def flaw_in(arguments: JsonObject) -> Objection | None:
    """What no rule may look at, wherever it stands, under `any` as well; None if there is nothing of it."""
    for place, flaw in _flaws(arguments, ""):
        return Site(pointer=place, bindings={}, steps=Steps()).invalid(flaw)
    return None


def _flaws(value: JsonValue, pointer: str) -> Iterator[tuple[str, str]]:
    """Where and how scalars and names are such that no kind may look at them."""
    for place, leaf in walk(value, pointer):
        if isinstance(leaf, str) and leaf.isascii():
            continue  # in form C as it is, and by far the most
        try:
            same_type = type(normalise(leaf)) is type(leaf)
        except StrictJsonError as error:
            yield place, f"is not strict JSON: {error.detail}"
            continue
        if not same_type:
            yield place, "is not strict JSON: a number is not in canonical form"
        elif isinstance(leaf, str) and not is_normalized("NFC", leaf):
            yield place, "holds a string that is not in Unicode normalisation form C"
