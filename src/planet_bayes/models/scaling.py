"""Scaling of observations and rewards to like sizes, by what has been seen of them so far.

A Gaussian likelihood of unit variance says that an error of 1 is an error of 1, be it of an angle,
a speed or a reward of a tenth. Scaled to unit variance, each sensor and the reward count alike.
Of images, what never changes is taken away: their mean. The rest, which may be a thin pole before
a wide sky, is all that must be learned; it is scaled pixel by pixel, or what is large and bright
would be learned first and the rest late: a cart before its pole, a body before the ground that
tells its speed. Pixels that hardly move are not blown up to the size of others.
Since thousands of pixels would drown the rest of the objective, an image counts as some sensors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from planet_bayes.models.networks import LEVELS, centred

FARTHEST = 10.0
"""Sensors beyond this many stds from their mean are seen, and decoded, as that far."""
AS_SENSORS = 30.0
"""A scaled image counts in the objective as this many sensors do, whatever its size."""
LEAST = 0.25
"""Share of the pixels' mean variance that is added to each one's, to divide it by."""
_STILL = 1e-6  # a std below this is of something that has not moved yet


class Scaling(nn.Module):
    """Mean and std of observations, and std of the reward: buffers, saved with the weights.

    Of images ``[S, S, 3]`` mean and std are images ``[3, S, S]``, the std such that what is
    divided by it has unit variance on the average over all pixels.
    """

    observation_mean: Tensor
    observation_std: Tensor
    reward_std: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.is_image = len(shape) == 3
        self.weight = AS_SENSORS / math.prod(shape) if self.is_image else 1.0
        """Of the squared error of scaled observations."""
        if self.is_image:
            shape = (shape[2], *shape[:2])
        self.register_buffer("observation_mean", torch.zeros(shape))
        self.register_buffer("observation_std", torch.ones(shape))
        self.register_buffer("reward_std", torch.ones(()))

    @torch.no_grad()
    def set(
        self, observation_mean: Tensor, observation_std: Tensor, reward_std: Tensor | float
    ) -> None:
        """Take new moments, as they were observed; what has not moved yet is left at its size."""
        std = torch.as_tensor(observation_std)
        if self.is_image:
            observation_mean = centred(observation_mean.movedim(-1, 0))
            std = pixel_scale(std.movedim(-1, 0) / LEVELS)
        self.observation_mean.copy_(observation_mean)
        self.observation_std.copy_(torch.where(std > _STILL, std, 1.0))
        reward = torch.as_tensor(reward_std)
        self.reward_std.copy_(torch.where(reward > _STILL, reward, 1.0))

    def scaled(self, observation: Tensor) -> Tensor:
        """Return sensors, or images in ±0.5, as the networks see them."""
        distance = (observation - self.observation_mean) / self.observation_std
        return distance if self.is_image else distance.clamp(-FARTHEST, FARTHEST)

    def unscaled(self, decoded: Tensor) -> Tensor:
        """Return decoded sensors in their own units, or images in ±0.5."""
        return decoded * self.observation_std + self.observation_mean


def pixel_scale(std: Tensor) -> Tensor:
    """Return what to divide each pixel by, given the std of each."""
    variance = std.square()
    least = LEAST * variance.mean()
    divisor = variance + least
    left = (variance / divisor.clamp_min(1e-30)).mean()  # of the mean variance, after the division
    return (divisor * left).sqrt()
