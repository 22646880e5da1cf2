"""The toy task, and the baselines of random and zero actions."""

import subprocess
import sys

import numpy as np
import pytest

from env_parts import SENSORS, STATE
from planet_bayes.envs import ToyReach, make_env, random_return
from planet_bayes.errors import ConfigError


def test_toy_loads_no_mujoco() -> None:
    code = (
        "import sys; from planet_bayes.envs import *; make_env('toy_reach').reset(seed=0); "
        "assert not {'mujoco', 'dm_control', 'cv2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_toy_pixels_show_mass_and_target() -> None:
    env = ToyReach(64)
    env.reset(seed=0)
    env._position, env._target = np.array([-0.8, 0.8]), np.array([0.8, -0.8])
    frame = env.render().astype(int)
    reddest = np.unravel_index((frame[..., 0] - frame[..., 2]).argmax(), (64, 64))
    bluest = np.unravel_index((frame[..., 2] - frame[..., 0]).argmax(), (64, 64))
    # Up and left for the mass, down and right for the target.
    assert np.allclose(reddest, (10, 10), atol=1.5)
    assert np.allclose(bluest, (53, 53), atol=1.5)


def test_toy_can_be_solved_and_random_does_not() -> None:
    env = make_env("toy_reach", STATE)
    totals = []
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            position, velocity, target = observation["state"].reshape(3, 2)
            action = np.clip(4 * (target - position) - 1.5 * velocity, -1, 1)
            observation, reward, _, ended, _ = env.step(action)
            assert 0 <= float(reward) <= 1
            total += float(reward)
        totals.append(total)
    assert min(totals) > 35
    assert np.mean(random_return("toy_reach", STATE, 10, 0, "random")) < 25


def test_toy_walls_stop_the_mass() -> None:
    env = ToyReach()
    env.reset(seed=0)
    for _ in range(30):
        observation, *_ = env.step(np.array([1.0, 0.0], np.float32))
    assert observation["position"][0] == 1.0
    assert observation["velocity"][0] == 0.0


# --- baselines


def test_baselines() -> None:
    returns = random_return("cartpole_swingup", STATE, episodes=3, seed=0, policy="random")
    assert 60 < np.mean(returns) < 220  # 140 ± 51 per episode
    assert returns[:2] == random_return("cartpole_swingup", SENSORS, 2, 0, "random")
    assert returns != random_return("cartpole_swingup", STATE, 3, 1, "random")
    still = random_return("cartpole_swingup", STATE, 1, 0, "zero")
    assert max(still) < 1


def test_baselines_refuse() -> None:
    with pytest.raises(ConfigError, match="policy must be random or zero, got 'best'"):
        random_return("toy_reach", STATE, 1, 0, "best")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="episodes must be at least 1, got 0"):
        random_return("toy_reach", STATE, 0)
