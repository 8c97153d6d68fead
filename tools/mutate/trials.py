"""What the tests make of a mutant: each is tried in a process of its own, by the tests that reach its fault."""

import os
import pickle
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn, TypeAlias, TypeVar

import hypothesis
import pytest

from tools.mutate.mutants import Mutant, have_imported, put_into_functions

TESTS: Final = (
    *(
        f"tests/core/test_{name}.py"
        for name in ("attenuation", "budget", "constraints", "decision", "grant", "meet", "narrowing", "vectors")
    ),
    "tests/usecases/test_credulous.py",
)
OPTIONS: Final = (
    *("-p", "no:terminal", "-p", "no:cacheprovider", "--capture=no", "--timeout=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # what tests import is here before they are
)

_NO_FAILURE: Final = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}

EXAMPLES: Final = 10
"""How many examples hypothesis tries: there are thousands of faults to try them on."""

MAX_TEST_SECONDS: Final = 20.0
"""What the tests of one mutant may take while none fails: the slowest are left out."""

MAX_TRIAL_SECONDS: Final = 120
"""A mutant that takes longer has become endless, which somebody would notice."""

SAID_EVERY: Final = 200

Place: TypeAlias = tuple[str, int]
"""A function, by its file and first line."""

Verdicts: TypeAlias = dict["Key", "Verdict"]
Key: TypeAlias = tuple[Path, int]
"""A mutant, by its file and the fault's number: what a child can speak of."""

T = TypeVar("T")


class Verdict(Enum):
    """Whether any test fails."""

    NOTICED = "noticed"
    SURVIVED = "survived"


@dataclass(slots=True)
class Survey:
    """The tests without any fault: how long each takes, what each reaches and what all of them import."""

    seconds: dict[str, float] = field(default_factory=dict)
    reached: dict[str, set[Place]] = field(default_factory=dict)
    reached_by_imports: set[Place] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    modules: list[str] = field(default_factory=list)


class Trials:
    """The tests, ready to be tried on mutants; `say` is told of every survivor."""

    def __init__(self, *, workers: int, say: Callable[[str], None]) -> None:
        self._workers, self._say = workers, say
        self._survey = _from_child(_surveyed)
        for test in self._survey.failing:
            say(f"left out, since it fails without any fault: {test}")
        _import_all(self._survey.modules)

    @property
    def tests(self) -> Sequence[str]:
        return [*self._survey.seconds]

    def of(self, mutants: Sequence[Mutant]) -> list[Verdict]:
        """The verdict on each mutant, in order."""
        swift = [mutant for mutant in mutants if mutant.lines]
        verdicts = _from_child(lambda: self._in_functions(swift))
        open_ = [mutant for mutant in mutants if verdicts.get(mutant.key) is not Verdict.NOTICED]
        verdicts |= self._by_import([mutant for mutant in open_ if self._counts_for_imports(mutant)])
        for mutant in mutants:
            if verdicts[mutant.key] is Verdict.SURVIVED:
                self._say(f"survived: {mutant}")
        return [verdicts[mutant.key] for mutant in mutants]

    def _counts_for_imports(self, mutant: Mutant) -> bool:
        """Whether tests, or the module itself, compute something with it before any test runs."""
        return not mutant.lines or not _places_of(mutant).isdisjoint(self._survey.reached_by_imports)

    def _in_functions(self, mutants: Sequence[Mutant]) -> Verdicts:
        verdicts: Verdicts = {}

        def try_all(run: Callable[[str], None]) -> None:
            def attempt(mutant: Mutant) -> None:
                put_into_functions(mutant)
                for test in self._quickest(self._reaching(mutant)):
                    run(test)

            verdicts.update(self._in_children(mutants, attempt))

        _run_pytest(TESTS, _Strict(), _InsteadOfTests(try_all))
        return verdicts

    def _by_import(self, mutants: Sequence[Mutant]) -> Verdicts:
        def attempt(mutant: Mutant) -> None:
            have_imported(mutant)
            tests = [*self._quickest(self._reaching(mutant) if mutant.lines else self.tests)]
            for file in self._nearest_files(mutant.path):
                if _run_pytest([file], _Strict(), _Only(tests)) not in _NO_FAILURE:
                    _end(Verdict.NOTICED)

        return self._in_children(mutants, attempt)

    def _nearest_files(self, path: Path) -> list[str]:
        """The files of tests, the one with most tests that reach the module first: it is enough for most faults."""
        reach = Counter(_file_of(test) for test, places in self._survey.reached.items() if str(path) in dict(places))
        return sorted({*map(_file_of, self.tests)}, key=lambda file: -reach[file])

    def _reaching(self, mutant: Mutant) -> list[str]:
        places = _places_of(mutant)
        return [test for test, reached in self._survey.reached.items() if not places.isdisjoint(reached)]

    def _quickest(self, tests: Iterable[str]) -> Iterator[str]:
        left = MAX_TEST_SECONDS
        for test in sorted(tests, key=self._survey.seconds.__getitem__):
            left -= self._survey.seconds[test]
            if left < 0:
                return
            yield test

    def _in_children(self, mutants: Iterable[Mutant], attempt: Callable[[Mutant], None]) -> Verdicts:
        """Each mutant in a process of its own, so many at a time."""
        verdicts: Verdicts = {}
        running: dict[int, Mutant] = {}
        for mutant in mutants:
            if len(running) >= self._workers:
                self._hear_one(running, verdicts)
            running[_fork(attempt, mutant)] = mutant
        while running:
            self._hear_one(running, verdicts)
        return verdicts

    def _hear_one(self, running: dict[int, Mutant], verdicts: Verdicts) -> None:
        pid, status = os.wait()
        mutant = running.pop(pid)
        verdicts[mutant.key] = Verdict.SURVIVED if status == 0 else Verdict.NOTICED
        if len(verdicts) % SAID_EVERY == 0:
            self._say(f"{len(verdicts)} tried")


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def _places_of(mutant: Mutant) -> set[Place]:
    return {(str(mutant.path), line) for line in mutant.lines}


# --- processes --------------------------------------------------------------------------------------------


def _fork(attempt: Callable[[Mutant], None], mutant: Mutant) -> int:
    """A child that ends well if nothing notices the mutant."""
    pid = os.fork()
    if pid == 0:
        # The signal's own effect, which nothing can catch: the process ends, and not well.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(MAX_TRIAL_SECONDS)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        try:
            attempt(mutant)
        except BaseException:  # noqa: BLE001  # whatever it is, it was noticed
            _end(Verdict.NOTICED)
        _end(Verdict.SURVIVED)
    return pid


def _end(verdict: Verdict) -> NoReturn:
    os._exit(0 if verdict is Verdict.SURVIVED else 1)


def _from_child(work: Callable[[], T]) -> T:
    """What a child computes, which may import what must not be imported here."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with os.fdopen(write_end, "wb") as pipe:
                pickle.dump(work(), pipe)
        except BaseException:  # noqa: BLE001  # the parent sees that there is no answer
            traceback.print_exc()
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    if not answer:
        sys.exit("the tests could not be run")
    value: T = pickle.loads(answer)  # noqa: S301  # our own child's word
    return value


def _import_all(modules: Iterable[str]) -> None:
    """Third parties' modules, so that no child has to import them."""
    for name in modules:
        with suppress(Exception):
            import_module(name)


# --- pytest -----------------------------------------------------------------------------------------------


def _run_pytest(tests: Iterable[str], *plugins: object) -> int:
    return int(pytest.main([*OPTIONS, *tests], plugins=[_FewExamples(), *plugins]))


def _surveyed() -> Survey:
    survey = Survey()
    surveyor = _Surveyor(survey)
    sys.settrace(surveyor.trace)
    _run_pytest(TESTS, surveyor)
    sys.settrace(None)
    ours = {"app", "tests", "tools", "__main__"}
    survey.modules = [name for name in sys.modules if name.partition(".")[0] not in ours]
    for test in survey.failing:
        del survey.seconds[test], survey.reached[test]
    return survey


class _FewExamples:
    """Lets hypothesis try little."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        hypothesis.settings.register_profile("mutate", hypothesis.settings.default, max_examples=EXAMPLES)
        hypothesis.settings.load_profile("mutate")


class _Strict:
    """Ends the process at the first failure."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            _end(Verdict.NOTICED)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            _end(Verdict.NOTICED)


class _Surveyor:
    """Notes of every test how long it takes and what it reaches."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._reached = survey.reached_by_imports

    def trace(self, frame: FrameType, _event: str, _argument: object) -> None:
        if "/app/core/" in frame.f_code.co_filename:
            self._reached.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._reached = self._survey.reached[item.nodeid] = set()
        before = time.process_time()
        result = yield
        self._survey.seconds[item.nodeid] = time.process_time() - before
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._survey.failing.add(report.nodeid)


class _InsteadOfTests:
    """Does something else once the tests are collected, and says how to run one."""

    def __init__(self, deed: Callable[[Callable[[str], None]], None]) -> None:
        self._deed = deed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items: Mapping[str, pytest.Item] = {item.nodeid: item for item in session.items}
        self._deed(lambda test: items[test].ihook.pytest_runtest_protocol(item=items[test], nextitem=None))
        return True


class _Only:
    """Keeps these tests alone, in this order."""

    def __init__(self, tests: Iterable[str]) -> None:
        self._order = {test: place for place, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(kept, key=lambda item: self._order[item.nodeid])
