"""Images on CPUs, a few frames at a time: the frames stay in cache and memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from planet_bayes.models.layers import ImageEncoder
from planet_bayes.models.losses import squared_error

CACHED_NUMBERS = 3_200_000
"""Numbers in the largest layer's output of the frames that are processed together."""


def chunk_size(pixels: int, depth: int) -> int:
    """Return how many images of ``pixels``×``pixels`` to process together."""
    return max(1, CACHED_NUMBERS // ((pixels // 2) ** 2 * depth))


def encode_frames(encoder: ImageEncoder, frames: Tensor, size: int) -> Tensor:
    """Return the embeddings of ``[N, 3, S, S]``, encoded ``size`` frames at a time.

    The outputs of the stem are the largest and the cheapest to compute: they are not kept for
    the backward pass but computed again.
    """
    stem, rest = encoder.stem, encoder.rest

    def encode(images: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return encoder(images)
        return rest(checkpoint(stem, images, use_reentrant=False, preserve_rng_state=False))

    return torch.cat([encode(frames[part]) for part in parts(len(frames), size)])


def decoding_error(
    decoder: nn.Module, features: Tensor, frames: Tensor, index: Tensor, weight: Tensor, size: int
) -> Tensor:
    """Return each member's weighted squared error ``[E]`` of its decoded frames.

    ``features`` is ``[E, F, X]``; ``index`` and ``weight`` ``[E, F]`` select and weight the frame
    that each must match, out of ``frames`` ``[E or 1, N, 3, S, S]``. The result is only an error,
    so gradients are computed together with it, ``size`` frames at a time, and decoded frames are
    freed before the next ones are made.
    """
    parameters = [weight for weight in decoder.parameters() if weight.requires_grad]
    if torch.is_grad_enabled() and (features.requires_grad or parameters):
        return _DecodingError.apply(decoder, features, frames, index, weight, size, *parameters)
    errors = weight.new_zeros(len(features))
    for member in range(len(features)):
        for part, target in _targets(frames, index, member, size):
            error = _chunk_error(decoder, features[member, part], target, weight[member, part])
            errors[member] += error
    return errors


class _DecodingError(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        decoder: nn.Module,
        features: Tensor,
        frames: Tensor,
        index: Tensor,
        weight: Tensor,
        size: int,
        *parameters: Tensor,
    ) -> Tensor:
        errors = weight.new_zeros(len(features))
        at_features = torch.empty_like(features)
        at_parameters: list[list[Tensor]] = []  # by member: their errors may have different weights
        for member in range(len(features)):
            sums: list[Tensor] = []
            for part, target in _targets(frames, index, member, size):
                inputs = features[member, part].detach().requires_grad_()
                with torch.enable_grad():
                    error = _chunk_error(decoder, inputs, target, weight[member, part])
                first, *rest = torch.autograd.grad(error, [inputs, *parameters])
                at_features[member, part] = first
                sums = [a.add_(b) for a, b in zip(sums, rest, strict=True)] if sums else rest
                errors[member] += error.detach()
            at_parameters.append(sums)
        ctx.save_for_backward(at_features, *(tensor for sums in at_parameters for tensor in sums))
        return errors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        at_features, *flat = ctx.saved_tensors
        count = len(flat) // len(at_features)
        sums = []
        for parameter in range(count):
            by_member = flat[parameter::count]
            total = gradient[0] * by_member[0]
            for g, tensor in zip(gradient[1:], by_member[1:], strict=True):
                total.add_(g * tensor)
            sums.append(total)
        return (None, at_features * gradient[:, None, None], None, None, None, None, *sums)


def _chunk_error(decoder: nn.Module, features: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    return (squared_error(target, decoder(features), 3) * weight).sum()


def _targets(
    frames: Tensor, index: Tensor, member: int, size: int
) -> Iterator[tuple[slice, Tensor]]:
    """Yield parts of a member's decoded frames, and the images that they must match."""
    own = frames[member if len(frames) > 1 else 0].movedim(-3, -1)  # as they lie in memory
    for part in parts(index.shape[1], size):
        yield part, own.index_select(0, index[member, part]).movedim(-1, -3)


def parts(total: int, size: int) -> Iterator[slice]:
    """Yield slices of at most ``size`` that cover ``total``, of nearly equal lengths."""
    count = -(-total // size)
    for number in range(count):
        yield slice(total * number // count, total * (number + 1) // count)
