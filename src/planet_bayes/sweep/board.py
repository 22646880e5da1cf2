"""The state of a sweep: which jobs are done, run, wait or have failed, and the time left."""

from __future__ import annotations

from collections.abc import Sequence

from planet_bayes.sweep.backend import Ended
from planet_bayes.sweep.jobs import Job
from planet_bayes.sweep.standing import Standing, standing


class Board:
    """The jobs of a sweep by what has become of them."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.waiting = list(jobs)
        self.running: list[Job] = []
        self.done: list[Job] = []
        self.failed: list[Ended] = []
        self._standings: dict[str, Standing] = {}

    @property
    def is_over(self) -> bool:
        """Whether nothing runs or waits."""
        return not self.running and not self.waiting

    def begin(self, job: Job) -> None:
        """Count a job as running."""
        self.waiting.remove(job)
        self.running.append(job)

    def end(self, ended: Ended) -> None:
        """Count a job as done or failed."""
        (self.waiting if ended.job in self.waiting else self.running).remove(ended.job)
        if ended.failure is None:
            self.done.append(ended.job)
        else:
            self.failed.append(ended)
        self.look(ended.job)

    def look(self, job: Job) -> Standing:
        """Read how far a run is."""
        self._standings[job.name] = standing(job)
        return self._standings[job.name]

    def minutes_left(self) -> float | None:
        """Estimate the time until everything is done, if anything is known.

        A run of which nothing is known takes as long as the mean of those with its preset, task
        and observation, or else as the mean of all. As many run at a time as run now.
        """
        totals: dict[object, list[float]] = {}
        for job in (*self.running, *self.done):
            total = self._standings.get(job.name, Standing()).total_minutes
            if total is not None:
                totals.setdefault(_kind(job), []).append(total)
        everything = [total for kind in totals.values() for total in kind]

        def left(job: Job) -> float:
            now = self._standings.get(job.name, Standing())
            if now.minutes_left is not None:
                return now.minutes_left
            alike = totals.get(_kind(job), everything)
            return max(0.0, sum(alike) / len(alike) - now.minutes)

        if not everything or self.is_over:
            return None
        remaining = [left(job) for job in (*self.running, *self.waiting)]
        return max(*remaining, sum(remaining) / max(1, len(self.running)))


def _kind(job: Job) -> tuple[str, str, str]:
    """Return what the duration of a run depends on most."""
    return job.run.preset, job.run.name.task, job.run.name.observation
