"""How far runs are, read from their own files, and how long they will take."""

from __future__ import annotations

from dataclasses import dataclass

from planet_bayes.data import files
from planet_bayes.data.rows import parse_row
from planet_bayes.sweep.jobs import Job


@dataclass(frozen=True)
class Standing:
    """How far a run is."""

    episode: int | None = None
    """The last finished one; None before the first."""
    train_return: float | None = None
    """Return of the last training episode."""
    evaluation_return: float | None = None
    """The last noise-free return."""
    minutes: float = 0.0
    """Time spent by the end of that episode, over all sittings."""
    minutes_left: float | None = None
    """An estimate: the episodes to come take as long as those since the first."""

    @property
    def total_minutes(self) -> float | None:
        """Time of the whole run, if it can be estimated."""
        return None if self.minutes_left is None else self.minutes + self.minutes_left


def standing(job: Job) -> Standing:
    """Read how far a job's run is."""
    lines = files.read_lines(job.folder.metrics)
    first, last = (parse_row(lines[index]) if lines else None for index in (0, -1))
    if first is None or last is None:
        return Standing()
    done, ahead = last["episode"] - first["episode"], job.config.collect.episodes - last["episode"]
    pace = (last["minutes"] - first["minutes"]) / done if done else None
    return Standing(
        episode=last["episode"],
        train_return=_newest(lines, "train_return"),
        evaluation_return=_newest(lines, "evaluation_return"),
        minutes=last["minutes"],
        minutes_left=0.0 if ahead <= 0 else None if pace is None else pace * ahead,
    )


def _newest(lines: list[str], column: str) -> float | None:
    for line in reversed(lines):
        row = parse_row(line) if f'"{column}"' in line else None
        if row is not None:
            return row[column]
    return None
