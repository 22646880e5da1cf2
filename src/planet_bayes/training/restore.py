"""Find the state that a run resumes from: the newest of which nothing is missing or damaged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from planet_bayes import config as configuration
from planet_bayes.config import Config
from planet_bayes.data.files import DamagedError
from planet_bayes.data.folder import RunFolder
from planet_bayes.data.replay import Replay
from planet_bayes.data.rows import prefix_digest
from planet_bayes.errors import PlanetBayesError
from planet_bayes.machine import changes, machine
from planet_bayes.training.checkpoint import load_config, sound_checkpoints
from planet_bayes.training.progress import Progress


@dataclass(frozen=True)
class State:
    """A checkpoint to resume from, and what differs from when it was saved."""

    checkpoint: Path
    config: Config
    progress: Progress
    remake: list[int]
    """Damaged episodes of random actions. They are collected again, the same."""
    lost: list[int]
    """Damaged episodes of the agent. The weights that collected them are gone."""
    newer: list[Path]
    """Newer checkpoints, which are damaged."""
    exact: bool
    """Whether nothing is lost for good."""
    warnings: list[str]
    """The same in words."""


def find_state(run: Path, replay: Replay, seed_episodes: int, device: torch.device | str) -> State:
    """Return the newest state that is whole; if none is, the newest of those that lost least.

    An older state costs only time: everything after it is done again, the same.
    """
    sound = list(sound_checkpoints(run))
    damaged = replay.damaged(sound[0].progress.episodes)
    faults = [_faults(run, one.progress, damaged, seed_episodes) for one in sound]
    number = min(range(len(sound)), key=lambda number: len(faults[number]))
    chosen = sound[number]
    warnings = [*chosen.damaged.values(), *faults[0]]
    if faults[number]:
        warnings.append(
            "What is lost cannot be made again. The run continues without it and is no longer "
            "reproducible from its seed."
        )
    elif warnings:
        warnings.append(
            f"Resuming from {chosen.path.name}, which is whole; everything after it is done again."
        )
    config, count = load_config(chosen.path), chosen.progress.episodes
    remake = [index for index in damaged if index < min(seed_episodes, count)]
    warnings += [f"{damaged[index]} It is collected again." for index in remake]
    warnings += _edited(run, config)
    changed = changes(chosen.progress.machine, machine(device))
    if changed:
        warnings.append(
            "The machine or the packages have changed, so the run will not equal, bit for bit, one "
            f"that was never stopped: {'; '.join(changed)}."
        )
    return State(
        checkpoint=chosen.path,
        config=config,
        progress=chosen.progress,
        remake=remake,
        lost=[index for index in damaged if seed_episodes <= index < count],
        exact=not faults[number],
        newer=[*chosen.damaged, *(one.path for one in sound[:number])],
        warnings=warnings,
    )


def _faults(
    run: Path, progress: Progress, damaged: dict[int, DamagedError], seed_episodes: int
) -> list[str]:
    """Return what is lost of a state for good."""
    lost = (index for index in damaged if seed_episodes <= index < progress.episodes)
    found = [str(damaged[index]) for index in lost]
    path = RunFolder(run).metrics
    if prefix_digest(path, progress.metrics) != progress.metrics_digest:
        found.append(f"{path} is damaged: its first {progress.metrics} lines are not as written.")
    return found


def _edited(run: Path, config: Config) -> list[str]:
    """Return a warning if config.json is not the configuration of the run."""
    path = RunFolder(run).config
    advice = (
        "It is replaced by the run's own; to change a setting, name it: "
        "train --resume RUN --NAME VALUE."
    )
    try:
        names = sorted(configuration.differences(config, configuration.load(path)))
    except PlanetBayesError as error:
        return [f"{error} {advice}"]
    return [f"{path} was edited or damaged: {', '.join(names)}. {advice}"] if names else []
