"""How many plans a proposal holds: components that are alive, good and apart from each other.

The entropy of the mixture weights does not tell: components that merged count as many. A plan
counts here if it could be executed (its weight is above `LEAST_WEIGHT`), is worth it (its mean's
value is within `VALUE_MARGIN` of the best) and is not a copy of another one (its Bhattacharyya
distance to every other that counts is above `LEAST_DISTANCE`, over the first half of the horizon).
"""

from __future__ import annotations

import torch
from torch import Tensor

from planet_bayes.planner._contract import Components

LEAST_WEIGHT = 0.05
LEAST_DISTANCE = 2.0
VALUE_MARGIN = 0.05
_TINY = 1e-12


def component_distances(components: Components) -> Tensor:
    """Return the Bhattacharyya distances ``[B, M, M]`` over the first half of the horizon.

    With μ and σ of two diagonal Gaussians and s² = (σ₁² + σ₂²) / 2, the distance is the sum of
    (μ₁ - μ₂)² / 8 s² + log(s² / σ₁ σ₂) / 2. At 2, the densities overlap by e⁻² = 0.14.
    """
    steps = (components.mean.shape[2] + 1) // 2
    mean = components.mean[:, :, :steps].flatten(2)  # [B, M, D]
    std = components.std[:, :, :steps].flatten(2).clamp(min=_TINY)
    variance = (std.unsqueeze(2).square() + std.unsqueeze(1).square()) / 2  # [B, M, M, D]
    apart = (mean.unsqueeze(2) - mean.unsqueeze(1)).square() / (8 * variance)
    product = std.log().unsqueeze(2) + std.log().unsqueeze(1)
    return (apart + (variance.log() - product) / 2).sum(-1)


def is_distinct(components: Components, values: Tensor) -> Tensor:
    """Return which components count as plans, ``[B, M]``.

    Of several that merged, the best counts. ``values`` ``[B, M]`` are those of the means.
    """
    best = values.amax(-1, keepdim=True)
    good = (values >= best - VALUE_MARGIN * best.abs()) & (values > -torch.inf)
    alive = (components.weight > LEAST_WEIGHT) & good
    far = component_distances(components) > LEAST_DISTANCE  # [B, M, M]
    counted = torch.zeros_like(alive)
    rows = torch.arange(len(alive), device=alive.device)
    for index in values.argsort(dim=-1, descending=True, stable=True).unbind(-1):  # [B] each
        apart = (far[rows, index] | ~counted).all(-1)  # from all that count already
        counted[rows, index] = alive[rows, index] & apart
    return counted


def mean_distance(components: Components) -> Tensor:
    """Return the mean distance of pairs of living components, ``[B]``; 0 if only one lives.

    Living components have a weight above `LEAST_WEIGHT`.
    """
    alive = components.weight > LEAST_WEIGHT
    pairs = alive.unsqueeze(2) & alive.unsqueeze(1)
    pairs = pairs & ~torch.eye(alive.shape[1], dtype=torch.bool, device=alive.device)
    distances = torch.where(pairs, component_distances(components), 0.0)
    return distances.sum((1, 2)) / pairs.sum((1, 2)).clamp(min=1)
