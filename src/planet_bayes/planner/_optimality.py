"""Optimality: how imagined returns become weights (the paper's W, Eqs. 6 and 16).

Each function takes returns ``[B, N, P]`` and owns the reduction over the particles P, since
averaging before or after the optimality gives different algorithms:

- ``before``: W = f(E_P[R]), the heuristic that the paper uses;
- ``after``: W = E_P[f(R)], which is what the derivation says.

Each returns log W ``[B, N]``, up to a constant per problem. Candidates that must get no
weight come in as -inf and leave as -inf. A particle that must not count comes in as NaN, for
all candidates of a problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from planet_bayes.planner._types import PlannerConfig

Optimality = Callable[[Tensor, PlannerConfig], Tensor]


def _pooled(returns: Tensor, config: PlannerConfig) -> Tensor:
    """Return what f sees: ``[B, N, 1]`` means, or ``[B, N, P]`` as they are."""
    if config.expectation == "before":
        return returns.nanmean(-1, keepdim=True)
    # With -inf in its place a missing particle adds nothing to E_P[f] but a factor that is
    # the same for all candidates.
    return torch.where(returns.isnan(), -torch.inf, returns)


def _log_mean(log_values: Tensor) -> Tensor:
    """Return log E_P[f], ``[B, N]``, from log f ``[B, N, P]``."""
    return log_values.logsumexp(-1) - math.log(log_values.shape[-1])


def _num_elites(flat: Tensor, config: PlannerConfig) -> Tensor:
    """Return how many of the finite values ``[B, X]`` are elite, ``[B, 1]``: at least one.

    Rejected candidates are not part of the whole that ``elite_fraction`` is a share of.
    """
    finite = torch.isfinite(flat).sum(-1, keepdim=True)
    return (config.elite_fraction * finite.double()).round().clamp(min=1)


def threshold(returns: Tensor, config: PlannerConfig) -> Tensor:
    """CEM: f(R) = 1 if R ≥ R_thd else 0, R_thd being the return of the last elite.

    Where more tie with the last elite than there is room for, only those above them pass:
    a few candidates that find a rare reward are not drowned by all that find none. Where none
    is above them they all pass. In particular, where all returns are equal (no reward in
    sight) every candidate counts the same, and the proposal narrows no more than clipping
    its candidates to the bounds narrows it.
    """
    values = _pooled(returns, config)  # [B, N, 1 or P]
    flat = values.flatten(1)
    counts = _num_elites(flat, config).long()  # [B, 1]
    ordered = flat.sort(-1, descending=True).values
    limit = ordered.gather(-1, counts - 1).unsqueeze(-1)  # [B, 1, 1]
    reached = (values >= limit) & torch.isfinite(values)
    above = values > limit
    crowded = reached.sum((1, 2), keepdim=True) > counts.unsqueeze(-1)
    passed = torch.where(crowded & above.any(-1).any(-1)[:, None, None], above, reached)
    return _log_mean(torch.where(passed, torch.zeros_like(values), -torch.inf))


def exponential(returns: Tensor, config: PlannerConfig) -> Tensor:
    """MPPI and path-integral control: f(R) = exp(R); λ is the temperature.

    The largest return is subtracted first, so nothing overflows whatever the offset.
    """
    values = _pooled(returns, config)
    return _log_mean(values - values.amax((1, 2), keepdim=True))


def proportional(returns: Tensor, config: PlannerConfig) -> Tensor:
    """Proportional CEM: f(R) = R - min R, so that weights are not negative."""
    values = _pooled(returns, config)
    finite = torch.isfinite(values)
    least = torch.where(finite, values, torch.inf).amin((1, 2), keepdim=True)
    excess = torch.where(finite, values - least, 0.0)
    flat = excess.amax((1, 2), keepdim=True) == 0  # all equal: all count the same
    log_values = torch.where(flat, 0.0, excess.log())
    return _log_mean(torch.where(finite, log_values, -torch.inf))


def rank(returns: Tensor, config: PlannerConfig) -> Tensor:
    """CMA-ES: f = max(0, log(μ + ½) - log(rank)), μ the number of elites.

    Equal returns share their best rank, so that the order of candidates does not matter.
    """
    values = _pooled(returns, config)
    flat = values.flatten(1)
    ordered = flat.sort(-1).values
    above = flat.shape[-1] - torch.searchsorted(ordered, flat, right=True)
    finite = torch.isfinite(flat)
    elites = _num_elites(flat, config).to(flat.dtype)
    weights = (torch.log(elites + 0.5) - torch.log1p(above.to(flat.dtype))).clamp(min=0)
    weights = torch.where(finite, weights, 0.0)
    return _log_mean(weights.log().reshape(values.shape))
