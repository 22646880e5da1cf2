"""The posterior over the weights of the dynamics: where the weights of P particles come from.

The paper approximates it by an ensemble: E networks, each with its own parameters (Section
III-A). Other approximations (dropout masks, SG-MCMC snapshots) are other classes with the same
interface; register them in `POSTERIORS` and name them in ``model.posterior``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol, cast

import torch
from torch import Generator, Tensor, nn

from planet_bayes.models.config import ModelConfig
from planet_bayes.models.rssm import Dense, LayerShape, Weights


class Posterior(Protocol):
    """A module whose parameters determine the weights of P particles."""

    @property
    def num_particles(self) -> int:
        """P."""
        ...

    def weights(self) -> Weights:
        """Return the weights of all particles, each ``[P, ...]``."""
        ...

    def particle_parameters(self) -> list[nn.Parameter]:
        """Return the parameters with a leading axis P, of which each particle owns one entry.

        Their gradients are clipped particle by particle.
        """
        ...


PosteriorFactory = Callable[[Mapping[str, LayerShape], ModelConfig, Generator], nn.Module]
"""Makes a posterior for layers by name. It draws its initial weights from the generator."""


class Ensemble(nn.Module):
    """E independent members: every weight is a parameter with a leading axis E."""

    def __init__(
        self, layers: Mapping[str, LayerShape], config: ModelConfig, generator: Generator
    ) -> None:
        super().__init__()
        self.num_particles = config.num_members
        for name, layer in layers.items():
            self.add_module(name, MemberLinear(config.num_members, layer, generator))

    def weights(self) -> Weights:
        """Return the members' parameters."""
        layers = {
            name: Dense(cast(Tensor, layer.weight), cast(Tensor, layer.bias))
            for name, layer in self.named_children()
        }
        return Weights(**layers)

    def particle_parameters(self) -> list[nn.Parameter]:
        """Return all parameters: each has a member's axis."""
        return list(self.parameters())


class MemberLinear(nn.Module):
    """The parameters of E dense layers, initialised as PlaNet's: Glorot uniform, zero biases."""

    def __init__(self, members: int, layer: LayerShape, generator: Generator) -> None:
        super().__init__()
        limit = math.sqrt(6 / (layer.inputs + layer.outputs // layer.heads))
        shape = (members, layer.inputs, layer.outputs)
        weight = (torch.rand(shape, generator=generator) * 2 - 1) * limit
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.full((members, 1, layer.outputs), layer.bias))


POSTERIORS: dict[str, PosteriorFactory] = {"ensemble": Ensemble}
"""Posteriors by name."""
