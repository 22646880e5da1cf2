"""The animation of trained agents: as many frames as its seconds have, films side by side."""

import dataclasses
from pathlib import Path

import imageio.v3 as iio
import pytest

import planet_bayes as pb
from planet_bayes.config import Config
from planet_bayes.experiments.montage import Options, montage


def test_films_are_side_by_side_and_in_real_time(
    tiny: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = dataclasses.replace(tiny.train, episodes=0)
    path, _ = pb.train(dataclasses.replace(tiny, train=train), tmp_path / "run")
    # An episode of 12 steps at 10 a second is over after 1.2 s; then its last frame is held.
    options = Options(tmp_path / "new" / "both.gif", (path, path), seconds=2.0, rate=10.0, size=32)
    montage(options)
    frames = iio.imread(options.target)
    assert frames.shape == (13, 32, 64, 3)  # one frame shown for long counts once
    assert (frames[:, :, :32] == frames[:, :, 32:]).all()
    assert (frames[0] != frames[3]).any()
    durations = [iio.immeta(options.target, index=index)["duration"] for index in range(13)]
    assert durations == [100] * 12 + [800]
    assert capsys.readouterr().out.count("in 2 s") == 2
