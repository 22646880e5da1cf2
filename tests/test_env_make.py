"""`make_env`: spaces, determinism, wrapping, and what is refused."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from env_parts import SENSORS, STATE, SUITE, WIDENED, needs_egl, prepared, rollout, same
from planet_bayes.envs import TASKS, EnvConfig, describe_tasks, make_env
from planet_bayes.envs.make import FILM_SIZE, RENDER_SIZES
from planet_bayes.errors import ConfigError, EnvError
from planet_bayes.models import Image


@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize("config", [STATE, SENSORS], ids=["state", "sensors"])
def test_vector_spaces_and_determinism(task: str, config: EnvConfig) -> None:
    env = make_env(task, config)
    (name,) = config.sources
    assert isinstance(env.action_space, spaces.Box)
    assert isinstance(env.observation_space, spaces.Dict)
    assert list(env.observation_space.spaces) == list(env.signature.observation) == [name]
    assert env.action_space.dtype == env.signature.observation[name].dtype == np.float32
    assert len(env.action_space.shape) == len(env.signature.observation[name].shape) == 1
    assert (env.action_space.low == -1).all()
    assert (env.action_space.high == 1).all()
    raw, _ = env.reset(seed=5)
    assert env.observation_space.contains(raw)
    first = rollout(env, seed=5)
    assert first[-2].dtype == np.float32
    assert first[-2].shape == env.signature.observation[name].shape
    assert type(first[-1]) is float
    other = rollout(env, seed=6)
    assert not same(first, other)
    assert same(first, rollout(env, seed=5))
    assert same(first, rollout(make_env(task, config), seed=5))


@needs_egl
@pytest.mark.parametrize("task", [*SUITE, "toy_reach"])
def test_pixels(task: str) -> None:
    env = make_env(task, EnvConfig(image_size=32))
    assert env.signature.observation == {"camera": Image(32)}
    side = 32 if task == "toy_reach" else 128
    assert env.observation_space["camera"] == spaces.Box(0, 255, (side, side, 3), np.uint8)  # type: ignore[index]
    first = rollout(env, seed=5, steps=2)
    assert first[0].dtype == np.uint8
    assert first[0].shape == (32, 32, 3)
    assert first[0].flags.c_contiguous
    assert first[0].std() > 3  # not a blank frame
    assert not np.array_equal(first[0], first[-2])
    assert np.array_equal(prepared(env, {"camera": env.render()}), first[-2])
    rollout(env, seed=6, steps=1)
    assert same(first, rollout(env, seed=5, steps=2))


@needs_egl
@pytest.mark.parametrize(
    ("task", "config", "side"),
    [
        ("cartpole_swingup", EnvConfig(image_size=32), RENDER_SIZES[32]),
        ("cartpole_swingup", EnvConfig(image_size=64), RENDER_SIZES[64]),
        ("cartpole_swingup", SENSORS, FILM_SIZE),
        ("toy_reach", EnvConfig(image_size=32), 32),
        ("toy_reach", EnvConfig(image_size=64), 64),
        ("toy_reach", SENSORS, FILM_SIZE),
    ],
)
def test_size_of_rendered_frames(task: str, config: EnvConfig, side: int) -> None:
    env = make_env(task, config)
    env.reset(seed=0)
    assert np.asarray(env.render()).shape == (side, side, 3)
    env.close()


def test_same_episode_in_another_process() -> None:
    code = (
        "import numpy as np; from planet_bayes.envs import *; "
        "env = make_env('walker_run', EnvConfig(('state',))); env.reset(seed=7); "
        "[env.step(np.full(6, 0.5, np.float32)) for _ in range(9)]; "
        "print(env.step(np.full(6, -1, np.float32))[0]['state'].tobytes().hex())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    env = make_env("walker_run", STATE)
    rollout(env, seed=1)
    env.reset(seed=7)
    for _ in range(9):
        env.step(np.full(6, 0.5, np.float32))
    observation = env.step(np.full(6, -1, np.float32))[0]["state"]
    assert observation.tobytes().hex() == run.stdout.strip()


def test_describe_tasks_agrees_with_episodes() -> None:
    infos = {info.name: info for info in describe_tasks()}
    assert list(infos) == list(TASKS)
    for name, steps in {
        "cup_catch": 250,
        "finger_spin": 500,
        "cheetah_run": 250,
        "walker_run": 500,
        "cartpole_balance": 125,
        "cartpole_swingup": 125,
        "reacher_easy": 250,
        "walker_walk": 500,
        "pendulum_swingup": 500,
        "toy_reach": 50,
    }.items():
        env = make_env(name, STATE)
        observation, _ = env.reset(seed=0)
        count, ended = 0, False
        while not ended:
            *_, terminated, truncated, _ = env.step(np.zeros(env.action_space.shape, np.float32))
            count, ended = count + 1, terminated or truncated
        assert count == infos[name].episode_steps == steps
        assert infos[name].control_range[1] == (3.0 if name in WIDENED else 1.0)
        assert (infos[name].state,) == prepared(env, observation).shape
        assert infos[name].sensors < infos[name].state
        assert (infos[name].action_size,) == env.action_space.shape


def test_max_steps_counts_agent_steps(own: Callable[..., str]) -> None:
    env = make_env(own(length=100), EnvConfig(("state",), max_steps=3, action_repeat=2))
    env.reset(seed=0)
    ends = [env.step(np.zeros(2, np.float32))[3] for _ in range(3)]
    assert ends == [False, False, True]
    assert env.unwrapped.count == 6  # type: ignore[attr-defined]


def test_pixels_are_rendered_once_per_action(own: Callable[..., str]) -> None:
    env = make_env(own(), EnvConfig(action_repeat=3, image_size=32))
    assert env.observation_space["camera"] == spaces.Box(0, 255, (40, 50, 3), np.uint8)  # type: ignore[index]
    env.reset(seed=0)
    before = env.unwrapped.renders  # type: ignore[attr-defined]
    observation, *_ = env.step(np.zeros(2, np.float32))
    assert (observation["camera"] == 3).all()
    seen = prepared(env, observation)
    assert seen.shape == (32, 32, 3)
    assert (seen == 3).all()
    assert env.unwrapped.renders == before + 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("task", "guess"),
    [("cheetah_rum", "'cheetah_run'"), ("Pendulum-v9", "'Pendulum-v1'"), ("@@@", "@@@")],
)
def test_unknown_task_names_the_nearest(task: str, guess: str) -> None:
    with pytest.raises(ConfigError, match=rf"{guess}.*planet-bayes tasks.*module:function"):
        make_env(task)


def broken_close() -> None:
    raise OSError("the port is gone")


@pytest.mark.parametrize("close", [None, broken_close])
def test_an_environment_that_is_refused_is_closed(
    own: Callable[..., str], monkeypatch: pytest.MonkeyPatch, close: Any
) -> None:
    for config, message in (
        (EnvConfig(("sensor",)), "no source 'sensor'"),
        (EnvConfig(("sensors",), sensors=(9,)), "names"),
    ):
        task = own()
        env = sys.modules["own_env"].env
        if close is not None:  # a fault while closing does not hide the reason for the refusal
            monkeypatch.setattr(env, "close", close)
        with pytest.raises((ConfigError, EnvError), match=message):
            make_env(task, config)
        assert close is not None or env.closes == 1


def test_an_environment_that_is_accepted_stays_open(own: Callable[..., str]) -> None:
    env = make_env(own(), STATE)
    assert env.unwrapped.closes == 0  # type: ignore[attr-defined]
    env.close()
    assert env.unwrapped.closes == 1  # type: ignore[attr-defined]


def test_a_missing_suite_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "planet_bayes.envs.suite", raising=False)
    monkeypatch.delattr("planet_bayes.envs.suite", raising=False)
    monkeypatch.setitem(sys.modules, "dm_control", None)
    with pytest.raises(EnvError, match=r'dm_control is not installed.*pip install "\.\[suite\]"'):
        make_env("cartpole_swingup", STATE)
