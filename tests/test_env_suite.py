"""The suite's tasks: the paper's changes, and simulations that diverge."""

from typing import Any

import numpy as np
import pytest

from env_parts import SENSORS, STATE, WIDENED
from planet_bayes.envs import EnvConfig, make_env


@pytest.mark.parametrize("task", WIDENED)
def test_a_control_of_three_acts_more_strongly_than_one(task: str) -> None:
    def speed_gained(original: bool) -> float:
        env = make_env(task, EnvConfig(("state",), original=original, action_repeat=1))
        env.reset(seed=2)
        physics = env.unwrapped._env.physics  # type: ignore[attr-defined]
        before = physics.data.qvel.copy()
        env.step(np.ones(env.action_space.shape, np.float32))
        expected = 1.0 if original else 3.0
        assert (physics.data.ctrl == expected).all()
        assert np.allclose(physics.data.actuator_force, expected)
        return float(np.abs(physics.data.qvel - before).sum())

    assert speed_gained(original=False) > 1.3 * speed_gained(original=True)


def test_cup_is_left_alone_and_original_is_the_suites() -> None:
    for config in (STATE, EnvConfig(("state",), original=True)):
        assert make_env("cup_catch", config).unwrapped.action_space.high.max() == 1.0  # type: ignore[attr-defined]
    env = make_env("cheetah_run", EnvConfig(("state",), original=True))
    assert type(env.unwrapped._env.task).__name__ == "Cheetah"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("task", "cap"), [("cheetah_run", 10.0), ("walker_run", 8.0)])
def test_reward_equals_the_suites_below_the_cap_and_grows_above(task: str, cap: float) -> None:
    ours, suites = (
        make_env(task, EnvConfig(("state",), original=original)).unwrapped._env  # type: ignore[attr-defined]
        for original in (False, True)
    )

    def reward(env: Any, speed: float) -> float:
        env.task._random = np.random.RandomState(0)
        env.reset()
        env.physics.data.qvel[:] = 0
        env.physics.named.data.qvel["rootx"] = speed
        env.physics.forward()
        return float(env.task.get_reward(env.physics))

    for speed in (-3.0, 0.0, 0.3 * cap, 0.9 * cap):
        assert reward(ours, speed) == pytest.approx(reward(suites, speed), abs=1e-9)
    assert reward(ours, 0.9 * cap) > reward(ours, 0.3 * cap) > reward(ours, 0.0)
    assert reward(suites, 2 * cap) == pytest.approx(reward(suites, 1.5 * cap))
    assert reward(ours, 2 * cap) > reward(ours, 1.5 * cap) > reward(suites, 1.5 * cap)
    if task == "cheetah_run":
        assert reward(ours, 2 * cap) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("task", ["cheetah_run", "walker_run"])
def test_an_uncapped_task_differs_from_the_suites_in_the_reward_only(task: str) -> None:
    ours, suites = (
        make_env(task, EnvConfig(("state",), original=original)).unwrapped._env  # type: ignore[attr-defined]
        for original in (False, True)
    )
    assert isinstance(ours.task, type(suites.task))
    assert type(ours.task) is not type(suites.task)
    for name in ("_move_speed", "_visualize_reward"):
        assert getattr(ours.task, name, None) == getattr(suites.task, name, None)
    assert ours.control_timestep() == suites.control_timestep()
    assert ours._step_limit == suites._step_limit


def test_an_episode_ends_where_the_simulation_diverges_and_the_next_is_sound() -> None:
    env, untouched = make_env("cheetah_run", SENSORS), make_env("cheetah_run", SENSORS)
    before = env.reset(seed=0)[0]["sensors"]
    physics = env.unwrapped._env.physics  # type: ignore[attr-defined]
    physics.data.qvel[:] = 1e9
    physics.forward()
    state = physics.get_state()
    observation, reward, terminated, truncated, info = env.step(np.ones(6, np.float32))
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert "BADQACC" in info["diverged"]
    assert np.array_equal(observation["sensors"], before)
    assert np.array_equal(physics.get_state(), state)
    for one in (env, untouched):
        one.reset(seed=1)
    action = np.ones(6, np.float32)
    assert np.array_equal(env.step(action)[0]["sensors"], untouched.step(action)[0]["sensors"])


@pytest.mark.parametrize(("speed", "diverges"), [(300.0, False), (5000.0, True)])
def test_a_speed_that_nothing_has_is_not_rewarded(speed: float, diverges: bool) -> None:
    env = make_env("cheetah_run", SENSORS)
    env.reset(seed=0)
    env.unwrapped._env.physics.named.data.qvel["rootx"] = speed  # type: ignore[attr-defined]
    _, reward, _, truncated, info = env.step(np.zeros(6, np.float32))
    assert truncated == diverges == ("m/s" in info.get("diverged", ""))
    assert reward == 0 if diverges else reward > 50
