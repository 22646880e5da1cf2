"""A modality of one's own: one of several named states, such as that of a gripper.

planet_bayes.models.MODALITIES["category"] = Category
Signature({"gripper": Category(("open", "closed", "holding"))}, action)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from planet_bayes.models import ModelConfig
from planet_bayes.models.layers import glorot_, mlp, vector_encoder
from planet_bayes.types import Moments


@dataclass(frozen=True)
class Category:
    """One of ``labels``, stored as a one-hot vector. The raw value is the label."""

    kind: ClassVar[str] = "category"
    labels: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """``(labels,)``."""
        return (len(self.labels),)

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32."""
        return np.dtype(np.float32)

    def prepare(self, raw: Any) -> NDArray[np.float32]:
        """Return the one-hot vector of a label."""
        if raw not in self.labels:
            raise ValueError(f"expected one of {', '.join(self.labels)}, got {raw!r}")
        return np.eye(len(self.labels), dtype=np.float32)[self.labels.index(raw)]

    def network(self, config: ModelConfig, features: int, generator: Generator) -> CategoryNetwork:
        """Return dense networks; the decoder predicts the logits of the labels."""
        return CategoryNetwork(len(self.labels), config, features, generator)

    def panels(
        self, seen: list[NDArray[Any]], decoded: list[NDArray[Any]]
    ) -> list[NDArray[np.uint8]]:
        """Return one panel of 192×192 pixels: true labels above, probabilities below."""
        both = np.stack([seen[-1], decoded[-1]])
        columns = np.arange(192) * len(self.labels) // 192
        grey = (both[np.arange(192) * 2 // 192][:, columns] * 255).astype(np.uint8)
        return [np.repeat(grey[..., None], 3, axis=-1)]


class CategoryNetwork(nn.Module):
    """Encoder and decoder of a one-hot vector."""

    loss_weight = 1.0

    def __init__(self, size: int, config: ModelConfig, features: int, generator: Generator) -> None:
        super().__init__()
        self.embed_size = config.dense_units
        self.encoder = vector_encoder(size, config.dense_units, 1, config.activation)
        self.decoder = mlp(features, config.dense_units, 1, size, config.activation)
        glorot_(self, generator)

    def inputs(self, observation: Tensor, generator: Generator) -> Tensor:
        """Return the one-hot vectors as they are."""
        return observation

    def encode(self, inputs: Tensor) -> Tensor:
        """Return embeddings ``[..., embed_size]``."""
        return self.encoder(inputs)

    def decode(self, features: Tensor) -> Tensor:
        """Return logits ``[..., labels]``."""
        return self.decoder(features)

    def reconstruct(self, features: Tensor) -> Tensor:
        """Return the probabilities of the labels."""
        return self.decode(features).softmax(-1)

    def error(self, features: Tensor, inputs: Tensor, index: Tensor, weight: Tensor) -> Tensor:
        """Return each particle's weighted cross-entropy ``[P]``."""
        row = torch.arange(len(inputs), device=index.device).unsqueeze(-1)  # one row: shared
        target = inputs[row, index]  # [P, F, labels]
        log_prob = (target * self.decode(features).log_softmax(-1)).sum(-1)
        return -(log_prob * weight).sum(-1)

    def rescale(self, moments: Moments) -> None:
        """A one-hot vector has no scale."""
