"""Fitting to the episodes of a run: what is held out is not fitted, and the settings count."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planet_bayes as pb
from planet_bayes.config import Config
from planet_bayes.errors import ConfigError
from planet_bayes.experiments.refit import Options, main, refit, split
from planet_bayes.replay import Replay
from planet_bayes.types import SequenceBatch


@pytest.fixture(scope="module")
def run(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    train = dataclasses.replace(tiny.train, episodes=0, seed_episodes=5)
    folder = tmp_path_factory.mktemp("refit") / "run"
    return pb.train(dataclasses.replace(tiny, train=train), folder)[0]


def test_every_second_episode_is_held_out(run: Path) -> None:
    kept, held = split(run / "episodes", 2)
    stored = [np.load(path)["reward"] for path in sorted((run / "episodes").glob("*.npz"))]
    assert list(kept) == [0, 2, 4]
    for episode, index in zip([*kept.values(), *held], (0, 2, 4, 1, 3), strict=True):
        assert np.array_equal(episode.reward, stored[index])
    with pytest.raises(ConfigError, match="at least 2"):
        split(run / "episodes", 1)
    with pytest.raises(ConfigError, match="fewer than 6"):
        split(run / "episodes", 6)


def test_a_fit_is_repeatable_and_its_settings_count(run: Path, tiny: Config) -> None:
    def last(config: Config) -> float:
        options = Options(run, config, updates=4, report_every=2, hold_out=2, horizon=3)
        rows = list(refit(options))
        assert [updates for updates, _, _ in rows] == [2, 4]
        return rows[-1][1]["total"]

    only = Options(run, tiny, updates=3, report_every=500, hold_out=2, horizon=3)
    assert [updates for updates, _, _ in refit(only)] == [3]
    with pytest.raises(ConfigError, match="report_every must be at least 1, got 0"):
        list(refit(dataclasses.replace(only, report_every=0)))
    with pytest.raises(ConfigError, match="longer than the horizon"):
        list(refit(dataclasses.replace(only, horizon=50)))
    changed = dataclasses.replace(tiny, loss=dataclasses.replace(tiny.loss, reward_scale=50.0))
    assert last(tiny) == last(tiny) != last(changed)


def test_seed_episodes_that_are_kept_are_drawn_like_seed_episodes(
    run: Path, tiny: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of seed episodes 0 to 3, two are held out: the first two kept are early, the third is not."""
    drawn: list[int] = []
    sample = Replay.sample

    def watch(replay: Replay, *words: Any, early: int, **others: Any) -> SequenceBatch:
        drawn.append(early)
        return sample(replay, *words, early=early, **others)

    monkeypatch.setattr(Replay, "sample", watch)
    config = dataclasses.replace(tiny, train=dataclasses.replace(tiny.train, seed_episodes=4))
    list(refit(Options(run, config, updates=1, hold_out=2, horizon=3)))
    assert drawn == [2]


def test_settings_are_named_on_the_command_line(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--updates", "2", "--report-every", "2", "--horizon", "3", "--hold-out", "2"]
    main([str(run), *words])
    plain = capsys.readouterr().out
    main([str(run), *words, "--loss.reward-scale", "50"])
    assert plain.splitlines()[0].startswith("After every 2 of 2 updates")
    assert plain.splitlines()[1].startswith("2 ")
    assert plain != capsys.readouterr().out
