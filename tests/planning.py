"""Models with known returns, and a way to feed the planner noise of the test's choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from planet_bayes.planner import (
    FAMILIES,
    ActionNoise,
    Bounds,
    Diagnostics,
    Gaussian,
    Mixture,
    PlannerConfig,
    PlanResult,
    Portfolio,
    Proposal,
    SeparableCMA,
    plan,
)
from planet_bayes.planner._cma import separable_cma

DOUBLE = torch.float64
NAN, INF = float("nan"), float("inf")


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


# --- Models -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A bandit: the n-th candidate gets the n-th row of returns, whatever its actions."""

    returns: Tensor
    """``[N, P]``, or ``[B, N, P]``."""

    def imagine(self, state: object, actions: Tensor, generator: Generator) -> Tensor:
        batch, _, horizon, _ = actions.shape
        returns = self.returns.to(actions.dtype).expand(batch, -1, -1)
        # The whole return comes with the last step, so that sums over steps are exact.
        rewards = returns.new_zeros(*returns.shape, horizon)
        rewards[..., -1] = returns
        return rewards


@dataclass(frozen=True)
class Quadratic:
    """Reward -|a_t - goal|² at each step, one particle; ``goal`` broadcasts to ``[B, 1, H, A]``."""

    goal: Tensor

    def imagine(self, state: object, actions: Tensor, generator: Generator) -> Tensor:
        return -(actions - self.goal).square().sum(-1).unsqueeze(2)


@dataclass(frozen=True)
class Recorder:
    """Keeps the candidates of each iteration; all are equally good."""

    seen: list[Tensor]

    def imagine(self, state: object, actions: Tensor, generator: Generator) -> Tensor:
        self.seen.append(actions)
        return actions.new_zeros(*actions.shape[:2], 1, actions.shape[2])


def goals(particles: int) -> np.ndarray:
    """Where each particle wants a point that the actions push about, ``[P, A]``."""
    angle = np.arange(particles) * 2.4
    return np.stack([1.2 * np.cos(angle), 0.4 + 0.9 * np.sin(angle)], axis=-1)


@dataclass(frozen=True)
class PointMass:
    """A damped, bent point mass; each particle has its goal and damping."""

    particles: int

    def imagine(self, state: object, actions: Tensor, generator: Generator) -> Tensor:
        target = torch.tensor(goals(self.particles), dtype=actions.dtype)  # [P, A]
        damping = 0.8 + 0.03 * torch.arange(self.particles, dtype=actions.dtype)[:, None]
        point = torch.zeros((), dtype=actions.dtype)
        rewards = []
        for action in actions.unbind(2):
            action = action.unsqueeze(2)  # [B, N, 1, A]
            point = torch.tanh(damping * point + 0.7 * action)  # [B, N, P, A]
            distance = (point - target).square().sum(-1)
            effort = action.abs().pow(3).sum(-1)
            rewards.append(
                2 * torch.exp(-distance) - 0.1 * effort + 0.3 * torch.sin(5 * point[..., 0])
            )
        return torch.stack(rewards, -1)


# --- Proposals and noise ----------------------------------------------------------------------


def built_in(proposal: Proposal | None) -> Gaussian | Mixture | SeparableCMA | Portfolio:
    """Return the same proposal, of a family that has ``mean``, ``std`` and ``log_weights``."""
    assert isinstance(proposal, Gaussian | Mixture | SeparableCMA | Portfolio)
    return proposal


def wide_bounds(dims: int = 1, limit: float = 100.0) -> Bounds:
    high = torch.full((dims,), limit, dtype=DOUBLE)
    return Bounds(-high, high)


def _space(mean: Tensor) -> tuple[Bounds, Tensor]:
    """Bounds that do not matter, and no floor of the std."""
    high = mean.new_full((mean.shape[-1],), 1e6)
    return Bounds(-high, high), torch.zeros_like(high)


def gaussian(mean: Tensor, std: Tensor) -> Gaussian:
    return Gaussian(mean, std, *_space(mean))


def mixture(mean: Tensor, std: Tensor, log_weights: Tensor) -> Mixture:
    return Mixture(mean, std, log_weights, *_space(mean))


def cma(mean: Tensor, std: Tensor) -> SeparableCMA:
    return separable_cma(mean, std, *_space(mean))


def unit_gaussian(horizon: int = 1, dims: int = 1, batch: int = 1) -> Gaussian:
    mean = torch.zeros(batch, 1, horizon, dims, dtype=DOUBLE)
    return gaussian(mean, torch.ones_like(mean))


def start(
    bounds: Bounds, config: PlannerConfig, generator: Generator, previous: Any, batch_size: int
) -> Any:
    """Return the proposal that the family in the settings begins with."""
    return FAMILIES[config.proposal].start(bounds, config, generator, previous, batch_size)


def draw_noises(
    rounds: int, batch: int, num: int, horizon: int, dims: int, seed: int
) -> list[ActionNoise]:
    like, generator = torch.zeros((), dtype=DOUBLE), seeded(seed)
    return [ActionNoise.draw((batch, num, horizon, dims), like, generator) for _ in range(rounds)]


@dataclass(frozen=True)
class Scripted:
    """A proposal that draws the given noise, one element per iteration."""

    inner: Any
    noises: list[ActionNoise]

    def draw_noise(self, num: int, generator: Generator) -> ActionNoise:
        return self.noises[0]

    def refit(self, actions: Tensor, weights: Tensor) -> Scripted:
        return Scripted(self.inner.refit(actions, weights), self.noises[1:])

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name in ("refit_values", "refit_returns"):
            return lambda *refit: Scripted(found(*refit), self.noises[1:])
        return found


@dataclass(frozen=True)
class Script:
    """A family that begins with a given proposal and draws given noise."""

    begin: Scripted
    max_components = None

    def start(self, *args: Any) -> Scripted:
        return self.begin


def optimise(
    model: Any, begin: Any, noises: Iterable[ActionNoise], bounds: Bounds, config: PlannerConfig
) -> tuple[Any, Diagnostics]:
    """Plan from ``begin``, one iteration per element of ``noises``."""
    noises = list(noises)
    batch, num = noises[0].uniform.shape
    config = dataclasses.replace(config, num_iterations=len(noises), num_trajectories=num)
    begin = dataclasses.replace(begin, bounds=bounds, floor=config.min_std * bounds.half_range)
    family = Script(Scripted(begin, noises))
    result = plan(model, None, bounds, config, seeded(), batch_size=batch, proposal=family)
    assert isinstance(result.proposal, Scripted)
    assert not result.proposal.noises
    return result.proposal.inner, result.diagnostics


def bandit_weights(returns: list[list[float]], config: PlannerConfig) -> list[float]:
    """Weights of the candidates after one iteration with these returns ``[N][P]``."""
    table = torch.tensor(returns, dtype=DOUBLE)
    noise = draw_noises(1, 1, len(returns), 1, 1, seed=0)
    seen = optimise(Table(table), unit_gaussian(), noise, wide_bounds(), config)[1]
    return seen.weights[0].tolist()


def outputs(result: PlanResult) -> Tensor:
    """All outputs of plan() that a setting could change, as one vector."""
    components = result.proposal.components()
    parts = [result.action, *vars(components).values(), result.diagnostics.weights]
    return torch.cat([part.flatten() for part in parts])
