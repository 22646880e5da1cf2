"""Conditions: what they change is changed, in every episode, and nothing else is."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planet_bayes as pb
from planet_bayes import cli
from planet_bayes.config import Config
from planet_bayes.diagnostics import recorded
from planet_bayes.diagnostics.conditions import (
    CONDITIONS,
    Collection,
    NotApplicable,
    collect,
    collect_condition,
    scale_gravity,
    scale_motors,
    square_wave,
    with_noisy_sensors,
)
from planet_bayes.diagnostics.report import judge
from planet_bayes.envs import EnvConfig, NamedObservations, make_env
from planet_bayes.errors import ConfigError, EnvError, RunError
from planet_bayes.models import Image, ImportanceFilter, LatentModel, Vector
from planet_bayes.rng import numpy_stream
from planet_bayes.runs import Run
from planet_bayes.spaces import Box, Signature
from planet_bayes.training.collect import episode_streams
from planet_bayes.types import Episode
from tiny_run import replaced

ONE_STEP = EnvConfig(observation=("state",), action_repeat=1)


@pytest.fixture(scope="module")
def run(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = replaced(tiny, collect={"episodes": 0})
    return pb.load_run(pb.train(config, tmp_path_factory.mktemp("conditions") / "run")[0])


@pytest.fixture(scope="module")
def collection(run: Run) -> Collection:
    return collect(run, 2)


def same(one: Episode, other: Episode) -> bool:
    return np.array_equal(one.action, other.action) and all(
        np.array_equal(one.observation[name], other.observation[name]) for name in one.observation
    )


def fall(change: Callable[[Any], None] | None) -> list[float]:
    """Return the fall of a free ball in each of two episodes, over 20 steps."""
    with contextlib.closing(make_env("cup_catch", ONE_STEP)) as env:
        if change is not None:
            change(env)
        return [_fallen(env, seed) for seed in (0, 1)]


def _fallen(env: NamedObservations, seed: int) -> float:
    env.reset(seed=seed)
    physics = env.unwrapped._env.physics  # type: ignore[attr-defined]
    with physics.reset_context():
        physics.named.data.qpos[["ball_x", "ball_z"]] = [0, 0]  # the string is slack
        physics.data.qvel[:] = 0
    height = float(physics.named.data.qpos["ball_z"].item())
    physics.data.ctrl[:] = 0
    physics.step(5)
    return height - float(physics.named.data.qpos["ball_z"].item())


def test_gravity_is_scaled_in_every_episode() -> None:
    usual, weak = fall(None), fall(lambda env: scale_gravity(env, 0.4))
    assert min(usual) > 1e-4
    np.testing.assert_allclose(weak, 0.4 * np.array(usual), rtol=1e-3)
    assert fall(None) == usual  # another environment is as before


@pytest.mark.parametrize("task", ["finger_spin", "reacher_easy"])
def test_gravity_that_moves_nothing_is_no_condition(task: str) -> None:
    """The finger's model switches gravity off; the reacher moves in a horizontal plane."""
    with (
        contextlib.closing(make_env(task, ONE_STEP)) as env,
        pytest.raises(NotApplicable, match="exerts no force"),
    ):
        scale_gravity(env, 0.4)


@pytest.mark.parametrize("task", ["pendulum_swingup", "cheetah_run", "walker_run"])
def test_gravity_is_found_where_it_acts(task: str) -> None:
    with contextlib.closing(make_env(task, ONE_STEP)) as env:
        env.reset(seed=0)
        physics = env.unwrapped._env.physics  # type: ignore[attr-defined]
        before = physics.model.opt.gravity.copy()
        scale_gravity(env, 0.4)
        np.testing.assert_allclose(physics.model.opt.gravity, 0.4 * before)


@pytest.mark.parametrize("task", ["cartpole_swingup", "cheetah_run"])
def test_motors_are_scaled_in_every_episode(task: str) -> None:
    def forces(factor: float) -> list[Any]:
        with contextlib.closing(make_env(task, ONE_STEP)) as env:
            scale_motors(env, factor)
            physics = env.unwrapped._env.physics  # type: ignore[attr-defined]
            found = []
            for seed in (0, 1):
                env.reset(seed=seed)
                env.step(np.full(env.signature.action.size, 0.1, np.float32))
                found.append(physics.data.actuator_force.copy())
            return found

    usual = forces(1.0)
    assert np.abs(usual).min() > 0.05
    np.testing.assert_allclose(forces(3.0), 3 * np.array(usual), rtol=1e-6)


def test_motors_move_the_cart_three_times_as_far() -> None:
    def moved(factor: float) -> float:
        with contextlib.closing(make_env("cartpole_swingup", ONE_STEP)) as env:
            scale_motors(env, factor)
            env.reset(seed=0)
            physics = env.unwrapped._env.physics  # type: ignore[attr-defined]
            physics.data.qvel[:] = 0
            env.step(np.ones(1, np.float32))
            return float(physics.data.qvel[0])

    assert moved(3.0) == pytest.approx(3 * moved(1.0), rel=0.01)


@pytest.mark.parametrize("change", [scale_gravity, scale_motors])
def test_other_environments_say_that_they_are_none_of_the_suite(
    change: Callable[[Any, float], None],
) -> None:
    with (
        contextlib.closing(make_env("toy_reach", EnvConfig(observation=("sensors",)))) as env,
        pytest.raises(EnvError, match="control suite task, and ToyReach is none"),
    ):
        change(env, 2.0)


def test_a_square_wave_has_two_values_and_its_half_period() -> None:
    signature = Signature({"sensors": Vector(2)}, Box((-1.0,) * 4, (1.0,) * 4))
    lengths = set()
    for number in range(10):
        policy = square_wave(signature, episode_streams(0, "test", number, "cpu"))
        wave = np.stack([policy({}) for _ in range(200)])  # [T, A]
        assert wave.dtype == np.float32
        assert set(np.unique(wave)) == {-1.0, 1.0}
        for entry in wave.T:
            (run_length,) = set(np.diff(np.flatnonzero(np.diff(entry))))
            lengths.add(int(run_length))
    assert 3 <= min(lengths) < max(lengths) <= 15


def test_noise_of_sensors_is_scaled_by_the_clean_ones(run: Run) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1000, 4)) * [1.0, 20.0, 0.0, 3.0]
    sizes = values.std(0)
    nothing = np.zeros((1000, 2), np.float32)
    clean = Episode(
        {"sensors": values.astype(np.float32)}, nothing, nothing[:, 0], nothing[:, 0] > 0
    )
    agent = with_noisy_sensors(run.agent, 0.3, [clean], numpy_stream(0, "test"))
    raw = {"sensors": np.arange(6, dtype=np.float32)}
    plain = run.agent.signature.prepare(raw)["sensors"]
    seen = np.stack([agent.signature.prepare(raw)["sensors"] for _ in range(4000)])
    noise = np.asarray(seen, np.float64) - np.asarray(plain, np.float64)
    assert agent.signature.prepare(raw)["sensors"].dtype == np.float32
    np.testing.assert_allclose(noise.std(0), 0.3 * sizes, rtol=0.05)
    np.testing.assert_allclose(noise.mean(0), 0, atol=0.05 * sizes.max())
    assert (noise[:, 2] == 0).all()  # a sensor that never moves has no scale
    assert np.array_equal(run.agent.signature.prepare(raw)["sensors"], plain)
    weighing = ImportanceFilter(LatentModel(run.agent.model, 1.0))
    other = pb.Agent(run.agent.model, run.agent.signature, run.agent.planner, weighing)
    noisy = with_noisy_sensors(other, 0.3, [clean], numpy_stream(0, "test"))
    assert noisy.belief_filter is weighing
    with pytest.raises(ConfigError, match="collect them first"):
        with_noisy_sensors(run.agent, 0.3, [], numpy_stream(0, "test"))


def test_an_agent_without_vectors_has_no_noisy_sensors(run: Run) -> None:
    agent = pb.Agent(
        run.agent.model, Signature({"camera": Image(32)}, Box((-1.0,), (1.0,))), run.agent.planner
    )
    episode = Episode({}, np.zeros((1, 1), np.float32), np.zeros(1, np.float32), np.zeros(1, bool))
    with pytest.raises(NotApplicable, match="the agent observes none"):
        with_noisy_sensors(agent, 0.3, [episode], numpy_stream(0, "test"))


def test_conditions_that_do_not_apply_are_skipped(collection: Collection) -> None:
    assert set(collection.skipped) == {"gravity", "motor"}
    assert set(collection.episodes) == set(CONDITIONS) - {"gravity", "motor"}


def test_episodes_depend_on_condition_and_number_alone(
    run: Run, collection: Collection, tiny: Config, tmp_path: Path
) -> None:
    for name in ("agent", "random"):
        again = collect_condition(run, name, 2)
        for one, other in zip(again, collection.episodes[name], strict=True):
            assert same(one, other)
    # Another run, of another seed: the same starts, and the same actions where none are its own.
    config = replaced(tiny, seed=9, collect={"episodes": 0})
    other_run = pb.load_run(pb.train(config, tmp_path / "run")[0])
    for name in ("random", "square"):
        assert same(collect_condition(other_run, name, 1)[0], collection.episodes[name][0])
    of_other = collect_condition(other_run, "agent", 1)[0]
    first = collection.episodes["agent"][0]
    assert np.array_equal(of_other.observation["sensors"][0], first.observation["sensors"][0])
    assert not np.array_equal(of_other.action, first.action)  # its weights act


def test_conditions_and_numbers_have_other_starts(collection: Collection) -> None:
    starts = {
        tuple(episode.observation["sensors"][0].tolist())
        for episodes in collection.episodes.values()
        for episode in episodes
    }
    assert len(starts) == 2 * len(collection.episodes)


def test_recorded_episodes_are_those_that_were_made(
    run: Run, collection: Collection, tmp_path: Path
) -> None:
    recorded.save(collection, run, tmp_path / "episodes")
    loaded = recorded.load(tmp_path / "episodes", run)
    assert loaded.skipped == collection.skipped
    assert list(loaded.episodes) == list(collection.episodes)
    for name, episodes in collection.episodes.items():
        for one, other in zip(episodes, loaded.episodes[name], strict=True):
            assert same(one, other)
            assert np.array_equal(one.reward, other.reward)
    before, after = (judge(run, each, 4, 3).to_json() for each in (collection, loaded))
    assert before == after
    with pytest.raises(RunError, match="exists already; name another folder"):
        recorded.save(collection, run, tmp_path / "episodes")


def test_episodes_of_another_task_are_refused(
    run: Run, collection: Collection, tiny: Config, tmp_path: Path
) -> None:
    recorded.save(collection, run, tmp_path / "episodes")
    config = replaced(tiny, env={"observation": ("state",)}, collect={"episodes": 0})
    other = pb.load_run(pb.train(config, tmp_path / "run")[0])
    with pytest.raises(RunError, match="has episodes of toy_reach with the observations sensors"):
        recorded.load(tmp_path / "episodes", other)


def test_folders_that_are_damaged_or_not_ours_are_refused(
    run: Run, collection: Collection, tmp_path: Path
) -> None:
    folder = tmp_path / "episodes"
    with pytest.raises(RunError, match=r"has no conditions\.json; such folders are made by"):
        recorded.load(folder, run)
    recorded.save(collection, run, folder)
    file = folder / "random-001.npz"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + b"x")
    with pytest.raises(RunError, match="is damaged"):
        recorded.load(folder, run)
    file.unlink()
    with pytest.raises(RunError, match="cannot be read"):
        recorded.load(folder, run)


def test_the_clean_condition_is_told_from_itself_by_chance_only(
    run: Run, collection: Collection
) -> None:
    found = judge(run, collection, 4, 3).figures()
    assert set(found["agent"]) == {"return", "sensors"}
    for figures in found["agent"].values():
        assert figures.auroc is not None
        np.testing.assert_allclose(figures.auroc, 0.5)


def test_short_episodes_are_left_out(run: Run, collection: Collection) -> None:
    def cut(episode: Episode, steps: int) -> Episode:
        sensors = {"sensors": episode.observation["sensors"][:steps]}
        return Episode(
            sensors, episode.action[:steps], episode.reward[:steps], episode.terminal[:steps]
        )

    episodes = dict(collection.episodes)
    whole, other = episodes["random"]
    episodes["random"] = [whole, cut(other, 4)]
    episodes["square"] = [cut(one, 4) for one in episodes["square"]]
    report = judge(run, Collection(episodes), 4, 3)
    assert len(report.foresight["random"].real) == 3  # points 0, 3 and 6 of 12 steps
    assert report.skipped["square"] == "every episode is shorter than the horizon, 4."
    with pytest.raises(ConfigError, match="agent: every episode is shorter than the horizon, 13"):
        judge(run, collection, 13, 3)


def test_the_command_records_and_compares(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, made, read = tmp_path / "episodes", tmp_path / "made.json", tmp_path / "read.json"
    words = ["diagnose", str(run.path), "--horizon", "4"]
    saving = [*words, "--episodes", "1", "--save", str(folder)]
    assert cli.main([*saving, "--json", str(made)]) == 0
    first = capsys.readouterr().out
    assert "Step by step: agent, noise 0.3." in first
    assert "Conditions, return over 4 steps:" in first
    assert "Conditions, sensors 4 steps ahead:" in first
    assert "skipped gravity × 0.4: it changes the physics of a control suite task" in first
    rows = [line for line in first.splitlines() if line.startswith(("agent", "square"))]
    assert len(rows) == 8
    assert max(map(len, rows)) <= 80
    assert cli.main([*words, "--from", str(folder), "--json", str(read)]) == 0
    assert capsys.readouterr().out == first
    data = json.loads(made.read_text())
    assert data == json.loads(read.read_text())
    assert data["horizon"] == 4
    assert set(data["conditions"]) == set(CONDITIONS) - {"gravity", "motor"}
    returns = data["conditions"]["random"]["quantities"]["return"]
    assert [len(values) for values in returns.values()] == [4] * 7
    for extra, message in (
        (saving[4:], "exists already"),
        (["--from", str(folder), "--episodes", "2"], "leave out --episodes"),
        (["--from", str(folder), "--save", "new"], "choose one"),
        (["--conditions", "--exploration", "0.1"], "--exploration has no effect"),
        (["--conditions", "--episodes", "0"], "episodes must be at least 1, got 0"),
        (["--from", str(tmp_path)], "has no conditions.json"),
    ):
        assert cli.main([*words, *extra]) == 2
        assert message in capsys.readouterr().err
