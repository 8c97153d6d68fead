"""What an evaluation or a proof may cost. Counted rather than timed, so that one question always has one answer."""

from dataclasses import dataclass
from typing import Final

MAX_STEPS: Final = 100_000  # constraints evaluated, or states of an automaton seen, where nobody says less


class OutOfSteps(Exception):
    """An evaluation or a proof would take more steps than it may."""


@dataclass(slots=True, kw_only=True)
class Steps:
    """What is left to spend; where it is part of a `whole`, of that as well."""

    left: int = MAX_STEPS
    whole: "Steps | None" = None

    def take(self, steps: int = 1) -> None:
        """Spend; raises OutOfSteps."""
        self.left -= steps
        if self.whole is not None:
            self.whole.take(steps)
        if self.left < 0:
            raise OutOfSteps
