"""Jobs as processes of this machine."""

from __future__ import annotations

import subprocess
from collections import deque

from planet_bayes.sweep.backend import Ended
from planet_bayes.sweep.jobs import Job
from planet_bayes.sweep.process import start


class Local:
    """Runs at most ``num_slots`` jobs at a time."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._waiting: deque[Job] = deque()
        self._running: list[tuple[Job, subprocess.Popen[bytes]]] = []

    def submit(self, job: Job) -> None:
        """Accept a job."""
        self._waiting.append(job)

    def poll(self) -> list[Ended]:
        """Start what there is room for, and return the jobs that are over."""
        codes = [(job, process, process.poll()) for job, process in self._running]
        self._running = [(job, process) for job, process, code in codes if code is None]
        while self._waiting and len(self._running) < self.num_slots:
            job = self._waiting.popleft()
            self._running.append((job, start(job)))
        return [Ended.with_code(job, code) for job, _, code in codes if code is not None]

    def running(self) -> list[Job]:
        """Return the jobs that run."""
        return [job for job, _ in self._running]

    def stop(self) -> None:
        """Ask the processes to end, and wait for them."""
        self._waiting.clear()
        for _, process in self._running:
            process.terminate()
        for _, process in self._running:
            process.wait()
        self._running.clear()
