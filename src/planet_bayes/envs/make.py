"""`make_env`: from the name of a task to an environment that the agent can use."""

from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit

from planet_bayes.envs import gl
from planet_bayes.envs.config import EnvConfig
from planet_bayes.envs.external import make_external
from planet_bayes.envs.spaces import (
    blurred,
    body_sensors,
    pixel_observations,
    unit_actions,
    vector_observations,
)
from planet_bayes.envs.tasks import TASKS, TaskSpec
from planet_bayes.envs.toy import ToyReach
from planet_bayes.envs.wrappers import ActionRepeat, Guard
from planet_bayes.errors import EnvError

_DEFAULT = EnvConfig()
_RENDER_SIZE = 128  # of films, where the agent itself sees no image


def make_env(task: str, config: EnvConfig = _DEFAULT) -> gymnasium.Env[Any, Any]:
    """Return the environment of ``task``.

    Args:
        task: A name in `TASKS`, a registered Gymnasium id, or ``package.module:function``,
            where the function returns a Gymnasium environment.
        config: What the agent sees and how its actions are applied.

    Returns:
        An environment with actions in [-1, 1]^A (float32; others are clipped), observations that
        are uint8 images [S, S, 3] or float32 vectors, and rewards (floats) summed over the action
        repeat. ``reset(seed=...)`` determines the episode; ``render()`` returns an RGB frame.

    Raises:
        ConfigError: There is no such task.
        EnvError: The environment cannot be made, or has spaces that are not supported.
    """
    spec = TASKS.get(task)
    env = _make_native(task, spec, config)
    # Inner to outer: guard, actions, repeat, time, observation. The observation comes last so
    # that a frame is rendered once per action and not once per simulator step.
    env = unit_actions(env, task)
    repeat = config.action_repeat or (spec.action_repeat if spec else 1)
    env = ActionRepeat(env, repeat)
    if config.max_steps:
        env = TimeLimit(env, config.max_steps)
    if config.observation == "pixels":
        return blurred(pixel_observations(env, task, config.image_size), config.blur)
    if config.observation == "sensors" and spec is not None and not config.sensors:
        env = body_sensors(env, speed=spec.speed, winding=spec.winding)
    return vector_observations(env, task, entries=config.sensors)


def _make_native(task: str, spec: TaskSpec | None, config: EnvConfig) -> gymnasium.Env[Any, Any]:
    size = config.image_size if config.observation == "pixels" else _RENDER_SIZE
    if spec is not None and spec.domain == "toy":
        return Guard(ToyReach(size), task, timeout=config.timeout)
    # Before anything that may import MuJoCo, which reads the choice once.
    gl.choose_backend()
    if spec is None:
        env = make_external(task, list(TASKS))
        # Gymnasium's MuJoCo environments carry this attribute; the advice would mislead others.
        uses_mujoco = hasattr(env.unwrapped, "mujoco_renderer")
        advice = gl.advice() if uses_mujoco else ""
        return Guard(env, task, render_advice=advice, timeout=config.timeout)
    # Late, because it imports dm_control: the toy and the user's own need not have it.
    try:
        from planet_bayes.envs import suite
    except Exception as error:  # a backend that the user named and lacks fails in many ways
        raise EnvError(
            f"{task}: could not load dm_control ({type(error).__name__}: {error}). {gl.advice()}"
        ) from error

    if config.observation == "pixels":
        size *= config.oversampling
    env = suite.make(spec, original=config.original, image_size=size)
    return Guard(env, task, render_advice=gl.advice(), timeout=config.timeout)


@dataclass(frozen=True)
class TaskInfo:
    """One line of the listing of tasks."""

    name: str
    pixels: tuple[int, ...]
    """Shape of the observation as pixels."""
    sensors: tuple[int, ...]
    """Shape of the observation of sensors."""
    state: tuple[int, ...]
    """Shape of the whole observation."""
    action_size: int
    control_range: tuple[float, float]
    """Native lowest and highest control; the agent's -1 and 1."""
    action_repeat: int
    episode_steps: int
    """Agent steps per episode."""
    note: str


def describe_tasks() -> list[TaskInfo]:
    """Return what there is to know of each named task, without rendering anything."""
    return [_describe(spec) for spec in TASKS.values()]


def _describe(spec: TaskSpec) -> TaskInfo:
    config = EnvConfig(observation="state")
    env = make_env(spec.name, config)
    seen = make_env(spec.name, EnvConfig(observation="sensors"))
    native: Any = env.unwrapped.action_space
    info = TaskInfo(
        name=spec.name,
        pixels=(config.image_size, config.image_size, 3),
        sensors=seen.observation_space.shape or (),
        state=env.observation_space.shape or (),
        action_size=(env.action_space.shape or (0,))[0],
        control_range=(float(native.low.min()), float(native.high.max())),
        action_repeat=spec.action_repeat,
        episode_steps=-(-spec.simulator_steps // spec.action_repeat),
        note=spec.note,
    )
    env.close()
    seen.close()
    return info
