"""Checkpoints: weights and optimiser as safetensors, the rest as JSON.

A checkpoint is a folder that is whole or absent, with the sums of its files (see
`planet_bayes.data.files`). It holds no random state: every stream is a function of the seed and
of the counters (see `planet_bayes.rng`). `planet_bayes.data.folder` lists its files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from planet_bayes import config as configuration
from planet_bayes.config import Config
from planet_bayes.data import files
from planet_bayes.data.folder import CheckpointFolder, RunFolder
from planet_bayes.errors import ConfigError, RunError
from planet_bayes.spaces import Signature
from planet_bayes.training import weights
from planet_bayes.training.learner import Learner
from planet_bayes.training.progress import Progress, load_progress


def save(
    run: Path,
    config: Config,
    signature: Signature,
    learner: Learner,
    progress: Progress,
    actor: dict[str, Tensor] | None = None,
) -> Path:
    """Write a checkpoint, then delete all but the newest ``run.keep_checkpoints``.

    Names begin with a number that grows, so they sort in the order of writing. ``actor`` are older
    weights that an episode still to come is collected with.
    """
    folder = RunFolder(run).checkpoints
    name = f"{_next_number(folder):06d}-episode{progress.episodes}-update{progress.updates}"
    final = folder / name
    with files.new_folder(final) as path:
        new = CheckpointFolder(path)
        weights.save(weights.model_tensors(learner.acting_model), new.model)
        weights.save(weights.learning_tensors(learner), new.optimiser)
        if actor is not None:
            weights.save(actor, new.actor)
        files.put(new.config, configuration.to_json(config))
        files.put(new.signature, signature.to_json())
        files.put(new.progress, progress.to_json())
    for old in list_checkpoints(run)[: -config.run.keep_checkpoints]:
        files.remove_folder(old)
    return final


def _next_number(folder: Path) -> int:
    """Return a number above those of all checkpoints, also of those set aside."""
    found = folder.iterdir() if folder.is_dir() else ()
    numbers = (path.name.partition("-")[0] for path in found)
    return max((int(number) for number in numbers if number.isdecimal()), default=-1) + 1


def list_checkpoints(run: Path) -> list[Path]:
    """Return the complete checkpoints of a run, oldest first."""
    folder = RunFolder(run).checkpoints
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if path.is_dir() and not path.suffix)


def is_exported(checkpoint: Path) -> bool:
    """Return whether it was written without an optimiser's state, for acting alone."""
    optimiser = CheckpointFolder(checkpoint).optimiser
    return optimiser.name not in files.read_sums(checkpoint) and not optimiser.exists()


def not_begun(run: Path) -> bool:
    """Return whether a run was killed before its first checkpoint."""
    folder = RunFolder(run)
    return (
        folder.config.is_file()
        and not list_checkpoints(run)
        and not any(folder.episodes.glob("*.npz"))
        and not files.read_lines(folder.metrics)
    )


@dataclass(frozen=True)
class Sound:
    """A checkpoint whose files are as written, and what is wrong with newer ones."""

    path: Path
    progress: Progress
    damaged: dict[Path, str] = field(default_factory=dict)


def sound_checkpoints(run: Path) -> Iterator[Sound]:
    """Yield the sound checkpoints of a run, newest first; raise if there is none."""
    folder = RunFolder(run)
    if not run.is_dir():
        raise RunError(f"{run} is not a folder; runs are made by `planet-bayes train`.")
    if not folder.config.is_file() and not folder.checkpoints.is_dir():
        raise RunError(
            f"{run} is not a run folder: it has no {folder.config.name}. "
            "Give the folder that `planet-bayes train` printed."
        )
    found = list_checkpoints(run)
    if not found:
        raise RunError(f"{run} has no checkpoint yet; train it first or start a new run.")
    damaged: dict[Path, str] = {}
    for path in reversed(found):
        try:
            files.check_folder(path)
            progress = load_progress(CheckpointFolder(path).progress)
        except RunError as error:
            damaged[path] = str(error)
        else:
            yield Sound(path, progress, dict(damaged))
    if len(damaged) == len(found):
        raise RunError(f"{run} has no sound checkpoint: {' '.join(damaged.values())}")


def newest_sound(run: Path) -> Sound:
    """Return the newest sound checkpoint of a run, or raise if there is none."""
    return next(sound_checkpoints(run))


def latest(run: Path) -> Path:
    """Return the folder of `newest_sound`."""
    return newest_sound(run).path


def load_config(checkpoint: Path) -> Config:
    """Read the settings that the run had at a checkpoint."""
    return configuration.load(CheckpointFolder(checkpoint).config)


def load_signature(checkpoint: Path) -> Signature | None:
    """Read the signature of a checkpoint. Those of version 0.1 have none."""
    path = CheckpointFolder(checkpoint).signature
    if not path.is_file():
        return None
    try:
        return Signature.from_json(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}.") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
