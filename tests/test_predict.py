"""`planet-bayes predict`: the same window for all runs, figures by hand, traversals."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest
import torch

import planet_bayes as pb
from model_building import BOTH, build, seeded
from planet_bayes import cli
from planet_bayes.config import Config
from planet_bayes.data.episode import read_episode
from planet_bayes.diagnostics.calibration import compare
from planet_bayes.diagnostics.prediction import (
    PredictionOptions,
    RunPrediction,
    fresh_episodes,
    predict_run,
)
from planet_bayes.diagnostics.prediction_figure import draw
from planet_bayes.diagnostics.prediction_film import film
from planet_bayes.diagnostics.traversal import OFFSETS, traverse
from planet_bayes.diagnostics.traversal import draw as draw_traversal
from planet_bayes.models.open_loop import open_loop
from planet_bayes.rng import torch_stream
from planet_bayes.training.prediction import predict_window
from test_open_loop import make_episode
from tiny_run import replaced

SHORT = ["--context", "3", "--steps", "6"]
OPTIONS = PredictionOptions(context=3, steps=6)


@pytest.fixture(scope="module")
def trained(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pb.train(replaced(tiny, collect={"episodes": 0}), tmp_path_factory.mktemp("a") / "run")[
        0
    ]


@pytest.fixture(scope="module")
def single(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with one member."""
    config = replaced(tiny.with_method("planet"), collect={"episodes": 0})
    return pb.train(config, tmp_path_factory.mktemp("b") / "planet")[0]


def test_the_command_writes_figure_film_and_figures(
    trained: Path, single: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = tmp_path / "all.json"
    words = [str(trained), str(single), *SHORT, "--every", "2", "--json", str(facts)]
    assert cli.main(["predict", *words, "--episodes", "2"]) == 0
    printed = capsys.readouterr().out
    assert "run, 2 members: 6 starting points in 2 episodes, 3 observations of context" in printed
    assert "planet, 1 member: 6 starting points" in printed
    assert "The model has one member" in printed
    assert iio.imread(trained / "prediction.png").shape[1] > 1000
    assert (trained / "prediction.mp4").stat().st_size > 500
    assert not (single / "prediction.png").exists()
    found = json.loads(facts.read_text())
    assert (found["context"], found["steps"], found["task"]) == (3, 6, "toy_reach")
    first, second = found["runs"]
    assert (first["run"], first["members"], first["points"]) == ("run", 2, 6)
    assert list(first["quantities"]) == ["reward", "return", "sensors"]
    assert len(first["quantities"]["sensors"]["rmse"]) == 6
    assert second["quantities"]["sensors"]["std"] == [None] * 6


def test_figures_are_those_of_predictions_and_truths(trained: Path) -> None:
    run = pb.load_run(trained, device="cpu")
    options = dataclasses.replace(OPTIONS, every=2)
    episodes = fresh_episodes(run, 2, options)
    again = fresh_episodes(run, 2, options)
    assert np.array_equal(episodes[1].action, again[1].action)
    assert not np.array_equal(episodes[0].action, episodes[1].action)
    found = predict_run(run, episodes, options).figures()
    members: dict[str, list[Any]] = {"reward": [], "return": [], "sensors": []}
    truths: dict[str, list[Any]] = {"reward": [], "return": [], "sensors": []}
    for number, episode in enumerate(episodes):
        stream = torch_stream(run.config.seed, "predict-windows", number)
        made = open_loop(run.agent.model, episode, [0, 2, 4], 3, 6, stream)
        with torch.no_grad():
            sensors = made.decoded("sensors").numpy()
        rewards = made.rewards.numpy()
        for window, start in enumerate((0, 2, 4)):
            ahead = slice(start + 3, start + 9)
            members["reward"].append(rewards[:, window, 3:])
            members["return"].append(rewards[:, window, 3:].cumsum(-1))
            members["sensors"].append(sensors[:, window, 3:])
            truths["reward"].append(episode.reward[ahead])
            truths["return"].append(episode.reward[ahead].cumsum())
            truths["sensors"].append(made.inputs["sensors"][window, 3:].numpy())
    for name, figures in found.items():
        expected = compare(np.stack(members[name]), np.stack(truths[name]))
        np.testing.assert_allclose(figures.rmse, expected.rmse(), rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(figures.std, expected.disagreement(), rtol=1e-4, err_msg=name)
        ranks = expected.rank_correlation()
        np.testing.assert_allclose(figures.rank_correlation, ranks, atol=1e-6, err_msg=name)


def test_stored_and_logged_episodes_need_no_environment(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*words: object) -> None:
        raise AssertionError("an environment was made")

    monkeypatch.setattr("planet_bayes.envs.make_env", refuse)
    stored = trained / "episodes" / "000001.npz"
    facts: list[Any] = []
    for source in (["--episode", "1"], ["--log", str(stored)]):
        target, written = tmp_path / f"{len(facts)}.png", tmp_path / f"{len(facts)}.json"
        words = ["--no-video", "--to", str(target), "--json", str(written), "--start", "2"]
        assert cli.main(["predict", str(trained), *SHORT, *source, *words]) == 0
        assert target.is_file()
        assert not target.with_suffix(".mp4").exists()
        facts.append(json.loads(written.read_text()))
    assert facts[0] == facts[1]
    run, options = pb.load_run(trained, device="cpu"), dataclasses.replace(OPTIONS, start=2)
    shown = predict_run(run, [read_episode(stored)], options).shown
    assert np.array_equal(shown.real_reward, read_episode(stored).reward[2:11])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "at least one run"),
        (["RUN", "--context", "5", "--steps", "45"], "an episode of 13 observations is shorter"),
        (["RUN", *SHORT, "--start", "5"], "shorter than start + context + steps, 5 + 3 + 6"),
        (["RUN", *SHORT, "--episode", "9"], "has no episode 9"),
        (["RUN", *SHORT, "--episode", "1", "--episodes", "2"], "exclude each other"),
        (["RUN", *SHORT, "--to", "a.jpg"], "does not end in .png"),
        (["RUN", *SHORT, "--episodes", "0"], "episodes must be at least 1"),
        (["RUN", *SHORT, "--log", "none.npz"], "none.npz cannot be read"),
        (["RUN", "--context", "0"], "context must be at least 1"),
        (
            ["RUN", *SHORT, "--no-video", "--to", "TO", "--traversal", "--member", "3"],
            "from 1 to 2",
        ),
        (["nowhere", *SHORT], "nowhere"),
    ],
)
def test_bad_input_is_explained_in_one_sentence(
    words: list[str],
    message: str,
    trained: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = {"RUN": str(trained), "TO": str(tmp_path / "figure.png")}
    assert cli.main(["predict", *(places.get(word, word) for word in words)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_files_that_cannot_be_written_are_refused_before_the_episodes(
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*words: object) -> None:
        raise AssertionError("episodes were made")

    monkeypatch.setattr("planet_bayes.diagnostics.prediction.fresh_episodes", refuse)
    (tmp_path / "film.mp4").mkdir()
    (tmp_path / "a-traversal.png").mkdir()
    for words in (
        ["--to", str(tmp_path / "film.png")],
        ["--to", str(tmp_path / "a.png"), "--traversal"],
        ["--json", str(tmp_path)],
    ):
        assert cli.main(["predict", str(trained), *SHORT, *words]) == 2
        assert "is a folder; name a file to write" in capsys.readouterr().err


def test_a_new_folder_is_made_for_the_figure(trained: Path, tmp_path: Path) -> None:
    figure, facts = tmp_path / "new" / "a.png", tmp_path / "other" / "a.json"
    words = [str(trained), *SHORT, "--episode", "0", "--to", str(figure), "--json", str(facts)]
    assert cli.main(["predict", *words, "--no-video"]) == 0
    assert figure.is_file()
    assert facts.is_file()
    assert not figure.with_suffix(".mp4").exists()


def test_runs_that_sense_otherwise_and_missing_environments_are_refused(
    tiny: Config,
    trained: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    own: Any,
) -> None:
    task = own(length=20)
    config = replaced(tiny, task=task, env={"observation": ("state",)}, collect={"episodes": 0})
    other, _ = pb.train(config, tmp_path / "other")
    assert cli.main(["predict", str(trained), str(other), *SHORT]) == 2
    assert "name runs that sense and act alike" in capsys.readouterr().err
    saved = next((other / "checkpoints").glob("*")) / "config.json"
    assert "own_env:make" in saved.read_text()
    del sys.modules["own_env"]
    assert cli.main(["predict", str(other), *SHORT]) == 2
    assert "own_env" in capsys.readouterr().err


def predictions(members: int, name: str) -> RunPrediction:
    """Return a prediction with a camera and joints."""
    model, episode = build(members, BOTH), make_episode(12, BOTH)
    shown = predict_window(open_loop(model, episode, [0], 3, 6, seeded(0)), episode, 0)
    return RunPrediction(name, shown, None)  # type: ignore[arg-type]


def test_films_show_truth_and_members_of_each_step(tmp_path: Path) -> None:
    pair = [predictions(1, "planet"), predictions(3, "planet_bayes")]
    frames = film(pair)
    assert len(frames) == 9
    assert frames.shape[1] % 16 == frames.shape[2] % 16 == 0
    large = pair[0].shown.real["camera"].repeat(4, 1).repeat(4, 2)  # 32 pixels as 128
    for frame, truth in zip(frames, large, strict=True):
        places = np.lib.stride_tricks.sliding_window_view(frame[..., 0], 128, axis=1)
        top = next(row for row in range(100) if (places[row] == truth[0, :, 0]).all(-1).any())
        assert (frame[top : top + 128, 4:132] == truth).all()
    draw(pair, "title", tmp_path / "pair.png")
    assert iio.imread(tmp_path / "pair.png").ndim == 3


def test_a_traversal_moves_one_dimension_at_a_time(tmp_path: Path) -> None:
    model, episode = build(2, BOTH, belief="mean", image_bits=8), make_episode(12, BOTH)
    found = traverse(model, episode, 4, 1, seeded(0))
    assert found.decoded["camera"].shape == (3, len(OFFSETS), 32, 32, 3)
    assert found.decoded["joints"].shape == (3, len(OFFSETS), 5)
    middle = OFFSETS.index(0.0)
    belief = model.initial(1)
    with torch.no_grad():
        for step in range(5):
            seen = {
                name: torch.from_numpy(values[step : step + 1])
                for name, values in episode.observation.items()
            }
            action = torch.from_numpy(episode.action[step : step + 1])
            belief, _ = model.filter(belief, action, seen, torch.Generator())
        plain = model.reconstruct(belief.features[1])["joints"][0].numpy()
    for dimension in range(3):
        np.testing.assert_allclose(found.decoded["joints"][dimension, middle], plain, atol=1e-5)
        assert not found.changes["joints"][dimension, middle].any()
        assert abs(found.changes["joints"][dimension, 0]).max() > 0
    squares = [
        np.mean([np.square(change[number]).mean() for change in found.changes.values()])
        for number in range(3)
    ]
    np.testing.assert_allclose(found.effect, np.sqrt(squares), rtol=1e-5)
    assert found.order == sorted(range(3), key=lambda number: -found.effect[number])
    draw_traversal(found, "title", tmp_path / "traversal.png")
    assert iio.imread(tmp_path / "traversal.png").ndim == 3


def test_a_traversals_dimensions_reach_the_decoder_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that returns the state shows that only dimension d moves, by its std."""
    model, episode = build(2), make_episode(30)
    monkeypatch.setattr(
        type(model.senses["sensors"]), "decode", lambda self, features: features[..., -3:]
    )
    changes = traverse(model, episode, 7, 0, seeded(0)).changes["sensors"]  # [S, offsets, S]
    for dimension in range(3):
        others = [number for number in range(3) if number != dimension]
        assert not changes[dimension][:, others].any()
        moved = changes[dimension][:, dimension] / np.array([*OFFSETS[:3], 1, *OFFSETS[4:]])
        assert moved[3] == 0
        np.testing.assert_allclose(np.delete(moved, 3), moved[0], rtol=1e-4)
        assert moved[0] > 0


def test_the_command_draws_a_traversal(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SHORT, "--episodes", "1", "--no-video", "--traversal", "--member", "2"]
    assert cli.main(["predict", str(trained), *words]) == 0
    assert "Total correlation of the stochastic state of member 2" in capsys.readouterr().out
    assert (trained / "traversal.png").is_file()
