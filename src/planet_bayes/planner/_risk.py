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


def living_weights(returns: Tensor, weights: Tensor) -> Tensor:
    """Return the weights ``[B, P]`` of the particles of returns ``[B, N, P]``, which sum to 1.

    Dead particles have none. If only dead particles had any, the living ones share it equally.
    """
    living = (~returns.isnan().any(1)).to(returns.dtype)  # [B, P]
    left = weights.to(returns.dtype) * living
    left = torch.where(left.sum(-1, keepdim=True) > 0, left, living)
    return left / left.sum(-1, keepdim=True)
