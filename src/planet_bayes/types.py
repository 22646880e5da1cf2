"""Records that cross package borders. Frozen; every field states its shape.

Index ``t`` holds the observation, the action that led to it and the reward that came with it. No
other alignment exists anywhere. At ``t = 0`` action and reward are zero.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Episode:
    """One episode as it is stored: L agent steps make L + 1 entries."""

    observation: dict[str, NDArray[np.generic]]
    """By name, each ``[L + 1, ...]``, as the signature prepares it: uint8 images or float32."""
    action: NDArray[np.float32]
    """``[L + 1, A]``, in [-1, 1]."""
    reward: NDArray[np.float32]
    """``[L + 1]``."""
    terminal: NDArray[np.bool_]
    """``[L + 1]``, true from a terminal state on: nothing is earned after it."""

    def __len__(self) -> int:
        return len(self.reward)

    def first(self, entries: int) -> Episode:
        """Return the episode's first entries."""
        return Episode(
            {name: part[:entries] for name, part in self.observation.items()},
            self.action[:entries],
            self.reward[:entries],
            self.terminal[:entries],
        )

    @property
    def num_bytes(self) -> int:
        """Memory that the arrays take."""
        arrays = (*self.observation.values(), self.action, self.reward, self.terminal)
        return sum(array.nbytes for array in arrays)


@dataclass(frozen=True)
class SequenceBatch:
    """Sequences to learn from. The leading axis is P, or 1 if all particles share them."""

    observation: dict[str, Tensor]
    """By name, each ``[P or 1, B, T, ...]``, uint8 or float32, as stored."""
    action: Tensor
    """``[P or 1, B, T, A]``."""
    reward: Tensor
    """``[P or 1, B, T]``."""
    terminal: Tensor
    """``[P or 1, B, T]``, 1 from a terminal state on, else 0."""
    mask: Tensor
    """``[P or 1, B, T]``, 1 where the entry is real, 0 after the end of a short episode."""

    def to(self, device: torch.device) -> SequenceBatch:
        """Return the same batch on ``device``."""
        move = lambda value: value.to(device, non_blocking=True)  # noqa: E731
        return dataclasses.replace(
            self,
            observation={name: move(value) for name, value in self.observation.items()},
            action=move(self.action),
            reward=move(self.reward),
            terminal=move(self.terminal),
            mask=move(self.mask),
        )


@dataclass(frozen=True)
class Moments:
    """Distribution of one stored quantity over all entries of all episodes."""

    mean: Tensor
    """The shape of one entry."""
    std: Tensor
    """The same shape."""


@dataclass(frozen=True)
class Belief:
    """The latent state z = (h, s) of every particle."""

    deter: Tensor
    """The GRU's state h, ``[P, N, D]``."""
    stoch: Tensor
    """The sampled state s, ``[P, N, S]``."""

    @property
    def features(self) -> Tensor:
        """What decoders and heads see, ``[P, N, D + S]``."""
        return torch.cat([self.deter, self.stoch], -1)
