"""The scale of observed quantities in a model that normalises."""

import torch
from torch import Tensor

MIN_OBSERVED_STD = 1e-6
"""A smaller std means that the quantity has not changed yet; it is then not scaled."""


def divisor(std: Tensor) -> Tensor:
    """Return the std to divide by: 1 where the quantity has not changed yet."""
    return torch.where(std > MIN_OBSERVED_STD, std, 1.0)
