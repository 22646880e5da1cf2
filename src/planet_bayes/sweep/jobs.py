"""From the runs of an experiment to jobs: choose some, and check that each can be done."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planet_bayes import config as configuration
from planet_bayes import plugins
from planet_bayes.config import Config, is_resumable
from planet_bayes.data.commits import Commit, read_commits
from planet_bayes.data.folder import RunFolder
from planet_bayes.errors import ConfigError, PlanetBayesError, nearest
from planet_bayes.results.archive import has_ended
from planet_bayes.results.experiment import PlannedRun


@dataclass(frozen=True)
class Job:
    """A run to do, and all that a process on any node needs for it."""

    run: PlannedRun
    config: Config
    """Its settings."""
    commit: Commit
    """The only commit that it may be made from."""
    cwd: Path
    """Absolute folder that the paths of the run are relative to."""
    imports: tuple[str, ...] = ()
    """Modules that register parts of the run."""

    @property
    def name(self) -> str:
        """What a person calls it; no two jobs of an experiment have the same."""
        return str(Path(self.run.variant) / self.run.name.path)

    @property
    def cores(self) -> int:
        """Cores that it keeps busy."""
        return self.config.run.threads + self.config.collect.overlap

    @property
    def folder(self) -> RunFolder:
        """The run's folder."""
        return RunFolder(self.cwd / self.run.folder)

    @property
    def log(self) -> Path:
        """What the run prints. It is beside the folder, which only the run itself makes."""
        return self.folder.path.with_name(f"{self.folder.path.name}.log")

    @property
    def stop(self) -> Path:
        """While there is a file here, beside the folder, the run shall stop on whatever node."""
        return self.folder.path.with_name(f"{self.folder.path.name}.stop")


def select(
    runs: Iterable[PlannedRun], wanted: Mapping[str, Sequence[str | int]]
) -> list[PlannedRun]:
    """Return the runs that have one of the wanted values on each axis, in the order of their seeds.

    So an unfinished sweep compares all methods on all tasks, on some of the seeds.

    Args:
        runs: All runs of an experiment.
        wanted: Values by axis: methods, tasks, seeds, observations, variants. None: all of them.
    """
    runs = list(runs)
    for axis, values in wanted.items():
        known = list(dict.fromkeys(str(_value(run, axis)) for run in runs))
        for value in map(str, values):
            if value not in known:
                listed = ", ".join(filter(None, known)) or "none"
                raise ConfigError(
                    f"--{axis}: the experiment has no {value!r}{nearest(value, known)} "
                    f"There are: {listed}."
                )
    chosen = [
        run
        for run in runs
        if all(_value(run, axis) in values for axis, values in wanted.items() if values)
    ]
    if not chosen:
        raise ConfigError("the experiment has no run with all of the named values.")
    return sorted(chosen, key=lambda run: run.name.seed)


def _value(run: PlannedRun, axis: str) -> str | int:
    values: dict[str, str | int] = {
        "methods": run.name.method,
        "tasks": run.name.task,
        "seeds": run.name.seed,
        "observations": run.name.observation,
        "variants": run.variant,
    }
    return values[axis]


def make_jobs(runs: Iterable[PlannedRun], commit: Commit, any_commit: bool = False) -> list[Job]:
    """Return a job for each run, or raise if one has begun with something else than is declared.

    A run that declares no number of threads gets one thread.

    Args:
        runs: What to do.
        commit: The commit of today's code.
        any_commit: Also continue runs of other commits.
    """
    jobs = [_job(run, commit) for run in runs]
    twice = [name for name, count in Counter(job.name for job in jobs).items() if count > 1]
    if twice:
        raise ConfigError(f"the experiment declares {', '.join(twice)} more than once.")
    begun = [job for job in jobs if job.folder.holds_run]
    problems = [problem for job in begun for problem in _other_settings(job)]
    if not any_commit:
        problems += [problem for job in begun for problem in _other_commit(job)]
    if problems:
        raise ConfigError("\n  ".join(["these runs cannot be continued:", *problems]))
    return jobs


def _job(run: PlannedRun, commit: Commit) -> Job:
    threads = run.config().run.threads or 1
    run = dataclasses.replace(run, settings={**run.settings, "run.threads": threads})
    config = run.config()
    if config.method != run.name.method:  # its result would get the name of another run
        raise ConfigError(
            f"{run.folder}: with the declared settings, method {run.name.method} is "
            f"{config.method}. Declare no model.num_members or planner.num_components against it."
        )
    return Job(run, config, commit, Path.cwd(), plugins.registering())


def _other_settings(job: Job) -> list[str]:
    try:
        saved = configuration.load(job.folder.config)
    except PlanetBayesError:
        return []  # resuming restores it from a checkpoint
    names = configuration.differences(saved, job.config)
    fixed = sorted(name for name in names if not is_resumable(name))
    if not fixed:
        return []
    return [
        f"{job.run.folder} has begun with other values than declared of {', '.join(fixed)}. Move "
        "the folder away."
    ]


def _other_commit(job: Job) -> list[str]:
    last = read_commits(job.folder.path)[-1]
    if last == job.commit or has_ended(job.folder, job.config):
        return []
    return [
        f"{job.run.folder} is of commit {last}, and the code is of {job.commit}. Check out that "
        "commit, move the folder away, or continue anyway with --any-commit."
    ]
