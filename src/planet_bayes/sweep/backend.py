"""Where the jobs of a sweep run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from planet_bayes.sweep.jobs import Job


@dataclass(frozen=True)
class Ended:
    """A job that is over."""

    job: Job
    failure: str | None = None
    """What went wrong, if something did."""

    @staticmethod
    def with_code(job: Job, code: int) -> Ended:
        """Return the end of a job whose process has an exit code; the negative of a signal."""
        if code == 0:
            return Ended(job)
        return Ended(job, f"exit code {code}" if code > 0 else f"killed by signal {-code}")


class Backend(Protocol):
    """Runs jobs, each in a process of its own."""

    def submit(self, job: Job) -> None:
        """Accept a job. It starts when there is room."""

    def poll(self) -> list[Ended]:
        """Start what there is room for, and return the jobs that are over since the last call."""

    def running(self) -> list[Job]:
        """Return the jobs that have started and were not over at the last `poll`."""

    def stop(self) -> None:
        """Let what runs write a checkpoint and end; forget what waits. Return when it has ended."""
