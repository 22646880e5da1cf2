"""The cliff of `examples/cliff.py`: its motion, its reward and its end."""

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planet_bayes.envs import EnvConfig, make_env

ROOT = Path(__file__).parent.parent
CLIFF = runpy.run_path(str(ROOT / "examples" / "cliff.py"))
TABLES = runpy.run_path(str(ROOT / "benchmarks" / "caution_tables.py"))
EDGE, LOSS, NUM_STEPS, WALL = (CLIFF[name] for name in ("EDGE", "LOSS", "NUM_STEPS", "WALL"))
moved, reward_at = CLIFF["moved"], CLIFF["reward_at"]
figures, risk_name, with_interval = (
    TABLES[name] for name in ("figures", "risk_name", "with_interval")
)


def test_one_step_by_hand() -> None:
    position, speed = moved(np.array(0.5), np.array(1.0), np.array(-3.0), np.array(0.25))
    assert speed == pytest.approx(1 + 0.1 * (-2 - 1) + 0.25)  # the push is clipped to -1
    assert position == pytest.approx(0.5 + 0.1 * 0.95)


def test_the_wall_stops_the_point() -> None:
    found = moved(np.array([WALL, 0.0]), np.full(2, -1.0), np.full(2, -1.0), np.zeros(2))
    np.testing.assert_allclose(found[0], [WALL, -0.11])
    np.testing.assert_allclose(found[1], [0.0, -1.1])


def test_the_reward_grows_to_the_edge_and_is_a_loss_beyond_it() -> None:
    found = reward_at(np.array([EDGE - 0.5, EDGE, EDGE + 1e-9, EDGE + 5]))
    np.testing.assert_allclose(found, [math.exp(-1), 1.0, -LOSS, -LOSS])


def test_a_fall_ends_the_episode_and_a_rest_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    env = make_env("examples.cliff:make", EnvConfig(observation=("state",)))
    cliff: Any = env.unwrapped
    for push, falls in ((1.0, True), (-1.0, False)):
        env.reset(seed=0)
        total, steps, ended = 0.0, 0, False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(np.array([push], np.float32))
            total, steps, ended = total + float(reward), steps + 1, terminated or truncated
        assert (terminated, cliff.fell, steps < NUM_STEPS) == (falls, falls, falls)
        assert (total < 0) == falls
        assert len(cliff.path) == steps + 1


def test_the_figures_of_a_row() -> None:
    found = figures({"returns": [4, -8], "falls": [False, True], "distances": [0.5, None]})
    assert found == (0.5, -2.0, 4.0, 0.5)
    assert figures({"returns": [1], "falls": [True], "distances": [None]})[2:] == (None, None)


def test_the_interval_is_students() -> None:
    assert with_interval([1.0, 2.0, 3.0], 2) == "2.00 ± 2.48"  # 4.303 · 1 / √3
    assert with_interval([2.0, None], 1) == "2.0"
    assert (risk_name(0, 1), risk_name(2, 1), risk_name(0, 0.5)) == ("mean", "β = 2", "α = 0.5")
