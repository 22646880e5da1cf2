"""Images: convolutional encoder and decoder, in square RGB of a few sizes.

With ``model.normalise`` the mean image is subtracted and the rest is scaled pixel by pixel, so that
small moving things count as much as large bright ones. Pixels that hardly move are scaled up only
in part. Thousands of pixels would outweigh everything else in the objective, so a normalised image
counts as `IMAGE_WEIGHT_IN_SENSORS` sensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from planet_bayes.errors import ConfigError
from planet_bayes.models import noise
from planet_bayes.models.config import ModelConfig
from planet_bayes.models.kernels import fast_path, frames
from planet_bayes.models.layers import (
    IMAGE_SIZES,
    Unflatten,
    glorot_,
    image_decoder,
    image_encoder,
)
from planet_bayes.models.losses import decoding_error
from planet_bayes.models.modalities.panels import square
from planet_bayes.models.scaling import divisor
from planet_bayes.types import Moments

PIXEL_BITS = 8
PIXEL_LEVELS = 2**PIXEL_BITS
IMAGE_WEIGHT_IN_SENSORS = 30.0
"""A normalised image counts in the objective as this many sensors, whatever its size."""
PIXEL_VARIANCE_FLOOR = 0.25
"""Fraction of the pixels' mean variance that is added to the variance of each."""


@dataclass(frozen=True)
class Image:
    """An RGB image, resized to a square and blurred."""

    kind: ClassVar[str] = "image"
    size: int
    """Height and width of the prepared image."""
    blur: int = 1
    """Width of the box blur in pixels, odd; 1: none."""

    def __post_init__(self) -> None:
        if self.size not in IMAGE_SIZES:
            sizes = " or ".join(map(str, IMAGE_SIZES))
            raise ConfigError(f"the size of an image must be {sizes}, got {self.size}.")
        if not (1 <= self.blur <= self.size and self.blur % 2):
            raise ConfigError(
                f"blur must be an odd number of pixels from 1 to {self.size - 1}, got {self.blur}."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """``(size, size, 3)``."""
        return (self.size, self.size, 3)

    @property
    def dtype(self) -> np.dtype[Any]:
        """uint8."""
        return np.dtype(np.uint8)

    def prepare(self, raw: Any) -> NDArray[np.uint8]:
        """Resize a frame of any size by averaging areas, then blur it."""
        frame = np.asarray(raw)
        if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8 or not frame.size:
            raise ValueError(
                "expected an RGB image, a uint8 array of shape (height, width, 3), got an array "
                f"of shape {frame.shape} and type {frame.dtype}"
            )
        if frame.shape[:2] == (self.size, self.size) and self.blur == 1:
            return frame.copy()  # the environment may draw into one buffer
        import cv2  # late: it takes a quarter of a second to load, and vectors do not need it

        if frame.shape[:2] != (self.size, self.size):
            frame = cv2.resize(frame, (self.size, self.size), interpolation=cv2.INTER_AREA)
        if self.blur > 1:
            frame = cv2.blur(frame, (self.blur, self.blur), borderType=cv2.BORDER_REPLICATE)
        return frame.astype(np.uint8, copy=False)

    def network(self, config: ModelConfig, features: int, generator: Generator) -> ImageNetwork:
        """Return PlaNet's convolutional networks, of ``model.image_depth`` channels."""
        return ImageNetwork(self, config, features, generator)

    def panels(
        self, seen: list[NDArray[Any]], decoded: list[NDArray[Any]]
    ) -> list[NDArray[np.uint8]]:
        """Return the last image as the agent sees it, and as decoded."""
        return [square(seen[-1]), square(decoded[-1])]


class ImageNetwork(nn.Module):
    """Encoder, decoder and scale of an image. The networks' images are ``[..., 3, S, S]``."""

    mean: Tensor
    std: Tensor

    def __init__(
        self, modality: Image, config: ModelConfig, features: int, generator: Generator
    ) -> None:
        super().__init__()
        size, activation = modality.size, config.activation
        depth = config.decoder_depth or config.image_depth
        self.bits, self.normalise = config.image_bits, config.normalise
        self.loss_weight = 1.0
        if config.normalise:
            self.loss_weight = IMAGE_WEIGHT_IN_SENSORS / math.prod(modality.shape)
            self.register_buffer("mean", torch.zeros(3, size, size))
            self.register_buffer("std", torch.ones(3, size, size))
        self.encoder_chunk = frames.chunk_size(size, config.image_depth)
        self.decoder_chunk = frames.chunk_size(size, depth)
        self.encoder, self.embed_size = image_encoder(size, config.image_depth, activation)
        self.decoder = image_decoder(
            size, features, depth, activation, config.dense_units, config.decoder_layers
        )
        glorot_(self.encoder, generator)
        glorot_(self.decoder, generator)

    def inputs(self, observation: Tensor, generator: Generator) -> Tensor:
        """Return images in ±0.5, or normalised."""
        image = quantised(observation, self.bits, generator)
        return (image - self.mean) / self.std if self.normalise else image

    def encode(self, inputs: Tensor) -> Tensor:
        """Return embeddings ``[..., embed_size]`` of ``[..., 3, S, S]``."""
        lead = inputs.shape[:-3]
        flat = inputs.flatten(0, len(lead) - 1)
        if fast_path(inputs.device):
            embed = frames.encode_frames(self.encoder, flat, self.encoder_chunk)
        else:
            embed = self.encoder(flat)
        return embed.unflatten(0, lead)

    def decode(self, features: Tensor) -> Tensor:
        """Return ``[..., 3, S, S]`` of features ``[..., F]``."""
        lead = features.shape[:-1]
        return self.decoder(features.flatten(0, -2)).unflatten(0, lead)

    def code(self, features: Tensor) -> Tensor:
        """Return what the transposed convolutions make the image of, ``[..., C]``."""
        lead, code = features.shape[:-1], features.flatten(0, -2)
        for layer in self.decoder:
            if isinstance(layer, Unflatten):
                break
            code = layer(code)
        return code.unflatten(0, lead)

    def reconstruct(self, features: Tensor) -> Tensor:
        """Return decoded images ``[..., S, S, 3]`` from 0 to 255, not rounded."""
        decoded = self.decode(features)
        image = decoded * self.std + self.mean if self.normalise else decoded
        return ((image + 0.5) * 255).clamp(0, 255).movedim(-3, -1)

    def error(self, features: Tensor, inputs: Tensor, index: Tensor, weight: Tensor) -> Tensor:
        """Return each particle's weighted squared error ``[P]``."""
        if fast_path(inputs.device) and index.numel() > self.decoder_chunk:
            return frames.decoding_error(
                self.decoder, features, inputs, index, weight, self.decoder_chunk
            )
        return decoding_error(self.decode(features), inputs, index, weight)

    @torch.no_grad()
    def rescale(self, moments: Moments) -> None:
        """Take mean and std of each pixel, given as ``[S, S, 3]`` of stored images."""
        if self.normalise:
            std = pixel_scale(moments.std.movedim(-1, 0) / PIXEL_LEVELS)
            self.mean.copy_(centred(moments.mean.movedim(-1, 0)))
            self.std.copy_(divisor(std))


def quantised(observation: Tensor, bits: int, generator: Generator) -> Tensor:
    """Return stored images ``[..., S, S, 3]`` as ``[..., 3, S, S]`` in ±0.5.

    Images are cut to ``bits`` bits and dithered with uniform noise, as in PlaNet, so that the
    decoder's Gaussian density cannot be driven up by fitting quantisation steps. With all 8 bits
    the steps are too small for that, and no noise is added.
    """
    image = observation.movedim(-1, -3).float()
    if bits == PIXEL_BITS:
        return centred(image)
    coarse = image.div_(2 ** (PIXEL_BITS - bits)).floor_()
    dither = noise.uniform(coarse.shape, generator, batch_axis=1)
    return coarse.add_(dither).div_(2**bits).sub_(0.5)


def centred(image: Tensor) -> Tensor:
    """Return an image of 8 bits, or a mean of such images, in ±0.5."""
    return (image + 0.5) / PIXEL_LEVELS - 0.5


def pixel_scale(std: Tensor) -> Tensor:
    """Return the divisor of each pixel, given the std of each.

    After the division the mean variance over all pixels is 1.
    """
    variance = std.square()
    divisor = variance + PIXEL_VARIANCE_FLOOR * variance.mean()
    remaining = (variance / divisor.clamp_min(1e-30)).mean()
    return (divisor * remaining).sqrt()
