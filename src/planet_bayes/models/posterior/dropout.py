"""MC dropout: one network, of which each particle drops other units (Gal and Ghahramani, 2016).

The approximate posterior of a weight matrix W is diag(m) W / (1 - p), where each entry of the mask
m is 0 with the dropout rate p and 1 otherwise. A draw of the masks is a particle. As in variational
dropout of recurrent networks, a particle holds its masks through a sequence, so that it is one
function of its inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import cast

import torch
from torch import Generator, Tensor, nn

from planet_bayes.models.config import ModelConfig
from planet_bayes.models.posterior.ensemble import Ensemble
from planet_bayes.models.rssm import Dense, LayerShape, Weights

WHOLE = ("input",)
"""Layers that drop nothing. Their inputs are the action and the state, not hidden units: a particle
without an entry of the action could not predict what this entry does."""


class Dropout(nn.Module):
    """P particles that share all parameters and differ in the inputs that their layers drop.

    The particles to act with have fixed masks, drawn at the start and saved with the weights. Each
    update fits P others, with masks from its own generator.
    """

    def __init__(
        self, layers: Mapping[str, LayerShape], config: ModelConfig, generator: Generator
    ) -> None:
        super().__init__()
        self.num_particles = self.num_fitted = config.num_members
        self.rate = config.dropout_rate
        single = dataclasses.replace(config, num_members=1)
        self.network = Ensemble(layers, single, generator)
        self._inputs = {name: layer.inputs for name, layer in layers.items() if name not in WHOLE}
        for name, mask in self._draw(generator).items():
            self.register_buffer(f"mask_{name}", mask)

    def weights(self) -> Weights:
        """Return the weights of the particles to act with."""
        return self._masked({name: self.get_buffer(f"mask_{name}") for name in self._inputs})

    def fitted_weights(self, generator: Generator) -> Weights:
        """Return the weights of P fresh particles."""
        return self._masked(self._draw(generator))

    def _draw(self, generator: Generator) -> dict[str, Tensor]:
        return {
            name: dropout_mask((self.num_particles, inputs, 1), self.rate, generator)
            for name, inputs in self._inputs.items()
        }

    def _masked(self, masks: Mapping[str, Tensor]) -> Weights:
        layers: dict[str, Dense] = {}
        for name, layer in vars(self.network.weights()).items():
            shared = cast(Dense, layer)
            bias = shared.bias.expand(self.num_particles, -1, -1)
            if name in masks:
                weight = shared.weight * masks[name].to(shared.weight)  # [P, inputs, outputs]
            else:
                weight = shared.weight.expand(self.num_particles, -1, -1)
            layers[name] = Dense(weight, bias)
        return Weights(**layers)


def dropout_mask(shape: tuple[int, ...], rate: float, generator: Generator) -> Tensor:
    """Return entries that are 0 with probability ``rate``, and 1 / (1 - rate) otherwise."""
    kept = torch.rand(shape, generator=generator, device=generator.device) >= rate
    return kept / (1 - rate)
