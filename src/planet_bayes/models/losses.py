"""The ELBO's terms (Eq. 2), as pure functions. Each returns one value per member and step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from planet_bayes.models import noise
from planet_bayes.models.rssm import Normal

AGGREGATED_STATES = 64
"""States of a batch that stand for its aggregated posterior, at most. The total correlation costs
their square: with 64 an update of the preset `quick` takes an eighth longer."""


def squared_error(target: Tensor, mean: Tensor, event_dims: int) -> Tensor:
    """Return -log N(target; mean, 1) without its constant, summed over the event's axes."""
    error = 0.5 * (target - mean).square()
    return error.sum(tuple(range(-event_dims, 0))) if event_dims else error


def kl_divergence(left: Normal, right: Normal) -> Tensor:
    """Return KL[left || right] of diagonal Gaussians, summed over the last axis."""
    ratio = (left.std / right.std).square()
    distance = ((left.mean - right.mean) / right.std).square()
    return 0.5 * (ratio + distance - 1 - ratio.log()).sum(-1)


def complexity(
    posterior: Normal, prior: Normal, free_nats: float, balance: float | None
) -> tuple[Tensor, Tensor]:
    """Return the KL term as it is trained, and the plain KL, both ``[E, B, T]``.

    ``free_nats`` clips each step from below. With ``balance`` α, the value is the same but
    the gradient is α towards the prior and 1 - α towards the posterior.
    """
    if balance is not None:
        posterior, prior = (
            _with_scaled_gradient(posterior, 1 - balance),
            _with_scaled_gradient(prior, balance),
        )
    plain = kl_divergence(posterior, prior)
    return plain.clamp(min=free_nats), plain.detach()


class _ScaledGradient(torch.autograd.Function):
    """The identity, whose gradient is scaled."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.scale, None


def _with_scaled_gradient(normal: Normal, scale: float) -> Normal:
    return Normal(
        _ScaledGradient.apply(normal.mean, scale), _ScaledGradient.apply(normal.std, scale)
    )


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return each member's mean ``[E]`` over the real entries of ``[E, B, T]``."""
    mask = mask.expand_as(values)
    return (values * mask).sum((1, 2)) / mask.sum((1, 2)).clamp(min=1)


def decoding_error(decoded: Tensor, inputs: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Return each particle's weighted squared error ``[P]`` of ``decoded`` ``[P, F, ...]``.

    ``index`` and ``weight``, ``[P, F]``, select and weight the entry of ``inputs``
    ``[P or 1, N, ...]`` that each must match.
    """
    row = torch.arange(len(decoded), device=index.device).unsqueeze(-1)
    target = inputs[row if inputs.shape[0] > 1 else 0, index]
    return (squared_error(target, decoded, target.ndim - 2) * weight).sum(-1)


def decoded_frames(
    mask: Tensor, members: int, fraction: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Pick the frames that each member decodes.

    Returns flat indices into B · T, ``[E, F]``, and the weight of each frame, ``[E, F]``,
    such that the weighted sum's expectation is the masked mean over all frames.
    """
    total = mask.shape[1] * mask.shape[2]
    flat = mask.flatten(1).expand(members, total)  # [E, B·T]
    weight = flat / flat.sum(-1, keepdim=True).clamp(min=1)
    count = max(1, round(fraction * total))
    if count == total:
        every = torch.arange(total, device=mask.device)
        return every.expand(members, total), weight
    order = (
        noise.uniform((members, *mask.shape[1:]), generator, batch_axis=1).flatten(1).argsort(-1)
    )
    index = order[:, :count]
    return index, weight.gather(-1, index) * (total / count)


def total_correlation(
    stoch: Tensor,
    posterior: Normal,
    mask: Tensor,
    generator: torch.Generator,
    count: int = AGGREGATED_STATES,
) -> Tensor:
    """Return KL[q(s) || Π_d q(s_d)] of each particle in nats, ``[P]``.

    q(s) is the aggregated posterior: the mean of q(s_t | h_t, o_t) over K states that are picked
    from the batch. The estimate takes one sample of each (Chen et al., 2018, with the K states as
    the data). Where the K posteriors hardly overlap it saturates, at most at (S - 1) · log K.
    Then it still pushes each dimension towards posteriors that overlap.

    Args:
        stoch: Samples of the posterior, ``[P, B, T, S]``.
        posterior: The posterior.
        mask: ``[P or 1, B, T]``. Only real entries are picked, if there are enough.
        generator: Picks the states.
        count: K, at most.
    """
    particles, batch, steps, _ = stoch.shape
    real = mask.expand(particles, batch, steps).flatten(1)  # [P, B·T]
    order = noise.uniform((particles, batch, steps), generator, batch_axis=1).flatten(1) - real
    index = order.argsort(-1)[:, :count]  # [P, K], real ones first
    row = torch.arange(particles, device=index.device).unsqueeze(-1)
    sample, mean, std = (
        values.flatten(1, 2)[row, index] for values in (stoch, posterior.mean, posterior.std)
    )  # [P, K, S]
    weight = real.gather(-1, index) / real.gather(-1, index).sum(-1, keepdim=True)
    scaled = (sample.unsqueeze(2) - mean.unsqueeze(1)) / std.unsqueeze(1)
    log_density = -0.5 * scaled.square() - std.log().unsqueeze(1) - 0.5 * math.log(2 * math.pi)
    log_weight = weight.log().unsqueeze(1)  # [P, 1, K]
    joint = (log_density.sum(-1) + log_weight).logsumexp(2)  # [P, K]
    each = (log_density + log_weight.unsqueeze(-1)).logsumexp(2)  # [P, K, S]
    return ((joint - each.sum(-1)) * weight).sum(-1)


def summed(terms: Mapping[str, Tensor]) -> Tensor:
    """Return the sum of terms."""
    first, *rest = terms.values()
    for term in rest:
        first = first + term
    return first
