"""Whole runs with several observations, and with one environment only."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import planet_bayes
from assertions import assert_same_run
from planet_bayes import runs
from planet_bayes.config import Config
from planet_bayes.data.rows import read_metrics
from planet_bayes.envs import EnvConfig, gl
from planet_bayes.errors import EnvError
from test_train import stop_after
from tiny_run import replaced

BOTH = ("camera=pixels", "joints=sensors")


def camera_and_joints(tiny: Config, task: str) -> Config:
    return replaced(
        tiny,
        task=task,
        env=EnvConfig(observation=BOTH, image_size=32, blur=3, max_steps=6),
        model={"image_depth": 2},
        loss={"decode_fraction": 0.5},
        collect={"episodes": 1},
        run={"evaluation_episodes": 1},
    )


@pytest.mark.usefixtures("films")
@pytest.mark.parametrize(
    "task",
    [
        "toy_reach",
        pytest.param(
            "cheetah_run",
            marks=pytest.mark.skipif(not gl.egl_works(), reason="no EGL on this machine"),
        ),
    ],
)
def test_an_agent_learns_from_a_camera_and_joints(tiny: Config, tmp_path: Path, task: str) -> None:
    config = camera_and_joints(tiny, task)
    path, ended = runs.train(config, tmp_path / "run")
    assert ended
    rows = read_metrics(path / "metrics.jsonl")
    for name in ("loss_observation_camera", "loss_observation_joints"):
        assert all(np.isfinite(row[name]) for row in rows)
    total = rows[0]["loss_observation_camera"] + rows[0]["loss_observation_joints"]
    assert rows[0]["loss_observation"] == pytest.approx(total, rel=1e-5)
    with np.load(path / "episodes" / "000000.npz") as arrays:
        assert arrays["observation.camera"].shape == (7, 32, 32, 3)
        assert arrays["observation.joints"].dtype == np.float32
    assert (path / "videos" / "episode-00001.mp4").stat().st_size > 500
    agent = planet_bayes.load_run(path).agent
    assert list(agent.signature.observation) == ["camera", "joints"]


def test_a_run_with_two_observations_resumes_bit_for_bit(tiny: Config, tmp_path: Path) -> None:
    config = camera_and_joints(tiny, "toy_reach")
    whole, _ = runs.train(config, tmp_path / "whole")
    stopped = tmp_path / "stopped"
    assert not runs.train(config, stopped, should_stop=stop_after(7))[1]
    assert runs.train(runs.resume_config(stopped), stopped, resume=True)[1]
    assert_same_run(whole, stopped)


class Robot(gymnasium.Env[Any, Any]):
    """Hardware that only one process, and only one object, can open."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)
    open_now = 0

    def __init__(self) -> None:
        if Robot.open_now:
            raise RuntimeError("the serial port is in use")
        Robot.open_now += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.full(2, 0.1 * self.time, np.float32), 1.0, False, self.time >= 5, {}

    def close(self) -> None:
        Robot.open_now -= 1


def test_a_robot_of_which_there_is_one(
    tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Robot, "open_now", 0)
    state = EnvConfig(observation=("state",))
    config = replaced(tiny, task=f"{__name__}:Robot", env=state, collect={"episodes": 2})
    with pytest.raises(EnvError, match="the serial port is in use"):
        runs.train(config, tmp_path / "many")
    single = replaced(config, run={"single_environment": True})
    path, ended = runs.train(single, tmp_path / "one")
    assert ended
    rows = read_metrics(path / "metrics.jsonl")
    assert rows[-1]["evaluation_returns"] == [5.0, 5.0]
    assert Robot.open_now == 0
    assert runs.evaluate(runs.load_run(path), 2) == [5.0, 5.0]
    assert Robot.open_now == 0
