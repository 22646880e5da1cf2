"""Activation functions, and faster forms of ELU for CPUs."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from planet_bayes.models.kernels import refuse_second_derivatives

_MIN_FAST_ELU_SIZE = 20_000
"""Numbers in a tensor below which calls cost more than arithmetic."""


class _FastElu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, inputs: Tensor) -> Tensor:
        outputs = elu_(inputs.clone())
        ctx.save_for_backward(outputs)
        return outputs

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> Tensor:
        refuse_second_derivatives()
        (outputs,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return elu_slope(outputs).mul_(gradient)


def elu_(values: Tensor) -> Tensor:
    """Apply ELU in place, through exp, which is much faster than expm1 on CPUs.

    Since exp(x) - 1 is never below x, ELU is the larger of x and exp(min(x, 0)) - 1.
    """
    return torch.maximum(values, values.clamp(max=0).exp_().sub_(1), out=values)


def elu_slope(values: Tensor) -> Tensor:
    """Return the derivative of ELU where its value is ``values``."""
    return values.clamp(max=0).add_(1)


def elu(inputs: Tensor) -> Tensor:
    """Return x where it is positive, exp(x) - 1 elsewhere."""
    large = inputs.numel() > _MIN_FAST_ELU_SIZE
    return _FastElu.apply(inputs) if large and inputs.device.type == "cpu" else F.elu(inputs)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "elu": elu,
    "silu": F.silu,
}
INPLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda values: values.clamp_min_(0),
    "elu": elu_,
    "silu": lambda values: F.silu(values, inplace=True),
}
"""The same functions, overwriting their argument. For code that records no gradient."""


class Activation(nn.Module):
    """An activation function as a layer."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.function = name, ACTIVATIONS[name]

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply the function."""
        return self.function(inputs)
