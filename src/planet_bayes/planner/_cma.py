"""CMA-ES as a proposal: a Gaussian whose scale and diagonal covariance have a memory.

The separable form (diagonal covariance), which is linear in the number of dimensions and
learns its variances (n + 2) / 3 times faster than the full one. Step-size control is by
cumulative path length. The weights come from the optimality (rank weights make it CMA-ES).
Two simplifications, since a call has some ten generations: the test that holds the scale's
path when the step path is too long takes its bound as if half the paths' memory were filled,
and the small variance correction for the generations so held is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from planet_bayes.planner._proposals import Gaussian
from planet_bayes.planner._types import ActionNoise, Proposal


@dataclass(frozen=True)
class SeparableCMA:
    """A Gaussian with std = step_size × scale, and the two evolution paths that adapt them."""

    mean: Tensor
    """``[B, 1, H, A]``."""
    scale: Tensor
    """Square root of the diagonal of the covariance matrix, ``[B, 1, H, A]``."""
    step_size: Tensor
    """Global scale, ``[B, 1, 1, 1]``."""
    step_path: Tensor
    """Path of the whitened mean, ``[B, 1, H, A]``; its length drives the step size."""
    scale_path: Tensor
    """Path of the mean, ``[B, 1, H, A]``; it drives the rank-one part of the covariance."""

    @property
    def std(self) -> Tensor:
        """``[B, 1, H, A]``."""
        return self.step_size * self.scale

    @property
    def log_weights(self) -> Tensor:
        """Zeros ``[B, 1]``: there is one component."""
        return self.mean.new_zeros(self.mean.shape[0], 1)

    def sample(self, noise: ActionNoise) -> Tensor:
        """Return ``[B, N, H, A]`` samples, not clipped."""
        return Gaussian(self.mean, self.std).sample(noise)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log density, ``[B, N]``."""
        return Gaussian(self.mean, self.std).log_prob(actions)

    def refit(
        self, actions: Tensor, weights: Tensor, floor: Tensor, weight_floor: float
    ) -> SeparableCMA:
        """Return the proposal after one generation."""
        dims = math.prod(self.mean.shape[2:])
        weight = weights[:, :, None, None]  # [B, N, 1, 1]
        mass = 1 / weights.square().sum(-1)[:, None, None, None]  # μ_eff, [B, 1, 1, 1]
        # The strategy's standard learning rates, functions of n and μ_eff alone.
        step_rate = (mass + 2) / (dims + mass + 5)
        damping = 1 + 2 * (((mass - 1) / (dims + 1)).sqrt() - 1).clamp(min=0) + step_rate
        path_rate = (4 + mass / dims) / (dims + 4 + 2 * mass / dims)
        speed_up = (dims + 2) / 3
        rank_one = (speed_up * 2 / ((dims + 1.3) ** 2 + mass)).clamp(max=1)
        rank_mu = speed_up * 2 * (mass - 2 + 1 / mass) / ((dims + 2) ** 2 + mass)
        rank_mu = torch.minimum(rank_mu.clamp(min=0), 1 - rank_one)
        expected_norm = math.sqrt(dims) * (1 - 1 / (4 * dims) + 1 / (21 * dims**2))

        steps = (actions - self.mean) / self.step_size  # [B, N, H, A]
        mean_step = (weight * steps).sum(1, keepdim=True)  # [B, 1, H, A]
        step_path = (1 - step_rate) * self.step_path + (
            step_rate * (2 - step_rate) * mass
        ).sqrt() * mean_step / self.scale
        norm = step_path.flatten(1).norm(dim=-1)[:, None, None, None]
        # A path that is far too long says that the step size lags: stop feeding the covariance.
        steady = (norm < (1.4 + 2 / (dims + 1)) * expected_norm * 1.5).to(norm.dtype)
        scale_path = (1 - path_rate) * self.scale_path + steady * (
            path_rate * (2 - path_rate) * mass
        ).sqrt() * mean_step
        spread = (weight * steps.square()).sum(1, keepdim=True)
        var = (
            (1 - rank_one - rank_mu) * self.scale.square()
            + rank_one * scale_path.square()
            + rank_mu * spread
        )
        step_size = self.step_size * ((step_rate / damping) * (norm / expected_norm - 1)).exp()
        scale = torch.maximum(var.sqrt(), floor / step_size)
        return SeparableCMA(
            mean=self.mean + self.step_size * mean_step,
            scale=scale,
            step_size=step_size,
            step_path=step_path,
            scale_path=scale_path,
        )


def separable_cma(mean: Tensor, std: Tensor) -> Proposal:
    """Return a fresh strategy with these moments, ``[B, 1, H, A]``, and empty paths."""
    one = mean.new_ones(mean.shape[0], 1, 1, 1)
    zero = torch.zeros_like(mean)
    return SeparableCMA(mean=mean, scale=std, step_size=one, step_path=zero, scale_path=zero)
