"""Heads: predictions from the latent state, each with its loss.

Register a head of your own in `HEADS` and name it in ``model.heads``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Generator, Tensor, nn

from planet_bayes.models.config import LossConfig, ModelConfig
from planet_bayes.models.layers import glorot_, mlp
from planet_bayes.models.losses import masked_mean, squared_error
from planet_bayes.models.scaling import divisor
from planet_bayes.types import Moments, SequenceBatch


class Head(Protocol):
    """A module that predicts something from features ``[..., F]``."""

    def predict(self, features: Tensor) -> Tensor:
        """Return the prediction in its own units, ``[...]``."""
        ...

    def loss(self, features: Tensor, batch: SequenceBatch, config: LossConfig) -> Tensor:
        """Return each particle's weighted loss ``[P]`` of features ``[P, B, T, F]``."""
        ...

    def rescale(self, moments: Mapping[str, Moments]) -> None:
        """Take the scale of what is predicted, if the model normalises.

        ``moments`` has the entry ``reward``, and one for each observation.
        """
        ...


HeadFactory = Callable[[int, ModelConfig, Generator], nn.Module]
"""Makes a head for features of a size. It draws its initial weights from the generator."""


class RewardHead(nn.Module):
    """The mean of a Gaussian of unit variance over the reward, normalised if the model is."""

    std: Tensor

    def __init__(self, features: int, config: ModelConfig, generator: Generator) -> None:
        super().__init__()
        self.normalise = config.normalise
        if config.normalise:
            self.register_buffer("std", torch.ones(()))
        self.network = mlp(
            features, config.reward_units, config.reward_layers, 1, config.activation
        )
        glorot_(self.network, generator)

    def predict(self, features: Tensor) -> Tensor:
        """Return the expected reward ``[...]``."""
        return self.unscaled(self.network(features).squeeze(-1))

    def unscaled(self, reward: Tensor) -> Tensor:
        """Return the network's rewards in the environment's units."""
        return reward * self.std if self.normalise else reward

    def loss(self, features: Tensor, batch: SequenceBatch, config: LossConfig) -> Tensor:
        """Return the weighted negative log likelihood, in units of the reward's std."""
        target = batch.reward / self.std if self.normalise else batch.reward
        error = squared_error(target, self.network(features).squeeze(-1), 0)
        return config.reward_scale * masked_mean(error, batch.mask)

    @torch.no_grad()
    def rescale(self, moments: Mapping[str, Moments]) -> None:
        """Take the std of the reward."""
        if self.normalise:
            self.std.copy_(divisor(moments["reward"].std))


HEADS: dict[str, HeadFactory] = {"reward": RewardHead}
"""Heads by name."""
