"""Dense and convolutional networks that all particles share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from planet_bayes.models.activations import Activation
from planet_bayes.models.kernels.dense import dense

# By image size: channels (× depth) and kernels of the encoder, then of the decoder. 64 is
# PlaNet's. 32 drops the innermost layer and has a larger first kernel, so that the encoder sees
# the whole image: a kernel of 4 would miss the last two rows and columns.
_LAYOUTS: dict[int, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    64: ((1, 2, 4, 8), (4, 4, 4, 4), (4, 2, 1), (5, 5, 6, 6)),
    32: ((1, 2, 4), (6, 4, 4), (2, 1), (5, 5, 8)),
}
_FLAT_UNITS = {64: 32, 32: 16}
"""Units of the decoder's first dense layer, in multiples of its depth, by image size."""
IMAGE_SIZES = tuple(sorted(_LAYOUTS))
"""Sides of the square images that there are networks for."""


def glorot_(module: nn.Module, generator: Generator) -> None:
    """Initialise every layer of ``module`` as PlaNet's are: Glorot uniform, zero biases."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            nn.init.xavier_uniform_(layer.weight, generator=generator)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)


class MLP(nn.Sequential):
    """Linear layers and activations in turn, of which it computes each pair as one.

    With other layers among them, or with hooks, it is a plain `nn.Sequential`.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Map ``[..., in]`` to ``[..., out]``."""
        layers = linear_layers(self)
        if layers is None or inputs.ndim < 2:
            return super().forward(inputs)
        rows = inputs.flatten(0, -2).unsqueeze(0)
        for layer, name in layers:
            assert layer.bias is not None
            rows = dense(rows, layer.weight.t()[None], layer.bias[None, None], name)
        return rows.view(*inputs.shape[:-1], rows.shape[-1])


def linear_layers(network: nn.Module) -> list[tuple[nn.Linear, str | None]] | None:
    """Return a network's linear layers with the names of the activations that follow them.

    None: the network is not linear layers and activations in turn, or has hooks.
    """
    if type(network) is not MLP:
        return None
    found: list[tuple[nn.Linear, str | None]] = []
    for layer in network:
        if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks:
            return None
        if type(layer) is nn.Linear and layer.bias is not None:
            found.append((layer, None))
        elif type(layer) is Activation and found and found[-1][1] is None:
            found[-1] = (found[-1][0], layer.name)
        else:
            return None
    return found


def mlp(inputs: int, hidden: int, layers: int, outputs: int, activation: str) -> MLP:
    """Return ``layers`` dense layers of ``hidden`` units, then a linear one."""
    parts: list[nn.Module] = []
    for index in range(layers):
        parts += [nn.Linear(inputs if index == 0 else hidden, hidden), Activation(activation)]
    return MLP(*parts, nn.Linear(hidden if layers else inputs, outputs))


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


class ImageEncoder(nn.Sequential):
    """Convolutions and activations in turn, then a flattening."""

    @property
    def stem(self) -> nn.Module:
        """Convolution, activation, convolution: the largest outputs and the least arithmetic."""
        return self[:3]

    @property
    def rest(self) -> nn.Module:
        """The layers after the stem."""
        return self[3:]


def image_encoder(size: int, depth: int, activation: str) -> tuple[ImageEncoder, int]:
    """Return PlaNet's convolutional encoder, and the size of what it returns."""
    parts: list[nn.Module] = []
    channels = 3
    multiples, kernels, _, _ = _LAYOUTS[size]
    for multiple, kernel in zip(multiples, kernels, strict=True):
        parts += [nn.Conv2d(channels, multiple * depth, kernel, stride=2), Activation(activation)]
        channels, size = multiple * depth, (size - kernel) // 2 + 1
    return ImageEncoder(*parts, nn.Flatten()), channels * size * size


def image_decoder(
    size: int, features: int, depth: int, activation: str, hidden: int = 0, layers: int = 0
) -> nn.Sequential:
    """Return PlaNet's transposed-convolutional decoder, after some dense ``layers`` if any."""
    _, _, multiples, kernels = _LAYOUTS[size]
    channels = _FLAT_UNITS[size] * depth
    parts: list[nn.Module] = [*mlp(features, hidden, layers, channels, activation), Unflatten()]
    for index, kernel in enumerate(kernels):
        last = index == len(kernels) - 1
        outputs = 3 if last else multiples[index] * depth
        parts.append(Deconv(channels, outputs, kernel))
        if not last:
            parts.append(Activation(activation))
        channels = outputs
    return nn.Sequential(*parts)


def vector_encoder(size: int, hidden: int, layers: int, activation: str) -> nn.Sequential:
    """Return a dense encoder of ``layers`` layers. It returns ``hidden`` numbers."""
    network = mlp(size, hidden, layers - 1, hidden, activation)
    return nn.Sequential(network, Activation(activation))
