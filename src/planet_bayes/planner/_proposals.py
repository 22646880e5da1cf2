"""Proposals: a Gaussian and a mixture of Gaussians over action sequences, diagonal.

All mixture arithmetic is in log space: with 12 × 6 dimensions, densities underflow at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from planet_bayes.planner._types import ActionNoise, Proposal

LOG_2PI = math.log(2 * math.pi)


def normal_log_prob(actions: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return the log density ``[B, M, N]`` of ``[B, N, H, A]`` under M diagonal Gaussians.

    Not as an expanded square, although that would be two matrix products: in float32 the
    terms cancel, and at a std of 0.01 the error is a tenth of a nat.
    """
    flat = actions.flatten(2).unsqueeze(1)  # [B, 1, N, D]
    mean, std = mean.flatten(2).unsqueeze(2), std.flatten(2).unsqueeze(2)  # [B, M, 1, D]
    square = ((flat - mean) / std).square().sum(-1)  # [B, M, N]
    log_norm = std.log().sum(-1) + 0.5 * flat.shape[-1] * LOG_2PI
    return -0.5 * square - log_norm


def weighted_moments(actions: Tensor, weights: Tensor, floor: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and floored std ``[B, M, H, A]`` under normalised weights ``[B, M, N]``."""
    batch, _, horizon, dims = actions.shape
    flat = actions.flatten(2)  # [B, N, D]
    mean = weights @ flat  # [B, M, D]
    deviation = flat.unsqueeze(1) - mean.unsqueeze(2)  # [B, M, N, D]
    var = torch.einsum("bmn,bmnd->bmd", weights, deviation.square())
    shape = (batch, weights.shape[1], horizon, dims)
    return mean.reshape(shape), torch.maximum(var.sqrt().reshape(shape), floor)


@dataclass(frozen=True)
class Gaussian:
    """One diagonal Gaussian: the proposal of CEM, MPPI and proportional CEM."""

    mean: Tensor
    """``[B, 1, H, A]``."""
    std: Tensor
    """``[B, 1, H, A]``."""

    @property
    def log_weights(self) -> Tensor:
        """Zeros ``[B, 1]``: there is one component."""
        return self.mean.new_zeros(self.mean.shape[0], 1)

    def sample(self, noise: ActionNoise) -> Tensor:
        """Return ``[B, N, H, A]`` samples, not clipped."""
        return self.mean + self.std * noise.normal

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log density, ``[B, N]``."""
        return normal_log_prob(actions, self.mean, self.std)[:, 0]

    def refit(
        self, actions: Tensor, weights: Tensor, floor: Tensor, weight_floor: float
    ) -> Gaussian:
        """Return the weighted mean and deviation (Algorithm 1, line 14)."""
        return Gaussian(*weighted_moments(actions, weights.unsqueeze(1), floor))


@dataclass(frozen=True)
class Mixture:
    """A mixture of M diagonal Gaussians over whole sequences: the proposal of PaETS (Eq. 17)."""

    mean: Tensor
    """``[B, M, H, A]``."""
    std: Tensor
    """``[B, M, H, A]``."""
    log_weights: Tensor
    """Log of the mixture coefficients π, ``[B, M]``."""

    def sample(self, noise: ActionNoise) -> Tensor:
        """Return ``[B, N, H, A]`` samples; the component is picked by inverting π's CDF."""
        cdf = self.log_weights.exp().cumsum(-1)  # [B, M]
        # Rounding can leave the last entry just below 1, and a draw beyond it would pick a
        # component whatever its weight.
        cdf = cdf / cdf[:, -1:]
        index = (noise.uniform.unsqueeze(-1) >= cdf.unsqueeze(1)).sum(-1)  # [B, N]
        rows = torch.arange(len(index), device=index.device).unsqueeze(-1)
        return self.mean[rows, index] + self.std[rows, index] * noise.normal

    def log_joint(self, actions: Tensor) -> Tensor:
        """Return log π_m + log N(a_k; μ_m, σ_m), ``[B, M, N]``."""
        return self.log_weights.unsqueeze(-1) + normal_log_prob(actions, self.mean, self.std)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log density, ``[B, N]``."""
        return self.log_joint(actions).logsumexp(1)

    def refit(
        self, actions: Tensor, weights: Tensor, floor: Tensor, weight_floor: float
    ) -> Mixture:
        """Return PaETS' update (Eq. 18; in full, appendix Eqs. 20 to 24).

        A component that starves (its share N_m of the weights goes to zero) is not divided
        by zero: ω is normalised in log space, so its mean moves to the weighted candidates
        nearest to it and its std falls to the floor, just as the equations say in exact
        arithmetic, while its mixture weight goes to zero and it is no longer sampled. Where
        even the logarithms say nothing (no weighted candidate has any density under it) it
        keeps its mean and std. ``weight_floor`` above zero keeps each mixture weight at or
        above that share of 1/M, so that a starved component is still sampled. At the next
        control step every component starts again with weight 1/M.
        """
        log_joint = self.log_joint(actions)  # [B, M, N]
        log_resp = log_joint - log_joint.logsumexp(1, keepdim=True)
        log_mass = log_resp + weights.log().unsqueeze(1)  # log(η w), [B, M, N]
        log_share = log_mass.logsumexp(-1)  # log N_m, [B, M]
        alive = torch.isfinite(log_share)
        omega = (log_mass - log_share.unsqueeze(-1)).exp()  # [B, M, N]
        omega = torch.where(alive.unsqueeze(-1), omega, 0.0)
        mean, std = weighted_moments(actions, omega, floor)
        keep = alive[:, :, None, None]
        share = log_share.softmax(-1)
        share = weight_floor / share.shape[-1] + (1 - weight_floor) * share
        return Mixture(
            mean=torch.where(keep, mean, self.mean),
            std=torch.where(keep, std, self.std),
            log_weights=share.log(),
        )


def gaussian(mean: Tensor, std: Tensor) -> Proposal:
    """Return a Gaussian with these moments, ``[B, 1, H, A]``."""
    return Gaussian(mean, std)


def mixture(mean: Tensor, std: Tensor) -> Proposal:
    """Return a mixture with these moments ``[B, M, H, A]`` and equal weights 1/M."""
    weights = mean.new_full(mean.shape[:2], -math.log(mean.shape[1]))
    return Mixture(mean, std, weights)
