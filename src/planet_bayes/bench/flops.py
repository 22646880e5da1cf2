"""Floating-point operations of planning and learning.

Only matrix products and convolutions count, with two operations for each multiplication and its
addition. The counts follow from the shapes of the layers, not from how they are computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import nn

from planet_bayes.models import LayerShape, Modality, WorldModel
from planet_bayes.models.kernels.native_imagination import IMAGINED

Layer = nn.Linear | nn.Conv2d | nn.ConvTranspose2d


def imagining(model: WorldModel, trajectories: int, horizon: int) -> float:
    """Return the operations of ``trajectories`` (over all particles) of ``horizon`` steps."""
    layers = model.rssm.layers()
    step = sum(_dense(layers[name]) for name in IMAGINED) + _network(model.heads["reward"], 1)
    return 2.0 * step * trajectories * horizon


def updating(
    model: WorldModel, modalities: Mapping[str, Modality], frames: int, rows: int, decoded: int
) -> float:
    """Return the operations of a gradient update, forward and backward.

    In the backward pass each product has two more of its size, one for the weights and one for the
    inputs. The inputs of the encoders need no gradient.

    Args:
        model: The world model.
        modalities: Its observations by name.
        frames: Observations that are encoded.
        rows: Steps that are filtered, over all particles.
        decoded: Observations that are decoded, over all particles.
    """
    row = sum(_dense(layer) for layer in model.rssm.layers().values())
    row += sum(_network(head, 1) for head in model.heads.values())
    total = 3 * row * rows
    for name, modality in modalities.items():
        sense = model.senses[name]
        encoder, decoder = sense.get_submodule("encoder"), sense.get_submodule("decoder")
        size = modality.shape[0] if len(modality.shape) == 3 else 1
        total += (3 * _network(encoder, size) - _layer(_first(encoder), size)[0]) * frames
        total += 3 * _network(decoder, 1) * decoded
    return 2.0 * total


def _dense(layer: LayerShape) -> int:
    return layer.inputs * layer.outputs


def _network(network: nn.Module, size: int) -> int:
    """Return the multiplications of one input; ``size`` is an image's side, 1 for vectors."""
    total = 0
    for layer in network.modules():
        if isinstance(layer, Layer):
            products, size = _layer(layer, size)
            total += products
    return total


def _layer(layer: Layer, size: int) -> tuple[int, int]:
    """Return a layer's multiplications, and the side of the image that it returns."""
    weights = math.prod(layer.weight.shape)
    if isinstance(layer, nn.Conv2d):
        size = (size - layer.kernel_size[0]) // layer.stride[0] + 1
        return weights * size * size, size
    if isinstance(layer, nn.ConvTranspose2d):
        return weights * size * size, (size - 1) * layer.stride[0] + layer.kernel_size[0]
    return weights, size


def _first(network: nn.Module) -> Layer:
    return next(layer for layer in network.modules() if isinstance(layer, Layer))
