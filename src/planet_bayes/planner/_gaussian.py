"""One diagonal Gaussian over action sequences, and the parts that all Gaussian families share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from planet_bayes.errors import PlannerError
from planet_bayes.planner._config import PlannerConfig
from planet_bayes.planner._contract import Components, Proposal
from planet_bayes.planner._noise import ActionNoise
from planet_bayes.planner._spaces import Bounds

LOG_2PI = math.log(2 * math.pi)


def normal_log_prob(actions: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return the log density ``[B, M, N]`` of ``[B, N, H, A]`` under M diagonal Gaussians.

    The square is not expanded, although that would be two matrix products: in float32 the terms
    cancel, and at a std of 0.01 the error is a tenth of a nat.
    """
    flat = actions.flatten(2).unsqueeze(1)  # [B, 1, N, D]
    mean, std = mean.flatten(2).unsqueeze(2), std.flatten(2).unsqueeze(2)  # [B, M, 1, D]
    square = (flat - mean).div_(std).square_().sum(-1)  # [B, M, N]
    log_norm = std.log().sum(-1) + 0.5 * flat.shape[-1] * LOG_2PI
    return -0.5 * square - log_norm


def mixture_log_joint(actions: Tensor, log_weights: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return log π_m + log N(a_k; μ_m, σ_m), ``[B, M, N]``, from log π ``[B, M]``."""
    return log_weights.unsqueeze(-1) + normal_log_prob(actions, mean, std)


def components_at(weights: Tensor, levels: Tensor) -> Tensor:
    """Return the component ``[B, N]`` at each level in [0, 1) of the CDF of weights ``[B, M]``."""
    cdf = weights.cumsum(-1)
    # Rounding can leave the last entry just below 1. A level above it would select a component
    # regardless of its weight.
    cdf = cdf / cdf[:, -1:]
    index = torch.searchsorted(cdf, levels.contiguous(), right=True)
    return index.clamp_(max=weights.shape[1] - 1)  # if all weights are NaN


def weighted_moments(actions: Tensor, weights: Tensor, floor: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and floored std ``[B, M, H, A]`` under normalised weights ``[B, M, N]``."""
    batch, _, horizon, dims = actions.shape
    flat = actions.flatten(2)  # [B, N, D]
    mean = weights @ flat  # [B, M, D]
    deviation = flat.unsqueeze(1) - mean.unsqueeze(2)  # [B, M, N, D]
    var = weights.unsqueeze(2) @ deviation.square_()  # [B, M, 1, D]
    shape = (batch, weights.shape[1], horizon, dims)
    return mean.reshape(shape), torch.maximum(var.sqrt().reshape(shape), floor)


def draw_noise(mean: Tensor, num: int, generator: Generator) -> ActionNoise:
    """Draw the noise of ``num`` samples per problem around ``mean`` ``[B, M, H, A]``."""
    batch, _, horizon, dims = mean.shape
    return ActionNoise.draw((batch, num, horizon, dims), mean, generator)


def relative_width(components: Components, bounds: Bounds) -> Tensor:
    """Return the root mean square of the stds, ``[B]``, in units of half the action range.

    The mean is over steps, action dimensions and, by mixture weight, components: a starved
    component does not count. Nor do the distances between components, so that a mixture of two
    narrow plans is narrow.
    """
    var = (components.std / bounds.half_range).square().mean((-1, -2))  # [B, M]
    return (components.weight * var).sum(-1).sqrt()


def shifted(mean: Tensor, fresh: Any) -> Proposal:
    """Return ``fresh`` with the means ``[B, M, H, A]`` shifted by one step.

    Only the means carry over to the next control step. The std begins again at ``initial_std``,
    mixture weights at 1/M, and the step that enters at the end of the horizon is that of
    ``fresh``.
    """
    mean = torch.cat([mean[:, :, 1:], fresh.mean[:, :, -1:]], dim=2)
    return dataclasses.replace(fresh, mean=fresh.bounds.clip(mean))


@dataclass(frozen=True)
class Gaussian:
    """One diagonal Gaussian: the proposal of CEM, MPPI and proportional CEM."""

    mean: Tensor
    """``[B, 1, H, A]``."""
    std: Tensor
    """``[B, 1, H, A]``."""
    bounds: Bounds
    """The action space; samples are clipped to it."""
    floor: Tensor
    """Lower limit of the refitted std, ``[A]``."""

    @property
    def log_weights(self) -> Tensor:
        """Zeros ``[B, 1]``: there is one component."""
        return self.mean.new_zeros(self.mean.shape[0], 1)

    def draw_noise(self, num: int, generator: Generator) -> ActionNoise:
        """Draw the noise of ``num`` samples per problem."""
        return draw_noise(self.mean, num, generator)

    def sample(self, noise: ActionNoise) -> Tensor:
        """Return ``[B, N, H, A]`` samples, clipped to the bounds."""
        return self.bounds.clip(self.mean + self.std * noise.normal)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log density before clipping, ``[B, N]``."""
        return normal_log_prob(actions, self.mean, self.std)[:, 0]

    def refit(self, actions: Tensor, weights: Tensor) -> Gaussian:
        """Return the weighted mean and deviation (Algorithm 1, line 14)."""
        mean, std = weighted_moments(actions, weights.unsqueeze(1), self.floor)
        return dataclasses.replace(self, mean=mean, std=std)

    def first_action(self, execute: Literal["sample", "mean"], generator: Generator) -> Tensor:
        """Return the first action of a sample or of the mean, ``[B, A]``."""
        if execute == "sample":
            return self.sample(self.draw_noise(1, generator))[:, 0, 0]
        return self.modes()[:, 0, 0]

    def modes(self) -> Tensor:
        """Return the mean, clipped, ``[B, 1, H, A]``."""
        return self.bounds.clip(self.mean)

    def width(self) -> Tensor:
        """Return the root mean square of the std in units of half the action range, ``[B]``."""
        return relative_width(self.components(), self.bounds)

    def shift(self, fresh: Any) -> Proposal:
        """Return ``fresh`` with this mean, shifted by one step."""
        return shifted(self.mean, fresh)

    def components(self) -> Components:
        """Return the one component, of weight 1."""
        return Components(self.log_weights.exp(), self.mean, self.std)


@dataclass(frozen=True)
class GaussianFamily:
    """A family whose start is given by means and stds in a box.

    The means begin an episode at the middle of the range; the paper does not say where. All
    components except the first have a random offset of ``spread``. With a warm start, the new
    last step of the horizon begins in the same way.
    """

    make: Callable[[Tensor, Tensor, Bounds, Tensor], Any]
    """From mean and std ``[B, M, H, A]``, the bounds and the floor of the std ``[A]`` to a
    proposal."""
    max_components: int | None
    """Largest ``num_components``; None: no limit."""

    def start(
        self,
        bounds: Bounds,
        config: PlannerConfig,
        generator: Generator,
        previous: Any,
        batch_size: int,
    ) -> Proposal:
        """Return the proposal that a control step begins with (Algorithm 2, line 7)."""
        unit = bounds.half_range
        shape = (batch_size, config.num_components, config.horizon, len(unit))
        offset = torch.randn(shape, generator=generator, device=unit.device, dtype=unit.dtype)
        offset[:, 0] = 0
        mean = bounds.clip(bounds.centre + offset * config.spread * unit)
        std = (config.initial_std * unit).expand(shape).contiguous()
        fresh = self.make(mean, std, bounds, config.min_std * unit)
        if previous is None or not config.warm_start:
            return fresh
        found = tuple(previous.mean.shape) if hasattr(previous, "mean") else None
        if found != shape:
            raise PlannerError(
                f"previous: expected a Gaussian proposal of shape {shape} (B, M, H, A), got "
                f"{found or type(previous).__name__}; omit it when the settings change."
            )
        return previous.shift(fresh)


GAUSSIAN = GaussianFamily(make=Gaussian, max_components=1)
