"""Episodes in and off distribution: under usual and unusual actions, physics and sensors.

The seeds of an episode are functions of the condition and the number of the episode, and of nothing
else. The agent's own actions depend on its weights: to compare models on the same episodes, record
them once (see `planet_bayes.diagnostics.recorded`).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planet_bayes.agent import Agent, Prepared
from planet_bayes.errors import ConfigError, EnvError
from planet_bayes.models import Vector
from planet_bayes.rng import numpy_stream
from planet_bayes.runs import Run
from planet_bayes.spaces import Signature
from planet_bayes.training.collect import (
    Policy,
    Streams,
    collect_with_agent,
    episode_streams,
    record,
)
from planet_bayes.types import Episode

AnyEnv = gymnasium.Env[Any, Any]

SEED = 0
"""Of all conditions, whatever the run's own seed is."""
HALF_PERIODS = (3, 15)
"""Shortest and longest half period of a square wave, in agent steps."""
MIN_FORCE = 1e-9
"""Newtons or newton metres, below which gravity exerts none."""
CLEAN = "agent"
"""The condition that AUROC compares the others with."""
USUAL = "noise"
"""The condition of training: what `planet-bayes diagnose` shows step by step."""


@dataclass(frozen=True)
class Condition:
    """How episodes are made. Without any change: with the agent, noise-free."""

    title: str
    exploration: float = 0.0
    """Std of the noise added to the agent's actions."""
    policy: Callable[[Signature, Streams], Policy] | None = None
    """Makes the policy of an episode; None: the agent."""
    change: Callable[[AnyEnv], None] | None = None
    """Changes the environment once, before its episodes."""
    sensor_noise: float = 0.0
    """Std of the noise in vector observations, in stds of each sensor in the clean episodes."""


class NotApplicable(EnvError):
    """A condition that an environment cannot have."""


def random_policy(signature: Signature, streams: Streams) -> Policy:
    """Return a policy of uniformly random actions."""
    return lambda observation: signature.action.random(streams.numpy)


def square_wave(signature: Signature, streams: Streams) -> Policy:
    """Return a policy whose entries switch between -1 and 1.

    Each entry has a random half period (see `HALF_PERIODS`) and a random phase.
    """
    shortest, longest = HALF_PERIODS
    half = streams.numpy.integers(shortest, longest + 1, signature.action.size)
    step = streams.numpy.integers(0, 2 * half)  # the phase of each entry

    def policy(observation: Prepared) -> NDArray[np.float32]:
        nonlocal step
        action = np.where(step // half % 2, -1.0, 1.0).astype(np.float32)
        step = step + 1
        return action

    return policy


def scale_gravity(env: AnyEnv, factor: float) -> None:
    """Scale the gravity of a control suite task, for all episodes from now on.

    Where gravity moves nothing, this raises `NotApplicable`: there would be no change to notice.
    """
    model = _suite_model(env)
    if not _gravity_acts(model.ptr):
        raise NotApplicable("it changes gravity, which exerts no force in this task.")
    model.opt.gravity[:] *= factor


def _gravity_acts(model: Any) -> bool:
    """Return whether gravity exerts a force on any joint, in an arbitrary configuration."""
    import mujoco  # late: MUJOCO_GL must be set before

    data = mujoco.MjData(model)
    data.qpos[:] += np.random.default_rng(0).normal(size=model.nq)  # not an equilibrium
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    force = np.zeros(model.nv)
    mujoco.mj_rne(model, data, 0, force)  # at rest, so gravity alone
    return bool(np.abs(force).max(initial=0.0) > MIN_FORCE)


def scale_motors(env: AnyEnv, factor: float) -> None:
    """Scale the force of all actuators of a control suite task, for all episodes from now on.

    MuJoCo's force is linear in these parameters, except that of muscles. Limits of the force, where
    a model has them, stay.
    """
    model = _suite_model(env)
    model.actuator_gainprm[:] *= factor
    model.actuator_biasprm[:] *= factor


def _suite_model(env: AnyEnv) -> Any:
    """Return the MuJoCo model of a control suite task. Resets keep it and change the state only."""
    physics = getattr(getattr(env.unwrapped, "_env", None), "physics", None)
    if physics is None:
        raise NotApplicable(
            f"it changes the physics of a control suite task, and {type(env.unwrapped).__name__} "
            "is none."
        )
    return physics.model


CONDITIONS: dict[str, Condition] = {
    CLEAN: Condition("agent"),
    "again": Condition("agent, other starts"),
    USUAL: Condition("agent, noise 0.3", exploration=0.3),
    "random": Condition("random actions", policy=random_policy),
    "square": Condition("square-wave actions", policy=square_wave),
    "gravity": Condition("gravity × 0.4", change=lambda env: scale_gravity(env, 0.4)),
    "motor": Condition("motor × 3", change=lambda env: scale_motors(env, 3.0)),
    "sensors": Condition("sensor noise 0.3", sensor_noise=0.3),
}
"""Conditions by name. ``again`` is the control: nothing has changed but the starts."""


@dataclass(frozen=True)
class Collection:
    """Episodes of all conditions that the environment allows."""

    episodes: dict[str, list[Episode]] = field(default_factory=dict)
    """By the name of the condition."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Why a condition has none, by its name."""


@dataclass(frozen=True)
class NoisySensors:
    """A vector modality with measurement noise. It is never saved: its `prepare` draws numbers."""

    clean: Vector
    std: NDArray[np.floating]
    """Of the noise in each prepared entry."""
    rng: np.random.Generator

    def prepare(self, raw: Any) -> NDArray[np.float32]:
        """Return the prepared vector with noise."""
        values = self.clean.prepare(raw)
        return (values + self.std * self.rng.standard_normal(values.shape)).astype(np.float32)


def collect(
    run: Run, episodes: int, report: Callable[[str], None] = lambda title: None
) -> Collection:
    """Make episodes under all conditions.

    Args:
        run: The run, on the CPU.
        episodes: Episodes for each condition.
        report: Called with the title of each condition when it begins.
    """
    collection = Collection()
    for name, condition in CONDITIONS.items():
        report(condition.title)
        try:
            made = collect_condition(run, name, episodes, collection.episodes.get(CLEAN, ()))
            collection.episodes[name] = made
        except NotApplicable as error:
            collection.skipped[name] = str(error)
    return collection


def collect_condition(
    run: Run, name: str, episodes: int, clean: Sequence[Episode] = ()
) -> list[Episode]:
    """Make the episodes of one condition, in an environment of its own.

    Args:
        run: The run, on the CPU.
        name: The condition, in `CONDITIONS`.
        episodes: How many.
        clean: Clean episodes, which give the scale of the noise in sensors.
    """
    condition, made = CONDITIONS[name], []
    with contextlib.closing(run.make_env()) as env:
        if condition.change is not None:
            condition.change(env)
        for number in range(episodes):
            streams = episode_streams(SEED, f"diagnose-{name}", number, "cpu")
            if condition.policy is not None:
                signature = run.agent.signature
                policy = condition.policy(signature, streams)
                made.append(record(env, signature, streams, policy))
                continue
            agent = run.agent
            if condition.sensor_noise:
                rng = numpy_stream(SEED, f"diagnose-{name}-noise", number)
                agent = with_noisy_sensors(agent, condition.sensor_noise, clean, rng)
            made.append(collect_with_agent(env, agent, streams, condition.exploration).episode)
    return made


def with_noisy_sensors(
    agent: Agent, scale: float, clean: Sequence[Episode], rng: np.random.Generator
) -> Agent:
    """Return the agent with noise in its vector observations. It plans from what it then sees.

    Args:
        agent: The agent.
        scale: Std of the noise, in stds of each sensor in the clean episodes.
        clean: The clean episodes.
        rng: Source of the noise.
    """
    if not clean:
        raise ConfigError("the noise of sensors is scaled by clean episodes: collect them first.")
    signature = agent.signature
    observation: dict[str, Any] = dict(signature.observation)
    for name, modality in signature.observation.items():
        if isinstance(modality, Vector):
            seen = np.concatenate([episode.observation[name] for episode in clean])
            observation[name] = NoisySensors(modality, scale * seen.std(0, dtype=np.float64), rng)
    if observation == signature.observation:
        raise NotApplicable("it adds noise to vectors, and the agent observes none.")
    noisy = dataclasses.replace(signature, observation=observation)
    return Agent(agent.model, noisy, agent.planner, agent.belief_filter)
