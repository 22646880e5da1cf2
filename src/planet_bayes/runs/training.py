"""Train and resume a run, and evaluate one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import torch

from planet_bayes import config as configuration
from planet_bayes.config import RESUMABLE, Config, is_resumable
from planet_bayes.data.folder import RunFolder
from planet_bayes.errors import ConfigError, RunError
from planet_bayes.machine import keep_freed_memory
from planet_bayes.runs.loading import Run, resolve_device
from planet_bayes.training import Event, Trainer, checkpoint, distributed
from planet_bayes.training.evaluation import evaluate_agent
from planet_bayes.training.follower import follow
from planet_bayes.training.offline import logged_paths
from planet_bayes.training.plan_record import PlanRecord


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_folder(config: Config, root: Path = Path("runs")) -> Path:
    """Return a folder for a new run that does not exist yet, named after its settings."""
    task = config.task.replace("/", "_").replace(":", "-")
    kind = "-offline" if config.offline else ""
    name = f"{task}-{config.env.label}-{config.method}{kind}-seed{config.seed}"
    path, count = root / name, 1
    while path.exists():
        count += 1
        path = root / f"{name}-{count}"
    return path


def offline_config(config: Config, episodes: Path | str) -> Config:
    """Return the settings of a run that learns from the episodes of a folder alone.

    Nothing is collected: the logged episodes take the place of the seed episodes. The only
    iteration has `learn.first_updates` updates, or `learn.updates_per_episode` if that is more.

    Args:
        config: Other settings.
        episodes: Folder of episodes as files, as in the folder of a run, or a run.
    """
    count = len(logged_paths(Path(episodes)))
    collect = dataclasses.replace(config.collect, episodes=0, seed_episodes=count, overlap=False)
    return dataclasses.replace(config, offline=str(episodes), collect=collect)


def resume_config(run: Path | str, changed: Config | None = None) -> Config:
    """Return the configuration to resume a run with.

    ``changed`` may differ from the saved one in the group ``run`` and in `RESUMABLE` only.
    """
    path = Path(run)
    if checkpoint.not_begun(path):
        saved = configuration.load(RunFolder(path).config)
    else:
        newest = checkpoint.latest(path)
        if checkpoint.is_exported(newest):
            raise RunError(
                f"{path} is an exported agent: it can act (`planet-bayes evaluate {path}`), but it "
                "has no episodes and no optimiser's state. Resume the run that it came from."
            )
        saved = checkpoint.load_config(newest)
    return saved if changed is None else resumed(saved, changed)


def resumed(saved: Config, changed: Config) -> Config:
    """Return ``changed`` if a run with the settings ``saved`` may be resumed with it, or raise."""
    for name in sorted(configuration.differences(saved, changed)):
        if not is_resumable(name):
            raise ConfigError(
                f"--resume: {name} cannot be changed in a run that has begun. What can: run.*, "
                f"{', '.join(RESUMABLE)}."
            )
    return changed


def train(
    config: Config,
    path: Path | str | None = None,
    *,
    resume: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
    report: Callable[[Event], None] = lambda event: None,
) -> tuple[Path, bool]:
    """Train to the end, or until ``should_stop``; return the run's folder and whether it ended.

    To resume a run, pass its folder, ``resume=True`` and `resume_config` of the folder.

    Processes that torchrun has started learn one run together. All but rank 0 only help to learn:
    they ignore ``should_stop`` and report nothing.
    """
    if resume and path is None:
        raise RunError("resume: name the run's folder.")
    folder = default_folder(config) if path is None else Path(path)
    spare = 1 if config.collect.overlap else 0  # for the process that collects
    cores = num_cores() // distributed.num_local_processes()
    threads = config.run.threads or max(1, cores - spare)
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, threads=threads))
    torch.set_num_threads(threads)
    keep_freed_memory()
    device = distributed.own_device(resolve_device(config.run.device))
    with distributed.joined(device) as processes:
        if processes is not None and processes.rank:
            return folder, follow(processes, device)
        trainer = Trainer(
            config,
            folder,
            resume=resume,
            should_stop=should_stop,
            report=report,
            device=device,
            processes=processes,
        )
        ended = trainer.train()
        if processes is not None:
            processes.announce(distributed.End(ended))
    return folder, ended


def evaluate(
    run: Run, episodes: int = 5, starts: int = 0, plans: PlanRecord | None = None
) -> list[float]:
    """Return the returns of noise-free episodes.

    Args:
        run: The run.
        episodes: How many.
        starts: Number of the set of starts.
        plans: Where to record the numbers of the plans.
    """
    if episodes < 1:
        raise ConfigError(f"episodes must be at least 1, got {episodes}.")
    if not run.config.run.single_environment:
        return evaluate_agent(run.config, run.agent, episodes, starts, plans=plans)
    with contextlib.closing(run.make_env()) as env:
        return evaluate_agent(run.config, run.agent, episodes, starts, env=env, plans=plans)
