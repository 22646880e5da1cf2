"""Optimality: how imagined returns become weights (the paper's W, Eqs. 6 and 16).

An optimality is a function f from returns ``[B, N, P]`` to log f(R), of the same shape, up to a
constant per problem. Returns of -inf must give -inf: these candidates get no weight.

`log_optimality` combines f with the mean over the particles P. The order of the two gives
different algorithms:

- ``before``: W = f(E_P[R]), the heuristic that the paper uses; f sees ``[B, N, 1]``. Another risk
  can replace the mean.
- ``after``: W = E_P[f(R)], as in the derivation; f sees ``[B, N, P]``.

Particles may have weights. Then both means are weighted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from planet_bayes.errors import PlannerError
from planet_bayes.planner._config import PlannerConfig
from planet_bayes.planner._risk import living_weights

NEGLIGIBLE_WEIGHT = 1e-6
"""A particle with less than this fraction of the largest weight is left out of E_P[f(R)]. Else its
returns could set the threshold that no particle of weight reaches."""

Optimality = Callable[[Tensor, PlannerConfig], Tensor]


def log_optimality(
    returns: Tensor,
    values: Tensor,
    config: PlannerConfig,
    optimality: Optimality,
    particle_weights: Tensor | None = None,
) -> Tensor:
    """Return log W, ``[B, N]``, from returns ``[B, N, P]`` and their risk ``[B, N]``.

    With ``particle_weights`` ``[B, P]``, "after" is W = Σ_p w_p f(R_p). The optimality itself,
    for example its threshold, does not see the weights. "before" has them in the risk.
    """
    if particle_weights is not None and config.expectation == "after":
        return _weighted_after(returns, config, optimality, particle_weights)
    if config.expectation == "before":
        inputs = values.unsqueeze(-1)  # [B, N, 1]
    else:
        # With -inf in its place, a dead particle contributes nothing to E_P[f] except a factor
        # that is the same for all candidates.
        inputs = torch.where(returns.isnan(), -torch.inf, returns)  # [B, N, P]
    log_values = _checked(optimality(inputs, config), inputs)
    if log_values.shape[-1] == 1:
        return log_values[..., 0]
    return log_values.logsumexp(-1) - math.log(log_values.shape[-1])


def _weighted_after(
    returns: Tensor, config: PlannerConfig, optimality: Optimality, particle_weights: Tensor
) -> Tensor:
    """Return log Σ_p w_p f(R_p), ``[B, N]``."""
    weights = living_weights(returns, particle_weights)  # [B, P]
    counts = weights > NEGLIGIBLE_WEIGHT * weights.amax(-1, keepdim=True)
    inputs = torch.where(counts.unsqueeze(1), returns, -torch.inf)
    log_values = _checked(optimality(inputs, config), inputs)
    return (log_values + weights.log().unsqueeze(1)).logsumexp(-1)


def _checked(log_values: Tensor, inputs: Tensor) -> Tensor:
    if log_values.shape != inputs.shape:
        raise PlannerError(
            f"optimality: expected log f(R) of the shape of the returns, {tuple(inputs.shape)} "
            f"(B, N, P), got {tuple(log_values.shape)}."
        )
    return log_values


def surely_finite(values: Tensor) -> bool:
    """Return True only if every entry is finite, and only where asking is cheap: on a CPU."""
    return values.device.type == "cpu" and math.isfinite(values.sum())


def _num_elites(flat: Tensor, config: PlannerConfig) -> Tensor:
    """Return how many of the finite values ``[B, X]`` are elite, ``[B, 1]``: at least one.

    ``elite_fraction`` is a fraction of the candidates that were not rejected.
    """
    finite = torch.isfinite(flat).sum(-1, keepdim=True)
    return (config.elite_fraction * finite.double()).round().clamp(min=1)


def threshold(returns: Tensor, config: PlannerConfig) -> Tensor:
    """CEM: f(R) = 1 if R ≥ R_thd else 0, where R_thd is the return of the last elite.

    If more candidates tie with the last elite than there is room for, only those above the tie
    pass: a few candidates that find a rare reward are not outnumbered by all that find none. If
    none is above the tie, all tied candidates pass. In particular, if all returns are equal (no
    reward in sight), every candidate has the same weight, and the proposal becomes narrower only
    because its candidates are clipped to the bounds.
    """
    flat = returns.flatten(1)  # [B, X]
    if surely_finite(flat):  # the usual case, in a third of the operations
        count = max(1, round(config.elite_fraction * flat.shape[1]))
        passed = flat >= flat.topk(count).values[:, -1:]
        if int(passed.sum()) == count * len(flat):  # no ties
            return torch.where(passed, 0.0, -torch.inf).to(flat.dtype).view(returns.shape)
    flat = torch.where(torch.isfinite(flat), flat, -torch.inf)
    counts = _num_elites(flat, config).long()  # [B, 1]
    passed = pass_threshold(flat, counts)
    return passed.to(flat.dtype).log().view(returns.shape)


def pass_threshold(values: Tensor, counts: Tensor) -> Tensor:
    """Return which values ``[..., X]`` are elite, if there is room for ``counts`` ``[..., 1]``.

    Values of -inf never are. Ties with the last elite are treated as in `threshold`.
    """
    ranked = values.sort(-1, descending=True).values
    limit = ranked.gather(-1, (counts - 1).clamp(min=0))  # [..., 1]
    above = values > limit
    reached = (values >= limit) & (values > -torch.inf)
    crowded = reached.sum(-1, keepdim=True) > counts
    return torch.where(crowded & above.any(-1, keepdim=True), above, reached)


def exponential(returns: Tensor, config: PlannerConfig) -> Tensor:
    """MPPI and path-integral control: f(R) = exp(R); λ is the temperature.

    The largest return is subtracted first, so that no offset of the returns overflows.
    """
    return returns - returns.amax((1, 2), keepdim=True)


def proportional(returns: Tensor, config: PlannerConfig) -> Tensor:
    """Proportional CEM: f(R) = R - min R, so that weights are not negative."""
    finite = torch.isfinite(returns)
    least = torch.where(finite, returns, torch.inf).amin((1, 2), keepdim=True)
    excess = torch.where(finite, returns - least, 0.0)
    flat = excess.amax((1, 2), keepdim=True) == 0  # all returns are equal: so are all weights
    log_excess = torch.where(flat, 0.0, excess.log())
    return torch.where(finite, log_excess, -torch.inf)


def rank(returns: Tensor, config: PlannerConfig) -> Tensor:
    """CMA-ES: f = max(0, log(μ + ½) - log(rank)), μ the number of elites.

    Equal returns share their best rank, so that the order of candidates does not matter.
    """
    flat = returns.flatten(1)
    ordered = flat.sort(-1).values
    above = flat.shape[-1] - torch.searchsorted(ordered, flat, right=True)
    finite = torch.isfinite(flat)
    elites = _num_elites(flat, config).to(flat.dtype)
    weights = (torch.log(elites + 0.5) - torch.log1p(above.to(flat.dtype))).clamp(min=0)
    weights = torch.where(finite, weights, 0.0)
    return weights.log().reshape(returns.shape)
