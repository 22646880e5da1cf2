"""How well the members' disagreement tells their error: pure functions on predictions and truths.

P members predict a quantity at each of H steps ahead, from many points. The mean over members is
the prediction, and their std, with P - 1 in its denominator (ddof = 1), is the disagreement.

The reference of every figure is `calibrated`: the truth is exchangeable with the members, as if it
were one more member. No figure suffices alone. Coverage is high where the std is too large, a rank
correlation ignores the size of the std, and an error correlation ignores an error that is the same
at all points. The ratio of error and std shows all three.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

COVERED_STDS = 2.0
"""Half width of the interval whose coverage is measured, in stds of the members."""
MIN_RELATIVE_VARIANCE = 1e-12
"""Errors whose variance is a smaller share of their mean square are taken for constant."""


@dataclass(frozen=True)
class Comparison:
    """Predictions and truths of one quantity, reduced to what the figures need.

    A quantity may have entries, as an observation has. Errors and stds of a point are then root
    mean squares over them. With one member, what needs several is NaN.
    """

    error: Array
    """Size of the error of the members' mean, ``[points, H]``."""
    std: Array
    """Disagreement, ``[points, H]``."""
    inside: Array
    """Share of the entries whose truth is within ±2 std of the members' mean, ``[points, H]``."""
    member_errors: Array
    """Mean over entries of each member's error, ``[points, P, H]``."""
    member_products: Array
    """Mean over entries of the products of two members' errors, ``[points, P, P, H]``."""

    @property
    def members(self) -> int:
        """P."""
        return self.member_errors.shape[1]

    def rmse(self) -> Array:
        """Return the root mean square error of the members' mean at each step, ``[H]``."""
        return np.sqrt(np.square(self.error).mean(0))

    def disagreement(self) -> Array:
        """Return the root mean square over points of the members' std, ``[H]``."""
        return np.sqrt(np.square(self.std).mean(0))

    def ratio(self) -> Array:
        """Return error over disagreement, ``[H]``; infinite where the members agree on an error."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.rmse() / self.disagreement()

    def coverage(self) -> Array:
        """Return the share of truths within ±2 std of the members' mean, ``[H]``."""
        return self.inside.mean(0)

    def rank_correlation(self) -> Array:
        """Return Spearman's correlation of error and std over points, ``[H]``."""
        return rank_correlation(self.error, self.std)

    def error_correlation(self) -> Array:
        """Return the mean over pairs of members of the correlation of their errors, ``[H]``.

        It is Pearson's, over points (and entries). An error that is the same at all of them is
        removed by its centring. Pairs with a member whose errors are constant are left out.
        """
        mean = self.member_errors.mean(0)  # [P, H]
        products = self.member_products.mean(0)  # [P, P, H]
        covariance = products - mean[:, None] * mean[None]
        square, variance = (np.einsum("iih->ih", matrix) for matrix in (products, covariance))
        std = np.where(variance > MIN_RELATIVE_VARIANCE * square, np.sqrt(abs(variance)), np.nan)
        left, right = np.triu_indices(self.members, 1)
        pairs = covariance[left, right] / (std[left] * std[right])  # [pairs, H]
        known = np.isfinite(pairs)
        return _divided(np.where(known, pairs, 0).sum(0), known.sum(0))


def compare(predicted: NDArray[np.floating], real: NDArray[np.floating]) -> Comparison:
    """Compare predictions ``[points, P, H, ...]`` with truths ``[points, H, ...]``.

    Axes after H are entries of the quantity.
    """
    points, members, horizon = predicted.shape[:3]
    if real.shape != (points, horizon, *predicted.shape[3:]):
        raise ValueError(f"predictions {predicted.shape} do not fit truths {real.shape}.")
    predictions = np.asarray(predicted, np.float64).reshape(points, members, horizon, -1)
    truths = np.asarray(real, np.float64).reshape(points, horizon, -1)
    # Differences from the first member are exactly zero where all members are equal.
    from_first = predictions - predictions[:, :1]
    error = predictions[:, 0] + from_first.mean(1) - truths  # [points, H, entries]
    errors = predictions - truths[:, None]  # [points, P, H, entries]
    if members > 1:
        std = from_first.std(1, ddof=1)
        inside = (abs(error) <= COVERED_STDS * std).mean(-1)
    else:
        std, inside = np.full_like(error, np.nan), np.full((points, horizon), np.nan)
    return Comparison(
        error=_root_mean_square(error),
        std=_root_mean_square(std),
        inside=inside,
        member_errors=errors.mean(-1),
        member_products=np.einsum("nihd,njhd->nijh", errors, errors) / errors.shape[-1],
    )


def joined(parts: Sequence[Comparison]) -> Comparison:
    """Return the comparison over the points of all parts."""
    return Comparison(
        error=np.concatenate([part.error for part in parts]),
        std=np.concatenate([part.std for part in parts]),
        inside=np.concatenate([part.inside for part in parts]),
        member_errors=np.concatenate([part.member_errors for part in parts]),
        member_products=np.concatenate([part.member_products for part in parts]),
    )


def rank_correlation(left: Array, right: Array) -> Array:
    """Return Spearman's correlation over the first axis, ``[H]``, of two arrays ``[points, H]``.

    It is NaN where one of them is constant.
    """
    ranks = [stats.rankdata(values, axis=0) for values in (left, right)]
    left, right = (rank - rank.mean(0) for rank in ranks)
    scale = np.sqrt(np.square(left).sum(0) * np.square(right).sum(0))
    return _divided((left * right).sum(0), scale)


def auroc(other: Array, clean: Array) -> Array:
    """Return how well a value tells two sets of points apart, ``[H]``.

    It is the probability that a random point of ``other`` ``[m, H]`` has a larger value than one
    of ``clean`` ``[n, H]``; equal values count half. 0.5 is chance.
    """
    ranks = stats.rankdata(np.concatenate([other, clean]), axis=0)[: len(other)]
    larger = ranks.sum(0) - len(other) * (len(other) + 1) / 2
    return larger / (len(other) * len(clean))


def sampling_share(first: Array, second: Array) -> Array:
    """Return the share of the members' variance that their sampled latent states make, ``[H]``.

    A model with ``model.belief`` or ``model.latent_noise`` not ``mean`` draws states. Members of
    equal weights then disagree too: their share is 1.

    Args:
        first: Predictions ``[points, P, H]``.
        second: The same with other draws.
    """
    within = np.square(first - second).mean((0, 1)) / 2
    between = (first.var(1, ddof=1) + second.var(1, ddof=1)).mean(0) / 2
    return _divided(within, between)


@dataclass(frozen=True)
class Calibrated:
    """What the figures would be if the truth were one more draw of what the members are drawn from.

    Coverage assumes a normal distribution. The two others hold for any.
    """

    ratio: float
    coverage: float
    error_correlation: float = 0.5
    """Two members' errors share the truth's deviation, which is half of the variance of each."""


def calibrated(members: int) -> Calibrated:
    """Return the figures of P ≥ 2 independent members with whom the truth is exchangeable.

    The error of the mean has the variance σ² (1 + 1/P). Divided by the members' std and by
    √(1 + 1/P), it has Student's t distribution with P - 1 degrees of freedom. So ±2 std of few
    members cover less than 95 %: 86 % for five.
    """
    ratio = math.sqrt(1 + 1 / members)
    beyond = float(stats.t.sf(COVERED_STDS / ratio, members - 1))
    return Calibrated(ratio, 1 - 2 * beyond)


def _root_mean_square(values: Array) -> Array:
    return np.sqrt(np.square(values).mean(-1))


def _divided(values: Array, by: NDArray[np.floating] | NDArray[np.integer]) -> Array:
    """Return a quotient; NaN where the divisor is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(by == 0, np.nan, values / by)
