"""Jobs as tasks of a Ray cluster whose nodes share the folder that the sweep is started in."""

from __future__ import annotations

import contextlib
import logging
import subprocess
from typing import Any

import ray
from ray.exceptions import RayError

from planet_bayes.errors import ConfigError
from planet_bayes.sweep.backend import Ended
from planet_bayes.sweep.jobs import Job
from planet_bayes.sweep.process import start

MAX_RETRIES = 20
"""How often a job may lose its node. A limit, because a job may itself bring its nodes down."""
_POLL_SECONDS = 0.5
_CANCEL_SECONDS = 2.0


class Cluster:
    """Runs jobs on the cluster at ``address``. Ray starts a task where its cores and GPU are free.

    A task whose node dies is started on another node, and the run continues from its last
    checkpoint.
    """

    def __init__(self, address: str) -> None:
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        self._has_gpus = ray.cluster_resources().get("GPU", 0) > 0
        self._task = ray.remote(max_retries=MAX_RETRIES)(_run)
        self._jobs: dict[Any, Job] = {}
        self._log_sizes: dict[str, int] = {}

    def submit(self, job: Job) -> None:
        """Hand a job to Ray."""
        task = self._task.options(
            name=job.name, num_cpus=job.cores, num_gpus=num_gpus(job, self._has_gpus)
        )
        job.stop.unlink(missing_ok=True)  # of a sweep that was killed while it stopped
        self._log_sizes[job.name] = _log_size(job)
        self._jobs[task.remote(job)] = job

    def poll(self) -> list[Ended]:
        """Return the jobs that are over."""
        if not self._jobs:
            return []
        over, _ = ray.wait(list(self._jobs), num_returns=len(self._jobs), timeout=0)
        return [_ended(self._jobs.pop(task), task) for task in over]

    def running(self) -> list[Job]:
        """Return the jobs that have written to their log since they were submitted."""
        return [job for job in self._jobs.values() if _log_size(job) > self._log_sizes[job.name]]

    def stop(self) -> None:
        """Cancel the tasks, wait for those that run, and leave the cluster.

        Ray may lose the exception that it raises in a task that runs, even if asked again. So these
        also look for a file in the folder that all nodes share.
        """
        tasks, jobs = list(self._jobs), list(self._jobs.values())
        for job in jobs:
            job.stop.parent.mkdir(parents=True, exist_ok=True)
            job.stop.touch()
        while tasks:
            for task in tasks:
                ray.cancel(task)
            _, tasks = ray.wait(tasks, num_returns=len(tasks), timeout=_CANCEL_SECONDS)
        for job in jobs:
            job.stop.unlink(missing_ok=True)
        self._jobs.clear()
        ray.shutdown()


def num_gpus(job: Job, has_gpus: bool) -> int:
    """Return how many GPUs a job needs, on a cluster that has some or none."""
    device = job.config.run.device
    if device.startswith("cuda:"):
        raise ConfigError(
            f"run.device is {device}, but on a cluster Ray chooses the GPU of each run: declare "
            'run.device = "cuda".'
        )
    return int(device == "cuda" or (device == "auto" and has_gpus))


def _run(job: Job) -> int:
    """Do a job on the node that Ray has chosen; return its exit code."""
    process = start(job)
    try:
        while not job.stop.exists():
            # A cancelled task gets its exception between two calls, not inside one.
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_POLL_SECONDS)
    finally:
        if process.poll() is None:
            process.terminate()
            while process.poll() is None:
                with contextlib.suppress(KeyboardInterrupt):  # cancelled again
                    process.wait()
    return process.returncode


def _ended(job: Job, task: Any) -> Ended:
    try:
        return Ended.with_code(job, ray.get(task))
    except RayError as error:
        return Ended(job, str(error))


def _log_size(job: Job) -> int:
    return job.log.stat().st_size if job.log.exists() else 0
