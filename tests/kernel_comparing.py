"""Whether two computations agree, gradients included."""

import torch
from torch import Tensor


def gradients(value: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Return the gradient at each input; zeros where an input does not matter."""
    found = torch.autograd.grad(value, inputs, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


def assert_same(left: list[Tensor], right: list[Tensor]) -> None:
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
