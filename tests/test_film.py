"""The animation of trained agents: as many frames as its seconds have, films side by side."""

import dataclasses
from pathlib import Path

import gymnasium
import imageio.v3 as iio
import numpy as np
import pytest
import torch

import planet_bayes as pb
from planet_bayes import cli
from planet_bayes.config import Config
from planet_bayes.diagnostics.film import FilmOptions, film, write_gif
from planet_bayes.envs import EnvConfig
from planet_bayes.errors import ConfigError
from planet_bayes.models import ModelConfig
from planet_bayes.models.modalities.panels import PANEL
from planet_bayes.training.video import record_episode
from tiny_run import replaced


def test_films_are_side_by_side_and_in_real_time(
    tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = pb.train(replaced(tiny, collect={"episodes": 0}), tmp_path / "run")
    # An episode of 12 steps at 10 a second is over after 1.2 s; then its last frame is held.
    target = tmp_path / "new" / "both.gif"
    words = ["--seconds", "2", "--rate", "10", "--size", "32"]
    assert cli.main(["film", str(target), str(path), str(path), *words]) == 0
    frames = iio.imread(target)
    assert frames.shape == (12, 32, 128, 3)  # one frame shown for long counts once
    assert (frames[:, :, :64] == frames[:, :, 64:]).all()
    assert (frames[0] != frames[3]).any()
    durations = [iio.immeta(target, index=index)["duration"] for index in range(12)]
    assert durations == [100] * 11 + [900]
    assert capsys.readouterr().out.count("in the whole episode") == 2


def test_frames_are_those_of_their_time(tiny: Config, tmp_path: Path) -> None:
    run = pb.load_run(pb.train(replaced(tiny, collect={"episodes": 0}), tmp_path / "run")[0])
    options = FilmOptions(seconds=1.0, rate=10.0, reconstruction=False)
    all_of_them, total = film(run, options)
    half, again = film(run, dataclasses.replace(options, rate=5.0))
    assert all_of_them.shape == (10, 128, 128, 3)
    assert (half == all_of_them[::2]).all()
    assert total == again
    other, _ = film(run, dataclasses.replace(options, episode=1))
    assert (other[0] != all_of_them[0]).any()


def test_a_film_has_frames_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ({"seconds": 0.0}, {"rate": -1.0}, {"size": 0}, {"episode": -1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            FilmOptions(**wrong)
    assert cli.main(["film", str(tmp_path / "none.gif")]) == 2
    assert "at least one run" in capsys.readouterr().err
    assert cli.main(["film", "film.mp4", "nowhere"]) == 2
    assert "film.mp4 does not end in .gif" in capsys.readouterr().err


def test_an_agent_that_sees_images_is_shown_with_its_view(tiny: Config, tmp_path: Path) -> None:
    model = ModelConfig(
        num_members=2, deter=8, stoch=4, hidden=8, image_depth=2, reward_units=8, normalise=True
    )
    env = EnvConfig(observation=("pixels",), image_size=32, blur=5, max_steps=5)
    quickly = replaced(tiny, collect={"episodes": 0}, learn={"updates_per_episode": 1})
    config = dataclasses.replace(quickly, env=env, model=model)
    run = pb.load_run(pb.train(config, tmp_path / "run")[0])
    watched = run.make_env()
    frames, _ = record_episode(watched, run.agent, 7, torch.Generator())
    assert frames.shape == (5, PANEL, 3 * PANEL, 3)
    raw, _ = watched.reset(seed=7)
    image = run.agent.signature.prepare(raw)["camera"]
    large = np.kron(image, np.ones((6, 6, 1), np.uint8))  # 32 pixels as 192
    assert np.array_equal(frames[0, :, PANEL : 2 * PANEL], large)
    rendered = np.asarray(watched.render())
    assert np.array_equal(frames[0, ::6, :PANEL:6], rendered)
    assert not np.array_equal(rendered, image)  # which is blurred

    class Unseen(gymnasium.Wrapper):
        render_mode = None

    alone, _ = record_episode(Unseen(watched), run.agent, 7, torch.Generator())
    assert np.array_equal(alone, frames[:, :, PANEL:])


def test_what_is_small_keeps_its_colour(tmp_path: Path) -> None:
    """A body of few pixels before a background of many shades."""
    shades = np.random.default_rng(0).normal([40, 70, 110], [8, 12, 18], (4, 64, 64, 3))
    frames = shades.clip(0, 255).astype(np.uint8)
    body = np.s_[:, 30:32, 30:36]
    frames[body] = (224, 160, 80)
    write_gif(frames, tmp_path / "small.gif", 10.0)
    seen = iio.imread(tmp_path / "small.gif")[..., :3]
    assert np.abs(seen[body].astype(int) - frames[body]).max() < 32
