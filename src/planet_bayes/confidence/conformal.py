"""Conformal bands: intervals that contain the truth with a set probability. Pure NumPy.

Members predict a quantity with mean μ and std σ. Its score is s = (truth - μ) / (σ + floor). The
floor makes members that agree by chance count less; with one member it is all there is. The band of
*split-conformal prediction* is between two quantiles of the scores of episodes that were not
learned from. It contains a share ``level`` of the truths of further such episodes, whatever the
distribution is.

When the system changes, the old quantiles are wrong. *Quantile tracking* (adaptive conformal
inference) then moves each edge of the band by its realised misses: it goes outwards by a factor
after a miss and inwards, more slowly, after a hit, so that in the long run a share (1 - level) / 2
of the truths is beyond each edge. See `Tracked.moved` for the bound.

Axes: points, H steps ahead, K quantities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planet_bayes.errors import ConfigError

Array = NDArray[np.float64]

FLOOR_SHARE = 0.5
"""The floor, as a share of the root mean square error of the members' mean."""
GAIN, MIN_GAIN = 0.3, 0.05
"""Step of quantile tracking one step ahead, and its lower limit further ahead (see `gains`)."""
MAX_LOG_FACTOR = 14.0
"""Limit of the logarithm of an edge's factor, about a million: no sensor may overflow it."""
MIN_EDGE = 0.01
"""Least distance of an edge from the center, in scores. Tracking multiplies, and 0 would stay 0."""
ROUNDING = 1e-9
"""A rank that is an integer must stay one: 100 · (1 - 0.9) / 2 is a little below 5."""
MIN_POINTS = 40
"""Fewest calibration points of a band: with fewer, no quantile of 5 % exists."""


@dataclass(frozen=True)
class Bands:
    """What calibration found, each ``[H, K]``. Edges are distances from the center, in scores."""

    floor: Array
    center: Array
    """The median score. It is not 0 where predictions are biased."""
    below: Array
    """From the center down to the lower edge."""
    above: Array
    """From the center up to the upper edge."""

    def scores(self, truth: Array, mean: Array, std: Array) -> Array:
        """Return the scores of truths, relative to the center; all ``[..., H, K]``."""
        return (truth - mean) / (std + self.floor) - self.center

    def interval(self, mean: Array, std: Array, tracked: Tracked) -> tuple[Array, Array]:
        """Return the lower and upper edges, ``[..., H, K]``."""
        scale = std + self.floor
        middle = mean + self.center * scale
        low = middle - np.exp(tracked.below) * self.below * scale
        return low, middle + np.exp(tracked.above) * self.above * scale


@dataclass(frozen=True)
class Tracked:
    """How far realised misses have moved the edges: logarithms of factors, ``[..., H, K]``."""

    below: Array
    above: Array

    def moved(self, scores: Array, bands: Bands, level: float) -> Tracked:
        """Return the factors after realised scores (NaN: unknown, no move).

        Each log factor moves by gain · (miss - (1 - level) / 2). Summed over T steps, the share
        of misses differs from its target by exactly (last - first log factor) / (gain · T), so it
        converges to it whatever the scores are, as long as the limit is not reached.
        """
        target, gain = (1 - level) / 2, gains(scores.shape[-2])
        known = np.isfinite(scores)
        with np.errstate(invalid="ignore"):
            low = scores < -np.exp(self.below) * bands.below
            high = scores > np.exp(self.above) * bands.above
        below = self.below + gain * np.where(known, low - target, 0.0)
        above = self.above + gain * np.where(known, high - target, 0.0)
        limit = MAX_LOG_FACTOR
        return Tracked(np.clip(below, -limit, limit), np.clip(above, -limit, limit))


def gains(horizon: int) -> Array:
    """Return the gain at each of H steps ahead, ``[H, 1]``: `GAIN` / h, at least `MIN_GAIN`.

    What is known h steps ahead comes h steps late and about h times in a row. A larger gain would
    follow it back and forth.
    """
    return np.maximum(GAIN / np.arange(1, horizon + 1), MIN_GAIN)[:, None]


def untracked(shape: tuple[int, ...]) -> Tracked:
    """Return factors of 1."""
    return Tracked(np.zeros(shape), np.zeros(shape))


def calibrate(truth: Array, mean: Array, std: Array, level: float) -> Bands:
    """Return the bands of held-out truths and predictions, ``[points, H, K]`` each.

    A truth that is NaN does not count: an episode ends before the last steps ahead.

    The ranks are those of split-conformal prediction: ⌈(n + 1) q⌉ for the upper quantile q, and
    the mirror image below.
    """
    known = np.isfinite(truth) & np.isfinite(mean) & np.isfinite(std)
    fewest = int(known.sum(0).min()) if len(truth) else 0
    if fewest < MIN_POINTS:
        raise ConfigError(
            f"a band needs {MIN_POINTS} predictions whose truth is known at every step ahead, got "
            f"{fewest}: hold out more or longer episodes, or choose a smaller horizon."
        )
    error = np.where(known, truth - mean, np.nan)
    floor = FLOOR_SHARE * np.sqrt(np.nanmean(np.square(error), 0))
    floor = np.maximum(floor, 1e-9 + 1e-6 * np.nanmax(abs(np.where(known, truth, np.nan)), 0))
    scores = np.sort(error / (std + floor), 0)  # NaN last
    count = known.sum(0)
    low, middle, high = (
        _at_rank(scores, rank)
        for rank in (
            np.floor((count + 1) * (1 - level) / 2 + ROUNDING).astype(int),
            (count + 1) // 2,
            np.ceil((count + 1) * (1 + level) / 2 - ROUNDING).astype(int),
        )
    )
    below, above = (np.maximum(edge, MIN_EDGE) for edge in (middle - low, high - middle))
    return Bands(floor, middle, below, above)


def threshold(episodes: Sequence[Array], rate: float) -> float:
    """Return the lowest level above which scores rise at most ``rate`` times a step.

    An excursion above the level counts once, however long it lasts: it is one alarm. With fewer
    steps than 1 / rate it is the largest score.

    Args:
        episodes: Scores ``[T]`` of each episode.
        rate: Alarms a step.
    """
    steps = sum(map(len, episodes))
    if not steps:
        raise ConfigError("an alarm needs scores of held-out episodes, got none.")
    allowed = math.floor(rate * (steps + 1) + ROUNDING)
    levels = np.unique(np.concatenate(episodes))[::-1]
    chosen = levels[0]
    for level in levels:
        if sum(alarms_raised(one > level) for one in episodes) > allowed:
            break
        chosen = level
    return float(chosen)


def alarms_raised(above: NDArray[np.bool_]) -> int:
    """Return how many times a state ``[T]`` becomes true."""
    return int(above[:1].sum() + (above[1:] & ~above[:-1]).sum())


def _at_rank(ordered: Array, rank: NDArray[np.integer]) -> Array:
    """Return the entries of rank 1, 2, … along the first axis of ``[points, H, K]``."""
    index = np.clip(rank - 1, 0, len(ordered) - 1)
    return np.take_along_axis(ordered, index[None], 0)[0]
