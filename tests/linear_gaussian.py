"""Linear-Gaussian state-space models for the filters of the package, and Kalman's exact answers.

    s_t = A_p s_{t-1} + b a_t + std · ε,    o_t = c · s_t + ε',    s_0 = 0

Each of P members has its own A. The latent z = (h, s) has h_t = A s_{t-1} + b a_t.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from planet_bayes.models import Normal
from planet_bayes.types import Belief

Array = NDArray[np.float64]
Proposal = Callable[[Tensor, Tensor], Normal]
"""From h_t ``[P, B, D]`` and o_t ``[B]`` to q(s_t | h_t, o_t)."""


@dataclass(frozen=True)
class LinearGaussian:
    """A `StateSpace` in float64."""

    transition: Tensor
    """A, ``[P, D, D]``."""
    control: Tensor
    """b, ``[A, D]``."""
    emission: Tensor
    """c, ``[D]``."""
    std: Tensor
    """``[D]``."""
    proposal: Proposal | None = None

    @property
    def num_particles(self) -> int:
        return len(self.transition)

    def initial(self, num: int) -> Belief:
        zeros = torch.zeros(self.num_particles, num, len(self.std), dtype=torch.float64)
        return Belief(zeros, zeros)

    def inputs(self, observation: Tensor, generator: Generator) -> Tensor:
        return observation

    def evolve(self, belief: Belief, action: Tensor) -> Tensor:
        return belief.stoch @ self.transition.mT + action @ self.control

    def prior(self, deter: Tensor) -> Normal:
        return Normal(deter, self.std.expand_as(deter))

    def posterior(self, deter: Tensor, inputs: Tensor) -> Normal:
        assert self.proposal is not None
        return self.proposal(deter, inputs)

    def log_likelihood(self, belief: Belief, inputs: Tensor) -> Tensor:
        predicted = belief.stoch @ self.emission  # [P, B · L]
        seen = inputs.repeat_interleave(predicted.shape[1] // len(inputs))
        return -0.5 * (seen - predicted).square()


def oscillator(*angles: float) -> LinearGaussian:
    """Return damped rotations in the plane, of which one coordinate is seen, with some noise."""
    turns = [[[math.cos(x), -math.sin(x)], [math.sin(x), math.cos(x)]] for x in angles]
    return LinearGaussian(
        0.95 * torch.tensor(turns, dtype=torch.float64),
        control=torch.tensor([[1.0, 0.5]], dtype=torch.float64),
        emission=torch.tensor([2.0, 0.0], dtype=torch.float64),
        std=torch.tensor([0.5, 0.8], dtype=torch.float64),
    )


def scalar(*factors: float) -> LinearGaussian:
    """Return models of one dimension."""
    one = torch.ones(1, 1, dtype=torch.float64)
    transition = torch.tensor(factors, dtype=torch.float64).view(-1, 1, 1)
    return LinearGaussian(transition, 0.7 * one, 1.5 * one[0], 0.6 * one[0])


def simulate(model: LinearGaussian, steps: int, seed: int) -> tuple[Array, Array]:
    """Return actions ``[T, A]`` and observations ``[T]`` of the first member."""
    rng = np.random.default_rng(seed)
    a, b, c, std = parameters(model, 0)
    actions, state, seen = rng.normal(size=(steps, len(b))), np.zeros(len(c)), []
    for action in actions:
        state = a @ state + action @ b + std * rng.normal(size=len(c))
        seen.append(float(c @ state + rng.normal()))
    return actions, np.array(seen)


def parameters(model: LinearGaussian, member: int) -> tuple[Array, Array, Array, Array]:
    tensors = (model.transition[member], model.control, model.emission, model.std)
    first, second, third, fourth = (tensor.numpy() for tensor in tensors)
    return first, second, third, fourth


def kalman(
    model: LinearGaussian, member: int, actions: Array, seen: Array
) -> tuple[Array, Array, float]:
    """Return the exact mean and covariance of s_T given o_{≤T}, and log p(o_{≤T})."""
    a, b, c, std = parameters(model, member)
    mean, covariance, evidence = np.zeros(len(c)), np.zeros((len(c), len(c))), 0.0
    for action, value in zip(actions, seen, strict=True):
        mean, covariance = a @ mean + action @ b, a @ covariance @ a.T + np.diag(std**2)
        variance, surprise = c @ covariance @ c + 1, value - c @ mean
        evidence -= 0.5 * (math.log(2 * math.pi * variance) + surprise**2 / variance)
        gain = covariance @ c / variance
        mean, covariance = mean + gain * surprise, covariance - np.outer(gain, c @ covariance)
    return mean, covariance, evidence


def smoothing(model: LinearGaussian, actions: Array, seen: Array) -> list[LinearGaussian]:
    """Return models of one dimension whose q at step t is the exact p(s_t | s_{t-1}, o_{t:T}).

    The paths that they draw are those of the exact posterior p(s_{≤T} | o_{≤T}).
    """
    factor = model.transition[:, 0, 0]  # [P]
    b, c, variance = float(model.control), float(model.emission), float(model.std) ** 2
    # log p(o_{t:T} | s_t) = -½ precision s_t² + slope s_t + constant
    precision, slope = torch.zeros_like(factor), torch.zeros_like(factor)
    models: list[LinearGaussian] = []
    for step in reversed(range(len(seen))):
        if models:
            move, shrink = b * float(actions[step + 1, 0]), 1 + variance * precision
            precision, slope = precision / shrink, slope / shrink
            slope = factor * (slope - precision * move)
            precision = factor**2 * precision
        precision, slope = precision + c**2, slope + c * float(seen[step])
        models.append(replace(model, proposal=_exact(variance, precision, slope)))
    return models[::-1]


def _exact(variance: float, precision: Tensor, slope: Tensor) -> Proposal:
    def proposal(deter: Tensor, _: Any) -> Normal:
        total = (1 / variance + precision)[:, None, None]
        mean = (deter / variance + slope[:, None, None]) / total
        return Normal(mean, total.rsqrt().expand_as(mean))

    return proposal
