"""No dead knobs: every setting of env, agent, collect, learn and run changes what it names.

Those of model, loss and planner are tested beside the code that uses them.
"""

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assertions import newest_weights
from env_parts import STATE, prepared
from planet_bayes import runs
from planet_bayes.config import AgentConfig, CollectConfig, LearnConfig, RunConfig
from planet_bayes.data.episode import read_episode
from planet_bayes.data.replay import Replay
from planet_bayes.data.rows import read_metrics
from planet_bayes.envs import EnvConfig, make_env
from planet_bayes.errors import ConfigError, EnvError
from planet_bayes.models import Vector
from planet_bayes.spaces import Box
from planet_bayes.training import Trainer, checkpoint, evaluation
from planet_bayes.training.build import build_model
from planet_bayes.training.collect import collect_random
from planet_bayes.training.learner import Learner
from planet_bayes.training.progress import load_progress
from planet_bayes.types import Episode
from tiny_run import TINY, filled_replay, replaced

GROUPS = {
    "env": EnvConfig,
    "agent": AgentConfig,
    "collect": CollectConfig,
    "learn": LearnConfig,
    "run": RunConfig,
}
COVERED: list[str] = []

Test = Callable[..., None]
Run = Callable[..., Path]


def covers(*settings: str) -> Callable[[Test], Test]:
    """Note that a test shows the effect of these settings."""
    COVERED.extend(settings)
    return lambda test: test


def test_every_setting_is_covered() -> None:
    fields = [
        f"{group}.{field.name}"
        for group, kind in GROUPS.items()
        for field in dataclasses.fields(kind)
    ]
    assert len(set(COVERED)) == len(COVERED)
    assert sorted(COVERED) == sorted(fields)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that trains the tiny run with changed settings and returns its folder."""
    count = 0

    def train(**groups: Any) -> Path:
        nonlocal count
        count += 1
        path = tmp_path / f"run-{count}"
        assert Trainer(replaced(TINY, **groups), path).train()
        return path

    return train


def rows(path: Path) -> list[dict[str, Any]]:
    return read_metrics(path / "metrics.jsonl")


def episodes(path: Path) -> list[Episode]:
    return [read_episode(one) for one in sorted((path / "episodes").glob("*.npz"))]


def learner(tmp_path: Path, **groups: Any) -> tuple[Learner, Replay]:
    """Return a learner of the tiny run, and a replay of four episodes, two of them seeds."""
    config = replaced(TINY, **groups)
    signature = make_env(config.task, config.env).signature
    replay = filled_replay(tmp_path / f"replay-{len(list(tmp_path.iterdir()))}")
    return Learner(build_model(config, signature, "cpu"), config), replay


# --- env


@covers("env.observation")
def test_observation_names_what_the_agent_sees(run: Run) -> None:
    one = run(collect={"episodes": 1})
    both = run(
        env={"observation": ("camera=pixels", "joints=sensors"), "image_size": 32, "max_steps": 5},
        collect={"episodes": 1},
        model={"image_depth": 2},
    )
    assert list(episodes(one)[-1].observation) == ["sensors"]
    seen = episodes(both)[-1].observation
    assert {name: value.shape for name, value in seen.items()} == {
        "camera": (6, 32, 32, 3),
        "joints": (6, 4),
    }
    row = rows(both)[-1]
    parts = row["loss_observation_camera"], row["loss_observation_joints"]
    assert row["loss_observation"] == pytest.approx(sum(parts))


@covers("env.original")
def test_original_is_the_suites_own_task() -> None:
    bounds = []
    for original in (False, True):
        with make_env("cheetah_run", EnvConfig(("state",), original=original)) as env:
            bounds.append(env.signature.action)
    assert bounds == [Box((-3.0,) * 6, (3.0,) * 6), Box((-1.0,) * 6, (1.0,) * 6)]


@covers("env.action_repeat", "env.max_steps")
def test_action_repeat_and_max_steps_shorten_episodes(run: Run) -> None:
    def length(**env: Any) -> int:
        config = replaced(TINY, env={"max_steps": 0, **env})
        made = make_env(config.task, config.env)
        return len(collect_random(config, made, made.signature, 0)) - 1

    assert length() == 50
    assert length(action_repeat=5) == 10
    assert length(max_steps=7) == 7
    assert length(max_steps=7, action_repeat=5) == 7
    assert length(max_steps=20, action_repeat=5) == 10
    assert [len(one) for one in episodes(run(env={"max_steps": 7}))] == [8] * 5


@covers("env.image_size", "env.blur")
def test_image_size_and_blur_change_images() -> None:
    images = {}
    for size, blur in ((64, 1), (32, 1), (32, 5)):
        with make_env("toy_reach", EnvConfig(image_size=size, blur=blur)) as env:
            images[size, blur] = prepared(env, env.reset(seed=0)[0])
    assert images[64, 1].shape == (64, 64, 3)
    assert images[32, 1].shape == images[32, 5].shape == (32, 32, 3)
    sharp, blurred = (np.abs(np.diff(images[32, blur].astype(int), axis=0)) for blur in (1, 5))
    assert 0 < blurred.max() < sharp.max()


@covers("env.sensors")
def test_sensors_select_entries() -> None:
    with make_env("toy_reach", EnvConfig(("sensors",), sensors=(5, 2))) as env:
        assert env.signature.observation["sensors"] == Vector(6, (5, 2))
        raw, _ = env.reset(seed=0)
        assert np.array_equal(prepared(env, raw), raw["sensors"][[5, 2]].astype(np.float32))


@covers("env.timeout")
def test_timeout_ends_calls_that_hang(own: Callable[..., str]) -> None:
    def slow(step: int) -> Any:
        time.sleep(0.3)
        return np.zeros(3, np.float32)

    for timeout in (0.0, 5.0):
        make_env(own(observe=slow), dataclasses.replace(STATE, timeout=timeout)).reset(seed=0)
    env = make_env(own(observe=slow), dataclasses.replace(STATE, timeout=0.05))
    with pytest.raises(EnvError, match=r"reset\(\) hangs: it has not returned in 0\.05 s"):
        env.reset(seed=0)


# --- agent


@covers("agent.belief", "agent.latent_particles")
def test_beliefs_of_other_weights_act_in_other_ways(run: Run) -> None:
    def actions(**agent: Any) -> Any:
        return episodes(run(agent=agent, collect={"episodes": 1}))[-1].action

    found = [
        actions(belief="inference"),
        actions(belief="importance"),
        actions(belief="particle_filter", latent_particles=4),
        actions(belief="particle_filter", latent_particles=8),
    ]
    for number, one in enumerate(found):
        assert not any(np.array_equal(one, other) for other in found[:number])


# --- collect


@covers("collect.episodes", "collect.seed_episodes")
def test_episodes_of_the_agent_and_random_ones(run: Run) -> None:
    path = run(collect={"episodes": 2, "seed_episodes": 3})
    assert len(episodes(path)) == 5
    assert [row["episode"] for row in rows(path)] == [0, 1, 2]
    fewer = run(collect={"episodes": 1, "seed_episodes": 4})
    assert len(episodes(fewer)) == 5
    assert [row["episode"] for row in rows(fewer)] == [0, 1]
    # The fourth episode is the agent's first in one run, and random in the other.
    for index in range(3):
        assert np.array_equal(episodes(path)[index].action, episodes(fewer)[index].action)
    assert not np.array_equal(episodes(path)[3].action, episodes(fewer)[3].action)


@covers("collect.exploration")
def test_exploration_is_the_std_of_the_noise(run: Run) -> None:
    settings = {"execute": "mean"}
    greedy, noisy, wild = (
        episodes(run(collect={"episodes": 1, "exploration": std}, planner=settings))[-1].action[1]
        for std in (0.0, 0.1, 0.2)
    )
    # The first action is that of the planner plus noise; the draws are the same in each run.
    assert np.abs(greedy).max() < 0.5
    np.testing.assert_allclose(wild - greedy, 2 * (noisy - greedy), rtol=1e-4)
    assert (noisy != greedy).all()


@covers("collect.absorbing_steps")
def test_absorbing_steps_follow_a_terminal_state(own: Callable[..., str]) -> None:
    task = own(length=4)
    for steps in (0, 3):
        config = replaced(TINY, task=task, env=STATE, collect={"absorbing_steps": steps})
        env = make_env(task, STATE)
        episode = collect_random(config, env, env.signature, 0)
        assert len(episode) == 5 + steps
        assert episode.terminal.tolist() == [False] * 4 + [True] * (1 + steps)
        assert (episode.reward[5:] == 0).all()
        assert (episode.observation["state"][4:] == 4).all()


@covers("collect.overlap")
def test_overlap_collects_in_another_process(tmp_path: Path) -> None:
    for overlap in (False, True):
        config = replaced(TINY, collect={"overlap": overlap, "episodes": 1})
        with Trainer(config, tmp_path / str(overlap)).session() as session:
            assert (session.collector is not None) == overlap
            if session.collector is not None:
                assert session.collector.pid not in (None, os.getpid())


@covers("collect.curiosity", "collect.curiosity_decay")
def test_curiosity_and_its_decay_change_what_is_collected(run: Run) -> None:
    ways: Any = ({}, {"curiosity": 9.0}, {"curiosity": 9.0, "curiosity_decay": 0.01})
    assert len({episodes(run(collect=one))[-1].action.tobytes() for one in ways}) == 3


# --- learn


@covers("learn.updates_per_episode", "learn.first_updates")
def test_numbers_of_updates(run: Run) -> None:
    def updates(**learn: int) -> list[int]:
        return [row["updates"] for row in rows(run(learn=learn, collect={"episodes": 2}))]

    assert updates(updates_per_episode=2) == [2, 4, 6]
    assert updates(updates_per_episode=3) == [3, 6, 9]
    assert updates(updates_per_episode=2, first_updates=5) == [5, 7, 9]
    assert updates(updates_per_episode=2, first_updates=1) == [2, 4, 6]


@covers("learn.batch_size", "learn.sequence_length", "learn.batch_sharing")
def test_shapes_of_batches(tmp_path: Path) -> None:
    def shape(**learn: Any) -> tuple[int, ...]:
        made, replay = learner(tmp_path, learn=learn)
        return tuple(made.sample(replay, 0).reward.shape)

    assert shape(batch_size=4, sequence_length=6, batch_sharing="own") == (2, 4, 6)
    assert shape(batch_size=8, sequence_length=6, batch_sharing="own") == (2, 8, 6)
    assert shape(batch_size=4, sequence_length=3, batch_sharing="own") == (2, 4, 3)
    assert shape(batch_size=4, sequence_length=6, batch_sharing="bootstrap") == (2, 4, 6)
    assert shape(batch_size=4, sequence_length=6, batch_sharing="shared") == (1, 4, 6)
    assert shape(batch_size=4, sequence_length=6, batch_sharing="split") == (2, 2, 6)


@covers("learn.agent_weight")
def test_agent_weight_is_the_weight_of_later_episodes(tmp_path: Path) -> None:
    def late(weight: float) -> float:
        learn = {"agent_weight": weight, "batch_size": 500, "sequence_length": 12}
        made, replay = learner(tmp_path, learn=learn)
        later = [replay.episode(index).reward[0] for index in (2, 3)]
        batch = made.sample(replay, 0)
        return float(np.isin(batch.reward[..., 0].numpy(), later).mean())

    assert late(1.0) == pytest.approx(1 / 2, abs=0.05)
    assert late(4.0) == pytest.approx(4 / 5, abs=0.05)
    assert late(1e9) == 1


@covers("learn.onset_share")
def test_onset_share_is_the_share_of_sequences_with_an_onset(tmp_path: Path) -> None:
    def share(wanted: float) -> float:
        learn = {"onset_share": wanted, "batch_size": 500, "sequence_length": 10}
        made, replay = learner(tmp_path, learn=learn)
        replay = Replay(tmp_path / f"sparse-{wanted}")
        for number in range(20):
            reward = np.zeros(100, np.float32)
            reward[50] = number == 7
            still = np.zeros((100, 4), np.float32)
            replay.add(Episode({"sensors": still}, still[:, :2], reward, np.zeros(100, np.bool_)))
        batch = made.sample(replay, 0)
        return float((batch.reward[..., 1:] > 0).any(-1).float().mean())

    assert share(0.0) < 0.02
    assert share(0.09) == pytest.approx(0.09, abs=0.025)


@covers("learn.learning_rate")
def test_learning_rate_is_adams_step_size(tmp_path: Path) -> None:
    def step(rate: float) -> torch.Tensor:
        made, replay = learner(tmp_path, learn={"learning_rate": rate, "ema_decay": 0.0})
        before = torch.nn.utils.parameters_to_vector(made.model.parameters()).detach().clone()
        made.update(replay, 0)
        after = torch.nn.utils.parameters_to_vector(made.model.parameters()).detach()
        return after - before

    small, large = step(1e-3), step(2e-3)
    assert float(small.abs().max()) == pytest.approx(1e-3, rel=0.05)
    assert torch.allclose(large, 2 * small, rtol=1e-2, atol=1e-7)


@covers("learn.ema_decay")
def test_ema_decay_is_the_share_of_the_past_in_the_acting_weights(tmp_path: Path) -> None:
    made, replay = learner(tmp_path, learn={"ema_decay": 0.0})
    assert made.acting_model is made.model
    for decay in (0.5, 0.8):
        made, replay = learner(tmp_path, learn={"ema_decay": decay})
        past = [value.detach().clone() for value in made.acting_model.parameters()]
        made.update(replay, 100)
        for old, new, acting in zip(
            past, made.model.parameters(), made.acting_model.parameters(), strict=True
        ):
            assert torch.allclose(acting, decay * old + (1 - decay) * new, atol=1e-7)


@covers("learn.cycle_updates", "learn.posterior_temperature")
def test_cycles_and_temperature_of_the_chain(tmp_path: Path) -> None:
    def chain(posterior: str = "sgmcmc", **learn: Any) -> tuple[list[torch.Tensor], int]:
        made, replay = learner(tmp_path, model={"posterior": posterior}, learn=learn)
        for number in range(6):
            made.update(replay, number)
        taken = dict(made.model.named_buffers()).get("posterior.taken", torch.tensor(-1))
        return [value.detach() for value in made.model.posterior.parameters()], int(taken)

    def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
        return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))

    (base, taken), (other, more) = chain(cycle_updates=6), chain(cycle_updates=2)
    assert (taken, more) == (1, 3)
    assert not same(base, other)
    warm, _ = chain(cycle_updates=6, posterior_temperature=2.0)
    assert not same(base, warm)
    for posterior in ("ensemble", "dropout"):
        plain, _ = chain(posterior)
        assert same(plain, chain(posterior, cycle_updates=2, posterior_temperature=2.0)[0])


# --- run


@pytest.fixture
def threads() -> Any:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Trainer]:
    """Return the trainers that are made from now on; they do not train."""
    found: list[Trainer] = []

    def train(trainer: Trainer) -> bool:
        found.append(trainer)
        return True

    monkeypatch.setattr(Trainer, "train", train)
    return found


@covers("run.threads")
@pytest.mark.usefixtures("threads")
def test_threads_are_pytorchs(
    tmp_path: Path, made: list[Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planet_bayes.runs.training.num_cores", lambda: 3)
    for threads, overlap, expected in ((2, False, 2), (1, True, 1), (0, False, 3), (0, True, 2)):
        config = replaced(TINY, run={"threads": threads}, collect={"overlap": overlap})
        runs.train(config, tmp_path / "run")
        assert torch.get_num_threads() == expected
        assert made[-1].config.run.threads == expected  # what is saved says what ran


@covers("run.device")
def test_device_is_where_the_model_is(tmp_path: Path, made: list[Trainer]) -> None:
    for name in ("cuda:99", "toaster"):
        with pytest.raises(ConfigError, match=f"device '{name}' cannot be used"):
            runs.train(replaced(TINY, run={"device": name}), tmp_path / "never")
    assert not (tmp_path / "never").exists()
    runs.train(replaced(TINY, run={"device": "meta"}), tmp_path / "elsewhere")
    assert made[0].device == torch.device("meta")


@covers("run.single_environment")
def test_a_single_environment_is_evaluated_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def counted(task: str, config: EnvConfig) -> Any:
        opened.append(task)
        return make_env(task, config)

    monkeypatch.setattr(evaluation, "make_env", counted)
    for single, expected in ((True, 0), (False, 2)):
        opened.clear()
        config = replaced(TINY, run={"single_environment": single}, collect={"episodes": 0})
        assert Trainer(config, tmp_path / str(single)).train()
        assert len(opened) == expected
        assert len(rows(tmp_path / str(single))[-1]["evaluation_returns"]) == 2


@covers("run.evaluate_every", "run.evaluate_last", "run.evaluation_episodes")
def test_when_and_how_often_the_agent_is_evaluated(run: Run) -> None:
    def evaluations(**settings: int) -> dict[int, int]:
        found = rows(run(run=settings, collect={"episodes": 4}, learn={"updates_per_episode": 1}))
        return {
            row["episode"]: len(row["evaluation_returns"])
            for row in found
            if "evaluation_returns" in row
        }

    assert evaluations(evaluate_every=0, evaluation_episodes=1) == {4: 1}
    assert evaluations(evaluate_every=2, evaluation_episodes=1) == {2: 1, 4: 1}
    assert evaluations(evaluate_every=3, evaluation_episodes=2) == {3: 2, 4: 2}
    assert evaluations(evaluate_every=0, evaluate_last=2, evaluation_episodes=1) == {3: 1, 4: 1}


@pytest.mark.usefixtures("films")
@covers("run.video_every")
def test_when_films_are_made(run: Run) -> None:
    def films(every: int) -> list[str]:
        path = run(run={"video_every": every}, env={"max_steps": 2})
        return sorted(film.stem for film in (path / "videos").glob("*.mp4"))

    assert films(0) == ["episode-00003"]
    assert films(2) == ["episode-00002", "episode-00003"]


@covers("run.checkpoint_every", "run.keep_checkpoints")
def test_when_checkpoints_are_written_and_how_many_are_kept(run: Run) -> None:
    def saved(every: int, keep: int) -> list[int]:
        path = run(run={"checkpoint_every": every, "keep_checkpoints": keep})
        return [
            load_progress(one / "progress.json").metrics
            for one in checkpoint.list_checkpoints(path)
        ]

    # One before anything, one after the seed episodes, then after iterations 0, 1, 2 and 3.
    assert saved(1, 100) == [0, 0, 1, 2, 3, 4]
    assert saved(2, 100) == [0, 0, 1, 3, 4]
    assert saved(1, 2) == [3, 4]
    assert saved(1, 1) == [4]


@covers("run.replay_ram")
def test_replay_ram_limits_the_episodes_in_memory(tmp_path: Path) -> None:
    results = {}
    for number, gigabytes in enumerate((2.0, 1e-9)):
        config = replaced(TINY, run={"replay_ram": gigabytes})
        path = tmp_path / str(number)
        assert Trainer(config, path).train()
        results[number] = newest_weights(path)
        with Trainer(config, path, resume=True).session() as session:
            assert len(session.replay) == 5
            assert len(session.replay._cache) == (5 if gigabytes == 2.0 else 1)
    # Memory is all that it changes.
    assert all(torch.equal(value, results[1][name]) for name, value in results[0].items())


def test_the_group_run_is_what_may_change_in_a_resumed_run(run: Run) -> None:
    path = run(collect={"episodes": 0})
    saved = runs.resume_config(path)
    others = {"device": "cpu", "single_environment": True, "replay_ram": 0.5}
    for field in dataclasses.fields(RunConfig):
        other = others.get(field.name, 7)
        changed = replaced(saved, run={field.name: other})
        assert changed != saved
        assert runs.resume_config(path, changed) == changed
    for group, name, other in (
        ("env", "max_steps", 7),
        ("collect", "exploration", 0.5),
        ("learn", "batch_size", 7),
    ):
        with pytest.raises(ConfigError, match=rf"{group}\.{name} cannot be changed"):
            runs.resume_config(path, replaced(saved, **{group: {name: other}}))
