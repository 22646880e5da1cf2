"""Actions: clipped, rescaled and reshaped; the signature's native bounds; what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from env_parts import STATE, SUITE, WIDENED
from planet_bayes.envs import EnvConfig, make_env
from planet_bayes.errors import ConfigError, EnvError
from planet_bayes.spaces import Box


def test_actions_are_clipped_rescaled_and_reshaped(own: Callable[..., str]) -> None:
    box = spaces.Box(np.full((2, 2), -2.0), np.full((2, 2), 4.0), dtype=np.float64)
    env = make_env(own(actions=box), STATE)
    assert env.action_space == spaces.Box(-1, 1, (4,), np.float32)
    env.reset(seed=0)
    env.step(np.array([-1, 0, 1, 7], np.float32))
    received = env.unwrapped.received[0]  # type: ignore[attr-defined]
    assert received.dtype == np.float64
    assert np.allclose(received, [[-2, 1], [4, 4]])
    for wrong in (np.zeros(3, np.float32), np.full(4, np.nan, np.float32)):
        with pytest.raises(EnvError, match="expected an action of 4 finite numbers"):
            env.step(wrong)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (spaces.Discrete(3), "only continuous actions"),
        (spaces.MultiDiscrete([2, 2]), "only continuous actions"),
        (spaces.Box(0, 5, (2,), np.int64), "only continuous actions"),
        (spaces.Dict(a=spaces.Box(-1, 1)), "only continuous actions"),
        (spaces.Box(np.array([-1, -1.0]), np.array([1, np.inf]), dtype=np.float64), r"\[1\]"),
        (spaces.Box(-1, 1, (0,)), "no entries"),
        (spaces.Box(np.array([0.0, 1.0]), np.ones(2), dtype=np.float64), r"low equals.*\[1\]"),
    ],
)
def test_action_spaces_refused(
    own: Callable[..., str], actions: spaces.Space[Any], message: str
) -> None:
    with pytest.raises(EnvError, match=message):
        make_env(own(actions=actions), STATE)


# --- native bounds


@pytest.mark.parametrize("task", [*SUITE, "toy_reach"])
@pytest.mark.parametrize("original", [False, True])
def test_the_signature_has_the_native_bounds(task: str, original: bool) -> None:
    env = make_env(task, EnvConfig(("state",), original=original))
    size = env.action_space.shape[0]  # type: ignore[index]
    bound = 3.0 if task in WIDENED and not original else 1.0
    assert env.signature.action == Box((-bound,) * size, (bound,) * size)


def test_the_signature_converts_actions_as_the_environment_does(own: Callable[..., str]) -> None:
    box = spaces.Box(np.array([[-2.0], [0.5]]), np.array([[4.0], [0.75]]), dtype=np.float64)
    env = make_env(own(actions=box), STATE)
    action = env.signature.action
    assert action == Box((-2.0, 0.5), (4.0, 0.75))
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(8):
        chosen = rng.uniform(-1.5, 1.5, 2).astype(np.float32)
        env.step(chosen)
        received = env.unwrapped.received[-1]  # type: ignore[attr-defined]
        np.testing.assert_allclose(action.to_native(chosen), received.ravel(), rtol=1e-6)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ((), ()),
        ((0.0,), (1.0, 2.0)),
        ((1.0,), (1.0,)),
        ((2.0,), (1.0,)),
        ((float("nan"),), (1.0,)),
        ((-float("inf"),), (1.0,)),
    ],
)
def test_a_box_has_finite_bounds_in_order(low: tuple[float, ...], high: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="a box of actions needs"):
        Box(low, high)
