"""The Python API: train a run, load one, evaluate it. The command line calls the same."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import torch

from planet_bayes import config as configuration
from planet_bayes import files
from planet_bayes.agent import Agent
from planet_bayes.config import Config
from planet_bayes.envs import make_env
from planet_bayes.errors import ConfigError, RunError
from planet_bayes.training import Event, Trainer, build_model, checkpoint, evaluate_agent

# What may differ from the saved configuration when a run goes on: how long it lasts, how often
# it is looked at, on what it runs; the step size, for a run that became unstable; and whether
# the agent acts with an average of the weights.
RESUMABLE = (
    "threads",
    "device",
    "env.timeout",
    "train.learning_rate",
    "train.averaging",
    "train.episodes",
    "train.evaluate_every",
    "train.evaluate_last",
    "train.evaluation_episodes",
    "train.video_every",
    "train.checkpoint_every",
    "train.keep_checkpoints",
    "train.replay_ram",
    "train.max_skipped_updates",
)


@dataclass(frozen=True)
class Run:
    """A trained run, loaded: ready to act."""

    path: Path
    config: Config
    agent: Agent
    progress: checkpoint.Progress
    warnings: tuple[str, ...] = ()
    """What is wrong with newer checkpoints than the one that was loaded."""

    def make_env(self) -> gymnasium.Env:
        """Make the environment that the run was trained in."""
        return make_env(self.config.task, self.config.env)


def resolve_device(name: str) -> torch.device:
    """Return the device that ``name`` says; ``auto`` is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device {name!r} cannot be used: {error}".splitlines()[0]) from error
    return device


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_folder(config: Config, root: Path = Path("runs")) -> Path:
    """Return a folder for a new run that does not exist yet, named after what is run."""
    task = config.task.replace("/", "_").replace(":", "-")
    name = f"{task}-{config.env.observation}-{config.method}-seed{config.seed}"
    path, count = root / name, 1
    while path.exists():
        count += 1
        path = root / f"{name}-{count}"
    return path


def resume_config(run: Path, changed: Config | None = None) -> Config:
    """Return the configuration to go on with; ``changed`` may differ in `RESUMABLE` only."""
    if checkpoint.not_begun(run):
        saved = configuration.load(run / "config.json")
    else:
        newest = checkpoint.latest(run)
        if checkpoint.is_exported(newest):
            raise RunError(
                f"{run} is an exported agent: it can act (`planet-bayes evaluate {run}`), but what "
                "training needs besides was left behind. Resume the run that it came from."
            )
        saved = checkpoint.load_config(newest)
    if changed is None:
        return saved
    for name in sorted(configuration.differences(saved, changed) - set(RESUMABLE)):
        raise ConfigError(
            f"--resume: {name} cannot be changed in a run that has begun. What can: "
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

    To go on with a run, pass its folder, ``resume=True`` and `resume_config` of it.
    """
    if resume and path is None:
        raise RunError("resume: name the run's folder.")
    folder = default_folder(config) if path is None else Path(path)
    spare = 1 if config.train.overlap else 0  # for the process that collects
    config = dataclasses.replace(config, threads=config.threads or max(1, num_cores() - spare))
    torch.set_num_threads(config.threads)
    trainer = Trainer(
        config,
        folder,
        resume=resume,
        should_stop=should_stop,
        report=report,
        device=resolve_device(config.device),
    )
    return folder, trainer.train()


def load_run(path: Path | str, device: str = "auto", changed: Config | None = None) -> Run:
    """Load the newest sound checkpoint of a run, to act as the run does or as ``changed`` says."""
    folder = Path(path)
    found = checkpoint.newest_sound(folder)
    config = changed or checkpoint.load_config(found.path)
    env = make_env(config.task, config.env)
    try:
        model = build_model(config, env, resolve_device(device))
    finally:
        env.close()
    checkpoint.load_model(found.path, model)
    agent = Agent(model.eval(), config.resolved_planner)
    return Run(folder, config, agent, found.progress, tuple(found.damaged.values()))


def evaluate(run: Run, episodes: int = 5, number: int = 0) -> list[float]:
    """Return the returns of noise-free episodes; ``number`` picks another set of starts."""
    if episodes < 1:
        raise ConfigError(f"episodes must be at least 1, got {episodes}.")
    return evaluate_agent(run.config, run.agent, episodes, number)


def export(path: Path | str, folder: Path | str) -> Path:
    """Copy what acting needs, the settings and newest weights of a run, to a new folder.

    `load_run` and `planet-bayes evaluate` take it like a run; what training needs besides, the
    episodes and Adam's moments, is left behind.
    """
    newest, target = checkpoint.latest(Path(path)), Path(folder)
    if target.exists():
        raise RunError(f"{target} exists already; name another folder.")
    partial = target.with_name(target.name + files.PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with files.new_folder(partial / "checkpoints" / newest.name) as weights:
            for name in ("config.json", "model.safetensors", "progress.json"):
                files.put(weights / name, (newest / name).read_bytes())
        files.write(partial / "config.json", (newest / "config.json").read_bytes())
        load_run(partial, device="cpu")  # that it is whole shows here and not on the robot
        os.replace(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target
