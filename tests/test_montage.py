"""The animation of trained agents: as many frames as its seconds have, films side by side."""

import dataclasses
from pathlib import Path

import imageio.v3 as iio
import pytest

import planet_bayes as pb
from planet_bayes.config import Config
from planet_bayes.experiments.montage import Options, film, montage


def test_films_are_side_by_side_and_in_real_time(
    tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = dataclasses.replace(tiny.train, episodes=0)
    path, _ = pb.train(dataclasses.replace(tiny, train=train), tmp_path / "run")
    # An episode of 12 steps at 10 a second is over after 1.2 s; then its last frame is held.
    options = Options(tmp_path / "new" / "both.gif", (path, path), seconds=2.0, rate=10.0, size=32)
    montage(options)
    frames = iio.imread(options.target)
    assert frames.shape == (12, 32, 128, 3)  # one frame shown for long counts once
    assert (frames[:, :, :64] == frames[:, :, 64:]).all()
    assert (frames[0] != frames[3]).any()
    durations = [iio.immeta(options.target, index=index)["duration"] for index in range(12)]
    assert durations == [100] * 11 + [900]
    assert capsys.readouterr().out.count("in the whole episode") == 2


def test_frames_are_those_of_their_time(tiny: Config, tmp_path: Path) -> None:
    train = dataclasses.replace(tiny.train, episodes=0)
    path, _ = pb.train(dataclasses.replace(tiny, train=train), tmp_path / "run")
    options = Options(tmp_path / "a.gif", (path,), seconds=1.0, rate=10.0, reconstruction=False)
    all_of_them, total = film(path, options)
    half, again = film(path, dataclasses.replace(options, rate=5.0))
    assert all_of_them.shape == (10, 128, 128, 3)
    assert (half == all_of_them[::2]).all()
    assert total == again
