"""Data requests: nearness by hand, a region that was never visited, and the command."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import planet_bayes as pb
from planet_bayes import cli
from planet_bayes.cli.suggest import Suggest
from planet_bayes.config import Config
from planet_bayes.data.replay import Replay
from planet_bayes.diagnostics.fulfil import asking, reach, reset_seed
from planet_bayes.diagnostics.nearness import Map, nearby, spread_out, within_episodes
from planet_bayes.diagnostics.requests import Options, Request, find_requests, random_sequences
from planet_bayes.diagnostics.stored import experienced, moments
from planet_bayes.errors import ConfigError, EnvError
from planet_bayes.models import Vector
from planet_bayes.runs import Run
from planet_bayes.spaces import Box, Signature
from planet_bayes.training.build import build_model
from planet_bayes.training.collect import episode_streams, record
from planet_bayes.training.learner import Learner
from planet_bayes.training.offline import logged_episode
from planet_bayes.types import Episode
from tiny_run import TINY, replaced

FIELD = Signature({"sensors": Vector(2)}, Box((-1.0, -1.0), (1.0, 1.0)))
SPEED = 0.2


# --- nearness


def test_near_points_are_counted_by_hand() -> None:
    stored = np.array([[0.0, 0], [1, 0], [0, 2], [5, 5]])
    np.testing.assert_array_equal(nearby(np.array([[0.0, 0], [5, 4]]), stored, 1.0), [2, 1])
    # Episode 0 has two points at a distance of 1, episode 1 two that are far from each other.
    assert within_episodes(stored, np.array([0, 0, 1, 1]), 1.0) == 0.5
    many = np.random.default_rng(0).normal(size=(700, 3))
    expected = (np.linalg.norm(many[:, None] - many, axis=-1) <= 0.5).sum(1)
    np.testing.assert_array_equal(nearby(many, many, 0.5), expected)


def test_chosen_points_are_the_best_that_are_not_near() -> None:
    points = np.array([[0.0], [0.5], [3], [9]])
    assert spread_out(points, np.array([4.0, 5, 1, 2]), 1.0, 3) == [1, 3, 2]
    assert spread_out(points, np.array([4.0, 5, 1, 2]), 1.0, 2) == [1, 3]
    assert spread_out(points, np.zeros(4), 1.0, 3) == []


def test_distances_are_in_stds_and_images_count_as_a_whole() -> None:
    rng = np.random.default_rng(1)
    vector = rng.normal(size=(300, 2)) * [1.0, 1000]
    image = rng.normal(size=(300, 8, 8, 3))
    action = rng.uniform(-1, 1, (300, 1))
    plain = Map.of({"joints": vector}, action)
    by_hand = np.concatenate([vector / vector.std(0), action * 3**0.5], 1)
    distance = np.linalg.norm(plain.points[:, None] - plain.points, axis=-1)
    expected = np.linalg.norm(by_hand[:, None] - by_hand, axis=-1)
    np.testing.assert_allclose(distance, expected, atol=1e-6)
    assert (distance <= plain.radius).mean() == pytest.approx(0.05, abs=0.001)
    assert plain.plane(plain.points).shape == (300, 2)
    both = Map.of({"camera": image, "joints": vector}, action)
    assert both.points.shape == (300, 11)
    fainter = Map.of({"camera": image / 100, "joints": vector}, action)
    np.testing.assert_allclose(fainter.points, both.points, atol=1e-8)


def test_random_sequences_repeat_their_actions() -> None:
    rng = np.random.default_rng(2)
    found = random_sequences(FIELD, Options(horizon=6, random=200), rng)
    changes = [int((np.diff(one, axis=0) != 0).any(1).sum()) for one in found]
    assert {one.shape for one in found} == {(6, 2)}
    assert set(changes) == {0, 1, 2, 5}  # repeated 6, 3 to 5, 2 times and once


def test_moments_leave_room_for_the_horizon() -> None:
    episodes = [_walk(np.random.default_rng(n), 6 + n) for n in range(3)]  # 6, 7 and 8 steps
    found = moments(episodes, 7, 100)
    assert found == {1: [0], 2: [0, 1]}
    with pytest.raises(ConfigError, match="smaller horizon"):
        moments(episodes, 9, 100)


# --- a region that was never visited


def _step(position: np.ndarray, action: np.ndarray) -> np.ndarray:
    return np.clip(position + SPEED * action, -1, 1)


def _walk(rng: np.random.Generator, steps: int) -> Episode:
    """A point on a square that never enters the quarter where both coordinates are positive."""
    position = rng.uniform(-1, 0, 2)
    seen, actions = [position], [np.zeros(2)]
    while len(seen) <= steps:
        action = rng.uniform(-1, 1, 2)
        moved = _step(position, action)
        if (moved > 0).all():
            continue
        position = moved
        seen.append(position)
        actions.append(action)
    zero = np.zeros(steps + 1, np.float32)
    observation: dict[str, Any] = {"sensors": np.array(seen, np.float32)}
    return Episode(observation, np.array(actions, np.float32), zero, zero.astype(bool))


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Episode]]:
    config = replaced(
        TINY,
        model={"num_members": 5, "deter": 24, "hidden": 24, "dense_units": 24},
        learn={"batch_size": 16, "sequence_length": 12, "learning_rate": 3e-3},
        collect={"seed_episodes": 40},
    )
    episodes = [_walk(np.random.default_rng(number), 30) for number in range(40)]
    replay = Replay(tmp_path_factory.mktemp("requests"))
    for episode in episodes:
        replay.add(episode)
    learner = Learner(build_model(config, FIELD, "cpu"), config)
    learner.rescale(replay)
    for number in range(400):
        learner.update(replay, number)
    return learner.acting_model, episodes


def test_what_was_never_visited_is_requested(walker: tuple[Any, list[Episode]]) -> None:
    model, episodes = walker
    options = Options(requests=5, horizon=8)
    found = find_requests(model, FIELD, episodes, options)
    assert len(found.chosen) == 5
    for request in found.chosen:
        position = np.asarray(request.start["sensors"], float)
        seen = episodes[request.episode].observation["sensors"][request.step]
        np.testing.assert_array_equal(position.astype(np.float32), seen)
        for action in request.actions:
            position = _step(position, action)
        assert (position > 0.3).all()
        assert request.disagreement > 2 * found.usual
    assert found.steps == 1200
    gains = [request.gain for request in found.chosen]
    assert gains == sorted(gains, reverse=True)
    # Most imagined ends are elsewhere: the ranking finds these, not the random actions.
    assert (found.gains < gains[-1]).mean() > 0.9


def test_starts_that_are_reached_soon_are_preferred(walker: tuple[Any, list[Episode]]) -> None:
    model, episodes = walker
    found = find_requests(model, FIELD, episodes, Options(requests=5, horizon=8))
    # A moment that could be a start is at step 11 on average.
    assert max(request.step for request in found.chosen) < 8


def test_visits_lower_the_gain_and_dead_members_do_not_count(
    walker: tuple[Any, list[Episode]],
) -> None:
    model, episodes = walker
    options = Options(requests=3, horizon=4, moments=50)
    before = find_requests(model, FIELD, episodes, options)
    visited = max(request.visits for request in before.chosen)
    for request in before.chosen:
        unvisited = request.disagreement**2 / (request.step + options.horizon)
        assert request.gain == pytest.approx(unvisited, rel=1e-6) or request.visits > 0
        assert request.gain <= unvisited * (1 + 1e-6)
        if request.visits == visited > 0:
            assert request.gain < unvisited
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        with torch.no_grad():
            for part in model.particle_parameters():
                part[1] = torch.nan
        left = find_requests(model, FIELD, episodes, options)
        assert np.isfinite([request.disagreement for request in left.chosen]).all()
        assert left.usual != before.usual
        with torch.no_grad():
            for part in model.particle_parameters():
                part[1:] = torch.nan
        with pytest.raises(ConfigError, match="fewer than two members"):
            find_requests(model, FIELD, episodes, options)
    finally:
        model.load_state_dict(weights)


# --- starts and the command


@pytest.fixture(scope="module")
def run(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = replaced(tiny, collect={"episodes": 1})
    return pb.load_run(pb.train(config, tmp_path_factory.mktemp("requests") / "run")[0])


def stored(run: Run) -> list[Episode]:
    replay = Replay(run.path / "episodes")
    replay.restore(3)
    return [replay.episode(index) for index in range(3)]


def test_a_start_is_reached_by_replaying_and_only_if_the_environment_repeats_itself(
    run: Run,
) -> None:
    episodes, env, signature = stored(run), run.make_env(), run.agent.signature
    for number, step in ((0, 5), (2, 0), (2, 12)):
        seed = reset_seed(run.config, number)
        assert seed is not None
        seen = reach(env, signature, seed, episodes[number], step)
        np.testing.assert_array_equal(
            seen["sensors"], episodes[number].observation["sensors"][step]
        )
        with pytest.raises(EnvError, match="cannot be reached"):
            reach(env, signature, seed + 1, episodes[number], step)
    logged = replaced(run.config, offline="somewhere", collect={"episodes": 0})
    assert reset_seed(logged, 0) is None


def test_a_request_is_fulfilled_in_an_episode(run: Run) -> None:
    start = stored(run)[1]
    asked = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
    request = Request(1, 3, {}, asked, {}, 0.0, 0.0, 0.0)
    streams = episode_streams(run.config.seed, "collect", 1, "cpu")
    policy = asking(request, start, lambda observation: np.full(2, 0.25))
    made = record(run.make_env(), run.agent.signature, streams, policy)
    np.testing.assert_array_equal(made.observation["sensors"][:4], start.observation["sensors"][:4])
    np.testing.assert_array_equal(made.action[4:8], asked)
    assert (made.action[8:] == 0.25).all()


def test_the_command_prints_requests_and_writes_files(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, figures = tmp_path / "run", tmp_path / "requests.json"
    shutil.copytree(run.path, folder)
    words = ["suggest", str(folder), "--requests", "2", "--replay", "--json", str(figures)]
    assert cli.main(words) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "Requests from 36 stored steps" in output
    assert "start 1 reached by replaying: yes" in output
    assert (folder / "requests.png").stat().st_size > 1000
    found = json.loads(figures.read_text())
    assert 1 <= len(found["requests"]) <= 2
    first = found["requests"][0]
    assert np.array(first["actions"]).shape == (4, 2)
    assert first["seed"] == reset_seed(run.config, first["episode"])
    assert f"seed {first['seed']}" in output
    assert first["file"] == f"{first['episode']:06d}.npz"
    assert first["file"] in output
    assert f"step {first['step']}" in output
    assert cli.main(["suggest", str(folder), "--log", str(folder), "--json", str(figures)]) == 0
    assert json.loads(figures.read_text())["requests"][0]["seed"] is None


def test_what_has_nothing_to_request_is_refused(
    run: Run, tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pb.export(run.path, tmp_path / "exported")
    shutil.copytree(run.path, tmp_path / "damaged")
    (tmp_path / "damaged" / "episodes" / "000001.npz").unlink()
    alone = replaced(tiny, model={"num_members": 1}, collect={"episodes": 0})
    single, _ = pb.train(alone, tmp_path / "single")
    refused = {
        "holds no episodes": [str(tmp_path / "exported")],
        "episode 1 of the run is missing": [str(tmp_path / "damaged")],
        "nobody to disagree": [str(single)],
        "no stored episode has 13 steps": [str(run.path), "--horizon", "13"],
        "requests must be at least 1": [str(run.path), "--requests", "0"],
        "seeds are known": [str(run.path), "--replay", "--log", str(run.path)],
    }
    for reason, words in refused.items():
        assert cli.main(["suggest", *words]) == 2
        assert reason in " ".join(capsys.readouterr().err.split())


def test_steps_after_a_terminal_state_are_no_experience() -> None:
    steps = np.arange(6, dtype=np.float32)
    episode = Episode({"sensors": steps[:, None]}, steps[:, None], steps, steps >= 3)
    kept = experienced(episode)
    assert len(kept) == 4
    assert kept.observation["sensors"][-1, 0] == kept.reward[-1] == 3
    alive = Episode({"sensors": steps[:, None]}, steps[:, None], steps, steps > 9)
    assert len(experienced(alive)) == 6


def test_suggest_asks_for_no_step_after_a_terminal_state(run: Run, tmp_path: Path) -> None:
    path = sorted((run.path / "episodes").glob("*.npz"))[0]
    made = logged_episode(path, run.agent.signature)
    ended = dataclasses.replace(made, terminal=np.arange(len(made)) >= len(made) - 6)
    Replay(tmp_path / "log").add(ended)
    names, (seen,) = Suggest(run.path, log=tmp_path / "log")._episodes(run)
    assert names == ["000000.npz"]
    assert len(seen) == len(made) - 5
