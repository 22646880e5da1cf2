"""Gradient clipping that keeps particles independent of each other.

One norm over all weights would couple them: a spike of one particle's gradient would shrink the
steps of the others, and five particles would be clipped five times as hard as one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm


@torch.no_grad()
def clip_by_particle(
    own: Sequence[nn.Parameter], shared: Sequence[nn.Parameter], particles: int, limit: float
) -> dict[str, Tensor]:
    """Scale down the gradient of each particle, and that of shared networks, to a largest norm.

    The gradient of the shared networks is the sum over particles, so its largest norm is
    ``particles * limit``: that of its mean is ``limit``.

    Args:
        own: Parameters with a leading axis of P particles.
        shared: All other parameters.
        particles: P.
        limit: Largest norm of a gradient.

    Returns:
        The norms before clipping by name: ``gradient_norm`` ``[P]``, if there are parameters with
        a particle axis, and ``shared_gradient_norm``, a scalar, of the mean over particles.
    """
    norms: dict[str, Tensor] = {}
    gradients = [parameter.grad for parameter in own if parameter.grad is not None]
    if gradients:
        # The norms are made one by one: in a sum over an axis of all, the order of the additions,
        # and so the last bits, could depend on P.
        each = [get_total_norm([one[index] for one in gradients]) for index in range(particles)]
        norms["gradient_norm"] = torch.stack(each)
        factor = _factor(norms["gradient_norm"], limit)  # [P]
        for gradient in gradients:
            gradient.mul_(factor.view(-1, *(1,) * (gradient.ndim - 1)))
    gradients = [parameter.grad for parameter in shared if parameter.grad is not None]
    if gradients:
        norms["shared_gradient_norm"] = get_total_norm(gradients) / particles
        factor = _factor(norms["shared_gradient_norm"], limit)
        for gradient in gradients:
            gradient.mul_(factor)
    return norms


def _factor(norm: Tensor, limit: float) -> Tensor:
    """Return what a gradient is multiplied by; 1 within the limit."""
    return (limit / norm.clamp(min=1e-6)).clamp(max=1.0)
