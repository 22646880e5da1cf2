"""The latent space: a flat picture of beliefs, and what can be read from them by a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PROBE_FOLDS = 5
"""Parts of a cross-validation."""
BLOCK_STEPS = 5
"""Steps in a row that a fold holds out together. Neighbours in time are alike."""
RIDGE = 0.1
"""Penalty of the probe's weights, for each training step, with features of unit variance."""
MIN_PROBE_STEPS = 20
"""Steps of the shortest episode that is probed."""


@dataclass(frozen=True)
class Projection:
    """The two directions of the largest variance."""

    center: Array
    """``[F]``."""
    axes: Array
    """Orthonormal, ``[2, F]``."""
    share: Array
    """Of the variance along each, ``[2]``."""

    def __call__(self, points: Array) -> Array:
        """Return the coordinates ``[..., 2]`` of points ``[..., F]``."""
        return (points - self.center) @ self.axes.T


def projection(points: Array) -> Projection:
    """Return the principal axes of points ``[N, F]``; the largest entry of each is positive."""
    points = points.astype(np.float64)
    center = points.mean(0)
    _, scale, rows = np.linalg.svd(points - center, full_matrices=False)
    axes = np.zeros((2, points.shape[1]))
    axes[: len(rows[:2])] = rows[:2]
    axes *= np.where(axes[[0, 1], np.abs(axes).argmax(1)] < 0, -1.0, 1.0)[:, None]
    share = np.zeros(2)
    share[: len(scale[:2])] = np.square(scale[:2]) / max(float(np.square(scale).sum()), 1e-300)
    return Projection(center, axes, share)


def probe(features: Array, targets: Array) -> Array:
    """Return R² ``[K]`` of targets ``[T, K]`` that a ridge regression reads from ``[T, F]``.

    Blocks of `BLOCK_STEPS` steps go to `PROBE_FOLDS` folds in turn, and each fold is predicted from
    the others. R² is relative to the mean of the whole episode. A target that does not move has R²
    NaN, and so have all in a short episode.
    """
    features, targets = features.astype(np.float64), targets.astype(np.float64)
    spread = np.square(targets - targets.mean(0)).sum(0)
    moves = targets.std(0) > 1e-6 * (1 + np.abs(targets).max(0))
    if len(features) < MIN_PROBE_STEPS:
        return np.full(targets.shape[1], np.nan)
    missed = np.zeros(targets.shape[1])
    fold = np.arange(len(features)) // BLOCK_STEPS % PROBE_FOLDS
    for number in np.unique(fold):
        held, train = fold == number, fold != number
        center, scale = features[train].mean(0), features[train].std(0)
        scaled = (features - center) / np.where(scale > 1e-9, scale, 1.0)
        middle = targets[train].mean(0)
        penalty = RIDGE * train.sum() * np.eye(features.shape[1])
        gram = scaled[train].T @ scaled[train] + penalty
        weights = np.linalg.solve(gram, scaled[train].T @ (targets[train] - middle))
        missed += np.square(targets[held] - middle - scaled[held] @ weights).sum(0)
    return np.where(moves, 1 - missed / np.where(spread > 0, spread, 1.0), np.nan)
