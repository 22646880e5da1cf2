"""Fitting to the episodes of a run: held-out episodes are not fitted, and settings count."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planet_bayes as pb
from planet_bayes import cli
from planet_bayes.config import Config
from planet_bayes.data.replay import Replay
from planet_bayes.diagnostics.refit import RefitOptions, refit, split
from planet_bayes.errors import ConfigError
from planet_bayes.types import SequenceBatch
from tiny_run import replaced


@pytest.fixture(scope="module")
def run(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refit") / "run"
    return pb.train(replaced(tiny, collect={"episodes": 0, "seed_episodes": 5}), folder)[0]


def test_every_second_episode_is_held_out(run: Path) -> None:
    kept, held = split(run / "episodes", 2)
    stored = [np.load(path)["reward"] for path in sorted((run / "episodes").glob("*.npz"))]
    assert list(kept) == [0, 2, 4]
    for episode, index in zip([*kept.values(), *held], (0, 2, 4, 1, 3), strict=True):
        assert np.array_equal(episode.reward, stored[index])
    with pytest.raises(ConfigError, match="hold_out must be at least 2, got 1"):
        RefitOptions(hold_out=1)
    with pytest.raises(ConfigError, match="fewer than 6"):
        split(run / "episodes", 6)


def test_a_fit_is_repeatable_and_its_settings_count(run: Path, tiny: Config) -> None:
    def last(config: Config) -> float:
        fits = list(refit(run, config, RefitOptions(4, 2, 2, 3)))
        assert [fit.updates for fit in fits] == [2, 4]
        return fits[-1].losses["total"]

    only = RefitOptions(updates=3, report_every=500, hold_out=2, horizon=3)
    assert [fit.updates for fit in refit(run, tiny, only)] == [3]
    with pytest.raises(ConfigError, match="report_every must be at least 1, got 0"):
        RefitOptions(report_every=0)
    with pytest.raises(ConfigError, match="longer than the horizon"):
        list(refit(run, tiny, RefitOptions(hold_out=2, horizon=50)))
    assert last(tiny) == last(tiny) != last(replaced(tiny, loss={"reward_scale": 50.0}))
    assert last(replaced(tiny, model={"num_members": 3})) != last(tiny)


def test_seed_episodes_that_are_kept_are_drawn_like_seed_episodes(
    run: Path, tiny: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of seed episodes 0 to 3, two are held out: the first two kept are seeds, the third not."""
    drawn: list[int] = []
    sample = Replay.sample

    def watch(replay: Replay, *words: Any, seed_episodes: int, **others: Any) -> SequenceBatch:
        drawn.append(seed_episodes)
        return sample(replay, *words, seed_episodes=seed_episodes, **others)

    monkeypatch.setattr(Replay, "sample", watch)
    config = replaced(tiny, collect={"seed_episodes": 4})
    list(refit(run, config, RefitOptions(updates=1, hold_out=2, horizon=3)))
    assert drawn == [2]


def test_settings_are_named_on_the_command_line(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--updates", "2", "--report-every", "2", "--horizon", "3", "--hold-out", "2"]
    assert cli.main(["refit", str(run), *words]) == 0
    plain = capsys.readouterr().out
    assert cli.main(["refit", str(run), *words, "--loss.reward-scale", "50"]) == 0
    first, losses, titles, *steps = plain.splitlines()
    assert first == "2 updates, a report after every 2:"
    assert losses.startswith("2 updates; mean losses since the last report: total ")
    assert re.split(r"\s{2,}", titles.strip()) == [
        *("step ahead", "error of reward", "of a constant", "correlation of returns"),
    ]
    assert [line.split()[0] for line in steps] == ["1", "3"]
    assert {len(line.split()) for line in steps} == {4}
    assert plain != capsys.readouterr().out
    assert cli.main(["refit", str(run), "--hold-out", "1"]) == 2
    assert "hold_out must be at least 2, got 1" in capsys.readouterr().err


def test_the_run_is_only_read(run: Path, tiny: Config, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    list(refit(run, tiny, RefitOptions(1, 1, 2, 3)))
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_episodes_of_version_0_1_can_be_fitted(tmp_path: Path) -> None:
    old = Path(__file__).parent / "data" / "format-0.1" / "sensors"
    path = shutil.copytree(old, tmp_path / "run")
    (fit,) = refit(path, pb.load_run(path).config, RefitOptions(1, 1, 2, 3))
    assert np.isfinite(fit.losses["total"])
