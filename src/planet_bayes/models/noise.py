"""Noise of the sequences of a batch, also where each process has a part of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor


class PartGenerator(Generator):
    """A generator for one of the equal parts that a batch is divided into.

    `uniform` and `normal` draw the noise of the whole batch from it and return that of the part. So
    every part has the noise that it has in the whole batch, and all generators stay in step.
    """

    part: int = 0
    """Number of the part."""
    num_parts: int = 1
    """Parts of the batch."""

    @classmethod
    def of(cls, generator: Generator, part: int, num_parts: int) -> PartGenerator:
        """Return a generator with the state of ``generator``."""
        new = cls(device=generator.device)
        new.set_state(generator.get_state())
        new.part, new.num_parts = part, num_parts
        return new


def uniform(shape: Sequence[int], generator: Generator, batch_axis: int) -> Tensor:
    """Return uniform noise in [0, 1). ``batch_axis`` is the axis of the batch in ``shape``."""
    return _draw(torch.rand, shape, generator, batch_axis)


def normal(shape: Sequence[int], generator: Generator, batch_axis: int) -> Tensor:
    """Return standard normal noise. ``batch_axis`` is the axis of the batch in ``shape``."""
    return _draw(torch.randn, shape, generator, batch_axis)


def _draw(
    draw: Callable[..., Tensor], shape: Sequence[int], generator: Generator, batch_axis: int
) -> Tensor:
    if not isinstance(generator, PartGenerator):
        return draw(shape, generator=generator, device=generator.device)
    whole, size = list(shape), shape[batch_axis]
    whole[batch_axis] *= generator.num_parts
    noise = draw(whole, generator=generator, device=generator.device)
    return noise.narrow(batch_axis, generator.part * size, size).contiguous()
