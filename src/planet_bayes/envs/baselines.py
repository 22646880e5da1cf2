"""Returns of doing nothing clever, the level that a learned result has to stand beside."""

from contextlib import closing
from typing import Literal

import numpy as np

from planet_bayes.envs.config import EnvConfig
from planet_bayes.envs.make import make_env
from planet_bayes.errors import ConfigError

Policy = Literal["random", "zero"]
"""Actions drawn uniformly from [-1, 1]^A, or always zero."""

_DEFAULT = EnvConfig(observation="state")


def random_return(
    task: str,
    config: EnvConfig = _DEFAULT,
    episodes: int = 10,
    seed: int = 0,
    policy: Policy = "random",
) -> list[float]:
    """Return the undiscounted return of each of ``episodes`` episodes under ``policy``.

    Observations are not looked at, so ``state`` is the cheapest mode and gives the same
    returns as pixels. Episode ``i`` depends on ``seed`` and ``i`` only.
    """
    # Late, because it loads PyTorch, which nothing else in this package needs.
    from planet_bayes.rng import integer_seed, numpy_stream

    if policy not in ("random", "zero"):
        raise ConfigError(f"policy is {policy!r}, expected 'random' or 'zero'")
    if episodes < 1:
        raise ConfigError(f"episodes is {episodes}, expected at least 1")
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
