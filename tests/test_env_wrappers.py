"""The guard against unusable values, and action repeat."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from env_parts import STATE, rollout
from planet_bayes.envs import TASKS, EnvConfig, make_env
from planet_bayes.errors import EnvError


@pytest.mark.parametrize("task", ["cartpole_swingup", "cheetah_run"])
def test_action_repeat_sums_rewards(task: str) -> None:
    repeat = TASKS[task].action_repeat
    long, short = make_env(task, STATE), make_env(task, EnvConfig(("state",), action_repeat=1))
    long.reset(seed=4)
    short.reset(seed=4)
    action = np.full(long.signature.action.size, 0.7, np.float32)
    for _ in range(3):
        observation, reward, *_ = long.step(action)
        parts = [short.step(action) for _ in range(repeat)]
        assert reward == pytest.approx(sum(float(part[1]) for part in parts))
        assert np.array_equal(observation["state"], parts[-1][0]["state"])
    assert long.metadata["render_fps"] * repeat == short.metadata["render_fps"]


def test_repeat_stops_where_the_episode_ends(own: Callable[..., str]) -> None:
    env = make_env(own(length=3), EnvConfig(("state",), action_repeat=2))
    env.reset(seed=0)
    assert env.step(np.zeros(2, np.float32))[1:3] == (2.0, False)
    assert env.step(np.zeros(2, np.float32))[1:3] == (1.0, True)
    with pytest.raises(EnvError, match=r"call reset\(\)"):
        env.step(np.zeros(2, np.float32))


def test_an_environment_may_change_the_action_that_it_is_given(own: Callable[..., str]) -> None:
    task = own()
    inner = sys.modules["own_env"].env

    def halve(step: int) -> float:
        inner.received[-1] *= 0.5
        return 1.0

    inner.reward = halve
    env = make_env(task, EnvConfig(("state",), action_repeat=3))
    env.reset(seed=0)
    env.step(np.ones(2, np.float32))
    np.testing.assert_allclose(inner.received, 2.0, rtol=1e-6)  # each half of the bound, 4


# --- the guard


def fails(value: Any) -> Callable[[int], Any]:
    """Return an observation or reward function that is good at first and ``value`` at step 2."""

    def function(step: int) -> Any:
        if step == 2 and isinstance(value, Exception):
            raise value
        return value if step == 2 else np.zeros(3, np.float32)

    return function


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([0, np.nan, 0], np.float32), r"step 2 is not finite: entry 1 .* is nan"),
        (np.array([0, 0, np.inf], np.float32), r"step 2 is not finite: entry 2 .* is inf"),
        (np.array([0, 1e300, 0]), r"step 2 is not finite: entry 1"),
        (np.zeros(4, np.float32), r"step 2 is an array of shape \(4,\)"),
        (np.zeros(3, complex), r"step 2 is an array of shape \(3,\) and type complex128"),
        (None, r"step 2 is None"),
        (ZeroDivisionError("oh"), r"step 2 raised ZeroDivisionError: oh"),
    ],
)
def test_guard_names_the_observation(own: Callable[..., str], value: Any, message: str) -> None:
    env = make_env(own(observe=fails(value)), STATE)
    with pytest.raises(EnvError, match=rf"own_env:make: .*{message}") as caught:
        rollout(env, seed=0)
    if isinstance(value, Exception):
        assert caught.value.__cause__ is value


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e33, np.zeros(1), None, "1", 1j])
def test_guard_names_the_reward(own: Callable[..., str], value: Any) -> None:
    env = make_env(own(reward=lambda step: value if step == 2 else 0.5), STATE)
    with pytest.raises(EnvError, match="own_env:make: the reward at step 2"):
        rollout(env, seed=0)


@pytest.mark.parametrize("value", [1, np.float32(1), np.array(1.0), True])
def test_guard_takes_any_finite_scalar_reward(own: Callable[..., str], value: Any) -> None:
    record = rollout(make_env(own(reward=lambda step: value), STATE), seed=0)
    assert type(record[2]) is float
    assert record[2] == 1.0


def test_guard_names_a_failing_reset_and_a_wrong_dict(own: Callable[..., str]) -> None:
    def broken(step: int) -> Any:
        raise ValueError("no camera")

    with pytest.raises(EnvError, match=r"reset\(\) raised ValueError: no camera"):
        make_env(own(observe=broken), STATE).reset(seed=0)
    space = spaces.Dict(a=spaces.Box(-1, 1), b=spaces.Discrete(3))
    for value, message in (
        ({"a": np.zeros(1, np.float32)}, r"dict with the keys \['a'\]"),
        ({"a": np.zeros(1, np.float32), "b": 7}, r"\['b'\] at reset\(\) is 7"),
        ({"a": np.full(1, np.nan, np.float32), "b": 1}, r"\['a'\] at reset\(\) is not finite"),
    ):
        env = make_env(own(space=space, observe=lambda step, value=value: value), STATE)
        with pytest.raises(EnvError, match=message):
            env.reset(seed=0)


def test_render_is_refused_only_when_called(own: Callable[..., str]) -> None:
    env = make_env(own(render_mode=None), STATE)
    rollout(env, seed=0)
    with pytest.raises(EnvError, match="cannot render"):
        env.render()


def test_guard_refuses_frames_that_are_no_rgb_images(own: Callable[..., str]) -> None:
    for frame in (np.zeros((9, 9), np.uint8), np.zeros((9, 9, 3)), None):
        with pytest.raises(EnvError, match="expected an RGB image"):
            make_env(own(frame=lambda step, frame=frame: frame))
