"""The ensemble: E networks, each with its own parameters (Section III-A)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from torch import Generator, Tensor, nn

from planet_bayes.models.config import ModelConfig
from planet_bayes.models.posterior.base import MemberLinear
from planet_bayes.models.rssm import Dense, LayerShape, Weights


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
