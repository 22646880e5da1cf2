"""Steps as points: which are near each other, how many, and where they are in a plane. NumPy only.

A point is an observation and the action that led to it. Vectors count in stds of each entry over
the stored steps, actions in stds of uniformly random ones. All entries of an image count as much as
`COMPONENTS` entries of a vector.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

COMPONENTS = 10
"""Principal components of the observations that count. Fewer entries than these all count."""
NEAR_SHARE = 0.05
"""Share of the pairs of stored steps that are near: it sets the radius."""
UNIFORM_STD = math.sqrt(1 / 3)
"""Of an action that is uniform in [-1, 1]."""
MAX_EXACT_ENTRIES = 256
"""Entries of points up to which the axes of all of them are computed."""
MAX_AXIS_POINTS = 500
"""Points that the axes of points of more entries are computed from."""
ROWS = 256
"""Rows of a table of distances that are computed at once."""


@dataclass(frozen=True)
class Map:
    """How observations and actions become points, by what is stored."""

    points: Array
    """The stored steps, ``[n, C + A]``."""
    radius: float
    """Largest distance of points that are near each other."""
    _mean: dict[str, Array]
    _scale: dict[str, Array]
    _axes: Array
    """Principal components, ``[C, entries]``."""
    _plane: Array
    """The two main axes of the points, ``[2, C + A]``."""

    @classmethod
    def of(cls, observation: Mapping[str, Array], action: NDArray[np.generic]) -> Map:
        """Return the map of stored steps: observations ``[n, ...]`` by name, actions ``[n, A]``."""
        mean = {name: values.mean(0) for name, values in observation.items()}
        scale = {name: _scale_of(values - mean[name]) for name, values in observation.items()}
        axes = _main_axes(_flat(observation, mean, scale), COMPONENTS)
        bare = cls(np.zeros((0, 0)), 0.0, mean, scale, axes, np.zeros((0, 0)))
        points = bare.place(observation, action)
        pairs = np.concatenate([part.ravel() for part in _distances(points, points)])
        radius = float(np.quantile(pairs, NEAR_SHARE))
        return cls(points, radius, mean, scale, axes, _main_axes(points - points.mean(0), 2))

    def place(self, observation: Mapping[str, Array], action: NDArray[np.generic]) -> Array:
        """Return the points ``[n, C + A]`` of observations and actions."""
        components = _flat(observation, self._mean, self._scale) @ self._axes.T
        return np.concatenate([components, np.asarray(action, np.float64) / UNIFORM_STD], 1)

    def plane(self, points: Array) -> Array:
        """Return points ``[n, C + A]`` in the plane of their two main components, ``[n, 2]``."""
        return (points - self.points.mean(0)) @ self._plane.T


def nearby(points: Array, stored: Array, radius: float) -> Array:
    """Return how many stored points are within the radius of each point, ``[n]``."""
    return np.concatenate([(part <= radius).sum(1) for part in _distances(points, stored)]) * 1.0


def within_episodes(points: Array, number: NDArray[np.integer], radius: float) -> float:
    """Return how many other points of its own episode are near a point on average.

    Args:
        points: Stored points ``[n, K]``.
        number: The episode of each, ``[n]``.
        radius: Largest distance of points that are near.
    """
    counts = [nearby(points[number == one], points[number == one], radius) for one in set(number)]
    return float(np.concatenate(counts).mean() - 1)


def spread_out(points: Array, values: Array, radius: float, count: int) -> list[int]:
    """Return the indices of at most ``count`` largest values of which no two are near."""
    left, chosen = np.asarray(values, np.float64).copy(), list[int]()
    while len(chosen) < count and left.max(initial=-np.inf) > 0:
        best = int(left.argmax())
        chosen.append(best)
        left[np.linalg.norm(points - points[best], axis=1) <= radius] = -np.inf
    return chosen


def _scale_of(centered: Array) -> Array:
    """Return what an observation ``[n, ...]`` is divided by."""
    if centered.ndim == 2:
        std = centered.std(0)
        return np.where(std > 0, std, 1.0)
    total = np.square(centered).sum() / len(centered)
    return np.array(math.sqrt(total / COMPONENTS) or 1.0)


def _flat(
    observation: Mapping[str, Array], mean: Mapping[str, Array], scale: Mapping[str, Array]
) -> Array:
    parts = [(values - mean[name]) / scale[name] for name, values in observation.items()]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], 1)


def _main_axes(centered: Array, count: int) -> Array:
    """Return at most ``count`` main axes of points ``[n, K]``, the largest entry of each positive.

    With few entries all directions are found, also those in which nothing varies. Those of images
    are found from some of the points.
    """
    if centered.shape[1] <= MAX_EXACT_ENTRIES:
        axes = np.linalg.eigh(centered.T @ centered).eigenvectors.T[::-1]
    else:
        some = centered[:: -(-len(centered) // MAX_AXIS_POINTS)]
        axes = np.linalg.svd(some, full_matrices=False).Vh
    axes = axes[:count]
    largest = np.abs(axes).argmax(1)
    return axes * np.sign(axes[np.arange(len(axes)), largest])[:, None]


def _distances(left: Array, right: Array) -> list[Array]:
    """Return the distances of points as tables of at most `ROWS` rows."""
    squares = np.square(right).sum(1)
    found = []
    for start in range(0, len(left), ROWS):
        part = left[start : start + ROWS]
        both = np.square(part).sum(1)[:, None] + squares - 2 * part @ right.T
        found.append(np.sqrt(np.maximum(both, 0)))
    return found
