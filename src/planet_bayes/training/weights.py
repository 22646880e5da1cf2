"""Weights and Adam's moments by name, as safetensors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from planet_bayes.data import files
from planet_bayes.data.folder import CheckpointFolder
from planet_bayes.errors import RunError
from planet_bayes.models import WorldModel
from planet_bayes.training.learner import Learner

LEARNED = "learned"
"""Suffix of the learned weights, where the agent acts with an average of them."""


def save(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors to a file."""
    files.put(path, save_tensors(tensors))


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's weights and buffers by name, on the CPU."""
    return {name: value.detach().cpu().contiguous().clone() for name, value in _state(model)}


def digest(model: nn.Module) -> str:
    """Return the SHA-256 sum of a model's weights, as a file would have it."""
    return hashlib.sha256(save_tensors(model_tensors(model))).hexdigest()


def put_tensors(tensors: dict[str, Tensor], model: nn.Module) -> None:
    """Copy weights as `model_tensors` returns them into ``model``."""
    with torch.no_grad():
        for name, value in _state(model):
            value.copy_(tensors[name])


def learning_tensors(learner: Learner) -> dict[str, Tensor]:
    """Return Adam's moments by name, and the learned weights where acting ones are averaged."""
    found: dict[str, Tensor] = {}
    for name, parameter in learner.model.named_parameters():
        values = dict(learner.optimiser.state.get(parameter, {}))
        if learner.acting_model is not learner.model:
            values[LEARNED] = parameter
        for key, value in values.items():
            found[f"{name}.{key}"] = value.detach().cpu().contiguous().clone()
    return found


def load_model(checkpoint: Path, model: WorldModel) -> None:
    """Put the checkpoint's weights into ``model``."""
    put_tensors(_load_weights(CheckpointFolder(checkpoint).model, model), model)


def load_actor(checkpoint: Path, model: WorldModel) -> dict[str, Tensor]:
    """Return the older weights in the checkpoint, which must fit ``model``."""
    return _load_weights(CheckpointFolder(checkpoint).actor, model)


def load_learner(checkpoint: Path, learner: Learner) -> None:
    """Put the checkpoint's weights and Adam's moments into ``learner``.

    A run that did not average, or no longer does, goes on from the learned weights.
    """
    folder = CheckpointFolder(checkpoint)
    weights = _load_weights(folder.model, learner.model)
    for model in {learner.acting_model, learner.model}:
        put_tensors(weights, model)
    tensors = _load_tensors(folder.optimiser, learner.model)
    for name, parameter in learner.model.named_parameters():
        if f"{name}.step" not in tensors:
            continue  # saved before the first update: no moments yet
        shape = tuple(parameter.shape)
        names = {f"{name}.exp_avg": shape, f"{name}.exp_avg_sq": shape, f"{name}.step": ()}
        if f"{name}.{LEARNED}" in tensors:
            names[f"{name}.{LEARNED}"] = shape
        found = {key: tensors[key] for key in names if key in tensors}
        _check_names(folder.optimiser, found, names)
        if f"{name}.{LEARNED}" in found:
            parameter.data.copy_(found[f"{name}.{LEARNED}"])
        learner.optimiser.state[parameter] = {
            key: found[f"{name}.{key}"].to(parameter.device)
            for key in ("step", "exp_avg", "exp_avg_sq")
        }


def _state(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _load_tensors(path: Path, model: WorldModel) -> dict[str, Tensor]:
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError, ValueError) as error:
        raise RunError(f"{path} is missing or damaged: {error}.") from error
    if CheckpointFolder(path.parent).signature.exists():
        return tensors
    return {_renamed(name, next(iter(model.senses))): value for name, value in tensors.items()}


def _renamed(name: str, sense: str) -> str:
    """Return today's name of a tensor in a checkpoint of version 0.1, which has one sense."""
    prefixes = {
        "scaling.observation_": f"senses.{sense}.",
        "scaling.reward_": "heads.reward.",
        "encoder.": f"senses.{sense}.encoder.",
        "decoder.": f"senses.{sense}.decoder.",
        "reward_head.": "heads.reward.network.",
        "rssm.": "posterior.",
    }
    for old, new in prefixes.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def _load_weights(path: Path, model: WorldModel) -> dict[str, Tensor]:
    tensors = _load_tensors(path, model)
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
