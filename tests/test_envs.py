"""The environments: spaces, determinism, the paper's changes, and every refusal."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from planet_bayes.envs import (
    TASKS,
    EnvConfig,
    ToyReach,
    describe_tasks,
    gl,
    make_env,
    random_return,
)
from planet_bayes.errors import ConfigError, EnvError

SUITE = [name for name, spec in TASKS.items() if spec.domain != "toy"]
WIDENED = ["finger_spin", "cheetah_run", "walker_run"]
STATE = EnvConfig(observation="state")
SENSORS = EnvConfig(observation="sensors")

needs_egl = pytest.mark.skipif(
    sys.platform.startswith("linux") and not gl.egl_works(), reason="no EGL on this machine"
)


class Plain(gymnasium.Env[Any, Any]):
    """A small environment whose every part a test may replace."""

    def __init__(self, render_mode: str | None = "rgb_array", **parts: Any) -> None:
        self.render_mode = render_mode
        self.action_space = parts.get("actions", spaces.Box(-2.0, 4.0, (2,), np.float32))
        self.observation_space = parts.get("space", spaces.Box(-9.0, 9.0, (3,), np.float32))
        self.observe = parts.get("observe", lambda step: np.full(3, step, np.float32))
        self.reward = parts.get("reward", lambda step: 1.0)
        self.frame = parts.get("frame", lambda step: np.full((40, 50, 3), step, np.uint8))
        self.length = parts.get("length", 10)
        self.count = 0
        self.renders = 0
        self.received: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self.observe(0), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.count += 1
        self.received.append(action)
        done = self.count >= self.length
        return self.observe(self.count), self.reward(self.count), done, False, {}

    def render(self) -> Any:
        self.renders += 1
        return self.frame(self.count)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that publishes an environment as ``own_env:make``."""

    def publish(**parts: Any) -> str:
        module = type(sys)("own_env")
        module.env = Plain(**parts)  # type: ignore[attr-defined]
        module.make = lambda: module.env  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "own_env", module)
        return "own_env:make"

    return publish


def rollout(env: gymnasium.Env[Any, Any], seed: int, steps: int = 6) -> list[Any]:
    """Return all observations and rewards of a few fixed pseudo-random actions."""
    generator = np.random.default_rng(3)
    record = [env.reset(seed=seed)[0]]
    for _ in range(steps):
        action = generator.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        observation, reward, *_ = env.step(action)
        record += [observation, reward]
    return record


def same(first: list[Any], second: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


# --- the named tasks


@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize("config", [STATE, SENSORS], ids=["state", "sensors"])
def test_vector_spaces_and_determinism(task: str, config: EnvConfig) -> None:
    env = make_env(task, config)
    assert isinstance(env.action_space, spaces.Box)
    assert isinstance(env.observation_space, spaces.Box)
    assert env.action_space.dtype == env.observation_space.dtype == np.float32
    assert len(env.action_space.shape) == len(env.observation_space.shape) == 1
    assert (env.action_space.low == -1).all()
    assert (env.action_space.high == 1).all()
    first = rollout(env, seed=5)
    assert env.observation_space.contains(first[-2])
    assert type(first[-1]) is float
    other = rollout(env, seed=6)
    assert not same(first, other)
    assert same(first, rollout(env, seed=5))
    assert same(first, rollout(make_env(task, config), seed=5))


@needs_egl
@pytest.mark.parametrize("task", [*SUITE, "toy_reach"])
def test_pixels(task: str) -> None:
    env = make_env(task, EnvConfig(image_size=32))
    assert env.observation_space == spaces.Box(0, 255, (32, 32, 3), np.uint8)
    first = rollout(env, seed=5, steps=2)
    assert first[0].dtype == np.uint8
    assert first[0].flags.c_contiguous
    assert first[0].std() > 3  # not a blank frame
    assert not np.array_equal(first[0], first[-2])
    assert np.array_equal(env.render(), first[-2])
    rollout(env, seed=6, steps=1)
    assert same(first, rollout(env, seed=5, steps=2))


def test_same_episode_in_another_process() -> None:
    code = (
        "import numpy as np; from planet_bayes.envs import *; "
        "env = make_env('walker_run', EnvConfig('state')); env.reset(seed=7); "
        "[env.step(np.full(6, 0.5, np.float32)) for _ in range(9)]; "
        "print(env.step(np.full(6, -1, np.float32))[0].tobytes().hex())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    env = make_env("walker_run", STATE)
    rollout(env, seed=1)
    env.reset(seed=7)
    for _ in range(9):
        env.step(np.full(6, 0.5, np.float32))
    assert env.step(np.full(6, -1, np.float32))[0].tobytes().hex() == run.stdout.strip()


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
        env.reset(seed=0)
        count, ended = 0, False
        while not ended:
            *_, terminated, truncated, _ = env.step(np.zeros(env.action_space.shape, np.float32))
            count, ended = count + 1, terminated or truncated
        assert count == infos[name].episode_steps == steps
        assert infos[name].control_range[1] == (3.0 if name in WIDENED else 1.0)
        assert infos[name].state == env.observation_space.shape
        assert infos[name].sensors < infos[name].state


def test_sensors_are_positions_and_the_speed_of_a_runner_in_the_suites_order() -> None:
    state, sensors = make_env("walker_run", STATE), make_env("walker_run", SENSORS)
    whole, seen = state.reset(seed=0)[0], sensors.reset(seed=0)[0]
    native: Any = sensors.unwrapped
    observation = native._env.task.get_observation(native._env.physics)
    assert list(observation) == ["orientations", "height", "velocity"]
    expected = np.concatenate([observation["orientations"], [observation["height"]]])
    assert np.array_equal(seen[:-1], expected.astype(np.float32))
    assert np.array_equal(whole[: len(seen) - 1], seen[:-1])
    assert len(whole) == len(seen) - 1 + len(observation["velocity"])


@pytest.mark.parametrize("task", ["cheetah_run", "walker_run", "walker_walk"])
def test_the_last_sensor_of_a_runner_is_its_forward_speed(task: str) -> None:
    env = make_env(task, SENSORS)
    env.reset(seed=0)
    physics = env.unwrapped._env.physics  # type: ignore[attr-defined]
    for _ in range(10):
        observation = env.step(np.ones(env.action_space.shape, np.float32))[0]
    assert observation[-1] == np.float32(physics.named.data.qvel["rootx"][0]) != 0


def test_a_pitch_that_winds_up_is_seen_as_a_direction() -> None:
    state, sensors = make_env("cheetah_run", STATE), make_env("cheetah_run", SENSORS)
    for env in (state, sensors):
        env.reset(seed=0)
        env.unwrapped._env.physics.named.data.qpos["rooty"] = 20.0  # type: ignore[attr-defined]
    action = np.zeros(6, np.float32)
    whole, seen = state.step(action)[0], sensors.step(action)[0]
    assert whole[1] > 15
    np.testing.assert_allclose(seen[1:3], [np.cos(whole[1]), np.sin(whole[1])], rtol=1e-4)
    assert np.array_equal(seen[0], whole[0])
    assert np.array_equal(seen[3:9], whole[2:8])


@pytest.mark.parametrize("task", ["cup_catch", "finger_spin", "cartpole_swingup", "toy_reach"])
def test_the_other_tasks_sensors_have_no_velocities(task: str) -> None:
    env = make_env(task, STATE)
    space = env.unwrapped.observation_space
    assert isinstance(space, gymnasium.spaces.Dict)
    hidden = int(np.prod(space["velocity"].shape))
    seen = make_env(task, SENSORS).observation_space.shape
    assert env.observation_space.shape == (seen[0] + hidden,)


def test_an_episode_ends_where_the_simulation_diverges_and_the_next_is_sound() -> None:
    env, untouched = make_env("cheetah_run", SENSORS), make_env("cheetah_run", SENSORS)
    before = env.reset(seed=0)[0]
    physics = env.unwrapped._env.physics  # type: ignore[attr-defined]
    physics.data.qvel[:] = 1e9
    physics.forward()
    state = physics.get_state()
    observation, reward, terminated, truncated, info = env.step(np.ones(6, np.float32))
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert "BADQACC" in info["diverged"]
    assert np.array_equal(observation, before)
    assert np.array_equal(physics.get_state(), state)
    for one in (env, untouched):
        one.reset(seed=1)
    action = np.ones(6, np.float32)
    assert np.array_equal(env.step(action)[0], untouched.step(action)[0])


@pytest.mark.parametrize(("speed", "diverges"), [(300.0, False), (5000.0, True)])
def test_a_speed_that_nothing_has_is_not_rewarded(speed: float, diverges: bool) -> None:
    env = make_env("cheetah_run", SENSORS)
    env.reset(seed=0)
    env.unwrapped._env.physics.named.data.qvel["rootx"] = speed  # type: ignore[attr-defined]
    _, reward, _, truncated, info = env.step(np.zeros(6, np.float32))
    assert truncated == diverges == ("m/s" in info.get("diverged", ""))
    assert reward == 0 if diverges else reward > 50


# --- the paper's changes


@pytest.mark.parametrize("task", WIDENED)
def test_a_control_of_three_acts_more_strongly_than_one(task: str) -> None:
    def speed_gained(original: bool) -> float:
        env = make_env(task, EnvConfig("state", original=original, action_repeat=1))
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
    for config in (STATE, EnvConfig("state", original=True)):
        assert make_env("cup_catch", config).unwrapped.action_space.high.max() == 1.0  # type: ignore[attr-defined]
    env = make_env("cheetah_run", EnvConfig("state", original=True))
    assert type(env.unwrapped._env.task).__name__ == "Cheetah"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("task", "cap"), [("cheetah_run", 10.0), ("walker_run", 8.0)])
def test_reward_equals_the_suites_below_the_cap_and_grows_above(task: str, cap: float) -> None:
    ours, suites = (
        make_env(task, EnvConfig("state", original=original)).unwrapped._env  # type: ignore[attr-defined]
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


@pytest.mark.parametrize("task", ["cartpole_swingup", "cheetah_run"])
def test_action_repeat_sums_rewards(task: str) -> None:
    repeat = TASKS[task].action_repeat
    long, short = make_env(task, STATE), make_env(task, EnvConfig("state", action_repeat=1))
    long.reset(seed=4)
    short.reset(seed=4)
    action = np.full(long.action_space.shape, 0.7, np.float32)
    for _ in range(3):
        observation, reward, *_ = long.step(action)
        parts = [short.step(action) for _ in range(repeat)]
        assert reward == pytest.approx(sum(float(part[1]) for part in parts))
        assert np.array_equal(observation, parts[-1][0])
    assert long.metadata["render_fps"] * repeat == short.metadata["render_fps"]


def test_baselines() -> None:
    returns = random_return("cartpole_swingup", STATE, episodes=5, seed=0, policy="random")
    assert 60 < np.mean(returns) < 220  # 140 ± 51 per episode
    assert returns[:2] == random_return("cartpole_swingup", SENSORS, 2, 0, "random")
    assert returns != random_return("cartpole_swingup", STATE, 5, 1, "random")
    still = random_return("cartpole_swingup", STATE, 2, 0, "zero")
    assert max(still) < 1
    with pytest.raises(ConfigError, match="policy is 'best'"):
        random_return("toy_reach", STATE, 1, 0, "best")  # type: ignore[arg-type]


# --- the toy


def test_toy_loads_no_mujoco() -> None:
    code = (
        "import sys; from planet_bayes.envs import *; make_env('toy_reach').reset(seed=0); "
        "assert not {'mujoco', 'dm_control', 'torch'} & set(sys.modules)"
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
        state, _ = env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            position, velocity, target = state.reshape(3, 2)
            action = np.clip(4 * (target - position) - 1.5 * velocity, -1, 1)
            state, reward, _, ended, _ = env.step(action)
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


# --- Gymnasium's and the user's own


def test_gymnasium_id_as_vector() -> None:
    env = make_env("Pendulum-v1", STATE)
    assert env.observation_space.shape == (3,)
    assert same(rollout(env, seed=1), rollout(make_env("Pendulum-v1", STATE), seed=1))
    seen = make_env("Pendulum-v1", EnvConfig("sensors", sensors=(2, 0)))
    assert np.array_equal(seen.reset(seed=1)[0], env.reset(seed=1)[0][[2, 0]])
    assert make_env("Pendulum-v1", SENSORS).observation_space.shape == (3,)
    # The agent's 1 is the pendulum's torque of 2.
    env.step(np.ones(1, np.float32))
    assert env.unwrapped.last_u == 2.0  # type: ignore[attr-defined]


def test_gymnasium_id_as_pixels() -> None:
    try:
        import pygame  # noqa: F401
    except ImportError:
        with pytest.raises(EnvError, match=r"Pendulum-v1: render\(\) raised .*pygame") as caught:
            make_env("Pendulum-v1")
        assert "OpenGL" not in str(caught.value)  # which is not what is missing
    else:
        assert make_env("Pendulum-v1").reset(seed=0)[0].shape == (64, 64, 3)


def test_max_steps_counts_agent_steps(own: Callable[..., str]) -> None:
    env = make_env(own(length=100), EnvConfig("state", max_steps=3, action_repeat=2))
    env.reset(seed=0)
    ends = [env.step(np.zeros(2, np.float32))[3] for _ in range(3)]
    assert ends == [False, False, True]
    assert env.unwrapped.count == 6  # type: ignore[attr-defined]


def test_repeat_stops_where_the_episode_ends(own: Callable[..., str]) -> None:
    env = make_env(own(length=3), EnvConfig("state", action_repeat=2))
    env.reset(seed=0)
    assert env.step(np.zeros(2, np.float32))[1:3] == (2.0, False)
    assert env.step(np.zeros(2, np.float32))[1:3] == (1.0, True)
    with pytest.raises(EnvError, match=r"call reset\(\)"):
        env.step(np.zeros(2, np.float32))


def test_own_pixels_are_resized_and_rendered_once_per_action(own: Callable[..., str]) -> None:
    env = make_env(own(), EnvConfig(action_repeat=3, image_size=32))
    assert env.observation_space == spaces.Box(0, 255, (32, 32, 3), np.uint8)
    env.reset(seed=0)
    before = env.unwrapped.renders  # type: ignore[attr-defined]
    observation, *_ = env.step(np.zeros(2, np.float32))
    assert (observation == 3).all()
    assert env.unwrapped.renders == before + 1  # type: ignore[attr-defined]


def test_own_image_observation_is_taken_as_it_is(own: Callable[..., str]) -> None:
    space = spaces.Box(0, 200, (64, 64, 3), np.uint8)
    buffer = np.zeros((64, 64, 3), np.uint8)

    def observe(step: int) -> Any:
        buffer[:] = step
        return buffer

    env = make_env(own(space=space, observe=observe, render_mode=None))
    first = env.reset(seed=0)[0]
    second = env.step(np.zeros(2, np.float32))[0]
    assert (first == 0).all()  # not a view of the buffer that was drawn into again
    assert (second == 1).all()


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


def test_float64_becomes_float32_and_dicts_are_flattened(own: Callable[..., str]) -> None:
    space = spaces.Dict(
        a=spaces.Box(-1e300, 1e300, (2,), np.float64), b=spaces.Tuple([spaces.Discrete(2)])
    )
    env = make_env(
        own(space=space, observe=lambda step: {"a": np.ones(2), "b": (np.int64(1),)}), STATE
    )
    observation, _ = env.reset(seed=0)
    assert observation.dtype == np.float32
    assert observation.tolist() == [1, 1, 0, 1]


def test_own_function_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_tasks.py").write_text(
        "import gymnasium\n"
        "from planet_bayes.envs import ToyReach\n"
        "def plain(): return ToyReach(40)\n"
        "def with_mode(*, render_mode=None): return ToyReach(40, render_mode=render_mode)\n"
        "def broken(): raise OSError('no robot')\n"
        "def number(): return 3\n"
        "constant = 3\n"
        "gymnasium.register('MyToy-v0', entry_point=with_mode)\n"
    )
    # Found in the current folder, without any help from the search path.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("plain", "with_mode", "MyToy-v0"):
        env = make_env(f"my_tasks:{name}", STATE)
        assert same(rollout(env, 1), rollout(make_env("toy_reach", STATE), 1))
    for name in ("with_mode", "MyToy-v0"):
        assert make_env(f"my_tasks:{name}").reset(seed=0)[0].shape == (64, 64, 3)
    for name, message in {
        "broken": "raised OSError: no robot",
        "number": "returned a builtins.int, expected a gymnasium.Env",
        "constant": "'constant' is a int, expected a function",
        "plane": r"has no 'plane'.*did you mean 'plain'",
    }.items():
        with pytest.raises(EnvError, match=message):
            make_env(f"my_tasks:{name}", STATE)
    with pytest.raises(EnvError, match="could not import the module 'no_such_module'"):
        make_env("no_such_module:make", STATE)
    gymnasium.registry.pop("MyToy-v0")


@pytest.mark.parametrize("side", [3, 5])
def test_a_blurred_pixel_is_the_mean_of_those_around_it(side: int) -> None:
    sharp = make_env("toy_reach", EnvConfig(image_size=32))
    blurred = make_env("toy_reach", EnvConfig(image_size=32, blur=side))
    assert blurred.observation_space == sharp.observation_space
    image, _ = sharp.reset(seed=3)
    seen, _ = blurred.reset(seed=3)
    for _ in range(3):
        around = np.pad(image.astype(float), [(side // 2,) * 2] * 2 + [(0, 0)], mode="edge")
        windows = np.lib.stride_tricks.sliding_window_view(around, (side, side), axis=(0, 1))
        assert seen.dtype == np.uint8
        assert np.abs(seen - windows.mean((-2, -1))).max() <= 0.5 + 1e-6
        assert np.abs(seen.astype(int) - image).max() > 20  # something was smoothed away
        image, *_ = sharp.step(np.array([0.5, -1.0], np.float32))
        seen, *_ = blurred.step(np.array([0.5, -1.0], np.float32))
    sharp.close()
    blurred.close()


# --- refusals


@pytest.mark.parametrize(
    ("task", "guess"),
    [("cheetah_rum", "'cheetah_run'"), ("Pendulum-v9", "'Pendulum-v1'"), ("@@@", "@@@")],
)
def test_unknown_task_names_the_nearest(task: str, guess: str) -> None:
    with pytest.raises(ConfigError, match=rf"{guess}.*planet-bayes tasks.*module:function"):
        make_env(task)


@pytest.mark.parametrize(
    "settings",
    [
        {"observation": "pixel"},
        {"image_size": 48},
        {"oversampling": 0},
        {"oversampling": 9},
        {"blur": 0},
        {"blur": 4},
        {"blur": 65},
        {"action_repeat": -1},
        {"max_steps": -1},
        {"sensors": (0,)},
    ],
)
def test_config_refuses(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        EnvConfig(**settings)


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


def test_observation_spaces_refused(own: Callable[..., str]) -> None:
    with pytest.raises(EnvError, match="no fixed size"):
        make_env(own(space=spaces.Sequence(spaces.Box(-1, 1))), STATE)
    with pytest.raises(EnvError, match="without entries"):
        make_env(own(space=spaces.Box(-1, 1, (0,))), STATE)
    for index in (3, -1):
        with pytest.raises(EnvError, match=rf"names \[{index}\].*0 to 2"):
            make_env(own(), EnvConfig("sensors", sensors=(0, index)))


def test_pixels_refused(own: Callable[..., str]) -> None:
    with pytest.raises(EnvError, match=r"cannot give pixels.*render_mode is None"):
        make_env(own(render_mode=None))
    for frame in (np.zeros((9, 9), np.uint8), np.zeros((9, 9, 3)), None):
        with pytest.raises(EnvError, match="expected an RGB image"):
            make_env(own(frame=lambda step, frame=frame: frame))


def test_render_is_refused_only_when_called(own: Callable[..., str]) -> None:
    env = make_env(own(render_mode=None), STATE)
    rollout(env, seed=0)
    with pytest.raises(EnvError, match="cannot render"):
        env.render()


def test_without_opengl_sensors_work_and_render_says_what_to_install() -> None:
    code = (
        "from planet_bayes.envs import *; from planet_bayes.envs import gl; "
        "from planet_bayes.errors import EnvError; gl.egl_works = lambda: False\n"
        "env = make_env('cartpole_swingup', EnvConfig('sensors')); env.reset(seed=0)\n"
        "try: env.render()\n"
        "except EnvError as error: print(error)\n"
    )
    keep = {"PATH": "/usr/bin:/bin"}  # neither DISPLAY nor MUJOCO_GL
    command = [sys.executable, "-W", "error", "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=keep)
    if sys.platform.startswith("linux"):
        assert "apt-get install -y libegl1 libgl1-mesa-dri" in run.stdout
        assert "MUJOCO_GL is off" in run.stdout
        assert run.stderr == ""


def test_backend_that_the_user_chose_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    gl.choose_backend()
    assert gl.os.environ["MUJOCO_GL"] == "osmesa"
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.delenv("DISPLAY", raising=False)
    for loads, expected in ((True, "egl"), (False, "off")):
        monkeypatch.setenv("MUJOCO_GL", "")
        monkeypatch.setattr(gl, "egl_works", lambda loads=loads: loads)
        gl.choose_backend()
        assert gl.os.environ["MUJOCO_GL"] == expected


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


@pytest.mark.parametrize("value", [np.nan, np.inf, np.zeros(1), None, "1", 1j])
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
