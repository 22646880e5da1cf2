"""Modalities: one kind of observation each, from the raw value to the decoded one.

A modality is plain data: it says what the observation is and how to prepare it, and it is saved
with the weights. `Modality.network` builds the modules that encode and decode it. Register a
modality of your own in `MODALITIES` by its ``kind``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Generator, Tensor

from planet_bayes.models.config import ModelConfig
from planet_bayes.models.modalities.image import Image
from planet_bayes.models.modalities.vector import Vector
from planet_bayes.types import Moments


class Modality(Protocol):
    """One kind of observation. Implementations are frozen dataclasses of JSON values."""

    kind: ClassVar[str]
    """Its name in JSON."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a prepared observation."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a prepared observation: uint8 or float32."""
        ...

    def prepare(self, raw: Any) -> NDArray[np.generic]:
        """Return the observation as it is stored and learned from, or raise ValueError."""
        ...

    def network(self, config: ModelConfig, features: int, generator: Generator) -> ModalityNetwork:
        """Return the encoder and decoder. ``features`` is the size of the decoder's input."""
        ...

    def panels(
        self, seen: list[NDArray[Any]], decoded: list[NDArray[Any]]
    ) -> list[NDArray[np.uint8]]:
        """Return square RGB images for a film, from the episode's steps so far."""
        ...


class ModalityNetwork(Protocol):
    """The networks of one modality, an `nn.Module`. Leading axes are free unless stated."""

    embed_size: int
    """Size of an embedding."""
    loss_weight: float
    """Weight of this modality's error in the objective."""

    def inputs(self, observation: Tensor, generator: Generator) -> Tensor:
        """Return prepared observations as the encoder sees them and the decoder predicts them.

        In learning they are ``[P or 1, B, T, ...]``. Noise comes from `planet_bayes.models.noise`,
        so that processes that share a batch draw the noise of the batch.
        """
        ...

    def encode(self, inputs: Tensor) -> Tensor:
        """Return embeddings ``[..., embed_size]``."""
        ...

    def decode(self, features: Tensor) -> Tensor:
        """Return predicted inputs of features ``[..., F]``."""
        ...

    def reconstruct(self, features: Tensor) -> Tensor:
        """Return decoded observations in the units and layout of prepared ones."""
        ...

    def error(self, features: Tensor, inputs: Tensor, index: Tensor, weight: Tensor) -> Tensor:
        """Return each particle's weighted error ``[P]``: a negative log likelihood.

        ``features`` is ``[P, F, X]``. ``index`` and ``weight``, ``[P, F]``, select and weight the
        entry of ``inputs`` ``[P or 1, N, ...]`` that each of them must match.
        """
        ...

    def rescale(self, moments: Moments) -> None:
        """Take the scale of the observations from the episodes, if the model normalises."""
        ...


MODALITIES: dict[str, type[Any]] = {Image.kind: Image, Vector.kind: Vector}
"""Modalities by kind, for JSON."""

__all__ = ["MODALITIES", "Image", "Modality", "ModalityNetwork", "Vector"]
