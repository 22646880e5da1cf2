"""The action space of continuous control: a box."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from planet_bayes.errors import PlannerError


@dataclass(frozen=True)
class Bounds:
    """The box of valid actions."""

    low: Tensor
    """Smallest action, ``[A]``."""
    high: Tensor
    """Largest action, ``[A]``."""

    def __post_init__(self) -> None:
        if self.low.ndim != 1 or self.low.shape != self.high.shape or len(self.low) == 0:
            raise PlannerError(
                "Bounds: low and high must be vectors of the same length, got shapes "
                f"{tuple(self.low.shape)} and {tuple(self.high.shape)}."
            )
        if not self.low.is_floating_point() or self.low.dtype != self.high.dtype:
            raise PlannerError(
                "Bounds: low and high must have the same floating-point type, got "
                f"{self.low.dtype} and {self.high.dtype}."
            )
        if not bool(torch.isfinite(self.high - self.low).all()):
            raise PlannerError("Bounds: low and high must be finite; clip or rescale the actions.")
        if not bool((self.low < self.high).all()):
            raise PlannerError(
                f"Bounds: low must be below high everywhere, got low={self.low.tolist()}, "
                f"high={self.high.tolist()}."
            )

    @staticmethod
    def symmetric(num_actions: int, limit: float = 1.0) -> Bounds:
        """Return the box ``[-limit, limit]^A``."""
        high = torch.full((num_actions,), float(limit))
        return Bounds(low=-high, high=high)

    @property
    def centre(self) -> Tensor:
        """Middle of the box, ``[A]``."""
        return (self.low + self.high) / 2

    @property
    def half_range(self) -> Tensor:
        """Half the width of the box, ``[A]``: the unit of every ``std`` in `PlannerConfig`."""
        return (self.high - self.low) / 2

    def clip(self, actions: Tensor) -> Tensor:
        """Return the nearest actions ``[..., A]`` within the box."""
        return actions.clamp(self.low, self.high)

    def to(self, device: torch.device) -> Bounds:
        """Return the same bounds on ``device``."""
        return Bounds(self.low.to(device), self.high.to(device))
