"""Vectors of sensor values: dense encoder and decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from planet_bayes.errors import ConfigError
from planet_bayes.models.config import ModelConfig
from planet_bayes.models.layers import glorot_, mlp, vector_encoder
from planet_bayes.models.losses import decoding_error
from planet_bayes.models.modalities.panels import traces
from planet_bayes.models.scaling import divisor
from planet_bayes.types import Moments

VECTOR_LAYERS = 2
"""Dense layers of encoder and decoder."""
SENSOR_CLIP_STDS = 10.0
"""Normalised sensors are clipped at this many stds from their mean."""


@dataclass(frozen=True)
class Vector:
    """Some numbers of a raw vector."""

    kind: ClassVar[str] = "vector"
    size: int
    """Numbers in the raw vector."""
    entries: tuple[int, ...] = ()
    """Entries of the raw vector that the agent sees, in this order; empty: all."""
    angles: tuple[int, ...] = ()
    """Of these, angles in radians that are seen as their cosine and sine."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"a vector must have at least one entry, got {self.size}.")
        beyond = [index for index in self.entries if not 0 <= index < self.size]
        if beyond:
            raise ConfigError(
                f"entries {beyond} are not in a vector of {self.size}: choose from 0 to "
                f"{self.size - 1}."
            )
        if not set(self.angles) <= set(self.entries or range(self.size)):
            raise ConfigError(f"angles {self.angles} are not among the entries that are seen.")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a prepared observation: an angle takes two numbers."""
        entries = self.entries or range(self.size)
        return (sum(2 if index in self.angles else 1 for index in entries),)

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32."""
        return np.dtype(np.float32)

    def prepare(self, raw: Any) -> NDArray[np.float32]:
        """Select entries and replace angles by cosine and sine."""
        values = np.asarray(raw)
        if values.shape != (self.size,) or values.dtype.kind not in "fiub":
            raise ValueError(
                f"expected a vector of {self.size} numbers, got an array of shape {values.shape} "
                f"and type {values.dtype}"
            )
        if self.angles:
            parts = []
            for index in self.entries or range(self.size):
                part = values[index : index + 1]
                parts += [np.cos(part), np.sin(part)] if index in self.angles else [part]
            values = np.concatenate(parts)
        elif self.entries:
            values = values[list(self.entries)]
        with np.errstate(over="ignore"):  # refused below
            prepared = values.astype(np.float32)
        if not np.isfinite(prepared).all():
            raise ValueError("it has NaN or infinite entries")
        return prepared

    def network(self, config: ModelConfig, features: int, generator: Generator) -> VectorNetwork:
        """Return dense networks of ``model.dense_units``."""
        return VectorNetwork(self, config, features, generator)

    def panels(
        self, seen: list[NDArray[Any]], decoded: list[NDArray[Any]]
    ) -> list[NDArray[np.uint8]]:
        """Return one strip chart: each sensor as measured and as decoded."""
        return [traces(seen, decoded)]


class VectorNetwork(nn.Module):
    """Encoder, decoder and scale of a vector."""

    mean: Tensor
    std: Tensor
    loss_weight = 1.0

    def __init__(
        self, modality: Vector, config: ModelConfig, features: int, generator: Generator
    ) -> None:
        super().__init__()
        (size,) = modality.shape
        units, activation = config.dense_units, config.activation
        self.embed_size = units
        self.normalise = config.normalise
        if config.normalise:
            self.register_buffer("mean", torch.zeros(size))
            self.register_buffer("std", torch.ones(size))
        self.encoder = vector_encoder(size, units, VECTOR_LAYERS, activation)
        self.decoder = mlp(features, units, VECTOR_LAYERS, size, activation)
        glorot_(self.encoder, generator)
        glorot_(self.decoder, generator)

    def inputs(self, observation: Tensor, generator: Generator) -> Tensor:
        """Return sensors scaled to unit variance and clipped, or as they are."""
        if not self.normalise:
            return observation
        distance = (observation - self.mean) / self.std
        return distance.clamp(-SENSOR_CLIP_STDS, SENSOR_CLIP_STDS)

    def encode(self, inputs: Tensor) -> Tensor:
        """Return embeddings ``[..., embed_size]`` of ``[..., D]``."""
        lead = inputs.shape[:-1]
        return self.encoder(inputs.flatten(0, -2)).unflatten(0, lead)

    def decode(self, features: Tensor) -> Tensor:
        """Return ``[..., D]`` of features ``[..., F]``."""
        lead = features.shape[:-1]
        return self.decoder(features.flatten(0, -2)).unflatten(0, lead)

    def reconstruct(self, features: Tensor) -> Tensor:
        """Return decoded sensors in their own units."""
        decoded = self.decode(features)
        return decoded * self.std + self.mean if self.normalise else decoded

    def error(self, features: Tensor, inputs: Tensor, index: Tensor, weight: Tensor) -> Tensor:
        """Return each particle's weighted squared error ``[P]``."""
        return decoding_error(self.decode(features), inputs, index, weight)

    @torch.no_grad()
    def rescale(self, moments: Moments) -> None:
        """Take mean and std of each sensor; one that has not moved yet keeps its size."""
        if self.normalise:
            self.mean.copy_(moments.mean)
            self.std.copy_(divisor(moments.std))
