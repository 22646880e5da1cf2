"""Conformal bands: intervals that contain the truth with a set probability. Pure NumPy.

Members predict a quantity with mean μ and std σ. Its error e = (truth - μ) / (σ + floor) has units
of the members' spread. The floor makes members that agree by chance count less; with one member it
is all there is. Errors come in phases: small while a pole is balanced, large while it swings, and
larger after the system has changed. So the score is s = e / r, where r is the size of the *recent
errors* of the same quantity at the same number of steps ahead, a moving average of |e| over its
usual value.

The band of *split-conformal prediction* is between two quantiles of the scores of episodes that
were not learned from. It contains a share ``level`` of the truths of further such episodes,
whatever the distribution is.

When the system changes, recent errors widen the band within about `RECENT_STEPS` known truths. What
is then still wrong is corrected by *quantile tracking* (adaptive conformal inference), which moves
each edge by its realised misses: it goes outwards by a factor after a miss and inwards, more
slowly, after a hit, so that in the long run a share (1 - level) / 2 of the truths is beyond each
edge. See `Tracked.moved` for the bound.

Axes: T steps of an episode, H steps ahead, K quantities.
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
RECENT_STEPS = 10
"""Time constant of the moving average of recent errors, in known truths."""
LEAST_RECENT = 0.02
"""The least size of recent errors counts as this share of the usual one."""
GAIN, DELAYED_GAIN = 0.2, 1.0
"""Step of quantile tracking, in logarithms of factors, h steps ahead: the smaller of the first and
the second over h. A miss h steps ahead is known h steps late, and until then others are on their
way, so that large steps would add up (``benchmarks/tracking_gain.py``)."""
MAX_LOG_FACTOR = 14.0
"""Limit of the logarithm of an edge's factor, about a million: no sensor may overflow it."""
MIN_EDGE = 0.01
"""Least distance of an edge from the center, in scores. Tracking multiplies, and 0 would stay 0."""
ROUNDING = 1e-9
"""A rank that is an integer must stay one: 100 · (1 - 0.9) / 2 is a little below 5."""
MIN_POINTS = 40
"""Fewest calibration points of a band, at levels up to 0.95 (see `fewest_points`)."""


@dataclass(frozen=True)
class Bands:
    """What calibration found, each ``[H, K]``. Edges are distances from the center, in scores."""

    floor: Array
    usual: Array
    """The mean size of errors."""
    center: Array
    """The median score. It is not 0 where predictions are biased."""
    below: Array
    """From the center down to the lower edge."""
    above: Array
    """From the center up to the upper edge."""

    def errors(self, truth: Array, mean: Array, std: Array) -> Array:
        """Return errors in units of the members' spread; all ``[..., H, K]``."""
        return (truth - mean) / (std + self.floor)

    def scale(self, std: Array, recent: Array) -> Array:
        """Return the unit of scores of predictions, by the recent errors when they are made."""
        return (std + self.floor) * (LEAST_RECENT + (1 - LEAST_RECENT) * recent)

    def after(self, recent: Array, errors: Array) -> Array:
        """Return the recent errors after realised ones (NaN: unknown, no change)."""
        return _averaged(recent, np.abs(errors) / self.usual)

    def scores(self, truth: Array, mean: Array, scale: Array) -> Array:
        """Return the scores of truths, relative to the center; all ``[..., H, K]``."""
        return (truth - mean) / scale - self.center

    def interval(self, mean: Array, scale: Array, tracked: Tracked) -> tuple[Array, Array]:
        """Return the lower and upper edges, ``[..., H, K]``."""
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

        Each log factor moves by gain · (miss - (1 - level) / 2), with the gain of `gains`. Summed
        over T steps, the share of misses differs from its target by exactly (last - first log
        factor) / (gain · T), so it converges to it whatever the scores are, as long as the limit is
        not reached.
        """
        target = (1 - level) / 2
        known = np.isfinite(scores)
        with np.errstate(invalid="ignore"):
            low = scores < -np.exp(self.below) * bands.below
            high = scores > np.exp(self.above) * bands.above
        gain = gains(scores.shape[-2])
        below = self.below + gain * np.where(known, low - target, 0.0)
        above = self.above + gain * np.where(known, high - target, 0.0)
        limit = MAX_LOG_FACTOR
        return Tracked(np.clip(below, -limit, limit), np.clip(above, -limit, limit))


def gains(horizon: int) -> Array:
    """Return the step of quantile tracking by steps ahead, ``[H, 1]``."""
    return np.minimum(GAIN, DELAYED_GAIN / np.arange(1, horizon + 1))[:, None]


def untracked(shape: tuple[int, ...]) -> Tracked:
    """Return factors of 1."""
    return Tracked(np.zeros(shape), np.zeros(shape))


@dataclass(frozen=True)
class Forecasts:
    """What members predicted in one episode and what happened, each ``[T, H, K]``."""

    truth: Array
    """NaN: the episode ended before, and the truth does not count."""
    mean: Array
    std: Array


def recent_errors(errors: Array, usual: Array) -> Array:
    """Return the size of recent errors at each step of an episode, ``[T, H, K]``.

    At step t those of predictions whose truth is known count: for h steps ahead, the ones that
    were made up to step t - h. At first it is the usual one, 1.
    """
    steps, horizon, _ = errors.shape
    found, recent = np.empty_like(errors), np.ones(errors.shape[1:])
    for step in range(steps):
        known = np.full(errors.shape[1:], np.nan)
        ahead = np.arange(min(step, horizon))
        known[ahead] = errors[step - 1 - ahead, ahead]
        found[step] = recent = _averaged(recent, np.abs(known) / usual)
    return found


def _averaged(before: Array, value: Array) -> Array:
    return np.where(np.isfinite(value), before + (value - before) / RECENT_STEPS, before)


def calibrate(episodes: Sequence[Forecasts], level: float) -> Bands:
    """Return the bands of held-out episodes.

    The ranks are those of split-conformal prediction: ⌈(n + 1) q⌉ for the upper quantile q, and
    the mirror image below.
    """
    truth, mean, std = (
        np.concatenate([getattr(one, name) for one in episodes])
        for name in ("truth", "mean", "std")
    )
    known = np.isfinite(truth) & np.isfinite(mean) & np.isfinite(std)
    count = known.sum(0)
    fewest, needed = int(count.min()) if len(truth) else 0, fewest_points(level)
    if fewest < needed:
        raise ConfigError(
            f"a band needs {needed} predictions whose truth is known at every step ahead, got "
            f"{fewest}: hold out more or longer episodes, or choose a smaller horizon or level."
        )
    floor = FLOOR_SHARE * np.sqrt(np.mean(np.square(truth - mean), 0, where=known))
    floor = np.maximum(floor, 1e-9 + 1e-6 * np.abs(truth).max(0, where=known, initial=0.0))
    one = np.ones_like(floor)
    bare = Bands(floor, one, 0 * one, one, one)
    errors = [bare.errors(part.truth, part.mean, part.std) for part in episodes]
    usual = np.maximum(np.mean(np.abs(np.concatenate(errors)), 0, where=known), 1e-9)
    recent = np.concatenate([recent_errors(part, usual) for part in errors])
    scores = bare.scores(truth, mean, bare.scale(std, recent))
    scores = np.sort(np.where(known, scores, np.nan), 0)  # NaN last
    low, middle, high = (
        _at_rank(scores, rank)
        for rank in (
            np.floor((count + 1) * (1 - level) / 2 + ROUNDING).astype(int),
            (count + 1) // 2,
            np.ceil((count + 1) * (1 + level) / 2 - ROUNDING).astype(int),
        )
    )
    below, above = (np.maximum(edge, MIN_EDGE) for edge in (middle - low, high - middle))
    return Bands(floor, usual, middle, below, above)


def fewest_points(level: float) -> int:
    """Return how many points a band needs: with fewer, the rank of an edge is beyond the last."""
    return max(MIN_POINTS, math.ceil((1 + level) / (1 - level) - ROUNDING))


def threshold(episodes: Sequence[Array], rate: float) -> float:
    """Return the lowest level that scores of a new episode exceed at most ``rate`` times a step.

    An excursion above the level counts once, however long it lasts: it is one alarm. As for bands,
    the new episode counts among the n known ones: if these have k alarms, n + 1 episodes of which
    any could be the new one have k + 1. With too few steps for that, it is the largest score.

    Args:
        episodes: Scores ``[T]`` of each episode.
        rate: Alarms a step.
    """
    steps = sum(map(len, episodes))
    if not steps:
        raise ConfigError("an alarm needs scores of held-out episodes, got none.")
    allowed = math.floor(rate * steps * (1 + 1 / len(episodes)) + ROUNDING) - 1
    levels = np.unique(np.concatenate(episodes))[::-1]
    chosen = levels[0]
    for level in levels:
        if sum(alarms_raised(one > level) for one in episodes) > max(0, allowed):
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
