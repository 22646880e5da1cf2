"""The DeepMind Control Suite's tasks, and the paper's versions of four of them.

Importing this module imports dm_control and MuJoCo. `planet_bayes.envs.make` imports it only for a
suite task, and only after it has chosen an OpenGL backend.

The paper (Section "Experiments") leaves ball_in_cup as it is, widens the control range of the
other three to [-3, 3], and removes the upper limit of the reward of cheetah and walker.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import mujoco
import numpy as np
from dm_control import suite
from dm_control.mujoco import engine
from dm_control.rl import control
from dm_control.suite import base, cheetah, walker
from dm_control.utils import rewards
from gymnasium import spaces
from numpy.typing import NDArray
from shimmy.dm_control_compatibility import DmControlCompatibilityV0

from planet_bayes.envs.tasks import TaskSpec
from planet_bayes.errors import EnvError

# Small frames spend most of their time on triangles and the shadow map, not on pixels. With these
# values the mean difference from the suite's own frames is at most 0.1 of 255 for the paper's tasks
# and cartpole, and slightly more for the others (benchmarks/rendering.py).
RENDER_QUALITY = (
    # Largest frame size, rings of a capsule or a sphere, pixels on a side of the shadow map. The
    # suite's models have 16 and 2048. In smaller frames the edge of a ring matters more.
    (63, 16, 512),
    (128, 8, 768),
)
"""Reduced quality by frame size. Larger frames are for people and keep the model's own quality."""

_STATE = int(mujoco.mjtState.mjSTATE_PHYSICS)
MAX_SPEED = 1000.0
"""Metres per second above which the simulation has diverged. A trained cheetah reaches 70."""


class UncappedCheetah(cheetah.Cheetah):
    """Cheetah whose reward, speed / 10, keeps growing above speed 10."""

    def get_reward(self, physics: Any) -> float:
        """Return max(0, speed / 10), which is the suite's reward below its limit."""
        return max(0.0, float(physics.speed()) / cheetah._RUN_SPEED)


class UncappedWalker(walker.PlanarWalker):
    """Walker whose reward keeps growing above the target speed."""

    def get_reward(self, physics: Any) -> float:
        """Return the suite's reward with its saturating speed term made linear."""
        standing = rewards.tolerance(
            physics.torso_height(),
            bounds=(walker._STAND_HEIGHT, float("inf")),
            margin=walker._STAND_HEIGHT / 2,
        )
        upright = (1 + float(physics.torso_upright())) / 2
        stand_reward = (3 * float(standing) + upright) / 4
        move_reward = max(0.0, float(physics.horizontal_velocity()) / self._move_speed)
        return stand_reward * (5 * move_reward + 1) / 6


UNCAPPED_TASKS: dict[str, Callable[[Any], base.Task]] = {
    "cheetah": lambda capped: UncappedCheetah(random=0),
    "walker": lambda capped: UncappedWalker(move_speed=capped._move_speed, random=0),
}
"""For each domain, the uncapped version of one of the suite's tasks."""


def _not_settotalmass(record: logging.LogRecord) -> bool:
    return "settotalmass" not in record.getMessage()


@contextmanager
def _deprecation_muted() -> Iterator[None]:
    # MuJoCo warns about a deprecated attribute in the suite's own cheetah at each load.
    logger = logging.getLogger("absl")
    logger.addFilter(_not_settotalmass)
    try:
        yield
    finally:
        logger.removeFilter(_not_settotalmass)


def load(spec: TaskSpec, *, original: bool) -> control.Environment:
    """Return the suite's environment, with the paper's changes unless ``original``."""
    with _deprecation_muted():
        # The seed does not matter: each episode is seeded at its reset.
        env = suite.load(spec.domain, spec.suite_task, task_kwargs={"random": 0})
    if spec.uncapped and not original:
        if spec.domain not in UNCAPPED_TASKS:
            raise EnvError(
                f"{spec.name}: the domain {spec.domain!r} has no uncapped reward; there are those "
                f"of {', '.join(UNCAPPED_TASKS)}. Add one to UNCAPPED_TASKS."
            )
        env._task = UNCAPPED_TASKS[spec.domain](env.task)
    if spec.control_range != 1.0 and not original:
        # MuJoCo clamps controls to this array. The action specification, and with it our action
        # space, is read from it as well.
        env.physics.model.actuator_ctrlrange[:] = [-spec.control_range, spec.control_range]
    return env


@contextmanager
def _sized_for(model: Any, size: int) -> Iterator[None]:
    # MuJoCo reads these once, when it makes a rendering context.
    quality, window = model.vis.quality, model.vis.global_
    before = quality.numstacks, quality.shadowsize, window.offwidth, window.offheight
    for largest, rings, shadow in RENDER_QUALITY:
        if size <= largest:
            quality.numstacks, quality.shadowsize = rings, shadow
            break
    # The models' own buffer of 640×480 costs 2 ms per frame more than one of the right size.
    window.offwidth = window.offheight = size
    try:
        yield
    finally:
        quality.numstacks, quality.shadowsize, window.offwidth, window.offheight = before


class _View(engine.Physics):
    """The data of a simulation with a rendering context of its own."""

    def after_reset(self) -> None:
        """Compute nothing: rendering must not change the simulation."""


class _Camera(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Renders all frames with one camera, in a context made for frames of this size.

    `physics.render` is not changed: it renders any size in the model's own quality, more slowly,
    because it makes a camera at every call.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], physics: engine.Physics, size: int) -> None:
        super().__init__(env)
        self._physics = physics
        self._size = size
        self._view: _View | None = None
        self._camera: engine.Camera | None = None

    def render(self) -> NDArray[np.uint8]:
        """Return an RGB frame from the model's first camera."""
        if self._camera is None:
            # Made at the first frame: a machine that cannot render can do everything else.
            self._view = self._view or _View(self._physics.data)
            with _sized_for(self._physics.model, self._size):
                self._camera = engine.Camera(self._view, self._size, self._size, camera_id=0)
        return np.array(self._camera.render())  # a copy: the camera reuses its buffer

    def close(self) -> None:
        """Free the rendering context, then the simulation."""
        if self._view is not None:
            self._view.free()
            self._view = self._camera = None
        super().close()


class _EndsAtDivergence(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Truncates an episode at the step at which the simulation diverges.

    Controls of ±3 accelerate the cheetah to speeds that its time step is too long for. A step that
    ends at tens of thousands of metres per second would earn a reward in proportion. Such a step is
    undone: its reward is 0 and its observation is that of the state before it.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], physics: engine.Physics) -> None:
        super().__init__(env)
        self._physics = physics
        self._observation: Any = None
        model = physics.model
        self._slides = model.jnt_dofadr[model.jnt_type == mujoco.mjtJoint.mjJNT_SLIDE]
        self._state = np.empty(mujoco.mj_stateSize(model.ptr, _STATE))
        """The state before the step."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self._observation, info = self.env.reset(seed=seed, options=options)
        return self._observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one simulator step. ``info["diverged"]`` says why a step was undone."""
        physics = self._physics
        mujoco.mj_getState(physics.model.ptr, physics.data.ptr, self._state, _STATE)
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
            speed = np.abs(physics.data.qvel[self._slides]).max(initial=0.0)
            if not speed <= MAX_SPEED:
                raise control.PhysicsError(f"a speed of {speed:.0f} m/s")
        except control.PhysicsError as error:
            # The context clears MuJoCo's warnings and recomputes all derived quantities.
            with physics.reset_context():
                mujoco.mj_setState(physics.model.ptr, physics.data.ptr, self._state, _STATE)
            return self._observation, 0.0, False, True, {"diverged": str(error)}
        self._observation = observation
        return observation, reward, terminated, truncated, info


def make(spec: TaskSpec, *, original: bool, image_size: int) -> gymnasium.Env[Any, Any]:
    """Return the task as a Gymnasium environment with native actions and observations."""
    dm_env = load(spec, original=original)
    env = DmControlCompatibilityV0(
        dm_env,
        render_mode="rgb_array",
        render_kwargs={"height": image_size, "width": image_size, "camera_id": 0},
    )
    # Shimmy sorts the observations by name; this restores the suite's order.
    env.observation_space = spaces.Dict(
        {key: env.observation_space[key] for key in dm_env.observation_spec()}, sort_keys=False
    )
    # Shimmy writes a wrong frame rate into its class; this is the right one, for this instance.
    env.metadata = {
        "render_modes": ["rgb_array"],
        "render_fps": round(1.0 / dm_env.control_timestep()),
    }
    return _Camera(_EndsAtDivergence(env, dm_env.physics), dm_env.physics, image_size)
