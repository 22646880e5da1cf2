"""Risk: how the returns of the particles become one value per candidate.

A risk is a function from returns ``[B, N, P]`` to values ``[B, N]``. NaN marks a dead particle,
which must not count. The returns of a rejected candidate are -inf, and so must its value be.

With ``expectation`` "before", the optimality sees these values. In both settings they rank the
candidates for ``keep_elites``, ``execute`` "best" and `Diagnostics.best_return`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from planet_bayes.planner._config import PlannerConfig

Risk = Callable[[Tensor], Tensor]


def mean(returns: Tensor) -> Tensor:
    """Risk-neutral: the mean over the living particles."""
    if returns.device.type == "cpu":
        values = returns.mean(-1)
        if not math.isnan(values.sum()):  # no particle is dead
            return values
    return returns.nanmean(-1)


def weighted_mean(weights: Tensor) -> Risk:
    """Return the risk that is the mean by particle weights ``[B, P]``, over the living particles.

    The weights are not negative and need not sum to 1.
    """

    def risk(returns: Tensor) -> Tensor:
        shares = living_weights(returns, weights).unsqueeze(1)  # [B, 1, P]
        # A particle without weight must not count, and 0 · -inf would.
        return (shares * torch.where(shares > 0, returns, 0.0)).sum(-1)

    return risk


def cautious(caution: float, tail: float = 1.0, weights: Tensor | None = None) -> Risk:
    """Return the risk CVaR_α - β · std: α is ``tail``, β is ``caution``.

    CVaR_α is the mean of the worst share α of the particles: all of them at 1, the worst one at 0.
    The std is that of all living particles. A negative β is optimism.

    Args:
        caution: β.
        tail: α, in [0, 1].
        weights: Weights of the particles, ``[B, P]``. None: equal ones.
    """

    def risk(returns: Tensor) -> Tensor:
        equal = returns.new_ones(returns.shape[0], returns.shape[2])
        shares = living_weights(returns, equal if weights is None else weights)
        counted = shares.unsqueeze(1).expand_as(returns)  # [B, N, P]
        rejected = (returns == -torch.inf).any(-1)
        known = torch.where((counted > 0) & returns.isfinite(), returns, 0.0)
        values = tail_mean(known, counted, tail)
        if caution:
            center = (counted * known).sum(-1, keepdim=True)
            variance = (counted * (known - center).square()).sum(-1)
            values = values - caution * variance.sqrt()
        return values.masked_fill(rejected, -torch.inf)

    return risk


def config_risk(config: PlannerConfig, weights: Tensor | None) -> Risk:
    """Return the risk of the settings ``caution`` and ``tail``, by particle weights if any."""
    if (config.caution, config.tail) != (0, 1):
        return cautious(config.caution, config.tail, weights)
    return mean if weights is None else weighted_mean(weights)


def tail_mean(returns: Tensor, shares: Tensor, tail: float) -> Tensor:
    """Return CVaR_α over the last axis, by particles' shares, which sum to 1.

    The worst particles count with their shares until these sum to α; the last one counts with what
    is left. α = 0 is the limit: the worst particle that has a share.
    """
    if tail == 0:
        worst = torch.where(shares > 0, returns, torch.inf).amin(-1)
        return worst.masked_fill(shares.isnan().any(-1), torch.nan)  # all particles are dead
    order = returns.argsort(-1)
    ranked, mass = returns.gather(-1, order), shares.gather(-1, order)
    left = tail - (mass.cumsum(-1) - mass)
    taken = torch.minimum(mass, left.clamp(min=0))
    return (taken * ranked).sum(-1) / taken.sum(-1)


def living_weights(returns: Tensor, weights: Tensor) -> Tensor:
    """Return the weights ``[B, P]`` of the particles of returns ``[B, N, P]``, which sum to 1.

    Dead particles have none. If only dead particles had any, the living ones share it equally.
    """
    living = (~returns.isnan().any(1)).to(returns.dtype)  # [B, P]
    left = weights.to(returns.dtype) * living
    left = torch.where(left.sum(-1, keepdim=True) > 0, left, living)
    return left / left.sum(-1, keepdim=True)
