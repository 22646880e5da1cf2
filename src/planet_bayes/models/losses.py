"""The ELBO's terms (Eq. 2), as pure functions. Each returns one value per member and step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from planet_bayes.models import noise
from planet_bayes.models.rssm import Normal


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
