"""Events that a training run reports to whoever watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SeedEpisode:
    """A seed episode was collected, or copied from a log."""

    done: int
    total: int


@dataclass(frozen=True)
class Updated:
    """A gradient update was done or skipped."""

    iteration: int
    done: int
    """Updates of this iteration so far."""
    total: int
    losses: dict[str, float]
    """Empty if the update was skipped."""


@dataclass(frozen=True)
class Evaluating:
    """An evaluation begins."""

    episodes: int


@dataclass(frozen=True)
class IterationDone:
    """An iteration ended: its row of the metrics."""

    row: dict[str, Any]


@dataclass(frozen=True)
class VideoWritten:
    """A film of an episode was written."""

    path: Path
    episode_return: float


@dataclass(frozen=True)
class Problem:
    """Something went wrong that the run survives."""

    message: str


Event = SeedEpisode | Updated | Evaluating | IterationDone | VideoWritten | Problem
Report = Callable[[Event], None]
