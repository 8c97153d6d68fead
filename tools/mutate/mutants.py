"""A module of the project with one fault in it, as code: to be put into functions that exist, or to be imported."""

import ast
import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from inspect import CO_NEWLOCALS
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final

from tools.mutate.faults import Fault, faults_in

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault in a module, and the first lines of the functions whose code it changes.

    No lines: it changes what the module computes while it is imported.
    """

    path: Path
    index: int
    fault: Fault
    lines: frozenset[int]

    @property
    def key(self) -> tuple[Path, int]:
        return self.path, self.index

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.fault.line}  {self.fault.name}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every fault of a module that makes a difference to its code."""
    tree = _tree_of(path)
    sound = _code_of(path, tree)
    for index, fault in enumerate(faults_in(tree)):
        fault.put()
        faulty = _code_of(path, tree)
        fault.undo()
        if faulty != sound:
            yield Mutant(path, index, fault, _lines_of_changes(sound, faulty))


def put_into_functions(mutant: Mutant) -> None:
    """Gives the functions of the module, wherever they are, the changed code."""
    sound, faulty = _code_of(mutant.path, _tree_of(mutant.path)), _faulty_code(mutant)
    pairs = zip(_functions_of(sound), _functions_of(faulty), strict=True)
    changed = {old: new for old, new in pairs if old != new}
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename == str(mutant.path):
            function.__code__ = changed.get(function.__code__, function.__code__)


def have_imported(mutant: Mutant) -> None:
    """From now on whoever imports the module gets the one with the fault."""
    sys.meta_path.insert(0, _Finder(mutant))


def _tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _code_of(path: Path, tree: ast.Module) -> CodeType:
    return compile(tree, str(path), "exec")


def _faulty_code(mutant: Mutant) -> CodeType:
    tree = _tree_of(mutant.path)
    next(islice(faults_in(tree), mutant.index, None)).put()
    return _code_of(mutant.path, tree)


def _functions_of(code: CodeType) -> Iterator[CodeType]:
    """The outermost functions in a module's code, in order; classes are looked into."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from (constant,) if constant.co_flags & CO_NEWLOCALS else _functions_of(constant)


def _lines_of_changes(sound: CodeType, faulty: CodeType) -> frozenset[int]:
    before, after = [*_functions_of(sound)], [*_functions_of(faulty)]
    if len(before) != len(after):
        return frozenset()
    changed = (old for old, new in zip(before, after, strict=True) if old != new)
    return frozenset(code.co_firstlineno for function in changed for code in _all_in(function))


def _all_in(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions inside it, which tests may reach without it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all_in(constant)


class _Finder(MetaPathFinder):
    """Finds one module, with a fault in it."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = ".".join(mutant.path.relative_to(ROOT).with_suffix("").parts)

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        path = self._mutant.path
        return spec_from_file_location(fullname, path, loader=_Loader(fullname, self._mutant))


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, mutant: Mutant) -> None:
        super().__init__(fullname, str(mutant.path))
        self._mutant = mutant

    def get_code(self, _fullname: str) -> CodeType:
        return _faulty_code(self._mutant)
