"""Find the state that a run resumes from: the newest of which nothing is missing or damaged."""

from __future__ import annotations

from collections.abc import Callable
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
class Remakes:
    """Which episodes can be made again, the same, if they are damaged."""

    can: Callable[[int], bool]
    """Whether the episode of a number can."""
    how: str
    """How, as a sentence for a warning."""
    needed: int = 0
    """A state with fewer episodes is used only if none has as many: the rest may be gone."""


@dataclass(frozen=True)
class State:
    """A checkpoint to resume from, and what differs from when it was saved."""

    checkpoint: Path
    config: Config
    progress: Progress
    remake: list[int]
    """Damaged episodes of random actions or of a log. They are made again, the same."""
    lost: list[int]
    """Other damaged episodes. The weights that collected them, or the log, are gone."""
    newer: list[Path]
    """Newer checkpoints, which are damaged."""
    exact: bool
    """Whether nothing is lost for good."""
    warnings: list[str]
    """The same in words."""


def find_state(run: Path, replay: Replay, remakes: Remakes, device: torch.device | str) -> State:
    """Return the newest state that is whole; if none is, the newest of those that lost least.

    An older state costs only time: everything after it is done again, the same.
    """
    found = list(sound_checkpoints(run))
    sound = [one for one in found if one.progress.episodes >= remakes.needed] or found
    damaged = replay.damaged(sound[0].progress.episodes)
    gone = {index: error for index, error in damaged.items() if not remakes.can(index)}
    faults = [_faults(run, one.progress, gone) for one in sound]
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
    remake = [index for index in damaged if index < count and index not in gone]
    warnings += [f"{damaged[index]} {remakes.how}" for index in remake]
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
        lost=[index for index in gone if index < count],
        exact=not faults[number],
        newer=[*chosen.damaged, *(one.path for one in sound[:number])],
        warnings=warnings,
    )


def _faults(run: Path, progress: Progress, gone: dict[int, DamagedError]) -> list[str]:
    """Return what is lost of a state for good."""
    found = [str(error) for index, error in gone.items() if index < progress.episodes]
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
