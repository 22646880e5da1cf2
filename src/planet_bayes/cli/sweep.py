"""``planet-bayes sweep``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console

from planet_bayes.errors import ConfigError

if TYPE_CHECKING:
    from planet_bayes.sweep.backend import Backend
    from planet_bayes.sweep.jobs import Job


@dataclass(frozen=True)
class Sweep:
    """Train all runs of a declared experiment that have no result yet, or some of them.

    Runs of the first seed come first. They are archived to results/ as they end. Stop a sweep at
    any moment and start it again: runs that have ended are skipped, the others continue from their
    last checkpoint. A run that fails does not stop the others; the exit code is then 1.
    """

    experiment: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="EXPERIMENT")]]
    """A declared experiment (experiments/NAME.toml)."""
    methods: tuple[str, ...] = ()
    """Only these methods."""
    tasks: tuple[str, ...] = ()
    """Only these tasks."""
    seeds: tuple[int, ...] = ()
    """Only these seeds."""
    observations: tuple[str, ...] = ()
    """Only these observations, such as sensors or pixels+sensors."""
    variants: tuple[str, ...] = ()
    """Only these variants."""
    backend: Literal["local", "ray"] = "local"
    """local: processes on this machine. ray: tasks of a Ray cluster with a shared file system."""
    jobs: int | None = None
    """Runs at a time on this machine. None: as many as there are cores."""
    address: str | None = None
    """Address of the Ray cluster. None: the one that this machine belongs to."""
    any_commit: bool = False
    """Also continue runs that were begun from another commit of the code."""

    def run(self, console: Console) -> int:
        """Train the runs, and report those that failed."""
        from planet_bayes.cli._board import BoardWatcher, report
        from planet_bayes.cli.watch import StopRequest
        from planet_bayes.data.commits import current_commit
        from planet_bayes.results.experiment import read_experiment
        from planet_bayes.sweep.jobs import make_jobs, select
        from planet_bayes.sweep.loop import sweep

        axes = ("methods", "tasks", "seeds", "observations", "variants")
        chosen = select(
            read_experiment(self.experiment).runs, {axis: getattr(self, axis) for axis in axes}
        )
        missing = [run for run in chosen if not run.result.is_file()]
        commit = current_commit()
        console.print(
            f"{len(chosen)} runs, {len(chosen) - len(missing)} of them done before; "
            f"commit {commit}",
            soft_wrap=True,
        )
        jobs = make_jobs(missing, commit, self.any_commit)
        if not jobs:
            return 0
        backend = self._backend(jobs)  # first: Ray sets signal handlers of its own
        with StopRequest(console) as stop, BoardWatcher(console) as watcher:
            board = sweep(jobs, backend, watcher, stop.requested)
        report(board, console)
        if not board.is_over:
            console.print("stopped; the same command continues")
            return stop.exit_code
        return 1 if board.failed else 0

    def _backend(self, jobs: list[Job]) -> Backend:
        if self.backend == "ray":
            if self.jobs is not None:
                raise ConfigError("--jobs is for --backend local; Ray counts cores and GPUs.")
            from planet_bayes.sweep.cluster import Cluster

            return Cluster(self.address or "auto")
        if self.address is not None:
            raise ConfigError("--address is for --backend ray.")
        from planet_bayes.sweep.local import Local

        if self.jobs is None:
            from planet_bayes.runs import num_cores  # late: it loads PyTorch

            return Local(max(1, num_cores() // max(job.cores for job in jobs)))
        if self.jobs < 1:
            raise ConfigError(f"--jobs must be at least 1, got {self.jobs}.")
        return Local(self.jobs)
