"""Open-loop prediction of an episode as arrays, and how often the members' band contains it.

An evaluation shows it in TensorBoard. It takes an episode of the evaluation, which the model has
not learned from, so it costs no step of the environment, and its random stream is its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from planet_bayes.models.open_loop import OpenLoop, open_loop
from planet_bayes.models.world_model import WorldModel
from planet_bayes.rng import torch_stream
from planet_bayes.types import Episode

CONTEXT = 5
"""Observations that are filtered before a prediction, as in the paper's figure."""
STEPS = 45
"""Steps that are then imagined, as in the paper's figure."""
NUM_WINDOWS = 8
"""Windows of an evaluation's episode that the coverage is taken over."""
COVERED_STDS = 2.0
"""Half width of the members' band in stds of the members (ddof = 1)."""


@dataclass(frozen=True)
class Prediction:
    """A window of an episode as it was, and as each member predicts it, in prepared units."""

    context: int
    """Steps of the context. The others are imagined."""
    real: dict[str, NDArray[Any]]
    """Observations by name, ``[T, ...]``."""
    predicted: dict[str, NDArray[Any]]
    """Decoded ones by name, ``[P, T, ...]``."""
    real_reward: NDArray[np.float32]
    """``[T]``."""
    predicted_reward: NDArray[np.float32]
    """``[P, T]``."""

    @property
    def length(self) -> int:
        """T."""
        return len(self.real_reward)

    @property
    def members(self) -> int:
        """P."""
        return len(self.predicted_reward)


def predict_window(found: OpenLoop, episode: Episode, start: int, window: int = 0) -> Prediction:
    """Return a window of an open-loop prediction as arrays.

    Args:
        found: The prediction.
        episode: The episode that it is of.
        start: First entry of the window.
        window: Its number in the prediction.
    """
    length = found.real_rewards.shape[1]
    with torch.no_grad():
        predicted = {
            name: found.reconstructed(name, window).cpu().numpy() for name in episode.observation
        }
    return Prediction(
        context=found.context,
        real={name: values[start : start + length] for name, values in episode.observation.items()},
        predicted=predicted,
        real_reward=episode.reward[start : start + length],
        predicted_reward=found.rewards[:, window].cpu().numpy(),
    )


@torch.no_grad()
def coverage(found: OpenLoop) -> dict[str, float]:
    """Return how often the truth is within ±2 std of the members' mean, by quantity.

    The share is over windows, imagined steps and entries: of the return since the context, and of
    each observation. One member has no std, and gives nothing.
    """
    if len(found.rewards) == 1:
        return {}
    ahead = slice(found.context, None)
    returns = found.rewards[..., ahead].cumsum(-1), found.real_rewards[:, ahead].cumsum(-1)
    shares = {"return": _inside(*returns)}
    for name, values in found.inputs.items():
        parts = [
            _inside(found.decoded(name, slice(one, one + 1))[:, :, ahead], values[one, None, ahead])
            for one in range(len(values))  # images of all windows would take gigabytes
        ]
        shares[name] = sum(parts) / len(parts)
    return shares


def _inside(predicted: Tensor, real: Tensor) -> float:
    """Return the share of truths ``[...]`` in the band of members ``[P, ...]``."""
    error = (predicted.mean(0) - real).abs()
    return float((error <= COVERED_STDS * predicted.std(0)).float().mean())


def spread(length: int, total: int, most: int) -> list[int]:
    """Return the starts of at most ``most`` windows of ``length``, spread over ``total`` entries.

    Windows are ``[start, start + length)``. The first starts at 0.
    """
    last = total - length
    return sorted({round(start) for start in np.linspace(0, last, most)}) if last >= 0 else []


def predict_evaluation(
    model: WorldModel, episode: Episode, seed: int, iteration: int
) -> tuple[Prediction, dict[str, float]] | None:
    """Return the prediction of an evaluation's episode from its start, and the band's coverage.

    An episode that is too short is predicted to its end, and one without a step after the context
    not at all: None.

    Args:
        model: The world model.
        episode: The episode.
        seed: The run's seed.
        iteration: Number of the iteration, which names the random stream.
    """
    steps = min(STEPS, len(episode) - CONTEXT)
    if steps < 1:
        return None
    starts = spread(CONTEXT + steps, len(episode), NUM_WINDOWS)
    generator = torch_stream(seed, "predict", iteration, device=model.device)
    found = open_loop(model, episode, starts, CONTEXT, steps, generator)
    return predict_window(found, episode, starts[0]), coverage(found)


def shown_times(context: int, steps: int, columns: int = 10) -> tuple[list[int], list[int]]:
    """Return which steps a strip shows, counted from 1: of the context, and imagined ones.

    The imagined ones are the first, and round numbers after it.
    """
    inside = sorted({1, (context + 1) // 2, context})
    wanted = max(1.0, steps / columns)
    scale = 10 ** int(np.log10(wanted))
    every = next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= wanted)
    last = context + steps
    ahead = {context + 1, *(time for time in range(every, last + 1, every) if time > context + 1)}
    return inside, sorted(ahead)
