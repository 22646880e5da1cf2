"""Stochastic-gradient MCMC: one chain of weights, whose snapshots are the particles.

`planet_bayes.training.sgmcmc` moves the chain. At the end of each of its cycles a snapshot is taken
(Zhang et al., 2020, "Cyclical stochastic gradient MCMC for Bayesian deep learning").
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from planet_bayes.models.config import ModelConfig
from planet_bayes.models.posterior.base import glorot_limit
from planet_bayes.models.posterior.ensemble import Ensemble
from planet_bayes.models.rssm import Dense, LayerShape, Weights


@dataclass(frozen=True)
class GaussianPrior:
    """The prior of every entry of a parameter."""

    mean: float
    std: float


class Snapshots(nn.Module):
    """One set of parameters, the chain, and its last P snapshots.

    Updates move the chain; the agent acts with the snapshots. Until the first cycle ends, all
    snapshots follow the chain.
    """

    taken: Tensor
    """Snapshots taken so far."""

    def __init__(
        self, layers: Mapping[str, LayerShape], config: ModelConfig, generator: Generator
    ) -> None:
        super().__init__()
        self.num_particles, self.num_fitted = config.num_members, 1
        self.chain = Ensemble(layers, dataclasses.replace(config, num_members=1), generator)
        self.kept = nn.ModuleDict()
        for name, layer in self.chain.named_children():
            self.kept[name] = nn.Module()
            for part, value in layer.named_parameters():
                copies = value.detach().repeat(self.num_particles, 1, 1)
                self.kept[name].register_buffer(part, copies)
        self.register_buffer("taken", torch.tensor(0))
        self._layers = dict(layers)

    def weights(self) -> Weights:
        """Return the snapshots."""
        layers = {
            name: Dense(layer.get_buffer("weight"), layer.get_buffer("bias"))
            for name, layer in self.kept.items()
        }
        return Weights(**layers)

    def fitted_weights(self, generator: Generator) -> Weights:
        """Return the chain; nothing is drawn."""
        return self.chain.weights()

    def particle_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of the chain, the one set of weights that is fitted."""
        return self.chain.particle_parameters()

    def priors(self) -> dict[nn.Parameter, GaussianPrior]:
        """Return the prior of each parameter of the chain.

        Its mean is zero, or the initial value of a bias. Its std is that of the layer's initial
        weights, so that a draw from the prior keeps the scale of the layer's inputs.
        """
        found: dict[nn.Parameter, GaussianPrior] = {}
        for name, layer in self._layers.items():
            std = glorot_limit(layer) / math.sqrt(3)
            module = self.chain.get_submodule(name)
            found[module.get_parameter("weight")] = GaussianPrior(0.0, std)
            found[module.get_parameter("bias")] = GaussianPrior(layer.bias, std)
        return found

    @torch.no_grad()
    def keep(self, cycle_ended: bool) -> None:
        """Note an update of the chain: at a cycle's end it replaces the oldest snapshot."""
        taken = int(self.taken)
        if taken and not cycle_ended:
            return
        oldest = taken % self.num_particles
        replaced = slice(oldest, oldest + 1) if taken else slice(None)
        for kept, now in zip(self.kept.buffers(), self.chain.parameters(), strict=True):
            kept[replaced] = now
        self.taken += cycle_ended
