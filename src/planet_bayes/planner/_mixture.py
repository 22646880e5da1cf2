"""A mixture of diagonal Gaussians over action sequences.

All mixture arithmetic is in log space: with 12 × 6 dimensions, densities underflow immediately.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from planet_bayes.planner._contract import Components, Proposal
from planet_bayes.planner._gaussian import (
    GaussianFamily,
    components_at,
    draw_noise,
    mixture_log_joint,
    relative_width,
    shifted,
    weighted_moments,
)
from planet_bayes.planner._noise import ActionNoise
from planet_bayes.planner._spaces import Bounds


@dataclass(frozen=True)
class Mixture:
    """A mixture of M diagonal Gaussians over whole sequences: the proposal of PaETS (Eq. 17)."""

    mean: Tensor
    """``[B, M, H, A]``."""
    std: Tensor
    """``[B, M, H, A]``."""
    log_weights: Tensor
    """Log of the mixture weights π, ``[B, M]``."""
    bounds: Bounds
    """The action space; samples are clipped to it."""
    floor: Tensor
    """Lower limit of the refitted std, ``[A]``."""

    def draw_noise(self, num: int, generator: Generator) -> ActionNoise:
        """Draw the noise of ``num`` samples per problem."""
        return draw_noise(self.mean, num, generator)

    def sample(self, noise: ActionNoise) -> Tensor:
        """Return clipped ``[B, N, H, A]`` samples; π's inverse CDF selects the component."""
        batch, num = self.log_weights.shape
        index = components_at(self.log_weights.exp(), noise.uniform)  # [B, N]
        if batch > 1:
            index = index + torch.arange(0, batch * num, num, device=index.device).unsqueeze(-1)
        index, shape = index.flatten(), noise.normal.shape
        mean = self.mean.flatten(0, 1).index_select(0, index).view(shape)
        std = self.std.flatten(0, 1).index_select(0, index).view(shape)
        return self.bounds.clip(torch.addcmul(mean, std, noise.normal))

    def log_joint(self, actions: Tensor) -> Tensor:
        """Return log π_m + log N(a_k; μ_m, σ_m), ``[B, M, N]``."""
        return mixture_log_joint(actions, self.log_weights, self.mean, self.std)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log density before clipping, ``[B, N]``."""
        return self.log_joint(actions).logsumexp(1)

    def refit(self, actions: Tensor, weights: Tensor) -> Mixture:
        """Return PaETS' update (Eq. 18; in full, appendix Eqs. 20 to 24).

        A component starves when its share N_m of the weights goes to zero. Nothing is divided by
        zero then: ω is normalised in log space, so the mean moves to the nearest weighted
        candidates and the std falls to the floor, as the equations say in exact arithmetic. The
        mixture weight goes to zero and the component is no longer sampled. If no weighted
        candidate has any density under the component, even in log space, it keeps its mean and
        std. At the next control step every component starts again with weight 1/M.
        """
        log_resp = self.log_joint(actions).log_softmax(1)  # log η, [B, M, N]
        log_mass = log_resp + weights.log().unsqueeze(1)  # log(η w), [B, M, N]
        log_share = log_mass.logsumexp(-1)  # log N_m, [B, M]
        alive = (log_share > -torch.inf)[..., None]  # [B, M, 1]
        omega = torch.where(alive, log_mass.softmax(-1), 0.0)  # [B, M, N]
        mean, std = weighted_moments(actions, omega, self.floor)
        alive = alive.unsqueeze(-1)
        return dataclasses.replace(
            self,
            mean=torch.where(alive, mean, self.mean),
            std=torch.where(alive, std, self.std),
            log_weights=log_share.softmax(-1).log(),
        )

    def first_action(self, execute: Literal["sample", "mean"], generator: Generator) -> Tensor:
        """Return the first action of a sample or of the heaviest component's mean, ``[B, A]``."""
        if execute == "sample":
            return self.sample(self.draw_noise(1, generator))[:, 0, 0]
        heaviest = self.log_weights.argmax(-1)  # [B]
        return self.modes()[torch.arange(len(heaviest), device=heaviest.device), heaviest, 0]

    def modes(self) -> Tensor:
        """Return the means, clipped, ``[B, M, H, A]``."""
        return self.bounds.clip(self.mean)

    def width(self) -> Tensor:
        """Return the root mean square of the stds in units of half the action range, ``[B]``."""
        return relative_width(self.components(), self.bounds)

    def shift(self, fresh: Any) -> Proposal:
        """Return ``fresh`` with these means, shifted by one step."""
        return shifted(self.mean, fresh)

    def components(self) -> Components:
        """Return the weight, mean and std of each component."""
        return Components(self.log_weights.exp(), self.mean, self.std)


def equal_mixture(mean: Tensor, std: Tensor, bounds: Bounds, floor: Tensor) -> Mixture:
    """Return a mixture with these moments ``[B, M, H, A]`` and equal weights 1/M."""
    log_weights = mean.new_full(mean.shape[:2], -math.log(mean.shape[1]))
    return Mixture(mean, std, log_weights, bounds, floor)


MIXTURE = GaussianFamily(make=equal_mixture, max_components=None)
