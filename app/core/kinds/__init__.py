"""The kinds of constraint: what each of them allows.

One frozen class a kind; how a grant spells them is `spelling.py`'s table, which of two is the narrower is
`narrowing.py`'s, what a model is shown of them is `schema.py`'s. Nothing here knows of documents, grants or tools.
"""

from app.core.kinds.base import (
    CLOSED,
    FREE,
    Absent,
    AnyValue,
    ArgumentRule,
    Bindings,
    Constraint,
    Objection,
    Scalar,
    Site,
    ToolRule,
    everything_in,
    foremost,
    judge,
    typed,
)
from app.core.kinds.compounds import AllOf, AnyOf, Clauses, ContainsAll, List, Object, SubsetOf
from app.core.kinds.places import MAX_PATH_CHARS, Cidr, Host, Path, Url, is_canonical_path
from app.core.kinds.scalars import (
    MAX_SCALE,
    SCALAR_TYPES,
    Bind,
    Bool,
    Decimal,
    Eq,
    Int,
    NotOneOf,
    OneOf,
    decimal_units,
    spell_decimal,
)
from app.core.kinds.texts import Glob, Pattern, Prefix, Regex, Str, Suffix
from app.core.kinds.things import Resource
from app.core.steps import MAX_STEPS, OutOfSteps, Steps

__all__ = [
    "CLOSED",
    "FREE",
    "MAX_PATH_CHARS",
    "MAX_SCALE",
    "MAX_STEPS",
    "SCALAR_TYPES",
    "Absent",
    "AllOf",
    "AnyOf",
    "AnyValue",
    "ArgumentRule",
    "Bind",
    "Bindings",
    "Bool",
    "Cidr",
    "Clauses",
    "Constraint",
    "ContainsAll",
    "Decimal",
    "Eq",
    "Glob",
    "Host",
    "Int",
    "List",
    "NotOneOf",
    "Object",
    "Objection",
    "OneOf",
    "OutOfSteps",
    "Path",
    "Pattern",
    "Prefix",
    "Regex",
    "Resource",
    "Scalar",
    "Site",
    "Steps",
    "Str",
    "SubsetOf",
    "Suffix",
    "ToolRule",
    "Url",
    "decimal_units",
    "everything_in",
    "foremost",
    "is_canonical_path",
    "judge",
    "spell_decimal",
    "typed",
]
