"""The training loop: resume to the bit, stop in order, fail without loss."""

# mypy: allow-untyped-defs, allow-incomplete-defs

import dataclasses
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import planet_bayes
from assertions import assert_same_run, newest_weights
from planet_bayes import runs
from planet_bayes.config import Config
from planet_bayes.data.episode import read_episode
from planet_bayes.data.files import check_folder
from planet_bayes.data.rows import read_metrics
from planet_bayes.envs import EnvConfig
from planet_bayes.errors import ConfigError, EnvError, NumericalError, RunError
from planet_bayes.models import Vector, WorldModel
from planet_bayes.spaces import Box, Signature
from planet_bayes.training import Event, Trainer, checkpoint, loop, weights
from planet_bayes.training.build import build_model
from planet_bayes.training.events import Problem, Updated
from planet_bayes.training.learner import Learner
from planet_bayes.training.progress import Progress
from tiny_run import filled_replay, replaced


def stop_after(calls: int) -> Callable[[], bool]:
    """Ask to stop at the n-th time that the loop looks: inside updates or inside episodes."""
    left = calls

    def should_stop() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    return should_stop


@pytest.fixture(scope="module")
def finished(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped; not to be written to."""
    path, ended = runs.train(tiny, tmp_path_factory.mktemp("finished") / "run")
    assert ended
    return path


@pytest.fixture
def reference(finished: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(finished, tmp_path / "reference")
    return tmp_path / "reference"


@pytest.mark.usefixtures("films")
def test_a_run_leaves_what_it_promises(tiny: Config, tmp_path: Path) -> None:
    tiny = replaced(tiny, run={"video_every": 2})
    reference, _ = runs.train(tiny, tmp_path / "run")
    rows = read_metrics(reference / "metrics.jsonl")
    assert [row["episode"] for row in rows] == [0, 1, 2, 3]
    assert all(math.isfinite(row["loss_total"]) for row in rows)
    assert all(1 <= row["plan_components"] <= 2 for row in rows[:3])
    assert ["train_return" in row for row in rows] == [True, True, True, False]
    assert [len(row.get("evaluation_returns", [])) for row in rows] == [0, 0, 2, 2]
    lines = (reference / "metrics.csv").read_text().splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("episode,steps,updates")
    assert sorted(p.name for p in (reference / "videos").glob("*.mp4")) == [
        "episode-00002.mp4",
        "episode-00003.mp4",
    ]
    assert len(list((reference / "episodes").glob("*.npz"))) == 5
    check_folder(reference / "held-out")  # those of the last evaluation only
    kept = [read_episode(path) for path in sorted((reference / "held-out").glob("*.npz"))]
    totals = [float(one.reward.sum(dtype=np.float64)) for one in kept]
    assert totals == pytest.approx(rows[3]["evaluation_returns"], rel=1e-6)
    assert len(checkpoint.list_checkpoints(reference)) == tiny.run.keep_checkpoints
    assert list((reference / "tensorboard").iterdir())
    saved = planet_bayes.config.load(reference / "config.json")
    assert saved == tiny


def test_same_seed_same_run_and_another_seed_another(
    reference: Path, tiny: Config, tmp_path: Path
) -> None:
    again, _ = runs.train(tiny, tmp_path / "again")
    assert_same_run(reference, again)
    other, _ = runs.train(dataclasses.replace(tiny, seed=4), tmp_path / "other")
    first, second = newest_weights(reference), newest_weights(other)
    assert any(not torch.equal(first[name], second[name]) for name in first)


# Looks happen 2 times in seeding, 4 per update phase, 12 per episode, 12 per evaluation.
@pytest.mark.parametrize("calls", [0, 1, 3, 4, 8, 25, 47, 55, 70, 77])
def test_resume_is_bit_identical(reference: Path, tiny: Config, tmp_path: Path, calls: int) -> None:
    path = tmp_path / "stopped"
    _, ended = runs.train(tiny, path, should_stop=stop_after(calls))
    assert not ended
    _, ended = runs.train(runs.resume_config(path), path, resume=True)
    assert ended
    assert_same_run(reference, path)


def test_stopped_again_and_again(reference: Path, tiny: Config, tmp_path: Path) -> None:
    path = tmp_path / "stopped"
    _, ended = runs.train(tiny, path, should_stop=stop_after(5))
    # 30 looks are enough for an iteration with its evaluation, not for two.
    for _ in range(3):
        assert not ended
        config = runs.resume_config(path)
        _, ended = runs.train(config, path, resume=True, should_stop=stop_after(30))
    _, ended = runs.train(runs.resume_config(path), path, resume=True)
    assert ended
    assert_same_run(reference, path)


def test_a_longer_run_goes_on_from_a_finished_one(
    finished: Path, tiny: Config, tmp_path: Path
) -> None:
    short = replaced(tiny, collect={"episodes": 1})
    path, _ = runs.train(short, tmp_path / "run")
    longer = runs.resume_config(path, tiny)
    _, ended = runs.train(longer, path, resume=True)
    assert ended
    assert [row["episode"] for row in read_metrics(path / "metrics.jsonl")] == [0, 1, 2, 3]
    assert_same_run(finished, path)


def test_what_is_changed_on_resume_is_remembered(tiny: Config, tmp_path: Path) -> None:
    short = replaced(tiny, collect={"episodes": 1})
    path, _ = runs.train(short, tmp_path / "run")
    _, ended = runs.train(
        runs.resume_config(path, tiny), path, resume=True, should_stop=stop_after(3)
    )
    assert not ended
    assert runs.resume_config(path).collect.episodes == tiny.collect.episodes


def test_a_run_that_was_killed_at_once_can_be_resumed(tiny: Config, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with Trainer(tiny, path).session():
        pass  # nothing collected, nothing learned
    _, ended = runs.train(runs.resume_config(path), path, resume=True)
    assert ended


def test_making_a_trainer_opens_and_writes_nothing(tiny: Config, tmp_path: Path) -> None:
    trainer = Trainer(dataclasses.replace(tiny, task="nowhere"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="unknown task"):
        trainer.train()
    assert not (tmp_path / "run").exists()


def test_a_folder_has_one_run_at_a_time(tiny: Config, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with (
        Trainer(tiny, path).session(),
        pytest.raises(RunError, match="in use by another process"),
    ):
        Trainer(tiny, path, resume=True).train()
    with Trainer(tiny, path, resume=True).session():
        pass


def test_episodes_are_not_overwritten_when_the_configuration_is_lost(
    reference: Path, tiny: Config
) -> None:
    (reference / "config.json").unlink()
    with pytest.raises(RunError, match="already holds a run"):
        runs.train(tiny, reference)
    assert len(list((reference / "episodes").glob("*.npz"))) == 5


def test_the_public_train_is_a_function_each_time(tiny: Config, tmp_path: Path) -> None:
    short = replaced(tiny, collect={"episodes": 0})
    for name in ("a", "b"):
        path, ended = planet_bayes.train(short, tmp_path / name)
        assert ended
        assert planet_bayes.load_run(path).progress.episodes == 2


def test_only_harmless_settings_change_on_resume(reference: Path, tiny: Config) -> None:
    changed = replaced(tiny, model={"deter": 9})
    with pytest.raises(ConfigError, match=r"model\.deter cannot be changed"):
        runs.resume_config(reference, changed)


def test_loaded_run_acts_and_evaluates(reference: Path) -> None:
    run = planet_bayes.load_run(reference)
    env = run.make_env()
    observation, _ = env.reset(seed=1)
    action, carry, _ = run.agent.act(run.agent.initial(), [observation], torch.Generator())
    assert action.shape == (1, 2)
    assert carry.proposal is not None
    assert planet_bayes.evaluate(run, 2) == planet_bayes.evaluate(run, 2)
    assert len(planet_bayes.evaluate(run, 3)) == 3
    assert planet_bayes.evaluate(run, 2) != planet_bayes.evaluate(run, 2, starts=1)


@pytest.mark.usefixtures("films")
def test_pixels_train_and_film(tiny: Config, tmp_path: Path) -> None:
    config = replaced(
        tiny,
        env=EnvConfig(observation=("pixels",), image_size=32, max_steps=6),
        model={"image_depth": 2},
        loss={"decode_fraction": 0.5},
        collect={"episodes": 1},
    )
    path, ended = runs.train(config, tmp_path / "run")
    assert ended
    with np.load(path / "episodes" / "000000.npz") as arrays:
        assert arrays["observation.camera"].dtype == np.uint8
        assert arrays["observation.camera"].shape == (7, 32, 32, 3)
    assert (path / "videos" / "episode-00001.mp4").stat().st_size > 500


@pytest.mark.parametrize("sharing", ["own", "shared", "split"])
@pytest.mark.parametrize("method", ["planet", "e_only", "m_only", "planet_bayes"])
def test_each_method_and_sharing_trains(
    tiny: Config, tmp_path: Path, method: str, sharing: str
) -> None:
    config = replaced(
        tiny.with_method(method), collect={"episodes": 1}, learn={"batch_sharing": sharing}
    )
    path, ended = runs.train(config, tmp_path / "run")
    assert ended
    run = planet_bayes.load_run(path)
    assert run.config.method == method
    assert run.agent.model.num_particles == (2 if method in ("e_only", "planet_bayes") else 1)
    env = run.make_env()
    observation, _ = env.reset(seed=0)
    _, carry, seen = run.agent.act(run.agent.initial(), [observation], torch.Generator())
    assert carry.proposal is not None
    components = carry.proposal.components().weight.shape[1]
    assert components == (2 if method in ("m_only", "planet_bayes") else 1)
    candidates, particles = seen.returns.shape[1:]
    assert candidates * particles == config.planner.num_trajectories


def test_the_first_updates_can_be_more(tiny: Config, tmp_path: Path) -> None:
    for first, expected in ((10, [10, 14, 18, 22]), (2, [4, 8, 12, 16])):
        config = replaced(tiny, learn={"first_updates": first})
        path, _ = runs.train(config, tmp_path / str(first))
        rows = read_metrics(path / "metrics.jsonl")
        assert [row["updates"] for row in rows] == expected


@pytest.mark.parametrize(
    ("every", "last", "when"), [(0, 0, [3]), (2, 0, [2, 3]), (0, 2, [2, 3]), (0, 9, [1, 2, 3])]
)
def test_evaluations_are_made_when_asked_for(
    tiny: Config, tmp_path: Path, every: int, last: int, when: list[int]
) -> None:
    config = replaced(tiny, run={"evaluate_every": every, "evaluate_last": last})
    path, _ = runs.train(config, tmp_path / "run")
    rows = read_metrics(path / "metrics.jsonl")
    assert [row["episode"] for row in rows if "evaluation_return" in row] == when


def test_learning_lowers_the_loss(tiny: Config, tmp_path: Path) -> None:
    config = replaced(tiny, collect={"episodes": 0}, learn={"updates_per_episode": 150})
    seen: list[float] = []

    def report(event: Event) -> None:
        if isinstance(event, Updated):
            seen.append(event.losses["total"])

    runs.train(config, tmp_path / "run", report=report)
    assert np.mean(seen[-20:]) < 0.5 * np.mean(seen[:5])


class Faulty(gymnasium.Env):
    """Works for a number of steps in all, then returns or raises what the test wants."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)
    fault = "none"
    good_steps = 45
    count = 0
    ends_at: int | None = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        Faulty.count += 1
        self.time += 1
        observation, reward = np.full(2, 0.1 * self.time, np.float32), 1.0
        if Faulty.count > self.good_steps:
            if self.fault == "nan reward":
                reward = float("nan")
            elif self.fault == "nan observation":
                observation[0] = np.nan
            elif self.fault == "raise":
                raise RuntimeError("motor unplugged")
        return observation, reward, self.time == self.ends_at, self.time >= 10, {}


@pytest.fixture
def faulty(tiny: Config, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setattr(Faulty, "count", 0)
    return replaced(
        tiny,
        task=f"{__name__}:Faulty",
        env=EnvConfig(observation=("state",)),
        run={"evaluate_every": 0},
    )


@pytest.mark.parametrize("fault", ["nan reward", "nan observation", "raise"])
def test_a_fault_of_the_environment_loses_nothing(
    faulty: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(Faulty, "fault", fault)
    path = tmp_path / "run"
    with pytest.raises(EnvError, match="step"):
        runs.train(faulty, path)
    progress = checkpoint.newest_sound(path).progress
    assert progress.episodes == 4  # 2 seed episodes and 2 with the agent, 10 steps each
    assert progress.updates == 12  # those of the iteration in which it broke are kept too
    monkeypatch.setattr(Faulty, "fault", "none")
    _, ended = runs.train(runs.resume_config(path), path, resume=True)
    assert ended


def test_terminal_episodes_are_extended_by_absorbing_steps(
    faulty: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faulty, "ends_at", 4)
    config = replaced(faulty, collect={"absorbing_steps": 5})
    path, _ = runs.train(config, tmp_path / "run")
    with np.load(path / "episodes" / "000003.npz") as arrays:
        assert arrays["reward"].tolist() == [0, 1, 1, 1, 1, 0, 0, 0, 0, 0]
        assert np.all(arrays["observation.state"][4:] == arrays["observation.state"][4])
        assert arrays["terminal"].tolist() == [False] * 4 + [True] * 6


def poison(monkeypatch: pytest.MonkeyPatch, updates: range) -> None:
    """Make the rewards of some updates' batches NaN."""
    original = Learner.sample

    def sample(self: Learner, replay, number: int):
        batch = original(self, replay, number)
        if number not in updates:
            return batch
        return dataclasses.replace(batch, reward=batch.reward * np.nan)

    monkeypatch.setattr(Learner, "sample", sample)


def test_an_update_that_is_not_finite_is_left_out_and_counted(
    tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, range(5, 7))
    said: list[str] = []

    def report(event: Event) -> None:
        if isinstance(event, Problem):
            said.append(event.message)

    path, ended = runs.train(tiny, tmp_path / "run", report=report)
    assert ended
    assert [text for text in said if "not finite" in text] == [
        f"update {number}: reward, gradient_norm, shared_gradient_norm is not finite. It is "
        "skipped."
        for number in (5, 6)
    ]
    rows = read_metrics(path / "metrics.jsonl")
    assert [row["skipped_updates"] for row in rows] == [0, 2, 0, 0]
    assert all(math.isfinite(row["loss_total"]) for row in rows)
    assert all(bool(torch.isfinite(value).all()) for value in newest_weights(path).values())
    # And it is left out again, the same, when the run is stopped amid such updates.
    again = tmp_path / "again"
    calls = 2 * 6 + 4 + 12 + 2  # see test_resume_is_bit_identical
    _, ended = runs.train(tiny, again, should_stop=stop_after(calls))
    assert not ended
    assert runs.train(runs.resume_config(again), again, resume=True)[1]
    assert_same_run(path, again)


def test_too_many_in_a_row_stop_the_run_and_name_the_term(
    tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    poison(monkeypatch, range(6, 100))
    monkeypatch.setattr(loop, "MAX_SKIPPED_UPDATES", 3)
    with pytest.raises(NumericalError, match=r"update 8: reward.* 3 updates in a row"):
        runs.train(tiny, path)
    assert all(bool(torch.isfinite(value).all()) for value in newest_weights(path).values())
    assert checkpoint.newest_sound(path).progress.updates == 9
    monkeypatch.undo()
    _, ended = runs.train(runs.resume_config(path), path, resume=True)
    assert ended


def test_run_folders_that_are_none(tmp_path: Path, reference: Path, tiny: Config) -> None:
    with pytest.raises(RunError, match="not a folder"):
        planet_bayes.load_run(tmp_path / "nowhere")
    with pytest.raises(RunError, match="not a run folder"):
        planet_bayes.load_run(tmp_path)
    with pytest.raises(RunError, match="already holds a run"):
        runs.train(tiny, reference)


SIGNATURE = Signature({"sensors": Vector(4)}, Box((-1.0, -1.0), (1.0, 1.0)))


def learner_of(config: Config, averaging: float) -> Learner:
    config = replaced(config, learn={"ema_decay": averaging})
    return Learner(build_model(config, SIGNATURE, "cpu"), config)


def weights_of(model: WorldModel) -> dict[str, np.ndarray]:
    return {name: one.detach().numpy().copy() for name, one in model.named_parameters()}


def test_the_agent_acts_with_the_average_of_the_last_weights(tiny: Config, tmp_path: Path) -> None:
    replay = filled_replay(tmp_path / "episodes")
    plain, averaging = learner_of(tiny, 0.0), learner_of(tiny, 0.3)
    assert plain.acting_model is plain.model
    expected = weights_of(averaging.model)
    for number in range(4):
        for learner in (plain, averaging):
            learner.rescale(replay)
            learner.update(replay, number)
        newest = weights_of(averaging.model)
        past = min(0.3, [1 / 10, 2 / 11, 3 / 12, 4 / 13][number])
        expected = {name: past * expected[name] + (1 - past) * newest[name] for name in newest}
        for name, value in weights_of(averaging.acting_model).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-7)
            np.testing.assert_array_equal(newest[name], weights_of(plain.model)[name])
    scales = [list(model.buffers()) for model in (averaging.acting_model, averaging.model)]
    assert len(scales[0]) == 3
    for one, other in zip(*scales, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("before", [0.0, 0.5])
@pytest.mark.parametrize("after", [0.0, 0.5])
def test_learned_weights_and_their_average_are_both_saved(
    tiny: Config, tmp_path: Path, before: float, after: float
) -> None:
    replay = filled_replay(tmp_path / "episodes")
    learner, other = learner_of(tiny, before), learner_of(tiny, after)
    for number in range(3):
        learner.update(replay, number)
    saved = checkpoint.save(tmp_path, learner.config, SIGNATURE, learner, Progress())
    weights.load_learner(saved, other)
    # Whoever stops averaging goes on as learned.
    acting = learner.acting_model if after else learner.model
    for left, right in ((learner.model, other.model), (acting, other.acting_model)):
        found = weights_of(right)
        for name, value in weights_of(left).items():
            np.testing.assert_array_equal(found[name], value)
    assert other.update(replay, 3) == learner.update(replay, 3)
