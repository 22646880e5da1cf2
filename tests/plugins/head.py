"""A head of one's own: the probability that the episode goes on.

planet_bayes.models.HEADS["continuation"] = ContinuationHead
ModelConfig(heads=("reward", "continuation"))
"""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Generator, Tensor, nn

from planet_bayes.models import LossConfig, ModelConfig
from planet_bayes.models.layers import glorot_, mlp
from planet_bayes.models.losses import masked_mean
from planet_bayes.types import Moments, SequenceBatch


class ContinuationHead(nn.Module):
    """A Bernoulli variable: 1 while the episode goes on, 0 from a terminal state on."""

    def __init__(self, features: int, config: ModelConfig, generator: Generator) -> None:
        super().__init__()
        self.network = mlp(features, config.reward_units, 1, 1, config.activation)
        glorot_(self.network, generator)

    def predict(self, features: Tensor) -> Tensor:
        """Return the probability of going on, ``[...]``."""
        return self.network(features).squeeze(-1).sigmoid()

    def loss(self, features: Tensor, batch: SequenceBatch, config: LossConfig) -> Tensor:
        """Return the negative log likelihood ``[P]``."""
        logits = self.network(features).squeeze(-1)  # [P, B, T]
        target = (1 - batch.terminal).expand_as(logits)
        error = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        return masked_mean(error, batch.mask)

    def rescale(self, moments: Mapping[str, Moments]) -> None:
        """A probability has no scale."""
