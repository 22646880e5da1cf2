"""What a run goes on from: its newest state of which nothing is missing or damaged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from planet_bayes.files import DamagedError
from planet_bayes.replay import Replay
from planet_bayes.training.checkpoint import Progress, sound_checkpoints
from planet_bayes.training.metrics import prefix_digest


@dataclass(frozen=True)
class State:
    """A checkpoint to go on from, and what is not as it was when it was saved."""

    checkpoint: Path
    progress: Progress
    remake: list[int]
    """Damaged episodes of random actions: they can be had again, the same."""
    lost: list[int]
    """Damaged episodes of the agent: the weights that collected them are gone."""
    damaged: list[Path]
    """Newer checkpoints, which are of no use."""
    warnings: list[str]
    """All of this in words."""


def find_state(run: Path, replay: Replay, seed_episodes: int) -> State:
    """Return the newest state that is whole; if none is, that of the newest sound checkpoint.

    An older state costs time and nothing else: what came after it is done again, the same.
    """
    sound = list(sound_checkpoints(run))
    damaged = replay.damaged(sound[0].progress.episodes)
    remake = {index: error for index, error in damaged.items() if index < seed_episodes}
    faults = [_faults(run, one.progress, damaged, seed_episodes) for one in sound]
    whole = next((number for number, found in enumerate(faults) if not found), None)
    chosen = sound[whole or 0]
    warnings = [*chosen.damaged.values(), *faults[0]]
    if whole is None:
        warnings.append(
            "What is lost cannot be had again: the run goes on without it, and is no longer the "
            "one that its seed stands for."
        )
    elif warnings:
        warnings.append(
            f"Going on from {chosen.path.name}, which is whole; what came after is done again."
        )
    count = chosen.progress.episodes
    warnings += [
        f"{error} It is collected again." for index, error in remake.items() if index < count
    ]
    return State(
        checkpoint=chosen.path,
        progress=chosen.progress,
        remake=[index for index in remake if index < count],
        lost=[index for index in damaged if seed_episodes <= index < count],
        damaged=list(chosen.damaged),
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
