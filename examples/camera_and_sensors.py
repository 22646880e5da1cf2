"""An environment with two sensors: a camera and the joint angles of a two-link arm.

Each key of a Dict observation can be an input of the agent. Train on both with:

    planet-bayes train --preset laptop --task examples.camera_and_sensors:make \
        --env.observation camera joints
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict
from gymnasium.wrappers import TimeLimit


class Arm(gymnasium.Env):
    """Touch a target. The joints tell where the arm is; only the camera shows the target."""

    observation_space = Dict(
        {"camera": Box(0, 255, (64, 64, 3), np.uint8), "joints": Box(-np.inf, np.inf, (2,))}
    )
    action_space = Box(-1.0, 1.0, (2,), np.float32)  # changes of the angles

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.joints = self.np_random.uniform(-np.pi, np.pi, 2)
        self.target = self._points(self.np_random.uniform(-np.pi, np.pi, 2))[-1]
        return self._observe(), {}

    def step(self, action):
        self.joints = self.joints + 0.3 * np.asarray(action, np.float64)
        distance = np.linalg.norm(self._points(self.joints)[-1] - self.target)
        return self._observe(), float(np.exp(-3 * distance)), False, False, {}

    def _points(self, joints):
        """Return points along both links, ``[20, 2]``; the last is the hand."""
        angles = np.repeat(np.cumsum(joints), 10)
        return 0.045 * np.cumsum(np.stack([np.cos(angles), np.sin(angles)], -1), 0)

    def _observe(self):
        frame = np.full((64, 64, 3), 24, np.uint8)
        for points, colour in (
            (self._points(self.joints), (255, 160, 40)),
            (self.target[None], (40, 200, 220)),
        ):
            for column, row in (32 + 31 * points).astype(int):
                frame[row - 1 : row + 2, column - 1 : column + 2] = colour
        return {"camera": frame, "joints": self.joints.astype(np.float32)}


def make() -> gymnasium.Env:
    """Return an episode of 50 steps."""
    return TimeLimit(Arm(), 50)
