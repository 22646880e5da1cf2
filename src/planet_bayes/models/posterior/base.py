"""What a posterior over the weights of the dynamics has to provide, and what its makers share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Generator, nn

from planet_bayes.models.config import ModelConfig
from planet_bayes.models.rssm import LayerShape, Weights


class Posterior(Protocol):
    """A module that determines the weights of P particles."""

    @property
    def num_particles(self) -> int:
        """P."""
        ...

    def weights(self) -> Weights:
        """Return the weights of all particles, each ``[P, ...]``.

        They change by updates only, so that a particle is one function throughout an episode.
        """
        ...


@runtime_checkable
class OwnParameters(Protocol):
    """A posterior with parameters that are not shared by the sets of weights that it fits."""

    def particle_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of which each set of weights owns one entry of the first axis.

        Their gradients are clipped entry by entry.
        """
        ...


@runtime_checkable
class FittedApart(Protocol):
    """A posterior whose updates fit other weights than those that it acts with."""

    @property
    def num_fitted(self) -> int:
        """Q: how many sets of weights an update fits."""
        ...

    def fitted_weights(self, generator: Generator) -> Weights:
        """Return the weights that an update fits, each ``[Q, ...]``, as functions of parameters."""
        ...


PosteriorFactory = Callable[[Mapping[str, LayerShape], ModelConfig, Generator], nn.Module]
"""Makes a posterior for layers by name. It draws its initial weights from the generator."""


class MemberLinear(nn.Module):
    """The parameters of E dense layers, initialised as PlaNet's: Glorot uniform, zero biases."""

    def __init__(self, members: int, layer: LayerShape, generator: Generator) -> None:
        super().__init__()
        shape = (members, layer.inputs, layer.outputs)
        weight = (torch.rand(shape, generator=generator) * 2 - 1) * glorot_limit(layer)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.full((members, 1, layer.outputs), layer.bias))


def glorot_limit(layer: LayerShape) -> float:
    """Return the largest initial weight of a layer, √(6 / (inputs + outputs))."""
    return math.sqrt(6 / (layer.inputs + layer.outputs // layer.heads))
