"""Returns of random and of zero actions: baselines for learned agents."""

import dataclasses
from contextlib import closing
from typing import Literal

import numpy as np

from planet_bayes.envs.config import EnvConfig
from planet_bayes.envs.make import make_env
from planet_bayes.envs.tasks import TASKS
from planet_bayes.errors import ConfigError
from planet_bayes.rng import integer_seed, numpy_stream

Policy = Literal["random", "zero"]
"""`random`: actions uniform in [-1, 1]^A. `zero`: zeros."""

_DEFAULT = EnvConfig(observation=("state",))


def random_return(
    task: str,
    config: EnvConfig = _DEFAULT,
    episodes: int = 10,
    seed: int = 0,
    policy: Policy = "random",
) -> list[float]:
    """Return the undiscounted return of each episode under a fixed policy.

    Args:
        task: Name of the task.
        config: Settings of the environment. Observations are not used; ``state`` is the cheapest
            source and gives the same returns as pixels.
        episodes: How many.
        seed: Root of the randomness. Episode ``i`` depends on ``seed`` and ``i`` only.
        policy: ``random`` or ``zero``.
    """
    if policy not in ("random", "zero"):
        raise ConfigError(f"policy must be random or zero, got {policy!r}.")
    if episodes < 1:
        raise ConfigError(f"episodes must be at least 1, got {episodes}.")
    env = make_env(task, config)
    shape = env.action_space.shape
    assert shape is not None
    returns = []
    with closing(env):
        for episode in range(episodes):
            actions = numpy_stream(seed, "baseline-actions", episode)
            env.reset(seed=integer_seed(seed, "baseline-env", episode))
            total, ended = 0.0, False
            while not ended:
                uniform = policy == "random"
                action = actions.uniform(-1.0, 1.0, shape) if uniform else np.zeros(shape)
                _, reward, terminated, truncated, _ = env.step(action.astype(np.float32))
                total += float(reward)
                ended = terminated or truncated
            returns.append(total)
    return returns


def baseline_returns(
    task: str, config: EnvConfig, episodes: int, seed: int
) -> dict[Policy, list[float]]:
    """Return the returns of random and of zero actions, in the cheapest version of a task.

    Args:
        task: Name of the task.
        config: Settings of the environment.
        episodes: How many for each.
        seed: Root of the randomness.
    """
    if task in TASKS:
        config = dataclasses.replace(config, observation=("state",), sensors=())
    policies: tuple[Policy, ...] = ("random", "zero")
    return {policy: random_return(task, config, episodes, seed, policy) for policy in policies}
