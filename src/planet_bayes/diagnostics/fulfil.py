"""Fulfil a data request: go to its start, and do what it asks.

A start is a moment of a stored episode. It is reached by the reset of that episode and its actions
up to the moment, which needs an environment that does the same after the same seed, and nothing
else: no state is set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from planet_bayes.agent import Prepared
from planet_bayes.config import Config
from planet_bayes.diagnostics.requests import Request
from planet_bayes.errors import EnvError
from planet_bayes.rng import integer_seed
from planet_bayes.spaces import Signature
from planet_bayes.training.collect import Policy
from planet_bayes.types import Episode

SAME = 1e-3
"""Largest difference of a replayed observation from the stored one, as a share of the largest
number in it."""


def reset_seed(config: Config, number: int) -> int | None:
    """Return the seed of a run's episode; None: the episodes are a log, and no seed is known."""
    return None if config.offline else integer_seed(config.seed, "collect-environment", number)


def reach(
    env: gymnasium.Env[Any, Any], signature: Signature, seed: int, start: Episode, step: int
) -> Prepared:
    """Bring an environment to a step of a stored episode, and return its observation.

    Args:
        env: The environment. It is reset.
        signature: What the agent senses.
        seed: Of the stored episode's reset.
        start: The stored episode.
        step: The step.
    """
    raw, _ = env.reset(seed=seed)
    seen = signature.prepare(raw)
    _compare(seen, start, 0)
    for number in range(1, step + 1):
        raw, _, terminated, truncated, _ = env.step(start.action[number])
        seen = signature.prepare(raw)
        if (terminated or truncated) and number < step:
            raise EnvError(f"the replayed episode ended at step {number}, before step {step}.")
    _compare(seen, start, step)
    return seen


def asking(request: Request, start: Episode, after: Policy) -> Policy:
    """Return the policy of a whole episode: to the start, the request's actions, then ``after``.

    The episode must begin with the reset of the stored one.
    """
    known = iter([*start.action[1 : request.step + 1], *request.actions])

    def policy(observation: Prepared) -> Any:
        action = next(known, None)
        return after(observation) if action is None else action

    return policy


def _compare(seen: Prepared, start: Episode, step: int) -> None:
    for name, values in seen.items():
        now, then = (np.asarray(one, np.float64) for one in (values, start.observation[name][step]))
        worst = float(np.abs(now - then).max())
        if worst > SAME * max(1.0, float(np.abs(then).max())):
            raise EnvError(
                f"the start cannot be reached: at step {step} of the replayed episode {name!r} "
                f"differs from what was stored by {worst:.3g}. The environment does not repeat "
                "itself; bring it there by other means."
            )


def reached(
    env: gymnasium.Env[Any, Any],
    signature: Signature,
    config: Config,
    episodes: Sequence[Episode],
    request: Request,
) -> str:
    """Return whether a request's start can be reached by replaying: yes, or why not."""
    seed = reset_seed(config, request.episode)
    if seed is None:
        return "the seed of the logged episode is not known."
    try:
        reach(env, signature, seed, episodes[request.episode], request.step)
    except EnvError as error:
        return str(error)
    return "yes"
