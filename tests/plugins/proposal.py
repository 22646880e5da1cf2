"""A proposal family from outside the package: categorical, over a discrete set of actions.

An action is a one-hot vector over A choices, so that candidates are ``[B, N, H, A]`` as usual.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from planet_bayes.planner import Components, PlannerConfig, PlannerError


@dataclass(frozen=True)
class Discrete:
    """An action space of ``num`` choices."""

    num: int


@dataclass(frozen=True)
class ChoiceNoise:
    """Uniform in [0, 1), ``[B, N, H]``: selects the choice by the inverse CDF."""

    uniform: Tensor

    def first(self, num: int) -> ChoiceNoise:
        return ChoiceNoise(self.uniform[:, :num])


@dataclass(frozen=True)
class Categorical:
    """Independent choices at each step."""

    probs: Tensor
    """``[B, H, A]``."""
    floor: float
    """Smallest probability of a choice, as a fraction of 1/A."""

    def draw_noise(self, num: int, generator: Generator) -> ChoiceNoise:
        batch, horizon, _ = self.probs.shape
        return ChoiceNoise(torch.rand(batch, num, horizon, generator=generator))

    def sample(self, noise: ChoiceNoise) -> Tensor:
        cdf = self.probs.cumsum(-1)
        cdf = cdf / cdf[..., -1:]
        index = (noise.uniform.unsqueeze(-1) >= cdf.unsqueeze(1)).sum(-1)  # [B, N, H]
        return self._one_hot(index)

    def log_prob(self, actions: Tensor) -> Tensor:
        return (actions * self.probs.log().unsqueeze(1)).sum((-1, -2))

    def refit(self, actions: Tensor, weights: Tensor) -> Categorical:
        share = torch.einsum("bn,bnha->bha", weights, actions)
        share = self.floor / share.shape[-1] + (1 - self.floor) * share
        return dataclasses.replace(self, probs=share)

    def first_action(self, execute: Literal["sample", "mean"], generator: Generator) -> Tensor:
        if execute == "sample":
            return self.sample(self.draw_noise(1, generator))[:, 0, 0]
        return self.modes()[:, 0, 0]

    def modes(self) -> Tensor:
        return self._one_hot(self.probs.argmax(-1)).unsqueeze(1)

    def width(self) -> Tensor:
        """Mean entropy of the choices, as a fraction of that of equal chances."""
        entropy = -(self.probs * self.probs.log()).sum(-1).mean(-1)
        return entropy / torch.tensor(float(self.probs.shape[-1])).log()

    def shift(self, fresh: Categorical) -> Categorical:
        probs = torch.cat([self.probs[:, 1:], fresh.probs[:, -1:]], 1)
        # Between the old plan and equal chances: a step that has been decided stays open.
        return dataclasses.replace(fresh, probs=0.5 * probs + 0.5 * fresh.probs)

    def components(self) -> Components:
        mean = self.probs.unsqueeze(1)  # [B, 1, H, A]
        return Components(mean.new_ones(len(mean), 1), mean, (mean * (1 - mean)).sqrt())

    def _one_hot(self, index: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(index, self.probs.shape[-1]).to(self.probs.dtype)


@dataclass(frozen=True)
class CategoricalFamily:
    """Begins with equal chances, or with the previous proposal, shifted."""

    floor: float = 0.05
    max_components = 1

    def start(
        self,
        bounds: Discrete,
        config: PlannerConfig,
        generator: Generator,
        previous: Any,
        batch_size: int,
    ) -> Categorical:
        shape = (batch_size, config.horizon, bounds.num)
        fresh = Categorical(torch.full(shape, 1 / bounds.num), self.floor)
        if previous is None or not config.warm_start:
            return fresh
        if not isinstance(previous, Categorical) or previous.probs.shape != shape:
            raise PlannerError(f"previous: expected a categorical proposal of shape {shape}.")
        return previous.shift(fresh)
