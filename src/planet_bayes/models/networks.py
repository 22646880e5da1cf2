"""Encoder, decoder and reward head: shared by all members."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from planet_bayes.errors import ConfigError
from planet_bayes.models.rssm import ACTIVATIONS

# Per image size: channels (× depth) and kernels of the encoder, then of the decoder.
# 64 is PlaNet's. 32 drops the innermost layer; with its first kernel the encoder sees the whole
# image, where one of 4 would not see the last two rows and columns.
_LAYOUTS: dict[int, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    64: ((1, 2, 4, 8), (4, 4, 4, 4), (4, 2, 1), (5, 5, 6, 6)),
    32: ((1, 2, 4), (6, 4, 4), (2, 1), (5, 5, 8)),
}
BITS = 8  # of a pixel
LEVELS = 2**BITS
_FLAT = {64: 32, 32: 16}  # units of the decoder's dense layer (× depth)


def glorot_(module: nn.Module, generator: Generator) -> None:
    """Initialise every layer of ``module`` as PlaNet's are: Glorot uniform, zero biases."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            nn.init.xavier_uniform_(layer.weight, generator=generator)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)


def preprocess(observation: Tensor, generator: Generator, bits: int = 5) -> Tensor:
    """Return what the networks see: vectors as they are, images ``[..., 3, S, S]`` in ±0.5.

    Images are cut to 5 bits and dithered with uniform noise, as in PlaNet, so that the
    decoder's Gaussian density cannot be driven up by fitting quantisation steps. With all of
    their 8 bits the steps are too small for that, and no noise is added.
    """
    if observation.dtype != torch.uint8:
        return observation
    image = observation.movedim(-1, -3).float()
    if bits == BITS:
        return centred(image)
    coarse = image.div_(2 ** (BITS - bits)).floor_()
    dither = torch.rand(coarse.shape, generator=generator, device=coarse.device)
    return coarse.add_(dither).div_(2**bits).sub_(0.5)


def centred(mean: Tensor) -> Tensor:
    """Return, in ±0.5, what `preprocess` makes of an image with its 8 bits, or of a mean of some.

    To the mean of dithered ones it is the nearest that can be said.
    """
    return (mean + 0.5) / LEVELS - 0.5


def to_image(decoded: Tensor) -> Tensor:
    """Return uint8 images ``[..., S, S, 3]`` for decoded ones ``[..., 3, S, S]``."""
    return ((decoded + 0.5) * 255).clamp(0, 255).to(torch.uint8).movedim(-3, -1)


class _Activation(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.function = ACTIVATIONS[name]

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(inputs)


def mlp(inputs: int, hidden: int, layers: int, outputs: int, activation: str) -> nn.Sequential:
    """Return ``layers`` dense layers of ``hidden`` units, then a linear one."""
    parts: list[nn.Module] = []
    for index in range(layers):
        parts += [nn.Linear(inputs if index == 0 else hidden, hidden), _Activation(activation)]
    return nn.Sequential(*parts, nn.Linear(hidden if layers else inputs, outputs))


class Unflatten(nn.Module):
    """``[N, C] -> [N, C, 1, 1]``."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Add the two spatial axes."""
        return inputs[:, :, None, None]


class Deconv(nn.ConvTranspose2d):
    """PyTorch's transposed convolution of stride 2, computed in the way that is fastest.

    Its weights and, up to rounding, its results are the plain layer's. On a single pixel it is
    a matrix product. With few outputs it is an ordinary convolution, of half the kernel, that
    computes the four pixels of each 2×2 block as channels.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__(inputs, outputs, kernel, stride=2)

    def forward(self, inputs: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Return ``[N, C, H, W] -> [N, C', 2(H - 1) + k, 2(W - 1) + k]``."""
        assert self.bias is not None
        assert output_size is None
        size = self.kernel_size[0]
        if inputs.shape[2:] == (1, 1):
            flat = torch.mm(inputs.flatten(1), self.weight.flatten(1))
            outputs = flat.unflatten(1, (self.out_channels, size, size))
            outputs = outputs + self.bias[:, None, None]
            return outputs.contiguous(memory_format=torch.channels_last)
        if self.out_channels > 4 or size % 2:
            return super().forward(inputs)
        half = size // 2
        taps = self.weight.unflatten(2, (half, 2)).unflatten(4, (half, 2))
        # [C, C', tap, row of block, tap, column of block] -> [C', row, column, C, tap, tap]
        kernel = taps.permute(1, 3, 5, 0, 2, 4).flip(4, 5).flatten(0, 2)
        blocks = F.conv2d(inputs, kernel, self.bias.repeat_interleave(4), padding=half - 1)
        return F.pixel_shuffle(blocks, 2)


def _check_image(shape: tuple[int, ...]) -> int:
    if len(shape) != 3 or shape[0] != shape[1] or shape[2] != 3 or shape[0] not in _LAYOUTS:
        sizes = " or ".join(f"{size}×{size}×3" for size in _LAYOUTS)
        raise ConfigError(f"images must be {sizes}, got {'×'.join(map(str, shape))}.")
    return shape[0]


def image_encoder(shape: tuple[int, ...], depth: int, activation: str) -> tuple[nn.Sequential, int]:
    """Return PlaNet's convolutional encoder, and the size of what it returns."""
    size = _check_image(shape)
    parts: list[nn.Module] = []
    channels = 3
    multiples, kernels, _, _ = _LAYOUTS[size]
    for multiple, kernel in zip(multiples, kernels, strict=True):
        parts += [nn.Conv2d(channels, multiple * depth, kernel, stride=2), _Activation(activation)]
        channels, size = multiple * depth, (size - kernel) // 2 + 1
    return nn.Sequential(*parts, nn.Flatten()), channels * size * size


def image_decoder(
    shape: tuple[int, ...],
    features: int,
    depth: int,
    activation: str,
    hidden: int = 0,
    layers: int = 0,
) -> nn.Sequential:
    """Return PlaNet's transposed-convolutional decoder, after some dense ``layers`` if any."""
    size = _check_image(shape)
    _, _, multiples, kernels = _LAYOUTS[size]
    channels = _FLAT[size] * depth
    parts: list[nn.Module] = [*mlp(features, hidden, layers, channels, activation), Unflatten()]
    for index, kernel in enumerate(kernels):
        last = index == len(kernels) - 1
        outputs = 3 if last else multiples[index] * depth
        parts.append(Deconv(channels, outputs, kernel))
        if not last:
            parts.append(_Activation(activation))
        channels = outputs
    return nn.Sequential(*parts)


def vector_encoder(
    shape: tuple[int, ...], hidden: int, layers: int, activation: str
) -> tuple[nn.Sequential, int]:
    """Return a dense encoder for sensors, and the size of what it returns."""
    network = mlp(math.prod(shape), hidden, layers - 1, hidden, activation)
    return nn.Sequential(network, _Activation(activation)), hidden
