"""A posterior of one's own: one network, seen through P fixed dropout masks.

    planet_bayes.models.POSTERIORS["dropout_masks"] = DropoutMasks
    ModelConfig(posterior="dropout_masks", num_members=5)

The masks are drawn once and saved with the weights, so that a particle is the same function at
every step of learning and planning (MC dropout draws new masks for each input).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Generator, Tensor, nn

from planet_bayes.models import Dense, LayerShape, ModelConfig, Weights
from planet_bayes.models.posterior import MemberLinear

KEEP = 0.8
"""Probability that a particle keeps an input of a layer."""


class DropoutMasks(nn.Module):
    """P particles that share every parameter and differ in the inputs that they keep."""

    def __init__(
        self, layers: Mapping[str, LayerShape], config: ModelConfig, generator: Generator
    ) -> None:
        super().__init__()
        self.num_particles = config.num_members
        self.layers = nn.ModuleDict()
        for name, layer in layers.items():
            shared = MemberLinear(1, layer, generator)
            kept = torch.rand(config.num_members, layer.inputs, 1, generator=generator) < KEEP
            shared.register_buffer("mask", kept / KEEP)
            self.layers[name] = shared

    def weights(self) -> Weights:
        """Return the shared weights, with the rows of dropped inputs at zero."""
        return Weights(**{name: self._dense(layer) for name, layer in self.layers.items()})

    def _dense(self, layer: nn.Module) -> Dense:
        weight, bias, mask = (cast(Tensor, getattr(layer, n)) for n in ("weight", "bias", "mask"))
        return Dense(weight * mask, bias.expand(self.num_particles, -1, -1))
