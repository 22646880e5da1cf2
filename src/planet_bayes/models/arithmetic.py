"""The arithmetic that planning and learning cannot do without: their matrix products and
convolutions, as floating-point operations (two for each multiplication with its addition).

Counted from the layers' shapes as they are defined, not from how they are computed.
"""

from __future__ import annotations

import math

from torch import nn

from planet_bayes.models.ensemble import WorldModel
from planet_bayes.models.rssm import MemberLinear

Layer = nn.Linear | nn.Conv2d | nn.ConvTranspose2d


def imagining(model: WorldModel, trajectories: int, horizon: int) -> float:
    """Return the operations of ``trajectories`` (over all members) of ``horizon`` steps."""
    rssm = model.rssm
    dynamics = (rssm.input, rssm.gates, rssm.candidate, rssm.prior_hidden, rssm.prior_out)
    step = sum(_member_layer(layer) for layer in dynamics) + _network(model.reward_head, 1)
    return 2.0 * step * trajectories * horizon


def updating(model: WorldModel, frames: int, rows: int, decoded: int) -> float:
    """Return the operations of a gradient update, forward and backward.

    ``frames`` observations are encoded, ``rows`` (over all members) filtered, and ``decoded``
    (over all members) decoded. Backward, each product has two more of its size: one for the
    weights, one for the inputs; but the encoder's inputs get no gradient.
    """
    rssm = model.rssm
    layers = [layer for layer in rssm.modules() if isinstance(layer, MemberLinear)]
    row = sum(_member_layer(layer) for layer in layers) + _network(model.reward_head, 1)
    size = model.observation_shape[0] if model.is_image else 1
    encoder = 3 * _network(model.encoder, size) - _layer(_first(model.encoder), size)[0]
    decoder = 3 * _network(model.decoder, 1)
    return 2.0 * (encoder * frames + 3 * row * rows + decoder * decoded)


def _member_layer(layer: MemberLinear) -> int:
    return math.prod(layer.weight.shape[1:])


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
