"""The simulator as the planner's model: exact predictions, and no side effects."""

import copy
import runpy
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from planet_bayes.envs import TASKS, EnvConfig, make_env
from planet_bayes.planner import Bounds, PlannerError, cem, plan

EXAMPLE = Path(__file__).parent.parent / "examples" / "plan_in_the_simulator.py"
STATE = EnvConfig(observation=("state",))
# Two of the suite's own; the paper's ±3, uncapped and with contacts; a target drawn at each reset.
NAMES = ["cartpole_swingup", "cup_catch", "walker_run", "reacher_easy"]

AnyEnv = gymnasium.Env[Any, Any]


@pytest.fixture(scope="module")
def simulator_model() -> Any:
    return runpy.run_path(str(EXAMPLE))["SimulatorModel"]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def env(name: str) -> Iterator[AnyEnv]:
    with closing(make_env(name, STATE)) as made:
        yield made


def draw(env: AnyEnv, num: int, horizon: int, seed: int = 0) -> NDArray[np.float32]:
    assert env.action_space.shape is not None
    shape = (num, horizon, *env.action_space.shape)
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def act(env: AnyEnv, actions: NDArray[np.float32]) -> list[float]:
    return [float(env.step(action)[1]) for action in actions]


def imagine(model: Any, env: AnyEnv, actions: NDArray[np.float32]) -> NDArray[np.float64]:
    batch = torch.from_numpy(actions).unsqueeze(0)
    rewards = model.imagine(env, batch, torch.Generator())
    assert rewards.shape == (1, actions.shape[0], 1, actions.shape[1])
    return np.asarray(rewards[0, :, 0])


def everything(env: AnyEnv) -> dict[str, Any]:
    """Return all that the simulator computes from and with, and the task's own attributes."""
    native: Any = env.unwrapped
    fields = {
        f"{part}.{key}": np.array(value)
        for part, struct in (("model", native.physics.model), ("data", native.physics.data))
        for key in dir(struct.ptr)
        if isinstance(value := getattr(struct.ptr, key, None), np.ndarray | float)
    }
    task = copy.deepcopy(vars(native.task))
    return {**fields, "random": task.pop("_random").get_state()[1], **task}


def test_imagined_rewards_are_the_real_ones(name: str, env: AnyEnv, simulator_model: Any) -> None:
    model = simulator_model(TASKS[name].action_repeat)
    for seed in (21, 22):  # two starts and targets; the reacher touches both
        env.reset(seed=seed)
        act(env, draw(env, 1, 10)[0])  # into the episode: velocities, contacts, warm starts
        actions = draw(env, 3, 6, seed)
        rewards = imagine(model, env, actions)
        np.testing.assert_array_equal(rewards[-1], act(env, actions[-1]))
        assert rewards[-1].any() or name == "cup_catch"  # which the next test is for


def test_a_caught_ball_is_foretold(simulator_model: Any) -> None:
    with closing(make_env("cup_catch", STATE)) as env:
        env.reset(seed=0)
        native: Any = env.unwrapped
        with native.physics.reset_context():
            native.physics.named.data.qpos[["ball_x", "ball_z"]] = 0.0, 0.5  # above the cup
        actions = np.zeros((1, 8, 2), np.float32)
        rewards = imagine(simulator_model(4), env, actions)
        np.testing.assert_array_equal(rewards[0], act(env, actions[0]))
        assert 0 < rewards.sum() < 32  # it falls in on the way


def test_imagining_leaves_no_trace(name: str, env: AnyEnv, simulator_model: Any) -> None:
    model = simulator_model(TASKS[name].action_repeat)
    with closing(make_env(name, STATE)) as untouched:
        actions = draw(env, 1, 12)[0]
        for each in (env, untouched):
            each.reset(seed=3)
            act(each, actions[:6])
        before = everything(env)
        first = imagine(model, env, draw(env, 2, 4, seed=1))
        again = imagine(model, env, draw(env, 2, 4, seed=1))
        np.testing.assert_equal(everything(env), before)
        np.testing.assert_array_equal(first, again)
        assert act(env, actions[6:]) == act(untouched, actions[6:])
        np.testing.assert_equal(everything(env), everything(untouched))


def test_a_breakdown_is_rejected_and_the_rest_counts(
    simulator_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(make_env("cartpole_swingup", STATE)) as env:
        env.reset(seed=0)
        native: Any = env.unwrapped
        from dm_control.rl.control import PhysicsError  # not before make_env chose a backend

        def before_step(self: Any, action: Any, physics: Any) -> None:
            if action[0] == 1.0:
                raise PhysicsError("the pole broke")
            physics.set_control(action)

        monkeypatch.setattr(type(native.task), "before_step", before_step)
        actions = np.zeros((2, 3, 1), np.float32)
        actions[0, 1] = 1.0
        broken = np.isnan(imagine(simulator_model(8), env, actions))
        assert broken.tolist() == [[False, True, True], [False, False, False]]


def test_planning_in_it_beats_its_first_guess(simulator_model: Any) -> None:
    with closing(make_env("cheetah_run", STATE)) as env:
        env.reset(seed=0)
        config = cem(horizon=4, num_trajectories=30, num_iterations=4)
        model, generator = simulator_model(4), torch.Generator().manual_seed(0)
        result = plan(model, env, Bounds.symmetric(6), config, generator)
        best = result.diagnostics.best_return[0]
        assert best[-1] > best[0]
        with pytest.raises(PlannerError, match="B = 1"):
            model.imagine(env, torch.zeros(2, 1, 1, 6), generator)


def test_the_command_line_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--task cup_catch --steps 2 --episodes 2 --horizon 2 --candidates 6 --iterations 2"
    monkeypatch.setattr(sys, "argv", ["plan", *words.split(), "--method", "cem"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    assert "cup_catch, episode 1, 2 actions: planned 0.0" in printed
    assert "random 0.0, zero 0.0" in printed
    monkeypatch.setattr(sys, "argv", ["plan", "--task", "toy_reach"])
    with pytest.raises(SystemExit, match="no simulator"):
        runpy.run_path(str(EXAMPLE), run_name="__main__")
