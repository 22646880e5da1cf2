"""Calibration of a run: what is watched, what is written, what is refused, and the command."""

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import planet_bayes as pb
from planet_bayes import cli
from planet_bayes.confidence.monitor import WARM_UP_STEPS
from planet_bayes.config import Config
from planet_bayes.data.replay import Replay
from planet_bayes.diagnostics import coverage, logged
from planet_bayes.diagnostics.changes import CHANGES, Disturbance, dimmed, frozen, noisy, shifted
from planet_bayes.diagnostics.conditions import NotApplicable
from planet_bayes.diagnostics.coverage import judge_change
from planet_bayes.diagnostics.logged import Difference, check, watch_log
from planet_bayes.diagnostics.watching import (
    NEVER_STILL,
    calibration_of,
    realised,
    watch_run,
)
from planet_bayes.errors import ConfigError
from planet_bayes.models import Image, Vector
from planet_bayes.runs import Run
from planet_bayes.spaces import Box, Signature
from planet_bayes.training.collect import collect_with_agent, episode_streams
from planet_bayes.types import Episode
from tiny_run import replaced


@pytest.fixture(scope="module")
def run(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = replaced(
        tiny, collect={"episodes": 0}, env={"max_steps": 30}, run={"evaluation_episodes": 4}
    )
    return pb.load_run(pb.train(config, tmp_path_factory.mktemp("coverage") / "run")[0])


def test_realised_values_by_hand() -> None:
    truth = realised(np.array([0.0, 1, 2, 4]), [np.array([[10.0], [11], [12], [13]])], 2)
    missing = np.nan
    expected = [
        [[1, 1, 11], [2, 3, 12]],
        [[2, 2, 12], [4, 6, 13]],
        [[4, 4, 13], [missing] * 3],
        [[missing] * 3, [missing] * 3],
    ]
    np.testing.assert_array_equal(truth, expected)


def test_watched_truths_are_those_of_the_environment(run: Run) -> None:
    (one,) = watch_run(run, run.agent.watched(), "test", 1)
    (again,) = watch_run(run, run.agent.watched(), "test", 1)
    np.testing.assert_array_equal(one.mean, again.mean)
    assert (
        one.mean.shape
        == one.truth.shape
        == (30, 4, 2 + sum(run.agent.signature.vector_sizes().values()))
    )
    known = np.isfinite(one.truth[..., 0]).sum(0)
    np.testing.assert_array_equal(known, [29, 28, 27, 26])
    rewards = one.truth[..., 0]
    np.testing.assert_allclose(
        one.truth[:-4, 3, 1], rewards[:-4].sum(1)
    )  # h = 4: the sum of 1 to 4
    assert rewards[:-1, 0].sum() <= one.total + 1e-9  # the last reward comes after the last step


def test_a_run_is_calibrated_and_its_export_too(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.path, folder)
    figures = tmp_path / "figures.json"
    words = ["calibrate", str(folder), "--episodes", "3", "--test-episodes", "2"]
    assert cli.main([*words, "--changed-episodes", "1", "--json", str(figures)]) == 0
    assert (folder / "confidence.png").stat().st_size > 1000
    found = json.loads(figures.read_text())
    assert set(found["held"]) == {"reward", "return", "sensors"}
    assert len(found["held"]["return"]["calibrated"]) == 4
    assert set(found["noticed"]) == {"noise", "frozen"}  # the toy task has no MuJoCo physics
    assert "control suite" in found["skipped"]["gravity"]
    pb.export(folder, tmp_path / "exported")
    for path in (folder, tmp_path / "exported"):
        agent = pb.load_run(path).agent
        assert agent.monitor is not None
        assert agent.monitor.calibration is not None
        assert agent.monitor.calibration.episodes == 3


def test_episodes_that_end_before_a_change_do_not_count(run: Run) -> None:
    plain = run.agent.watched()
    held_out = watch_run(run, plain, "held-out", 3)
    agent = run.agent.watched(calibration_of(held_out, plain, 0.9, 0.001, "none"))
    assert agent.monitor is not None
    known = agent.monitor.calibration
    assert known is not None
    clean = watch_run(run, agent, "later", 2)
    names = ("mean", "std", "truth", "log_kl", "low", "high", "surprise", "alarm", "recent")
    cut = {name: getattr(clean[0], name)[:8] for name in names if hasattr(clean[0], name)}
    short = dataclasses.replace(clean[0], **cut)
    found = judge_change([short, clean[1]], clean, known, 10)
    assert found.total == clean[1].total
    assert judge_change([clean[1]], [short, *clean], known, 10) == found
    with pytest.raises(NotApplicable, match="ended before it began, at step 10"):
        judge_change([short], clean, known, 10)


def test_a_calibration_of_other_weights_or_settings_is_not_used(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.path, folder)
    words = ["calibrate", str(folder), "--episodes", "3", "--test-episodes", "1"]
    assert cli.main([*words, "--changed-episodes", "0"]) == 0
    other = pb.load_run(folder, changed=replaced(run.config, planner={"horizon": 3}))
    assert other.agent.monitor is None
    assert "other settings" in other.warnings[0]
    path = folder / "confidence.json"
    path.write_text(path.read_text().replace('"weights": "', '"weights": "0'))
    changed = pb.load_run(folder)
    assert changed.agent.monitor is None
    assert "weights have changed" in changed.warnings[0]


def test_the_rate_that_was_set_stands_beside_the_one_that_so_few_steps_allow(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    shutil.copytree(run.path, tmp_path / "run")
    words = ["calibrate", str(tmp_path / "run"), "--test-episodes", "1", "--changed-episodes", "0"]
    assert cli.main([*words, "--episodes", "3"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    steps = 3 * (30 - WARM_UP_STEPS)
    assert f"(set: 1.0; so few held-out steps allow {1000 / (steps + 1):.1f})" in printed
    assert cli.main([*words, "--episodes", "2", "--false-alarms", "0.2"]) == 0
    assert "(set: 200.0)" in " ".join(capsys.readouterr().out.split())


def test_what_cannot_be_calibrated_is_refused(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    agent = run.agent.watched()
    with pytest.raises(ConfigError, match="no held-out episodes"):
        calibration_of([], agent, 0.9, 0.001, "")
    with pytest.raises(ConfigError, match="level must be"):
        calibration_of([], agent, 1.0, 0.001, "")
    with pytest.raises(ConfigError, match="false alarms"):
        calibration_of([], agent, 0.9, 0.0, "")
    assert cli.main(["calibrate", str(run.path), "--episodes", "0"]) == 2
    assert cli.main(["calibrate", str(run.path), "--episodes", "1"]) == 2
    assert "hold out more or longer episodes" in " ".join(capsys.readouterr().err.split())


def test_changes_of_observations_by_hand() -> None:
    rng = np.random.default_rng(0)
    first, now = np.array([1.0, 2, 3], np.float32), np.array([4.0, 5, 6], np.float32)
    scale = np.array([0.1, 5.0, 1.0])
    np.testing.assert_array_equal(frozen(now, first, scale, rng), [4, 2, 6])
    many = np.stack([noisy(now, first, scale, rng) for _ in range(4000)])
    np.testing.assert_allclose(many.std(0), 0.3 * scale, rtol=0.1)
    picture = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    np.testing.assert_array_equal(dimmed(picture, picture, scale, rng), picture // 2)
    moved = shifted(picture, picture, scale, rng)
    np.testing.assert_array_equal(moved[:, 2:], picture[:, :-2])
    np.testing.assert_array_equal(moved[:, 1], picture[:, 0])


def test_a_change_begins_at_its_step_and_needs_its_kind_of_observation() -> None:
    signature = Signature({"joints": Vector(3), "camera": Image(32)}, Box((-1.0,), (1.0,)))
    rng = np.random.default_rng(0)
    disturbance = Disturbance(CHANGES["frozen"], 2, signature, {"joints": np.ones(3)}, rng)
    seen = []
    for step in range(5):
        given: dict[str, Any] = {
            "joints": np.full(3, step, np.float32),
            "camera": np.zeros((32, 32, 3), np.uint8),
        }
        seen.append(disturbance.sense(step, given)["joints"][0])
    assert seen == [0, 1, 2, 2, 2]
    blind = Signature({"joints": Vector(3)}, Box((-1.0,), (1.0,)))
    with pytest.raises(NotApplicable, match="images"):
        Disturbance(CHANGES["dimmed"], 2, blind, {}, rng)


# --- logged episodes


def written(episodes: Sequence[Episode], folder: Path) -> Path:
    replay = Replay(folder)
    for episode in episodes:
        replay.add(episode)
    return folder


def test_a_log_of_the_same_agent_calibrates_as_playing_does(run: Run, tmp_path: Path) -> None:
    made = []
    for number in range(6):
        streams = episode_streams(9, "log", number, "cpu")
        made.append(collect_with_agent(run.make_env(), run.agent, streams, 0.0).episode)
    folder = written(made, tmp_path / "log")
    agent = run.agent.watched()
    (one,) = watch_log(run, agent, folder, "test", [2])
    rewards = made[2].reward.astype(float)
    sensors = made[2].observation["sensors"][:-1]
    np.testing.assert_allclose(one.truth, realised(rewards[:-1], [sensors], 4))
    assert one.total == pytest.approx(rewards.sum())
    # By hand: filter the logged actions, and plan with the same numbers at each step.
    carry, streams = agent.initial(), episode_streams(0, "log-test", 2, "cpu")
    for step in range(8):
        seen = {"sensors": made[2].observation["sensors"][step]}
        before = carry
        _, carry, _ = agent.act_on_prepared(before, [seen], streams.agent, rewards=[0.0])
        assert carry.memory is not None
        np.testing.assert_array_equal(carry.memory.predictions[0].mean[0], one.mean[step])
        if step % 5 == 0:
            agent.act_on_prepared(before, [seen], streams.agent)
        carry = dataclasses.replace(carry, action=torch.from_numpy(made[2].action[step + 1])[None])
    copied, figures = tmp_path / "run", tmp_path / "figures.json"
    shutil.copytree(run.path, copied)
    words = ["calibrate", str(copied), "--log", str(folder), "--json", str(figures)]
    assert cli.main(words) == 0
    assert json.loads(figures.read_text())["noticed"] == {}
    known = pb.load_run(copied).agent.monitor
    assert known is not None
    assert known.calibration is not None
    assert (known.calibration.episodes, known.calibration.steps) == (3, 90)


def test_a_log_of_another_controller_is_refused(
    run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match=r"by 0.4 .* by 0.1 when"):
        check(Difference([0.16], [0.01]), Path("log.npz"))
    check(Difference([0.08], [0.01]), Path("log.npz"))
    check(Difference([0.0003], [0.0]), Path("log.npz"))
    copied = tmp_path / "run"
    shutil.copytree(run.path, copied)
    made = [
        collect_with_agent(
            run.make_env(), run.agent, episode_streams(9, "log", number, "cpu"), 0.0
        ).episode
        for number in range(2)
    ]
    # The plans of an agent that has learned nothing differ so much that any log is like its own.
    monkeypatch.setattr(logged, "MAX_RATIO", 0.1)
    folder = written(made, tmp_path / "log")
    assert cli.main(["calibrate", str(copied), "--log", str(folder)]) == 2
    assert "log episodes of this agent" in " ".join(capsys.readouterr().err.split())
    assert not (copied / "confidence.json").exists()
    alone = written(made[:1], tmp_path / "alone")
    assert cli.main(["calibrate", str(copied), "--log", str(alone)]) == 2
    assert "one more is needed" in " ".join(capsys.readouterr().err.split())


def test_a_run_is_calibrated_from_its_last_evaluation_alone(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run.path, copied)
    assert cli.main(["calibrate", str(copied), "--log", str(copied / "held-out")]) == 0
    assert "warning" not in capsys.readouterr().out
    known = pb.load_run(copied).agent.monitor
    assert known is not None
    assert known.calibration is not None
    assert (known.calibration.episodes, known.calibration.steps) == (2, 60)


def test_held_out_episodes_of_older_weights_or_with_damage_are_noticed(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run.path, copied)
    held_out = copied / "held-out"
    (held_out / "weights.sha256").write_text("of an earlier evaluation\n")
    assert cli.main(["calibrate", str(copied), "--log", str(held_out)]) == 0
    assert "is an evaluation of other weights" in " ".join(capsys.readouterr().out.split())
    shutil.copy(held_out / "000001.npz", held_out / "000000.npz")
    assert cli.main(["calibrate", str(copied), "--log", str(held_out)]) == 2
    assert "000000.npz is damaged" in " ".join(capsys.readouterr().err.split())


def test_what_a_run_has_learned_from_is_refused(run: Run, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["calibrate", str(run.path), "--log", str(run.path / "episodes")]) == 2
    assert "holds what the run has learned from" in " ".join(capsys.readouterr().err.split())


def test_copies_of_what_a_run_has_learned_from_and_episodes_twice_are_refused(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    copied = tmp_path / "episodes"
    shutil.copytree(run.path / "episodes", copied)
    assert cli.main(["calibrate", str(run.path), "--log", str(copied)]) == 2
    assert "holds what the run has learned from" in " ".join(capsys.readouterr().err.split())
    twice = tmp_path / "twice"
    shutil.copytree(run.path / "held-out", twice)
    first = sorted(twice.glob("*.npz"))[0]
    shutil.copy(first, twice / "again.npz")
    assert cli.main(["calibrate", str(run.path), "--log", str(twice)]) == 2
    assert "are the same episode" in " ".join(capsys.readouterr().err.split())


def test_options_of_playing_are_refused_beside_a_log(
    run: Run, capsys: pytest.CaptureFixture
) -> None:
    words = ["calibrate", str(run.path), "--log", str(run.path / "held-out")]
    for option in ("--seed", "--episodes", "--test-episodes", "--changed-episodes"):
        assert cli.main([*words, option, "3"]) == 2
        assert f"{option} is about episodes to play" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--level", "90"], "level must be at least 0.5"),
        (["--false-alarms", "0"], "the rate of false alarms must be between 0 and 1"),
        (["--episodes", "0"], "episodes must be at least 1"),
        (["--changed-episodes", "-1"], "changed_episodes must be at least 0"),
        (["--seed", "-1"], "seed must be at least 0"),
        (["--json", "."], "is a folder"),
    ],
)
def test_options_are_checked_before_an_episode_is_played(
    run: Run,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.setattr(coverage, "watch_run", None)
    assert cli.main(["calibrate", str(run.path), *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (run.path / "confidence.json").exists()


def test_a_calibration_that_cannot_be_used_is_a_warning(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run.path, copied)
    (copied / "confidence.json").write_text("")
    found = pb.load_run(copied)
    assert found.agent.monitor is None
    assert "no bands and no alarm" in found.warnings[0]
    assert cli.main(["export", str(copied), str(tmp_path / "exported")]) == 0
    assert "no bands and no alarm" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["calibrate", str(copied), "--log", str(copied / "held-out")]) == 0
    assert pb.load_run(copied).warnings == ()


def test_sensors_that_are_constant_raise_no_alarm(run: Run) -> None:
    """The last two sensors of toy_reach are the target, which stays where it is."""
    plain = run.agent.watched()
    found = calibration_of(watch_run(run, plain, "held-out", 2), plain, 0.9, 0.1, "").still
    assert found[2:] == (NEVER_STILL, NEVER_STILL)
    assert max(found[:2]) < 60


def test_a_run_on_its_only_environment_plays_no_changes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, figures = tmp_path / "run", tmp_path / "figures.json"
    shutil.copytree(run.path, copied)
    single = dataclasses.replace(
        run.config, run=dataclasses.replace(run.config.run, single_environment=True)
    )
    alone = dataclasses.replace(run, config=single)
    monkeypatch.setattr(pb.runs, "load_run", lambda *args, **options: alone)
    words = ["--episodes", "4", "--test-episodes", "1", "--json", str(figures)]
    assert cli.main(["calibrate", str(copied), *words]) == 0
    assert json.loads(figures.read_text())["noticed"] == {}


def test_bands_while_acting_are_those_of_the_equations(run: Run) -> None:
    """An independent account of recent errors and tracking, from what was watched."""
    plain = run.agent.watched()
    held_out = watch_run(run, plain, "held-out", 4)
    known = calibration_of(held_out, plain, 0.9, 0.01, "")
    (one,) = watch_run(run, run.agent.watched(known), "later", 1)
    bands, (_, horizon, size) = known.bands, one.mean.shape
    recent, below, above = (np.full((horizon, size), value) for value in (1.0, 0.0, 0.0))
    scales: list[np.ndarray] = []
    assert one.low is not None
    assert one.high is not None
    for step in range(len(one)):
        for ahead in range(1, min(step, horizon) + 1):
            made = step - ahead
            miss = one.truth[made, ahead - 1] - one.mean[made, ahead - 1]
            error = abs(miss) / (one.std[made, ahead - 1] + bands.floor[ahead - 1])
            recent[ahead - 1] += (error / bands.usual[ahead - 1] - recent[ahead - 1]) / 10
            score = miss / scales[made][ahead - 1] - bands.center[ahead - 1]
            low = score < -np.exp(below[ahead - 1]) * bands.below[ahead - 1]
            high = score > np.exp(above[ahead - 1]) * bands.above[ahead - 1]
            below[ahead - 1] += min(0.2, 1 / ahead) * (low - 0.05)
            above[ahead - 1] += min(0.2, 1 / ahead) * (high - 0.05)
        scale = (one.std[step] + bands.floor) * (0.02 + 0.98 * recent)
        scales.append(scale)
        middle = one.mean[step] + bands.center * scale
        np.testing.assert_allclose(one.low[step], middle - np.exp(below) * bands.below * scale)
        np.testing.assert_allclose(one.high[step], middle + np.exp(above) * bands.above * scale)
    inside = one.inside_untracked(bands)
    assert np.isnan(inside[-1]).all()
    assert set(np.unique(inside[np.isfinite(inside)])) <= {0.0, 1.0}
