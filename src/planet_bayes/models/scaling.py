"""Scaling of sensors and rewards to like sizes, by what has been seen of them so far.

A Gaussian likelihood of unit variance says that an error of 1 is an error of 1, be it of an angle,
a speed or a reward of a tenth. Scaled to unit variance, each sensor and the reward count alike.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

FARTHEST = 10.0
"""Sensors beyond this many stds from their mean are seen, and decoded, as that far."""
_STILL = 1e-6  # a std below this is of something that has not moved yet


class Scaling(nn.Module):
    """Mean and std of each sensor, and std of the reward: buffers, saved with the weights."""

    observation_mean: Tensor
    observation_std: Tensor
    reward_std: Tensor

    def __init__(self, num_sensors: int) -> None:
        super().__init__()
        self.register_buffer("observation_mean", torch.zeros(num_sensors))
        self.register_buffer("observation_std", torch.ones(num_sensors))
        self.register_buffer("reward_std", torch.ones(()))

    @torch.no_grad()
    def set(
        self, observation_mean: Tensor, observation_std: Tensor, reward_std: Tensor | float
    ) -> None:
        """Take new moments; what has not moved yet is left at its size."""
        self.observation_mean.copy_(observation_mean)
        std = torch.as_tensor(observation_std)
        self.observation_std.copy_(torch.where(std > _STILL, std, 1.0))
        reward = torch.as_tensor(reward_std)
        self.reward_std.copy_(torch.where(reward > _STILL, reward, 1.0))

    def scaled(self, observation: Tensor) -> Tensor:
        """Return sensors ``[..., D]`` as the networks see them."""
        distance = (observation - self.observation_mean) / self.observation_std
        return distance.clamp(-FARTHEST, FARTHEST)

    def unscaled(self, decoded: Tensor) -> Tensor:
        """Return decoded sensors ``[..., D]`` in their own units."""
        return decoded * self.observation_std + self.observation_mean
