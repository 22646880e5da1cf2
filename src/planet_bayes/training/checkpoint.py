"""Checkpoints: weights and optimiser as safetensors, counters as JSON.

``model.safetensors`` has the weights to act with. What learning needs besides is with Adam's
moments: the weights that they belong to, where the agent acts with an average of these.

A checkpoint is a folder that is whole or absent, with the sums of its files (see
`planet_bayes.files`). No random state is in it: every stream is a function of the seed and of
the counters (see `planet_bayes.rng`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from planet_bayes import config as configuration
from planet_bayes import files
from planet_bayes.config import Config
from planet_bayes.errors import ConfigError, RunError
from planet_bayes.training.learner import Learner

FORMAT = 2
OPTIMISER = "optimiser.safetensors"
LEARNED = "learned"


@dataclass(frozen=True)
class Progress:
    """How far a run is: the position in Algorithm 2, and what was recorded by then."""

    episodes: int = 0
    """Episodes in replay, seed episodes included."""
    updates: int = 0
    """Gradient updates done."""
    updates_since_episode: int = 0
    """Of those, since the last episode."""
    loss_sums: dict[str, float] = field(default_factory=dict)
    """Sums of the losses over those, for the iteration's means."""
    metrics: int = 0
    """Lines of metrics.jsonl that belong to this state."""
    seconds: float = 0.0
    """Time spent so far, over all sittings."""
    cpu_seconds: float = 0.0
    """Of the processor, over all cores: what the time would be on one core left alone."""
    metrics_digest: str = ""
    """The SHA-256 sum of these lines."""
    skipped_since_episode: int = 0
    """Updates since the last episode that were left out, their loss or gradient not finite."""
    skipped_in_row: int = 0
    """Updates left out since the last that was done."""
    machine: dict[str, str] = field(default_factory=dict)
    """Where it was saved (see `planet_bayes.training.machine`)."""


def save(
    run: Path,
    config: Config,
    learner: Learner,
    progress: Progress,
    actor: dict[str, Tensor] | None = None,
) -> Path:
    """Write a checkpoint, then delete all but the newest ``train.keep_checkpoints``.

    Names begin with a number that grows, so that their order is that in which they were written.
    ``actor`` are older weights that an episode still to come is collected with.
    """
    folder = run / "checkpoints"
    name = f"{_next_number(folder):06d}-episode{progress.episodes}-update{progress.updates}"
    final = folder / name
    with files.new_folder(final) as new:
        _save_tensors(model_tensors(learner.acting), new / "model.safetensors")
        _save_tensors(_learning_tensors(learner), new / OPTIMISER)
        if actor is not None:
            _save_tensors(actor, new / "actor.safetensors")
        files.put(new / "config.json", configuration.to_json(config))
        state = {"format": FORMAT, **dataclasses.asdict(progress)}
        files.put(new / "progress.json", json.dumps(state, indent=1) + "\n")
    for old in list_checkpoints(run)[: -config.train.keep_checkpoints]:
        files.remove_folder(old)
    return final


def _next_number(folder: Path) -> int:
    """Return a number above those of all checkpoints, also of those set aside."""
    found = folder.iterdir() if folder.is_dir() else ()
    numbers = (path.name.partition("-")[0] for path in found)
    return max((int(number) for number in numbers if number.isdecimal()), default=-1) + 1


def list_checkpoints(run: Path) -> list[Path]:
    """Return the complete checkpoints of a run, oldest first."""
    folder = run / "checkpoints"
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if path.is_dir() and not path.suffix)


def is_exported(checkpoint: Path) -> bool:
    """Return whether it was written without an optimiser's state, for acting alone."""
    return OPTIMISER not in files.read_sums(checkpoint) and not (checkpoint / OPTIMISER).exists()


def not_begun(run: Path) -> bool:
    """Return whether a run was stopped by force before its first checkpoint."""
    return (
        (run / "config.json").is_file()
        and not list_checkpoints(run)
        and not any((run / "episodes").glob("*.npz"))
        and not files.read_lines(run / "metrics.jsonl")
    )


@dataclass(frozen=True)
class Sound:
    """A checkpoint whose files are what was written, and what is wrong with newer ones."""

    path: Path
    progress: Progress
    damaged: dict[Path, str] = field(default_factory=dict)


def sound_checkpoints(run: Path) -> Iterator[Sound]:
    """Yield the sound checkpoints of a run, newest first; say so if there is none."""
    if not run.is_dir():
        raise RunError(f"{run} is not a folder; runs are made by `planet-bayes train`.")
    if not (run / "config.json").is_file() and not (run / "checkpoints").is_dir():
        raise RunError(
            f"{run} is not a run folder: it has no config.json. "
            "Give the folder that `planet-bayes train` printed."
        )
    found = list_checkpoints(run)
    if not found:
        raise RunError(f"{run} has no checkpoint yet; train it first or start a new run.")
    damaged: dict[Path, str] = {}
    for path in reversed(found):
        try:
            files.check_folder(path)
            progress = load_progress(path)
        except RunError as error:
            damaged[path] = str(error)
        else:
            yield Sound(path, progress, dict(damaged))
    if len(damaged) == len(found):
        raise RunError(f"{run} has no sound checkpoint: {' '.join(damaged.values())}")


def newest_sound(run: Path) -> Sound:
    """Return the newest sound checkpoint of a run, or say why there is none."""
    return next(sound_checkpoints(run))


def latest(run: Path) -> Path:
    """Return the folder of `newest_sound`."""
    return newest_sound(run).path


def load_config(checkpoint: Path) -> Config:
    """Read the settings that the run had at a checkpoint."""
    return configuration.load(checkpoint / "config.json")


def load_progress(checkpoint: Path) -> Progress:
    """Read the counters of a checkpoint."""
    path = checkpoint / "progress.json"
    try:
        state = json.loads(path.read_text())
        version = state.pop("format", None) if isinstance(state, dict) else None
        if version == FORMAT:
            return configuration.from_dict(Progress, state)
    except (OSError, ValueError, KeyError, AttributeError, RecursionError, ConfigError) as error:
        raise RunError(f"{path} is missing or damaged: {error}.") from error
    raise RunError(f"{path} has format {version}; this version reads format {FORMAT}.")


def load_model(checkpoint: Path, model: nn.Module) -> None:
    """Put the checkpoint's weights into ``model``."""
    put_tensors(_load_weights(checkpoint / "model.safetensors", model), model)


def load_actor(checkpoint: Path, model: nn.Module) -> dict[str, Tensor]:
    """Return the older weights in the checkpoint, which must fit ``model``."""
    return _load_weights(checkpoint / "actor.safetensors", model)


def put_tensors(tensors: dict[str, Tensor], model: nn.Module) -> None:
    """Copy weights as `model_tensors` returns them into ``model``."""
    with torch.no_grad():
        for name, value in _state(model):
            value.copy_(tensors[name])


def load_learner(checkpoint: Path, learner: Learner) -> None:
    """Put the checkpoint's weights and Adam's moments into ``learner``.

    A run that did not average, or no longer does, goes on from the weights that were learned.
    """
    weights = _load_weights(checkpoint / "model.safetensors", learner.model)
    for model in {learner.acting, learner.model}:
        put_tensors(weights, model)
    path = checkpoint / OPTIMISER
    tensors = _load_tensors(path)
    for name, parameter in learner.model.named_parameters():
        if f"{name}.step" not in tensors:
            continue  # saved before the first update: no moments yet
        shape = tuple(parameter.shape)
        names = {f"{name}.exp_avg": shape, f"{name}.exp_avg_sq": shape, f"{name}.step": ()}
        if f"{name}.{LEARNED}" in tensors:
            names[f"{name}.{LEARNED}"] = shape
        found = {key: tensors[key] for key in names if key in tensors}
        _check_names(path, found, names)
        if f"{name}.{LEARNED}" in found:
            parameter.data.copy_(found[f"{name}.{LEARNED}"])
        learner.optimiser.state[parameter] = {
            key: found[f"{name}.{key}"].to(parameter.device)
            for key in ("step", "exp_avg", "exp_avg_sq")
        }


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's weights and buffers by name, on the CPU."""
    return {name: value.detach().cpu().contiguous().clone() for name, value in _state(model)}


def _state(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _learning_tensors(learner: Learner) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, parameter in learner.model.named_parameters():
        values = dict(learner.optimiser.state.get(parameter, {}))
        if learner.acting is not learner.model:
            values[LEARNED] = parameter
        for key, value in values.items():
            found[f"{name}.{key}"] = value.detach().cpu().contiguous().clone()
    return found


def _save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    files.put(path, save_tensors(tensors))


def _load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError, ValueError) as error:
        raise RunError(f"{path} is missing or damaged: {error}.") from error


def _load_weights(path: Path, model: nn.Module) -> dict[str, Tensor]:
    tensors = _load_tensors(path)
    expected = {name: tuple(value.shape) for name, value in _state(model)}
    _check_names(path, tensors, expected)
    return tensors


def _check_names(
    path: Path, tensors: dict[str, Tensor], expected: dict[str, tuple[int, ...]]
) -> None:
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    if shapes != expected:
        odd = sorted(set(shapes.items()) ^ set(expected.items()))[0]
        raise RunError(
            f"{path} does not fit the model that its settings describe; the first difference is "
            f"{odd[0]} with shape {odd[1]}. Was it written by another version, or were the "
            "settings edited?"
        )
