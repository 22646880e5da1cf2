"""An optimality and a risk from outside the package."""

from __future__ import annotations

import torch
from torch import Tensor

from planet_bayes.planner import PlannerConfig


def soft_threshold(returns: Tensor, config: PlannerConfig) -> Tensor:
    """f(R) = sigmoid((R - R_thd) / range): a threshold without an edge, ``[B, N, P]``."""
    finite = torch.isfinite(returns)
    best = torch.where(finite, returns, -torch.inf).amax((1, 2), keepdim=True)
    least = torch.where(finite, returns, torch.inf).amin((1, 2), keepdim=True)
    scale = (best - least).clamp(min=1e-6)
    limit = best - config.elite_fraction * scale
    log_values = torch.nn.functional.logsigmoid(30 * (returns - limit) / scale)
    return torch.where(finite, log_values, -torch.inf)


def worst(returns: Tensor) -> Tensor:
    """The return of the most pessimistic living particle, ``[B, N]``."""
    return torch.where(returns.isnan(), torch.inf, returns).amin(-1)
