"""Which small faults can be put into a module: one change of its syntax tree at a time.

Knows Python's grammar and nothing of tests. Left alone are what decides nothing: annotations, docstrings,
imports, decorators, assertions (a caller's bug), and prose (a string with a space in it).
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One change: where, what stands there and what would, and the deed, which can be undone."""

    line: int
    function: str
    before: str
    after: str
    put: Callable[[], None]
    undo: Callable[[], None]

    @property
    def name(self) -> str:
        """What it is known by, whatever lines are added above it."""
        return f"{self.function}: {self.before} -> {self.after}"


def faults_in(tree: ast.Module) -> Iterator[Fault]:
    """Every fault of a module, in the order of its text."""
    yield from _faults_below(tree, "module")


_ORDER: Final[Mapping[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}

_ARITHMETIC: Final[Mapping[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}

_NAMES: Final[Mapping[str, str]] = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "startswith": "endswith",
    "endswith": "startswith",
    "removesuffix": "removeprefix",
    "removeprefix": "removesuffix",
    "union": "intersection",
    "intersection": "union",
    "issubset": "issuperset",
    "issuperset": "issubset",
    "fullmatch": "match",
    "setdefault": "__setitem__",
}

_LEFT_ALONE: Final = (ast.Import, ast.ImportFrom, ast.Assert)
_SKIPPED_FIELDS: Final = {"annotation", "returns", "decorator_list", "bases"}


def _faults_below(node: ast.AST, function: str) -> Iterator[Fault]:
    inner = _name_below(node, function)
    for field, value in ast.iter_fields(node):
        if field in _SKIPPED_FIELDS:
            continue
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if not isinstance(child, ast.AST) or _says_nothing(child, node):
                continue
            place = partial(_put, node, field, index if isinstance(value, list) else None)
            for changed in _changes(child, node, field):
                yield _fault(child, changed, inner, place)
            yield from _faults_below(child, inner)


def _name_below(node: ast.AST, function: str) -> str:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return function
    return node.name if function == "module" else f"{function}.{node.name}"


def _says_nothing(node: ast.AST, parent: ast.AST) -> bool:
    is_alias = isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias"
    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    is_export = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    is_part_of_text = isinstance(node, ast.Constant) and isinstance(parent, ast.JoinedStr)
    return isinstance(node, _LEFT_ALONE) or is_alias or is_docstring or is_export or is_part_of_text


def _put(parent: ast.AST, field: str, index: int | None, changed: ast.AST) -> None:
    if index is None:
        setattr(parent, field, changed)
    else:
        getattr(parent, field)[index] = changed


def _fault(child: ast.AST, changed: ast.AST, function: str, place: Callable[[ast.AST], None]) -> Fault:
    ast.copy_location(changed, child)
    ast.fix_missing_locations(changed)
    return Fault(
        line=getattr(child, "lineno", 0),
        function=function,
        before=_shown(child),
        after=_shown(changed),
        put=partial(place, changed),
        undo=partial(place, child),
    )


def _shown(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _changes(node: ast.AST, parent: ast.AST, field: str) -> Iterator[ast.AST]:
    """What could stand in the place of a node."""
    for kind, change in _CHANGES:
        if isinstance(node, kind):
            yield from change(node)
    if field == "test" or (field == "ifs" and isinstance(parent, ast.comprehension)):
        yield ast.Constant(value=True)
        yield ast.Constant(value=False)


def _of_compare(node: ast.Compare) -> Iterator[ast.AST]:
    for index, operator in enumerate(node.ops):
        for other in _ORDER.get(type(operator), ()):
            changed = deepcopy(node)
            changed.ops[index] = other()
            yield changed


def _of_bool(node: ast.BoolOp) -> Iterator[ast.AST]:
    changed = deepcopy(node)
    changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield changed
    yield from _without_one(node, "values")


def _of_unary(node: ast.UnaryOp) -> Iterator[ast.AST]:
    if isinstance(node.op, ast.Not | ast.USub):
        yield deepcopy(node.operand)


def _of_binary(node: ast.BinOp) -> Iterator[ast.AST]:
    if type(node.op) in _ARITHMETIC:
        changed = deepcopy(node)
        changed.op = _ARITHMETIC[type(node.op)]()
        yield changed


def _of_constant(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(value=not value)
    elif isinstance(value, int):
        yield ast.Constant(value=value + 1)
        yield ast.Constant(value=value - 1)
    elif isinstance(value, str) and " " not in value:
        yield ast.Constant(value=f"X{value}X")


def _of_text(node: ast.JoinedStr) -> Iterator[ast.AST]:
    """A text that is put together counts as a whole, and only where it is not prose."""
    if not any(isinstance(part, ast.Constant) and " " in str(part.value) for part in node.values):
        yield ast.Constant(value="X")


def _of_call(node: ast.Call) -> Iterator[ast.AST]:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name in _NAMES:
        changed = deepcopy(node)
        if isinstance(changed.func, ast.Name):
            changed.func.id = _NAMES[name]
        elif isinstance(changed.func, ast.Attribute):
            changed.func.attr = _NAMES[name]
        yield changed
    for index, keyword in enumerate(node.keywords):
        if keyword.arg is not None and not isinstance(keyword.value, ast.Constant):
            changed = deepcopy(node)
            changed.keywords[index].value = ast.Constant(value=None)
            yield changed


def _of_collection(node: ast.List | ast.Set) -> Iterator[ast.AST]:
    if isinstance(node, ast.List) and not isinstance(node.ctx, ast.Load):
        return
    yield from _without_one(node, "elts")


def _of_table(node: ast.Tuple) -> Iterator[ast.AST]:
    """A tuple of tuples or of spread parts is a table, and a row of it may be missing."""
    if isinstance(node.ctx, ast.Load) and any(isinstance(item, ast.Tuple | ast.Starred) for item in node.elts):
        yield from _without_one(node, "elts")


def _of_dict(node: ast.Dict) -> Iterator[ast.AST]:
    for index in range(len(node.keys)):
        changed = deepcopy(node)
        del changed.keys[index], changed.values[index]
        yield changed


def _of_return(node: ast.Return) -> Iterator[ast.AST]:
    is_no = isinstance(node.value, ast.Constant) and not node.value.value
    if node.value is not None and not is_no:
        yield ast.Return(value=ast.Constant(value=None))


def _of_statement(_node: ast.stmt) -> Iterator[ast.AST]:
    yield ast.Pass()


def _of_assign(node: ast.Assign | ast.AnnAssign) -> Iterator[ast.AST]:
    if node.value is not None and not isinstance(node.value, ast.Constant | ast.JoinedStr):
        changed = deepcopy(node)
        changed.value = ast.Constant(value=None)
        yield changed


def _of_choice(node: ast.IfExp) -> Iterator[ast.AST]:
    changed = deepcopy(node)
    changed.body, changed.orelse = changed.orelse, changed.body
    yield changed


def _of_loop_word(node: ast.Continue | ast.Break) -> Iterator[ast.AST]:
    yield ast.Break() if isinstance(node, ast.Continue) else ast.Continue()


def _without_one(node: ast.AST, field: str) -> Iterator[ast.AST]:
    """The node with one part less, for each of its parts; of two operands the other is what is left."""
    parts = getattr(node, field)
    for index in range(len(parts)):
        rest = deepcopy([*parts[:index], *parts[index + 1 :]])
        if isinstance(node, ast.BoolOp) and len(rest) == 1:
            yield rest[0]
        elif isinstance(node, ast.Set) and not rest:
            yield ast.Call(func=ast.Name(id="set", ctx=ast.Load()), args=[], keywords=[])
        else:
            changed = deepcopy(node)
            setattr(changed, field, rest)
            yield changed


_CHANGES: Final[tuple[tuple[type[ast.AST] | tuple[type[ast.AST], ...], Callable[..., Iterator[ast.AST]]], ...]] = (
    (ast.Compare, _of_compare),
    (ast.BoolOp, _of_bool),
    (ast.UnaryOp, _of_unary),
    (ast.BinOp, _of_binary),
    (ast.Constant, _of_constant),
    (ast.JoinedStr, _of_text),
    (ast.Call, _of_call),
    ((ast.List, ast.Set), _of_collection),
    (ast.Tuple, _of_table),
    (ast.Dict, _of_dict),
    (ast.Return, _of_return),
    ((ast.Expr, ast.Raise, ast.AugAssign), _of_statement),
    ((ast.Assign, ast.AnnAssign), _of_assign),
    (ast.IfExp, _of_choice),
    ((ast.Continue, ast.Break), _of_loop_word),
)
