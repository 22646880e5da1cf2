"""Load a run or an exported agent, and export one. No environment is needed for it."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from planet_bayes import config as configuration
from planet_bayes.agent import Agent
from planet_bayes.confidence import calibration
from planet_bayes.config import Config
from planet_bayes.data import files
from planet_bayes.data.folder import CheckpointFolder, RunFolder
from planet_bayes.errors import ConfigError, RunError
from planet_bayes.spaces import Signature
from planet_bayes.training import checkpoint, weights
from planet_bayes.training.build import build_agent, build_model
from planet_bayes.training.progress import Progress

if TYPE_CHECKING:
    from planet_bayes.envs import NamedObservations


@dataclass(frozen=True)
class Run:
    """A trained run or an exported agent, loaded and ready to act."""

    path: Path
    config: Config
    agent: Agent
    progress: Progress
    warnings: tuple[str, ...] = ()
    """What is wrong with newer checkpoints than the one that was loaded, and why a calibration is
    not used."""

    @property
    def trained_episodes(self) -> int:
        """Episodes that were collected with the agent, seed episodes not counted."""
        return max(0, self.progress.episodes - self.config.collect.seed_episodes)

    def make_env(self) -> NamedObservations:
        """Make the environment that the run was trained in."""
        from planet_bayes.envs import make_env  # late: acting needs no environment

        return make_env(self.config.task, self.config.env)


def resolve_device(name: str) -> torch.device:
    """Return the device of a name; ``auto`` is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device {name!r} cannot be used: {error}".splitlines()[0]) from error
    return device


def load_run(path: Path | str, device: str = "auto", changed: Config | None = None) -> Run:
    """Load the newest sound checkpoint of a run or an exported agent.

    No environment is made and no code that the folder names is imported. (The one exception is a
    folder of version 0.1, which has no signature: its environment is made once to learn it.)

    Args:
        path: The run's folder.
        device: auto, cpu, cuda or cuda:N.
        changed: Settings to act with in place of the saved ones.
    """
    folder = Path(path)
    found = checkpoint.newest_sound(folder)
    config = changed or checkpoint.load_config(found.path)
    signature = _signature(found.path, config)
    model = build_model(config, signature, resolve_device(device))
    weights.load_model(found.path, model)
    warnings = list(found.damaged.values())
    agent = build_agent(config, model.eval(), signature)
    own = changed is None or _acts_alike(changed, checkpoint.load_config(found.path))
    agent = _calibrated(agent, RunFolder(folder).confidence, own, warnings)
    return Run(folder, config, agent, found.progress, tuple(warnings))


def _acts_alike(changed: Config, saved: Config) -> bool:
    same = ("planner", "model", "agent", "env")
    return all(getattr(changed, group) == getattr(saved, group) for group in same)


def _calibrated(agent: Agent, path: Path, own: bool, warnings: list[str]) -> Agent:
    """Return the agent with its calibration, if there is one that it can use.

    One of another agent, or one that cannot be read, adds a warning: the agent acts without.
    """
    if not path.is_file():
        return agent
    try:
        known = calibration.load(path)
    except RunError as error:
        warnings.append(f"The agent has no bands and no alarm: {error}")
        return agent
    if known.weights != weights.digest(agent.model):
        warnings.append(
            f"{path} is not used: the weights have changed since; run `planet-bayes calibrate` "
            "again."
        )
    elif not own:
        warnings.append(
            f"{path} is not used: the agent acts with other settings than those it is for."
        )
    else:
        try:
            return agent.watched(known)
        except ConfigError as error:
            warnings.append(f"{path} is not used: {error}")
    return agent


def _signature(folder: Path, config: Config) -> Signature:
    saved = checkpoint.load_signature(folder)
    if saved is not None:
        return saved
    from planet_bayes.envs import make_env  # late: only folders of version 0.1 need it

    with contextlib.closing(make_env(config.task, config.env)) as env:
        return env.signature


def export(path: Path | str, folder: Path | str) -> Path:
    """Copy settings, signature, newest weights and calibration of a run to a new folder.

    `load_run` and `planet-bayes evaluate` accept it like a run. Episodes and the optimiser's state
    are left out.
    """
    newest, target = CheckpointFolder(checkpoint.latest(Path(path))), Path(folder)
    if target.exists():
        raise RunError(f"{target} exists already; name another folder.")
    run = load_run(path, device="cpu")
    partial = target.with_name(target.name + files.PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    try:
        config = configuration.to_json(run.config)
        with files.new_folder(RunFolder(partial).checkpoints / newest.path.name) as new:
            to = CheckpointFolder(new)
            files.put(to.config, config)
            files.put(to.signature, run.agent.signature.to_json())
            files.put(to.progress, run.progress.to_json())
            weights.save(weights.model_tensors(run.agent.model), to.model)
        files.write(RunFolder(partial).config, config)
        if run.agent.monitor is not None and run.agent.monitor.calibration is not None:
            known = run.agent.monitor.calibration.to_json()
            files.write(RunFolder(partial).confidence, known)
        load_run(partial, device="cpu")  # an incomplete export fails here and not on the robot
        os.replace(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target
