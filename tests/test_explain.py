"""The recording of an episode: the page's figures are the agent's, and its sums are right."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from explaining import SENSORS, trained
from planet_bayes import cli, runs
from planet_bayes.agent import Agent, Carry, planned_actions
from planet_bayes.data.episode import pack, read_episode
from planet_bayes.diagnostics.explain import document, html, latent, source
from planet_bayes.diagnostics.explain.images import packed, sheet, unpacked
from planet_bayes.diagnostics.explain.outlook import outlook
from planet_bayes.diagnostics.explain.recording import Moments, follow, play
from planet_bayes.diagnostics.watching import calibration_of, watch_run
from planet_bayes.errors import EnvError
from planet_bayes.models import Vector
from planet_bayes.runs import Run
from planet_bayes.types import Episode
from tiny_run import replaced


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(SENSORS, tmp_path_factory.mktemp("explain") / "run")


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return runs.load_run(folder, device="cpu")


@pytest.fixture(scope="module")
def calibrated(run: Run) -> Agent:
    agent = run.agent.watched()
    seen = watch_run(run, agent, "calibrate", 4)
    return agent.watched(calibration_of(seen, agent, 0.8, 0.01, "none"))


def acted(agent: Agent, run: Run, seed: int) -> list[tuple[Carry, Any, Any]]:
    """Return memory, action and diagnostics of each step, by a plain loop."""
    made = []
    env, carry, generator = run.make_env(), agent.initial(), torch.Generator().manual_seed(5)
    raw, _ = env.reset(seed=seed)
    rewards, done = None, False
    while not done:
        action, carry, diagnostics = agent.act(carry, [raw], generator, rewards=rewards)
        made.append((carry, action[0], diagnostics))
        raw, reward, terminated, truncated, _ = env.step(action[0])
        rewards, done = [float(reward)], terminated or truncated
    return made


def test_what_is_recorded_is_what_the_agent_did(run: Run, calibrated: Agent) -> None:
    expected = acted(calibrated, run, 7)
    recording = play(run.make_env(), calibrated, 7, torch.Generator().manual_seed(5))
    moments = recording.moments
    returns = outlook(calibrated, recording).returns
    assert len(moments) == len(expected) == 24
    assert len(recording.episode) == 25
    assert returns.calibrated
    for step, (carry, action, diagnostics) in enumerate(expected):
        assert np.array_equal(recording.episode.action[step + 1], action)
        assert np.array_equal(moments.features[step], carry.belief.features[:, 0].numpy())
        components = diagnostics.proposal.components()
        for name in ("weight", "mean", "std"):
            assert np.array_equal(getattr(moments, name)[step], getattr(components, name)[0])
        plan = planned_actions(diagnostics.proposal, carry.action)[0]
        assert np.array_equal(moments.sequence[step], plan)
        assert moments.value[step] == pytest.approx(diagnostics.mode_values[0].numpy())
        assert moments.returns[step].mean(-1) == pytest.approx(moments.value[step], rel=1e-4)
        assert moments.distinct[step] == diagnostics.distinct_plans[0]
        assert moments.samples[step] == pytest.approx(float(diagnostics.effective_samples[0]))
        assert carry.memory is not None
        assert carry.confidence is not None
        assert carry.memory.log_kl is not None
        assert moments.log_kl[step] == carry.memory.log_kl[0]
        band = carry.confidence.bands["return"]
        assert np.array_equal(returns.low[step], band.low[0])
        assert np.array_equal(returns.high[step], band.high[0])
        assert returns.mean[step] == pytest.approx(band.mean[0], rel=1e-4, abs=1e-5)
        assert returns.std[step, -1] == pytest.approx(
            carry.confidence.disagreement[0], rel=1e-3, abs=1e-5
        )


def test_what_happened_is_summed_and_compared(run: Run) -> None:
    recording = play(run.make_env(), run.agent, 7, torch.Generator())
    ahead = outlook(run.agent, recording)
    returns, reward = ahead.returns, recording.episode.reward
    horizon = returns.real.shape[1]
    for step in range(len(recording.moments)):
        for h in range(horizon):
            known = step + h + 1 < len(reward)
            total = reward[step + 1 : step + h + 2].sum() if known else np.nan
            assert returns.real[step, h] == pytest.approx(total, rel=1e-5, nan_ok=True)
    assert not returns.calibrated
    spread = returns.members.std(1, ddof=1)
    assert returns.low == pytest.approx(returns.mean - 2 * spread)
    outside = (returns.real < returns.low) | (returns.real > returns.high)
    assert np.array_equal(returns.left, outside[:, -1])
    view = ahead.vectors["sensors"]
    assert np.array_equal(view.real, recording.episode.observation["sensors"])
    now = torch.from_numpy(recording.moments.features)
    with torch.no_grad():
        expected = run.agent.model.reconstruct(now)["sensors"].numpy()
    assert view.decoded == pytest.approx(expected)


def test_an_episode_that_is_followed_gives_the_beliefs_of_the_one_that_was_played(
    run: Run,
) -> None:
    played = play(run.make_env(), run.agent, 7, torch.Generator().manual_seed(1))
    followed = follow(run.agent, played.episode, torch.Generator().manual_seed(1))
    assert played.acted
    assert not followed.acted
    for part in dataclasses.fields(Moments):
        if part.name != "seconds":
            left, right = (getattr(one.moments, part.name) for one in (played, followed))
            assert np.array_equal(left, right, equal_nan=True), part.name
    other = dataclasses.replace(played.episode, action=-played.episode.action)
    apart = follow(run.agent, other, torch.Generator().manual_seed(1)).moments
    assert np.array_equal(apart.features[0], played.moments.features[0])
    assert not np.array_equal(apart.features[5], played.moments.features[5])


def test_a_filter_without_a_posterior_has_no_surprise(run: Run, folder: Path) -> None:
    config = replaced(run.config, agent={"belief": "importance"})
    weighted = runs.load_run(folder, device="cpu", changed=config)
    made = document.explained(weighted, source.play_start(weighted, 0), "")
    assert made["sure"]["surprise"] is None
    assert made["sure"]["alarm"] == []


def test_a_picture_is_small_and_may_be_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    env, _ = source.environment(run)
    wide = np.zeros((300, 600, 3), np.uint8)
    monkeypatch.setattr(env, "render", lambda: wide, raising=False)
    shown = source.pictures(env, run)()
    assert shown is not None
    assert shown.shape == (64, 128, 3)

    def fail() -> None:
        raise EnvError("no screen")

    monkeypatch.setattr(env, "render", fail)
    recording = play(env, run.agent, 7, torch.Generator(), source.pictures(env, run))
    assert recording.frames is None


def test_a_long_episode_is_cut(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planet_bayes.diagnostics.explain.recording.MAX_STEPS", 5)
    played = play(run.make_env(), run.agent, 7, torch.Generator())
    assert (len(played.moments), len(played.episode), played.complete) == (5, 6, False)
    followed = follow(run.agent, played.episode, torch.Generator())
    assert (len(followed.moments), followed.complete) == (5, True)


def test_dead_and_merged_components_are_told_apart(run: Run) -> None:
    moments = play(run.make_env(), run.agent, 7, torch.Generator()).moments.part(slice(1))
    far = np.full((1, 5, 5), 9.0)
    for one, two in ((1, 2), (3, 4)):
        far[0, one, two] = far[0, two, one] = 0.5
    made = dataclasses.replace(
        moments,
        weight=np.array([[0.02, 0.4, 0.2, 0.18, 0.2]]),
        value=np.array([[9.0, 5.0, 6.0, 3.0, 4.0]]),
        distance=far,
    )
    assert made.heaviest.tolist() == [1]
    assert made.dead.tolist() == [[True, False, False, False, False]]
    assert made.merged.tolist() == [[-1, -1, 1, 4, -1]]  # the kept one counts before a better one


def test_the_projection_is_that_of_the_covariance() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(50, 6)) @ rng.normal(size=(6, 6))
    flat = latent.projection(points)
    values, vectors = np.linalg.eigh(np.cov(points.T))
    assert flat.share == pytest.approx(values[[-1, -2]] / values.sum())
    for axis, vector in zip(flat.axes, (vectors[:, -1], vectors[:, -2]), strict=True):
        assert abs(axis @ vector) == pytest.approx(1.0)
        assert axis[np.abs(axis).argmax()] > 0
    expected = (points - points.mean(0)) @ flat.axes.T
    assert flat(points) == pytest.approx(expected)
    assert latent.projection(np.zeros((4, 3)))(np.ones(3)).shape == (2,)


def test_the_probe_is_a_ridge_regression_on_blocks_that_it_has_not_seen() -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(60, 4)) * [1, 5, 0.1, 2] + 3
    noise = rng.normal(size=60)
    targets = np.stack([features @ [1, 2, 0, -1], noise, np.full(60, 2.0)], -1)
    found = latent.probe(features, targets)
    assert found[0] > 0.95
    assert found[1] < 0.3
    assert np.isnan(found[2])
    missed = 0.0
    for held in range(5):
        chosen = np.array([t // 5 % 5 == held for t in range(60)])
        inside = features[~chosen]
        center, scale = inside.mean(0), inside.std(0)
        rows = np.vstack([(inside - center) / scale, np.sqrt(0.1 * len(inside)) * np.eye(4)])
        middle = noise[~chosen].mean()
        answers = np.concatenate([noise[~chosen] - middle, np.zeros(4)])
        weights = np.linalg.lstsq(rows, answers, rcond=None)[0]
        guess = (features[chosen] - center) / scale @ weights + middle
        missed += float(np.square(noise[chosen] - guess).sum())
    assert found[1] == pytest.approx(1 - missed / np.square(noise - noise.mean()).sum())
    assert np.isnan(latent.probe(features[:10], targets[:10])).all()


def test_numbers_and_images_are_packed() -> None:
    values = np.array([[1.5, np.nan], [-2.0, 3e9]])
    assert np.array_equal(unpacked(packed(values)), values.astype(np.float32), equal_nan=True)
    tiles = np.arange(2 * 3 * 4 * 4 * 3).reshape(2, 3, 4, 4, 3)
    whole = sheet(tiles)
    assert whole.shape == (8, 12, 3)
    assert np.array_equal(whole[4:8, 8:12], tiles[1, 2])


def test_entries_have_the_names_of_the_environment() -> None:
    native = ("position[0]", "position[1]", "speed")
    vector = Vector(3, entries=(2, 1), angles=(1,))
    named = document.entry_names("sensors", vector, native)
    assert named == ["speed", "cos position[1]", "sin position[1]"]
    assert document.entry_names("arm", Vector(2), native) == ["arm[0]", "arm[1]"]


def test_the_document_has_the_state_the_curve_and_the_baselines(run: Run) -> None:
    made = document.explained(run, source.play_start(run, 0), "a command")
    assert [one["name"] for one in made["probe"]] == [
        f"{name}[{index}]" for name in ("position", "velocity", "target") for index in (0, 1)
    ]
    assert made["vectors"][0]["labels"][0] == "position[0]"
    assert set(made["baselines"]) == {"random", "zero"}
    assert made["curve"]["train_return"]
    assert ["planner.horizon", "4"] in made["settings"]
    assert made["period"] == pytest.approx(0.1)
    assert (made["sure"]["level"], made["probe_steps"]) == (None, latent.MIN_PROBE_STEPS)
    assert [view["name"] for view in made["latent"]] == ["all members", "member 1", "member 2"]
    for view in made["latent"]:
        path, futures = unpacked(view["path"]), unpacked(view["futures"])
        assert futures.shape == (24, 2, 5, 2)
        assert futures[:, :, 0] == pytest.approx(np.repeat(path[:, None], 2, 1), abs=1e-5)
    again = document.explained(run, source.play_start(run, 1), "a command")
    assert again["return"] != made["return"]


def test_the_latent_space_leaves_out_a_dead_member(folder: Path) -> None:
    run = runs.load_run(folder, device="cpu")
    with torch.no_grad():
        for part in run.agent.model.particle_parameters():
            part[0] = torch.nan
    made = document.explained(run, source.play_start(run, 0), "a command")
    assert [view["name"] for view in made["latent"]] == ["member 2"]
    assert np.isfinite(unpacked(made["latent"][0]["futures"])).all()
    html.page(made, "explain")


def test_a_state_without_names_is_not_probed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment may have too many entries to name. The agent's vectors are probed instead."""
    env = dataclasses.replace(run.config.env, observation=("state",))
    of_state = dataclasses.replace(run, config=dataclasses.replace(run.config, env=env))
    assert source.environment(of_state)[1] == "state"
    monkeypatch.setattr(source, "state_names", lambda env: ())
    assert source.environment(of_state)[1] is None


def test_a_page_is_written_from_stored_and_logged_episodes_without_the_environment(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*words: object) -> None:
        raise AssertionError("an environment was made")

    monkeypatch.setattr("planet_bayes.envs.make.make_env", refuse)
    assert cli.main(["explain", str(folder), "--episode", "2"]) == 0
    made = html.figures((folder / "explain.html").read_text())
    stored = read_episode(sorted((folder / "episodes").glob("*.npz"))[2])
    assert not made["acted"]
    assert made["command"] == f"planet-bayes explain {folder} --episode 2"
    assert np.array_equal(unpacked(made["reward"]), stored.reward)
    assert np.array_equal(unpacked(made["vectors"][0]["real"]), stored.observation["sensors"])
    log, target = tmp_path / "some log.npz", tmp_path / "new" / "page.html"
    log.write_bytes(pack(stored))
    assert cli.main(["explain", str(folder), "--log", str(log), "--output", str(target)]) == 0
    same = html.figures(target.read_text())
    assert same["title"] == "logged episode some log.npz"
    assert same["plans"] == made["plans"]
    assert "wrote" in capsys.readouterr().out


def test_no_text_of_a_run_ends_the_script(folder: Path, tmp_path: Path) -> None:
    stored = read_episode(sorted((folder / "episodes").glob("*.npz"))[0])
    log = tmp_path / "<!--<script>alert(1)<|script>.npz"
    log.write_bytes(pack(stored))
    target = tmp_path / "page.html"
    assert cli.main(["explain", str(folder), "--log", str(log), "--output", str(target)]) == 0
    text = target.read_text()
    assert "<script>alert" not in text
    assert html.figures(text)["title"].endswith(log.name)


def refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["explain", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_bad_input_gets_one_sentence(
    folder: Path, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.json").write_bytes((folder / "config.json").read_bytes())
    refused([str(tmp_path / "begun")], "no checkpoint", capsys)
    name = str(folder)
    refused([name, "--episode", "99"], "has the episodes 0 to", capsys)
    refused([name, "--episode", "1", "--seed", "2"], "exclude each other", capsys)
    refused([name, "--seed", "-1"], "must not be negative", capsys)
    refused([name, "--log", str(tmp_path / "none.npz")], "there is no file", capsys)
    refused([str(tmp_path / "nowhere")], "is not a folder", capsys)
    assert not (tmp_path / "nowhere").exists()
    exported = runs.export(folder, tmp_path / "exported")
    refused([str(exported), "--episode", "0"], "stores no episodes", capsys)
    good = read_episode(sorted((folder / "episodes").glob("*.npz"))[0])
    values = np.asarray(good.observation["sensors"], np.float32)
    holed = values.copy()
    holed[3, 1] = np.nan
    wrong: list[tuple[Episode, str]] = [
        (dataclasses.replace(good, observation={"arm": values}), "observations arm, but the agent"),
        (dataclasses.replace(good, observation={"sensors": values[:, :2]}), "of shape (2,)"),
        (dataclasses.replace(good, observation={"sensors": holed}), "NaN or infinite numbers"),
        (dataclasses.replace(good, action=good.action[:, :1]), "actions of size 1"),
    ]
    for episode, message in wrong:
        log = tmp_path / "log.npz"
        log.write_bytes(pack(episode))
        refused([name, "--log", str(log)], message, capsys)
    (tmp_path / "log.npz").write_bytes(b"no episode")
    refused([name, "--log", str(tmp_path / "log.npz")], "is not an episode", capsys)


def test_a_page_that_cannot_be_written_is_refused_before_the_episode(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*words: object) -> None:
        raise AssertionError("an episode was played")

    monkeypatch.setattr(source, "play_start", refuse)
    monkeypatch.setattr("planet_bayes.cli.compare.Compare.command", refuse)
    (tmp_path / "file").touch()
    (tmp_path / "page.html").mkdir()
    pair = [str(folder), str(folder)]
    for target, message in (
        (tmp_path / "page.html", "is a folder; name a file to write"),
        (tmp_path / "file" / "page.html", "cannot be written: "),
    ):
        refused([str(folder), "--output", str(target)], message, capsys)
        assert cli.main(["compare", *pair, "--output", str(target)]) == 2
        assert message in capsys.readouterr().err


def test_a_run_whose_environment_is_gone_says_what_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = runs.load_run(folder, device="cpu")
    gone = dataclasses.replace(loaded, config=replaced(loaded.config, task="no_such_module:make"))
    monkeypatch.setattr(runs, "load_run", lambda *words, **options: gone)
    refused([str(folder)], "--episode N or --log FILE", capsys)
