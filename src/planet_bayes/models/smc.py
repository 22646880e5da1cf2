"""Sequential Monte Carlo: weights and resampling of particles, as pure functions of log densities.

The last axis holds the particles of one distribution, L of them. A weight that is not finite is
taken for zero, so that a broken particle never counts.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

RESAMPLE_BELOW = 0.5
"""Particles are resampled when their effective number falls below this fraction of L."""


def update(log_weights: Tensor, log_increment: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply normalised weights ``[..., L]`` by an increment and normalise them again.

    In Eq. 13 the increment of a step is p(s | h) / q(s | h, o) · p(o | h, s), with s drawn from q.
    If q is the prior (a bootstrap filter), p(o | h, s) remains.

    Returns the new log weights, and log Σ w · increment ``[...]``: the estimate of
    log p(o_t | o_{<t}). If all weights vanish, the new ones are equal and the estimate is -inf.
    """
    joint = _finite(log_weights + log_increment)
    return normalised(joint), joint.logsumexp(-1)


def normalised(log_weights: Tensor) -> Tensor:
    """Return log weights ``[..., L]`` whose weights sum to 1; equal ones if all are zero."""
    clean = _finite(log_weights)
    total = clean.logsumexp(-1, keepdim=True)
    return torch.where(torch.isfinite(total), clean - total, -math.log(clean.shape[-1]))


def effective_number(log_weights: Tensor) -> Tensor:
    """Return 1 / Σ w², ``[...]``: between 1 and L. The weights need not be normalised."""
    return torch.exp(-(2 * normalised(log_weights)).logsumexp(-1))


def systematic(log_weights: Tensor, uniform: Tensor) -> Tensor:
    """Return the indices ``[..., L]`` of systematic resampling, in ascending order.

    ``uniform`` ``[...]``, in [0, 1), is the one random number of each set. A particle of weight w
    is taken ⌊L w⌋ or ⌈L w⌉ times, and L w times in expectation.
    """
    num = log_weights.shape[-1]
    steps = torch.arange(num, dtype=torch.float64, device=uniform.device)
    return _at_quantiles(log_weights, (uniform.double().unsqueeze(-1) + steps) / num)


def draw(log_weights: Tensor, uniform: Tensor) -> Tensor:
    """Return the index ``[...]`` of one particle, drawn by weight with ``uniform`` in [0, 1)."""
    return _at_quantiles(log_weights, uniform.double().unsqueeze(-1)).squeeze(-1)


def resampled(log_weights: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Resample the sets ``[..., L]`` whose effective number is below half of L.

    Returns the index ``[..., L]`` of the particle that takes each place, and the new log weights.
    The weights need not be normalised: a resampled set shares its total equally, so that sets keep
    their weights relative to each other.
    """
    num = log_weights.shape[-1]
    low = (effective_number(log_weights) < RESAMPLE_BELOW * num).unsqueeze(-1)
    kept = torch.arange(num, device=log_weights.device)
    index = torch.where(low, systematic(log_weights, uniform), kept)
    level = _finite(log_weights).logsumexp(-1, keepdim=True) - math.log(num)
    return index, torch.where(low, level, log_weights)


def _at_quantiles(log_weights: Tensor, quantiles: Tensor) -> Tensor:
    """Return the indices ``[..., K]`` of the particles at ``quantiles`` ``[..., K]`` in [0, 1].

    A quantile that rounding has raised to 1 takes the last particle that has a weight.
    """
    cumulative = normalised(log_weights).double().exp().cumsum(-1)
    cumulative = cumulative / cumulative[..., -1:]  # the last is exactly 1, above every quantile
    below = quantiles.clamp(max=math.nextafter(1.0, 0.0))
    return torch.searchsorted(cumulative, below.contiguous(), right=True)


def _finite(log_weights: Tensor) -> Tensor:
    return torch.where(torch.isfinite(log_weights), log_weights, -torch.inf)
