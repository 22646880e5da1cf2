"""Offline runs: learning from a log alone, and what a log must be like."""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assertions import assert_same_run
from planet_bayes import cli, runs
from planet_bayes import config as configuration
from planet_bayes.config import Config
from planet_bayes.data import files
from planet_bayes.data.episode import pack, read_episode
from planet_bayes.data.replay import Replay
from planet_bayes.data.rows import read_metrics
from planet_bayes.envs import NamedObservations
from planet_bayes.errors import ConfigError, RunError
from planet_bayes.training import Event, Trainer, checkpoint, loop
from planet_bayes.training.events import Problem, SeedEpisode, Updated
from planet_bayes.types import Episode
from test_cli import TINY as ONLINE_WORDS
from test_reliability import flip, kill_and_go_on, resume
from tiny_run import replaced

WORDS = shlex.split(shlex.join(ONLINE_WORDS).replace("--collect.seed-episodes 2", ""))
"""Settings of a tiny run on the command line, without those of collecting."""


@pytest.fixture(scope="module")
def source(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose five episodes are a log; not to be written to."""
    folder = tmp_path_factory.mktemp("source") / "run"
    assert Trainer(tiny, folder).train()
    return folder


@pytest.fixture
def log(source: Path, tmp_path: Path) -> Path:
    """A copy of the log, with names of its own and without sums."""
    folder = tmp_path / "log"
    folder.mkdir()
    for path in sorted((source / "episodes").glob("*.npz")):
        shutil.copy(path, folder / f"day-{path.name}")
    return folder


def offline(tiny: Config, log: Path, updates: int = 12) -> Config:
    return runs.offline_config(replaced(tiny, learn={"first_updates": updates}), log)


def stopped_after(updates: int, config: Config, run: Path) -> None:
    """Train until so many updates are done."""
    done = 0

    def report(event: Event) -> None:
        nonlocal done
        done += isinstance(event, Updated)

    assert not runs.train(config, run, should_stop=lambda: done >= updates, report=report)[1]


def test_an_offline_run_learns_from_the_log_and_collects_nothing(
    tiny: Config, source: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = 0
    reset = NamedObservations.reset

    def counted(self: NamedObservations, **words: Any) -> Any:
        nonlocal played
        played += 1
        return reset(self, **words)

    monkeypatch.setattr(NamedObservations, "reset", counted)
    config = offline(tiny, log)
    run, ended = runs.train(config, tmp_path / "run")
    assert ended
    assert played == config.run.evaluation_episodes
    copied = {path.name: path.read_bytes() for path in (run / "episodes").glob("*.npz")}
    logged = {path.name: path.read_bytes() for path in (source / "episodes").glob("*.npz")}
    assert copied == logged
    assert list(Replay(run / "episodes").damaged(5)) == []
    (row,) = read_metrics(run / "metrics.jsonl")
    assert (row["episode"], row["updates"], row["steps"]) == (0, 12, 60)
    assert len(row["evaluation_returns"]) == 2
    assert "train_return" not in row
    saved = configuration.load(run / "config.json")
    assert saved.offline == str(log)
    assert (saved.collect.episodes, saved.collect.seed_episodes) == (0, 5)
    record = json.loads((run / "log.json").read_text())
    assert record["folder"] == str(log.resolve())
    assert [one["name"] for one in record["episodes"]] == sorted(p.name for p in log.iterdir())
    assert record["episodes"][2]["sha256"] == files.file_sum(log / "day-000002.npz")


def test_the_log_decides_what_is_learned(
    tiny: Config, log: Path, source: Path, tmp_path: Path
) -> None:
    one, _ = runs.train(offline(tiny, log), tmp_path / "one")
    same, _ = runs.train(offline(tiny, source), tmp_path / "same")  # a run is a log, too
    assert_same_run(one, same)
    (log / "day-000001.npz").unlink()
    other, _ = runs.train(offline(tiny, log), tmp_path / "other")
    with pytest.raises(AssertionError):
        assert_same_run(one, other)
    assert len(list((other / "episodes").glob("*.npz"))) == 4


def test_an_offline_run_is_a_run_for_every_command(
    tiny: Config, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = ["train", "--offline", str(log), "--run", str(run), *WORDS]
    assert cli.main([*words, "--learn.updates-per-episode", "3"]) == 0
    output = capsys.readouterr().out
    assert f"offline from {log}" in output
    assert "5 logged episodes are copied" in output
    assert cli.main(["train", "--resume", str(run)]) == 0
    assert "was finished before: it has learned offline" in capsys.readouterr().out
    assert cli.main(["evaluate", str(run), "--episodes", "1", "--no-video"]) == 0
    assert "toy_reach, offline, from 5 logged episodes" in capsys.readouterr().out
    assert cli.main(["export", str(run), str(tmp_path / "agent")]) == 0
    assert runs.load_run(tmp_path / "agent").config.offline == str(log)
    assert cli.main(["diagnose", str(run), "--episodes", "1", "--horizon", "3"]) == 0
    assert cli.main(["replan", str(run), "--episodes", "1", "--planner.caution", "1"]) == 0


# --- kills and damage


def test_kills_leave_no_trace(log: Path, tmp_path: Path) -> None:
    words = (120, f"offline={log}")
    assert kill_and_go_on(tmp_path / "whole", 0, 0, *words) == {}
    survived = kill_and_go_on(tmp_path / "run", 8, 3, *words)
    assert sum(survived.values()) == 8
    assert_same_run(tmp_path / "whole", tmp_path / "run")


def test_a_checkpoint_is_written_every_so_many_updates(
    tiny: Config, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "OFFLINE_UPDATES_PER_CHECKPOINT", 5)
    run, _ = runs.train(offline(tiny, log), tmp_path / "run")
    names = [path.name.split("-", 1)[1] for path in checkpoint.list_checkpoints(run)]
    assert names == ["episode5-update5", "episode5-update10", "episode5-update12"]


@pytest.mark.parametrize("calls", [1, 3, 5])
def test_a_stop_among_the_copies(tiny: Config, log: Path, tmp_path: Path, calls: int) -> None:
    whole, _ = runs.train(offline(tiny, log), tmp_path / "whole")
    left = calls

    def should_stop() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    run = tmp_path / "run"
    assert not runs.train(offline(tiny, log), run, should_stop=should_stop)[1]
    assert len(list((run / "episodes").glob("*.npz"))) == calls
    assert resume(run) == []
    assert_same_run(whole, run)


def test_a_damaged_copy_is_copied_again_and_not_collected(
    tiny: Config, log: Path, tmp_path: Path
) -> None:
    whole, _ = runs.train(offline(tiny, log), tmp_path / "whole")
    run = tmp_path / "run"
    stopped_after(6, offline(tiny, log), run)
    flip(run / "episodes" / "000001.npz")
    (run / "episodes" / "000003.npz").unlink()
    said = resume(run)
    for number, text in zip((1, 3), said, strict=True):
        assert f"00000{number}.npz" in text
    assert all(f"It is copied again from {log}" in text for text in said)
    assert_same_run(whole, run)
    assert resume(run) == []


@pytest.mark.parametrize("gone", ["folder", "file", "record"])
def test_a_damaged_copy_without_its_log_is_lost_and_the_rest_is_kept(
    tiny: Config, log: Path, tmp_path: Path, gone: str
) -> None:
    """The first checkpoint needs no episodes, but the others would be deleted with it."""
    run = tmp_path / "run"
    stopped_after(6, offline(tiny, log), run)
    assert checkpoint.list_checkpoints(run)[0].name.endswith("episode0-update0")
    flip(run / "episodes" / "000001.npz")
    if gone == "folder":
        shutil.rmtree(log)
    elif gone == "file":
        flip(log / "day-000001.npz")
    else:
        (run / "log.json").write_text("{")
    said = resume(run)
    assert any("000001.npz is damaged" in text for text in said)
    assert any("What is lost cannot be made again" in text for text in said)
    assert any("log.json cannot be read" in text for text in said) == (gone == "record")
    replay = Replay(run / "episodes")
    assert list(replay.damaged(5)) == [1]
    assert checkpoint.newest_sound(run).progress.updates == 12


def test_a_log_that_changed_while_it_was_copied_is_told(
    tiny: Config, log: Path, tmp_path: Path
) -> None:
    run, copied = tmp_path / "run", 0

    def report(event: Event) -> None:
        nonlocal copied
        copied += isinstance(event, SeedEpisode)

    assert not runs.train(offline(tiny, log), run, should_stop=lambda: copied >= 2, report=report)[
        1
    ]
    episode = read_episode(log / "day-000004.npz")
    (log / "day-000004.npz").write_bytes(pack(part(episode, 8)))
    with pytest.raises(RunError, match=r"day-000004\.npz has changed since the run began"):
        runs.train(runs.resume_config(run), run, resume=True)


def test_no_problem_is_reported_where_there_is_none(
    tiny: Config, log: Path, tmp_path: Path
) -> None:
    said: list[Event] = []
    runs.train(offline(tiny, log), tmp_path / "run", report=said.append)
    assert not [event for event in said if isinstance(event, Problem)]


# --- mistakes


def part(episode: Episode, entries: int) -> Episode:
    return Episode(
        {name: value[:entries] for name, value in episode.observation.items()},
        episode.action[:entries],
        episode.reward[:entries],
        episode.terminal[:entries],
    )


def changed(name: str, value: float, index: int = 3) -> Callable[[Episode], Episode]:
    """Return a change of one number of an array."""

    def change(episode: Episode) -> Episode:
        arrays = {**episode.observation, "action": episode.action, "reward": episode.reward}
        arrays[name][index] = value
        return episode

    return change


def seen_as(name: str, value: Callable[[Any], Any]) -> Callable[[Episode], Episode]:
    """Return a change of the observation."""
    return lambda one: Episode(
        {name: value(one.observation["sensors"])}, one.action, one.reward, one.terminal
    )


CHANGES: list[tuple[Callable[[Episode], Episode], str]] = [
    (seen_as("state", lambda seen: seen), "has the observations state, but the environment has"),
    (seen_as("sensors", lambda seen: seen[:, :3]), r"'sensors' of shape \(3,\), but that of"),
    (seen_as("sensors", lambda seen: seen.astype(np.uint8)), "'sensors' of type uint8, but that"),
    (
        lambda one: Episode(one.observation, one.action[:, :1], one.reward, one.terminal),
        "has actions of size 1, but those of the environment have 2",
    ),
    (lambda one: part(one, 2), "has 1 steps, and at least 2 are needed"),
    (changed("reward", np.nan), "has NaN or infinite numbers in 'reward'"),
    (changed("sensors", np.inf), "has NaN or infinite numbers in 'sensors'"),
    (changed("action", -np.inf), "has NaN or infinite numbers in 'action'"),
    (changed("action", -1.5), r"has an action of -1\.5, beyond \[-1, 1\]"),
    (changed("action", 0.5, 0), "has an action or a reward at index 0"),
    (changed("reward", 0.5, 0), "has an action or a reward at index 0"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES, ids=[text for _, text in CHANGES])
def test_an_episode_that_does_not_fit_is_named(
    change: Callable[[Episode], Episode],
    message: str,
    log: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = log / "day-000002.npz"
    path.write_bytes(pack(change(read_episode(path))))
    words = ["train", "--offline", str(log), "--run", str(tmp_path / "run"), *WORDS]
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert "day-000002.npz" in error
    assert message.replace("\\", "") in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("damage", ["text", "sum"])
def test_a_damaged_file_of_a_log_is_named(
    source: Path, log: Path, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if damage == "text":
        (log / "day-000002.npz").write_text("no archive")
    else:
        log = tmp_path / "copied"
        shutil.copytree(source / "episodes", log)
        path = log / "000002.npz"
        path.write_bytes(pack(part(read_episode(path), 8)))
    assert cli.main(["train", "--offline", str(log), "--run", str(tmp_path / "run"), *WORDS]) == 2
    error = capsys.readouterr().err
    assert "000002.npz is" in error
    assert ("not an episode" if damage == "text" else "checksum") in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--offline", "nowhere"], "the log nowhere is not a folder"),
        (["--offline", "none"], "the log none holds no episodes"),
        (["--offline", ""], "--offline needs the name of a folder"),
        (["--offline", "log", "--resume", "run"], "--offline and --resume exclude each other"),
        (["--offline", "log", "--collect.episodes", "3"], "--collect.episodes has no effect"),
        (["--offline", "log", "--collect.seed-episodes=3"], "--collect.seed-episodes has no"),
        (["--offline", "log", "--collect.overlap"], "--collect.overlap has no effect"),
        (["--offline", "run/episodes", "--run", "run"], "would write its own episodes"),
        (["--offline", "log", "--run", "log"], "would write its own episodes"),
    ],
)
def test_mistakes_get_one_sentence(
    words: list[str],
    message: str,
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none").mkdir()
    shutil.copytree(log, tmp_path / "run" / "episodes")
    assert cli.main(["train", *words, *WORDS]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert len(list((tmp_path / "run" / "episodes").iterdir())) == 5


def test_offline_settings_collect_nothing(tiny: Config, log: Path) -> None:
    for changes in ({"episodes": 1}, {"overlap": True}):
        with pytest.raises(ConfigError, match="an offline run collects nothing"):
            replaced(offline(tiny, log), collect=changes)


def test_a_log_with_more_episodes_than_the_settings_is_refused(
    tiny: Config, log: Path, tmp_path: Path
) -> None:
    config = offline(tiny, log)
    shutil.copy(log / "day-000002.npz", log / "more.npz")
    with pytest.raises(ConfigError, match=r"holds 6 episodes, but collect\.seed_episodes is 5"):
        runs.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
