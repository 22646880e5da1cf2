"""What the members imagine from every step of a recorded episode, decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from planet_bayes.agent import Agent
from planet_bayes.confidence.prediction import over_members
from planet_bayes.diagnostics.explain.recording import Moments, Recording
from planet_bayes.diagnostics.watching import realised
from planet_bayes.models.kernels.mean_path import mean_path
from planet_bayes.types import Belief

Array = NDArray[Any]

SHOWN_STEPS = (1, 3, 5, 8, 11, 15)
"""Steps ahead whose images are decoded."""
MAX_ENTRIES = 12
"""Entries of a vector that are shown."""
BAND_STDS = 2.0
"""Half the width of the band of an agent that is not calibrated, in stds over members."""
DECODED_FRAMES = 512
"""Images that are decoded at once."""


@dataclass(frozen=True)
class View:
    """One observation: as it was, as each member reconstructs it, and as each imagines it."""

    real: Array
    """``[T + 1, ...]``: D entries, or uint8 images."""
    decoded: Array
    """``[T, P, ...]``."""
    imagined: Array
    """Under the plan that was kept, ``[T, P, H, D]``, or images ``[T, P, len(steps), S, S, 3]``."""


@dataclass(frozen=True)
class Expectation:
    """The return up to each of H steps ahead, under the plan that was kept, and what happened."""

    members: Array
    """``[T, P, H]``."""
    mean: Array
    """``[T, H]``."""
    std: Array
    """Over members (ddof = 1), ``[T, H]``; 0 with one member."""
    low: Array
    """Lower edge of the band, ``[T, H]``."""
    high: Array
    """Upper edge."""
    real: Array
    """``[T, H]``; NaN: the episode was over."""
    calibrated: bool

    @property
    def left(self) -> Array:
        """Whether the return over the whole horizon was outside the band, ``[T]``."""
        with np.errstate(invalid="ignore"):
            real, low, high = (part[:, -1] for part in (self.real, self.low, self.high))
            return ((real < low) | (real > high)) & (high > low)


@dataclass(frozen=True)
class Outlook:
    """What the members imagine, by observation, and the return."""

    vectors: dict[str, View]
    """The first `MAX_ENTRIES` entries of each."""
    images: dict[str, View]
    steps: tuple[int, ...]
    """Steps ahead of the imagined images."""
    returns: Expectation


def shown_steps(horizon: int) -> tuple[int, ...]:
    """Return the steps ahead whose images are shown."""
    return tuple(step for step in SHOWN_STEPS if step <= horizon)


@torch.inference_mode()
def outlook(agent: Agent, recording: Recording) -> Outlook:
    """Decode what the members believe and imagine at each step of a recording.

    As the monitor does, every member takes the mean of its prior at each step.
    """
    model, moments = agent.model, recording.moments
    plans = torch.from_numpy(moments.sequence).transpose(0, 1)  # [H, T, A]
    ahead = mean_path(model.rssm, model.weights(), moments.belief, plans)  # [H, P, T, F]
    ahead = ahead.permute(2, 1, 0, 3)  # [T, P, H, F]
    now = torch.from_numpy(moments.features)  # [T, P, F]
    rewards = model.head("reward").predict(ahead).double().numpy()  # [T, P, H]
    steps = shown_steps(ahead.shape[2])
    few = ahead[:, :, [step - 1 for step in steps]]
    vectors, images = {}, {}
    for name, real in recording.episode.observation.items():
        if real.ndim == 2:
            parts = (_decoded(agent, name, part)[..., :MAX_ENTRIES] for part in (now, ahead))
            vectors[name] = View(real[:, :MAX_ENTRIES], *parts)
        elif real.dtype == np.uint8 and real.ndim == 4:
            images[name] = View(real, *(_images(agent, name, part) for part in (now, few)))
    return Outlook(vectors, images, steps, _expectation(rewards, recording))


def _expectation(rewards: Array, recording: Recording) -> Expectation:
    members = rewards.cumsum(-1)  # [T, P, H]
    predicted = over_members(members.swapaxes(0, 1)[..., None])
    mean, std = predicted.mean[..., 0], predicted.std[..., 0]  # [T, H]
    earned = recording.episode.reward.astype(np.float64)
    real = realised(earned, [], mean.shape[1])[:-1, :, 1]
    moments = recording.moments
    calibrated = bool(np.isfinite(moments.low).all())
    low, high = moments.low, moments.high
    if not calibrated:
        low, high = mean - BAND_STDS * std, mean + BAND_STDS * std
    return Expectation(members, mean, std, low, high, real, calibrated)


def _decoded(agent: Agent, name: str, features: Tensor) -> Array:
    return agent.model.reconstruct(features, [name])[name].numpy()


def _images(agent: Agent, name: str, features: Tensor) -> Array:
    """Return uint8 images ``[..., S, S, 3]`` of features ``[..., F]``, a part at a time."""
    flat = features.flatten(0, -2)
    parts = [
        _decoded(agent, name, part).round().astype(np.uint8) for part in flat.split(DECODED_FRAMES)
    ]
    return np.concatenate(parts).reshape(*features.shape[:-1], *parts[0].shape[1:])


@torch.inference_mode()
def futures(agent: Agent, moments: Moments) -> Array:
    """Return the features that the members imagine of every mode, ``[T, M, P, H + 1, F]``.

    The first of them is the belief itself.
    """
    model = agent.model
    steps, count, horizon, size = moments.modes.shape
    actions = torch.from_numpy(moments.modes).reshape(steps * count, horizon, size)
    belief = moments.belief
    repeated = Belief(
        belief.deter.repeat_interleave(count, 1), belief.stoch.repeat_interleave(count, 1)
    )
    ahead = mean_path(model.rssm, model.weights(), repeated, actions.transpose(0, 1))
    whole = torch.cat([repeated.features[None], ahead])  # [H + 1, P, T·M, F]
    return whole.unflatten(2, (steps, count)).permute(2, 3, 1, 0, 4).numpy()
