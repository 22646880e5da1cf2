"""A point that is pushed towards an edge: the reward grows towards it, and beyond it is a loss.

Train on it with:  planet-bayes train --task examples.cliff:make --env.observation state

`benchmarks/caution.py` measures on it what caution over the members of an ensemble gains.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

EDGE = 1.0
"""Position of the edge; a wall is at -2."""
WALL = -2.0
NUM_STEPS = 60
DT = 0.1
FORCE = 2.0
"""Acceleration of a full action."""
DRAG = 1.0
"""Deceleration per unit of speed."""
WIND = 0.12
"""Std of the random change of speed in each step."""
SENSOR_NOISE = 0.05
"""Std of the error of the observed position."""
LOSS = 10.0
"""Loss of a fall, which ends the episode."""
REWARD_WIDTH = 0.5
"""Distance to the edge over which the reward falls by the factor e."""

Array = NDArray[np.float64]


def moved(position: Array, speed: Array, push: Array, wind: Array) -> tuple[Array, Array]:
    """Return position and speed one step later; the wall absorbs the point.

    Args:
        position: Any shape.
        speed: Of the same shape.
        push: Actions, clipped to [-1, 1].
        wind: Random change of the speed.
    """
    speed = speed + DT * (FORCE * np.clip(push, -1.0, 1.0) - DRAG * speed) + wind
    free = position + DT * speed
    return np.maximum(free, WALL), np.where(free < WALL, 0.0, speed)


def reward_at(position: Array) -> Array:
    """Return the reward: 1 at the edge, smaller farther from it, and the loss beyond it."""
    return np.where(position > EDGE, -LOSS, np.exp(-np.abs(EDGE - position) / REWARD_WIDTH))


class Cliff(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """A point on a line, with wind. The speed is not observed, the position with noise."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self) -> None:
        self.path: list[float] = []
        """True positions of the episode."""
        self.speed = 0.0

    @property
    def fell(self) -> bool:
        """Whether the episode ended beyond the edge."""
        return self.path[-1] > EDGE

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Put the point at rest, far from the edge."""
        super().reset(seed=seed)
        self.path, self.speed = [float(self.np_random.uniform(-1.8, -1.0))], 0.0
        return self._observe(), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Push the point for one time step."""
        wind = WIND * self.np_random.standard_normal()
        push = np.asarray(action, np.float64)[0]
        position, speed = moved(np.array(self.path[-1]), np.array(self.speed), push, np.array(wind))
        self.path.append(float(position))
        self.speed = float(speed)
        truncated = len(self.path) > NUM_STEPS
        return self._observe(), float(reward_at(position)), self.fell, truncated, {}

    def _observe(self) -> NDArray[np.float32]:
        noise = SENSOR_NOISE * self.np_random.standard_normal()
        return np.array([self.path[-1] + noise], np.float32)


def make() -> gymnasium.Env[Any, Any]:
    """Return an episode of 60 steps."""
    return Cliff()
