"""Records that cross package borders. Frozen; every field states its shape.

Index ``t`` holds the observation, the action that led to it and the reward that came with
it. No other alignment exists anywhere. At ``t = 0`` action and reward are zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Episode:
    """One episode, as it is stored: L agent steps make L + 1 entries."""

    observation: NDArray[np.generic]
    """``[L + 1, ...]``, uint8 images or float32 vectors."""
    action: NDArray[np.float32]
    """``[L + 1, A]``, in [-1, 1]."""
    reward: NDArray[np.float32]
    """``[L + 1]``."""

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def num_bytes(self) -> int:
        """Memory that the arrays take."""
        return self.observation.nbytes + self.action.nbytes + self.reward.nbytes


@dataclass(frozen=True)
class SequenceBatch:
    """Sequences to learn from; the leading axis is the ensemble's, or 1 where all share."""

    observation: Tensor
    """``[E or 1, B, T, ...]``, uint8 or float32, as stored."""
    action: Tensor
    """``[E or 1, B, T, A]``."""
    reward: Tensor
    """``[E or 1, B, T]``."""
    mask: Tensor
    """``[E or 1, B, T]``, 1 where the entry is real, 0 past the end of a short episode."""


@dataclass(frozen=True)
class Belief:
    """The latent state z = (h, s) of every member."""

    deter: Tensor
    """The GRU's state h, ``[E, N, D]``."""
    stoch: Tensor
    """The sampled state s, ``[E, N, S]``."""
