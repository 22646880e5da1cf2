"""The random numbers of the Gaussian families."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor


@dataclass(frozen=True)
class ActionNoise:
    """The noise of one iteration, drawn before sampling so that sampling is a pure function."""

    normal: Tensor
    """Standard normal, ``[B, N, H, A]``."""
    uniform: Tensor
    """Uniform in [0, 1), ``[B, N]``: selects the mixture component."""

    @staticmethod
    def draw(shape: tuple[int, int, int, int], like: Tensor, generator: Generator) -> ActionNoise:
        """Draw noise for ``[B, N, H, A]`` samples with the device and dtype of ``like``."""
        options = {"device": like.device, "dtype": like.dtype}
        normal = torch.randn(shape, generator=generator, **options)  # type: ignore[call-overload]
        uniform = torch.rand(shape[:2], generator=generator, **options)  # type: ignore[call-overload]
        return ActionNoise(normal, uniform)

    def first(self, num: int) -> ActionNoise:
        """Return the noise of the first ``num`` candidates."""
        return ActionNoise(self.normal[:, :num], self.uniform[:, :num])
