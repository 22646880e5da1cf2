"""The table of tasks: a task of the suite is one row."""

import dataclasses
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from env_parts import needs_egl, prepared, rollout, same
from planet_bayes.envs import TASKS, EnvConfig, TaskSpec, describe_tasks, make, make_env
from planet_bayes.errors import EnvError
from planet_bayes.models import Vector
from planet_bayes.spaces import Box

HOPPER = TaskSpec(
    name="hopper_hop",
    domain="hopper",
    suite_task="hop",
    action_repeat=4,
    description="Hop forwards on one leg",
    control_range=2.0,
    speed_entry=0,
)
SWIMMER = TaskSpec(
    name="swimmer_six",
    domain="swimmer",
    suite_task="swimmer6",
    action_repeat=8,
    description="Swim to a target with six links",
    velocities=("body_velocities",),
)
STROLL = dataclasses.replace(
    TASKS["walker_walk"], name="walker_stroll", uncapped=True, control_range=3.0
)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add rows to the table, and nothing else."""
    rows = {spec.name: spec for spec in (HOPPER, SWIMMER, STROLL)}
    monkeypatch.setattr(make, "TASKS", MappingProxyType({**TASKS, **rows}))


def native(env: Any) -> Any:
    return env.unwrapped._env


@needs_egl
@pytest.mark.usefixtures("table")
def test_a_new_task_of_the_suite_is_one_row() -> None:
    env = make_env("hopper_hop", EnvConfig(("pixels", "sensors", "state"), image_size=32))
    modalities = env.signature.observation
    assert list(modalities) == ["camera", "sensors", "state"]
    assert env.signature.action == Box((-2.0,) * 4, (2.0,) * 4)
    assert same(rollout(env, 1), rollout(env, 1))
    env.reset(seed=0)
    for _ in range(5):
        raw = env.step(np.ones(4, np.float32))[0]
    seen = env.signature.prepare(raw)
    observation = native(env).task.get_observation(native(env).physics)
    assert list(observation) == ["position", "velocity", "touch"]
    expected = [observation["position"], observation["touch"], observation["velocity"][:1]]
    assert np.array_equal(seen["sensors"], np.concatenate(expected).astype(np.float32))
    assert seen["state"].shape == (sum(value.size for value in observation.values()),)
    assert seen["camera"].std() > 3
    info = {task.name: task for task in describe_tasks()}["hopper_hop"]
    assert (info.sensors, info.state) == (len(seen["sensors"]), len(seen["state"]))
    assert info.episode_steps == 250
    assert info.note == "Hop forwards on one leg (paper: control range ±2)"
    env.close()


@pytest.mark.usefixtures("table")
def test_a_row_names_the_velocities() -> None:
    env = make_env("swimmer_six", EnvConfig(("sensors",)))
    observation = native(env).task.get_observation(native(env).physics)
    assert list(observation) == ["joints", "to_target", "body_velocities"]
    hidden = observation["body_velocities"].size
    total = sum(value.size for value in observation.values())
    assert env.signature.observation["sensors"] == Vector(total, tuple(range(total - hidden)))


@pytest.mark.usefixtures("table")
def test_a_row_removes_the_limit_of_a_reward_at_its_own_speed() -> None:
    task = native(make_env("walker_stroll", EnvConfig(("state",)))).task
    assert (type(task).__name__, task._move_speed) == ("UncappedWalker", 1)
    task = native(make_env("walker_run", EnvConfig(("state",)))).task
    assert (type(task).__name__, task._move_speed) == ("UncappedWalker", 8)


def test_a_domain_without_an_uncapped_reward_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dataclasses.replace(HOPPER, uncapped=True)
    monkeypatch.setattr(make, "TASKS", {"hopper_hop": wrong})
    with pytest.raises(EnvError, match=r"hopper_hop: the domain 'hopper' has no uncapped reward"):
        make_env("hopper_hop", EnvConfig(("state",)))
    make_env("hopper_hop", EnvConfig(("state",), original=True)).close()


def test_names_and_notes() -> None:
    assert all(name == spec.name for name, spec in TASKS.items())
    assert TASKS["cheetah_run"].note.endswith(
        "(paper: control range ±3, no upper limit on the reward)"
    )
    assert TASKS["cup_catch"].note == TASKS["cup_catch"].description


# --- sensors of the suite's bodies


def test_sensors_are_positions_and_the_speed_of_a_runner_in_the_suites_order() -> None:
    env = make_env("walker_run", EnvConfig(("state", "sensors")))
    raw, _ = env.reset(seed=0)
    whole, seen = env.signature.prepare(raw).values()
    observation = native(env).task.get_observation(native(env).physics)
    assert list(observation) == ["orientations", "height", "velocity"]
    expected = np.concatenate([observation["orientations"], [observation["height"]]])
    assert np.array_equal(seen[:-1], expected.astype(np.float32))
    assert np.array_equal(whole[: len(seen) - 1], seen[:-1])
    assert len(whole) == len(seen) - 1 + len(observation["velocity"])


@pytest.mark.parametrize("task", ["cheetah_run", "walker_run", "walker_walk"])
def test_the_last_sensor_of_a_runner_is_its_forward_speed(task: str) -> None:
    env = make_env(task, EnvConfig(("sensors",)))
    env.reset(seed=0)
    physics = native(env).physics
    for _ in range(10):
        observation = env.step(np.ones(env.action_space.shape, np.float32))[0]
    seen = prepared(env, observation)
    assert seen[-1] == np.float32(physics.named.data.qvel["rootx"][0]) != 0


def test_a_pitch_that_winds_up_is_seen_as_a_direction() -> None:
    env = make_env("cheetah_run", EnvConfig(("state", "sensors")))
    env.reset(seed=0)
    native(env).physics.named.data.qpos["rooty"] = 20.0
    whole, seen = env.signature.prepare(env.step(np.zeros(6, np.float32))[0]).values()
    assert whole[1] > 15
    direction = np.array([np.cos(whole[1]), np.sin(whole[1])])
    np.testing.assert_allclose(np.asarray(seen[1:3], float), direction, rtol=1e-4)
    assert np.array_equal(seen[0], whole[0])
    assert np.array_equal(seen[3:9], whole[2:8])


@pytest.mark.parametrize("task", ["cup_catch", "finger_spin", "cartpole_swingup", "toy_reach"])
def test_the_other_tasks_sensors_have_no_velocities(task: str) -> None:
    env = make_env(task, EnvConfig(("state", "sensors")))
    space: Any = env.unwrapped.observation_space
    hidden = int(np.prod(space["velocity"].shape))
    whole, seen = env.signature.observation.values()
    assert whole.shape == (seen.shape[0] + hidden,)


@pytest.mark.parametrize("task", [name for name, spec in TASKS.items() if spec.domain != "toy"])
def test_sensors_of_every_body_against_the_simulation(task: str) -> None:
    spec = TASKS[task]
    env = make_env(task, EnvConfig(("sensors",)))
    env.reset(seed=0)
    for _ in range(10):
        raw = env.step(np.full(env.action_space.shape, 0.8, np.float32))[0]
    observation = native(env).task.get_observation(native(env).physics)
    expected: list[float] = []
    for key, value in observation.items():
        values = np.ravel(value).tolist()
        if key == "position" and spec.angle_entry is not None:
            angle = values[spec.angle_entry]
            values[spec.angle_entry : spec.angle_entry + 1] = [np.cos(angle), np.sin(angle)]
        if key != "velocity":
            expected += values
    if spec.speed_entry is not None:
        expected.append(np.ravel(observation["velocity"])[spec.speed_entry])
    assert np.array_equal(prepared(env, raw), np.array(expected, np.float32))
    assert raw["sensors"].shape == (env.signature.observation["sensors"].size,)  # type: ignore[attr-defined]
