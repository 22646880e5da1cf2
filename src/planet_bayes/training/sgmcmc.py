"""Cyclical stochastic-gradient Hamiltonian Monte Carlo, with Adam's preconditioner.

The target is exp(-N L(θ) / T): L is the loss per step of data plus -log p(θ) / N, N is the number
of steps in the replay and T the temperature. With g = ∇L, the step size η and momentum β (Chen et
al., 2014; the friction is 1 - β), an update is

    v ← β v + (1 - β) (√(2 T G / N) ξ - √η G g)        ξ ~ N(0, 1)
    θ ← θ + √η v

The momentum v has a scale that η does not change, so that it does not carry θ on when η falls to
zero. Without noise this is Adam without a bias correction of v. In each cycle η falls along a
cosine (Zhang et al., 2020, Eq. 1). The first part of a cycle explores: it adds no noise, and
updates the preconditioner G = 1 / (√E[g²] + ε). The second part samples: it adds noise and holds G.
A constant G needs no correction for its derivative.

The noise of minibatches is not subtracted: it adds to the temperature.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from planet_bayes.models.posterior.sgmcmc import GaussianPrior
from planet_bayes.rng import torch_stream
from planet_bayes.training.adam import BETAS, EPSILON, zero_moments

EXPLORING = 0.5
"""Fraction of a cycle that explores."""


@dataclass(frozen=True)
class Phase:
    """Where an update is in its cycle."""

    step_scale: float
    """Step size in units of the largest, from 1 to 0."""
    samples: bool
    """Whether noise is added; else the preconditioner is updated."""
    ends: bool
    """Whether it is the last update of the cycle."""


def phase(number: int, cycle_updates: int) -> Phase:
    """Return where update ``number``, counted from 0, is in its cycle."""
    place = number % cycle_updates
    fraction = place / cycle_updates
    scale = (math.cos(math.pi * fraction) + 1) / 2
    return Phase(scale, fraction >= EXPLORING, place == cycle_updates - 1)


class CyclicalSGHMC:
    """Moves parameters through their posterior. Update ``n`` is a function of the state and ``n``.

    Args:
        priors: The parameters, and the prior of each.
        learning_rate: The largest step size.
        cycle_updates: Updates in a cycle.
        temperature: T.
        seed: Root of the stream of noise.
        state: Moments by parameter, as `Adam` has them: ``exp_avg`` is v, ``exp_avg_sq`` and
            ``step`` give G.
    """

    def __init__(
        self,
        priors: Mapping[nn.Parameter, GaussianPrior],
        learning_rate: float,
        cycle_updates: int,
        temperature: float,
        seed: int,
        state: dict[nn.Parameter, dict[str, Tensor]],
    ) -> None:
        self.priors, self.state = dict(priors), state
        self.learning_rate, self.cycle_updates = learning_rate, cycle_updates
        self.temperature, self.seed = temperature, seed

    def step(self, number: int, num_data: int) -> Phase:
        """Do update ``number`` with the gradients of the loss per step of ``num_data`` steps."""
        now = phase(number, self.cycle_updates)
        device = next(iter(self.priors)).device
        generator = torch_stream(self.seed, "sgmcmc", number, device=device)
        for parameter, prior in self.priors.items():
            if parameter not in self.state:
                self.state[parameter] = zero_moments(parameter)
            self._move(parameter, prior, now, num_data, generator)
        return now

    @torch.no_grad()
    def _move(
        self,
        parameter: nn.Parameter,
        prior: GaussianPrior,
        now: Phase,
        num_data: int,
        generator: Generator,
    ) -> None:
        assert parameter.grad is not None
        state, step_size = self.state[parameter], self.learning_rate * now.step_scale
        gradient = parameter.grad + (parameter - prior.mean) / (prior.std**2 * num_data)
        if not now.samples:
            state["step"] += 1
            state["exp_avg_sq"].lerp_(gradient.square(), 1 - BETAS[1])
        correction = 1 - BETAS[1] ** state["step"].item()
        scale = 1 / ((state["exp_avg_sq"] / correction).sqrt() + EPSILON)
        force = -math.sqrt(step_size) * scale * gradient
        if now.samples:
            variance = 2 * self.temperature / num_data * scale
            noise = torch.randn(parameter.shape, generator=generator, device=generator.device)
            force += variance.sqrt() * noise
        state["exp_avg"].lerp_(force, 1 - BETAS[0])
        parameter.add_(state["exp_avg"], alpha=math.sqrt(step_size))
