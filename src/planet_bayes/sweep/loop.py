"""Do all jobs of a sweep: start, watch, archive."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from planet_bayes.errors import PlanetBayesError
from planet_bayes.results.archive import collect
from planet_bayes.sweep.backend import Backend, Ended
from planet_bayes.sweep.board import Board
from planet_bayes.sweep.jobs import Job

POLL_SECONDS = 0.5


class Watcher(Protocol):
    """Receives the events of a sweep."""

    def started(self, job: Job) -> None:
        """Hear of a job that runs now."""

    def ended(self, ended: Ended) -> None:
        """Hear of a job that is over, and archived if it did not fail."""

    def refresh(self, board: Board) -> None:
        """See the state of all jobs. It is called at every poll."""


def sweep(
    jobs: Sequence[Job], backend: Backend, watcher: Watcher, should_stop: Callable[[], bool]
) -> Board:
    """Do jobs until none is left or ``should_stop``; return what has become of them.

    Nothing about the sweep is saved: the files of the runs say what is done. A job that fails does
    not stop the others. A stop lets the runs write their checkpoints.
    """
    board = Board(jobs)
    try:
        for job in jobs:
            backend.submit(job)
        while not board.is_over:
            over = backend.poll()
            for job in [job for job in backend.running() if job in board.waiting]:
                board.begin(job)
                watcher.started(job)
            if should_stop():  # first: who stops the sweep may have stopped runs
                break
            for ended in map(archived, over):
                board.end(ended)
                watcher.ended(ended)
            watcher.refresh(board)
            if not board.is_over:
                time.sleep(POLL_SECONDS)
    finally:
        backend.stop()
    return board


def archived(ended: Ended) -> Ended:
    """Copy the curve of a run that has ended to ``results/``. It fails if that fails."""
    if ended.failure is not None:
        return ended
    run = ended.job.run
    try:
        messages = collect(run.archive, [run.folder])
    except (PlanetBayesError, OSError) as error:
        return Ended(ended.job, f"not archived: {error}")
    return ended if run.result.is_file() else Ended(ended.job, "; ".join(messages))
