"""A task without MuJoCo: push a point mass to a target on a square.

An agent learns it from pixels within minutes on a laptop's CPU. A frame takes microseconds, so
tests of the whole pipeline can use it.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

_BACKGROUND = np.array([24, 24, 32], np.float32)
_MASS_COLOUR = np.array([255, 160, 40], np.float32)
_TARGET_COLOUR = np.array([40, 200, 220], np.float32)


class ToyReach(gymnasium.Env[Any, NDArray[np.float32]]):
    """A point mass with drag between four walls. The action is a force.

    The square is [-1, 1]². Start and target are uniform on its inner part, and the mass starts at
    rest. At distance ``d`` from the target the reward is ``1 / (1 + (d / 0.4)²)``: 1 on the target,
    with a useful slope in every corner. An episode has 50 steps and ends by truncation.
    """

    num_steps = 50
    dt = 0.1
    force = 3.0
    """Acceleration of a full action."""
    drag = 1.0
    """Deceleration per unit of speed. The top speed is force / drag."""
    start_range = 0.8
    """Largest coordinate of start and target."""
    reward_width = 0.4
    """Distance at which the reward is one half."""

    def __init__(self, image_size: int = 64, render_mode: str | None = "rgb_array") -> None:
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / self.dt)}
        self.render_mode = render_mode
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        wall = np.ones(2, np.float32)
        top = np.full(2, self.force / self.drag, np.float32)
        self.observation_space = spaces.Dict(
            {
                "position": spaces.Box(-wall, wall),
                "velocity": spaces.Box(-top, top),
                "target": spaces.Box(-wall, wall),
            },
            sort_keys=False,
        )
        # Pixel centres, and the std of a blob in the same units.
        self._grid = (np.arange(image_size) + 0.5) / image_size * 2.4 - 1.2
        self._blob_std = 0.12
        self._position = np.zeros(2)
        self._velocity = np.zeros(2)
        self._target = np.zeros(2)
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[np.float32]], dict[str, Any]]:
        """Draw a start and a target; the mass is at rest."""
        super().reset(seed=seed)
        self._position = self.np_random.uniform(-self.start_range, self.start_range, 2)
        self._target = self.np_random.uniform(-self.start_range, self.start_range, 2)
        self._velocity = np.zeros(2)
        self._step = 0
        return self._observe(), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[dict[str, NDArray[np.float32]], float, bool, bool, dict[str, Any]]:
        """Apply the force for one time step."""
        push = self.force * np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        self._velocity = self._velocity + self.dt * (push - self.drag * self._velocity)
        moved = self._position + self.dt * self._velocity
        self._position = np.clip(moved, -1.0, 1.0)
        # Walls absorb the mass: bouncing would make the toy hard to predict.
        self._velocity = np.where(moved == self._position, self._velocity, 0.0)
        self._step += 1
        truncated = self._step >= self.num_steps
        return self._observe(), self._reward(), False, truncated, {}

    def render(self) -> NDArray[np.uint8]:
        """Draw the target and, over it, the mass."""
        frame = np.broadcast_to(_BACKGROUND, (len(self._grid), len(self._grid), 3))
        for centre, colour in ((self._target, _TARGET_COLOUR), (self._position, _MASS_COLOUR)):
            # A Gaussian blob is the outer product of two curves. Positive y is up.
            across = np.exp(-0.5 * ((self._grid - centre[0]) / self._blob_std) ** 2)
            down = np.exp(-0.5 * ((-self._grid - centre[1]) / self._blob_std) ** 2)
            blob = np.outer(down, across).astype(np.float32)[..., None]
            frame = frame + blob * (colour - frame)
        return (frame + 0.5).astype(np.uint8)

    def _observe(self) -> dict[str, NDArray[np.float32]]:
        return {
            "position": self._position.astype(np.float32),
            "velocity": self._velocity.astype(np.float32),
            "target": self._target.astype(np.float32),
        }

    def _reward(self) -> float:
        distance = float(np.hypot(*(self._position - self._target)))
        return 1.0 / (1.0 + (distance / self.reward_width) ** 2)
