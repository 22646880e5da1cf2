"""What the members predict of the agent's plan: rewards, returns and vector observations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from planet_bayes.confidence.conformal import Array
from planet_bayes.models import WorldModel
from planet_bayes.models.imagination import Imagination
from planet_bayes.models.kernels.mean_path import mean_path
from planet_bayes.types import Belief


@dataclass(frozen=True)
class Prediction:
    """What the members predict, ``[B, H, K]``; K counts the entries of all quantities."""

    mean: Array
    std: Array
    """Over members (ddof = 1); 0 with one member."""


@torch.no_grad()
def predict(
    model: WorldModel,
    belief: Belief,
    actions: Tensor,
    vectors: Sequence[str],
    imagination: Imagination | None = None,
) -> Prediction:
    """Return what the members predict of actions ``[B, H, A]`` from their beliefs.

    Every member takes the mean of its prior at each step. A member that predicts something that is
    not finite does not count.

    Args:
        model: The world model.
        belief: The members' beliefs ``[P, B, ...]``.
        actions: One sequence for each environment.
        vectors: Names of the vector observations to predict.
        imagination: That of the model, if its weights are packed already.
    """
    if imagination is not None and imagination.native:
        found, states = imagination.roll_out(belief, actions.unsqueeze(1), None)
        features = states.squeeze(3)  # [H, P, B, F]
        rewards = found.permute(3, 2, 0, 1)  # [H, P, B, 1]
    else:
        steps = actions.transpose(0, 1)
        features = mean_path(model.rssm, model.weights(), belief, steps).contiguous()
        rewards = model.head("reward").predict(features).unsqueeze(-1)
    decoded = model.reconstruct(features, vectors) if vectors else {}
    parts = [rewards, rewards.cumsum(0), *(decoded[name] for name in vectors)]
    values = torch.cat(parts, -1).permute(1, 2, 0, 3)  # [P, B, H, K]
    return over_members(values.double().numpy(force=True))


def over_members(values: Array) -> Prediction:
    """Return mean and std over members of ``[P, B, H, K]``.

    In each environment those members count that are finite everywhere; NaN: there is none.
    """
    if np.isfinite(values).all():
        return Prediction(*_over_living(values))
    finite = np.asarray(np.isfinite(values).all((2, 3)))  # [P, B]
    parts = [_over_living(values[finite[:, row], row]) for row in range(values.shape[1])]
    return Prediction(*(np.stack(part) for part in zip(*parts, strict=True)))


def _over_living(values: Array) -> tuple[Array, Array]:
    if not len(values):
        return np.full(values.shape[1:], np.nan), np.full(values.shape[1:], np.nan)
    mean = values.mean(0)
    # The same as values.std(0, ddof=1), which computes the mean again.
    return mean, np.sqrt(np.square(values - mean).sum(0) / max(1, len(values) - 1))
