"""What a run goes on from: its newest state of which nothing is missing or damaged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from planet_bayes import config as configuration
from planet_bayes.config import Config
from planet_bayes.errors import PlanetBayesError
from planet_bayes.files import DamagedError
from planet_bayes.replay import Replay
from planet_bayes.training.checkpoint import Progress, load_config, sound_checkpoints
from planet_bayes.training.machine import changes, machine
from planet_bayes.training.metrics import prefix_digest


@dataclass(frozen=True)
class State:
    """A checkpoint to go on from, and what is not as it was when it was saved."""

    checkpoint: Path
    config: Config
    progress: Progress
    remake: list[int]
    """Damaged episodes of random actions: they can be had again, the same."""
    lost: list[int]
    """Damaged episodes of the agent: the weights that collected them are gone."""
    newer: list[Path]
    """Newer checkpoints, which are not whole."""
    exact: bool
    """Whether all that came before is there, or can be had again."""
    warnings: list[str]
    """All of this in words."""


def find_state(run: Path, replay: Replay, seed_episodes: int, device: torch.device | str) -> State:
    """Return the newest state that is whole; if none is, the newest of those that lost least.

    An older state costs time and nothing else: what came after it is done again, the same.
    """
    sound = list(sound_checkpoints(run))
    damaged = replay.damaged(sound[0].progress.episodes)
    faults = [_faults(run, one.progress, damaged, seed_episodes) for one in sound]
    number = min(range(len(sound)), key=lambda number: len(faults[number]))
    chosen = sound[number]
    warnings = [*chosen.damaged.values(), *faults[0]]
    if faults[number]:
        warnings.append(
            "What is lost cannot be had again: the run goes on without it, and is no longer the "
            "one that its seed stands for."
        )
    elif warnings:
        warnings.append(
            f"Going on from {chosen.path.name}, which is whole; what came after is done again."
        )
    config, count = load_config(chosen.path), chosen.progress.episodes
    remake = [index for index in damaged if index < min(seed_episodes, count)]
    warnings += [f"{damaged[index]} It is collected again." for index in remake]
    warnings += _edited(run, config)
    changed = changes(chosen.progress.machine, machine(device))
    if changed:
        warnings.append(
            "The run goes on under other conditions than before, so it will not be the same to "
            f"the bit as one that was never stopped: {'; '.join(changed)}."
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
    """Return what of a state is gone for good."""
    lost = (index for index in damaged if seed_episodes <= index < progress.episodes)
    found = [str(damaged[index]) for index in lost]
    path = run / "metrics.jsonl"
    if prefix_digest(path, progress.metrics) != progress.metrics_digest:
        found.append(f"{path} is damaged: its first {progress.metrics} lines are not as written.")
    return found


def _edited(run: Path, config: Config) -> list[str]:
    """Return what to say if config.json is not what the run has."""
    path = run / "config.json"
    advice = (
        "It is written anew, as the run has it; to change a setting, name it: "
        "train --resume RUN --NAME VALUE."
    )
    try:
        names = sorted(configuration.differences(config, configuration.load(path)))
    except PlanetBayesError as error:
        return [f"{error} {advice}"]
    return [f"{path} was edited or damaged: {', '.join(names)}. {advice}"] if names else []
