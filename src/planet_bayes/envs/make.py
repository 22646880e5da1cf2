"""`make_env`: from the name of a task to an environment that the agent can use."""

from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from planet_bayes import extras
from planet_bayes.envs import gl
from planet_bayes.envs.actions import unit_actions
from planet_bayes.envs.config import EnvConfig
from planet_bayes.envs.external import make_external
from planet_bayes.envs.observations import NamedObservations
from planet_bayes.envs.tasks import TASKS, TaskSpec
from planet_bayes.envs.toy import ToyReach
from planet_bayes.envs.wrappers import ActionRepeat, Guard
from planet_bayes.errors import EnvError
from planet_bayes.spaces import Box

_DEFAULT = EnvConfig()
FILM_SIZE = 128
"""Height and width of rendered frames if the agent sees no rendered image."""
RENDER_SIZES = {32: 128, 64: 64}
"""Height and width of the suite's raw frames for each image size. Small images are averages of
larger frames, so that objects thinner than a pixel look paler instead of broken."""


def make_env(task: str, config: EnvConfig = _DEFAULT) -> NamedObservations:
    """Return the environment of ``task``.

    Args:
        task: A name in `TASKS`, a registered Gymnasium id, or ``package.module:function``,
            where the function returns a Gymnasium environment.
        config: What the agent observes and how its actions are applied.

    Returns:
        An environment with actions in [-1, 1]^A (float32; others are clipped), raw observations
        as a dict by name, and rewards summed over the action repeat. Its ``signature`` prepares
        the observations. ``reset(seed=...)`` determines the episode; ``render()`` returns an RGB
        frame.

    Raises:
        ConfigError: There is no such task, or no such observation.
        EnvError: The environment cannot be made, or has spaces that are not supported.
    """
    spec = TASKS.get(task)
    env = _make_native(task, spec, config)
    with ExitStack() as stack:
        stack.callback(_close, env)  # an environment that is refused may hold a device
        made = _wrapped(env, task, spec, config)
        stack.pop_all()
    return made


def _wrapped(
    env: gymnasium.Env[Any, Any], task: str, spec: TaskSpec | None, config: EnvConfig
) -> NamedObservations:
    """Wrap from inner to outer: repeat, actions, time limit, observations.

    What is outside the repeat, above all rendering, is done once per action and not once per
    simulator step.
    """
    native = env.action_space
    env = ActionRepeat(env, config.action_repeat or (spec.action_repeat if spec else 1))
    env = unit_actions(env, task)
    if config.max_steps:
        env = TimeLimit(env, config.max_steps)
    assert isinstance(native, spaces.Box)
    return NamedObservations(env, task, spec, config, native)


def _close(env: gymnasium.Env[Any, Any]) -> None:
    with suppress(EnvError):
        env.close()


def _make_native(task: str, spec: TaskSpec | None, config: EnvConfig) -> gymnasium.Env[Any, Any]:
    pixels = "pixels" in config.sources.values()
    if spec is not None and spec.domain == "toy":
        size = config.image_size if pixels else FILM_SIZE
        return Guard(ToyReach(size), task, timeout=config.timeout)
    # Before anything imports MuJoCo, which reads the choice once.
    gl.choose_backend()
    if spec is None:
        env = make_external(task, list(TASKS))
        # Only Gymnasium's MuJoCo environments have this attribute.
        uses_mujoco = hasattr(env.unwrapped, "mujoco_renderer")
        advice = gl.advice() if uses_mujoco else ""
        return Guard(env, task, render_advice=advice, timeout=config.timeout)
    # Imported late: the toy and the user's own environments do not need dm_control.
    try:
        from planet_bayes.envs import suite
    except ModuleNotFoundError as error:
        raise EnvError(f"{task}: {extras.advice(error) or error}") from error
    except Exception as error:  # a missing OpenGL backend raises many kinds of errors
        raise EnvError(
            f"{task}: could not load dm_control ({type(error).__name__}: {error}). {gl.advice()}"
        ) from error

    size = RENDER_SIZES[config.image_size] if pixels else FILM_SIZE
    env = suite.make(spec, original=config.original, image_size=size)
    return Guard(env, task, render_advice=gl.advice(), timeout=config.timeout)


@dataclass(frozen=True)
class TaskInfo:
    """One line of the listing of tasks."""

    name: str
    sensors: int
    """Numbers that the agent sees with the source `sensors`."""
    state: int
    """Numbers that the agent sees with the source `state`."""
    action_size: int
    control_range: tuple[float, float]
    """Lowest and highest native control."""
    action_repeat: int
    episode_steps: int
    """Agent steps per episode."""
    note: str


def describe_tasks() -> list[TaskInfo]:
    """Return the facts of each named task, without rendering anything."""
    return [_describe(spec) for spec in TASKS.values()]


def _describe(spec: TaskSpec) -> TaskInfo:
    with closing(make_env(spec.name, EnvConfig(observation=("sensors", "state")))) as env:
        signature = env.signature
    action = signature.action
    assert isinstance(action, Box)
    return TaskInfo(
        name=spec.name,
        sensors=signature.observation["sensors"].shape[0],
        state=signature.observation["state"].shape[0],
        action_size=action.size,
        control_range=(min(action.low), max(action.high)),
        action_repeat=spec.action_repeat,
        episode_steps=-(-spec.simulator_steps // spec.action_repeat),
        note=spec.note,
    )
