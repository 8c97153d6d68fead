"""Strings as regular languages over Unicode's code points: who is in one, and which is in which.

The constraint evaluator and the prover of narrowing both stand on this, and on one automaton, so that they can't
differ. Nothing here knows of constraints. Whatever is read, matched or proven is bounded: patterns by their size
(`PatternInvalid`), work by steps (`OutOfSteps`).

`regex.py` and `glob.py` read what people write into the trees of `expression.py`; `automaton.py` matches;
`search.py` decides inclusion; `portable.py` writes a tree as a pattern again.
"""

from app.core.languages.automaton import matches
from app.core.languages.expression import PatternInvalid
from app.core.languages.glob import parse_glob
from app.core.languages.language import Language, ending_with, pattern_of, starting_with
from app.core.languages.regex import parse_regex
from app.core.languages.search import Lengths, included, is_empty

__all__ = [
    "Language",
    "Lengths",
    "PatternInvalid",
    "ending_with",
    "included",
    "is_empty",
    "matches",
    "parse_glob",
    "parse_regex",
    "pattern_of",
    "starting_with",
]
