"""The DeepMind Control Suite's tasks, and the paper's versions of four of them.

Importing this module imports dm_control and MuJoCo; `planet_bayes.envs.make` does so only when
a suite task is asked for, after it chose an OpenGL backend.

The paper (Section "Experiments") leaves ball_in_cup as it is, widens the control range of the
other three to [-3, 3], and removes the upper limit of the reward of cheetah and walker.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import mujoco
import numpy as np
from dm_control import suite
from dm_control.mujoco import engine
from dm_control.rl import control
from dm_control.suite import cheetah, walker
from dm_control.utils import rewards
from gymnasium import spaces
from numpy.typing import NDArray
from shimmy.dm_control_compatibility import DmControlCompatibilityV0

from planet_bayes.envs.tasks import TaskSpec

# A small frame's time goes into triangles and into the shadow map, not into its few pixels. These
# keep the mean difference from the suite's own frames within 0.1 of 255 for the paper's tasks and
# cartpole, and near it for the others (benchmarks/rendering.py).
_QUALITY = (
    # Largest size, rings of a capsule or a sphere, pixels on a side of the shadow map. The
    # suite's models have 16 and 2048. The fewer the pixels, the more a ring's edge weighs.
    (63, 16, 512),
    (128, 8, 768),
)
"""Larger frames are for people, and keep the model's own quality."""


_FASTEST = 1000.0  # metres per second; a trained cheetah reaches 70


class UncappedCheetah(cheetah.Cheetah):
    """Cheetah whose reward, speed / 10, goes on growing above speed 10."""

    def get_reward(self, physics: Any) -> float:
        """Return max(0, speed / 10), which is the suite's reward below its limit."""
        return max(0.0, float(physics.speed()) / cheetah._RUN_SPEED)


class UncappedWalker(walker.PlanarWalker):
    """Walker whose running reward goes on growing above the target speed."""

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


def _uncapped(spec: TaskSpec) -> control.Environment:
    if spec.domain == "cheetah":
        return control.Environment(
            cheetah.Physics.from_xml_string(*cheetah.get_model_and_assets()),
            UncappedCheetah(random=0),
            time_limit=cheetah._DEFAULT_TIME_LIMIT,
        )
    assert (spec.domain, spec.suite_task) == ("walker", "run")
    return control.Environment(
        walker.Physics.from_xml_string(*walker.get_model_and_assets()),
        UncappedWalker(move_speed=walker._RUN_SPEED, random=0),
        time_limit=walker._DEFAULT_TIME_LIMIT,
        control_timestep=walker._CONTROL_TIMESTEP,
    )


def _not_ours(record: logging.LogRecord) -> bool:
    return "settotalmass" not in record.getMessage()


@contextmanager
def _quiet() -> Iterator[None]:
    # MuJoCo warns of a deprecated attribute in the suite's own cheetah, at each load.
    logger = logging.getLogger("absl")
    logger.addFilter(_not_ours)
    try:
        yield
    finally:
        logger.removeFilter(_not_ours)


def load(spec: TaskSpec, *, original: bool) -> control.Environment:
    """Return the suite's environment, with the paper's changes unless ``original``."""
    with _quiet():
        if spec.uncapped and not original:
            env = _uncapped(spec)
        else:
            # Any fixed seed: each episode is seeded at its reset.
            env = suite.load(spec.domain, spec.suite_task, task_kwargs={"random": 0})
    if spec.control_range != 1.0 and not original:
        # MuJoCo clamps controls to this very array, and the action specification, from which
        # our action space and its clipping follow, is read from it too.
        env.physics.model.actuator_ctrlrange[:] = [-spec.control_range, spec.control_range]
    return env


@contextmanager
def _sized_for(model: Any, size: int) -> Iterator[None]:
    # MuJoCo reads these when it makes a rendering context, and not again.
    quality, window = model.vis.quality, model.vis.global_
    before = quality.numstacks, quality.shadowsize, window.offwidth, window.offheight
    for largest, rings, shadow in _QUALITY:
        if size <= largest:
            quality.numstacks, quality.shadowsize = rings, shadow
            break
    # A buffer of 640×480, as the models have it, costs 2 ms a frame more than one that fits.
    window.offwidth = window.offheight = size
    try:
        yield
    finally:
        quality.numstacks, quality.shadowsize, window.offwidth, window.offheight = before


class _View(engine.Physics):
    """A simulation, to look at: its data, with a rendering context apart from its own."""

    def after_reset(self) -> None:
        """Compute nothing: looking must not change the simulation."""


class _Camera(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Renders with one camera for all frames, in a context made for frames of this size.

    `physics.render`, which makes a camera at every call, in a buffer for its largest image, is
    left as it is: any size in the model's own quality, at its price.
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
            # Not before, so that a machine that cannot render can do everything else.
            self._view = self._view or _View(self._physics.data)
            with _sized_for(self._physics.model, self._size):
                self._camera = engine.Camera(self._view, self._size, self._size, camera_id=0)
        return np.array(self._camera.render())  # a copy: the camera has one buffer

    def close(self) -> None:
        """Free the rendering context, then the simulation."""
        if self._view is not None:
            self._view.free()
            self._view = self._camera = None
        super().close()


class _EndsAtDivergence(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Truncates an episode at the step at which the simulation diverges.

    Controls of ±3 bring the cheetah to speeds beyond what its time step was made for, and a
    step that ends at tens of thousands of metres per second would be rewarded for it. Such a
    step is undone: nothing is rewarded, and what is seen is the state before it.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], physics: engine.Physics) -> None:
        super().__init__(env)
        self._physics = physics
        self._observation: Any = None
        model = physics.model
        self._slides = model.jnt_dofadr[model.jnt_type == mujoco.mjtJoint.mjJNT_SLIDE]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self._observation, info = self.env.reset(seed=seed, options=options)
        return self._observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one simulator step, or say in ``info["diverged"]`` why there was none."""
        state = self._physics.get_state()
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
            speed = np.abs(self._physics.data.qvel[self._slides]).max(initial=0.0)
            if not speed <= _FASTEST:
                raise control.PhysicsError(f"a speed of {speed:.0f} m/s")
        except control.PhysicsError as error:
            with self._physics.reset_context():  # forgets MuJoCo's warnings, computes what follows
                self._physics.set_state(state)
            return self._observation, 0.0, False, True, {"diverged": str(error)}
        self._observation = observation
        return observation, reward, terminated, truncated, info


def make(spec: TaskSpec, *, original: bool, image_size: int) -> gymnasium.Env[Any, Any]:
    """Return the task as a Gymnasium environment, not yet rescaled, repeated or flattened."""
    dm_env = load(spec, original=original)
    env = DmControlCompatibilityV0(
        dm_env,
        render_mode="rgb_array",
        render_kwargs={"height": image_size, "width": image_size, "camera_id": 0},
    )
    # Shimmy's dict of spaces is sorted by name; the suite's own order is kept instead.
    env.observation_space = spaces.Dict(
        {key: env.observation_space[key] for key in dm_env.observation_spec()}, sort_keys=False
    )
    # Shimmy writes a wrong frame rate into its class; this one is right and per instance.
    env.metadata = {
        "render_modes": ["rgb_array"],
        "render_fps": round(1.0 / dm_env.control_timestep()),
    }
    return _Camera(_EndsAtDivergence(env, dm_env.physics), dm_env.physics, image_size)
