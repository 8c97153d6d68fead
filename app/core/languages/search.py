"""Whether there is a text of a certain length in some languages and not in another.

Inclusion and emptiness both ask this. The automata are walked side by side, the shortest texts first, state by
state as they are met. Bounds on length cost no states: where only longer texts than the shortest will do, the
states that are met after exactly so many characters are followed until they repeat.

The answer is exact or, where it would take too long, OutOfSteps.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import and_, getitem
from typing import Final, NamedTuple, TypeAlias

from app.core.languages.alphabet import AFTER_SURROGATES, LAST, is_surrogate
from app.core.languages.automaton import END, OPERATIONS_PER_STEP, START, Automaton, Memo, automaton_of
from app.core.languages.language import Language
from app.core.steps import Steps

CUTS_PER_STEP: Final = 4
"""Code points where sets of characters begin or end, for each automaton, when characters are told apart."""

STATES_PER_STEP: Final = 4
"""States that are followed to the next."""


class Lengths(NamedTuple):
    """Inclusive bounds on the length of a text, in code points."""

    least: int
    most: int


def included(
    child: Sequence[Language],
    child_lengths: Lengths,
    parent: Language | None,
    parent_lengths: Lengths,
    steps: Steps,
) -> bool:
    """Whether every text in all of the child's languages and of its lengths is in the parent's and of its lengths.

    None as the parent's is any language. False only if there is a text that is not; raises OutOfSteps.
    """
    low, high = _own_lengths(child, child_lengths)
    shorter = Lengths(low, min(high, parent_lengths.least - 1))
    longer = Lengths(max(low, parent_lengths.most + 1), high)
    if _some_text(child, None, shorter, steps) or _some_text(child, None, longer, steps):
        return False
    common = Lengths(max(low, parent_lengths.least), min(high, parent_lengths.most))
    return parent is None or parent in child or not _some_text(child, parent, common, steps)


def is_empty(languages: Sequence[Language], lengths: Lengths, steps: Steps) -> bool:
    """Whether no text of these lengths is in all of the languages; raises OutOfSteps."""
    return not _some_text(languages, None, _own_lengths(languages, lengths), steps)


def _own_lengths(languages: Sequence[Language], lengths: Lengths) -> Lengths:
    """The lengths of these that the expressions leave: often there is nothing more to ask then."""
    expressions = [language.expression for language in languages]
    shortest = [expression.shortest for expression in expressions]
    longest = [expression.longest for expression in expressions if expression.longest is not None]
    return Lengths(max([lengths.least, *shortest]), min([lengths.most, *longest]))


def _some_text(inside: Sequence[Language], outside: Language | None, lengths: Lengths, steps: Steps) -> bool:
    """Whether there is a text of these lengths that is in all languages of the one kind and not in the other."""
    if lengths.least > lengths.most:
        return False
    if not inside and outside is None:
        return True
    graph = _Graph(walk=_walk_of([*dict.fromkeys(inside)], outside, steps), steps=steps)
    return graph.explore(lengths) or graph.holds(lengths)


# --- automata side by side --------------------------------------------------------------------------------

State: TypeAlias = tuple[int, ...]
"""A state of each automaton."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """The automata that a text must be in and then, where there is one, the automaton that it must not be in."""

    inside: int
    """How many there are of the first kind."""
    reached: Sequence[Memo[int]]
    holding: Sequence[Sequence[int]]
    """By automaton, what it holds for a character: the same for many, so that a few stand for all characters."""
    sinks: Sequence[int]
    steps_a_look: int

    def look(self, state: State) -> tuple[bool, list[State]]:
        """Whether a text may end here; where the next character may lead, a way that leads nowhere left out."""
        reached = [*map(getitem, self.reached, state)]
        ending = [reach & END for reach in reached]
        if any(map(and_, reached[self.inside :], self.sinks)) and any(ending[self.inside :]):
            return False, []  # whatever comes next, it is in there
        ends = all(ending[: self.inside]) and not any(ending[self.inside :])
        met = dict.fromkeys(zip(*map(_common, reached, self.holding), strict=True))
        return ends, [state for state in met if 0 not in state[: self.inside]]


def _common(reach: int, holding: Sequence[int]) -> Iterator[int]:
    return map(and_, repeat(reach), holding)


def _walk_of(inside: Sequence[Language], outside: Language | None, steps: Steps) -> _Walk:
    automata = [automaton_of(language, steps) for language in inside]
    excluded = [] if outside is None else [automaton_of(outside, steps)]
    every = [*automata, *excluded]
    steps.take(1 + sum(len(automaton.cuts) for automaton in every) * len(every) // CUTS_PER_STEP)
    letters = _letters(every, len(automata))
    operations = sum(automaton.operations + len(letters) * automaton.width for automaton in every) + len(letters)
    return _Walk(
        inside=len(automata),
        reached=[automaton.reached for automaton in every],
        holding=[*zip(*letters, strict=True)] or [()] * len(every),
        sinks=[automaton.sinks for automaton in excluded],
        steps_a_look=4 + operations // OPERATIONS_PER_STEP,
    )


def _letters(automata: Sequence[Automaton], inside: int) -> list[State]:
    """What all automata hold for each character, but for characters that lead nowhere."""
    cuts = {AFTER_SURROGATES}.union(*(automaton.cuts for automaton in automata))
    codes = [code for code in sorted(cuts) if code <= LAST and not is_surrogate(code)]
    held = dict.fromkeys(zip(*(map(automaton.held, codes) for automaton in automata), strict=True))
    return [letter for letter in held if 0 not in letter[:inside]]


# --- the graph of their states ----------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Graph:
    """The states in the order in which they are met, known by their numbers."""

    walk: _Walk
    steps: Steps
    onward: list[list[int]] = field(default_factory=list)
    """The states that are one character away, for each that was looked at."""
    ends: list[int] = field(default_factory=list)
    """The states where a text may end."""

    def explore(self, lengths: Lengths) -> bool:
        """Look at all states; True as soon as the shortest text to one of them shows that there is a text."""
        start = (START,) * len(self.walk.reached)
        numbers, fresh, length = {start: 0}, [start], 0
        while fresh and length <= lengths.most:
            known = len(self.ends)
            fresh = [met for state in fresh for met in self._look(state, numbers)]
            if length >= lengths.least and len(self.ends) > known:
                return True
            length += 1
        return False

    def _look(self, state: State, numbers: dict[State, int]) -> list[State]:
        self.steps.take(self.walk.steps_a_look)
        ends, onward = self.walk.look(state)
        if ends:
            self.ends.append(numbers[state])
        fresh = [met for met in onward if met not in numbers]
        numbers.update(zip(fresh, range(len(numbers), len(numbers) + len(fresh)), strict=True))
        self.onward.append([numbers[met] for met in onward])
        return fresh

    def holds(self, lengths: Lengths) -> bool:
        """Whether there is a text of these lengths, when all states are known."""
        distances = self._distances()
        useful = {number: [met for met in onward if met in distances] for number, onward in enumerate(self.onward)}
        rest = lengths.most - lengths.least
        return 0 in distances and any(distances[number] <= rest for number in _after(lengths.least, useful, self.steps))

    def _distances(self) -> dict[int, int]:
        """How many characters it takes from each state to the nearest end; without those that lead to none."""
        back: defaultdict[int, list[int]] = defaultdict(list)
        for number, onward in enumerate(self.onward):
            for met in onward:
                back[met].append(number)
        distances, fresh, length = dict.fromkeys(self.ends, 0), self.ends, 0
        while fresh:
            length += 1
            fresh = [*dict.fromkeys(before for number in fresh for before in back[number] if before not in distances)]
            distances |= dict.fromkeys(fresh, length)
        return distances


def _after(length: int, onward: Mapping[int, Sequence[int]], steps: Steps) -> set[int]:
    """The states that the texts of exactly this length lead to; raises OutOfSteps.

    Sooner or later the sets repeat. Each is compared with one that is kept, which is replaced after twice as many
    (Brent), so that a repetition is found and whole rounds are left out without keeping them all.
    """
    states, kept, left, since, until = {0}, {0}, length, 0, 1
    while left and states:
        states = _next(states, onward, steps)
        left, since = left - 1, since + 1
        if states == kept:
            left %= since
        elif since == until:
            kept, since, until = states, 0, 2 * until
    return states


def _next(states: set[int], onward: Mapping[int, Sequence[int]], steps: Steps) -> set[int]:
    steps.take(3 + sum(len(onward[state]) for state in states) // STATES_PER_STEP)
    return {met for state in states for met in onward[state]}
