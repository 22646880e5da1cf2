"""Errors that a user can act on: each message says what was wrong and what to do."""

import difflib
from collections.abc import Iterable

MIN_SIMILARITY = 0.7
"""Similarity of two words (difflib's ratio) from which one is taken for a typo of the other."""


IMPORT_FIRST = (
    "Import the module that registers it first; on the command line: planet-bayes --import MODULE "
    "COMMAND."
)
"""What to do about the name of a part that nobody has registered."""


class PlanetBayesError(Exception):
    """Base of every error that this package raises on purpose.

    The command line prints its message alone, without a traceback.
    """


class ConfigError(PlanetBayesError):
    """A setting that is unknown, out of range, or in conflict with another one."""


class EnvError(PlanetBayesError):
    """An environment that is missing, unsupported, or returned something unusable."""


class ObservationError(PlanetBayesError, ValueError):
    """An observation that does not fit the agent's signature."""


class RunError(PlanetBayesError):
    """A run folder or checkpoint that is missing, incomplete or not one of ours."""


class NumericalError(PlanetBayesError):
    """A non-finite loss or prediction."""


class PlannerError(PlanetBayesError):
    """An argument that the planner cannot work with, or predictions that are not finite."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence: a suggestion if a known word is near, or a full stop."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=MIN_SIMILARITY)
    return f"; did you mean {matches[0]!r}?" if matches else "."
