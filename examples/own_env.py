"""An environment of your own, in one function: a heated room with one thermometer.

Train on it with:  planet-bayes train --task examples.own_env:make --env.observation state
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit


class Room(gymnasium.Env):
    """Keep the air at 20 degrees. The heater warms the walls first, and they are not seen."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(0.0, 2.0, (1,), np.float32)  # kilowatts

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.air = self.wall = self.np_random.uniform(5.0, 15.0)
        return self._observe(), {}

    def step(self, action):
        self.wall += 0.3 * (self.air - self.wall) + 4.0 * float(action[0])
        self.air += 0.2 * (self.wall - self.air) + 0.05 * (5.0 - self.air)
        return self._observe(), float(np.exp(-abs(self.air - 20.0) / 5)), False, False, {}

    def _observe(self):
        return np.array([(self.air - 20.0) / 10], np.float32)


def make() -> gymnasium.Env:
    """Return an episode of 100 steps."""
    return TimeLimit(Room(), 100)
